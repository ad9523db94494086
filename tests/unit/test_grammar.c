/* test_grammar.c - grammars of JSON schemas: what valid texts they take, and that they take no other.
 *
 * Schemas and documents are made at random, from a seed. A document made for its schema must be taken in every style of
 * white space, byte by byte; what a random walk finds must parse and be valid, by a validator of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/grammar_machine.h"
#include "text/schema.h"

static uint32_t random_state = 1;

static uint32_t next_random(uint32_t below)
{
  random_state = random_state * 1664525u + 1013904223u;
  return (uint32_t)(((uint64_t)random_state * below) >> 32);
}

typedef struct compiled {
  grammar g;
  gram_machine *m;
} compiled;

static tern_status compile(const json_t *schema, const schema_frame *frame, compiled *out, tern_error *err)
{
  static const schema_frame bare = {0};
  tern_status status = schema_compile(schema, "schema", frame ? frame : &bare, &out->g, err);
  out->m = NULL;
  if (status == TERN_OK)
    status = gram_machine_open(&out->g, &out->m, err);
  if (status == TERN_OK)
    gram_allow(out->m, UINT64_MAX);
  return status;
}

static void release(compiled *c)
{
  gram_machine_close(c->m);
  gram_free(&c->g);
}

static void must_compile(const json_t *schema, const schema_frame *frame, compiled *out)
{
  tern_error err = {0};
  if (compile(schema, frame, out, &err) != TERN_OK) {
    char *text = schema ? json_dumps(schema, 0) : NULL;
    fail_msg("%s: %s", err.text, text ? text : "any object");
  }
}

static json_t *parse(const char *text)
{
  json_error_t why;
  json_t *out = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
  if (!out)
    fail_msg("%s: %s", why.text, text);
  return out;
}

static bool takes(compiled *c, const char *text, size_t n)
{
  uint32_t state = gram_start(c->m);
  for (size_t i = 0; i < n && state; i++)
    state = gram_step(c->m, state, (uint8_t)text[i]);
  assert_int_equal(gram_fault(c->m, NULL), TERN_OK);
  return state && gram_accepts(c->m, state);
}

/* ---- a validator ---- */

static const json_t *target(const json_t *root, const char *ref)
{
  char part[64];
  const json_t *at = root;
  for (const char *s = ref + 1; *s;) {
    size_t n = strcspn(s + 1, "/");
    snprintf(part, sizeof part, "%.*s", (int)n, s + 1);
    at = json_object_get(at, part);
    s += n + 1;
  }
  return at;
}

static bool is_type(const json_t *v, const char *type)
{
  static const struct {
    const char *name;
    unsigned kinds;
  } types[] = {{"null", 1u << JSON_NULL},       {"boolean", 1u << JSON_TRUE | 1u << JSON_FALSE},
               {"integer", 1u << JSON_INTEGER}, {"number", 1u << JSON_INTEGER | 1u << JSON_REAL},
               {"string", 1u << JSON_STRING},   {"array", 1u << JSON_ARRAY},
               {"object", 1u << JSON_OBJECT}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i].name, type))
      return types[i].kinds >> json_typeof(v) & 1;
  return false;
}

static bool in_range(double x, const json_t *lo, const json_t *hi)
{
  return (!lo || x >= json_number_value(lo)) && (!hi || x <= json_number_value(hi));
}

static size_t characters(const char *s)
{
  size_t n = 0;
  for (; *s; s++)
    n += ((unsigned char)*s & 0xc0) != 0x80;
  return n;
}

static bool valid(const json_t *root, const json_t *s, const json_t *v);

static bool valid_list(const json_t *root, const json_t *s, const json_t *v)
{
  const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
  for (size_t i = 0; i < json_array_size(v); i++) {
    const json_t *of = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
    if (of && !valid(root, of, json_array_get(v, i)))
      return false;
  }
  return in_range((double)json_array_size(v), json_object_get(s, "minItems"), json_object_get(s, "maxItems"));
}

static bool valid_object(const json_t *root, const json_t *s, const json_t *v)
{
  const json_t *properties = json_object_get(s, "properties"), *others = json_object_get(s, "additionalProperties");
  const json_t *required = json_object_get(s, "required");
  const char *key;
  json_t *x;
  for (size_t i = 0; i < json_array_size(required); i++)
    if (!json_object_get(v, json_string_value(json_array_get(required, i))))
      return false;
  json_object_foreach((json_t *)(uintptr_t)v, key, x)
  {
    const json_t *of = json_object_get(properties, key);
    if ((of || others) && !valid(root, of ? of : others, x))
      return false;
  }
  return true;
}

