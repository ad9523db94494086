/* tok_json.c - reads tokenizer.json.
 *
 * The file is one JSON document of 2 to 33 MB, nearly all of it model.vocab and model.merges. Those two are taken
 * straight from the parser's events into flat arrays whose strings point into the mapped file; everything else is
 * small and becomes a tree, which the other files compile. Order of keys does not matter.
 *
 * Refused: any other version than "1.0", a model type or a model key that tern does not know, BPE dropout. Truncation
 * and padding belong to batches of training and are left alone.
 */
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "text/tok_impl.h"

/* Where the parser stands. SMALL: inside a value that becomes a tree. */
typedef enum place {
  P_START,
  P_TOP,
  P_MODEL,
  P_VOCAB_MAP,
  P_VOCAB_LIST,
  P_VOCAB_ITEM,
  P_MERGES,
  P_MERGE,
  P_SMALL,
  P_SKIP,
  P_END
} place;

typedef struct reader {
  tok *t;
  tern_error *err;
  tern_status status;
  const char *data; /* the file */
  size_t n;
  place at, back; /* back: where a tree or a skipped value was met */
  size_t skip_depth;
  jt_builder tree;
  jt *top, *model; /* objects of small values */
  char key[40];    /* of the value to come, in P_TOP and P_MODEL */
  bool has_vocab, has_merges, vocab_is_list;
  vocab_entry *vocab;
  size_t n_vocab, vocab_capacity;
  double *scores;
  size_t scores_capacity;
  bpe_pair *merges;
  size_t n_merges, merges_capacity;
  const char *piece; /* the vocabulary key whose id comes next */
  size_t piece_n;
  size_t parts; /* strings seen of a merge, or values of a vocabulary item */
  bool merges_are_strings, merges_are_pairs;
} reader;

static int fail(reader *r, tern_status status)
{
  r->status = status;
  return 0;
}

static int refuse(reader *r, const char *where, const char *what)
{
  return fail(r, err_set(r->err, TERN_E_FORMAT, "%s: %s: %s", r->t->file, where, what));
}

static int out_of_memory(reader *r)
{
  return fail(r, err_nomem(r->err, r->t->file));
}

/* Strings without escapes are parts of the file and stay where they are; others are copied out of yajl's buffer. */
static const char *keep(reader *r, const char *s, size_t n)
{
  if (s >= r->data && s < r->data + r->n)
    return s;
  return arena_strndup(&r->t->arena, s, n);
}

/* ---- small values ---------------------------------------------------------------------------------------------- */

static bool attach(jt *object, const char *key, arena *memory, jt *value)
{
  value->key = arena_strndup(memory, key, strlen(key));
  value->key_n = strlen(key);
  if (object->last)
    object->last->next = value;
  else
    object->first = value;
  object->last = value;
  object->n++;
  return value->key != NULL;
}

static int small_done(reader *r, bool ok)
{
  if (!ok)
    return r->tree.too_deep ? refuse(r, r->key, "nested deeper than 64 levels") : out_of_memory(r);
  if (r->tree.depth)
    return 1;
  if (!attach(r->back == P_TOP ? r->top : r->model, r->key, &r->t->arena, r->tree.root))
    return out_of_memory(r);
  r->at = r->back;
  return 1;
}

