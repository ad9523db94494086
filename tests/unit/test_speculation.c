/* test_speculation.c - speculation changes no bit: several steps in one forward are single steps, cut back to any
 * length; and answers are the same tokens, text and random numbers whatever was guessed, right, wrong or in part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/draft.h"
#include "thorough.h"

enum { STEPS = 30, LONGEST = 200, VOCAB_MOST = 512, MOST_ANSWER = 60 };

static const char *const checkpoints[] = {"gemma3-bf16", "llama-4bit", "llama-sliding-8bit", "qwen2-mxfp4",
                                          "qwen3-f16"};
enum { N_CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

static uint32_t random_state = 1;

static uint32_t next_random(uint32_t below)
{
  random_state = random_state * 1103515245u + 12345u;
  return (random_state >> 16) % below;
}

static void expect_ok(tern_status status, const tern_error *err)
{
  if (status != TERN_OK)
    fail_msg("%s", err->text);
}

static void path_of(const char *name, char dir[512])
{
  snprintf(dir, 512, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, name);
}

static tern_model *open_model(const char *name, tern_model_options options)
{
  char dir[512];
  tern_error err = {0};
  tern_model *m = NULL;
  path_of(name, dir);
  expect_ok(tern_model_open(dir, &options, &m, &err), &err);
  return m;
}

static void make_ids(int32_t *ids, int n, uint32_t seed)
{
  random_state = seed;
  for (int i = 0; i < n; i++)
    ids[i] = (int32_t)next_random(256);
}

/* ---- several steps in one forward ---- */

typedef struct record {
  float rows[(1 + STEPS) * VOCAB_MOST];
  int n, vocab;
} record;

static void keep(void *user, int64_t position, float *logits)
{
  (void)position;
  record *r = user;
  if (r->n <= STEPS)
    memcpy(r->rows + r->n * r->vocab, logits, (size_t)r->vocab * sizeof *logits);
  r->n++;
}

static void begin(session *s, const int32_t *ids, int n, record *r)
{
  tern_error err = {0};
  session_sink sink = {.row = keep, .user = r};
  session_request request = {.ids = ids, .n = (size_t)n, .limit = n + STEPS};
  r->n = 0;
  expect_ok(session_sync(s, &request, &sink, NULL, &err), &err);
}

/* Steps through ids[n..n + STEPS) with `right` of them and `wrong` others in each forward. */
static void step_with_guesses(session *s, const int32_t *ids, int n, int right, int wrong, record *r)
{
  int32_t row[64];
  tern_error err = {0};
  session_sink sink = {.row = keep, .user = r};
  for (int done = 0; done < STEPS;) {
    int most = session_steps_most(s), good = right < STEPS - done ? right : STEPS - done, bad = wrong;
    good = good < most ? good : most;
    bad = bad < most - good ? bad : most - good;
    memcpy(row, ids + n + done, (size_t)good * sizeof *row);
    for (int i = 0; i < bad; i++)
      row[good + i] = ids[n + done + good + i] ^ 1;
    int before = r->n;
    expect_ok(session_steps(s, row, good + bad, &sink, &err), &err);
    assert_int_equal(r->n, before + good + bad);
    r->n = before + good;
    done += good;
    expect_ok(session_rewind(s, (size_t)n + (size_t)done, &err), &err);
    assert_int_equal(session_length(s), n + done);
  }
}

