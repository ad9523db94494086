/* math.h - the transcendental functions of the reference, bit for bit.
 *
 * Two families. exp, sin, cos, erf, erfinv and sigmoid are MLX's own float32 polynomials (Cephes style, mlx
 * backend/cpu/simd/math.h, version 0.31.2); they are inline, nearly free of branches and built on exact fused
 * multiply-adds, so that a file compiled with -mfma gets the instruction. log, log2, pow, tanh, log1p and expm1 are
 * what MLX takes from the C library: here they have the bits of glibc 2.36 for every input, whatever library or machine
 * runs. Nothing here calls a transcendental function of libm. docs/math.md says how both claims are proven.
 *
 * All take and give float32. For bfloat16 and float16 the caller converts, calls and rounds once; sigmoid is the one
 * function with a rounding inside (math_sigmoid_of_exp). NaNs are equal as a class, payloads are not promised.
 * Not here: angles above 2^23 as MLX 0.32 treats them.
 */
#ifndef TERN_OPS_MATH_H
#define TERN_OPS_MATH_H

#include <math.h>
#include <stdint.h>

#include "base/half.h"

/* a*b + c with one rounding. Exact on any machine; one instruction where the file is compiled with -mfma. */
static inline ON_DEVICE float math_fma(float a, float b, float c)
{
  return fmaf(a, b, c);
}

/* x > 88 gives infinity, x < -88 zero; below about -87.68 the result is zero too (no subnormals).
 *
 * The reference splits t = x*log2(e) at floor((double)t + 0.5). Since |t| < 128 the same integer is floor(t), plus one
 * where t - floor(t) >= 0.5: that difference is exact for |t| >= 0.5 (Sterbenz) and for t >= 0, and for -0.5 < t < 0 it
 * is at least 0.5 with or without rounding. */
static inline ON_DEVICE float math_exp(float x)
{
  float c = x < 88.0f ? x : 88.0f; /* NaN goes to 88, keeps the cast below defined, and is put back at the end */
  c = c > -88.0f ? c : -88.0f;
  float t = c * 0x1.715476p+0f;
  int32_t n = (int32_t)t;
  n -= (float)n > t;
  n += t - (float)n >= 0.5f;
  float f = t - (float)n;
  float p = 0x1.41fbbcp-13f;
  p = math_fma(p, f, 0x1.5f3e52p-10f);
  p = math_fma(p, f, 0x1.3b2d4cp-7f);
  p = math_fma(p, f, 0x1.c6aee8p-5f);
  p = math_fma(p, f, 0x1.ebfbdcp-3f);
  p = math_fma(p, f, 0x1.62e430p-1f);
  p = math_fma(p, f, 1.0f);
  float r = f32_from_bits((uint32_t)(n + 127) << 23) * p;
  r = x > 88.0f ? INFINITY : r;
  r = x < -88.0f ? 0.0f : r;
  return x != x ? x : r;
}

/* Both at once. Infinity gives NaN. The quotient is cut to 32 bits as x86 does it: huge angles give defined nonsense,
 * which is the reference's nonsense. */
static inline ON_DEVICE void math_sincos(float x, float *sine, float *cosine)
{
  float a = fabsf(x), q = a * 0x1.45f306p+0f;
  uint32_t j = (uint32_t)(int64_t)(q < 0x1p63f ? q : 0.0f);
  j = (j + 1) & ~UINT32_C(1);
  float y = (float)j;
  a = math_fma(y, -0x1.92p-1f, a);
  a = math_fma(y, -0x1.fb4p-13f, a);
  a = math_fma(y, -0x1.4442d2p-25f, a);
  float z = a * a;
  float c = math_fma(z, 0x1.99eb9cp-16f, -0x1.6c0c34p-10f);
  c = math_fma(c, z, 0x1.55554ap-5f);
  c = (c * z) * z;
  c = math_fma(z, -0.5f, c) + 1.0f;
  float s = math_fma(z, -0x1.9943f2p-13f, 0x1.11073cp-7f);
  s = math_fma(s, z, -0x1.555546p-3f);
  s = s * z;
  s = math_fma(a, s, a);
  float for_sine = j & 2 ? c : s, for_cosine = j & 2 ? s : c;
  *sine = (x < 0) != ((j & 4) != 0) ? -for_sine : for_sine;
  *cosine = (j - 2) & 4 ? for_cosine : -for_cosine;
}

static inline ON_DEVICE float math_sin(float x)
{
  float s, c;
  math_sincos(x, &s, &c);
  return s;
}

static inline ON_DEVICE float math_cos(float x)
{
  float s, c;
  math_sincos(x, &s, &c);
  return c;
}

/* Abramowitz and Stegun 7.1.26. erf(0) is not zero: the sign follows "x > 0", and that is the reference's value. */
static inline ON_DEVICE float math_erf(float x)
{
  float t = 1.0f / math_fma(0x1.4f740ap-2f, fabsf(x), 1.0f);
  float r = math_fma(0x1.0fb844p+0f, t, -0x1.7401c6p+0f);
  r = math_fma(r, t, 0x1.6be1c6p+0f);
  r = math_fma(r, t, -0x1.23531cp-2f);
  r = math_fma(r, t, 0x1.04f20cp-2f);
  float e = -math_exp(-x * x);
  float q = math_fma(e * t, r, 1.0f);
  return x > 0 ? q : -q;
}

/* The end of a sigmoid, given e = exp(|x|) already rounded to the tensor's type; the caller rounds the result. */
static inline ON_DEVICE float math_sigmoid_of_exp(float x, float e)
{
  float y = 1.0f / (1.0f + e);
  return x < 0 ? y : 1.0f - y;
}

static inline ON_DEVICE float math_sigmoid(float x)
{
  return math_sigmoid_of_exp(x, math_exp(fabsf(x)));
}

float math_erfinv(float x);

/* glibc 2.36's logf, log2f, powf (Arm optimized-routines, table driven in double) ... */
DEVICE_COPY float math_log(float x);
DEVICE_COPY float math_log2(float x);
DEVICE_COPY float math_pow(float x, float y);
/* ... and its expm1f, log1pf, tanhf (fdlibm). Later versions of glibc differ from these. */
DEVICE_COPY float math_expm1(float x);
DEVICE_COPY float math_log1p(float x);
DEVICE_COPY float math_tanh(float x);

/* What a scalar becomes when the reference's compiled code prints it as a constant: seven significant digits, parsed
 * back. Only float32 constants change; every bfloat16 and float16 survives. Slow: for set-up, not for loops. */
float math_c7(float x);

#endif
