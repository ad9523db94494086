/* fast_pairs.h - dot products of affine codes and 16 bit inputs, at one SIMD level: a part of fast_linear.h.
 *
 * A lane of 32 bits holds one output, and in it two codes of that output, 16 bits each: a pair. One instruction
 * multiplies a pair by a pair of inputs, which all lanes share, and adds both products to the lane: vpdpwssd where
 * there is VNNI, else vpmaddwd and an addition. Sums of codes are whole numbers below 2^31 (fast.h), so any order and
 * any number of sums side by side give the same bits; only the few float steps after each group have an order.
 *
 * Which two codes share a lane is chosen so that the words of the checkpoint need no more than shifts and masks:
 *
 *   2, 4, 8 bits   codes j and j + 16 / bits of each word: the same place in both halves of it
 *   3, 5, 6 bits   codes j and j + 16 of 32: halves i and i + bits of their words side by side, then as above
 *
 * Inputs are laid out in that order (input_order, order_inputs).
 *
 * Two kinds of kernel, both for one part of k (fast.h) and some tokens:
 *   direct    words to registers to sums, for few tokens. With one it is bound by memory.
 *   product   from a tile of pairs that was expanded once, pair-major: as many tokens as registers hold sums of.
 */
#ifndef TERN_OPS_CPU_FAST_PAIRS_H
#define TERN_OPS_CPU_FAST_PAIRS_H

#include "ops/cpu/fast_part.h"

#if CPU_LEVEL == 0 && defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
  UNIT_PAIRS = UNIT / 2,
  DIRECT_STEP = CPU_LEVEL > 0 ? 4 : 1, /* tokens of a direct kernel at most */
  TILE_VECTORS = 2,                    /* of a tile at most */
};

/* Vectors of outputs that a direct kernel carries. */
#define DIRECT_VECTORS(tokens) (CPU_REGISTERS == 32 || (tokens) == 1 ? 4 : 2)

/* Both inputs of a pair in every lane. */
INLINE vu v_pair(const int16_t *x)
{
  uint32_t both;
  memcpy(&both, x, sizeof both);
#if CPU_LEVEL == 2
  return (vu)_mm512_set1_epi32((int)both);
#elif CPU_LEVEL == 1
  return (vu)_mm256_set1_epi32((int)both);
#else
  return (vu){both, both, both, both};
#endif
}

/* sum += code * input for both of a pair. */
INLINE vi v_dot(vi sum, vu codes, vu inputs)
{
#if CPU_LEVEL == 2 && CPU_VNNI
  return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)codes, (__m512i)inputs);
#elif CPU_LEVEL == 2
  return sum + (vi)_mm512_madd_epi16((__m512i)codes, (__m512i)inputs);
#elif CPU_LEVEL == 1 && CPU_VNNI
  return (vi)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)codes, (__m256i)inputs);
#elif CPU_LEVEL == 1
  return sum + (vi)_mm256_madd_epi16((__m256i)codes, (__m256i)inputs);
#elif defined(__SSE2__)
  return sum + (vi)_mm_madd_epi16((__m128i)codes, (__m128i)inputs);
#else
  vi low = (vi)(inputs << 16) >> 16, high = (vi)inputs >> 16;
  return sum + (vi)(codes & 0xffff) * low + (vi)(codes >> 16) * high;
#endif
}

/* ---- words to pairs ---- */

/* How far apart the codes of a pair are, and so its inputs. */
static inline int input_order(const int bits)
{
  return bits == 3 || bits == 5 || bits == 6 ? 16 : 16 / bits;
}

/* Tokens that take direct kernels, step by step. Beyond, expanding once pays. */
static inline int most_direct(const int bits)
{
  if (CPU_LEVEL == 0)
    return 1;
  return input_order(bits) == 16 ? 4 : CPU_REGISTERS == 32 ? 32 : 8;
}

/* ---- inputs ---- */

typedef int16_t vs8 __attribute__((vector_size(16)));
typedef int16_t vs8_any __attribute__((vector_size(16), aligned(1), may_alias));

