/* sample_avx2.c - the sampler's loops, eight lanes wide, with the bits of sample_kernels.c.
 *
 * The sum stays sequential; what makes it fast is that most terms of a real distribution cannot move it. The running
 * sum t only grows, and adding e to it does nothing where e is less than half the distance from t to the next float, so
 * eight terms that are all that small are skipped at once.
 */
#include "engine/sample_impl.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "ops/math.h"

static float reduce_max(__m256 v)
{
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

static float largest(const float *x, size_t n)
{
  __m256 m = _mm256_set1_ps(-INFINITY), nan = _mm256_setzero_ps();
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 v = _mm256_loadu_ps(x + i);
    m = _mm256_max_ps(m, v);
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  }
  if (_mm256_movemask_ps(nan))
    return NAN;
  float best = reduce_max(m), rest = sample_kernels_baseline.max(x + i, n - i);
  return rest != rest || rest > best ? rest : best;
}

static inline __m256 rounded(sample_type type, __m256 v)
{
  if (type == SAMPLE_F16)
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  if (type == SAMPLE_F32)
    return v;
  __m256i u = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32((int)0xffff0000u)));
}

/* math_exp for arguments of at most zero; see there for the split of t. */
static inline __m256 exp8(__m256 x)
{
  __m256 low = _mm256_cmp_ps(x, _mm256_set1_ps(-88.0f), _CMP_LT_OQ);
  __m256 t = _mm256_mul_ps(_mm256_max_ps(x, _mm256_set1_ps(-88.0f)), _mm256_set1_ps(0x1.715476p+0f));
  __m256 n = _mm256_floor_ps(t);
  __m256 up = _mm256_cmp_ps(_mm256_sub_ps(t, n), _mm256_set1_ps(0.5f), _CMP_GE_OQ);
  n = _mm256_add_ps(n, _mm256_and_ps(up, _mm256_set1_ps(1.0f)));
  __m256 f = _mm256_sub_ps(t, n);
  __m256 p = _mm256_set1_ps(0x1.41fbbcp-13f);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.5f3e52p-10f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.3b2d4cp-7f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.c6aee8p-5f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.ebfbdcp-3f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0x1.62e430p-1f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
  __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_andnot_ps(low, _mm256_mul_ps(_mm256_castsi256_ps(power), p));
}

static inline void exponentials_of(sample_type type, const float *x, float shift, float *y, size_t n)
{
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 d = rounded(type, _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(shift)));
    _mm256_storeu_ps(y + i, rounded(type, exp8(d)));
  }
  sample_kernels_baseline.exp(type, x + i, shift, y + i, n - i);
}

static void exponentials(sample_type type, const float *x, float shift, float *y, size_t n)
{
  if (type == SAMPLE_F32)
    exponentials_of(SAMPLE_F32, x, shift, y, n);
  else if (type == SAMPLE_BF16)
    exponentials_of(SAMPLE_BF16, x, shift, y, n);
  else
    exponentials_of(SAMPLE_F16, x, shift, y, n);
}

/* Half the distance from t (positive, normal) to the next float. */
static inline float half_step(float t)
{
  uint32_t exponent = f32_bits(t) & 0x7f800000u;
  return exponent > 24u << 23 ? f32_from_bits(exponent - (24u << 23)) : 0.0f;
}

static float sum(const float *x, size_t n)
{
  float t = 0;
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 v = _mm256_loadu_ps(x + i);
    if (_mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(half_step(t)), _CMP_GE_OQ)) == 0)
      continue;
    for (int k = 0; k < 8; k++)
      t += x[i + (size_t)k];
  }
  for (; i < n; i++)
    t += x[i];
  return t;
}

static void subtract(sample_type type, float *x, float y, size_t n)
{
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(x + i, rounded(type, _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(y))));
  sample_kernels_baseline.subtract(type, x + i, y, n - i);
}

static size_t find(const float *x, size_t begin, size_t n, float limit)
{
  for (; begin + 8 <= n; begin += 8) {
    int hits = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + begin), _mm256_set1_ps(limit), _CMP_GE_OQ));
    if (hits)
      return begin + (size_t)__builtin_ctz((unsigned)hits);
  }
  return sample_kernels_baseline.find(x, begin, n, limit);
}

const sample_kernels sample_kernels_avx2 = {largest, exponentials, sum, subtract, find};

#endif
