/* st.c - reads safetensors.
 *
 * The header is walked by a cursor over the mapped bytes, not parsed into a tree: its grammar is small, a header of
 * nonsense then costs no more memory than a good one, each fault can name its tensor, and opening 100,000 tensors takes
 * 50 ms. Order of work: length, walk (each tensor's own rules), sort by place, then the rules between tensors: the data
 * must be covered exactly once.
 *
 * Refused: everything the format forbids (a key twice, unknown members, gaps, overlaps, bytes after the last tensor),
 * even where a lenient reader could go on. A file of which tern would read only a part is not the file that was meant.
 */
#include "format/st.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/json_scan.h"

static const struct {
  const char *name;
  size_t size;
} dtypes[ST_DTYPES] = {
    [ST_F64] = {"F64", 8},   [ST_F32] = {"F32", 4},         [ST_F16] = {"F16", 2},         [ST_BF16] = {"BF16", 2},
    [ST_I64] = {"I64", 8},   [ST_I32] = {"I32", 4},         [ST_I16] = {"I16", 2},         [ST_I8] = {"I8", 1},
    [ST_U64] = {"U64", 8},   [ST_U32] = {"U32", 4},         [ST_U16] = {"U16", 2},         [ST_U8] = {"U8", 1},
    [ST_BOOL] = {"BOOL", 1}, [ST_F8_E4M3] = {"F8_E4M3", 1}, [ST_F8_E5M2] = {"F8_E5M2", 1},
};

const char *st_dtype_name(st_dtype dtype)
{
  return (size_t)dtype < ST_DTYPES ? dtypes[dtype].name : "?";
}

size_t st_dtype_size(st_dtype dtype)
{
  return (size_t)dtype < ST_DTYPES ? dtypes[dtype].size : 0;
}

const char *st_describe(const st_tensor *t, char *out, size_t size)
{
  size_t used = (size_t)snprintf(out, size, "%s [", st_dtype_name(t->dtype));
  for (int i = 0; i < t->rank && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "%s%" PRId64, i ? ", " : "", t->shape[i]);
  if (used < size)
    snprintf(out + used, size - used, "]");
  return out;
}

/* ---- what the header says ---------------------------------------------------------------------------------------- */

/* The limit of the reference implementation of the format. */
static const uint64_t HEADER_LIMIT = 100000000;

/* A tensor as the header states it; begin and end count from the first byte of data. */
typedef struct entry {
  st_tensor tensor;
  uint64_t begin, end;
} entry;

typedef struct header {
  const char *path;
  json_scan scan;
  slice tensor; /* the one being read, for messages; s NULL: none */
  entry *entries;
  size_t n_entries, entries_capacity;
  st_meta *metadata;
  size_t n_metadata, metadata_capacity;
  bool saw_metadata;
  tern_error *err;
} header;

/* "PATH: tensor "NAME": message", the tensor left out where none is being read. */
static tern_status bad(const header *h, tern_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static tern_status bad(const header *h, tern_status status, const char *format, ...)
{
  char message[400];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  if (!h->tensor.s)
    return err_set(h->err, status, "%s: %s", h->path, message);
  return err_set(h->err, status, "%s: tensor \"%.*s\": %s", h->path, h->tensor.n < 200 ? (int)h->tensor.n : 200,
                 h->tensor.s, message);
}

static tern_status no_memory(const header *h)
{
  return err_nomem(h->err, h->path);
}

/* A whole number from 0 to INT64_MAX. */
static tern_status read_whole(header *h, const char *what, uint64_t *out)
{
  slice number;
  bool whole;
  TRY(scan_number(&h->scan, what, &number, &whole));
  if (!whole || *number.s == '-')
    return bad(h, TERN_E_FORMAT, "%s is %s: %.*s", what, whole ? "negative" : "not a whole number",
               number.n < 40 ? (int)number.n : 40, number.s);
  uint64_t value = 0;
  for (size_t i = 0; i < number.n; i++)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, (uint64_t)(number.s[i] - '0'), &value) || value > INT64_MAX)
      return bad(h, TERN_E_FORMAT, "%s is too large: %.*s", what, number.n < 40 ? (int)number.n : 40, number.s);
  *out = value;
  return TERN_OK;
}

/* ---- the grammar ------------------------------------------------------------------------------------------------- */

