/* fast_quads.h - dot products of affine codes and 16 bit inputs by an instruction that multiplies bytes (NEON's sdot,
 * or smmla): a part of fast_linear.h, in the place of fast_pairs.h.
 *
 * A lane of 32 bits holds one output, and in it four codes of that output, a byte each: a quad. An input is two signed
 * bytes, 256 * high + low (fast.h), so a quad is multiplied twice, into two sums, and the dot product of a group is
 * 256 * the sum of highs + the sum of lows: the same whole number as any other way. Codes of 8 bits are made signed by
 * taking 128 away, which 128 * the sum of the group's inputs makes up for.
 *
 * Which four codes share a lane is chosen so that the words of the checkpoint need no more than shifts and masks:
 *
 *   8 bits         the four of a word
 *   4, 2 bits      codes j, j + d, j + 2d, j + 3d of a word: the same place in its bytes; d = 8 / bits
 *   3, 5, 6 bits   codes j, j + 8, j + 16, j + 24 of 32: two pairs of fast_part.h, one moved up by a byte
 *
 * A unit of inputs is ordered as quads are, in eights: 8 highs, their 8 lows, the next 8 highs. Two quads of codes and
 * a register of inputs make a step. sdot takes one of four quads of inputs out of a register, so there is nothing to
 * broadcast. smmla multiplies two rows of eight by two rows of eight: two outputs by the highs and the lows, twice what
 * sdot does at a time, for any number of tokens. It wants the two quads of an output side by side, and leaves the sums
 * of highs and lows in turn.
 *
 * Two kinds of kernel, as in fast_pairs.h: direct, and products from a tile of quads.
 */
#ifndef TERN_OPS_CPU_FAST_QUADS_H
#define TERN_OPS_CPU_FAST_QUADS_H

#include "ops/cpu/fast_part.h"

enum {
  UNIT_QUADS = UNIT / 4,
  DIRECT_STEP = 2,    /* tokens of a direct kernel at most */
  TILE_STEP = 4,      /* and of one that reads a tile */
  DIRECT_MOST = 8,    /* tokens that take direct kernels, step by step. Beyond, expanding once pays. */
  TILE_VECTORS = 2,   /* of a tile at most */
  MOST_SUMS_WIDE = 4, /* vectors of outputs beside each other */
};

/* Vectors of outputs that a direct kernel carries. */
#define DIRECT_VECTORS(tokens) 4

static inline int most_direct(const int bits)
{
  (void)bits;
  return DIRECT_MOST;
}

/* ---- a step: two quads of codes, eight inputs ---- */

/* Eight highs and their lows. */
INLINE int8x16_t load_inputs(const int8_t *x)
{
  return vld1q_s8(x);
}

/* Sums of four outputs: of highs and of lows, when all steps are done. */
typedef struct sums_of {
  int32x4_t high, low;
} sums_of;

#if CPU_I8MM

/* Two quads as the instruction wants them: those of outputs 0 and 1, those of outputs 2 and 3. */
INLINE void v_order(vu *quad)
{
  vu a = quad[0], b = quad[1];
  quad[0] = (vu)vzip1q_u32((uint32x4_t)a, (uint32x4_t)b);
  quad[1] = (vu)vzip2q_u32((uint32x4_t)a, (uint32x4_t)b);
}

/* Until the end: high and low in turn, of outputs 0 and 1 in one and of 2 and 3 in the other. */
INLINE void v_step(sums_of *s, const vu *quad, int8x16_t x)
{
  s->high = vmmlaq_s32(s->high, (int8x16_t)quad[0], x);
  s->low = vmmlaq_s32(s->low, (int8x16_t)quad[1], x);
}

INLINE sums_of v_apart(sums_of s)
{
  return (sums_of){vuzp1q_s32(s.high, s.low), vuzp2q_s32(s.high, s.low)};
}

#else

INLINE void v_order(vu *quad)
{
  (void)quad;
}

INLINE void v_step(sums_of *s, const vu *quad, int8x16_t x)
{
  s->high = vdotq_laneq_s32(s->high, (int8x16_t)quad[0], x, 0);
  s->low = vdotq_laneq_s32(s->low, (int8x16_t)quad[0], x, 2);
  s->high = vdotq_laneq_s32(s->high, (int8x16_t)quad[1], x, 1);
  s->low = vdotq_laneq_s32(s->low, (int8x16_t)quad[1], x, 3);
}

