/* tok_pretok.c - the steps of the pre-tokenizer: each cuts every word of a list into smaller ones, or rewrites it.
 *
 * Words are spans of the text; only steps that change characters (ByteLevel, Metaspace) make new text. Empty words
 * vanish. What a delimiter does (removed, isolated, merged with a neighbour, ...) is one small machine, `cutter`,
 * which is fed the matches and the text between them from left to right.
 */
#include <string.h>

#include "base/utf8.h"
#include "text/tok_fields.h"
#include "text/tok_unicode.h"

bool pretok_push(pretok_words *words, const char *s, size_t n, size_t origin)
{
  if (n == 0)
    return true;
  if (!mem_grow(&words->items, &words->capacity, words->count + 1, sizeof *words->items))
    return false;
  words->items[words->count++] = (tok_text){s, n, origin};
  return true;
}

/* ---- cutting --------------------------------------------------------------------------------------------------- */

typedef struct cutter {
  split_behavior behavior;
  bool invert;
  tok_text text;
  pretok_words *out;
  bool held; /* a part that may still grow, or still be joined to the next */
  size_t begin, end;
  bool last_match;
  bool failed;
  tok_work *work;
} cutter;

static void cut_out(cutter *c, size_t begin, size_t end)
{
  size_t origin = c->text.origin > begin ? c->text.origin - begin : 0;
  if (!pretok_push(c->out, c->text.s + begin, end - begin, origin < end - begin ? origin : end - begin))
    c->failed = true;
}

static void cut_release(cutter *c)
{
  if (c->held)
    cut_out(c, c->begin, c->end);
  c->held = false;
}

static void cut_hold(cutter *c, size_t begin, size_t end)
{
  cut_release(c);
  c->held = true;
  c->begin = begin;
  c->end = end;
}

/* The next part of the text, a match or what stands between matches. */
static void cut_feed(cutter *c, size_t begin, size_t end, bool match)
{
  match ^= c->invert;
  switch (c->behavior) {
  case SPLIT_REMOVED:
    if (!match)
      cut_out(c, begin, end);
    break;
  case SPLIT_ISOLATED:
    cut_out(c, begin, end);
    break;
  case SPLIT_CONTIGUOUS:
    if (c->held && match == c->last_match)
      c->end = end;
    else
      cut_hold(c, begin, end);
    break;
  case SPLIT_MERGED_WITH_PREVIOUS:
    if (c->held && match && !c->last_match)
      c->end = end;
    else
      cut_hold(c, begin, end);
    break;
  case SPLIT_MERGED_WITH_NEXT: /* held: a match that waits for what follows */
    if (match)
      cut_hold(c, begin, end);
    else {
      cut_out(c, c->held ? c->begin : begin, end);
      c->held = false;
    }
    break;
  }
  c->last_match = match;
}

static tern_status cut_by_pattern(const pretok_step *step, pattern_cursor *cursor, cutter *c, tern_error *err)
{
  size_t done = 0, begin = 0, end = 0;
  bool found;
  pattern_start(cursor, step->pattern, c->text.s, c->text.n);
  for (;;) {
    TRY(pattern_next(cursor, &found, &begin, &end, err));
    if (!found)
      break;
    if (!tok_work_on(c->work, end - done))
      return tok_given_up(err);
    if (done != begin)
      cut_feed(c, done, begin, false);
    cut_feed(c, begin, end, true);
    done = end;
  }
  if (done != c->text.n)
    cut_feed(c, done, c->text.n, false);
  return TERN_OK;
}

typedef bool character_test(uint32_t c, const pretok_step *step);

static void cut_by_character(const pretok_step *step, character_test *test, cutter *c)
{
  size_t done = 0;
  for (size_t i = 0; i < c->text.n;) {
    uint32_t point = 0;
    size_t n = utf8_decode(c->text.s + i, c->text.n - i, &point);
    if (test(point, step)) {
      if (done < i)
        cut_feed(c, done, i, false);
      cut_feed(c, i, i + n, true);
      done = i + n;
    }
    i += n;
  }
  if (done < c->text.n)
    cut_feed(c, done, c->text.n, false);
}

