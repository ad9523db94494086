/* few.h - several tokens straight from the prepared layout, at one SIMD level: a part of linear.h.
 *
 * A weight is decoded once, in registers, and multiplied with up to FEW_TOKENS tokens whose sums are in registers too:
 * tokens x vectors of outputs. No tile is written, and a panel is walked as for one token (packed.h). The sums are
 * those of linear.h: k upward in every lane, each product rounded before it is added.
 *
 * Only whole panels, and only matrices whose scale * code is exact: the rest goes by tiles, as many tokens do.
 */
#ifndef TERN_OPS_CPU_FEW_H
#define TERN_OPS_CPU_FEW_H

#include "ops/cpu/packed.h"

#if CPU_LEVEL > 0

/* FEW_TOKENS: of one kernel at most. Above FEW_MOST tiles are as fast, for one token at AVX2 the kernels of packed.h.
 */
enum {
  FEW_TOKENS = CPU_REGISTERS == 32 ? 8 : 4,
  FEW_LEAST = CPU_REGISTERS == 32 ? 1 : 2,
  FEW_MOST = CPU_REGISTERS == 32 ? 16 : 4,
};

/* A pointer of its own: as a sum of another and an offset it would cost a look-up of the offset at every use. */
#define KEEP_POINTER(p) __asm__("" : "+r"(p))

/* Vectors of outputs beside each other: what the sums of so many tokens leave room for. */
INLINE int few_vectors(const int tokens)
{
  return CPU_REGISTERS == 32 && tokens <= 4 ? 4 : 2;
}

/* Code j of nv vectors of outputs whose words begin at p, `line` bytes apart; word, low: the words last loaded. */
INLINE void few_decode(const int bits, const int j, const int nv, const uint8_t *p, int64_t line, const vf *scale,
                       const vf *bias, vu *word, vf *weight)
{
  const int at = j * bits / 32, shift = j * bits % 32;
  const bool fresh = shift == 0, across = shift + bits > 32;
  vu code[MOST_VECTORS];
  UNROLL for (int v = 0; v < nv; v++)
  {
    vu low = across ? word[v] >> shift : (vu){0};
    if (fresh || across) {
      const uint8_t *next = p + (at + across) * line + v * 4 * VW;
      word[v] = v_load_words(next);
      __builtin_prefetch(next + PACKED_AHEAD, 0, 3);
    }
    code[v] = across ? low | word[v] << (32 - shift) : word[v] >> shift;
  }
  UNROLL for (int v = 0; v < nv; v++)
  {
    weight[v] = affine_value(scale[v], v_code(bits, code[v]), bias[v]);
    KEEP_HERE(weight[v]);
  }
}

/* acc += x * weight for `codes` codes. A weight is decoded while the code before it is multiplied: with the decoding
 * right before its own products a core does a fifth less. */
INLINE void few_words(const int bits, const int codes, const int tokens, const int nv, const uint8_t *p, int64_t line,
                      const float *const *x, int64_t k, const vf *scale, const vf *bias, vf (*acc)[MOST_VECTORS])
{
  vu word[MOST_VECTORS];
  vf weight[MOST_VECTORS], next[MOST_VECTORS];
  few_decode(bits, 0, nv, p, line, scale, bias, word, next);
  UNROLL for (int j = 0; j < codes; j++)
  {
    UNROLL for (int v = 0; v < nv; v++) weight[v] = next[v];
    if (j + 1 < codes)
      few_decode(bits, j + 1, nv, p, line, scale, bias, word, next);
    UNROLL for (int t = 0; t < tokens; t++)
    {
      vf input = v_set(x[t][k + j]);
      UNROLL for (int v = 0; v < nv; v++)
      {
        acc[t][v] += input * weight[v];
        KEEP_HERE(acc[t][v]);
      }
    }
  }
}

