/* test_chat.c - where chat templates and special tokens are found, and what is done to a request before it is rendered.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "text/chat.h"

static char dir[64];

static int make_dir(void **state)
{
  (void)state;
  snprintf(dir, sizeof dir, "/tmp/tern-chat-XXXXXX");
  return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  return system(command);
}

static void put(const char *name, const char *text)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  char *slash = strrchr(path + strlen(dir) + 1, '/');
  if (slash) {
    *slash = '\0';
    mkdir(path, 0777);
    *slash = '/';
  }
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  fputs(text, f);
  assert_int_equal(fclose(f), 0);
}

static chat *opened(void)
{
  chat *c;
  tern_error err = {0};
  if (chat_open(dir, &c, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return c;
}

static void gives(const chat *c, const char *request, const char *want)
{
  char *out;
  size_t n;
  tern_error err = {0};
  if (chat_render(c, request, strlen(request), &out, &n, &err) != TERN_OK)
    fail_msg("%s: %s", request, err.text);
  assert_string_equal(out, want);
  assert_int_equal(n, strlen(want));
  mem_free(out);
}

static void fails(const chat *c, const char *request, tern_status status, const char *part)
{
  char *out = NULL;
  tern_error err = {0};
  tern_status got = chat_render(c, request, strlen(request), &out, NULL, &err);
  if (got != status || !strstr(err.text, part))
    fail_msg("%s: status %d, \"%s\"; wanted %d with \"%s\"", request, got, err.text, status, part);
  assert_null(out);
}

#define ONE "\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]"

static void a_string_in_the_configuration(void **state)
{
  (void)state;
  put("tokenizer_config.json", "{\"chat_template\": \"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
                               "{{ pad_token is defined }}{{ unk_token is defined }}{{ add_bos_token is defined }}\","
                               "\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\", \"lstrip\": false},"
                               "\"pad_token\": null, \"add_bos_token\": true}");
  chat *c = opened();
  assert_true(chat_has_template(c));
  assert_string_equal(chat_special_token(c, "bos_token"), "<s>");
  assert_null(chat_special_token(c, "pad_token"));
  assert_null(chat_tool_parser(c));
  gives(c, "{" ONE "}", "<s>x</s>FalseFalseFalse");
  gives(c, "{" ONE ", \"kwargs\": {\"bos_token\": \"B\", \"pad_token\": null}}", "Bx</s>TrueFalseFalse");
  chat_close(c);
}

static void named_templates(void **state)
{
  (void)state;
  put("tokenizer_config.json",
      "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, {\"name\": \"tool_use\", "
      "\"template\": \"T{{ tools|length }}\"}]}");
  chat *c = opened();
  size_t n;
  gives(c, "{" ONE "}", "D");
  gives(c, "{" ONE ", \"tools\": null}", "D");
  gives(c, "{" ONE ", \"tools\": []}", "T0");
  gives(c, "{" ONE ", \"tools\": [{}]}", "T1");
  assert_string_equal(chat_template_source(c, false, &n), "D");
  assert_string_equal(chat_template_source(c, true, &n), "T{{ tools|length }}");
  chat_close(c);
  put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"R\"}]}");
  c = opened();
  fails(c, "{" ONE "}", TERN_E_NOT_FOUND, "default");
  chat_close(c);
}

static void files_go_before_the_configuration(void **state)
{
  (void)state;
  put("tokenizer_config.json", "{\"chat_template\": \"config\", \"bos_token\": \"<b>\"}");
  put("chat_template.json", "{\"chat_template\": \"json {{ bos_token }}\"}");
  chat *c = opened();
  gives(c, "{" ONE "}", "json <b>");
  chat_close(c);
  put("chat_template.jinja", "jinja\r\n{{ bos_token }}\n");
  put("additional_chat_templates/tool_use.jinja", "tools");
  put("additional_chat_templates/readme.txt", "{% not a template");
  c = opened();
  gives(c, "{" ONE "}", "jinja\n<b>");
  gives(c, "{" ONE ", \"tools\": []}", "tools");
  chat_close(c);
}

static void the_older_token_file(void **state)
{
  (void)state;
  put("special_tokens_map.json", "{\"bos_token\": {\"content\": \"<m>\"}, \"mask_token\": \"[M]\"}");
  put("tokenizer_config.json", "{\"chat_template\": \"{{ bos_token }}{{ mask_token }}\", \"bos_token\": \"<c>\"}");
  chat *c = opened();
  gives(c, "{" ONE "}", "<m>[M]");
  chat_close(c);
  put("tokenizer_config.json",
      "{\"chat_template\": \"{{ bos_token }}{{ mask_token }}\", \"bos_token\": \"<c>\", \"added_tokens_decoder\": {}}");
  c = opened();
  gives(c, "{" ONE "}", "<c>");
  chat_close(c);
}

static void no_template_is_not_an_error_yet(void **state)
{
  (void)state;
  chat *c = opened();
  size_t n;
  assert_false(chat_has_template(c));
  assert_null(chat_template_source(c, false, &n));
  fails(c, "{" ONE "}", TERN_E_NOT_FOUND, "no chat template");
  tern_error err = {0};
  assert_int_equal(chat_set_template(c, "{% bad", 6, &err), TERN_E_TEMPLATE);
  assert_false(chat_has_template(c));
  assert_int_equal(chat_set_template(c, "ok", 2, &err), TERN_OK);
  gives(c, "{" ONE "}", "ok");
  assert_int_equal(chat_set_template(c, "{% bad", 6, &err), TERN_E_TEMPLATE);
  gives(c, "{" ONE "}", "ok");
  chat_close(c);
}

static void broken_files_are_named(void **state)
{
  (void)state;
  static const struct {
    const char *text, *part;
    tern_status status;
  } cases[] = {
      {"{", "tokenizer_config.json: JSON: line 1", TERN_E_FORMAT},
      {"[]", "tokenizer_config.json: a JSON object", TERN_E_FORMAT},
      {"{\"chat_template\": 5}", "tokenizer_config.json: chat_template", TERN_E_FORMAT},
      {"{\"chat_template\": [5]}", "chat_template[0]", TERN_E_FORMAT},
      {"{\"chat_template\": \"a\\n{% if %}\"}", "tokenizer_config.json: template: line 2", TERN_E_TEMPLATE},
      {"{\"bos_token\": 5}", "tokenizer_config.json: bos_token", TERN_E_FORMAT},
      {"{\"bos_token\": {}}", "tokenizer_config.json: bos_token", TERN_E_FORMAT},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    chat *c = NULL;
    tern_error err = {0};
    put("tokenizer_config.json", cases[i].text);
    tern_status got = chat_open(dir, &c, &err);
    if (got != cases[i].status || !strstr(err.text, cases[i].part))
      fail_msg("%s: status %d, \"%s\"", cases[i].text, got, err.text);
    assert_null(c);
  }
  chat *c;
  assert_int_equal(chat_open("/nowhere/at/all", &c, NULL), TERN_E_NOT_FOUND);
}

/* ---- requests ---- */