static bool is_space(uint32_t c, const pretok_step *step)
{
  (void)step;
  return unicode_is_space(c);
}

static bool is_numeric(uint32_t c, const pretok_step *step)
{
  (void)step;
  return unicode_is_numeric(c);
}

static bool is_punctuation(uint32_t c, const pretok_step *step)
{
  (void)step;
  return unicode_is_punctuation(c);
}

static bool is_delimiter(uint32_t c, const pretok_step *step)
{
  return c == step->character;
}

/* Runs of word characters and runs of other characters that are no space; spaces go. */
static void cut_words(cutter *c)
{
  int last = 0;
  size_t begin = 0;
  for (size_t i = 0; i < c->text.n;) {
    uint32_t point = 0;
    size_t n = utf8_decode(c->text.s + i, c->text.n - i, &point);
    int kind = unicode_is_word(point) ? 1 : unicode_is_space(point) ? 0 : 2;
    if (kind != last) {
      if (last)
        cut_out(c, begin, i);
      begin = i;
    }
    last = kind;
    i += n;
  }
  if (last)
    cut_out(c, begin, c->text.n);
}

/* Cuts where the script changes. Characters of any script join what is before them; at the very beginning, where
 * nothing is, the reference loses them. */
static void cut_scripts(cutter *c)
{
  int last = -1;
  size_t begin = 0;
  for (size_t i = 0; i < c->text.n;) {
    uint32_t point = 0;
    size_t n = utf8_decode(c->text.s + i, c->text.n - i, &point);
    int script = unicode_script(point);
    if (script >= 0 && script != last) {
      if (last >= 0)
        cut_out(c, begin, i);
      begin = i;
      last = script;
    }
    i += n;
  }
  if (last >= 0)
    cut_out(c, begin, c->text.n);
}

static void cut_lengths(const pretok_step *step, cutter *c)
{
  size_t begin = 0, characters = 0;
  for (size_t i = 0; i < c->text.n;) {
    uint32_t point;
    if (characters == step->length) {
      cut_out(c, begin, i);
      begin = i;
      characters = 0;
    }
    i += utf8_decode(c->text.s + i, c->text.n - i, &point);
    characters++;
  }
  cut_out(c, begin, c->text.n);
}

/* ---- rewriting ------------------------------------------------------------------------------------------------- */

