/* config_read.c - takes values out of JSON objects, strictly: what is there must be what was asked for.
 *
 * One function for each kind decides what counts as that kind and words the complaint; tables, single members and lists
 * all go through it, so that a wrong value reads the same everywhere: "config.json: hidden_size: must be a whole number
 * from 1 to 2147483647, is the string "64"".
 */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/config.h"
#include "format/json_util.h"

enum { DESCRIPTION = 160, PLACE = 300 };

static tern_status wrong(const char *where, const json_t *value, const char *wanted, tern_error *err)
{
  char found[DESCRIPTION];
  return err_set(err, TERN_E_FORMAT, "%s: must be %s, is %s", where, wanted,
                 jsonu_describe(value, found, sizeof found));
}

/* ---- one value --------------------------------------------------------------------------------------------------- */

tern_status cfg_value_int(const json_t *value, const char *where, int64_t min, int64_t max, int64_t *out,
                          tern_error *err)
{
  double real = json_is_real(value) ? jsonu_real(value) : 0;
  bool whole = json_is_integer(value) || (json_is_real(value) && real == rint(real) && fabs(real) < 0x1p53);
  int64_t x = json_is_integer(value) ? (int64_t)json_integer_value(value) : whole ? (int64_t)real : 0;
  if (!whole || x < min || x > max) {
    char wanted[100];
    snprintf(wanted, sizeof wanted, "a whole number from %" PRId64 " to %" PRId64, min, max);
    return wrong(where, value, wanted, err);
  }
  *out = x;
  return TERN_OK;
}

tern_status cfg_value_float(const json_t *value, const char *where, double *out, tern_error *err)
{
  double x = json_is_number(value) ? jsonu_real(value) : 0;
  if (!json_is_number(value) || isnan(x))
    return wrong(where, value, "a number", err);
  *out = x;
  return TERN_OK;
}

tern_status cfg_value_bool(const json_t *value, const char *where, bool *out, tern_error *err)
{
  bool number = json_is_integer(value) && (json_integer_value(value) == 0 || json_integer_value(value) == 1);
  if (!json_is_boolean(value) && !number)
    return wrong(where, value, "true or false", err);
  *out = json_is_true(value) || (number && json_integer_value(value) == 1);
  return TERN_OK;
}

static tern_status value_string(const json_t *value, const char *where, const char **out, tern_error *err)
{
  if (!json_is_string(value))
    return wrong(where, value, "a string", err);
  *out = json_string_value(value);
  return TERN_OK;
}

