/* tmpl_exec.c - running statements: output, branches, loops, assignments, macros and the blocks that call them. */
#include <string.h>

#include "text/tmpl_exec.h"

typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_ERROR } flow;

/* Passes an error of an expression up as flow. */
#define FLOW(expression)                                                                                               \
  do {                                                                                                                 \
    if (!(expression))                                                                                                 \
      return FLOW_ERROR;                                                                                               \
  } while (0)

static flow exec(tmpl_rt *r, const nodes *list, tframe *f, tbuf *out);

/* ---- macros ---- */

static bool take_keyword(const targs *a, bool *used, const tstr *name, tv *out)
{
  for (size_t i = 0; i < a->n_kw; i++)
    if (!used[i] && ts_equal(a->names[i], name)) {
      used[i] = true;
      *out = a->kw[i];
      return true;
    }
  return false;
}

static bool is_caller(const tstr *name)
{
  return ts_is(name, "caller");
}

/* The keywords nobody took: into kwargs, or an error. */
static bool rest_of_keywords(tmpl_rt *r, const tmacro *m, const targs *a, const bool *used, tframe *f)
{
  tdict *d = NULL;
  if (m->fn->kwargs >= 0)
    OK(td_new(r, &d));
  for (size_t i = 0; i < a->n_kw; i++) {
    if (used[i])
      continue;
    const tstr *name = a->names[i];
    if (!d)
      return rt_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", m->name ? (int)m->name->n : 4,
                     m->name ? m->name->s : "None", (int)name->n, name->s);
    OK(td_set(r, d, tv_string(name), a->kw[i]));
  }
  if (d)
    f->slots[m->fn->kwargs] = tv_dict(d);
  return true;
}

static bool rest_of_arguments(tmpl_rt *r, const tmacro *m, const targs *a, tframe *f)
{
  size_t want = m->node->items.n;
  if (m->fn->varargs < 0) {
    if (a->n > want)
      return rt_fail(r, "macro '%.*s' takes not more than %zu argument(s)", m->name ? (int)m->name->n : 4,
                     m->name ? m->name->s : "None", want);
    return true;
  }
  tlist *l;
  OK(tl_new(r, 0, &l));
  for (size_t i = want; i < a->n; i++)
    OK(tl_add(r, l, a->v[i]));
  f->slots[m->fn->varargs] = tv_seq(TV_TUPLE, l);
  return true;
}

/* Puts arguments into the macro's slots; those not given stay TV_MISSING. */
static bool pass_arguments(tmpl_rt *r, const tmacro *m, const targs *a, tframe *f)
{
  const nodes *parameters = &m->node->items;
  bool found_caller = false, *used = rt_array(r, a->n_kw + 1, sizeof *used);
  OK(used);
  size_t given = a->n < parameters->n ? a->n : parameters->n;
  for (size_t i = 0; i < given; i++)
    f->slots[parameters->v[i]->slot] = a->v[i];
  if (given == parameters->n)
    found_caller = m->fn->explicit_caller;
  for (size_t i = given; i < parameters->n; i++) {
    const node *parameter = parameters->v[i];
    take_keyword(a, used, parameter->name, &f->slots[parameter->slot]);
    found_caller = found_caller || is_caller(parameter->name);
  }
  if (m->fn->caller >= 0 && !found_caller) {
    tv caller = tv_none();
    tv name;
    OK(ts_cstr(r, "caller", &name));
    take_keyword(a, used, name.s, &caller);
    if (caller.type == TV_NONE)
      OK(tv_undef_hint(r, "No caller defined", &caller));
    f->slots[m->fn->caller] = caller;
  }
  return rest_of_keywords(r, m, a, used, f) && rest_of_arguments(r, m, a, f);
}

static bool fill_defaults(tmpl_rt *r, const tmacro *m, tframe *f)
{
  const nodes *parameters = &m->node->items, *defaults = &m->node->more;
  for (size_t i = 0; i < parameters->n; i++) {
    tv *slot = &f->slots[parameters->v[i]->slot];
    if (tv_given(*slot))
      continue;
    size_t first = parameters->n - defaults->n;
    tv value;
    if (i >= first)
      OK(tmpl_eval(r, defaults->v[i - first], f, &value));
    else
      OK(tv_undef_name(r, parameters->v[i]->name, &value));
    *slot = value;
  }
  return true;
}

