/* tok_bytes.c - see tok_bytes.h. */
#include "text/tok_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/answer.h"
#include "text/parts.h"
#include "text/tok_impl.h"

/* ---- which decoders ---- */

static tern_status refuse(const tok *t, const char *what, tern_error *err)
{
  return err_set(err, TERN_E_UNSUPPORTED,
                 "%s: decoder: %s: what a token writes depends on others, so answers cannot be constrained", t->file,
                 what);
}

static tern_status check_decoder(const tok *t, tern_error *err)
{
  bool byte_step = false, joined = false;
  if (!t->has_decoder)
    return refuse(t, "there is none, and spaces come between tokens", err);
  for (size_t i = 0; i < t->n_decode; i++) {
    const decode_step *step = &t->decode[i];
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
      if (t->n_decode > 1)
        return refuse(t, "ByteLevel beside other steps", err);
      break;
    case DECODE_REPLACE:
    case DECODE_METASPACE:
      if (byte_step || joined)
        return refuse(t, "Replace or Metaspace behind a step that joins pieces", err);
      break;
    case DECODE_BYTE_FALLBACK:
      if (byte_step || joined)
        return refuse(t, "ByteFallback behind a step that joins pieces", err);
      byte_step = true;
      break;
    case DECODE_FUSE:
      joined = true;
      break;
    case DECODE_STRIP:
      if (!joined || step->stop)
        return refuse(t, "Strip of each piece, or at the end", err);
      break;
    case DECODE_WORDPIECE:
      return refuse(t, "WordPiece", err);
    case DECODE_BPE:
      return refuse(t, "BPEDecoder", err);
    case DECODE_CTC:
      return refuse(t, "CTC", err);
    }
  }
  return TERN_OK;
}

bool tok_bytes_differ(const tok *t)
{
  for (size_t i = 0; i < t->n_decode; i++)
    if ((t->decode[i].kind == DECODE_STRIP && t->decode[i].start) ||
        (t->decode[i].kind == DECODE_METASPACE && t->decode[i].drop_first))
      return true;
  return false;
}

/* ---- one token ---- */

/* As the byte-level step of detok.c: a piece with a character outside the byte alphabet is taken as it is. */
static void byte_level(tok_span piece, buf *out)
{
  size_t before = out->length;
  for (size_t i = 0; i < piece.n;) {
    uint32_t c = 0;
    size_t n = utf8_decode(piece.s + i, piece.n - i, &c);
    int byte = n ? byte_level_byte(c) : -1;
    if (byte < 0) {
      out->length = before;
      buf_add(out, piece.s, piece.n);
      return;
    }
    buf_addc(out, (char)byte);
    i += n;
  }
}

static tern_status replace(const decode_step *step, const buf *in, buf *out, tern_error *err)
{
  pattern_cursor cursor = {0};
  size_t matches;
  tern_status status = decode_replace(step, &cursor, (tok_span){in->data, in->length}, out, &matches, err);
  pattern_finish(&cursor);
  return status;
}

static void metaspace(const decode_step *step, bool first, const buf *in, buf *out)
{
  char mark[4];
  size_t n = utf8_encode(step->character, mark);
  for (size_t i = 0; i < in->length;) {
    if (in->length - i >= n && memcmp(in->data + i, mark, n) == 0) {
      if (!first || !step->drop_first)
        buf_addc(out, ' ');
      i += n;
    } else {
      buf_addc(out, in->data[i++]);
    }
  }
}

/* Of a text's beginning. */
static void strip(const decode_step *step, const buf *in, buf *out)
{
  char mark[4];
  size_t n = utf8_encode(step->character, mark), at = 0;
  for (size_t k = 0; k < step->start && in->length - at >= n && memcmp(in->data + at, mark, n) == 0; k++)
    at += n;
  buf_add(out, in->data + at, in->length - at);
}

/* piece [in]: what the token shows; out: what it writes. Both are used as scratch. */
static tern_status write_piece(const tok *t, bool first, buf *in, buf *out, tern_error *err)
{
  for (size_t i = 0; i < t->n_decode; i++) {
    const decode_step *step = &t->decode[i];
    buf_clear(out);
    buf_add(out, "", 0);
    if (step->kind == DECODE_BYTE_LEVEL)
      byte_level((tok_span){in->data, in->length}, out);
    else if (step->kind == DECODE_REPLACE)
      TRY(replace(step, in, out, err));
    else if (step->kind == DECODE_METASPACE)
      metaspace(step, first, in, out);
    else if (step->kind == DECODE_STRIP && first)
      strip(step, in, out);
    else if (step->kind == DECODE_BYTE_FALLBACK && decode_byte_piece(in->data, in->length) >= 0)
      buf_addc(out, (char)decode_byte_piece(in->data, in->length));
    else
      continue;
    buf swap = *in;
    *in = *out;
    *out = swap;
  }
  return in->failed || out->failed ? err_nomem(err, "token bytes") : TERN_OK;
}

