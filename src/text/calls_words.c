/* calls_words.c - formats with notations of their own: Python calls, and the gemmas' call:name{key:value}. See calls.h.
 *
 * Beyond the reference's pythonic: several calls in a list, lists and dicts as arguments, and strings that look like
 * numbers stay strings. Beyond its gemma4 and function_gemma: white space between members, names with dots and colons,
 * braces in strings, nested arguments.
 */
#include <ctype.h>
#include <string.h>

#include "text/calls_impl.h"

static bool is_name(char c)
{
  return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.' || (unsigned char)c >= 0x80;
}

static span take_name(span *text)
{
  size_t n = 0;
  *text = span_trim(*text);
  while (n < text->n && is_name(text->s[n]))
    n++;
  span name = {text->s, n};
  *text = span_skip(*text, n);
  return name;
}

/* ---- [name(key=value, …), …] ---- */

/* A value, or letters that are none, which are a string. */
static json_t *python_value(value_scan *s)
{
  value_scan before = *s;
  json_t *out = value_next(s);
  if (out)
    return out;
  *s = before;
  span word = take_name(&s->left);
  return word.n ? value_string(word) : NULL;
}

/* Behind the bracket, up to the closing one. */
static json_t *keywords(value_scan *s)
{
  json_t *out = json_object();
  while (!value_accept(s, ')')) {
    span key = take_name(&s->left);
    bool well = key.n && value_accept(s, '=') && value_set(out, key, python_value(s));
    if (well && (value_accept(s, ',') || (span_trim(s->left).n && *span_trim(s->left).s == ')')))
      continue;
    json_decref(out);
    return NULL;
  }
  return out;
}

bool read_pythonic(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  value_scan s = {.left = span_trim((span){text, n}), .style = VALUE_PYTHON, .depth = 1};
  (void)f, (void)tools;
  if (!value_accept(&s, '['))
    return false;
  do {
    span name = take_name(&s.left);
    if (!name.n || !value_accept(&s, '(') || !calls_add(out, name, (span){0}, keywords(&s)))
      return false;
  } while (value_accept(&s, ','));
  return value_accept(&s, ']') && !span_trim(s.left).n;
}

bool inside_python(const calls_format *f, const char *text, size_t n, calls_scan *scan)
{
  size_t *i = &scan->at[0];
  char *quote = &scan->open[0];
  (void)f;
  for (; *i < n; ++*i)
    if (*quote && text[*i] == '\\')
      ++*i;
    else if (*quote ? text[*i] == *quote : text[*i] == '"' || text[*i] == '\'')
      *quote = *quote ? '\0' : text[*i];
  return *quote;
}

/* ---- call:name{key:value, …} ---- */

static bool read_words(const char *quote, bool bare, span text, call_list *out)
{
  static const char call[] = "call:";
  size_t before = out->n;
  for (text = span_trim(text); text.n; text = span_trim(text)) {
    if (out->n > before && *text.s == ',')
      text = span_trim(span_skip(text, 1));
    if (!span_starts(text, call))
      return false;
    text = span_skip(text, sizeof call - 1);
    const char *brace = span_find(text, "{");
    span name = {text.s, brace ? (size_t)(brace - text.s) : 0};
    value_scan s = {.left = span_skip(text, name.n), .style = VALUE_WORDS, .quote = quote, .bare = bare};
    for (size_t i = 0; i < name.n; i++)
      if (!is_name(name.s[i]) && name.s[i] != ':')
        return false;
    if (!name.n || !calls_add(out, name, (span){0}, value_next(&s)))
      return false;
    text = s.left;
  }
  return out->n > before;
}

static bool inside_words(const char *quote, span text, calls_scan *scan)
{
  while (span_pass(text, quote, &scan->at[0]))
    scan->open[0] = !scan->open[0];
  return scan->open[0];
}

static const char gemma_quote[] = "<|\"|>", function_gemma_quote[] = "<escape>";

bool read_gemma(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  (void)f, (void)tools;
  return read_words(gemma_quote, false, (span){text, n}, out);
}

bool inside_gemma(const calls_format *f, const char *text, size_t n, calls_scan *scan)
{
  (void)f;
  return inside_words(gemma_quote, (span){text, n}, scan);
}

bool read_function_gemma(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  (void)f, (void)tools;
  return read_words(function_gemma_quote, true, (span){text, n}, out);
}

bool inside_function_gemma(const calls_format *f, const char *text, size_t n, calls_scan *scan)
{
  (void)f;
  return inside_words(function_gemma_quote, (span){text, n}, scan);
}
