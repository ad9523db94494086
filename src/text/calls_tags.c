/* calls_tags.c - formats that write every argument between tags of its own, as text: qwen3_coder and its kin,
 * minimax_m2, DeepSeek's DSML; glm47 and longcat. See calls.h.
 *
 * What the text means follows from the tool's schema, by each family's rules in the reference. Where the reference
 * drops a call because an argument is not what the schema says (a date for an integer, 3.0), the number is taken where
 * it is one, and else the text: the tool may judge.
 */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "text/calls_impl.h"

static bool is_text(span a, const char *b)
{
  return a.n == strlen(b) && strncasecmp(a.s, b, a.n) == 0;
}

static bool is_among(span a, const char *const *names)
{
  for (; *names; names++)
    if (is_text(a, *names))
      return true;
  return false;
}

static bool has_prefix(span a, const char *const *prefixes)
{
  for (; *prefixes; prefixes++)
    if (a.n >= strlen(*prefixes) && strncasecmp(a.s, *prefixes, strlen(*prefixes)) == 0)
      return true;
  return false;
}

/* Without one line end on either side: tags stand on lines of their own. */
static span inner(span a)
{
  if (a.n && *a.s == '\n')
    a = span_skip(a, 1);
  if (a.n && a.s[a.n - 1] == '\n')
    a.n--;
  return a;
}

/* A whole number is one also when it was written as 3.0. NULL: no number that stands for one. */
static json_t *whole_number(span text)
{
  json_int_t whole;
  double real;
  if (value_integer(text, &whole))
    return json_integer(whole);
  if (value_real(text, &real) && real == floor(real) && fabs(real) < 9e15)
    return json_integer((json_int_t)real);
  return NULL;
}

static json_t *any_number(span text)
{
  double real;
  json_t *whole = whole_number(text);
  return whole ? whole : value_real(text, &real) ? json_real(real) : NULL;
}

static json_t *or_text(json_t *value, span text)
{
  return value ? value : value_string(text);
}

/* ---- what texts mean ---- */

typedef json_t *meaning(span text, const json_t *schema);

/* As qwen3_coder has it: one type, by the beginning of its name. */
static json_t *qwen_value(span text, const json_t *schema)
{
  static const char *const strings[] = {"string", "str", "text", "varchar", "char", "enum", NULL};
  static const char *const wholes[] = {"int", "uint", "long", "short", "unsigned", NULL};
  static const char *const numbers[] = {"num", "float", NULL};
  static const char *const truths[] = {"boolean", "bool", "binary", NULL};
  static const char *const trees[] = {"object", "array", "arr", "dict", "list", NULL};
  const json_t *type = json_object_get(schema, "type");
  span is = span_trim((span){json_string_value(type), json_string_length(type)});
  if (is_text(text, "null"))
    return json_null();
  if (!json_object_size(schema) || !type || is_among(is, strings))
    return value_string(text);
  if (has_prefix(is, wholes))
    return or_text(whole_number(text), text);
  if (has_prefix(is, numbers))
    return or_text(any_number(text), text);
  if (is_among(is, truths))
    return json_boolean(is_text(text, "true"));
  if (has_prefix(is, trees))
    return value_guess(text);
  return or_text(value_of(VALUE_PYTHON, text), text); /* several types, or none that is known */
}

/* The types that a schema allows, as bits in the order in which minimax_m2 tries them. */
enum {
  IS_WHOLE = 1,
  IS_NUMBER = 2,
  IS_TRUTH = 4,
  IS_TREE = 8,
  IS_TEXT = 16,
  IS_NULL = 32,
  IS_OTHER = 64, /* a type that is not known here */
  SCHEMA_DEPTH = 16,
};