uint32_t byte_level_char(uint8_t byte)
{
  /* Bytes that print as themselves in Latin-1 stay; the others are numbered on from U+0100, in order. */
  if ((byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae)
    return byte;
  return byte <= 0x20 ? 0x100u + byte : byte <= 0xa0 ? 0x100u + 33 + (byte - 0x7fu) : 0x100 + 67;
}

int byte_level_byte(uint32_t c)
{
  if (c < 0x100)
    return byte_level_char((uint8_t)c) == c ? (int)c : -1;
  c -= 0x100;
  return c <= 0x20 ? (int)c : c < 67 ? (int)(0x7f + c - 33) : c == 67 ? 0xad : -1;
}

/* The text with every byte as its printable character. */
static bool rewrite_bytes(tok_text *text, arena *texts)
{
  char *out = arena_alloc(texts, 2 * text->n + 1);
  if (!out)
    return false;
  size_t length = 0, origin = 0;
  for (size_t i = 0; i < text->n; i++) {
    length += utf8_encode(byte_level_char((uint8_t)text->s[i]), out + length);
    if (i < text->origin)
      origin = length;
  }
  *text = (tok_text){out, length, origin};
  return true;
}

static bool put_before(tok_text *text, const char *s, size_t n, arena *texts)
{
  char *out = arena_alloc(texts, n + text->n);
  if (!out)
    return false;
  memcpy(out, s, n);
  memcpy(out + n, text->s, text->n);
  *text = (tok_text){out, n + text->n, text->origin ? text->origin + n : 0};
  return true;
}

static bool metaspace(const pretok_step *step, tok_text *text, arena *texts)
{
  char mark[4];
  size_t n_mark = utf8_encode(step->character, mark), spaces = 0;
  for (size_t i = 0; i < text->n; i++)
    spaces += text->s[i] == ' ';
  if (spaces) {
    char *out = arena_alloc(texts, text->n + spaces * n_mark);
    if (!out)
      return false;
    size_t length = 0, origin = 0;
    for (size_t i = 0; i < text->n; i++) {
      if (text->s[i] == ' ') {
        memcpy(out + length, mark, n_mark);
        length += n_mark;
      } else
        out[length++] = text->s[i];
      if (i < text->origin)
        origin = length;
    }
    *text = (tok_text){out, length, origin};
  }
  bool starts = text->n >= n_mark && memcmp(text->s, mark, n_mark) == 0;
  bool wanted = step->scheme == PREPEND_ALWAYS || (step->scheme == PREPEND_FIRST && text->origin > 0);
  return starts || !wanted || put_before(text, mark, n_mark, texts);
}

/* ---- one step -------------------------------------------------------------------------------------------------- */

static tern_status byte_level(const tok *t, const pretok_step *step, pattern_cursor *cursor, cutter *c, arena *texts,
                              tern_error *err)
{
  if (step->add_prefix_space && c->text.s[0] != ' ' && !put_before(&c->text, " ", 1, texts))
    return err_nomem(err, "the tokens of a text");
  size_t first = c->out->count;
  if (step->pattern)
    TRY(cut_by_pattern(step, cursor, c, err));
  else
    cut_out(c, 0, c->text.n);
  bool deferred = t->byte_level_words && step == &t->pretok[t->n_pretok - 1];
  for (size_t i = first; !deferred && i < c->out->count; i++)
    if (!rewrite_bytes(&c->out->items[i], texts))
      return err_nomem(err, "the tokens of a text");
  return TERN_OK;
}

static tern_status apply_word(const tok *t, const pretok_step *step, pattern_cursor *cursor, cutter *c, arena *texts,
                              tern_error *err)
{
  switch (step->kind) {
  case PRETOK_BYTE_LEVEL:
    TRY(byte_level(t, step, cursor, c, texts, err));
    break;
  case PRETOK_SPLIT:
    TRY(cut_by_pattern(step, cursor, c, err));
    break;
  case PRETOK_METASPACE:
    if (!metaspace(step, &c->text, texts))
      return err_nomem(err, "the tokens of a text");
    if (step->split)
      cut_by_character(step, is_delimiter, c);
    else
      cut_out(c, 0, c->text.n);
    break;
  case PRETOK_DIGITS:
    cut_by_character(step, is_numeric, c);
    break;
  case PRETOK_PUNCTUATION:
    cut_by_character(step, is_punctuation, c);
    break;
  case PRETOK_WHITESPACE_SPLIT:
    cut_by_character(step, is_space, c);
    break;
  case PRETOK_DELIMITER:
    cut_by_character(step, is_delimiter, c);
    break;
  case PRETOK_WHITESPACE:
    cut_words(c);
    break;
  case PRETOK_SCRIPTS:
    cut_scripts(c);
    break;
  case PRETOK_FIXED_LENGTH:
    cut_lengths(step, c);
    break;
  }
  cut_release(c);
  return c->failed ? err_nomem(err, "the tokens of a text") : TERN_OK;
}

static size_t total_length(const pretok_words *words)
{
  size_t n = 0;
  for (size_t i = 0; i < words->count; i++)
    n += words->items[i].n;
  return n;
}

tern_status pretok_apply(const tok *t, pretok_words *words, pretok_words *spare, arena *texts, tok_work *work,
                         tern_error *err)
{
  size_t most = tok_most_text(total_length(words));
  for (size_t k = 0; k < t->n_pretok; k++) {
    const pretok_step *step = &t->pretok[k];
    pattern_cursor cursor = {0};
    tern_status status = TERN_OK;
    spare->count = 0;
    for (size_t i = 0; i < words->count && status == TERN_OK; i++) {
      cutter c = {
          .behavior = step->behavior, .invert = step->invert, .text = words->items[i], .out = spare, .work = work};
      status = tok_work_on(work, 1) ? apply_word(t, step, &cursor, &c, texts, err) : tok_given_up(err);
    }
    pattern_finish(&cursor);
    TRY(status);
    bool grows = step->kind == PRETOK_BYTE_LEVEL || step->kind == PRETOK_METASPACE;
    if (grows && k + 1 < t->n_pretok && total_length(spare) > most)
      return err_set(err, TERN_E_LIMIT, "tokenizer: the pre_tokenizer blows up this text");
    pretok_words swap = *words;
    *words = *spare;
    *spare = swap;
  }
  return TERN_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* What ByteLevel splits by (GPT-2's expression). */
static const char byte_level_regex[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static tern_status read_byte_level(const fields *f, pretok_step *step, tern_error *err)
{
  static const char *const known[] = {"add_prefix_space", "trim_offsets", "use_regex", NULL};
  bool use_regex, trim;
  TRY(fields_only(f, known, err));
  TRY(fields_flag(f, "add_prefix_space", &step->add_prefix_space, err));
  TRY(fields_flag(f, "trim_offsets", &trim, err));
  TRY(fields_flag_or(f, "use_regex", true, &use_regex, err));
  step->behavior = SPLIT_ISOLATED;
  if (!use_regex)
    return TERN_OK;
  TRY(pattern_regex(f->t->file, byte_level_regex, sizeof byte_level_regex - 1, &step->pattern, err));
  pattern_link(&f->t->patterns, step->pattern);
  return TERN_OK;
}

tern_status metaspace_read(const fields *f, pretok_step *step, tern_error *err)
{
  static const char *const known[] = {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep", NULL};
  TRY(fields_only(f, known, err));
  TRY(fields_character(f, "replacement", &step->character, err));
  const jt *scheme = jt_get(f->value, "prepend_scheme");
  step->scheme = PREPEND_ALWAYS;
  if (jt_is(scheme, "first"))
    step->scheme = PREPEND_FIRST;
  else if (jt_is(scheme, "never"))
    step->scheme = PREPEND_NEVER;
  else if (scheme && !jt_is(scheme, "always"))
    return fields_bad(f, "prepend_scheme", "neither \"always\" nor \"first\" nor \"never\"", err);
  bool add = true; /* the older spelling: false stands for "never" */
  step->split = true;
  if (jt_get_set(f->value, "add_prefix_space"))
    TRY(fields_flag(f, "add_prefix_space", &add, err));
  if (jt_get_set(f->value, "split"))
    TRY(fields_flag(f, "split", &step->split, err));
  if (!add && step->scheme != PREPEND_NEVER)
    return fields_bad(f, "add_prefix_space", "false, but prepend_scheme is not \"never\"", err);
  step->behavior = SPLIT_MERGED_WITH_NEXT;
  return TERN_OK;
}

static tern_status read_fields(const fields *f, pretok_step *step, tern_error *err)
{
  static const char *const split_keys[] = {"pattern", "behavior", "invert", NULL},
                           *const digits_keys[] = {"individual_digits", NULL},
                           *const behavior_keys[] = {"behavior", NULL}, *const delimiter_keys[] = {"delimiter", NULL},
                           *const length_keys[] = {"length", NULL}, *const none[] = {NULL};
  bool individual;
  switch (step->kind) {
  case PRETOK_BYTE_LEVEL:
    return read_byte_level(f, step, err);
  case PRETOK_METASPACE:
    return metaspace_read(f, step, err);
  case PRETOK_SPLIT:
    TRY(fields_only(f, split_keys, err));
    TRY(fields_pattern(f, "pattern", &step->pattern, err));
    TRY(fields_behavior(f, "behavior", &step->behavior, err));
    return fields_flag(f, "invert", &step->invert, err);
  case PRETOK_DIGITS:
    TRY(fields_only(f, digits_keys, err));
    TRY(fields_flag(f, "individual_digits", &individual, err));
    step->behavior = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return TERN_OK;
  case PRETOK_PUNCTUATION:
    TRY(fields_only(f, behavior_keys, err));
    step->behavior = SPLIT_ISOLATED;
    return jt_get(f->value, "behavior") ? fields_behavior(f, "behavior", &step->behavior, err) : TERN_OK;
  case PRETOK_DELIMITER:
    TRY(fields_only(f, delimiter_keys, err));
    return fields_character(f, "delimiter", &step->character, err);
  case PRETOK_FIXED_LENGTH:
    TRY(fields_only(f, length_keys, err));
    step->length = 5;
    if (jt_get(f->value, "length"))
      TRY(fields_size(f, "length", &step->length, err));
    return step->length ? TERN_OK : fields_bad(f, "length", "zero", err);
  default:
    return fields_only(f, none, err);
  }
}

static tern_status push(tok *t, const pretok_step *step, tern_error *err)
{
  if (t->n_pretok == TOK_MAX_STEPS)
    return err_set(err, TERN_E_LIMIT, "%s: pre_tokenizer: more than %d steps", t->file, TOK_MAX_STEPS);
  t->pretok[t->n_pretok++] = *step;
  return TERN_OK;
}

static tern_status read_step(const fields *f, void *user, tern_error *err)
{
  static const struct {
    const char *name;
    pretok_kind kind;
  } types[] = {{"ByteLevel", PRETOK_BYTE_LEVEL},
               {"Split", PRETOK_SPLIT},
               {"Metaspace", PRETOK_METASPACE},
               {"Digits", PRETOK_DIGITS},
               {"Punctuation", PRETOK_PUNCTUATION},
               {"Whitespace", PRETOK_WHITESPACE},
               {"WhitespaceSplit", PRETOK_WHITESPACE_SPLIT},
               {"CharDelimiterSplit", PRETOK_DELIMITER},
               {"UnicodeScripts", PRETOK_SCRIPTS},
               {"FixedLength", PRETOK_FIXED_LENGTH}};
  (void)user;
  if (strcmp(f->type, "BertPreTokenizer") == 0) { /* two cuts: at white space, then around punctuation */
    static const char *const none[] = {NULL};
    pretok_step space = {.kind = PRETOK_WHITESPACE_SPLIT, .behavior = SPLIT_REMOVED},
                mark = {.kind = PRETOK_PUNCTUATION, .behavior = SPLIT_ISOLATED};
    TRY(fields_only(f, none, err));
    TRY(push(f->t, &space, err));
    return push(f->t, &mark, err);
  }
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(f->type, types[i].name) == 0) {
      pretok_step step = {.kind = types[i].kind, .behavior = SPLIT_REMOVED};
      TRY(read_fields(f, &step, err));
      return push(f->t, &step, err);
    }
  return fields_unknown_type(f, err);
}

tern_status pretok_read(tok *t, const jt *value, tern_error *err)
{
  if (!value)
    return TERN_OK;
  t->pretok = mem_array(TOK_MAX_STEPS, sizeof *t->pretok);
  if (!t->pretok)
    return err_nomem(err, "the tokenizer's pre_tokenizer");
  TRY(fields_each(t, "pre_tokenizer", "pretokenizers", value, read_step, NULL, err));
  t->byte_level_words =
      t->model == MODEL_BPE && t->n_pretok > 0 && t->pretok[t->n_pretok - 1].kind == PRETOK_BYTE_LEVEL;
  return TERN_OK;
}
