/* tok_bpe.c - byte pair encoding: from the characters of a word, the pair of neighbours that stands first in the list
 * of merges is joined (the leftmost where several are equal) until no pair is in the list.
 *
 * Three things keep it fast. Words seen before in the same text are copied from a cache. Short words are merged by
 * scanning an array of ranks, long ones with a heap, so that no text takes quadratic time. And where whole texts are
 * one word (SentencePiece's way), the word is cut before each space mark (U+2581) that no piece could contain after the
 * character at hand: no merge can ever cross such a place, so the parts may be merged alone (find_mark).
 */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tok_impl.h"

enum {
  BATCH = 32,      /* merges resolved together while the table is built */
  SHORT_WORD = 48, /* symbols up to which a scan beats the heap */
};

#define NO_SYMBOL UINT32_MAX
#define NO_RANK UINT32_MAX

/* ---- the table of merges --------------------------------------------------------------------------------------- */

static size_t merge_slot(const bpe_model *m, uint64_t pair)
{
  return (size_t)(pair * 0x9e3779b97f4a7c15u >> m->shift);
}

static const bpe_merge *find_merge(const bpe_model *m, uint32_t left, uint32_t right)
{
  uint64_t pair = (uint64_t)left << 32 | right;
  for (size_t i = merge_slot(m, pair);; i = (i + 1) & m->mask) {
    const bpe_merge *e = &m->merges[i];
    if (e->pair == pair)
      return e;
    if (e->pair == UINT64_MAX)
      return NULL;
  }
}

/* A pair that is listed twice has its last rank, as in the reference. */
static void put_merge(bpe_model *m, bpe_ids merge)
{
  uint64_t pair = (uint64_t)merge.left << 32 | merge.right;
  size_t i = merge_slot(m, pair);
  while (m->merges[i].pair != UINT64_MAX && m->merges[i].pair != pair)
    i = (i + 1) & m->mask;
  m->merges[i] = (bpe_merge){pair, merge.rank, merge.id};
}

/* Up to BATCH of them: the table is larger than the caches, so all slots are fetched first. */
static void put_merges(bpe_model *m, const bpe_ids *merges, size_t count)
{
  for (size_t i = 0; i < count; i++)
    __builtin_prefetch(&m->merges[merge_slot(m, (uint64_t)merges[i].left << 32 | merges[i].right)], 1);
  for (size_t i = 0; i < count; i++)
    put_merge(m, merges[i]);
}

static tern_status unknown_piece(const tok *t, size_t rank, tok_span piece, tern_error *err)
{
  return err_set(err, TERN_E_FORMAT, "%s: model.merges: entry %zu needs the piece '%.*s', which is not in model.vocab",
                 t->file, rank, (int)(piece.n < 80 ? piece.n : 80), piece.s);
}

