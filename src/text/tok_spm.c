/* tok_spm.c - reads SentencePiece models (tokenizer.model), kinds BPE and Unigram.
 *
 * The file is a protocol buffer: pieces with a score and a type, how the model was trained, how text is normalised. It
 * is turned into the same compiled form as a tokenizer.json: the normaliser's steps (character map, white space, the
 * dummy prefix, the space mark), the model, and the decoder that undoes them. Words are not cut beforehand.
 *
 * A BPE model lists no merges: any two neighbours whose joined text is a piece may be merged, the highest score first.
 * So each piece gives a merge for every way to cut it in two pieces, with the rank of its score. Control and
 * user-defined pieces become added tokens, so that they are found in text; byte and unused pieces never are.
 *
 * Refused: word and character models, white space as a suffix or not escaped, a denormaliser.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tok_impl.h"

typedef enum piece_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE } piece_type;

typedef struct spm {
  tok *t;
  tern_error *err;
  vocab_entry *pieces;
  double *scores;
  uint8_t *types;
  size_t count, pieces_capacity, scores_capacity, types_capacity;
  uint64_t kind; /* 1 Unigram, 2 BPE */
  bool byte_fallback, suffix;
  int64_t bos, eos, unk, pad;
  tok_span charsmap, denormalizer;
  bool dummy_prefix, remove_extra, escape;
} spm;

/* ---- protocol buffers ------------------------------------------------------------------------------------------ */

typedef struct field {
  uint64_t number, value; /* value: varints and fixed-size fields */
  int wire;
  tok_span bytes; /* wire type 2 */
} field;

static bool read_varint(tok_span *in, uint64_t *out)
{
  *out = 0;
  for (int shift = 0; shift < 64 && in->n; shift += 7) {
    uint8_t b = (uint8_t)*in->s++;
    in->n--;
    *out |= (uint64_t)(b & 0x7f) << shift;
    if (!(b & 0x80))
      return true;
  }
  return false;
}

/* The next field of a message. False with in->n == 0: the end; else: damaged. */
static bool read_field(tok_span *in, field *f)
{
  uint64_t tag, size = 0;
  tok_span rest = *in;
  if (!in->n || !read_varint(&rest, &tag))
    return false;
  *f = (field){.number = tag >> 3, .wire = (int)(tag & 7)};
  switch (f->wire) {
  case 0:
    if (!read_varint(&rest, &f->value))
      return false;
    break;
  case 1:
  case 5:
    size = f->wire == 1 ? 8 : 4;
    if (rest.n < size)
      return false;
    for (size_t i = size; i-- > 0;)
      f->value = f->value << 8 | (uint8_t)rest.s[i];
    break;
  case 2:
    if (!read_varint(&rest, &size) || size > rest.n)
      return false;
    f->bytes = (tok_span){rest.s, size};
    break;
  default:
    return false;
  }
  if (f->wire) {
    rest.s += size;
    rest.n -= size;
  }
  *in = rest;
  return true;
}

static tern_status damaged(const spm *m, const char *what)
{
  return err_set(m->err, TERN_E_FORMAT, "%s: not a SentencePiece model: %s is damaged", m->t->file, what);
}

