/* tok.c - opening a tokenizer, asking it, and the way of a text through it.
 *
 * Reading order for the whole: tok_impl.h (the compiled form), tok_json.c or tok_spm.c (reading), tok_added.c,
 * tok_normalize.c, tok_pretok.c, then a model (tok_bpe.c, tok_unigram.c, tok_wordpiece.c), tok_post.c; and back again
 * tok_decode.c and detok.c.
 */
#include "text/tok.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/path.h"
#include "base/utf8.h"
#include "text/tok_impl.h"

/* ---- opening --------------------------------------------------------------------------------------------------- */

static tern_status read_file(tok *t, bool json, tern_error *err)
{
  map file;
  TRY(map_open(t->file, &file, err));
  tern_status status = json ? tok_read_json(t, (const char *)file.data, file.size, err)
                            : tok_read_spm(t, (const char *)file.data, file.size, err);
  if (map_broken(&file))
    status = err_set(err, TERN_E_IO, "%s: changed while it was read", t->file);
  map_close(&file);
  return status;
}

/* What follows once the tokenizer's own file is read. `dir` may be NULL: no files beside it. */
static tern_status complete(tok *t, const char *dir, tern_error *err)
{
  TRY(tok_read_config(t, dir, err));
  TRY(added_build(t, err));
  for (int r = 0; r < TOK_ROLES; r++)
    t->role_id[r] = t->role_text[r] ? tok_id(t, t->role_text[r], strlen(t->role_text[r])) : -1;
  return TERN_OK;
}

static tern_status open_files(tok *t, const char *dir, tern_error *err)
{
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  for (int i = 0; i < 2; i++) {
    mem_free(t->file);
    t->file = path_join(dir, names[i]);
    if (!t->file)
      return err_nomem(err, "path");
    if (i == 1 && !file_is_regular(t->file))
      return err_set(err, TERN_E_NOT_FOUND, "%s: neither tokenizer.json nor tokenizer.model is there", dir);
    if (!file_is_regular(t->file))
      continue;
    TRY(read_file(t, i == 0, err));
    break;
  }
  return complete(t, dir, err);
}

static tern_status open_bytes(tok *t, bool json, const char *data, size_t n, tern_error *err)
{
  t->file = mem_strdup(json ? "tokenizer.json" : "tokenizer.model");
  if (!t->file)
    return err_nomem(err, "path");
  TRY(json ? tok_read_json(t, data, n, err) : tok_read_spm(t, data, n, err));
  return complete(t, NULL, err);
}

static tern_status hand_out(tok *t, tern_status status, tok **out)
{
  if (status == TERN_OK)
    *out = t;
  else
    tok_close(t);
  return status;
}

tern_status tok_open(const char *dir, tok **out, tern_error *err)
{
  tok *t = mem_zalloc(sizeof *t);
  return t ? hand_out(t, path_place(dir, open_files(t, dir, err), err), out) : err_nomem(err, "tokenizer");
}

tern_status tok_open_bytes(bool json, const char *data, size_t n, tok **out, tern_error *err)
{
  tok *t = mem_zalloc(sizeof *t);
  return t ? hand_out(t, open_bytes(t, json, data, n, err), out) : err_nomem(err, "tokenizer");
}

void tok_close(tok *t)
{
  if (!t)
    return;
  bpe_free(&t->bpe);
  unigram_free(&t->unigram);
  vocab_free(&t->vocab);
  added_trie_free(t->raw_trie);
  added_trie_free(t->normalized_trie);
  strmap_free(&t->added_ids);
  pattern_free(t->patterns);
  mem_free(t->added);
  mem_free(t->norm);
  mem_free(t->pretok);
  mem_free(t->decode);
  mem_free(t->flags);
  mem_free(t->file);
  arena_free(&t->arena);
  mem_free(t);
}

/* ---- asking ---------------------------------------------------------------------------------------------------- */

static bool exists(const tok *t, int32_t id)
{
  size_t n;
  return id >= 0 && vocab_get(&t->vocab, (uint32_t)id, &n) != NULL;
}

static const added_token *added_by_id(const tok *t, int32_t id)
{
  for (size_t i = 0; i < t->n_added; i++)
    if (t->added[i].id == id)
      return &t->added[i];
  return NULL;
}

tok_span tok_shown(const tok *t, int32_t id)
{
  if (!exists(t, id))
    return (tok_span){0};
  if (t->flags[id] & TOKEN_SHOWN_OTHERWISE)
    return added_by_id(t, id)->pattern;
  tok_span piece;
  piece.s = vocab_get(&t->vocab, (uint32_t)id, &piece.n);
  return piece;
}