static bool run_body(tmpl_rt *r, const nodes *body, tframe *f, tv *out)
{
  tbuf b = {.r = r};
  if (exec(r, body, f, &b) == FLOW_ERROR)
    return false;
  return tb_take(&b, out);
}

bool tmacro_call(tmpl_rt *r, tmacro *m, const targs *a, tv *out)
{
  tframe *f;
  OK(rt_enter(r) && tframe_new(r, m->fn, m->outer, &f));
  bool ok = pass_arguments(r, m, a, f) && tframe_enter(r, &m->fn->scope, f) && fill_defaults(r, m, f) &&
            run_body(r, &m->node->body, f, out);
  rt_leave(r);
  return ok;
}

static bool make_macro(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tmacro *m = rt_alloc(r, sizeof *m);
  OK(m);
  *m = (tmacro){.fn = n->fn, .node = n, .name = n->kind == N_MACRO ? n->name : NULL, .outer = f};
  *out = (tv){.type = TV_MACRO, .m = m};
  return true;
}

/* Where a template has blocks, they read top-level names as variables of the rendering. */
static bool export_target(tmpl_rt *r, const node *target, tframe *f)
{
  if (target->kind == N_NAME)
    return td_set(r, r->exported, tv_string(target->name), *tframe_slot(f, target->hops, target->slot));
  for (size_t i = 0; i < target->items.n; i++)
    OK(export_target(r, target->items.v[i], f));
  return true;
}

static bool define_macro(tmpl_rt *r, const node *n, tframe *f)
{
  tv macro;
  OK(make_macro(r, n, f, &macro));
  *tframe_slot(f, n->hops, n->slot) = macro;
  return !n->flag || td_set(r, r->exported, tv_string(n->name), macro);
}

/* {% call(x) f(y) %}body{% endcall %}: f gets the body as a macro named caller. */
static bool call_block(tmpl_rt *r, const node *n, tframe *f, tbuf *out)
{
  const node *call = n->a;
  tv caller, callee, name, result;
  targs a;
  OK(make_macro(r, n, f, &caller) && tmpl_eval(r, call->a, f, &callee) && tmpl_eval_args(r, call, f, 1, &a));
  OK(ts_cstr(r, "caller", &name));
  if (targs_keyword(&a, "caller"))
    return rt_fail(r, "got multiple values for keyword argument 'caller'");
  if (a.n_kw == 0 && !a.names)
    return rt_fail_status(r, TERN_E_INTERNAL, "no room for the caller");
  a.names[a.n_kw] = name.s;
  a.kw[a.n_kw++] = caller;
  OK(tattr_call(r, callee, &a, &result));
  tv_print(out, result);
  return !out->failed;
}

static bool generation(tmpl_rt *r, const node *n, tframe *f, tbuf *out)
{
  tv body, text;
  targs none = {0};
  OK(make_macro(r, n, f, &body) && tmacro_call(r, body.m, &none, &text));
  tb_str(out, text.s);
  return !out->failed;
}

static bool block(tmpl_rt *r, const node *n, tbuf *out)
{
  tframe *f;
  OK(tframe_new(r, n->fn, NULL, &f) && tframe_enter(r, &n->fn->scope, f));
  return exec(r, &n->items, f, out) != FLOW_ERROR;
}

/* ---- loops ---- */

typedef struct loop_filter {
  const node *n;
  tframe *f; /* of the filter function; entered at the first item, as a generator is */
  bool entered;
  titer *src;
} loop_filter;

static bool target_value(tmpl_rt *r, const node *target, tframe *f, tv *out)
{
  if (target->kind != N_TUPLE) {
    *out = *tframe_slot(f, target->hops, target->slot);
    return true;
  }
  tlist *l;
  OK(tl_new(r, target->items.n, &l));
  for (size_t i = 0; i < target->items.n; i++) {
    tv item;
    OK(target_value(r, target->items.v[i], f, &item) && tl_add(r, l, item));
  }
  *out = tv_seq(TV_TUPLE, l);
  return true;
}

static bool next_filtered(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  loop_filter *s = it->state;
  const node *target = s->n->star;
  if (!s->entered) {
    s->entered = true;
    OK(tframe_enter(r, &s->n->fn2->scope, s->f) && ti_open(r, it->src, &s->src));
  }
  for (;;) {
    tv item, test;
    OK(ti_next(r, s->src, &item, done));
    if (*done)
      return true;
    OK(tmpl_assign(r, target, item, s->f) && tmpl_eval(r, s->n->c, s->f, &test));
    if (tv_truth(test))
      return target_value(r, target, s->f, out);
  }
}

