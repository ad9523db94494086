/* The sampler: stored answers of mlx-lm, equal bits with and without SIMD, refusals, and what the reference does at the
 * edges. tests/parity/test_sampling.py compares many more configurations with the reference itself. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/sample_impl.h"
#include "ops/math.h"

enum { STEPS = 8 };

static const struct golden {
  tern_sampling options;
  int vocab;
  sample_type type;
  int32_t tokens[STEPS];
  uint64_t hash; /* of all log-probabilities */
} goldens[] = {
#include "../golden/sampling.h"
};

static const int32_t prompt_end = 17; /* the prompt's last token: where the history starts */

static uint64_t fnv(uint64_t h, const float *x, size_t n)
{
  for (size_t i = 0; i < n; i++)
    for (int b = 0; b < 32; b += 8)
      h = (h ^ (f32_bits(x[i]) >> b & 0xff)) * UINT64_C(0x100000001b3);
  return h;
}

/* As make_sampling.py makes them. */
static void make_logits(float *x, size_t n, int step, sample_type type)
{
  for (uint32_t i = 0; i < n; i++) {
    uint32_t h = (i + (uint32_t)step * 7919 + 1) * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    x[i] = sample_round(type, (float)(h >> 22) / 64.0f - 16.0f + (i % 50 ? 0.0f : 5.0f));
  }
}

