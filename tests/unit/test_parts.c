/* test_parts.c - answers taken apart: reasoning, content and calls, wherever the text was cut; nothing of it lost. The
 * readers of calls are compared with the reference's in tests/parity/test_calls.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "text/parts.h"
#include "thorough.h"

static json_t *tools;

static int open_tools(void **state)
{
  (void)state;
  tools = json_loads("[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"n\": {\"type\": "
                     "\"integer\"}}}}}]",
                     0, NULL);
  return !tools;
}

static int close_tools(void **state)
{
  (void)state;
  json_decref(tools);
  return 0;
}

/* Parts as one line: R:text| C:text| call f{"a": 1}#id| */
static void print_parts(const answer_parts *p, buf *out)
{
  for (size_t i = 0; i < p->n; i++) {
    const answer_part *one = &p->at[i];
    if (one->kind == PART_CALL)
      buf_addf(out, "call %s%s%s%s|", one->call.name, one->call.arguments, one->call.id ? "#" : "",
               one->call.id ? one->call.id : "");
    else
      buf_addf(out, "%s:%s|", one->kind == PART_REASONING ? "R" : "C", one->text.data);
  }
}

/* The same of a stream: calls are put together as clients do, lost ones left out, and what then are neighbours joined.
 */
static void print_pieces(const answer_parts *p, buf *out)
{
  const answer_part *open = NULL;
  buf arguments = {0};
  part_kind last = PART_CALL;
  for (size_t i = 0; i < p->n; i++) {
    const answer_part *one = &p->at[i];
    assert_true(!open || one->kind == PART_CALL_TEXT || one->kind == PART_CALL_END || one->kind == PART_CALL_LOST);
    switch (one->kind) {
    case PART_CALL_BEGIN:
      open = one;
      buf_clear(&arguments);
      break;
    case PART_CALL_TEXT:
      assert_non_null(open);
      buf_add(&arguments, one->text.data, one->text.length);
      break;
    case PART_CALL_END:
      assert_non_null(open);
      if (!open) /* a checker does not know that the test has ended */
        return;
      buf_addf(out, "%scall %s%s%s%s|", last == PART_CALL ? "" : "|", open->call.name, arguments.data,
               open->call.id ? "#" : "", open->call.id ? open->call.id : "");
      last = PART_CALL;
      open = NULL;
      break;
    case PART_CALL_LOST:
      assert_non_null(open);
      assert_true(arguments.length > 0); /* so a call without arguments looks */
      json_t *tree = arguments.length ? json_loads(arguments.data, 0, NULL) : NULL;
      assert_null(tree); /* nobody takes it for a whole call */
      open = NULL;
      break;
    default:
      if (one->kind != last)
        buf_addf(out, "%s%s:", last == PART_CALL ? "" : "|", one->kind == PART_REASONING ? "R" : "C");
      buf_add(out, one->text.data, strlen(one->text.data));
      last = one->kind;
    }
  }
  assert_null(open);
  if (last != PART_CALL)
    buf_addc(out, '|');
  buf_free(&arguments);
}

/* The text in pieces: `cuts` bits say after which of its bytes it is cut; `piece` > 0: into pieces of so many bytes. */
static void run(const parts_options *options, const char *text, size_t piece, size_t cut_at, bool cut, buf *out)
{
  parts_reader *r = parts_open(options);
  answer_parts got = {0};
  size_t n = strlen(text);
  assert_non_null(r);
  for (size_t i = 0; i < n;) {
    size_t take = i < cut_at && cut_at < n ? cut_at - i : n - i;
    take = piece && piece < take ? piece : take;
    parts_feed(r, text + i, take, &got);
    i += take;
  }
  parts_end(r, cut, &got);
  assert_false(got.failed);
  if (options->pieces)
    print_pieces(&got, out);
  else
    print_parts(&got, out);
  assert_true(parts_reasoning_bytes(r) <= n);
  parts_free(&got);
  parts_close(r);
}

typedef struct sample {
  const char *format, *reasoning;
  bool opened, cut;
  const char *text, *want;
} sample;

