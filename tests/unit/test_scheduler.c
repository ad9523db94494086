/* test_scheduler.c - promise 2 under continuous batching: a job's tokens, text and logits are those of the job alone,
 * whatever joins, leaves or is cancelled beside it; and admission and cancellation give back what they took. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/scheduler.h"

enum { JOBS = 12, LONGEST = 300, MOST_TOKENS = 40, MOST_TEXT = 4096 };

/* What is seen of one job. The worker writes it, under the lock of the house. */
typedef struct seen {
  struct house *house;
  sched_job job;
  int32_t prompt[LONGEST], ids[MOST_TOKENS];
  uint64_t rows[MOST_TOKENS + 1]; /* hashes of logits */
  size_t n_ids, n_rows, n_text;
  char text[MOST_TEXT];
  int cancel_at; /* token count at which it is cancelled; < 0: never */
  bool cancel_at_start;
  struct seen *cancels; /* the job that it cancels at `cancels_at` tokens of its own */
  int cancels_at;
  bool started, ended;
  int order; /* how many ended before it */
  tern_status status;
  tern_error err;
  char finish[16];
} seen;

typedef struct house {
  tern_model *model;
  scheduler *scheduler;
  pthread_mutex_t lock;
  pthread_cond_t news;
  int tokens; /* of all jobs */
  int ended;
  bool held; /* the worker stands still at the next token, until this is over */
} house;

static uint64_t hash(const float *row, int n)
{
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < (size_t)n * sizeof *row; i++)
    h = (h ^ ((const uint8_t *)row)[i]) * 1099511628211u;
  return h;
}

static bool on_text(void *user, const char *text, size_t n)
{
  seen *s = user;
  if (s->n_text + n > MOST_TEXT)
    return true;
  memcpy(s->text + s->n_text, text, n);
  s->n_text += n;
  return true;
}

static void on_start(void *user)
{
  seen *s = user;
  s->started = true;
  if (s->cancel_at_start)
    sched_cancel(s->house->scheduler, &s->job);
}

static void on_logits(void *user, const float *logits, int vocab)
{
  seen *s = user;
  if (s->n_rows <= MOST_TOKENS)
    s->rows[s->n_rows++] = hash(logits, vocab);
}

static void on_token(void *user, const reply *r)
{
  seen *s = user;
  if (s->n_ids < MOST_TOKENS)
    s->ids[s->n_ids] = r->token;
  s->n_ids++;
  pthread_mutex_lock(&s->house->lock);
  s->house->tokens++;
  pthread_cond_broadcast(&s->house->news);
  while (s->house->held)
    pthread_cond_wait(&s->house->news, &s->house->lock);
  pthread_mutex_unlock(&s->house->lock);
  if ((int)s->n_ids == s->cancel_at)
    sched_cancel(s->house->scheduler, &s->job);
  if (s->cancels && (int)s->n_ids == s->cancels_at)
    sched_cancel(s->house->scheduler, &s->cancels->job);
}

static void on_end(void *user, const sched_end *end)
{
  seen *s = user;
  house *h = s->house; /* the job may be gone once `ended` shows */
  s->status = end->status;
  s->err = *end->err;
  assert_int_equal(end->n_ids, s->n_ids);
  if (end->finish)
    snprintf(s->finish, sizeof s->finish, "%s", end->finish);
  pthread_mutex_lock(&h->lock);
  s->ended = true;
  s->order = h->ended++;
  pthread_cond_broadcast(&h->news);
  pthread_mutex_unlock(&h->lock);
}

static tern_model *open_model(const char *name, tern_model_options options)
{
  char dir[512];
  tern_error err = {0};
  tern_model *m = NULL;
  snprintf(dir, sizeof dir, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, name);
  if (tern_model_open(dir, &options, &m, &err) != TERN_OK)
    fail_msg("%s: %s", name, err.text);
  return m;
}

static void house_open(house *h, tern_model *m, sched_options options)
{
  tern_error err = {0};
  *h = (house){.model = m};
  pthread_mutex_init(&h->lock, NULL);
  pthread_cond_init(&h->news, NULL);
  if (sched_open(m, &options, &h->scheduler, &err) != TERN_OK)
    fail_msg("%s", err.text);
}