static unsigned type_named(const json_t *name)
{
  static const struct {
    const char *name;
    unsigned bit;
  } types[] = {{"integer", IS_WHOLE}, {"int", IS_WHOLE},  {"number", IS_NUMBER}, {"float", IS_NUMBER},
               {"boolean", IS_TRUTH}, {"bool", IS_TRUTH}, {"object", IS_TREE},   {"array", IS_TREE},
               {"string", IS_TEXT},   {"str", IS_TEXT},   {"text", IS_TEXT},     {"null", IS_NULL}};
  for (size_t i = 0; i < sizeof types / sizeof *types && json_is_string(name); i++)
    if (strcasecmp(types[i].name, json_string_value(name)) == 0)
      return types[i].bit;
  return json_is_string(name) ? IS_OTHER : 0;
}

static unsigned type_of(const json_t *value)
{
  static const unsigned bits[] = {
      [JSON_OBJECT] = IS_TREE, [JSON_ARRAY] = IS_TREE, [JSON_STRING] = IS_TEXT, [JSON_INTEGER] = IS_WHOLE,
      [JSON_REAL] = IS_NUMBER, [JSON_TRUE] = IS_TRUTH, [JSON_FALSE] = IS_TRUTH, [JSON_NULL] = IS_NULL};
  return bits[json_typeof(value)];
}

/* 0: it names none. */
static unsigned schema_types(const json_t *schema, int depth)
{
  static const char *const choices[] = {"anyOf", "oneOf", "allOf"};
  const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
  unsigned types = type_named(type);
  for (size_t i = 0; i < json_array_size(type); i++)
    types |= type_named(json_array_get(type, i));
  for (size_t i = 0; i < json_array_size(values); i++)
    types |= type_of(json_array_get(values, i));
  for (size_t c = 0; c < sizeof choices / sizeof *choices && depth < SCHEMA_DEPTH; c++) {
    const json_t *list = json_object_get(schema, choices[c]);
    for (size_t i = 0; i < json_array_size(list); i++) {
      unsigned one = schema_types(json_array_get(list, i), depth + 1);
      types |= one ? one : IS_TEXT;
    }
  }
  return types;
}

static json_t *truth(span text)
{
  static const char *const yes[] = {"true", "1", "yes", "on", NULL}, *const no[] = {"false", "0", "no", "off", NULL};
  text = span_trim(text);
  return is_among(text, yes) ? json_true() : is_among(text, no) ? json_false() : NULL;
}

/* As minimax_m2 has it: the first type that the text can be. The reference makes every argument null that might be;
 * here only those that say so. */
static json_t *minimax_value(span text, const json_t *schema)
{
  static const char *const nothing[] = {"null", "none", "nil", NULL};
  unsigned types = schema ? schema_types(schema, 0) : 0;
  json_int_t whole;
  json_t *out = NULL;
  if (is_among(text, nothing))
    return json_null();
  if (types & IS_WHOLE && value_integer(text, &whole))
    return json_integer(whole);
  if (types & IS_NUMBER && (out = any_number(text)))
    return out;
  if (types & IS_TRUTH && (out = truth(text)))
    return out;
  if (types & IS_TREE && (out = value_of(VALUE_JSON, text)))
    return out;
  if (!(types & ~(unsigned)IS_NULL) || types & IS_TEXT)
    return value_string(text);
  return or_text(value_of(VALUE_JSON, text), text);
}

/* ---- <function=NAME><parameter=KEY>TEXT</parameter></function> and the like ---- */

typedef struct tag_names {
  const char *call, *call_end;
  const char *argument, *argument_end;
  bool quoted; /* names may stand in quotes, and attributes may follow them */
  bool cdata;  /* values may stand in <![CDATA[…]]>, and are strings then */
  meaning *means;
} tag_names;

/* Without quotes around it. */
static span unquoted(span name)
{
  name = span_trim(name);
  bool quotes = name.n >= 2 && (*name.s == '"' || *name.s == '\'') && name.s[name.n - 1] == *name.s;
  return quotes ? (span){name.s + 1, name.n - 2} : name;
}

