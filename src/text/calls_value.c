/* calls_value.c - values as models write them: JSON, Python's literals, and the unquoted notation of the gemmas. See
 * calls_impl.h.
 *
 * One reader by recursive descent; the style says what a string, a word, a key and white space are. It takes what
 * json.loads or ast.literal_eval take, as far as a JSON tree can hold it, and refuses the rest: NaN and infinities,
 * whole numbers beyond 64 bits, sets, bytes, complex numbers, half surrogates, and nesting deeper than DEPTH_LIMIT.
 */
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/calls_impl.h"

enum { DEPTH_LIMIT = 64, LONGEST_NUMBER = 400 };

/* ---- texts ---- */

static bool is_blank(char c)
{
  return c == ' ' || (c >= '\t' && c <= '\r');
}

span span_trim(span a)
{
  while (a.n && is_blank(*a.s))
    a = span_skip(a, 1);
  while (a.n && is_blank(a.s[a.n - 1]))
    a.n--;
  return a;
}

bool span_is(span a, const char *b)
{
  return a.n == strlen(b) && memcmp(a.s, b, a.n) == 0;
}

bool span_starts(span a, const char *prefix)
{
  size_t n = strlen(prefix);
  return a.n >= n && memcmp(a.s, prefix, n) == 0;
}

span span_skip(span a, size_t n)
{
  return (span){a.s + n, a.n - n};
}

const char *span_find(span a, const char *what)
{
  return a.n ? memmem(a.s, a.n, what, strlen(what)) : NULL;
}

bool span_pass(span a, const char *what, size_t *at)
{
  size_t n = strlen(what);
  const char *found = a.n > *at ? memmem(a.s + *at, a.n - *at, what, n) : NULL;
  if (found)
    *at = (size_t)(found - a.s) + n;
  else if (a.n >= *at + n)
    *at = a.n - n + 1;
  return found;
}

bool span_cut(span a, const char *what, span *before, span *rest)
{
  const char *at = span_find(a, what);
  if (!at)
    return false;
  *before = (span){a.s, (size_t)(at - a.s)};
  *rest = span_skip(a, before->n + strlen(what));
  return true;
}

/* ---- white space and single characters ---- */

static char next(const value_scan *s)
{
  return s->left.n ? *s->left.s : '\0';
}

static void take(value_scan *s, size_t n)
{
  s->left = span_skip(s->left, n);
}