static tern_status read_dtype(header *h, entry *e)
{
  slice name;
  TRY(scan_string(&h->scan, "a dtype", &name));
  for (int i = 0; i < ST_DTYPES; i++)
    if (slice_is(name, dtypes[i].name)) {
      e->tensor.dtype = (st_dtype)i;
      return TERN_OK;
    }
  return bad(h, TERN_E_UNSUPPORTED, "unknown dtype \"%.*s\"", name.n < 40 ? (int)name.n : 40, name.s);
}

static tern_status read_shape(header *h, entry *e)
{
  TRY(scan_expect(&h->scan, '[', "a shape"));
  if (scan_accept(&h->scan, ']'))
    return TERN_OK;
  do {
    if (e->tensor.rank == ST_MAX_RANK)
      return bad(h, TERN_E_UNSUPPORTED, "more than %d dimensions", ST_MAX_RANK);
    uint64_t size;
    TRY(read_whole(h, "a size in its shape", &size));
    e->tensor.shape[e->tensor.rank++] = (int64_t)size;
  } while (scan_accept(&h->scan, ','));
  return scan_expect(&h->scan, ']', "',' or ']'");
}

static tern_status read_offsets(header *h, entry *e)
{
  TRY(scan_expect(&h->scan, '[', "data_offsets"));
  TRY(read_whole(h, "its first data offset", &e->begin));
  TRY(scan_expect(&h->scan, ',', "','"));
  TRY(read_whole(h, "its second data offset", &e->end));
  return scan_expect(&h->scan, ']', "']'");
}

static const struct {
  const char *name;
  tern_status (*read)(header *h, entry *e);
} members[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};

enum { MEMBERS = sizeof members / sizeof *members };

static tern_status read_member(header *h, entry *e, unsigned *seen)
{
  slice key;
  TRY(scan_string(&h->scan, "a member's name", &key));
  TRY(scan_expect(&h->scan, ':', "':'"));
  for (unsigned i = 0; i < MEMBERS; i++) {
    if (!slice_is(key, members[i].name))
      continue;
    if (*seen & 1u << i)
      return bad(h, TERN_E_FORMAT, "%s is given twice", members[i].name);
    *seen |= 1u << i;
    return members[i].read(h, e);
  }
  return bad(h, TERN_E_FORMAT, "unknown member \"%.*s\"", key.n < 40 ? (int)key.n : 40, key.s);
}

/* The rules that one tensor must keep by itself. */
static tern_status check_entry(header *h, entry *e)
{
  if (e->begin > e->end)
    return bad(h, TERN_E_FORMAT, "data_offsets out of order: begins at %" PRIu64 ", ends at %" PRIu64, e->begin,
               e->end);
  uint64_t bytes = dtypes[e->tensor.dtype].size;
  bool overflow = false, empty = false;
  for (int i = 0; i < e->tensor.rank; i++) {
    empty = empty || e->tensor.shape[i] == 0;
    overflow = __builtin_mul_overflow(bytes, (uint64_t)e->tensor.shape[i], &bytes) || overflow;
  }
  if (empty)
    bytes = 0;
  else if (overflow || bytes > SIZE_MAX / 2)
    return bad(h, TERN_E_FORMAT, "its shape asks for more bytes than can be counted");
  char kind[160];
  if (bytes != e->end - e->begin)
    return bad(h, TERN_E_FORMAT, "%s takes %" PRIu64 " bytes, but data_offsets give it %" PRIu64,
               st_describe(&e->tensor, kind, sizeof kind), bytes, e->end - e->begin);
  e->tensor.bytes = (size_t)bytes;
  return TERN_OK;
}

static tern_status read_tensor(header *h, slice name)
{
  h->tensor = name;
  entry e = {.tensor = {.shape = {1, 1, 1, 1, 1, 1, 1, 1}}};
  unsigned seen = 0;
  TRY(scan_expect(&h->scan, '{', "a tensor's description"));
  if (!scan_accept(&h->scan, '}')) {
    do
      TRY(read_member(h, &e, &seen));
    while (scan_accept(&h->scan, ','));
    TRY(scan_expect(&h->scan, '}', "',' or '}'"));
  }
  for (unsigned i = 0; i < MEMBERS; i++)
    if (!(seen & 1u << i))
      return bad(h, TERN_E_FORMAT, "%s is missing", members[i].name);
  TRY(check_entry(h, &e));
  e.tensor.name = arena_strndup(h->scan.strings, name.s, name.n);
  if (!e.tensor.name || !mem_grow(&h->entries, &h->entries_capacity, h->n_entries + 1, sizeof *h->entries))
    return no_memory(h);
  h->entries[h->n_entries++] = e;
  h->tensor.s = NULL;
  return TERN_OK;
}

