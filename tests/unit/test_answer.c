/* test_answer.c - grammars of whole answers: calls in every format, forced, beside a value, and in text. Texts that
 * models write are taken, others are not; what a random walk finds is read by the format's reader, as calls of the
 * tools with arguments that their schemas let through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/answer.h"
#include "text/grammar_machine.h"
#include "text/parts.h"

static uint32_t random_state = 1;

static uint32_t next_random(uint32_t below)
{
  random_state = random_state * 1664525u + 1013904223u;
  return (uint32_t)(((uint64_t)random_state * below) >> 32);
}

static const char weather[] =
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"maxLength\": 4}, \"days\": {\"type\": "
    "\"integer\", \"minimum\": 1, \"maximum\": 14}, \"unit\": {\"type\": \"string\", \"enum\": [\"C\", \"F\"]}}, "
    "\"required\": [\"city\"]}";
/* Of formats that write strings as they are, whose length they cannot bound. */
static const char tagged[] =
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"enum\": [\"Rome\", \"Bonn\"]}, "
    "\"days\": "
    "{\"type\": \"integer\", \"minimum\": 1, \"maximum\": 14}, \"unit\": {\"type\": \"string\", \"enum\": [\"C\", "
    "\"F\"]}}, \"required\": [\"city\"], \"additionalProperties\": false}";
static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"look\", \"parameters\": %s}}, {\"type\": \"function\", "
    "\"function\": {\"name\": \"ping\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";

typedef struct fixture {
  json_t *schema, *nothing, *tools;
  answer_tool list[2];
  answer_form form;
  grammar g;
  gram_machine *m;
} fixture;

static void open_fixture(fixture *f, const char *format)
{
  char text[1024];
  static const char *const tags[] = {"qwen3_coder", "seed_oss", "minimax_m2", "glm47"};
  const char *schema = weather;
  for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
    schema = strcmp(tags[i], format) ? schema : tagged;
  *f = (fixture){.schema = json_loads(schema, 0, NULL)};
  f->nothing = json_loads("{\"type\": \"object\", \"properties\": {}}", 0, NULL);
  snprintf(text, sizeof text, tools_text, schema);
  f->tools = json_loads(text, 0, NULL);
  assert_true(f->schema && f->nothing && f->tools);
  f->list[0] = (answer_tool){"look", f->schema, "tools[0].parameters"};
  f->list[1] = (answer_tool){"ping", f->nothing, "tools[1].parameters"};
  f->form = (answer_form){.place = "tool_choice", .calls = calls_find(format), .tools = f->list, .n_tools = 2};
  assert_non_null(f->form.calls);
}

static void compile(fixture *f)
{
  tern_error err = {0};
  gram_machine_close(f->m);
  gram_free(&f->g);
  if (answer_compile(&f->form, &f->g, &err) != TERN_OK || gram_machine_open(&f->g, &f->m, &err) != TERN_OK)
    fail_msg("%s: %s", f->form.calls ? f->form.calls->name : "", err.text);
  gram_allow(f->m, UINT64_MAX);
}

static void close_fixture(fixture *f)
{
  gram_machine_close(f->m);
  gram_free(&f->g);
  json_decref(f->schema);
  json_decref(f->nothing);
  json_decref(f->tools);
}

static bool takes(fixture *f, const char *text)
{
  uint32_t at = gram_start(f->m);
  for (const char *c = text; *c && at; c++)
    at = gram_step(f->m, at, (uint8_t)*c);
  assert_int_equal(gram_fault(f->m, NULL), TERN_OK);
  return at && gram_accepts(f->m, at);
}

static void expect(fixture *f, bool wanted, const char *text)
{
  if (takes(f, text) != wanted)
    fail_msg("%s: %s: %s", f->form.calls->name, wanted ? "not taken" : "taken", text);
}

