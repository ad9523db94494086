/* scheduler_house.h - a scheduler with jobs in it, for tests: what is seen of each job as it runs, the same job alone,
 * and a mixed load of them that is compared with each alone. */
#ifndef SCHEDULER_HOUSE_H
#define SCHEDULER_HOUSE_H

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

static inline uint64_t hash(const float *row, int n)
{
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < (size_t)n * sizeof *row; i++)
    h = (h ^ ((const uint8_t *)row)[i]) * 1099511628211u;
  return h;
}

static inline bool on_text(void *user, const char *text, size_t n)
{
  seen *s = user;
  if (s->n_text + n > MOST_TEXT)
    return true;
  memcpy(s->text + s->n_text, text, n);
  s->n_text += n;
  return true;
}

static inline void on_start(void *user)
{
  seen *s = user;
  s->started = true;
  if (s->cancel_at_start)
    sched_cancel(s->house->scheduler, &s->job);
}

static inline void on_logits(void *user, const float *logits, int vocab)
{
  seen *s = user;
  if (s->n_rows <= MOST_TOKENS)
    s->rows[s->n_rows++] = hash(logits, vocab);
}

static inline void on_token(void *user, const reply *r)
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

static inline void on_end(void *user, const sched_end *end)
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

static inline tern_model *open_model(const char *name, tern_model_options options)
{
  char dir[512];
  tern_error err = {0};
  tern_model *m = NULL;
  snprintf(dir, sizeof dir, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, name);
  if (tern_model_open(dir, &options, &m, &err) != TERN_OK)
    fail_msg("%s: %s", name, err.text);
  return m;
}

static inline void house_open(house *h, tern_model *m, sched_options options)
{
  tern_error err = {0};
  *h = (house){.model = m};
  pthread_mutex_init(&h->lock, NULL);
  pthread_cond_init(&h->news, NULL);
  if (sched_open(m, &options, &h->scheduler, &err) != TERN_OK)
    fail_msg("%s", err.text);
}

static inline void house_close(house *h)
{
  sched_close(h->scheduler);
  pthread_cond_destroy(&h->news);
  pthread_mutex_destroy(&h->lock);
}

/* Until so many tokens came, or all `jobs` have ended. */
static inline void await_tokens(house *h, int tokens, int jobs)
{
  pthread_mutex_lock(&h->lock);
  while (h->tokens < tokens && h->ended < jobs)
    pthread_cond_wait(&h->news, &h->lock);
  pthread_mutex_unlock(&h->lock);
}

static inline void hold(house *h, bool held)
{
  pthread_mutex_lock(&h->lock);
  h->held = held;
  pthread_cond_broadcast(&h->news);
  pthread_mutex_unlock(&h->lock);
}

static inline void await_end(house *h, const seen *s)
{
  pthread_mutex_lock(&h->lock);
  while (!s->ended)
    pthread_cond_wait(&h->news, &h->lock);
  pthread_mutex_unlock(&h->lock);
}

/* The i-th job: lengths from 1 to past the windows, every kind of sampling. */
static inline void make_job(seen *s, house *h, int i)
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

static inline void submit(house *h, seen *s)
{
  tern_error err = {0};
  sched_job *job = &s->job;
  if (sched_submit(h->scheduler, &job, 1, &err) != TERN_OK)
    fail_msg("%s", err.text);
}

/* ---- alone ---- */

static inline void keep_row(void *user, int64_t position, float *logits)
{
  (void)position;
  seen *s = user;
  s->rows[s->n_rows++] = hash(logits, s->house->model->info.vocab);
}

/* The same job by tern_generate, and the logits of a fresh session that is fed its tokens. */
static inline void run_alone(seen *s)
{
  tern_session *alone;
  tern_result result = {0};
  tern_error err = {0};
  tern_generate_options o = s->job.options;
  if (tern_session_open(s->house->model, NULL, &alone, &err) != TERN_OK ||
      tern_generate(alone, s->prompt, s->job.n, &o, &result, &err) != TERN_OK)
    fail_msg("%s", err.text);
  tern_session_close(alone);
  s->n_ids = result.n_ids;
  if (s->n_ids)
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
static inline void expect_same(const seen *got, const seen *want, bool whole, int i, const char *name)
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

static inline void replay(tern_model *m, const char *name, sched_options options)
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

#endif
