/* vmath.h - the transcendental functions of ops/math.h, a vector at a time and bit for bit.
 *
 * exp, sin, cos, erf and sigmoid are the same polynomials with the same fused multiply-adds. expm1 and tanh are
 * fdlibm's, all branches computed and one selected. x^3 is glibc's powf in double, half a vector at a time, its tables
 * in registers at level 2. For arguments that are zero, subnormal, infinite, NaN or whose cube is, the lanes take the
 * reference's function one by one. Every step is that of the scalar source, which see for the formulas.
 */
#ifndef TERN_OPS_CPU_VMATH_H
#define TERN_OPS_CPU_VMATH_H

#include "ops/cpu/vec.h"
#include "ops/math.h"

INLINE vf vm_exp(vf x)
{
  vf c = v_max(v_min(x, v_set(88.0f)), v_set(-88.0f));
  vf t = c * v_set(0x1.715476p+0f);
  vf n = v_floor(t);
  n = n + v_select(v_ge(t - n, v_set(0.5f)), v_set(1.0f), v_set(0.0f));
  vf f = t - n;
  vf p = v_set(0x1.41fbbcp-13f);
  p = v_fma(p, f, v_set(0x1.5f3e52p-10f));
  p = v_fma(p, f, v_set(0x1.3b2d4cp-7f));
  p = v_fma(p, f, v_set(0x1.c6aee8p-5f));
  p = v_fma(p, f, v_set(0x1.ebfbdcp-3f));
  p = v_fma(p, f, v_set(0x1.62e430p-1f));
  p = v_fma(p, f, v_set(1.0f));
  vf r = (vf)((v_trunc(n) + 127) << 23) * p;
  r = v_select(v_lt(v_set(88.0f), x), v_set(INFINITY), r);
  r = v_select(v_lt(x, v_set(-88.0f)), v_set(0.0f), r);
  return v_select(v_nan(x), x, r);
}

INLINE vf vm_sigmoid(vf x)
{
  vf one = v_set(1.0f);
  vf y = one / (one + vm_exp(v_abs(x)));
  return v_select(v_lt(x, v_set(0.0f)), y, one - y);
}

/* Angles whose octant does not fit 31 bits, infinities and NaN go through the scalar form. */
INLINE void vm_sincos(vf x, vf *sine, vf *cosine)
{
  vf a = v_abs(x), q = a * v_set(0x1.45f306p+0f);
  vm large = v_either(v_ge(q, v_set(0x1p31f)), v_nan(q));
  if (v_any(large)) {
    float in[VW], s[VW], c[VW];
    v_store(in, x);
    for (int i = 0; i < VW; i++)
      math_sincos(in[i], &s[i], &c[i]);
    *sine = v_load(s);
    *cosine = v_load(c);
    return;
  }
  vi j = (v_trunc(q) + 1) & ~1;
  vf y = v_float(j);
  a = v_fma(y, v_set(-0x1.92p-1f), a);
  a = v_fma(y, v_set(-0x1.fb4p-13f), a);
  a = v_fma(y, v_set(-0x1.4442d2p-25f), a);
  vf z = a * a;
  vf c = v_fma(z, v_set(0x1.99eb9cp-16f), v_set(-0x1.6c0c34p-10f));
  c = v_fma(c, z, v_set(0x1.55554ap-5f));
  c = (c * z) * z;
  c = v_fma(z, v_set(-0.5f), c) + v_set(1.0f);
  vf s = v_fma(z, v_set(-0x1.9943f2p-13f), v_set(0x1.11073cp-7f));
  s = v_fma(s, z, v_set(-0x1.555546p-3f));
  s = s * z;
  s = v_fma(a, s, a);
  vm swap = v_eq_int(j & 2, (vi){0} + 2);
  vf for_sine = v_select(swap, c, s), for_cosine = v_select(swap, s, c);
  /* Signs: a set bit 2 of j flips the sine, which is odd; a clear bit 2 of j - 2 flips the cosine. */
  vu flip_sine = (((vu)j & 4) << 29) ^ (vu)v_select(v_lt(x, v_set(0.0f)), v_set(-0.0f), v_set(0.0f));
  vu flip_cosine = (~(vu)(j - 2) & 4) << 29;
  *sine = (vf)((vu)for_sine ^ flip_sine);
  *cosine = (vf)((vu)for_cosine ^ flip_cosine);
}

