/* test_scheduler_reuse.c - a scheduler that guesses and that keeps prefixes changes no bit: whatever was guessed, right
 * or wrong, and whatever was found of an earlier turn, jobs have what they have alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "unit/scheduler_house.h"
#include "unit/thorough.h"

/* ---- speculation ---- */

/* Guesses that are right, wrong or both, by what the jobs give alone. */
typedef struct knowing {
  seen *want; /* [JOBS] */
  uint32_t random;
  uint32_t wrong_of_8;
} knowing;

static int guess(void *user, const int32_t *ids, size_t n, int32_t *out, int most)
{
  knowing *k = user;
  for (int i = 0; i < JOBS; i++) {
    const seen *w = &k->want[i];
    if (n < w->job.n || memcmp(ids, w->prompt, w->job.n * sizeof *ids))
      continue;
    for (int g = 0; g < most; g++) {
      size_t at = n - w->job.n + (size_t)g;
      k->random = k->random * 1103515245u + 12345u;
      out[g] = at < w->n_ids ? w->ids[at] : 1;
      out[g] = (k->random >> 16) % 8 < k->wrong_of_8 ? (out[g] + 1) % 256 : out[g];
    }
    return (int)((k->random >> 20) % ((uint32_t)most + 1));
  }
  return 0;
}

static void speculation_changes_no_bit(void **state)
{
  (void)state;
  static const char *const checkpoints[] = {"gemma3-bf16", "llama-4bit", "llama-sliding-8bit", "qwen2-mxfp4",
                                            "qwen3-f16"};
  int cases = 0;
  for (size_t c = 0; c < sizeof checkpoints / sizeof *checkpoints; c++)
    for (int fast = 0; fast < 2; fast++) {
      tern_model_options options = {.numerics = fast ? TERN_FAST : TERN_EXACT};
      tern_model *m = open_model(checkpoints[c], options), *twin = open_model(checkpoints[c], options),
                 *other = open_model(checkpoints[(c + 1) % 5], options);
      house h = {.model = m};
      knowing k = {.want = calloc(JOBS, sizeof *k.want), .random = 5};
      for (int i = 0; i < JOBS; i++) {
        make_job(&k.want[i], &h, i);
        run_alone(&k.want[i]);
      }
      tern_draft drafts[] = {
          {.lookup = true},
          {.lookup = true, .tokens = 32, .always = true},
          {.model = twin, .tokens = 4, .always = true},
          {.model = other, .tokens = 7, .always = true},
          {.model = other},
          {.guess = guess, .user = &k, .tokens = 32},
      };
      for (size_t d = 0; d < sizeof drafts / sizeof *drafts; d++)
        if (take_case(&cases, 3, 1))
          replay(m, checkpoints[c], (sched_options){.draft = drafts[d], .prompt_share = 20, .prefixes = d % 2 ? 4 : 0});
      for (k.wrong_of_8 = 1; k.wrong_of_8 <= 8; k.wrong_of_8 += 7)
        if (take_case(&cases, 3, 1))
          replay(m, checkpoints[c], (sched_options){.draft = drafts[5], .rows = 5, .prefixes = 4});
      free(k.want);
      tern_model_close(m);
      tern_model_close(twin);
      tern_model_close(other);
    }
}

/* The counts say what was guessed; and a model's guesses of itself are all right, beside neighbours too. */
static void guesses_are_counted(void **state)
{
  (void)state;
  tern_model *m = open_model("qwen3-f16", (tern_model_options){0}),
             *twin = open_model("qwen3-f16", (tern_model_options){0});
  house h;
  seen *s = calloc(3, sizeof *s);
  house_open(&h, m, (sched_options){.draft = {.model = twin, .tokens = 4, .always = true}});
  for (int i = 0; i < 3; i++) {
    make_job(&s[i], &h, 3 + i);
    s[i].job.options.ignore_eos = true;
    s[i].job.options.max_tokens = 36;
    submit(&h, &s[i]);
  }
  sched_stats stats;
  for (int i = 0; i < 3; i++) {
    await_end(&h, &s[i]);
    assert_int_equal(s[i].status, TERN_OK);
    assert_int_equal(s[i].n_ids, 36);
  }
  sched_get_stats(h.scheduler, &stats);
  assert_int_equal(stats.generated_tokens, 3 * 36);
  assert_true(stats.drafted_tokens > 60);
  assert_int_equal(stats.accepted_tokens, stats.drafted_tokens);
  assert_true(stats.steps < 36);
  house_close(&h);
  free(s);
  tern_model_close(m);
  tern_model_close(twin);
}