/* What models write, one call and two. */
static const struct {
  const char *format, *one, *two;
} written[] = {
    {"json_tools", "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": \"Rome\", \"days\": 3}}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>"},
    {"hermes", "<tool_call>{\"name\":\"look\",\"arguments\":{\"city\":\"</to\"}}</tool_call>",
     "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call><tool_call>\n{\"name\": \"ping\", "
     "\"arguments\": {}}\n</tool_call>\n"},
    {"cohere",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"ping\", \"parameters\": {}}\n]<|END_ACTION|>",
     "<|START_ACTION|>[\n    {\"tool_name\": \"ping\", \"parameters\": {}},\n    {\"tool_call_id\": \"1\", "
     "\"tool_name\": \"look\", \"parameters\": {\"city\": \"Rome\"}}\n]<|END_ACTION|>"},
    {"nemotron", "<TOOLCALL>[{\"name\": \"ping\", \"arguments\": {}}]</TOOLCALL>",
     "<TOOLCALL>[{\"name\": \"ping\", \"arguments\": {}}, {\"name\": \"ping\", \"arguments\": {}}]</TOOLCALL>"},
    {"granite", "<|tool_call|>[{\"name\": \"ping\", \"arguments\": {}}]",
     "<|tool_call|>[{\"name\": \"ping\", \"arguments\": {}}, {\"name\": \"ping\", \"arguments\": {}}]"},
    {"mistral", "[TOOL_CALLS]look[ARGS]{\"city\": \"Rome\"}",
     "[TOOL_CALLS]look[CALL_ID]a1B2c3D4e[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]ping[ARGS]{}"},
    {"mistral", "[TOOL_CALLS][{\"name\": \"ping\", \"arguments\": {}, \"id\": \"a1B2c3D4e\"}]",
     "[TOOL_CALLS] [{\"name\": \"ping\", \"arguments\": {}}, {\"name\": \"ping\", \"arguments\": {}}]"},
    {"kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_call_begin|>functions.look:12<|tool_call_argument_begin|>{\"city\": \"Bonn\"}<|tool_call_end|>"
     "<|tool_calls_section_end|>"},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>{\"city\": \"Rome\"}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{\"city\": "
     "\"Bonn\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```<"
     "｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>"},
    {"llama3_json", "{\"name\": \"ping\", \"parameters\": {}}",
     "<|python_tag|>{\"name\": \"look\", \"parameters\": {\"city\": \"Rome\"}}; {\"name\": \"ping\", \"parameters\": "
     "{}}"},
    {"qwen3_coder", "<tool_call>\n<function=ping>\n</function>\n</tool_call>",
     "<tool_call>\n<function=look>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</"
     "function>\n"
     "</tool_call>\n<tool_call>\n<function=ping>\n</function>\n</tool_call>"},
    {"seed_oss", "<seed:tool_call>\n<function=ping>\n</function>\n</seed:tool_call>",
     "<seed:tool_call>\n<function=look>\n<parameter=city>\nRome\n</parameter>\n</function>\n</seed:tool_call>\n"
     "<seed:tool_call>\n<function=ping>\n</function>\n</seed:tool_call>"},
    {"minimax_m2", "<minimax:tool_call>\n<invoke name=\"ping\">\n</invoke>\n</minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=\"look\">\n<parameter name=\"city\">Rome</parameter>\n<parameter "
     "name=\"days\">14</parameter>\n</invoke>\n<invoke name=\"ping\">\n</invoke>\n</minimax:tool_call>"},
    {"glm47", "<tool_call>ping\n</tool_call>",
     "<tool_call>look\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n"
     "<arg_value>9</arg_value>\n</tool_call>\n<tool_call>ping\n</tool_call>"},
};
enum { WRITTEN = sizeof written / sizeof *written };

/* What no format takes in the place of `from`. */
static void expect_changed(fixture *f, const char *text, const char *from, const char *to)
{
  const char *at = strstr(text, from);
  buf other = {0};
  if (!at)
    return;
  buf_add(&other, text, (size_t)(at - text));
  buf_adds(&other, to);
  buf_adds(&other, at + strlen(from));
  expect(f, false, other.data);
  buf_free(&other);
}

