/* math_fdlibm.c - expm1, log1p and tanh with the bits of glibc 2.36, whose float versions are fdlibm's (Sun
 * Microsystems 1993, float conversion by Ian Lance Taylor): the reductions and published constants are theirs, the code
 * is ours. glibc 2.41 replaced them by correctly rounded functions that differ on several per cent of inputs.
 *
 * Every operation is one float32 rounding, in the order written.
 */
#include "ops/math.h"

#include <stdbool.h>

#include "base/half.h"

#define LN2_HI 0x1.62e3p-1f /* 0x3f317180: 16 bits, so that k * LN2_HI is exact */
#define LN2_LO 0x1.2fefa2p-17f
#define INV_LN2 0x1.715476p+0f
#define INF_BITS UINT32_C(0x7f800000)

/* 2^k * y by the exponent field; y and the result are normal. */
static DEVICE_ONLY float scaled(float y, int32_t k)
{
  return f32_from_bits(f32_bits(y) + ((uint32_t)k << 23));
}

/* 2^k * (1 + e) - 1 for x = r + (k ln 2), where e - r = -expm1(r): the additions in the order that loses least. */
static DEVICE_ONLY float expm1_unreduce(int32_t k, float r, float e)
{
  if (k == -1)
    return 0.5f * (r - e) - 0.5f;
  if (k == 1)
    return r < -0.25f ? -2.0f * (e - (r + 0.5f)) : 1.0f + 2.0f * (r - e);
  if (k <= -2 || k > 56)
    return scaled(1.0f - (e - r), k) - 1.0f;
  if (k < 23)
    return scaled(f32_from_bits(0x3f800000 - (UINT32_C(0x1000000) >> k)) - (e - r), k); /* 1 - 2^-k */
  return scaled(r - (e + f32_from_bits((uint32_t)(0x7f - k) << 23)) + 1.0f, k);         /* 2^-k */
}

DEVICE_COPY float math_expm1(float x)
{
  static const float q1 = -0x1.111112p-5f, q2 = 0x1.a01a02p-10f, q3 = -0x1.4ce19ap-14f, q4 = 0x1.0cfca8p-18f,
                     q5 = -0x1.afdb76p-23f;
  uint32_t bits = f32_bits(x), ax = bits & 0x7fffffff;
  bool negative = bits >> 31;
  if (ax >= 0x4195b844) { /* |x| >= 27 ln 2 */
    if (ax > INF_BITS)
      return x + x;
    if (negative)
      return -1.0f;
    if (ax >= 0x42b17218) /* just above 128 ln 2; also infinity */
      return INFINITY;
  }
  if (ax < 0x33000000) /* below 2^-25 */
    return x;
  int32_t k = 0;
  float c = 0;
  if (ax > 0x3eb17218) { /* beyond ln(2)/2 */
    float hi, lo;
    if (ax < 0x3f851592) { /* below 1.5 ln 2 */
      k = negative ? -1 : 1;
      hi = negative ? x + LN2_HI : x - LN2_HI;
      lo = negative ? -LN2_LO : LN2_LO;
    } else {
      k = (int32_t)(INV_LN2 * x + (negative ? -0.5f : 0.5f));
      hi = x - (float)k * LN2_HI;
      lo = (float)k * LN2_LO;
    }
    x = hi - lo;
    c = (hi - x) - lo;
  }
  float half = 0.5f * x, hxs = x * half;
  float r1 = 1.0f + hxs * (q1 + hxs * (q2 + hxs * (q3 + hxs * (q4 + hxs * q5))));
  float t = 3.0f - r1 * half;
  float e = hxs * ((r1 - t) / (6.0f - x * t));
  if (k == 0)
    return x - (x * e - hxs);
  e = x * (e - c) - c;
  e -= hxs;
  return expm1_unreduce(k, x, e);
}

/* The general case of log1p: 1 + x = 2^k (1 + f), f within [sqrt(1/2) - 1, sqrt(2) - 1], and c = what 1 + x lost to
 * rounding, relative. *fraction is zero where f is negligible. */
static DEVICE_ONLY int32_t log1p_reduce(float x, float *f, float *c, uint32_t *fraction)
{
  float u = x;
  *c = 0;
  uint32_t bits = f32_bits(x);
  int32_t k = (int32_t)(bits >> 23) - 127;
  if ((int32_t)bits < 0x5a000000) { /* below 2^53 */
    u = 1.0f + x;
    bits = f32_bits(u);
    k = (int32_t)(bits >> 23) - 127;
    *c = (k > 0 ? 1.0f - (u - x) : x - (u - 1.0f)) / u;
  }
  bits &= 0x007fffff;
  if (bits < 0x3504f7) { /* below sqrt(2) */
    *f = f32_from_bits(bits | 0x3f800000) - 1.0f;
  } else {
    k++;
    *f = f32_from_bits(bits | 0x3f000000) - 1.0f;
    bits = (0x00800000 - bits) >> 2;
  }
  *fraction = bits;
  return k;
}

DEVICE_COPY float math_log1p(float x)
{
  static const float l1 = 0x1.555556p-1f, l2 = 0x1.99999ap-2f, l3 = 0x1.24924ap-2f, l4 = 0x1.c71c52p-3f,
                     l5 = 0x1.74664ap-3f, l6 = 0x1.39a09ep-3f, l7 = 0x1.2f112ep-3f;
  uint32_t bits = f32_bits(x), ax = bits & 0x7fffffff, fraction = 1;
  int32_t k = 0;
  float f = x, c = 0;
  if (bits >> 31 && ax >= 0x3f800000) /* x <= -1, or NaN */
    return x == -1.0f ? -INFINITY : NAN;
  if (ax >= INF_BITS)
    return x + x;
  if (ax < 0x31000000) /* below 2^-29; below 2^-54 the square is lost */
    return ax < 0x24800000 ? x : x - x * x * 0.5f;
  /* Near zero (within [sqrt(1/2) - 1, sqrt(2) - 1], about) no reduction is needed. */
  if (bits >> 31 ? bits >= 0xbe95f620 : bits >= 0x3ed413d7)
    k = log1p_reduce(x, &f, &c, &fraction);
  float n = (float)k, hfsq = 0.5f * f * f;
  if (fraction == 0) {
    if (f == 0)
      return k == 0 ? 0.0f : n * LN2_HI + (c + n * LN2_LO);
    float r = hfsq * (1.0f - 0x1.555556p-1f * f);
    return k == 0 ? f - r : n * LN2_HI - ((r - (n * LN2_LO + c)) - f);
  }
  float s = f / (2.0f + f), z = s * s;
  float r = z * (l1 + z * (l2 + z * (l3 + z * (l4 + z * (l5 + z * (l6 + z * l7))))));
  if (k == 0)
    return f - (hfsq - s * (hfsq + r));
  return n * LN2_HI - ((hfsq - (s * (hfsq + r) + (n * LN2_LO + c))) - f);
}

DEVICE_COPY float math_tanh(float x)
{
  uint32_t bits = f32_bits(x), ax = bits & 0x7fffffff;
  float a = f32_from_bits(ax), z;
  if (ax > INF_BITS)
    return x + x;
  if (ax < 0x24000000) /* below 2^-55 */
    return x;
  if (ax >= 0x41b00000) /* 22 and above */
    z = 1.0f;
  else if (ax >= 0x3f800000)
    z = 1.0f - 2.0f / (math_expm1(2.0f * a) + 2.0f);
  else {
    float t = math_expm1(-2.0f * a);
    z = -t / (t + 2.0f);
  }
  return bits >> 31 ? -z : z;
}