/* A draft model's state is set aside too: what does not fit with it is refused. */
static void drafts_are_admitted(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0}),
             *other = open_model("qwen3-f16", (tern_model_options){0});
  size_t one = kv_store_estimate(m->net->store, 139 + 29, m->net->plan.max_tokens);
  house h;
  seen *s = calloc(2, sizeof *s);
  for (int i = 0; i < 2; i++) {
    house_open(&h, m, (sched_options){.state_bytes = one, .draft.model = i ? other : NULL});
    make_job(&s[i], &h, 9);
    s[i].job.options.max_tokens = 30;
    submit(&h, &s[i]);
    await_end(&h, &s[i]);
    assert_int_equal(s[i].status, i ? TERN_E_LIMIT : TERN_OK);
    house_close(&h);
  }
  free(s);
  tern_model_close(m);
  tern_model_close(other);
}

/* ---- prefixes ---- */

/* The next turn of a conversation, alone and in the house; the conversation becomes the longer. Returns what was found.
 */
static int64_t turn(house *h, int32_t *ids, size_t *n, int more, int sampling, bool cut, const char *name)
{
  seen *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got), *both[] = {want, got};
  for (int i = 0; i < more; i++, ++*n)
    ids[*n] = (int32_t)((*n * 37 + (size_t)i * 11) % 256);
  for (int i = 0; i < 2; i++) {
    make_job(both[i], h, sampling);
    memcpy(both[i]->prompt, ids, *n * sizeof *ids);
    both[i]->job.n = *n;
    both[i]->job.options.max_tokens = 20;
    both[i]->job.options.ignore_eos = true;
  }
  run_alone(want);
  got->cancel_at = cut ? 3 : -1;
  submit(h, got);
  await_end(h, got);
  if (got->status != TERN_OK && !cut)
    fail_msg("%s: %s", name, got->err.text);
  expect_same(got, want, !cut, sampling, name);
  int64_t cached = got->job.cached;
  memcpy(ids + *n, got->ids, got->n_ids * sizeof *ids);
  *n += got->n_ids;
  free(want);
  free(got);
  return cached;
}

/* The draft model's own state is kept too: at the next turn it guesses from the first step on, and every guess is
 * right. */
static void draft_models_keep_their_prefixes(void **state)
{
  (void)state;
  tern_model *m = open_model("gemma3-bf16", (tern_model_options){0}),
             *twin = open_model("gemma3-bf16", (tern_model_options){0});
  house h;
  int32_t ids[LONGEST];
  size_t n = 0;
  house_open(&h, m, (sched_options){.prefixes = 4, .draft = {.model = twin, .tokens = 4, .always = true}});
  for (int i = 0; i < 3; i++)
    turn(&h, ids, &n, 40, 7, false, "gemma3-bf16 with a draft model");
  sched_stats stats;
  sched_get_stats(h.scheduler, &stats);
  assert_true(stats.drafted_tokens > 30);
  assert_int_equal(stats.accepted_tokens, stats.drafted_tokens);
  assert_true(kv_store_held(twin->net->store) > 0);
  house_close(&h);
  assert_int_equal(kv_store_held(twin->net->store), 0);
  tern_model_close(m);
  tern_model_close(twin);
}