static tern_status unsupported(const spm *m, const char *what)
{
  return err_set(m->err, TERN_E_UNSUPPORTED, "%s: SentencePiece model: %s", m->t->file, what);
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

static tern_status read_piece(spm *m, tok_span in)
{
  vocab_entry piece = {"", 0, (uint32_t)m->count};
  uint32_t bits = 0;
  float score;
  uint64_t type = NORMAL;
  field f;
  while (read_field(&in, &f)) {
    if (f.number == 1 && f.wire == 2)
      piece = (vocab_entry){f.bytes.s, (uint32_t)f.bytes.n, (uint32_t)m->count};
    else if (f.number == 2 && f.wire == 5)
      bits = (uint32_t)f.value;
    else if (f.number == 3 && f.wire == 0)
      type = f.value;
  }
  memcpy(&score, &bits, 4);
  if (in.n || piece.n == 0 || piece.n > 65535 || !utf8_valid(piece.s, piece.n, NULL) || type < NORMAL || type > BYTE ||
      !(score >= -1e30f && score <= 1e30f))
    return damaged(m, "a piece");
  if (m->count >= TOK_MAX_ID)
    return err_set(m->err, TERN_E_LIMIT, "%s: more than 4194304 pieces", m->t->file);
  if (!mem_grow(&m->pieces, &m->pieces_capacity, m->count + 1, sizeof *m->pieces) ||
      !mem_grow(&m->scores, &m->scores_capacity, m->count + 1, sizeof *m->scores) ||
      !mem_grow(&m->types, &m->types_capacity, m->count + 1, 1))
    return err_nomem(m->err, m->t->file);
  m->pieces[m->count] = piece;
  m->scores[m->count] = (double)score;
  m->types[m->count++] = (uint8_t)type;
  return TERN_OK;
}

static tern_status read_trainer(spm *m, tok_span in)
{
  field f;
  while (read_field(&in, &f)) {
    int64_t id = (int64_t)f.value;
    if (f.wire != 0)
      continue;
    switch (f.number) {
    case 3:
      m->kind = f.value;
      break;
    case 24:
      m->suffix = f.value != 0;
      break;
    case 35:
      m->byte_fallback = f.value != 0;
      break;
    case 40:
      m->unk = id;
      break;
    case 41:
      m->bos = id;
      break;
    case 42:
      m->eos = id;
      break;
    case 43:
      m->pad = id;
      break;
    default:
      break;
    }
  }
  return in.n ? damaged(m, "the trainer's part") : TERN_OK;
}

static tern_status read_normalizer(spm *m, tok_span in)
{
  field f;
  while (read_field(&in, &f)) {
    if (f.number == 2 && f.wire == 2)
      m->charsmap = f.bytes;
    else if (f.number == 3 && f.wire == 0)
      m->dummy_prefix = f.value != 0;
    else if (f.number == 4 && f.wire == 0)
      m->remove_extra = f.value != 0;
    else if (f.number == 5 && f.wire == 0)
      m->escape = f.value != 0;
  }
  return in.n ? damaged(m, "the normaliser's part") : TERN_OK;
}

static tern_status read_denormalizer(spm *m, tok_span in)
{
  field f;
  while (read_field(&in, &f))
    if (f.number == 2 && f.wire == 2)
      m->denormalizer = f.bytes;
  return in.n ? damaged(m, "the denormaliser's part") : TERN_OK;
}

static tern_status read_model(spm *m, tok_span in)
{
  field f;
  while (read_field(&in, &f)) {
    if (f.wire != 2)
      continue;
    switch (f.number) {
    case 1:
      TRY(read_piece(m, f.bytes));
      break;
    case 2:
      TRY(read_trainer(m, f.bytes));
      break;
    case 3:
      TRY(read_normalizer(m, f.bytes));
      break;
    case 5:
      TRY(read_denormalizer(m, f.bytes));
      break;
    default:
      break;
    }
  }
  if (in.n || !m->count)
    return damaged(m, m->count ? "the end" : "the list of pieces");
  if (m->kind != 1 && m->kind != 2)
    return unsupported(m, m->kind == 3 ? "word models are not read" : "character models are not read");
  if (m->suffix || !m->escape)
    return unsupported(m, "white space as a suffix, or not escaped, is not read");
  return m->denormalizer.n ? unsupported(m, "a denormaliser is not read") : TERN_OK;
}

/* ---- text steps ------------------------------------------------------------------------------------------------ */

static const tok_span space_mark = {"\xe2\x96\x81", 3};

static tern_status replace_step(spm *m, const char *regex, const char *literal, tok_span by)
{
  tok *t = m->t;
  norm_step *step = &t->norm[t->n_norm++];
  *step = (norm_step){.kind = NORM_REPLACE, .text = by};
  TRY(regex ? pattern_regex(t->file, regex, strlen(regex), &step->pattern, m->err)
            : pattern_literal(literal, strlen(literal), &step->pattern, m->err));
  pattern_link(&t->patterns, step->pattern);
  return TERN_OK;
}

static tern_status make_normalizer(spm *m)
{
  tok *t = m->t;
  t->norm = mem_array(8, sizeof *t->norm);
  if (!t->norm)
    return err_nomem(m->err, "normalizer");
  if (m->charsmap.n)
    TRY(charsmap_from_bytes(t, (const uint8_t *)m->charsmap.s, m->charsmap.n, &t->norm[t->n_norm++], m->err));
  if (m->remove_extra) {
    TRY(replace_step(m, " {2,}", NULL, (tok_span){" ", 1}));
    TRY(replace_step(m, "\\A | \\z", NULL, (tok_span){"", 0}));
  }
  if (m->dummy_prefix)
    t->norm[t->n_norm++] = (norm_step){.kind = NORM_PREPEND, .text = space_mark};
  return replace_step(m, NULL, " ", space_mark);
}

static tern_status make_decoder(spm *m)
{
  tok *t = m->t;
  t->decode = mem_array(4, sizeof *t->decode);
  if (!t->decode)
    return err_nomem(m->err, "decoder");
  t->has_decoder = true;
  decode_step replace = {.kind = DECODE_REPLACE, .text = {" ", 1}};
  TRY(pattern_literal(space_mark.s, space_mark.n, &replace.pattern, m->err));
  pattern_link(&t->patterns, replace.pattern);
  t->decode[t->n_decode++] = replace;
  t->decode[t->n_decode++] = (decode_step){.kind = DECODE_BYTE_FALLBACK};
  t->decode[t->n_decode++] = (decode_step){.kind = DECODE_FUSE};
  if (m->dummy_prefix || m->remove_extra)
    t->decode[t->n_decode++] =
        (decode_step){.kind = DECODE_STRIP, .character = ' ', .start = m->remove_extra ? UINT32_MAX : 1};
  return TERN_OK;
}

/* ---- models ---------------------------------------------------------------------------------------------------- */

typedef struct ranked {
  double score;
  uint32_t id;
} ranked;

static int by_score(const void *a, const void *b)
{
  const ranked *x = a, *y = b;
  if (x->score != y->score)
    return x->score > y->score ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_normal(const spm *m, int32_t id)
{
  return id >= 0 && m->types[id] == NORMAL;
}

/* Every way to cut the piece in two pieces. */
static bool add_cuts(spm *m, const ranked *piece, uint32_t rank, bpe_ids **merges, size_t *n, size_t *capacity)
{
  const vocab_entry *e = &m->pieces[piece->id];
  for (size_t i = 1; i < e->n; i++) {
    if (((uint8_t)e->s[i] & 0xc0) == 0x80)
      continue;
    int32_t left = vocab_find(&m->t->vocab, e->s, i);
    if (!is_normal(m, left))
      continue;
    int32_t right = vocab_find(&m->t->vocab, e->s + i, e->n - i);
    if (!is_normal(m, right))
      continue;
    if (!mem_grow(merges, capacity, *n + 1, sizeof **merges))
      return false;
    (*merges)[(*n)++] = (bpe_ids){(uint32_t)left, (uint32_t)right, rank, piece->id};
  }
  return true;
}

/* A piece of n bytes is cut in n places, and each cut looks up n bytes. Real models, with pieces of some dozens of
 * bytes, need a hundredth of what is allowed. */
static tern_status check_work(const spm *m)
{
  enum { MOST_WORK = 1 << 30 };
  uint64_t work = 0;
  for (size_t i = 0; i < m->count; i++)
    if (m->types[i] == NORMAL && (work += (uint64_t)m->pieces[i].n * m->pieces[i].n) > MOST_WORK)
      return err_set(m->err, TERN_E_LIMIT, "%s: SentencePiece model: its pieces are too long (piece %zu has %u bytes)",
                     m->t->file, i, m->pieces[i].n);
  return TERN_OK;
}

static tern_status make_bpe(spm *m)
{
  TRY(check_work(m));
  tok *t = m->t;
  ranked *order = mem_array(m->count, sizeof *order);
  bpe_ids *merges = NULL;
  size_t n = 0, capacity = 0, n_order = 0;
  bool ok = order != NULL;
  for (uint32_t i = 0; i < m->count && ok; i++)
    if (m->types[i] == NORMAL)
      order[n_order++] = (ranked){m->scores[i], i};
  if (ok)
    qsort(order, n_order, sizeof *order, by_score);
  uint32_t rank = 0;
  for (size_t i = 0; i < n_order && ok; i++) {
    rank += i > 0 && order[i].score != order[i - 1].score;
    ok = add_cuts(m, &order[i], rank, &merges, &n, &capacity);
  }
  t->bpe.fuse_unk = true;
  t->bpe.byte_fallback = m->byte_fallback;
  t->bpe.has_unk = m->unk >= 0;
  if (m->unk >= 0)
    t->bpe.unk_text = (tok_span){m->pieces[m->unk].s, m->pieces[m->unk].n};
  tern_status status = ok ? bpe_build_ids(t, merges, n, m->err) : err_nomem(m->err, "merges");
  t->bpe.unk_text = (tok_span){"", 0}; /* the file goes; the id was found */
  mem_free(order);
  mem_free(merges);
  return status;
}

static tern_status make_unigram(spm *m)
{
  tok *t = m->t;
  t->unigram.byte_fallback = m->byte_fallback;
  t->unigram.unk = m->unk >= 0 ? (int32_t)m->unk : -1;
  t->unigram.scores = m->scores;
  m->scores = NULL;
  return unigram_build(t, m->types, m->err);
}

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

static tern_status make_added(spm *m)
{
  tok *t = m->t;
  t->added = mem_array(m->count + 1, sizeof *t->added);
  if (!t->added)
    return err_nomem(m->err, "added tokens");
  for (size_t i = 0; i < m->count; i++) {
    bool user = m->types[i] == USER_DEFINED;
    if (!user && m->types[i] != CONTROL && m->types[i] != UNKNOWN)
      continue;
    tok_span text = {arena_strndup(&t->arena, m->pieces[i].s, m->pieces[i].n), m->pieces[i].n};
    if (!text.s)
      return err_nomem(m->err, "added tokens");
    /* User-defined pieces are written as normalised text. */
    t->added[t->n_added++] = (added_token){.content = text,
                                           .pattern = user ? text : (tok_span){0},
                                           .id = (int32_t)i,
                                           .normalized = user,
                                           .special = !user};
  }
  return TERN_OK;
}

static tern_status make_roles(spm *m)
{
  int64_t *ids[TOK_ROLES] = {[TOK_BOS] = &m->bos, [TOK_EOS] = &m->eos, [TOK_UNK] = &m->unk, [TOK_PAD] = &m->pad};
  for (int r = 0; r < TOK_ROLES; r++) {
    if (*ids[r] >= (int64_t)m->count)
      return damaged(m, "the id of a special token");
    if (*ids[r] < 0)
      continue;
    const vocab_entry *e = &m->pieces[*ids[r]];
    m->t->spm_roles[r] = arena_strndup(&m->t->arena, e->s, e->n);
    if (!m->t->spm_roles[r])
      return err_nomem(m->err, "special tokens");
  }
  return TERN_OK;
}

static tern_status build(spm *m)
{
  tok *t = m->t;
  t->is_spm = true;
  TRY(make_roles(m));
  TRY(vocab_build(&t->vocab, m->pieces, m->count, false, t->file, m->err));
  if (t->vocab.count != m->count)
    return damaged(m, "a piece that is there twice");
  t->model = m->kind == 1 ? MODEL_UNIGRAM : MODEL_BPE;
  TRY(m->kind == 1 ? make_unigram(m) : make_bpe(m));
  TRY(make_normalizer(m));
  TRY(make_decoder(m));
  return make_added(m);
}

tern_status tok_read_spm(tok *t, const char *data, size_t n, tern_error *err)
{
  spm m = {.t = t,
           .err = err,
           .kind = 1,
           .unk = 0,
           .bos = 1,
           .eos = 2,
           .pad = -1,
           .dummy_prefix = true,
           .remove_extra = true,
           .escape = true};
  tern_status status = read_model(&m, (tok_span){data, n});
  if (status == TERN_OK)
    status = build(&m);
  mem_free(m.pieces);
  mem_free(m.scores);
  mem_free(m.types);
  return status;
}