static chat *showing(const char *source)
{
  chat *c;
  assert_int_equal(chat_from_template(source, strlen(source), &c, NULL), TERN_OK);
  return c;
}

static void messages_are_normalised(void **state)
{
  (void)state;
  chat *c = showing("{{ messages[0] }}");
  gives(c, "{\"messages\": [{\"role\": \"a\", \"content\": null, \"x\": {\"y\": null}}]}",
        "{'role': 'a', 'x': {'y': None}}");
  gives(c, "{\"messages\": [{\"role\": \"a\", \"reasoning\": \"r\"}]}",
        "{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}");
  gives(c, "{\"messages\": [{\"role\": \"a\", \"reasoning_content\": \"c\", \"thinking\": \"t\"}]}",
        "{'thinking': 't', 'role': 'a', 'reasoning_content': 'c'}");
  gives(c, "{\"messages\": [{\"role\": \"a\", \"thinking\": \"t\", \"reasoning_content\": null}]}",
        "{'thinking': 't', 'role': 'a', 'reasoning_content': 't'}");
  gives(c, "{\"messages\": [{\"role\": \"a\", \"reasoning_content\": \"\"}]}",
        "{'thinking': '', 'role': 'a', 'reasoning_content': ''}");
  chat_close(c);
}

static void variables_have_their_defaults(void **state)
{
  (void)state;
  chat *c = showing(
      "{{ tools }} {{ documents }} {{ add_generation_prompt }} {{ enable_thinking }} {{ strftime_now('%H:%M') }}");
  gives(c, "{" ONE ", \"now\": \"2026-01-15T12:34:00\"}", "None None False  12:34");
  gives(c,
        "{" ONE ", \"tools\": [{\"a\": 1}], \"add_generation_prompt\": true, \"now\": \"2026-01-15\", \"kwargs\": "
        "{\"enable_thinking\": false, \"documents\": [{\"t\": 2}]}}",
        "[{'a': 1}] [{'t': 2}] True False 00:00");
  chat_close(c);
}

