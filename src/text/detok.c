/* detok.c - see detok.h. The decoder's steps as a chain of stages, each fed with chunks of text.
 *
 * Up to the first step that joins pieces (Fuse, ByteLevel, ByteFallback) a chunk is one whole piece. Behind it a chunk
 * is a part of a longer string that goes on; it always holds whole characters. Steps that look at whole pieces cannot
 * work there and are refused when the stream is opened; Strip can, by counting what it may still have to take away.
 */
#include "text/detok.h"

#include <string.h>

#include "base/utf8.h"
#include "text/tok_impl.h"

typedef struct stage {
  const decode_step *step;
  char *work; /* output of one chunk */
  size_t used, capacity;
  bool over;     /* more than MOST bytes were to be written */
  size_t pieces; /* begun so far */
  char *held;    /* BPEDecoder: the piece before; CTC: the last piece seen */
  size_t n_held, held_capacity;
  bool has_held;
  uint8_t pending[8]; /* ByteLevel, ByteFallback: bytes of an unfinished character */
  size_t n_pending;
  bool in_run;        /* ByteFallback: the last chunk was of byte pieces */
  bool joined;        /* Strip, Metaspace: chunks are parts of one string */
  size_t left, marks; /* Strip, joined: marks that may still go at the start; marks held at the end */
  pattern_cursor cursor;
} stage;

struct detok {
  const tok *t;
  bool skip_special;
  stage *stages; /* n_stages, and one more that collects the text */
  size_t n_stages;
  size_t longest; /* bytes of a piece */
};

/* ---- output ---------------------------------------------------------------------------------------------------- */

enum { MOST = 16 << 20 }; /* bytes from one token: only steps that blow up the text come near it */

static bool put(stage *g, const char *s, size_t n)
{
  if (n > MOST || g->used > MOST - n) {
    g->over = true;
    return false;
  }
  if (g->used + n > g->capacity && !mem_grow(&g->work, &g->capacity, g->used + n, 1))
    return false;
  memcpy(g->work + g->used, s, n);
  g->used += n;
  return true;
}

static tern_status feed(detok *d, size_t k, const char *s, size_t n, bool begins, tern_error *err);

/* Hands on what stage k has written. */
static tern_status pass(detok *d, size_t k, bool begins, tern_error *err)
{
  stage *g = &d->stages[k];
  return feed(d, k + 1, g->work, g->used, begins, err);
}

/* ---- bytes to characters --------------------------------------------------------------------------------------- */

/* Moves whole characters from the pending bytes to the output; broken parts become U+FFFD. `end`: nothing follows. */
static bool settle(stage *g, bool end)
{
  size_t at = 0;
  bool ok = true;
  while (at < g->n_pending && ok) {
    const char *s = (const char *)g->pending + at;
    uint32_t c;
    bool incomplete = false;
    size_t n = utf8_decode(s, g->n_pending - at, &c);
    if (n)
      ok = put(g, s, n);
    else {
      n = utf8_broken(s, g->n_pending - at, &incomplete);
      if (incomplete && !end)
        break;
      ok = put(g, "\xef\xbf\xbd", 3);
    }
    at += n;
  }
  memmove(g->pending, g->pending + at, g->n_pending - at);
  g->n_pending -= at;
  return ok;
}

static bool add_byte(stage *g, uint8_t byte)
{
  g->pending[g->n_pending++] = byte;
  return settle(g, false);
}

static bool add_bytes(stage *g, const char *s, size_t n)
{
  bool ok = true;
  for (size_t i = 0; i < n && ok; i++)
    ok = add_byte(g, (uint8_t)s[i]);
  return ok;
}

static bool is_byte_text(const char *s, size_t n)
{
  for (size_t i = 0; i < n;) {
    uint32_t c = 0;
    size_t length = utf8_decode(s + i, n - i, &c);
    if (!length || byte_level_byte(c) < 0)
      return false;
    i += length;
  }
  return true;
}

static bool byte_level(stage *g, const char *s, size_t n)
{
  if (!is_byte_text(s, n))
    return add_bytes(g, s, n);
  bool ok = true;
  for (size_t i = 0; i < n && ok;) {
    uint32_t c = 0;
    i += utf8_decode(s + i, n - i, &c);
    ok = add_byte(g, (uint8_t)byte_level_byte(c));
  }
  return ok;
}

