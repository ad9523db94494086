/* packed.h - products from the prepared layout (layout.h), at one SIMD level: a part of linear.h.
 *
 * One token walks a panel as one stream: words of 16 rows come as they are used, scales and biases in between, and the
 * lines two KiB on are fetched meanwhile. Several tokens expand their tiles from it as they do from rows (weights.h),
 * so that a matrix is read from one place whatever the step. The sums are those of linear.h: k upward in every lane.
 */
#ifndef TERN_OPS_CPU_PACKED_H
#define TERN_OPS_CPU_PACKED_H

#include "ops/cpu/layout.h"
#include "ops/cpu/weights.h"

enum { PACKED_AHEAD = 8192, PACKED_UNIT = 32 /* codes that fill whole words at every width */ };

/* Here the sum is as it would be: keeps the work of later codes from moving up through an unrolled loop, where it fills
 * registers until they spill. */
#if CPU_LEVEL == 3
#define KEEP_HERE(sum) __asm__ volatile("" : "+w"(sum))
#elif CPU_LEVEL > 0
#define KEEP_HERE(sum) __asm__ volatile("" : "+v"(sum))
#else
#define KEEP_HERE(sum) (void)(sum)
#endif

#if CPU_LEVEL > 0

/* VW scales or biases. */
INLINE vf packed_scales(ops_dtype stored, const uint8_t *p)
{
  if (stored == DT_F32)
    return (vf)v_load_words(p);
  return stored == DT_BF16 ? v_load_bf16(p) : v_load_f16(p);
}

INLINE vf packed_value(const arithmetic how, vf scale, vf code, vf bias)
{
  return how == FUSED ? affine_value(scale, code, bias) : scale * code + bias;
}

/* acc += x * weight for 32 codes of nv * VW outputs, whose words begin at p, `line` bytes apart. */
INLINE void packed_unit(const int bits, const arithmetic how, const int nv, const uint8_t *p, int64_t line,
                        const float *x, const vf *scale, const vf *bias, vf *acc)
{
  vu word[MOST_VECTORS], low[MOST_VECTORS];
  UNROLL for (int j = 0; j < PACKED_UNIT; j++)
  {
    const int at = j * bits / 32, shift = j * bits % 32;
    const bool fresh = shift == 0, across = shift + bits > 32;
    if (fresh || across) {
      UNROLL for (int v = 0; v < nv; v++)
      {
        const uint8_t *next = p + (at + across) * line + v * 4 * VW;
        low[v] = across ? word[v] >> shift : (vu){0};
        word[v] = v_load_words(next);
        __builtin_prefetch(next + PACKED_AHEAD, 0, 3);
      }
    }
    vf input = v_set(x[j]);
    UNROLL for (int v = 0; v < nv; v++)
    {
      vu code = across ? low[v] | word[v] << (32 - shift) : word[v] >> shift;
      acc[v] += input * packed_value(how, scale[v], v_code(bits, code), bias[v]);
      KEEP_HERE(acc[v]);
    }
  }
}

/* The sums of outputs [n0, n0 + nv * VW), which lie in one panel, for one token. */
INLINE void packed_sums(const int bits, const arithmetic how, const int nv, const ops_weight *w, int64_t n0,
                        const float *x, vf *acc)
{
  layout_place at = layout_find(w, n0);
  const ops_dtype stored = w->stored;
  int64_t size = layout_scale_bytes(w), line = at.blocks * LAYOUT_BLOCK * 4, group = at.blocks * layout_group_bytes(w);
  const uint8_t *g = at.group, *end = g + w->k / w->group * group;
  for (; g < end; g += group) {
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
    for (int u = 0; u < w->group; u += PACKED_UNIT, x += PACKED_UNIT, words += bits * line)
      packed_unit(bits, how, nv, words, line, x, scale, bias, acc);
  }
}

/* ---- tiles ---- */

/* Codes [k0, k0 + count) of nv * VW outputs from n0 on, k-major, as expand_codes has them. */
INLINE void expand_packed_codes(const int bits, const arithmetic how, int nv, const ops_weight *w, int64_t n0,
                                int64_t k0, int count, float *tile)
{
  int64_t size = layout_scale_bytes(w);
  for (int v = 0; v < nv; v++) {
    layout_place at = layout_find(w, n0 + v * VW);
    int64_t line = at.blocks * LAYOUT_BLOCK * 4, group = at.blocks * layout_group_bytes(w);
    const uint8_t *g = at.group + k0 / w->group * group;
    const int64_t ahead = count / w->group * group; /* the next tile's */
    float *out = tile + v * VW;
    for (int k = 0; k < count; k += w->group, g += group) {
      const uint8_t *words = g + 2 * at.blocks * LAYOUT_BLOCK * size + at.row * 4;
      __builtin_prefetch(g + at.row * size + ahead, 0, 2);
      __builtin_prefetch(g + (at.blocks * LAYOUT_BLOCK + at.row) * size + ahead, 0, 2);
      vf scale = packed_scales(w->stored, g + at.row * size);
      vf bias = packed_scales(w->stored, g + at.blocks * LAYOUT_BLOCK * size + at.row * size);
      for (int u = 0; u < w->group; u += PACKED_UNIT, words += bits * line, out += PACKED_UNIT * nv * VW) {
        vu word[8];
        UNROLL for (int i = 0; i < bits; i++)
        {
          word[i] = v_load_words(words + i * line);
          __builtin_prefetch(words + i * line + ahead, 0, 2);
        }
        UNROLL for (int j = 0; j < PACKED_UNIT; j++)
        {
          v_store(out + j * nv * VW, packed_value(how, scale, code_value(bits, false, word, j), bias));
        }
      }
    }
  }
}

static inline void expand_packed(int nv, const ops_weight *w, int64_t n0, int64_t k0, int count, float *tile)
{
  bool exact = layout_exact(w);
#define WIDTH(bits)                                                                                                    \
  case bits:                                                                                                           \
    if (exact)                                                                                                         \
      expand_packed_codes(bits, FUSED, nv, w, n0, k0, count, tile);                                                    \
    else                                                                                                               \
      expand_packed_codes(bits, SPLIT, nv, w, n0, k0, count, tile);                                                    \
    break;
  switch (w->bits) {
    WIDTH(2)
    WIDTH(3)
    WIDTH(4)
    WIDTH(5)
    WIDTH(6)
    WIDTH(8)
  }
#undef WIDTH
}

#endif
#endif