static void house_close(house *h)
{
  sched_close(h->scheduler);
  pthread_cond_destroy(&h->news);
  pthread_mutex_destroy(&h->lock);
}

/* Until so many tokens came, or all `jobs` have ended. */
static void await_tokens(house *h, int tokens, int jobs)
{
  pthread_mutex_lock(&h->lock);
  while (h->tokens < tokens && h->ended < jobs)
    pthread_cond_wait(&h->news, &h->lock);
  pthread_mutex_unlock(&h->lock);
}

static void hold(house *h, bool held)
{
  pthread_mutex_lock(&h->lock);
  h->held = held;
  pthread_cond_broadcast(&h->news);
  pthread_mutex_unlock(&h->lock);
}

static void await_end(house *h, const seen *s)
{
  pthread_mutex_lock(&h->lock);
  while (!s->ended)
    pthread_cond_wait(&h->news, &h->lock);
  pthread_mutex_unlock(&h->lock);
}

/* The i-th job: lengths from 1 to past the windows, every kind of sampling. */
static void make_job(seen *s, house *h, int i)
{
  static const int lengths[JOBS] = {1, 2, 17, 64, 65, 100, 129, 33, 5, 139, 80, 12};
  static const char *const stops[] = {"zzzz"};
  uint32_t seed = 77 + (uint32_t)i;
  *s = (seen){.house = h, .cancel_at = -1};
  for (int k = 0; k < lengths[i]; k++) {
    seed = seed * 1103515245u + 12345u;
    s->prompt[k] = (int32_t)(seed >> 16) % 256;
  }
  tern_generate_options o = {.max_tokens = 10 + 7 * i % 29, .ignore_eos = i % 2, .on_text = on_text, .user = s};
  o.sampling.seed = (uint64_t)i;
  o.sampling.temp = i % 3 ? 0.5 + 0.2 * i : 0;
  if (i == 4)
    o.sampling.top_p = 0.9;
  if (i == 5)
    o.sampling.min_p = 0.05;
  if (i == 7)
    o.sampling.top_k = 20, o.sampling.repetition_penalty = 1.3;
  if (i == 8)
    o.sampling.presence_penalty = 0.5, o.sampling.frequency_penalty = 0.25;
  if (i == 10)
    o.stops = stops, o.n_stops = 1;
  s->job = (sched_job){.ids = s->prompt,
                       .n = (size_t)lengths[i],
                       .options = o,
                       .top = -1,
                       .on_start = on_start,
                       .on_token = on_token,
                       .on_logits = on_logits,
                       .on_end = on_end,
                       .user = s};
}

static void submit(house *h, seen *s)
{
  tern_error err = {0};
  sched_job *job = &s->job;
  if (sched_submit(h->scheduler, &job, 1, &err) != TERN_OK)
    fail_msg("%s", err.text);
}

/* ---- alone ---- */

static void keep_row(void *user, int64_t position, float *logits)
{
  (void)position;
  seen *s = user;
  s->rows[s->n_rows++] = hash(logits, s->house->model->info.vocab);
}

/* The same job by tern_generate, and the logits of a fresh session that is fed its tokens. */
static void run_alone(seen *s)
{
  tern_session *alone;
  tern_result result;
  tern_error err = {0};
  tern_generate_options o = s->job.options;
  if (tern_session_open(s->house->model, NULL, &alone, &err) != TERN_OK ||
      tern_generate(alone, s->prompt, s->job.n, &o, &result, &err) != TERN_OK)
    fail_msg("%s", err.text);
  tern_session_close(alone);
  s->n_ids = result.n_ids;
  memcpy(s->ids, result.ids, result.n_ids * sizeof *result.ids);
  snprintf(s->finish, sizeof s->finish, "%s", result.finish);
  tern_result_clear(&result);

  session *fresh;
  session_sink sink = {.row = keep_row, .user = s};
  session_request request = {.ids = s->prompt, .n = s->job.n, .limit = s->job.limit};
  request.limit = (int64_t)s->job.n + MOST_TOKENS;
  if (session_open(s->house->model->net, 0, &fresh, &err) != TERN_OK ||
      session_sync(fresh, &request, &sink, NULL, &err) != TERN_OK)
    fail_msg("%s", err.text);
  for (size_t i = 0; i < s->n_ids; i++)
    if (session_step(fresh, s->ids[i], &sink, &err) != TERN_OK)
      fail_msg("%s", err.text);
  session_close(fresh);
}

