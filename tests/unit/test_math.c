/* Proves the bits of ops/math. Each function is run over float32 inputs and the results folded into one 64-bit hash
 * (NaNs as a class), which is compared with a stored one: for the C library's functions the hash was taken from glibc
 * 2.36, for MLX's polynomials from this code after tests/parity/test_math.py had compared it with MLX. Where the host
 * has glibc 2.36 the first differing input is reported too.
 *
 * Ordinarily every 4093rd input; TERN_EXHAUSTIVE=1 takes all 2^32 wherever a hash over all is stored (some minutes),
 * and TERN_EXHAUSTIVE=NAME for one function. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gnu/libc-version.h>

#include "base/cores.h"
#include "base/half.h"
#include "base/threads.h"
#include "ops/math.h"

enum { STRIDE = 4093 }; /* of the ordinary run; a prime, so that all mantissas and exponents mix */

typedef float unary(float);

typedef struct function {
  const char *name;
  unary *ours, *host;    /* host: NULL where libm has no part in it */
  uint64_t sampled, all; /* all: 0 where it was never taken */
} function;

static const function function_table[] = {
    {"log", math_log, logf, 0xaafb8f748ab2f454, 0x57dad1f963fd139a},
    {"log2", math_log2, log2f, 0x160a7857778c890a, 0xcf74ed8f6db1eedf},
    {"expm1", math_expm1, expm1f, 0xe3c1220b3d416909, 0x72e4a0eb02e54a55},
    {"log1p", math_log1p, log1pf, 0x9b513bc239bda8e7, 0xa146a785e13f7211},
    {"tanh", math_tanh, tanhf, 0xa484c24957f797f5, 0x9a80f65cee04bb01},
    {"exp", math_exp, NULL, 0xdb1355642cb726dd, 0x2254d9afbc960597},
    {"sin", math_sin, NULL, 0xa73a0d8171c75aca, 0x249aed71025a6745},
    {"cos", math_cos, NULL, 0x1863c5449d2e1309, 0},
    {"erf", math_erf, NULL, 0x1454b715a7622b6e, 0},
    {"erfinv", math_erfinv, NULL, 0x796358aaf4134895, 0},
    {"sigmoid", math_sigmoid, NULL, 0x21a86eb526d127b4, 0},
};

/* pow with one argument held: every x ** y for x, or every base ** y for y. */
typedef struct pow_case {
  const char *name;
  bool fixed_base;
  float value;
  uint64_t sampled, all;
} pow_case;

static const pow_case pow_table[] = {
    {"pow(x, 2)", false, 2, 0xf552b2d315e7ace2, 0xf4a084f8945feffd},
    {"pow(x, 3)", false, 3, 0x5433cbcbbf43acd9, 0xb1705e27ecea2726},
    {"pow(x, 0.5)", false, 0.5f, 0x2ad328dd7d1fbfab, 0x87c245505e7effe3},
    {"pow(x, -0.5)", false, -0.5f, 0x971139898eecc39e, 0},
    {"pow(x, -1)", false, -1, 0xa1e6539b3a89d9c8, 0},
    {"pow(2, y)", true, 2, 0x0efbbcc9e20daea4, 0},
    {"pow(1e4, y)", true, 10000, 0xfaa906212fbfe637, 0x8ce661eddc44e4e2},
    {"pow(1.5e5, y)", true, 150000, 0x71791a14d45f214e, 0},
    {"pow(5e5, y)", true, 500000, 0xd691da0ad715c99d, 0x03dbcc37d56c8bdf},
    {"pow(1e6, y)", true, 1000000, 0x5d78b06467898ff0, 0xfe7dcf7be875043e},
};

typedef struct job {
  const function *f;
  const pow_case *p;
  uint64_t first, count, stride; /* input i is first + i * stride; random pairs where f and p are NULL */
  uint64_t hash[256];            /* per worker: a sum, so the split does not matter */
  int64_t bad[256];              /* input that differs from the host, or -1 */
  uint64_t n_bad[256];
  bool compare;
} job;

