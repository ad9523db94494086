/* test_session.c - promise 2 at the level of sessions, on committed checkpoints past their windows: a timeline's logits
 * are the same bits however it came about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/session.h"
#include "thorough.h"

enum { STEPS = 9, LONGEST = 160, VOCAB_MOST = 512 };

static const char *const checkpoints[] = {"gemma3-bf16", "llama-4bit", "llama-sliding-8bit", "qwen2-mxfp4",
                                          "qwen3-f16"};
enum { N_CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

static model *open_model(const char *name, tern_model_options options)
{
  char dir[512];
  tern_error err = {0};
  model *m = NULL;
  snprintf(dir, sizeof dir, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, name);
  if (model_open(dir, &options, false, &m, &err) != TERN_OK)
    fail_msg("%s: %s", name, err.text);
  return m;
}

/* A reproducible timeline. */
static void make_ids(int32_t *ids, int n, uint32_t seed)
{
  for (int i = 0; i < n; i++) {
    seed = seed * 1103515245u + 12345u;
    ids[i] = (int32_t)(seed >> 16) % 256;
  }
}

/* Logits of the last prompt token and of each step: [1 + STEPS, V]. */
typedef struct record {
  float rows[(1 + STEPS) * VOCAB_MOST];
  int n, vocab;
} record;

static void keep(void *user, int64_t position, float *logits)
{
  (void)position;
  record *r = user;
  memcpy(r->rows + r->n++ * r->vocab, logits, (size_t)r->vocab * sizeof *logits);
}

static void expect_ok(tern_status status, const tern_error *err)
{
  if (status != TERN_OK)
    fail_msg("%s", err->text);
}

/* Syncs to ids[0..n), then steps through the next STEPS ids. */
static size_t run(session *s, const int32_t *ids, int n, int piece, record *r)
{
  tern_error err = {0};
  size_t cached = 0;
  r->n = 0;
  session_sink sink = {.row = keep, .user = r};
  session_request request = {.ids = ids, .n = (size_t)n, .limit = n + STEPS, .piece = piece};
  expect_ok(session_sync(s, &request, &sink, &cached, &err), &err);
  for (int i = 0; i < STEPS; i++)
    expect_ok(session_step(s, ids[n + i], &sink, &err), &err);
  assert_int_equal(r->n, 1 + STEPS);
  return cached;
}

static void expect_same(const record *a, const record *b, const char *what, const char *name)
{
  size_t size = (size_t)a->n * (size_t)a->vocab * sizeof(float);
  if (memcmp(a->rows, b->rows, size))
    fail_msg("%s: other bits %s", name, what);
}

/* Three turns: each prompt is the last timeline and some more. The third is compared with a fresh run of it. */
static void third_turn(model *m, int piece, record *r, size_t *cached)
{
  int32_t ids[LONGEST];
  tern_error err = {0};
  session *s;
  expect_ok(session_open(m, 0, &s, &err), &err);
  make_ids(ids, LONGEST, 7);
  static const int ends[] = {21, 21 + STEPS + 13, 21 + 2 * STEPS + 40};
  r->vocab = m->config.vocab;
  for (int turn = 0; turn < 3; turn++)
    *cached = run(s, ids, ends[turn], piece, r);
  session_close(s);
}

static void fresh_third_turn(model *m, int piece, record *r)
{
  int32_t ids[LONGEST];
  tern_error err = {0};
  session *s;
  expect_ok(session_open(m, 0, &s, &err), &err);
  make_ids(ids, LONGEST, 7);
  r->vocab = m->config.vocab;
  assert_int_equal(run(s, ids, 21 + 2 * STEPS + 40, piece, r), 0);
  session_close(s);
}

static void bits_do_not_depend_on_how_they_came_about(void **state)
{
  (void)state;
  record *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
  for (int c = 0; c < N_CHECKPOINTS; c++) {
    for (int native = 0; native < 2; native++) {
      tern_model_options options = {.numerics = native ? TERN_NATIVE : TERN_EXACT, .threads = 1};
      model *m = open_model(checkpoints[c], options);
      size_t cached;
      fresh_third_turn(m, 0, want);
      third_turn(m, 0, got, &cached);
      expect_same(want, got, "at turn 3 than fresh", checkpoints[c]);
      assert_true(cached > 0);
      fresh_third_turn(m, 1, got);
      expect_same(want, got, "in pieces of 1", checkpoints[c]);
      fresh_third_turn(m, 7, got);
      expect_same(want, got, "in pieces of 7", checkpoints[c]);
      third_turn(m, 7, got, &cached);
      expect_same(want, got, "at turn 3 in pieces of 7", checkpoints[c]);
      model_close(m);
    }
  }
  free(want);
  free(got);
}