const json_t *cfg_obj_get(const json_t *object, const char *key)
{
  const json_t *value = object ? json_object_get(object, key) : NULL;
  return json_is_null(value) ? NULL : value;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The first alias that is there, its name copied to key[PLACE]; NULL: none. */
static const json_t *first_present(const json_t *object, const char *keys, char *key)
{
  while (*keys) {
    size_t n = strcspn(keys, "|");
    snprintf(key, PLACE, "%.*s", (int)n, keys);
    const json_t *value = cfg_obj_get(object, key);
    if (value)
      return value;
    keys += n + (keys[n] == '|');
  }
  return NULL;
}

static void store_fallback(const cfg_field *f, void *at)
{
  switch (f->kind) {
  case CFG_INT:
    *(int *)at = (int)f->number;
    break;
  case CFG_FLOAT:
    *(double *)at = f->number;
    break;
  case CFG_BOOL:
    *(bool *)at = f->number != 0;
    break;
  case CFG_STRING:
    *(const char **)at = f->text;
    break;
  }
}

static tern_status store_int(const cfg_field *f, const json_t *value, const char *where, int *at, tern_error *err)
{
  bool ranged = f->min != 0 || f->max != 0;
  int64_t x, min = ranged ? (int64_t)f->min : 0, max = ranged && f->max < INT_MAX ? (int64_t)f->max : INT_MAX;
  TRY(cfg_value_int(value, where, min, max, &x, err));
  *at = (int)x;
  return TERN_OK;
}

static tern_status store_float(const cfg_field *f, const json_t *value, const char *where, double *at, tern_error *err)
{
  double x = 0;
  TRY(cfg_value_float(value, where, &x, err));
  if ((f->min != 0 || f->max != 0) && (x < f->min || x > f->max)) {
    char wanted[100];
    snprintf(wanted, sizeof wanted, "a number from %g to %g", f->min, f->max);
    return wrong(where, value, wanted, err);
  }
  *at = x;
  return TERN_OK;
}

static tern_status read_field(const json_t *object, const char *where, const cfg_field *f, void *out, tern_error *err)
{
  void *at = (char *)out + f->offset;
  char key[PLACE], place[2 * PLACE];
  const json_t *value = first_present(object, f->keys, key);
  if (!value) {
    if (f->required)
      return err_set(err, TERN_E_FORMAT, "%s: %.*s is missing", where, (int)strcspn(f->keys, "|"), f->keys);
    store_fallback(f, at);
    return TERN_OK;
  }
  snprintf(place, sizeof place, "%.*s: %s", PLACE - 3, where, key);
  switch (f->kind) {
  case CFG_INT:
    return store_int(f, value, place, at, err);
  case CFG_FLOAT:
    return store_float(f, value, place, at, err);
  case CFG_BOOL:
    return cfg_value_bool(value, place, at, err);
  case CFG_STRING:
    return value_string(value, place, at, err);
  }
  return err_set(err, TERN_E_INTERNAL, "%s: a field of no kind", place);
}

tern_status cfg_read_object(const json_t *object, const char *where, const cfg_field *fields, size_t n, void *out,
                            tern_error *err)
{
  for (size_t i = 0; i < n; i++)
    TRY(read_field(object, where, &fields[i], out, err));
  return TERN_OK;
}

/* ---- single members: tables of one row --------------------------------------------------------------------------- */

tern_status cfg_obj_int(const json_t *object, const char *where, const char *key, bool required, int fallback, int *out,
                        tern_error *err)
{
  cfg_field f = {
      .keys = key, .kind = CFG_INT, .required = required, .number = fallback, .min = INT_MIN, .max = INT_MAX};
  return read_field(object, where, &f, out, err);
}

tern_status cfg_obj_float(const json_t *object, const char *where, const char *key, bool required, double fallback,
                          double *out, tern_error *err)
{
  cfg_field f = {.keys = key, .kind = CFG_FLOAT, .required = required, .number = fallback};
  return read_field(object, where, &f, out, err);
}

tern_status cfg_obj_bool(const json_t *object, const char *where, const char *key, bool required, bool fallback,
                         bool *out, tern_error *err)
{
  cfg_field f = {.keys = key, .kind = CFG_BOOL, .required = required, .number = fallback};
  return read_field(object, where, &f, out, err);
}

tern_status cfg_obj_string(const json_t *object, const char *where, const char *key, bool required,
                           const char *fallback, const char **out, tern_error *err)
{
  cfg_field f = {.keys = key, .kind = CFG_STRING, .required = required, .text = fallback};
  return read_field(object, where, &f, out, err);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static tern_status item_int(const json_t *value, const char *where, void *at, tern_error *err)
{
  int64_t x = 0;
  TRY(cfg_value_int(value, where, INT_MIN, INT_MAX, &x, err));
  *(int *)at = (int)x;
  return TERN_OK;
}

static tern_status item_float(const json_t *value, const char *where, void *at, tern_error *err)
{
  return cfg_value_float(value, where, at, err);
}

static tern_status item_string(const json_t *value, const char *where, void *at, tern_error *err)
{
  return value_string(value, where, at, err);
}

/* One list of items of `size` bytes, each read by `item`. */
static tern_status read_list(const json_t *object, const char *where, const char *key, bool required, size_t size,
                             tern_status (*item)(const json_t *, const char *, void *, tern_error *), void **out,
                             size_t *n, tern_error *err)
{
  const json_t *list = cfg_obj_get(object, key);
  char place[2 * PLACE], each[2 * PLACE + 32];
  snprintf(place, sizeof place, "%.*s: %s", PLACE, where, key);
  if (!list) {
    *out = NULL;
    *n = 0;
    return required ? err_set(err, TERN_E_FORMAT, "%s: %s is missing", where, key) : TERN_OK;
  }
  if (!json_is_array(list))
    return wrong(place, list, "a list", err);
  size_t count = json_array_size(list);
  char *items = mem_array(count, size);
  if (!items)
    return err_nomem(err, place);
  for (size_t i = 0; i < count; i++) {
    snprintf(each, sizeof each, "%s[%zu]", place, i);
    tern_status status = item(json_array_get(list, i), each, items + i * size, err);
    if (status != TERN_OK) {
      mem_free(items);
      return status;
    }
  }
  *out = items;
  *n = count;
  return TERN_OK;
}

tern_status cfg_obj_ints(const json_t *object, const char *where, const char *key, bool required, int **out, size_t *n,
                         tern_error *err)
{
  void *items;
  TRY(read_list(object, where, key, required, sizeof **out, item_int, &items, n, err));
  *out = items;
  return TERN_OK;
}

tern_status cfg_obj_floats(const json_t *object, const char *where, const char *key, bool required, double **out,
                           size_t *n, tern_error *err)
{
  void *items;
  TRY(read_list(object, where, key, required, sizeof **out, item_float, &items, n, err));
  *out = items;
  return TERN_OK;
}

tern_status cfg_obj_strings(const json_t *object, const char *where, const char *key, bool required, const char ***out,
                            size_t *n, tern_error *err)
{
  void *items;
  TRY(read_list(object, where, key, required, sizeof **out, item_string, &items, n, err));
  *out = items;
  return TERN_OK;
}
