/* gguf.c - the header parser: one cursor over the mapping, every read checked against the end of the file.
 *
 * See gguf.h for what is refused. Typed access to the metadata is in gguf_get.c. */
#include "format/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { MAX_NESTING = 4, MAX_NAME = 65535 };

/* Bytes of one scalar; 0: strings and arrays. */
static const uint8_t scalar_bytes[GGUF_VALUE_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2,  [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_U64] = 8, [GGUF_BOOL] = 1, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* ggml-common.h, the block structs; numbers as in ggml.h, enum ggml_type. */
static const ggml_type_info type_table[GGML_TYPES] = {
    [GGML_F32] = {"F32", 1, 4},
    [GGML_F16] = {"F16", 1, 2},
    [GGML_Q4_0] = {"Q4_0", 32, 18},
    [GGML_Q4_1] = {"Q4_1", 32, 20},
    [GGML_Q5_0] = {"Q5_0", 32, 22},
    [GGML_Q5_1] = {"Q5_1", 32, 24},
    [GGML_Q8_0] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 32, 36},
    [GGML_Q2_K] = {"Q2_K", 256, 84},
    [GGML_Q3_K] = {"Q3_K", 256, 110},
    [GGML_Q4_K] = {"Q4_K", 256, 144},
    [GGML_Q5_K] = {"Q5_K", 256, 176},
    [GGML_Q6_K] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 256, 292},
    [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98},
    [19] = {"IQ1_S", 256, 50},
    [GGML_IQ4_NL] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},
    [GGML_IQ4_XS] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1},
    [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},
    [27] = {"I64", 1, 8},
    [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},
    [GGML_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},
    [39] = {"MXFP4", 32, 17},
};

const ggml_type_info *ggml_type_get(uint32_t type)
{
  return type < GGML_TYPES && type_table[type].name ? &type_table[type] : NULL;
}

typedef struct cursor {
  const char *path;
  const uint8_t *at, *end;
  tern_error *err;
} cursor;

static size_t left(const cursor *c)
{
  return (size_t)(c->end - c->at);
}

static tern_status truncated(const cursor *c, const char *where)
{
  return err_set(c->err, TERN_E_FORMAT, "%s: truncated in %s: the file is incomplete or damaged", c->path, where);
}

static tern_status take_bytes(cursor *c, void *out, size_t n, const char *where)
{
  if (n > left(c))
    return truncated(c, where);
  memcpy(out, c->at, n);
  c->at += n;
  return TERN_OK;
}

static tern_status take_u32(cursor *c, uint32_t *out, const char *where)
{
  return take_bytes(c, out, 4, where);
}

static tern_status take_u64(cursor *c, uint64_t *out, const char *where)
{
  return take_bytes(c, out, 8, where);
}

static tern_status take_string(cursor *c, gguf_string *out, const char *where)
{
  uint64_t size = 0;
  TRY(take_u64(c, &size, where));
  if (size > left(c))
    return err_set(c->err, TERN_E_FORMAT, "%s: %s: a string of %" PRIu64 " bytes, but the file ends after %zu", c->path,
                   where, size, left(c));
  const char *s = (const char *)c->at;
  if (!utf8_valid(s, size, NULL))
    return err_set(c->err, TERN_E_FORMAT, "%s: %s: a string that is not valid UTF-8", c->path, where);
  if (size && memchr(s, 0, size))
    return err_set(c->err, TERN_E_FORMAT, "%s: %s: a string with a NUL character", c->path, where);
  c->at += size;
  *out = (gguf_string){.data = s, .size = size};
  return TERN_OK;
}

/* Names are what the maps are keyed by: never empty, of bounded length. */
static tern_status take_name(cursor *c, gguf_string *out, const char *where)
{
  TRY(take_string(c, out, where));
  if (out->size == 0 || out->size > MAX_NAME)
    return err_set(c->err, TERN_E_FORMAT, "%s: %s: a name of %zu bytes", c->path, where, out->size);
  return TERN_OK;
}

static tern_status unknown_value_type(const cursor *c, const char *where, uint32_t type)
{
  return err_set(c->err, TERN_E_FORMAT, "%s: %s: unknown value type %" PRIu32, c->path, where, type);
}