static void bits_do_not_depend_on_threads_or_simd(void **state)
{
  (void)state;
  record *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
  for (int c = 0; c < N_CHECKPOINTS; c++) {
    model *m = open_model(checkpoints[c], (tern_model_options){.backend = TERN_BACKEND_REF});
    fresh_third_turn(m, 0, want);
    model_close(m);
    for (ops_simd level = SIMD_BASELINE; level < SIMD_LEVELS; level++) {
      if (!ops_simd_has(level))
        continue;
      for (int threads = 1; threads <= 5; threads += threads == 1 ? 1 : 3) {
        tern_model_options options = {.threads = threads, .simd = ops_simd_name(level)};
        m = open_model(checkpoints[c], options);
        fresh_third_turn(m, 0, got);
        expect_same(want, got, ops_simd_name(level), checkpoints[c]);
        model_close(m);
      }
    }
  }
  free(want);
  free(got);
}

/* ---- rows together ---- */

typedef struct pair {
  record *of[2];
} pair;

static void keep_row(void *user, int which, float *logits)
{
  keep(((pair *)user)->of[which], 0, logits);
}

static void rows_together_are_rows_alone(void **state)
{
  (void)state;
  record *alone[2], *together[2];
  for (int i = 0; i < 2; i++) {
    alone[i] = calloc(1, sizeof **alone);
    together[i] = calloc(1, sizeof **together);
  }
  int32_t ids[2][LONGEST];
  /* Both cross from one block into the next while they step together. */
  static const int lengths[2] = {60, 124};
  for (int c = 0; c < N_CHECKPOINTS; c++) {
    model *m = open_model(checkpoints[c], (tern_model_options){0});
    tern_error err = {0};
    session *s[2];
    for (int i = 0; i < 2; i++) {
      make_ids(ids[i], LONGEST, 100 + (uint32_t)i);
      alone[i]->vocab = together[i]->vocab = m->config.vocab;
      expect_ok(session_open(m, 0, &s[i], &err), &err);
      run(s[i], ids[i], lengths[i], 0, alone[i]);
    }
    for (int i = 0; i < 2; i++) {
      together[i]->n = 0;
      session_request request = {.ids = ids[i], .n = (size_t)lengths[i], .limit = lengths[i] + STEPS};
      expect_ok(session_sync(s[i], &request, &(session_sink){.row = keep, .user = together[i]}, NULL, &err), &err);
    }
    for (int step = 0; step < STEPS; step++) {
      int32_t next[2] = {ids[0][lengths[0] + step], ids[1][lengths[1] + step]};
      expect_ok(session_step_many(s, next, 2, keep_row, NULL, &(pair){{together[0], together[1]}}, &err), &err);
    }
    for (int i = 0; i < 2; i++) {
      expect_same(alone[i], together[i], "beside a neighbour", checkpoints[c]);
      session_close(s[i]);
    }
    model_close(m);
  }
  for (int i = 0; i < 2; i++) {
    free(alone[i]);
    free(together[i]);
  }
}

static void keep_batch(void *user, int row, int index, float *logits)
{
  assert_int_equal(row, 1);
  assert_int_equal(index, 0);
  keep(user, 0, logits);
}