static bool is_word(char c)
{
  return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* In Python a line ends an expression that no bracket holds open, and comments are white space. */
static void skip_blanks(value_scan *s)
{
  for (;;) {
    char c = next(s);
    if (s->style == VALUE_PYTHON && s->left.n && c == '#') {
      while (s->left.n && next(s) != '\n')
        take(s, 1);
      continue;
    }
    bool line = c == '\n' || c == '\r';
    bool blank = s->style == VALUE_PYTHON ? c == ' ' || c == '\t' || c == '\f' || (line && s->depth > 0)
                                          : c == ' ' || c == '\t' || line;
    if (!s->left.n || !blank)
      return;
    take(s, 1);
  }
}

bool value_accept(value_scan *s, char c)
{
  skip_blanks(s);
  if (!s->left.n || next(s) != c)
    return false;
  take(s, 1);
  return true;
}

/* ---- strings ---- */

/* Up to n hexadecimal digits, exactly n of them. */
static bool read_hex(value_scan *s, int n, uint32_t *out)
{
  *out = 0;
  for (int i = 0; i < n; i++) {
    int digit = hex_digit(next(s));
    if (!s->left.n || digit < 0)
      return false;
    *out = *out * 16 + (uint32_t)digit;
    take(s, 1);
  }
  return true;
}

static bool add_scalar(buf *out, uint32_t c)
{
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
    return false;
  buf_add_utf8(out, c);
  return true;
}

/* Behind "\u". JSON has pairs of surrogates. */
static bool read_unicode(value_scan *s, buf *out)
{
  uint32_t c, low;
  if (!read_hex(s, 4, &c))
    return false;
  if (s->style != VALUE_PYTHON && c >= 0xd800 && c < 0xdc00) {
    if (!span_starts(s->left, "\\u"))
      return false;
    take(s, 2);
    if (!read_hex(s, 4, &low) || low < 0xdc00 || low > 0xdfff)
      return false;
    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
  }
  return add_scalar(out, c);
}

static bool read_octal(value_scan *s, uint32_t c, buf *out)
{
  for (int i = 0; i < 2 && s->left.n && next(s) >= '0' && next(s) <= '7'; i++) {
    c = c * 8 + (uint32_t)(next(s) - '0');
    take(s, 1);
  }
  return add_scalar(out, c);
}

/* Behind a backslash. */
static bool read_escape(value_scan *s, buf *out)
{
  static const char names[] = "nrtbf\\\"/'av", values[] = "\n\r\t\b\f\\\"/'\a\v";
  enum { JSON_NAMES = 8 }; /* the first ones; but '/' is no escape of Python's */
  bool python = s->style == VALUE_PYTHON;
  uint32_t c;
  char name = next(s);
  if (!s->left.n)
    return false;
  take(s, 1);
  const char *at = name ? strchr(names, name) : NULL;
  if (at && (python ? name != '/' : at - names < JSON_NAMES)) {
    buf_addc(out, values[at - names]);
    return true;
  }
  if (name == 'u')
    return read_unicode(s, out);
  if (!python)
    return false;
  if (name == '\n')
    return true;
  if (name == 'x' || name == 'U')
    return read_hex(s, name == 'x' ? 2 : 8, &c) && add_scalar(out, c);
  if (name == 'N')
    return false;
  if (name >= '0' && name <= '7')
    return read_octal(s, (uint32_t)(name - '0'), out);
  buf_addc(out, '\\');
  buf_addc(out, name);
  return true;
}

/* Up to `end`, which is taken. `raw`: backslashes stand for themselves. */
static bool read_letters(value_scan *s, const char *end, bool raw, buf *out)
{
  while (s->left.n) {
    char c = next(s);
    if (span_starts(s->left, end)) {
      take(s, strlen(end));
      return true;
    }
    bool line = c == '\n' || c == '\r';
    bool bad = s->style == VALUE_PYTHON ? line && !end[1] : s->style != VALUE_LOOSE && (unsigned char)c < 0x20;
    if (bad)
      return false;
    take(s, 1);
    if (c != '\\') {
      buf_addc(out, c);
    } else if (raw) {
      buf_addc(out, c);
      if (s->left.n) { /* a quote behind it does not end the string */
        buf_addc(out, next(s));
        take(s, 1);
      }
    } else if (!read_escape(s, out)) {
      return false;
    }
  }
  return false;
}

static bool read_python_string(value_scan *s, buf *out)
{
  static const char *const ends[] = {"\"\"\"", "'''", "\"", "'"};
  bool raw = false;
  for (; s->left.n && strchr("rRuU", next(s)); take(s, 1))
    raw |= (next(s) | 0x20) == 'r';
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (span_starts(s->left, ends[i])) {
      take(s, strlen(ends[i]));
      return read_letters(s, ends[i], raw, out);
    }
  return false;
}

/* Whether a Python string begins here, with its prefix. */
static bool at_python_string(const value_scan *s)
{
  size_t i = 0;
  while (i < s->left.n && i < 2 && s->left.s[i] && strchr("rRuU", s->left.s[i]))
    i++;
  return i < s->left.n && (s->left.s[i] == '"' || s->left.s[i] == '\'');
}

static json_t *string_of(buf *text, bool well)
{
  json_t *out = well && !text->failed ? json_stringn(text->data ? text->data : "", text->length) : NULL;
  buf_free(text);
  return out;
}

/* Neighbouring strings are one. */
static json_t *python_string(value_scan *s)
{
  buf text = {0};
  bool well = true;
  for (; well && at_python_string(s); skip_blanks(s))
    well = read_python_string(s, &text);
  return string_of(&text, well);
}

static json_t *json_text(value_scan *s)
{
  buf text = {0};
  take(s, 1);
  bool well = read_letters(s, "\"", false, &text);
  return string_of(&text, well);
}

/* Between two quotes of the notation, as it stands there. */
static json_t *quoted_words(value_scan *s)
{
  span inside;
  take(s, strlen(s->quote));
  return span_cut(s->left, s->quote, &inside, &s->left) ? value_string(inside) : NULL;
}

json_t *value_string(span text)
{
  return json_stringn(text.n ? text.s : "", text.n);
}

/* ---- numbers and words ---- */

/* Text that is known to be a number. The program's locale has no say. */
static bool to_real(const char *text, double *out)
{
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (c == (locale_t)0)
    return false;
  *out = strtod_l(text, NULL, c);
  freelocale(c);
  return isfinite(*out);
}

static size_t count_digits(span a, bool underscores)
{
  size_t i = 0;
  while (i < a.n && (isdigit((unsigned char)a.s[i]) || (underscores && a.s[i] == '_' && i && i + 1 < a.n &&
                                                        a.s[i - 1] != '_' && isdigit((unsigned char)a.s[i + 1]))))
    i++;
  return i;
}

/* The length of the number at the start of `a`, without a sign; *whole: neither fraction nor exponent. 0: none. */
static size_t number_length(span a, bool python, bool *whole)
{
  size_t i = count_digits(a, python), before = i, after = 0;
  *whole = true;
  if (i < a.n && a.s[i] == '.') {
    after = count_digits(span_skip(a, i + 1), python);
    if (!after && !(python && before))
      return 0; /* "1." is Python's alone */
    i += 1 + after;
    *whole = false;
  }
  if (!before && !(python && after))
    return 0;
  if (i < a.n && (a.s[i] | 0x20) == 'e') {
    size_t sign = i + 1 < a.n && (a.s[i + 1] == '+' || a.s[i + 1] == '-');
    size_t digits = count_digits(span_skip(a, i + 1 + sign), python);
    if (digits) {
      i += 1 + sign + digits;
      *whole = false;
    }
  }
  return i;
}

/* The text without underscores, terminated. */
static bool copy_number(span a, bool minus, char out[LONGEST_NUMBER])
{
  size_t n = 0;
  if (a.n + 2 > LONGEST_NUMBER)
    return false;
  if (minus)
    out[n++] = '-';
  for (size_t i = 0; i < a.n; i++)
    if (a.s[i] != '_')
      out[n++] = a.s[i];
  out[n] = '\0';
  return true;
}

static bool to_integer(const char *text, int base, json_int_t *out)
{
  json_int_t value = 0;
  bool minus = *text == '-';
  for (text += minus; *text; text++) {
    int digit = hex_digit(*text);
    if (digit < 0 || digit >= base || __builtin_mul_overflow(value, base, &value) ||
        __builtin_sub_overflow(value, digit, &value)) /* downwards: the most negative one has no opposite */
      return false;
  }
  if (!minus && __builtin_sub_overflow(0, value, &value))
    return false;
  *out = value;
  return true;
}

/* 0x, 0o and 0b; other whole numbers of Python have no leading zeros, unless all are. */
static json_t *based_number(value_scan *s, bool minus)
{
  static const struct {
    char letter;
    int base;
  } bases[] = {{'x', 16}, {'o', 8}, {'b', 2}};
  for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
    if (s->left.n < 3 || (s->left.s[1] | 0x20) != bases[i].letter)
      continue;
    span digits = span_skip(s->left, 2);
    size_t n = 0;
    while (n < digits.n && is_word(digits.s[n]))
      n++;
    char text[LONGEST_NUMBER];
    json_int_t value;
    if (!copy_number((span){digits.s, n}, minus, text) || !to_integer(text, bases[i].base, &value))
      return NULL;
    take(s, 2 + n);
    return json_integer(value);
  }
  return NULL;
}