static bool valid(const json_t *root, const json_t *s, const json_t *v)
{
  const json_t *any = json_object_get(s, "anyOf"), *values = json_object_get(s, "enum");
  const char *ref = json_string_value(json_object_get(s, "$ref")),
             *type = json_string_value(json_object_get(s, "type"));
  bool one = !any && !values;
  if (json_is_boolean(s))
    return json_is_true(s);
  if (ref)
    return valid(root, target(root, ref), v);
  for (size_t i = 0; i < json_array_size(any); i++)
    one = one || valid(root, json_array_get(any, i), v);
  for (size_t i = 0; i < json_array_size(values); i++)
    one = one || json_equal(json_array_get(values, i), (json_t *)(uintptr_t)v);
  if (!one || (type && !is_type(v, type)))
    return false;
  if (json_is_number(v))
    return in_range(json_number_value(v), json_object_get(s, "minimum"), json_object_get(s, "maximum"));
  if (json_is_string(v))
    return in_range((double)characters(json_string_value(v)), json_object_get(s, "minLength"),
                    json_object_get(s, "maxLength"));
  return json_is_array(v) ? valid_list(root, s, v) : !json_is_object(v) || valid_object(root, s, v);
}

/* ---- schemas and documents at random ---- */

static json_t *random_schema(int depth);

static json_t *random_object_schema(int depth)
{
  static const char *const names[] = {"a", "ab", "name", "größe", "x y", "quote\"d", "ab\\c", "日本", "abc", ""};
  json_t *properties = json_object(), *required = json_array();
  uint32_t n = next_random(5);
  for (uint32_t i = 0; i < n; i++) {
    const char *name = names[next_random(10)];
    if (json_object_get(properties, name))
      continue;
    json_object_set_new(properties, name, random_schema(depth - 1));
    if (next_random(2))
      json_array_append_new(required, json_string(name));
  }
  json_t *out = json_pack("{ss so so}", "type", "object", "properties", properties, "required", required);
  uint32_t others = next_random(4);
  if (others)
    json_object_set_new(out, "additionalProperties",
                        others == 1   ? json_false()
                        : others == 2 ? json_true()
                                      : random_schema(depth - 1));
  else
    json_object_set_new(out, "additionalProperties", json_false());
  return out;
}

static json_t *random_list_schema(int depth)
{
  json_t *out = json_pack("{ss}", "type", "array");
  uint32_t least = next_random(3);
  if (next_random(3))
    json_object_set_new(out, "items", random_schema(depth - 1));
  if (next_random(3) == 0)
    json_object_set_new(out, "prefixItems", json_pack("[oo]", random_schema(depth - 1), random_schema(0)));
  if (next_random(2))
    json_object_set_new(out, "minItems", json_integer(least));
  if (next_random(2))
    json_object_set_new(out, "maxItems", json_integer(least + next_random(3)));
  return out;
}

static json_t *random_leaf_schema(void)
{
  static const char *const leaves[] = {"{\"type\": \"null\"}",
                                       "{\"type\": \"boolean\"}",
                                       "{\"type\": \"number\"}",
                                       "{\"type\": \"integer\"}",
                                       "{\"type\": \"string\"}",
                                       "{\"type\": \"string\", \"minLength\": 1, \"maxLength\": 4}",
                                       "{\"type\": \"string\", \"maxLength\": 2}",
                                       "{\"enum\": [1, 2.5, \"x\", null, \"ü\\n\"]}",
                                       "{\"enum\": [\"red\", \"green\", \"blue\"]}",
                                       "true",
                                       "{}"};
  uint32_t which = next_random(13);
  if (which < sizeof leaves / sizeof *leaves)
    return parse(leaves[which]);
  int lo = (int)next_random(400) - 200, hi = lo + (int)next_random(2000);
  return json_pack("{ss si si}", "type", "integer", "minimum", lo, "maximum", hi);
}

static json_t *random_schema(int depth)
{
  uint32_t which = depth > 0 ? next_random(4) : 3;
  if (which == 0)
    return random_object_schema(depth);
  if (which == 1)
    return random_list_schema(depth);
  if (which == 2)
    return json_pack("{s[oo]}", "anyOf", random_schema(depth - 1), random_schema(depth - 1));
  return random_leaf_schema();
}

