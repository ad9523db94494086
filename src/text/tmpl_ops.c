/* tmpl_ops.c - what values do with each other: truth, equality, order, hash, membership, length, operators, subscripts
 * and slices, sorting. Python's rules, and an error where Python raises one. */
#include <stdlib.h>
#include <string.h>

#include "text/tmpl_attr.h"
#include "text/tmpl_format.h"
#include "text/tmpl_value.h"

bool tv_truth(tv v)
{
  switch (v.type) {
  case TV_MISSING:
  case TV_UNDEF:
  case TV_NONE:
    return false;
  case TV_BOOL:
    return v.b;
  case TV_INT:
    return v.i != 0;
  case TV_FLOAT:
    return v.f != 0.0;
  case TV_STR:
    return v.s->n > 0;
  case TV_LIST:
  case TV_TUPLE:
    return v.l->n > 0;
  case TV_DICT:
  case TV_VIEW:
    return v.d->n > 0;
  case TV_RANGE:
    return v.r->n > 0;
  default:
    return true;
  }
}

/* ---- equality and order ---- */

static bool equal_lists(tmpl_rt *r, const tlist *a, const tlist *b, bool *out)
{
  *out = a->n == b->n;
  for (size_t i = 0; i < a->n && *out; i++)
    OK(rt_step(r, i % 2) && tv_equal(r, a->v[i], b->v[i], out));
  return true;
}

static bool equal_dicts(tmpl_rt *r, const tdict *a, const tdict *b, bool *out)
{
  *out = a->n == b->n;
  for (size_t i = 0; i < a->n && *out; i++) {
    tv other;
    OK(rt_step(r, 1) && td_get(r, b, a->e[i].key, &other));
    if (!tv_given(other))
      *out = false;
    else
      OK(tv_equal(r, a->e[i].value, other, out));
  }
  return true;
}

static bool equal_ranges(const trange *a, const trange *b)
{
  if (a->n != b->n)
    return false;
  return a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step));
}

static bool scan_number(tmpl_rt *r, tv v)
{
  return v.type != TV_BIG || rt_scan(r, v.g->n);
}

static bool equal_deep(tmpl_rt *r, tv a, tv b, bool *out)
{
  switch (a.type) {
  case TV_LIST:
  case TV_TUPLE:
    return equal_lists(r, a.l, b.l, out);
  case TV_DICT:
    return equal_dicts(r, a.d, b.d, out);
  case TV_RANGE:
    *out = equal_ranges(a.r, b.r);
    return true;
  case TV_VIEW:
    if (a.kind == b.kind && a.kind == VIEW_KEYS) {
      *out = a.d->n == b.d->n;
      for (size_t i = 0; i < a.d->n && *out; i++)
        OK(rt_step(r, 1) && tv_in(r, a.d->e[i].key, b, out));
      return true;
    }
    *out = a.kind == b.kind && a.d == b.d;
    return true;
  case TV_METHOD:
    *out = tmethod_same(a.bound, b.bound);
    return true;
  case TV_FUNC:
    *out = a.kind == b.kind;
    return true;
  default:
    *out = a.d == b.d; /* the same object */
    return true;
  }
}

bool tv_equal(tmpl_rt *r, tv a, tv b, bool *out)
{
  if (a.type == TV_STR && b.type == TV_STR) {
    *out = ts_equal(a.s, b.s);
    return a.s == b.s || a.s->n != b.s->n || rt_scan(r, a.s->n);
  }
  if (tv_is_number(a) && tv_is_number(b)) {
    *out = tn_compare(a, b) == 0;
    return scan_number(r, a) && scan_number(r, b);
  }
  if (a.type != b.type) {
    *out = false;
    return true;
  }
  if (a.type == TV_NONE || a.type == TV_UNDEF) {
    *out = true;
    return true;
  }
  OK(rt_enter(r));
  bool ok = rt_step(r, 1) && equal_deep(r, a, b, out);
  rt_leave(r);
  return ok;
}

static bool no_order(tmpl_rt *r, const char *sign, tv a, tv b)
{
  if (a.type == TV_UNDEF)
    return tv_fail_undefined(r, a);
  if (b.type == TV_UNDEF)
    return tv_fail_undefined(r, b);
  return rt_fail(r, "'%s' not supported between instances of '%s' and '%s'", sign, tv_type_name(a), tv_type_name(b));
}

