/* Proves that the cpu backend's matrix products have the reference's bits: every stored format, group and scale type,
 * odd sizes, unaligned weights, any number of tokens, every SIMD level, several numbers of threads. */
#include "test_ops_cpu_weights.h"

enum { MOST_TOKENS = 200 };
static const int token_counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,         12,
                                   13, 14, 15, 16, 17, 23, 24, 25, 64, 97, MOST_TOKENS};

/* ---- comparing ---- */

typedef struct products {
  op_record record;
  float *expected[3], *y[3];
  int64_t n[3];
  int tokens;
  const float *residual; /* restored to y[0] before each run: the sum is in place */
  char what[128];
} products;

static void restore(void *user, const char *what)
{
  (void)what;
  products *p = user;
  for (int i = 0; i < p->record.linear.outputs; i++)
    memset(p->y[i], 0x55, (size_t)(p->tokens * p->n[i]) * sizeof(float));
  if (p->residual)
    memcpy(p->y[0], p->residual, (size_t)(p->tokens * p->n[0]) * sizeof(float));
}

static void check(void *user, const char *what)
{
  products *p = user;
  for (int i = 0; i < p->record.linear.outputs; i++) {
    int64_t at = first_difference(p->y[i], p->expected[i], (size_t)(p->tokens * p->n[i]));
    if (at >= 0)
      fail_msg("%s, %s, %d tokens: output %d, row %lld, column %lld: %a, expected %a", p->what, what, p->tokens, i,
               (long long)(at / p->n[i]), (long long)(at % p->n[i]), (double)p->y[i][at], (double)p->expected[i][at]);
  }
}

/* The same sums from the prepared layout, the rows of the mapping out of reach. The baseline has no kernels for it. */
static void compare_packed(bench *b, products *p, ops_step *step, weight *weights, int outputs)
{
  ops_weight held[3];
  bool any = false;
  for (int i = 0; i < outputs; i++) {
    held[i] = weights[i].w;
    pack(&weights[i]);
    any |= weights[i].packed != NULL;
    if (weights[i].packed) {
      weights[i].w.packed = weights[i].packed;
      weights[i].w.data = weights[i].w.scales = weights[i].w.biases = NULL;
    }
  }
  char what[sizeof p->what];
  memcpy(what, p->what, sizeof what);
  snprintf(p->what, sizeof p->what, "prepared %.100s", what);
  for (int i = 0; i < THREAD_COUNTS; i++)
    b->cpu[SIMD_BASELINE][i].backend = NULL;
  for (size_t t = 0; any && t < sizeof token_counts / sizeof *token_counts; t++) {
    step->tokens = p->tokens = token_counts[t];
    run_everywhere(b, &p->record, step, restore, check, p);
  }
  for (int i = 0; i < THREAD_COUNTS; i++)
    b->cpu[SIMD_BASELINE][i].backend = ops_cpu(SIMD_BASELINE);
  for (int i = 0; i < outputs; i++) {
    free(weights[i].packed);
    weights[i].packed = NULL;
    weights[i].w = held[i];
  }
}

/* One input, `outputs` weights; the first adds to a residual if asked. Rows are independent, so the reference runs once
 * over the most tokens and every smaller run is compared with its first rows. */