/* A prompt being read beside a timeline that steps, in one forward. */
static void reads_and_steps_share_a_batch(void **state)
{
  (void)state;
  model *m = open_model("gemma3-bf16", (tern_model_options){0});
  record *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
  tern_error err = {0};
  int32_t ids[2][LONGEST];
  session *s[2];
  want->vocab = got->vocab = m->config.vocab;
  for (int i = 0; i < 2; i++)
    make_ids(ids[i], LONGEST, 200 + (uint32_t)i);
  expect_ok(session_open(m, 0, &s[0], &err), &err);
  run(s[0], ids[0], 40, 0, want);
  session_close(s[0]);

  /* The same steps of row 0, while row 1 reads five tokens a step. */
  kv_seq *seq[2];
  static const int32_t all[] = {0, 1, 2, 3, 4};
  for (int i = 0; i < 2; i++) {
    expect_ok(kv_seq_open(m->store, &seq[i], &err), &err);
    expect_ok(model_reserve(m, seq[i], 0, LONGEST, &err), &err);
  }
  batch_row first = {.sequence = seq[0], .ids = ids[0], .count = 39, .split = 39, .kind = ROW_READ};
  expect_ok(model_forward(m, &(batch){.rows = &first, .n_rows = 1, .cancelled = NULL}, NULL, NULL, &err), &err);
  for (int i = 0; i <= STEPS; i++) {
    batch_row rows[2] = {
        {.sequence = seq[1], .ids = ids[1] + 5 * i, .count = 5, .position = 5 * i, .split = 100, .kind = ROW_READ},
        {.sequence = seq[0],
         .ids = ids[0] + 39 + i,
         .count = 1,
         .position = 39 + i,
         .split = 39,
         .kind = ROW_STEP,
         .want = all,
         .n_want = 1},
    };
    expect_ok(model_forward(m, &(batch){.rows = rows, .n_rows = 2, .cancelled = NULL}, keep_batch, got, &err), &err);
  }
  expect_same(want, got, "while another row reads", "gemma3-bf16");
  for (int i = 0; i < 2; i++)
    kv_seq_close(seq[i]);
  model_close(m);
  free(want);
  free(got);
}

/* ---- quantised keys and values ---- */

/* Starts at 0, inside the first turn, at a block's border, behind the prompts, and never reached. */
static const tern_model_options quantised[] = {
    {.kv_bits = 4, .kv_group_size = 32},
    {.kv_bits = 8, .kv_group_size = 32, .quantized_kv_start = 9},
    {.kv_bits = 3, .kv_group_size = 32, .quantized_kv_start = 64},
    {.kv_bits = 6, .kv_group_size = 32, .quantized_kv_start = 84},
    {.kv_bits = 2, .kv_group_size = 32, .quantized_kv_start = 500},
};
enum { N_QUANTISED = sizeof quantised / sizeof *quantised };
static const char *const without_rings[] = {"llama-4bit", "qwen2-mxfp4", "qwen3-f16"};

static void quantised_bits_do_not_depend_on_how_they_came_about(void **state)
{
  (void)state;
  record *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got), *plain = calloc(1, sizeof *plain);
  int cases = 0;
  for (int c = 0; c < 3; c++) {
    for (int native = 0; native < 2; native++) {
      tern_numerics numerics = native ? TERN_NATIVE : TERN_EXACT;
      model *m = open_model(without_rings[c], (tern_model_options){.numerics = numerics});
      fresh_third_turn(m, 0, plain);
      model_close(m);
      for (int q = 0; q < N_QUANTISED; q++) {
        if (!take_case(&cases, 7, 1))
          continue;
        tern_model_options options = quantised[q];
        options.numerics = numerics;
        options.threads = 1;
        m = open_model(without_rings[c], options);
        size_t cached;
        fresh_third_turn(m, 0, want);
        size_t all = (size_t)want->n * (size_t)want->vocab * sizeof(float);
        assert_int_equal(memcmp(want->rows, plain->rows, all) == 0, options.quantized_kv_start == 500);
        third_turn(m, 0, got, &cached);
        expect_same(want, got, "quantised, at turn 3 than fresh", without_rings[c]);
        assert_true(cached > 0);
        fresh_third_turn(m, 1, got);
        expect_same(want, got, "quantised, in pieces of 1", without_rings[c]);
        third_turn(m, 7, got, &cached);
        expect_same(want, got, "quantised, at turn 3 in pieces of 7", without_rings[c]);
        model_close(m);
        options.threads = 3;
        options.simd = "baseline";
        m = open_model(without_rings[c], options);
        fresh_third_turn(m, 0, got);
        expect_same(want, got, "quantised, with other threads and SIMD", without_rings[c]);
        model_close(m);
      }
    }
  }
  free(want);
  free(got);
  free(plain);
}

