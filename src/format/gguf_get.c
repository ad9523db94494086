/* gguf_get.c - typed access to GGUF metadata. Values lie unaligned in the mapping and were bounds-checked by gguf_open;
 * here they are only read and converted, and a value of another kind than the caller wants is an error. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "format/gguf.h"

static const char *const type_names[GGUF_VALUE_TYPES] = {
    [GGUF_U8] = "uint8",      [GGUF_I8] = "int8",     [GGUF_U16] = "uint16",  [GGUF_I16] = "int16",
    [GGUF_U32] = "uint32",    [GGUF_I32] = "int32",   [GGUF_F32] = "float32", [GGUF_BOOL] = "boolean",
    [GGUF_STRING] = "string", [GGUF_ARRAY] = "array", [GGUF_U64] = "uint64",  [GGUF_I64] = "int64",
    [GGUF_F64] = "float64",
};

const gguf_value *gguf_find(const gguf *g, const char *key)
{
  uint32_t i;
  return strmap_get(&g->value_index, key, strlen(key), &i) ? &g->values[i] : NULL;
}

const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name)
{
  uint32_t i;
  return strmap_get(&g->tensor_index, name, strlen(name), &i) ? &g->tensors[i] : NULL;
}

static tern_status wrong_type(const gguf *g, const gguf_value *v, const char *wanted, tern_error *err)
{
  return err_set(err, TERN_E_FORMAT, "%s: key %.*s: %s%s where %s is expected", g->path, GGUF_STR(v->key),
                 v->type == GGUF_ARRAY ? "an array of " : "", type_names[v->element], wanted);
}

/* The i-th element of an integer type (or a boolean) as sign and magnitude; false for other types. */
static bool read_int(const gguf_value *v, size_t i, bool *negative, uint64_t *magnitude)
{
  int64_t s = 0;
  uint64_t u = 0;
  bool is_signed = false;
  const uint8_t *p = v->data;
  switch (v->element) {
  case GGUF_BOOL:
  case GGUF_U8:
    u = p[i];
    break;
  case GGUF_I8:
    s = (p[i] ^ 0x80) - 0x80, is_signed = true;
    break;
  case GGUF_U16: {
    uint16_t x;
    memcpy(&x, p + 2 * i, 2);
    u = x;
    break;
  }
  case GGUF_I16: {
    int16_t x;
    memcpy(&x, p + 2 * i, 2);
    s = x, is_signed = true;
    break;
  }
  case GGUF_U32: {
    uint32_t x;
    memcpy(&x, p + 4 * i, 4);
    u = x;
    break;
  }
  case GGUF_I32: {
    int32_t x;
    memcpy(&x, p + 4 * i, 4);
    s = x, is_signed = true;
    break;
  }
  case GGUF_U64:
    memcpy(&u, p + 8 * i, 8);
    break;
  case GGUF_I64:
    memcpy(&s, p + 8 * i, 8);
    is_signed = true;
    break;
  default:
    return false;
  }
  *negative = is_signed && s < 0;
  *magnitude = !is_signed ? u : s < 0 ? 0 - (uint64_t)s : (uint64_t)s;
  return true;
}

tern_status gguf_get_uint(const gguf *g, const char *key, uint32_t *out, bool *present, tern_error *err)
{
  const gguf_value *v = gguf_find(g, key);
  *present = v != NULL;
  if (!v)
    return TERN_OK;
  bool negative;
  uint64_t magnitude;
  if (v->type == GGUF_ARRAY || v->type == GGUF_BOOL || !read_int(v, 0, &negative, &magnitude))
    return wrong_type(g, v, "an integer", err);
  if (negative || magnitude > UINT32_MAX)
    return err_set(err, TERN_E_FORMAT, "%s: key %s: %s%" PRIu64 " is out of range", g->path, key, negative ? "-" : "",
                   magnitude);
  *out = (uint32_t)magnitude;
  return TERN_OK;
}

