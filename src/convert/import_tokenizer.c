/* import_tokenizer.c - tokenizer.json and tokenizer_config.json from a GGUF vocabulary.
 *
 * A GGUF names its pre-tokenizer (tokenizer.ggml.pre) instead of describing it: the table below holds, for each name
 * known, the regular expressions that tokenizers of that family use. A name that is not there is refused.
 *
 * Byte-level vocabularies become BPE with ByteLevel around it. Vocabularies with scores become BPE with byte fallback,
 * spaces as U+2581, and merges found again from the scores (import_merges.c). */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "convert/import_model.h"
#include "format/json_out.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define TAIL " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" TAIL
#define QWEN2 CONTRACTIONS "|" LETTERS "|\\p{N}|" TAIL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                                         \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*|\\p{N}| "                     \
  "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

enum { MAX_SPLITS = 5 };

/* Splits are applied one after another, each match and what lies between kept apart; then ByteLevel, which with
 * `byte_regex` does GPT-2's own split as well. */
typedef struct pre_kind {
  const char *name;
  const char *splits[MAX_SPLITS];
  bool digits; /* every digit on its own */
  bool byte_regex;
  bool nfc, ignore_merges, adds_bos;
} pre_kind;

/* llama.cpp: src/llama-vocab.cpp names the families; the patterns are those of the families' own tokenizer.json. */
static const pre_kind pre_kinds[] = {
    {.name = "gpt-2", .byte_regex = true},
    {.name = "smollm", .digits = true, .byte_regex = true},
    {.name = "starcoder", .digits = true, .byte_regex = true},
    {.name = "refact", .digits = true, .byte_regex = true},
    {.name = "command-r", .digits = true, .byte_regex = true, .nfc = true},
    {.name = "qwen2", .splits = {QWEN2}, .nfc = true},
    {.name = "deepseek-r1-qwen", .splits = {QWEN2}, .nfc = true},
    {.name = "llama-bpe", .splits = {LLAMA3}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .splits = {LLAMA3}, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .splits = {LLAMA3}, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon3", .splits = {LLAMA3}, .ignore_merges = true, .adds_bos = true},
    {.name = "tekken", .splits = {TEKKEN}, .ignore_merges = true, .adds_bos = true},
    /* What llama.cpp does for files that name no family. */
    {.name = "default",
     .splits = {"[\\p{P}\\$\\+<=>\\^~\\|]+",
                "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)", "\\p{N}+",
                "[0-9][0-9][0-9]"}},
};

static tern_status find_pre(const gguf *g, const pre_kind **out, tern_error *err)
{
  gguf_string name = {.data = "default", .size = 7};
  bool present;
  TRY(gguf_get_string(g, "tokenizer.ggml.pre", &name, &present, err));
  for (size_t i = 0; i < sizeof pre_kinds / sizeof *pre_kinds; i++)
    if (import_string_is(name, pre_kinds[i].name)) {
      *out = &pre_kinds[i];
      return TERN_OK;
    }
  return err_set(err, TERN_E_UNSUPPORTED, "%s: key tokenizer.ggml.pre: the pre-tokenizer %.*s is not known", g->path,
                 GGUF_STR(name));
}

bool import_pre_adds_bos(const gguf *g)
{
  const pre_kind *pre = NULL;
  return find_pre(g, &pre, NULL) == TERN_OK && pre->adds_bos;
}

/* ---- the parts of tokenizer.json ---- */

bool import_spells_spaces(const import_vocab *v, size_t id)
{
  gguf_string t = v->tokens[id];
  size_t spaces = 0;
  while (spaces < t.size && t.data[spaces] == ' ')
    spaces++;
  return v->spm && import_token_type(v, id) == TOKEN_USER && spaces == t.size;
}

static void put_token(buf *b, const import_vocab *v, size_t id)
{
  gguf_string t = v->tokens[id];
  if (!import_spells_spaces(v, id)) {
    jout_str(b, t.data, t.size);
    return;
  }
  buf_addc(b, '"');
  for (size_t i = 0; i < t.size; i++)
    buf_adds(b, "\u2581");
  buf_addc(b, '"');
}

static void put_added_tokens(buf *b, const import_vocab *v)
{
  jout_key(b, "added_tokens");
  buf_addc(b, '[');
  for (size_t i = 0; i < v->n; i++) {
    int32_t type = import_token_type(v, i);
    bool role = (int64_t)i == v->unk && v->spm;
    bool special = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || role;
    if (!special && type != TOKEN_USER)
      continue;
    jout_item(b);
    buf_addf(b, "{\"id\": %zu, \"content\": ", i);
    put_token(b, v, i);
    buf_addf(b,
             ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": %s}",
             special ? "true" : "false");
  }
  buf_addc(b, ']');
}

static void put_template_item(buf *b, const import_vocab *v, int64_t id, int type_id)
{
  jout_item(b);
  buf_adds(b, "{\"SpecialToken\": {\"id\": ");
  put_token(b, v, (size_t)id);
  buf_addf(b, ", \"type_id\": %d}}", type_id);
}

static void put_template_side(buf *b, const import_vocab *v, const char *sequence, int type_id)
{
  if (v->add_bos)
    put_template_item(b, v, v->bos, type_id);
  jout_item(b);
  buf_addf(b, "{\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}", sequence, type_id);
  if (v->add_eos)
    put_template_item(b, v, v->eos, type_id);
}

static void put_template_token(buf *b, const import_vocab *v, int64_t id)
{
  jout_item(b);
  put_token(b, v, (size_t)id);
  buf_adds(b, ": {\"id\": ");
  put_token(b, v, (size_t)id);
  buf_addf(b, ", \"ids\": [%" PRId64 "], \"tokens\": [", id);
  put_token(b, v, (size_t)id);
  buf_adds(b, "]}");
}

static void put_template(buf *b, const import_vocab *v)
{
  buf_adds(b, "{\"type\": \"TemplateProcessing\", \"single\": [");
  put_template_side(b, v, "A", 0);
  buf_adds(b, "], \"pair\": [");
  put_template_side(b, v, "A", 0);
  put_template_side(b, v, "B", 1);
  buf_adds(b, "], \"special_tokens\": {");
  if (v->add_bos)
    put_template_token(b, v, v->bos);
  if (v->add_eos && v->eos != v->bos)
    put_template_token(b, v, v->eos);
  buf_adds(b, "}}");
}

static void put_byte_level(buf *b, bool regex)
{
  buf_addf(b, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": %s}",
           regex ? "true" : "false");
}

/* "normalizer" to "decoder" for byte-level BPE. */
static void put_byte_level_steps(buf *b, const import_vocab *v, const pre_kind *pre)
{
  jout_put_raw(b, "normalizer", pre->nfc ? "{\"type\": \"NFC\"}" : "null");
  jout_key(b, "pre_tokenizer");
  buf_adds(b, "{\"type\": \"Sequence\", \"pretokenizers\": [");
  for (size_t i = 0; i < MAX_SPLITS && pre->splits[i]; i++) {
    jout_item(b);
    buf_adds(b, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
    jout_str(b, pre->splits[i], strlen(pre->splits[i]));
    buf_adds(b, "}, \"behavior\": \"Isolated\", \"invert\": false}");
  }
  if (pre->digits) {
    jout_item(b);
    buf_adds(b, "{\"type\": \"Digits\", \"individual_digits\": true}");
  }
  jout_item(b);
  put_byte_level(b, pre->byte_regex);
  buf_adds(b, "]}");
  jout_key(b, "post_processor");
  if (v->add_bos || v->add_eos) {
    buf_adds(b, "{\"type\": \"Sequence\", \"processors\": [");
    put_byte_level(b, true);
    jout_item(b);
    put_template(b, v);
    buf_adds(b, "]}");
  } else {
    put_byte_level(b, true);
  }
  jout_key(b, "decoder");
  put_byte_level(b, true);
}

/* The same for vocabularies with scores. Without a space prefix (gemma) or with one (llama). */
static void put_spm_steps(buf *b, const import_vocab *v, bool prefix)
{
  static const char replace[] = "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}";
  static const char decoders[] = "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
                                 "{\"String\": \"\u2581\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, "
                                 "{\"type\": \"Fuse\"}";
  jout_key(b, "normalizer");
  if (prefix)
    buf_addf(b, "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}, %s]}",
             replace);
  else
    buf_adds(b, replace);
  jout_put_raw(b, "pre_tokenizer",
               prefix ? "null"
                      : "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, \"behavior\": "
                        "\"MergedWithPrevious\", \"invert\": false}");
  jout_key(b, "post_processor");
  if (v->add_bos || v->add_eos)
    put_template(b, v);
  else
    buf_adds(b, "null");
  jout_key(b, "decoder");
  buf_adds(b, decoders);
  buf_adds(b, prefix ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}" : "]}");
}