static uint64_t mix64(uint64_t z) /* SplitMix64's finaliser */
{
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static uint32_t class_bits(float x)
{
  return x != x ? 0x7fc00000 : f32_bits(x);
}

static float pair_ours(uint64_t pair)
{
  return math_pow(f32_from_bits((uint32_t)pair), f32_from_bits((uint32_t)(pair >> 32)));
}

static float pair_host(uint64_t pair)
{
  return powf(f32_from_bits((uint32_t)pair), f32_from_bits((uint32_t)(pair >> 32)));
}

#define POW_RANDOM_SAMPLED UINT64_C(0xae1363692ad5a61f)
#define POW_RANDOM_ALL UINT64_C(0x1cb3f3285a48d3bf)
#define POW_RULES UINT64_C(0x963ec65bef054835)

/* Half of the pairs are any bits at all; the others have a base near 1 .. 2^16 and an exponent that keeps the result
 * finite, where all the interesting rounding is. */
static uint64_t random_pair(uint64_t i)
{
  uint64_t r = mix64(i + UINT64_C(0x9e3779b97f4a7c15));
  if (i & 1)
    return r;
  uint32_t x = 0x30000000 + (uint32_t)(r & 0x1fffffff), y = 0x3a000000 + (uint32_t)(r >> 32 & 0x8affffff);
  return (uint64_t)y << 32 | x;
}

static void run_share(void *user, int worker, int count)
{
  job *j = user;
  size_t begin, end;
  pool_share(j->count, 1, worker, count, &begin, &end);
  uint64_t h = 0, n_bad = 0;
  int64_t bad = -1;
  for (uint64_t i = begin; i < end; i++) {
    uint64_t u = j->first + i * j->stride;
    uint64_t pair = !j->p              ? random_pair(u)
                    : j->p->fixed_base ? u << 32 | f32_bits(j->p->value)
                                       : (uint64_t)f32_bits(j->p->value) << 32 | u;
    float x = f32_from_bits((uint32_t)u);
    uint32_t y = class_bits(j->f ? j->f->ours(x) : pair_ours(pair));
    h += mix64(u << 32 ^ u >> 32 ^ y);
    if (j->compare && class_bits(j->f ? j->f->host(x) : pair_host(pair)) != y) {
      bad = (int64_t)(j->f ? u : pair);
      n_bad++;
    }
  }
  j->hash[worker] = h;
  j->bad[worker] = bad;
  j->n_bad[worker] = n_bad;
}

/* Whether to take every input: TERN_EXHAUSTIVE is 1, or just this function's name. */
static bool exhaustive(const char *name, uint64_t stored)
{
  const char *s = getenv("TERN_EXHAUSTIVE");
  return s && ((strcmp(s, "1") == 0 && stored) || strcmp(s, name) == 0);
}

/* Runs the job; prints the hash, and the last difference if there is one. Returns the number of differences. */
static uint64_t run(job *j, const char *name, uint64_t *hash)
{
  pool *p;
  cores found;
  cores_find(&found);
  int threads = found.threads < 256 ? found.threads : 256;
  assert_int_equal(pool_open(threads, &p, NULL), TERN_OK);
  pool_run(p, run_share, j);
  *hash = 0;
  uint64_t n_bad = 0;
  for (int i = 0; i < pool_size(p); i++) {
    *hash += j->hash[i];
    n_bad += j->n_bad[i];
    if (j->n_bad[i])
      print_message("%s: differs from the host at 0x%llx\n", name, (unsigned long long)j->bad[i]);
  }
  pool_close(p);
  print_message("%-16s 0x%016llx  differences %llu\n", name, (unsigned long long)*hash, (unsigned long long)n_bad);
  return n_bad;
}

/* The reference ran on x86-64. Elsewhere the compiler fuses multiplications and additions of the same sources: for
 * aarch64 expm1, log1p and tanh of some numbers differ. */
static bool host_is_reference(void)
{
#if defined(__x86_64__)
  return strcmp(gnu_get_libc_version(), "2.36") == 0;
#else
  return false;
#endif
}

static void check(job *j, const char *name, uint64_t wanted, int *wrong)
{
  uint64_t hash, differences = run(j, name, &hash);
  if (differences || hash != wanted) {
    print_error("%s: wanted 0x%016llx\n", name, (unsigned long long)wanted);
    ++*wrong;
  }
}

static void functions(void **state)
{
  (void)state;
  int wrong = 0;
  for (size_t i = 0; i < sizeof function_table / sizeof function_table[0]; i++) {
    const function *f = &function_table[i];
    bool all = exhaustive(f->name, f->all);
    job j = {.f = f, .stride = all ? 1 : STRIDE, .compare = f->host && host_is_reference()};
    j.count = (UINT64_C(1) << 32) / j.stride;
    check(&j, f->name, all ? f->all : f->sampled, &wrong);
  }
  assert_int_equal(wrong, 0);
}

static void powers(void **state)
{
  (void)state;
  int wrong = 0;
  for (size_t i = 0; i < sizeof pow_table / sizeof pow_table[0]; i++) {
    const pow_case *p = &pow_table[i];
    bool all = exhaustive(p->name, p->all);
    job j = {.p = p, .stride = all ? 1 : STRIDE, .compare = host_is_reference()};
    j.count = (UINT64_C(1) << 32) / j.stride;
    check(&j, p->name, all ? p->all : p->sampled, &wrong);
  }
  bool all = exhaustive("pow, random", POW_RANDOM_ALL);
  job pairs = {.stride = 1, .count = all ? 1 << 30 : 1 << 21, .compare = host_is_reference()};
  check(&pairs, "pow, random", all ? POW_RANDOM_ALL : POW_RANDOM_SAMPLED, &wrong);
  assert_int_equal(wrong, 0);
}

/* Every pair out of the values where pow has a rule of its own. */
static void power_rules(void **state)
{
  (void)state;
  static const uint32_t special[] = {
      0,          0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7fa00000, 0xffa00000,
      0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x80800000, 0x7f7fffff, 0xff7fffff, 0x40000000, 0xc0000000,
      0x40400000, 0xc0400000, 0x3f000000, 0xbf000000, 0x3f7fffff, 0x3f800001, 0x4b000001, 0xcb000001, 0x4b800001,
      0xcb800001, 0x4b800000, 0x42fe0000, 0xc3160000, 0xc3150000, 0xc3158000, 0x43000000, 0x3e800000, 0x42280000};
  size_t n = sizeof special / sizeof special[0];
  uint64_t hash = 0;
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < n; k++) {
      float x = f32_from_bits(special[i]), y = f32_from_bits(special[k]);
      uint32_t bits = class_bits(math_pow(x, y));
      hash += mix64((uint64_t)(i * n + k) << 32 | bits);
      if (host_is_reference())
        assert_int_equal(bits, class_bits(powf(x, y)));
    }
  /* glibc's builds with and without FMA differ here; this is the former. */
  assert_int_equal(f32_bits(math_pow(f32_from_bits(0x3ef7e587), f32_from_bits(0xc276980d))), 0x5fb630e9);
  print_message("pow, rules       0x%016llx\n", (unsigned long long)hash);
  assert_true(hash == POW_RULES);
}