static void forced_calls(void **state)
{
  (void)state;
  for (size_t i = 0; i < WRITTEN; i++) {
    fixture f;
    open_fixture(&f, written[i].format);
    for (int one = 0; one < 2; one++) {
      f.form.one_call = one;
      compile(&f);
      expect(&f, true, written[i].one);
      expect(&f, !one, written[i].two);
      expect(&f, false, "");
      expect(&f, false, "So.");
      expect(&f, false, written[i].one + 1);
      expect_changed(&f, written[i].one, "ping", "pong");
      expect_changed(&f, written[i].one, "{}", "{\"a\": 1}");
      expect_changed(&f, written[i].two, "Rome", "Romes");
      expect_changed(&f, written[i].two, "city", "town");
    }
    close_fixture(&f);
  }
}

static void names_are_chosen(void **state)
{
  fixture f;
  (void)state;
  open_fixture(&f, "json_tools");
  f.form.n_tools = 1;
  compile(&f);
  expect(&f, false, written[0].one);
  expect(&f, false, written[0].two);
  expect(&f, true, "<tool_call>{\"name\": \"look\", \"arguments\": {\"city\": \"a\"}}</tool_call>");
  close_fixture(&f);
}

static void calls_or_a_value(void **state)
{
  fixture f;
  (void)state;
  open_fixture(&f, "json_tools");
  f.form.value = true;
  f.form.place = "response_format";
  f.form.schema = f.schema;
  f.form.frame = (schema_frame){"<think>", "</think>"};
  compile(&f);
  expect(&f, true, written[0].one);
  expect(&f, true, written[0].two);
  expect(&f, true, "{\"city\": \"Rome\"}");
  expect(&f, true, "<think><tool_call></think>\n\n{\"city\": \"Rome\"}");
  expect(&f, true, "<think>a</think>\n<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>");
  expect(&f, false, "{\"city\": \"Rome\"}<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>");
  expect(&f, false, "{\"name\": \"ping\", \"arguments\": {}}");
  close_fixture(&f);
}

static void calls_in_text(void **state)
{
  static const char call[] = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
  char text[512];
  fixture f;
  (void)state;
  open_fixture(&f, "json_tools");
  f.form.text = true;
  f.form.again = "<think>";
  for (int opened = 0; opened < 2; opened++) {
    static const char *const around[] = {"%s", "I <tool_cal look. %s", "ü<<tool_<%s And?",
                                         "%s<think><tool_call>{</think>x", "<tool<think></thin</think>%s"};
    f.form.frame = (schema_frame){opened ? NULL : "<think>", "</think>"};
    compile(&f);
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
      int n = snprintf(text, sizeof text, "%s", opened ? "<tool_call>no</think>" : "");
      snprintf(text + n, sizeof text - (size_t)n, around[i], call); /* NOLINT: the list has one %s each */
      expect(&f, true, text);
    }
    expect(&f, true, opened ? "</think>" : "");
    expect(&f, false, opened ? "</think><tool_call>" : "A <tool_call>");
    expect(&f, false, opened ? "</think><tool_call>no</tool_call>" : "<tool_call>no</tool_call>");
  }
  f.form.one_call = true;
  f.form.frame = (schema_frame){"<think>", "</think>"};
  compile(&f);
  snprintf(text, sizeof text, "So %s", call);
  expect(&f, true, text);
  snprintf(text, sizeof text, "So %s.", call);
  expect(&f, false, text);
  close_fixture(&f);
}

/* ---- what walks find ---- */

/* Bytes that may come next; one of them, and mostly none that begins a long way. */
static uint32_t walk(fixture *f, uint32_t at, buf *text)
{
  uint8_t may[256];
  uint32_t n = 0;
  for (int byte = 1; byte < 256; byte++)
    if (gram_step(f->m, at, (uint8_t)byte))
      may[n++] = (uint8_t)byte;
  if (!n)
    return GRAM_DEAD;
  uint8_t byte = may[next_random(n)];
  for (uint32_t i = 0; i < n && next_random(3) == 0; i++)
    if (may[i] == '"' || may[i] == '}' || may[i] == ']')
      byte = may[i];
  buf_addc(text, (char)byte);
  return gram_step(f->m, at, byte);
}