static void compare(bench *b, uint64_t *seed, weight *weights, int outputs, bool with_bias, bool with_residual,
                    const float *x, const char *what)
{
  products p = {.record = {.kind = OP_linear}};
  struct op_linear *a = &p.record.linear;
  float *bias[3] = {0}, *residual = NULL;
  snprintf(p.what, sizeof p.what, "%s", what);
  a->x = x;
  a->outputs = outputs;
  for (int i = 0; i < outputs; i++) {
    size_t size = (size_t)(MOST_TOKENS * weights[i].w.n);
    a->w[i] = &weights[i].w;
    p.n[i] = weights[i].w.n;
    p.expected[i] = random_floats(seed, size, 0);
    p.y[i] = random_floats(seed, size, 0);
    a->y[i] = p.expected[i];
    if (with_bias)
      a->bias[i] = bias[i] = random_floats(seed, (size_t)p.n[i], 1);
  }
  if (with_residual) {
    residual = random_floats(seed, (size_t)(MOST_TOKENS * p.n[0]), 3);
    memcpy(p.expected[0], residual, (size_t)(MOST_TOKENS * p.n[0]) * sizeof(float));
    a->residual = p.expected[0];
    p.residual = residual;
  }
  ops_step step = {.tokens = MOST_TOKENS};
  run_ref(b, &p.record, &step);
  for (int i = 0; i < outputs; i++)
    a->y[i] = p.y[i];
  if (with_residual)
    a->residual = p.y[0];
  for (size_t t = 0; t < sizeof token_counts / sizeof *token_counts; t++) {
    step.tokens = p.tokens = token_counts[t];
    run_everywhere(b, &p.record, &step, restore, check, &p);
  }
  compare_packed(b, &p, &step, weights, outputs);
  for (int i = 0; i < outputs; i++) {
    free(p.expected[i]);
    free(p.y[i]);
    free(bias[i]);
  }
  free(residual);
}

static void compare_format(bench *b, const format *f, int64_t n, int64_t k)
{
  uint64_t seed = (uint64_t)(f->bits * 1000003 + f->group * 1009 + (int)f->stored * 31 + (int)f->quant) + (uint64_t)k;
  char what[128];
  describe(f, n, k, what, sizeof what);
  weight w = random_weight(&seed, f, n, k);
  float *x = random_floats(&seed, (size_t)(MOST_TOKENS * k), 2);
  compare(b, &seed, &w, 1, n % 2, n % 3 == 0, x, what);
  free(x);
  free_weight(&w);
}

/* ---- the formats ---- */

static void test_affine(void **state)
{
  static const int bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
  bench *b = *state;
  for (int i = 0; i < 6; i++)
    for (int g = 0; g < 3; g++)
      for (int stored = DT_F32; stored <= DT_F16; stored++) {
        format f = {Q_AFFINE, bits[i], groups[g], (ops_dtype)stored};
        if (!take_case(&b->cases, 5, 5))
          continue;
        compare_format(b, &f, 19, groups[g]);
        compare_format(b, &f, 69, 352 / groups[g] * groups[g]);
      }
}

/* Panels of the prepared layout: whole ones, parts of one, several; shares that begin within one. */
static void test_affine_panels(void **state)
{
  static const int rows[] = {1, 15, 16, 17, 33, 48, 63, 64, 65, 80, 128, 200, 1024 + 40};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int bits = 3; bits <= 8; bits += i % 2 ? 1 : 5) {
      format f = {Q_AFFINE, bits == 7 ? 2 : bits, i % 3 ? 64 : 32, (ops_dtype)(i % 3)};
      compare_format(*state, &f, rows[i], 128);
    }
}

/* Long rows: more groups than one panel of scales, and sizes of the models that must be fast. */
static void test_affine_long(void **state)
{
  static const format formats[] = {{Q_AFFINE, 4, 32, DT_F16}, {Q_AFFINE, 4, 64, DT_BF16}, {Q_AFFINE, 4, 128, DT_BF16},
                                   {Q_AFFINE, 4, 64, DT_F32}, {Q_AFFINE, 8, 64, DT_BF16}, {Q_AFFINE, 3, 64, DT_F16}};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    compare_format(*state, &formats[i], 5, 32 * 37 * (formats[i].group / 32));
}

static void test_fp(void **state)
{
  static const format formats[] = {{Q_MXFP4, 4, 32, DT_F32}, {Q_MXFP8, 8, 32, DT_F32}, {Q_NVFP4, 4, 16, DT_F32}};
  for (int i = 0; i < 3; i++) {
    compare_format(*state, &formats[i], 3, formats[i].group);
    compare_format(*state, &formats[i], 69, formats[i].group * 11);
    compare_format(*state, &formats[i], 16, formats[i].group * 35);
  }
}