static bool order_lists(tmpl_rt *r, const tlist *a, const tlist *b, bool or_equal, bool *out)
{
  size_t n = a->n < b->n ? a->n : b->n;
  for (size_t i = 0; i < n; i++) {
    bool same;
    OK(rt_step(r, i % 2) && tv_equal(r, a->v[i], b->v[i], &same));
    if (!same)
      return or_equal ? tv_less_equal(r, a->v[i], b->v[i], out) : tv_less(r, a->v[i], b->v[i], out);
  }
  *out = or_equal ? a->n <= b->n : a->n < b->n;
  return true;
}

static bool order(tmpl_rt *r, tv a, tv b, bool or_equal, bool *out)
{
  if (tv_is_number(a) && tv_is_number(b)) {
    int c = tn_compare(a, b);
    *out = c == -1 || (or_equal && c == 0);
    return scan_number(r, a) && scan_number(r, b);
  }
  if (a.type == TV_STR && b.type == TV_STR) {
    int c = ts_compare(a.s, b.s);
    *out = c < 0 || (or_equal && c == 0);
    return rt_scan(r, a.s->n < b.s->n ? a.s->n : b.s->n);
  }
  if (a.type == b.type && (a.type == TV_LIST || a.type == TV_TUPLE)) {
    OK(rt_enter(r));
    bool ok = rt_step(r, 1) && order_lists(r, a.l, b.l, or_equal, out);
    rt_leave(r);
    return ok;
  }
  return no_order(r, or_equal ? "<=" : "<", a, b);
}

bool tv_less(tmpl_rt *r, tv a, tv b, bool *out)
{
  return order(r, a, b, false, out);
}

bool tv_less_equal(tmpl_rt *r, tv a, tv b, bool *out)
{
  return order(r, a, b, true, out);
}

static bool hash_tuple(tmpl_rt *r, const tlist *l, uint64_t *out)
{
  uint64_t h = 0x9e3779b97f4a7c15ULL;
  for (size_t i = 0; i < l->n; i++) {
    uint64_t item;
    OK(rt_step(r, 1) && tv_hash(r, l->v[i], &item));
    h = (h ^ item) * 0x100000001b3ULL;
    h ^= h >> 29;
  }
  *out = h;
  return true;
}

bool tv_hash(tmpl_rt *r, tv v, uint64_t *out)
{
  switch (v.type) {
  case TV_STR:
    *out = ts_hash(v.s);
    return v.s->hash || rt_scan(r, v.s->n);
  case TV_BOOL:
  case TV_INT:
  case TV_BIG:
  case TV_FLOAT:
    *out = tn_hash(v);
    return scan_number(r, v);
  case TV_NONE:
    *out = 3;
    return true;
  case TV_UNDEF:
    *out = 5;
    return true;
  case TV_TUPLE: {
    OK(rt_enter(r));
    bool ok = hash_tuple(r, v.l, out);
    rt_leave(r);
    return ok;
  }
  case TV_LIST:
  case TV_DICT:
  case TV_VIEW:
    return rt_fail(r, "unhashable type: '%s'", tv_type_name(v));
  default:
    return rt_fail(r, "'%s' object as a key of a dict is not supported", tv_type_name(v));
  }
}

/* ---- membership and length ---- */

static bool in_sequence(tmpl_rt *r, tv item, tv container, bool *out)
{
  titer *it;
  OK(ti_open(r, container, &it));
  *out = false;
  for (;;) {
    tv each;
    bool done;
    OK(ti_next(r, it, &each, &done));
    if (done)
      return true;
    OK(tv_equal(r, each, item, out));
    if (*out)
      return true;
  }
}

static bool in_dict(tmpl_rt *r, tv item, const tdict *d, bool *out)
{
  tv value;
  OK(td_get(r, d, item, &value));
  *out = tv_given(value);
  return true;
}

bool tv_in(tmpl_rt *r, tv item, tv container, bool *out)
{
  switch (container.type) {
  case TV_STR:
    if (item.type != TV_STR)
      return rt_fail(r, "'in <string>' requires string as left operand, not %s", tv_type_name(item));
    *out = ts_find(r, container.s, item.s, 0) != SIZE_MAX;
    return true;
  case TV_DICT:
    return in_dict(r, item, container.d, out);
  case TV_VIEW:
    if (container.kind == VIEW_KEYS)
      return in_dict(r, item, container.d, out);
    return in_sequence(r, item, container, out);
  case TV_UNDEF:
  case TV_LIST:
  case TV_TUPLE:
  case TV_RANGE:
  case TV_ITER:
    return in_sequence(r, item, container, out);
  default:
    return rt_fail(r, "argument of type '%s' is not iterable", tv_type_name(container));
  }
}

