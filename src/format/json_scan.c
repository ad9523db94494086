/* json_scan.c - see json_scan.h. The grammar is RFC 8259's to the letter: no leading zeros, no control characters, no
 * lone surrogates. NUL is refused in strings even as an escape, since here they become names that end at one. */
#include "format/json_scan.h"

#include <string.h>

#include "base/utf8.h"

bool slice_is(slice a, const char *b)
{
  return a.n == strlen(b) && memcmp(a.s, b, a.n) == 0;
}

static tern_status fault(json_scan *s, const char *at, const char *what)
{
  s->at = (size_t)(at - s->begin);
  s->failed = true;
  return err_set(s->err, TERN_E_FORMAT, "%s", what);
}

static void skip_space(json_scan *s)
{
  while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
    s->p++;
}

tern_status scan_unexpected(json_scan *s, const char *wanted)
{
  skip_space(s);
  fault(s, s->p, "");
  if (s->p == s->end)
    return err_set(s->err, TERN_E_FORMAT, "the end where %s should stand", wanted);
  return err_set(s->err, TERN_E_FORMAT, "'%c' where %s should stand", *s->p, wanted);
}

bool scan_accept(json_scan *s, char c)
{
  skip_space(s);
  if (s->p == s->end || *s->p != c)
    return false;
  s->p++;
  return true;
}

tern_status scan_expect(json_scan *s, char c, const char *wanted)
{
  return scan_accept(s, c) ? TERN_OK : scan_unexpected(s, wanted);
}

bool scan_word(json_scan *s, const char *word)
{
  skip_space(s);
  size_t n = strlen(word);
  if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
    return false;
  s->p += n;
  return true;
}

tern_status scan_end(json_scan *s)
{
  skip_space(s);
  return s->p == s->end ? TERN_OK : scan_unexpected(s, "the end");
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static bool hex4(const char *s, const char *end, uint32_t *out)
{
  if (end - s < 4)
    return false;
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) {
    int digit = hex_digit(s[i]);
    if (digit < 0)
      return false;
    value = value * 16 + (uint32_t)digit;
  }
  *out = value;
  return true;
}

/* Decodes the escape at s, which is a backslash, to out[4]. Returns bytes read, 0 if it is none that is allowed. */
static size_t unescape_one(const char *s, const char *end, char out[4], size_t *written)
{
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (end - s < 2)
    return 0;
  const char *simple = s[1] ? strchr(from, s[1]) : NULL;
  if (simple) {
    out[0] = to[simple - from];
    *written = 1;
    return 2;
  }
  uint32_t c, low;
  if (s[1] != 'u' || !hex4(s + 2, end, &c) || c == 0)
    return 0;
  size_t used = 6;
  if (c >= 0xd800 && c < 0xe000) {
    if (c >= 0xdc00 || end - s < 12 || s[6] != '\\' || s[7] != 'u' || !hex4(s + 8, end, &low) || low < 0xdc00 ||
        low >= 0xe000)
      return 0;
    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    used = 12;
  }
  *written = utf8_encode(c, out);
  return used;
}

static tern_status unescape(json_scan *s, slice raw, slice *out)
{
  char *text = arena_alloc(s->strings, raw.n);
  if (!text)
    return err_nomem(s->err, "a string in JSON");
  size_t n = 0;
  for (const char *p = raw.s, *end = raw.s + raw.n; p < end;) {
    if (*p != '\\') {
      text[n++] = *p++;
      continue;
    }
    /* An escape is never shorter than what it stands for, so `text` is long enough. */
    char piece[4];
    size_t written = 0, used = unescape_one(p, end, piece, &written);
    if (!used)
      return fault(s, p, "not an escape that is allowed");
    memcpy(text + n, piece, written);
    n += written;
    p += used;
  }
  *out = (slice){text, n};
  return TERN_OK;
}

tern_status scan_string(json_scan *s, const char *wanted, slice *out)
{
  if (!scan_accept(s, '"'))
    return scan_unexpected(s, wanted);
  const char *start = s->p;
  bool escapes = false;
  unsigned char all = 0; /* the bytes or-ed: most strings are plain ASCII and need no look at their UTF-8 */
  while (s->p < s->end && *s->p != '"') {
    if ((unsigned char)*s->p < 0x20)
      return fault(s, s->p, "a control character in a string");
    if (*s->p == '\\') {
      escapes = true;
      s->p++;
    }
    if (s->p < s->end)
      all |= (unsigned char)*s->p++;
  }
  if (s->p == s->end)
    return scan_unexpected(s, "the end of a string");
  slice raw = {start, (size_t)(s->p - start)};
  s->p++;
  size_t bad;
  if (all >= 0x80 && !utf8_valid(raw.s, raw.n, &bad))
    return fault(s, start + bad, "not UTF-8");
  if (escapes)
    return unescape(s, raw, out);
  *out = raw;
  return TERN_OK;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static size_t digits(json_scan *s)
{
  const char *start = s->p;
  while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
    s->p++;
  return (size_t)(s->p - start);
}

static bool take(json_scan *s, const char *any)
{
  if (s->p == s->end || !*s->p || !strchr(any, *s->p))
    return false;
  s->p++;
  return true;
}

tern_status scan_number(json_scan *s, const char *wanted, slice *out, bool *whole)
{
  skip_space(s);
  const char *start = s->p;
  *whole = true;
  take(s, "-");
  const char *first = s->p;
  size_t n = digits(s);
  if (n == 0) {
    s->p = start;
    return scan_unexpected(s, wanted);
  }
  if (n > 1 && *first == '0')
    return fault(s, start, "a number with leading zeros");
  if (take(s, ".")) {
    *whole = false;
    if (digits(s) == 0)
      return scan_unexpected(s, "a digit");
  }
  if (take(s, "eE")) {
    *whole = false;
    take(s, "+-");
    if (digits(s) == 0)
      return scan_unexpected(s, "a digit");
  }
  *out = (slice){start, (size_t)(s->p - start)};
  return TERN_OK;
}
