/* tmpl_filters_seq.c - filters on sequences and mappings: sorting, grouping, slicing, aggregating. */
#include <string.h>

#include "text/tmpl_attr.h"
#include "text/tmpl_case.h"
#include "text/tmpl_filters.h"

#define FILTER(name) static bool name(tmpl_rt *r, tv value, const tv *slots, const targs *a, tv *out)
#define UNUSED_ARGS ((void)slots, (void)a)

static bool given_and_true(tv v)
{
  return tv_given(v) && tv_truth(v);
}

/* ---- attribute paths: "a.b.0" ---- */

static bool is_number(const tstr *s)
{
  for (size_t i = 0; i < s->n; i++)
    if (s->s[i] < '0' || s->s[i] > '9')
      return false;
  return s->n > 0;
}

bool tpath_parse(tmpl_rt *r, tv attribute, tpath *out)
{
  *out = (tpath){0};
  if (!tv_given(attribute) || attribute.type == TV_NONE)
    return true;
  tlist *l;
  if (attribute.type != TV_STR) {
    OK(tl_new(r, 1, &l) && tl_add(r, l, attribute));
  } else {
    tv dot;
    OK(ts_cstr(r, ".", &dot) && tc_split(r, attribute.s, dot.s, -1, false, &l));
    for (size_t i = 0; i < l->n; i++)
      if (is_number(l->v[i].s))
        OK(tn_from_digits(r, l->v[i].s->s, l->v[i].s->n, false, &l->v[i]));
  }
  *out = (tpath){.parts = l->v, .n = l->n};
  return true;
}

bool tpath_get(tmpl_rt *r, const tpath *path, tv item, tv fallback, tv *out)
{
  for (size_t i = 0; i < path->n; i++) {
    OK(tattr_item(r, item, path->parts[i], &item));
    if (item.type == TV_UNDEF && tv_given(fallback) && fallback.type != TV_NONE)
      item = fallback;
  }
  *out = item;
  return true;
}

bool tpath_fold(tmpl_rt *r, tv value, bool case_sensitive, tv *out)
{
  *out = value;
  return case_sensitive || value.type != TV_STR || tc_lower(r, value.s, out);
}

/* One key a value, along one path. */
static bool path_keys(tmpl_rt *r, const tlist *l, const tpath *path, tv fallback, bool case_sensitive, tv **out)
{
  tv *keys = rt_array(r, l->n + 1, sizeof *keys);
  OK(keys);
  for (size_t i = 0; i < l->n; i++)
    OK(tpath_get(r, path, l->v[i], fallback, &keys[i]) && tpath_fold(r, keys[i], case_sensitive, &keys[i]));
  *out = keys;
  return true;
}

/* ---- sort, dictsort, groupby, unique, min, max ---- */

/* "a,b.c": sorts by several paths. Each key is a list, even of one: lists compare equal items first, which is why
 * [none, none] can be sorted and [none, 1] cannot. */
static bool sort_keys(tmpl_rt *r, const tlist *l, tv attribute, bool case_sensitive, tv **out)
{
  tlist *names;
  if (attribute.type == TV_STR) {
    tv comma;
    OK(ts_cstr(r, ",", &comma) && tc_split(r, attribute.s, comma.s, -1, false, &names));
  } else {
    OK(tl_new(r, 1, &names) && tl_add(r, names, attribute));
  }
  tv *keys = rt_array(r, l->n + 1, sizeof *keys);
  OK(keys);
  for (size_t i = 0; i < l->n; i++) {
    tlist *key;
    OK(tl_new(r, names->n, &key));
    keys[i] = tv_seq(TV_LIST, key);
  }
  for (size_t k = 0; k < names->n; k++) {
    tpath path;
    tv *part;
    OK(tpath_parse(r, names->v[k], &path) && path_keys(r, l, &path, (tv){0}, case_sensitive, &part));
    for (size_t i = 0; i < l->n; i++)
      OK(tl_add(r, keys[i].l, part[i]));
  }
  *out = keys;
  return true;
}

