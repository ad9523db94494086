/* Proves that the cpu backend's products in numerics fast have the bits of their definition (ops/fast_ref): every
 * stored format, with the prepared layout and without, sizes that end within a part, a slice, a panel or a vector, odd
 * inputs, several matrices of different widths in one op, any number of tokens, every SIMD level, several numbers of
 * threads, and scratch that holds but a few tokens. */
#include "ops/fast_ref/fast.h"
#include "test_ops_cpu_weights.h"

enum { MOST_TOKENS = 37, LONG_TOKENS = 400 };
static const int token_counts[] = {1, 2, 3, 4, 5, 8, 13, MOST_TOKENS};
enum { TOKEN_COUNTS = sizeof token_counts / sizeof *token_counts };

typedef struct fast_bench {
  ops_context ref, cpu[SIMD_LEVELS][THREAD_COUNTS];
  pool *pools[THREAD_COUNTS];
  int cases;     /* counted by take_case */
  unsigned turn; /* of the numbers of threads */
} fast_bench;

static int open_fast(void **state)
{
  static fast_bench b;
  const ops_room room = {.tokens = LONG_TOKENS, .keys = 64, .dims = 64, .inputs = 14336};
  b.ref.backend = ops_fast_ref();
  if (b.ref.backend->reserve(&b.ref, &room, NULL) != TERN_OK)
    return -1;
  for (int i = 0; i < THREAD_COUNTS; i++) {
    if (pool_open(thread_counts[i], &b.pools[i], NULL) != TERN_OK)
      return -1;
    for (int l = 0; l < SIMD_LEVELS; l++) {
      ops_context *cx = &b.cpu[l][i];
      *cx = (ops_context){.backend = ops_cpu_fast((ops_simd)l), .workers = b.pools[i]};
      if (cx->backend && cx->backend->reserve(cx, &room, NULL) != TERN_OK)
        return -1;
    }
  }
  for (int l = 0; l < SIMD_LEVELS; l++)
    if (!ops_cpu_fast((ops_simd)l))
      print_message("skipped here: simd level %s\n", ops_simd_name((ops_simd)l));
  *state = &b;
  return 0;
}

static int close_fast(void **state)
{
  fast_bench *b = *state;
  for (int i = 0; i < THREAD_COUNTS; i++) {
    for (int l = 0; l < SIMD_LEVELS; l++)
      ops_context_clear(&b->cpu[l][i]);
    pool_close(b->pools[i]);
  }
  ops_context_clear(&b->ref);
  return 0;
}

/* ---- comparing ---- */

typedef struct trial {
  op_record record;
  float *expected[3], *y[3], *bias[3], *residual;
  int tokens;
  char what[160];
} trial;

static void run_level(trial *t, ops_context *cx, ops_simd level, int threads, const ops_step *step)
{
  struct op_linear *a = &t->record.linear;
  for (int i = 0; i < a->outputs; i++)
    memset(t->y[i], 0x55, (size_t)(step->tokens * a->w[i]->n) * sizeof(float));
  if (a->residual)
    memcpy(t->y[0], t->residual, (size_t)(step->tokens * a->w[0]->n) * sizeof(float));
  mem_forbid(true);
  cx->backend->run[OP_linear](cx, &t->record, step);
  mem_forbid(false);
  for (int i = 0; i < a->outputs; i++) {
    int64_t n = a->w[i]->n, at = first_difference(t->y[i], t->expected[i], (size_t)(step->tokens * n));
    if (at >= 0)
      fail_msg("%s, %s, %d threads, %d tokens: output %d, row %lld, column %lld: %a, expected %a", t->what,
               ops_simd_name(level), threads, step->tokens, i, (long long)(at / n), (long long)(at % n),
               (double)t->y[i][at], (double)t->expected[i][at]);
  }
}

/* `counts` numbers of tokens, at every level, with the numbers of threads that take_threads takes; prepared: the
 * baseline, which has no layout, is left out. */
static void run_all(fast_bench *b, trial *t, const int *counts, int n, bool prepared)
{
  for (int c = 0; c < n; c++) {
    ops_step step = {.tokens = counts[c]};
    const unsigned turn = b->turn++;
    for (int l = prepared; l < SIMD_LEVELS; l++)
      for (int i = 0; i < THREAD_COUNTS; i++)
        if (b->cpu[l][i].backend && take_threads(i, THREAD_COUNTS, turn + (unsigned)l))
          run_level(t, &b->cpu[l][i], (ops_simd)l, thread_counts[i], &step);
  }
}