/* Cut back to before the start, the plain rows are needed again; behind it, the quantised ones serve. */
static void cuts_before_the_start_read_again(void **state)
{
  (void)state;
  record *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
  tern_model_options options = {.kv_bits = 4, .kv_group_size = 32, .quantized_kv_start = 40};
  model *m = open_model("llama-4bit", options);
  tern_error err = {0};
  int32_t ids[LONGEST], other[LONGEST];
  static const int forks[] = {20, 39, 40, 41, 63, 64, 70};
  want->vocab = got->vocab = m->config.vocab;
  for (int f = 0; f < 7; f++) {
    session *s;
    make_ids(ids, LONGEST, 11);
    make_ids(other, LONGEST, 12);
    memcpy(other, ids, (size_t)forks[f] * sizeof *ids);
    other[forks[f]] = ids[forks[f]] ^ 1;
    expect_ok(session_open(m, 0, &s, &err), &err);
    run(s, ids, 90, 0, got);
    size_t cached = run(s, other, 100, 0, got);
    assert_int_equal(cached, forks[f] < 40 ? 0 : forks[f]);
    session_close(s);
    expect_ok(session_open(m, 0, &s, &err), &err);
    run(s, other, 100, 0, want);
    expect_same(want, got, "after a fork", "llama-4bit");
    session_close(s);
  }
  model_close(m);
  free(want);
  free(got);
}

/* One row is still plain while its neighbour is quantised, and passes its start in the middle. */
static void rows_of_both_kinds_share_a_batch(void **state)
{
  (void)state;
  record *alone[2], *together[2];
  tern_model_options options = {.kv_bits = 8, .kv_group_size = 32, .quantized_kv_start = 64};
  model *m = open_model("qwen3-f16", options);
  static const int lengths[2] = {60, 100};
  int32_t ids[2][LONGEST];
  tern_error err = {0};
  session *s[2];
  for (int i = 0; i < 2; i++) {
    alone[i] = calloc(1, sizeof **alone);
    together[i] = calloc(1, sizeof **together);
    alone[i]->vocab = together[i]->vocab = m->config.vocab;
    make_ids(ids[i], LONGEST, 300 + (uint32_t)i);
    expect_ok(session_open(m, 0, &s[i], &err), &err);
    run(s[i], ids[i], lengths[i], 0, alone[i]);
    session_close(s[i]);
    expect_ok(session_open(m, 0, &s[i], &err), &err);
    session_request request = {.ids = ids[i], .n = (size_t)lengths[i], .limit = lengths[i] + STEPS};
    expect_ok(session_sync(s[i], &request, &(session_sink){.row = keep, .user = together[i]}, NULL, &err), &err);
  }
  for (int step = 0; step < STEPS; step++) {
    int32_t next[2] = {ids[0][lengths[0] + step], ids[1][lengths[1] + step]};
    expect_ok(session_step_many(s, next, 2, keep_row, NULL, &(pair){{together[0], together[1]}}, &err), &err);
  }
  for (int i = 0; i < 2; i++) {
    expect_same(alone[i], together[i], "beside a neighbour", "qwen3-f16, quantised");
    session_close(s[i]);
    free(alone[i]);
    free(together[i]);
  }
  model_close(m);
}

static void expect_refused(const char *name, tern_model_options options, tern_status status, const char *words)
{
  char dir[512];
  tern_error err = {0};
  model *m = NULL;
  snprintf(dir, sizeof dir, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, name);
  assert_int_equal(model_open(dir, &options, true, &m, &err), status);
  if (strcmp(err.text, words))
    fail_msg("\"%s\" instead of \"%s\"", err.text, words);
}

static void kv_options_that_cannot_hold_are_refused(void **state)
{
  (void)state;
  expect_refused("llama-4bit", (tern_model_options){.kv_bits = 7}, TERN_E_USAGE,
                 "kv-bits: 7 is not 2, 3, 4, 5, 6 or 8");
  expect_refused("llama-4bit", (tern_model_options){.kv_bits = 4, .kv_group_size = 48}, TERN_E_USAGE,
                 "kv-group-size: 48 is not 32, 64 or 128");
  expect_refused("llama-4bit", (tern_model_options){.kv_group_size = 64}, TERN_E_USAGE,
                 "kv-group-size: changes nothing without kv-bits");
  expect_refused("llama-4bit", (tern_model_options){.kv_bits = 4, .quantized_kv_start = -1}, TERN_E_USAGE,
                 "quantized-kv-start: must not be negative");
  expect_refused("qwen2-mxfp4", (tern_model_options){.kv_bits = 4, .kv_group_size = 128}, TERN_E_UNSUPPORTED,
                 "kv-group-size: 128 does not divide the heads' 32 dims");
  expect_refused("gemma3-bf16", (tern_model_options){.kv_bits = 4, .kv_group_size = 32}, TERN_E_UNSUPPORTED,
                 "kv-bits: layer 0 of gemma3_text keeps its window in a ring, which the reference does not quantise");
  expect_refused("qwen2-mxfp4", (tern_model_options){.kv_bits = 4, .kv_group_size = 32, .max_kv_size = 12},
                 TERN_E_UNSUPPORTED, "kv-bits: max-kv-size makes rings, which the reference does not quantise");
}