static void test_dense(void **state)
{
  for (int stored = DT_F32; stored <= DT_F16; stored++) {
    format f = {Q_NONE, 0, 0, (ops_dtype)stored};
    compare_format(*state, &f, 1, 1);
    compare_format(*state, &f, 69, 37);
    compare_format(*state, &f, 33, 555);
  }
}

/* A matrix that a release stores the other way around: its sums start at the bias. */
static void test_turned(void **state)
{
  uint64_t seed = 77;
  static const int sizes[][2] = {{1, 1}, {69, 37}, {33, 555}, {64, 64}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int stored = DT_F32; stored <= DT_F16; stored++)
      for (int residual = 0; residual < 2; residual++) {
        format f = {Q_NONE, 0, 0, (ops_dtype)stored};
        weight w = random_weight(&seed, &f, sizes[i][0], sizes[i][1]);
        float *x = random_floats(&seed, (size_t)(MOST_TOKENS * sizes[i][1]), 2);
        w.w.turned = true;
        compare(*state, &seed, &w, 1, true, residual, x, "turned");
        free(x);
        free_weight(&w);
      }
}

/* Four outputs a byte: sizes that leave bit pairs of the last rows unused, rows shorter and longer than a vector. */
static void test_ternary(void **state)
{
  static const int sizes[][2] = {{1, 1},   {2, 64},   {3, 7},     {5, 300},   {64, 64}, {65, 63},
                                 {69, 37}, {130, 65}, {261, 520}, {512, 256}, {127, 1}, {320, 129}};
  const format f = {Q_TERNARY, 2, 0, DT_F32};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    compare_format(*state, &f, sizes[i][0], sizes[i][1]);
}

/* Three outputs of different formats and sizes share one input, with and without bias and residual. */
static void test_several_outputs(void **state)
{
  static const format formats[][3] = {{{Q_AFFINE, 4, 64, DT_BF16}, {Q_NONE, 0, 0, DT_BF16}, {Q_AFFINE, 6, 32, DT_F16}},
                                      {{Q_TERNARY, 2, 0, DT_F32}, {Q_TERNARY, 2, 0, DT_F32}, {Q_NONE, 0, 0, DT_F32}}};
  static const int64_t sizes[] = {130, 33, 5};
  uint64_t seed = 5;
  for (int f = 0; f < 2; f++) {
    weight w[3];
    for (int i = 0; i < 3; i++)
      w[i] = random_weight(&seed, &formats[f][i], sizes[i], 128);
    float *x = random_floats(&seed, MOST_TOKENS * 128, 1);
    for (int how = 0; how < 4; how++)
      compare(*state, &seed, w, 3, how & 1, how & 2, x, "three outputs");
    free(x);
    for (int i = 0; i < 3; i++)
      free_weight(&w[i]);
  }
}

/* Scales stored as float32 whose low bits are zero up to a point: those that allow a fused multiply-add, those that
 * just do not, and rows of both. */
static void test_round_scales(void **state)
{
  uint64_t seed = 17;
  for (int bits = 4; bits <= 8; bits++) {
    if (bits == 7)
      continue;
    for (int zeros = bits - 1; zeros <= bits + 1; zeros++) {
      format f = {Q_AFFINE, bits, 32, DT_F32};
      weight w = random_weight(&seed, &f, 150, 96);
      for (int i = 0; i < 150 * 3; i++) {
        uint32_t u;
        memcpy(&u, w.w.scales + 4 * i, 4);
        u = i % 100 == 99 ? u : u >> zeros << zeros;
        memcpy((uint8_t *)w.w.scales + 4 * i, &u, 4);
      }
      float *x = random_floats(&seed, MOST_TOKENS * 96, 1);
      compare(*state, &seed, &w, 1, false, false, x, "round scales");
      free(x);
      free_weight(&w);
    }
  }
}