/* Rows are independent, so the definition runs once over the most tokens. */
static void compare(fast_bench *b, uint64_t *seed, weight *w, int outputs, bool with_bias, bool with_residual,
                    const float *x, const int *counts, int n, const char *what)
{
  trial t = {.record = {.kind = OP_linear, .linear = {.x = x, .outputs = outputs}}, .tokens = counts[n - 1]};
  struct op_linear *a = &t.record.linear;
  snprintf(t.what, sizeof t.what, "%s", what);
  for (int i = 0; i < outputs; i++) {
    size_t size = (size_t)(t.tokens * w[i].w.n);
    a->w[i] = &w[i].w;
    a->y[i] = t.expected[i] = random_floats(seed, size, 0);
    t.y[i] = random_floats(seed, size, 0);
    if (with_bias)
      a->bias[i] = t.bias[i] = random_floats(seed, (size_t)w[i].w.n, 1);
  }
  if (with_residual)
    a->residual = t.residual = random_floats(seed, (size_t)(t.tokens * w[0].w.n), 3);
  ops_step step = {.tokens = t.tokens};
  b->ref.backend->run[OP_linear](&b->ref, &t.record, &step);
  for (int i = 0; i < outputs; i++)
    a->y[i] = t.y[i];
  if (with_residual)
    a->residual = t.y[0]; /* in place */
  run_all(b, &t, counts, n, false);
  bool any = false;
  ops_weight held[3];
  for (int i = 0; i < outputs; i++) {
    held[i] = w[i].w;
    pack(&w[i]);
    any |= w[i].packed != NULL;
    if (w[i].packed) {
      w[i].w.packed = w[i].packed;
      w[i].w.data = w[i].w.scales = w[i].w.biases = NULL;
    }
  }
  snprintf(t.what, sizeof t.what, "prepared %.140s", what);
  if (any)
    run_all(b, &t, counts, n, true);
  for (int i = 0; i < outputs; i++) {
    free(w[i].packed);
    w[i].packed = NULL;
    w[i].w = held[i];
    free(t.expected[i]);
    free(t.y[i]);
    free(t.bias[i]);
  }
  free(t.residual);
}

static void compare_format(fast_bench *b, const format *f, int64_t n, int64_t k)
{
  if (f->quant == Q_AFFINE && !take_case(&b->cases, 5, 5)) /* the other formats are few */
    return;
  uint64_t seed = (uint64_t)(f->bits * 1000003 + f->group * 1009 + (int)f->stored * 31 + (int)f->quant) + (uint64_t)k;
  char what[128];
  describe(f, n, k, what, sizeof what);
  weight w = random_weight(&seed, f, n, k);
  float *x = random_floats(&seed, (size_t)(MOST_TOKENS * k), 2);
  for (int64_t i = 0; i < MOST_TOKENS * k; i += 1013)
    x[i] *= 500; /* outliers */
  compare(b, &seed, &w, 1, n % 2, n % 3 == 0, x, token_counts, TOKEN_COUNTS, what);
  free(x);
  free_weight(&w);
}

/* ---- formats and sizes ---- */

static const int widths[] = {2, 3, 4, 5, 6, 8};
enum { WIDTHS = 6 };

static void test_affine(void **state)
{
  static const int groups[] = {32, 64, 128};
  for (int i = 0; i < WIDTHS; i++)
    for (int g = 0; g < 3; g++)
      for (int stored = DT_F32; stored <= DT_F16; stored++) {
        format f = {Q_AFFINE, widths[i], groups[g], (ops_dtype)stored};
        compare_format(*state, &f, 19, groups[g]);
        compare_format(*state, &f, 69, 576 / groups[g] * groups[g]);
        compare_format(*state, &f, 16, 896);
      }
}

/* Panels of the layout: whole ones, parts of one, several. */
static void test_panels(void **state)
{
  static const int rows[] = {1, 15, 16, 17, 33, 48, 63, 64, 65, 80, 128, 200, 1024 + 40};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int j = (int)i % 2; j < WIDTHS; j += 2) {
      format f = {Q_AFFINE, widths[j], i % 3 ? 64 : 32, (ops_dtype)(i % 3)};
      compare_format(*state, &f, rows[i], 128);
    }
}

/* Parts that are not whole, slices of 4 to 8 parts, several of them. */
static void test_long_rows(void **state)
{
  static const int inputs[] = {512, 1024, 1536 + 64, 4096, 4096 + 512, 14336};
  for (int j = 0; j < WIDTHS; j++)
    for (int i = 0; i < 6; i++) {
      format f = {Q_AFFINE, widths[j], 64, DT_BF16};
      compare_format(*state, &f, i < 5 ? 70 : 7, inputs[i]);
    }
}

