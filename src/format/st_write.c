/* st_write.c - writes safetensors.
 *
 * The header is known before any data is, because shapes are; so a file is written front to back in one pass, through
 * one buffer. Space is reserved first where the file system can do that: a disk that is too full says so before hours
 * of conversion, not after. It is synced before it is closed. Whatever fails, the unfinished file is removed.
 *
 * Refused: names twice, a producer that gives fewer or more bytes than its shape, an output path that exists.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "format/json_out.h"
#include "format/st.h"

typedef struct item {
  st_tensor tensor; /* without data */
  st_produce produce;
  void *user;
} item;

struct st_writer {
  arena strings;
  item *items;
  size_t n_items, items_capacity;
  st_meta *metadata;
  size_t n_metadata, metadata_capacity;
  strmap names, keys;
  size_t bytes;
  /* While writing: */
  const char *path;
  int fd;
  const item *current;
  size_t missing; /* bytes that the current item still owes */
  size_t pending; /* in `block` */
  uint8_t *block;
};

enum { BLOCK = 1 << 20 };

tern_status st_writer_open(st_writer **out, tern_error *err)
{
  st_writer *w = mem_zalloc(sizeof *w);
  if (!w)
    return err_nomem(err, "safetensors writer");
  w->fd = -1;
  *out = w;
  return TERN_OK;
}

void st_writer_close(st_writer *w)
{
  if (!w)
    return;
  mem_free(w->items);
  mem_free(w->metadata);
  mem_free(w->block);
  strmap_free(&w->names);
  strmap_free(&w->keys);
  arena_free(&w->strings);
  mem_free(w);
}

size_t st_writer_bytes(const st_writer *w)
{
  return w->bytes;
}

/* ---- collecting -------------------------------------------------------------------------------------------------- */

/* Copies a string that must be new in `names`. */
static tern_status new_name(st_writer *w, strmap *names, const char *what, const char *name, const char **copy,
                            tern_error *err)
{
  size_t n = strlen(name);
  if (!utf8_valid(name, n, NULL))
    return err_set(err, TERN_E_FORMAT, "%s \"%.200s\": not UTF-8", what, name);
  uint32_t value;
  if (strmap_get(names, name, n, &value))
    return err_set(err, TERN_E_FORMAT, "%s \"%.200s\": added twice", what, name);
  *copy = arena_strndup(&w->strings, name, n);
  if (!*copy || !strmap_put(names, *copy, n, 0, NULL, NULL))
    return err_nomem(err, what);
  return TERN_OK;
}

tern_status st_writer_add(st_writer *w, const char *name, st_dtype dtype, int rank, const int64_t *shape,
                          st_produce produce, void *user, tern_error *err)
{
  if ((size_t)dtype >= ST_DTYPES || rank < 0 || rank > ST_MAX_RANK || strcmp(name, "__metadata__") == 0)
    return err_set(err, TERN_E_USAGE, "tensor \"%.200s\": its name, dtype or rank cannot be written", name);
  item it = {
      .tensor = {.dtype = dtype, .rank = rank, .shape = {1, 1, 1, 1, 1, 1, 1, 1}}, .produce = produce, .user = user};
  size_t bytes = st_dtype_size(dtype), total;
  bool overflow = false;
  for (int i = 0; i < rank; i++) {
    it.tensor.shape[i] = shape[i];
    overflow = shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes) || overflow;
  }
  if (overflow || __builtin_add_overflow(w->bytes, bytes, &total) || total > INT64_MAX / 2)
    return err_set(err, TERN_E_LIMIT, "tensor \"%.200s\": its shape asks for more bytes than can be counted", name);
  if (!mem_grow(&w->items, &w->items_capacity, w->n_items + 1, sizeof *w->items))
    return err_nomem(err, "safetensors writer");
  TRY(new_name(w, &w->names, "tensor", name, &it.tensor.name, err));
  it.tensor.bytes = bytes;
  w->items[w->n_items++] = it;
  w->bytes = total;
  return TERN_OK;
}