static json_t *random_string(json_int_t least, json_int_t most)
{
  static const char *const letters[] = {"a", "b",    " ",   "\"", "\\", "\n", "ü", "日", "\xf0\x9f\x98\x80",
                                        "/", "\x7f", "\x01"};
  buf text = {0};
  json_int_t n = least + next_random((uint32_t)(most - least + 1));
  buf_add(&text, "", 0);
  for (json_int_t i = 0; i < n; i++)
    buf_adds(&text, letters[next_random(12)]);
  json_t *out = json_string(text.data);
  buf_free(&text);
  return out;
}

static json_t *random_value(void)
{
  static const char *const values[] = {
      "{}", "[]", "null", "[1, [2, {\"k\": \"v\"}]]", "-0.5e-3", "{\"a\": {\"b\": [true, false]}}"};
  return parse(values[next_random(6)]);
}

static json_int_t count_of(const json_t *s, const char *key, json_int_t absent)
{
  const json_t *value = json_object_get(s, key);
  return value ? json_integer_value(value) : absent;
}

/* Valid, members in the schema's order. */
static json_t *random_document(const json_t *s)
{
  const json_t *any = json_object_get(s, "anyOf"), *values = json_object_get(s, "enum");
  const char *type = json_string_value(json_object_get(s, "type"));
  if (any)
    return random_document(json_array_get(any, next_random((uint32_t)json_array_size(any))));
  if (values)
    return json_deep_copy(json_array_get(values, next_random((uint32_t)json_array_size(values))));
  if (!type)
    return random_value();
  if (!strcmp(type, "null"))
    return json_null();
  if (!strcmp(type, "boolean"))
    return json_boolean(next_random(2));
  if (!strcmp(type, "number"))
    return next_random(2) ? json_real((double)next_random(100000) / 64 - 500) : json_integer(next_random(1000));
  if (!strcmp(type, "integer")) {
    json_int_t lo = count_of(s, "minimum", -500), hi = count_of(s, "maximum", 500);
    return json_integer(lo + next_random((uint32_t)(hi - lo + 1)));
  }
  if (!strcmp(type, "string"))
    return random_string(count_of(s, "minLength", 0), count_of(s, "maxLength", 6));
  if (!strcmp(type, "array")) {
    json_int_t least = count_of(s, "minItems", 0), most = count_of(s, "maxItems", least + 3);
    json_int_t n = least + next_random((uint32_t)(most - least + 1));
    const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    json_t *out = json_array();
    for (json_int_t i = 0; i < n; i++) {
      const json_t *of = (size_t)i < json_array_size(prefix) ? json_array_get(prefix, (size_t)i) : items;
      json_array_append_new(out, of ? random_document(of) : random_value());
    }
    return out;
  }
  json_t *out = json_object(), *required = json_object_get(s, "required");
  const json_t *others = json_object_get(s, "additionalProperties");
  const char *key;
  json_t *of;
  json_object_foreach(json_object_get(s, "properties"), key, of)
  {
    bool needed = false;
    for (size_t i = 0; i < json_array_size(required); i++)
      needed = needed || !strcmp(json_string_value(json_array_get(required, i)), key);
    if (needed || next_random(2))
      json_object_set_new(out, key, random_document(of));
  }
  static const char *const more[] = {"b", "aa", "nam", "names", "größer", "z", "日本語"};
  for (uint32_t n = next_random(3); n && !json_is_false(others); n--) {
    const char *name = more[next_random(7)];
    if (!json_object_get(out, name))
      json_object_set_new(out, name, json_is_true(others) ? random_value() : random_document(others));
  }
  return out;
}

