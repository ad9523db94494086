/* Random numbers against values that MLX 0.31.2 printed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/rng.h"

#define SEED_BIG ((UINT64_C(1) << 40) + 17)

static void seeds_and_implicit_draws(void **state)
{
  (void)state;
  static const struct {
    uint64_t seed;
    rng_key after_three; /* mx.random.state after three implicit draws */
  } cases[] = {{0, {0xc99cd92f, 0xe72ee74f}}, {5, {0x2fe3be4a, 0x32b639a7}}, {SEED_BIG, {0xfb039901, 0x901610ed}}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    rng_key key = rng_seed(cases[i].seed);
    assert_int_equal(key.a, cases[i].seed >> 32);
    for (int k = 0; k < 3; k++)
      rng_next(&key);
    assert_int_equal(key.a, cases[i].after_three.a);
    assert_int_equal(key.b, cases[i].after_three.b);
  }
}

static void splits(void **state)
{
  (void)state;
  static const rng_key of_five[3] = {{0xaf35d4c3, 0xb32f22ce}, {0xb518b7e8, 0xb7629606}, {0x10a6d3c6, 0x9605cecb}};
  for (size_t i = 0; i < 3; i++) {
    rng_key key = rng_split(rng_seed(5), 3, i);
    assert_int_equal(key.a, of_five[i].a);
    assert_int_equal(key.b, of_five[i].b);
  }
}

/* uniform(shape=(n,)) eager and compiled, and gumbel compiled, as bits. */
static const struct row {
  uint64_t seed;
  size_t n;
  uint32_t eager[8], compiled[8], gumbel[8];
} rows[] = {
    {0, 1, {0x3ed64003}, {0x3ed64004}, {0x3e0d372c}},
    {5, 2, {0x3d412eec, 0x3f67ac33}, {0x3d412eed, 0x3f67ac34}, {0xbf8ee944, 0x401375d3}},
    {SEED_BIG,
     5,
     {0x3f1ee2b4, 0x3e392389, 0x3f37a08f, 0x3e9190b6, 0x3f5c239f},
     {0x3f1ee2b5, 0x3e39238a, 0x3f37a090, 0x3e9190b7, 0x3f5c23a0},
     {0x3f3d813a, 0xbf0965a7, 0x3f8d080a, 0xbe6ac991, 0x3ff20cff}},
    {5,
     8,
     {0x3e56216b, 0x3bcb91d2, 0x3eec7872, 0x3dbb053f, 0x3f5f93a5, 0x3ecf79cc, 0x3d9a270f, 0x3eda918d},
     {0x3e56216c, 0x3bcb91d3, 0x3eec7873, 0x3dbb0540, 0x3f5f93a6, 0x3ecf79cd, 0x3d9a2710, 0x3eda918e},
     {0xbee547bb, 0xbfd011f0, 0x3e84288b, 0xbf5f6a44, 0x3fffead9, 0x3dd04293, 0xbf734bb1, 0x3e24f1e3}},
};

static void numbers(void **state)
{
  (void)state;
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    const struct row *row = &rows[r];
    rng_key key = rng_seed(row->seed);
    uint32_t words[8];
    rng_bits(key, words, row->n);
    for (size_t i = 0; i < row->n; i++) {
      assert_int_equal(rng_word(key, row->n, i), words[i]);
      assert_int_equal(f32_bits(rng_unit(words[i])), row->eager[i]);
      assert_int_equal(f32_bits(rng_unit_compiled(words[i])), row->compiled[i]);
      assert_int_equal(f32_bits(rng_gumbel(rng_unit_compiled(words[i]))), row->gumbel[i]);
    }
  }
}

static void ends(void **state)
{
  (void)state;
  assert_true(rng_unit(0) == 0 && rng_unit_compiled(0) == 0);
  assert_int_equal(f32_bits(rng_unit(UINT32_MAX)), 0x3f7fffff);
  assert_int_equal(f32_bits(rng_unit_compiled(UINT32_MAX)), 0x3f7ffffe);
  assert_true(rng_gumbel(0) == -INFINITY);
  float greatest = -INFINITY; /* the bound that sampling skips by, over the words nearest to the top */
  for (uint32_t i = 0; i < 1 << 20; i++) {
    float e = rng_gumbel(rng_unit(UINT32_MAX - i)), c = rng_gumbel(rng_unit_compiled(UINT32_MAX - i));
    greatest = e > greatest ? e : greatest;
    greatest = c > greatest ? c : greatest;
  }
  assert_true(greatest > 16.5f && greatest < RNG_GUMBEL_MAX);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(seeds_and_implicit_draws),
      cmocka_unit_test(splits),
      cmocka_unit_test(numbers),
      cmocka_unit_test(ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
