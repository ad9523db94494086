/* tok_vocab.c - see tok_vocab.h. */
#include "text/tok_vocab.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { BATCH = 32 }; /* look-ups in flight: enough to hide a cache miss, few enough to stay in the first cache */

/* Copies the bytes of entries behind those already there and sets their pieces. */
static tern_status add_pieces(tok_vocab *v, const vocab_entry *entries, size_t n, tern_error *err)
{
  size_t bytes = v->n_bytes, size = v->size;
  for (size_t i = 0; i < n; i++) {
    bytes += entries[i].n;
    if (entries[i].id >= size)
      size = (size_t)entries[i].id + 1;
  }
  if (bytes > UINT32_MAX)
    return err_set(err, TERN_E_LIMIT, "vocabulary: more than 4 GiB of pieces");
  char *all = mem_realloc(v->bytes, bytes + 1);
  if (!all)
    return err_nomem(err, "the tokenizer's vocabulary");
  v->bytes = all;
  vocab_piece *pieces = mem_realloc(v->pieces, (size + 1) * sizeof *pieces);
  if (!pieces)
    return err_nomem(err, "the tokenizer's vocabulary");
  v->pieces = pieces;
  memset(pieces + v->size, 0xff, (size - v->size) * sizeof *pieces);
  v->size = (uint32_t)size;
  for (size_t i = 0; i < n; i++) {
    memcpy(all + v->n_bytes, entries[i].s, entries[i].n);
    pieces[entries[i].id] = (vocab_piece){(uint32_t)v->n_bytes, entries[i].n};
    v->n_bytes += entries[i].n;
  }
  return TERN_OK;
}

static bool same(const tok_vocab *v, uint32_t id, const char *s, size_t n)
{
  return v->pieces[id].length == n && memcmp(v->bytes + v->pieces[id].offset, s, n) == 0;
}

/* Puts one entry in the table; *old gets the id that the piece had before, or -1. */
static void insert(tok_vocab *v, const vocab_entry *e, uint32_t hash, int32_t *old)
{
  *old = -1;
  size_t i = hash & v->mask;
  for (; v->slots[i]; i = (i + 1) & v->mask) {
    uint32_t id = (uint32_t)v->slots[i] - 1;
    if ((uint32_t)(v->slots[i] >> 32) == hash && same(v, id, e->s, e->n)) {
      *old = (int32_t)id;
      break;
    }
  }
  v->slots[i] = (uint64_t)hash << 32 | (e->id + 1);
  v->count += *old < 0;
}

static tern_status twice(const tok_vocab *v, uint32_t id, const vocab_entry *e, const char *file, tern_error *err)
{
  return err_set(err, TERN_E_FORMAT, "%s: model.vocab: id %u belongs to two pieces, '%.*s' and '%.*s'", file, id,
                 (int)(v->pieces[id].length < 80 ? v->pieces[id].length : 80), v->bytes + v->pieces[id].offset,
                 (int)(e->n < 80 ? e->n : 80), e->s);
}

static tern_status insert_all(tok_vocab *v, const vocab_entry *entries, size_t n, bool keep_twins, const char *file,
                              tern_error *err)
{
  uint32_t hashes[BATCH];
  for (size_t base = 0; base < n; base += BATCH) {
    size_t count = n - base < BATCH ? n - base : BATCH;
    for (size_t i = 0; i < count; i++)
      hashes[i] = vocab_hash(v, entries[base + i].s, entries[base + i].n);
    for (size_t i = 0; i < count; i++) {
      const vocab_entry *e = &entries[base + i];
      /* add_pieces left the last entry of each id in place: another piece there means that two share the id. */
      if (!same(v, e->id, e->s, e->n))
        return twice(v, e->id, e, file, err);
      int32_t old;
      insert(v, e, hashes[i], &old);
      if (old >= 0 && (uint32_t)old != e->id && !keep_twins)
        v->pieces[old].length = UINT32_MAX;
    }
  }
  return TERN_OK;
}

tern_status vocab_build(tok_vocab *v, const vocab_entry *entries, size_t n, bool keep_twins, const char *file,
                        tern_error *err)
{
  size_t slots = 64;
  while (slots < 2 * n)
    slots *= 2;
  v->slots = mem_array(slots, sizeof *v->slots);
  if (!v->slots)
    return err_nomem(err, "the tokenizer's vocabulary");
  v->mask = slots - 1;
  TRY(add_pieces(v, entries, n, err));
  return insert_all(v, entries, n, keep_twins, file, err);
}

tern_status vocab_append(tok_vocab *v, const vocab_entry *entries, size_t n, tern_error *err)
{
  return add_pieces(v, entries, n, err);
}

void vocab_free(tok_vocab *v)
{
  mem_free(v->bytes);
  mem_free(v->pieces);
  mem_free(v->slots);
  *v = (tok_vocab){0};
}

static uint64_t load(const char *s, size_t n)
{
  uint64_t word = 0;
  uint32_t half;
  if (n == 8)
    memcpy(&word, s, 8);
  else {
    memcpy(&half, s, 4);
    word = half;
  }
  return word;
}

/* Nearly all pieces are shorter than 17 bytes: two loads that may overlap take them in, without a loop. */
static uint32_t hash_piece(const char *s, size_t n)
{
  uint64_t first, last;
  if (n > 16)
    return hash_bytes(s, n);
  if (n >= 8) {
    first = load(s, 8);
    last = load(s + n - 8, 8);
  } else if (n >= 4) {
    first = load(s, 4);
    last = load(s + n - 4, 4);
  } else {
    first = n ? (uint64_t)(uint8_t)s[0] | (uint64_t)(uint8_t)s[n / 2] << 8 | (uint64_t)(uint8_t)s[n - 1] << 16 : 0;
    last = 0;
  }
  uint64_t h = (first ^ (n * 0x9e3779b97f4a7c15u)) * 0xd6e8feb86659fd93u;
  h = (h ^ h >> 29 ^ last) * 0xd6e8feb86659fd93u;
  return (uint32_t)(h >> 32);
}

uint32_t vocab_hash(const tok_vocab *v, const char *s, size_t n)
{
  uint32_t hash = hash_piece(s, n);
  __builtin_prefetch(&v->slots[hash & v->mask]);
  return hash;
}

void vocab_fetch(const tok_vocab *v, uint32_t hash)
{
  uint64_t slot = v->slots[hash & v->mask];
  if (slot)
    __builtin_prefetch(v->bytes + v->pieces[(uint32_t)slot - 1].offset);
}

int32_t vocab_find_hashed(const tok_vocab *v, const char *s, size_t n, uint32_t hash)
{
  for (size_t i = hash & v->mask; v->slots[i]; i = (i + 1) & v->mask) {
    uint32_t id = (uint32_t)v->slots[i] - 1;
    if ((uint32_t)(v->slots[i] >> 32) == hash && same(v, id, s, n))
      return (int32_t)id;
  }
  return -1;
}

int32_t vocab_find(const tok_vocab *v, const char *s, size_t n)
{
  return vocab_find_hashed(v, s, n, vocab_hash(v, s, n));
}
