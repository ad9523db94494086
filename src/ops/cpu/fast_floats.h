/* fast_floats.h - tiles of floats times tokens, fused, at one SIMD level: a part of fast_linear.h.
 *
 * Dense matrices: part = fma(x, w, part), k ascending. The fp modes sum a group from zero, then part = fma(scale,
 * group, part). A part may wait in memory between blocks of k.
 */
#ifndef TERN_OPS_CPU_FAST_FLOATS_H
#define TERN_OPS_CPU_FAST_FLOATS_H

#include "ops/cpu/weights.h"

enum { FLOATS_BLOCK = 256, FLOATS_GROUPS = FLOATS_BLOCK / 16 * 2 * VW };

/* part[token][nv * VW] with tile[k][nv * VW] and x[token][k]; group 0: dense. scales [groups][nv * VW]. */
INLINE void float_product(const int tokens, const int nv, const float *tile, int count, int group, const float *x,
                          int64_t x_stride, float *part, const float *scales)
{
  int length = group ? group : count;
  for (int k0 = 0; k0 < count; k0 += length) {
    vf acc[12][2];
    UNROLL for (int t = 0; t < tokens; t++)
    {
      UNROLL for (int v = 0; v < nv; v++) acc[t][v] = group ? v_set(0) : v_load(part + (t * nv + v) * VW);
    }
    for (int k = k0; k < k0 + length; k++) {
      vf w[2];
      UNROLL for (int v = 0; v < nv; v++) w[v] = v_load(tile + (k * nv + v) * VW);
      UNROLL for (int t = 0; t < tokens; t++)
      {
        vf input = v_set(x[t * x_stride + k]);
        UNROLL for (int v = 0; v < nv; v++) acc[t][v] = v_fma(input, w[v], acc[t][v]);
      }
    }
    UNROLL for (int t = 0; t < tokens; t++)
    {
      UNROLL for (int v = 0; v < nv; v++)
      {
        float *to = part + (t * nv + v) * VW;
        v_store(to, group ? v_fma(v_load(scales + v * VW), acc[t][v], v_load(to)) : acc[t][v]);
      }
    }
    scales += nv * VW;
  }
}

typedef void float_product_fn(const float *tile, int count, int group, const float *x, int64_t x_stride, float *part,
                              const float *scales);

#define FLOAT_PRODUCT(tokens, nv)                                                                                      \
  static void float_product_##tokens##_##nv(const float *tile, int count, int group, const float *x, int64_t x_stride, \
                                            float *part, const float *scales)                                          \
  {                                                                                                                    \
    float_product(tokens, nv, tile, count, group, x, x_stride, part, scales);                                          \
  }
#define FLOAT_PRODUCTS(tokens) FLOAT_PRODUCT(tokens, 1) FLOAT_PRODUCT(tokens, 2)
FLOAT_PRODUCTS(1)
FLOAT_PRODUCTS(2)
FLOAT_PRODUCTS(3)
FLOAT_PRODUCTS(4)
FLOAT_PRODUCTS(6)
#if CPU_LEVEL == 2
FLOAT_PRODUCTS(8)
FLOAT_PRODUCTS(12)
#endif

/* All tokens, in steps that have a kernel. */
static void float_products(int tokens, int nv, const float *tile, int count, int group, const float *x,
                           int64_t x_stride, float *part, const float *scales)
{
#define STEP(tokens)                                                                                                   \
  {                                                                                                                    \
    tokens,                                                                                                            \
    {                                                                                                                  \
      float_product_##tokens##_1, float_product_##tokens##_2                                                           \
    }                                                                                                                  \
  }
  static const struct {
    int tokens;
    float_product_fn *by_vectors[2];
  } steps[] = {
#if CPU_LEVEL == 2
    STEP(12),
    STEP(8),
#endif
    STEP(6),
    STEP(4),
    STEP(3),
    STEP(2),
    STEP(1),
  };
#undef STEP
  for (int t = 0, i = 0; t < tokens; t += steps[i].tokens) {
    while (steps[i].tokens > tokens - t)
      i++;
    steps[i].by_vectors[nv - 1](tile, count, group, x + t * x_stride, x_stride, part + t * nv * VW, scales);
  }
}

#endif