/* Codes j and j + distance side by side. */
static void order_inputs(int distance, const int16_t *codes, int n, int16_t *out)
{
  for (int i = 0; i < n; i += UNIT, codes += UNIT, out += UNIT) {
    UNROLL for (int j = 0; j < UNIT; j += 16)
    {
      int at = distance == 16 ? j / 2 : j;
      vs8 a = *(const vs8_any *)(codes + at), b = *(const vs8_any *)(codes + at + (distance == 16 ? 16 : 8));
      vs8_any *to = (vs8_any *)(out + j);
      if (distance >= 8) {
        to[0] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        to[1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
      } else if (distance == 4) {
        to[0] = __builtin_shufflevector(a, a, 0, 4, 1, 5, 2, 6, 3, 7);
        to[1] = __builtin_shufflevector(b, b, 0, 4, 1, 5, 2, 6, 3, 7);
      } else {
        to[0] = __builtin_shufflevector(a, a, 0, 2, 1, 3, 4, 6, 5, 7);
        to[1] = __builtin_shufflevector(b, b, 0, 2, 1, 3, 4, 6, 5, 7);
      }
    }
  }
}

/* ---- direct ---- */

enum { CHAINS = 2 }; /* sums side by side for one token, so that their latency does not count */

/* acc[chain][token][vector] += a unit whose words begin at p. 2, 4 and 8 bits: word by word, as they lie. */
INLINE void direct_words(const int bits, const int tokens, const int nv, const uint8_t *p, int64_t line,
                         const int16_t *x, vi (*acc)[4][4])
{
  const int in_word = 16 / bits, chains = tokens == 1 ? CHAINS : 1;
  UNROLL for (int i = 0; i < bits; i++)
  {
    vu word[4];
    UNROLL for (int v = 0; v < nv; v++)
    {
      word[v] = v_load_words(p + i * line + v * 4 * VW);
      __builtin_prefetch(p + i * line + v * 4 * VW + PACKED_AHEAD, 0, 3);
    }
    UNROLL for (int q = 0; q < in_word; q++)
    {
      vu pair[4];
      UNROLL for (int v = 0; v < nv; v++) pair[v] = v_fields(bits, word[v], bits * q);
      UNROLL for (int t = 0; t < tokens; t++)
      {
        vu input = v_pair(x + t * FAST_PART + (i * in_word + q) * 2);
        UNROLL for (int v = 0; v < nv; v++)
        {
          acc[q % chains][t][v] = v_dot(acc[q % chains][t][v], pair[v], input);
          KEEP_HERE(acc[q % chains][t][v]);
        }
      }
    }
  }
}

/* 3, 5 and 6 bits: a vector of outputs after another, whose halves then fit into registers. */
INLINE void direct_halves(const int bits, const int tokens, const int nv, const uint8_t *p, int64_t line,
                          const int16_t *x, vi (*acc)[4][4])
{
  const int chains = tokens == 1 ? CHAINS : 1;
  UNROLL for (int v = 0; v < nv; v++)
  {
    vu word[8], halves[8];
    UNROLL for (int i = 0; i < bits; i++)
    {
      word[i] = v_load_words(p + i * line + v * 4 * VW);
      __builtin_prefetch(p + i * line + v * 4 * VW + PACKED_AHEAD, 0, 3);
    }
    UNROLL for (int i = 0; i < bits; i++) halves[i] = v_halves(bits, word, i);
    UNROLL for (int j = 0; j < UNIT_PAIRS; j++)
    {
      vu pair = v_pair_of(bits, halves, j);
      UNROLL for (int t = 0; t < tokens; t++)
      {
        acc[j % chains][t][v] = v_dot(acc[j % chains][t][v], pair, v_pair(x + t * FAST_PART + j * 2));
        KEEP_HERE(acc[j % chains][t][v]);
      }
    }
  }
}

/* out[token][nv * VW]: the part of nv * VW outputs. x [tokens][FAST_PART], sums [tokens][PART_GROUPS]. */
INLINE void direct(const int bits, const int tokens, const int nv, const fast_part *p, const int16_t *x,
                   const float *sums, float *out)
{
  const int chains = tokens == 1 ? CHAINS : 1;
  const int64_t size = part_scale_bytes(p);
  const uint8_t *scales = p->scales, *biases = p->biases, *words = p->words;
  vf part[4][4];
  UNROLL for (int t = 0; t < tokens; t++)
  {
    UNROLL for (int v = 0; v < nv; v++) part[t][v] = v_set(0);
  }
  for (int g = 0; g < p->groups; g++) {
    vi acc[CHAINS][4][4];
    UNROLL for (int c = 0; c < chains; c++)
    {
      UNROLL for (int t = 0; t < tokens; t++)
      {
        UNROLL for (int v = 0; v < nv; v++) acc[c][t][v] = (vi){0};
      }
    }
    const uint8_t *unit = words;
    for (int u = 0; u < p->units; u++, unit += bits * p->line, x += UNIT) {
      if (bits == 3 || bits == 5 || bits == 6)
        direct_halves(bits, tokens, nv, unit, p->line, x, acc);
      else
        direct_words(bits, tokens, nv, unit, p->line, x, acc);
    }
    __builtin_prefetch(scales + PACKED_AHEAD, 0, 3);
    __builtin_prefetch(biases + PACKED_AHEAD, 0, 3);
    UNROLL for (int v = 0; v < nv; v++)
    {
      vf scale = part_scale(p, scales + v * VW * size), bias = part_scale(p, biases + v * VW * size);
      UNROLL for (int t = 0; t < tokens; t++)
      {
        vi dot = chains == 2 ? acc[0][t][v] + acc[1][t][v] : acc[0][t][v];
        part[t][v] = v_fma(scale, v_float(dot), part[t][v]);
        part[t][v] = v_fma(bias, v_set(sums[t * PART_GROUPS + g]), part[t][v]);
      }
    }
    scales += p->scale_step;
    biases += p->scale_step;
    words += p->word_step;
  }
  UNROLL for (int t = 0; t < tokens; t++)
  {
    UNROLL for (int v = 0; v < nv; v++) v_store(out + (t * nv + v) * VW, part[t][v]);
  }
}

typedef void direct_fn(const fast_part *p, const int16_t *x, const float *sums, float *out);

#define DIRECT(bits, tokens)                                                                                           \
  static void direct_##bits##_##tokens(const fast_part *p, const int16_t *x, const float *sums, float *out)            \
  {                                                                                                                    \
    direct(bits, tokens, DIRECT_VECTORS(tokens), p, x, sums, out);                                                     \
  }
#if CPU_LEVEL > 0
#define DIRECTS(bits) DIRECT(bits, 1) DIRECT(bits, 2) DIRECT(bits, 3) DIRECT(bits, 4)
#define DIRECT_NAMES(bits)                                                                                             \
  {                                                                                                                    \
    direct_##bits##_1, direct_##bits##_2, direct_##bits##_3, direct_##bits##_4                                         \
  }
#else
#define DIRECTS(bits) DIRECT(bits, 1)
#define DIRECT_NAMES(bits)                                                                                             \
  {                                                                                                                    \
    direct_##bits##_1                                                                                                  \
  }
#endif
DIRECTS(2)
DIRECTS(3)
DIRECTS(4)
DIRECTS(5)
DIRECTS(6)
DIRECTS(8)

/* Parts of all tokens, in steps that have a kernel. Five are three and two: the kernel for one may be wider. */
static void directs(int bits, int tokens, const fast_part *p, const int16_t *x, const float *sums, float *out)
{
  static direct_fn *const kernels[9][DIRECT_STEP] = {
      [2] = DIRECT_NAMES(2), [3] = DIRECT_NAMES(3), [4] = DIRECT_NAMES(4),
      [5] = DIRECT_NAMES(5), [6] = DIRECT_NAMES(6), [8] = DIRECT_NAMES(8)};
  const int nv = DIRECT_VECTORS(tokens);
  for (int t = 0, some; t < tokens; t += some) {
    int left = tokens - t;
    some = left == DIRECT_STEP + 1 ? DIRECT_STEP - 1 : left < DIRECT_STEP ? left : DIRECT_STEP;
    kernels[bits][some - 1](p, x + t * FAST_PART, sums + t * PART_GROUPS, out + t * nv * VW);
  }
}

/* ---- tiles ---- */

/* tile[pair][nv * VW]: all pairs of a part. */
INLINE void expand_part(const int bits, const int nv, const fast_part *p, uint32_t *tile)
{
  const bool split = bits == 3 || bits == 5 || bits == 6;
  const int in_word = 16 / bits;
  for (int g = 0; g < p->groups; g++) {
    const uint8_t *unit = p->words + g * p->word_step;
    for (int u = 0; u < p->units; u++, unit += bits * p->line, tile += UNIT_PAIRS * nv * VW) {
      UNROLL for (int v = 0; v < nv; v++)
      {
        vu word[8], halves[8];
        UNROLL for (int i = 0; i < bits; i++)
        {
          word[i] = v_load_words(unit + i * p->line + v * 4 * VW);
          __builtin_prefetch(unit + i * p->line + v * 4 * VW + PACKED_AHEAD, 0, 3);
        }
        if (split) {
          UNROLL for (int i = 0; i < bits; i++) halves[i] = v_halves(bits, word, i);
        }
        UNROLL for (int j = 0; j < UNIT_PAIRS; j++)
        {
          vu pair = split ? v_pair_of(bits, halves, j) : v_fields(bits, word[j / in_word], j % in_word * bits);
          *(vu_any *)(tile + (j * nv + v) * VW) = pair;
        }
      }
    }
  }
}

/* out[token][nv * VW], as direct has it, from a tile. */
INLINE void pair_product(const int tokens, const int nv, const uint32_t *tile, const fast_part *p, const int16_t *x,
                         const float *sums, const uint8_t *ahead, float *out)
{
  const int64_t size = part_scale_bytes(p);
  for (int g = 0; g < p->groups; g++) {
    if (ahead) {
      for (int64_t i = 0; i < p->units * p->unit_words; i++)
        __builtin_prefetch(ahead + i * p->line, 0, 2);
      if (nv * 4 * VW > 64)
        for (int64_t i = 0; i < p->units * p->unit_words; i++)
          __builtin_prefetch(ahead + i * p->line + 64, 0, 2);
      ahead += p->word_step;
    }
    vi acc[12][TILE_VECTORS];
    UNROLL for (int t = 0; t < tokens; t++)
    {
      UNROLL for (int v = 0; v < nv; v++) acc[t][v] = (vi){0};
    }
    for (const int16_t *end = x + p->units * UNIT; x < end; x += 2, tile += nv * VW) {
      vu pair[TILE_VECTORS];
      UNROLL for (int v = 0; v < nv; v++) pair[v] = v_load_words((const uint8_t *)(tile + v * VW));
      UNROLL for (int t = 0; t < tokens; t++)
      {
        vu input = v_pair(x + t * FAST_PART);
        UNROLL for (int v = 0; v < nv; v++) acc[t][v] = v_dot(acc[t][v], pair[v], input);
      }
    }
    UNROLL for (int v = 0; v < nv; v++)
    {
      const uint8_t *at = p->scales + g * p->scale_step + v * VW * size;
      vf scale = part_scale(p, at), bias = part_scale(p, at + (p->biases - p->scales));
      UNROLL for (int t = 0; t < tokens; t++)
      {
        float *part = out + (t * nv + v) * VW;
        vf sum = v_fma(scale, v_float(acc[t][v]), g ? v_load(part) : v_set(0));
        v_store(part, v_fma(bias, v_set(sums[t * PART_GROUPS + g]), sum));
      }
    }
  }
}

typedef void pair_product_fn(const uint32_t *tile, const fast_part *p, const int16_t *x, const float *sums,
                             const uint8_t *ahead, float *out);

#define PAIR_PRODUCT(tokens, nv)                                                                                       \
  static void pair_product_##tokens##_##nv(const uint32_t *tile, const fast_part *p, const int16_t *x,                 \
                                           const float *sums, const uint8_t *ahead, float *out)                        \
  {                                                                                                                    \
    pair_product(tokens, nv, tile, p, x, sums, ahead, out);                                                            \
  }