/* A job that was cut short has a beginning of what it gives alone. */
static void expect_same(const seen *got, const seen *want, bool whole, int i, const char *name)
{
  if (whole && (got->n_ids != want->n_ids || strcmp(got->finish, want->finish)))
    fail_msg("%s: job %d: %zu ids (%s), alone %zu (%s)", name, i, got->n_ids, got->finish, want->n_ids, want->finish);
  if (whole && (got->n_text != want->n_text || memcmp(got->text, want->text, want->n_text)))
    fail_msg("%s: job %d: other text", name, i);
  assert_true(got->n_ids <= want->n_ids);
  if (memcmp(got->ids, want->ids, got->n_ids * sizeof *got->ids))
    fail_msg("%s: job %d: other ids", name, i);
  if (memcmp(got->rows, want->rows, got->n_rows * sizeof *got->rows))
    fail_msg("%s: job %d: other logits", name, i);
  if (got->n_text <= want->n_text && memcmp(got->text, want->text, got->n_text))
    fail_msg("%s: job %d: other text at its beginning", name, i);
}

/* ---- mixed load ---- */

static void replay(tern_model *m, const char *name, sched_options options)
{
  house h;
  seen *want = calloc(JOBS, sizeof *want), *got = calloc(JOBS, sizeof *got);
  h.model = m;
  for (int i = 0; i < JOBS; i++) {
    make_job(&want[i], &h, i);
    run_alone(&want[i]);
  }
  house_open(&h, m, options);
  for (int i = 0; i < JOBS; i++) {
    make_job(&got[i], &h, i);
    if (i % 4 == 1)
      got[i].cancel_at = 3 + i / 4;
    got[i].cancel_at_start = i == 6;
    submit(&h, &got[i]);
    await_tokens(&h, i * 2, i + 1); /* those before are on their way */
  }
  for (int i = 0; i < JOBS; i++)
    await_end(&h, &got[i]);
  sched_stats stats;
  sched_get_stats(h.scheduler, &stats);
  assert_int_equal(stats.running, 0);
  assert_int_equal(stats.waiting, 0);
  assert_int_equal(stats.state_bytes, 0);
  assert_int_equal(stats.finished + stats.cancelled, JOBS);
  for (int i = 0; i < JOBS; i++) {
    bool cut = got[i].status == TERN_E_CANCELLED;
    if (got[i].status != TERN_OK && !cut)
      fail_msg("%s: job %d: %s", name, i, got[i].err.text);
    if (cut && got[i].cancel_at > 0)
      assert_int_equal(got[i].n_ids, got[i].cancel_at); /* not one step more */
    if (i == 6)
      assert_true(cut && got[i].n_ids == 0);
    expect_same(&got[i], &want[i], !cut, i, name);
  }
  house_close(&h);
  free(want);
  free(got);
}

static void a_mixed_load_has_the_bits_of_each_alone(void **state)
{
  (void)state;
  static const char *const checkpoints[] = {"gemma3-bf16", "llama-4bit", "llama-sliding-8bit", "qwen2-mxfp4",
                                            "qwen3-f16"};
  static const sched_options options[] = {{0}, {.prompt_share = 7}, {.rows = 3, .prompt_share = 20}};
  for (size_t c = 0; c < sizeof checkpoints / sizeof *checkpoints; c++)
    for (int fast = 0; fast < 2; fast++) {
      tern_model *m = open_model(checkpoints[c], (tern_model_options){.numerics = fast ? TERN_FAST : TERN_EXACT});
      for (size_t o = 0; o < sizeof options / sizeof *options; o++)
        replay(m, checkpoints[c], options[o]);
      tern_model_close(m);
    }
}

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
        replay(m, checkpoints[c], (sched_options){.draft = drafts[d], .prompt_share = 20, .prefixes = d % 2 ? 4 : 0});
      for (k.wrong_of_8 = 1; k.wrong_of_8 <= 8; k.wrong_of_8 += 7)
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