static tern_status read_metadata_pair(header *h, strmap *keys)
{
  slice key, value;
  TRY(scan_string(&h->scan, "a key of __metadata__", &key));
  TRY(scan_expect(&h->scan, ':', "':'"));
  TRY(scan_string(&h->scan, "a string, as all of __metadata__ are,", &value));
  st_meta m = {arena_strndup(h->scan.strings, key.s, key.n), arena_strndup(h->scan.strings, value.s, value.n)};
  bool present;
  if (!m.key || !m.value || !mem_grow(&h->metadata, &h->metadata_capacity, h->n_metadata + 1, sizeof m) ||
      !strmap_put(keys, m.key, key.n, 0, &present, NULL))
    return no_memory(h);
  if (present)
    return bad(h, TERN_E_FORMAT, "__metadata__: key \"%.100s\" is given twice", m.key);
  h->metadata[h->n_metadata++] = m;
  return TERN_OK;
}

static tern_status read_metadata(header *h)
{
  if (h->saw_metadata)
    return bad(h, TERN_E_FORMAT, "__metadata__ is given twice");
  h->saw_metadata = true;
  TRY(scan_expect(&h->scan, '{', "the object of __metadata__"));
  if (scan_accept(&h->scan, '}'))
    return TERN_OK;
  strmap keys = {0};
  tern_status status;
  do
    status = read_metadata_pair(h, &keys);
  while (status == TERN_OK && scan_accept(&h->scan, ','));
  strmap_free(&keys);
  TRY(status);
  return scan_expect(&h->scan, '}', "',' or '}'");
}

static tern_status read_header(header *h)
{
  TRY(scan_expect(&h->scan, '{', "'{'"));
  if (!scan_accept(&h->scan, '}')) {
    do {
      slice name;
      TRY(scan_string(&h->scan, "a tensor's name", &name));
      TRY(scan_expect(&h->scan, ':', "':'"));
      TRY(slice_is(name, "__metadata__") ? read_metadata(h) : read_tensor(h, name));
    } while (scan_accept(&h->scan, ','));
    TRY(scan_expect(&h->scan, '}', "',' or '}'"));
  }
  return scan_end(&h->scan);
}