const char *tok_piece(const tok *t, int32_t id, size_t *length)
{
  if (!exists(t, id))
    return NULL;
  if (t->flags[id] & TOKEN_SHOWN_OTHERWISE) {
    const added_token *a = added_by_id(t, id);
    *length = a->content.n;
    return a->content.s;
  }
  return vocab_get(&t->vocab, (uint32_t)id, length);
}

int32_t tok_id(const tok *t, const char *piece, size_t length)
{
  uint32_t index;
  if (strmap_get(&t->added_ids, piece, length, &index))
    return t->added[index].id;
  return vocab_find(&t->vocab, piece, length);
}

int32_t tok_vocab_size(const tok *t)
{
  return (int32_t)t->vocab.size;
}

int32_t tok_base_size(const tok *t)
{
  size_t n;
  uint32_t size = t->vocab.size;
  while (size > 0 && ((t->flags[size - 1] & TOKEN_ADDED) || !vocab_get(&t->vocab, size - 1, &n)))
    size--;
  return (int32_t)size;
}

bool tok_is_special(const tok *t, int32_t id)
{
  return exists(t, id) && (t->flags[id] & TOKEN_SPECIAL);
}

const char *tok_role_text(const tok *t, tok_role role)
{
  return t->role_text[role];
}

int32_t tok_role_id(const tok *t, tok_role role)
{
  return t->role_id[role];
}

/* ---- encoding -------------------------------------------------------------------------------------------------- */

bool tok_ids_push(tok_ids *ids, int32_t id)
{
  if (!mem_grow(&ids->data, &ids->capacity, ids->count + 1, sizeof *ids->data))
    return false;
  ids->data[ids->count++] = id;
  return true;
}

/* All that one call works with. */
typedef struct encoder {
  const tok *t;
  tok_scratch scratch;
  tok_ids ids;
  buf first, second; /* the normaliser's */
  pretok_words words, spare;
  arena texts; /* the pre-tokenizer's; words stand in it until the call ends, the cache points there */
  tern_error *err;
} encoder;

static tern_status model_word(encoder *e, const char *s, size_t n)
{
  switch (e->t->model) {
  case MODEL_BPE:
    return bpe_word(e->t, &e->scratch, s, n, &e->ids, e->err);
  case MODEL_UNIGRAM:
    return unigram_word(e->t, &e->scratch, s, n, &e->ids, e->err);
  case MODEL_WORDPIECE:
    return wordpiece_word(e->t, s, n, &e->ids, e->err);
  default:
    return wordlevel_word(e->t, s, n, &e->ids, e->err);
  }
}

/* Normalised text between added tokens: words, then ids. */
static tern_status encode_plain(encoder *e, const char *s, size_t n, size_t origin)
{
  e->words.count = 0;
  if (!pretok_push(&e->words, s, n, origin < n ? origin : n))
    return err_nomem(e->err, "the tokens of a text");
  TRY(pretok_apply(e->t, &e->words, &e->spare, &e->texts, &e->scratch.work, e->err));
  for (size_t i = 0; i < e->words.count; i++) {
    TRY(model_word(e, e->words.items[i].s, e->words.items[i].n));
    if (!tok_work_on(&e->scratch.work, e->words.items[i].n))
      return tok_given_up(e->err);
  }
  return TERN_OK;
}

/* The text of a part must outlive the call's cache; the normaliser's buffers are used again for the next part. */
static bool keep_text(encoder *e, tok_text *text, const char *original)
{
  if (text->s >= original && text->s < original + text->n)
    return true;
  char *kept = arena_strndup(&e->texts, text->s, text->n);
  text->s = kept;
  return kept != NULL;
}

/* Raw text between added tokens. */
static tern_status encode_part(encoder *e, const char *s, size_t n, bool at_start)
{
  const tok *t = e->t;
  uint32_t c;
  tok_text text = {s, n, at_start ? utf8_decode(s, n, &c) : 0};
  TRY(norm_apply(t->norm, t->n_norm, &text, at_start, &e->first, &e->second, e->err));
  if (!keep_text(e, &text, s))
    return err_nomem(e->err, "the tokens of a text");
  added_cursor cursor = {.trie = t->normalized_trie, .tokens = t->added, .s = text.s, .n = text.n};
  added_match part;
  while (added_next(&cursor, &part)) {
    size_t origin = text.origin > part.begin ? text.origin - part.begin : 0;
    if (part.id < 0)
      TRY(encode_plain(e, text.s + part.begin, part.end - part.begin, origin));
    else if (part.begin < part.end && !tok_ids_push(&e->ids, part.id))
      return err_nomem(e->err, "the tokens of a text");
  }
  return TERN_OK;
}