static bool bad_zeros(span a)
{
  return a.n > 1 && *a.s == '0' && strspn(a.s, "0_") < a.n;
}

static json_t *number(value_scan *s)
{
  bool python = s->style == VALUE_PYTHON, minus = false, whole;
  char text[LONGEST_NUMBER];
  json_int_t integer;
  double real;
  while (s->left.n && (next(s) == '-' || (python && next(s) == '+'))) {
    minus ^= next(s) == '-';
    take(s, 1);
    if (!python)
      break;
    skip_blanks(s);
  }
  if (python && next(s) == '0') {
    json_t *based = based_number(s, minus);
    if (based)
      return based;
  }
  size_t n = number_length(s->left, python, &whole);
  span digits = {s->left.s, n};
  if (!n || !copy_number(digits, minus, text))
    return NULL;
  bool zeros =
      whole && python ? bad_zeros(digits) : !python && n > 1 && *digits.s == '0' && isdigit((unsigned char)digits.s[1]);
  if (zeros)
    return NULL;
  take(s, n);
  if (python && s->left.n && is_word(next(s)))
    return NULL; /* 1j, 12abc */
  if (whole)
    return to_integer(text, 10, &integer) ? json_integer(integer) : NULL;
  return to_real(text, &real) ? json_real(real) : NULL;
}

bool value_real(span text, double *out)
{
  char copy[LONGEST_NUMBER];
  bool whole, sign;
  text = span_trim(text);
  sign = text.n && (*text.s == '-' || *text.s == '+');
  bool minus = sign && *text.s == '-';
  text = span_skip(text, sign);
  size_t n = number_length(text, true, &whole);
  return n && n == text.n && copy_number(text, minus, copy) && to_real(copy, out);
}

bool value_integer(span text, json_int_t *out)
{
  char copy[LONGEST_NUMBER];
  text = span_trim(text);
  bool sign = text.n && (*text.s == '-' || *text.s == '+'), minus = sign && *text.s == '-';
  text = span_skip(text, sign);
  size_t n = count_digits(text, true);
  return n && n == text.n && copy_number(text, minus, copy) && to_integer(copy, 10, out);
}