#define PAIR_PRODUCTS(tokens) PAIR_PRODUCT(tokens, 1) PAIR_PRODUCT(tokens, 2)
PAIR_PRODUCTS(1)
PAIR_PRODUCTS(2)
PAIR_PRODUCTS(3)
PAIR_PRODUCTS(4)
PAIR_PRODUCTS(6)
#if CPU_REGISTERS == 32
PAIR_PRODUCTS(8)
PAIR_PRODUCTS(12)
#endif

/* Parts of all tokens, in steps that have a kernel. The first one fetches the words of the next part from `ahead`, if
 * there is one. */
static void tile_products(int tokens, int nv, const uint32_t *tile, const fast_part *p, const int16_t *x,
                          const float *sums, const uint8_t *ahead, float *out)
{
#define STEP(tokens)                                                                                                   \
  {                                                                                                                    \
    tokens,                                                                                                            \
    {                                                                                                                  \
      pair_product_##tokens##_1, pair_product_##tokens##_2                                                             \
    }                                                                                                                  \
  }
  static const struct {
    int tokens;
    pair_product_fn *by_vectors[2];
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
    steps[i].by_vectors[nv - 1](tile, p, x + t * FAST_PART, sums + t * PART_GROUPS, t ? NULL : ahead,
                                out + t * nv * VW);
  }
}

#endif