static void test_floats(void **state)
{
  static const format formats[] = {{Q_NONE, 0, 0, DT_F32},   {Q_NONE, 0, 0, DT_BF16},  {Q_NONE, 0, 0, DT_F16},
                                   {Q_MXFP4, 4, 32, DT_F32}, {Q_MXFP8, 8, 32, DT_F32}, {Q_NVFP4, 4, 16, DT_F32},
                                   {Q_TERNARY, 2, 0, DT_F32}};
  for (int i = 0; i < 7; i++) {
    compare_format(*state, &formats[i], 3, 32);
    compare_format(*state, &formats[i], 69, 576);
    compare_format(*state, &formats[i], 40, 1536 + 64);
    compare_format(*state, &formats[i], 6, 4096 + 512);
  }
  for (int i = 0; i < 3; i++) {
    compare_format(*state, &formats[i], 5, 37);
    compare_format(*state, &formats[i], 35, 513);
    compare_format(*state, &formats[i], 17, 767);
  }
}

/* ---- several matrices, odd inputs, many tokens ---- */

static void test_three(void **state)
{
  static const format formats[][3] = {
      {{Q_AFFINE, 4, 64, DT_BF16}, {Q_AFFINE, 8, 64, DT_BF16}, {Q_AFFINE, 6, 32, DT_F16}},
      {{Q_AFFINE, 5, 64, DT_BF16}, {Q_AFFINE, 3, 64, DT_BF16}, {Q_AFFINE, 2, 64, DT_F32}},
      {{Q_NONE, 0, 0, DT_BF16}, {Q_AFFINE, 4, 32, DT_F16}, {Q_TERNARY, 2, 0, DT_F32}},
      {{Q_TERNARY, 2, 0, DT_F32}, {Q_MXFP4, 4, 32, DT_F32}, {Q_AFFINE, 4, 128, DT_BF16}}};
  static const int rows[3] = {200, 64, 37};
  uint64_t seed = 5;
  for (int i = 0; i < 4; i++) {
    weight w[3];
    for (int j = 0; j < 3; j++)
      w[j] = random_weight(&seed, &formats[i][j], rows[(i + j) % 3], 640);
    float *x = random_floats(&seed, MOST_TOKENS * 640, 2);
    compare(*state, &seed, w, 3, i % 2, i < 2, x, token_counts, TOKEN_COUNTS, "three matrices");
    free(x);
    for (int j = 0; j < 3; j++)
      free_weight(&w[j]);
  }
}

/* Parts of zeros, of subnormals, with outliers up to the largest float, with infinities and NaN. */
static void odd_inputs(uint64_t *seed, float *x, int64_t k)
{
  for (int t = 0; t < MOST_TOKENS; t++) {
    float *row = x + t * k;
    for (int64_t i = 0; i < k; i++)
      row[i] = t % 6 == 0 ? 0.0f * row[i] : t % 6 == 1 ? row[i] * 1e-38f : t % 6 == 2 ? row[i] * 0x1p-100f : row[i];
    if (t % 6 == 3)
      sprinkle(seed, row, (size_t)k, false);
    if (t % 6 == 4)
      sprinkle(seed, row, (size_t)(k < 512 ? k : 512), true);
  }
}

static void test_odd_inputs(void **state)
{
  static const format formats[] = {{Q_AFFINE, 4, 64, DT_BF16}, {Q_AFFINE, 8, 32, DT_F32}, {Q_AFFINE, 3, 64, DT_F16},
                                   {Q_NONE, 0, 0, DT_F16},     {Q_MXFP4, 4, 32, DT_F32},  {Q_NVFP4, 4, 16, DT_F32}};
  uint64_t seed = 23;
  for (int i = 0; i < 6; i++) {
    weight w = random_weight(&seed, &formats[i], 70, 1088);
    float *x = random_floats(&seed, MOST_TOKENS * 1088, 1);
    odd_inputs(&seed, x, 1088);
    compare(*state, &seed, &w, 1, true, true, x, token_counts, TOKEN_COUNTS, "odd inputs");
    free(x);
    free_weight(&w);
  }
}

/* The largest codes everywhere: sums come as near to 2^31 as they can. Scales of every bit pattern. */
static void test_extremes(void **state)
{
  uint64_t seed = 29;
  for (int j = 0; j < WIDTHS; j++) {
    format f = {Q_AFFINE, widths[j], 128, j % 2 ? DT_F32 : DT_F16};
    weight w = random_weight(&seed, &f, 70, 640);
    memset((uint8_t *)w.w.data, 255, (size_t)(70 * 640 * f.bits / 8));
    for (int i = 0; i < 70 * 5 * (f.stored == DT_F32 ? 4 : 2); i++) {
      ((uint8_t *)w.w.scales)[i] = (uint8_t)next_random(&seed);
      ((uint8_t *)w.w.biases)[i] = (uint8_t)next_random(&seed);
    }
    float *x = random_floats(&seed, MOST_TOKENS * 640, 1);
    for (int i = 0; i < MOST_TOKENS * 640; i++)
      x[i] = i / 640 % 3 == 0 ? 3.0f : i / 640 % 3 == 1 ? -3.0f : x[i];
    compare(*state, &seed, &w, 1, false, false, x, token_counts, TOKEN_COUNTS, "extremes");
    free(x);
    free_weight(&w);
  }
}

