/* tmpl_attr.c - attributes, items and calls: the sandboxed environment's getattr, getitem and call, and the loop
 * object.
 *
 * `a.x` looks for an attribute first and a key second, `a['x']` the other way round; both give an undefined value where
 * there is neither. Attributes of builtin values are their methods. Names with double underscores and methods that
 * change their object are unsafe: reaching for them gives an undefined value whose use is an error. */
#include "text/tmpl_attr.h"

#include <stdio.h>
#include <string.h>

/* ---- arguments ---- */

const tv *targs_keyword(const targs *a, const char *name)
{
  for (size_t i = 0; i < a->n_kw; i++)
    if (ts_is(a->names[i], name))
      return &a->kw[i];
  return NULL;
}

static const char *next_name(const char **names, size_t *n, bool *optional)
{
  const char *s = *names;
  while (*s == ' ')
    s++;
  const char *end = s;
  while (*end && *end != ' ' && *end != '?')
    end++;
  *n = (size_t)(end - s);
  *optional = *end == '?';
  *names = end + *optional;
  return *n ? s : NULL;
}

bool targs_bind(tmpl_rt *r, const char *who, const char *names, const targs *a, tv slots[TMPL_MAX_PARAMS])
{
  bool by_position = *names == '!';
  names += by_position;
  size_t count = 0, taken = 0, n;
  bool optional;
  const char *name;
  while ((name = next_name(&names, &n, &optional))) {
    tv value = {.type = TV_MISSING};
    if (count < a->n)
      value = a->v[count];
    for (size_t i = 0; i < a->n_kw && !by_position; i++) {
      if (a->names[i]->n != n || memcmp(a->names[i]->s, name, n) != 0)
        continue;
      if (tv_given(value))
        return rt_fail(r, "%s() got multiple values for argument '%.*s'", who, (int)n, name);
      value = a->kw[i];
      taken++;
    }
    if (!tv_given(value) && !optional)
      return rt_fail(r, "%s() missing a required argument: '%.*s'", who, (int)n, name);
    slots[count++] = value;
  }
  if (a->n > count)
    return rt_fail(r, "%s() takes at most %zu argument%s (%zu given)", who, count, count == 1 ? "" : "s", a->n);
  if (taken < a->n_kw)
    return rt_fail(r, "%s() got an unexpected keyword argument", who);
  for (; count < TMPL_MAX_PARAMS; count++)
    slots[count] = (tv){.type = TV_MISSING};
  return true;
}

/* ---- methods ---- */

const char *tmethod_name(const tmethod *m)
{
  return m->entry->name;
}

tv tmethod_self(const tmethod *m)
{
  return m->self;
}

bool tmethod_same(const tmethod *a, const tmethod *b)
{
  return a->entry == b->entry && a->self.type == b->self.type && a->self.d == b->self.d;
}

const tstr *tmacro_name(const tmacro *m)
{
  return m->name;
}

static bool bind_method(tmpl_rt *r, const tmethod_entry *table, tv self, const tstr *name, tv *out, bool *found)
{
  for (const tmethod_entry *e = table; e->name; e++) {
    if (e->name[0] != name->s[0] || !ts_is(name, e->name))
      continue;
    *found = true;
    if (!e->names) /* changes its object */
      return tv_undef_unsafe(r, self, name, out);
    tmethod *m = rt_alloc(r, sizeof *m);
    OK(m);
    *m = (tmethod){.self = self, .entry = e};
    *out = (tv){.type = TV_METHOD, .bound = m};
    return true;
  }
  return true;
}

static bool call_method(tmpl_rt *r, const tmethod *m, const targs *a, tv *out)
{
  const tmethod_entry *e = m->entry;
  if (!e->run)
    return rt_fail(r, "the method '%s' of '%s' is not supported", e->name, tv_type_name(m->self));
  tv slots[TMPL_MAX_PARAMS];
  if (*e->names != '*')
    OK(targs_bind(r, e->name, e->names, a, slots));
  return e->run(r, m->self, slots, a, out);
}

/* ---- attributes by type ---- */

static bool namespace_attr(tv object, const tstr *name, tv *out, bool *found)
{
  const tv *value = td_find(object.d, name);
  *found = value != NULL;
  if (value)
    *out = *value;
  return true;
}