static void documents_are_taken(void **state)
{
  static const size_t styles[] = {JSON_COMPACT, 0, JSON_INDENT(2), JSON_INDENT(4)};
  (void)state;
  random_state = 1;
  for (int i = 0; i < 400; i++) {
    json_t *schema = random_schema(3);
    compiled c;
    must_compile(schema, NULL, &c);
    for (int k = 0; k < 6; k++) {
      json_t *document = random_document(schema);
      assert_true(valid(schema, schema, document));
      for (size_t style = 0; style < sizeof styles / sizeof *styles; style++) {
        char *text = json_dumps(document, styles[style] | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        if (!takes(&c, text, strlen(text)))
          fail_msg("not taken: %s\nunder %s", text, json_dumps(schema, 0));
        free(text);
      }
      json_decref(document);
    }
    release(&c);
    json_decref(schema);
  }
}

/* ---- texts found at random ---- */

/* Steps that lead somewhere, closing ones more often. */
static uint32_t random_step(compiled *c, uint32_t at, buf *text)
{
  uint8_t bytes[256];
  uint32_t n = 0;
  for (int byte = 0; byte < 256; byte++)
    if (gram_step(c->m, at, (uint8_t)byte))
      bytes[n++] = (uint8_t)byte;
  assert_true(n > 0);
  uint8_t byte = bytes[next_random(n)];
  for (const char *s = "]}\""; *s && next_random(2); s++)
    if (gram_step(c->m, at, (uint8_t)*s))
      byte = (uint8_t)*s;
  buf_addc(text, (char)byte);
  return gram_step(c->m, at, byte);
}

static bool random_text(compiled *c, buf *text, size_t most)
{
  uint32_t at = gram_start(c->m);
  buf_clear(text);
  buf_add(text, "", 0);
  while (text->length < most) {
    if (gram_is_final(c->m, at) || (gram_accepts(c->m, at) && !next_random(3)))
      return true;
    at = random_step(c, at, text);
    assert_true(at != GRAM_DEAD);
  }
  return false;
}

static void check_walks(const json_t *schema, int n, int *ended)
{
  compiled c;
  buf text = {0};
  must_compile(schema, NULL, &c);
  for (int k = 0; k < n; k++) {
    if (!random_text(&c, &text, 3000))
      continue;
    json_error_t why;
    json_t *document = json_loads(text.data, JSON_DECODE_ANY, &why);
    if (!document)
      fail_msg("no JSON (%s): %s", why.text, text.data);
    if (schema && !valid(schema, schema, document))
      fail_msg("not valid: %s\nunder %s", text.data, json_dumps(schema, 0));
    if (!schema)
      assert_true(json_is_object(document));
    json_decref(document);
    ++*ended;
  }
  buf_free(&text);
  release(&c);
}

static void walks_are_valid(void **state)
{
  int ended = 0;
  (void)state;
  random_state = 7;
  for (int i = 0; i < 300; i++) {
    json_t *schema = random_schema(3);
    check_walks(schema, 8, &ended);
    json_decref(schema);
  }
  check_walks(NULL, 200, &ended);
  assert_true(ended > 1500);
}

/* ---- by hand ---- */

static const struct {
  const char *schema, *yes[6], *no[8];
} cases[] = {
    {"{\"type\": \"integer\", \"minimum\": -12, \"exclusiveMaximum\": 1050}",
     {"-12", "0", "7", "999", "1049", "-1"},
     {"-13", "1050", "01", "1.0", "2000", "-", "", "+1"}},
    {"{\"type\": \"integer\", \"minimum\": 0.5}", {"1", "999999999999999999"}, {"0", "-1", "1000000000000000000"}},
    {"{\"type\": \"number\"}", {"0", "-0.5", "1e9", "12.25E-3"}, {"1.", ".5", "1e", "00", "0x1", "1e999"}},
    {"{\"type\": [\"string\", \"null\"]}",
     {"null", "\"\"", "\"\\u00fc\\n\"", "\"\\ud83d\\ude00\""},
     {"\"\\ud83d\"", "\"\\u0000\"", "\"\n\"", "nul", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", " null"}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"\\u00fc\xc3\xbc\"", "\"\xf0\x9f\x98\x80\\ud83d\\ude00x\""},
     {"\"a\"", "\"abcd\""}},
    {"{\"$defs\": {\"node\": {\"type\": \"object\", \"properties\": {\"v\": {\"type\": \"integer\"}, \"next\": "
     "{\"anyOf\": "
     "[{\"$ref\": \"#/$defs/node\"}, {\"type\": \"null\"}]}}, \"required\": [\"v\", \"next\"]}}, \"$ref\": "
     "\"#/$defs/node\"}",
     {"{\"v\":1,\"next\":null}", "{\"v\": 1, \"next\": {\"v\": 2, \"next\": null}}"},
     {"{\"v\":1}", "{\"next\":null,\"v\":1}", "{\"v\":1,\"next\":{}}"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"const\": 1}, {\"const\": \"b\"}], \"items\": false}",
     {"[]", "[1]", "[1,\"b\"]", "[1, \"b\"]", "[\n  1\n]"},
     {"[\"b\"]", "[1,\"b\",2]", "[1,]", "[,1]"}},
    {"{\"properties\": {\"a\": {\"type\": \"boolean\", \"nullable\": true}}, \"additionalProperties\": {\"type\": "
     "\"null\"}}",
     {"{}", "{\"a\":null}", "{\"a\":true,\"aa\":null}", "{\"\":null}", "{\"b\":null,\"b\":null}"},
     {"{\"a\":1}", "{\"b\":null,\"a\":true}", "{\"\\u0061\":null}"}},
    {"{\"allOf\": [{\"oneOf\": [{\"const\": 0.1}, {\"enum\": [\"a\", 3], \"type\": \"integer\"}]}], \"description\": "
     "\"d\"}",
     {"0.1", "3"},
     {"\"a\"", "0.10"}},
    {"{\"const\": {\"a\": [1, \"x y\"]}}", {"{\"a\":[1,\"x y\"]}"}, {"{\"a\": [1, \"x y\"]}"}},
    {"{\"pattern\": \"^[a-c]+\\\\d{2,3}(x|yz)?$\"}",
     {"\"a12\"", "\"abc123yz\"", "\"c00x\""},
     {"\"a1\"", "\"12\"", "\"a1234\"", "\"a12xy\"", "\" a12\""}},
    {"{\"pattern\": \"^a|b$\"}", {"\"a\"", "\"axx\\n\"", "\"xxb\"", "\"b\""}, {"\"xa\"", "\"bx\"", "\"\""}},
    {"{\"pattern\": \"^(?:[^\\\"x\\\\]]|\\\\.|\xc3\xbc)*?$\"}",
     {"\"\"", "\"ab.\xc3\xbc\\n\"", "\"[\\\\\""},
     {"\"x\"", "\"\\\"\"", "\"]\""}},
    {"{\"pattern\": \"^\\\\S\\\\s.$\"}",
     {"\"a b\"", "\"a\\n\\\"\"", "\"-\\t\xe6\x97\xa5\""},
     {"\"a\"", "\"  b\"", "\"a \\n\"", "\"a\n.\""}},
    {"{\"type\": \"string\", \"format\": \"date-time\"}",
     {"\"2020-02-28T23:59:59Z\"", "\"1999-12-31T00:00:00.125+02:00\""},
     {"\"2020-02-30T00:00:00Z\"", "\"2020-1-01T00:00:00Z\"", "\"2020-01-01T24:00:00Z\"", "\"2020-01-01\""}},
    {"{\"format\": \"date\"}",
     {"\"2020-11-30\"", "\"2031-01-31\""},
     {"\"2020-11-31\"", "\"2020-00-01\"", "\"0000-01-01\""}},
    {"{\"format\": \"uuid\"}", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567e89b12d3a456426614174000\""}},
    {"{\"format\": \"ipv4\"}", {"\"255.0.10.199\"", "\"1.2.3.4\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
};

static void cases_by_hand(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *schema = parse(cases[i].schema);
    compiled c;
    must_compile(schema, NULL, &c);
    for (int k = 0; k < 6 && cases[i].yes[k]; k++)
      if (!takes(&c, cases[i].yes[k], strlen(cases[i].yes[k])))
        fail_msg("not taken: %s under %s", cases[i].yes[k], cases[i].schema);
    for (int k = 0; k < 8 && cases[i].no[k]; k++)
      if (takes(&c, cases[i].no[k], strlen(cases[i].no[k])))
        fail_msg("taken: %s under %s", cases[i].no[k], cases[i].schema);
    release(&c);
    json_decref(schema);
  }
}

/* All integers near the ends of many ranges. */
static void ranges_of_integers(void **state)
{
  (void)state;
  random_state = 3;
  for (int i = 0; i < 300; i++) {
    int64_t lo = (int64_t)next_random(3000) - 1500, hi = lo + next_random(i % 2 ? 20 : 3000);
    json_t *schema = json_pack("{ss sI sI}", "type", "integer", "minimum", (json_int_t)lo, "maximum", (json_int_t)hi);
    compiled c;
    must_compile(schema, NULL, &c);
    for (int64_t x = lo - 30; x < hi + 30; x++) {
      char text[32];
      int n = snprintf(text, sizeof text, "%lld", (long long)x);
      assert_int_equal(takes(&c, text, (size_t)n), x >= lo && x <= hi);
    }
    release(&c);
    json_decref(schema);
  }
}

/* Every keyword that is not enforced, and all that is wrong, has one line that names the place. */
static void refusals(void **state)
{
  static const struct {
    const char *schema, *words;
  } bad[] = {
      {"3", "schema: a schema is an object"},
      {"{\"type\": \"text\"}", "schema.type: must be one"},
      {"{\"type\": []}", "schema.type"},
      {"{\"properties\": {\"a\": {\"contentEncoding\": \"x\"}}}", "schema.properties.a.contentEncoding: this keyword"},
      {"{\"pattern\": \"(?=x)\"}", "schema.pattern: a group that is more"},
      {"{\"pattern\": \"(x\"}", "schema.pattern"},
      {"{\"pattern\": \"[x\"}", "schema.pattern"},
      {"{\"pattern\": \"a**\"}", "schema.pattern"},
      {"{\"pattern\": \"a^b\"}", "schema.pattern"},
      {"{\"pattern\": \"\\\\1\"}", "schema.pattern"},
      {"{\"pattern\": \"\\\\b\"}", "schema.pattern"},
      {"{\"pattern\": \"a{3,2}\"}", "schema.pattern"},
      {"{\"pattern\": \"[b-a]\"}", "schema.pattern"},
      {"{\"pattern\": \"\\\\\"}", "schema.pattern"},
      {"{\"pattern\": \"*\"}", "schema.pattern"},
      {"{\"pattern\": 3}", "schema.pattern"},
      {"{\"pattern\": \"((((a{500}){500}){500}){500})\"}", "more than"},
      {"{\"pattern\": \"((((){2000}){2000}){2000}){2000}\"}", "more than"},
      {"{\"pattern\": \"a\", \"maxLength\": 3}", "schema.pattern: beside"},
      {"{\"format\": \"idn-email\"}", "schema.format"},
      {"{\"items\": {\"if\": {}}}", "schema.items.if"},
      {"{\"uniqueItems\": true}", "schema.uniqueItems"},
      {"{\"items\": [{}]}", "call it prefixItems"},
      {"{\"type\": \"number\", \"minimum\": 1}", "schema.minimum"},
      {"{\"type\": \"string\", \"maxLength\": -1}", "schema.maxLength"},
      {"{\"type\": \"string\", \"maxLength\": 100000000}", "more than"},
      {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 1}", "nothing can satisfy"},
      {"{\"type\": \"array\", \"maxItems\": 1000000000000}", "more than"},
      {"false", "nothing can satisfy"},
      {"{\"$ref\": \"#\"}", "refers to itself"},
      {"{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"anyOf\": [{\"$ref\": \"#/$defs/b\"}]}, \"b\": {\"$ref\": "
       "\"#/$defs/a\"}}}",
       "refers to itself"},
      {"{\"$ref\": \"#/$defs/no\"}", "there is no"},
      {"{\"$ref\": \"http://x/y\"}", "schema.$ref"},
      {"{\"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}", "nothing can satisfy"},
      {"{\"anyOf\": []}", "schema.anyOf"},
      {"{\"anyOf\": [{}], \"type\": \"string\"}", "schema.anyOf"},
      {"{\"allOf\": [{}, {}]}", "schema.allOf"},
      {"{\"enum\": []}", "schema.enum"},
      {"{\"enum\": [1], \"minimum\": 0}", "schema.enum"},
      {"{\"enum\": [\"a\"], \"type\": \"integer\"}", "nothing can satisfy"},
      {"{\"required\": [\"a\"], \"properties\": {}, \"additionalProperties\": false}", "schema.required"},
      {"{\"required\": [1]}", "schema.required"},
      {"{\"properties\": []}", "schema.properties"},
      {"{\"additionalProperties\": 1}", "schema.additionalProperties"},
      {"{\"nullable\": 1}", "schema.nullable"},
      {"{\"anyOf\": [{}, {\"items\": {\"not\": {}}}]}", "schema.anyOf.1.items.not"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    json_t *schema = parse(bad[i].schema);
    compiled c;
    tern_error err = {0};
    tern_status status = compile(schema, NULL, &c, &err);
    if (status == TERN_OK || !strstr(err.text, bad[i].words))
      fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].schema, err.text, bad[i].words);
    release(&c);
    json_decref(schema);
  }
}

static void reasoning_before(void **state)
{
  static const schema_frame may = {"<think>", "</think>"}, opened = {NULL, "</think>"};
  static const char *const with[] = {"<think></think>{}", "<think>a </thi <</think>\n\n{\"a\": 1}",
                                     "<think>ü{}</think> {}"};
  static const char *const begun[] = {"a</think>{}", "</thin</think>\n{}", "x <think> </think>{}"};
  static const char *const none[] = {"<think>{}", "x{}", "<think>a</think>\n\n\n\n\n{}", "<think></think></think>{}"};
  compiled c;
  (void)state;
  must_compile(NULL, &may, &c);
  assert_true(takes(&c, "{}", 2));
  for (size_t i = 0; i < sizeof with / sizeof *with; i++)
    assert_true(takes(&c, with[i], strlen(with[i])));
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    assert_false(takes(&c, none[i], strlen(none[i])));
  release(&c);
  must_compile(NULL, &opened, &c);
  assert_false(takes(&c, "{}", 2));
  for (size_t i = 0; i < sizeof begun / sizeof *begun; i++)
    assert_true(takes(&c, begun[i], strlen(begun[i])));
  release(&c);
}

/* A machine that forgets goes on as one that does not. */
static void trimming(void **state)
{
  compiled c;
  buf text = {0};
  int trims = 0;
  (void)state;
  must_compile(NULL, NULL, &c);
  uint32_t at = gram_start(c.m);
  for (int i = 0; i < 400000 && trims < 2; i++) {
    at = gram_step(c.m, gram_step(c.m, gram_step(c.m, at, '{'), '"'), '"');
    at = gram_step(c.m, gram_step(c.m, at, ':'), i % 3 ? '{' : '[');
    at = i % 3 ? gram_step(c.m, gram_step(c.m, gram_step(c.m, at, '"'), '"'), ':') : at;
    assert_true(at != GRAM_DEAD);
    buf_addc(&text, i % 3 ? '{' : '[');
    trims += gram_trim(c.m, &at);
    assert_int_equal(gram_fault(c.m, NULL), TERN_OK);
  }
  assert_int_equal(trims, 2);
  at = gram_step(c.m, at, '1');
  for (size_t i = text.length; i-- > 0;) {
    at = gram_step(c.m, at, text.data[i] == '{' ? '}' : ']');
    at = gram_step(c.m, at, '}');
    assert_true(at != GRAM_DEAD);
    gram_trim(c.m, &at);
  }
  assert_true(gram_is_final(c.m, at));
  buf_free(&text);
  release(&c);
}

/* Wherever memory runs out, it is told, and nothing is used that is not there. */
static void without_memory(void **state)
{
  static const char text[] = "{\"a\": [\"xy\", {\"b\": -1.5e3}], \"c\": {\"v\": 1}}";
  (void)state;
  json_t *schema =
      parse("{\"properties\": {\"a\": {\"type\": \"array\"}, \"c\": {\"properties\": {\"v\": {\"enum\": [1, 2]}}, "
            "\"additionalProperties\": {\"type\": \"string\", \"maxLength\": 3}}}, \"required\": [\"a\"]}");
  bool enough = false;
  for (int n = 0; !enough; n++) {
    compiled c = {0};
    tern_error err = {0};
    mem_fail_after(n);
    tern_status status = compile(schema, NULL, &c, &err);
    if (status == TERN_OK) {
      uint32_t at = gram_start(c.m);
      for (size_t i = 0; i < sizeof text - 1; i++)
        at = gram_step(c.m, at, (uint8_t)text[i]);
      status = gram_fault(c.m, &err);
      enough = gram_is_final(c.m, at);
    }
    mem_fail_after(-1);
    assert_true(status == TERN_E_NOMEM || enough);
    release(&c);
    assert_true(n < 100000);
  }
  json_decref(schema);
}

/* What a request may be made of to keep the server busy. */
static void large_schemas(void **state)
{
  enum { DEFINITIONS = 4000 };
  char name[32];
  (void)state;
  json_t *definitions = json_object(), *schema = json_pack("{so ss}", "$defs", definitions, "$ref", "#/$defs/0");
  for (int i = 0; i < DEFINITIONS; i++) {
    snprintf(name, sizeof name, "%d", i);
    json_object_set_new(definitions, name, json_pack("{so}", "$ref", json_sprintf("#/$defs/%d", i + 1)));
  }
  snprintf(name, sizeof name, "%d", DEFINITIONS);
  json_object_set_new(definitions, name, json_pack("{ss}", "const", "end"));
  compiled c;
  must_compile(schema, NULL, &c);
  assert_true(takes(&c, "\"end\"", 5));
  release(&c);
  json_decref(schema);
  json_t *names = json_array();
  for (int i = 0; i < 100000; i++)
    json_array_append_new(names, json_sprintf("%d", i));
  schema = json_pack("{so}", "required", names);
  tern_error err = {0};
  assert_int_equal(compile(schema, NULL, &c, &err), TERN_E_LIMIT);
  release(&c);
  json_decref(schema);
}

/* Patterns that have a state for each set of places where a part could have begun are refused before an answer begins;
 * those that people write are not. */
static void costly_patterns(void **state)
{
  static const struct {
    const char *pattern;
    bool taken;
  } patterns[] = {
      {"^(.*a.{300}|.*b.{300}|.*e.{300}|.*[a-z].{200})", false},
      {"a.{20}$", false},
      {"(.*a){30}", false},
      {"^(.*[a-e].*[f-j].*[k-o].*[p-t].*){20}$", false},
      {"^(.{0,100}[a-z]){5}$", false},
      {"^.{1,1000}\\.$", true},
      {"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\\.[a-zA-Z]{2,}$", true},
      {"[A-Z]{3}-[0-9]{4}", true},
      {".*(error|warning|fail).*", true},
      {"^\\w+( \\w+){0,20}$", true},
      {"^(a|aa|a*)*b$", true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    json_t *schema = json_pack("{s{s{ssss}}}", "properties", "text", "type", "string", "pattern", patterns[i].pattern);
    tern_error err = {0};
    compiled c;
    tern_status status = compile(schema, NULL, &c, &err);
    if (status != (patterns[i].taken ? TERN_OK : TERN_E_LIMIT))
      fail_msg("%s: %d %s", patterns[i].pattern, (int)status, err.text);
    assert_true(patterns[i].taken || strstr(err.text, "too costly"));
    release(&c);
    json_decref(schema);
  }
  json_t *values = json_array();
  for (int i = 0; i < 1000; i++)
    json_array_append_new(values, json_sprintf("value %d", i));
  json_t *schema = json_pack("{so}", "enum", values);
  compiled c;
  must_compile(schema, NULL, &c);
  assert_true(takes(&c, "\"value 999\"", 11));
  release(&c);
  json_decref(schema);
}

static void expect_stopped(compiled *c, uint32_t at, const char *words)
{
  tern_error err = {0};
  assert_int_equal(gram_fault(c->m, &err), TERN_E_LIMIT);
  assert_non_null(strstr(err.text, words));
  assert_int_equal(gram_step(c->m, at, '['), GRAM_DEAD);
  assert_false(gram_accepts(c->m, at));
  assert_false(gram_trim(c->m, &at));
}

/* Each bound of a machine, and that it stays where it stopped. */
static void bounds_of_a_machine(void **state)
{
  compiled c;
  tern_error err = {0};
  (void)state;
  json_t *schema = parse("{\"type\": \"array\"}");
  must_compile(schema, NULL, &c);
  uint32_t at = gram_start(c.m), last = at;
  gram_allow(c.m, 5000);
  for (int i = 0; i < 5000 && at; i++) {
    last = at;
    at = gram_step(c.m, at, '[');
  }
  assert_int_equal(at, GRAM_DEAD);
  expect_stopped(&c, last, "too costly");
  release(&c);
  must_compile(schema, NULL, &c);
  at = gram_start(c.m);
  for (int i = 0; i < 1000000 && at; i++) { /* nothing is forgotten */
    last = at;
    at = gram_step(c.m, at, '[');
  }
  assert_int_equal(at, GRAM_DEAD);
  expect_stopped(&c, last, "MiB");
  release(&c);
  json_decref(schema);
  json_t *values = json_array();
  for (int i = 0; i < 20000; i++)
    json_array_append_new(values, json_integer(i % 10));
  schema = json_pack("{so}", "enum", values);
  assert_int_equal(compile(schema, NULL, &c, &err), TERN_E_LIMIT);
  assert_non_null(strstr(err.text, "at once"));
  release(&c);
  json_decref(schema);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(cases_by_hand),    cmocka_unit_test(ranges_of_integers),  cmocka_unit_test(refusals),
      cmocka_unit_test(reasoning_before), cmocka_unit_test(documents_are_taken), cmocka_unit_test(walks_are_valid),
      cmocka_unit_test(trimming),         cmocka_unit_test(without_memory),      cmocka_unit_test(large_schemas),
      cmocka_unit_test(costly_patterns),  cmocka_unit_test(bounds_of_a_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
