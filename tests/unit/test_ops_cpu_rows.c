/* Proves that the cpu backend's row-wise ops have the reference's bits, with ordinary numbers and with zeros,
 * subnormals, infinities and NaN among them, at every SIMD level and several numbers of threads. */
#include "test_ops_cpu.h"
#include "test_ops_cpu_trial.h"

static void test_rms_norm(void **state)
{
  static const int tokens[] = {1, 2, 7, 16, 33, 300}, counts[] = {1, 3, 14}, widths[] = {1, 15, 64, 67, 896};
  uint64_t seed = 1;
  for (int i = 0; i < 6; i++)
    for (int c = 0; c < 3; c++)
      for (int w = 0; w < 5; w++) {
        int stride = counts[c] * widths[w];
        trial t = open_trial(&seed, "rms_norm", (size_t)(tokens[i] * stride), 3, i % 3);
        float *weight = random_floats(&seed, (size_t)widths[w], 2);
        op_record r = {.kind = OP_rms_norm,
                       .rms_norm = {.x = t.y, .y = t.y, .w = c == 1 ? NULL : weight, .count = counts[c]}};
        r.rms_norm.width = widths[w];
        r.rms_norm.x_stride = r.rms_norm.y_stride = stride;
        r.rms_norm.eps = 1e-6f;
        ops_step step = {.tokens = tokens[i]};
        compare(*state, &r, &step, &t);
        free(weight);
        close_trial(&t);
      }
}

/* A part of each token's values, from one buffer to another. */
static void test_rms_norm_strided(void **state)
{
  uint64_t seed = 2;
  trial t = open_trial(&seed, "rms_norm, strided", 20 * 70, 1, 0);
  float *x = random_floats(&seed, 20 * 100, 1);
  op_record r = {.kind = OP_rms_norm, .rms_norm = {.x = x + 3, .y = t.y + 1, .count = 2, .width = 33, .eps = 1e-5f}};
  r.rms_norm.x_stride = 100;
  r.rms_norm.y_stride = 70;
  ops_step step = {.tokens = 20};
  compare(*state, &r, &step, &t);
  free(x);
  close_trial(&t);
}

/* Weights of each group, of all, or none; a bias or none; one row, few, many; in place and strided. */
static void test_layer_norm(void **state)
{
  static const int tokens[] = {1, 2, 7, 33, 300}, counts[] = {1, 3, 14}, widths[] = {1, 15, 64, 67, 896};
  uint64_t seed = 3;
  for (int i = 0; i < 5; i++)
    for (int c = 0; c < 3; c++)
      for (int w = 0; w < 5; w++)
        for (int how = 0; how < 6; how++) {
          int stride = counts[c] * widths[w];
          trial t = open_trial(&seed, "layer_norm", (size_t)(tokens[i] * stride), 3, (i + how) % 3);
          float *weight = random_floats(&seed, (size_t)stride, 2), *bias = random_floats(&seed, (size_t)widths[w], 2);
          op_record r = {.kind = OP_layer_norm,
                         .layer_norm = {.x = t.y, .y = t.y, .w = how % 3 ? weight : NULL, .own = how % 3 == 2}};
          r.layer_norm.b = how < 3 ? bias : NULL;
          r.layer_norm.count = counts[c];
          r.layer_norm.width = widths[w];
          r.layer_norm.x_stride = r.layer_norm.y_stride = stride;
          r.layer_norm.eps = 1e-5f;
          ops_step step = {.tokens = tokens[i]};
          compare(*state, &r, &step, &t);
          free(weight);
          free(bias);
          close_trial(&t);
        }
}

static void test_layer_norm_strided(void **state)
{
  uint64_t seed = 4;
  trial t = open_trial(&seed, "layer_norm, strided", 20 * 70, 1, 0);
  float *x = random_floats(&seed, 20 * 100, 1), *weight = random_floats(&seed, 66, 1);
  op_record r = {.kind = OP_layer_norm, .layer_norm = {.x = x + 3, .y = t.y + 1, .w = weight, .own = true}};
  r.layer_norm.count = 2;
  r.layer_norm.width = 33;
  r.layer_norm.eps = 1e-5f;
  r.layer_norm.x_stride = 100;
  r.layer_norm.y_stride = 70;
  ops_step step = {.tokens = 20};
  compare(*state, &r, &step, &t);
  r.layer_norm.normed = DT_BF16; /* the reference's */
  compare(*state, &r, &step, &t);
  free(weight);
  free(x);
  close_trial(&t);
}