/* Resolves up to BATCH merges: first all hashes, so that the table's memory is on its way, then the look-ups. */
static tern_status add_merges(tok *t, const bpe_pair *merges, size_t first, size_t count, buf *joined, tern_error *err)
{
  uint32_t hash[3][BATCH];
  tok_span whole[BATCH];
  bpe_ids resolved[BATCH];
  size_t skip = t->bpe.has_prefix ? t->bpe.prefix.n : 0;
  buf_clear(joined);
  for (size_t i = 0; i < count; i++) {
    const bpe_pair *p = &merges[first + i];
    if (p->right.n < skip)
      return unknown_piece(t, first + i, p->right, err);
    buf_add(joined, p->left.s, p->left.n);
    buf_add(joined, p->right.s + skip, p->right.n - skip);
  }
  if (joined->failed)
    return err_nomem(err, "the tokenizer's merges");
  const char *at = joined->data;
  for (size_t i = 0; i < count; i++) {
    const bpe_pair *p = &merges[first + i];
    whole[i] = (tok_span){at, p->left.n + p->right.n - skip};
    at += whole[i].n;
    hash[0][i] = vocab_hash(&t->vocab, p->left.s, p->left.n);
    hash[1][i] = vocab_hash(&t->vocab, p->right.s, p->right.n);
    hash[2][i] = vocab_hash(&t->vocab, whole[i].s, whole[i].n);
  }
  for (size_t k = 0; k < 3; k++)
    for (size_t i = 0; i < count; i++)
      vocab_fetch(&t->vocab, hash[k][i]);
  for (size_t i = 0; i < count; i++) {
    const bpe_pair *p = &merges[first + i];
    int32_t left = vocab_find_hashed(&t->vocab, p->left.s, p->left.n, hash[0][i]);
    int32_t right = vocab_find_hashed(&t->vocab, p->right.s, p->right.n, hash[1][i]);
    int32_t id = vocab_find_hashed(&t->vocab, whole[i].s, whole[i].n, hash[2][i]);
    if (left < 0 || right < 0 || id < 0)
      return unknown_piece(t, first + i, left < 0 ? p->left : right < 0 ? p->right : whole[i], err);
    resolved[i] = (bpe_ids){(uint32_t)left, (uint32_t)right, (uint32_t)(first + i), (uint32_t)id};
  }
  put_merges(&t->bpe, resolved, count);
  return TERN_OK;
}

/* ---- building -------------------------------------------------------------------------------------------------- */

static void find_single_pieces(tok *t)
{
  bpe_model *m = &t->bpe;
  for (int b = 0; b < 256; b++) {
    char name[8], mapped[4];
    int n = snprintf(name, sizeof name, "<0x%02X>", b);
    m->byte_ids[b] = m->byte_fallback ? vocab_find(&t->vocab, name, (size_t)n) : -1;
    m->mapped_ids[b] = vocab_find(&t->vocab, mapped, utf8_encode(byte_level_char((uint8_t)b), mapped));
  }
}

/* Notes the character before each mark inside a piece. */
static void note_mark(bpe_model *m, const char *piece, size_t n)
{
  const char *s = piece;
  if (!memchr(piece + 1, 0xe2, n - 1))
    return;
  while ((s = memmem(s, n - (size_t)(s - piece), "\xe2\x96\x81", 3)) != NULL) {
    const char *c = s;
    while (c > piece && ((uint8_t) * --c & 0xc0) == 0x80)
      ;
    uint32_t before;
    if (c < s && utf8_decode(c, (size_t)(s - c), &before) && before < 0x10000)
      m->before_mark[before / 8] |= (uint8_t)(1u << before % 8);
    s += 3;
  }
}

/* Decides whether words may be cut before U+2581, and notes for every character c whether some piece holds c and the
 * mark side by side. If none does, no merge ever crosses between c and the mark: a merge makes a piece whose text is
 * the texts of its two halves, joined. (Characters that are not in the vocabulary stand as pieces of another text;
 * nothing is cut behind them, nor behind characters beyond U+FFFF.) */
static bool find_mark(tok *t)
{
  bpe_model *m = &t->bpe;
  if (m->has_prefix || m->has_suffix || vocab_find(&t->vocab, "\xe2\x96\x81", 3) < 0)
    return true;
  m->before_mark = mem_zalloc(0x10000 / 8);
  if (!m->before_mark)
    return false;
  m->cuts = true;
  for (uint32_t id = 0; id < t->vocab.size; id++) {
    size_t n = 0;
    const char *piece = vocab_get(&t->vocab, id, &n);
    if (piece && n > 3)
      note_mark(m, piece, n);
  }
  return true;
}