/* `cases` counts the shapes: where not all are taken, calls on end take different ones. */
static void expect_guesses_change_no_bit(const char *name, tern_model_options options, int n, int *cases)
{
  static const int shapes[][2] = {{1, 1}, {1, 8}, {2, 0}, {2, 3}, {3, 1}, {5, 5}, {8, 1}, {9, 24}, {16, 16}, {30, 0}};
  record *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
  tern_model *m = open_model(name, options);
  tern_error err = {0};
  int32_t ids[LONGEST];
  session *s;
  make_ids(ids, LONGEST, 40 + (uint32_t)n);
  want->vocab = got->vocab = m->info.vocab;
  expect_ok(session_open(m->net, 0, &s, &err), &err);
  begin(s, ids, n, want);
  for (int i = 0; i < STEPS; i++)
    expect_ok(session_step(s, ids[n + i], &(session_sink){.row = keep, .user = want}, &err), &err);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    if (!take_case(cases, 3, 1))
      continue;
    begin(s, ids, n, got);
    step_with_guesses(s, ids, n, shapes[i][0], shapes[i][1], got);
    assert_int_equal(got->n, want->n);
    for (int row = 0; row < want->n; row++)
      if (memcmp(want->rows + row * want->vocab, got->rows + row * want->vocab, (size_t)want->vocab * sizeof(float)))
        fail_msg("%s: prompt of %d, %d right and %d wrong: other bits in row %d", name, n, shapes[i][0], shapes[i][1],
                 row);
  }
  session_close(s);
  tern_model_close(m);
  free(want);
  free(got);
}

static void steps_together_are_single_steps(void **state)
{
  (void)state;
  static const int prompts[] = {1, 5, 41, 62, 120};
  static const tern_numerics numerics[] = {TERN_EXACT, TERN_NATIVE, TERN_FAST};
  int cases = 0;
  for (int c = 0; c < N_CHECKPOINTS; c++)
    for (int k = 0; k < 3; k++)
      for (int i = 0; i < 5; i += 1 + 2 * (numerics[k] == TERN_NATIVE)) /* the slow lane */
        expect_guesses_change_no_bit(checkpoints[c], (tern_model_options){.numerics = numerics[k], .threads = 1},
                                     prompts[i], &cases);
}

static void in_bounded_caches_too(void **state)
{
  (void)state;
  static const char *const unbounded[] = {"qwen2-mxfp4", "qwen3-f16"};
  static const int sizes[] = {9, 24, 64};
  int cases = 0;
  for (int c = 0; c < 2; c++)
    for (int fast = 0; fast < 2; fast++)
      for (int i = 0; i < 3; i++) {
        tern_model_options options = {.numerics = fast ? TERN_FAST : TERN_EXACT, .threads = 1, .max_kv_size = sizes[i]};
        expect_guesses_change_no_bit(unbounded[c], options, 7, &cases);
        expect_guesses_change_no_bit(unbounded[c], options, 50, &cases);
      }
}

/* The start at 0, in the prompt, at the first step, amid the steps (where no forward may straddle it), and behind. */
static void with_quantised_keys_too(void **state)
{
  (void)state;
  static const int starts[] = {0, 20, 50, 63, 64, 71, 500};
  int cases = 0;
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
    for (int fast = 0; fast < 2; fast++) {
      tern_model_options options = {.numerics = fast ? TERN_FAST : TERN_EXACT,
                                    .threads = 1,
                                    .kv_bits = 4,
                                    .kv_group_size = 32,
                                    .quantized_kv_start = starts[i]};
      expect_guesses_change_no_bit("llama-4bit", options, 50, &cases);
      options.kv_bits = 8;
      expect_guesses_change_no_bit("qwen3-f16", options, 50, &cases);
    }
}

/* Far beyond what is promised, a rewind says so instead of computing with keys that are gone. */
static void rewinds_that_cannot_be_are_refused(void **state)
{
  (void)state;
  tern_model *m = open_model("gemma3-bf16", (tern_model_options){0});
  tern_error err = {0};
  int32_t ids[LONGEST];
  session *s;
  record *r = calloc(1, sizeof *r);
  r->vocab = m->info.vocab;
  make_ids(ids, LONGEST, 3);
  expect_ok(session_open(m->net, 0, &s, &err), &err);
  begin(s, ids, 150, r);
  for (int i = 0; i < STEPS; i++)
    expect_ok(session_step(s, ids[150 + i], &(session_sink){.row = keep, .user = r}, &err), &err);
  assert_int_equal(session_rewind(s, 60, &err), TERN_E_INTERNAL);
  expect_ok(session_rewind(s, 150 + STEPS - KV_SLACK / 2, &err), &err);
  assert_int_equal(session_steps(s, ids, 0, NULL, &err), TERN_E_INTERNAL);
  assert_int_equal(session_steps(s, ids, STEPS + 1, NULL, &err), TERN_E_LIMIT);
  session_close(s);
  tern_model_close(m);
  free(r);
}