static void quantised_keys_too(void **state)
{
  (void)state;
  tern_model_options options = {.kv_bits = 4, .kv_group_size = 32, .quantized_kv_start = 40};
  tern_model *m = open_model("llama-4bit", options);
  replay(m, "llama-4bit with quantised keys", (sched_options){.prompt_share = 9});
  replay(m, "llama-4bit with quantised keys and lookup",
         (sched_options){.draft = {.lookup = true, .tokens = 20, .always = true}});
  tern_model_close(m);
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

/* ---- cancellation ---- */

static void a_job_may_end_between_any_two_steps(void **state)
{
  (void)state;
  tern_model *m = open_model("gemma3-bf16", (tern_model_options){0});
  house h;
  seen *beside = calloc(1, sizeof *beside), *want = calloc(1, sizeof *want), *s = calloc(1, sizeof *s);
  h.model = m;
  make_job(want, &h, 11);
  run_alone(want);
  house_open(&h, m, (sched_options){.prompt_share = 4});
  for (int at = 0; at < 14; at++) {
    make_job(beside, &h, 11);
    make_job(s, &h, 3);
    s->job.options.ignore_eos = true;
    s->cancel_at = at;
    s->cancel_at_start = at == 0;
    submit(&h, beside);
    submit(&h, s);
    await_end(&h, s);
    await_end(&h, beside);
    assert_int_equal(s->status, TERN_E_CANCELLED);
    assert_int_equal(s->n_ids, at);
    expect_same(beside, want, true, 11, "beside one that is cancelled");
  }
  house_close(&h);
  free(beside);
  free(want);
  free(s);
  tern_model_close(m);
}

/* The neighbour's k-th token cancels a job that reads four tokens of its prompt a step, and then decodes: between every
 * two of its steps. Every block comes back, and the neighbour is as alone. */
static void cancel_between_steps(tern_model *m, sched_options options, const char *name)
{
  house h = {.model = m};
  seen *beside = calloc(1, sizeof *beside), *want = calloc(1, sizeof *want), *s = calloc(1, sizeof *s);
  make_job(want, &h, 0);
  want->job.options.max_tokens = MOST_TOKENS;
  want->job.options.ignore_eos = true;
  run_alone(want);
  options.prompt_share = 4;
  house_open(&h, m, options);
  int while_reading = 0, while_decoding = 0;
  for (int at = 1; at <= MOST_TOKENS - 2; at++) {
    make_job(beside, &h, 0); /* a prompt of one token: it decodes from the first step on */
    make_job(s, &h, 5);      /* a prompt of 100 */
    beside->job.options.max_tokens = MOST_TOKENS;
    beside->job.options.ignore_eos = s->job.options.ignore_eos = true;
    s->job.options.max_tokens = 200;
    beside->cancels = s;
    beside->cancels_at = at;
    tern_error err = {0};
    sched_job *both[] = {&s->job, &beside->job};
    if (sched_submit(h.scheduler, both, 2, &err) != TERN_OK)
      fail_msg("%s", err.text);
    await_end(&h, s);
    await_end(&h, beside);
    assert_int_equal(s->status, TERN_E_CANCELLED);
    assert_true(s->n_ids < 200);
    while_reading += s->n_ids == 0 && s->job.position > 0;
    while_decoding += s->n_ids > 0;
    expect_same(beside, want, true, 0, name);
    if (!options.prefixes && kv_store_held(m->net->store))
      fail_msg("%s: cancelled at step %d: %zu bytes of blocks are still held", name, at, kv_store_held(m->net->store));
    if (options.draft.model && kv_store_held(options.draft.model->net->store))
      fail_msg("%s: cancelled at step %d: the draft model's blocks are still held", name, at);
  }
  /* With lookup the neighbour may be done before the job has read its prompt. */
  if ((!while_decoding && !options.draft.lookup) || (!options.prefixes && while_reading < 20))
    fail_msg("%s: %d cancelled while they read, %d while they decoded", name, while_reading, while_decoding);
  house_close(&h);
  assert_int_equal(kv_store_held(m->net->store), 0);
  free(beside);
  free(want);
  free(s);
}

static void blocks_come_back_wherever_a_job_is_cancelled(void **state)
{
  (void)state;
  static const char *const checkpoints[] = {"gemma3-bf16", "llama-4bit"};
  tern_model *other = open_model("qwen3-f16", (tern_model_options){0});
  for (int c = 0; c < 2; c++) {
    tern_model *m = open_model(checkpoints[c], (tern_model_options){0});
    cancel_between_steps(m, (sched_options){0}, checkpoints[c]);
    cancel_between_steps(m, (sched_options){.prefixes = 3}, checkpoints[c]);
    cancel_between_steps(m, (sched_options){.draft = {.model = other, .tokens = 1, .always = true}}, checkpoints[c]);
    tern_model_close(m);
  }
  tern_model_close(other);
  static const tern_model_options options[] = {{.max_kv_size = 30},
                                               {.kv_bits = 4, .kv_group_size = 32, .quantized_kv_start = 50}};
  for (int i = 0; i < 2; i++) {
    tern_model *m = open_model("qwen3-f16", options[i]);
    cancel_between_steps(m, (sched_options){0}, "qwen3-f16");
    cancel_between_steps(m, (sched_options){.draft = {.lookup = true}}, "qwen3-f16");
    tern_model_close(m);
  }
}

static void closing_ends_what_runs_and_waits(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  house h;
  seen *s = calloc(4, sizeof *s);
  house_open(&h, m, (sched_options){.rows = 1});
  for (int i = 0; i < 4; i++) {
    make_job(&s[i], &h, 9);
    s[i].job.options.ignore_eos = true;
    s[i].job.options.max_tokens = 880;
    submit(&h, &s[i]);
  }
  await_tokens(&h, 1, 1);
  house_close(&h);
  assert_int_equal(h.ended, 4);
  assert_int_equal(s[3].status, TERN_E_CANCELLED);
  assert_false(s[3].started);
  free(s);
  tern_model_close(m);
}

/* ---- admission ---- */

static void jobs_wait_for_memory_in_order(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  size_t one = kv_store_estimate(m->net->store, 139 + 35, m->net->plan.max_tokens);
  house h;
  seen *s = calloc(4, sizeof *s);
  house_open(&h, m, (sched_options){.state_bytes = one + one / 2});
  for (int i = 0; i < 3; i++) {
    make_job(&s[i], &h, 9);
    s[i].job.options.max_tokens = 30;
    s[i].job.options.ignore_eos = true;
    submit(&h, &s[i]);
  }
  for (int i = 0; i < 3; i++) {
    await_end(&h, &s[i]);
    assert_int_equal(s[i].status, TERN_OK);
    assert_int_equal(s[i].order, i);
  }
  /* What could not run even alone is refused with the numbers. */
  make_job(&s[3], &h, 9);
  s[3].job.options.max_tokens = 800;
  submit(&h, &s[3]);
  await_end(&h, &s[3]);
  assert_int_equal(s[3].status, TERN_E_LIMIT);
  assert_non_null(strstr(s[3].err.text, "139 tokens and 800 to come"));
  assert_false(s[3].started);
  house_close(&h);
  free(s);
  tern_model_close(m);
}

/* Memory that was set aside and not written yet is not free, though the system says so. */
static void what_is_set_aside_is_not_free(void **state)
{
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip(); /* a sanitizer's shadow of so many untouched bytes is not free */
#endif
  tern_model *m = open_model("llama-4bit", (tern_model_options){.numerics = TERN_FAST});
  double token = (double)kv_store_token_bytes(m->net->store);
  double positions = 0.55 * (double)model_memory_available(m->net) / token;
  if (positions > 4e8) { /* no int for them all */
    tern_model_close(m);
    skip();
  }
  house h;
  seen *s = calloc(3, sizeof *s);
  house_open(&h, m, (sched_options){.context = (int)(2.5 * positions)});
  for (int i = 0; i < 3; i++) {
    make_job(&s[i], &h, 9);
    s[i].job.options.ignore_eos = true;
    s[i].job.options.max_tokens = (int)(i < 2 ? positions : 2 * positions);
    submit(&h, &s[i]);
  }
  await_end(&h, &s[2]); /* not even alone: it waits for nobody */
  assert_int_equal(s[2].status, TERN_E_LIMIT);
  await_tokens(&h, 20, 3);
  assert_false(s[1].started);
  sched_cancel(h.scheduler, &s[0].job);
  await_end(&h, &s[0]);
  sched_stats stats;
  do
    sched_get_stats(h.scheduler, &stats);
  while (!stats.running);
  sched_cancel(h.scheduler, &s[1].job);
  await_end(&h, &s[1]);
  assert_true(s[1].started);
  house_close(&h);
  free(s);
  tern_model_close(m);
}

static void what_is_wrong_at_once_is_refused_at_once(void **state)
{
  (void)state;
  tern_model *m = open_model("llama-4bit", (tern_model_options){0});
  house h;
  tern_error err = {0};
  seen *s = calloc(3, sizeof *s);
  house_open(&h, m, (sched_options){.rows = 1, .queue = 1});
  sched_job *jobs[3];
  for (int i = 0; i < 3; i++) {
    make_job(&s[i], &h, 9);
    s[i].job.options.ignore_eos = true;
    s[i].job.options.max_tokens = 880;
    jobs[i] = &s[i].job;
  }
  s[0].job.options.max_tokens = 5000;
  assert_int_equal(sched_submit(h.scheduler, jobs, 1, &err), TERN_E_LIMIT);
  assert_non_null(strstr(err.text, "there are 1024"));
  s[0].job.options.max_tokens = 0;
  assert_int_equal(sched_submit(h.scheduler, jobs, 1, &err), TERN_E_USAGE);
  s[0].job.options.max_tokens = 880;
  s[0].prompt[3] = 320;
  assert_int_equal(sched_submit(h.scheduler, jobs, 1, &err), TERN_E_USAGE);
  s[0].prompt[3] = 1;
  assert_int_equal(sched_submit(h.scheduler, jobs, 3, &err), TERN_E_LIMIT); /* more than ever fit */
  hold(&h, true);
  assert_int_equal(sched_submit(h.scheduler, jobs, 2, &err), TERN_OK);
  assert_int_equal(sched_submit(h.scheduler, jobs + 2, 1, &err), TERN_E_BUSY);
  sched_cancel(h.scheduler, jobs[1]); /* it waits, and leaves all the same */
  hold(&h, false);
  await_end(&h, &s[1]);
  assert_false(s[1].started);
  assert_int_equal(sched_submit(h.scheduler, jobs + 2, 1, &err), TERN_OK);
  sched_cancel(h.scheduler, jobs[0]);
  await_end(&h, &s[2]);
  sched_stats stats;
  sched_get_stats(h.scheduler, &stats);
  assert_int_equal(stats.turned_away, 1);
  assert_int_equal(stats.finished + stats.cancelled, 3);
  house_close(&h);
  free(s);
  tern_model_close(m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_mixed_load_has_the_bits_of_each_alone),
      cmocka_unit_test(quantised_keys_too),
      cmocka_unit_test(speculation_changes_no_bit),
      cmocka_unit_test(guesses_are_counted),
      cmocka_unit_test(drafts_are_admitted),
      cmocka_unit_test(prefixes_change_no_bit),
      cmocka_unit_test(draft_models_keep_their_prefixes),
      cmocka_unit_test(a_mixed_load_with_prefixes_too),
      cmocka_unit_test(prefixes_yield_to_jobs),
      cmocka_unit_test(a_job_may_end_between_any_two_steps),
      cmocka_unit_test(blocks_come_back_wherever_a_job_is_cancelled),
      cmocka_unit_test(closing_ends_what_runs_and_waits),
      cmocka_unit_test(jobs_wait_for_memory_in_order),
      cmocka_unit_test(what_is_set_aside_is_not_free),
      cmocka_unit_test(what_is_wrong_at_once_is_refused_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
