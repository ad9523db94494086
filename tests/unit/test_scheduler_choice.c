/* test_scheduler_choice.c - greedy tokens that come without their logits, where several rows share a forward:
 * neighbours in a scheduler, and drafts. They are the tokens that the logits have, and it is certain that they came
 * that way: a backend in between counts what it told, and one that tells lies shows them in the answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>

#include "unit/scheduler_house.h"

enum { GREEDY = 4, ANSWER = 24, LIE = 7 };

static const char *const checkpoints[] = {"llama-4bit", "gemma3-bf16", "qwen3-f16"};

/* ---- the backend in between ---- */

static const ops_backend *behind;
static ops_backend between;
static atomic_int told; /* rows of which the largest was told */
static bool lies;

static void choose(ops_context *cx, const float *values, int rows, int width, float apart, int32_t *chosen)
{
  behind->choose(cx, values, rows, width, apart, chosen);
  for (int i = 0; i < rows; i++) {
    chosen[i] = lies ? LIE : chosen[i];
    told += chosen[i] >= 0;
  }
}

static tern_model *open_between(const char *name)
{
  tern_model *m = open_model(name, (tern_model_options){.threads = 2, .backend = TERN_BACKEND_REF});
  behind = m->net->cx.backend;
  assert_non_null(behind->choose);
  between = *behind;
  between.choose = choose;
  m->net->cx.backend = &between;
  told = 0;
  lies = false;
  return m;
}

static int count_lies(const int32_t *ids, size_t n)
{
  int lied = 0;
  for (size_t i = 0; i < n; i++)
    lied += ids[i] == LIE;
  return lied;
}

/* ---- neighbours ---- */

/* Greedy, of one token (all decode from the first step on), and nobody looks at their logits. */
static void make_greedy(seen *s, house *h, int i)
{
  make_job(s, h, 0);
  s->prompt[0] = 40 + 13 * i;
  s->job.on_logits = NULL;
  s->job.options.max_tokens = ANSWER;
  s->job.options.ignore_eos = true;
}

static void together(house *h, seen *got, int n)
{
  tern_error err = {0};
  sched_job *jobs[GREEDY + 1];
  for (int i = 0; i < n; i++)
    jobs[i] = &got[i].job;
  if (sched_submit(h->scheduler, jobs, n, &err) != TERN_OK)
    fail_msg("%s", err.text);
  for (int i = 0; i < n; i++) {
    await_end(h, &got[i]);
    if (got[i].status != TERN_OK)
      fail_msg("%s", got[i].err.text);
  }
}

/* Beside them one that draws: its row is read. */
static void neighbours_have_the_tokens_of_each_alone(void **state)
{
  (void)state;
  for (size_t c = 0; c < sizeof checkpoints / sizeof *checkpoints; c++) {
    tern_model *m = open_between(checkpoints[c]);
    house h = {.model = m};
    seen *want = calloc(GREEDY + 1, sizeof *want), *got = calloc(GREEDY + 1, sizeof *got);
    for (int i = 0; i <= GREEDY; i++) {
      i < GREEDY ? make_greedy(&want[i], &h, i) : make_job(&want[i], &h, 2);
      run_alone(&want[i]);
    }
    assert_int_equal(told, 0); /* a row that comes alone is read */
    house_open(&h, m, (sched_options){0});
    for (int i = 0; i <= GREEDY; i++)
      i < GREEDY ? make_greedy(&got[i], &h, i) : make_job(&got[i], &h, 2);
    together(&h, got, GREEDY + 1);
    for (int i = 0; i <= GREEDY; i++)
      expect_same(&got[i], &want[i], true, i, checkpoints[c]);
    if (told < GREEDY * ANSWER / 2) /* the rest were too near to another, or alone */
      fail_msg("%s: of %d tokens %d were told", checkpoints[c], GREEDY * ANSWER, (int)told);
    house_close(&h);
    free(want);
    free(got);
    tern_model_close(m);
  }
}

static void what_is_told_is_what_is_taken(void **state)
{
  (void)state;
  tern_model *m = open_between("llama-4bit");
  house h;
  seen *got = calloc(3, sizeof *got);
  house_open(&h, m, (sched_options){0});
  for (int i = 0; i < 3; i++)
    make_greedy(&got[i], &h, i);
  got[2].job.on_logits = on_logits; /* who looks at logits is told nothing */
  lies = true;
  together(&h, got, 3);
  for (int i = 0; i < 2; i++)
    assert_int_equal(count_lies(got[i].ids, ANSWER), ANSWER);
  assert_int_equal(got[2].n_rows, ANSWER);
  assert_true(count_lies(got[2].ids, ANSWER) < ANSWER / 2);
  house_close(&h);
  free(got);
  tern_model_close(m);
}

