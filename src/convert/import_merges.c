/* import_merges.c - the merges of tokenizer.json: those a GGUF lists, or those its scores imply.
 *
 * A SentencePiece BPE vocabulary has no list: a pair may merge if its concatenation is a token, and the token with the
 * best score merges first. Converters write that down as one merge per way to cut each token into two tokens, best
 * score first, longer left part first among equals, then longer right part, then by ids (generate_merges in
 * transformers, tokenization_utils_base.py); the order decides ids, so it is kept exactly.
 *
 * Control and user-defined tokens have score 0 in SentencePiece; llama.cpp's converter replaces it by -1000 where the
 * tokenizer lists them as added. Runs of spaces are among them, so 0 is put back. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "convert/import_model.h"
#include "format/json_out.h"

/* Cutting is quadratic in a token's length; real tokens end below 100 bytes. */
enum { MAX_PIECE = 512 };

/* The vocabulary as the model spells it. */
typedef struct spelling {
  gguf_string *pieces; /* [n]; empty: no token of the model (import_is_filler) */
  strmap ids;
  arena strings;
} spelling;

static void spelling_free(spelling *s)
{
  mem_free(s->pieces);
  strmap_free(&s->ids);
  arena_free(&s->strings);
}

/* One token: see import_spells_spaces. */
static bool spell(const import_vocab *v, size_t id, arena *a, gguf_string *out)
{
  *out = v->tokens[id];
  if (!import_spells_spaces(v, id))
    return true;
  size_t n = v->tokens[id].size;
  char *s = arena_alloc(a, 3 * n);
  if (!s)
    return false;
  static const char block[3] = {'\xe2', '\x96', '\x81'}; /* U+2581 */
  for (size_t k = 0; k < n; k++)
    memcpy(s + 3 * k, block, sizeof block);
  *out = (gguf_string){.data = s, .size = 3 * n};
  return true;
}

static tern_status spell_all(const gguf *g, const import_vocab *v, spelling *s, tern_error *err)
{
  s->pieces = mem_array(v->n, sizeof *s->pieces);
  if (!s->pieces || !strmap_reserve(&s->ids, v->n))
    return err_nomem(err, "the merges");
  for (size_t i = 0; i < v->n; i++) {
    bool present = false;
    uint32_t first = 0;
    if (import_is_filler(v, i))
      continue;
    gguf_string *piece = &s->pieces[i];
    if (!spell(v, i, &s->strings, piece) ||
        !strmap_put(&s->ids, piece->data, piece->size, (uint32_t)i, &present, &first))
      return err_nomem(err, "the merges");
    if (present)
      return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.tokens: tokens %" PRIu32 " and %zu are both \"%.*s\"",
                     g->path, first, i, GGUF_STR(*piece));
  }
  return TERN_OK;
}

typedef struct merge {
  float score;
  uint32_t token, left, right;
  uint32_t left_length, right_length; /* in characters */
} merge;

typedef struct merge_list {
  merge *at;
  size_t n, capacity;
} merge_list;

static int by_rank(const void *a, const void *b)
{
  const merge *x = a, *y = b;
  if (x->score != y->score)
    return x->score > y->score ? -1 : 1;
  if (x->left_length != y->left_length)
    return x->left_length > y->left_length ? -1 : 1;
  if (x->right_length != y->right_length)
    return x->right_length > y->right_length ? -1 : 1;
  if (x->token != y->token)
    return x->token < y->token ? -1 : 1;
  if (x->left != y->left)
    return x->left < y->left ? -1 : 1;
  return x->right < y->right ? -1 : x->right > y->right;
}

/* Every way to cut one token in two. */
static bool cut(merge_list *list, const strmap *ids, gguf_string piece, uint32_t token, float score)
{
  size_t characters = utf8_length(piece.data, piece.size);
  uint32_t left_length = 0;
  for (size_t at = 0; at < piece.size;) {
    uint32_t c, left, right;
    at += utf8_decode(piece.data + at, piece.size - at, &c);
    left_length++;
    if (at == piece.size || !strmap_get(ids, piece.data, at, &left) ||
        !strmap_get(ids, piece.data + at, piece.size - at, &right))
      continue;
    if (!mem_grow(&list->at, &list->capacity, list->n + 1, sizeof *list->at))
      return false;
    list->at[list->n++] = (merge){.score = score,
                                  .token = token,
                                  .left = left,
                                  .right = right,
                                  .left_length = left_length,
                                  .right_length = (uint32_t)characters - left_length};
  }
  return true;
}