static const sample samples[] = {
    /* plain */
    {NULL, NULL, false, false, "  a <think> b </think> <tool_call>{}</tool_call>\n",
     "C:  a <think> b </think> <tool_call>{}</tool_call>\n|"},
    {NULL, NULL, false, false, "\n", "C:\n|"},
    /* reasoning */
    {NULL, "think", false, false, "<think>\na\n</think>\n\nb", "R:\na\n|C:\n\nb|"},
    {NULL, "think", false, false, "\n<think>a</think>b<think>c</think>d", "R:a|C:b|R:c|C:d|"},
    {NULL, "think", true, false, "a\n</think>\n\nb", "R:a\n|C:\n\nb|"},
    {NULL, "think", true, true, "never ends </thin", "R:never ends </thin|"},
    {NULL, "think", false, false, "a < b <thin", "C:a < b <thin|"},
    {NULL, "think", false, false, "</think>a", "C:</think>a|"},
    {NULL, "think", false, false, "<think>a</think>\n", "R:a|"},
    {NULL, "think", false, false, "\n\n", "C:\n\n|"},
    {NULL, "think", false, false, "<think></think>a", "C:a|"},
    {NULL, "gemma4", false, false, "<|channel>thought\na<channel|>b", "R:\na|C:b|"},
    {NULL, "gemma4", false, false, "<|channel>final\na", "C:<|channel>final\na|"},
    {NULL, "seed", false, false, "<seed:think>a</seed:think>b", "R:a|C:b|"},
    {NULL, "mistral", false, false, "[THINK]a[/THINK]b", "R:a|C:b|"},
    /* calls */
    {"json_tools", "think", false, false, "<think>x <tool_call>{\"name\": \"f\"}</tool_call></think>y",
     "R:x <tool_call>{\"name\": \"f\"}</tool_call>|C:y|"},
    {"json_tools", "think", false, false, "<think>x</think>\n\n<tool_call>\n{\"name\": \"f\"}\n</tool_call>\n",
     "R:x|call f{}|"},
    {"json_tools", NULL, false, false,
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>",
     "call f{\"n\": 1}|call g{}|"},
    {"json_tools", NULL, false, false, "a<tool_call>{\"name\": \"f\"}</tool_call>b", "C:a|call f{}|C:b|"},
    {"json_tools", NULL, false, false,
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"t\": \"</tool_call>\"}}</tool_call>",
     "call f{\"t\": \"</tool_call>\"}|"},
    {"json_tools", NULL, false, false, "<tool_call>{\"name\": \"f\", \"arguments\": {\"t\": \"</tool_call>",
     "C:<tool_call>{\"name\": \"f\", \"arguments\": {\"t\": \"</tool_call>|"},
    {"json_tools", NULL, false, false, "\n<tool_call>oh</tool_call> <tool_call>{\"name\": \"f\"}</tool_call>",
     "C:\n<tool_call>oh</tool_call> |call f{}|"},
    {"json_tools", NULL, false, false, "<tool_call>{\"name\": \"f\"}</tool_call>\n <tool_call>oh</tool_call>",
     "call f{}|C:\n <tool_call>oh</tool_call>|"},
    {"json_tools", NULL, false, false, "<tool_call>{\"name\": \"f\"}", "call f{}|"},
    {"json_tools", NULL, false, true, "<tool_call>{\"name\": \"f\"", "C:<tool_call>{\"name\": \"f\"|"},
    {"json_tools", NULL, false, true, "a <tool_ca", "C:a <tool_ca|"},
    {"hermes", NULL, false, false, "<tool_call>{\"name\": \"f\"}</tool_call>", "call f{}|"},
    {"qwen3_coder", NULL, false, false,
     "a\n<function=f>\n<parameter=n>\n3.0\n</parameter>\n</function>\n</tool_call>\nb",
     "C:a\n|call f{\"n\": 3}|C:\nb|"},
    {"qwen3_coder", NULL, false, false,
     "<function=f>\n<parameter=s>\n</function></tool_call>\n</parameter>\n</function>",
     "call f{\"s\": \"</function></tool_call>\"}|"},
    {"qwen3_coder", NULL, false, true, "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n",
     "C:<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n|"},
    {"qwen3_coder", NULL, false, true, "<tool_call>\n<function=f>\n<parameter=n>\n1",
     "C:<tool_call>\n<function=f>\n<parameter=n>\n1|"},
    {"qwen3_coder", NULL, false, false, "Write <function=NAME></function>.", "C:Write <function=NAME></function>.|"},
    {"minicpm5", NULL, false, false,
     "Hm.\n<function name=\"f\"><param name=\"n\">3</param><param "
     "name=\"s\"><![CDATA[a</param>\n<b>]]></param></function>\n"
     "<function name=\"f\"></function>",
     "C:Hm.\n|call f{\"n\": 3, \"s\": \"a</param>\\n<b>\"}|call f{}|"},
    {"minicpm5", NULL, false, false,
     "<function name=\"f\"> <param name=\"s\"><![CDATA[a</param>\n<param name=\"t\">]]></b></param> </function>",
     "call f{\"s\": \"<![CDATA[a\", \"t\": \"]]></b>\"}|"},
    {"minicpm5", NULL, false, false, "<function name=\"nobody\"></function>",
     "C:<function name=\"nobody\"></function>|"},
    {"seed_oss", NULL, false, false,
     "<seed:tool_call>\n<function=f>\n<parameter=n>2</parameter>\n</function>\n</seed:tool_call>", "call f{\"n\": 2}|"},
    {"glm47", NULL, false, true, "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value>",
     "C:<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value>|"},
    {"glm47", NULL, false, false, "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value>", "call f{\"n\": 1}|"},
    {"glm47", NULL, false, false, "<tool_call>f", "call f{}|"},
    {"glm47", NULL, false, false, "<tool_call>words and more</tool_call>", "C:<tool_call>words and more</tool_call>|"},
    {"mistral", NULL, false, false, "a[TOOL_CALLS]f[ARGS]{\"n\": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}",
     "C:a|call f{\"n\": 1}|call g{}#abcdefghi|"},
    {"mistral", NULL, false, false, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"123456789\"}]",
     "call f{}#123456789|"},
    {"mistral", NULL, false, false, "[TOOL_CALLS]f[ARGS]{\"s\": \"[TOOL_CALLS]\"}", "call f{\"s\": \"[TOOL_CALLS]\"}|"},
    {"kimi_k2", NULL, false, false,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     "call f{}#functions.f:0|"},
    {"deepseek_v31", NULL, false, false,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": 1}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{\"a\": "
     "\"`\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "call f{\"n\": 1}|call g{\"a\": \"`\"}|"},
    {"deepseek_v31", NULL, false, false,
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{\"s\": "
     "\"```json\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "call function{\"s\": \"```json\"}|"},
    {"deepseek_v32", NULL, false, false,
     "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">1 > 0"
     "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">[1, null]</｜DSML｜parameter>\n"
     "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "call f{\"a\": \"1 > 0\", \"b\": [1, null]}|call g{}|"},
    {"cohere", "cohere", false, false,
     "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
     "\"parameters\": {\"n\": 1}}\n]<|END_ACTION|>",
     "R:a|call f{\"n\": 1}|"},
    {"nemotron", "think", true, false, "a</think><TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>",
     "R:a|call f{}|"},
    {"granite", NULL, false, false, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 1}}]", "call f{\"n\": 1}|"},
    {"llama3_json", NULL, false, false, "{\"name\": \"f\", \"parameters\": {\"n\": 1}}", "call f{\"n\": 1}|"},
    {"llama3_json", NULL, false, false, "\n<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\"}",
     "call f{}|call f{}|"},
    {"llama3_json", NULL, false, false, "{\"name\": \"nobody\", \"parameters\": {}}",
     "C:{\"name\": \"nobody\", \"parameters\": {}}|"},
    {"llama3_json", NULL, false, false, "<b>{\"name\": \"f\"}", "C:<b>{\"name\": \"f\"}|"},
    {"llama3_json", NULL, false, true, "{\"name\": \"f\", ", "C:{\"name\": \"f\", |"},
    {"llama3_json", NULL, false, false, "<|pyth", "C:<|pyth|"},
    {"gemma4", "gemma4", false, false,
     "<|channel>thought\na<channel|><|tool_call>call:f{s:<|\"|><tool_call|><|\"|>}<tool_call|>",
     "R:\na|call f{\"s\": \"<tool_call|>\"}|"},
    {"pythonic", NULL, false, false, "<|tool_call_start|>[f(s='<|tool_call_end|>', l=[1, (2,)])]<|tool_call_end|>ok",
     "call f{\"s\": \"<|tool_call_end|>\", \"l\": [1, [2]]}|C:ok|"},
    /* harmony */
    {"harmony", "harmony", false, false,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>a", "R:hm|C:a|"},
    {"harmony", "harmony", false, false,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>I "
     "call.<|end|><|start|>assistant"
     "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\": 1}<|call|>",
     "R:hm|C:I call.|call f{\"n\": 1}|"},
    {"harmony", "harmony", false, false, " to=functions.f<|channel|>commentary json<|message|>{\"n\": 1}",
     "call f{\"n\": 1}|"},
    {"harmony", "harmony", false, true, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\"",
     "C:<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\"|"},
    {"harmony", "harmony", false, false,
     "<|channel|>commentary to=browser<|message|>{}<|end|><|channel|>final<|message|>a",
     "C:<|channel|>commentary to=browser<|message|>{}a|"},
    {NULL, "harmony", false, false, "<|channel|>commentary to=functions.f<|message|>{}",
     "C:<|channel|>commentary to=functions.f<|message|>{}|"},
    {NULL, "harmony", false, false, "Bare words to=you, <|not a marker.", "C:Bare words to=you, <|not a marker.|"},
    {NULL, "harmony", false, false, "Bare<|end|> words<|return|>", "C:Bare words|"},
    {NULL, "harmony", false, false, "<|channel|>analysis<|end|><|start|>assistant<|channel|>final<|message|>a",
     "C:<|channel|>analysis<|end|>a|"},
    {NULL, "harmony", false, false, "<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "R:a|C:b|"},
    {NULL, "harmony", false, true, "<|channel|>ana", "C:<|channel|>ana|"},
    {NULL, "harmony", true, false, "hm<|end|><|start|>assistant<|channel|>final<|message|>a", "R:hm|C:a|"},
    {"harmony", NULL, false, false, "<|channel|>analysis<|message|>hm<|end|>a", "C:hma|"},
};

static parts_options options_of(const sample *s)
{
  parts_options o = {.opened = s->opened, .tools = tools};
  o.calls = s->format ? calls_find(s->format) : NULL;
  o.reasoning = s->reasoning ? parts_reasoning_find(s->reasoning) : NULL;
  assert_true(!s->format == !o.calls && !s->reasoning == !o.reasoning);
  return o;
}

static void parts_do_not_depend_on_cuts(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
    const sample *s = &samples[i];
    parts_options o = options_of(s);
    size_t n = strlen(s->text);
    for (size_t cut_at = 0; cut_at <= n + 4; cut_at++) { /* the last ones: in pieces of one to four bytes */
      for (int pieces = 0; pieces < 2; pieces++) {
        buf got = {0};
        o.pieces = pieces;
        run(&o, s->text, cut_at > n ? cut_at - n : 0, cut_at < n ? cut_at : n, s->cut, &got);
        assert_string_equal(got.data ? got.data : "", s->want);
        buf_free(&got);
      }
    }
  }
}

/* Any number below n. */
static size_t draw(uint64_t *state, size_t n)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(*state >> 33) % n;
}

/* Of any text: content, reasoning and markers of it are all there is, when no call is understood. */
static void random_texts_are_not_lost(void **state)
{
  static const char *const bits[] = {"<tool_call>", "</tool_call>", "<think>",    "</think>",   "a", "{", "\"", "\n",
                                     "<",           "[TOOL_CALLS]", "<function=", "</function>"};
  static const char *const formats[] = {NULL, "json_tools", "qwen3_coder", "mistral", "glm47"};
  (void)state;
  uint64_t dice = 1;
  for (int round = 0; round < 20000; round++) {
    buf text = {0}, whole = {0}, cut = {0};
    for (size_t i = 0, n = 1 + draw(&dice, 12); i < n; i++)
      buf_adds(&text, bits[draw(&dice, sizeof bits / sizeof *bits)]);
    sample s = {
        .format = formats[draw(&dice, 5)], .reasoning = draw(&dice, 2) ? "think" : NULL, .opened = draw(&dice, 2)};
    parts_options o = options_of(&s);
    run(&o, text.data, 0, text.length, false, &whole);
    o.pieces = round % 2;
    run(&o, text.data, 1 + draw(&dice, 5), draw(&dice, text.length + 1), false, &cut);
    assert_string_equal(whole.data ? whole.data : "", cut.data ? cut.data : "");
    size_t letters = 0, kept = 0;
    for (const char *p = text.data; *p; p++)
      letters += *p == 'a';
    for (const char *p = whole.data; p && *p; p++)
      kept += *p == 'a';
    assert_true(strstr(whole.data ? whole.data : "", "call ") || letters == kept);
    buf_free(&text);
    buf_free(&whole);
    buf_free(&cut);
  }
}

/* Texts longer than what is looked through at once. */
static void long_texts_do_not_depend_on_cuts(void **state)
{
  static const char *const bits[] = {
      "<tool_call>", "</tool_call>",      "<think>",     "</think>",
      "a",           "{\"name\": \"f\"}", "\"",          "\n",
      "<",           "<function=f>",      "</function>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": \""};
  static const char *const formats[] = {NULL, "json_tools", "qwen3_coder", "mistral", "glm47"};
  (void)state;
  uint64_t dice = 2;
  for (int round = 0; round < 60; round++) {
    buf text = {0}, whole = {0}, cut = {0};
    while (text.length < 10000)
      buf_adds(&text, bits[draw(&dice, sizeof bits / sizeof *bits)]);
    sample s = {.format = formats[round % 5], .reasoning = draw(&dice, 2) ? "think" : NULL};
    parts_options o = options_of(&s);
    run(&o, text.data, 0, text.length, false, &whole);
    o.pieces = true;
    run(&o, text.data, 1 + draw(&dice, 50), draw(&dice, text.length + 1), false, &cut);
    assert_string_equal(whole.data, cut.data);
    buf_free(&text);
    buf_free(&whole);
    buf_free(&cut);
  }
}

/* ---- what it costs ---- */

static size_t bytes_read, bytes_scanned;
static const calls_format *counted;

static bool counting_read(const calls_format *f, const char *text, size_t n, const json_t *list, call_list *out)
{
  (void)f;
  bytes_read += n;
  return counted->read(counted, text, n, list, out);
}

static bool counting_inside(const calls_format *f, const char *text, size_t n, calls_scan *scan)
{
  (void)f;
  size_t before = scan->at[0];
  bool inside = counted->inside(counted, text, n, scan);
  bytes_scanned += scan->at[0] - before;
  return inside;
}

/* An end marker that stands in a string ends nothing, and a thousand of them cost no more than one does. */
static void repeated_end_markers_cost_what_their_text_does(void **state)
{
  static const struct {
    const char *format, *begin, *end, *close, *want;
  } cases[] = {
      {"json_tools", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"", "</tool_call>", "\"}}</tool_call>",
       "call f{\"s\": \""},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\n", "</tool_call>",
       "\n</parameter>\n</function>\n</tool_call>", "call f{\"s\": \""},
      {"qwen3_coder", "<function=f>\n<parameter=s>\n", "</function>", "\n</parameter>\n</function>",
       "call f{\"s\": \""},
      {"mistral", "[TOOL_CALLS]f[ARGS]{\"s\": \"", "[TOOL_CALLS]", "\"}", "call f{\"s\": \""},
      {"pythonic", "<|tool_call_start|>[f(s='", "<|tool_call_end|>", "')]<|tool_call_end|>", "call f{\"s\": \""},
      {"gemma4", "<|tool_call>call:f{s:<|\"|>", "<tool_call|>", "<|\"|>}<tool_call|>", "call f{\"s\": \""},
  };
  enum { MANY = 1000 };
  (void)state;
  for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
    bool closed = i % 2;
    buf text = {0}, got = {0};
    counted = calls_find(cases[i / 2].format);
    calls_format format = *counted;
    format.read = counting_read;
    format.inside = counting_inside;
    parts_options o = {.calls = &format, .tools = tools};
    buf_adds(&text, cases[i / 2].begin);
    for (int k = 0; k < MANY; k++)
      buf_adds(&text, cases[i / 2].end);
    buf_adds(&text, closed ? cases[i / 2].close : "");
    bytes_read = bytes_scanned = 0;
    run(&o, text.data, 0, text.length, false, &got);
    assert_true(strncmp(got.data, closed ? cases[i / 2].want : "C:", closed ? strlen(cases[i / 2].want) : 2) == 0);
    if (bytes_read > 8 * text.length || bytes_scanned > 2 * text.length)
      fail_msg("%s: %zu bytes, %zu read, %zu scanned", format.name, text.length, bytes_read, bytes_scanned);
    buf_free(&text);
    buf_free(&got);
  }
}