static bool is_call(const fixture *f, const tool_call *c)
{
  json_t *a = json_loads(c->arguments, 0, NULL);
  const char *city = json_string_value(json_object_get(a, "city"));
  json_t *days = json_object_get(a, "days");
  const char *unit = json_string_value(json_object_get(a, "unit"));
  bool known = json_object_size(a) == (size_t) !!city + (size_t) !!days + (size_t) !!unit;
  bool look = !strcmp(c->name, "look") && city && known &&
              (!days || (json_is_integer(days) && json_integer_value(days) >= 1 && json_integer_value(days) <= 14)) &&
              (!unit || !strcmp(unit, "C") || !strcmp(unit, "F"));
  bool ping = !strcmp(c->name, "ping") && json_is_object(a) && !json_object_size(a);
  (void)f;
  json_decref(a);
  return look || ping;
}

/* As the server takes answers apart: calls alone. */
static void expect_calls(fixture *f, const buf *text)
{
  answer_parts said = {0};
  parts_options options = {.once = true, .calls = f->form.calls, .tools = f->tools};
  parts_reader *r = parts_open(&options);
  assert_non_null(r);
  parts_feed(r, text->data, text->length, &said);
  parts_end(r, false, &said);
  bool well = said.n > 0 && (!f->form.one_call || said.n == 1);
  for (size_t i = 0; i < said.n; i++)
    well = well && said.at[i].kind == PART_CALL && is_call(f, &said.at[i].call);
  if (!well)
    fail_msg("%s: %s", f->form.calls->name, text->data);
  parts_free(&said);
  parts_close(r);
}

static void walks_are_calls(void **state)
{
  (void)state;
  for (size_t i = 0; i < WRITTEN; i++) {
    fixture f;
    int found = 0;
    open_fixture(&f, written[i].format);
    for (int trial = 0; trial < 60; trial++) {
      buf text = {0};
      if (trial % 30 == 0) {
        f.form.one_call = trial >= 30;
        compile(&f);
      }
      uint32_t at = gram_start(f.m);
      for (int step = 0; step < 2000 && at && !gram_is_final(f.m, at); step++) {
        if (gram_accepts(f.m, at) && next_random(3))
          break;
        at = walk(&f, at, &text);
      }
      assert_int_equal(gram_fault(f.m, NULL), TERN_OK);
      assert_true(at != GRAM_DEAD);
      if (gram_accepts(f.m, at)) {
        expect_calls(&f, &text);
        found++;
      }
      buf_free(&text);
    }
    assert_true(found > 20);
    close_fixture(&f);
  }
}

/* Strings that are written as they are, and what the reader takes for null. */
static void raw_strings(void **state)
{
  static const struct {
    const char *format, *before, *after;
  } forms[] = {
      {"qwen3_coder", "<tool_call>\n<function=look>\n<parameter=s>\n", "\n</parameter>\n</function>\n</tool_call>"},
      {"minimax_m2", "<minimax:tool_call>\n<invoke name=\"look\">\n<parameter name=\"s\">",
       "</parameter>\n</invoke>\n</minimax:tool_call>"},
      {"glm47", "<tool_call>look\n<arg_key>s</arg_key>\n<arg_value>", "</arg_value>\n</tool_call>"}};
  static const struct {
    const char *text;
    bool qwen, minimax, glm;
  } texts[] = {
      {"New York", true, true, true},       {"", true, true, true},      {"null", false, false, true},
      {" NULL\n", false, false, true},      {"none", true, false, true}, {"nothing", true, true, true},
      {"nullable", true, true, true},       {"nul", true, true, true},   {"a < b </para> </p", true, true, true},
      {"</tool_call> ü", true, true, true}, {"nü", true, true, true},    {"n</function>", true, true, true}};
  (void)state;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    fixture f;
    open_fixture(&f, forms[i].format);
    json_t *schema = json_loads("{\"properties\": {\"s\": {\"type\": \"string\"}}, \"required\": [\"s\"]}", 0, NULL);
    f.list[0].schema = schema;
    json_object_set(json_object_get(json_array_get(f.tools, 0), "function"), "parameters", schema);
    compile(&f);
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
      buf text = {0};
      buf_adds(&text, forms[i].before);
      buf_adds(&text, texts[k].text);
      buf_adds(&text, forms[i].after);
      expect(&f, i == 0 ? texts[k].qwen : i == 1 ? texts[k].minimax : texts[k].glm, text.data);
      call_list list = {0};
      const char *start = f.form.calls->start, *end = f.form.calls->end;
      bool read = calls_read(f.form.calls, text.data + strlen(start), text.length - strlen(start) - strlen(end),
                             f.tools, &list);
      json_t *arguments = read ? json_loads(list.at[0].arguments, 0, NULL) : NULL;
      assert_true(!takes(&f, text.data) || json_is_string(json_object_get(arguments, "s")));
      json_decref(arguments);
      calls_clear(&list);
      buf_free(&text);
    }
    close_fixture(&f);
    json_decref(schema);
  }
}