static tern_status check_bytes(const gguf *g, const import_vocab *v, tern_error *err)
{
  size_t found = 0;
  for (size_t i = 0; i < v->n; i++)
    found += import_token_type(v, i) == TOKEN_BYTE;
  if (found != 256)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: key tokenizer.ggml.token_type: %zu byte tokens, 256 are needed",
                   g->path, found);
  return TERN_OK;
}

static tern_status put_spm_merges(const gguf *g, const import_vocab *v, buf *b, tern_error *err)
{
  float *scores = NULL;
  size_t n = 0;
  TRY(gguf_get_floats(g, "tokenizer.ggml.scores", &scores, &n, err));
  tern_status status;
  if (!scores || n != v->n)
    status = err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.scores: %zu entries for %zu tokens", g->path, n, v->n);
  else
    status = import_spm_merges(g, v, scores, b, err);
  mem_free(scores);
  return status;
}

static void put_model_head(buf *b, const import_vocab *v, bool ignore_merges)
{
  jout_key(b, "model");
  buf_adds(b, "{\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
  if (v->spm)
    put_token(b, v, (size_t)v->unk);
  else
    buf_adds(b, "null");
  const char *spm = v->spm ? "true" : "false";
  buf_addf(b,
           ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": %s, "
           "\"byte_fallback\": %s, \"ignore_merges\": %s",
           spm, spm, ignore_merges ? "true" : "false");
  jout_key(b, "vocab");
  buf_addc(b, '{');
  for (size_t i = 0; i < v->n; i++) {
    if (import_is_filler(v, i))
      continue;
    jout_item(b);
    put_token(b, v, i);
    buf_addf(b, ": %zu", i);
  }
  buf_addc(b, '}');
}

/* "[PAD151646]": a row of the embedding table that no token has. Converters make up the name. */
bool import_is_filler(const import_vocab *v, size_t id)
{
  gguf_string t = v->tokens[id];
  return import_token_type(v, id) == TOKEN_UNUSED && t.size > 5 && memcmp(t.data, "[PAD", 4) == 0;
}

tern_status import_tokenizer_json(const gguf *g, const import_vocab *v, buf *b, tern_error *err)
{
  const pre_kind *pre = NULL;
  bool prefix = true, trims = false, present;
  if (v->spm) {
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &prefix, &present, err));
    TRY(gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &trims, &present, err));
    if (trims)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: key tokenizer.ggml.remove_extra_whitespaces: true", g->path);
    if (v->unk < 0)
      return err_set(err, TERN_E_FORMAT, "%s: key tokenizer.ggml.unknown_token_id: a scored vocabulary needs one",
                     g->path);
    TRY(check_bytes(g, v, err));
  } else {
    TRY(find_pre(g, &pre, err));
  }
  buf_adds(b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null");
  put_added_tokens(b, v);
  if (v->spm)
    put_spm_steps(b, v, prefix);
  else
    put_byte_level_steps(b, v, pre);
  put_model_head(b, v, pre && pre->ignore_merges);
  jout_key(b, "merges");
  buf_addc(b, '[');
  if (v->spm && !gguf_find(g, "tokenizer.ggml.merges"))
    TRY(put_spm_merges(g, v, b, err));
  else
    TRY(import_listed_merges(g, v, b, err));
  buf_adds(b, "]}}\n");
  return b->failed ? err_nomem(err, "tokenizer.json") : TERN_OK;
}

