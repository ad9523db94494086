/* tok_vocab.h - pieces by id, and ids by piece.
 *
 * Made for vocabularies of a quarter million pieces that must stand within milliseconds: all bytes in one block, one
 * array of (offset, length) by id, one hash table of 8-byte slots; no allocation per piece.
 */
#ifndef TERN_TEXT_TOK_VOCAB_H
#define TERN_TEXT_TOK_VOCAB_H

#include "base/status.h"

enum { TOK_MAX_ID = 1 << 22 }; /* ids stay below: a file of a few bytes must not ask for gigabytes */

typedef struct vocab_entry { /* as a file lists them; the bytes need to live during vocab_build only */
  const char *s;
  uint32_t n;
  uint32_t id;
} vocab_entry;

typedef struct vocab_piece {
  uint32_t offset, length; /* length UINT32_MAX: no such id */
} vocab_piece;

typedef struct tok_vocab {
  char *bytes;
  size_t n_bytes;
  vocab_piece *pieces; /* [size] */
  uint32_t size;       /* largest id + 1 */
  uint64_t *slots;     /* hash << 32 | id + 1, 0: free; linear probing */
  size_t mask;
  size_t count; /* pieces that can be found */
} tok_vocab;

/* A piece that is listed twice is found under its last id, as in the reference; its first id then is a hole, or with
 * keep_twins still shows the piece. Two pieces of one id are refused. `file` is for the error line. */
tern_status vocab_build(tok_vocab *v, const vocab_entry *entries, size_t n, bool keep_twins, const char *file,
                        tern_error *err);
/* Adds pieces that can be listed but not found (added tokens have their own table). */
tern_status vocab_append(tok_vocab *v, const vocab_entry *entries, size_t n, tern_error *err);
void vocab_free(tok_vocab *v);

/* The id of a piece, or -1. */
int32_t vocab_find(const tok_vocab *v, const char *s, size_t n);
/* The same in two halves, so that many look-ups can wait for memory together. */
uint32_t vocab_hash(const tok_vocab *v, const char *s, size_t n); /* and starts to fetch the slot */
void vocab_fetch(const tok_vocab *v, uint32_t hash);              /* between the two: fetches the piece */
int32_t vocab_find_hashed(const tok_vocab *v, const char *s, size_t n, uint32_t hash);

static inline const char *vocab_get(const tok_vocab *v, uint32_t id, size_t *n)
{
  if (id >= v->size || v->pieces[id].length == UINT32_MAX)
    return NULL;
  *n = v->pieces[id].length;
  return v->bytes + v->pieces[id].offset;
}

#endif