/* More tokens than sums wait side by side, and than scratch holds at once. */
static void test_many_tokens(void **state)
{
  static const int counts[] = {150, 193, LONG_TOKENS};
  static const format formats[] = {{Q_AFFINE, 4, 64, DT_BF16}, {Q_NONE, 0, 0, DT_BF16}};
  fast_bench *b = *state;
  uint64_t seed = 31;
  for (int i = 0; i < 4; i++) {
    weight w = random_weight(&seed, &formats[i / 2], 70, 576);
    float *x = random_floats(&seed, LONG_TOKENS * 576, 1);
    size_t whole[SIMD_LEVELS][THREAD_COUNTS];
    for (int l = 0; l < SIMD_LEVELS; l++)
      for (int j = 0; j < THREAD_COUNTS; j++) {
        whole[l][j] = b->cpu[l][j].scratch_bytes;
        b->cpu[l][j].scratch_bytes = i % 2 ? whole[l][j] : 20000; /* some nine tokens */
      }
    compare(b, &seed, &w, 1, true, true, x, counts, 3, "many tokens");
    for (int l = 0; l < SIMD_LEVELS; l++)
      for (int j = 0; j < THREAD_COUNTS; j++)
        b->cpu[l][j].scratch_bytes = whole[l][j];
    free(x);
    free_weight(&w);
  }
}

/* Three matrices in a row, one of them as mapped: each worker is told the place in them where its share begins. */
static void test_expectation(void **state)
{
  fast_bench *b = *state;
  uint64_t seed = 9;
  const format f = {Q_AFFINE, 4, 64, DT_F16}, dense = {.stored = DT_BF16};
  weight w[3] = {random_weight(&seed, &f, 512, 256), random_weight(&seed, &dense, 40, 256),
                 random_weight(&seed, &f, 4096, 256)};
  op_record r = {.kind = OP_linear, .linear = {.outputs = 3}};
  const uint8_t *start[3];
  size_t bytes[3] = {0, 40 * 256 * 2, 0}, all = 0;
  const ops_layout *layout = ops_cpu(ops_simd_best())->layout;
  for (int i = 0; i < 3; i++) {
    r.linear.w[i] = &w[i].w;
    if (i != 1)
      pack(&w[i]);
    w[i].w.packed = w[i].packed;
    if (!bytes[i])
      bytes[i] = w[i].packed ? layout->bytes(&w[i].w) : (size_t)(w[i].w.n * 256 / 2);
    start[i] = w[i].packed ? w[i].packed : w[i].w.data;
    all += bytes[i];
  }
  for (int j = 0; j < THREAD_COUNTS; j++) {
    ops_context *cx = &b->cpu[ops_simd_best()][j];
    cx->backend->expect(cx, &r);
    for (int worker = 0; worker < thread_counts[j]; worker++) {
      size_t count, offset = 0;
      const uint8_t *told = pool_expected(b->pools[j], worker, &count);
      int i = 0;
      for (; i < 3 && !(told >= start[i] && told < start[i] + bytes[i]); i++)
        offset += bytes[i];
      assert_in_range(i, 0, 2);
      offset += (size_t)(told - start[i]);
      assert_in_range(all * (size_t)worker / (size_t)thread_counts[j] - offset, 0, 63);
      assert_in_range(count, 1, bytes[i] - (size_t)(told - start[i]));
    }
  }
  for (int i = 0; i < 3; i++) {
    free(w[i].packed);
    free_weight(&w[i]);
  }
}

static void test_levels(void **state)
{
  (void)state;
  for (int l = 0; l < SIMD_LEVELS; l++) {
    const ops_backend *b = ops_cpu_fast((ops_simd)l);
    assert_int_equal(b != NULL, ops_simd_has((ops_simd)l));
    for (int i = 0; b && i < OP_COUNT; i++)
      assert_non_null(b->run[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_expectation), cmocka_unit_test(test_levels),     cmocka_unit_test(test_affine),
      cmocka_unit_test(test_panels),      cmocka_unit_test(test_long_rows),  cmocka_unit_test(test_floats),
      cmocka_unit_test(test_three),       cmocka_unit_test(test_odd_inputs), cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_many_tokens),
  };
  return cmocka_run_group_tests(tests, open_fast, close_fast);
}
