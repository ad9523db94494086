/* tmpl_eval.c - the value of an expression. */
#include <string.h>

#include "text/tmpl_exec.h"

/* ---- frames and names ---- */

bool tframe_new(tmpl_rt *r, const tfunc *fn, tframe *outer, tframe **out)
{
  tframe *f = rt_alloc(r, sizeof *f);
  OK(f);
  f->outer = outer;
  f->slots = rt_array(r, (size_t)fn->slots + 1, sizeof(tv));
  *out = f;
  return f->slots != NULL;
}

/* A variable of the rendering, else a global of the environment. TV_MISSING: neither. */
static bool resolve(tmpl_rt *r, const tstr *name, tv *out)
{
  const tv *found = r->exported ? td_find(r->exported, name) : NULL;
  if (!found)
    found = td_find(r->vars, name);
  if (found) {
    *out = *found;
    return true;
  }
  *out = (tv){.type = TV_MISSING};
  tglobal_find(name, out);
  return true;
}

bool tframe_enter(tmpl_rt *r, const tscope *scope, tframe *f)
{
  OK(rt_step(r, scope->n));
  for (size_t i = 0; i < scope->n; i++) {
    const tload *l = &scope->loads[i];
    switch (l->action) {
    case LOAD_RESOLVE:
      OK(resolve(r, l->name, &f->slots[l->slot]));
      break;
    case LOAD_ALIAS:
      f->slots[l->slot] = *tframe_slot(f, l->hops, l->from);
      break;
    case LOAD_UNSET:
      f->slots[l->slot] = (tv){.type = TV_MISSING};
      break;
    default:
      break;
    }
  }
  return true;
}

void tframe_leave(const tscope *scope, tframe *f)
{
  for (size_t i = 0; i < scope->n; i++)
    f->slots[scope->loads[i].slot] = (tv){.type = TV_MISSING};
}

static bool eval_name(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  *out = *tframe_slot(f, n->hops, n->slot);
  if (out->type != TV_MISSING)
    return true;
  if (ts_is(n->name, "self"))
    return rt_fail(r, "the name 'self' (blocks of the template) is not supported");
  return tv_undef_name(r, n->name, out);
}

/* ---- assignment ---- */

static bool unpack(tmpl_rt *r, const node *target, tv value, tframe *f)
{
  size_t want = target->items.n;
  titer *it;
  if (!ti_iterable(value))
    return rt_fail(r, "cannot unpack non-iterable %s object", tv_type_name(value));
  OK(ti_open(r, value, &it));
  tlist *items;
  OK(tl_new(r, want, &items));
  for (;;) {
    tv item;
    bool done;
    OK(ti_next(r, it, &item, &done));
    if (done)
      break;
    if (items->n == want)
      return rt_fail(r, "too many values to unpack (expected %zu)", want);
    OK(tl_add(r, items, item));
  }
  if (items->n < want)
    return rt_fail(r, "not enough values to unpack (expected %zu, got %zu)", want, items->n);
  for (size_t i = 0; i < want; i++)
    OK(tmpl_assign(r, target->items.v[i], items->v[i], f));
  return true;
}

bool tmpl_assign(tmpl_rt *r, const node *target, tv value, tframe *f)
{
  if (target->kind == N_NAME) {
    *tframe_slot(f, target->hops, target->slot) = value;
    return true;
  }
  if (target->kind == N_TUPLE)
    return unpack(r, target, value, f);
  tv ns = *tframe_slot(f, target->hops, target->slot);
  if (ns.type != TV_NS)
    return rt_fail(r, "cannot assign attribute on non-namespace object");
  if (target->attr->n > 0 && target->attr->s[0] == '_')
    return rt_fail(r, "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'",
                   (int)target->attr->n, target->attr->s);
  return td_set(r, ns.d, tv_string(target->attr), value);
}

/* ---- arguments ---- */

static bool add_keyword(tmpl_rt *r, targs *a, const tstr *name, tv value)
{
  for (size_t i = 0; i < a->n_kw; i++)
    if (ts_equal(a->names[i], name))
      return rt_fail(r, "got multiple values for keyword argument '%.*s'", (int)name->n, name->s);
  OK(rt_step(r, a->n_kw / 8)); /* the names before it were looked at */
  a->names[a->n_kw] = name;
  a->kw[a->n_kw++] = value;
  return true;
}

