/* test_choice.c - a greedy token without its logits: what the largest of a row is, that a backend which can tell it is
 * asked where that is enough and nowhere else, and that answers are the same as by a backend which cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/sample.h"
#include "ops/ref/ref.h"

enum { PROMPT = 40, STEPS = 12, TOKENS = 48 };

static void expect_ok(tern_status status, const tern_error *err)
{
  if (status != TERN_OK)
    fail_msg("%s", err->text);
}

static tern_model *open_model(const char *name, tern_backend backend, tern_numerics numerics)
{
  char dir[512];
  tern_error err = {0};
  tern_model *m = NULL;
  snprintf(dir, sizeof dir, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, name);
  tern_model_options options = {.threads = 2, .backend = backend, .numerics = numerics};
  expect_ok(tern_model_open(dir, &options, &m, &err), &err);
  return m;
}

static void the_largest_is_told_where_it_is_alone(void **state)
{
  (void)state;
  static const float ahead = 20 - 0x1p-17f, near = 20 - 0x1p-18f;
  static const struct {
    float x[4];
    int want;
  } cases[] = {
      {{1, 2, 3, 4}, 3},         {{4, 3, 2, 1}, 0},
      {{1, 20, 20, 4}, -1},      {{1, 20, near, 4}, -1},
      {{near, 20, 1, 4}, -1},    {{ahead, 20, 1, 4}, 1},
      {{NAN, 20, 1, 4}, -1},     {{1, 20, 1, NAN}, -1},
      {{1, INFINITY, 1, 4}, -1}, {{-INFINITY, -INFINITY, -5, -INFINITY}, 2},
      {{0, -0.0f, -1, -1}, -1},  {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, -1},
      {{0x1p30f, 1, 1, 1}, 0},   {{0x1p30f, 1, 0x1p30f, 1}, -1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (ref_largest(cases[i].x, 4, SAMPLER_APART) != cases[i].want)
      fail_msg("case %zu: %d, not %d", i, ref_largest(cases[i].x, 4, SAMPLER_APART), cases[i].want);
  assert_int_equal(ref_largest(cases[0].x, 1, SAMPLER_APART), 0);
}

/* ---- who is asked ---- */

typedef struct seen {
  int32_t largest[1 + STEPS];
  int vocab, rows, chosen;
} seen;

static void take_row(void *user, int64_t position, float *logits)
{
  (void)position;
  seen *s = user;
  s->largest[s->rows++] = ref_largest(logits, s->vocab, SAMPLER_APART);
}

static void take_chosen(void *user, int64_t position, int32_t token)
{
  (void)position;
  seen *s = user;
  s->largest[s->rows++] = token;
  s->chosen++;
}

static void run(tern_model *m, seen *s, bool choose)
{
  tern_error err = {0};
  int32_t ids[PROMPT + STEPS];
  session *timeline;
  *s = (seen){.vocab = m->info.vocab};
  session_sink sink = {.row = take_row, .chosen = choose ? take_chosen : NULL, .user = s};
  for (int i = 0; i < PROMPT + STEPS; i++)
    ids[i] = i * 31 % 250;
  expect_ok(session_open(m->net, 0, &timeline, &err), &err);
  session_request request = {.ids = ids, .n = PROMPT, .limit = PROMPT + STEPS};
  expect_ok(session_sync(timeline, &request, &sink, NULL, &err), &err);
  expect_ok(session_step(timeline, ids[PROMPT], &sink, &err), &err);
  expect_ok(session_steps(timeline, ids + PROMPT + 1, STEPS - 1, &sink, &err), &err);
  session_close(timeline);
}

static void only_who_asks_gets_a_choice(void **state)
{
  (void)state;
  seen plain, asked;
  tern_model *m = open_model("llama-4bit", TERN_BACKEND_REF, TERN_EXACT);
  run(m, &plain, false);
  run(m, &asked, true);
  assert_int_equal(plain.chosen, 0);
  assert_int_equal(asked.chosen, STEPS - 1); /* rows that come alone are read */
  assert_memory_equal(plain.largest, asked.largest, sizeof plain.largest);
  tern_model_close(m);
  m = open_model("llama-4bit", TERN_BACKEND_CPU, TERN_EXACT); /* has the logits at hand */
  run(m, &asked, true);
  assert_int_equal(asked.chosen, 0);
  assert_memory_equal(plain.largest, asked.largest, sizeof plain.largest);
  tern_model_close(m);
}

/* ---- answers ---- */

/* Any guesses do: with them each forward has rows of which the largest may be told. (That it is:
 * test_scheduler_choice.)
 */
static int guess(void *user, const int32_t *ids, size_t n, int32_t *out, int most)
{
  (void)user;
  for (int i = 0; i < most; i++)
    out[i] = ids[n - 1];
  return most;
}

static void answer(tern_model *m, const tern_generate_options *o, bool drafts, tern_result *result)
{
  tern_error err = {0};
  tern_session *s;
  int32_t ids[PROMPT];
  for (int i = 0; i < PROMPT; i++)
    ids[i] = i * 17 % 11 + 60;
  tern_session_options options = {0};
  if (drafts)
    options.draft = (tern_draft){.guess = guess, .tokens = 3, .always = true};
  expect_ok(tern_session_open(m, &options, &s, &err), &err);
  expect_ok(tern_generate(s, ids, PROMPT, o, result, &err), &err);
  tern_session_close(s);
}

static void answers_are_the_same(void **state)
{
  (void)state;
  static const int32_t ids[] = {7};
  static const float values[] = {3.5f};
  static const tern_generate_options options[] = {
      {.max_tokens = TOKENS, .ignore_eos = true},
      {.max_tokens = TOKENS, .ignore_eos = true, .sampling = {.repetition_penalty = 1.3}},
      {.max_tokens = TOKENS, .ignore_eos = true, .sampling = {.bias_ids = ids, .bias_values = values, .n_bias = 1}},
      {.max_tokens = TOKENS, .ignore_eos = true, .sampling = {.temp = 0.8, .seed = 5}},
      {.max_tokens = 1},
  };
  static const char *const models[] = {"llama-4bit", "gemma3-bf16", "qwen3-f16"};
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    tern_model *ref = open_model(models[m], TERN_BACKEND_REF, TERN_EXACT);
    tern_model *cpu = open_model(models[m], TERN_BACKEND_CPU, TERN_EXACT);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
      tern_result a, b;
      answer(ref, &options[i], true, &a);
      answer(cpu, &options[i], false, &b);
      assert_int_equal(a.n_ids, b.n_ids);
      assert_memory_equal(a.ids, b.ids, a.n_ids * sizeof *a.ids);
      assert_string_equal(a.text, b.text);
      tern_result_clear(&a);
      tern_result_clear(&b);
    }
    tern_model_close(ref);
    tern_model_close(cpu);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_largest_is_told_where_it_is_alone),
      cmocka_unit_test(only_who_asks_gets_a_choice),
      cmocka_unit_test(answers_are_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
