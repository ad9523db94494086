/* json_util.c - builds jansson's trees, see json_util.h.
 *
 * The text is read by json_scan and not by jansson's own parser, which knows neither Infinity nor bounds on the number
 * of values (a tree takes some thirty times the bytes of its text), and which aborts in an assertion when memory runs
 * out inside a token. jansson keeps the values.
 */
#include "format/json_util.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "format/json_scan.h"

enum { DEPTH_LIMIT = 64, VALUE_LIMIT = 1 << 20 };

/* The largest finite doubles stand for what JSON cannot write. In float32, where every configuration value ends, the
 * first is an infinity anyway. */
static const double INFINITY_STANDIN = 1.7976931348623157e308, NAN_STANDIN = 1.7976931348623155e308;

double jsonu_real(const json_t *number)
{
  double x = json_number_value(number);
  if (!json_is_real(number))
    return x;
  if (fabs(x) == INFINITY_STANDIN)
    return x < 0 ? -HUGE_VAL : HUGE_VAL;
  return x == NAN_STANDIN ? (double)NAN : x;
}

/* The depth of a tree is bounded when it is read. */
bool jsonu_finite(json_t *value)
{
  const char *key;
  size_t i;
  json_t *part;
  if (json_is_real(value))
    return isfinite(jsonu_real(value));
  json_object_foreach(value, key, part)
  {
    if (!jsonu_finite(part))
      return false;
  }
  json_array_foreach(value, i, part)
  {
    if (!jsonu_finite(part))
      return false;
  }
  return true;
}

const char *jsonu_describe(const json_t *value, char *out, size_t size)
{
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    snprintf(out, size, "an object");
    break;
  case JSON_ARRAY:
    snprintf(out, size, "a list");
    break;
  case JSON_STRING:
    snprintf(out, size, "the string \"%.60s\"", json_string_value(value));
    break;
  case JSON_INTEGER:
    snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    break;
  case JSON_REAL:
    snprintf(out, size, "%.17g", jsonu_real(value));
    break;
  case JSON_TRUE:
    snprintf(out, size, "true");
    break;
  case JSON_FALSE:
    snprintf(out, size, "false");
    break;
  default:
    snprintf(out, size, "null");
  }
  return out;
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

typedef struct builder {
  json_scan scan;
  const char *name;
  locale_t c_locale; /* strtod must not depend on what the program set */
  size_t depth, values;
  bool *digits; /* whole numbers keep theirs, and this tells of it; NULL: they do not */
  tern_error *err;
} builder;

static tern_status build(builder *b, json_t **out);

/* Checks what a constructor of jansson gave. */
static tern_status made(builder *b, json_t *value, json_t **out)
{
  *out = value;
  return value ? TERN_OK : err_nomem(b->err, b->name);
}

/* A fault found behind the scanner's back, at the place where it stands. */
static tern_status complain(builder *b, const char *at, const char *what, slice about)
{
  b->scan.failed = true;
  b->scan.at = (size_t)(at - b->scan.begin);
  return err_set(b->err, TERN_E_FORMAT, "%s \"%.*s\"", what, about.n < 100 ? (int)about.n : 100, about.s);
}

/* Whether the whole number in `text` fits 64 bits, and what it is. Counts down: the most negative one has no opposite.
 */
static bool to_integer(slice text, json_int_t *out)
{
  bool minus = *text.s == '-';
  json_int_t value = 0;
  for (size_t i = minus; i < text.n; i++)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, text.s[i] - '0', &value))
      return false;
  if (!minus && __builtin_sub_overflow(0, value, &value))
    return false;
  *out = value;
  return true;
}

enum { MOST_DIGITS = 4300, MARK = sizeof JSONU_DIGITS - 1 };

static tern_status build_digits(builder *b, slice text, json_t **out)
{
  char *made_of = arena_alloc(b->scan.strings, MARK + text.n);
  if (!made_of)
    return err_nomem(b->err, b->name);
  memcpy(made_of, JSONU_DIGITS, MARK);
  memcpy(made_of + MARK, text.s, text.n);
  *b->digits = true;
  return made(b, json_stringn_nocheck(made_of, MARK + text.n), out);
}

