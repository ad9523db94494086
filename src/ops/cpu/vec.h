/* vec.h - one vector vocabulary at three widths.
 *
 * A kernel file is compiled once a SIMD level; before it includes anything it defines CPU_LEVEL (0 baseline, 1 avx2,
 * 2 avx512, 3 neon). Here follow the types that level works with: VW lanes of float (vf), int32 (vi), uint32 (vu).
 * Arithmetic, shifts and bit operations are the compiler's vector operators; what those do not have (broadcast, fused
 * multiply-add, select, transposition, half floats) are functions beginning with v_. Level 0 is plain vector C for any
 * machine; level 3 is that with the instructions of every aarch64 processor where the compiler does not find them.
 *
 * Lanes never mix: what a lane holds is what the scalar formula gives, so kernels keep the reference's bits as long as
 * a sum stays inside its lane.
 */
#ifndef TERN_OPS_CPU_VEC_H
#define TERN_OPS_CPU_VEC_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#if CPU_LEVEL == 3
#include <arm_neon.h>
#elif CPU_LEVEL > 0
#include <immintrin.h>
#endif

#if CPU_LEVEL == 2
#define VW 16
#define CPU_NAME(name) name##_avx512
#elif CPU_LEVEL == 1
#define VW 8
#define CPU_NAME(name) name##_avx2
#elif CPU_LEVEL == 3
#define VW 4
#define CPU_NAME(name) name##_neon
#else
#define VW 4
#define CPU_NAME(name) name##_baseline
#endif

/* How many vectors there are room for: what kernels hold of sums. */
#define CPU_REGISTERS (CPU_LEVEL >= 2 ? 32 : 16)

/* Unrolled loops turn small arrays into registers; INLINE functions are bodies for constant arguments. Sanitizers check
 * each access to such an array before it can become a register: what is unrolled and inlined then takes a compiler
 * minutes a file, so their builds do without. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CPU_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CPU_SANITIZED
#endif
#ifdef CPU_SANITIZED
#define UNROLL
#define INLINE static inline __attribute__((unused))
#else
#define UNROLL _Pragma("GCC unroll 32")
#define INLINE static inline __attribute__((always_inline))
#endif

typedef float vf __attribute__((vector_size(4 * VW)));
typedef int32_t vi __attribute__((vector_size(4 * VW)));
typedef uint32_t vu __attribute__((vector_size(4 * VW)));

/* Memory access at any byte offset, of whatever type. */
typedef float vf_any __attribute__((vector_size(4 * VW), aligned(1), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(4 * VW), aligned(1), may_alias));

INLINE vf v_load(const float *p)
{
  return *(const vf_any *)p;
}

INLINE void v_store(float *p, vf x)
{
  *(vf_any *)p = x;
}

INLINE vu v_load_words(const uint8_t *p)
{
  return *(const vu_any *)p;
}

INLINE vf v_float(vi x)
{
  return __builtin_convertvector(x, vf);
}

/* Toward zero; the caller keeps lanes within int32. */
INLINE vi v_trunc(vf x)
{
  return __builtin_convertvector(x, vi);
}

/* ---- what depends on the level ---- */

#if CPU_LEVEL == 2

typedef __mmask16 vm; /* a truth value a lane */

INLINE vf v_set(float x)
{
  return (vf)_mm512_set1_ps(x);
}

INLINE vf v_fma(vf a, vf b, vf c)
{
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

/* a < b ? a : b, and so b where either is NaN. */
INLINE vf v_min(vf a, vf b)
{
  return (vf)_mm512_min_ps((__m512)a, (__m512)b);
}

INLINE vf v_max(vf a, vf b)
{
  return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}

INLINE vf v_sqrt(vf x)
{
  return (vf)_mm512_sqrt_ps((__m512)x);
}

INLINE vm v_lt(vf a, vf b)
{
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
}

INLINE vm v_ge(vf a, vf b)
{
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ);
}

INLINE vm v_nan(vf a)
{
  return _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q);
}

INLINE vm v_eq_int(vi a, vi b)
{
  return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b);
}

INLINE vm v_gt_int(vi a, vi b)
{
  return _mm512_cmpgt_epi32_mask((__m512i)a, (__m512i)b);
}

INLINE vi v_max_int(vi a, vi b)
{
  return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
}

INLINE vm v_either(vm a, vm b)
{
  return a | b;
}

INLINE bool v_any(vm m)
{
  return m != 0;
}

/* m ? a : b */
INLINE vf v_select(vm m, vf a, vf b)
{
  return (vf)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a);
}

INLINE vf v_floor(vf x)
{
  return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

/* float16 in the low halves of the lanes. */
INLINE vf v_from_f16(vu x)
{
  return (vf)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)x));
}

/* 16 bfloat16 or float16 at p. */
INLINE vf v_load_bf16(const uint8_t *p)
{
  return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16);
}

