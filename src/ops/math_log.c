/* math_log.c - log, log2 and pow with the bits of glibc 2.36, which took them from Arm's optimized-routines (MIT;
 * math/logf.c, log2f.c, powf.c and their tables): the design and the published constants are theirs, the code is ours.
 *
 * All three write x = 2^k z with z near 1, look up 1/c and log(c) for the sixteenth of the octave where z lies, and
 * evaluate a short polynomial in r = z/c - 1 in double, whose one rounding to float at the end decides the bits.
 *
 * glibc on x86-64 has each of them twice, for machines with and without FMA. For log and log2 the two agree on every
 * input; for pow they differ on about one pair in 2^30, and this is the FMA one (docs/math.md).
 *
 * No exceptions, no errno, round to nearest assumed.
 */
#include "ops/math.h"

#include <stdbool.h>

#include "base/half.h"

#define SPLIT UINT32_C(0x3f330000) /* the octave cut: z in [0x1.66p-1, 0x1.66p0) */
#define MIN_NORMAL UINT32_C(0x00800000)
#define INF_BITS UINT32_C(0x7f800000)
#define ONE_BITS UINT32_C(0x3f800000)

typedef struct entry {
  double inverse; /* 1/c */
  double ln, lg;  /* log(c), log2(c) */
} entry;

static DEVICE_ONLY const entry table[16] = {
    {0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2, -0x1.efec65b963019p-2},
    {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2, -0x1.b0b6832d4fca4p-2},
    {0x1.49539f0f010b0p+0, -0x1.01eae7f513a67p-2, -0x1.7418b0a1fb77bp-2},
    {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3, -0x1.39de91a6dcf7bp-2},
    {0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3, -0x1.01d9bf3f2b631p-2},
    {0x1.25e227b0b8ea0p+0, -0x1.1aa2bc79c8100p-3, -0x1.97c1d1b3b7af0p-3},
    {0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4, -0x1.2f9e393af3c9fp-3},
    {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4, -0x1.960cbbf788d5cp-4},
    {0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5, -0x1.a6f9db6475fcep-5},
    {1, 0, 0},
    {0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5, 0x1.338ca9f24f53dp-4},
    {0x1.ca4b31f026aa0p-1, 0x1.c5e53aa362eb4p-4, 0x1.476a9543891bap-3},
    {0x1.b2036576afce6p-1, 0x1.526e57720db08p-3, 0x1.e840b4ac4e4d2p-3},
    {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d224770p-3, 0x1.40645f0c6651cp-2},
    {0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2, 0x1.88e9c2c1b9ff8p-2},
    {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2, 0x1.ce0a44eb17bccp-2},
};

static const double ln2 = 0x1.62e42fefa39efp-1;
static DEVICE_ONLY const double log_poly[3] = {-0x1.00ea348b88334p-2, 0x1.5575b0be00b6ap-2, -0x1.ffffef20a4123p-2};
static DEVICE_ONLY const double log2_poly[4] = {-0x1.712b6f70a7e4dp-2, 0x1.ecabf496832e0p-2, -0x1.715479ffae3dep-1,
                                                0x1.715475f35c8b8p+0};
static DEVICE_ONLY const double pow_poly[5] = {0x1.27616c9496e0bp-2, -0x1.71969a075c67ap-2, 0x1.ec70a6ca7baddp-2,
                                               -0x1.7154748bef6c8p-1, 0x1.71547652ab82bp+0};
static DEVICE_ONLY const double exp2_poly[3] = {0x1.c6af84b912394p-5, 0x1.ebfce50fac4f3p-3, 0x1.62e42ff0c52d6p-1};

/* 2^(i/32) as bits, less i << 47, so that adding (32k + i) << 47 gives 2^(k + i/32). */
static DEVICE_ONLY const uint64_t exp2_table[32] = {
    0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51, 0x3fef72b83c7d517b,
    0x3fef54873168b9aa, 0x3fef387a6e756238, 0x3fef1e9df51fdee1, 0x3fef06fe0a31b715, 0x3feef1a7373aa9cb,
    0x3feedea64c123422, 0x3feece086061892d, 0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429,
    0x3feea47eb03a5585, 0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74, 0x3feea11473eb0187, 0x3feea589994cce13,
    0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d, 0x3feee89f995ad3ad,
    0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069, 0x3fef5818dcfba487, 0x3fef7c97337b9b5f,
    0x3fefa4afa2a490da, 0x3fefd0765b6e4540,
};

