/* calls_json.c - formats that write arguments as a JSON object: in an object of their own with the name, or behind a
 * name and markers. See calls.h.
 *
 * Beyond the reference's json_tools, mistral and kimi_k2: Python's notation where JSON was meant, "parameters" for
 * "arguments", arguments that are the text of an object, lists of calls, several calls, mistral's [CALL_ID] and names
 * with other signs than letters. No "arguments" is no arguments. What is no object is refused.
 */
#include <ctype.h>
#include <string.h>

#include "text/calls_impl.h"

/* Whether a string is open at the end: quotes and backslashes alone matter. */
bool inside_json(const calls_format *f, const char *text, size_t n, calls_scan *scan)
{
  size_t *i = &scan->at[0];
  char *inside = &scan->open[0];
  (void)f;
  for (; *i < n; ++*i)
    if (*inside && text[*i] == '\\')
      ++*i;
    else if (text[*i] == '"')
      *inside = !*inside;
  return *inside;
}

/* ---- objects with a name ---- */

static json_t *first_of(const json_t *object, const char *const *keys)
{
  for (; *keys; keys++) {
    json_t *value = json_object_get(object, *keys);
    if (value)
      return value;
  }
  return NULL;
}

static span string_span(const json_t *string)
{
  return (span){json_string_value(string), json_string_length(string)};
}

/* New reference to an object; NULL: it is none, nor the text of one. */
static json_t *arguments_of(json_t *value)
{
  if (!value || json_is_null(value))
    return json_object();
  if (json_is_string(value))
    return span_trim(string_span(value)).n ? value_object(string_span(value)) : json_object();
  return json_is_object(value) ? json_incref(value) : NULL;
}

/* {"name", "arguments"}, where both may lie in "function" or "tool". */
static bool add_object(const json_t *object, call_list *out)
{
  static const char *const names[] = {"name", "tool_name", "function", "tool", NULL};
  static const char *const values[] = {"arguments", "parameters", NULL};
  json_t *name = first_of(object, names), *given = first_of(object, values);
  if (json_is_object(name)) {
    given = given ? given : first_of(name, values);
    name = json_object_get(name, "name");
  }
  json_t *id = json_object_get(object, "id");
  return json_is_string(name) &&
         calls_add(out, string_span(name), json_is_string(id) ? string_span(id) : (span){0}, arguments_of(given));
}

static bool add_objects(const json_t *value, call_list *out)
{
  if (json_is_object(value))
    return add_object(value, out);
  for (size_t i = 0; i < json_array_size(value); i++)
    if (!add_object(json_array_get(value, i), out))
      return false;
  return json_array_size(value) > 0;
}

bool read_json(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  static const value_style styles[] = {VALUE_JSON, VALUE_PYTHON, VALUE_LOOSE};
  (void)f, (void)tools;
  for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
    json_t *value = value_of(styles[i], (span){text, n});
    bool well = value && add_objects(value, out);
    json_decref(value);
    if (well)
      return true;
    if (out->n)
      return false; /* some were understood: another notation would say them twice */
  }
  return false;
}

/* The llamas' answers that are one object, or some with semicolons between. Nothing marks them but what they say: they
 * must name a tool of the request. */
bool read_bare_json(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  static const char tag[] = "<|python_tag|>";
  value_scan s = {.left = span_trim((span){text, n}), .style = VALUE_JSON};
  (void)f;
  if (span_starts(s.left, tag))
    s.left = span_skip(s.left, sizeof tag - 1);
  do {
    json_t *value = value_next(&s);
    bool known = value && calls_known(tools, string_span(json_object_get(value, "name")));
    bool well = known && add_object(value, out);
    json_decref(value);
    if (!well)
      return false;
    (void)value_accept(&s, ';');
  } while (span_trim(s.left).n);
  return true;
}

/* ---- a name, markers, an object ---- */

static bool is_name(span a)
{
  for (size_t i = 0; i < a.n; i++)
    if (!a.s[i] || strchr(" \t\r\n[]{}<>|\"", a.s[i]))
      return false;
  return a.n > 0;
}

static size_t up_to(span text, span rest)
{
  return (size_t)(rest.s - text.s);
}

/* The lists of older models have ids behind their arguments, which could not be told with the name. */
head_state head_mistral(span text, calls_head *out)
{
  span whole = span_trim(text), rest;
  if (!whole.n)
    return HEAD_WAIT;
  if (span_starts(whole, "[") || span_starts(whole, "{"))
    return HEAD_NONE;
  if (!span_cut(whole, "[ARGS]", &out->name, &rest))
    return HEAD_WAIT;
  span_cut(out->name, "[CALL_ID]", &out->name, &out->id);
  out->name = span_trim(out->name);
  out->id = span_trim(out->id);
  out->size = up_to(text, rest);
  return is_name(out->name) ? HEAD_KNOWN : HEAD_NONE;
}

/* [{"name", "arguments", "id"}, …], or name[ARGS]{…}, or name[CALL_ID]id[ARGS]{…}. */
bool read_mistral(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  span whole = span_trim((span){text, n});
  calls_head head = {0};
  if (span_starts(whole, "[") || span_starts(whole, "{"))
    return read_json(f, whole.s, whole.n, tools, out);
  return head_mistral(whole, &head) == HEAD_KNOWN &&
         calls_add(out, head.name, head.id, value_object(span_skip(whole, head.size)));
}