static void begin_small(reader *r)
{
  r->back = r->at;
  r->at = P_SMALL;
  r->tree = (jt_builder){.memory = &r->t->arena};
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static bool key_is(const reader *r, const char *key)
{
  return strcmp(r->key, key) == 0;
}

static int vocab_push(reader *r, const char *s, size_t n, uint64_t id)
{
  if (id >= TOK_MAX_ID)
    return refuse(r, "model.vocab", "an id above 4194303");
  if (n > INT32_MAX)
    return refuse(r, "model.vocab", "a piece of more than 2 GiB");
  if (!mem_grow(&r->vocab, &r->vocab_capacity, r->n_vocab + 1, sizeof *r->vocab))
    return out_of_memory(r);
  r->vocab[r->n_vocab++] = (vocab_entry){s, (uint32_t)n, (uint32_t)id};
  return 1;
}

static int merges_push(reader *r, tok_span left, tok_span right)
{
  if (!mem_grow(&r->merges, &r->merges_capacity, r->n_merges + 1, sizeof *r->merges))
    return out_of_memory(r);
  r->merges[r->n_merges++] = (bpe_pair){left, right};
  return 1;
}

/* "left right": exactly one space. Lines that begin with "#version" are comments of the older file format. */
static int merge_string(reader *r, const char *s, size_t n)
{
  if (r->merges_are_pairs)
    return refuse(r, "model.merges", "strings and pairs mixed");
  r->merges_are_strings = true;
  if (n >= 8 && memcmp(s, "#version", 8) == 0)
    return 1;
  s = keep(r, s, n);
  if (!s)
    return out_of_memory(r);
  const char *space = memchr(s, ' ', n);
  size_t left = space ? (size_t)(space - s) : n;
  if (!space || memchr(space + 1, ' ', n - left - 1))
    return refuse(r, "model.merges", "an entry that is not two pieces with one space between");
  return merges_push(r, (tok_span){s, left}, (tok_span){space + 1, n - left - 1});
}

static int on_string(void *user, const unsigned char *bytes, size_t n)
{
  reader *r = user;
  const char *s = (const char *)bytes;
  switch (r->at) {
  case P_SMALL:
    return small_done(r, jt_value(&r->tree, JT_STRING, s, n));
  case P_TOP:
  case P_MODEL:
    begin_small(r);
    return small_done(r, jt_value(&r->tree, JT_STRING, s, n));
  case P_MERGES:
    return merge_string(r, s, n);
  case P_MERGE:
    s = keep(r, s, n);
    if (!s)
      return out_of_memory(r);
    if (r->parts == 0 && !merges_push(r, (tok_span){s, n}, (tok_span){0}))
      return 0;
    if (r->parts == 1)
      r->merges[r->n_merges - 1].right = (tok_span){s, n};
    r->parts++;
    return 1;
  case P_VOCAB_ITEM:
    if (r->parts++ != 0)
      return refuse(r, "model.vocab", "an entry that is not [piece, score]");
    r->piece = keep(r, s, n);
    r->piece_n = n;
    return r->piece ? 1 : out_of_memory(r);
  case P_SKIP:
    if (r->skip_depth == 0)
      r->at = r->back;
    return 1;
  case P_VOCAB_MAP:
  case P_VOCAB_LIST:
    return refuse(r, "model.vocab", "a string where an id or a [piece, score] was expected");
  default:
    return refuse(r, "top level", "not an object");
  }
}

/* 10^n, 0 <= n <= 308, correctly rounded. */
static double power_of_ten(int64_t n)
{
  char literal[] = {'1', 'e', (char)('0' + n / 100), (char)('0' + n / 10 % 10), (char)('0' + n % 10), '\0'};
  return strtod(literal, NULL);
}

/* The reference's reading of a decimal number: as many digits as fit 64 bits, then one division or multiplication by a
 * power of ten (serde_json without its float_roundtrip feature; the last bit can differ from correct rounding). */
static bool score_value(const char *s, size_t n, double *out)
{
  uint64_t digits = 0;
  int64_t exponent = 0, written = 0;
  bool point = false, full = false;
  size_t i = n && s[0] == '-';
  for (; i < n && s[i] != 'e' && s[i] != 'E'; i++) {
    if (s[i] == '.') {
      point = true;
      continue;
    }
    uint64_t next;
    if (full || __builtin_mul_overflow(digits, 10u, &next) ||
        __builtin_add_overflow(next, (uint64_t)(s[i] - '0'), &next)) {
      full = true;
      exponent += !point;
      continue;
    }
    digits = next;
    exponent -= point;
  }
  if (i < n) {
    bool negative = s[++i] == '-';
    i += s[i] == '-' || s[i] == '+';
    for (; i < n && written < 100000; i++)
      written = written * 10 + (s[i] - '0');
    exponent += negative ? -written : written;
  }
  double f = (double)digits;
  for (; exponent < -308 && f != 0; exponent += 308)
    f /= 1e308;
  if (f != 0 && exponent > 308)
    return false;
  if (f != 0)
    f = exponent < 0 ? f / power_of_ten(-exponent) : f * power_of_ten(exponent);
  *out = s[0] == '-' ? -f : f;
  return f <= 1.7976931348623157e308;
}

static int on_number(void *user, const char *s, size_t n)
{
  reader *r = user;
  switch (r->at) {
  case P_SMALL:
    return small_done(r, jt_value(&r->tree, JT_NUMBER, s, n));
  case P_TOP:
  case P_MODEL:
    begin_small(r);
    return small_done(r, jt_value(&r->tree, JT_NUMBER, s, n));
  case P_VOCAB_MAP: {
    uint64_t id = 0;
    size_t i = 0;
    for (; i < n && i < 10 && s[i] >= '0' && s[i] <= '9'; i++)
      id = id * 10 + (uint64_t)(s[i] - '0');
    if (i < n)
      return refuse(r, "model.vocab", "an id that is no whole number from 0 to 4194303");
    return vocab_push(r, r->piece, r->piece_n, id);
  }
  case P_VOCAB_ITEM: {
    double score;
    if (r->parts++ != 1 || !score_value(s, n, &score))
      return refuse(r, "model.vocab", "an entry that is not [piece, score]");
    size_t id = r->n_vocab;
    if (!vocab_push(r, r->piece, r->piece_n, id))
      return 0;
    if (!mem_grow(&r->scores, &r->scores_capacity, id + 1, sizeof *r->scores))
      return out_of_memory(r);
    r->scores[id] = score;
    return 1;
  }
  case P_SKIP:
    if (r->skip_depth == 0)
      r->at = r->back;
    return 1;
  case P_MERGES:
  case P_MERGE:
    return refuse(r, "model.merges", "a number where a piece was expected");
  case P_VOCAB_LIST:
    return refuse(r, "model.vocab", "a number where [piece, score] was expected");
  default:
    return refuse(r, "top level", "not an object");
  }
}

static int simple_value(reader *r, jt_kind kind)
{
  switch (r->at) {
  case P_SMALL:
    return small_done(r, jt_value(&r->tree, kind, NULL, 0));
  case P_TOP:
  case P_MODEL:
    begin_small(r);
    return small_done(r, jt_value(&r->tree, kind, NULL, 0));
  case P_SKIP:
    if (r->skip_depth == 0)
      r->at = r->back;
    return 1;
  case P_MERGES:
  case P_MERGE:
    return refuse(r, "model.merges", "null, true or false where a piece was expected");
  case P_VOCAB_MAP:
  case P_VOCAB_LIST:
  case P_VOCAB_ITEM:
    return refuse(r, "model.vocab", "null, true or false where an id or score was expected");
  default:
    return refuse(r, "top level", "not an object");
  }
}

static int on_null(void *user)
{
  return simple_value(user, JT_NULL);
}

static int on_boolean(void *user, int value)
{
  return simple_value(user, value ? JT_TRUE : JT_FALSE);
}

static int on_key(void *user, const unsigned char *bytes, size_t n)
{
  reader *r = user;
  const char *s = (const char *)bytes;
  switch (r->at) {
  case P_SMALL:
    return jt_key(&r->tree, s, n) ? 1 : out_of_memory(r);
  case P_VOCAB_MAP:
    r->piece = keep(r, s, n);
    r->piece_n = n;
    return r->piece ? 1 : out_of_memory(r);
  case P_TOP:
  case P_MODEL: {
    size_t kept = n < sizeof r->key - 1 ? n : sizeof r->key - 1;
    memcpy(r->key, s, kept);
    r->key[kept] = '\0';
    if (r->at == P_TOP && (key_is(r, "truncation") || key_is(r, "padding"))) {
      r->back = P_TOP;
      r->at = P_SKIP;
      r->skip_depth = 0;
    }
    return 1;
  }
  default: /* P_SKIP */
    return 1;
  }
}

static int on_map(void *user)
{
  reader *r = user;
  switch (r->at) {
  case P_START:
    r->at = P_TOP;
    return 1;
  case P_TOP:
    if (key_is(r, "model")) {
      r->at = P_MODEL;
      return 1;
    }
    begin_small(r);
    return small_done(r, jt_open(&r->tree, JT_OBJECT));
  case P_MODEL:
    if (key_is(r, "vocab")) {
      r->at = P_VOCAB_MAP;
      r->has_vocab = true;
      r->n_vocab = 0;
      return 1;
    }
    begin_small(r);
    return small_done(r, jt_open(&r->tree, JT_OBJECT));
  case P_SMALL:
    return small_done(r, jt_open(&r->tree, JT_OBJECT));
  case P_SKIP:
    r->skip_depth++;
    return 1;
  case P_MERGES:
  case P_MERGE:
    return refuse(r, "model.merges", "an object where a piece was expected");
  default:
    return refuse(r, "model.vocab", "an object where an id or score was expected");
  }
}

static int on_array(void *user)
{
  reader *r = user;
  switch (r->at) {
  case P_TOP:
    begin_small(r);
    return small_done(r, jt_open(&r->tree, JT_ARRAY));
  case P_MODEL:
    if (key_is(r, "vocab")) {
      r->at = P_VOCAB_LIST;
      r->has_vocab = r->vocab_is_list = true;
      r->n_vocab = 0;
      return 1;
    }
    if (key_is(r, "merges")) {
      r->at = P_MERGES;
      r->has_merges = true;
      r->n_merges = 0;
      return 1;
    }
    begin_small(r);
    return small_done(r, jt_open(&r->tree, JT_ARRAY));
  case P_SMALL:
    return small_done(r, jt_open(&r->tree, JT_ARRAY));
  case P_MERGES:
    if (r->merges_are_strings)
      return refuse(r, "model.merges", "strings and pairs mixed");
    r->merges_are_pairs = true;
    r->at = P_MERGE;
    r->parts = 0;
    return 1;
  case P_VOCAB_LIST:
    r->at = P_VOCAB_ITEM;
    r->parts = 0;
    return 1;
  case P_SKIP:
    r->skip_depth++;
    return 1;
  case P_MERGE:
    return refuse(r, "model.merges", "an array inside a pair");
  case P_START:
    return refuse(r, "top level", "not an object");
  default:
    return refuse(r, "model.vocab", "an array where an id or score was expected");
  }
}

static int on_end(void *user)
{
  reader *r = user;
  switch (r->at) {
  case P_SMALL:
    return small_done(r, jt_close(&r->tree));
  case P_TOP:
    r->at = P_END;
    return 1;
  case P_MODEL:
    r->at = P_TOP;
    return 1;
  case P_VOCAB_MAP:
  case P_VOCAB_LIST:
  case P_MERGES:
    r->at = P_MODEL;
    return 1;
  case P_MERGE:
    r->at = P_MERGES;
    return r->parts == 2 ? 1 : refuse(r, "model.merges", "an entry that is not a pair of pieces");
  case P_VOCAB_ITEM:
    r->at = P_VOCAB_LIST;
    return r->parts == 2 ? 1 : refuse(r, "model.vocab", "an entry that is not [piece, score]");
  default: /* P_SKIP */
    if (--r->skip_depth == 0)
      r->at = r->back;
    return 1;
  }
}

static tern_status parse(reader *r)
{
  static const yajl_callbacks callbacks = {on_null, on_boolean, NULL,   NULL,     on_number, on_string,
                                           on_map,  on_key,     on_end, on_array, on_end};
  r->top = arena_zalloc(&r->t->arena, sizeof *r->top);
  r->model = arena_zalloc(&r->t->arena, sizeof *r->model);
  yajl_handle parser = yajl_alloc(&callbacks, NULL, r);
  if (!r->top || !r->model || !parser) {
    if (parser)
      yajl_free(parser);
    return err_nomem(r->err, r->t->file);
  }
  r->top->kind = r->model->kind = JT_OBJECT;
  yajl_status s = yajl_parse(parser, (const unsigned char *)r->data, r->n);
  if (s == yajl_status_ok)
    s = yajl_complete_parse(parser);
  tern_status status = r->status;
  if (s == yajl_status_error) {
    unsigned char *text = yajl_get_error(parser, 0, NULL, 0);
    status =
        err_set(r->err, TERN_E_FORMAT, "%s: not valid JSON: %.*s near byte %zu", r->t->file,
                text ? (int)strcspn((char *)text, "\n") : 0, text ? (char *)text : "", yajl_get_bytes_consumed(parser));
    yajl_free_error(parser, text);
  }
  yajl_free(parser);
  return status;
}

/* ---- the model ------------------------------------------------------------------------------------------------- */

static tern_status bad_key(const tok *t, const char *key, const char *what, tern_error *err)
{
  return err_set(err, TERN_E_FORMAT, "%s: model.%s: %s", t->file, key, what);
}

static tern_status read_flag(const tok *t, const jt *model, const char *key, bool *out, tern_error *err)
{
  const jt *v = jt_get_set(model, key);
  *out = v && v->kind == JT_TRUE;
  return !v || v->kind == JT_TRUE || v->kind == JT_FALSE ? TERN_OK : bad_key(t, key, "not true or false", err);
}

static tern_status read_text(const tok *t, const jt *model, const char *key, bool *has, tok_span *out, tern_error *err)
{
  const jt *v = jt_get_set(model, key);
  *has = v != NULL;
  if (!v)
    return TERN_OK;
  if (v->kind != JT_STRING)
    return bad_key(t, key, "not a string", err);
  *out = (tok_span){v->s, v->n};
  return TERN_OK;
}

static tern_status check_keys(const tok *t, const jt *model, const char *const *known, tern_error *err)
{
  for (const jt *m = model->first; m; m = m->next) {
    size_t i = 0;
    while (known[i] && strcmp(known[i], m->key) != 0)
      i++;
    if (!known[i] && m->kind != JT_NULL)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: model.%s: unknown key", t->file, m->key);
  }
  return TERN_OK;
}

static tern_status read_bpe(reader *r, const jt *model)
{
  static const char *const known[] = {
      "type",          "dropout",       "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
      "byte_fallback", "ignore_merges", NULL};
  tok *t = r->t;
  tern_error *err = r->err;
  TRY(check_keys(t, model, known, err));
  const jt *dropout = jt_get_set(model, "dropout");
  double rate = 1;
  if (dropout && (dropout->kind != JT_NUMBER || !score_value(dropout->s, dropout->n, &rate) || rate != 0))
    return err_set(err, TERN_E_UNSUPPORTED, "%s: model.dropout: random merges are for training only", t->file);
  bpe_model *m = &t->bpe;
  TRY(read_text(t, model, "unk_token", &m->has_unk, &m->unk_text, err));
  TRY(read_text(t, model, "continuing_subword_prefix", &m->has_prefix, &m->prefix, err));
  TRY(read_text(t, model, "end_of_word_suffix", &m->has_suffix, &m->suffix, err));
  TRY(read_flag(t, model, "fuse_unk", &m->fuse_unk, err));
  TRY(read_flag(t, model, "byte_fallback", &m->byte_fallback, err));
  TRY(read_flag(t, model, "ignore_merges", &m->ignore_merges, err));
  m->has_prefix = m->has_prefix && m->prefix.n;
  m->has_suffix = m->has_suffix && m->suffix.n;
  if (!r->has_merges)
    return bad_key(t, "merges", "missing", err);
  return bpe_build(t, r->merges, r->n_merges, err);
}

static tern_status read_unigram(reader *r, const jt *model)
{
  static const char *const known[] = {"type", "unk_id", "byte_fallback", NULL};
  tok *t = r->t;
  TRY(check_keys(t, model, known, r->err));
  TRY(read_flag(t, model, "byte_fallback", &t->unigram.byte_fallback, r->err));
  const jt *unk = jt_get_set(model, "unk_id");
  uint64_t id = 0;
  if (unk && (!jt_integer(unk, UINT32_MAX, &id) || id >= r->n_vocab))
    return bad_key(t, "unk_id", "not an index into model.vocab", r->err);
  t->unigram.unk = unk ? (int32_t)id : -1;
  t->unigram.scores = r->scores;
  r->scores = NULL;
  return unigram_build(t, NULL, r->err);
}

static tern_status read_words(reader *r, const jt *model)
{
  static const char *const wordpiece[] = {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word",
                                          NULL};
  static const char *const wordlevel[] = {"type", "unk_token", NULL};
  tok *t = r->t;
  wordpiece_model *m = &t->wordpiece;
  bool pieces = t->model == MODEL_WORDPIECE, has;
  TRY(check_keys(t, model, pieces ? wordpiece : wordlevel, r->err));
  TRY(read_text(t, model, "unk_token", &has, &m->unk_text, r->err));
  if (!has)
    return bad_key(t, "unk_token", "missing", r->err);
  m->unk = vocab_find(&t->vocab, m->unk_text.s, m->unk_text.n);
  for (uint32_t i = 0; i < t->vocab.size; i++)
    if (t->vocab.pieces[i].length != UINT32_MAX && t->vocab.pieces[i].length > m->longest)
      m->longest = t->vocab.pieces[i].length;
  if (!pieces)
    return TERN_OK;
  TRY(read_text(t, model, "continuing_subword_prefix", &has, &m->prefix, r->err));
  if (!has)
    return bad_key(t, "continuing_subword_prefix", "missing", r->err);
  uint64_t chars;
  if (!jt_integer(jt_get(model, "max_input_chars_per_word"), INT64_MAX, &chars))
    return bad_key(t, "max_input_chars_per_word", "missing, or not a whole number", r->err);
  m->max_chars = chars;
  return TERN_OK;
}

/* Files older than the "type" key: what the keys look like decides, in the reference's order of trying. */
static bool guess_model(const reader *r, const jt *model, model_kind *kind)
{
  if (r->has_merges && !r->vocab_is_list)
    *kind = MODEL_BPE;
  else if (r->vocab_is_list)
    *kind = MODEL_UNIGRAM;
  else if (jt_get(model, "max_input_chars_per_word"))
    *kind = MODEL_WORDPIECE;
  else
    *kind = MODEL_WORDLEVEL;
  return true;
}

static tern_status read_model(reader *r)
{
  static const struct {
    const char *name;
    model_kind kind;
  } types[] = {
      {"BPE", MODEL_BPE}, {"Unigram", MODEL_UNIGRAM}, {"WordPiece", MODEL_WORDPIECE}, {"WordLevel", MODEL_WORDLEVEL}};
  tok *t = r->t;
  const jt *type = jt_get(r->model, "type");
  bool known = false;
  if (!type)
    known = guess_model(r, r->model, &t->model);
  for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
    if (jt_is(type, types[i].name)) {
      t->model = types[i].kind;
      known = true;
    }
  if (!known)
    return err_set(r->err, TERN_E_UNSUPPORTED, "%s: model.type: unknown type '%.80s'", t->file,
                   type->kind == JT_STRING ? type->s : "");
  if (!r->has_vocab)
    return bad_key(t, "vocab", "missing", r->err);
  if (r->vocab_is_list != (t->model == MODEL_UNIGRAM))
    return bad_key(t, "vocab", r->vocab_is_list ? "a list, but an object was expected" : "not a list", r->err);
  TRY(vocab_build(&t->vocab, r->vocab, r->n_vocab, r->vocab_is_list, t->file, r->err));
  switch (t->model) {
  case MODEL_BPE:
    return read_bpe(r, r->model);
  case MODEL_UNIGRAM:
    return read_unigram(r, r->model);
  default:
    return read_words(r, r->model);
  }
}

static tern_status read_added(reader *r)
{
  tok *t = r->t;
  const jt *list = jt_get_set(r->top, "added_tokens");
  if (!list)
    return TERN_OK;
  if (list->kind != JT_ARRAY)
    return err_set(r->err, TERN_E_FORMAT, "%s: added_tokens: not a list", t->file);
  t->added = mem_array(list->n + 1, sizeof *t->added);
  if (!t->added)
    return err_nomem(r->err, "added tokens");
  for (const jt *v = list->first; v; v = v->next)
    TRY(added_read(t->file, v, true, &t->added[t->n_added++], r->err));
  return TERN_OK;
}

static tern_status check_top(reader *r)
{
  static const char *const known[] = {"version",        "added_tokens", "normalizer", "pre_tokenizer",
                                      "post_processor", "decoder",      "model",      NULL};
  const jt *version = jt_get(r->top, "version");
  if (version && !jt_is(version, "1.0"))
    return err_set(r->err, TERN_E_UNSUPPORTED, "%s: version: only \"1.0\" is known", r->t->file);
  for (const jt *m = r->top->first; m; m = m->next) {
    size_t i = 0;
    while (known[i] && strcmp(known[i], m->key) != 0)
      i++;
    if (!known[i])
      return err_set(r->err, TERN_E_UNSUPPORTED, "%s: %s: unknown key", r->t->file, m->key);
  }
  return TERN_OK;
}

static tern_status compile(reader *r)
{
  tok *t = r->t;
  TRY(check_top(r));
  TRY(read_model(r));
  TRY(norm_read(t, jt_get_set(r->top, "normalizer"), r->err));
  TRY(pretok_read(t, jt_get_set(r->top, "pre_tokenizer"), r->err));
  TRY(post_read(t, jt_get_set(r->top, "post_processor"), r->err));
  TRY(decode_read(t, jt_get_set(r->top, "decoder"), r->err));
  return read_added(r);
}

tern_status tok_read_json(tok *t, const char *data, size_t n, tern_error *err)
{
  reader r = {.t = t, .err = err, .data = data, .n = n};
  tern_status status = parse(&r);
  if (status == TERN_OK)
    status = compile(&r);
  mem_free(r.vocab);
  mem_free(r.scores);
  mem_free(r.merges);
  return status;
}