/* expm1 from -27 ln 2 to 128 ln 2, but not for |x| below 2^-25, where the caller has the answer. */
INLINE vf expm1_middle(vf x)
{
  const vf one = v_set(1.0f), half_ = v_set(0.5f);
  vu bits = (vu)x;
  vi ax = (vi)(bits & 0x7fffffff);
  vf sign = (vf)(bits & 0x80000000);
  /* k = round(x / ln 2) toward zero of x/ln2 +- 0.5; 0 up to ln(2)/2, +-1 up to 1.5 ln 2, where the quotient is not
   * asked. */
  vf half_signed = (vf)((vu)half_ | (vu)sign), one_signed = (vf)((vu)one | (vu)sign);
  vf n = v_float(v_trunc(v_set(0x1.715476p+0f) * x + half_signed));
  n = v_select(v_gt_int((vi){0} + 0x3f851592, ax), one_signed, n);
  n = v_select(v_gt_int(ax, (vi){0} + 0x3eb17218), n, v_set(0.0f));
  vi k = v_trunc(n);
  vf hi = x - n * v_set(0x1.62e3p-1f), lo = n * v_set(0x1.2fefa2p-17f);
  vf r = hi - lo, c = (hi - r) - lo;
  vf half = half_ * r, hxs = r * half;
  vf q = v_set(0x1.0cfca8p-18f) + hxs * v_set(-0x1.afdb76p-23f);
  q = v_set(-0x1.4ce19ap-14f) + hxs * q;
  q = v_set(0x1.a01a02p-10f) + hxs * q;
  q = v_set(-0x1.111112p-5f) + hxs * q;
  vf r1 = one + hxs * q;
  vf t = v_set(3.0f) - r1 * half;
  vf e = hxs * ((r1 - t) / (v_set(6.0f) - r * t));
  vf k0 = r - (r * e - hxs);
  e = r * (e - c) - c;
  e = e - hxs;
  vf minus = half_ * (r - e) - half_;
  vf plus = v_select(v_lt(r, v_set(-0.25f)), v_set(-2.0f) * (e - (r + half_)), one + v_set(2.0f) * (r - e));
  vu power = (vu)k << 23;
  vf far = (vf)((vu)(one - (e - r)) + power) - one;
  /* 1 - 2^-k by 2^-k itself, exact for 0 < k < 24. */
  vf inverse = (vf)((vu)((vi){0} + 127 - k) << 23);
  vf low = (vf)((vu)((one - inverse) - (e - r)) + power);
  vf high = (vf)((vu)(r - (e + inverse) + one) + power);
  vf result = v_select(v_gt_int((vi){0} + 23, k), low, high);
  result = v_select(v_gt_int(k, (vi){0} + 56), far, result);
  result = v_select(v_gt_int((vi){0} - 1, k), far, result);
  result = v_select(v_eq_int(k, (vi){0} + 1), plus, result);
  result = v_select(v_eq_int(k, (vi){0} - 1), minus, result);
  return v_select(v_eq_int(k, (vi){0}), k0, result);
}

/* Below about -27 ln 2 the answer is -1, from 128 ln 2 on infinity, and tiny arguments are their own. */
INLINE vf vm_expm1(vf x)
{
  vf a = v_abs(x), low = v_set(-0x1.2b7088p+4f), high = v_set(0x1.62e430p+6f);
  vf r = expm1_middle(v_max(v_min(x, high), low));
  r = v_select(v_lt(low, x), r, v_set(-1.0f));
  r = v_select(v_ge(x, high), v_set(INFINITY), r);
  r = v_select(v_lt(a, v_set(0x1p-25f)), x, r);
  return v_select(v_nan(x), x, r);
}

/* Abramowitz and Stegun 7.1.26, whose sign follows "x > 0". */
INLINE vf vm_erf(vf x)
{
  vf one = v_set(1.0f);
  vf t = one / v_fma(v_set(0x1.4f740ap-2f), v_abs(x), one);
  vf r = v_fma(v_set(0x1.0fb844p+0f), t, v_set(-0x1.7401c6p+0f));
  r = v_fma(r, t, v_set(0x1.6be1c6p+0f));
  r = v_fma(r, t, v_set(-0x1.23531cp-2f));
  r = v_fma(r, t, v_set(0x1.04f20cp-2f));
  vf e = -vm_exp(-(x * x));
  vf q = v_fma(e * t, r, one);
  return v_select(v_lt(v_set(0.0f), x), q, -q);
}