/* Every value that a scale can have, the ones for which a fused multiply-add would differ included. */
static void test_odd_scales(void **state)
{
  uint64_t seed = 11;
  for (int stored = DT_F32; stored <= DT_F16; stored++) {
    for (int bits = 4; bits <= 8; bits += 4) {
      format f = {Q_AFFINE, bits, 32, (ops_dtype)stored};
      weight w = random_weight(&seed, &f, 96, 64);
      for (size_t i = 0; i < (size_t)(96 * 2) * (stored == DT_F32 ? 4 : 2); i++) {
        ((uint8_t *)w.w.scales)[i] = (uint8_t)next_random(&seed);
        ((uint8_t *)w.w.biases)[i] = (uint8_t)next_random(&seed);
      }
      /* In row 0 every code is 2, and 2e38 * 2 overflows before -2e38 is added; a fused form would give 2e38. */
      memset((uint8_t *)w.w.data, bits == 4 ? 0x22 : 2, (size_t)(64 * bits / 8));
      for (int g = 0; g < 2; g++) {
        store_value(f.stored, (uint8_t *)w.w.scales, g, g ? 0.01f : 2e38f);
        store_value(f.stored, (uint8_t *)w.w.biases, g, g ? 0.5f : -2e38f);
      }
      float *x = random_floats(&seed, MOST_TOKENS * 64, 1);
      compare(*state, &seed, &w, 1, false, false, x, "odd scales");
      free(x);
      free_weight(&w);
    }
  }
}

/* Inputs with zeros of both signs, subnormals, infinities and NaN. */
static void test_odd_inputs(void **state)
{
  static const format formats[] = {
      {Q_AFFINE, 4, 64, DT_BF16}, {Q_NONE, 0, 0, DT_F16}, {Q_MXFP4, 4, 32, DT_F32}, {Q_TERNARY, 2, 0, DT_F32}};
  uint64_t seed = 23;
  for (int i = 0; i < 4; i++) {
    weight w = random_weight(&seed, &formats[i], 40, 64);
    float *x = random_floats(&seed, MOST_TOKENS * 64, 1);
    sprinkle(&seed, x, MOST_TOKENS / 2 * 64, false);
    for (int t = MOST_TOKENS / 2; t < MOST_TOKENS; t += 3)
      sprinkle(&seed, x + t * 64, 64, true);
    compare(*state, &seed, &w, 1, true, true, x, "odd inputs");
    free(x);
    free_weight(&w);
  }
}

static void test_levels(void **state)
{
  (void)state;
  assert_non_null(ops_cpu(SIMD_BASELINE));
  assert_non_null(ops_cpu(ops_simd_best()));
  assert_string_equal(ops_simd_name(SIMD_BASELINE), "baseline");
  assert_string_equal(ops_simd_name(SIMD_AVX2), "avx2");
  assert_string_equal(ops_simd_name(SIMD_AVX512), "avx512");
  for (int l = 0; l < SIMD_LEVELS; l++) {
    const ops_backend *b = ops_cpu((ops_simd)l);
    assert_int_equal(b != NULL, ops_simd_has((ops_simd)l));
    for (int i = 0; b && i < OP_COUNT; i++)
      assert_non_null(b->run[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_levels),        cmocka_unit_test(test_affine),       cmocka_unit_test(test_affine_long),
      cmocka_unit_test(test_affine_panels), cmocka_unit_test(test_fp),           cmocka_unit_test(test_dense),
      cmocka_unit_test(test_turned),        cmocka_unit_test(test_ternary),      cmocka_unit_test(test_several_outputs),
      cmocka_unit_test(test_odd_scales),    cmocka_unit_test(test_round_scales), cmocka_unit_test(test_odd_inputs),
  };
  return cmocka_run_group_tests(tests, open_bench, close_bench);
}