/* Two conversations in turns, one of them also from another beginning, and short ones; some answers are cut. */
static void converse(tern_model *m, const char *name, sched_options options)
{
  house h;
  int32_t a[LONGEST], b[LONGEST], other[LONGEST];
  size_t n_a = 0, n_b = 3, n_other, n_short = 0;
  house_open(&h, m, options);
  b[0] = 5, b[1] = 6, b[2] = 7;
  assert_int_equal(turn(&h, a, &n_a, 5, 7, false, name), 0);
  assert_int_equal(turn(&h, b, &n_b, 70, 8, false, name), 0);
  assert_true(turn(&h, a, &n_a, 60, 7, false, name) > 0);
  assert_true(turn(&h, b, &n_b, 9, 8, true, name) > 0);
  memcpy(other, a, sizeof a);
  other[1]++;
  n_other = n_a;
  turn(&h, other, &n_other, 4, 3, false, name);
  assert_true(turn(&h, a, &n_a, 30, 0, true, name) > 0);
  assert_true(turn(&h, b, &n_b, 20, 1, false, name) > 0 || options.prefixes < 8);
  assert_true(turn(&h, a, &n_a, 40, 7, false, name) > 0);
  n_a -= 60; /* back, and on in another way */
  assert_true(turn(&h, a, &n_a, 7, 7, false, name) > 0);
  memcpy(other, a, sizeof a);
  turn(&h, other, &n_short, 1, 8, false, name);
  sched_stats stats;
  sched_get_stats(h.scheduler, &stats);
  assert_true(stats.cached_tokens > 0 && stats.prefixes > 0 && stats.prefixes <= options.prefixes);
  assert_int_equal(stats.state_bytes, 0);
  house_close(&h);
}

static void prefixes_change_no_bit(void **state)
{
  (void)state;
  static const char *const checkpoints[] = {"gemma3-bf16", "llama-4bit", "llama-sliding-8bit", "qwen2-mxfp4",
                                            "qwen3-f16"};
  for (size_t c = 0; c < sizeof checkpoints / sizeof *checkpoints; c++)
    for (int fast = 0; fast < 2; fast++) {
      tern_model *m = open_model(checkpoints[c], (tern_model_options){.numerics = fast ? TERN_FAST : TERN_EXACT});
      converse(m, checkpoints[c], (sched_options){.prefixes = 8});
      converse(m, checkpoints[c], (sched_options){.prefixes = 3, .prompt_share = 5});
      tern_model_close(m);
    }
  static const int starts[] = {0, 40, 100};
  for (int i = 0; i < 3; i++) {
    tern_model_options options = {.kv_bits = 4, .kv_group_size = 32, .quantized_kv_start = starts[i]};
    tern_model *m = open_model("llama-4bit", options);
    converse(m, "llama-4bit with quantised keys", (sched_options){.prefixes = 8});
    tern_model_close(m);
  }
}

static void a_mixed_load_with_prefixes_too(void **state)
{
  (void)state;
  tern_model *m = open_model("gemma3-bf16", (tern_model_options){0});
  replay(m, "gemma3-bf16 with prefixes", (sched_options){.prefixes = 4, .prompt_share = 30});
  tern_model_close(m);
}

/* Kept states make room for running jobs, and the limit holds. */
static void prefixes_yield_to_jobs(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  size_t one = kv_store_estimate(m->net->store, 139 + 35, m->net->plan.max_tokens);
  house h;
  seen *s = calloc(1, sizeof *s);
  house_open(&h, m, (sched_options){.prefixes = 8, .state_bytes = 9 * one});
  for (int i = 0; i < 12; i++) {
    make_job(s, &h, i);
    s->job.options.max_tokens = 30;
    submit(&h, s);
    await_end(&h, s);
    sched_stats stats;
    sched_get_stats(h.scheduler, &stats);
    assert_int_equal(s->status, TERN_OK);
    assert_true(stats.state_bytes + stats.prefix_bytes <= 9 * one);
    assert_true(stats.prefix_bytes <= 9 * one / 8);
  }
  make_job(s, &h, 9);
  s->job.options.max_tokens = 700;
  submit(&h, s);
  await_end(&h, s);
  assert_int_equal(s->status, TERN_OK);
  house_close(&h);
  free(s);
  tern_model_close(m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(speculation_changes_no_bit),
      cmocka_unit_test(guesses_are_counted),
      cmocka_unit_test(drafts_are_admitted),
      cmocka_unit_test(prefixes_change_no_bit),
      cmocka_unit_test(draft_models_keep_their_prefixes),
      cmocka_unit_test(a_mixed_load_with_prefixes_too),
      cmocka_unit_test(prefixes_yield_to_jobs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