tern_status st_writer_meta(st_writer *w, const char *key, const char *value, tern_error *err)
{
  if (!utf8_valid(value, strlen(value), NULL))
    return err_set(err, TERN_E_FORMAT, "metadata \"%.200s\": its value is not UTF-8", key);
  st_meta m = {.value = arena_strndup(&w->strings, value, strlen(value))};
  if (!m.value || !mem_grow(&w->metadata, &w->metadata_capacity, w->n_metadata + 1, sizeof m))
    return err_nomem(err, "safetensors writer");
  TRY(new_name(w, &w->keys, "metadata", key, &m.key, err));
  w->metadata[w->n_metadata++] = m;
  return TERN_OK;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

static void add_metadata(buf *b, const st_writer *w)
{
  buf_adds(b, "\"__metadata__\":{");
  for (size_t i = 0; i < w->n_metadata; i++) {
    if (i)
      buf_addc(b, ',');
    jout_str(b, w->metadata[i].key, strlen(w->metadata[i].key));
    buf_addc(b, ':');
    jout_str(b, w->metadata[i].value, strlen(w->metadata[i].value));
  }
  buf_addc(b, '}');
}

static void add_tensor(buf *b, const st_tensor *t, size_t begin)
{
  jout_str(b, t->name, strlen(t->name));
  buf_addf(b, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(t->dtype));
  for (int i = 0; i < t->rank; i++)
    buf_addf(b, "%s%" PRId64, i ? "," : "", t->shape[i]);
  buf_addf(b, "],\"data_offsets\":[%zu,%zu]}", begin, begin + t->bytes);
}

/* Length and header, padded with spaces so that data begins at a multiple of 8. */
static void make_header(buf *b, const st_writer *w)
{
  buf_add(b, "\0\0\0\0\0\0\0\0", 8);
  buf_addc(b, '{');
  if (w->n_metadata)
    add_metadata(b, w);
  size_t begin = 0;
  for (size_t i = 0; i < w->n_items; i++) {
    if (i || w->n_metadata)
      buf_addc(b, ',');
    add_tensor(b, &w->items[i].tensor, begin);
    begin += w->items[i].tensor.bytes;
  }
  buf_addc(b, '}');
  while (!b->failed && b->length % 8)
    buf_addc(b, ' ');
  for (int i = 0; !b->failed && i < 8; i++)
    b->data[i] = (char)((uint64_t)(b->length - 8) >> (8 * i));
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static tern_status write_all(st_writer *w, const uint8_t *p, size_t n, tern_error *err)
{
  while (n) {
    ssize_t done = write(w->fd, p, n < BLOCK ? n : BLOCK);
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      return err_errno(err, w->path, "write");
    if (done == 0)
      return err_set(err, TERN_E_IO, "%s: cannot write: nothing was taken", w->path);
    p += done;
    n -= (size_t)done;
  }
  return TERN_OK;
}

static tern_status flush(st_writer *w, tern_error *err)
{
  size_t n = w->pending;
  w->pending = 0;
  return write_all(w, w->block, n, err);
}

tern_status st_put(st_writer *w, const void *data, size_t n, tern_error *err)
{
  const item *it = w->current;
  if (!it)
    return err_set(err, TERN_E_INTERNAL, "st_put outside of a producer");
  if (n > w->missing)
    return err_set(err, TERN_E_INTERNAL, "tensor \"%.200s\": more than the %zu bytes of its shape were produced",
                   it->tensor.name, it->tensor.bytes);
  w->missing -= n;
  if (n > BLOCK - w->pending)
    TRY(flush(w, err));
  if (n >= BLOCK)
    return write_all(w, data, n, err);
  if (n)
    memcpy(w->block + w->pending, data, n);
  w->pending += n;
  return TERN_OK;
}

static tern_status write_item(st_writer *w, const item *it, tern_error *err)
{
  w->current = it;
  w->missing = it->tensor.bytes;
  tern_status status = it->produce(it->user, w, err);
  w->current = NULL;
  TRY(status);
  if (w->missing)
    return err_set(err, TERN_E_INTERNAL, "tensor \"%.200s\": %zu of its %zu bytes were not produced", it->tensor.name,
                   w->missing, it->tensor.bytes);
  return TERN_OK;
}

/* Asks for the space at once. File systems that cannot do it are left to fail later, or not. */
static tern_status reserve_space(st_writer *w, size_t size, tern_error *err)
{
  if (size && fallocate(w->fd, 0, 0, (off_t)size) && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
    return err_errno(err, w->path, "reserve space");
  return TERN_OK;
}

static tern_status write_file(st_writer *w, const buf *head, tern_error *err)
{
  TRY(reserve_space(w, head->length + w->bytes, err));
  TRY(write_all(w, (const uint8_t *)head->data, head->length, err));
  for (size_t i = 0; i < w->n_items; i++)
    TRY(write_item(w, &w->items[i], err));
  TRY(flush(w, err));
  /* EINVAL: a file system that has nothing to sync. */
  return fsync(w->fd) && errno != EINVAL ? err_errno(err, w->path, "write") : TERN_OK;
}

tern_status st_writer_write(st_writer *w, const char *path, tern_error *err)
{
  buf head = {0};
  make_header(&head, w);
  if (!w->block)
    w->block = mem_alloc(BLOCK);
  if (head.failed || !w->block) {
    buf_free(&head);
    return err_nomem(err, path);
  }
  w->path = path;
  w->pending = 0;
  w->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (w->fd < 0) {
    buf_free(&head);
    return err_errno(err, path, "create");
  }
  tern_status status = write_file(w, &head, err);
  if (close(w->fd) && status == TERN_OK)
    status = err_errno(err, path, "close");
  if (status != TERN_OK)
    unlink(path);
  w->fd = -1;
  w->path = NULL;
  buf_free(&head);
  return status;
}