/* DSML says of each argument whether it is a string. */
static json_t *typed_value(span text, span attributes)
{
  if (span_find(attributes, "string=\"true\""))
    return value_string(text);
  return span_find(attributes, "string=\"false\"") ? value_of(VALUE_JSON, text) : NULL;
}

/* A value in CDATA, which may hold the argument's end. False: it is in none. */
static bool cut_cdata(const tag_names *t, span text, span *name, span *value, span *rest)
{
  return t->cdata && span_cut(text, ">", name, &text) && span_starts(text, "<![CDATA[") &&
         span_cut(span_skip(text, strlen("<![CDATA[")), "]]>", value, rest) && span_starts(*rest, t->argument_end);
}

/* One argument behind its opening tag's beginning; *rest: what follows its end. */
static bool add_argument(const tag_names *t, span text, const json_t *tools, span function, json_t *arguments,
                         span *rest)
{
  span whole, name, value, attributes = {0};
  if (cut_cdata(t, text, &name, &value, rest)) {
    *rest = span_skip(*rest, strlen(t->argument_end));
    name = unquoted(name);
    return value_set(arguments, name, value_string(value));
  }
  if (!span_cut(text, t->argument_end, &whole, rest) || !span_cut(whole, ">", &name, &value))
    return false;
  if (!t->means) {
    name = span_trim(name);
    attributes = name;
    if (!name.n || *name.s != '"' || !span_cut(span_skip(name, 1), "\"", &name, &attributes))
      return false;
  } else if (t->quoted) {
    name = unquoted(name);
    value = span_trim(value);
  } else {
    value = inner(value);
  }
  json_t *means = t->means ? t->means(value, calls_schema(tools, function, name)) : typed_value(value, attributes);
  return value_set(arguments, name, means);
}

/* One call behind its opening tag's beginning. */
static bool add_call(const tag_names *t, span text, const json_t *tools, call_list *out, span *rest)
{
  span name = {0};
  json_t *arguments = json_object();
  bool well = span_cut(text, ">", &name, &text);
  name = t->quoted ? unquoted(name) : span_trim(name);
  for (;;) {
    text = span_trim(text);
    if (!well || span_starts(text, t->call_end))
      break;
    well = span_starts(text, t->argument) &&
           add_argument(t, span_skip(text, strlen(t->argument)), tools, name, arguments, &text);
  }
  if (well)
    *rest = span_skip(text, strlen(t->call_end));
  else
    json_decref(arguments);
  return well && calls_add(out, name, (span){0}, arguments);
}

static bool read_tags(const tag_names *t, span text, const json_t *tools, call_list *out)
{
  size_t before = out->n;
  for (text = span_trim(text); text.n; text = span_trim(text))
    if (!span_starts(text, t->call) || !add_call(t, span_skip(text, strlen(t->call)), tools, out, &text))
      return false;
  return out->n > before;
}

bool read_qwen_coder(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  static const tag_names t = {"<function=", "</function>", "<parameter=", "</parameter>", false, false, qwen_value};
  (void)f;
  return read_tags(&t, (span){text, n}, tools, out);
}

bool read_minicpm(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  static const tag_names t = {"<function name=", "</function>", "<param name=", "</param>", true, true, qwen_value};
  (void)f;
  return read_tags(&t, (span){text, n}, tools, out);
}

bool read_minimax(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  static const tag_names t = {"<invoke name=", "</invoke>",  "<parameter name=", "</parameter>", true,
                              false,           minimax_value};
  (void)f;
  return read_tags(&t, (span){text, n}, tools, out);
}

bool read_dsml(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  static const tag_names t = {"<｜DSML｜invoke name=",
                              "</｜DSML｜invoke>",
                              "<｜DSML｜parameter name=",
                              "</｜DSML｜parameter>",
                              true,
                              false,
                              NULL};
  (void)f;
  return read_tags(&t, (span){text, n}, tools, out);
}

