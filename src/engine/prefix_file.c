/* prefix_file.c - see prefix_file.h. prefix_dir.c has the folder. */
#include "engine/prefix_file.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "model/fingerprint.h"

#ifndef TERN_STATE_BUILD
#error "the build says which sources states depend on: TERN_STATE_BUILD, in CMakeLists.txt"
#endif

enum { ALIGN = 64, PIECE = 1 << 20 };

static const char magic[8] = {'T', 'E', 'R', 'N', 'P', 'F', 'I', 'X'};

_Static_assert(sizeof(prefix_head) == 192 && sizeof(prefix_table) == 64, "the format has no padding");

static size_t aligned(size_t n)
{
  return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- the key ---- */

tern_status prefix_file_key(const model *m, char key[SHA256_HEX], tern_error *err)
{
  static const ops_layout none = {.version = 0};
  static const char *const numerics[] = {[TERN_EXACT] = "exact", [TERN_NATIVE] = "native", [TERN_FAST] = "fast"};
  char config[SHA256_HEX];
  prepared_place place = {0};
  buf all = {0};
  TRY(model_config_fingerprint(&m->config, config, err));
  TRY(prepared_find_place("", m->ckpt, &none, &place, err));
  buf_addf(&all, "tern-prefix-%d\nbuild=%s\ncheckpoint=%s\nconfig=%s\nnumerics=%s\nbackend=%s\n", PREFIX_FORMAT,
           TERN_STATE_BUILD, place.identity, config, numerics[m->numerics], m->cx.backend->name);
  for (int i = 0; i < m->plan.n_slots; i++) {
    const kv_slot *s = &m->plan.slots[i];
    buf_addf(&all, "slot=%d %d %d window %d %d %d quantised %d %d %lld %d %d\n", s->kv_heads, s->key_dim, s->value_dim,
             s->window, s->keep, s->by_time, s->quant.bits, s->quant.group, (long long)s->quant.start,
             s->quant.key_type, s->quant.value_type);
  }
  mem_free(place.path);
  bool failed = all.failed;
  if (!failed)
    sha256_hex(all.data, all.length, key);
  buf_free(&all);
  return failed ? err_nomem(err, "key of prefixes") : TERN_OK;
}

void prefix_file_seal(prefix_head *head)
{
  char digest[SHA256_HEX];
  memset(head->digest, 0, sizeof head->digest);
  sha256_hex(head, sizeof *head, digest);
  memcpy(head->digest, digest, sizeof head->digest);
}

/* ---- writing ---- */

/* What goes to the file: gathered in pieces, summed on the way. */
typedef struct writer {
  int fd;
  const char *name;
  uint8_t *piece; /* [PIECE] */
  size_t used, written;
  prepared_sum sum;
  tern_status status;
  tern_error *err;
} writer;

static void write_out(writer *w, const uint8_t *data, size_t n, off_t at)
{
  while (n && w->status == TERN_OK) {
    ssize_t done = pwrite(w->fd, data, n, at);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0) {
      errno = done ? errno : ENOSPC;
      w->status = err_errno(w->err, w->name, "write");
      return;
    }
    data += done;
    n -= (size_t)done;
    at += done;
  }
}

static void flush(writer *w)
{
  prepared_sum_add(&w->sum, w->piece, w->used);
  write_out(w, w->piece, w->used, (off_t)(sizeof(prefix_head) + w->written));
  w->written += w->used;
  w->used = 0;
}

/* n bytes and zeros up to the next multiple of ALIGN, which a piece is a multiple of. */
static void add(writer *w, const void *data, size_t n)
{
  size_t blank = aligned(n) - n;
  for (const uint8_t *at = data; n;) {
    size_t part = n < PIECE - w->used ? n : PIECE - w->used;
    memcpy(w->piece + w->used, at, part);
    w->used += part;
    at += part;
    n -= part;
    if (w->used == PIECE)
      flush(w);
  }
  memset(w->piece + w->used, 0, blank);
  w->used += blank;
  if (w->used == PIECE)
    flush(w);
}

static size_t blocks_of(int64_t length)
{
  return (size_t)((length + KV_BLOCK - 1) / KV_BLOCK);
}

/* A sequence of the prefix: which one, its length, and whose blocks it may share. */
typedef struct part {
  const kv_seq *seq, *with;
  int64_t length;
} part;