INLINE vf vm_tanh(vf x)
{
  const vf one = v_set(1.0f), two = v_set(2.0f);
  vf a = v_abs(x), sign = (vf)((vu)x & 0x80000000);
  vm small = v_lt(a, one);
  /* -2a below 1, else 2a; from 22 on the answer is 1 and the argument only has to be harmless. */
  vf bounded = v_min(a, v_set(22.0f));
  vf argument = v_select(small, v_set(-2.0f) * bounded, two * bounded);
  vf t = v_select(v_lt(v_abs(argument), v_set(0x1p-25f)), argument, expm1_middle(argument));
  vf z = v_select(small, (vf)((vu)t ^ 0x80000000), two) / (t + two);
  z = v_select(small, z, one - z);
  z = v_select(v_ge(a, v_set(22.0f)), one, z);
  z = (vf)((vu)z ^ (vu)sign);
  z = v_select(v_lt(a, v_set(0x1p-55f)), x, z);
  return v_select(v_nan(x), x, z);
}

/* ---- x^3 ---- */

/* As in ops/math_log.c: 1/c and log2(c) for the sixteenths of an octave, and 2^(i/32) as bits less i << 47. */
static const double cube_inverse[16] = {
    0x1.661ec79f8f3bep+0, 0x1.571ed4aaf883dp+0, 0x1.49539f0f010b0p+0, 0x1.3c995b0b80385p+0, 0x1.30d190c8864a5p+0,
    0x1.25e227b0b8ea0p+0, 0x1.1bb4a4a1a343fp+0, 0x1.12358f08ae5bap+0, 0x1.0953f419900a7p+0, 1,
    0x1.e608cfd9a47acp-1, 0x1.ca4b31f026aa0p-1, 0x1.b2036576afce6p-1, 0x1.9c2d163a1aa2dp-1, 0x1.886e6037841edp-1,
    0x1.767dcf5534862p-1};
static const double cube_lg[16] = {
    -0x1.efec65b963019p-2, -0x1.b0b6832d4fca4p-2, -0x1.7418b0a1fb77bp-2, -0x1.39de91a6dcf7bp-2, -0x1.01d9bf3f2b631p-2,
    -0x1.97c1d1b3b7af0p-3, -0x1.2f9e393af3c9fp-3, -0x1.960cbbf788d5cp-4, -0x1.a6f9db6475fcep-5, 0,
    0x1.338ca9f24f53dp-4,  0x1.476a9543891bap-3,  0x1.e840b4ac4e4d2p-3,  0x1.40645f0c6651cp-2,  0x1.88e9c2c1b9ff8p-2,
    0x1.ce0a44eb17bccp-2};
static const uint64_t cube_exp2[32] = {
    0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51, 0x3fef72b83c7d517b,
    0x3fef54873168b9aa, 0x3fef387a6e756238, 0x3fef1e9df51fdee1, 0x3fef06fe0a31b715, 0x3feef1a7373aa9cb,
    0x3feedea64c123422, 0x3feece086061892d, 0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429,
    0x3feea47eb03a5585, 0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74, 0x3feea11473eb0187, 0x3feea589994cce13,
    0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d, 0x3feee89f995ad3ad,
    0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069, 0x3fef5818dcfba487, 0x3fef7c97337b9b5f,
    0x3fefa4afa2a490da, 0x3fefd0765b6e4540,
};

/* Doubles go half a vector at a time. */
enum { HALF = VW / 2 };
typedef double vd __attribute__((vector_size(8 * HALF)));
typedef uint64_t vl __attribute__((vector_size(8 * HALF)));
typedef float half_f __attribute__((vector_size(4 * HALF)));
typedef int32_t half_i __attribute__((vector_size(4 * HALF)));
typedef uint32_t half_u __attribute__((vector_size(4 * HALF)));

/* Entries i < 16 of a table, and i < 32. */
INLINE vd look_up_16(const double *table, vl i)
{
#if CPU_LEVEL == 2
  return (vd)_mm512_permutex2var_pd(_mm512_loadu_pd(table), (__m512i)i, _mm512_loadu_pd(table + 8));
#elif CPU_LEVEL == 1
  return (vd)_mm256_i64gather_pd(table, (__m256i)i, 8);
#else
  return (vd){table[i[0]], table[i[1]]};
#endif
}

