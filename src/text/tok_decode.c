/* tok_decode.c - ids to text, all at once: the decoder's steps over the list of pieces.
 *
 * A step maps a list of strings to a list of strings; in the end they are joined. detok.c does the same for a stream.
 */
#include <string.h>

#include "base/utf8.h"
#include "text/tok_fields.h"

typedef struct pieces {
  tok_span *items;
  size_t count;
  arena *memory;
} pieces;

/* ---- shared with the stream ------------------------------------------------------------------------------------ */

static size_t replace_in_place(char *s, size_t n, const char *from, const char *to)
{
  size_t n_from = strlen(from), n_to = strlen(to), out = 0;
  for (size_t i = 0; i < n;) {
    if (n - i >= n_from && memcmp(s + i, from, n_from) == 0) {
      memcpy(s + out, to, n_to);
      out += n_to;
      i += n_from;
    } else
      s[out++] = s[i++];
  }
  return out;
}

size_t decode_cleanup(char *s, size_t n)
{
  static const char *const rules[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                         {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                         {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    n = replace_in_place(s, n, rules[i][0], rules[i][1]);
  return n;
}

int decode_byte_piece(const char *s, size_t n)
{
  if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
    return -1;
  int high = s[3] == '+' ? 0 : hex_digit(s[3]), low = hex_digit(s[4]); /* a sign counts as a digit 0 there */
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

/* All pieces as bytes in one block; pieces with a character outside the byte alphabet are taken as they are. */
static bool join_bytes(pieces *p, buf *out)
{
  for (size_t k = 0; k < p->count; k++) {
    tok_span s = p->items[k];
    size_t before = out->length;
    for (size_t i = 0; i < s.n;) {
      uint32_t c = 0;
      size_t n = utf8_decode(s.s + i, s.n - i, &c);
      int byte = n ? byte_level_byte(c) : -1;
      if (byte < 0) {
        out->length = before;
        buf_add(out, s.s, s.n);
        break;
      }
      buf_addc(out, (char)byte);
      i += n;
    }
  }
  return !out->failed;
}

/* Copies to the arena with one U+FFFD for each maximal broken part. */
static bool lossy(const char *s, size_t n, arena *memory, tok_span *out)
{
  buf clean = {0};
  for (size_t i = 0; i < n;) {
    uint32_t c;
    bool incomplete;
    size_t length = utf8_decode(s + i, n - i, &c);
    if (length)
      buf_add(&clean, s + i, length);
    else {
      buf_add_utf8(&clean, 0xfffd);
      length = utf8_broken(s + i, n - i, &incomplete);
    }
    i += length;
  }
  *out = (tok_span){arena_strndup(memory, clean.data ? clean.data : "", clean.length), clean.length};
  bool ok = !clean.failed && out->s;
  buf_free(&clean);
  return ok;
}

static bool byte_level(pieces *p)
{
  buf bytes = {0};
  tok_span whole;
  bool ok = join_bytes(p, &bytes) && lossy(bytes.data ? bytes.data : "", bytes.length, p->memory, &whole);
  buf_free(&bytes);
  if (ok) {
    p->items[0] = whole; /* items has room for one more than count */
    p->count = 1;
  }
  return ok;
}

/* A run of byte pieces becomes one string if it is valid UTF-8, else one U+FFFD per byte. */
static bool close_run(pieces *p, buf *run, size_t *out)
{
  size_t n = run->length;
  if (run->failed)
    return false;
  if (n == 0)
    return true;
  if (utf8_valid(run->data, n, NULL)) {
    p->items[*out] = (tok_span){arena_strndup(p->memory, run->data, n), n};
    return p->items[(*out)++].s != NULL;
  }
  for (size_t i = 0; i < n; i++)
    p->items[(*out)++] = (tok_span){"\xef\xbf\xbd", 3};
  buf_clear(run);
  return true;
}

static bool byte_fallback(pieces *p)
{
  buf run = {0};
  size_t out = 0;
  bool ok = true;
  for (size_t i = 0; i < p->count && ok; i++) {
    int byte = decode_byte_piece(p->items[i].s, p->items[i].n);
    if (byte >= 0) {
      buf_addc(&run, (char)byte);
      continue;
    }
    tok_span piece = p->items[i];
    ok = close_run(p, &run, &out);
    buf_clear(&run);
    p->items[out++] = piece;
  }
  ok = ok && close_run(p, &run, &out);
  buf_free(&run);
  p->count = out;
  return ok;
}

static bool fuse(pieces *p)
{
  size_t n = 0, at = 0;
  for (size_t i = 0; i < p->count; i++)
    n += p->items[i].n;
  char *all = arena_alloc(p->memory, n + 1);
  if (!all)
    return false;
  for (size_t i = 0; i < p->count; at += p->items[i++].n)
    memcpy(all + at, p->items[i].s, p->items[i].n);
  p->items[0] = (tok_span){all, n};
  p->count = 1;
  return true;
}

tern_status decode_replace(const decode_step *step, pattern_cursor *cursor, tok_span s, buf *out, size_t *matches,
                           tern_error *err)
{
  size_t begin = 0, end = 0, done = 0;
  bool found;
  tern_status status = TERN_OK;
  *matches = 0;
  pattern_start(cursor, step->pattern, s.s, s.n);
  /* In an empty string nothing is searched. */
  while (s.n && (status = pattern_next(cursor, &found, &begin, &end, err)) == TERN_OK && found) {
    buf_add(out, s.s + done, begin - done);
    buf_add(out, step->text.s, step->text.n);
    done = end;
    ++*matches;
  }
  buf_add(out, s.s + done, s.n - done);
  return status;
}

static tern_status replace(const decode_step *step, pieces *p, tern_error *err)
{
  pattern_cursor cursor = {0};
  buf out = {0};
  tern_status status = TERN_OK;
  for (size_t i = 0; i < p->count && status == TERN_OK; i++) {
    size_t matches;
    buf_clear(&out);
    status = decode_replace(step, &cursor, p->items[i], &out, &matches, err);
    if (!matches || status != TERN_OK)
      continue;
    p->items[i] = (tok_span){out.data ? arena_strndup(p->memory, out.data, out.length) : "", out.length};
    if (out.failed || !p->items[i].s)
      status = err_nomem(err, "the text of tokens");
  }
  pattern_finish(&cursor);
  buf_free(&out);
  return status;
}

static void strip(const decode_step *step, pieces *p)
{
  char mark[4];
  size_t n_mark = utf8_encode(step->character, mark);
  for (size_t i = 0; i < p->count; i++) {
    tok_span *s = &p->items[i];
    for (size_t k = 0; k < step->start && s->n >= n_mark && memcmp(s->s, mark, n_mark) == 0; k++) {
      s->s += n_mark;
      s->n -= n_mark;
    }
    for (size_t k = 0; k < step->stop && s->n >= n_mark && memcmp(s->s + s->n - n_mark, mark, n_mark) == 0; k++)
      s->n -= n_mark;
  }
}

static bool metaspace(const decode_step *step, pieces *p)
{
  char mark[4];
  size_t n_mark = utf8_encode(step->character, mark);
  for (size_t i = 0; i < p->count; i++) {
    tok_span s = p->items[i];
    if (!memmem(s.s, s.n, mark, n_mark))
      continue;
    char *out = arena_alloc(p->memory, s.n);
    size_t length = 0;
    if (!out)
      return false;
    for (size_t k = 0; k < s.n;) {
      if (s.n - k >= n_mark && memcmp(s.s + k, mark, n_mark) == 0) {
        if (i || !step->drop_first)
          out[length++] = ' ';
        k += n_mark;
      } else
        out[length++] = s.s[k++];
    }
    p->items[i] = (tok_span){out, length};
  }
  return true;
}

static bool wordpiece(const decode_step *step, pieces *p)
{
  for (size_t i = 0; i < p->count; i++) {
    tok_span s = p->items[i];
    bool joins = s.n >= step->text.n && memcmp(s.s, step->text.s, step->text.n) == 0;
    char *out = arena_alloc(p->memory, s.n + 1);
    size_t n = 0;
    if (!out)
      return false;
    if (i && joins) {
      s.s += step->text.n;
      s.n -= step->text.n;
    } else if (i)
      out[n++] = ' ';
    for (size_t k = 0; k < s.n; k++)
      out[n++] = s.s[k];
    p->items[i] = (tok_span){out, step->cleanup ? decode_cleanup(out, n) : n};
  }
  return true;
}

/* Copies s with every `what` (not empty) replaced by `by`, which is no longer. */
static char *copy_replaced(tok_span s, tok_span what, const char *by, arena *memory, size_t *length)
{
  size_t n_by = strlen(by), n = 0;
  char *out = arena_alloc(memory, s.n + 1);
  for (size_t i = 0; out && i < s.n;) {
    if (s.n - i >= what.n && memcmp(s.s + i, what.s, what.n) == 0) {
      memcpy(out + n, by, n_by);
      n += n_by;
      i += what.n;
    } else
      out[n++] = s.s[i++];
  }
  *length = n;
  return out;
}

static bool bpe_suffix(const decode_step *step, pieces *p)
{
  for (size_t i = 0; i < p->count; i++) {
    size_t n;
    char *out = copy_replaced(p->items[i], step->text, i + 1 == p->count ? "" : " ", p->memory, &n);
    if (!out)
      return false;
    p->items[i] = (tok_span){out, n};
  }
  return true;
}

static bool ctc(const decode_step *step, pieces *p)
{
  size_t out = 0;
  tok_span last = {NULL, 0};
  for (size_t i = 0; i < p->count; i++) {
    tok_span s = p->items[i];
    if (i && s.n == last.n && memcmp(s.s, last.s, s.n) == 0)
      continue;
    last = s;
    size_t n;
    char *text = copy_replaced(s, step->text, "", p->memory, &n);
    if (text && step->cleanup) {
      n = decode_cleanup(text, n);
      text = copy_replaced((tok_span){text, n}, step->text2, " ", p->memory, &n);
    }
    if (!text)
      return false;
    if (n)
      p->items[out++] = (tok_span){text, n};
  }
  p->count = out;
  return true;
}

static tern_status apply(const decode_step *step, pieces *p, tern_error *err)
{
  bool ok = true;
  switch (step->kind) {
  case DECODE_BYTE_LEVEL:
    ok = byte_level(p);
    break;
  case DECODE_BYTE_FALLBACK:
    ok = byte_fallback(p);
    break;
  case DECODE_FUSE:
    ok = fuse(p);
    break;
  case DECODE_REPLACE:
    return replace(step, p, err);
  case DECODE_STRIP:
    strip(step, p);
    break;
  case DECODE_METASPACE:
    ok = metaspace(step, p);
    break;
  case DECODE_WORDPIECE:
    ok = wordpiece(step, p);
    break;
  case DECODE_BPE:
    ok = bpe_suffix(step, p);
    break;
  case DECODE_CTC:
    ok = ctc(step, p);
    break;
  }
  return ok ? TERN_OK : err_nomem(err, "the text of tokens");
}

static size_t total_length(const pieces *p)
{
  size_t n = 0;
  for (size_t i = 0; i < p->count; i++)
    n += p->items[i].n;
  return n;
}

static tern_status run(const tok *t, pieces *p, buf *out, tern_error *err)
{
  size_t most = tok_most_text(total_length(p));
  for (size_t i = 0; i < t->n_decode; i++) {
    TRY(apply(&t->decode[i], p, err));
    if (t->decode[i].kind == DECODE_REPLACE && total_length(p) > most)
      return err_set(err, TERN_E_LIMIT, "tokenizer: the decoder blows up this text");
  }
  for (size_t i = 0; i < p->count; i++) {
    if (i && !t->has_decoder)
      buf_addc(out, ' ');
    buf_add(out, p->items[i].s, p->items[i].n);
  }
  return TERN_OK;
}

tern_status tok_decode(const tok *t, const int32_t *ids, size_t n, bool skip_special, char **text, size_t *length,
                       tern_error *err)
{
  arena memory = {0};
  pieces p = {.memory = &memory, .items = mem_array(n + 1, sizeof *p.items)};
  if (!p.items)
    return err_nomem(err, "the text of tokens");
  tern_status status = TERN_OK;
  for (size_t i = 0; i < n && status == TERN_OK; i++) {
    if (ids[i] < 0)
      status = err_set(err, TERN_E_USAGE, "ids: %d at position %zu is no token id", ids[i], i);
    else if (!skip_special || !tok_is_special(t, ids[i])) {
      p.items[p.count] = tok_shown(t, ids[i]);
      p.count += p.items[p.count].s != NULL;
    }
  }
  buf out = {0};
  buf_add(&out, "", 0);
  if (status == TERN_OK)
    status = run(t, &p, &out, err);
  size_t n_out = out.length;
  if (status == TERN_OK && out.failed)
    status = err_nomem(err, "the text of tokens");
  if (status == TERN_OK) {
    *text = buf_take(&out);
    if (length)
      *length = n_out;
  }
  buf_free(&out);
  mem_free(p.items);
  arena_free(&memory);
  return status;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

static tern_status not_empty(const fields *f, const char *key, tok_span text, tern_error *err)
{
  return text.n ? TERN_OK : fields_bad(f, key, "empty", err);
}

static tern_status read_fields(const fields *f, decode_step *step, tern_error *err)
{
  static const char *const
      bytes[] = {"add_prefix_space", "trim_offsets", "use_regex", NULL},
      *const replace_keys[] = {"pattern", "content", NULL}, *const strip_keys[] = {"content", "start", "stop", NULL},
      *const word_keys[] = {"prefix", "cleanup", NULL}, *const suffix_keys[] = {"suffix", NULL},
      *const ctc_keys[] = {"pad_token", "word_delimiter_token", "cleanup", NULL}, *const none[] = {NULL};
  pretok_step meta = {0};
  switch (step->kind) {
  case DECODE_BYTE_LEVEL:
    return fields_only(f, bytes, err);
  case DECODE_REPLACE:
    TRY(fields_only(f, replace_keys, err));
    TRY(fields_pattern(f, "pattern", &step->pattern, err));
    return fields_text(f, "content", &step->text, err);
  case DECODE_STRIP:
    TRY(fields_only(f, strip_keys, err));
    TRY(fields_character(f, "content", &step->character, err));
    TRY(fields_size(f, "start", &step->start, err));
    return fields_size(f, "stop", &step->stop, err);
  case DECODE_METASPACE:
    TRY(metaspace_read(f, &meta, err));
    step->character = meta.character;
    step->drop_first = meta.scheme != PREPEND_NEVER;
    return TERN_OK;
  case DECODE_WORDPIECE:
    TRY(fields_only(f, word_keys, err));
    TRY(fields_text(f, "prefix", &step->text, err));
    return fields_flag(f, "cleanup", &step->cleanup, err);
  case DECODE_BPE:
    TRY(fields_only(f, suffix_keys, err));
    TRY(fields_text(f, "suffix", &step->text, err));
    return not_empty(f, "suffix", step->text, err);
  case DECODE_CTC:
    TRY(fields_only(f, ctc_keys, err));
    TRY(fields_text(f, "pad_token", &step->text, err));
    TRY(fields_text(f, "word_delimiter_token", &step->text2, err));
    TRY(fields_flag(f, "cleanup", &step->cleanup, err));
    TRY(not_empty(f, "pad_token", step->text, err));
    return not_empty(f, "word_delimiter_token", step->text2, err);
  default:
    return fields_only(f, none, err);
  }
}

static tern_status read_step(const fields *f, void *user, tern_error *err)
{
  static const struct {
    const char *name;
    decode_kind kind;
  } types[] = {{"ByteLevel", DECODE_BYTE_LEVEL},
               {"ByteFallback", DECODE_BYTE_FALLBACK},
               {"Fuse", DECODE_FUSE},
               {"Replace", DECODE_REPLACE},
               {"Strip", DECODE_STRIP},
               {"Metaspace", DECODE_METASPACE},
               {"WordPiece", DECODE_WORDPIECE},
               {"BPEDecoder", DECODE_BPE},
               {"CTC", DECODE_CTC}};
  (void)user;
  tok *t = f->t;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(f->type, types[i].name) == 0) {
      decode_step step = {.kind = types[i].kind};
      TRY(read_fields(f, &step, err));
      if (t->n_decode == TOK_MAX_STEPS)
        return err_set(err, TERN_E_LIMIT, "%s: decoder: more than %d steps", t->file, TOK_MAX_STEPS);
      t->decode[t->n_decode++] = step;
      return TERN_OK;
    }
  return fields_unknown_type(f, err);
}

tern_status decode_read(tok *t, const jt *value, tern_error *err)
{
  if (!value)
    return TERN_OK;
  t->has_decoder = true;
  t->decode = mem_array(TOK_MAX_STEPS, sizeof *t->decode);
  if (!t->decode)
    return err_nomem(err, "decoder");
  return fields_each(t, "decoder", "decoders", value, read_step, NULL, err);
}