static tern_status byte_fallback(detok *d, size_t k, const char *s, size_t n, tern_error *err)
{
  stage *g = &d->stages[k];
  int byte = decode_byte_piece(s, n);
  if (byte >= 0) {
    bool begins = !g->in_run;
    g->in_run = true;
    return add_byte(g, (uint8_t)byte) ? pass(d, k, begins, err) : err_nomem(err, "text");
  }
  if (g->in_run) {
    g->in_run = false;
    if (!settle(g, true))
      return err_nomem(err, "text");
    TRY(pass(d, k, false, err));
  }
  return feed(d, k + 1, s, n, true, err);
}

/* ---- the other steps ------------------------------------------------------------------------------------------- */

static tern_status replace(stage *g, const char *s, size_t n, tern_error *err)
{
  size_t begin = 0, end = 0, done = 0;
  bool found, ok = true;
  pattern_start(&g->cursor, g->step->pattern, s, n);
  while (n && ok) {
    TRY(pattern_next(&g->cursor, &found, &begin, &end, err));
    if (!found)
      break;
    ok = put(g, s + done, begin - done) && put(g, g->step->text.s, g->step->text.n);
    done = end;
  }
  return ok && put(g, s + done, n - done) ? TERN_OK : err_nomem(err, "text");
}

static bool strip_piece(stage *g, const char *s, size_t n, const char *mark, size_t n_mark)
{
  for (size_t k = 0; k < g->step->start && n >= n_mark && memcmp(s, mark, n_mark) == 0; k++) {
    s += n_mark;
    n -= n_mark;
  }
  for (size_t k = 0; k < g->step->stop && n >= n_mark && memcmp(s + n - n_mark, mark, n_mark) == 0; k++)
    n -= n_mark;
  return put(g, s, n);
}

/* Takes up to `start` marks from the start of the string, and holds up to `stop` marks, which go if nothing follows. */
static bool strip_joined(stage *g, const char *s, size_t n, const char *mark, size_t n_mark)
{
  bool ok = true;
  for (size_t i = 0; i < n && ok;) {
    bool is_mark = n - i >= n_mark && memcmp(s + i, mark, n_mark) == 0;
    if (is_mark && g->left) {
      g->left--;
      i += n_mark;
      continue;
    }
    g->left = 0;
    if (is_mark && g->marks < g->step->stop) {
      g->marks++;
      i += n_mark;
      continue;
    }
    if (is_mark) { /* one more than may go: the first of those held is certain */
      ok = put(g, mark, n_mark);
      i += n_mark;
      continue;
    }
    for (; g->marks && ok; g->marks--)
      ok = put(g, mark, n_mark);
    ok = ok && put(g, s + i, 1);
    i++;
  }
  return ok;
}

static bool strip(stage *g, const char *s, size_t n)
{
  char mark[4];
  size_t n_mark = utf8_encode(g->step->character, mark);
  return g->joined ? strip_joined(g, s, n, mark, n_mark) : strip_piece(g, s, n, mark, n_mark);
}

static bool metaspace(stage *g, const char *s, size_t n)
{
  char mark[4];
  size_t n_mark = utf8_encode(g->step->character, mark);
  bool ok = true, drop = g->pieces <= 1 && g->step->drop_first;
  for (size_t i = 0; i < n && ok;) {
    if (n - i >= n_mark && memcmp(s + i, mark, n_mark) == 0) {
      ok = drop || put(g, " ", 1);
      i += n_mark;
    } else
      ok = put(g, s + i++, 1);
  }
  return ok;
}

static bool wordpiece(stage *g, const char *s, size_t n)
{
  const decode_step *step = g->step;
  bool joins = n >= step->text.n && memcmp(s, step->text.s, step->text.n) == 0, ok = true;
  if (g->pieces > 1 && joins) {
    s += step->text.n;
    n -= step->text.n;
  } else if (g->pieces > 1)
    ok = put(g, " ", 1);
  ok = ok && put(g, s, n);
  if (ok && step->cleanup)
    g->used = decode_cleanup(g->work, g->used);
  return ok;
}

static bool put_replaced(stage *g, const char *s, size_t n, tok_span what, const char *by)
{
  bool ok = true;
  for (size_t i = 0; i < n && ok;) {
    if (n - i >= what.n && memcmp(s + i, what.s, what.n) == 0) {
      ok = put(g, by, strlen(by));
      i += what.n;
    } else
      ok = put(g, s + i++, 1);
  }
  return ok;
}

static bool hold(stage *g, const char *s, size_t n)
{
  if (n > g->held_capacity && !mem_grow(&g->held, &g->held_capacity, n, 1))
    return false;
  memcpy(g->held, s, n);
  g->n_held = n;
  g->has_held = true;
  return true;
}