FILTER(f_sort)
{
  (void)a;
  tlist *l;
  tv *keys;
  OK(ti_list(r, value, &l) && sort_keys(r, l, slots[2], given_and_true(slots[1]), &keys));
  OK(tv_sort(r, l->v, keys, l->n, given_and_true(slots[0])));
  *out = tv_seq(TV_LIST, l);
  return true;
}

FILTER(f_dictsort)
{
  (void)a;
  size_t by = 0;
  if (tv_given(slots[1])) {
    if (slots[1].type != TV_STR || !(ts_is(slots[1].s, "key") || ts_is(slots[1].s, "value")))
      return rt_fail(r, "You can only sort by either \"key\" or \"value\"");
    by = ts_is(slots[1].s, "value");
  }
  if (value.type == TV_UNDEF)
    return tv_fail_undefined(r, value);
  if (value.type != TV_DICT)
    return rt_fail(r, "'%s' object has no attribute 'items'", tv_type_name(value));
  tv view = {.type = TV_VIEW, .kind = VIEW_ITEMS, .d = value.d};
  tlist *l;
  OK(ti_list(r, view, &l));
  tv *keys = rt_array(r, l->n + 1, sizeof *keys);
  OK(keys);
  for (size_t i = 0; i < l->n; i++)
    OK(tpath_fold(r, l->v[i].l->v[by], given_and_true(slots[0]), &keys[i]));
  OK(tv_sort(r, l->v, keys, l->n, given_and_true(slots[2])));
  *out = tv_seq(TV_LIST, l);
  return true;
}

FILTER(f_groupby)
{
  (void)a;
  tlist *l, *groups;
  tpath path;
  tv *keys, *shown;
  bool case_sensitive = given_and_true(slots[2]);
  OK(tpath_parse(r, slots[0], &path) && ti_list(r, value, &l));
  OK(path_keys(r, l, &path, slots[1], case_sensitive, &keys) && tv_sort(r, l->v, keys, l->n, false));
  OK(path_keys(r, l, &path, slots[1], case_sensitive, &keys)); /* again, in the new order */
  OK(path_keys(r, l, &path, slots[1], true, &shown) && tl_new(r, 0, &groups));
  for (size_t i = 0; i < l->n;) {
    tlist *members, *pair;
    OK(tl_new(r, 0, &members) && tl_new(r, 2, &pair));
    size_t first = i;
    bool same = true;
    while (i < l->n && same) {
      OK(tl_add(r, members, l->v[i++]));
      if (i < l->n)
        OK(tv_equal(r, keys[first], keys[i], &same));
    }
    OK(tl_add(r, pair, shown[first]) && tl_add(r, pair, tv_seq(TV_LIST, members)));
    pair->group = true;
    OK(tl_add(r, groups, tv_seq(TV_TUPLE, pair)));
  }
  *out = tv_seq(TV_LIST, groups);
  return true;
}

typedef struct unique {
  titer *src;
  tpath path;
  bool case_sensitive;
  tdict *seen;
} unique;

static bool next_unique(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  unique *u = it->state;
  if (!u->src)
    OK(ti_open(r, it->src, &u->src));
  for (;;) {
    tv key, old;
    OK(ti_next(r, u->src, out, done));
    if (*done)
      return true;
    OK(tpath_get(r, &u->path, *out, (tv){0}, &key) && tpath_fold(r, key, u->case_sensitive, &key));
    OK(td_get(r, u->seen, key, &old));
    if (!tv_given(old))
      return td_set(r, u->seen, key, tv_none());
  }
}

FILTER(f_unique)
{
  (void)a;
  unique *u = rt_zalloc(r, sizeof *u);
  OK(u && td_new(r, &u->seen) && tpath_parse(r, slots[1], &u->path));
  u->case_sensitive = given_and_true(slots[0]);
  return ti_new(r, next_unique, value, u, out);
}

