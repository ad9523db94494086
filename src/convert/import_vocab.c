/* import_vocab.c - a GGUF's vocabulary as read: tokens, their types, the ids with a role, the ids that end an answer.
 *
 * Two kinds are known: "gpt2" (byte-level BPE with its merges) and "llama" (SentencePiece BPE with scores). Every
 * `tokenizer.*` key must be one that is read here or in import_tokenizer.c, or one known to say nothing about ids. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "convert/import_model.h"

static const char *const known_keys[] = {
    /* read */
    "ggml.model",
    "ggml.pre",
    "ggml.tokens",
    "ggml.scores",
    "ggml.token_type",
    "ggml.merges",
    "ggml.bos_token_id",
    "ggml.eos_token_id",
    "ggml.eot_token_id",
    "ggml.eom_token_id",
    "ggml.unknown_token_id",
    "ggml.padding_token_id",
    "ggml.add_bos_token",
    "ggml.add_eos_token",
    "ggml.add_space_prefix",
    "ggml.remove_extra_whitespaces",
    "chat_template",
    /* of no effect on ids: other templates, roles no model here uses, the original's own copy */
    "chat_templates",
    "chat_template.*",
    "ggml.add_sep_token",
    "ggml.seperator_token_id",
    "ggml.separator_token_id",
    "ggml.cls_token_id",
    "ggml.mask_token_id",
    "ggml.prefix_token_id",
    "ggml.suffix_token_id",
    "ggml.middle_token_id",
    "ggml.fim_pre_token_id",
    "ggml.fim_suf_token_id",
    "ggml.fim_mid_token_id",
    "ggml.fim_pad_token_id",
    "ggml.fim_rep_token_id",
    "ggml.fim_sep_token_id",
    "ggml.token_type_count",
    "ggml.eog_token_ids",
    "huggingface.json",
};

/* Whether `name` (n bytes) is the pattern, whose final '*' stands for anything. */
static bool matches(const char *pattern, const char *name, size_t n)
{
  size_t length = strlen(pattern);
  if (pattern[length - 1] == '*')
    return n >= length && memcmp(name, pattern, length - 1) == 0;
  return n == length && memcmp(name, pattern, n) == 0;
}

static tern_status check_keys(const gguf *g, tern_error *err)
{
  static const char prefix[] = "tokenizer.";
  const size_t skip = sizeof prefix - 1;
  for (size_t i = 0; i < g->n_values; i++) {
    gguf_string key = g->values[i].key;
    if (key.size <= skip || memcmp(key.data, prefix, skip) != 0)
      continue;
    bool known = false;
    for (size_t k = 0; k < sizeof known_keys / sizeof *known_keys && !known; k++)
      known = matches(known_keys[k], key.data + skip, key.size - skip);
    if (!known)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: key %.*s: not known", g->path, GGUF_STR(key));
  }
  return TERN_OK;
}

bool import_string_is(gguf_string s, const char *text)
{
  return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

static tern_status read_kind(const gguf *g, import_vocab *v, tern_error *err)
{
  gguf_string model;
  bool present;
  TRY(gguf_get_string(g, "tokenizer.ggml.model", &model, &present, err));
  if (!present)
    return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.model is missing", g->path);
  v->spm = import_string_is(model, "llama");
  if (!v->spm && !import_string_is(model, "gpt2"))
    return err_set(err, TERN_E_UNSUPPORTED, "%s: key tokenizer.ggml.model: %.*s: gpt2 and llama can be imported",
                   g->path, GGUF_STR(model));
  return TERN_OK;
}

static tern_status check_tokens(const gguf *g, const import_vocab *v, tern_error *err)
{
  strmap seen = {0};
  tern_status status = strmap_reserve(&seen, v->n) ? TERN_OK : err_nomem(err, "the vocabulary");
  for (size_t i = 0; i < v->n && status == TERN_OK; i++) {
    const gguf_string *t = &v->tokens[i];
    bool present = false;
    uint32_t first = 0;
    if (t->size == 0)
      status = err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.tokens: token %zu is empty", g->path, i);
    else if (!strmap_put(&seen, t->data, t->size, (uint32_t)i, &present, &first))
      status = err_nomem(err, "the vocabulary");
    else if (present)
      status =
          err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.tokens: tokens %" PRIu32 " and %zu are both \"%.*s\"",
                  g->path, first, i, GGUF_STR(*t));
  }
  strmap_free(&seen);
  return status;
}

static tern_status read_tokens(const gguf *g, import_vocab *v, tern_error *err)
{
  size_t n_types = 0;
  TRY(gguf_get_strings(g, "tokenizer.ggml.tokens", &v->tokens, &v->n, err));
  if (!v->tokens || v->n == 0 || v->n > INT32_MAX)
    return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.tokens is missing or empty", g->path);
  TRY(gguf_get_ints(g, "tokenizer.ggml.token_type", &v->types, &n_types, err));
  if (v->types && n_types != v->n)
    return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.token_type: %zu entries for %zu tokens", g->path,
                   n_types, v->n);
  for (size_t i = 0; v->types && i < n_types; i++)
    if (v->types[i] < TOKEN_NORMAL || v->types[i] > TOKEN_BYTE)
      return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.token_type: token %zu has the unknown type %" PRId32,
                     g->path, i, v->types[i]);
  return check_tokens(g, v, err);
}

