/* test_ops_cpu_trial.h - one record that works on one buffer, compared with the reference at every level and number of
 * threads: what the tests of row-wise and value-wise ops share. */
#ifndef TERN_TEST_OPS_CPU_TRIAL_H
#define TERN_TEST_OPS_CPU_TRIAL_H

#include "test_ops_cpu.h"

/* One buffer that an op works on, its input, and what the reference makes of it. */
typedef struct trial {
  const char *what;
  float *y, *start, *expected;
  size_t n;
} trial;

static inline void restore(void *user, const char *what)
{
  (void)what;
  trial *t = user;
  memcpy(t->y, t->start, t->n * sizeof(float));
}

static inline void check(void *user, const char *what)
{
  trial *t = user;
  int64_t at = first_difference(t->y, t->expected, t->n);
  if (at >= 0)
    fail_msg("%s, %s: value %lld of %zu: %a, expected %a (before: %a)", t->what, what, (long long)at, t->n,
             (double)t->y[at], (double)t->expected[at], (double)t->start[at]);
}

/* The record works on t->y, which holds t->start. */
static inline void compare(bench *b, const op_record *record, const ops_step *step, trial *t)
{
  restore(t, NULL);
  run_ref(b, record, step);
  memcpy(t->expected, t->y, t->n * sizeof(float));
  run_everywhere(b, record, step, restore, check, t);
}

static inline trial open_trial(uint64_t *seed, const char *what, size_t n, float range, int odd)
{
  trial t = {what, random_floats(seed, n, 1), random_floats(seed, n, range), random_floats(seed, n, 1), n};
  if (odd)
    sprinkle(seed, t.start, n, odd > 1);
  return t;
}

static inline void close_trial(trial *t)
{
  free(t->y);
  free(t->start);
  free(t->expected);
}

#endif