static bool extreme(tmpl_rt *r, tv value, const tv *slots, bool most, tv *out)
{
  tlist *l;
  tpath path;
  tv *keys;
  OK(ti_list(r, value, &l) && tpath_parse(r, slots[1], &path));
  if (l->n == 0)
    return tv_undef_hint(r, "No aggregated item, sequence was empty", out);
  OK(path_keys(r, l, &path, (tv){0}, given_and_true(slots[0]), &keys));
  size_t best = 0;
  for (size_t i = 1; i < l->n; i++) {
    bool better;
    OK(most ? tv_less(r, keys[best], keys[i], &better) : tv_less(r, keys[i], keys[best], &better));
    if (better)
      best = i;
  }
  *out = l->v[best];
  return true;
}

FILTER(f_min)
{
  (void)a;
  return extreme(r, value, slots, false, out);
}

FILTER(f_max)
{
  (void)a;
  return extreme(r, value, slots, true, out);
}

FILTER(f_sum)
{
  (void)a;
  tpath path;
  titer *it;
  tv total = tv_given(slots[1]) ? slots[1] : tv_int(0);
  if (total.type == TV_STR)
    return rt_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
  OK(tpath_parse(r, slots[0], &path) && ti_open(r, value, &it));
  for (;;) {
    tv item;
    bool done;
    OK(ti_next(r, it, &item, &done));
    if (done)
      break;
    OK(tpath_get(r, &path, item, (tv){0}, &item) && tv_binary(r, OP_ADD, total, item, &total));
  }
  *out = total;
  return true;
}

/* ---- first, last, list, reverse, join, items ---- */

FILTER(f_first)
{
  UNUSED_ARGS;
  titer *it;
  bool done;
  OK(ti_open(r, value, &it) && ti_next(r, it, out, &done));
  return !done || tv_undef_hint(r, "No first item, sequence was empty", out);
}

FILTER(f_last)
{
  UNUSED_ARGS;
  tv reversed;
  bool done;
  if (value.type == TV_UNDEF) /* a sequence of length 0 to reversed() */
    return tv_undef_hint(r, "No last item, sequence was empty", out);
  OK(ti_reversed(r, value, &reversed) && ti_next(r, reversed.it, out, &done));
  return !done || tv_undef_hint(r, "No last item, sequence was empty", out);
}

FILTER(f_list)
{
  UNUSED_ARGS;
  tlist *l;
  OK(ti_list(r, value, &l));
  *out = tv_seq(TV_LIST, l);
  return true;
}

FILTER(f_reverse)
{
  UNUSED_ARGS;
  if (value.type == TV_STR)
    return tv_slice(r, value, (tv){0}, (tv){0}, tv_int(-1), out);
  if (value.type != TV_ITER && value.type != TV_UNDEF)
    return ti_iterable(value) ? ti_reversed(r, value, out) : rt_fail(r, "argument must be iterable");
  tlist *l;
  OK(ti_list(r, value, &l));
  for (size_t i = 0; i + 1 < l->n - i; i++) {
    tv swap = l->v[i];
    l->v[i] = l->v[l->n - 1 - i];
    l->v[l->n - 1 - i] = swap;
  }
  *out = tv_seq(TV_LIST, l);
  return true;
}

FILTER(f_join)
{
  (void)a;
  tlist *l;
  tpath path;
  tv separator;
  OK(tpath_parse(r, slots[1], &path) && ti_list(r, value, &l));
  if (tv_given(slots[0]))
    OK(tv_to_str(r, slots[0], &separator));
  else
    OK(ts_cstr(r, "", &separator));
  for (size_t i = 0; i < l->n; i++)
    OK(tpath_get(r, &path, l->v[i], (tv){0}, &l->v[i]) && tv_to_str(r, l->v[i], &l->v[i]));
  return tc_join(r, separator.s, l, out);
}