static DEVICE_ONLY uint64_t f64_bits(double x)
{
  uint64_t u;
  memcpy(&u, &x, 8);
  return u;
}

static DEVICE_ONLY double f64_from_bits(uint64_t u)
{
  double x;
  memcpy(&x, &u, 8);
  return x;
}

/* The pieces of a positive normal number (or of a subnormal scaled by 2^23 and with 23 taken off its exponent). */
static DEVICE_ONLY const entry *cut(uint32_t ix, double *z, double *k)
{
  uint32_t offset = ix - SPLIT;
  *k = (double)((int32_t)offset >> 23);
  *z = (double)f32_from_bits(ix - (offset & UINT32_C(0xff800000)));
  return &table[offset >> 19 & 15];
}

static DEVICE_ONLY uint32_t normalised(float x)
{
  return f32_bits(x * 0x1p23f) - (UINT32_C(23) << 23);
}

/* Whether x is zero, negative, subnormal, infinite or NaN, and what log or log2 of it is unless it is subnormal. */
static DEVICE_ONLY bool log_special(float x, uint32_t *ix, float *result)
{
  if (*ix - MIN_NORMAL < INF_BITS - MIN_NORMAL)
    return false;
  if (x == 0) {
    *result = -INFINITY;
    return true;
  }
  if (*ix == INF_BITS) {
    *result = x;
    return true;
  }
  if (!(x > 0)) {
    *result = NAN;
    return true;
  }
  *ix = normalised(x);
  return false;
}

DEVICE_COPY float math_log(float x)
{
  uint32_t ix = f32_bits(x);
  float special;
  if (log_special(x, &ix, &special))
    return special;
  double z, k;
  const entry *e = cut(ix, &z, &k);
  double r = z * e->inverse - 1;
  double y0 = e->ln + k * ln2;
  double r2 = r * r;
  double y = log_poly[1] * r + log_poly[2];
  y = log_poly[0] * r2 + y;
  return (float)(y * r2 + (y0 + r));
}

DEVICE_COPY float math_log2(float x)
{
  uint32_t ix = f32_bits(x);
  float special;
  if (log_special(x, &ix, &special))
    return special;
  double z, k;
  const entry *e = cut(ix, &z, &k);
  double r = z * e->inverse - 1;
  double y0 = e->lg + k;
  double r2 = r * r;
  double y = log2_poly[1] * r + log2_poly[2];
  y = log2_poly[0] * r2 + y;
  double p = log2_poly[3] * r + y0;
  return (float)(y * r2 + p);
}

/* a*b + c as glibc's FMA build has it, which is the one that runs on any machine of the last ten years. */
static inline DEVICE_ONLY double mad(bool fused, double a, double b, double c)
{
  return fused ? fma(a, b, c) : a * b + c;
}

/* log2 in double, for pow: relative error about 2^-33. */
static inline DEVICE_ONLY double pow_log2(bool fused, uint32_t ix)
{
  double z, k;
  const entry *e = cut(ix, &z, &k);
  double r = mad(fused, z, e->inverse, -1);
  double y0 = e->lg + k;
  double r2 = r * r;
  double y = mad(fused, pow_poly[0], r, pow_poly[1]);
  double p = mad(fused, pow_poly[2], r, pow_poly[3]);
  double r4 = r2 * r2;
  double q = mad(fused, pow_poly[4], r, y0);
  q = mad(fused, p, r2, q);
  return mad(fused, y, r4, q);
}