/* functions.NAME:7, the id of a call and its name in one. */
static bool split_kimi(span id, span *name)
{
  static const char prefix[] = "functions.";
  size_t digits = 0;
  while (digits < id.n && isdigit((unsigned char)id.s[id.n - 1 - digits]))
    digits++;
  if (!digits || digits + 2 > id.n || id.s[id.n - 1 - digits] != ':')
    return false;
  *name = (span){id.s, id.n - digits - 1};
  if (span_starts(*name, prefix) && name->n > sizeof prefix - 1)
    *name = span_skip(*name, sizeof prefix - 1);
  return true;
}

/* A marker that a call begins with, white space before it aside. */
static head_state pass_start(span *text, const char *start)
{
  *text = span_trim(*text);
  size_t size = strlen(start), have = text->n < size ? text->n : size;
  if (memcmp(text->n ? text->s : "", start, have) != 0)
    return HEAD_NONE;
  if (have < size)
    return HEAD_WAIT;
  *text = span_skip(*text, size);
  return HEAD_KNOWN;
}

/* A head without the marker before it. */
static head_state name_kimi(span text, calls_head *out)
{
  span rest;
  if (!span_cut(text, "<|tool_call_argument_begin|>", &out->id, &rest))
    return HEAD_WAIT;
  out->id = span_trim(out->id);
  out->size = up_to(text, rest);
  return split_kimi(out->id, &out->name) ? HEAD_KNOWN : HEAD_NONE;
}

static head_state head_behind(calls_heading *heading, const char *start, span text, calls_head *out)
{
  span at = text;
  head_state state = pass_start(&at, start);
  if (state == HEAD_KNOWN)
    state = heading(at, out);
  out->size += up_to(text, at);
  return state;
}

head_state head_kimi(span text, calls_head *out)
{
  return head_behind(name_kimi, "<|tool_call_begin|>", text, out);
}

static bool add_kimi(span text, call_list *out)
{
  calls_head head = {0};
  return name_kimi(text, &head) == HEAD_KNOWN &&
         calls_add(out, head.name, head.id, value_object(span_trim(span_skip(text, head.size))));
}

/* Calls between markers of their own, white space aside. */
static bool add_each(span text, const char *start, const char *end, bool (*add)(span text, call_list *out),
                     call_list *out)
{
  span before, one;
  text = span_trim(text);
  if (!text.n)
    return false;
  for (; text.n; text = span_trim(text)) {
    if (!span_starts(text, start) || !span_cut(text, end, &before, &text))
      return false;
    one = span_skip(before, strlen(start));
    if (!add(one, out))
      return false;
  }
  return true;
}

bool read_kimi(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  static const char start[] = "<|tool_call_begin|>";
  span whole = {text, n};
  (void)f, (void)tools;
  return span_find(whole, start) ? add_each(whole, start, "<|tool_call_end|>", add_kimi, out) : add_kimi(whole, out);
}

/* Of version 3.1, NAME<sep>{…}; of its forerunners, function<sep>NAME, a line end and an object in a fence. A tool may
 * be named "function": an object stands behind it then. */
static head_state name_deepseek(span text, calls_head *out)
{
  span rest;
  if (!span_cut(text, "<｜tool▁sep｜>", &out->name, &rest))
    return HEAD_WAIT;
  bool function = span_is(span_trim(out->name), "function");
  if (function && !span_trim(rest).n)
    return HEAD_WAIT;
  out->fenced = function && *span_trim(rest).s != '{';
  if (out->fenced && !span_cut(rest, "```json", &out->name, &rest))
    return HEAD_WAIT;
  out->name = span_trim(out->name);
  out->size = up_to(text, rest);
  return is_name(out->name) ? HEAD_KNOWN : HEAD_NONE;
}

head_state head_deepseek(span text, calls_head *out)
{
  return head_behind(name_deepseek, "<｜tool▁call▁begin｜>", text, out);
}

static bool add_deepseek(span text, call_list *out)
{
  static const char close[] = "```";
  calls_head head = {0};
  if (name_deepseek(text, &head) != HEAD_KNOWN)
    return false;
  span arguments = span_skip(text, head.size);
  if (head.fenced) {
    arguments = span_trim(arguments);
    if (arguments.n < sizeof close ||
        memcmp(arguments.s + arguments.n - (sizeof close - 1), close, sizeof close - 1) != 0)
      return false;
    arguments.n -= sizeof close - 1;
  }
  return calls_add(out, head.name, (span){0}, value_object(arguments));
}

bool read_deepseek(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  (void)f, (void)tools;
  return add_each((span){text, n}, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", add_deepseek, out);
}

head_state head_harmony(span text, calls_head *out)
{
  static const char prefix[] = "functions.";
  span header, to, rest;
  size_t length = 0;
  if (!span_cut(text, "<|message|>", &header, &rest))
    return HEAD_WAIT;
  if (!span_cut(header, "to=", &to, &header) || !span_starts(header, prefix))
    return HEAD_NONE;
  out->name = span_skip(header, sizeof prefix - 1);
  while (length < out->name.n && !strchr(" <", out->name.s[length]))
    length++;
  out->name.n = length;
  out->size = up_to(text, rest);
  return is_name(out->name) ? HEAD_KNOWN : HEAD_NONE;
}

/* A message to=functions.NAME: its header, a marker, and an object. */
bool read_harmony(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  span whole = {text, n};
  calls_head head = {0};
  (void)f, (void)tools;
  if (head_harmony(whole, &head) != HEAD_KNOWN)
    return false;
  span arguments = span_skip(whole, head.size);
  return calls_add(out, head.name, (span){0}, span_trim(arguments).n ? value_object(arguments) : json_object());
}