INLINE sums_of v_apart(sums_of s)
{
  return s;
}

#endif

/* ---- words to quads ---- */

INLINE bool is_split(const int bits)
{
  return bits == 3 || bits == 5 || bits == 6;
}

/* How far apart the codes of a quad are, and so its inputs. */
static inline int input_order(const int bits)
{
  return is_split(bits) ? 8 : 8 / bits;
}

/* Quad j of a unit, from its words or (3, 5, 6 bits) from their halves. */
INLINE vu v_quad(const int bits, const vu *from, const int j)
{
  if (is_split(bits)) {
    vu low = v_pair_of(bits, from, j), high = v_pair_of(bits, from, j + UNIT_QUADS);
    return (vu)vsliq_n_u16((uint16x8_t)low, (uint16x8_t)high, 8);
  }
  const int in_word = 8 / bits, shift = j % in_word * bits;
  vu word = from[j / in_word];
  if (bits == 8)
    return word ^ 0x80808080u;
  typedef uint8_t vu8 __attribute__((vector_size(4 * VW)));
  vu moved = shift ? (vu)((vu8)word >> shift) : word;
  return shift + bits == 8 ? moved : moved & ((1u << bits) - 1) * 0x01010101u;
}

/* The words of a unit, or their halves; lines further on are fetched. */
INLINE void load_unit(const int bits, const uint8_t *p, int64_t line, vu *out)
{
  vu word[8];
  UNROLL for (int i = 0; i < bits; i++)
  {
    word[i] = v_load_words(p + i * line);
    if (!is_split(bits))
      out[i] = word[i];
  }
  if (!is_split(bits))
    return;
  UNROLL for (int i = 0; i < bits; i++) out[i] = v_halves(bits, word, i);
}

INLINE void fetch_unit(const int bits, const uint8_t *p, int64_t line, int bytes)
{
  UNROLL for (int i = 0; i < bits; i++)
  {
    for (int at = 0; at < bytes; at += 64)
      __builtin_prefetch(p + i * line + at + PACKED_AHEAD, 0, 3);
  }
}

/* ---- inputs ---- */

/* Units of 32 codes as highs and lows, eight of each in turn, in the order of quads. */
static void order_inputs(int distance, const int16_t *codes, int n, int16_t *out)
{
  uint8_t from[UNIT];
  for (int i = 0; i < UNIT; i++) {
    int quad = i / 4, word = quad / distance;
    from[i] = (uint8_t)(4 * distance * word + quad % distance + i % 4 * distance);
  }
  const uint8x16_t first = vld1q_u8(from), second = vld1q_u8(from + 16);
  for (int i = 0; i < n; i += UNIT, codes += UNIT, out += UNIT) {
    uint8x16x2_t high, low;
    UNROLL for (int h = 0; h < 2; h++)
    {
      int16x8_t a = vld1q_s16(codes + 16 * h), b = vld1q_s16(codes + 16 * h + 8), half = vdupq_n_s16(128);
      low.val[h] = vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(a), vmovn_s16(b)));
      high.val[h] =
          vreinterpretq_u8_s8(vcombine_s8(vshrn_n_s16(vaddq_s16(a, half), 8), vshrn_n_s16(vaddq_s16(b, half), 8)));
    }
    UNROLL for (int h = 0; h < 2; h++)
    {
      uint8x16_t a = vqtbl2q_u8(high, h ? second : first), b = vqtbl2q_u8(low, h ? second : first);
      uint8_t *to = (uint8_t *)out + h * UNIT;
      vst1q_u8(to, vcombine_u8(vget_low_u8(a), vget_low_u8(b)));
      vst1q_u8(to + 16, vcombine_u8(vget_high_u8(a), vget_high_u8(b)));
    }
  }
}

/* ---- sums of a group ---- */

/* 256 * high + low, and what makes up for signed codes. */
INLINE vf group_dot(const int bits, sums_of s, float sum)
{
  s = v_apart(s);
  int32x4_t dot = vaddq_s32(vshlq_n_s32(s.high, 8), s.low);
  if (bits == 8)
    dot = vaddq_s32(dot, vdupq_n_s32((int32_t)sum * 128));
  return v_float((vi)dot);
}

/* ---- direct ---- */