/* A generator: the error of a value that is no mapping comes when it is read. */
static bool next_item(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  if (it->src.type == TV_UNDEF) {
    *done = true;
    return true;
  }
  if (it->src.type != TV_DICT)
    return rt_fail(r, "Can only get item pairs from a mapping");
  if (it->pos >= it->src.d->n) {
    *done = true;
    return true;
  }
  const tentry *e = &it->src.d->e[it->pos++];
  return rt_step(r, 1) && ti_pair(r, e->key, e->value, out);
}

FILTER(f_items)
{
  UNUSED_ARGS;
  return ti_new(r, next_item, value, NULL, out);
}

/* ---- batch and slice ---- */

typedef struct batch {
  titer *src;
  int64_t size;
  tv fill;
  bool ended;
} batch;

static bool next_batch(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  batch *b = it->state;
  tlist *l;
  if (b->ended) {
    *done = true;
    return true;
  }
  if (!b->src)
    OK(ti_open(r, it->src, &b->src));
  OK(tl_new(r, 0, &l));
  while ((int64_t)l->n < b->size || b->size < 1) {
    tv item;
    OK(ti_next(r, b->src, &item, &b->ended));
    if (b->ended)
      break;
    OK(tl_add(r, l, item));
  }
  if (l->n == 0) {
    *done = true;
    return true;
  }
  while (b->ended && tv_given(b->fill) && b->fill.type != TV_NONE && (int64_t)l->n < b->size)
    OK(rt_step(r, 1) && tl_add(r, l, b->fill));
  *out = tv_seq(TV_LIST, l);
  return true;
}

FILTER(f_batch)
{
  (void)a;
  batch *b = rt_zalloc(r, sizeof *b);
  OK(b && tn_index(r, slots[0], "linecount", &b->size));
  b->fill = slots[1];
  return ti_new(r, next_batch, value, b, out);
}

typedef struct slicer {
  tlist *items;
  int64_t slices, number, offset;
  tv fill;
} slicer;

static bool next_slice(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  slicer *s = it->state;
  tlist *l;
  if (!s->items)
    OK(ti_list(r, it->src, &s->items));
  if (s->slices == 0)
    return rt_fail(r, "integer division or modulo by zero");
  if (s->number >= s->slices) {
    *done = true;
    return true;
  }
  int64_t n = (int64_t)s->items->n, each = n / s->slices, extra = n % s->slices, i = s->number++;
  int64_t from = i * each + (i < extra ? i : extra), count = each + (i < extra);
  OK(rt_step(r, 1) && tl_new(r, (size_t)count + 1, &l));
  for (int64_t k = 0; k < count; k++)
    OK(tl_add(r, l, s->items->v[from + k]));
  if (tv_given(s->fill) && s->fill.type != TV_NONE && i >= extra)
    OK(tl_add(r, l, s->fill));
  *out = tv_seq(TV_LIST, l);
  return true;
}

FILTER(f_slice)
{
  (void)a;
  slicer *s = rt_zalloc(r, sizeof *s);
  OK(s && tn_index(r, slots[0], "slices", &s->slices));
  s->fill = slots[1];
  return ti_new(r, next_slice, value, s, out);
}

const tfilter tfilters_sequence[] = {
    {"join", f_join, "d? attribute?"},
    {"items", f_items, ""},
    {"list", f_list, ""},
    {"first", f_first, ""},
    {"last", f_last, ""},
    {"dictsort", f_dictsort, "case_sensitive? by? reverse?"},
    {"sort", f_sort, "reverse? case_sensitive? attribute?"},
    {"unique", f_unique, "case_sensitive? attribute?"},
    {"min", f_min, "case_sensitive? attribute?"},
    {"max", f_max, "case_sensitive? attribute?"},
    {"sum", f_sum, "attribute? start?"},
    {"reverse", f_reverse, ""},
    {"groupby", f_groupby, "attribute default? case_sensitive?"},
    {"batch", f_batch, "linecount fill_with?"},
    {"slice", f_slice, "slices fill_with?"},
    {0},
};