bool tmpl_eval_args(tmpl_rt *r, const node *n, tframe *f, size_t extra, targs *out)
{
  size_t count = n->items.n, keywords = n->kws.n + extra;
  *out = (targs){0};
  if (count) {
    out->v = rt_alloc(r, count * sizeof(tv));
    OK(out->v);
  }
  for (; out->n < count; out->n++)
    OK(tmpl_eval(r, n->items.v[out->n], f, &out->v[out->n]));
  tv star = {.type = TV_MISSING}, star2 = {.type = TV_MISSING};
  if (n->star) {
    tlist *all, *more;
    OK(tmpl_eval(r, n->star, f, &star) && ti_list(r, star, &more) && tl_new(r, count + more->n, &all));
    for (size_t i = 0; i < count; i++)
      OK(tl_add(r, all, out->v[i]));
    for (size_t i = 0; i < more->n; i++)
      OK(tl_add(r, all, more->v[i]));
    out->v = all->v;
    out->n = all->n;
  }
  tv *values = NULL;
  if (n->kws.n) {
    values = rt_alloc(r, n->kws.n * sizeof(tv));
    OK(values);
    for (size_t i = 0; i < n->kws.n; i++)
      OK(tmpl_eval(r, n->kws.v[i]->a, f, &values[i]));
  }
  if (n->star2) {
    OK(tmpl_eval(r, n->star2, f, &star2));
    if (star2.type != TV_DICT)
      return rt_fail(r, "argument after ** must be a mapping, not %s", tv_type_name(star2));
    keywords += star2.d->n;
  }
  if (keywords == 0)
    return true;
  out->names = rt_alloc(r, keywords * sizeof *out->names);
  out->kw = rt_alloc(r, keywords * sizeof *out->kw);
  OK(out->names && out->kw);
  for (size_t i = 0; i < n->kws.n; i++)
    OK(add_keyword(r, out, n->kws.v[i]->name, values[i]));
  for (size_t i = 0; tv_given(star2) && i < star2.d->n; i++) {
    if (star2.d->e[i].key.type != TV_STR)
      return rt_fail(r, "keywords must be strings");
    OK(add_keyword(r, out, star2.d->e[i].key.s, star2.d->e[i].value));
  }
  return true;
}

/* ---- filters and tests ---- */

static bool apply_filter(tmpl_rt *r, const node *n, tv value, tframe *f, tv *out)
{
  if (!n->entry)
    return rt_fail(r, "No filter named '%.*s' found", (int)n->name->n, n->name->s);
  targs a;
  OK(tmpl_eval_args(r, n, f, 0, &a));
  return tfilter_call(r, n->entry, value, &a, out);
}

bool tmpl_eval_filters(tmpl_rt *r, const node *n, tv body, tframe *f, tv *out)
{
  OK(rt_enter(r));
  tv value = body;
  bool ok = (!n->a || tmpl_eval_filters(r, n->a, body, f, &value)) && apply_filter(r, n, value, f, out);
  rt_leave(r);
  return ok;
}

static bool eval_filter(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tv value;
  OK(tmpl_eval(r, n->a, f, &value));
  return apply_filter(r, n, value, f, out);
}

static bool eval_test(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tv value;
  OK(tmpl_eval(r, n->a, f, &value));
  if (!n->entry)
    return rt_fail(r, "No test named '%.*s' found", (int)n->name->n, n->name->s);
  targs a;
  OK(tmpl_eval_args(r, n, f, 0, &a));
  bool result;
  OK(ttest_call(r, n->entry, value, &a, &result));
  *out = tv_bool(result);
  return true;
}

/* ---- operators ---- */

static bool compare(tmpl_rt *r, compare_op op, tv a, tv b, bool *out)
{
  switch (op) {
  case CMP_EQ:
    return tv_equal(r, a, b, out);
  case CMP_LT:
    return tv_less(r, a, b, out);
  case CMP_LE:
    return tv_less_equal(r, a, b, out);
  case CMP_GT:
    return tv_less(r, b, a, out);
  case CMP_GE:
    return tv_less_equal(r, b, a, out);
  case CMP_IN:
    return tv_in(r, a, b, out);
  case CMP_NE:
    OK(tv_equal(r, a, b, out));
    *out = !*out;
    return true;
  default:
    OK(tv_in(r, a, b, out));
    *out = !*out;
    return true;
  }
}

/* a < b < c: each operand once, and none after the first comparison that fails. */
static bool eval_compare(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tv left, right;
  bool result = true;
  OK(tmpl_eval(r, n->a, f, &left));
  for (size_t i = 0; i < n->items.n && result; i++) {
    const node *operand = n->items.v[i];
    OK(rt_step(r, 1) && tmpl_eval(r, operand->a, f, &right) &&
       compare(r, (compare_op)operand->op, left, right, &result));
    left = right;
  }
  *out = tv_bool(result);
  return true;
}

static bool eval_concat(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tbuf b = {.r = r};
  for (size_t i = 0; i < n->items.n; i++) {
    tv item;
    OK(rt_step(r, 1) && tmpl_eval(r, n->items.v[i], f, &item));
    if (i == 0 && item.type == TV_STR && n->items.n == 2) { /* s ~ x: grows in place where s was built so */
      tv tail, head;
      OK(tmpl_eval(r, n->items.v[1], f, &tail) && tv_to_str(r, item, &head) && tv_to_str(r, tail, &tail));
      return ts_concat(r, head.s, tail.s, out);
    }
    tv_print(&b, item);
  }
  return tb_take(&b, out);
}

