/* test_scheduler_memory.c - what is kept gives way: one bound for all of it, and none of it stands where a job would be
 * refused for lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>

#include "base/mem.h"
#include "engine/scheduler.h"

enum { PROMPT = 90, ANSWER = 12 };

typedef struct job {
  sched_job job;
  int32_t prompt[PROMPT];
  int64_t fail_after; /* the worker's allocations behind this job's end, of which the first that fails; -1: none */
  bool started, ended;
  tern_status status;
  pthread_mutex_t lock;
  pthread_cond_t news;
} job;

static tern_model *m, *twin;

static tern_model *open_model(void)
{
  char dir[512];
  tern_error err = {0};
  tern_model *out = NULL;
  snprintf(dir, sizeof dir, "%s/tests/golden/llama-4bit/model", TERN_SOURCE_DIR);
  if (tern_model_open(dir, NULL, &out, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return out;
}

static int open_models(void **state)
{
  (void)state;
  m = open_model();
  twin = open_model();
  return 0;
}

static int close_models(void **state)
{
  (void)state;
  tern_model_close(m);
  tern_model_close(twin);
  return 0;
}

static void on_start(void *user)
{
  ((job *)user)->started = true;
}

static void on_token(void *user, const reply *r)
{
  (void)user;
  (void)r;
}

static void on_end(void *user, const sched_end *end)
{
  job *j = user;
  mem_fail_after(j->fail_after);
  pthread_mutex_lock(&j->lock);
  j->status = end->status;
  j->ended = true;
  pthread_cond_signal(&j->news);
  pthread_mutex_unlock(&j->lock);
}

/* Runs a job; no two seeds have a beginning in common. */
static void run(scheduler *s, job *j, uint32_t seed, int64_t fail_after)
{
  tern_error err = {0};
  sched_job *one = &j->job;
  *j = (job){.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER, .fail_after = fail_after};
  for (int i = 0; i < PROMPT; i++)
    j->prompt[i] = (int32_t)(seed + (uint32_t)i * 7) % 256;
  j->job = (sched_job){.ids = j->prompt,
                       .n = PROMPT,
                       .options = {.max_tokens = ANSWER, .ignore_eos = true},
                       .top = -1,
                       .on_start = on_start,
                       .on_token = on_token,
                       .on_end = on_end,
                       .user = j};
  if (sched_submit(s, &one, 1, &err) != TERN_OK)
    fail_msg("%s", err.text);
  pthread_mutex_lock(&j->lock);
  while (!j->ended)
    pthread_cond_wait(&j->news, &j->lock);
  pthread_mutex_unlock(&j->lock);
}

static scheduler *open_scheduler(sched_options options)
{
  scheduler *s = NULL;
  tern_error err = {0};
  if (sched_open(m, &options, &s, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return s;
}

/* A draft model's states are kept within the same eighth. */
static void what_is_kept_has_one_bound(void **state)
{
  (void)state;
  size_t one = kv_store_estimate(m->net->store, PROMPT + ANSWER, m->net->plan.max_tokens), most = 0;
  scheduler *s = open_scheduler((sched_options){.prefixes = 8, .state_bytes = 30 * one, .draft.model = twin});
  for (uint32_t i = 0; i < 12; i++) {
    job j;
    sched_stats stats;
    run(s, &j, i, -1);
    assert_int_equal(j.status, TERN_OK);
    sched_get_stats(s, &stats);
    most = stats.prefix_bytes > most ? stats.prefix_bytes : most;
  }
  if (!most || most > 30 * one / 8)
    fail_msg("%zu bytes are kept, an eighth is %zu", most, 30 * one / 8);
  sched_close(s);
}

/* Where memory runs out for a new job (state, draft model, sampler), what is kept goes before the job is refused. */
static void prefixes_go_before_a_job_is_refused(void **state)
{
  (void)state;
  for (int draft = 0; draft < 2; draft++) {
    scheduler *s = open_scheduler((sched_options){.prefixes = 8, .draft.model = draft ? twin : NULL});
    int failing = 0;
    for (bool started = false; !started; failing++) {
      job j;
      sched_stats stats;
      run(s, &j, 1, failing);
      assert_int_equal(j.status, TERN_OK);
      sched_get_stats(s, &stats);
      assert_true(stats.prefixes > 0 && stats.prefix_bytes > 0);
      run(s, &j, 2, -1);
      started = j.started;
      sched_get_stats(s, &stats);
      if (!started && (j.status != TERN_E_NOMEM || stats.prefix_bytes))
        fail_msg("allocation %d: status %d, and %zu bytes are kept", failing, j.status, stats.prefix_bytes);
    }
    assert_true(failing > 8);
    sched_close(s);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_kept_has_one_bound),
      cmocka_unit_test(prefixes_go_before_a_job_is_refused),
  };
  return cmocka_run_group_tests(tests, open_models, close_models);
}