tern_status gguf_get_float(const gguf *g, const char *key, double *out, bool *present, tern_error *err)
{
  const gguf_value *v = gguf_find(g, key);
  *present = v != NULL;
  if (!v)
    return TERN_OK;
  float f = 0;
  double d = 0;
  if (v->type == GGUF_F32) {
    memcpy(&f, v->data, 4);
    d = (double)f;
  } else if (v->type == GGUF_F64) {
    memcpy(&d, v->data, 8);
  } else {
    return wrong_type(g, v, "a float", err);
  }
  if (!isfinite(d))
    return err_set(err, TERN_E_FORMAT, "%s: key %s: the number is not finite", g->path, key);
  *out = d;
  return TERN_OK;
}

tern_status gguf_get_bool(const gguf *g, const char *key, bool *out, bool *present, tern_error *err)
{
  const gguf_value *v = gguf_find(g, key);
  *present = v != NULL;
  if (!v)
    return TERN_OK;
  if (v->type != GGUF_BOOL)
    return wrong_type(g, v, "a boolean", err);
  *out = *v->data != 0;
  return TERN_OK;
}

/* A string at p, checked when the file was opened; *p moves behind it. */
static gguf_string next_string(const uint8_t **p)
{
  uint64_t size;
  memcpy(&size, *p, 8);
  gguf_string s = {.data = (const char *)*p + 8, .size = size};
  *p += 8 + size;
  return s;
}

tern_status gguf_get_string(const gguf *g, const char *key, gguf_string *out, bool *present, tern_error *err)
{
  const gguf_value *v = gguf_find(g, key);
  *present = v != NULL;
  if (!v)
    return TERN_OK;
  if (v->type != GGUF_STRING)
    return wrong_type(g, v, "a string", err);
  const uint8_t *p = v->data;
  *out = next_string(&p);
  return TERN_OK;
}

/* Finds an array and allocates its copy; *v is NULL where it is absent. */
static tern_status array_copy(const gguf *g, const char *key, size_t element, const gguf_value **v, void **copy,
                              tern_error *err)
{
  *v = gguf_find(g, key);
  if (!*v)
    return TERN_OK;
  if ((*v)->type != GGUF_ARRAY)
    return wrong_type(g, *v, "an array", err);
  *copy = mem_array((*v)->count, element);
  return *copy ? TERN_OK : err_nomem(err, key);
}

tern_status gguf_get_strings(const gguf *g, const char *key, gguf_string **out, size_t *count, tern_error *err)
{
  const gguf_value *v;
  void *copy = NULL;
  TRY(array_copy(g, key, sizeof(gguf_string), &v, &copy, err));
  if (!v)
    return TERN_OK;
  gguf_string *strings = copy;
  if (v->element != GGUF_STRING) {
    mem_free(copy);
    return wrong_type(g, v, "an array of strings", err);
  }
  const uint8_t *p = v->data;
  for (size_t i = 0; i < v->count; i++)
    strings[i] = next_string(&p);
  *out = strings;
  *count = v->count;
  return TERN_OK;
}

tern_status gguf_get_ints(const gguf *g, const char *key, int32_t **out, size_t *count, tern_error *err)
{
  const gguf_value *v;
  void *copy = NULL;
  TRY(array_copy(g, key, sizeof(int32_t), &v, &copy, err));
  if (!v)
    return TERN_OK;
  int32_t *ints = copy;
  for (size_t i = 0; i < v->count; i++) {
    bool negative;
    uint64_t magnitude;
    if (!read_int(v, i, &negative, &magnitude)) {
      mem_free(copy);
      return wrong_type(g, v, "an array of integers", err);
    }
    if (magnitude > INT32_MAX) {
      mem_free(copy);
      return err_set(err, TERN_E_FORMAT, "%s: key %s: element %zu is out of range", g->path, key, i);
    }
    ints[i] = negative ? -(int32_t)magnitude : (int32_t)magnitude;
  }
  *out = ints;
  *count = v->count;
  return TERN_OK;
}

tern_status gguf_get_floats(const gguf *g, const char *key, float **out, size_t *count, tern_error *err)
{
  const gguf_value *v;
  void *copy = NULL;
  TRY(array_copy(g, key, sizeof(float), &v, &copy, err));
  if (!v)
    return TERN_OK;
  if (v->element != GGUF_F32) {
    mem_free(copy);
    return wrong_type(g, v, "an array of float32", err);
  }
  if (v->count)
    memcpy(copy, v->data, v->count * sizeof(float));
  *out = copy;
  *count = v->count;
  return TERN_OK;
}