/* The values a loop runs over, behind its filter. */
static bool open_loop(tmpl_rt *r, const node *n, tv values, tframe *outer, tloop *loop)
{
  if (n->c) {
    loop_filter *s = rt_zalloc(r, sizeof *s);
    OK(s);
    s->n = n;
    OK(tframe_new(r, n->fn2, outer, &s->f) && ti_new(r, next_filtered, values, s, &values));
  }
  *loop = (tloop){.iterable = values, .index0 = -1, .length = -1, .outer = outer};
  loop->changed = (tv){.type = TV_MISSING};
  return ti_open(r, values, &loop->it);
}

static flow run_loop(tmpl_rt *r, const node *n, tloop *loop, tframe *f, tbuf *out)
{
  bool any = false, done = false;
  for (;;) {
    tv item;
    FLOW(tloop_next(r, loop, &item, &done));
    if (done)
      break;
    FLOW(tmpl_assign(r, n->a, item, f) && tframe_enter(r, &n->scope, f));
    f->slots[n->loop_slot] = (tv){.type = TV_LOOP, .loop = loop};
    flow how = exec(r, &n->items, f, out);
    if (how == FLOW_ERROR)
      return how;
    if (how == FLOW_BREAK) {
      any = any || n->more.n == 0;
      break;
    }
    if (how == FLOW_NEXT) /* a body left by continue does not count for the else, as in the original */
      any = true;
  }
  tframe_leave(&n->scope, f);
  if (any || n->more.n == 0)
    return FLOW_NEXT;
  FLOW(tframe_enter(r, &n->scope2, f));
  flow how = exec(r, &n->more, f, out);
  tframe_leave(&n->scope2, f);
  return how;
}

/* A recursive loop is a function: loop(items) runs it again and gives its text. */
static bool run_recursive(tmpl_rt *r, const node *n, tv values, tframe *outer, int64_t depth, tv *out)
{
  tframe *f;
  tloop *loop = rt_alloc(r, sizeof *loop);
  OK(loop && rt_enter(r) && tframe_new(r, n->fn, outer, &f) && open_loop(r, n, values, outer, loop));
  loop->node = n;
  loop->depth0 = depth;
  tbuf b = {.r = r};
  bool ok = run_loop(r, n, loop, f, &b) != FLOW_ERROR && tb_take(&b, out);
  rt_leave(r);
  return ok;
}

bool tloop_recurse(tmpl_rt *r, tloop *loop, const targs *a, tv *out)
{
  tv slots[TMPL_MAX_PARAMS];
  OK(targs_bind(r, "loop", "iterable", a, slots));
  if (!loop->node)
    return rt_fail(r, "The loop must have the 'recursive' marker to be called recursively");
  return run_recursive(r, loop->node, slots[0], loop->outer, loop->depth0 + 1, out);
}

static flow exec_for(tmpl_rt *r, const node *n, tframe *f, tbuf *out)
{
  tv values;
  FLOW(tmpl_eval(r, n->b, f, &values));
  if (n->flag) {
    tv text;
    FLOW(run_recursive(r, n, values, f, 0, &text));
    tb_str(out, text.s);
    return out->failed ? FLOW_ERROR : FLOW_NEXT;
  }
  tloop *loop = rt_alloc(r, sizeof *loop);
  FLOW(loop && open_loop(r, n, values, f, loop));
  return run_loop(r, n, loop, f, out);
}

/* ---- the rest ---- */

static flow exec_if(tmpl_rt *r, const node *n, tframe *f, tbuf *out)
{
  for (;; n = n->b) {
    tv test;
    FLOW(rt_step(r, 1) && tmpl_eval(r, n->a, f, &test));
    if (tv_truth(test))
      return exec(r, &n->items, f, out);
    if (!n->b)
      return exec(r, &n->more, f, out);
  }
}

static bool is_namespace_target(tmpl_rt *r, const node *target, tframe *f)
{
  if (target->kind == N_NSREF && tframe_slot(f, target->hops, target->slot)->type != TV_NS)
    return rt_fail(r, "cannot assign attribute on non-namespace object");
  for (size_t i = 0; i < target->items.n; i++)
    OK(is_namespace_target(r, target->items.v[i], f));
  return true;
}

static bool set(tmpl_rt *r, const node *n, tframe *f)
{
  tv value;
  OK(is_namespace_target(r, n->a, f) && tmpl_eval(r, n->b, f, &value) && tmpl_assign(r, n->a, value, f));
  return !n->flag || export_target(r, n->a, f);
}