static void put_role(buf *b, const import_vocab *v, const char *key, int64_t id)
{
  jout_key(b, key);
  if (id >= 0)
    put_token(b, v, (size_t)id);
  else
    buf_adds(b, "null");
}

tern_status import_tokenizer_config(const gguf *g, const import_hyper *h, const import_vocab *v, buf *b,
                                    tern_error *err)
{
  gguf_string chat = {0};
  bool present;
  TRY(gguf_get_string(g, "tokenizer.chat_template", &chat, &present, err));
  buf_adds(b, "{");
  jout_put_bool(b, "add_bos_token", v->add_bos);
  jout_put_bool(b, "add_eos_token", v->add_eos);
  put_role(b, v, "bos_token", v->bos);
  put_role(b, v, "eos_token", v->eos);
  put_role(b, v, "unk_token", v->unk);
  put_role(b, v, "pad_token", v->pad);
  jout_put_bool(b, "clean_up_tokenization_spaces", false);
  jout_put_int(b, "model_max_length", h->context);
  jout_put_str(b, "tokenizer_class", "PreTrainedTokenizerFast");
  if (present)
    jout_put_strn(b, "chat_template", chat.data, chat.size);
  buf_adds(b, "\n}\n");
  return b->failed ? err_nomem(err, "tokenizer_config.json") : TERN_OK;
}