/* ---- rope: queries and keys in one buffer ---- */

typedef struct rope_shape {
  int q_heads, k_heads, head_dim, dims;
  bool traditional;
  float mscale, position_scale;
  int ntk_from;
} rope_shape;

static void test_rope(void **state)
{
  static const rope_shape shapes[] = {
      {14, 2, 64, 64, false, 1, 1, 0},    {3, 1, 128, 128, false, 1.25f, 0.125f, 0},
      {2, 2, 80, 40, true, 1, 1, 0},      {1, 1, 6, 4, false, 0.5f, 1, 0},
      {4, 1, 33, 7, false, 2, 1, 0},      {5, 3, 256, 256, true, 1.5f, 1, 0},
      {2, 1, 72, 70, false, 1, 0.25f, 0}, {14, 2, 64, 64, false, 1, 1, 4020},
      {3, 3, 80, 40, true, 2, 0.5f, 10},  {9, 4, 33, 18, false, 1, 2, 100000},
  };
  uint64_t seed = 6;
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const rope_shape *s = &shapes[i];
    enum { TOKENS = 70 };
    size_t q = (size_t)(TOKENS * s->q_heads * s->head_dim), k = (size_t)(TOKENS * s->k_heads * s->head_dim);
    trial t = open_trial(&seed, "rope", q + k, 2, (int)i % 3);
    float inverse[128];
    for (int n = 0; n < s->dims / 2; n++)
      inverse[n] = n == 3 ? 0 : random_float(&seed, 1);
    op_record r = {.kind = OP_rope, .rope = {.q = t.y, .k = t.y + q, .q_heads = s->q_heads, .k_heads = s->k_heads}};
    r.rope.head_dim = s->head_dim;
    r.rope.dims = s->dims;
    r.rope.inverse = inverse;
    r.rope.position_scale = s->position_scale;
    r.rope.mscale = s->mscale;
    r.rope.traditional = s->traditional;
    r.rope.ntk_from = s->ntk_from;
    r.rope.ntk_base = 1e6;
    r.rope.ntk_scale = (double)s->position_scale;
    /* Rows of several sequences; the last one's angles leave the range of every integer. */
    const ops_row rows[] = {{.first = 0, .count = 1, .position = 0},
                            {.first = 1, .count = 40, .position = 4000, .kind = ROW_STEP},
                            {.first = 41, .count = 28, .position = 1000000},
                            {.first = 69, .count = 1, .position = INT64_C(1) << 62, .kind = ROW_STEP}};
    ops_step step = {.tokens = TOKENS, .rows = 4, .row = rows};
    compare(*state, &r, &step, &t);
    close_trial(&t);
  }
}

static int open_fast_bench(void **state)
{
  int failed = open_bench(state);
  bench *b = *state;
  b->ref.backend = ops_fast_ref();
  for (int l = 0; l < SIMD_LEVELS; l++)
    for (int i = 0; i < THREAD_COUNTS; i++)
      b->cpu[l][i].backend = ops_cpu_fast((ops_simd)l);
  return failed;
}

int main(void)
{
  const struct CMUnitTest norms[] = {
      cmocka_unit_test(test_rms_norm),
      cmocka_unit_test(test_rms_norm_strided),
      cmocka_unit_test(test_layer_norm),
      cmocka_unit_test(test_layer_norm_strided),
  };
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rms_norm),   cmocka_unit_test(test_rms_norm_strided),
      cmocka_unit_test(test_layer_norm), cmocka_unit_test(test_layer_norm_strided),
      cmocka_unit_test(test_rope),
  };
  int failed = cmocka_run_group_tests_name("numerics fast", norms, open_fast_bench, close_bench);
  return failed + cmocka_run_group_tests_name("numerics exact", tests, open_bench, close_bench);
}