INLINE vf v_load_f16(const uint8_t *p)
{
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

/* The low bits of every lane, the rest ignored, as a number. Up to five bits are one look-up. */
INLINE vf v_code(const int bits, vu x)
{
  const __m512 four = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 three = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512 two = _mm512_setr_ps(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
  const __m512 five = _mm512_setr_ps(16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
  if (bits == 5)
    return (vf)_mm512_permutex2var_ps(four, (__m512i)x, five);
  if (bits > 5)
    return v_float((vi)(x & ((1u << bits) - 1)));
  return (vf)_mm512_permutexvar_ps((__m512i)x, bits == 4 ? four : bits == 3 ? three : two);
}

/* The low four bits as fp4 (e2m1). */
INLINE vf v_fp4(vu x)
{
  const __m512 table = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
  return (vf)_mm512_permutexvar_ps((__m512i)x, table);
}

/* The low two bits less one, as a number. */
INLINE vf v_ternary(vu x)
{
  const __m512 table = _mm512_setr_ps(-1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2);
  return (vf)_mm512_permutexvar_ps((__m512i)x, table);
}

/* The first n <= 64 bytes at p, zeros behind them; reads no byte more. */
INLINE vu v_load_bytes(const uint8_t *p, int n)
{
  return (vu)_mm512_maskz_loadu_epi8(n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1, p);
}

/* Lane i of result j is lane j of r[i]. */
INLINE void v_transpose(vu *r)
{
  __m512i t[16], s[16];
  UNROLL for (int i = 0; i < 16; i += 2)
  {
    t[i] = _mm512_unpacklo_epi32((__m512i)r[i], (__m512i)r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32((__m512i)r[i], (__m512i)r[i + 1]);
  }
  UNROLL for (int i = 0; i < 16; i += 4)
  {
    s[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    s[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    s[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    s[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  UNROLL for (int i = 0; i < 4; i++)
  {
    t[i] = _mm512_shuffle_i32x4(s[i], s[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(s[i], s[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(s[i + 8], s[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(s[i + 8], s[i + 12], 0xdd);
  }
  UNROLL for (int i = 0; i < 4; i++)
  {
    r[i] = (vu)_mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = (vu)_mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = (vu)_mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = (vu)_mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

#else /* levels 0 and 1: truth is all ones or all zeros in an integer lane */

typedef vi vm;

INLINE vm v_lt(vf a, vf b)
{
  return a < b;
}

INLINE vm v_ge(vf a, vf b)
{
  return a >= b;
}

INLINE vm v_nan(vf a)
{
  return (vi)((vu)a & 0x7fffffff) > 0x7f800000;
}

INLINE vm v_eq_int(vi a, vi b)
{
  return a == b;
}

INLINE vm v_gt_int(vi a, vi b)
{
  return a > b;
}

INLINE vm v_either(vm a, vm b)
{
  return a | b;
}

#if CPU_LEVEL == 1

INLINE vf v_set(float x)
{
  return (vf)_mm256_set1_ps(x);
}

INLINE vf v_fma(vf a, vf b, vf c)
{
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

INLINE vf v_min(vf a, vf b)
{
  return (vf)_mm256_min_ps((__m256)a, (__m256)b);
}

INLINE vf v_max(vf a, vf b)
{
  return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}

INLINE vf v_sqrt(vf x)
{
  return (vf)_mm256_sqrt_ps((__m256)x);
}

INLINE vi v_max_int(vi a, vi b)
{
  return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

INLINE bool v_any(vm m)
{
  return _mm256_movemask_ps((__m256)m) != 0;
}

INLINE vf v_select(vm m, vf a, vf b)
{
  return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)m);
}

INLINE vf v_floor(vf x)
{
  return (vf)_mm256_floor_ps((__m256)x);
}

INLINE vf v_from_f16(vu x)
{
  __m256i low = _mm256_and_si256((__m256i)x, _mm256_set1_epi32(0xffff));
  __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
  return (vf)_mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}

/* 8 bfloat16 or float16 at p. */
INLINE vf v_load_bf16(const uint8_t *p)
{
  return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16);
}

INLINE vf v_load_f16(const uint8_t *p)
{
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}

INLINE vf v_fp4(vu x)
{
  const __m256 table = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
  vu magnitude = (vu)_mm256_permutevar8x32_ps(table, (__m256i)x); /* by the low three bits */
  return (vf)(magnitude | (x & 8) << 28);
}

INLINE vf v_ternary(vu x)
{
  return (vf)_mm256_permutevar8x32_ps(_mm256_setr_ps(-1, 0, 1, 2, -1, 0, 1, 2), (__m256i)x);
}

INLINE void v_transpose(vu *r)
{
  __m256i t[8], s[8];
  UNROLL for (int i = 0; i < 8; i += 2)
  {
    t[i] = _mm256_unpacklo_epi32((__m256i)r[i], (__m256i)r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32((__m256i)r[i], (__m256i)r[i + 1]);
  }
  UNROLL for (int i = 0; i < 8; i += 4)
  {
    s[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    s[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    s[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    s[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  UNROLL for (int i = 0; i < 4; i++)
  {
    r[i] = (vu)_mm256_permute2x128_si256(s[i], s[i + 4], 0x20);
    r[i + 4] = (vu)_mm256_permute2x128_si256(s[i], s[i + 4], 0x31);
  }
}

#else

INLINE vf v_set(float x)
{
  return (vf){x, x, x, x};
}

INLINE vf v_select(vm m, vf a, vf b)
{
  return (vf)((m & (vi)a) | (~m & (vi)b));
}

#if CPU_LEVEL == 3

INLINE vf v_fma(vf a, vf b, vf c)
{
  return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

INLINE bool v_any(vm m)
{
  return vmaxvq_u32((uint32x4_t)m) != 0;
}

INLINE vf v_sqrt(vf x)
{
  return (vf)vsqrtq_f32((float32x4_t)x);
}

INLINE vf v_floor(vf x)
{
  return (vf)vrndmq_f32((float32x4_t)x);
}

INLINE vf v_from_f16(vu x)
{
  return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32((uint32x4_t)x)));
}

/* 4 bfloat16 or float16 at p. */
INLINE vf v_load_bf16(const uint8_t *p)
{
  return (vf)vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16);
}

INLINE vf v_load_f16(const uint8_t *p)
{
  return (vf)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

#else

INLINE vf v_fma(vf a, vf b, vf c)
{
  return (vf){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]), fmaf(a[3], b[3], c[3])};
}

INLINE bool v_any(vm m)
{
  return (m[0] | m[1] | m[2] | m[3]) != 0;
}

INLINE vf v_sqrt(vf x)
{
  return (vf){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])};
}

/* For |x| < 2^31. */
INLINE vf v_floor(vf x)
{
  vf n = v_float(v_trunc(x));
  return n - v_select(n > x, v_set(1.0f), v_set(0.0f));
}

/* As base/half.h, a lane each. */
INLINE vf v_from_f16(vu x)
{
  vu sign = (x & 0x8000) << 16, m = x & 0x7fff;
  vu special = (m & 0x3ff) << 13 | 0x7f800000, normal = (m << 13) + 0x38000000;
  vf small = v_float((vi)m) * v_set(0x1p-24f);
  vf wide = v_select((vi)m > 0x7bff, (vf)special, (vf)normal);
  return (vf)(sign | (vu)v_select((vi)m < 0x400, small, wide));
}

#endif

INLINE vi v_max_int(vi a, vi b)
{
  vm first = a > b;
  return (first & a) | (~first & b);
}

INLINE vf v_min(vf a, vf b)
{
  return v_select(a < b, a, b);
}

INLINE vf v_max(vf a, vf b)
{
  return v_select(a > b, a, b);
}

INLINE vf v_fp4(vu x)
{
  vu m = x & 7;
  vf normal = (vf)((m << 22) + (126u << 23)), small = v_float((vi)m) * v_set(0.5f);
  return (vf)((vu)v_select((vi)m < 2, small, normal) | (x & 8) << 28);
}

INLINE vf v_ternary(vu x)
{
  return v_float((vi)(x & 3) - 1);
}

INLINE void v_transpose(vu *r)
{
  vu a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  vu c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5), d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

#endif

INLINE vf v_code(const int bits, vu x)
{
  return v_float((vi)(x & ((1u << bits) - 1)));
}

INLINE vu v_load_bytes(const uint8_t *p, int n)
{
  if (n >= 4 * VW)
    return v_load_words(p);
  uint8_t part[4 * VW] = {0};
  memcpy(part, p, (size_t)n);
  return v_load_words(part);
}

#endif

/* ---- built from those ---- */

INLINE vf v_abs(vf x)
{
  return (vf)((vu)x & 0x7fffffff);
}

/* bfloat16 in the low or in the high halves of the lanes. */
INLINE vf v_from_bf16(vu x)
{
  return (vf)(x << 16);
}

INLINE vf v_from_bf16_high(vu x)
{
  return (vf)(x & 0xffff0000);
}

/* fp8 (e4m3) in the low bytes of the lanes, the rest zero; 0x7f is 480. */
INLINE vf v_fp8(vu x)
{
  vu m = x & 127;
  vf normal = (vf)((m << 20) + (120u << 23)), small = v_float((vi)m) * v_set(0x1p-9f);
  return (vf)((vu)v_select(v_gt_int((vi)m, (vi){0} + 7), normal, small) | (x & 128) << 24);
}

#endif