static tern_status prepare(tok *t, size_t n, tern_error *err)
{
  bpe_model *m = &t->bpe;
  if (n >= NO_RANK)
    return err_set(err, TERN_E_LIMIT, "%s: model.merges: too many", t->file);
  size_t slots = 64;
  m->shift = 64 - 6;
  for (; slots < 2 * n; slots *= 2)
    m->shift--;
  m->merges = mem_alloc(slots * sizeof *m->merges);
  if (!m->merges)
    return err_nomem(err, "the tokenizer's merges");
  memset(m->merges, 0xff, slots * sizeof *m->merges);
  m->mask = slots - 1;
  m->unk = m->has_unk ? vocab_find(&t->vocab, m->unk_text.s, m->unk_text.n) : -1;
  for (uint32_t id = 0; id < t->vocab.size; id++)
    if (t->vocab.pieces[id].length != UINT32_MAX && t->vocab.pieces[id].length > m->longest)
      m->longest = t->vocab.pieces[id].length;
  find_single_pieces(t);
  return find_mark(t) ? TERN_OK : err_nomem(err, "the tokenizer's vocabulary");
}

tern_status bpe_build(tok *t, const bpe_pair *merges, size_t n, tern_error *err)
{
  TRY(prepare(t, n, err));
  buf joined = {0};
  tern_status status = TERN_OK;
  for (size_t i = 0; i < n && status == TERN_OK; i += BATCH)
    status = add_merges(t, merges, i, n - i < BATCH ? n - i : BATCH, &joined, err);
  buf_free(&joined);
  return status;
}

tern_status bpe_build_ids(tok *t, const bpe_ids *merges, size_t n, tern_error *err)
{
  TRY(prepare(t, n, err));
  for (size_t i = 0; i < n; i += BATCH)
    put_merges(&t->bpe, merges + i, n - i < BATCH ? n - i : BATCH);
  return TERN_OK;
}

void bpe_free(bpe_model *m)
{
  mem_free(m->merges);
  mem_free(m->before_mark);
}

/* ---- from a word to its first symbols -------------------------------------------------------------------------- */

typedef struct symbols {
  uint32_t *ids;
  size_t count;
  bool unknown; /* a run of unknown characters stands open */
} symbols;

static tern_status no_unknown(const tok *t, tern_error *err)
{
  return err_set(err, TERN_E_FORMAT, "%s: model.unk_token: '%.80s' is not in model.vocab", t->file,
                 t->bpe.unk_text.n ? t->bpe.unk_text.s : "");
}

/* An unknown character: one symbol each, or one for a whole run. Without unk_token it vanishes. */
static tern_status add_unknown(const tok *t, symbols *out, tern_error *err)
{
  const bpe_model *m = &t->bpe;
  if (!m->has_unk || (out->unknown && m->fuse_unk))
    return TERN_OK;
  if (m->unk < 0)
    return no_unknown(t, err);
  if (out->unknown)
    out->ids[out->count++] = (uint32_t)m->unk;
  out->unknown = true;
  return TERN_OK;
}

/* The symbol of a character that is not in the vocabulary: its bytes' pieces if all are there, else unknown. An open
 * run of unknown characters stays open behind the bytes: so the reference orders them. */
static tern_status add_missing(const tok *t, const char *s, size_t n, symbols *out, tern_error *err)
{
  const bpe_model *m = &t->bpe;
  bool all = m->byte_fallback;
  for (size_t i = 0; all && i < n; i++)
    all = m->byte_ids[(uint8_t)s[i]] >= 0;
  for (size_t i = 0; all && i < n; i++)
    out->ids[out->count++] = (uint32_t)m->byte_ids[(uint8_t)s[i]];
  return all ? TERN_OK : add_unknown(t, out, err);
}

static void close_unknown(const tok *t, symbols *out)
{
  if (out->unknown)
    out->ids[out->count++] = (uint32_t)t->bpe.unk;
  out->unknown = false;
}

