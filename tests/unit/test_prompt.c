/* test_prompt.c - what tern.h decides around a prompt, as mlx-lm does: enable_thinking, and the ids that XTC spares. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "engine/engine.h"

static const char *const copied[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
enum { COPIED = sizeof copied / sizeof *copied };

static const char source[] = TERN_SOURCE_DIR "/tests/golden/llama-4bit/model";

static void expect_ok(tern_status status, const tern_error *err)
{
  if (status != TERN_OK)
    fail_msg("%s", err->text);
}

static void write_text(const char *dir, const char *name, const char *text, size_t size)
{
  char path[600];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, size, f), size);
  fclose(f);
}

/* Replaces a word by one that is no longer, wherever it stands. */
static void replace(char *text, const char *old, const char *new)
{
  for (char *at; (at = strstr(text, old));) {
    memcpy(at, new, strlen(new));
    memmove(at + strlen(new), at + strlen(old), strlen(at + strlen(old)) + 1);
  }
}

/* A model of its own in `dir`: the committed one, with these two words of its files replaced, and this template. */
static tern_model *make_model(char *dir, const char *const words[][2], size_t n_words, const char *template)
{
  assert_non_null(mkdtemp(dir));
  for (int i = 0; i < COPIED; i++) {
    char path[600], *text;
    size_t size;
    tern_error err = {0};
    snprintf(path, sizeof path, "%s/%s", source, copied[i]);
    expect_ok(file_read(path, 64 << 20, &text, &size, &err), &err);
    if (strcmp(copied[i], "model.safetensors") != 0) {
      for (size_t w = 0; w < n_words; w++)
        replace(text, words[w][0], words[w][1]);
      size = strlen(text);
    }
    write_text(dir, copied[i], text, size);
    mem_free(text);
  }
  write_text(dir, "chat_template.jinja", template, strlen(template));
  tern_model *m;
  tern_error err = {0};
  expect_ok(tern_model_open(dir, &(tern_model_options){.threads = 1}, &m, &err), &err);
  return m;
}

static void remove_model(tern_model *m, const char *dir)
{
  static const char template[] = "chat_template.jinja";
  char path[600];
  tern_model_close(m);
  for (int i = 0; i <= COPIED; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, i < COPIED ? copied[i] : template);
    assert_int_equal(unlink(path), 0);
  }
  assert_int_equal(rmdir(dir), 0);
}

static void expect_prompt(const tern_model *m, const char *want)
{
  int32_t *ids, *wanted;
  size_t n, n_wanted;
  tern_error err = {0};
  static const tern_message messages[] = {{"user", "hi"}};
  expect_ok(tern_chat(m, messages, 1, &ids, &n, &err), &err);
  expect_ok(tern_tokenize(m, want, strlen(want), false, &wanted, &n_wanted, &err), &err);
  assert_int_equal(n, n_wanted);
  assert_memory_equal(ids, wanted, n * sizeof *ids);
  tern_free(ids);
  tern_free(wanted);
}

static void thinking_is_the_tokenizers(void **state)
{
  (void)state;
  static const char template[] = "{{ bos_token }}{{ messages[0].content }} {{ enable_thinking }}";
  static const char *const thinking[][2] = {{"<|system|>", "<think>"}, {"<|user|>", "</think>"}};
  static const char *const half[][2] = {{"<|system|>", "<think>"}};
  static const struct {
    const char *const (*words)[2];
    size_t n;
    const char *want;
  } cases[] = {
      {NULL, 0, "<|bos|>hi False"},
      {thinking, 2, "<|bos|>hi True"},
      {half, 1, "<|bos|>hi False"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char dir[] = "/tmp/tern-prompt-XXXXXX";
    tern_model *m = make_model(dir, cases[i].words, cases[i].n, template);
    expect_prompt(m, cases[i].want);
    remove_model(m, dir);
  }
}

static bool among(int32_t id, const int32_t *ids, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (ids[i] == id)
      return true;
  return false;
}

/* With a threshold of 0, XTC leaves the least likely token and the spared ones. */
static void xtc_spares_newlines_and_stops(void **state)
{
  (void)state;
  enum { TOKENS = 200, OWN = 7 };
  static const int32_t own[] = {OWN}, prompt[] = {1, 2, 3};
  static const char *const beyond[][2] = {{"\"eos_token_id\": 319", "\"eos_token_id\":9999"}};
  for (int wild = 0; wild < 2; wild++) { /* 1: config.json names a stop id that no logit stands for */
    char dir[] = "/tmp/tern-prompt-XXXXXX";
    tern_model *m = make_model(dir, beyond, wild ? 1 : 0, "x");
    tern_session *s;
    tern_error err = {0};
    tern_result result;
    int32_t *newline;
    size_t n_newline, newlines = 0, eos = 0, named = 0;
    assert_true(among(wild ? 9999 : 319, m->stop_ids, m->n_stop_ids));
    assert_true(among(319, m->stop_ids, m->n_stop_ids)); /* the tokenizer's */
    expect_ok(tern_tokenize(m, "\n", 1, true, &newline, &n_newline, &err), &err);
    expect_ok(tern_session_open(m, NULL, &s, &err), &err);
    tern_generate_options options = {
        .sampling = {.temp = 1, .xtc_probability = 1, .xtc_special = own, .n_xtc_special = 1, .seed = 11},
        .max_tokens = TOKENS,
        .ignore_eos = true};
    expect_ok(tern_generate(s, prompt, 3, &options, &result, &err), &err);
    assert_int_equal(result.n_ids, TOKENS);
    for (size_t i = 0; i < result.n_ids; i++) {
      newlines += among(result.ids[i], newline, n_newline);
      eos += result.ids[i] == 319;
      named += result.ids[i] == OWN;
    }
    /* Four equals at most: the spared ones, and what was least likely. */
    assert_true(newlines > TOKENS / 10);
    assert_true(eos > TOKENS / 10);
    assert_true(named > TOKENS / 10);
    tern_result_clear(&result);
    mem_free(newline);
    tern_session_close(s);
    remove_model(m, dir);
  }
}

static void stop_ids_are_of_the_vocabulary(void **state)
{
  (void)state;
  static const int32_t prompt[] = {1, 2, 3};
  char dir[] = "/tmp/tern-prompt-XXXXXX";
  tern_model *m = make_model(dir, NULL, 0, "x");
  tern_session *s;
  tern_error err = {0};
  tern_result result;
  expect_ok(tern_session_open(m, NULL, &s, &err), &err);
  static const int32_t bad[] = {-1, 320, INT32_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tern_generate_options options = {.max_tokens = 2, .stop_ids = bad + i, .n_stop_ids = 1};
    assert_int_equal(tern_generate(s, prompt, 3, &options, &result, &err), TERN_E_USAGE);
    assert_non_null(strstr(err.text, "319"));
  }
  tern_session_close(s);
  remove_model(m, dir);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(thinking_is_the_tokenizers),
      cmocka_unit_test(xtc_spares_newlines_and_stops),
      cmocka_unit_test(stop_ids_are_of_the_vocabulary),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