static void the_final_message_can_be_continued(void **state)
{
  (void)state;
  chat *c = showing("{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{{ continue_final_message }}");
  gives(c, "{" ONE ", \"kwargs\": {\"continue_final_message\": false}}", "<user>x</>");
  gives(c, "{" ONE ", \"kwargs\": {\"continue_final_message\": true}}", "<user>x");
  gives(c,
        "{\"messages\": [{\"role\": \"a\", \"content\": \"open \"}], \"kwargs\": {\"continue_final_message\": "
        "\"content\"}}",
        "<a>open ");
  fails(c, "{" ONE ", \"kwargs\": {\"continue_final_message\": true}, \"add_generation_prompt\": true}", TERN_E_FORMAT,
        "exclude each other");
  fails(c, "{" ONE ", \"kwargs\": {\"continue_final_message\": \"thinking\"}}", TERN_E_FORMAT, "no \"thinking\"");
  fails(c,
        "{\"messages\": [{\"role\": \"a\", \"thinking\": \"t\"}], \"kwargs\": {\"continue_final_message\": "
        "\"thinking\"}}",
        TERN_E_FORMAT, "does not read \"thinking\"");
  fails(c, "{\"messages\": [{\"role\": \"a\", \"content\": [1]}], \"kwargs\": {\"continue_final_message\": true}}",
        TERN_E_FORMAT, "no text");
  chat_close(c);
  c = showing("{% for m in messages %}{{ m.content|trim }}</>{% endfor %}");
  gives(c,
        "{\"messages\": [{\"role\": \"a\", \"content\": \" open  \"}], \"kwargs\": {\"continue_final_message\": true}}",
        "open");
  chat_close(c);
  c = showing("{% for p in messages[0].content %}{{ p.text }}|{% endfor %}");
  gives(
      c,
      "{\"messages\": [{\"role\": \"a\", \"content\": [{\"text\": \"1\"}, {\"text\": \"2\"}, {\"type\": \"image\"}]}], "
      "\"kwargs\": {\"continue_final_message\": true}}",
      "1|2");
  chat_close(c);
  c = showing("{{ messages[0].reasoning_content }}!");
  gives(c,
        "{\"messages\": [{\"role\": \"a\", \"thinking\": \"t\"}], \"kwargs\": {\"continue_final_message\": "
        "\"thinking\"}}",
        "t");
  chat_close(c);
  c = showing("content is dropped");
  fails(c, "{" ONE ", \"kwargs\": {\"continue_final_message\": true}}", TERN_E_TEMPLATE, "does not come out");
  chat_close(c);
}

static void bad_requests_say_what_is_wrong(void **state)
{
  (void)state;
  chat *c = showing("{{ messages[0].content.x.y }}");
  fails(c, "", TERN_E_FORMAT, "request: JSON");
  fails(c, "[]", TERN_E_FORMAT, "messages");
  fails(c, "{}", TERN_E_FORMAT, "messages: missing");
  fails(c, "{\"messages\": []}", TERN_E_FORMAT, "messages: empty");
  fails(c, "{\"messages\": {}}", TERN_E_FORMAT, "messages: a list");
  fails(c, "{\"messages\": [1]}", TERN_E_FORMAT, "messages[0]");
  fails(c, "{" ONE ", \"tools\": {}}", TERN_E_FORMAT, "tools");
  fails(c, "{" ONE ", \"tools\": [1]}", TERN_E_FORMAT, "tools");
  fails(c, "{" ONE ", \"kwargs\": []}", TERN_E_FORMAT, "kwargs");
  fails(c, "{" ONE ", \"kwargs\": {\"messages\": []}}", TERN_E_FORMAT, "'messages'");
  fails(c, "{" ONE ", \"kwargs\": {\"tokenize\": false}}", TERN_E_FORMAT, "'tokenize'");
  fails(c, "{" ONE ", \"kwargs\": {\"documents\": [1]}}", TERN_E_FORMAT, "documents");
  fails(c, "{" ONE ", \"stream\": true}", TERN_E_FORMAT, "'stream'");
  fails(c, "{" ONE ", \"now\": 5}", TERN_E_FORMAT, "now");
  fails(c, "{" ONE ", \"now\": \"soon\"}", TERN_E_FORMAT, "now: 'soon'");
  fails(c, "{" ONE "}", TERN_E_TEMPLATE, "template: line 1:");
  chat_close(c);
}