static double processor_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What `n` bytes cost that come four at a time. */
static double feeding(const parts_options *o, const char *begin, const char *fill, size_t n)
{
  parts_reader *r = parts_open(o);
  answer_parts got = {0};
  double before = processor_seconds();
  parts_feed(r, begin, strlen(begin), &got);
  for (size_t i = 0; i < n; i += 4)
    parts_feed(r, fill, 4, &got);
  double spent = processor_seconds() - before;
  assert_false(got.failed);
  parts_free(&got);
  parts_close(r);
  return spent;
}

/* Four times as much may cost eight times as much, and not sixteen: in processor time, which other programs leave be.
 * Not under sanitizers, whose memmem looks at all that it might look at. */
static void pieces_cost_what_their_text_does(void **state)
{
  static const struct {
    const char *format, *begin, *fill;
  } cases[] = {
      {"minicpm5", "<function name=\"f\"><param name=\"k\"><![CDATA[", "abc\n"},
      {"minicpm5", "<function name=\"f\"><param name=\"k\"><![CDATA[", "]]> "},
      {"minicpm5", "<function name=\"f\"><param name=\"k\"><![CDATA[a]]>b", "]]> "},
      {"minicpm5", "<function name=\"f\"><param name=\"k\">", "abc\n"},
      {"minicpm5", "<function name=\"f\"><param name=\"k", "abc\n"},
      {"qwen3_coder", "<tool_call>\n<function=f>\n", "    "},
      {"qwen3_coder", "<tool_call>\n", "    "},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=k>\n", "<!!!"},
      {"glm47", "<tool_call>", "    "},
      {"glm47", "<tool_call>f<arg_key>", "abc\n"},
      {"glm47", "<tool_call>f<arg_key>k</arg_key>", "    "},
      {"glm47", "<tool_call>f<arg_key>k</arg_key><arg_value>", "abc\n"},
      {"glm47", "<tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value>", "\\n  "},
      {"longcat", "<longcat_tool_call>f", "abc\n"},
      {"pythonic", "<|tool_call_start|>[f(", "    "},
      {"pythonic", "<|tool_call_start|>[f(k=\"", "abc\n"},
      {"gemma4", "<|tool_call>call:f{k:<|\"|>", "abc\n"},
      {"json_tools", "<tool_call>{\"name\": \"f\", ", "    "},
      {"json_tools", "", "    "},
      {"kimi_k2", "<|tool_calls_section_begin|>", "    "},
      {"deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{}", "    "},
      {"mistral", "[TOOL_CALLS]f[ARGS]{\"k\": \"", "abc "},
      {"llama3_json", "", "    "},
      {"harmony", "<|channel|>commentary to=functions.f", "    "},
  };
  enum { SOME = 100000 };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases && !BUILT_FOR_ADDRESSES && !BUILT_FOR_THREADS; i++) {
    parts_options o = {.calls = calls_find(cases[i].format), .tools = tools, .pieces = true};
    double one = feeding(&o, cases[i].begin, cases[i].fill, SOME);
    double four = feeding(&o, cases[i].begin, cases[i].fill, 4 * SOME);
    if (four > 8 * one + 0.5)
      fail_msg("%s: %s and %s: %.2f s, and %.2f s of four times as much", cases[i].format, cases[i].begin,
               cases[i].fill, one, four);
  }
}