static int parts_of(const prefix_of *of, part out[2])
{
  out[0] = (part){of->state, NULL, of->length};
  if (!of->snapshot)
    return 1;
  out[1] = (part){of->snapshot, of->state, of->split < of->length ? of->split : of->length};
  return 2;
}

/* places [most]; the table is cut to what the length needs. */
static prefix_table table_of(const part *p, int slot, uint8_t *places)
{
  kv_table t = kv_seq_table(p->seq, slot);
  size_t need = blocks_of(p->length);
  kv_seq_places(p->seq, slot, p->with, places);
  t.size = t.size < need ? t.size : need;
  t.first = t.first < t.size ? t.first : t.size;
  return (prefix_table){.quantised = t.quantised, .size = t.size, .first = t.first};
}

static size_t most_places(const model *m, const prefix_of *of)
{
  size_t most = 1;
  part parts[2];
  for (int p = parts_of(of, parts); p--;)
    for (int i = 0; i < kv_store_slots(m->store); i++) {
      size_t size = kv_seq_table(parts[p].seq, i).size;
      most = size > most ? size : most;
    }
  return most;
}

static void add_tables(writer *w, const model *m, const part *p, uint8_t *places)
{
  for (int i = 0; i < kv_store_slots(m->store); i++) {
    prefix_table t = table_of(p, i, places);
    add(w, &t, sizeof t);
    add(w, places, t.size);
  }
}

static void add_blocks(writer *w, const model *m, const part *p, uint8_t *places, uint8_t *block)
{
  for (int i = 0; i < kv_store_slots(m->store); i++) {
    prefix_table t = table_of(p, i, places);
    for (size_t k = 0; k < t.size && w->status == TERN_OK; k++) {
      if (places[k] != KV_OWN)
        continue;
      kv_seq_read_block(p->seq, i, k, block);
      add(w, block, kv_store_block_bytes(m->store, i, t.quantised));
    }
  }
}

size_t prefix_file_bytes(const model *m, const prefix_of *of)
{
  size_t bytes = sizeof(prefix_head) + aligned((size_t)of->length * sizeof(int32_t));
  uint8_t *places = mem_alloc(most_places(m, of));
  part parts[2];
  int n = parts_of(of, parts);
  for (int p = 0; p < n && places; p++)
    for (int i = 0; i < kv_store_slots(m->store); i++) {
      prefix_table t = table_of(&parts[p], i, places);
      bytes += sizeof t + aligned(t.size);
      for (size_t k = 0; k < t.size; k++)
        bytes += places[k] == KV_OWN ? aligned(kv_store_block_bytes(m->store, i, t.quantised)) : 0;
    }
  mem_free(places);
  return places ? bytes : SIZE_MAX;
}

static size_t largest_block(const model *m)
{
  size_t most = 1;
  for (int i = 0; i < kv_store_slots(m->store); i++)
    for (int form = 0; form < 2; form++) {
      size_t bytes = kv_store_block_bytes(m->store, i, form);
      most = bytes > most ? bytes : most;
    }
  return most;
}

/* The ids are in one piece (prefixes_at gives them so). */
static void write_all(writer *w, const model *m, const char *key, const prefix_of *of, uint8_t *places, uint8_t *block)
{
  part parts[2];
  int n = parts_of(of, parts);
  prefix_head head = {.format = PREFIX_FORMAT,
                      .slots = (uint32_t)kv_store_slots(m->store),
                      .length = of->length,
                      .split = of->split,
                      .sequences = (uint32_t)n};
  memcpy(head.magic, magic, sizeof magic);
  memcpy(head.key, key, sizeof head.key);
  add(w, of->prompt, (size_t)of->length * sizeof *of->prompt);
  for (int p = 0; p < n; p++)
    add_tables(w, m, &parts[p], places);
  for (int p = 0; p < n; p++)
    add_blocks(w, m, &parts[p], places, block);
  flush(w);
  head.bytes = sizeof head + w->written;
  head.sum = prepared_sum_end(&w->sum);
  prefix_file_seal(&head);
  write_out(w, (const uint8_t *)&head, sizeof head, 0);
}