static flow set_block(tmpl_rt *r, const node *n, tframe *f)
{
  tbuf b = {.r = r};
  tv value;
  FLOW(tframe_enter(r, &n->scope, f));
  flow how = exec(r, &n->items, f, &b);
  if (how != FLOW_NEXT)
    return how;
  FLOW(tb_take(&b, &value) && (!n->b || tmpl_eval_filters(r, n->b, value, f, &value)));
  FLOW(is_namespace_target(r, n->a, f) && tmpl_assign(r, n->a, value, f) && (!n->flag || export_target(r, n->a, f)));
  tframe_leave(&n->scope, f);
  return FLOW_NEXT;
}

static flow filter_block(tmpl_rt *r, const node *n, tframe *f, tbuf *out)
{
  tbuf b = {.r = r};
  tv value;
  FLOW(tframe_enter(r, &n->scope, f));
  flow how = exec(r, &n->items, f, &b);
  if (how != FLOW_NEXT)
    return how;
  FLOW(tb_take(&b, &value) && tmpl_eval_filters(r, n->a, value, f, &value));
  tv_print(out, value);
  tframe_leave(&n->scope, f);
  return out->failed ? FLOW_ERROR : FLOW_NEXT;
}

static flow with(tmpl_rt *r, const node *n, tframe *f, tbuf *out)
{
  FLOW(tframe_enter(r, &n->scope, f));
  for (size_t i = 0; i < n->items.n; i += 2) {
    tv value;
    FLOW(tmpl_eval(r, n->items.v[i + 1], f, &value) && tmpl_assign(r, n->items.v[i], value, f));
  }
  flow how = exec(r, &n->more, f, out);
  tframe_leave(&n->scope, f);
  return how;
}

static bool output(tmpl_rt *r, const node *n, tframe *f, tbuf *out)
{
  tv value;
  OK(tmpl_eval(r, n->a, f, &value));
  tv_print(out, value);
  return !out->failed;
}

static flow exec_one(tmpl_rt *r, const node *n, tframe *f, tbuf *out)
{
  r->line = n->line;
  bool ok;
  switch (n->kind) {
  case N_DATA:
    tb_str(out, n->value.s);
    ok = !out->failed;
    break;
  case N_OUTPUT:
    ok = output(r, n, f, out);
    break;
  case N_IF:
    return exec_if(r, n, f, out);
  case N_FOR:
    return exec_for(r, n, f, out);
  case N_SET:
    ok = set(r, n, f);
    break;
  case N_SETBLOCK:
    return set_block(r, n, f);
  case N_WITH:
    return with(r, n, f, out);
  case N_MACRO:
    ok = define_macro(r, n, f);
    break;
  case N_CALLBLOCK:
    ok = call_block(r, n, f, out);
    break;
  case N_GENERATION:
    ok = generation(r, n, f, out);
    break;
  case N_FILTERBLOCK:
    return filter_block(r, n, f, out);
  case N_BLOCK:
    ok = block(r, n, out);
    break;
  case N_BREAK:
    return FLOW_BREAK;
  case N_CONTINUE:
    return FLOW_CONTINUE;
  case N_REFUSED:
    ok = rt_fail(r, "'%.*s' is not supported: a chat template has no other templates to load", (int)n->name->n,
                 n->name->s);
    break;
  default:
    ok = rt_fail_status(r, TERN_E_INTERNAL, "a statement of kind %d", n->kind);
  }
  return ok ? FLOW_NEXT : FLOW_ERROR;
}

static flow exec(tmpl_rt *r, const nodes *list, tframe *f, tbuf *out)
{
  FLOW(rt_enter(r) && rt_step(r, list->n));
  flow how = FLOW_NEXT;
  for (size_t i = 0; i < list->n && how == FLOW_NEXT; i++)
    how = exec_one(r, list->v[i], f, out);
  rt_leave(r);
  return how;
}

bool tmpl_run(tmpl_rt *r, const tmpl *t, tbuf *out)
{
  tframe *f;
  r->t = t;
  if (t->has_blocks)
    OK(td_new(r, &r->exported));
  OK(tframe_new(r, &t->fn, NULL, &f) && tframe_enter(r, &t->fn.scope, f));
  return exec(r, &t->body, f, out) != FLOW_ERROR && !out->failed && r->status == TERN_OK;
}
