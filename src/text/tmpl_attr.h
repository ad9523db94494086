/* tmpl_attr.h - attributes and calls: what `a.b`, `a['b']` and `a(...)` find, and the objects with behaviour of their
 * own (macros, methods, loops, cyclers, joiners, global functions). */
#ifndef TERN_TEXT_TMPL_ATTR_H
#define TERN_TEXT_TMPL_ATTR_H

#include "text/tmpl_ast.h"
#include "text/tmpl_filters.h"

typedef struct tframe {
  tv *slots;
  struct tframe *outer; /* the frame of the function around */
} tframe;

struct tmacro {
  const tfunc *fn;
  const node *node; /* items: parameters, more: defaults, body */
  const tstr *name; /* NULL: a caller */
  tframe *outer;
};

/* A builtin method. Mutating ones have no function: reaching for them is the sandbox's error. */
typedef struct tmethod_entry {
  const char *name;
  bool (*run)(tmpl_rt *r, tv self, const tv *slots, const targs *a, tv *out);
  const char *names;
} tmethod_entry;

struct tmethod {
  tv self;
  const tmethod_entry *entry;
};

struct tloop {
  titer *it;
  tv iterable;
  int64_t index0, length; /* length -1: not known yet */
  bool peeked, exhausted;
  tv after, current, before;
  tv changed;       /* the tuple of the last loop.changed() */
  const node *node; /* a recursive loop, else NULL */
  tframe *outer;
  int64_t depth0;
};

enum { FUNC_RANGE, FUNC_DICT, FUNC_LIPSUM, FUNC_CYCLER, FUNC_JOINER, FUNC_NAMESPACE, FUNC_RAISE, FUNC_STRFTIME };

/* environment.getattr and environment.getitem: attribute or key first; undefined where there is neither. */
bool tattr_get(tmpl_rt *r, tv object, const tstr *name, tv *out);
bool tattr_item(tmpl_rt *r, tv object, tv key, tv *out);
/* The attribute alone, as getattr() finds it; *found false: there is none. */
bool tattr_lookup(tmpl_rt *r, tv object, const tstr *name, tv *out, bool *found);
bool tattr_call(tmpl_rt *r, tv callee, const targs *a, tv *out);
bool tattr_callable(tv v);
/* A global name of the environment; *found false: there is none. */
bool tglobal_find(const tstr *name, tv *out);
bool tglobal_call(tmpl_rt *r, int which, const targs *a, tv *out);

extern const tmethod_entry tmethods_str[], tmethods_list[], tmethods_tuple[], tmethods_dict[], tmethods_int[],
    tmethods_float[], tmethods_range[], tmethods_loop[], tmethods_cycler[], tmethods_dict_type[];

const tstr *tmacro_name(const tmacro *m);
const char *tmethod_name(const tmethod *m);
tv tmethod_self(const tmethod *m);
bool tmethod_same(const tmethod *a, const tmethod *b);

bool tloop_next(tmpl_rt *r, tloop *loop, tv *out, bool *done);
bool tloop_length(tmpl_rt *r, tloop *loop, int64_t *out);
bool tloop_attr(tmpl_rt *r, tloop *loop, const tstr *name, tv *out, bool *found);
void tloop_repr(tbuf *b, tloop *loop);

/* tmpl_exec.c */
bool tmacro_call(tmpl_rt *r, tmacro *m, const targs *a, tv *out);
bool tloop_recurse(tmpl_rt *r, tloop *loop, const targs *a, tv *out);

/* strftime in the C locale; tmpl_clock.c */
bool tclock_format(tmpl_rt *r, const tstr *format, tv *out);

#endif
