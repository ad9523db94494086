/* tok_wordpiece.c - WordPiece (the longest piece that begins the rest of the word, again and again) and WordLevel. */
#include <string.h>

#include "base/utf8.h"
#include "text/tok_impl.h"

static tern_status push(tok_ids *out, int32_t id, tern_error *err)
{
  return tok_ids_push(out, id) ? TERN_OK : err_nomem(err, "the tokens of a text");
}

static tern_status push_unknown(const tok *t, tok_ids *out, tern_error *err)
{
  if (t->wordpiece.unk < 0)
    return err_set(err, TERN_E_FORMAT, "%s: model.unk_token: '%.80s' is not in model.vocab", t->file,
                   t->wordpiece.unk_text.s);
  return push(out, t->wordpiece.unk, err);
}

/* The longest piece at s + begin, behind the first one with the prefix put before. -1: none. */
static int32_t longest_piece(const tok *t, const char *s, size_t n, size_t begin, buf *word, size_t *length)
{
  const wordpiece_model *m = &t->wordpiece;
  size_t prefix = begin ? m->prefix.n : 0, left = n - begin, end;
  if (m->longest < prefix)
    return -1;
  end = left < m->longest - prefix ? left : m->longest - prefix;
  while (end < left && ((uint8_t)s[begin + end] & 0xc0) == 0x80) /* not inside a character */
    end--;
  buf_clear(word);
  buf_add(word, m->prefix.s, prefix);
  buf_add(word, s + begin, end);
  while (end > 0 && !word->failed) {
    int32_t id = vocab_find(&t->vocab, word->data, prefix + end);
    if (id >= 0) {
      *length = end;
      return id;
    }
    do
      end--;
    while (end > 0 && ((uint8_t)s[begin + end] & 0xc0) == 0x80);
  }
  return -1;
}

tern_status wordpiece_word(const tok *t, const char *s, size_t n, tok_ids *out, tern_error *err)
{
  if (utf8_length(s, n) > t->wordpiece.max_chars)
    return push_unknown(t, out, err);
  buf word = {0};
  size_t first = out->count;
  tern_status status = TERN_OK;
  for (size_t begin = 0, length = 0; begin < n && status == TERN_OK; begin += length) {
    int32_t id = longest_piece(t, s, n, begin, &word, &length);
    if (word.failed)
      status = err_nomem(err, "the tokens of a text");
    else if (id >= 0)
      status = push(out, id, err);
    else { /* one missing piece makes the whole word unknown */
      out->count = first;
      status = push_unknown(t, out, err);
      break;
    }
  }
  buf_free(&word);
  return status;
}

tern_status wordlevel_word(const tok *t, const char *s, size_t n, tok_ids *out, tern_error *err)
{
  int32_t id = vocab_find(&t->vocab, s, n);
  return id >= 0 ? push(out, id, err) : push_unknown(t, out, err);
}