/* One character in its vocabulary form: the bytes of s, with prefix or suffix where the model has them. */
static tern_status add_character(const tok *t, const char *s, size_t n, bool first, bool last, symbols *out,
                                 tern_error *err)
{
  const bpe_model *m = &t->bpe;
  bool prefix = m->has_prefix && !first, suffix = m->has_suffix && last;
  buf whole = {0};
  if (prefix || suffix) {
    if (prefix)
      buf_add(&whole, m->prefix.s, m->prefix.n);
    buf_add(&whole, s, n);
    if (suffix)
      buf_add(&whole, m->suffix.s, m->suffix.n);
    if (whole.failed) {
      buf_free(&whole);
      return err_nomem(err, "the tokenizer's word");
    }
    s = whole.data;
    n = whole.length;
  }
  int32_t id = vocab_find(&t->vocab, s, n);
  tern_status status = TERN_OK;
  if (id < 0)
    status = add_missing(t, s, n, out, err);
  else {
    close_unknown(t, out);
    out->ids[out->count++] = (uint32_t)id;
  }
  buf_free(&whole);
  return status;
}

/* Byte-level words: each byte stands for its printable character, see byte_level_char. */
static tern_status split_bytes(const tok *t, const char *s, size_t n, symbols *out, tern_error *err)
{
  const bpe_model *m = &t->bpe;
  bool plain = !m->has_prefix && !m->has_suffix;
  for (size_t i = 0; i < n; i++) {
    int32_t id = plain ? m->mapped_ids[(uint8_t)s[i]] : -1;
    if (id >= 0) {
      close_unknown(t, out);
      out->ids[out->count++] = (uint32_t)id;
      continue;
    }
    char c[4];
    TRY(add_character(t, c, utf8_encode(byte_level_char((uint8_t)s[i]), c), i == 0, i + 1 == n, out, err));
  }
  close_unknown(t, out);
  return TERN_OK;
}

static tern_status split_characters(const tok *t, const char *s, size_t n, symbols *out, tern_error *err)
{
  for (size_t i = 0; i < n;) {
    size_t length = utf8_size(s + i);
    TRY(add_character(t, s + i, length, i == 0, i + length >= n, out, err));
    i += length;
  }
  close_unknown(t, out);
  return TERN_OK;
}

/* ---- merging --------------------------------------------------------------------------------------------------- */

static uint32_t rank_of(const bpe_model *m, uint32_t left, uint32_t right, uint32_t *id)
{
  const bpe_merge *e = find_merge(m, left, right);
  if (!e)
    return NO_RANK;
  *id = e->id;
  return e->rank;
}

/* ranks[i], ids[i]: of the pair that starts at symbol i. */
static size_t merge_short(const bpe_model *m, uint32_t *symbol, size_t n)
{
  uint32_t ranks[SHORT_WORD], ids[SHORT_WORD];
  for (size_t i = 0; i + 1 < n; i++)
    ranks[i] = rank_of(m, symbol[i], symbol[i + 1], &ids[i]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; i++)
      if (ranks[i] < ranks[best])
        best = i;
    if (ranks[best] == NO_RANK)
      break;
    symbol[best] = ids[best];
    n--;
    memmove(symbol + best + 1, symbol + best + 2, (n - best - 1) * sizeof *symbol);
    if (n > best + 1) {
      memmove(ranks + best + 1, ranks + best + 2, (n - best - 2) * sizeof *ranks);
      memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
      ranks[best] = rank_of(m, symbol[best], symbol[best + 1], &ids[best]);
    }
    if (best > 0)
      ranks[best - 1] = rank_of(m, symbol[best - 1], symbol[best], &ids[best - 1]);
  }
  return n;
}

/* A binary heap of rank << 32 | position: the order in which the reference's queue gives merges out. */
static void heap_push(uint64_t *heap, size_t *n, uint64_t item)
{
  size_t i = (*n)++;
  while (i > 0 && heap[(i - 1) / 2] > item) {
    heap[i] = heap[(i - 1) / 2];
    i = (i - 1) / 2;
  }
  heap[i] = item;
}

