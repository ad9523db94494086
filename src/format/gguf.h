/* gguf.h - a GGUF file, mapped and checked: metadata and tensor infos of versions 2 and 3, little endian.
 *
 * gguf_open reads every header byte once and refuses, naming the file and the key or tensor: a wrong magic, another
 * version, a big-endian file, truncation anywhere, a key or tensor given twice, an unknown value or tensor type, a
 * length or count that the file cannot hold, a shape that is empty, overflows or breaks a block, an offset that is
 * unaligned or outside the file, and tensors that overlap. What it hands out points into the mapping and lives until
 * gguf_close. Memory is in proportion to the number of keys and tensors really there.
 *
 * The format: github.com/ggml-org/ggml, docs/gguf.md of that repository.
 */
#ifndef TERN_FORMAT_GGUF_H
#define TERN_FORMAT_GGUF_H

#include "base/hash.h"
#include "base/map.h"

typedef enum gguf_value_type {
  GGUF_U8 = 0,
  GGUF_I8,
  GGUF_U16,
  GGUF_I16,
  GGUF_U32,
  GGUF_I32,
  GGUF_F32,
  GGUF_BOOL,
  GGUF_STRING,
  GGUF_ARRAY,
  GGUF_U64,
  GGUF_I64,
  GGUF_F64,
  GGUF_VALUE_TYPES,
} gguf_value_type;

/* Numbers are those of the file. */
typedef enum ggml_type {
  GGML_F32 = 0,
  GGML_F16 = 1,
  GGML_Q4_0 = 2,
  GGML_Q4_1 = 3,
  GGML_Q5_0 = 6,
  GGML_Q5_1 = 7,
  GGML_Q8_0 = 8,
  GGML_Q2_K = 10,
  GGML_Q3_K = 11,
  GGML_Q4_K = 12,
  GGML_Q5_K = 13,
  GGML_Q6_K = 14,
  GGML_IQ4_NL = 20,
  GGML_IQ4_XS = 23,
  GGML_BF16 = 30,
  GGML_TYPES = 40,
} ggml_type;

/* How a tensor type is stored: `bytes` per block of `block` values along the row. */
typedef struct ggml_type_info {
  const char *name; /* "Q4_K"; NULL: no such type */
  uint32_t block, bytes;
} ggml_type_info;

/* NULL for a number that names no type. */
const ggml_type_info *ggml_type_get(uint32_t type);

/* Valid UTF-8 without NUL characters, not terminated. */
typedef struct gguf_string {
  const char *data;
  size_t size;
} gguf_string;

typedef struct gguf_value {
  gguf_string key;
  gguf_value_type type;
  gguf_value_type element; /* of an array; `type` otherwise */
  size_t count;            /* elements of an array; 1 otherwise */
  const uint8_t *data;     /* the first value's bytes, unaligned, checked to the last */
} gguf_value;

typedef struct gguf_tensor {
  gguf_string name;
  ggml_type type;
  uint32_t dims;    /* 1..4 */
  uint64_t size[4]; /* ne: size[0] is the row length K; 1 beyond `dims` */
  uint64_t offset;  /* from the start of the data section */
  const uint8_t *data;
  size_t bytes;
} gguf_tensor;

typedef struct gguf {
  char *path;
  map file;
  uint32_t version;
  uint64_t alignment;
  gguf_value *values; /* in file order */
  size_t n_values;
  gguf_tensor *tensors; /* in file order */
  size_t n_tensors;
  strmap value_index, tensor_index;
} gguf;

tern_status gguf_open(const char *path, gguf *out, tern_error *err);
void gguf_close(gguf *g); /* idempotent; a zeroed gguf is closed */

/* NULL where absent. */
const gguf_value *gguf_find(const gguf *g, const char *key);
const gguf_tensor *gguf_find_tensor(const gguf *g, const char *name);

/* Typed reads. Each sets *present and leaves *out alone where the key is absent; a key of another type, or a number
 * that does not fit, is an error naming the key. Integers of any width are accepted where the value fits. */
tern_status gguf_get_uint(const gguf *g, const char *key, uint32_t *out, bool *present, tern_error *err);
tern_status gguf_get_float(const gguf *g, const char *key, double *out, bool *present, tern_error *err);
tern_status gguf_get_bool(const gguf *g, const char *key, bool *out, bool *present, tern_error *err);
tern_status gguf_get_string(const gguf *g, const char *key, gguf_string *out, bool *present, tern_error *err);

/* Arrays as typed copies the caller frees (mem_free): *out has *count elements (never NULL when present). */
tern_status gguf_get_strings(const gguf *g, const char *key, gguf_string **out, size_t *count, tern_error *err);
tern_status gguf_get_ints(const gguf *g, const char *key, int32_t **out, size_t *count, tern_error *err);
tern_status gguf_get_floats(const gguf *g, const char *key, float **out, size_t *count, tern_error *err);

/* "%.*s" arguments, long names cut for an error line. */
#define GGUF_STR(s) (int)((s).size < 200 ? (s).size : 200), (s).data

#endif
