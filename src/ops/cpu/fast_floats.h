/* fast_floats.h - products of floats, fused, at one SIMD level: a part of fast_linear.h.
 *
 * Dense matrices: part = fma(x, w, part), k ascending. The fp modes sum a group from zero, then part = fma(scale,
 * group, part). Several tokens share a tile of floats, and their parts may wait in memory between blocks of k; one
 * token takes a part straight from the mapping, as linear.h does it.
 */
#ifndef TERN_OPS_CPU_FAST_FLOATS_H
#define TERN_OPS_CPU_FAST_FLOATS_H

#include "ops/cpu/packed.h"
#include "ops/cpu/weights.h"
#include "ops/fast_ref/fast.h"

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
#if CPU_REGISTERS == 32
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
#if CPU_REGISTERS == 32
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

/* ---- one token ---- */

enum { ONE_VECTORS = 4 };

/* Fetches so many bytes of the rows behind. */
INLINE void fetch_ahead(const uint8_t **ahead, int bytes)
{
  for (int i = 0; i < bytes; i += 64)
    __builtin_prefetch(*ahead + i, 0, 2);
  *ahead += bytes;
}

/* The part [k0, k0 + count) of ONE_VECTORS vectors of outputs. */
INLINE void dense_one(const ops_dtype stored, const tile_rows *rows, int64_t k0, int count, const float *x,
                      const uint8_t **ahead, float *out)
{
  const int a_word = stored == DT_F32 ? 1 : 2, size = 4 / a_word, chunk = VW * a_word;
  vf acc[ONE_VECTORS];
  vu word[ONE_VECTORS][VW];
  UNROLL for (int v = 0; v < ONE_VECTORS; v++) acc[v] = v_set(0);
  for (int k = 0; k < count; k += chunk) {
    int n = count - k < chunk ? count - k : chunk;
    for (int v = 0; v < ONE_VECTORS; v++)
      load_words(rows->data + v * VW, (k0 + k) * size, n * size, word[v]);
    fetch_ahead(ahead, ONE_VECTORS * VW * 4 * VW);
    for (int j = 0; j < n; j++) {
      vf input = v_set(x[k + j]);
      UNROLL for (int v = 0; v < ONE_VECTORS; v++)
      {
        vu bits = word[v][j / a_word];
        acc[v] = v_fma(input, a_word == 1 ? (vf)bits : widen_half(stored, bits, j % 2), acc[v]);
      }
    }
  }
  UNROLL for (int v = 0; v < ONE_VECTORS; v++) v_store(out + v * VW, acc[v]);
}

/* The same of a matrix of an fp mode, with its scales [groups][ONE_VECTORS * VW]. A group fills whole words. */
INLINE void fp_one(const int bits, const int group, const tile_rows *rows, int64_t k0, int count, const float *x,
                   const float *scales, const uint8_t **ahead, float *out)
{
  const int words = group * bits / 32, groups = TILE_WORDS / words;
  vf acc[ONE_VECTORS];
  vu word[ONE_VECTORS][TILE_WORDS];
  UNROLL for (int v = 0; v < ONE_VECTORS; v++) acc[v] = v_set(0);
  for (int k = 0; k < count; k += groups * group) {
    for (int v = 0; v < ONE_VECTORS; v++)
      load_tile_words(rows->data + v * VW, (k0 + k) * bits / 8, (count - k) * bits / 8, word[v]);
    fetch_ahead(ahead, ONE_VECTORS * VW * TILE_WORDS * 4);
    for (int g = 0; g < groups && k + g * group < count; g++, scales += ONE_VECTORS * VW) {
      vf sum[ONE_VECTORS];
      UNROLL for (int v = 0; v < ONE_VECTORS; v++) sum[v] = v_set(0);
      for (int i = 0; i < words; i++) {
        UNROLL for (int j = 0; j < 32 / bits; j++)
        {
          vf input = v_set(x[k + g * group + i * (32 / bits) + j]);
          UNROLL for (int v = 0; v < ONE_VECTORS; v++)
          {
            sum[v] = v_fma(input, low_code(bits, true, word[v][g * words + i] >> (bits * j)), sum[v]);
            KEEP_HERE(sum[v]);
          }
        }
      }
      UNROLL for (int v = 0; v < ONE_VECTORS; v++) acc[v] = v_fma(v_load(scales + v * VW), sum[v], acc[v]);
    }
  }
  UNROLL for (int v = 0; v < ONE_VECTORS; v++) v_store(out + v * VW, acc[v]);
}

static void float_one(const ops_weight *w, const tile_rows *rows, int64_t k0, int count, const float *x,
                      const uint8_t **ahead, float *out)
{
  float scales[FAST_PART / 16 * ONE_VECTORS * VW];
  if (w->quant != Q_NONE)
    widen_biases(w, rows->scales, k0 / w->group, count / w->group, ONE_VECTORS, scales);
  if (w->quant == Q_MXFP4)
    fp_one(4, 32, rows, k0, count, x, scales, ahead, out);
  else if (w->quant == Q_MXFP8)
    fp_one(8, 32, rows, k0, count, x, scales, ahead, out);
  else if (w->quant == Q_NVFP4)
    fp_one(4, 16, rows, k0, count, x, scales, ahead, out);
  else if (w->stored == DT_F32)
    dense_one(DT_F32, rows, k0, count, x, ahead, out);
  else if (w->stored == DT_BF16)
    dense_one(DT_BF16, rows, k0, count, x, ahead, out);
  else
    dense_one(DT_F16, rows, k0, count, x, ahead, out);
}

#endif