/* The suffix of every piece but the last becomes a space: the piece before is sent when the next one comes. */
static tern_status bpe_suffix(detok *d, size_t k, const char *s, size_t n, tern_error *err)
{
  stage *g = &d->stages[k];
  bool had = g->has_held;
  if (had && !put_replaced(g, g->held, g->n_held, g->step->text, " "))
    return err_nomem(err, "text");
  if (!hold(g, s, n))
    return err_nomem(err, "text");
  return had ? pass(d, k, true, err) : TERN_OK;
}

static tern_status ctc(detok *d, size_t k, const char *s, size_t n, tern_error *err)
{
  stage *g = &d->stages[k];
  if (g->has_held && g->n_held == n && memcmp(g->held, s, n) == 0)
    return TERN_OK;
  if (!hold(g, s, n) || !put_replaced(g, s, n, g->step->text, ""))
    return err_nomem(err, "text");
  if (g->step->cleanup) {
    g->used = decode_cleanup(g->work, g->used);
    size_t out = 0;
    tok_span what = g->step->text2;
    for (size_t i = 0; i < g->used;) {
      bool hit = g->used - i >= what.n && memcmp(g->work + i, what.s, what.n) == 0;
      g->work[out++] = hit ? ' ' : g->work[i];
      i += hit ? what.n : 1;
    }
    g->used = out;
  }
  return g->used ? pass(d, k, true, err) : TERN_OK;
}

static tern_status feed(detok *d, size_t k, const char *s, size_t n, bool begins, tern_error *err)
{
  stage *g = &d->stages[k];
  bool ok = true;
  g->pieces += begins;
  if (k == d->n_stages) { /* without a decoder, pieces are joined by spaces */
    ok = (d->t->has_decoder || !begins || g->pieces == 1 || put(g, " ", 1)) && put(g, s, n);
    return ok ? TERN_OK : err_nomem(err, "text");
  }
  g->used = 0;
  switch (g->step->kind) {
  case DECODE_BYTE_FALLBACK:
    return byte_fallback(d, k, s, n, err);
  case DECODE_BPE:
    return bpe_suffix(d, k, s, n, err);
  case DECODE_CTC:
    return ctc(d, k, s, n, err);
  case DECODE_FUSE:
    return feed(d, k + 1, s, n, g->pieces == 1 && begins, err);
  case DECODE_BYTE_LEVEL:
    ok = byte_level(g, s, n);
    begins = begins && g->pieces == 1;
    break;
  case DECODE_REPLACE:
    TRY(replace(g, s, n, err));
    break;
  case DECODE_STRIP:
    ok = strip(g, s, n);
    break;
  case DECODE_METASPACE:
    ok = metaspace(g, s, n);
    break;
  case DECODE_WORDPIECE:
    ok = wordpiece(g, s, n);
    break;
  }
  return ok ? pass(d, k, begins, err) : err_nomem(err, "text");
}

/* What stage k holds back becomes certain. */
static tern_status flush(detok *d, size_t k, tern_error *err)
{
  stage *g = &d->stages[k];
  g->used = 0;
  if (g->n_pending) {
    if (!settle(g, true))
      return err_nomem(err, "text");
    return pass(d, k, false, err);
  }
  if (g->step->kind == DECODE_BPE && g->has_held) {
    if (!put_replaced(g, g->held, g->n_held, g->step->text, ""))
      return err_nomem(err, "text");
    return pass(d, k, true, err);
  }
  return TERN_OK;
}

/* ---- the stream ------------------------------------------------------------------------------------------------ */

static void reset(detok *d)
{
  for (size_t k = 0; k <= d->n_stages; k++) {
    stage *g = &d->stages[k];
    g->used = g->pieces = g->n_pending = g->marks = 0;
    g->has_held = g->in_run = false;
    g->left = g->step ? g->step->start : 0;
  }
}

static tern_status not_streamed(const detok *d, const char *what, tern_error *err)
{
  return err_set(err, TERN_E_UNSUPPORTED, "%s: decoder: %s cannot be streamed", d->t->file, what);
}

static bool single_character(const tok_pattern *p)
{
  uint32_t c;
  size_t n;
  const char *s = pattern_text(p, &n);
  return s && n && utf8_decode(s, n, &c) == n;
}

/* Room for the longest piece, so that a usual decoder allocates nothing later. */
static bool make_room(stage *g, size_t room)
{
  bool holds = g->step && (g->step->kind == DECODE_BPE || g->step->kind == DECODE_CTC);
  return mem_grow(&g->work, &g->capacity, room, 1) && (!holds || mem_grow(&g->held, &g->held_capacity, room, 1));
}