/* A scan that goes on says what one from the beginning says. */
static void scans_go_on(void **state)
{
  static const char *const bits[] = {
      "\"",     "'",           "\\",           "<|\"|>",          "<|\"",         "<escape>",
      "<esc",   "a",           "<parameter=",  "</parameter>",    "<param name=", "</param>",
      "</para", "<arg_value>", "</arg_value>", "<parameter name="};
  (void)state;
  uint64_t dice = 3;
  for (int round = 0; round < 3000; round++) {
    buf text = {0};
    for (size_t i = 0, n = 1 + draw(&dice, 12); i < n; i++)
      buf_adds(&text, bits[draw(&dice, sizeof bits / sizeof *bits)]);
    for (size_t k = 0; calls_at(k); k++) {
      const calls_format *f = calls_at(k);
      calls_scan going = {0};
      for (size_t n = 0; n <= text.length; n += 1 + draw(&dice, 4)) {
        calls_scan fresh = {0};
        assert_int_equal(f->inside(f, text.data, n, &going), f->inside(f, text.data, n, &fresh));
      }
    }
    buf_free(&text);
  }
}

static void prompts_open_reasoning(void **state)
{
  static const struct {
    const char *prompt;
    bool within, want;
  } cases[] = {
      {"<|im_start|>assistant\n<think>\n", false, true},
      {"<|im_start|>assistant\n<think>", false, true},
      {"<think>\n\n</think>\n\n", false, false},
      {"what is <think>?<|im_end|>\n<|im_start|>assistant\n", false, false},
      {"assistant\n<think>\nI was", false, false},
      {"assistant\n<think>\nI was", true, true},
      {"assistant\n<think>a</think>I was", true, false},
      {"", false, false},
      {"<thi", true, false},
  };
  (void)state;
  const parts_reasoning *think = parts_reasoning_find("think");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(parts_opened(think, cases[i].prompt, strlen(cases[i].prompt), cases[i].within), cases[i].want);
}

static void memory_runs_out_without_harm(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
    parts_options o = options_of(&samples[i]);
    for (int64_t nth = 1; nth < 60; nth++) {
      o.pieces = nth % 2;
      mem_fail_after(nth / 2 + 1);
      parts_reader *r = parts_open(&o);
      answer_parts got = {0};
      if (r) {
        parts_feed(r, samples[i].text, strlen(samples[i].text), &got);
        parts_end(r, samples[i].cut, &got);
      }
      mem_fail_after(-1);
      parts_free(&got);
      parts_close(r);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_do_not_depend_on_cuts),
      cmocka_unit_test(random_texts_are_not_lost),
      cmocka_unit_test(long_texts_do_not_depend_on_cuts),
      cmocka_unit_test(repeated_end_markers_cost_what_their_text_does),
      cmocka_unit_test(pieces_cost_what_their_text_does),
      cmocka_unit_test(scans_go_on),
      cmocka_unit_test(prompts_open_reasoning),
      cmocka_unit_test(memory_runs_out_without_harm),
  };
  return cmocka_run_group_tests(tests, open_tools, close_tools);
}