static tern_status encode_text(encoder *e, const char *text, size_t n)
{
  added_cursor cursor = {.trie = e->t->raw_trie, .tokens = e->t->added, .s = text, .n = n};
  added_match part;
  while (added_next(&cursor, &part)) {
    if (part.id < 0)
      TRY(encode_part(e, text + part.begin, part.end - part.begin, part.begin == 0));
    else if (!tok_ids_push(&e->ids, part.id))
      return err_nomem(e->err, "the tokens of a text");
  }
  return TERN_OK;
}

/* The text's ids are pushed where the template says; `before` fixed ids can be pushed first without moving any. */
static tern_status encode_all(encoder *e, const char *text, size_t n, bool add_special)
{
  const post_step *post = e->t->n_post ? e->t->post : NULL;
  if (!post)
    return encode_text(e, text, n);
  for (size_t i = 0; i < post->count; i++) {
    const post_piece *piece = &post->pieces[i];
    if (piece->sequence)
      TRY(encode_text(e, text, n));
    for (size_t k = 0; k < piece->n_ids && add_special; k++)
      if (!tok_ids_push(&e->ids, piece->ids[k]))
        return err_nomem(e->err, "the tokens of a text");
  }
  return TERN_OK;
}

static tern_status check_text(const char *text, size_t n, tern_error *err)
{
  size_t i = 0, bad;
  uint64_t word;
  while (i + 8 <= n && (memcpy(&word, text + i, 8), (word & 0x8080808080808080u) == 0))
    i += 8;
  if (utf8_valid(text + i, n - i, &bad))
    return TERN_OK;
  return err_set(err, TERN_E_USAGE, "text: not UTF-8 at byte %zu", i + bad);
}

static bool make_cache(tok_scratch *s, size_t n)
{
  size_t entries = 64;
  while (entries < n / 4 && entries < 1 << 15)
    entries *= 2;
  s->cache = mem_array(entries, sizeof *s->cache);
  s->cache_mask = entries - 1;
  return s->cache != NULL;
}

bool tok_work_ask(tok_work *w)
{
  w->done = 0;
  w->given_up = w->given_up || (w->ask && w->ask->wanted && !w->ask->wanted(w->ask->user));
  return !w->given_up;
}

tern_status tok_given_up(tern_error *err)
{
  return err_set(err, TERN_E_CANCELLED, "text: encoding it was given up");
}

tern_status tok_encode(const tok *t, const char *text, size_t n, bool add_special, int32_t **ids, size_t *n_ids,
                       tern_error *err)
{
  return tok_encode_while(t, NULL, text, n, add_special, ids, n_ids, err);
}

tern_status tok_encode_while(const tok *t, const tok_ask *ask, const char *text, size_t n, bool add_special,
                             int32_t **ids, size_t *n_ids, tern_error *err)
{
  TRY(check_text(text, n, err));
  encoder e = {.t = t, .scratch = {.work = {.ask = ask}}, .err = err};
  tern_status status = TERN_OK;
  if (!make_cache(&e.scratch, n) || !mem_grow(&e.ids.data, &e.ids.capacity, n / 3 + 16, sizeof *e.ids.data))
    status = err_nomem(err, "the tokens of a text");
  if (status == TERN_OK)
    status = encode_all(&e, text, n, add_special);
  if (status == TERN_OK) {
    *ids = e.ids.data;
    *n_ids = e.ids.count;
    e.ids.data = NULL;
  }
  mem_free(e.ids.data);
  mem_free(e.scratch.cache);
  mem_free(e.scratch.symbols);
  mem_free(e.scratch.heap);
  mem_free(e.scratch.nodes);
  mem_free(e.words.items);
  mem_free(e.spare.items);
  buf_free(&e.first);
  buf_free(&e.second);
  arena_free(&e.texts);
  return status;
}

bool tok_is_byte_level(const tok *t)
{
  return t->n_decode == 1 && t->decode[0].kind == DECODE_BYTE_LEVEL;
}

bool tok_cleans_up_spaces(const tok *t)
{
  return t->cleans_up_spaces;
}