int32_t import_token_type(const import_vocab *v, size_t id)
{
  return v->types ? v->types[id] : TOKEN_NORMAL;
}

static tern_status read_id(const gguf *g, const import_vocab *v, const char *key, int64_t *out, tern_error *err)
{
  uint32_t id = 0;
  bool present;
  /* Some converters write -1 for "none". */
  const gguf_value *value = gguf_find(g, key);
  if (value && value->type == GGUF_I32 && memcmp(value->data, "\xff\xff\xff\xff", 4) == 0) {
    *out = -1;
    return TERN_OK;
  }
  TRY(gguf_get_uint(g, key, &id, &present, err));
  if (!present)
    return TERN_OK;
  if (id == UINT32_MAX) {
    *out = -1;
    return TERN_OK;
  }
  if (id >= v->n)
    return err_set(err, TERN_E_FORMAT, "%s: key %s: %" PRIu32 " is not one of %zu tokens", g->path, key, id, v->n);
  *out = id;
  return TERN_OK;
}

static void add_stop(import_vocab *v, int64_t id)
{
  if (id < 0)
    return;
  for (size_t i = 0; i < v->n_stops; i++)
    if (v->stops[i] == id)
      return;
  if (v->n_stops < sizeof v->stops / sizeof *v->stops)
    v->stops[v->n_stops++] = id;
}

static int by_value(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* What ends an answer: the ids the file names, and control tokens whose name says so (llama.cpp's list of texts, the
 * ones these four architectures use). */
static void collect_stops(import_vocab *v, int64_t eot, int64_t eom)
{
  static const char *const texts[] = {
      "<|im_end|>", "<|eot_id|>",      "<|eom_id|>", "<end_of_turn>", "<|endoftext|>",
      "<|end|>",    "<|end_of_text|>", "<EOT>",      "<|EOT|>",
  };
  add_stop(v, v->eos);
  size_t own = v->n_stops;
  add_stop(v, eot);
  add_stop(v, eom);
  for (size_t i = 0; i < v->n; i++)
    for (size_t k = 0; k < sizeof texts / sizeof *texts && import_token_type(v, i) == TOKEN_CONTROL; k++)
      if (import_string_is(v->tokens[i], texts[k]))
        add_stop(v, (int64_t)i);
  qsort(v->stops + own, v->n_stops - own, sizeof *v->stops, by_value);
}

static tern_status read_roles(const gguf *g, import_vocab *v, tern_error *err)
{
  int64_t eot = -1, eom = -1;
  bool present;
  /* llama.cpp's defaults: a SentencePiece vocabulary without ids means 0, 1, 2, and gets BOS. */
  v->unk = v->spm ? 0 : -1;
  v->bos = v->spm && v->n > 2 ? 1 : -1;
  v->eos = v->spm && v->n > 2 ? 2 : -1;
  v->pad = -1;
  TRY(read_id(g, v, "tokenizer.ggml.bos_token_id", &v->bos, err));
  TRY(read_id(g, v, "tokenizer.ggml.eos_token_id", &v->eos, err));
  TRY(read_id(g, v, "tokenizer.ggml.unknown_token_id", &v->unk, err));
  TRY(read_id(g, v, "tokenizer.ggml.padding_token_id", &v->pad, err));
  TRY(read_id(g, v, "tokenizer.ggml.eot_token_id", &eot, err));
  TRY(read_id(g, v, "tokenizer.ggml.eom_token_id", &eom, err));
  v->add_bos = v->spm || import_pre_adds_bos(g);
  TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, &present, err));
  TRY(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos, &present, err));
  if (v->add_bos && v->bos < 0) {
    if (gguf_find(g, "tokenizer.ggml.add_bos_token"))
      return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.bos_token_id is missing, but BOS is to be added",
                     g->path);
    v->add_bos = false;
  }
  if (v->add_eos && v->eos < 0)
    return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.eos_token_id is missing, but EOS is to be added",
                   g->path);
  collect_stops(v, eot, eom);
  return TERN_OK;
}

tern_status import_read_vocab(const gguf *g, import_vocab *out, tern_error *err)
{
  import_vocab v = {0};
  tern_status status = check_keys(g, err);
  if (status == TERN_OK)
    status = read_kind(g, &v, err);
  if (status == TERN_OK)
    status = read_tokens(g, &v, err);
  if (status == TERN_OK)
    status = read_roles(g, &v, err);
  if (status == TERN_OK)
    *out = v;
  else
    import_vocab_free(&v);
  return status;
}

void import_vocab_free(import_vocab *v)
{
  mem_free(v->tokens);
  mem_free(v->types);
  *v = (import_vocab){0};
}