static sampler *opened(const tern_sampling *o, int vocab, sample_type type)
{
  sampler *s = NULL;
  tern_error err;
  if (sampler_open(o, vocab, type, &s, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return s;
}

static void replay(const struct golden *g, bool baseline)
{
  sampler *s = opened(&g->options, g->vocab, g->type);
  if (baseline)
    sampler_limit_simd(s, SIMD_BASELINE);
  float *x = mem_array((size_t)g->vocab, sizeof *x);
  int32_t history[STEPS + 1] = {prompt_end};
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (int step = 0; step < STEPS; step++) {
    make_logits(x, (size_t)g->vocab, step, g->type);
    int32_t token = -1;
    mem_forbid(true);
    tern_status status = sampler_next(s, x, history, (size_t)step + 1, &token, NULL);
    mem_forbid(false);
    assert_int_equal(status, TERN_OK);
    assert_int_equal(token, g->tokens[step]);
    history[step + 1] = token;
    hash = fnv(hash, x, (size_t)g->vocab);
  }
  assert_true(hash == g->hash);
  mem_free(x);
  sampler_close(s);
}

static void same_as_the_reference(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
    replay(&goldens[i], false);
    replay(&goldens[i], true);
  }
}

static void refusals(void **state)
{
  (void)state;
  static const int32_t id[] = {320}, negative[] = {-1};
  static const float one[] = {1};
  static const struct {
    const char *flag;
    tern_sampling options;
  } cases[] = {
      {"--temp", {.temp = -1}},
      {"--temp", {.temp = NAN}},
      {"--temp", {.temp = INFINITY}},
      {"--top-p", {.top_p = 1.5f}},
      {"--top-p", {.top_p = NAN}},
      {"--min-p", {.min_p = -0.1f}},
      {"--min-tokens-to-keep", {.min_tokens_to_keep = -1}},
      {"--min-tokens-to-keep", {.temp = 1, .min_p = 0.1f, .min_tokens_to_keep = 321}},
      {"--top-k", {.top_k = -1}},
      {"--top-k", {.temp = 1, .top_k = 320}},
      {"--xtc-probability", {.xtc_probability = 1.1f}},
      {"--xtc-threshold", {.xtc_threshold = 0.6f}},
      {"xtc special tokens", {.temp = 1, .xtc_probability = 1, .xtc_special = id, .n_xtc_special = 1}},
      {"--repetition-penalty", {.repetition_penalty = -1}},
      {"--presence-penalty", {.presence_penalty = NAN}},
      {"--frequency-penalty", {.frequency_penalty = INFINITY}},
      {"--repetition-context-size", {.repetition_context = -1}},
      {"--logit-bias", {.bias_ids = id, .bias_values = one, .n_bias = 1}},
      {"--logit-bias", {.bias_ids = negative, .bias_values = one, .n_bias = 1}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    sampler *s = NULL;
    tern_error err = {0};
    assert_int_equal(sampler_open(&cases[i].options, 320, SAMPLE_F32, &s, &err), TERN_E_USAGE);
    assert_null(s);
    if (strncmp(err.text, cases[i].flag, strlen(cases[i].flag)) != 0)
      fail_msg("%s: %s", cases[i].flag, err.text);
  }
  sampler *s = NULL;
  assert_int_equal(sampler_open(&(tern_sampling){0}, 0, SAMPLE_F32, &s, NULL), TERN_E_USAGE);
  sampler_close(opened(&(tern_sampling){.top_k = 1000}, 320, SAMPLE_F32)); /* greedy: filters are not looked at */
}

static void bad_logits_and_histories(void **state)
{
  (void)state;
  static const int32_t history[] = {900, 3, 5};
  tern_sampling o = {.repetition_penalty = 1.1f, .repetition_context = 2};
  sampler *s = opened(&o, 100, SAMPLE_F32);
  float x[100] = {0};
  int32_t token = -7;
  tern_error err;
  assert_int_equal(sampler_next(s, x, history, 3, &token, &err), TERN_OK); /* 900 is outside the window */
  assert_int_equal(sampler_next(s, x, history, 1, &token, &err), TERN_E_USAGE);
  token = -7;
  static const float bad[] = {NAN, INFINITY, -NAN};
  for (int k = 0; k < 3; k++)
    for (size_t i = 0; i < 100; i += 33) {
      memset(x, 0, sizeof x);
      x[i] = bad[k];
      assert_int_equal(sampler_next(s, x, history, 0, &token, &err), TERN_E_FORMAT);
      char id[40];
      snprintf(id, sizeof id, "token id %zu:", i);
      assert_non_null(strstr(err.text, id));
    }
  for (size_t i = 0; i < 100; i++)
    x[i] = -INFINITY;
  assert_int_equal(sampler_next(s, x, NULL, 0, &token, &err), TERN_E_FORMAT);
  assert_int_equal(token, -7);
  sampler_close(s);
}

/* Sums of equal bfloat16 terms stop growing at 256 terms, below a cut near one: top_p then leaves nothing, all scores
 * are -infinity and the first index wins. */
static void filtered_to_nothing(void **state)
{
  (void)state;
  tern_sampling o = {.temp = 1, .top_p = 0.01f, .min_p = 0.1f, .xtc_probability = 1, .xtc_threshold = 0.1f, .top_k = 3};
  for (int baseline = 0; baseline < 2; baseline++) {
    sampler *s = opened(&o, 2000, SAMPLE_BF16);
    if (baseline)
      sampler_limit_simd(s, SIMD_BASELINE);
    float x[2000] = {0};
    int32_t token = -1;
    assert_int_equal(sampler_next(s, x, NULL, 0, &token, NULL), TERN_OK);
    assert_int_equal(token, 0);
    sampler_close(s);
  }
}

/* Skipping hopeless tokens must not change the draw; nor where 1/temp overflows the type. */
static void draws_are_complete(void **state)
{
  (void)state;
  static const float temps[] = {1, 0.05f, 3, 30, 1e-5f, 1e-40f};
  enum { V = 777 };
  float x[V], y[V];
  for (size_t t = 0; t < sizeof temps / sizeof temps[0]; t++)
    for (int step = 0; step < 40; step++) {
      sample_type type = (sample_type)(step % 3);
      sampler *s = opened(&(tern_sampling){.temp = temps[t], .seed = (uint64_t)step}, V, type);
      make_logits(x, V, step, type);
      for (size_t i = 0; i < V && step % 4 == 0; i++)
        x[i] *= 0.0625f; /* many contenders */
      rng_key key = s->key, drawn = rng_next(&key);
      int32_t token = -1, expected = 0;
      assert_int_equal(sampler_next(s, x, NULL, 0, &token, NULL), TERN_OK);
      for (size_t i = 0; i < V; i++) {
        y[i] = rng_gumbel(rng_unit_compiled(rng_word(drawn, V, i))) + sample_round(type, x[i] * s->inverse_temp);
        if (y[i] > y[expected])
          expected = (int32_t)i;
      }
      assert_int_equal(token, expected);
      assert_int_equal(sampler_key(s).a, key.a);
      sampler_close(s);
    }
}

static void keys_carry_on(void **state)
{
  (void)state;
  tern_sampling o = {.temp = 1, .seed = 4};
  sampler *a = opened(&o, 320, SAMPLE_F32), *b = opened(&o, 320, SAMPLE_F32);
  float x[320];
  int32_t one = -1, two = -1;
  for (int step = 0; step < 6; step++) {
    make_logits(x, 320, 0, SAMPLE_F32);
    assert_int_equal(sampler_next(a, x, NULL, 0, &one, NULL), TERN_OK);
    sampler_set_key(b, sampler_key(a));
  }
  make_logits(x, 320, 1, SAMPLE_F32);
  assert_int_equal(sampler_next(a, x, NULL, 0, &one, NULL), TERN_OK);
  make_logits(x, 320, 1, SAMPLE_F32);
  assert_int_equal(sampler_next(b, x, NULL, 0, &two, NULL), TERN_OK);
  assert_int_equal(one, two);
  sampler_close(a);
  sampler_close(b);
}

static void most_likely(void **state)
{
  (void)state;
  sampler *s = opened(&(tern_sampling){0}, 10, SAMPLE_F32);
  const float x[10] = {-3, -1, -INFINITY, -1, -0.5f, -9, -1, -0.0f, -INFINITY, 0};
  int32_t ids[12];
  float values[12];
  assert_int_equal(sampler_top(s, x, 0, ids, values), 0);
  assert_int_equal(sampler_top(s, x, 5, ids, values), 5);
  static const int32_t five[] = {7, 9, 4, 1, 3};
  assert_memory_equal(ids, five, sizeof five);
  assert_true(values[2] == -0.5f);
  assert_int_equal(sampler_top(s, x, 12, ids, values), 8); /* the impossible are left out */
  assert_int_equal(ids[7], 5);
  sampler_close(s);
}

static float noise(uint32_t i)
{
  uint32_t h = i * 2654435761u;
  h ^= h >> 13;
  h *= 2246822519u;
  return (float)(h >> 8) * 0x1p-24f;
}

static void loops_agree(void **state)
{
  (void)state;
#if defined(__x86_64__)
  if (ops_simd_best() < SIMD_AVX2)
    skip();
  const sample_kernels *a = &sample_kernels_baseline, *b = &sample_kernels_avx2;
  enum { MAX = 5000 };
  static float x[MAX], p[MAX], q[MAX];
  for (uint32_t round = 0; round < 300; round++) {
    size_t n = round < 40 ? round : (size_t)(noise(round) * MAX);
    float spread = round % 7 == 0 ? 0.01f : round % 7 == 1 ? 120 : 25;
    for (size_t i = 0; i < n; i++)
      x[i] = round % 5 == 0 && i % 11 == 3 ? -INFINITY : -spread * noise(round * MAX + (uint32_t)i);
    for (int type = 0; type < 3; type++) {
      a->exp((sample_type)type, x, -0.001f, p, n);
      b->exp((sample_type)type, x, -0.001f, q, n);
      assert_memory_equal(p, q, n * sizeof *p);
      float sums[2] = {a->sum(p, n), b->sum(p, n)};
      assert_int_equal(f32_bits(sums[0]), f32_bits(sums[1]));
      memcpy(p, x, n * sizeof *p);
      memcpy(q, x, n * sizeof *q);
      a->subtract((sample_type)type, p, 7.3f, n);
      b->subtract((sample_type)type, q, 7.3f, n);
      assert_memory_equal(p, q, n * sizeof *p);
    }
    assert_true(a->max(x, n) == b->max(x, n));
    assert_int_equal(a->find(x, n / 3, n, -spread * 0.02f), b->find(x, n / 3, n, -spread * 0.02f));
  }
#else
  skip();
#endif
}

static int by_value(const void *a, const void *b)
{
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static void orders(void **state)
{
  (void)state;
  enum { N = 3000 };
  static float x[N], sorted[N];
  static uint64_t entries[N], spare[N];
  for (uint32_t round = 0; round < 20; round++) {
    for (uint32_t i = 0; i < N; i++) {
      x[i] = 40 * noise(round * N + i) - 30;
      x[i] = round % 2 ? (float)(int)x[i] : x[i]; /* ties, both zeros */
      entries[i] = (uint64_t)sample_order_key(x[i]) << 32 | i;
      assert_true(sample_order_value(sample_order_key(x[i])) == x[i]);
    }
    memcpy(sorted, x, sizeof x);
    qsort(sorted, N, sizeof *sorted, by_value);
    const uint64_t *result = sample_sort(entries, spare, N);
    for (uint32_t i = 0; i < N; i++) {
      assert_true(x[(uint32_t)result[i]] == sorted[i]);
      assert_true(i == 0 || result[i - 1] < result[i]); /* stable: equal keys by id */
    }
    for (size_t k = 1; k <= N; k += 131) {
      size_t equal, above = 0, same = 0;
      uint32_t cut = sample_select(x, N, k, &equal);
      assert_true(sample_order_value(cut) == sorted[N - k]);
      for (size_t i = 0; i < N; i++) {
        above += sample_order_key(x[i]) > cut;
        same += sample_order_key(x[i]) == cut;
      }
      assert_true(above + equal == k && equal >= 1 && equal <= same);
    }
  }
}

static void no_memory(void **state)
{
  (void)state;
  static const int32_t ids[] = {1};
  static const float values[] = {1};
  tern_sampling o = {.temp = 1, .xtc_probability = 1, .xtc_special = ids, .n_xtc_special = 1};
  o.bias_ids = ids;
  o.bias_values = values;
  o.n_bias = 1;
  for (int n = 0;; n++) {
    sampler *s = NULL;
    mem_fail_after(n);
    tern_status status = sampler_open(&o, 320, SAMPLE_F32, &s, NULL);
    mem_fail_after(-1);
    if (status == TERN_OK) {
      assert_int_equal(n, 9);
      sampler_close(s);
      return;
    }
    assert_int_equal(status, TERN_E_NOMEM);
    assert_null(s);
  }
}

/* Greedy choices without log-probabilities are those with them: plain, tied, and apart by less than rounding keeps. */
static void test_choice_alone(void **state)
{
  (void)state;
  enum { VOCAB = 1000, ROUNDS = 3000 };
  static float x[VOCAB], y[VOCAB];
  sampler *whole = opened(&(tern_sampling){0}, VOCAB, SAMPLE_F32),
          *alone = opened(&(tern_sampling){0}, VOCAB, SAMPLE_F32);
  sampler_choice_alone(alone);
  uint32_t seed = 7;
  for (int round = 0; round < ROUNDS; round++) {
    static const float sizes[] = {1e-3f, 1, 30, 3e4f, 1e8f};
    float size = sizes[round % 5], most = -INFINITY;
    for (int i = 0; i < VOCAB; i++) {
      seed = seed * 1664525u + 1013904223u;
      x[i] = ((float)(seed >> 8) * 0x1p-23f - 1.0f) * size;
      most = x[i] > most ? x[i] : most;
    }
    for (int near = 0; near < round % 4; near++) { /* rivals of the largest */
      seed = seed * 1664525u + 1013904223u;
      float apart = (float)(seed >> 24) * (near ? 0x1p-26f : 0.0f);
      x[(seed >> 4) % VOCAB] = most - apart;
    }
    memcpy(y, x, sizeof x);
    int32_t a, b;
    assert_int_equal(sampler_next(whole, x, NULL, 0, &a, NULL), TERN_OK);
    assert_int_equal(sampler_next(alone, y, NULL, 0, &b, NULL), TERN_OK);
    if (a != b)
      fail_msg("round %d: %d with log-probabilities, %d without", round, a, b);
  }
  y[3] = NAN;
  int32_t token;
  assert_int_equal(sampler_next(alone, y, NULL, 0, &token, NULL), TERN_E_FORMAT);
  sampler_close(whole);
  sampler_close(alone);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_choice_alone),
      cmocka_unit_test(same_as_the_reference),
      cmocka_unit_test(refusals),
      cmocka_unit_test(bad_logits_and_histories),
      cmocka_unit_test(filtered_to_nothing),
      cmocka_unit_test(keys_carry_on),
      cmocka_unit_test(draws_are_complete),
      cmocka_unit_test(most_likely),
      cmocka_unit_test(loops_agree),
      cmocka_unit_test(orders),
      cmocka_unit_test(no_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