INLINE vl look_up_32(const uint64_t *table, vl i)
{
#if CPU_LEVEL == 2
  __m512i at = (__m512i)i;
  __m512i low = _mm512_permutex2var_epi64(_mm512_loadu_si512(table), at, _mm512_loadu_si512(table + 8));
  __m512i high = _mm512_permutex2var_epi64(_mm512_loadu_si512(table + 16), at, _mm512_loadu_si512(table + 24));
  return (vl)_mm512_mask_blend_epi64(_mm512_test_epi64_mask(at, _mm512_set1_epi64(16)), low, high);
#elif CPU_LEVEL == 1
  return (vl)_mm256_i64gather_epi64((const long long *)table, (__m256i)i, 8);
#else
  return (vl){table[i[0]], table[i[1]]};
#endif
}

INLINE half_u low_half(vu x)
{
#if CPU_LEVEL == 2
  return (half_u)_mm512_castsi512_si256((__m512i)x);
#elif CPU_LEVEL == 1
  return (half_u)_mm256_castsi256_si128((__m256i)x);
#else
  return (half_u){x[0], x[1]};
#endif
}

INLINE half_u high_half(vu x)
{
#if CPU_LEVEL == 2
  return (half_u)_mm512_extracti32x8_epi32((__m512i)x, 1);
#elif CPU_LEVEL == 1
  return (half_u)_mm256_extracti128_si256((__m256i)x, 1);
#else
  return (half_u){x[2], x[3]};
#endif
}

INLINE vf joined(half_f low, half_f high)
{
#if CPU_LEVEL == 2
  return (vf)_mm512_insertf32x8(_mm512_castps256_ps512((__m256)low), (__m256)high, 1);
#elif CPU_LEVEL == 1
  return (vf)_mm256_set_m128((__m128)high, (__m128)low);
#else
  return (vf){low[0], low[1], high[0], high[1]};
#endif
}

/* The cubes of positive numbers, given as bits. */
INLINE half_f cube_half(half_u bits)
{
  half_u offset = bits - 0x3f330000;
  vl index = __builtin_convertvector(offset >> 19 & 15, vl);
  vd k = __builtin_convertvector((half_i)offset >> 23, vd);
  vd z = __builtin_convertvector((half_f)(bits - (offset & 0xff800000)), vd);
  vd r = z * look_up_16(cube_inverse, index) - 1, r2 = r * r, y0 = look_up_16(cube_lg, index) + k;
  vd y = 0x1.27616c9496e0bp-2 * r + -0x1.71969a075c67ap-2;
  vd p = 0x1.ec70a6ca7baddp-2 * r + -0x1.7154748bef6c8p-1;
  vd q = 0x1.71547652ab82bp+0 * r + y0;
  q = p * r2 + q;
  vd e = 3.0 * (y * (r2 * r2) + q);
  vd rounded = e + 0x1.8p47;
  vl n = (vl)rounded, scale = look_up_32(cube_exp2, n & 31) + (n << 47);
  r = e - (rounded - 0x1.8p47);
  z = 0x1.c6af84b912394p-5 * r + 0x1.ebfce50fac4f3p-3;
  y = 0x1.62e42ff0c52d6p-1 * r + 1;
  y = z * (r * r) + y;
  return __builtin_convertvector(y * (vd)scale, half_f);
}

static inline vf cube_by_lane(vf x)
{
  float lane[VW];
  v_store(lane, x);
  for (int i = 0; i < VW; i++)
    lane[i] = math_pow(lane[i], 3.0f);
  return v_load(lane);
}

/* powf(x, 3). Lanes whose argument or result is not an ordinary number send the vector to the reference: with |x|
 * between 2^-40 and 2^42 the exponent of the result is between -120 and 126. */
INLINE vf vm_cube(vf x)
{
  vf a = v_abs(x);
  vm odd = v_either(v_lt(a, v_set(0x1p-40f)), v_ge(a, v_set(0x1p42f)));
  if (v_any(v_either(odd, v_nan(x))))
    return cube_by_lane(x);
  return (vf)((vu)joined(cube_half(low_half((vu)a)), cube_half(high_half((vu)a))) | ((vu)x & 0x80000000));
}

#endif