/* Takes the word, which no letter may follow. */
static bool word(value_scan *s, const char *text)
{
  size_t n = strlen(text);
  if (!span_starts(s->left, text) || (n < s->left.n && is_word(s->left.s[n])))
    return false;
  take(s, n);
  return true;
}

static json_t *constant(value_scan *s)
{
  bool python = s->style == VALUE_PYTHON;
  if (word(s, python ? "True" : "true"))
    return json_true();
  if (word(s, python ? "False" : "false"))
    return json_false();
  return word(s, python ? "None" : "null") ? json_null() : NULL;
}

/* What stands up to the next of these characters, if it is anything. */
static json_t *bare_words(value_scan *s, const char *ends)
{
  size_t n = 0;
  while (n < s->left.n && !strchr(ends, s->left.s[n]))
    n++;
  span text = span_trim((span){s->left.s, n});
  if (!text.n)
    return NULL;
  take(s, n);
  return value_string(text);
}

/* ---- containers ---- */

/* The elements up to `close`. *comma: one stood there, which makes a tuple. */
static json_t *elements(value_scan *s, char close, bool *comma)
{
  json_t *list = json_array();
  *comma = false;
  if (value_accept(s, close))
    return list;
  for (;;) {
    if (json_array_append_new(list, value_next(s)))
      break;
    bool more = value_accept(s, ',');
    *comma |= more;
    if (!more) {
      if (value_accept(s, close))
        return list;
      break;
    }
    if (s->style == VALUE_PYTHON && value_accept(s, close))
      return list;
  }
  json_decref(list);
  return NULL;
}

static json_t *list(value_scan *s)
{
  bool comma;
  return elements(s, ']', &comma);
}

/* (x) is x, (x,) and () are lists. */
static json_t *tuple(value_scan *s)
{
  bool comma;
  json_t *all = elements(s, ')', &comma);
  if (!all || comma || !json_array_size(all))
    return all;
  json_t *one = json_incref(json_array_get(all, 0));
  json_decref(all);
  return one;
}

/* What json.dumps makes of a dict's key. mem_free; NULL: an error there. */
static char *key_text(const json_t *key, size_t *n)
{
  if (json_is_string(key)) {
    *n = json_string_length(key);
    return mem_strndup(json_string_value(key), *n);
  }
  char *text = key && !json_is_array(key) && !json_is_object(key) ? value_text(key) : NULL;
  *n = text ? strlen(text) : 0;
  return text;
}

static json_t *word_key(value_scan *s)
{
  if (span_starts(s->left, s->quote))
    return quoted_words(s);
  if (next(s) == '"')
    return json_text(s);
  return bare_words(s, ":,{}[]\"");
}

bool value_set(json_t *object, span key, json_t *value)
{
  if (!key.n || !memchr(key.s, '\0', key.n))
    return json_object_setn_new(object, key.n ? key.s : "", key.n, value) == 0;
  json_decref(value);
  return false;
}

static bool member(value_scan *s, json_t *object)
{
  size_t n;
  skip_blanks(s);
  json_t *key = s->style == VALUE_WORDS    ? word_key(s)
                : s->style == VALUE_PYTHON ? value_next(s)
                : next(s) == '"'           ? json_text(s)
                                           : NULL;
  char *text = key_text(key, &n);
  json_decref(key);
  bool well = text && value_accept(s, ':') && value_set(object, (span){text, n}, value_next(s));
  mem_free(text);
  return well;
}

static json_t *object(value_scan *s)
{
  json_t *out = json_object();
  if (value_accept(s, '}'))
    return out;
  for (;;) {
    if (!member(s, out))
      break;
    if (!value_accept(s, ',')) {
      if (value_accept(s, '}'))
        return out;
      break;
    }
    if (s->style == VALUE_PYTHON && value_accept(s, '}'))
      return out;
  }
  json_decref(out);
  return NULL;
}

static json_t *container(value_scan *s, json_t *(*of)(value_scan *s))
{
  if (s->depth == DEPTH_LIMIT)
    return NULL;
  take(s, 1);
  s->depth++;
  json_t *out = of(s);
  s->depth--;
  return out;
}

