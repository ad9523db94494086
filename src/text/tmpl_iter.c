/* tmpl_iter.c - iteration: one-pass iterators over every value that has them, list(), reversed(). */
#include <string.h>

#include "base/utf8.h"
#include "text/tmpl_value.h"

bool ti_new(tmpl_rt *r, bool (*next)(tmpl_rt *, titer *, tv *, bool *), tv src, void *state, tv *out)
{
  titer *it = rt_alloc(r, sizeof *it);
  OK(it);
  *it = (titer){.next = next, .src = src, .state = state};
  *out = (tv){.type = TV_ITER, .it = it};
  return true;
}

bool ti_pair(tmpl_rt *r, tv a, tv b, tv *out)
{
  tlist *l;
  OK(tl_new(r, 2, &l));
  l->v[0] = a;
  l->v[1] = b;
  l->n = 2;
  *out = tv_seq(TV_TUPLE, l);
  return true;
}

tv ti_range_at(const trange *range, int64_t i)
{
  return tv_int(range->start + i * range->step);
}

static bool next_nothing(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  (void)r;
  (void)it;
  (void)out;
  *done = true;
  return true;
}

static bool next_in_list(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  if (it->pos >= it->src.l->n)
    *done = true;
  else
    *out = it->src.l->v[it->pos++];
  return rt_step(r, 1);
}

static bool next_in_string(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  const tstr *s = it->src.s;
  if (it->pos >= s->n) {
    *done = true;
    return true;
  }
  uint32_t c;
  size_t used = utf8_decode(s->s + it->pos, s->n - it->pos, &c), from = it->pos;
  it->pos += used ? used : 1;
  tv one;
  OK(ts_slice(r, s, from, it->pos, &one));
  return rt_step(r, 1) && ts_markup(r, one.s, false, out); /* iterating Markup gives plain characters */
}

static bool dict_item(tmpl_rt *r, const tentry *e, int kind, tv *out)
{
  if (kind == VIEW_ITEMS)
    return ti_pair(r, e->key, e->value, out);
  *out = kind == VIEW_KEYS ? e->key : e->value;
  return true;
}

static bool next_in_dict(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  OK(rt_step(r, 1));
  if (it->pos >= it->src.d->n) {
    *done = true;
    return true;
  }
  return dict_item(r, &it->src.d->e[it->pos++], it->src.kind, out);
}

static bool next_in_range(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  if ((int64_t)it->pos >= it->src.r->n)
    *done = true;
  else
    *out = ti_range_at(it->src.r, (int64_t)it->pos++);
  return rt_step(r, 1);
}

bool ti_iterable(tv v)
{
  switch (v.type) {
  case TV_UNDEF:
  case TV_STR:
  case TV_LIST:
  case TV_TUPLE:
  case TV_DICT:
  case TV_VIEW:
  case TV_RANGE:
  case TV_ITER:
  case TV_LOOP:
    return true;
  default:
    return false;
  }
}

bool ti_open(tmpl_rt *r, tv v, titer **out)
{
  bool (*next)(tmpl_rt *, titer *, tv *, bool *) = NULL;
  switch (v.type) {
  case TV_UNDEF:
    next = next_nothing;
    break;
  case TV_STR:
    next = next_in_string;
    break;
  case TV_LIST:
  case TV_TUPLE:
    next = next_in_list;
    break;
  case TV_DICT:
    v.kind = VIEW_KEYS;
    next = next_in_dict;
    break;
  case TV_VIEW:
    next = next_in_dict;
    break;
  case TV_RANGE:
    next = next_in_range;
    break;
  case TV_ITER:
    *out = v.it;
    return true;
  case TV_LOOP:
    return rt_fail(r, "iterating over the loop variable is not supported");
  default:
    return rt_fail(r, "'%s' object is not iterable", tv_type_name(v));
  }
  tv made;
  OK(ti_new(r, next, v, NULL, &made));
  *out = made.it;
  return true;
}

static bool next_reversed(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  OK(rt_step(r, 1));
  if (it->pos == 0) {
    *done = true;
    return true;
  }
  size_t at = --it->pos;
  if (it->src.type == TV_RANGE) {
    *out = ti_range_at(it->src.r, (int64_t)at);
    return true;
  }
  if (it->src.type == TV_DICT || it->src.type == TV_VIEW)
    return dict_item(r, &it->src.d->e[at], it->src.type == TV_DICT ? VIEW_KEYS : it->src.kind, out);
  *out = it->src.l->v[at];
  return true;
}

bool ti_reversed(tmpl_rt *r, tv v, tv *out)
{
  if (v.type == TV_STR) { /* reversed over its characters */
    tlist *l;
    OK(ti_list(r, v, &l));
    v = tv_seq(TV_LIST, l);
  }
  size_t n;
  switch (v.type) {
  case TV_LIST:
  case TV_TUPLE:
    n = v.l->n;
    break;
  case TV_DICT:
  case TV_VIEW:
    n = v.d->n;
    break;
  case TV_RANGE:
    n = (size_t)v.r->n;
    break;
  default:
    return rt_fail(r, "'%s' object is not reversible", tv_type_name(v));
  }
  OK(ti_new(r, next_reversed, v, NULL, out));
  out->it->pos = n;
  return true;
}

bool ti_list(tmpl_rt *r, tv v, tlist **out)
{
  if (v.type == TV_LIST || v.type == TV_TUPLE) {
    OK(rt_step(r, v.l->n) && tl_new(r, v.l->n, out));
    if (v.l->n)
      memcpy((*out)->v, v.l->v, v.l->n * sizeof(tv));
    (*out)->n = v.l->n;
    return true;
  }
  titer *it;
  OK(ti_open(r, v, &it) && tl_new(r, 0, out));
  for (;;) {
    tv item;
    bool done;
    OK(ti_next(r, it, &item, &done));
    if (done)
      return true;
    OK(tl_add(r, *out, item));
  }
}