/* Special tokens are no text, but where a marker of reasoning is one. */
static bool is_marker(const tok *t, int32_t id)
{
  size_t n = 0;
  tok_span shown = tok_shown(t, id);
  const parts_reasoning *r;
  for (size_t i = 0; shown.s && (r = parts_reasoning_at(i)); i++)
    for (int k = 0; k < 2; k++) {
      n = strlen(r->tokens[k]);
      if (n == shown.n && memcmp(shown.s, r->tokens[k], n) == 0)
        return true;
    }
  return false;
}

static bool is_of_calls(const tok *t, int32_t id)
{
  tok_span shown = tok_shown(t, id);
  return tok_is_special(t, id) && !is_marker(t, id) && answer_is_marker(shown.s, shown.n);
}

/* ---- the list ---- */

typedef struct entry {
  const char *s; /* NULL while the bytes still move */
  uint32_t at, n;
  int32_t id;
} entry;

static int by_bytes(const void *a, const void *b)
{
  const entry *x = a, *y = b;
  int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
  if (order)
    return order;
  return x->n != y->n ? (x->n < y->n ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

/* What all tokens write, in `text`; *n entries. */
static tern_status collect(const tok *t, tok_bytes *b, bool first, entry *entries, buf *text, tern_error *err)
{
  buf in = {0}, out = {0};
  int most = tok_vocab_size(t) < b->vocab ? tok_vocab_size(t) : b->vocab;
  tern_status status = TERN_OK;
  for (int32_t id = 0; id < most && status == TERN_OK; id++) {
    tok_span shown = tok_shown(t, id);
    if (!shown.s || (tok_is_special(t, id) && !is_marker(t, id) && !is_of_calls(t, id)))
      continue;
    buf_clear(&in);
    buf_add(&in, shown.s, shown.n);
    status = write_piece(t, first, &in, &out, err);
    if (status != TERN_OK || !in.length)
      continue;
    entries[b->n++] = (entry){.at = (uint32_t)text->length, .n = (uint32_t)in.length, .id = id};
    buf_add(text, in.data, in.length);
    if (text->length > UINT32_MAX / 2)
      status = err_set(err, TERN_E_LIMIT, "%s: its tokens write more than 2 GiB", t->file);
  }
  buf_free(&in);
  buf_free(&out);
  return status == TERN_OK && text->failed ? err_nomem(err, "token bytes") : status;
}

static uint32_t shared_with(const entry *a, const entry *b)
{
  uint32_t n = 0;
  while (n < a->n && n < b->n && a->s[n] == b->s[n])
    n++;
  return n;
}

static tern_status lay_out(const tok *t, tok_bytes *b, entry *entries, const buf *text, tern_error *err)
{
  for (size_t i = 0; i < b->n; i++)
    entries[i].s = text->data + entries[i].at;
  if (b->n)
    qsort(entries, b->n, sizeof *entries, by_bytes);
  b->bytes = mem_alloc(text->length + 1);
  b->offsets = mem_array(b->n + 1, sizeof *b->offsets);
  b->ids = mem_array(b->n + 1, sizeof *b->ids);
  b->of_calls = mem_array(b->n + 1, sizeof *b->of_calls);
  b->shared = mem_array(b->n + 1, sizeof *b->shared);
  if (!b->bytes || !b->offsets || !b->ids || !b->of_calls || !b->shared)
    return err_nomem(err, "token bytes");
  for (size_t i = 0; i < b->n; i++) {
    memcpy(b->bytes + b->offsets[i], entries[i].s, entries[i].n);
    b->offsets[i + 1] = b->offsets[i] + entries[i].n;
    b->ids[i] = entries[i].id;
    b->of_calls[i] = is_of_calls(t, entries[i].id);
    b->shared[i] = i ? shared_with(&entries[i - 1], &entries[i]) : 0;
    b->places[entries[i].id] = (uint32_t)i;
  }
  return TERN_OK;
}

tern_status tok_bytes_open(const tok *t, int vocab, bool first, tok_bytes **out, tern_error *err)
{
  buf text = {0};
  TRY(check_decoder(t, err));
  tok_bytes *b = mem_zalloc(sizeof *b);
  entry *entries = mem_array((size_t)vocab, sizeof *entries);
  if (b) {
    b->vocab = vocab;
    b->places = mem_alloc((size_t)vocab * sizeof *b->places);
  }
  tern_status status = b && entries && b->places ? TERN_OK : err_nomem(err, "token bytes");
  if (status == TERN_OK) {
    memset(b->places, 0xff, (size_t)vocab * sizeof *b->places);
    status = collect(t, b, first, entries, &text, err);
  }
  if (status == TERN_OK)
    status = lay_out(t, b, entries, &text, err);
  buf_free(&text);
  mem_free(entries);
  if (status == TERN_OK)
    *out = b;
  else
    tok_bytes_close(b);
  return status;
}

void tok_bytes_close(tok_bytes *b)
{
  if (!b)
    return;
  mem_free(b->bytes);
  mem_free(b->offsets);
  mem_free(b->ids);
  mem_free(b->of_calls);
  mem_free(b->shared);
  mem_free(b->places);
  mem_free(b);
}