static tern_status skip_array(cursor *c, const char *where, int depth, uint32_t *element, uint64_t *count);

/* Walks `count` values of one type. */
static tern_status skip_values(cursor *c, uint32_t type, uint64_t count, const char *where, int depth)
{
  if (type >= GGUF_VALUE_TYPES)
    return unknown_value_type(c, where, type);
  if (scalar_bytes[type]) {
    if (count > left(c) / scalar_bytes[type])
      return truncated(c, where);
    if (type == GGUF_BOOL)
      for (uint64_t i = 0; i < count; i++)
        if (c->at[i] > 1)
          return err_set(c->err, TERN_E_FORMAT, "%s: %s: %u is not a boolean", c->path, where, c->at[i]);
    c->at += count * scalar_bytes[type];
    return TERN_OK;
  }
  /* Every string takes 8 bytes at least and every array 12, so the loop is bounded by the file. */
  if (count > left(c) / 8)
    return truncated(c, where);
  for (uint64_t i = 0; i < count; i++) {
    gguf_string s;
    uint32_t element = 0;
    uint64_t n = 0;
    TRY(type == GGUF_STRING ? take_string(c, &s, where) : skip_array(c, where, depth + 1, &element, &n));
  }
  return TERN_OK;
}

static tern_status skip_array(cursor *c, const char *where, int depth, uint32_t *element, uint64_t *count)
{
  if (depth > MAX_NESTING)
    return err_set(c->err, TERN_E_FORMAT, "%s: %s: arrays nested deeper than %d", c->path, where, MAX_NESTING);
  TRY(take_u32(c, element, where));
  TRY(take_u64(c, count, where));
  return skip_values(c, *element, *count, where, depth);
}

static tern_status parse_value(cursor *c, size_t index, gguf_value *v)
{
  char where[256];
  snprintf(where, sizeof where, "metadata entry %zu", index);
  TRY(take_name(c, &v->key, where));
  snprintf(where, sizeof where, "key %.*s", GGUF_STR(v->key));
  uint32_t type = 0;
  TRY(take_u32(c, &type, where));
  if (type >= GGUF_VALUE_TYPES)
    return unknown_value_type(c, where, type);
  v->type = v->element = (gguf_value_type)type;
  v->count = 1;
  v->data = c->at;
  if (type != GGUF_ARRAY)
    return skip_values(c, type, 1, where, 0);
  uint32_t element = 0;
  uint64_t count = 0;
  v->data = c->at + 12;
  TRY(skip_array(c, where, 0, &element, &count));
  v->element = (gguf_value_type)element;
  v->count = count;
  return TERN_OK;
}

static tern_status put_once(cursor *c, strmap *m, gguf_string name, size_t index, const char *what)
{
  bool present = false;
  if (index > UINT32_MAX || !strmap_put(m, name.data, name.size, (uint32_t)index, &present, NULL))
    return err_nomem(c->err, c->path);
  if (present)
    return err_set(c->err, TERN_E_FORMAT, "%s: %s %.*s is given twice", c->path, what, GGUF_STR(name));
  return TERN_OK;
}

static tern_status parse_values(gguf *g, cursor *c, uint64_t count)
{
  size_t capacity = 0;
  for (uint64_t i = 0; i < count; i++) {
    gguf_value v = {0};
    TRY(parse_value(c, i, &v));
    if (!mem_grow(&g->values, &capacity, i + 1, sizeof *g->values))
      return err_nomem(c->err, c->path);
    g->values[i] = v;
    g->n_values = i + 1;
    TRY(put_once(c, &g->value_index, v.key, i, "key"));
  }
  return TERN_OK;
}

