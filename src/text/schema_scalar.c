/* schema_scalar.c - see schema.h: strings and numbers, and the keywords about them. */
#include <math.h>
#include <string.h>

#include "text/schema_impl.h"

bool schema_is_whole(double x)
{
  return fabs(x) < 1e300 && x == floor(x);
}

tern_status schema_read_count(const schema_item *at, const char *key, json_int_t fallback, json_int_t *out,
                              tern_error *err)
{
  const json_t *value = json_object_get(at->schema, key);
  *out = fallback;
  if (!value)
    return TERN_OK;
  double x = json_number_value(value);
  if (!json_is_number(value) || !schema_is_whole(x) || x < 0 || x > 1e15)
    return schema_wrong(at, key, "must be a whole number from 0 to 10^15", err);
  *out = (json_int_t)x;
  return TERN_OK;
}

/* pattern, or a format, which is one. */
static tern_status emit_pattern(schema_compiler *c, const schema_item *at, const char *key, tern_error *err)
{
  static const char *const others[] = {"pattern", "format", "minLength", "maxLength"};
  const json_t *value = json_object_get(at->schema, key);
  const char *text = json_string_value(value);
  size_t n = json_string_length(value);
  if (!text)
    return schema_wrong(at, key, "must be a string", err);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(others[i], key) != 0 && json_object_get(at->schema, others[i]))
      return schema_wrong(at, key, "beside another keyword about the string: not enforced here", err);
  if (!strcmp(key, "format")) {
    text = schema_format_pattern(text);
    n = text ? strlen(text) : 0;
    if (!text)
      return schema_wrong(at, key, "date, time, date-time, uuid and ipv4 are enforced here, others not", err);
  }
  const char *why = schema_emit_pattern(c, text, n);
  return why ? schema_wrong(at, key, why, err) : TERN_OK;
}

tern_status schema_string(schema_compiler *c, const schema_item *at, tern_error *err)
{
  if (json_object_get(at->schema, "pattern"))
    return emit_pattern(c, at, "pattern", err);
  if (json_object_get(at->schema, "format"))
    return emit_pattern(c, at, "format", err);
  json_int_t least, most;
  TRY(schema_read_count(at, "minLength", 0, &least, err));
  TRY(schema_read_count(at, "maxLength", -1, &most, err));
  schema_emit_string(c, least, most);
  return TERN_OK;
}

/* A bound of whole numbers, within what is written: rounded inwards. `up`: it is a lower bound. */
static tern_status read_bound(const schema_item *at, const char *key, bool up, bool strict, int64_t *bound,
                              tern_error *err)
{
  const json_t *value = json_object_get(at->schema, key);
  int64_t x;
  if (!value)
    return TERN_OK;
  if (!json_is_number(value))
    return schema_wrong(at, key, "must be a number", err);
  if (json_is_integer(value)) {
    x = json_integer_value(value);
  } else {
    double real = json_real_value(value);
    double inwards = up ? ceil(real) : floor(real);
    strict = strict && inwards == real;
    inwards = inwards < -2e18 ? -2e18 : inwards > 2e18 ? 2e18 : inwards;
    x = (int64_t)inwards;
  }
  x = x < -2 * (SCHEMA_MOST_INTEGER + 1) ? -2 * (SCHEMA_MOST_INTEGER + 1) : x;
  x = x > 2 * (SCHEMA_MOST_INTEGER + 1) ? 2 * (SCHEMA_MOST_INTEGER + 1) : x;
  x += strict ? (up ? 1 : -1) : 0;
  if (up ? x > SCHEMA_MOST_INTEGER : x < -SCHEMA_MOST_INTEGER)
    return schema_wrong(at, key, "whole numbers of more than 18 digits are not written here", err);
  if (up ? x > *bound : x < *bound)
    *bound = x;
  return TERN_OK;
}

tern_status schema_integer(schema_compiler *c, const schema_item *at, bool bounded, tern_error *err)
{
  int64_t lo = -SCHEMA_MOST_INTEGER, hi = SCHEMA_MOST_INTEGER;
  TRY(read_bound(at, "minimum", true, false, &lo, err));
  TRY(read_bound(at, "exclusiveMinimum", true, true, &lo, err));
  TRY(read_bound(at, "maximum", false, false, &hi, err));
  TRY(read_bound(at, "exclusiveMaximum", false, true, &hi, err));
  if (bounded)
    schema_emit_integer(c, lo, hi);
  else
    schema_leave(c, c->rules[RULE_INTEGER]);
  return TERN_OK;
}

tern_status schema_number(schema_compiler *c, const schema_item *at, tern_error *err)
{
  static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
  for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
    if (json_object_get(at->schema, bounds[i]))
      return schema_wrong(at, bounds[i], "enforced of integers alone, not of type number", err);
  schema_leave(c, c->rules[RULE_NUMBER]);
  return TERN_OK;
}