bool tv_sized(tv v)
{
  switch (v.type) {
  case TV_UNDEF:
  case TV_STR:
  case TV_LIST:
  case TV_TUPLE:
  case TV_DICT:
  case TV_VIEW:
  case TV_RANGE:
  case TV_LOOP:
    return true;
  default:
    return false;
  }
}

bool tv_length(tmpl_rt *r, tv v, int64_t *out)
{
  switch (v.type) {
  case TV_UNDEF:
    *out = 0;
    return true;
  case TV_STR:
    *out = (int64_t)v.s->chars;
    return true;
  case TV_LIST:
  case TV_TUPLE:
    *out = (int64_t)v.l->n;
    return true;
  case TV_DICT:
  case TV_VIEW:
    *out = (int64_t)v.d->n;
    return true;
  case TV_RANGE:
    *out = v.r->n;
    return true;
  case TV_LOOP:
    return tloop_length(r, v.loop, out);
  default:
    return rt_fail(r, "object of type '%s' has no len()", tv_type_name(v));
  }
}

/* ---- operators ---- */

static bool repeat(tmpl_rt *r, tv v, int64_t times, tv *out)
{
  if (times < 0)
    times = 0;
  if (v.type == TV_STR) {
    size_t total;
    if (__builtin_mul_overflow(v.s->n, (size_t)times, &total) || total > TMPL_MAX_MEMORY)
      return rt_fail_status(r, TERN_E_LIMIT, "a string repeated beyond %d MiB", TMPL_MAX_MEMORY >> 20);
    tbuf b = {.r = r};
    for (int64_t i = 0; i < times && v.s->n > 0 && !b.failed; i++)
      tb_str(&b, v.s);
    tv plain;
    OK(rt_scan(r, total) && tb_take(&b, &plain));
    return ts_markup(r, plain.s, v.s->markup, out);
  }
  size_t n = v.l->n, total;
  if (__builtin_mul_overflow(n, (size_t)times, &total) || total > TMPL_MAX_MEMORY / sizeof(tv))
    return rt_fail_status(r, TERN_E_LIMIT, "a list repeated beyond %d MiB", TMPL_MAX_MEMORY >> 20);
  tlist *l;
  OK(rt_step(r, total) && tl_new(r, total, &l));
  for (int64_t i = 0; i < times && n > 0; i++)
    memcpy(l->v + (size_t)i * n, v.l->v, n * sizeof(tv));
  l->n = total;
  *out = tv_seq(v.type, l);
  return true;
}

static bool is_repeatable(tv v)
{
  return v.type == TV_STR || v.type == TV_LIST || v.type == TV_TUPLE;
}

/* Markup escapes what is added to it, on either side. */
static bool add_strings(tmpl_rt *r, tv a, tv b, tv *out)
{
  bool markup = a.s->markup || b.s->markup;
  if (markup && !a.s->markup)
    OK(ts_escape(r, a.s, &a));
  if (markup && !b.s->markup)
    OK(ts_escape(r, b.s, &b));
  tv joined;
  OK(ts_concat(r, a.s, b.s, &joined));
  return ts_markup(r, joined.s, markup, out);
}

static bool add_lists(tmpl_rt *r, tv a, tv b, tv *out)
{
  tlist *l;
  OK(rt_step(r, a.l->n + b.l->n) && tl_new(r, a.l->n + b.l->n, &l));
  if (a.l->n)
    memcpy(l->v, a.l->v, a.l->n * sizeof(tv));
  if (b.l->n)
    memcpy(l->v + a.l->n, b.l->v, b.l->n * sizeof(tv));
  l->n = a.l->n + b.l->n;
  *out = tv_seq(a.type, l);
  return true;
}

static bool no_operator(tmpl_rt *r, tv_op op, tv a, tv b)
{
  static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  if (op == OP_ADD && a.type == TV_STR)
    return rt_fail(r, "can only concatenate str (not \"%s\") to str", tv_type_name(b));
  if (op == OP_ADD && (a.type == TV_LIST || a.type == TV_TUPLE))
    return rt_fail(r, "can only concatenate %s (not \"%s\") to %s", tv_type_name(a), tv_type_name(b), tv_type_name(a));
  return rt_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op], tv_type_name(a), tv_type_name(b));
}

