/* tok_bytes.h - the bytes that each token writes into a text, sorted: what a grammar (grammar.h) is held against.
 *
 * They are what the streaming detokenizer (detok.h) writes for the token, before broken characters are replaced: a
 * token may hold a part of a character. Where a decoder drops a space at the beginning of a text, a text's first token
 * writes other bytes than later ones: then there are two lists.
 *
 * Only decoders that write each token without regard to its neighbours have such lists: ByteLevel; and Replace,
 * Metaspace, ByteFallback, Fuse and Strip in the order of SentencePiece models. Others are refused. Tokens that write
 * nothing are in no list, nor are special ones, but for those that begin and end reasoning (parts.h), and those that
 * formats of calls have (answer.h), which are marked: an answer that makes no calls is not to have them.
 */
#ifndef TERN_TEXT_TOK_BYTES_H
#define TERN_TEXT_TOK_BYTES_H

#include "text/tok.h"

typedef struct tok_bytes {
  char *bytes;
  uint32_t *offsets; /* [n + 1], in `bytes` */
  int32_t *ids;      /* [n], by their bytes, ascending */
  bool *of_calls;    /* [n]: a special token */
  uint32_t *shared;  /* [n]: leading bytes that it has of the one before */
  size_t n;
  uint32_t *places; /* [vocab]: of an id in the list; UINT32_MAX: in none */
  int vocab;
} tok_bytes;

/* Ids below `vocab`. first: of a text's first token. TERN_E_UNSUPPORTED names the step. */
tern_status tok_bytes_open(const tok *t, int vocab, bool first, tok_bytes **out, tern_error *err);
void tok_bytes_close(tok_bytes *b); /* NULL is fine */
/* Whether a first token may write other bytes. */
bool tok_bytes_differ(const tok *t);
/* The bytes of an id; NULL: in no list. */
static inline const char *tok_bytes_of(const tok_bytes *b, int32_t id, size_t *n)
{
  uint32_t place = id >= 0 && id < b->vocab ? b->places[id] : UINT32_MAX;
  if (place == UINT32_MAX)
    return NULL;
  *n = b->offsets[place + 1] - b->offsets[place];
  return b->bytes + b->offsets[place];
}

#endif