/* Bytes of a tensor whose shape is read: no dimension empty, whole blocks along the row, no overflow. */
static tern_status tensor_bytes(const cursor *c, gguf_tensor *t, const char *where)
{
  const ggml_type_info *info = &type_table[t->type];
  size_t n = 1;
  for (uint32_t i = 0; i < t->dims; i++) {
    if (t->size[i] == 0)
      return err_set(c->err, TERN_E_FORMAT, "%s: %s: dimension %" PRIu32 " is empty", c->path, where, i);
    if (__builtin_mul_overflow(n, t->size[i], &n) || n > INT64_MAX)
      return err_set(c->err, TERN_E_FORMAT, "%s: %s: the shape overflows", c->path, where);
  }
  if (t->size[0] % info->block)
    return err_set(c->err, TERN_E_FORMAT, "%s: %s: rows of %" PRIu64 " values are not whole %s blocks of %" PRIu32,
                   c->path, where, t->size[0], info->name, info->block);
  if (__builtin_mul_overflow(n / info->block, (size_t)info->bytes, &t->bytes))
    return err_set(c->err, TERN_E_FORMAT, "%s: %s: the shape overflows", c->path, where);
  return TERN_OK;
}

static tern_status parse_tensor(cursor *c, size_t index, gguf_tensor *t)
{
  char where[256];
  snprintf(where, sizeof where, "tensor %zu", index);
  TRY(take_name(c, &t->name, where));
  snprintf(where, sizeof where, "tensor %.*s", GGUF_STR(t->name));
  uint32_t type = 0;
  TRY(take_u32(c, &t->dims, where));
  if (t->dims < 1 || t->dims > 4)
    return err_set(c->err, TERN_E_FORMAT, "%s: %s: %" PRIu32 " dimensions, 1 to 4 are allowed", c->path, where,
                   t->dims);
  for (uint32_t i = 0; i < 4; i++)
    t->size[i] = 1;
  for (uint32_t i = 0; i < t->dims; i++)
    TRY(take_u64(c, &t->size[i], where));
  TRY(take_u32(c, &type, where));
  TRY(take_u64(c, &t->offset, where));
  if (!ggml_type_get(type))
    return err_set(c->err, TERN_E_UNSUPPORTED, "%s: %s: unknown tensor type %" PRIu32, c->path, where, type);
  t->type = (ggml_type)type;
  return tensor_bytes(c, t, where);
}

static tern_status parse_tensors(gguf *g, cursor *c, uint64_t count)
{
  size_t capacity = 0;
  for (uint64_t i = 0; i < count; i++) {
    gguf_tensor t = {0};
    TRY(parse_tensor(c, i, &t));
    if (!mem_grow(&g->tensors, &capacity, i + 1, sizeof *g->tensors))
      return err_nomem(c->err, c->path);
    g->tensors[i] = t;
    g->n_tensors = i + 1;
    TRY(put_once(c, &g->tensor_index, t.name, i, "tensor"));
  }
  return TERN_OK;
}

/* Points every tensor at its data, which starts at the next multiple of the alignment. */
static tern_status place_tensors(gguf *g, const cursor *c)
{
  uint64_t header = (uint64_t)(c->at - g->file.data);
  uint64_t start = (header + g->alignment - 1) / g->alignment * g->alignment;
  uint64_t available = start < g->file.size ? g->file.size - start : 0;
  for (size_t i = 0; i < g->n_tensors; i++) {
    gguf_tensor *t = &g->tensors[i];
    if (t->offset % g->alignment)
      return err_set(c->err, TERN_E_FORMAT, "%s: tensor %.*s: offset %" PRIu64 " is not a multiple of %" PRIu64,
                     g->path, GGUF_STR(t->name), t->offset, g->alignment);
    if (t->offset > available || t->bytes > available - t->offset)
      return err_set(c->err, TERN_E_FORMAT,
                     "%s: tensor %.*s: %zu bytes at %" PRIu64 " of %" PRIu64
                     " bytes of data: the file is incomplete or damaged",
                     g->path, GGUF_STR(t->name), t->bytes, t->offset, available);
    t->data = g->file.data + start + t->offset;
  }
  return TERN_OK;
}

/* Where a tensor's data lies in the file, for sorting. */
typedef struct span {
  uint64_t begin, end;
  size_t tensor;
} span;