/* A string or null: what the reader takes for null is. */
static void strings_or_null(void **state)
{
  static const char *const texts[] = {"Rome", "null", "None of it"};
  (void)state;
  fixture f;
  open_fixture(&f, "qwen3_coder");
  json_t *schema = json_loads("{\"properties\": {\"s\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}], "
                              "\"title\": \"S\"}}, \"required\": [\"s\"]}",
                              0, NULL);
  f.list[0].schema = schema;
  compile(&f);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char text[256];
    snprintf(text, sizeof text,
             "<tool_call>\n<function=look>\n<parameter=s>\n%s\n</parameter>\n</function>\n</tool_call>", texts[i]);
    expect(&f, true, text);
  }
  json_decref(schema);
  close_fixture(&f);
}

/* Strings of JSON with what the reader of a format cuts at are written by an escape: as values that are given, names of
 * members, by patterns, in free ones; and other names do not have it. */
static void markers_in_strings(void **state)
{
  static const struct {
    const char *format, *marker, *before, *after;
  } forms[] = {
      {"kimi_k2", "<|tool_call_end|>",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{\"o\":",
       "}<|tool_call_end|><|tool_calls_section_end|>"},
      {"deepseek_v31", "<｜tool▁call▁end｜>", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>{\"o\":",
       "}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"qwen3_coder", "</parameter>", "<tool_call>\n<function=look>\n<parameter=o>\n",
       "\n</parameter>\n</function>\n</tool_call>"},
      {"minimax_m2", "</parameter>", "<minimax:tool_call>\n<invoke name=\"look\">\n<parameter name=\"o\">",
       "</parameter>\n</invoke>\n</minimax:tool_call>"},
      {"glm47", "</arg_value>", "<tool_call>look\n<arg_key>o</arg_key>\n<arg_value>", "</arg_value>\n</tool_call>"},
  };
  static const struct {
    const char *schema, *value; /* M: the marker, N: without what it begins with */
  } cases[] = {
      {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": \"xM\"}}}", "{\"a\":\"x%sN\"}"},
      {"{\"type\": \"array\", \"items\": {\"enum\": [1, [\"M\"]]}}", "[[\"%sN\"]]"},
      {"{\"type\": \"object\", \"properties\": {\"M\": {}}}", "{\"%sN\":1}"},
      {"{\"type\": \"object\", \"properties\": {\"M\": {}}, \"additionalProperties\": true}", "{\"%sN\":1}"},
      {"{\"type\": \"array\", \"items\": {\"type\": \"string\", \"pattern\": \"^[<]N$\"}}", "[\"%sN\"]"},
      {"{\"type\": \"array\", \"items\": {\"type\": \"string\", \"pattern\": \"b$\"}}", "[\"%sN b\"]"},
      {"{\"type\": \"array\", \"items\": {\"type\": \"string\"}}", "[\"%sN\"]"},
      {"{\"type\": \"array\"}", "[{\"a\":\"%sN\"}]"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    for (size_t k = 0; k < sizeof cases / sizeof *cases * 2; k++) {
      bool value = k & 1;
      fixture f;
      open_fixture(&f, forms[i].format);
      buf schema = {0};
      buf_adds(&schema, "{\"type\": \"object\", \"properties\": {\"o\": ");
      for (const char *c = cases[k / 2].schema; *c; c++) {
        bool quoted = strstr(cases[k / 2].schema, "pattern") != NULL;
        const char *more = *c == 'M' ? forms[i].marker : *c == 'N' ? forms[i].marker + 1 : NULL;
        for (const char *m = more; m && *m; m++)
          if (quoted && *m == '|')
            buf_adds(&schema, "[|]");
          else
            buf_addc(&schema, *m);
        if (!more)
          buf_addc(&schema, *c);
      }
      buf_adds(&schema, "}, \"required\": [\"o\"], \"additionalProperties\": false}");
      json_t *own = json_loads(schema.data, 0, NULL);
      assert_non_null(own);
      f.list[0].schema = own;
      f.form.value = value;
      json_object_set(json_object_get(json_array_get(f.tools, 0), "function"), "parameters", own);
      compile(&f);
      for (int escaped = 0; escaped < 2; escaped++) {
        buf text = {0};
        buf_adds(&text, forms[i].before);
        for (const char *c = cases[k / 2].value; *c; c++)
          if (*c == '%')
            buf_adds(&text, escaped ? "\\u003c" : "<"), c++;
          else if (*c == 'N')
            buf_adds(&text, forms[i].marker + 1);
          else
            buf_addc(&text, *c);
        buf_adds(&text, forms[i].after);
        expect(&f, escaped, text.data);
        call_list list = {0};
        const char *start = f.form.calls->start, *end = f.form.calls->end;
        bool read = calls_read(f.form.calls, text.data + strlen(start), text.length - strlen(start) - strlen(end),
                               f.tools, &list);
        assert_true(!escaped || (read && list.n == 1 && strstr(list.at[0].arguments, forms[i].marker)));
        calls_clear(&list);
        buf_free(&text);
      }
      json_decref(own);
      buf_free(&schema);
      close_fixture(&f);
    }
}

/* What refers to the same schemas again and again is looked at once. */
static void many_references(void **state)
{
  enum { MANY = 100 };
  static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
  (void)state;
  fixture f;
  open_fixture(&f, "json_tools");
  json_t *root = json_object(), *defs = json_object();
  for (size_t level = 0; level < sizeof names / sizeof *names; level++) {
    json_t *of = level ? json_object() : root, *list = json_array();
    char ref[32];
    snprintf(ref, sizeof ref, "#/$defs/%s", names[level]);
    for (int i = 0; i < MANY; i++)
      json_array_append_new(list, json_pack("{ss}", "$ref", ref));
    json_object_set_new(of, "anyOf", list);
    if (level)
      json_object_set_new(defs, names[level - 1], of);
  }
  json_object_set_new(defs, "f", json_pack("{ss}", "type", "object"));
  json_object_set_new(root, "$defs", defs);
  f.list[0].schema = root;
  compile(&f);
  expect(&f, true, "<tool_call>{\"name\": \"look\", \"arguments\": {\"x\": true}}</tool_call>");
  json_object_set_new(json_object_get(defs, "f"), "type", json_string("string"));
  tern_error err = {0};
  gram_machine_close(f.m);
  f.m = NULL;
  gram_free(&f.g);
  assert_int_not_equal(answer_compile(&f.form, &f.g, &err), TERN_OK);
  assert_non_null(strstr(err.text, "arguments are an object"));
  json_decref(root);
  close_fixture(&f);
}

/* ---- what is refused ---- */

static void refusals(void **state)
{
  static const struct {
    const char *format, *schema;
    bool text, value;
    const char *words;
  } bad[] = {
      {"harmony", "{}", false, false, "tool_choice: calls of the format harmony"},
      {"llama3_json", "{}", true, false, "llama3_json have no marker"},
      {"llama3_json", "{}", false, true, "llama3_json have no marker"},
      {"json_tools", "{\"type\": \"string\"}", false, false, "tools[0].parameters: arguments are an object"},
      {"qwen3_coder", "{\"properties\": {\"a\": {\"type\": \"string\", \"maxLength\": 3}}}", false, false,
       "tools[0].parameters.properties.a"},
      {"qwen3_coder", "{\"properties\": {\"a\": {\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"null\"}]}}}", false,
       false, "tools[0].parameters.properties.a"},
      {"qwen3_coder", "{\"properties\": {\"a\": {\"type\": \"string\", \"enum\": [\"x\", \"Null\"]}}}", false, false,
       "tools[0].parameters.properties.a.enum"},
      {"qwen3_coder", "{\"properties\": {\"a b\": {}}}", false, false, "tools[0].parameters.properties"},
      {"qwen3_coder", "{\"additionalProperties\": {}}", false, false, "tools[0].parameters: "},
      {"glm47", "{\"properties\": {\"a\": {\"not\": {}}}}", false, false, "tools[0].parameters.properties.a.not"},
      {"json_tools", "{\"type\": [\"object\", \"null\"]}", false, false, "arguments are an object"},
      {"json_tools", "{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"type\": \"string\"}}}", false, false,
       "arguments are an object"},
      {"json_tools", "{\"$ref\": \"#/$defs/b\", \"$defs\": {\"a\": {}}}", false, false, "arguments are an object"},
      {"json_tools", "{\"properties\": {\"a\": {\"type\": \"string\", \"maxLength\": 1000000000000000000}}}", false,
       false, "from 0 to 10^15"},
      {"json_tools", "{\"properties\": {\"a\": {\"not\": {}}}}", false, false, "tools[0].parameters.properties.a.not"},
      {"json_tools", "{\"properties\": {\"a\": {\"$ref\": \"#/$defs/a\"}}, \"$defs\": {\"a\": {\"not\": {}}}}", false,
       false, "tools[0].parameters.$defs.a.not"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    fixture f;
    tern_error err = {0};
    open_fixture(&f, bad[i].format);
    json_t *schema = json_loads(bad[i].schema, 0, NULL);
    f.list[0].schema = schema;
    f.form.text = bad[i].text;
    f.form.value = bad[i].value;
    tern_status status = answer_compile(&f.form, &f.g, &err);
    if (status == TERN_OK || !strstr(err.text, bad[i].words))
      fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].schema, err.text, bad[i].words);
    json_decref(schema);
    close_fixture(&f);
  }
}

/* Schemas of several tools are each looked up in their own. */
static void references_are_their_own(void **state)
{
  fixture f;
  (void)state;
  open_fixture(&f, "json_tools");
  json_t *a = json_loads("{\"type\": \"object\", \"properties\": {\"x\": {\"$ref\": \"#/$defs/x\"}}, \"required\": "
                         "[\"x\"], \"$defs\": {\"x\": {\"type\": \"boolean\"}}}",
                         0, NULL);
  json_t *b = json_loads("{\"$ref\": \"#/$defs/o\", \"$defs\": {\"o\": {\"type\": \"object\", \"properties\": {\"x\": "
                         "{\"$ref\": \"#/$defs/x\"}}}, \"x\": {\"type\": \"null\"}}}",
                         0, NULL);
  f.list[0].schema = a;
  f.list[1].schema = b;
  compile(&f);
  expect(&f, true, "<tool_call>{\"name\": \"look\", \"arguments\": {\"x\": true}}</tool_call>");
  expect(&f, false, "<tool_call>{\"name\": \"look\", \"arguments\": {\"x\": null}}</tool_call>");
  expect(&f, true, "<tool_call>{\"name\": \"ping\", \"arguments\": {\"x\": null}}</tool_call>");
  expect(&f, false, "<tool_call>{\"name\": \"ping\", \"arguments\": {\"x\": true}}</tool_call>");
  f.list[1].schema = NULL;
  compile(&f);
  expect(&f, true, "<tool_call>{\"name\": \"ping\", \"arguments\": {\"x\": [1]}}</tool_call>");
  json_decref(a);
  json_decref(b);
  close_fixture(&f);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(forced_calls),
      cmocka_unit_test(names_are_chosen),
      cmocka_unit_test(calls_or_a_value),
      cmocka_unit_test(calls_in_text),
      cmocka_unit_test(walks_are_calls),
      cmocka_unit_test(refusals),
      cmocka_unit_test(raw_strings),
      cmocka_unit_test(strings_or_null),
      cmocka_unit_test(references_are_their_own),
      cmocka_unit_test(markers_in_strings),
      cmocka_unit_test(many_references),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