/* ---- answers ---- */

/* A drafter that knows the answer, and is wrong as often as it is told to be. */
typedef struct oracle {
  const int32_t *answer; /* [n] */
  size_t n, prompt;
  int wrong_of_8; /* so many of eight guesses */
} oracle;

static int guess(void *user, const int32_t *ids, size_t n, int32_t *out, int most)
{
  (void)ids;
  const oracle *o = user;
  int count = (int)next_random((uint32_t)most + 1);
  for (int i = 0; i < count; i++) {
    size_t at = n - o->prompt + (size_t)i;
    out[i] = at < o->n ? o->answer[at] : 7;
    if ((int)next_random(8) < o->wrong_of_8)
      out[i] = (out[i] + 1) % 256;
  }
  return count;
}

static const char *const stops[] = {"e", "zz"};
static const int32_t bias_ids[] = {3, 9, 40};
static const float bias_values[] = {2.5f, -100, 1};

static tern_generate_options way(int i)
{
  tern_generate_options o = {.max_tokens = MOST_ANSWER - 5 * i, .ignore_eos = i != 3, .sampling.seed = (uint64_t)i};
  o.sampling.temp = i ? 0.4 + 0.15 * i : 0;
  if (i == 1)
    o.sampling.repetition_penalty = 1.3, o.sampling.repetition_context = 30;
  if (i == 2)
    o.sampling.top_p = 0.8, o.sampling.presence_penalty = 0.7;
  if (i == 3)
    o.sampling.top_k = 12, o.sampling.frequency_penalty = 0.3;
  if (i == 4)
    o.stops = stops, o.n_stops = 2;
  if (i == 5)
    o.sampling.min_p = 0.02, o.sampling.xtc_probability = 0.4, o.sampling.xtc_threshold = 0.01;
  if (i == 6)
    o.sampling.bias_ids = bias_ids, o.sampling.bias_values = bias_values, o.sampling.n_bias = 3;
  if (i == 7)
    o.max_tokens = 1;
  return o;
}
enum { WAYS = 8 };

/* Two answers on end: the second goes on with the random numbers where the first ended. */
typedef struct talk {
  tern_result answers[2];
} talk;

static void hold(tern_model *m, const tern_draft *draft, int i, oracle *o, const talk *known, talk *out)
{
  tern_session_options options = {0};
  tern_session *s;
  tern_error err = {0};
  int32_t ids[LONGEST];
  int n = 60 - 7 * i;
  if (draft)
    options.draft = *draft;
  make_ids(ids, n, 900 + (uint32_t)i);
  for (int k = n / 2; k < n; k++) /* something to look up */
    ids[k] = ids[k % 9];
  expect_ok(tern_session_open(m, &options, &s, &err), &err);
  for (int turn = 0; turn < 2; turn++) {
    tern_generate_options how = way(i);
    how.sampling.continue_draws = turn > 0;
    if (o)
      *o = (oracle){known->answers[turn].ids, known->answers[turn].n_ids, (size_t)n, o->wrong_of_8};
    expect_ok(tern_generate(s, ids, (size_t)n, &how, &out->answers[turn], &err), &err);
    memcpy(ids + n, out->answers[turn].ids, out->answers[turn].n_ids * sizeof *ids);
    n += (int)out->answers[turn].n_ids;
    ids[n++] = 5;
  }
  tern_session_close(s);
}

static void forget(talk *t)
{
  tern_result_clear(&t->answers[0]);
  tern_result_clear(&t->answers[1]);
}

