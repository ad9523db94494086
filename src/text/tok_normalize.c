/* tok_normalize.c - the steps of the normaliser: text in, text out.
 *
 * Each step reads one buffer and writes another; a step that changes nothing leaves the text where it is. Beside the
 * text goes the number of leading bytes that stand for the first character of the input (tok_text.origin), because
 * one pre-tokenizer later asks whether a word begins there.
 */
#include <string.h>

#include "base/utf8.h"
#include "text/tok_fields.h"
#include "text/tok_unicode.h"

/* ---- character by character ------------------------------------------------------------------------------------ */

static bool nmt_drops(uint32_t c)
{
  return (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
}

static bool nmt_is_space(uint32_t c)
{
  return c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
}

/* Writes what becomes of one character, whose bytes are s[0..n). */
static void map_character(norm_kind kind, uint32_t c, const char *s, size_t n, buf *out)
{
  uint32_t lower[2];
  switch (kind) {
  case NORM_LOWERCASE:
    for (size_t i = 0, count = unicode_to_lower(c, lower); i < count; i++)
      buf_add_utf8(out, lower[i]);
    return;
  case NORM_STRIP_ACCENTS:
    if (!unicode_is_accent(c))
      buf_add(out, s, n);
    return;
  case NORM_BERT_ACCENTS:
    if (!unicode_is_nonspacing(c))
      buf_add(out, s, n);
    return;
  case NORM_BERT_CLEAN: /* U+0000 and U+FFFD are in the table */
    if (!unicode_is_control(c))
      unicode_is_space(c) ? buf_addc(out, ' ') : buf_add(out, s, n);
    return;
  case NORM_BERT_CJK:
    if (unicode_is_cjk(c)) {
      buf_addc(out, ' ');
      buf_add(out, s, n);
      buf_addc(out, ' ');
    } else
      buf_add(out, s, n);
    return;
  case NORM_NMT:
    if (!nmt_drops(c))
      nmt_is_space(c) ? buf_addc(out, ' ') : buf_add(out, s, n);
    return;
  default: /* NORM_BYTE_LEVEL */
    for (size_t i = 0; i < n; i++)
      buf_add_utf8(out, byte_level_char((uint8_t)s[i]));
    return;
  }
}

static void map_text(norm_kind kind, const tok_text *in, buf *out, size_t *origin)
{
  for (size_t i = 0; i < in->n;) {
    uint32_t c = 0;
    size_t n = utf8_decode(in->s + i, in->n - i, &c);
    map_character(kind, c, in->s + i, n, out);
    i += n;
    if (i <= in->origin)
      *origin = out->length;
  }
}

/* ---- the other steps ------------------------------------------------------------------------------------------- */

static void strip(const norm_step *step, tok_text *text)
{
  size_t begin = 0, end = text->n, n;
  uint32_t c;
  while (step->left && begin < end && (n = utf8_decode(text->s + begin, end - begin, &c)) != 0 && unicode_is_space(c))
    begin += n;
  while (step->right && end > begin) {
    size_t at = end - 1;
    while (((uint8_t)text->s[at] & 0xc0) == 0x80)
      at--;
    if (!utf8_decode(text->s + at, end - at, &c) || !unicode_is_space(c))
      break;
    end = at;
  }
  *text = (tok_text){text->s + begin, end - begin, text->origin > begin ? text->origin - begin : 0};
}

static tern_status replace(const norm_step *step, const tok_text *in, bool at_start, buf *out, size_t *origin,
                           tern_error *err)
{
  pattern_cursor cursor = {0};
  pattern_start(&cursor, step->pattern, in->s, in->n);
  tern_status status;
  bool found, whole = true; /* whole: all text so far stands for the first character */
  size_t begin = 0, end = 0, done = 0;
  while ((status = pattern_next(&cursor, &found, &begin, &end, err)) == TERN_OK && found) {
    if (done < begin && whole) {
      whole = begin <= in->origin;
      *origin = out->length + ((begin < in->origin ? begin : in->origin) - (done < in->origin ? done : in->origin));
    }
    buf_add(out, in->s + done, begin - done);
    buf_add(out, step->text.s, step->text.n);
    /* What is put in goes with the last character of what was there, or with the start of the text. */
    whole = whole && (end ? end <= in->origin : at_start);
    if (whole)
      *origin = out->length;
    done = end;
  }
  pattern_finish(&cursor);
  if (whole && done < in->origin)
    *origin = out->length + (in->origin - done);
  buf_add(out, in->s + done, in->n - done);
  return status;
}

static void prepend(const norm_step *step, const tok_text *in, buf *out, size_t *origin)
{
  buf_add(out, step->text.s, step->text.n);
  buf_add(out, in->s, in->n);
  *origin = in->origin ? in->origin + step->text.n : 0;
}

/* The first character of the result is all that matters of the origin after these. */
static bool reform(const norm_step *step, const tok_text *in, buf *out, size_t *origin)
{
  bool ok = step->kind == NORM_PRECOMPILED ? charsmap_apply(step, in->s, in->n, out)
                                           : norm_form(step->kind, in->s, in->n, out);
  uint32_t c;
  *origin = ok && in->origin && out->length ? utf8_decode(out->data, out->length, &c) : 0;
  return ok;
}

static bool is_form(norm_kind kind)
{
  return kind == NORM_NFC || kind == NORM_NFD || kind == NORM_NFKC || kind == NORM_NFKD;
}

static tern_status apply_one(const norm_step *step, const tok_text *in, bool at_start, buf *out, size_t *origin,
                             tern_error *err)
{
  switch (step->kind) {
  case NORM_REPLACE:
    return replace(step, in, at_start, out, origin, err);
  case NORM_PREPEND:
    prepend(step, in, out, origin);
    return TERN_OK;
  case NORM_PRECOMPILED:
  case NORM_NFC:
  case NORM_NFD:
  case NORM_NFKC:
  case NORM_NFKD:
    return reform(step, in, out, origin) ? TERN_OK : err_nomem(err, "the tokens of a text");
  default:
    map_text(step->kind, in, out, origin);
    return TERN_OK;
  }
}

tern_status norm_apply(const norm_step *steps, size_t n_steps, tok_text *text, bool at_start, buf *a, buf *b,
                       tern_error *err)
{
  size_t most = tok_most_text(text->n);
  for (size_t i = 0; i < n_steps && text->n; i++) {
    if (steps[i].kind == NORM_STRIP) {
      strip(&steps[i], text);
      continue;
    }
    if (is_form(steps[i].kind) && norm_form_stands(text->s, text->n))
      continue;
    buf *out = a->data && text->s >= a->data && text->s <= a->data + a->capacity ? b : a;
    size_t origin = 0;
    buf_clear(out);
    TRY(apply_one(&steps[i], text, at_start, out, &origin, err));
    if (out->failed)
      return err_nomem(err, "the tokens of a text");
    if (out->length > most)
      return err_set(err, TERN_E_LIMIT, "tokenizer: the normalizer blows up this text: %zu bytes", out->length);
    *text = (tok_text){out->data ? out->data : "", out->length, origin};
  }
  return TERN_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static tern_status push(tok *t, const norm_step *step, tern_error *err)
{
  if (t->n_norm == TOK_MAX_STEPS)
    return err_set(err, TERN_E_LIMIT, "%s: normalizer: more than %d steps", t->file, TOK_MAX_STEPS);
  t->norm[t->n_norm++] = *step;
  return TERN_OK;
}

static tern_status push_kind(tok *t, norm_kind kind, tern_error *err)
{
  norm_step step = {.kind = kind};
  return push(t, &step, err);
}

static tern_status read_bert(const fields *f, tern_error *err)
{
  static const char *const known[] = {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase", NULL};
  bool clean, cjk, accents, lower;
  TRY(fields_only(f, known, err));
  TRY(fields_flag(f, "clean_text", &clean, err));
  TRY(fields_flag(f, "handle_chinese_chars", &cjk, err));
  TRY(fields_flag(f, "lowercase", &lower, err));
  accents = lower; /* where strip_accents is null or missing */
  if (jt_get_set(f->value, "strip_accents"))
    TRY(fields_flag(f, "strip_accents", &accents, err));
  if (clean)
    TRY(push_kind(f->t, NORM_BERT_CLEAN, err));
  if (cjk)
    TRY(push_kind(f->t, NORM_BERT_CJK, err));
  if (accents) {
    TRY(push_kind(f->t, NORM_NFD, err));
    TRY(push_kind(f->t, NORM_BERT_ACCENTS, err));
  }
  return lower ? push_kind(f->t, NORM_LOWERCASE, err) : TERN_OK;
}

static tern_status read_fields(const fields *f, norm_step *step, tern_error *err)
{
  static const char *const replace_keys[] = {"pattern", "content", NULL}, *const prepend_keys[] = {"prepend", NULL},
                           *const strip_keys[] = {"strip_left", "strip_right", NULL},
                           *const map_keys[] = {"precompiled_charsmap", NULL}, *const none[] = {NULL};
  tok_span base64;
  switch (step->kind) {
  case NORM_REPLACE:
    TRY(fields_only(f, replace_keys, err));
    TRY(fields_pattern(f, "pattern", &step->pattern, err));
    if (pattern_matches_nothing(step->pattern)) /* what is put in stands for no text, which confuses the reference */
      return fields_bad(f, "pattern", "matches the empty text", err);
    return fields_text(f, "content", &step->text, err);
  case NORM_PREPEND:
    TRY(fields_only(f, prepend_keys, err));
    return fields_text(f, "prepend", &step->text, err);
  case NORM_STRIP:
    TRY(fields_only(f, strip_keys, err));
    TRY(fields_flag(f, "strip_left", &step->left, err));
    return fields_flag(f, "strip_right", &step->right, err);
  case NORM_PRECOMPILED:
    TRY(fields_only(f, map_keys, err));
    TRY(fields_text(f, "precompiled_charsmap", &base64, err));
    return charsmap_read(f->t, base64, step, err);
  default:
    return fields_only(f, none, err);
  }
}

static tern_status read_step(const fields *f, void *user, tern_error *err)
{
  static const struct {
    const char *name;
    norm_kind kind;
  } types[] = {{"NFC", NORM_NFC},
               {"NFD", NORM_NFD},
               {"NFKC", NORM_NFKC},
               {"NFKD", NORM_NFKD},
               {"Lowercase", NORM_LOWERCASE},
               {"Strip", NORM_STRIP},
               {"StripAccents", NORM_STRIP_ACCENTS},
               {"Prepend", NORM_PREPEND},
               {"Replace", NORM_REPLACE},
               {"Precompiled", NORM_PRECOMPILED},
               {"ByteLevel", NORM_BYTE_LEVEL},
               {"Nmt", NORM_NMT}};
  (void)user;
  if (strcmp(f->type, "BertNormalizer") == 0)
    return read_bert(f, err);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(f->type, types[i].name) == 0) {
      norm_step step = {.kind = types[i].kind};
      TRY(read_fields(f, &step, err));
      return push(f->t, &step, err);
    }
  return fields_unknown_type(f, err);
}

tern_status norm_read(tok *t, const jt *value, tern_error *err)
{
  if (!value)
    return TERN_OK;
  t->norm = mem_array(TOK_MAX_STEPS, sizeof *t->norm);
  if (!t->norm)
    return err_nomem(err, "normalizer");
  return fields_each(t, "normalizer", "normalizers", value, read_step, NULL, err);
}