static tern_status cut_all(const gguf *g, const import_vocab *v, const spelling *s, const float *scores,
                           merge_list *list, tern_error *err)
{
  for (size_t i = 0; i < v->n; i++) {
    int32_t type = import_token_type(v, i);
    float score = scores[i];
    if (!isfinite(score))
      return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.scores: the score of token %zu is not finite", g->path,
                     i);
    if (s->pieces[i].size > MAX_PIECE)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: key tokenizer.ggml.tokens: token %zu has %zu bytes, %d are allowed",
                     g->path, i, s->pieces[i].size, MAX_PIECE);
    if ((type == TOKEN_CONTROL || type == TOKEN_USER) && score == -1000.0f)
      score = 0;
    if (!cut(list, &s->ids, s->pieces[i], (uint32_t)i, score))
      return err_nomem(err, "the merges");
  }
  return TERN_OK;
}

static void put_merge(buf *out, gguf_string left, gguf_string right)
{
  jout_item(out);
  buf_addc(out, '[');
  jout_str(out, left.data, left.size);
  buf_addc(out, ',');
  jout_str(out, right.data, right.size);
  buf_addc(out, ']');
}

tern_status import_spm_merges(const gguf *g, const import_vocab *v, const float *scores, buf *out, tern_error *err)
{
  merge_list list = {0};
  spelling s = {0};
  tern_status status = spell_all(g, v, &s, err);
  if (status == TERN_OK)
    status = cut_all(g, v, &s, scores, &list, err);
  if (status == TERN_OK && list.n) {
    qsort(list.at, list.n, sizeof *list.at, by_rank);
    for (size_t i = 0; i < list.n; i++)
      put_merge(out, s.pieces[list.at[i].left], s.pieces[list.at[i].right]);
  }
  mem_free(list.at);
  spelling_free(&s);
  return status;
}

/* "left right": cut at the first space that is not the first byte. Both parts and their concatenation must be tokens.
 */
static tern_status put_listed(const gguf *g, const strmap *ids, gguf_string line, size_t index, buf *joined, buf *out,
                              tern_error *err)
{
  const char *space = line.size > 2 ? memchr(line.data + 1, ' ', line.size - 1) : NULL;
  if (!space)
    return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.merges: merge %zu is not two tokens", g->path, index);
  gguf_string left = {.data = line.data, .size = (size_t)(space - line.data)};
  gguf_string right = {.data = space + 1, .size = line.size - left.size - 1};
  buf_clear(joined);
  buf_add(joined, left.data, left.size);
  buf_add(joined, right.data, right.size);
  uint32_t id;
  if (joined->failed)
    return err_nomem(err, "the merges");
  if (!strmap_get(ids, left.data, left.size, &id) || !strmap_get(ids, right.data, right.size, &id) ||
      !strmap_get(ids, joined->data, joined->length, &id))
    return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.merges: merge %zu: \"%.*s\" is not of tokens", g->path,
                   index, GGUF_STR(line));
  put_merge(out, left, right);
  return TERN_OK;
}

tern_status import_listed_merges(const gguf *g, const import_vocab *v, buf *out, tern_error *err)
{
  gguf_string *lines = NULL;
  size_t n = 0;
  TRY(gguf_get_strings(g, "tokenizer.ggml.merges", &lines, &n, err));
  if (!lines)
    return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.merges is missing", g->path);
  spelling s = {0};
  buf joined = {0};
  tern_status status = spell_all(g, v, &s, err);
  for (size_t i = 0; i < n && status == TERN_OK; i++)
    status = put_listed(g, &s.ids, lines[i], i, &joined, out, err);
  mem_free(lines);
  spelling_free(&s);
  buf_free(&joined);
  return status;
}
