/* tmpl_exec.h - running a compiled template: between tmpl_eval.c (expressions) and tmpl_exec.c (statements). */
#ifndef TERN_TEXT_TMPL_EXEC_H
#define TERN_TEXT_TMPL_EXEC_H

#include "text/tmpl_attr.h"

bool tmpl_eval(tmpl_rt *r, const node *n, tframe *f, tv *out);
/* Arguments of a call, filter or test node. `extra`: room for that many more keywords. */
bool tmpl_eval_args(tmpl_rt *r, const node *n, tframe *f, size_t extra, targs *out);
/* A filter node over a value in place of its own (the body of a block). */
bool tmpl_eval_filters(tmpl_rt *r, const node *n, tv body, tframe *f, tv *out);
bool tmpl_assign(tmpl_rt *r, const node *target, tv value, tframe *f);
bool tframe_new(tmpl_rt *r, const tfunc *fn, tframe *outer, tframe **out);
bool tframe_enter(tmpl_rt *r, const tscope *scope, tframe *f); /* runs the loads of a scope */
void tframe_leave(const tscope *scope, tframe *f);
static inline tv *tframe_slot(tframe *f, int hops, int slot)
{
  for (; hops > 0; hops--)
    f = f->outer;
  return &f->slots[slot];
}

/* Renders t with the variables of r->vars into out. */
bool tmpl_run(tmpl_rt *r, const tmpl *t, tbuf *out);

#endif