/* Which steps can stand where, and how much room their output needs. */
static tern_status plan(detok *d, tern_error *err)
{
  bool parts = false, one = false; /* chunks may be parts of a piece; all chunks are parts of one */
  size_t room = d->longest + 16;
  for (size_t k = 0; k <= d->n_stages; k++) {
    stage *g = &d->stages[k];
    if (k < d->n_stages) {
      g->step = &d->t->decode[k];
      g->joined = one;
      decode_kind kind = g->step->kind;
      if (parts && (kind == DECODE_WORDPIECE || kind == DECODE_BPE || kind == DECODE_CTC || kind == DECODE_BYTE_LEVEL ||
                    kind == DECODE_BYTE_FALLBACK))
        return not_streamed(d, "a step on pieces behind one that joins them", err);
      if (parts && kind == DECODE_REPLACE && !single_character(g->step->pattern))
        return not_streamed(d, "a Replace of more than one character behind a step that joins pieces", err);
      if (parts && !one && kind == DECODE_STRIP)
        return not_streamed(d, "Strip between ByteFallback and Fuse", err);
      parts = parts || kind == DECODE_FUSE || kind == DECODE_BYTE_LEVEL || kind == DECODE_BYTE_FALLBACK;
      one = one || kind == DECODE_FUSE || kind == DECODE_BYTE_LEVEL;
      if (kind == DECODE_REPLACE)
        room += (room + 1) * g->step->text.n;
      if (kind == DECODE_BYTE_LEVEL) /* each broken byte becomes three */
        room *= 3;
      room += 16;
      if (room > 1 << 20) /* a strange decoder: grow when needed */
        room = 1 << 20;
    }
    if (!make_room(g, room))
      return err_nomem(err, "text");
  }
  return TERN_OK;
}

tern_status detok_open(const tok *t, bool skip_special, detok **out, tern_error *err)
{
  detok *d = mem_zalloc(sizeof *d);
  if (!d)
    return err_nomem(err, "text");
  *d = (detok){.t = t, .skip_special = skip_special, .n_stages = t->n_decode, .longest = t->longest_shown};
  d->stages = mem_array(d->n_stages + 1, sizeof *d->stages);
  tern_status status = d->stages ? plan(d, err) : err_nomem(err, "text");
  if (status != TERN_OK) {
    detok_close(d);
    return status;
  }
  reset(d);
  *out = d;
  return TERN_OK;
}

void detok_close(detok *d)
{
  if (!d)
    return;
  for (size_t k = 0; d->stages && k <= d->n_stages; k++) {
    mem_free(d->stages[k].work);
    mem_free(d->stages[k].held);
    pattern_finish(&d->stages[k].cursor);
  }
  mem_free(d->stages);
  mem_free(d);
}

/* The steps tell a text that does not fit from memory that ran out by a mark alone; here it becomes the error's line.
 */
static tern_status explain(detok *d, tern_status status, tern_error *err)
{
  bool over = false;
  for (size_t k = 0; k <= d->n_stages; k++) {
    over = over || d->stages[k].over;
    d->stages[k].over = false;
  }
  return over ? err_set(err, TERN_E_LIMIT, "text: the tokenizer's decoder makes more than %d MiB of one token",
                        MOST >> 20)
              : status;
}

tern_status detok_push(detok *d, int32_t id, const char **text, size_t *length, tern_error *err)
{
  stage *last = &d->stages[d->n_stages];
  last->used = 0;
  *text = last->work;
  *length = 0;
  if (id < 0)
    return err_set(err, TERN_E_USAGE, "ids: %d is no token id", id);
  if (d->skip_special && tok_is_special(d->t, id))
    return TERN_OK;
  tok_span piece = tok_shown(d->t, id);
  if (!piece.s)
    return TERN_OK;
  TRY(explain(d, feed(d, 0, piece.s, piece.n, true, err), err));
  *text = last->work;
  *length = last->used;
  return TERN_OK;
}

tern_status detok_finish(detok *d, const char **text, size_t *length, tern_error *err)
{
  stage *last = &d->stages[d->n_stages];
  last->used = 0;
  tern_status status = TERN_OK;
  for (size_t k = 0; k < d->n_stages && status == TERN_OK; k++)
    status = explain(d, flush(d, k, err), err);
  *text = last->work;
  *length = last->used;
  reset(d);
  return status;
}