/* Sums [tokens][nv * VW] of outputs from n0 on, which lie in one panel. */
INLINE void few_sums(const int bits, const int tokens, const ops_weight *w, int64_t n0, const float *x, float *sums)
{
  const int nv = few_vectors(tokens), codes = 32 % bits ? PACKED_UNIT : 32 / bits;
  const ops_dtype stored = w->stored;
  layout_place at = layout_find(w, n0);
  int64_t size = layout_scale_bytes(w), line = at.blocks * LAYOUT_BLOCK * 4, group = at.blocks * layout_group_bytes(w);
  const uint8_t *g = at.group, *end = g + w->k / w->group * group;
  vf acc[FEW_TOKENS][MOST_VECTORS];
  const float *row[FEW_TOKENS];
  UNROLL for (int t = 0; t < tokens; t++)
  {
    row[t] = x + t * w->k;
    KEEP_POINTER(row[t]);
    UNROLL for (int v = 0; v < nv; v++) acc[t][v] = v_set(0);
  }
  for (int64_t k = 0; g < end; g += group) {
    const uint8_t *scales = g + at.row * size, *biases = scales + at.blocks * LAYOUT_BLOCK * size;
    const uint8_t *words = g + 2 * at.blocks * LAYOUT_BLOCK * size + at.row * 4;
    vf scale[MOST_VECTORS], bias[MOST_VECTORS];
    UNROLL for (int v = 0; v < nv; v++)
    {
      scale[v] = packed_scales(stored, scales + v * VW * size);
      bias[v] = packed_scales(stored, biases + v * VW * size);
    }
    __builtin_prefetch(scales + PACKED_AHEAD, 0, 3);
    __builtin_prefetch(biases + PACKED_AHEAD, 0, 3);
    for (int u = 0; u < w->group; u += codes, k += codes, words += codes * bits / 32 * line)
      few_words(bits, codes, tokens, nv, words, line, row, k, scale, bias, acc);
  }
  UNROLL for (int t = 0; t < tokens; t++)
  {
    UNROLL for (int v = 0; v < nv; v++) v_store(sums + (t * nv + v) * VW, acc[t][v]);
  }
}

typedef void few_fn(const ops_weight *w, int64_t n0, const float *x, float *sums);

#define FEW(bits, tokens)                                                                                              \
  static void few_##bits##_##tokens(const ops_weight *w, int64_t n0, const float *x, float *sums)                      \
  {                                                                                                                    \
    few_sums(bits, tokens, w, n0, x, sums);                                                                            \
  }
#if CPU_REGISTERS == 32
#define FEW_OF(bits)                                                                                                   \
  FEW(bits, 1) FEW(bits, 2) FEW(bits, 3) FEW(bits, 4) FEW(bits, 5) FEW(bits, 6) FEW(bits, 7) FEW(bits, 8)
#define FEW_ROW(bits)                                                                                                  \
  {                                                                                                                    \
    few_##bits##_1, few_##bits##_2, few_##bits##_3, few_##bits##_4, few_##bits##_5, few_##bits##_6, few_##bits##_7,    \
        few_##bits##_8                                                                                                 \
  }
#else
#define FEW_OF(bits) FEW(bits, 2) FEW(bits, 3) FEW(bits, 4)
#define FEW_ROW(bits)                                                                                                  \
  {                                                                                                                    \
    NULL, few_##bits##_2, few_##bits##_3, few_##bits##_4                                                               \
  }
#endif
FEW_OF(2)
FEW_OF(3)
FEW_OF(4)
FEW_OF(5)
FEW_OF(6)
FEW_OF(8)

static few_fn *few_kernel(int bits, int tokens)
{
  static few_fn *const kernels[9][FEW_TOKENS] = {
      [2] = FEW_ROW(2), [3] = FEW_ROW(3), [4] = FEW_ROW(4), [5] = FEW_ROW(5), [6] = FEW_ROW(6), [8] = FEW_ROW(8)};
  return kernels[bits][tokens - 1];
}

#endif
#endif