static void expect_same_talk(const talk *a, const talk *b, const char *what, int i)
{
  for (int turn = 0; turn < 2; turn++) {
    const tern_result *x = &a->answers[turn], *y = &b->answers[turn];
    if (x->n_ids != y->n_ids || memcmp(x->ids, y->ids, x->n_ids * sizeof *x->ids) || strcmp(x->text, y->text) ||
        strcmp(x->finish, y->finish) || x->cached_tokens != y->cached_tokens)
      fail_msg("%s, way %d, turn %d: %zu ids (%s, %zu cached), without drafts %zu (%s, %zu cached)", what, i, turn,
               y->n_ids, y->finish, y->cached_tokens, x->n_ids, x->finish, x->cached_tokens);
    assert_true(y->accepted_tokens <= y->drafted_tokens);
    assert_true(y->accepted_tokens < y->n_ids + 2);
  }
}

static void answers_are_the_same_whatever_is_guessed(void **state)
{
  (void)state;
  int cases = 0;
  for (int c = 0; c < N_CHECKPOINTS; c++) {
    tern_model_options options = {.numerics = c % 2 ? TERN_FAST : TERN_EXACT, .threads = 1};
    tern_model *m = open_model(checkpoints[c], options), *twin = open_model(checkpoints[c], options),
               *other = open_model(checkpoints[(c + 1) % N_CHECKPOINTS], options);
    for (int i = 0; i < WAYS; i++) {
      talk plain, got;
      hold(m, NULL, i, NULL, NULL, &plain);
      for (int wrong = 0; wrong <= 8; wrong++) {
        if (!take_case(&cases, 4, 1))
          continue;
        oracle o = {.wrong_of_8 = wrong};
        random_state = 77;
        hold(m, &(tern_draft){.guess = guess, .user = &o, .tokens = 1 + 4 * wrong % 32}, i, &o, &plain, &got);
        expect_same_talk(&plain, &got, "guesses", i);
        assert_true(wrong < 8 || got.answers[0].accepted_tokens == 0);
        assert_true(wrong > 0 || i == 7 || got.answers[0].accepted_tokens > 0);
        forget(&got);
      }
      hold(m, &(tern_draft){.lookup = true}, i, NULL, NULL, &got);
      expect_same_talk(&plain, &got, "lookup", i);
      forget(&got);
      hold(m, &(tern_draft){.lookup = true, .tokens = 32, .always = true}, i, NULL, NULL, &got);
      expect_same_talk(&plain, &got, "lookup each time", i);
      forget(&got);
      hold(m, &(tern_draft){.model = other}, i, NULL, NULL, &got);
      expect_same_talk(&plain, &got, "another model now and again", i);
      forget(&got);
      hold(m, &(tern_draft){.model = other, .tokens = 5, .always = true}, i, NULL, NULL, &got);
      expect_same_talk(&plain, &got, "another model", i);
      forget(&got);
      /* The model itself guesses itself, by chance too: it draws with the same random numbers. */
      hold(m, &(tern_draft){.model = twin, .tokens = 4, .always = true}, i, NULL, NULL, &got);
      expect_same_talk(&plain, &got, "the model itself", i);
      if (i == 0 || i == 1 || i == 2 || i == 6)
        for (int turn = 0; turn < 2; turn++) {
          assert_true(got.answers[turn].drafted_tokens > 10);
          assert_true(got.answers[turn].accepted_tokens == got.answers[turn].drafted_tokens);
        }
      forget(&got);
      forget(&plain);
    }
    tern_model_close(m);
    tern_model_close(twin);
    tern_model_close(other);
  }
}

/* ---- lookup ---- */