bool tv_binary(tmpl_rt *r, tv_op op, tv a, tv b, tv *out)
{
  if (tv_is_number(a) && tv_is_number(b))
    return tn_binary(r, op, a, b, out);
  if (op == OP_MOD && a.type == TV_STR)
    return tf_percent(r, a.s, b, out);
  if (a.type == TV_UNDEF)
    return tv_fail_undefined(r, a);
  if (b.type == TV_UNDEF)
    return tv_fail_undefined(r, b);
  if (op == OP_ADD && a.type == TV_STR && b.type == TV_STR)
    return add_strings(r, a, b, out);
  if (op == OP_ADD && a.type == b.type && (a.type == TV_LIST || a.type == TV_TUPLE))
    return add_lists(r, a, b, out);
  if (op == OP_MUL && is_repeatable(a) && (b.type == TV_INT || b.type == TV_BOOL))
    return repeat(r, a, b.type == TV_INT ? b.i : b.b, out);
  if (op == OP_MUL && is_repeatable(b) && (a.type == TV_INT || a.type == TV_BOOL))
    return repeat(r, b, a.type == TV_INT ? a.i : a.b, out);
  return no_operator(r, op, a, b);
}

/* ---- subscripts and slices ---- */

static bool place(tv key, int64_t n, int64_t *at) /* false: LookupError or TypeError */
{
  if (key.type == TV_BOOL)
    *at = key.b;
  else if (key.type == TV_INT)
    *at = key.i;
  else
    return false;
  if (*at < 0)
    *at += n;
  return *at >= 0 && *at < n;
}

bool tv_subscript(tmpl_rt *r, tv object, tv key, tv *out, bool *found)
{
  int64_t at;
  *found = false;
  switch (object.type) {
  case TV_UNDEF:
    return tv_fail_undefined(r, object);
  case TV_DICT: {
    if (key.type == TV_LIST || key.type == TV_DICT || key.type == TV_VIEW)
      return true; /* unhashable: a TypeError that getitem swallows */
    tv value;
    OK(td_get(r, object.d, key, &value));
    *found = tv_given(value);
    if (*found)
      *out = value;
    return true;
  }
  case TV_STR:
    if (!place(key, (int64_t)object.s->chars, &at))
      return true;
    *found = true;
    size_t from = ts_offset(r, object.s, (size_t)at), to = from + 1;
    while (to < object.s->n && ((unsigned char)object.s->s[to] & 0xc0) == 0x80)
      to++;
    return ts_slice(r, object.s, from, to, out);
  case TV_LIST:
  case TV_TUPLE:
    *found = place(key, (int64_t)object.l->n, &at);
    if (*found)
      *out = object.l->v[at];
    return true;
  case TV_RANGE:
    *found = place(key, object.r->n, &at);
    if (*found)
      *out = ti_range_at(object.r, at);
    return true;
  default:
    return true;
  }
}

typedef struct cut {
  int64_t start, stop, step, n;
} cut;

static bool bound(tmpl_rt *r, tv v, int64_t n, int64_t step, bool is_stop, int64_t *out)
{
  if (v.type == TV_MISSING || v.type == TV_NONE) {
    *out = is_stop == (step > 0) ? (step > 0 ? n : n - 1) : (step > 0 ? 0 : -1);
    return true;
  }
  if (v.type != TV_INT && v.type != TV_BOOL)
    return rt_fail(r, "slice indices must be integers or None or have an __index__ method");
  int64_t i = v.type == TV_INT ? v.i : v.b;
  if (i < 0)
    i = i < -n ? (step < 0 ? -1 : 0) : i + n;
  else if (i >= n)
    i = step < 0 ? n - 1 : n;
  *out = i;
  return true;
}

static bool measure(tmpl_rt *r, int64_t n, tv start, tv stop, tv step, cut *out)
{
  int64_t by = 1;
  if (tv_given(step) && step.type != TV_NONE) {
    if (step.type != TV_INT && step.type != TV_BOOL)
      return rt_fail(r, "slice indices must be integers or None or have an __index__ method");
    by = step.type == TV_INT ? step.i : step.b;
  }
  if (by == 0)
    return rt_fail(r, "slice step cannot be zero");
  if (by < -INT64_MAX)
    by = -INT64_MAX;
  int64_t from = 0, to = 0;
  OK(bound(r, start, n, by, false, &from) && bound(r, stop, n, by, true, &to));
  int64_t count = 0;
  if (by > 0 && from < to)
    count = (to - from - 1) / by + 1;
  else if (by < 0 && from > to)
    count = (from - to - 1) / -by + 1;
  *out = (cut){from, to, by, count};
  return true;
}