tern_status prefix_file_write(int fd, const char *name, const model *m, const char *key, const prefix_of *of,
                              tern_error *err)
{
  writer w = {.fd = fd, .name = name, .piece = mem_alloc(PIECE), .err = err};
  uint8_t *places = mem_alloc(most_places(m, of)), *block = mem_alloc(largest_block(m));
  if (w.piece && places && block)
    write_all(&w, m, key, of, places, block);
  else
    w.status = err_nomem(err, name);
  mem_free(w.piece);
  mem_free(places);
  mem_free(block);
  return w.status;
}

/* ---- reading ---- */

typedef struct reader {
  const uint8_t *data;
  size_t size, at;
} reader;

/* The next n bytes, or NULL where the file ends before. */
static const uint8_t *next(reader *r, size_t n)
{
  const uint8_t *here = r->data + r->at;
  size_t left = r->size - r->at;
  if (n > left || aligned(n) > left)
    return NULL;
  r->at += aligned(n);
  return here;
}

static tern_status check_head(const model *m, const char *key, const prefix_head *h, size_t size, tern_error *err)
{
  prefix_head sealed = *h;
  if (memcmp(h->magic, magic, sizeof magic) != 0 || h->format != PREFIX_FORMAT)
    return err_set(err, TERN_E_FORMAT, "no kept state, or one of another version of tern");
  prefix_file_seal(&sealed);
  if (memcmp(sealed.digest, h->digest, sizeof h->digest) != 0)
    return err_set(err, TERN_E_FORMAT, "its head is damaged");
  if (memcmp(h->key, key, sizeof h->key) != 0)
    return err_set(err, TERN_E_FORMAT, "it belongs to another model, build or way to run");
  if (h->bytes != size)
    return err_set(err, TERN_E_FORMAT, "%zu bytes instead of %llu", size, (unsigned long long)h->bytes);
  if (h->slots != (uint32_t)kv_store_slots(m->store) || h->sequences < 1 || h->sequences > 2)
    return err_set(err, TERN_E_FORMAT, "%u slots, %u sequences", h->slots, h->sequences);
  if (h->length < 1 || h->length > INT32_MAX || h->split < 0 || h->split > INT32_MAX)
    return err_set(err, TERN_E_FORMAT, "%lld tokens, split at %lld", (long long)h->length, (long long)h->split);
  return TERN_OK;
}

/* Adds the bytes of the table's own blocks. False: the table is not whole or not possible. */
static bool read_table(reader *r, const model *m, int slot, kv_table *out, size_t *block_bytes)
{
  const prefix_table *t = (const prefix_table *)(const void *)next(r, sizeof *t);
  if (!t || t->quantised > 1 || t->size > r->size)
    return false;
  size_t bytes = aligned(kv_store_block_bytes(m->store, slot, t->quantised));
  *out = (kv_table){.quantised = t->quantised, .size = t->size, .first = t->first, .places = next(r, t->size)};
  if (!out->places || !bytes)
    return false;
  for (size_t i = 0; i < out->size; i++) {
    if (out->places[i] != KV_OWN)
      continue;
    *block_bytes += bytes;
    if (*block_bytes > r->size)
      return false;
  }
  return true;
}

static tern_status parse(const model *m, reader *r, prefix_image *out, tern_error *err)
{
  const prefix_head *h = out->head;
  size_t block_bytes = 0, n = (size_t)h->sequences * h->slots;
  out->ids = (const int32_t *)(const void *)next(r, (size_t)h->length * sizeof *out->ids);
  if (!out->ids)
    return err_set(err, TERN_E_FORMAT, "it ends within its ids");
  for (int64_t i = 0; i < h->length; i++)
    if (out->ids[i] < 0 || out->ids[i] >= m->config.vocab)
      return err_set(err, TERN_E_FORMAT, "token id %d", (int)out->ids[i]);
  for (size_t i = 0; i < n; i++)
    if (!read_table(r, m, (int)(i % h->slots), &out->tables[i], &block_bytes))
      return err_set(err, TERN_E_FORMAT, "table %zu is not whole", i);
  out->blocks = r->data + r->at;
  if (block_bytes != r->size - r->at)
    return err_set(err, TERN_E_FORMAT, "%zu bytes of blocks instead of %zu", r->size - r->at, block_bytes);
  return TERN_OK;
}