static tern_status build_number(builder *b, json_t **out)
{
  slice text;
  bool whole;
  json_int_t integer;
  TRY(scan_number(&b->scan, "a value", &text, &whole));
  if (whole && to_integer(text, &integer))
    return made(b, json_integer(integer), out);
  if (whole && b->digits && text.n - (*text.s == '-') <= MOST_DIGITS)
    return build_digits(b, text, out);
  char small[64], *terminated = small;
  if (text.n < sizeof small) {
    memcpy(small, text.s, text.n);
    small[text.n] = '\0';
  } else {
    terminated = arena_strndup(b->scan.strings, text.s, text.n);
  }
  if (!terminated)
    return err_nomem(b->err, b->name);
  double x = strtod_l(terminated, NULL, b->c_locale);
  if (isinf(x))
    x = copysign(INFINITY_STANDIN, x);
  return made(b, json_real(x), out);
}

static tern_status build_array(builder *b, json_t *array)
{
  if (scan_accept(&b->scan, ']'))
    return TERN_OK;
  do {
    json_t *value;
    TRY(build(b, &value));
    if (json_array_append_new(array, value))
      return err_nomem(b->err, b->name);
  } while (scan_accept(&b->scan, ','));
  return scan_expect(&b->scan, ']', "',' or ']'");
}

static tern_status build_member(builder *b, json_t *object)
{
  slice key;
  const char *at = b->scan.p;
  TRY(scan_string(&b->scan, "a key", &key));
  TRY(scan_expect(&b->scan, ':', "':'"));
  if (json_object_getn(object, key.s, key.n))
    return complain(b, at, "one object has twice the key", key);
  json_t *value;
  TRY(build(b, &value));
  return json_object_setn_new_nocheck(object, key.s, key.n, value) ? err_nomem(b->err, b->name) : TERN_OK;
}

static tern_status build_object(builder *b, json_t *object)
{
  if (scan_accept(&b->scan, '}'))
    return TERN_OK;
  do
    TRY(build_member(b, object));
  while (scan_accept(&b->scan, ','));
  return scan_expect(&b->scan, '}', "',' or '}'");
}

static tern_status build_container(builder *b, json_t *container, json_t **out)
{
  TRY(made(b, container, out));
  if (++b->depth > DEPTH_LIMIT) {
    json_decref(container);
    return err_set(b->err, TERN_E_LIMIT, "%s: nested deeper than %d levels", b->name, DEPTH_LIMIT);
  }
  tern_status status = json_is_array(container) ? build_array(b, container) : build_object(b, container);
  b->depth--;
  if (status != TERN_OK)
    json_decref(container);
  return status;
}

static tern_status build_string(builder *b, json_t **out)
{
  slice text;
  TRY(scan_string(&b->scan, "a value", &text));
  return made(b, json_stringn_nocheck(text.s, text.n), out);
}

/* On failure *out is not to be used. */
static tern_status build(builder *b, json_t **out)
{
  json_scan *s = &b->scan;
  *out = NULL;
  if (++b->values > VALUE_LIMIT)
    return err_set(b->err, TERN_E_LIMIT, "%s: more than %d values", b->name, VALUE_LIMIT);
  if (scan_accept(s, '{'))
    return build_container(b, json_object(), out);
  if (scan_accept(s, '['))
    return build_container(b, json_array(), out);
  if (scan_word(s, "true"))
    return made(b, json_true(), out);
  if (scan_word(s, "false"))
    return made(b, json_false(), out);
  if (scan_word(s, "null"))
    return made(b, json_null(), out);
  if (scan_word(s, "NaN"))
    return made(b, json_real(NAN_STANDIN), out);
  if (scan_word(s, "Infinity"))
    return made(b, json_real(INFINITY_STANDIN), out);
  if (scan_word(s, "-Infinity"))
    return made(b, json_real(-INFINITY_STANDIN), out);
  return s->p < s->end && *s->p == '"' ? build_string(b, out) : build_number(b, out);
}

static tern_status build_root(builder *b, json_t **out)
{
  TRY(build(b, out));
  tern_status status = scan_end(&b->scan);
  if (status == TERN_OK && !json_is_object(*out))
    status = err_set(b->err, TERN_E_FORMAT, "%s: not a JSON object", b->name);
  if (status != TERN_OK)
    json_decref(*out);
  return status;
}