static void compiled_constants(void **state)
{
  (void)state;
  assert_int_equal(f32_bits(math_c7(1.41421354f)), 0x3fb504f7);   /* nn.gelu's root of two */
  assert_int_equal(f32_bits(math_c7(4294967296.0f)), 0x4f7fffff); /* the divisor of random.uniform */
  assert_int_equal(f32_bits(math_c7(0.99999994f)), 0x3f7ffffe);   /* its cap */
  assert_int_equal(f32_bits(math_c7((float)(1 / 0.7))), f32_bits(1.428571f));
  assert_true(isinf(math_c7(-INFINITY)) && math_c7(-INFINITY) < 0);
  for (uint32_t h = 0; h < 0x7f80; h++) /* every bfloat16 survives, once rounded back */
    assert_int_equal(bf16_from_f32(math_c7(bf16_to_f32((uint16_t)h))), h);
  for (uint32_t h = 0; h < 0x7c00; h++) /* so does every float16 */
    assert_int_equal(f16_from_f32(math_c7(f16_to_f32((uint16_t)h))), h);
}

static void edges(void **state)
{
  (void)state;
  assert_true(isinf(math_exp(88.00001f)) && math_exp(-88.00001f) == 0 && math_exp(-87.9f) == 0);
  assert_true(math_exp(0) == 1 && math_exp(-INFINITY) == 0 && isinf(math_exp(INFINITY)) && isnan(math_exp(NAN)));
  assert_true(isnan(math_sin(INFINITY)) && isnan(math_cos(NAN)));
  assert_int_equal(f32_bits(math_sin(-0.0f)), 0); /* the reference gives +0: the sign follows x < 0 */
  assert_int_equal(f32_bits(math_erf(0)), f32_bits(math_erf(-0.0f)));
  assert_true(math_sigmoid(0) == 0.5f && math_sigmoid(-INFINITY) == 0 && math_sigmoid(INFINITY) == 1);
  assert_true(isinf(math_log(0)) && isnan(math_log(-1)) && math_log(1) == 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(edges),  cmocka_unit_test(compiled_constants), cmocka_unit_test(functions),
      cmocka_unit_test(powers), cmocka_unit_test(power_rules),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