static bool macro_attr(tmpl_rt *r, const tmacro *m, const tstr *name, tv *out, bool *found)
{
  *found = true;
  if (ts_is(name, "name")) {
    *out = m->name ? tv_string(m->name) : tv_none();
  } else if (ts_is(name, "arguments")) {
    tlist *l;
    OK(tl_new(r, m->node->items.n, &l));
    for (size_t i = 0; i < m->node->items.n; i++)
      OK(tl_add(r, l, tv_string(m->node->items.v[i]->name)));
    *out = tv_seq(TV_TUPLE, l);
  } else if (ts_is(name, "catch_kwargs")) {
    *out = tv_bool(m->fn->kwargs >= 0);
  } else if (ts_is(name, "catch_varargs")) {
    *out = tv_bool(m->fn->varargs >= 0);
  } else if (ts_is(name, "caller")) {
    *out = tv_bool(m->fn->caller >= 0);
  } else {
    *found = false;
  }
  return true;
}

static bool number_attr(tv object, const tstr *name, tv *out, bool *found)
{
  bool whole = object.type != TV_FLOAT;
  *found = true;
  if (ts_is(name, "real") || (whole && ts_is(name, "numerator")))
    *out = object.type == TV_BOOL ? tv_int(object.b) : object;
  else if (ts_is(name, "imag"))
    *out = whole ? tv_int(0) : tv_float(0.0);
  else if (whole && ts_is(name, "denominator"))
    *out = tv_int(1);
  else
    *found = false;
  return true;
}

static bool range_attr(const trange *range, const tstr *name, tv *out, bool *found)
{
  *found = true;
  if (ts_is(name, "start"))
    *out = tv_int(range->start);
  else if (ts_is(name, "stop"))
    *out = tv_int(range->stop);
  else if (ts_is(name, "step"))
    *out = tv_int(range->step);
  else
    *found = false;
  return true;
}

static bool cycler_attr(tv object, const tstr *name, tv *out, bool *found)
{
  const tcycler *c = object.c;
  *found = true;
  if (object.type == TV_CYCLER && ts_is(name, "current"))
    *out = c->items->v[c->pos];
  else if (object.type == TV_CYCLER && ts_is(name, "items"))
    *out = tv_seq(TV_TUPLE, c->items);
  else if (object.type == TV_CYCLER && ts_is(name, "pos"))
    *out = tv_int((int64_t)c->pos);
  else if (object.type == TV_JOINER && ts_is(name, "used"))
    *out = tv_bool(c->used);
  else if (object.type == TV_JOINER && ts_is(name, "sep"))
    *out = tv_string(c->separator);
  else
    *found = false;
  return true;
}

static bool group_attr(tv object, const tstr *name, tv *out, bool *found)
{
  if (!object.l->group)
    return true;
  *found = ts_is(name, "grouper") || ts_is(name, "list");
  if (*found)
    *out = object.l->v[ts_is(name, "list")];
  return true;
}

/* Attributes that are values; methods follow in tattr_lookup. */
static bool plain_attr(tmpl_rt *r, tv object, const tstr *name, tv *out, bool *found)
{
  switch (object.type) {
  case TV_NS:
    return namespace_attr(object, name, out, found);
  case TV_MACRO:
    return macro_attr(r, object.m, name, out, found);
  case TV_LOOP:
    return tloop_attr(r, object.loop, name, out, found);
  case TV_BOOL:
  case TV_INT:
  case TV_BIG:
  case TV_FLOAT:
    return number_attr(object, name, out, found);
  case TV_RANGE:
    return range_attr(object.r, name, out, found);
  case TV_CYCLER:
  case TV_JOINER:
    return cycler_attr(object, name, out, found);
  case TV_TUPLE:
    return group_attr(object, name, out, found);
  default:
    return true;
  }
}

static const tmethod_entry *methods_of(tv object)
{
  switch (object.type) {
  case TV_STR:
    return tmethods_str;
  case TV_LIST:
    return tmethods_list;
  case TV_TUPLE:
    return tmethods_tuple;
  case TV_DICT:
    return tmethods_dict;
  case TV_BOOL:
  case TV_INT:
  case TV_BIG:
    return tmethods_int;
  case TV_FLOAT:
    return tmethods_float;
  case TV_RANGE:
    return tmethods_range;
  case TV_LOOP:
    return tmethods_loop;
  case TV_CYCLER:
    return tmethods_cycler;
  case TV_FUNC:
    return object.kind == FUNC_DICT ? tmethods_dict_type : NULL;
  default:
    return NULL;
  }
}