/* ---- drafts ---- */

/* Guesses of a twin are right, those of another are mostly wrong: what was drawn behind a wrong one is dropped. */
static void drafts_in_a_scheduler(void **state)
{
  (void)state;
  for (size_t c = 0; c < sizeof checkpoints / sizeof *checkpoints; c++) {
    tern_model *twin = open_model(checkpoints[c], (tern_model_options){0}),
               *other = open_model(checkpoints[(c + 1) % 3], (tern_model_options){0});
    const tern_draft drafts[] = {{.model = twin, .tokens = 4, .always = true},
                                 {.model = other, .tokens = 3, .always = true},
                                 {.lookup = true, .tokens = 8, .always = true}};
    for (int d = 0; d < 3; d++)
      for (int n = 1; n <= 2; n++) {
        tern_model *m = open_between(checkpoints[c]);
        house h = {.model = m};
        seen *want = calloc(2, sizeof *want), *got = calloc(2, sizeof *got);
        for (int i = 0; i < n; i++) {
          make_greedy(&want[i], &h, i);
          run_alone(&want[i]);
        }
        house_open(&h, m, (sched_options){.draft = drafts[d]});
        for (int i = 0; i < n; i++)
          make_greedy(&got[i], &h, i);
        together(&h, got, n);
        for (int i = 0; i < n; i++)
          expect_same(&got[i], &want[i], true, i, checkpoints[c]);
        if (told < (drafts[d].lookup ? 1 : ANSWER / 2)) /* it has a guess for some alone */
          fail_msg("%s, drafts %d, %d jobs: %d were told", checkpoints[c], d, n, (int)told);
        house_close(&h);
        free(want);
        free(got);
        tern_model_close(m);
      }
    tern_model_close(twin);
    tern_model_close(other);
  }
}

static void generate(tern_model *m, const tern_draft *draft, tern_result *result)
{
  static const int32_t ids[] = {60, 5, 9, 60, 5, 9, 60};
  tern_error err = {0};
  tern_session *s = NULL;
  tern_session_options options = {0};
  tern_generate_options o = {.max_tokens = ANSWER, .ignore_eos = true};
  if (draft)
    options.draft = *draft;
  if (tern_session_open(m, &options, &s, &err) != TERN_OK ||
      tern_generate(s, ids, sizeof ids / sizeof *ids, &o, result, &err) != TERN_OK)
    fail_msg("%s", err.text);
  tern_session_close(s);
}

static void drafts_in_a_session(void **state)
{
  (void)state;
  for (size_t c = 0; c < sizeof checkpoints / sizeof *checkpoints; c++) {
    tern_model *m = open_between(checkpoints[c]), *twin = open_model(checkpoints[c], (tern_model_options){0}),
               *other = open_model(checkpoints[(c + 1) % 3], (tern_model_options){0});
    const tern_draft drafts[] = {{.model = twin, .tokens = 4, .always = true},
                                 {.model = other, .tokens = 3, .always = true}};
    tern_result want = {0}, got = {0};
    generate(m, NULL, &want);
    assert_int_equal(told, 0);
    for (int d = 0; d < 2; d++) {
      told = 0;
      generate(m, &drafts[d], &got);
      assert_int_equal(got.n_ids, want.n_ids);
      assert_memory_equal(got.ids, want.ids, want.n_ids * sizeof *want.ids);
      assert_string_equal(got.text, want.text);
      if (told < ANSWER / 2)
        fail_msg("%s, drafts %d: %d were told", checkpoints[c], d, (int)told);
      tern_result_clear(&got);
    }
    lies = true;
    generate(m, &drafts[0], &got);
    assert_true(count_lies(got.ids, got.n_ids) > count_lies(want.ids, want.n_ids));
    tern_result_clear(&want);
    tern_result_clear(&got);
    tern_model_close(m);
    tern_model_close(twin);
    tern_model_close(other);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(neighbours_have_the_tokens_of_each_alone),
      cmocka_unit_test(what_is_told_is_what_is_taken),
      cmocka_unit_test(drafts_in_a_scheduler),
      cmocka_unit_test(drafts_in_a_session),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