static bool slice_string(tmpl_rt *r, const tstr *s, cut c, tv *out)
{
  if (c.n == 0)
    return ts_slice(r, s, 0, 0, out);
  if (c.step == 1)
    return ts_slice(r, s, ts_offset(r, s, (size_t)c.start), ts_offset(r, s, (size_t)(c.start + c.n)), out);
  tbuf b = {.r = r};
  OK(rt_walk(r, s->n));
  size_t *offsets = NULL;
  if (s->chars != s->n) { /* one pass, then any step in any direction */
    offsets = rt_array(r, s->chars + 1, sizeof *offsets);
    OK(offsets);
    size_t k = 0;
    for (size_t i = 0; i < s->n; i++)
      if (((unsigned char)s->s[i] & 0xc0) != 0x80)
        offsets[k++] = i;
    offsets[k] = s->n;
  }
  for (int64_t i = 0; i < c.n; i++) {
    size_t at = (size_t)(c.start + i * c.step);
    if (offsets)
      tb_add(&b, s->s + offsets[at], offsets[at + 1] - offsets[at]);
    else
      tb_addc(&b, s->s[at]);
  }
  tv plain;
  OK(tb_take(&b, &plain));
  return ts_markup(r, plain.s, s->markup, out);
}

static bool slice_list(tmpl_rt *r, tv v, cut c, tv *out)
{
  tlist *l;
  OK(rt_step(r, (uint64_t)c.n) && tl_new(r, (size_t)c.n, &l));
  for (int64_t i = 0; i < c.n; i++)
    l->v[i] = v.l->v[c.start + i * c.step];
  l->n = (size_t)c.n;
  *out = tv_seq(v.type, l);
  return true;
}

static bool slice_range(tmpl_rt *r, const trange *from, cut c, tv *out)
{
  trange *range = rt_alloc(r, sizeof *range);
  OK(range);
  int64_t step = from->step;
  if (__builtin_mul_overflow(step, c.step, &step))
    return rt_fail(r, "a range beyond 64 bits");
  int64_t start = from->start + c.start * from->step;
  *range = (trange){.start = start, .step = step, .n = c.n, .stop = from->start + c.stop * from->step};
  *out = (tv){.type = TV_RANGE, .r = range};
  return true;
}

bool tv_slice(tmpl_rt *r, tv object, tv start, tv stop, tv step, tv *out)
{
  cut c;
  switch (object.type) {
  case TV_STR:
    return measure(r, (int64_t)object.s->chars, start, stop, step, &c) && slice_string(r, object.s, c, out);
  case TV_LIST:
  case TV_TUPLE:
    return measure(r, (int64_t)object.l->n, start, stop, step, &c) && slice_list(r, object, c, out);
  case TV_RANGE:
    return measure(r, object.r->n, start, stop, step, &c) && slice_range(r, object.r, c, out);
  case TV_UNDEF:
    return tv_fail_undefined(r, object);
  case TV_DICT:
    return rt_fail(r, "unhashable type: 'slice'");
  default:
    return rt_fail(r, "'%s' object is not subscriptable", tv_type_name(object));
  }
}

/* ---- sorting: a merge sort, stable, that asks only "is a less than b" as Python does ---- */

typedef struct sorter {
  tmpl_rt *r;
  const tv *keys;
  bool reverse;
} sorter;

static bool merge_sort(const sorter *s, size_t *order_of, size_t *spare, size_t n)
{
  if (n < 2)
    return true;
  size_t half = n / 2;
  OK(merge_sort(s, order_of, spare, half) && merge_sort(s, order_of + half, spare, n - half));
  OK(rt_step(s->r, n));
  size_t i = 0, j = half, k = 0;
  while (i < half && j < n) {
    bool second_first = false;
    tv a = s->keys[order_of[i]], b = s->keys[order_of[j]];
    if (s->reverse)
      OK(tv_less(s->r, a, b, &second_first));
    else
      OK(tv_less(s->r, b, a, &second_first));
    spare[k++] = second_first ? order_of[j++] : order_of[i++];
  }
  while (i < half)
    spare[k++] = order_of[i++];
  while (j < n)
    spare[k++] = order_of[j++];
  memcpy(order_of, spare, n * sizeof *spare);
  return true;
}

bool tv_sort(tmpl_rt *r, tv *values, const tv *keys, size_t n, bool reverse)
{
  size_t *order_of = rt_array(r, n, sizeof *order_of), *spare = rt_array(r, n, sizeof *spare);
  tv *sorted = rt_array(r, n, sizeof *sorted);
  OK(order_of && spare && sorted);
  for (size_t i = 0; i < n; i++)
    order_of[i] = i;
  sorter s = {r, keys, reverse};
  OK(merge_sort(&s, order_of, spare, n));
  for (size_t i = 0; i < n; i++)
    sorted[i] = values[order_of[i]];
  if (n)
    memcpy(values, sorted, n * sizeof *sorted);
  return true;
}