static void lookup_finds_what_is_there(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){.threads = 1});
  tern_error err = {0};
  drafter *d;
  reply r = {0};
  int32_t history[2] = {0}, ids[LONGEST];
  r.history = history;
  r.n_history = 1;
  tern_generate_options options = {0};
  expect_ok(drafter_open(&(tern_draft){.lookup = true, .tokens = 6}, m, &d, &err), &err);
  draft_turn turn = {.drafter = d, .reply = &r, .most = 20};

  static const int32_t repeated[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 2, 3, 4, 5, 6};
  expect_ok(drafter_begin(d, &options, repeated, 19, 100, NULL, &err), &err);
  expect_ok(draft_guess(&turn, 1, 1, NULL, &err), &err);
  assert_true(turn.n > 0 && turn.n <= 6);
  for (int i = 0; i < turn.n; i++)
    assert_int_equal(turn.ids[i], 7 + i);

  /* A run that reaches into the end goes on as it went. */
  static const int32_t cycle[] = {9, 1, 2, 3, 1, 2, 3, 1, 2, 3};
  expect_ok(drafter_begin(d, &options, cycle, 10, 100, NULL, &err), &err);
  expect_ok(draft_guess(&turn, 1, 1, NULL, &err), &err);
  assert_true(turn.n > 3);
  for (int i = 0; i < turn.n; i++)
    assert_int_equal(turn.ids[i], 1 + i % 3);

  /* One token alone is no reason to guess, nor is a timeline of one. */
  static const int32_t single[] = {1, 2, 3, 9, 3};
  expect_ok(drafter_begin(d, &options, single, 5, 100, NULL, &err), &err);
  expect_ok(draft_guess(&turn, 1, 1, NULL, &err), &err);
  assert_int_equal(turn.n, 0);
  expect_ok(drafter_begin(d, &options, single, 1, 100, NULL, &err), &err);
  expect_ok(draft_guess(&turn, 1, 1, NULL, &err), &err);
  assert_int_equal(turn.n, 0);

  /* What never comes true is asked for ever less often. */
  int asked = 0;
  make_ids(ids, LONGEST, 1);
  expect_ok(drafter_begin(d, &options, repeated, 19, 200, NULL, &err), &err);
  for (int i = 0; i < 64; i++) {
    expect_ok(draft_guess(&turn, 1, 1, NULL, &err), &err);
    asked += turn.n;
    r.n_guessed += (uint64_t)turn.n;
  }
  assert_true(asked > 3 && asked < 24);
  drafter_close(d);
  tern_model_close(m);
}

/* ---- refusals ---- */

static void expect_refused(tern_model *m, tern_draft draft, tern_status status, const char *words)
{
  tern_error err = {0};
  tern_session *s = NULL;
  assert_int_equal(tern_session_open(m, &(tern_session_options){.draft = draft}, &s, &err), status);
  assert_null(s);
  if (!strstr(err.text, words))
    fail_msg("\"%s\" without \"%s\"", err.text, words);
}

static void what_makes_no_sense_is_refused(void **state)
{
  (void)state;
  oracle o = {0};
  tern_model *m = open_model("llama-4bit", (tern_model_options){.threads = 1}),
             *other = open_model("qwen3-f16", (tern_model_options){.threads = 1});
  expect_refused(m, (tern_draft){.lookup = true, .model = other}, TERN_E_USAGE, "exclude each other");
  expect_refused(m, (tern_draft){.lookup = true, .guess = guess, .user = &o}, TERN_E_USAGE, "exclude each other");
  expect_refused(m, (tern_draft){.lookup = true, .tokens = 33}, TERN_E_USAGE, "num-draft-tokens: 33");
  expect_refused(m, (tern_draft){.lookup = true, .tokens = -1}, TERN_E_USAGE, "num-draft-tokens: -1");
  expect_refused(m, (tern_draft){.tokens = 4}, TERN_E_USAGE, "nothing makes drafts");
  expect_refused(m, (tern_draft){.model = m}, TERN_E_USAGE, "the model itself");
  tern_model_close(m);
  tern_model_close(other);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_together_are_single_steps),
      cmocka_unit_test(in_bounded_caches_too),
      cmocka_unit_test(with_quantised_keys_too),
      cmocka_unit_test(rewinds_that_cannot_be_are_refused),
      cmocka_unit_test(answers_are_the_same_whatever_is_guessed),
      cmocka_unit_test(lookup_finds_what_is_there),
      cmocka_unit_test(what_makes_no_sense_is_refused),
  };
  if (argc > 1)
    cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