tern_status prefix_file_parse(const model *m, const char *key, const uint8_t *data, size_t size, prefix_image *out,
                              tern_error *err)
{
  prepared_sum sum = {0};
  *out = (prefix_image){.head = (const prefix_head *)(const void *)data};
  if (!data || size < sizeof *out->head || size % ALIGN)
    return err_set(err, TERN_E_FORMAT, "%zu bytes are no kept state", size);
  TRY(check_head(m, key, out->head, size, err));
  prepared_sum_add(&sum, data + sizeof *out->head, size - sizeof *out->head);
  if (prepared_sum_end(&sum) != out->head->sum)
    return err_set(err, TERN_E_FORMAT, "it is damaged");
  out->tables = mem_array((size_t)out->head->sequences * out->head->slots, sizeof *out->tables);
  if (!out->tables)
    return err_nomem(err, "tables of a prefix");
  reader r = {data, size, sizeof *out->head};
  tern_status status = parse(m, &r, out, err);
  if (status != TERN_OK) {
    mem_free(out->tables);
    out->tables = NULL;
  }
  return status;
}

static const uint8_t *fill(const model *m, kv_seq *seq, const kv_table *tables, const uint8_t *block)
{
  for (int i = 0; i < kv_store_slots(m->store); i++)
    for (size_t k = 0; k < tables[i].size; k++) {
      if (tables[i].places[k] != KV_OWN)
        continue;
      kv_seq_write_block(seq, i, k, block);
      block += aligned(kv_store_block_bytes(m->store, i, tables[i].quantised));
    }
  return block;
}

tern_status prefix_file_restore(model *m, const prefix_image *image, kv_seq **state, kv_seq **snapshot, tern_error *err)
{
  const prefix_head *h = image->head;
  kv_seq *seq[2] = {NULL, NULL};
  const uint8_t *block = image->blocks;
  tern_status status = TERN_OK;
  for (uint32_t p = 0; p < h->sequences && status == TERN_OK; p++) {
    const kv_table *tables = image->tables + (size_t)p * h->slots;
    int64_t length = p && h->split < h->length ? h->split : h->length;
    status = kv_seq_open(m->store, &seq[p], err);
    if (status == TERN_OK)
      status = kv_seq_restore(seq[p], tables, seq[0] == seq[p] ? NULL : seq[0], length, err);
    if (status == TERN_OK)
      block = fill(m, seq[p], tables, block);
  }
  if (status != TERN_OK) {
    kv_seq_close(seq[0]);
    kv_seq_close(seq[1]);
    return status;
  }
  *state = seq[0];
  *snapshot = seq[1];
  return TERN_OK;
}

/* ---- whole files ---- */

tern_status prefix_check_owner(int fd, const char *path, tern_error *err)
{
  struct stat st;
  if (fstat(fd, &st))
    return err_errno(err, path, "stat");
  if (st.st_uid != geteuid() && st.st_uid != 0)
    return err_set(err, TERN_E_IO, "%s: it is another user's, who could put other states there", path);
  if (st.st_mode & (S_IWGRP | S_IWOTH))
    return err_set(err, TERN_E_IO, "%s: others may write there, and could put other states there: chmod go-w %s", path,
                   path);
  return TERN_OK;
}

tern_status prefix_file_open(const char *path, model *m, const char *key, prefix_loaded *out, tern_error *err)
{
  *out = (prefix_loaded){.file = {.slot = -1, .fd = -1}};
  TRY(map_open(path, &out->file, err));
  if (out->file.data)
    TRY(prefix_check_owner(out->file.fd, path, err));
  TRY(prefix_file_parse(m, key, out->file.data, out->file.size, &out->image, err));
  TRY(prefix_file_restore(m, &out->image, &out->state, &out->snapshot, err));
  if (map_broken(&out->file)) /* what was read may be zeros */
    return err_set(err, TERN_E_FORMAT, "it shrank while it was read");
  const prefix_head *h = out->image.head;
  out->of = (prefix_of){.state = out->state,
                        .snapshot = out->snapshot,
                        .prompt = out->image.ids,
                        .n = h->length,
                        .length = h->length,
                        .split = h->split};
  return TERN_OK;
}

void prefix_file_close(prefix_loaded *l)
{
  kv_seq_close(l->state);
  kv_seq_close(l->snapshot);
  mem_free(l->image.tables);
  map_close(&l->file);
}
