/* tmpl_select.c - map, select, reject and their attribute forms: one-pass generators that look at nothing, not even
 * their arguments, before they are read. */
#include <string.h>

#include "text/tmpl_filters.h"

#define FILTER(name) static bool name(tmpl_rt *r, tv value, const tv *slots, const targs *a, tv *out)

typedef struct selection {
  targs a; /* as given */
  titer *src;
  tpath path;
  tv fallback;
  const tfilter *filter;
  const ttest *test;
  targs rest; /* the arguments of the filter or test */
  bool by_attribute, keep, started, empty;
} selection;

/* The filter or test that args[at] names, with the arguments behind it. */
static bool named_argument(tmpl_rt *r, selection *s, size_t at, bool filter)
{
  tv name = s->a.v[at];
  s->rest = s->a;
  s->rest.v += at + 1;
  s->rest.n -= at + 1;
  if (name.type == TV_STR && filter)
    s->filter = tfilter_find(name.s);
  else if (name.type == TV_STR)
    s->test = ttest_find(name.s);
  if (s->filter || s->test)
    return true;
  tv text;
  OK(tv_to_str(r, name, &text));
  return rt_fail(r, "No %s named '%.*s'", filter ? "filter" : "test", (int)text.s->n, text.s->s);
}

static bool start(tmpl_rt *r, selection *s, tv value)
{
  s->started = true;
  s->empty = !tv_truth(value);
  return s->empty || ti_open(r, value, &s->src);
}

/* ---- map ---- */

static bool prepare_map(tmpl_rt *r, selection *s)
{
  const tv *attribute = targs_keyword(&s->a, "attribute");
  if (s->a.n == 0 && attribute) {
    const tv *fallback = targs_keyword(&s->a, "default");
    if (s->a.n_kw > 1u + (fallback != NULL))
      return rt_fail(r, "map() got an unexpected keyword argument");
    s->by_attribute = true;
    if (fallback)
      s->fallback = *fallback;
    return tpath_parse(r, *attribute, &s->path);
  }
  if (s->a.n == 0)
    return rt_fail(r, "map requires a filter argument");
  return named_argument(r, s, 0, true);
}

static bool next_mapped(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  selection *s = it->state;
  if (!s->started)
    OK(start(r, s, it->src) && (s->empty || prepare_map(r, s)));
  if (s->empty) {
    *done = true;
    return true;
  }
  tv item;
  OK(ti_next(r, s->src, &item, done));
  if (*done)
    return true;
  return s->by_attribute ? tpath_get(r, &s->path, item, s->fallback, out)
                         : tfilter_call(r, s->filter, item, &s->rest, out);
}

/* ---- select and reject ---- */

static bool prepare_select(tmpl_rt *r, selection *s)
{
  size_t at = 0;
  if (s->by_attribute) {
    if (s->a.n == 0)
      return rt_fail(r, "Missing parameter for attribute name");
    OK(tpath_parse(r, s->a.v[0], &s->path));
    at = 1;
  }
  return at >= s->a.n || named_argument(r, s, at, false);
}

static bool wanted(tmpl_rt *r, const selection *s, tv item, bool *out)
{
  tv value;
  OK(tpath_get(r, &s->path, item, (tv){0}, &value));
  if (s->test)
    OK(ttest_call(r, s->test, value, &s->rest, out));
  else
    *out = tv_truth(value);
  *out = *out == s->keep;
  return true;
}

static bool next_selected(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  selection *s = it->state;
  if (!s->started)
    OK(start(r, s, it->src) && (s->empty || prepare_select(r, s)));
  if (s->empty) {
    *done = true;
    return true;
  }
  bool take = false;
  while (!take && !*done)
    OK(ti_next(r, s->src, out, done) && (*done || wanted(r, s, *out, &take)));
  return true;
}

static bool make(tmpl_rt *r, tv value, const targs *a, bool (*next)(tmpl_rt *, titer *, tv *, bool *),
                 bool by_attribute, bool keep, tv *out)
{
  selection *s = rt_zalloc(r, sizeof *s);
  OK(s);
  s->a = *a;
  s->by_attribute = by_attribute;
  s->keep = keep;
  return ti_new(r, next, value, s, out);
}

FILTER(f_map)
{
  (void)slots;
  return make(r, value, a, next_mapped, false, true, out);
}

FILTER(f_select)
{
  (void)slots;
  return make(r, value, a, next_selected, false, true, out);
}

FILTER(f_reject)
{
  (void)slots;
  return make(r, value, a, next_selected, false, false, out);
}

FILTER(f_selectattr)
{
  (void)slots;
  return make(r, value, a, next_selected, true, true, out);
}

FILTER(f_rejectattr)
{
  (void)slots;
  return make(r, value, a, next_selected, true, false, out);
}

const tfilter tfilters_select[] = {
    {"map", f_map, "*"},
    {"select", f_select, "*"},
    {"reject", f_reject, "*"},
    {"selectattr", f_selectattr, "*"},
    {"rejectattr", f_rejectattr, "*"},
    {0},
};
