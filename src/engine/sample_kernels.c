/* sample_kernels.c - the sampler's loops in plain C: what the SIMD ones must equal, and what runs without AVX2. */
#include "engine/sample_impl.h"
#include "ops/math.h"

static float largest(const float *x, size_t n)
{
  float m = -INFINITY;
  for (size_t i = 0; i < n; i++) {
    if (x[i] != x[i])
      return x[i];
    m = x[i] > m ? x[i] : m;
  }
  return m;
}

static void exponentials(sample_type type, const float *x, float shift, float *y, size_t n)
{
  for (size_t i = 0; i < n; i++)
    y[i] = sample_round(type, math_exp(sample_round(type, x[i] - shift)));
}

static float sum(const float *x, size_t n)
{
  float t = 0;
  for (size_t i = 0; i < n; i++)
    t += x[i];
  return t;
}

static void subtract(sample_type type, float *x, float y, size_t n)
{
  for (size_t i = 0; i < n; i++)
    x[i] = sample_round(type, x[i] - y);
}

static size_t find(const float *x, size_t begin, size_t n, float limit)
{
  while (begin < n && !(x[begin] >= limit))
    begin++;
  return begin;
}

const sample_kernels sample_kernels_baseline = {largest, exponentials, sum, subtract, find};