/* ---- refusals ---- */

static void what_does_not_fit_is_refused_with_numbers(void **state)
{
  (void)state;
  model *m = open_model("llama-4bit", (tern_model_options){0});
  tern_error err = {0};
  session *s;
  int32_t ids[LONGEST];
  make_ids(ids, LONGEST, 3);
  expect_ok(session_open(m, 50, &s, &err), &err);
  session_request request = {.ids = ids, .n = 40, .limit = 60};
  assert_int_equal(session_sync(s, &request, NULL, NULL, &err), TERN_E_LIMIT);
  assert_non_null(strstr(err.text, "40"));
  assert_non_null(strstr(err.text, "60"));
  assert_non_null(strstr(err.text, "50"));
  ids[7] = m->config.vocab;
  request.limit = 50;
  assert_int_equal(session_sync(s, &request, NULL, NULL, &err), TERN_E_USAGE);
  request.n = 0;
  assert_int_equal(session_sync(s, &request, NULL, NULL, &err), TERN_E_USAGE);
  session_close(s);
  model_close(m);
}

static void cancelled_timelines_go_on(void **state)
{
  (void)state;
  record *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
  for (int c = 0; c < N_CHECKPOINTS; c++) {
    model *m = open_model(checkpoints[c], (tern_model_options){0});
    tern_error err = {0};
    session *s;
    int32_t ids[LONGEST];
    make_ids(ids, LONGEST, 5);
    want->vocab = got->vocab = m->config.vocab;
    expect_ok(session_open(m, 0, &s, &err), &err);
    run(s, ids, 60, 0, want);
    session_cancel(s);
    session_request request = {.ids = ids, .n = 90, .limit = 90};
    assert_int_equal(session_sync(s, &request, &(session_sink){.row = keep, .user = got}, NULL, &err),
                     TERN_E_CANCELLED);
    session_uncancel(s);
    run(s, ids, 60, 0, got);
    expect_same(want, got, "after a cancelled run", checkpoints[c]);
    session_close(s);
    model_close(m);
  }
  free(want);
  free(got);
}

enum { MANY = 60 }; /* steps: a ring forgets what it was at the split */

static void drop_row(void *user, int64_t position, float *logits)
{
  (void)user;
  (void)position;
  (void)logits;
}

static void cut_short(void *user, size_t done, size_t total)
{
  if (done < total)
    session_cancel(user);
}

/* A prompt of `n` and MANY steps, or what was read of it when that was cut short: before the split. */
static session *leave(model *m, const int32_t *ids, int n, bool cut, record *r)
{
  tern_error err = {0};
  session *s;
  session_sink drop = {.row = drop_row};
  expect_ok(session_open(m, 0, &s, &err), &err);
  r->vocab = m->config.vocab;
  if (!cut) {
    session_request whole = {.ids = ids, .n = (size_t)n, .limit = n + MANY};
    expect_ok(session_sync(s, &whole, &drop, NULL, &err), &err);
    for (int i = 0; i < MANY; i++)
      expect_ok(session_step(s, ids[n + i], &drop, &err), &err);
    return s;
  }
  session_request request = {.ids = ids, .n = (size_t)n, .limit = n, .piece = 17, .on_read = cut_short, .user = s};
  assert_int_equal(session_sync(s, &request, &(session_sink){.row = keep, .user = r}, NULL, &err), TERN_E_CANCELLED);
  return s;
}

/* Another session goes on from what one left, with a prompt that shares so many tokens: some of what was read, all of
 * it, some of the steps too. It has the bits of a fresh one, and finds as much as the first itself does. */
