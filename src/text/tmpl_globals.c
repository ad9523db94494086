/* tmpl_globals.c - the global functions of the environment: range, dict, namespace, raise_exception, strftime_now,
 * cycler, joiner. lipsum exists, as `lipsum is defined` must say so, but its random text does not. */
#include "text/tmpl_attr.h"

static const struct global {
  const char *name;
  int which;
} globals[] = {
    {"range", FUNC_RANGE},           {"dict", FUNC_DICT},
    {"namespace", FUNC_NAMESPACE},   {"raise_exception", FUNC_RAISE},
    {"strftime_now", FUNC_STRFTIME}, {"cycler", FUNC_CYCLER},
    {"joiner", FUNC_JOINER},         {"lipsum", FUNC_LIPSUM},
};

bool tglobal_find(const tstr *name, tv *out)
{
  for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
    if (ts_is(name, globals[i].name)) {
      *out = (tv){.type = TV_FUNC, .kind = (uint8_t)globals[i].which};
      return true;
    }
  return false;
}

static bool call_range(tmpl_rt *r, const targs *a, tv *out)
{
  if (a->n_kw || a->n < 1 || a->n > 3)
    return rt_fail(r, "range expected 1 to 3 arguments, got %zu", a->n + a->n_kw);
  int64_t v[3];
  for (size_t i = 0; i < a->n; i++)
    OK(tn_index(r, a->v[i], "range()", &v[i]));
  int64_t start = a->n > 1 ? v[0] : 0, stop = a->n > 1 ? v[1] : v[0], step = a->n > 2 ? v[2] : 1;
  if (step == 0)
    return rt_fail(r, "range() arg 3 must not be zero");
  __int128 n = 0;
  if (step > 0 && start < stop)
    n = ((__int128)stop - start - 1) / step + 1;
  else if (step < 0 && start > stop)
    n = ((__int128)start - stop - 1) / -(__int128)step + 1;
  if (n > TMPL_MAX_RANGE)
    return rt_fail(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d)", TMPL_MAX_RANGE);
  trange *range = rt_alloc(r, sizeof *range);
  OK(range);
  *range = (trange){start, stop, step, (int64_t)n};
  *out = (tv){.type = TV_RANGE, .r = range};
  return true;
}

static bool add_pair(tmpl_rt *r, tdict *d, tv pair)
{
  tlist *l;
  if (!ti_iterable(pair))
    return rt_fail(r, "cannot convert dictionary update sequence element to a sequence");
  OK(ti_list(r, pair, &l));
  if (l->n != 2)
    return rt_fail(r, "dictionary update sequence element has length %zu; 2 is required", l->n);
  return td_set(r, d, l->v[0], l->v[1]);
}

/* dict(mapping or pairs, **names) */
static bool make_dict(tmpl_rt *r, const char *who, const targs *a, tdict **out)
{
  if (a->n > 1)
    return rt_fail(r, "%s expected at most 1 argument, got %zu", who, a->n);
  OK(td_new(r, out));
  if (a->n == 1 && a->v[0].type == TV_DICT) {
    OK(td_copy(r, a->v[0].d, out));
  } else if (a->n == 1) {
    titer *it;
    OK(ti_open(r, a->v[0], &it));
    for (;;) {
      tv pair;
      bool done;
      OK(ti_next(r, it, &pair, &done));
      if (done)
        break;
      OK(add_pair(r, *out, pair));
    }
  }
  for (size_t i = 0; i < a->n_kw; i++)
    OK(td_set(r, *out, tv_string(a->names[i]), a->kw[i]));
  return true;
}

static bool call_namespace(tmpl_rt *r, const targs *a, tv *out)
{
  tdict *d;
  OK(make_dict(r, "namespace", a, &d));
  for (size_t i = 0; i < d->n; i++) {
    tv key = d->e[i].key;
    if (key.type == TV_STR && key.s->n > 0 && key.s->s[0] == '_')
      return rt_fail(r, "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'",
                     (int)key.s->n, key.s->s);
  }
  *out = (tv){.type = TV_NS, .d = d};
  return true;
}

static bool call_cycler(tmpl_rt *r, const targs *a, tv *out)
{
  if (a->n_kw)
    return rt_fail(r, "cycler() takes no keyword arguments");
  if (a->n == 0)
    return rt_fail(r, "at least one item has to be provided");
  tcycler *c = rt_zalloc(r, sizeof *c);
  OK(c && tl_new(r, a->n, &c->items));
  for (size_t i = 0; i < a->n; i++)
    OK(tl_add(r, c->items, a->v[i]));
  *out = (tv){.type = TV_CYCLER, .c = c};
  return true;
}

static bool call_joiner(tmpl_rt *r, const targs *a, tv *out)
{
  tv slots[TMPL_MAX_PARAMS], separator;
  OK(targs_bind(r, "joiner", "sep?", a, slots));
  tcycler *c = rt_zalloc(r, sizeof *c);
  OK(c);
  if (!tv_given(slots[0]))
    OK(ts_cstr(r, ", ", &separator));
  else if (slots[0].type == TV_STR)
    separator = slots[0];
  else
    return rt_fail(r, "joiner() with a separator that is no string is not supported");
  c->separator = separator.s;
  *out = (tv){.type = TV_JOINER, .c = c};
  return true;
}

static bool call_raise(tmpl_rt *r, const targs *a)
{
  tv slots[TMPL_MAX_PARAMS], text;
  OK(targs_bind(r, "raise_exception", "message", a, slots));
  OK(tv_to_str(r, slots[0], &text));
  tbuf line = {.r = r}; /* an error is one line */
  for (size_t i = 0; i < text.s->n && i < 4000; i++)
    tb_addc(&line, (unsigned char)text.s->s[i] < 0x20 ? ' ' : text.s->s[i]);
  return line.failed ? false : rt_fail(r, "%.*s", (int)line.n, line.n ? line.s : "");
}

static bool call_strftime(tmpl_rt *r, const targs *a, tv *out)
{
  tv slots[TMPL_MAX_PARAMS];
  OK(targs_bind(r, "strftime_now", "format", a, slots));
  if (slots[0].type == TV_UNDEF)
    return tv_fail_undefined(r, slots[0]);
  if (slots[0].type != TV_STR)
    return rt_fail(r, "strftime() argument 1 must be str, not %s", tv_type_name(slots[0]));
  return tclock_format(r, slots[0].s, out);
}

bool tglobal_call(tmpl_rt *r, int which, const targs *a, tv *out)
{
  switch (which) {
  case FUNC_RANGE:
    return call_range(r, a, out);
  case FUNC_DICT: {
    tdict *d;
    OK(make_dict(r, "dict", a, &d));
    *out = tv_dict(d);
    return true;
  }
  case FUNC_NAMESPACE:
    return call_namespace(r, a, out);
  case FUNC_CYCLER:
    return call_cycler(r, a, out);
  case FUNC_JOINER:
    return call_joiner(r, a, out);
  case FUNC_RAISE:
    return call_raise(r, a);
  case FUNC_STRFTIME:
    return call_strftime(r, a, out);
  default:
    return rt_fail(r, "the global function 'lipsum' (random text) is not supported");
  }
}