static int by_place(const void *a, const void *b)
{
  const span *x = a, *y = b;
  return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static tern_status check_overlaps(const gguf *g, tern_error *err)
{
  span *spans = mem_array(g->n_tensors, sizeof *spans);
  if (!spans)
    return err_nomem(err, g->path);
  for (size_t i = 0; i < g->n_tensors; i++)
    spans[i] = (span){g->tensors[i].offset, g->tensors[i].offset + g->tensors[i].bytes, i};
  qsort(spans, g->n_tensors, sizeof *spans, by_place);
  tern_status status = TERN_OK;
  for (size_t i = 1; i < g->n_tensors && status == TERN_OK; i++)
    if (spans[i - 1].end > spans[i].begin)
      status = err_set(err, TERN_E_FORMAT, "%s: tensors %.*s and %.*s overlap", g->path,
                       GGUF_STR(g->tensors[spans[i - 1].tensor].name), GGUF_STR(g->tensors[spans[i].tensor].name));
  mem_free(spans);
  return status;
}

static tern_status read_alignment(gguf *g, tern_error *err)
{
  uint32_t alignment = 32;
  bool present;
  TRY(gguf_get_uint(g, "general.alignment", &alignment, &present, err));
  if (alignment < 8 || alignment > 1u << 20 || (alignment & (alignment - 1)))
    return err_set(err, TERN_E_FORMAT, "%s: key general.alignment: %" PRIu32 " is not a power of two from 8 to 2^20",
                   g->path, alignment);
  g->alignment = alignment;
  return TERN_OK;
}

static tern_status parse_prologue(gguf *g, cursor *c, uint64_t *n_tensors, uint64_t *n_values)
{
  if (left(c) < 4 || memcmp(c->at, "GGUF", 4) != 0)
    return err_set(c->err, TERN_E_FORMAT, "%s: not a GGUF file", g->path);
  c->at += 4;
  TRY(take_u32(c, &g->version, "the header"));
  if (g->version && !(g->version & 0xffff))
    return err_set(c->err, TERN_E_UNSUPPORTED, "%s: a big-endian GGUF file, only little-endian ones are read", g->path);
  if (g->version < 2 || g->version > 3)
    return err_set(c->err, TERN_E_UNSUPPORTED, "%s: GGUF version %" PRIu32 ", versions 2 and 3 are read", g->path,
                   g->version);
  TRY(take_u64(c, n_tensors, "the header"));
  TRY(take_u64(c, n_values, "the header"));
  /* The smallest entries: key 8 + 1, type 4, value 1; and name 8 + 1, dimensions 4 + 8, type 4, offset 8. */
  if (*n_values > left(c) / 14)
    return err_set(c->err, TERN_E_FORMAT, "%s: %" PRIu64 " metadata entries in a file of %zu bytes", g->path, *n_values,
                   g->file.size);
  if (*n_tensors > left(c) / 33)
    return err_set(c->err, TERN_E_FORMAT, "%s: %" PRIu64 " tensors in a file of %zu bytes", g->path, *n_tensors,
                   g->file.size);
  return TERN_OK;
}

static tern_status parse(gguf *g, tern_error *err)
{
  /* An empty file has no mapping. */
  const uint8_t *start = g->file.data ? g->file.data : (const uint8_t *)"";
  cursor c = {.path = g->path, .at = start, .end = start + g->file.size, .err = err};
  uint64_t n_tensors = 0, n_values = 0;
  TRY(parse_prologue(g, &c, &n_tensors, &n_values));
  TRY(parse_values(g, &c, n_values));
  TRY(read_alignment(g, err));
  TRY(parse_tensors(g, &c, n_tensors));
  TRY(place_tensors(g, &c));
  return check_overlaps(g, err);
}

tern_status gguf_open(const char *path, gguf *out, tern_error *err)
{
  gguf g = {.file = {.slot = -1}};
  TRY(map_open(path, &g.file, err));
  g.path = mem_strdup(path);
  tern_status status = g.path ? parse(&g, err) : err_nomem(err, path);
  if (status == TERN_OK && map_broken(&g.file))
    status = err_set(err, TERN_E_IO, "%s: the file shrank while it was read", path);
  if (status != TERN_OK) {
    gguf_close(&g);
    return status;
  }
  *out = g;
  return TERN_OK;
}

void gguf_close(gguf *g)
{
  if (g->path || g->file.data)
    map_close(&g->file);
  mem_free(g->path);
  mem_free(g->values);
  mem_free(g->tensors);
  strmap_free(&g->value_index);
  strmap_free(&g->tensor_index);
  *g = (gguf){.file = {.slot = -1}};
}
