/* test_ops_cpu.h - what the tests of the cpu backend share: seeded numbers, comparing bits, and running one record at
 * every SIMD level that this machine has and at several numbers of threads. */
#ifndef TERN_TEST_OPS_CPU_H
#define TERN_TEST_OPS_CPU_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/half.h"
#include "base/mem.h"
#include "ops/ops.h"
#include "thorough.h"

/* ---- numbers ---- */

static inline uint64_t next_random(uint64_t *state)
{
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static inline float random_float(uint64_t *state, float range)
{
  return ((float)(next_random(state) >> 40) * 0x1p-23f - 1.0f) * range;
}

static inline float *random_floats(uint64_t *state, size_t n, float range)
{
  float *x = malloc((n ? n : 1) * sizeof *x);
  assert_non_null(x);
  for (size_t i = 0; i < n; i++)
    x[i] = random_float(state, range);
  return x;
}

/* Zeros, subnormals, infinities, NaN, the largest and the smallest, and where exp and tanh change their ways. */
static const float odd_floats[] = {0.0f,      -0.0f,   1e-45f,    -1e-45f,    1e-39f,  1.17549435e-38f, 3.4028235e38f,
                                   -3.4e38f,  88.0f,   88.00001f, -88.0f,     -87.7f,  -88.1f,          22.0f,
                                   0.999999f, 1.0f,    -1.0f,     1e-20f,     1e20f,   -1e20f,          0.5f,
                                   8e6f,      3e9f,    1e19f,     2.5e-38f,   0.3466f, 0.34657f,        1.04f,
                                   -0.6931f,  -5e-10f, 2e-9f,     4.656e-10f, 1e13f,   -3e12f,          2e-13f};
enum { ODD_FLOATS = sizeof odd_floats / sizeof *odd_floats };

/* Overwrites every seventh or so; with_nonfinite adds infinities and NaN. */
static inline void sprinkle(uint64_t *state, float *x, size_t n, bool with_nonfinite)
{
  for (size_t i = 0; i < n; i++) {
    uint64_t r = next_random(state);
    if (r % 7)
      continue;
    x[i] = odd_floats[(r >> 8) % ODD_FLOATS];
    if (with_nonfinite && (r >> 32) % 5 == 0)
      x[i] = (r >> 40) % 3 == 0 ? NAN : (r >> 40) % 3 == 1 ? INFINITY : -INFINITY;
  }
}

/* Index of the first float whose bits differ (NaNs are one class), or -1. */
static inline int64_t first_difference(const float *a, const float *b, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (f32_bits(a[i]) != f32_bits(b[i]) && !(a[i] != a[i] && b[i] != b[i]))
      return (int64_t)i;
  return -1;
}

/* ---- backends ---- */

static const int thread_counts[] = {1, 2, 5};
enum { THREAD_COUNTS = 3 };

/* A context for every level and number of threads, and one for the reference. */
typedef struct bench {
  ops_context ref, cpu[SIMD_LEVELS][THREAD_COUNTS];
  pool *pools[THREAD_COUNTS];
  unsigned turn; /* counts the cases: whose turn it is where not all numbers of threads are run */
  int cases;     /* counted by take_case */
} bench;

static inline int open_bench(void **state)
{
  bench *b = calloc(1, sizeof *b);
  assert_non_null(b);
  b->ref.backend = ops_ref();
  for (int i = 0; i < THREAD_COUNTS; i++) {
    if (pool_open(thread_counts[i], &b->pools[i], NULL) != TERN_OK)
      return -1;
    for (int l = 0; l < SIMD_LEVELS; l++)
      b->cpu[l][i] = (ops_context){.backend = ops_cpu((ops_simd)l), .workers = b->pools[i]};
  }
  for (int l = 0; l < SIMD_LEVELS; l++)
    if (!ops_cpu((ops_simd)l))
      print_message("skipped here: simd level %s\n", ops_simd_name((ops_simd)l));
  *state = b;
  return 0;
}

static inline int close_bench(void **state)
{
  bench *b = *state;
  for (int i = 0; i < THREAD_COUNTS; i++) {
    for (int l = 0; l < SIMD_LEVELS; l++)
      ops_context_clear(&b->cpu[l][i]);
    pool_close(b->pools[i]);
  }
  ops_context_clear(&b->ref);
  free(b);
  return 0;
}

/* Runs `record` at every level, with every number of threads or with those whose turn it is: before each run, `before`
 * (may be NULL) restores the inputs; after it, `check` looks at the outputs; `what` names the context in messages. */
typedef void bench_fn(void *user, const char *what);

static inline void run_everywhere(bench *b, const op_record *record, const ops_step *step, bench_fn *before,
                                  bench_fn *check, void *user)
{
  const unsigned turn = b->turn++;
  for (int l = 0; l < SIMD_LEVELS; l++) {
    for (int i = 0; i < THREAD_COUNTS; i++) {
      ops_context *cx = &b->cpu[l][i];
      if (!cx->backend || !take_threads(i, THREAD_COUNTS, turn + (unsigned)l))
        continue;
      char what[64];
      snprintf(what, sizeof what, "%s, %d threads", cx->backend->name, thread_counts[i]);
      if (before)
        before(user, what);
      mem_forbid(true);
      cx->backend->run[record->kind](cx, record, step);
      mem_forbid(false);
      check(user, what);
    }
  }
}

static inline void run_ref(bench *b, const op_record *record, const ops_step *step)
{
  b->ref.backend->run[record->kind](&b->ref, record, step);
}

#endif
