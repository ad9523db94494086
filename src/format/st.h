/* st.h - one safetensors file: eight bytes of header length (little endian), a JSON header, then bare tensor data.
 *
 * Reading maps the file and looks at its header alone; no page of data is touched. Data may stand at any byte offset
 * (MLX pads nothing), so never cast `data` to a wider type: load with memcpy or an unaligned instruction.
 *
 * Writing lays tensors down in the order they were added, each produced by a callback when its turn comes, so that an
 * importer holds one tensor at a time.
 */
#ifndef TERN_FORMAT_ST_H
#define TERN_FORMAT_ST_H

#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/status.h"

/* In the order of st.c's table. */
typedef enum st_dtype {
  ST_F64,
  ST_F32,
  ST_F16,
  ST_BF16,
  ST_I64,
  ST_I32,
  ST_I16,
  ST_I8,
  ST_U64,
  ST_U32,
  ST_U16,
  ST_U8,
  ST_BOOL,
  ST_F8_E4M3,
  ST_F8_E5M2,
  ST_DTYPES /* how many */
} st_dtype;

const char *st_dtype_name(st_dtype dtype); /* "BF16", as in files */
size_t st_dtype_size(st_dtype dtype);      /* bytes of one element */

enum { ST_MAX_RANK = 8 };

typedef struct st_tensor {
  const char *name; /* NUL-terminated UTF-8, lives as long as the file is open */
  st_dtype dtype;
  int rank;                   /* 0: a scalar */
  int64_t shape[ST_MAX_RANK]; /* row-major, outermost first; unused entries are 1 */
  const uint8_t *data;        /* in the mapping, any alignment */
  size_t bytes;               /* product of shape times st_dtype_size */
} st_tensor;

/* "F32 [2, 3]" into out, cut if it must be. For messages. Returns out. */
const char *st_describe(const st_tensor *t, char *out, size_t size);

/* ---- reading ---- */

typedef struct st_meta {
  const char *key, *value;
} st_meta;

typedef struct st_file {
  char *path;
  map map;
  st_tensor *tensors; /* in the order of their data */
  size_t n_tensors;
  st_meta *metadata; /* __metadata__, in file order */
  size_t n_metadata;
  size_t data_bytes; /* of all tensors together */
  strmap index;      /* name to place in `tensors` */
  arena strings;
} st_file;

/* Opens and checks everything that the header says. On failure *out is zeroed and nothing is held. Errors name the
 * file, and the tensor where one is concerned: TERN_E_FORMAT for every broken rule of the format, TERN_E_UNSUPPORTED
 * for a dtype that tern does not know, TERN_E_LIMIT for a header above 100 MB. */
tern_status st_open(const char *path, st_file *out, tern_error *err);
void st_close(st_file *f); /* idempotent; a zeroed st_file is closed */
/* NULL: not there. */
const st_tensor *st_find(const st_file *f, const char *name);

/* ---- writing ---- */

typedef struct st_writer st_writer;
/* Produces one tensor's bytes by any number of st_put calls, exactly as many bytes as its shape asks for. */
typedef tern_status (*st_produce)(void *user, st_writer *w, tern_error *err);

tern_status st_writer_open(st_writer **out, tern_error *err);
void st_writer_close(st_writer *w);
/* Names are copied. Adding a name twice, or "__metadata__", is an error. */
tern_status st_writer_add(st_writer *w, const char *name, st_dtype dtype, int rank, const int64_t *shape,
                          st_produce produce, void *user, tern_error *err);
tern_status st_writer_meta(st_writer *w, const char *key, const char *value, tern_error *err);
/* Bytes of all tensors added so far, without the header. */
size_t st_writer_bytes(const st_writer *w);
/* Writes PATH, which must not exist yet. On failure, a full disk included, no file is left behind. */
tern_status st_writer_write(st_writer *w, const char *path, tern_error *err);
/* For st_produce only. */
tern_status st_put(st_writer *w, const void *data, size_t n, tern_error *err);

#endif