static void every_allocation_may_fail(void **state)
{
  (void)state;
  static const char request[] =
      "{" ONE ", \"tools\": [{\"a\": [1, 2, {\"b\": 1e5}]}], \"kwargs\": {\"k\": \"\\u00e9\"}}";
  put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ messages }}\"}], "
                               "\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}}");
  for (int64_t n = 0;; n++) {
    chat *c = NULL;
    char *out = NULL;
    assert_true(n < 2000);
    mem_fail_after(n);
    tern_status status = chat_open(dir, &c, NULL);
    if (status == TERN_OK)
      status = chat_render(c, request, sizeof request - 1, &out, NULL, NULL);
    mem_fail_after(-1);
    chat_close(c);
    if (status == TERN_OK) {
      mem_free(out);
      return;
    }
    assert_int_equal(status, TERN_E_NOMEM);
    assert_null(out);
  }
}

/* A folder whose files with long names have paths that the system refuses. */
static void long_paths_are_not_skipped(void **state)
{
  (void)state;
  char path[4200], part[201];
  snprintf(path, sizeof path, "%s", dir);
  memset(part, 'd', 200);
  part[200] = '\0';
  while (strlen(path) < 4076) { /* "/chat_template.jinja" makes 4096, one more than the system takes */
    size_t n = 4076 - strlen(path) - 1;
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%.*s", (int)(n > 200 ? 100 : n), part);
    assert_int_equal(mkdir(path, 0777), 0);
  }
  int at = open(path, O_RDONLY | O_DIRECTORY);
  assert_true(at >= 0);
  int file = openat(at, "chat_template.jinja", O_WRONLY | O_CREAT, 0666);
  assert_true(file >= 0);
  assert_int_equal(write(file, "hello", 5), 5);
  close(file);
  close(at);
  chat *c = NULL;
  tern_error err;
  assert_int_equal(chat_open(path, &c, &err), TERN_E_IO);
  assert_null(c);
}

static void the_config_may_name_a_tool_parser(void **state)
{
  (void)state;
  put("tokenizer_config.json", "{\"chat_template\": \"x\", \"tool_parser_type\": \"glm47\"}");
  chat *c = opened();
  assert_string_equal(chat_tool_parser(c), "glm47");
  chat_close(c);
  put("tokenizer_config.json", "{\"chat_template\": \"x\", \"tool_parser_type\": null}");
  c = opened();
  assert_null(chat_tool_parser(c));
  chat_close(c);
  tern_error err = {0};
  put("tokenizer_config.json", "{\"chat_template\": \"x\", \"tool_parser_type\": 3}");
  assert_int_equal(chat_open(dir, &c, &err), TERN_E_FORMAT);
  assert_non_null(strstr(err.text, "tool_parser_type"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_string_in_the_configuration, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(named_templates, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(files_go_before_the_configuration, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(the_older_token_file, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(no_template_is_not_an_error_yet, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(broken_files_are_named, make_dir, remove_dir),
      cmocka_unit_test(messages_are_normalised),
      cmocka_unit_test(variables_have_their_defaults),
      cmocka_unit_test(the_final_message_can_be_continued),
      cmocka_unit_test(bad_requests_say_what_is_wrong),
      cmocka_unit_test_setup_teardown(the_config_may_name_a_tool_parser, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(long_paths_are_not_skipped, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(every_allocation_may_fail, make_dir, remove_dir),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