/* Puts name, line and column before the scanner's message. */
static tern_status with_place(const builder *b, tern_status status)
{
  size_t line = 1, column = 1;
  for (const char *p = b->scan.begin; p < b->scan.begin + b->scan.at; p++) {
    line += *p == '\n';
    column = *p == '\n' ? 1 : column + 1;
  }
  return err_prefix(b->err, status, "%s: line %zu, column %zu", b->name, line, column);
}

static tern_status parse(const char *name, const char *text, size_t length, bool *digits, json_t **out, tern_error *err)
{
  arena strings = {0};
  builder b = {.scan = {.begin = text, .p = text, .end = text + length, .strings = &strings, .err = err},
               .name = name,
               .c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0),
               .digits = digits,
               .err = err};
  if (b.c_locale == (locale_t)0)
    return err_nomem(err, name);
  json_t *root;
  tern_status status = build_root(&b, &root);
  if (b.scan.failed)
    status = with_place(&b, status);
  if (status == TERN_OK)
    *out = root;
  freelocale(b.c_locale);
  arena_free(&strings);
  return status;
}

tern_status jsonu_parse(const char *name, const char *text, size_t length, json_t **out, tern_error *err)
{
  return parse(name, text, length, NULL, out, err);
}

/* ---- digits ------------------------------------------------------------------------------------------------------ */

tern_status jsonu_parse_digits(const char *name, const char *text, size_t length, bool *any, json_t **out,
                               tern_error *err)
{
  *any = false;
  return parse(name, text, length, any, out, err);
}

bool jsonu_is_digits(const json_t *value)
{
  return json_string_length(value) > MARK && memcmp(json_string_value(value), JSONU_DIGITS, MARK) == 0;
}

/* Digits alone: the locale has no say. */
static json_t *real_of(const json_t *digits)
{
  double x = strtod(json_string_value(digits) + MARK, NULL);
  return json_real(isinf(x) ? copysign(INFINITY_STANDIN, x) : x);
}

static bool is_kept(const char *key, const json_t *value, const char *const *kept)
{
  for (; *kept && json_is_object(value); kept++)
    if (!strcmp(*kept, key))
      return true;
  return false;
}

json_t *jsonu_drop_digits(json_t *value, const char *const *kept)
{
  const char *key;
  size_t i;
  json_t *x;
  bool well = true;
  if (jsonu_is_digits(value)) {
    json_t *real = real_of(value);
    json_decref(value);
    return real;
  }
  json_array_foreach(value, i, x)
  {
    json_t *to = jsonu_drop_digits(json_incref(x), kept);
    well = well && to && json_array_set_new(value, i, to) == 0;
  }
  json_object_foreach(value, key, x)
  {
    json_t *to = is_kept(key, x, kept) ? json_incref(x) : jsonu_drop_digits(json_incref(x), kept);
    well = well && to && json_object_set_new_nocheck(value, key, to) == 0;
  }
  if (well)
    return value;
  json_decref(value);
  return NULL;
}

/* Behind the string whose first quote is at s. */
static const char *behind_string(const char *s)
{
  for (s++; *s && *s != '"'; s++)
    if (*s == '\\' && s[1])
      s++;
  return s + (*s == '"');
}

/* Digits that make a string of `from`, which ends with a quote; 0: it is another. */
static size_t digits_in(const char *from)
{
  size_t minus = *from == '-', n = strspn(from + minus, "0123456789");
  return n && from[minus + n] == '"' ? minus + n : 0;
}

void jsonu_write_digits(char *text)
{
  static const char mark[] = "\"\\u0000int:";
  char *to = text;
  for (const char *from = text; *from;) {
    bool quote = *from == '"', marked = quote && !strncmp(from, mark, sizeof mark - 1);
    const char *begin = marked ? from + sizeof mark - 1 : from;
    size_t digits = marked ? digits_in(begin) : 0;
    const char *next = quote ? behind_string(from) : from + 1;
    size_t n = digits ? digits : (size_t)(next - from);
    memmove(to, digits ? begin : from, n);
    to += n;
    from = next;
  }
  *to = '\0';
}

tern_status jsonu_file(const char *path, size_t limit, json_t **out, tern_error *err)
{
  char *text;
  size_t length;
  TRY(file_read(path, limit, &text, &length, err));
  tern_status status = jsonu_parse(path, text, length, out, err);
  mem_free(text);
  return status;
}
