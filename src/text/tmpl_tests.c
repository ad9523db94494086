/* tmpl_tests.c - the tests behind `is`, `select` and `reject`. */
#include "text/tmpl_attr.h"
#include "text/tmpl_case.h"
#include "text/tmpl_filters.h"

#define TEST(name) static bool name(tmpl_rt *r, tv value, const tv *slots, bool *out)
#define NO_ARGS ((void)r, (void)slots)

static bool modulo_is(tmpl_rt *r, tv value, tv by, int64_t rest, bool *out)
{
  tv left;
  return tv_binary(r, OP_MOD, value, by, &left) && tv_equal(r, left, tv_int(rest), out);
}

TEST(t_odd)
{
  (void)slots;
  return modulo_is(r, value, tv_int(2), 1, out);
}

TEST(t_even)
{
  (void)slots;
  return modulo_is(r, value, tv_int(2), 0, out);
}

TEST(t_divisibleby)
{
  return modulo_is(r, value, slots[0], 0, out);
}

TEST(t_defined)
{
  NO_ARGS;
  *out = value.type != TV_UNDEF;
  return true;
}

TEST(t_undefined)
{
  NO_ARGS;
  *out = value.type == TV_UNDEF;
  return true;
}

TEST(t_none)
{
  NO_ARGS;
  *out = value.type == TV_NONE;
  return true;
}

TEST(t_boolean)
{
  NO_ARGS;
  *out = value.type == TV_BOOL;
  return true;
}

TEST(t_true)
{
  NO_ARGS;
  *out = value.type == TV_BOOL && value.b;
  return true;
}

TEST(t_false)
{
  NO_ARGS;
  *out = value.type == TV_BOOL && !value.b;
  return true;
}

TEST(t_integer)
{
  NO_ARGS;
  *out = value.type == TV_INT || value.type == TV_BIG;
  return true;
}

TEST(t_float)
{
  NO_ARGS;
  *out = value.type == TV_FLOAT;
  return true;
}

TEST(t_number)
{
  NO_ARGS;
  *out = tv_is_number(value);
  return true;
}

TEST(t_string)
{
  NO_ARGS;
  *out = value.type == TV_STR;
  return true;
}

TEST(t_mapping)
{
  NO_ARGS;
  *out = value.type == TV_DICT;
  return true;
}

/* Whatever has a length and subscripts: undefined has both. */
TEST(t_sequence)
{
  NO_ARGS;
  *out = tv_sized(value) && value.type != TV_VIEW && value.type != TV_LOOP;
  return true;
}

TEST(t_iterable)
{
  NO_ARGS;
  *out = ti_iterable(value);
  return true;
}

TEST(t_callable)
{
  NO_ARGS;
  *out = tattr_callable(value);
  return true;
}

TEST(t_escaped)
{
  NO_ARGS;
  *out = value.type == TV_STR && value.s->markup;
  return true;
}

TEST(t_lower)
{
  (void)slots;
  tv text;
  OK(tv_to_str(r, value, &text) && rt_walk(r, text.s->n));
  *out = tc_is_lower(text.s);
  return true;
}

TEST(t_upper)
{
  (void)slots;
  tv text;
  OK(tv_to_str(r, value, &text) && rt_walk(r, text.s->n));
  *out = tc_is_upper(text.s);
  return true;
}

TEST(t_filter)
{
  (void)r;
  (void)slots;
  *out = value.type == TV_STR && tfilter_find(value.s);
  return true;
}

TEST(t_test)
{
  (void)r;
  (void)slots;
  *out = value.type == TV_STR && ttest_find(value.s);
  return true;
}

/* Identity. Equal strings and numbers count as the same object, which Python leaves open. */
TEST(t_sameas)
{
  tv other = slots[0];
  *out = false;
  if (value.type != other.type)
    return true;
  if (value.type == TV_LIST || value.type == TV_TUPLE || value.type == TV_DICT || value.type == TV_NS ||
      value.type == TV_UNDEF) {
    *out = value.d == other.d;
    return true;
  }
  return tv_equal(r, value, other, out);
}

TEST(t_in)
{
  return tv_in(r, value, slots[0], out);
}

TEST(t_eq)
{
  return tv_equal(r, value, slots[0], out);
}

TEST(t_ne)
{
  OK(tv_equal(r, value, slots[0], out));
  *out = !*out;
  return true;
}

TEST(t_gt)
{
  return tv_less(r, slots[0], value, out);
}

TEST(t_ge)
{
  return tv_less_equal(r, slots[0], value, out);
}

TEST(t_lt)
{
  return tv_less(r, value, slots[0], out);
}

TEST(t_le)
{
  return tv_less_equal(r, value, slots[0], out);
}

static const ttest tests[] = {
    {"defined", t_defined, ""},    {"undefined", t_undefined, ""},
    {"none", t_none, ""},          {"string", t_string, ""},
    {"mapping", t_mapping, ""},    {"iterable", t_iterable, ""},
    {"sequence", t_sequence, ""},  {"number", t_number, ""},
    {"boolean", t_boolean, ""},    {"true", t_true, ""},
    {"false", t_false, ""},        {"integer", t_integer, ""},
    {"float", t_float, ""},        {"callable", t_callable, ""},
    {"escaped", t_escaped, ""},    {"lower", t_lower, ""},
    {"upper", t_upper, ""},        {"odd", t_odd, ""},
    {"even", t_even, ""},          {"divisibleby", t_divisibleby, "num"},
    {"sameas", t_sameas, "other"}, {"filter", t_filter, ""},
    {"test", t_test, ""},          {"in", t_in, "seq"},
    {"==", t_eq, "!other"},        {"eq", t_eq, "!other"},
    {"equalto", t_eq, "!other"},   {"!=", t_ne, "!other"},
    {"ne", t_ne, "!other"},        {">", t_gt, "!other"},
    {"gt", t_gt, "!other"},        {"greaterthan", t_gt, "!other"},
    {">=", t_ge, "!other"},        {"ge", t_ge, "!other"},
    {"<", t_lt, "!other"},         {"lt", t_lt, "!other"},
    {"lessthan", t_lt, "!other"},  {"<=", t_le, "!other"},
    {"le", t_le, "!other"},
};

const ttest *ttest_find(const tstr *name)
{
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
    if (ts_is(name, tests[i].name))
      return &tests[i];
  return NULL;
}

bool ttest_call(tmpl_rt *r, const ttest *t, tv value, const targs *a, bool *out)
{
  tv slots[TMPL_MAX_PARAMS];
  OK(targs_bind(r, t->name, t->names, a, slots) && rt_step(r, 1));
  return t->run(r, value, slots, out);
}
