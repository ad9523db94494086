/* json_util.c - see json_util.h.
 *
 * A pass over the text before the parser sees it does three things that jansson does not: it bounds depth and the
 * number of values (a tree takes some thirty times the bytes of its text), and it rewrites the tokens that Python adds
 * to JSON. The rewriting is exact about token borders, so that nothing which Python would refuse gets in through it.
 */
#include "format/json_util.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"

enum { DEPTH_LIMIT = 64, VALUE_LIMIT = 1 << 20 };

/* The largest finite doubles stand for what JSON cannot write. In float32, where every configuration value ends, the
 * first is an infinity anyway. */
#define INFINITY_TEXT "1.7976931348623157e308"
#define NAN_TEXT "1.7976931348623155e308"
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

/* ---- the pass before the parser ---------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
  return c >= '0' && c <= '9';
}

/* Whether a token may begin or end beside `c`. */
static bool is_border(char c)
{
  return c == '\0' || strchr(" \t\r\n,:[]{}", c) != NULL;
}

/* The text from its opening quote to behind its closing one, or to the end. */
static size_t string_length(const char *s, size_t n)
{
  size_t i = 1;
  while (i < n && s[i] != '"')
    i += s[i] == '\\' ? 2 : 1;
  return i < n ? i + 1 : n;
}

/* The text being looked over; `out` gets what is before `kept`, once there is anything to rewrite. The text is
 * NUL-terminated at `n` and holds no other NUL, so that looking one byte ahead is always allowed. */
typedef struct pass {
  const char *text;
  size_t n, kept;
  buf out;
} pass;

/* Puts `with` in the place of text[at, at + length). */
static void replace(pass *p, size_t at, size_t length, const char *with)
{
  buf_add(&p->out, p->text + p->kept, at - p->kept);
  buf_adds(&p->out, with);
  p->kept = at + length;
}

/* If one of Python's additions begins at text + i, rewrites it and returns its length; else 0. */
static size_t rewrite_word(pass *p, size_t i)
{
  const char *s = p->text + i;
  bool minus = i > 0 && s[-1] == '-';
  size_t before = i - (minus ? 1 : 0); /* where the whole token begins */
  if (before > 0 && !is_border(p->text[before - 1]))
    return 0;
  size_t n = 0;
  if (strncmp(s, "Infinity", 8) == 0)
    n = 8;
  else if (!minus && strncmp(s, "NaN", 3) == 0)
    n = 3;
  if (n == 0 || !is_border(s[n]))
    return 0;
  replace(p, i, n, n == 8 ? INFINITY_TEXT : NAN_TEXT);
  return n;
}

/* The length of the digits at text + i. A whole number too long for 64 bits is made a real. */
static size_t pass_digits(pass *p, size_t i)
{
  const char *s = p->text + i;
  size_t n = 0;
  while (is_digit(s[n]))
    n++;
  bool whole = is_border(s[n]) && (i == 0 || is_border(s[-1]) || s[-1] == '-');
  if (whole && (n > 19 || (n == 19 && memcmp(s, "9223372036854775807", 19) > 0)))
    replace(p, i + n, 0, ".0");
  return n;
}

static tern_status prepare(const char *name, pass *p, tern_error *err)
{
  size_t depth = 0, values = 0;
  for (size_t i = 0, used; i < p->n; i += used ? used : 1) {
    char c = p->text[i];
    used = 0;
    if (c == '"')
      used = string_length(p->text + i, p->n - i);
    else if (c == 'I' || c == 'N')
      used = rewrite_word(p, i);
    else if (is_digit(c))
      used = pass_digits(p, i);
    else if (c == '[' || c == '{')
      depth++;
    else if (c == ']' || c == '}')
      depth -= depth > 0;
    values += c == ',' || c == '[' || c == '{';
    if (depth > DEPTH_LIMIT)
      return err_set(err, TERN_E_LIMIT, "%s: nested deeper than %d levels", name, DEPTH_LIMIT);
    if (values > VALUE_LIMIT)
      return err_set(err, TERN_E_LIMIT, "%s: more than %d values", name, VALUE_LIMIT);
  }
  if (p->kept)
    replace(p, p->n, 0, "");
  return p->out.failed ? err_nomem(err, name) : TERN_OK;
}

/* ---- parse ------------------------------------------------------------------------------------------------------- */

static tern_status parse_prepared(const char *name, const char *text, size_t length, json_t **out, tern_error *err)
{
  json_error_t e = {0};
  json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &e);
  if (!root) {
    if (json_error_code(&e) == json_error_out_of_memory || e.text[0] == '\0')
      return err_nomem(err, name);
    return err_set(err, TERN_E_FORMAT, "%s: line %d, column %d: %s", name, e.line, e.column, e.text);
  }
  if (!json_is_object(root)) {
    json_decref(root);
    return err_set(err, TERN_E_FORMAT, "%s: not a JSON object", name);
  }
  *out = root;
  return TERN_OK;
}

tern_status jsonu_parse(const char *name, const char *text, size_t length, json_t **out, tern_error *err)
{
  const char *nul = memchr(text, '\0', length);
  if (nul)
    return err_set(err, TERN_E_FORMAT, "%s: a NUL byte at %zu", name, (size_t)(nul - text));
  pass p = {.text = text, .n = length};
  tern_status status = prepare(name, &p, err);
  if (status == TERN_OK && p.kept)
    status = parse_prepared(name, p.out.data, p.out.length, out, err);
  else if (status == TERN_OK)
    status = parse_prepared(name, text, length, out, err);
  buf_free(&p.out);
  return status;
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
