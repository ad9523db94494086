/* tmpl_methods_more.c - the methods of dict, list, tuple, range, int, float, cycler and of the global `dict`. An entry
 * without parameter names changes its object: the immutable sandbox refuses it. */
#include <math.h>
#include <string.h>

#include "text/tmpl_attr.h"

#define METHOD(name) static bool name(tmpl_rt *r, tv self, const tv *slots, const targs *a, tv *out)
#define UNUSED_ARGS ((void)slots, (void)a)

/* ---- dict ---- */

METHOD(dict_get)
{
  (void)a;
  tv value;
  OK(td_get(r, self.d, slots[0], &value));
  *out = tv_given(value) ? value : tv_given(slots[1]) ? slots[1] : tv_none();
  return true;
}

static tv view(tv self, int kind)
{
  return (tv){.type = TV_VIEW, .kind = (uint8_t)kind, .d = self.d};
}

METHOD(dict_keys)
{
  (void)r;
  UNUSED_ARGS;
  *out = view(self, VIEW_KEYS);
  return true;
}

METHOD(dict_values)
{
  (void)r;
  UNUSED_ARGS;
  *out = view(self, VIEW_VALUES);
  return true;
}

METHOD(dict_items)
{
  (void)r;
  UNUSED_ARGS;
  *out = view(self, VIEW_ITEMS);
  return true;
}

METHOD(dict_copy)
{
  UNUSED_ARGS;
  tdict *d;
  OK(td_copy(r, self.d, &d));
  *out = tv_dict(d);
  return true;
}

METHOD(dict_fromkeys)
{
  (void)self;
  (void)a;
  titer *it;
  tdict *d;
  OK(ti_open(r, slots[0], &it) && td_new(r, &d));
  for (;;) {
    tv key;
    bool done;
    OK(ti_next(r, it, &key, &done));
    if (done)
      break;
    OK(td_set(r, d, key, tv_given(slots[1]) ? slots[1] : tv_none()));
  }
  *out = tv_dict(d);
  return true;
}

const tmethod_entry tmethods_dict[] = {
    {"get", dict_get, "!key default?"},
    {"items", dict_items, ""},
    {"keys", dict_keys, ""},
    {"values", dict_values, ""},
    {"copy", dict_copy, ""},
    {"fromkeys", dict_fromkeys, "!iterable value?"},
    {"clear", NULL, NULL},
    {"pop", NULL, NULL},
    {"popitem", NULL, NULL},
    {"setdefault", NULL, NULL},
    {"update", NULL, NULL},
    {0},
};

const tmethod_entry tmethods_dict_type[] = {{"fromkeys", dict_fromkeys, "iterable value?"}, {0}};

/* ---- list, tuple, range ---- */

METHOD(sequence_count)
{
  (void)a;
  titer *it;
  int64_t count = 0;
  OK(ti_open(r, self, &it));
  for (;;) {
    tv item;
    bool done, same;
    OK(ti_next(r, it, &item, &done));
    if (done)
      break;
    OK(tv_equal(r, item, slots[0], &same));
    count += same;
  }
  *out = tv_int(count);
  return true;
}

static bool clamp(tmpl_rt *r, tv v, int64_t n, int64_t otherwise, int64_t *out)
{
  *out = otherwise;
  if (!tv_given(v))
    return true;
  OK(tn_index(r, v, "index()", out));
  if (*out < 0)
    *out = *out + n < 0 ? 0 : *out + n;
  return true;
}

METHOD(sequence_index)
{
  (void)a;
  titer *it;
  int64_t n, start, stop;
  OK(tv_length(r, self, &n) && clamp(r, slots[1], n, 0, &start) && clamp(r, slots[2], n, n, &stop));
  OK(ti_open(r, self, &it));
  for (int64_t i = 0; i < n && i < stop; i++) {
    tv item;
    bool done, same;
    OK(ti_next(r, it, &item, &done));
    if (i < start)
      continue;
    OK(tv_equal(r, item, slots[0], &same));
    if (same) {
      *out = tv_int(i);
      return true;
    }
  }
  return rt_fail(r, "value is not in the %s", tv_type_name(self));
}

METHOD(list_copy)
{
  UNUSED_ARGS;
  tlist *l;
  OK(ti_list(r, self, &l));
  *out = tv_seq(TV_LIST, l);
  return true;
}

const tmethod_entry tmethods_list[] = {
    {"index", sequence_index, "!value start? stop?"},
    {"count", sequence_count, "!value"},
    {"copy", list_copy, ""},
    {"append", NULL, NULL},
    {"clear", NULL, NULL},
    {"extend", NULL, NULL},
    {"insert", NULL, NULL},
    {"pop", NULL, NULL},
    {"remove", NULL, NULL},
    {"reverse", NULL, NULL},
    {"sort", NULL, NULL},
    {0},
};

const tmethod_entry tmethods_tuple[] = {
    {"index", sequence_index, "!value start? stop?"},
    {"count", sequence_count, "!value"},
    {0},
};

const tmethod_entry tmethods_range[] = {
    {"index", sequence_index, "!value"},
    {"count", sequence_count, "!value"},
    {0},
};

/* ---- numbers ---- */

METHOD(int_bit_length)
{
  UNUSED_ARGS;
  if (self.type == TV_BIG)
    return rt_fail(r, "bit_length() beyond 64 bits is not supported");
  int64_t i = self.type == TV_BOOL ? self.b : self.i;
  uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
  *out = tv_int(u ? 64 - __builtin_clzll(u) : 0);
  return true;
}

METHOD(int_bit_count)
{
  UNUSED_ARGS;
  if (self.type == TV_BIG)
    return rt_fail(r, "bit_count() beyond 64 bits is not supported");
  int64_t i = self.type == TV_BOOL ? self.b : self.i;
  *out = tv_int(__builtin_popcountll(i < 0 ? 0 - (uint64_t)i : (uint64_t)i));
  return true;
}

METHOD(number_conjugate)
{
  UNUSED_ARGS;
  return tv_positive(r, self, out);
}

METHOD(float_is_integer)
{
  (void)r;
  UNUSED_ARGS;
  *out = tv_bool(isfinite(self.f) && floor(self.f) == self.f);
  return true;
}

const tmethod_entry tmethods_int[] = {
    {"bit_length", int_bit_length, ""},
    {"bit_count", int_bit_count, ""},
    {"conjugate", number_conjugate, ""},
    {"as_integer_ratio", NULL, "*"},
    {"to_bytes", NULL, "*"},
    {"from_bytes", NULL, "*"},
    {0},
};

const tmethod_entry tmethods_float[] = {
    {"is_integer", float_is_integer, ""},
    {"conjugate", number_conjugate, ""},
    {"as_integer_ratio", NULL, "*"},
    {"hex", NULL, "*"},
    {"fromhex", NULL, "*"},
    {0},
};

/* ---- cycler ---- */

METHOD(cycler_next)
{
  (void)r;
  UNUSED_ARGS;
  tcycler *c = self.c;
  *out = c->items->v[c->pos];
  c->pos = (c->pos + 1) % c->items->n;
  return true;
}

METHOD(cycler_reset)
{
  (void)r;
  UNUSED_ARGS;
  self.c->pos = 0;
  *out = tv_none();
  return true;
}

const tmethod_entry tmethods_cycler[] = {{"next", cycler_next, ""}, {"reset", cycler_reset, ""}, {0}};
