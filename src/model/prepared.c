/* prepared.c - see prepared.h: identity, opening, looking up. prepared_make.c makes the files, and
 * prepared_sources.c tells whose they are. */
#include "model/prepared.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/path.h"

struct prepared {
  char *path;
  map map;
  const prepared_head *head;
  const prepared_entry *entries;
};

_Static_assert(sizeof(prepared_head) == 160 && sizeof(prepared_entry) == 72, "the format has no padding");

/* ---- sums ---- */

void prepared_sum_add(prepared_sum *s, const uint8_t *data, size_t n)
{
  for (; n >= sizeof s->lane; n -= sizeof s->lane, data += sizeof s->lane) {
    uint64_t word[8];
    memcpy(word, data, sizeof word);
    for (int i = 0; i < 8; i++) { /* each step is a bijection of the lane, so no single change is lost */
      uint64_t x = (s->lane[i] ^ word[i]) * UINT64_C(0x9e3779b97f4a7c15);
      s->lane[i] = x << 29 | x >> 35;
    }
  }
}

uint64_t prepared_sum_end(const prepared_sum *s)
{
  return hash_bytes64(s->lane, sizeof s->lane);
}

uint64_t prepared_sample(const uint8_t *layout, size_t bytes)
{
  prepared_sum s = {0};
  size_t blocks = bytes / sizeof s.lane;
  for (size_t i = 0; i < 3 && blocks; i++)
    prepared_sum_add(&s, layout + (blocks - 1) * i / 2 * sizeof s.lane, sizeof s.lane);
  return prepared_sum_end(&s);
}

void prepared_digest(prepared_head *head, const prepared_entry *entries, char out[SHA256_HEX])
{
  prepared_head blank = *head;
  char part[2 * SHA256_HEX];
  memset(blank.digest, 0, sizeof blank.digest);
  sha256_hex(&blank, sizeof blank, part);
  sha256_hex(entries, (size_t)head->entries * sizeof *entries, part + SHA256_HEX - 1);
  sha256_hex(part, 2 * (SHA256_HEX - 1), out);
}

/* ---- identity ---- */

enum { SAMPLE = 64, STRIDE = 4 << 20 };