/* out[token][nv * VW]: the part of nv * VW outputs. x [tokens][FAST_PART], sums [tokens][PART_GROUPS]. */
INLINE void direct(const int bits, const int tokens, const int nv, const fast_part *p, const int16_t *x,
                   const float *sums, float *out)
{
  const int64_t size = part_scale_bytes(p);
  const uint8_t *scales = p->scales, *biases = p->biases, *words = p->words;
  const int8_t *input = (const int8_t *)x;
  vf part[DIRECT_STEP][MOST_SUMS_WIDE];
  UNROLL for (int t = 0; t < tokens; t++)
  {
    UNROLL for (int v = 0; v < nv; v++) part[t][v] = v_set(0);
  }
  for (int g = 0; g < p->groups; g++) {
    sums_of s[DIRECT_STEP][MOST_SUMS_WIDE];
    UNROLL for (int t = 0; t < tokens; t++)
    {
      UNROLL for (int v = 0; v < nv; v++) s[t][v] = (sums_of){vdupq_n_s32(0), vdupq_n_s32(0)};
    }
    const uint8_t *unit = words;
    for (int u = 0; u < p->units; u++, unit += bits * p->line, input += 2 * UNIT) {
      int8x16_t in[DIRECT_STEP][4];
      UNROLL for (int t = 0; t < tokens; t++)
      {
        UNROLL for (int i = 0; i < 4; i++) in[t][i] = load_inputs(input + t * 2 * FAST_PART + 16 * i);
      }
      fetch_unit(bits, unit, p->line, nv * 4 * VW);
      UNROLL for (int v = 0; v < nv; v++)
      {
        vu from[8];
        load_unit(bits, unit + v * 4 * VW, p->line, from);
        UNROLL for (int i = 0; i < 4; i++)
        {
          vu quad[2] = {v_quad(bits, from, 2 * i), v_quad(bits, from, 2 * i + 1)};
          v_order(quad);
          UNROLL for (int t = 0; t < tokens; t++) v_step(&s[t][v], quad, in[t][i]);
        }
      }
    }
    __builtin_prefetch(scales + PACKED_AHEAD, 0, 3);
    __builtin_prefetch(biases + PACKED_AHEAD, 0, 3);
    UNROLL for (int v = 0; v < nv; v++)
    {
      vf scale = part_scale(p, scales + v * VW * size), bias = part_scale(p, biases + v * VW * size);
      UNROLL for (int t = 0; t < tokens; t++)
      {
        const float sum = sums[t * PART_GROUPS + g];
        part[t][v] = v_fma(scale, group_dot(bits, s[t][v], sum), part[t][v]);
        part[t][v] = v_fma(bias, v_set(sum), part[t][v]);
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
#define DIRECTS(bits) DIRECT(bits, 1) DIRECT(bits, 2)
#define DIRECT_NAMES(bits)                                                                                             \
  {                                                                                                                    \
    direct_##bits##_1, direct_##bits##_2                                                                               \
  }
DIRECTS(2)
DIRECTS(3)
DIRECTS(4)
DIRECTS(5)
DIRECTS(6)
DIRECTS(8)

/* Parts of all tokens, in steps that have a kernel. */
static void directs(int bits, int tokens, const fast_part *p, const int16_t *x, const float *sums, float *out)
{
  static direct_fn *const kernels[9][DIRECT_STEP] = {
      [2] = DIRECT_NAMES(2), [3] = DIRECT_NAMES(3), [4] = DIRECT_NAMES(4),
      [5] = DIRECT_NAMES(5), [6] = DIRECT_NAMES(6), [8] = DIRECT_NAMES(8)};
  const int nv = DIRECT_VECTORS(tokens);
  for (int t = 0, some; t < tokens; t += some) {
    some = tokens - t < DIRECT_STEP ? tokens - t : DIRECT_STEP;
    kernels[bits][some - 1](p, x + t * FAST_PART, sums + t * PART_GROUPS, out + t * nv * VW);
  }
}

/* ---- tiles ---- */

/* tile[quad][nv * VW]: all quads of a part, ordered two by two. */
INLINE void expand_part(const int bits, const int nv, const fast_part *p, uint32_t *tile)
{
  for (int g = 0; g < p->groups; g++) {
    const uint8_t *unit = p->words + g * p->word_step;
    for (int u = 0; u < p->units; u++, unit += bits * p->line, tile += UNIT_QUADS * nv * VW) {
      fetch_unit(bits, unit, p->line, nv * 4 * VW);
      UNROLL for (int v = 0; v < nv; v++)
      {
        vu from[8];
        load_unit(bits, unit + v * 4 * VW, p->line, from);
        UNROLL for (int j = 0; j < UNIT_QUADS; j += 2)
        {
          vu quad[2] = {v_quad(bits, from, j), v_quad(bits, from, j + 1)};
          v_order(quad);
          *(vu_any *)(tile + (j * nv + v) * VW) = quad[0];
          *(vu_any *)(tile + ((j + 1) * nv + v) * VW) = quad[1];
        }
      }
    }
  }
}

/* out[token][nv * VW], as direct has it, from a tile. */
INLINE void quad_product(const int tokens, const int nv, const uint32_t *tile, const fast_part *p, const int16_t *x,
                         const float *sums, float *out)
{
  const int64_t size = part_scale_bytes(p);
  const int bits = p->unit_words;
  const int8_t *input = (const int8_t *)x;
  for (int g = 0; g < p->groups; g++) {
    sums_of s[TILE_STEP][TILE_VECTORS];
    UNROLL for (int t = 0; t < tokens; t++)
    {
      UNROLL for (int v = 0; v < nv; v++) s[t][v] = (sums_of){vdupq_n_s32(0), vdupq_n_s32(0)};
    }
    for (int step = 0; step < p->units * UNIT / 8; step++, input += 16, tile += 2 * nv * VW) {
      vu quad[TILE_VECTORS][2];
      UNROLL for (int v = 0; v < nv; v++)
      {
        quad[v][0] = v_load_words((const uint8_t *)(tile + v * VW));
        quad[v][1] = v_load_words((const uint8_t *)(tile + (nv + v) * VW));
      }
      UNROLL for (int t = 0; t < tokens; t++)
      {
        int8x16_t in = load_inputs(input + t * 2 * FAST_PART);
        UNROLL for (int v = 0; v < nv; v++) v_step(&s[t][v], quad[v], in);
      }
    }
    UNROLL for (int v = 0; v < nv; v++)
    {
      const uint8_t *at = p->scales + g * p->scale_step + v * VW * size;
      vf scale = part_scale(p, at), bias = part_scale(p, at + (p->biases - p->scales));
      UNROLL for (int t = 0; t < tokens; t++)
      {
        const float sum = sums[t * PART_GROUPS + g];
        float *part = out + (t * nv + v) * VW;
        vf to = v_fma(scale, group_dot(bits, s[t][v], sum), g ? v_load(part) : v_set(0));
        v_store(part, v_fma(bias, v_set(sum), to));
      }
    }
  }
}

typedef void quad_product_fn(const uint32_t *tile, const fast_part *p, const int16_t *x, const float *sums, float *out);

#define QUAD_PRODUCT(tokens, nv)                                                                                       \
  static void quad_product_##tokens##_##nv(const uint32_t *tile, const fast_part *p, const int16_t *x,                 \
                                           const float *sums, float *out)                                              \
  {                                                                                                                    \
    quad_product(tokens, nv, tile, p, x, sums, out);                                                                   \
  }
#define QUAD_PRODUCTS(tokens) QUAD_PRODUCT(tokens, 1) QUAD_PRODUCT(tokens, 2)
QUAD_PRODUCTS(1)
QUAD_PRODUCTS(2)
QUAD_PRODUCTS(3)
QUAD_PRODUCTS(4)

/* Parts of all tokens. expand_part has fetched the words of the next part. */
static void tile_products(int tokens, int nv, const uint32_t *tile, const fast_part *p, const int16_t *x,
                          const float *sums, const uint8_t *ahead, float *out)
{
  static quad_product_fn *const kernels[TILE_STEP][TILE_VECTORS] = {{quad_product_1_1, quad_product_1_2},
                                                                    {quad_product_2_1, quad_product_2_2},
                                                                    {quad_product_3_1, quad_product_3_2},
                                                                    {quad_product_4_1, quad_product_4_2}};
  (void)ahead;
  for (int t = 0, some; t < tokens; t += some) {
    some = tokens - t < TILE_STEP ? tokens - t : TILE_STEP;
    kernels[some - 1][nv - 1](tile, p, x + t * FAST_PART, sums + t * PART_GROUPS, out + t * nv * VW);
  }
}

#endif