json_t *value_next(value_scan *s)
{
  skip_blanks(s);
  char c = next(s);
  if (c == '{')
    return container(s, object);
  if (c == '[')
    return container(s, list);
  if (s->style == VALUE_PYTHON && c == '(')
    return container(s, tuple);
  if (s->style == VALUE_PYTHON && at_python_string(s))
    return python_string(s);
  if (s->style == VALUE_WORDS && span_starts(s->left, s->quote))
    return quoted_words(s);
  if (s->style != VALUE_PYTHON && c == '"')
    return json_text(s);
  value_scan before = *s;
  json_t *out = constant(s);
  out = out ? out : number(s);
  if (!s->bare || (out && (skip_blanks(s), !s->left.n || strchr(",}]", next(s)))))
    return out;
  json_decref(out);
  *s = before;
  return bare_words(s, ",{}[]\"");
}

/* ---- whole texts ---- */

/* Values that commas part are a tuple, in Python without brackets too. */
static json_t *python_tuple(value_scan *s, json_t *first)
{
  json_t *all = json_array();
  bool well = json_array_append_new(all, first) == 0;
  while (well && (skip_blanks(s), s->left.n && !strchr("\r\n", next(s)))) {
    well = json_array_append_new(all, value_next(s)) == 0;
    skip_blanks(s);
    if (well && s->left.n && !value_accept(s, ','))
      break;
  }
  if (well)
    return all;
  json_decref(all);
  return NULL;
}

json_t *value_of(value_style style, span text)
{
  value_scan s = {.left = style == VALUE_PYTHON ? span_trim(text) : text, .style = style};
  json_t *out = value_next(&s);
  if (out && style == VALUE_PYTHON && value_accept(&s, ','))
    out = python_tuple(&s, out);
  skip_blanks(&s);
  if (out && !s.left.n)
    return out;
  json_decref(out);
  return NULL;
}

json_t *value_guess(span text)
{
  json_t *out = value_of(VALUE_JSON, text);
  out = out ? out : value_of(VALUE_PYTHON, text);
  return out ? out : value_string(text);
}

json_t *value_object(span text)
{
  static const value_style styles[] = {VALUE_JSON, VALUE_PYTHON, VALUE_LOOSE};
  for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
    json_t *out = value_of(styles[i], text);
    if (json_is_object(out))
      return out;
    json_decref(out);
  }
  return NULL;
}

/* ---- writing ---- */

static void add_string(const char *s, size_t n, buf *out)
{
  static const char names[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
  buf_addc(out, '"');
  for (size_t i = 0; i < n; i++) {
    const char *at = s[i] ? strchr(names, s[i]) : NULL;
    if (at)
      buf_addf(out, "\\%c", letters[at - names]);
    else if ((unsigned char)s[i] < 0x20)
      buf_addf(out, "\\u%04x", (unsigned)s[i]);
    else
      buf_addc(out, s[i]);
  }
  buf_addc(out, '"');
}

/* As Python's repr: the fewest digits that read back as the same. */
static void add_real(double x, buf *out)
{
  char text[64];
  double back = 0;
  bool large = fabs(x) >= 1e16, whole = !large && x == floor(x);
  if (whole) {
    buf_addf(out, "%s%.0f.0", signbit(x) && x == 0 ? "-" : "", fabs(x) > 0 ? x : 0.0);
    return;
  }
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, large ? "%.*e" : "%.*g", large ? digits - 1 : digits, x);
    for (char *p = text; *p; p++) /* the locale's decimal point */
      if (!strchr("0123456789e+-", *p))
        *p = '.';
    if (to_real(text, &back) && back == x)
      break;
  }
  buf_adds(out, text);
}

static void add_value(const json_t *value, buf *out)
{
  const char *key;
  size_t n, i;
  json_t *part;
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    buf_addc(out, '{');
    i = 0;
    json_object_keylen_foreach((json_t *)value, key, n, part)
    {
      buf_adds(out, i++ ? ", " : "");
      add_string(key, n, out);
      buf_adds(out, ": ");
      add_value(part, out);
    }
    buf_addc(out, '}');
    break;
  case JSON_ARRAY:
    buf_addc(out, '[');
    json_array_foreach(value, i, part)
    {
      buf_adds(out, i ? ", " : "");
      add_value(part, out);
    }
    buf_addc(out, ']');
    break;
  case JSON_STRING:
    add_string(json_string_value(value), json_string_length(value), out);
    break;
  case JSON_INTEGER:
    buf_addf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    break;
  case JSON_REAL:
    add_real(json_real_value(value), out);
    break;
  case JSON_TRUE:
    buf_adds(out, "true");
    break;
  case JSON_FALSE:
    buf_adds(out, "false");
    break;
  default:
    buf_adds(out, "null");
  }
}

char *value_text(const json_t *value)
{
  buf out = {0};
  add_value(value, &out);
  char *text = buf_take(&out);
  buf_free(&out);
  return text;
}
