/* Proves that the cpu backend's value-wise ops have the reference's bits: ordinary numbers, and zeros, subnormals,
 * infinities and NaN among them, at every SIMD level and several numbers of threads; then each formula over the whole
 * range of float32, sampled, or with TERN_EXHAUSTIVE set in the environment for every bit pattern. */
#include "test_ops_cpu_trial.h"

/* Every form of a value-wise op that has a kernel, and some parameters. */
typedef struct form {
  const char *name;
  op_kind kind;
  ops_act act;
  float p[4]; /* params, limit, factor or cap */
  bool divide;
} form;

static const form forms[] = {
    {"silu alone", OP_act, ACT_SILU, {0}, false},
    {"gelu_tanh alone", OP_act, ACT_GELU_TANH, {0}, false},
    {"gelu alone", OP_act, ACT_GELU, {0}, false},
    {"relu alone", OP_act, ACT_RELU, {0}, false},
    {"relu2 alone", OP_act, ACT_RELU2, {0}, false},
    {"xielu", OP_act, ACT_XIELU, {0.75f, 1.3f, 0.5f, -1e-6f}, false},
    {"xielu, every expm1", OP_act, ACT_XIELU, {0, 1, 0, INFINITY}, false},
    {"silu", OP_glu, ACT_SILU, {0}, false},
    {"gelu_tanh", OP_glu, ACT_GELU_TANH, {0}, false},
    {"gelu", OP_glu, ACT_GELU, {0}, false},
    {"relu", OP_glu, ACT_RELU, {0}, false},
    {"relu2", OP_glu, ACT_RELU2, {0}, false},
    {"gegelu", OP_glu, ACT_GEGELU, {20}, false},
    {"gegelu, narrow", OP_glu, ACT_GEGELU, {0.5f}, false},
    {"scale", OP_scale, ACT_SILU, {0.088388346f}, false},
    {"divide", OP_scale, ACT_SILU, {3.3f}, true},
    {"softcap", OP_softcap, ACT_SILU, {30}, false},
    {"tanh", OP_softcap, ACT_SILU, {1}, false},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* y = form(y, up) over tokens of `width`. */
static op_record record_of(const form *f, float *y, const float *up, int width)
{
  op_record r = {.kind = f->kind};
  switch (f->kind) {
  case OP_act:
    r.act = (struct op_act){.x = y, .y = y, .width = width, .act = f->act};
    memcpy(r.act.params, f->p, sizeof f->p);
    break;
  case OP_glu:
    r.glu = (struct op_glu){.gate = y, .up = up, .y = y, .width = width, .act = f->act, .limit = f->p[0]};
    break;
  case OP_scale:
    r.scale = (struct op_scale){.x = y, .y = y, .width = width, .factor = f->p[0], .divide = f->divide};
    break;
  default:
    r.softcap = (struct op_softcap){.x = y, .y = y, .width = width, .cap = f->p[0]};
  }
  return r;
}

static void test_forms(void **state)
{
  static const int tokens[] = {1, 3, 40}, widths[] = {1, 37, 64, 1000};
  uint64_t seed = 3;
  for (int f = 0; f < FORMS; f++)
    for (int i = 0; i < 3; i++)
      for (int w = 0; w < 4; w++)
        for (int odd = 0; odd < 3; odd++) {
          size_t n = (size_t)(tokens[i] * widths[w]);
          trial t = open_trial(&seed, forms[f].name, n, odd ? 30 : 4, odd);
          float *up = random_floats(&seed, n, odd ? 30 : 2);
          if (odd)
            sprinkle(&seed, up, n, odd > 1);
          op_record r = record_of(&forms[f], t.y, up, widths[w]);
          ops_step step = {.tokens = tokens[i]};
          compare(*state, &r, &step, &t);
          free(up);
          close_trial(&t);
        }
}

/* `n` bit patterns from `first` on, `stride` apart, sorted by magnitude, so that most vectors hold ordinary numbers
 * only; signs alternate. */
static void fill_patterns(float *x, uint32_t n, uint64_t first, uint64_t stride)
{
  for (uint32_t i = 0; i < n; i++) {
    uint64_t at = first + i;
    x[i] = f32_from_bits((uint32_t)(at * stride / 2) | (uint32_t)(at & 1) << 31);
  }
}

/* Each formula over the whole range of float32: every 9973rd bit pattern, or all of them. */
static void test_forms_sampled(void **state)
{
  const char *exhaustive = getenv("TERN_EXHAUSTIVE");
  bench *b = *state, one_thread = {.ref = b->ref};
  for (int l = 0; l < SIMD_LEVELS; l++)
    one_thread.cpu[l][0] = b->cpu[l][0];
  enum { N = 430000, PIECE = 1 << 22 };
  uint64_t seed = 4;
  for (int f = 0; f < FORMS; f++) {
    bool all = exhaustive && (!strcmp(exhaustive, "1") || !strcmp(exhaustive, forms[f].name));
    size_t n = all ? PIECE : N;
    trial t = open_trial(&seed, forms[f].name, n, 1, 0);
    float *up = malloc(n * sizeof *up);
    assert_non_null(up);
    for (size_t i = 0; i < n; i++)
      up[i] = 1;
    op_record r = record_of(&forms[f], t.y, up, (int)n);
    ops_step step = {.tokens = 1};
    for (uint64_t first = 0; first < (all ? UINT64_C(1) << 32 : 1); first += n) {
      fill_patterns(t.start, (uint32_t)n, first, all ? 1 : 9973);
      compare(all ? &one_thread : b, &r, &step, &t);
    }
    if (all)
      print_message("%s: all float32\n", forms[f].name);
    free(up);
    close_trial(&t);
  }
}

static void test_add(void **state)
{
  static const int tokens[] = {1, 3, 700};
  uint64_t seed = 5;
  for (int i = 0; i < 3; i++)
    for (int clip = 0; clip < 2; clip++) {
      size_t n = (size_t)tokens[i] * 67;
      trial t = open_trial(&seed, "add", n, 2, i);
      float *x = random_floats(&seed, n, 2);
      op_record r = {.kind = OP_add, .add = {.x = x, .y = t.y, .width = 67, .clip = clip ? 1.5f : 0}};
      ops_step step = {.tokens = tokens[i]};
      compare(*state, &r, &step, &t);
      free(x);
      close_trial(&t);
    }
}

/* Records of half types are the reference's, whichever backend they are given to. */
static void test_half_types(void **state)
{
  uint64_t seed = 6;
  for (int f = 0; f < FORMS; f++)
    for (int type = DT_BF16; type <= DT_F16; type++) {
      trial t = open_trial(&seed, forms[f].name, 3 * 70, 4, 2);
      float *up = random_floats(&seed, t.n, 2);
      op_record r = record_of(&forms[f], t.y, up, 70);
      ops_dtype *const types[OP_COUNT] = {
          [OP_act] = &r.act.type, [OP_glu] = &r.glu.type, [OP_scale] = &r.scale.type, [OP_softcap] = &r.softcap.type};
      *types[r.kind] = (ops_dtype)type;
      ops_step step = {.tokens = 3};
      compare(*state, &r, &step, &t);
      free(up);
      close_trial(&t);
    }
}

static void test_temperature(void **state)
{
  static const int widths[] = {1, 33, 512};
  const ops_row rows[] = {{.first = 0, .count = 1, .position = 0},
                          {.first = 1, .count = 40, .position = 8170},
                          {.first = 41, .count = 28, .position = 1000000}};
  uint64_t seed = 7;
  for (int w = 0; w < 3; w++)
    for (int factor_type = DT_F32; factor_type <= DT_F16; factor_type++) {
      trial t = open_trial(&seed, "temperature", (size_t)(69 * widths[w]), 2, w);
      op_record r = {.kind = OP_temperature, .temperature = {.q = t.y, .width = widths[w], .span = 8192, .beta = 0.1f}};
      r.temperature.factor_type = (ops_dtype)factor_type;
      ops_step step = {.tokens = 69, .rows = 3, .row = rows};
      compare(*state, &r, &step, &t);
      close_trial(&t);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_forms),      cmocka_unit_test(test_forms_sampled), cmocka_unit_test(test_add),
      cmocka_unit_test(test_half_types), cmocka_unit_test(test_temperature),
  };
  return cmocka_run_group_tests(tests, open_bench, close_bench);
}