static void heap_sift(uint64_t *heap, size_t n, size_t i)
{
  uint64_t item = heap[i];
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && heap[child + 1] < heap[child])
      child++;
    if (heap[child] >= item)
      break;
    heap[i] = heap[child];
  }
  heap[i] = item;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
  uint64_t top = heap[0];
  if (--*n) {
    heap[0] = heap[*n];
    heap_sift(heap, *n, 0);
  }
  return top;
}

/* prev and next link the symbols that are left; each symbol gives at most two heap items per merge, so 3n suffice. */
static size_t merge_long(const bpe_model *m, uint32_t *symbol, uint32_t *prev, uint32_t *next, uint64_t *heap, size_t n,
                         tok_work *work)
{
  size_t items = 0, left = 0;
  uint32_t id = 0;
  for (size_t i = 0; i < n; i++) {
    prev[i] = (uint32_t)i - 1;
    next[i] = i + 1 < n ? (uint32_t)i + 1 : NO_SYMBOL;
    uint32_t rank = i + 1 < n ? rank_of(m, symbol[i], symbol[i + 1], &id) : NO_RANK;
    if (rank != NO_RANK)
      heap[items++] = (uint64_t)rank << 32 | i;
  }
  for (size_t i = items / 2; i-- > 0;)
    heap_sift(heap, items, i);
  while (items && tok_work_on(work, 1)) {
    uint64_t top = heap_pop(heap, &items);
    uint32_t at = (uint32_t)top, right = next[at];
    if (symbol[at] == NO_SYMBOL || right == NO_SYMBOL || rank_of(m, symbol[at], symbol[right], &id) != top >> 32)
      continue; /* the pair that this item spoke of is gone */
    symbol[at] = id;
    symbol[right] = NO_SYMBOL;
    next[at] = next[right];
    if (next[at] != NO_SYMBOL)
      prev[next[at]] = at;
    uint32_t rank;
    if (at > 0 && (rank = rank_of(m, symbol[prev[at]], symbol[at], &id)) != NO_RANK)
      heap_push(heap, &items, (uint64_t)rank << 32 | prev[at]);
    if (next[at] != NO_SYMBOL && (rank = rank_of(m, symbol[at], symbol[next[at]], &id)) != NO_RANK)
      heap_push(heap, &items, (uint64_t)rank << 32 | at);
  }
  for (size_t i = 0; i < n; i++)
    if (symbol[i] != NO_SYMBOL)
      symbol[left++] = symbol[i];
  return left;
}

/* ---- words ----------------------------------------------------------------------------------------------------- */

static bool push_all(tok_ids *out, const uint32_t *ids, size_t n)
{
  if (!mem_grow(&out->data, &out->capacity, out->count + n, sizeof *out->data))
    return false;
  for (size_t i = 0; i < n; i++)
    out->data[out->count++] = (int32_t)ids[i];
  return true;
}

/* Merges one part of a word. */
static tern_status merge_part(const tok *t, tok_scratch *scratch, const char *s, size_t n, tok_ids *out,
                              tern_error *err)
{
  const bpe_model *m = &t->bpe;
  uint32_t small[SHORT_WORD];
  /* At most one symbol a byte, or two where a byte is a character of two bytes; with the bytes of prefixes and the
   * suffix, and one for an open unknown run. */
  size_t room = n * (2 + m->prefix.n) + m->suffix.n + 1;
  symbols symbol = {.ids = small};
  if (room > SHORT_WORD) {
    if (room > UINT32_MAX / 4)
      return err_set(err, TERN_E_LIMIT, "text: a word of more than a billion bytes");
    if (!mem_grow(&scratch->symbols, &scratch->symbols_capacity, 3 * room, sizeof *scratch->symbols))
      return err_nomem(err, "the tokens of a text");
    symbol.ids = scratch->symbols;
  }
  TRY(t->byte_level_words ? split_bytes(t, s, n, &symbol, err) : split_characters(t, s, n, &symbol, err));
  if (symbol.count <= SHORT_WORD)
    symbol.count = merge_short(m, symbol.ids, symbol.count);
  else {
    if (!mem_grow(&scratch->heap, &scratch->heap_capacity, 3 * symbol.count, sizeof *scratch->heap))
      return err_nomem(err, "the tokens of a text");
    symbol.count = merge_long(m, symbol.ids, symbol.ids + room, symbol.ids + 2 * room, scratch->heap, symbol.count,
                              &scratch->work);
    if (scratch->work.given_up)
      return tok_given_up(err);
  }
  return push_all(out, symbol.ids, symbol.count) ? TERN_OK : err_nomem(err, "the tokens of a text");
}