static bool is_dunder(const tstr *name)
{
  return name->n > 4 && memcmp(name->s, "__", 2) == 0 && memcmp(name->s + name->n - 2, "__", 2) == 0;
}

/* Those that even an undefined value has; any other is a use of it. */
static bool is_own_dunder(const tstr *name)
{
  static const char *const own[] = {"__class__", "__init__", "__doc__", "__len__", "__iter__", "__str__", "__eq__"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (ts_is(name, own[i]))
      return true;
  return false;
}

bool tattr_lookup(tmpl_rt *r, tv object, const tstr *name, tv *out, bool *found)
{
  *found = false;
  if (object.type == TV_UNDEF && !is_own_dunder(name))
    return tv_fail_undefined(r, object);
  if (name->n == 0)
    return true;
  if (is_dunder(name) && object.type != TV_NS) { /* every Python object has some; none is for templates */
    *found = true;
    return tv_undef_unsafe(r, object, name, out);
  }
  OK(plain_attr(r, object, name, out, found));
  if (*found)
    return true;
  const tmethod_entry *table = methods_of(object);
  return !table || bind_method(r, table, object, name, out, found);
}

bool tattr_get(tmpl_rt *r, tv object, const tstr *name, tv *out)
{
  bool found;
  OK(tattr_lookup(r, object, name, out, &found));
  if (found)
    return true;
  OK(tv_subscript(r, object, tv_string(name), out, &found));
  return found || tv_undef_attribute(r, object, tv_string(name), out);
}

bool tattr_item(tmpl_rt *r, tv object, tv key, tv *out)
{
  bool found;
  OK(tv_subscript(r, object, key, out, &found));
  if (found)
    return true;
  if (key.type == TV_STR) {
    OK(tattr_lookup(r, object, key.s, out, &found));
    if (found)
      return true;
  }
  return tv_undef_attribute(r, object, key, out);
}

/* ---- calls ---- */

bool tattr_callable(tv v)
{
  switch (v.type) {
  case TV_UNDEF: /* the class has a __call__, which fails */
  case TV_MACRO:
  case TV_METHOD:
  case TV_FUNC:
  case TV_LOOP:
  case TV_JOINER:
    return true;
  default:
    return false;
  }
}

static bool call_joiner(tmpl_rt *r, tcycler *joiner, const targs *a, tv *out)
{
  tv slots[TMPL_MAX_PARAMS];
  OK(targs_bind(r, "joiner", "", a, slots));
  if (joiner->used) {
    *out = tv_string(joiner->separator);
    return true;
  }
  joiner->used = true;
  return ts_cstr(r, "", out);
}

bool tattr_call(tmpl_rt *r, tv callee, const targs *a, tv *out)
{
  switch (callee.type) {
  case TV_MACRO:
    return tmacro_call(r, callee.m, a, out);
  case TV_METHOD:
    return call_method(r, callee.bound, a, out);
  case TV_FUNC:
    return tglobal_call(r, callee.kind, a, out);
  case TV_LOOP:
    return tloop_recurse(r, callee.loop, a, out);
  case TV_JOINER:
    return call_joiner(r, callee.c, a, out);
  case TV_UNDEF:
    return tv_fail_undefined(r, callee);
  default:
    return rt_fail(r, "'%s' object is not callable", tv_type_name(callee));
  }
}

/* ---- loops ---- */

bool tloop_next(tmpl_rt *r, tloop *loop, tv *out, bool *done)
{
  *done = false;
  if (loop->peeked) {
    *done = loop->exhausted;
    *out = loop->after;
    loop->peeked = loop->exhausted; /* an end that was seen stays */
  } else {
    OK(ti_next(r, loop->it, out, done));
  }
  if (*done)
    return true;
  loop->index0++;
  loop->before = loop->current;
  loop->current = *out;
  return true;
}

/* The next item without taking it. */
static bool peek(tmpl_rt *r, tloop *loop)
{
  if (loop->peeked)
    return true;
  bool done;
  OK(ti_next(r, loop->it, &loop->after, &done));
  loop->peeked = true;
  loop->exhausted = done;
  return true;
}

bool tloop_length(tmpl_rt *r, tloop *loop, int64_t *out)
{
  if (loop->length < 0 && tv_sized(loop->iterable))
    OK(tv_length(r, loop->iterable, &loop->length));
  if (loop->length < 0) { /* an iterator: read it to its end, and go on from the copy */
    tlist *rest;
    tv rest_of = {.type = TV_ITER, .it = loop->it};
    bool ahead = loop->peeked && !loop->exhausted;
    OK(ti_list(r, rest_of, &rest) && ti_open(r, tv_seq(TV_LIST, rest), &loop->it));
    loop->length = (int64_t)rest->n + loop->index0 + 1 + ahead;
  }
  *out = loop->length;
  return true;
}

typedef enum loop_part {
  LOOP_INDEX,
  LOOP_INDEX0,
  LOOP_REV,
  LOOP_REV0,
  LOOP_FIRST,
  LOOP_LAST,
  LOOP_LENGTH,
  LOOP_PREV,
  LOOP_NEXT,
  LOOP_DEPTH,
  LOOP_DEPTH0
} loop_part;

static bool loop_value(tmpl_rt *r, tloop *loop, loop_part part, tv *out)
{
  int64_t length = 0;
  if (part == LOOP_REV || part == LOOP_REV0 || part == LOOP_LENGTH)
    OK(tloop_length(r, loop, &length));
  if (part == LOOP_LAST || part == LOOP_NEXT)
    OK(peek(r, loop));
  switch (part) {
  case LOOP_INDEX:
    *out = tv_int(loop->index0 + 1);
    return true;
  case LOOP_INDEX0:
    *out = tv_int(loop->index0);
    return true;
  case LOOP_REV:
    *out = tv_int(length - loop->index0);
    return true;
  case LOOP_REV0:
    *out = tv_int(length - loop->index0 - 1);
    return true;
  case LOOP_FIRST:
    *out = tv_bool(loop->index0 == 0);
    return true;
  case LOOP_LAST:
    *out = tv_bool(loop->exhausted);
    return true;
  case LOOP_LENGTH:
    *out = tv_int(length);
    return true;
  case LOOP_PREV:
    *out = loop->before;
    return loop->index0 > 0 || tv_undef_hint(r, "there is no previous item", out);
  case LOOP_NEXT:
    *out = loop->after;
    return !loop->exhausted || tv_undef_hint(r, "there is no next item", out);
  case LOOP_DEPTH:
    *out = tv_int(loop->depth0 + 1);
    return true;
  default:
    *out = tv_int(loop->depth0);
    return true;
  }
}

bool tloop_attr(tmpl_rt *r, tloop *loop, const tstr *name, tv *out, bool *found)
{
  static const char *const names[] = {"index",  "index0",   "revindex", "revindex0", "first", "last",
                                      "length", "previtem", "nextitem", "depth",     "depth0"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (ts_is(name, names[i])) {
      *found = true;
      return loop_value(r, loop, (loop_part)i, out);
    }
  return true;
}

void tloop_repr(tbuf *b, tloop *loop)
{
  int64_t length;
  if (!tloop_length(b->r, loop, &length)) {
    b->failed = true;
    return;
  }
  char text[64];
  snprintf(text, sizeof text, "<LoopContext %lld/%lld>", (long long)loop->index0 + 1, (long long)length);
  tb_adds(b, text);
}

static bool loop_cycle(tmpl_rt *r, tv self, const tv *slots, const targs *a, tv *out)
{
  (void)slots;
  if (a->n == 0)
    return rt_fail(r, "no items for cycling given");
  if (a->n_kw)
    return rt_fail(r, "cycle() takes no keyword arguments");
  *out = a->v[(size_t)self.loop->index0 % a->n];
  return true;
}

static bool loop_changed(tmpl_rt *r, tv self, const tv *slots, const targs *a, tv *out)
{
  (void)slots;
  tlist *l;
  if (a->n_kw)
    return rt_fail(r, "changed() takes no keyword arguments");
  OK(tl_new(r, a->n, &l));
  for (size_t i = 0; i < a->n; i++)
    OK(tl_add(r, l, a->v[i]));
  tv now = tv_seq(TV_TUPLE, l);
  bool same = false;
  if (tv_given(self.loop->changed))
    OK(tv_equal(r, self.loop->changed, now, &same));
  self.loop->changed = now;
  *out = tv_bool(!same);
  return true;
}

const tmethod_entry tmethods_loop[] = {{"cycle", loop_cycle, "*"}, {"changed", loop_changed, "*"}, {0}};