/* ---- the rules between tensors ----------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
  const entry *x = a, *y = b;
  if (x->begin != y->begin)
    return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end)
    return x->end < y->end ? -1 : 1;
  return strcmp(x->tensor.name, y->tensor.name);
}

static tern_status check_coverage(header *h, uint64_t data_bytes)
{
  uint64_t covered = 0;
  for (size_t i = 0; i < h->n_entries; i++) {
    const entry *e = &h->entries[i];
    h->tensor = (slice){e->tensor.name, strlen(e->tensor.name)};
    if (e->begin < covered)
      return bad(h, TERN_E_FORMAT, "overlaps tensor \"%.150s\" by %" PRIu64 " bytes", h->entries[i - 1].tensor.name,
                 covered - e->begin);
    if (e->begin > covered)
      return bad(h, TERN_E_FORMAT, "a gap of %" PRIu64 " bytes lies before its data, at %" PRIu64, e->begin - covered,
                 covered);
    if (e->end > data_bytes)
      return bad(h, TERN_E_FORMAT, "truncated: it ends at byte %" PRIu64 " of the data, the file holds %" PRIu64,
                 e->end, data_bytes);
    covered = e->end;
  }
  h->tensor.s = NULL;
  if (covered < data_bytes)
    return bad(h, TERN_E_FORMAT, "%" PRIu64 " bytes follow the last tensor", data_bytes - covered);
  return TERN_OK;
}

static tern_status index_names(header *h, strmap *index)
{
  if (!strmap_reserve(index, h->n_entries))
    return no_memory(h);
  for (size_t i = 0; i < h->n_entries; i++) {
    const char *name = h->entries[i].tensor.name;
    bool present;
    if (!strmap_put(index, name, strlen(name), (uint32_t)i, &present, NULL))
      return no_memory(h);
    if (present)
      return err_set(h->err, TERN_E_FORMAT, "%s: tensor \"%.200s\" is in the header twice", h->path, name);
  }
  return TERN_OK;
}

static tern_status keep_tensors(header *h, st_file *f, const uint8_t *data)
{
  f->tensors = mem_array(h->n_entries, sizeof *f->tensors);
  if (!f->tensors)
    return no_memory(h);
  f->n_tensors = h->n_entries;
  for (size_t i = 0; i < f->n_tensors; i++) {
    f->tensors[i] = h->entries[i].tensor;
    f->tensors[i].data = data + h->entries[i].begin;
    f->data_bytes += f->tensors[i].bytes;
  }
  return TERN_OK;
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static tern_status read_length(const st_file *f, uint64_t *length, tern_error *err)
{
  const uint8_t *p = f->map.data;
  if (f->map.size < 8)
    return err_set(err, TERN_E_FORMAT, "%s: %zu bytes, too short for a safetensors file", f->path, f->map.size);
  if (f->map.size > 16 && memcmp(p, "version https://", 16) == 0)
    return err_set(err, TERN_E_FORMAT, "%s: a Git LFS pointer, not the weights: run git lfs pull", f->path);
  *length = 0;
  for (int i = 0; i < 8; i++)
    *length |= (uint64_t)p[i] << (8 * i);
  if (*length > f->map.size - 8)
    return err_set(err, TERN_E_FORMAT, "%s: truncated or not safetensors: a header of %" PRIu64 " bytes in %zu",
                   f->path, *length, f->map.size);
  if (*length > HEADER_LIMIT)
    return err_set(err, TERN_E_LIMIT, "%s: a header of %" PRIu64 " bytes, more than the %" PRIu64 " allowed", f->path,
                   *length, HEADER_LIMIT);
  return TERN_OK;
}

static tern_status load(st_file *f, header *h)
{
  uint64_t length = 0;
  TRY(read_length(f, &length, h->err));
  json_scan *scan = &h->scan;
  scan->begin = scan->p = (const char *)f->map.data + 8;
  scan->end = scan->begin + length;
  tern_status status = read_header(h);
  if (scan->failed) {
    char place[300] = "";
    if (h->tensor.s)
      snprintf(place, sizeof place, "tensor \"%.*s\": ", h->tensor.n < 200 ? (int)h->tensor.n : 200, h->tensor.s);
    return err_prefix(h->err, status, "%s: %sheader byte %zu", h->path, place, scan->at);
  }
  TRY(status);
  if (h->n_entries)
    qsort(h->entries, h->n_entries, sizeof *h->entries, by_place);
  TRY(index_names(h, &f->index));
  TRY(check_coverage(h, f->map.size - 8 - length));
  TRY(keep_tensors(h, f, (const uint8_t *)scan->end));
  if (map_broken(&f->map))
    return err_set(h->err, TERN_E_IO, "%s: the file shrank while it was read", f->path);
  return TERN_OK;
}

tern_status st_open(const char *path, st_file *out, tern_error *err)
{
  st_file f = {.map = {.slot = -1}};
  *out = f;
  f.path = mem_strdup(path);
  if (!f.path)
    return err_nomem(err, path);
  header h = {.path = f.path, .scan = {.strings = &f.strings, .err = err}, .err = err};
  tern_status status = map_open(path, &f.map, err);
  if (status == TERN_OK)
    status = load(&f, &h);
  f.metadata = h.metadata;
  f.n_metadata = h.n_metadata;
  mem_free(h.entries);
  if (status == TERN_OK)
    *out = f;
  else
    st_close(&f);
  return status;
}

void st_close(st_file *f)
{
  if (f->path)
    map_close(&f->map);
  mem_free(f->path);
  mem_free(f->tensors);
  mem_free(f->metadata);
  strmap_free(&f->index);
  arena_free(&f->strings);
  *f = (st_file){.map = {.slot = -1}};
}

const st_tensor *st_find(const st_file *f, const char *name)
{
  uint32_t i;
  return strmap_get(&f->index, name, strlen(name), &i) ? &f->tensors[i] : NULL;
}