/* The same, by way of the cache: a hit copies ids that stand earlier in the output. */
static tern_status cached_part(const tok *t, tok_scratch *scratch, const char *s, size_t n, tok_ids *out,
                               tern_error *err)
{
  uint32_t hash = hash_bytes(s, n);
  word_cache_entry *e = &scratch->cache[hash & scratch->cache_mask];
  if (e->word && e->hash == hash && e->length == n && memcmp(e->word, s, n) == 0) {
    if (!mem_grow(&out->data, &out->capacity, out->count + e->count, sizeof *out->data))
      return err_nomem(err, "the tokens of a text");
    memcpy(out->data + out->count, out->data + e->first, e->count * sizeof *out->data);
    out->count += e->count;
    return TERN_OK;
  }
  size_t first = out->count;
  TRY(merge_part(t, scratch, s, n, out, err));
  if (n <= UINT32_MAX && out->count <= UINT32_MAX)
    *e = (word_cache_entry){hash, (uint32_t)n, s, (uint32_t)first, (uint32_t)(out->count - first)};
  return TERN_OK;
}

/* ignore_merges: a word that is a piece stands for itself. */
static int32_t whole_word(const tok *t, const char *s, size_t n)
{
  char mapped[512];
  size_t length = n;
  if (n > t->bpe.longest)
    return -1;
  if (!t->byte_level_words)
    return vocab_find(&t->vocab, s, n);
  if (n > sizeof mapped / 2)
    return -1;
  length = 0;
  for (size_t i = 0; i < n; i++)
    length += utf8_encode(byte_level_char((uint8_t)s[i]), mapped + length);
  return vocab_find(&t->vocab, mapped, length);
}

/* Where the part of s that starts at 0 ends: before the first mark that no merge can reach over, or at n. */
static size_t part_length(const tok *t, const char *s, size_t n)
{
  const bpe_model *m = &t->bpe;
  size_t i = utf8_size(s);
  while (i < n) {
    const char *hit = memmem(s + i, n - i, "\xe2\x96\x81", 3);
    if (!hit)
      return n;
    size_t at = (size_t)(hit - s), back = at - 1;
    while (((uint8_t)s[back] & 0xc0) == 0x80)
      back--;
    uint32_t before = 0;
    size_t length = utf8_decode(s + back, at - back, &before);
    if (before < 0x10000 && !(m->before_mark[before / 8] >> before % 8 & 1) &&
        vocab_find(&t->vocab, s + back, length) >= 0)
      return at;
    i = at + 3;
  }
  return n;
}

tern_status bpe_word(const tok *t, tok_scratch *scratch, const char *s, size_t n, tok_ids *out, tern_error *err)
{
  if (t->bpe.ignore_merges) {
    int32_t id = whole_word(t, s, n);
    if (id >= 0)
      return tok_ids_push(out, id) ? TERN_OK : err_nomem(err, "the tokens of a text");
  }
  if (!t->bpe.cuts || t->byte_level_words)
    return cached_part(t, scratch, s, n, out, err);
  while (n) {
    size_t length = part_length(t, s, n);
    TRY(cached_part(t, scratch, s, length, out, err));
    if (!tok_work_on(&scratch->work, length))
      return tok_given_up(err);
    s += length;
    n -= length;
  }
  return TERN_OK;
}