/* 2^x for |x| < 151, times -1 if negative. */
static inline DEVICE_ONLY float pow_exp2(bool fused, double x, bool negative)
{
  const double shift = 0x1.8p47; /* 1.5 * 2^52 / 32: adding it rounds x to a multiple of 1/32 */
  double rounded = x + shift;
  uint64_t n = f64_bits(rounded);
  rounded -= shift;
  double r = x - rounded;
  double scale = f64_from_bits(exp2_table[n % 32] + (n << 47) + ((uint64_t)negative << 63));
  double z = mad(fused, exp2_poly[0], r, exp2_poly[1]);
  double r2 = r * r;
  double y = mad(fused, exp2_poly[2], r, 1);
  y = mad(fused, z, r2, y);
  return (float)(y * scale);
}

/* x ** y for positive normal x (ix may stand for a subnormal, see `normalised`) and ordinary y. */
static inline DEVICE_ONLY float pow_ordinary(bool fused, uint32_t ix, float y, bool negative)
{
  double exponent = (double)y * pow_log2(fused, ix);
  if (exponent > 0x1.fffffffd1d571p+6) /* the least that rounds past FLT_MAX */
    return negative ? -INFINITY : INFINITY;
  if (exponent <= -150.0)
    return negative ? -0.0f : 0.0f;
  return pow_exp2(fused, exponent, negative);
}

typedef enum parity { NOT_INTEGER, ODD, EVEN } parity;

static DEVICE_ONLY parity integer_parity(uint32_t iy)
{
  int exponent = (int)(iy >> 23 & 0xff);
  if (exponent < 0x7f)
    return NOT_INTEGER;
  if (exponent > 0x7f + 23)
    return EVEN;
  uint32_t unit = UINT32_C(1) << (0x7f + 23 - exponent);
  if (iy & (unit - 1))
    return NOT_INTEGER;
  return iy & unit ? ODD : EVEN;
}

static DEVICE_ONLY bool zero_inf_nan(uint32_t i)
{
  return 2 * i - 1 >= 2 * INF_BITS - 1;
}

static DEVICE_ONLY bool is_nan(uint32_t i)
{
  return 2 * i > 2 * INF_BITS;
}

static DEVICE_ONLY bool is_signaling(uint32_t i)
{
  return is_nan(i) && !(i & UINT32_C(0x00400000));
}

/* y is zero, infinite or NaN. */
static DEVICE_ONLY float pow_odd_exponent(float y, uint32_t ix, uint32_t iy)
{
  if (2 * iy == 0)
    return is_signaling(ix) ? NAN : 1.0f;
  if (ix == ONE_BITS)
    return is_signaling(iy) ? NAN : 1.0f;
  if (is_nan(ix) || is_nan(iy))
    return NAN;
  if (2 * ix == 2 * ONE_BITS)
    return 1.0f; /* (+-1)^inf */
  bool below_one = 2 * ix < 2 * ONE_BITS, y_negative = iy >> 31;
  return below_one != y_negative ? 0.0f : y * y;
}

/* x is zero, infinite or NaN; y is an ordinary number. */
static DEVICE_ONLY float pow_odd_base(float x, uint32_t ix, uint32_t iy)
{
  float square = x * x;
  if (ix >> 31 && integer_parity(iy) == ODD)
    square = -square;
  return iy >> 31 ? 1 / square : square;
}

DEVICE_COPY float math_pow(float x, float y)
{
  uint32_t ix = f32_bits(x), iy = f32_bits(y);
  bool negative = false;
  if (ix - MIN_NORMAL >= INF_BITS - MIN_NORMAL || zero_inf_nan(iy)) {
    if (zero_inf_nan(iy))
      return pow_odd_exponent(y, ix, iy);
    if (zero_inf_nan(ix))
      return pow_odd_base(x, ix, iy);
    if (ix >> 31) {
      parity p = integer_parity(iy);
      if (p == NOT_INTEGER)
        return NAN;
      negative = p == ODD;
      ix &= UINT32_C(0x7fffffff);
    }
    if (ix < MIN_NORMAL)
      ix = normalised(f32_from_bits(ix));
  }
  /* Cubes (gelu's) have the same bits either way, for every x, and this file may be built without the instruction. */
  return y == 3.0f ? pow_ordinary(false, ix, y, negative) : pow_ordinary(true, ix, y, negative);
}