static bool eval_binary(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tv a, b;
  OK(tmpl_eval(r, n->a, f, &a) && tmpl_eval(r, n->b, f, &b));
  return tv_binary(r, (tv_op)n->op, a, b, out);
}

static bool eval_unary(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tv a;
  OK(tmpl_eval(r, n->a, f, &a));
  if (n->kind == N_NEG)
    return tv_negate(r, a, out);
  if (n->kind == N_POS)
    return tv_positive(r, a, out);
  *out = tv_bool(!tv_truth(a));
  return true;
}

static bool eval_logic(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  OK(tmpl_eval(r, n->a, f, out));
  if (tv_truth(*out) == (n->kind == N_OR))
    return true;
  return tmpl_eval(r, n->b, f, out);
}

static bool eval_conditional(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tv test;
  OK(tmpl_eval(r, n->a, f, &test));
  if (tv_truth(test))
    return tmpl_eval(r, n->b, f, out);
  if (n->c)
    return tmpl_eval(r, n->c, f, out);
  return tv_undef_hint(r, "the inline if-expression evaluated to false and no else section was defined", out);
}

/* ---- containers, subscripts, calls ---- */

static bool eval_sequence(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tlist *l;
  OK(tl_new(r, n->items.n, &l));
  for (; l->n < n->items.n; l->n++)
    OK(tmpl_eval(r, n->items.v[l->n], f, &l->v[l->n]));
  *out = tv_seq(n->kind == N_LIST ? TV_LIST : TV_TUPLE, l);
  return true;
}

static bool eval_dict(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tdict *d;
  OK(td_new(r, &d));
  for (size_t i = 0; i < n->items.n; i += 2) {
    tv key, value;
    OK(tmpl_eval(r, n->items.v[i], f, &key) && tmpl_eval(r, n->items.v[i + 1], f, &value) && td_set(r, d, key, value));
  }
  *out = tv_dict(d);
  return true;
}

static bool eval_attribute(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tv object;
  OK(tmpl_eval(r, n->a, f, &object));
  return tattr_get(r, object, n->name, out);
}

static bool eval_optional(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  *out = (tv){.type = TV_MISSING};
  return !n || tmpl_eval(r, n, f, out);
}

static bool eval_subscript(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tv object, key;
  OK(tmpl_eval(r, n->a, f, &object));
  if (n->b->kind == N_SLICE) {
    tv start, stop, step;
    OK(eval_optional(r, n->b->a, f, &start) && eval_optional(r, n->b->b, f, &stop));
    OK(eval_optional(r, n->b->c, f, &step));
    return tv_slice(r, object, start, stop, step, out);
  }
  OK(tmpl_eval(r, n->b, f, &key));
  return tattr_item(r, object, key, out);
}

static bool eval_call(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  tv callee;
  targs a;
  OK(tmpl_eval(r, n->a, f, &callee) && tmpl_eval_args(r, n, f, 0, &a));
  r->line = n->line;
  return tattr_call(r, callee, &a, out);
}

static bool eval_node(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  switch (n->kind) {
  case N_TUPLE:
  case N_LIST:
    return eval_sequence(r, n, f, out);
  case N_DICT:
    return eval_dict(r, n, f, out);
  case N_BINARY:
    return eval_binary(r, n, f, out);
  case N_AND:
  case N_OR:
    return eval_logic(r, n, f, out);
  case N_NOT:
  case N_NEG:
  case N_POS:
    return eval_unary(r, n, f, out);
  case N_CONCAT:
    return eval_concat(r, n, f, out);
  case N_COMPARE:
    return eval_compare(r, n, f, out);
  case N_COND:
    return eval_conditional(r, n, f, out);
  case N_GETATTR:
    return eval_attribute(r, n, f, out);
  case N_GETITEM:
    return eval_subscript(r, n, f, out);
  case N_CALL:
    return eval_call(r, n, f, out);
  case N_FILTER:
    return eval_filter(r, n, f, out);
  case N_TEST:
    return eval_test(r, n, f, out);
  default:
    return rt_fail_status(r, TERN_E_INTERNAL, "an expression of kind %d", n->kind);
  }
}

bool tmpl_eval(tmpl_rt *r, const node *n, tframe *f, tv *out)
{
  if (n->kind == N_CONST) {
    *out = n->value;
    return true;
  }
  r->line = n->line;
  if (n->kind == N_NAME)
    return eval_name(r, n, f, out);
  OK(rt_step(r, 1) && rt_enter(r));
  bool ok = eval_node(r, n, f, out);
  rt_leave(r);
  return ok;
}