/* Whether an argument is open at the end. */
bool inside_tags(const calls_format *f, const char *text, size_t n, calls_scan *scan)
{
  static const char *const pairs[CALLS_STRINGS][2] = {
      {"<parameter=", "</parameter>"}, {"<parameter name=", "</parameter>"},
      {"<param name=", "</param>"},    {"<｜DSML｜parameter name=", "</｜DSML｜parameter>"},
      {"<arg_value>", "</arg_value>"}, {"<longcat_arg_value>", "</longcat_arg_value>"}};
  (void)f;
  bool inside = false;
  for (size_t i = 0; i < CALLS_STRINGS && !inside; i++) {
    while (span_pass((span){text, n}, pairs[i][(int)scan->open[i]], &scan->at[i]))
      scan->open[i] = !scan->open[i];
    inside = scan->open[i];
  }
  return inside;
}

/* ---- NAME<arg_key>KEY</arg_key><arg_value>TEXT</arg_value> ---- */

typedef struct pair_names {
  const char *key, *key_end, *value, *value_end;
} pair_names;

static bool is_string(const json_t *schema)
{
  const json_t *type = json_object_get(schema, "type");
  return json_is_string(type) && !strcmp(json_string_value(type), "string");
}

/* White space, and line ends written as \n. */
static span skip_lines(span a)
{
  do
    a = span_trim(a);
  while (span_starts(a, "\\n") && (a = span_skip(a, 2), true));
  return a;
}

static bool add_pair(const pair_names *t, span *text, const json_t *tools, span function, json_t *arguments)
{
  span key, value;
  if (!span_starts(*text, t->key) || !span_cut(span_skip(*text, strlen(t->key)), t->key_end, &key, text))
    return false;
  *text = skip_lines(*text);
  if (!span_starts(*text, t->value) || !span_cut(span_skip(*text, strlen(t->value)), t->value_end, &value, text))
    return false;
  *text = skip_lines(*text);
  key = span_trim(key);
  value = span_trim(value);
  json_t *means = is_string(calls_schema(tools, function, key)) ? value_string(value) : value_guess(value);
  return value_set(arguments, key, means);
}

static bool read_pairs(const pair_names *t, span text, const json_t *tools, call_list *out)
{
  const char *at = span_find(text, t->key);
  if (!at)
    return false;
  span name = span_trim((span){text.s, (size_t)(at - text.s)});
  json_t *arguments = json_object();
  text = span_skip(text, (size_t)(at - text.s));
  while (text.n)
    if (!add_pair(t, &text, tools, name, arguments)) {
      json_decref(arguments);
      return false;
    }
  return calls_add(out, name, (span){0}, arguments);
}

/* Without tags: JSON, a name alone, or a name and an object. The reference takes any text for a call ("unknown", or its
 * first word); here it must be a tool's name. */
static bool read_plain_glm(const calls_format *f, span text, const json_t *tools, call_list *out)
{
  size_t n = 0;
  text = span_trim(text);
  if (span_starts(text, "{") || span_starts(text, "["))
    return read_json(f, text.s, text.n, tools, out);
  while (n < text.n && !strchr(" \t\r\n{", text.s[n]))
    n++;
  span name = {text.s, n}, rest = span_trim(span_skip(text, n));
  return calls_known(tools, name) && calls_add(out, name, (span){0}, rest.n ? value_object(rest) : json_object());
}

bool read_glm(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  static const pair_names t = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
  span whole = span_trim((span){text, n});
  return span_find(whole, t.key) ? read_pairs(&t, whole, tools, out) : read_plain_glm(f, whole, tools, out);
}

bool read_longcat(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  static const pair_names t = {"<longcat_arg_key>", "</longcat_arg_key>", "<longcat_arg_value>",
                               "</longcat_arg_value>"};
  span whole = span_trim((span){text, n});
  if (span_starts(whole, "{"))
    return read_json(f, whole.s, whole.n, tools, out);
  return read_pairs(&t, whole, tools, out);
}