static void take_and_go_on(model *m, int shared, bool cut, const char *name)
{
  enum { PROMPT = 70, NEXT = 140 };
  record *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
  int32_t ids[LONGEST], others[LONGEST];
  tern_error err = {0};
  session *first, *other, *fresh;
  want->vocab = got->vocab = m->config.vocab;
  make_ids(ids, LONGEST, 5);
  make_ids(others, LONGEST, 6);
  memcpy(others, ids, (size_t)shared * sizeof *ids);
  first = leave(m, ids, PROMPT, cut, want);
  prefix_of left = session_kept(first);
  assert_true(cut ? left.length > 0 && left.length < left.split : left.length > left.split);
  expect_ok(session_open(m, 0, &other, &err), &err);
  expect_ok(session_take(other, &left, &err), &err);
  assert_int_equal(session_length(other), left.length);
  assert_memory_equal(session_ids(other), ids, (size_t)left.length * sizeof *ids);
  int found = (int)run(other, others, NEXT, 0, got);
  expect_ok(session_open(m, 0, &fresh, &err), &err);
  assert_int_equal(run(fresh, others, NEXT, 0, want), 0);
  expect_same(want, got, cut ? "behind a cut prompt that was taken" : "behind what was taken", name);
  session_close(other);
  session_close(fresh);
  session_uncancel(first);
  expect_ok(session_open(m, 0, &fresh, &err), &err);
  int kept = (int)run(first, others, NEXT, 0, got);
  expect_same(want, got, "where another took", name);
  if (found != kept)
    fail_msg("%s: of %d tokens that are shared %d serve who took them, and %d who had them", name, shared, found, kept);
  session_close(first);
  session_close(fresh);
  free(want);
  free(got);
}

static void a_state_that_is_taken_goes_on(void **state)
{
  (void)state;
  static const struct {
    const char *name;
    tern_model_options options;
  } models[] = {
      {"gemma3-bf16", {0}},
      {"qwen2-mxfp4", {0}},
      {"llama-sliding-8bit", {0}},
      {"qwen3-f16", {.max_kv_size = 24}}, /* a ring that the steps go round: what it was at the split is kept too */
      {"qwen3-f16", {.max_kv_size = 72}},
      {"llama-4bit", {.kv_bits = 4, .kv_group_size = 32, .quantized_kv_start = 40}},
      {"llama-4bit", {.kv_bits = 4, .kv_group_size = 32, .quantized_kv_start = 74}}, /* among the steps */
  };
  static const int shares[] = {1, 30, 68, 69, 70, 74, 125}; /* a prompt of 70, whose last token is a step, and more */
  for (size_t c = 0; c < sizeof models / sizeof *models; c++) {
    model *m = open_model(models[c].name, models[c].options);
    for (int i = 0; i < 14; i++)
      take_and_go_on(m, shares[i % 7], i >= 7, models[c].name);
    model_close(m);
  }
}

/* Every allocation of an open fails once; each time the open fails cleanly. */
static void opening_survives_failing_allocations(void **state)
{
  (void)state;
  char dir[512];
  snprintf(dir, sizeof dir, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, "gemma3-bf16");
  for (int64_t n = 0;; n++) {
    tern_error err = {0};
    model *m = NULL;
    mem_fail_after(n);
    tern_status status = model_open(dir, &(tern_model_options){.threads = 2}, false, &m, &err);
    mem_fail_after(-1);
    if (status == TERN_OK) {
      model_close(m);
      assert_true(n > 50);
      break;
    }
    assert_null(m);
    assert_true(strlen(err.text) > 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bits_do_not_depend_on_how_they_came_about),
      cmocka_unit_test(bits_do_not_depend_on_threads_or_simd),
      cmocka_unit_test(rows_together_are_rows_alone),
      cmocka_unit_test(reads_and_steps_share_a_batch),
      cmocka_unit_test(quantised_bits_do_not_depend_on_how_they_came_about),
      cmocka_unit_test(cuts_before_the_start_read_again),
      cmocka_unit_test(rows_of_both_kinds_share_a_batch),
      cmocka_unit_test(kv_options_that_cannot_hold_are_refused),
      cmocka_unit_test(what_does_not_fit_is_refused_with_numbers),
      cmocka_unit_test(cancelled_timelines_go_on),
      cmocka_unit_test(a_state_that_is_taken_goes_on),
      cmocka_unit_test(opening_survives_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