/* Read past the mapping, so that no page becomes resident. */
static tern_status add_sample(const st_file *f, off_t at, size_t n, buf *out, tern_error *err)
{
  char bytes[SAMPLE];
  for (size_t done = 0; done < n;) {
    ssize_t got = pread(f->map.fd, bytes + done, n - done, at + (off_t)done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got ? err_errno(err, f->path, "read") : err_set(err, TERN_E_IO, "%s: the file shrank", f->path);
    done += (size_t)got;
  }
  buf_add(out, bytes, n);
  return TERN_OK;
}

/* 64 bytes from every 4 MiB of each tensor, from its middle, and its last. */
static tern_status add_samples(const st_file *f, buf *out, tern_error *err)
{
  for (size_t i = 0; i < f->n_tensors; i++) {
    const st_tensor *t = &f->tensors[i];
    off_t start = t->data - f->map.data;
    size_t n = t->bytes < SAMPLE ? t->bytes : SAMPLE;
    for (size_t at = 0; at + n <= t->bytes && n; at += STRIDE)
      TRY(add_sample(f, start + (off_t)at, n, out, err));
    TRY(add_sample(f, start + (off_t)((t->bytes - n) / 2), n, out, err));
    TRY(add_sample(f, start + (off_t)(t->bytes - n), n, out, err));
  }
  return TERN_OK;
}

static tern_status add_shard(const st_file *f, buf *out, tern_error *err)
{
  struct stat st;
  uint64_t header;
  char digest[SHA256_HEX];
  const char *name = strrchr(f->path, '/');
  if (fstat(f->map.fd, &st))
    return err_errno(err, f->path, "stat");
  memcpy(&header, f->map.data, sizeof header);
  if (header > f->map.size - sizeof header) /* it was checked; the file has changed since */
    return err_set(err, TERN_E_IO, "%s: the file changed while it was opened", f->path);
  sha256_hex(f->map.data, sizeof header + (size_t)header, digest);
  buf_addf(out, "%s %zu %lld.%09ld %s\n", name ? name + 1 : f->path, f->map.size, (long long)st.st_mtim.tv_sec,
           st.st_mtim.tv_nsec, digest);
  return add_samples(f, out, err);
}

tern_status prepared_find_place(const char *dir, const ckpt *c, const ops_layout *layout, prepared_place *out,
                                tern_error *err)
{
  buf all = {0}, path = {0};
  tern_status status = TERN_OK;
  buf_addf(&all, "tern prepared format %d layout %d\n", PREPARED_FORMAT, layout->version);
  for (size_t i = 0; i < ckpt_files(c) && status == TERN_OK; i++)
    status = add_shard(ckpt_file_at(c, i), &all, err);
  if (status == TERN_OK && !all.failed) {
    sha256_hex(all.data, all.length, out->identity);
    buf_addf(&path, "%s/%s/weights", dir, out->identity);
  }
  if (status == TERN_OK && (all.failed || path.failed))
    status = err_nomem(err, "identity of a checkpoint");
  buf_free(&all);
  if (status == TERN_OK)
    out->path = buf_take(&path);
  buf_free(&path);
  return status;
}

/* ---- opening ---- */

static tern_status broken(const prepared *p, const char *why, tern_error *err)
{
  return err_set(err, TERN_E_FORMAT, "%s: %s", p->path, why);
}

static tern_status check_entries(const prepared *p, tern_error *err)
{
  uint64_t first = sizeof *p->head + p->head->entries * sizeof *p->entries;
  for (uint32_t i = 0; i < p->head->entries; i++) {
    const prepared_entry *e = &p->entries[i];
    if (e->at % SAMPLE || e->bytes % SAMPLE || e->at < first || e->at > p->map.size || e->bytes > p->map.size - e->at)
      return broken(p, "an entry lies outside the file", err);
    if (prepared_sample(p->map.data + e->at, e->bytes) != e->sample)
      return broken(p, "its weights are damaged", err);
  }
  return TERN_OK;
}

static tern_status check_file(prepared *p, const prepared_place *place, const ops_layout *layout, tern_error *err)
{
  char digest[SHA256_HEX];
  if (p->map.size < sizeof *p->head)
    return broken(p, "shorter than its head", err);
  p->head = (const prepared_head *)(const void *)p->map.data;
  p->entries = (const prepared_entry *)(const void *)(p->map.data + sizeof *p->head);
  if (memcmp(p->head->magic, "TERNPREP", 8) != 0)
    return broken(p, "not a file of prepared weights", err);
  if (p->head->format != PREPARED_FORMAT || p->head->layout != (uint32_t)layout->version)
    return broken(p, "of another version", err);
  if (p->head->bytes != p->map.size)
    return broken(p, "not as long as its head says", err);
  if (p->head->entries > PREPARED_MOST || p->head->entries * sizeof *p->entries > p->map.size - sizeof *p->head)
    return broken(p, "shorter than its entries", err);
  if (memcmp(p->head->identity, place->identity, sizeof p->head->identity) != 0)
    return broken(p, "of another checkpoint", err);
  prepared_digest((prepared_head *)(uintptr_t)p->head, p->entries, digest);
  if (memcmp(p->head->digest, digest, sizeof p->head->digest) != 0)
    return broken(p, "its head is damaged", err);
  return check_entries(p, err);
}

tern_status prepared_open(const prepared_place *place, const ops_layout *layout, prepared **out, tern_error *err)
{
  prepared *p = mem_zalloc(sizeof *p);
  if (!p || !(p->path = mem_strdup(place->path))) {
    mem_free(p);
    return err_nomem(err, "prepared weights");
  }
  p->map = (map){.slot = -1, .fd = -1};
  tern_status status = map_open(p->path, &p->map, err);
  if (status == TERN_OK) {
    flock(p->map.fd,
          LOCK_SH | LOCK_NB); /* tells `gc` and `rm`; where there are no locks the mapping outlives a removal */
    status = check_file(p, place, layout, err);
  }
  if (status == TERN_OK)
    *out = p;
  else
    prepared_close(p);
  return status;
}

void prepared_close(prepared *p)
{
  if (!p)
    return;
  map_close(&p->map);
  mem_free(p->path);
  mem_free(p);
}

const char *prepared_path(const prepared *p)
{
  return p->path;
}

size_t prepared_bytes(const prepared *p)
{
  return p->map.size;
}

/* ---- looking up ---- */

bool prepared_source(const ckpt *c, const ops_weight *w, uint32_t *shard, uint64_t *source)
{
  for (size_t i = 0; i < ckpt_files(c); i++) {
    const map *m = &ckpt_file_at(c, i)->map;
    if ((uintptr_t)w->data < (uintptr_t)m->data || (uintptr_t)w->data >= (uintptr_t)m->data + m->size)
      continue;
    *shard = (uint32_t)i;
    *source = (uint64_t)(w->data - m->data);
    return true;
  }
  return false;
}

/* The entry of w; NULL: none. */
static const prepared_entry *find_entry(const prepared *p, const ckpt *c, const ops_weight *w)
{
  uint32_t shard;
  uint64_t source;
  if (!prepared_source(c, w, &shard, &source))
    return NULL;
  for (uint32_t i = 0; i < p->head->entries; i++) {
    const prepared_entry *e = &p->entries[i];
    if (e->source == source && e->shard == shard && e->n == (uint64_t)w->n && e->k == (uint64_t)w->k &&
        e->bits == (uint32_t)w->bits && e->group == (uint32_t)w->group && e->stored == (uint32_t)w->stored)
      return e;
  }
  return NULL;
}

const void *prepared_layout(const prepared *p, const ckpt *c, const ops_layout *layout, const ops_weight *w)
{
  size_t bytes = layout->bytes(w);
  const prepared_entry *e = bytes ? find_entry(p, c, w) : NULL;
  return e && e->bytes == bytes ? p->map.data + e->at : NULL;
}

bool prepared_has_sum(const prepared *p, const ckpt *c, const ops_weight *w, uint64_t sum)
{
  const prepared_entry *e = find_entry(p, c, w);
  return e && e->sum == sum;
}

tern_status prepared_check(const prepared *p, tern_error *err)
{
  if (p && map_broken(&p->map))
    return err_set(err, TERN_E_IO, "%s: the file shrank while it was in use", p->path);
  return TERN_OK;
}

tern_status prepared_verify(const prepared *p, tern_error *err)
{
  for (uint32_t i = 0; i < p->head->entries; i++) {
    const prepared_entry *e = &p->entries[i];
    prepared_sum sum = {0};
    prepared_sum_add(&sum, p->map.data + e->at, e->bytes);
    map_forget(&p->map, p->map.data + e->at, e->bytes);
    if (prepared_sum_end(&sum) != e->sum)
      return broken(p, "its weights are damaged", err);
  }
  return prepared_check(p, err);
}

tern_status prepared_lock(const prepared *p, tern_error *err)
{
  return mlock(p->map.data, p->map.size) ? err_errno(err, p->path, "lock in memory") : TERN_OK;
}
