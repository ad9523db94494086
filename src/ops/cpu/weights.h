/* weights.h - stored weights to float32 vectors, for any format at any byte offset.
 *
 * Kernels hold one output a lane. Stored rows run along k, so VW rows are loaded a vector each and transposed in
 * registers: after that a vector has the same word of VW rows. A tile is nv * VW outputs wide and k-major: value k of
 * output i stands at tile[k * nv * VW + i].
 *
 * The values are the reference's: an affine weight is round(round(scale * code) + bias). Where scale * code is exact in
 * float32, fma(scale, code, bias) is that same value. It is exact if
 *   - the significands fit: that of the scale has 24 - bits bits at most. 8 (bfloat16) and 11 (float16) always do. A
 *     scale stored as float32 does if its last `bits` bits are zero: a product of a float16 and a small integer, which
 *     is what imported block formats have;
 *   - nothing underflows: a product is a whole multiple of the scale, so of 2^-149;
 *   - nothing overflows: the scale is below 2^120 in magnitude, the code below 2^8.
 * Scales are looked at while they are widened; where one fails, or is NaN, its tile multiplies and adds.
 */
#ifndef TERN_OPS_CPU_WEIGHTS_H
#define TERN_OPS_CPU_WEIGHTS_H

#include "ops/cpu/vec.h"
#include "ops/ops.h"

enum { MOST_VECTORS = 4, MOST_ROWS = MOST_VECTORS * VW };

/* Where the rows of a tile begin. Rows past the last one repeat it: their outputs are not stored. */
typedef struct tile_rows {
  const uint8_t *data[MOST_ROWS], *scales[MOST_ROWS], *biases[MOST_ROWS];
} tile_rows;

static inline int64_t stored_bytes(ops_dtype stored)
{
  return stored == DT_F32 ? 4 : 2;
}

static inline int64_t row_bytes(const ops_weight *w)
{
  return w->quant == Q_NONE ? w->k * stored_bytes(w->stored) : w->k * w->bits / 8;
}

static inline int64_t scale_bytes(const ops_weight *w)
{
  return w->k / w->group * (w->quant == Q_AFFINE ? stored_bytes(w->stored) : 1);
}

static inline void find_rows(const ops_weight *w, int64_t first, int count, tile_rows *r)
{
  int64_t bytes = row_bytes(w), of_scales = w->quant == Q_NONE ? 0 : scale_bytes(w);
  for (int i = 0; i < count; i++) {
    int64_t n = first + i < w->n ? first + i : w->n - 1;
    r->data[i] = w->data + n * bytes;
    if (w->quant == Q_NONE)
      continue;
    r->scales[i] = w->scales + n * of_scales;
    if (w->quant == Q_AFFINE)
      r->biases[i] = w->biases + n * of_scales;
  }
}

/* Words 0..VW-1 at `offset` of VW rows, transposed; zeros past `bytes`, which are not read. */
INLINE void load_words(const uint8_t *const *rows, int64_t offset, int bytes, vu *w)
{
  if (bytes >= 4 * VW) {
    UNROLL for (int i = 0; i < VW; i++) w[i] = v_load_words(rows[i] + offset);
  } else {
    UNROLL for (int i = 0; i < VW; i++) w[i] = v_load_bytes(rows[i] + offset, bytes);
  }
  v_transpose(w);
}

/* ---- scales and biases ---- */

/* One of the two halves of a word. */
INLINE vf widen_half(ops_dtype stored, vu word, int high)
{
  if (stored == DT_BF16)
    return high ? v_from_bf16_high(word) : v_from_bf16(word);
  return v_from_f16(high ? word >> 16 : word & 0xffff);
}

/* The scale of the fp modes: e8m0 as the bits of a bfloat16 (0 stands for 2^-127), or e4m3. */
INLINE vf fp_scale(ops_quant quant, vu byte)
{
  if (quant == Q_NVFP4)
    return v_fp8(byte);
  vu power = byte << 23;
  return v_select(v_eq_int((vi)byte, (vi){0}), (vf)((vu){0} + 0x00400000), (vf)power);
}

/* Values a word of scales holds. */
static inline int scales_a_word(const ops_weight *w)
{
  return w->quant != Q_AFFINE ? 4 : w->stored == DT_F32 ? 1 : 2;
}

INLINE vf scale_of_word(const ops_weight *w, vu word, int i)
{
  if (w->quant != Q_AFFINE)
    return fp_scale(w->quant, word >> (8 * i) & 255);
  return w->stored == DT_F32 ? (vf)word : widen_half(w->stored, word, i);
}

/* Scales (or biases) of groups [g0, g0 + count) of nv * VW rows to out[g - g0][nv * VW]. If asked: whether the product
 * of each with a code is exact. NaN and infinity are as large as can be. */
INLINE bool widen(const bool check, const ops_weight *w, const uint8_t *const *rows, int64_t g0, int count, int nv,
                  float *out)
{
  int a_word = scales_a_word(w), size = 4 / a_word;
  vi most = {0};
  vu all = {0};
  for (int v = 0; v < nv; v++) {
    for (int g = 0; g < count; g += VW * a_word) {
      vu words[VW];
      int n = count - g < VW * a_word ? count - g : VW * a_word;
      load_words(rows + v * VW, (g0 + g) * size, n * size, words);
      for (int i = 0; i < n; i++) {
        vf x = scale_of_word(w, words[i / a_word], i % a_word);
        if (check) {
          most = v_max_int(most, (vi)v_abs(x));
          all |= (vu)x;
        }
        v_store(out + (g + i) * nv * VW + v * VW, x);
      }
    }
  }
  vm large = v_gt_int(most, (vi)v_set(0x1.fffffep119f));
  vm long_ = v_gt_int((vi)(all & ((1u << w->bits) - 1)), (vi){0});
  return !v_any(v_either(large, long_));
}

static bool widen_scales(const ops_weight *w, const uint8_t *const *rows, int64_t g0, int count, int nv, float *out)
{
  return widen(true, w, rows, g0, count, nv, out);
}

static void widen_biases(const ops_weight *w, const uint8_t *const *rows, int64_t g0, int count, int nv, float *out)
{
  widen(false, w, rows, g0, count, nv, out);
}

/* ---- tiles ---- */

/* round(round(scale * code) + bias), where the product is exact. Without the instruction the two steps are quicker. */
INLINE vf affine_value(vf scale, vf code, vf bias)
{
  return CPU_LEVEL > 0 ? v_fma(scale, code, bias) : scale * code + bias;
}

/* The low bits of every lane as a number; for the fp modes as the number that the code stands for. */
INLINE vf low_code(const int bits, const bool fp, vu x)
{
  if (!fp)
    return v_code(bits, x);
  return bits == 4 ? v_fp4(x) : v_fp8(x & 255);
}

/* Code j of the words of a unit. */
INLINE vf code_value(const int bits, const bool fp, const vu *w, const int j)
{
  const int at = j * bits, shift = at % 32;
  vu x = w[at / 32] >> shift;
  if (shift + bits > 32)
    x |= w[at / 32 + 1] << (32 - shift);
  return low_code(bits, fp, x);
}

typedef enum arithmetic {
  FUSED, /* affine_value */
  SPLIT, /* scale * code + bias */
  PLAIN, /* the code's value; the fp modes scale sums */
} arithmetic;

/* Words that are transposed together: room for one unit of 8-bit codes at every level. */
enum { TILE_WORDS = VW > 8 ? VW : 8 };

/* The TILE_WORDS words at `offset` of VW rows, transposed; zeros past `bytes`. */
INLINE void load_tile_words(const uint8_t *const *rows, int64_t offset, int bytes, vu *words)
{
  UNROLL for (int c = 0; c < TILE_WORDS / VW; c++)
  {
    int left = bytes - c * 4 * VW;
    load_words(rows, offset + c * 4 * VW, left > 0 ? left : 0, words + c * VW);
  }
}

/* Codes [k0, k0 + count) of nv * VW rows. A unit is `unit` codes that share a scale and fill whole words. s, b: scales
 * and biases from the group of k0 on. */
INLINE void expand_codes(const int bits, const int unit, const arithmetic how, int nv, const tile_rows *rows,
                         int64_t k0, int count, int group, const float *s, const float *b, float *tile)
{
  const int unit_words = unit * bits / 32, units = TILE_WORDS / unit_words;
  for (int v = 0; v < nv; v++) {
    for (int k = 0; k < count; k += units * unit) {
      vu words[TILE_WORDS];
      load_tile_words(rows->data + v * VW, (k0 + k) * bits / 8, (count - k) * bits / 8, words);
      for (int u = 0; u < units && k + u * unit < count; u++) {
        int at = k + u * unit, g = at / group * nv * VW + v * VW;
        vf scale = how == PLAIN ? v_set(0) : v_load(s + g), bias = how == PLAIN ? v_set(0) : v_load(b + g);
        float *out = tile + at * nv * VW + v * VW;
        UNROLL for (int j = 0; j < unit; j++)
        {
          vf q = code_value(bits, how == PLAIN, words + u * unit_words, j);
          vf x = how == PLAIN ? q : how == FUSED ? affine_value(scale, q, bias) : scale * q + bias;
          v_store(out + j * nv * VW, x);
        }
      }
    }
  }
}

INLINE void expand_dense(const ops_dtype stored, int nv, const tile_rows *rows, int64_t k0, int count, float *tile)
{
  const int a_word = stored == DT_F32 ? 1 : 2, size = 4 / a_word;
  for (int v = 0; v < nv; v++) {
    for (int k = 0; k < count; k += VW * a_word) {
      vu words[VW];
      load_words(rows->data + v * VW, (k0 + k) * size, (count - k) * size, words);
      int n = count - k < VW * a_word ? count - k : VW * a_word;
      float *out = tile + k * nv * VW + v * VW;
      for (int i = 0; i < n; i++)
        v_store(out + i * nv * VW, a_word == 1 ? (vf)words[i] : widen_half(stored, words[i / 2], i % 2));
    }
  }
}

/* Values [k0, k0 + count) of a tile, count a multiple of the group but for the last of a dense row. s, b: room for the
 * scales and biases of its groups; the fp modes leave their scales in s. */
static void expand(int nv, const ops_weight *w, const tile_rows *rows, int64_t k0, int count, float *s, float *b,
                   float *tile)
{
  if (w->quant == Q_NONE) {
    if (w->stored == DT_F32)
      expand_dense(DT_F32, nv, rows, k0, count, tile);
    else if (w->stored == DT_BF16)
      expand_dense(DT_BF16, nv, rows, k0, count, tile);
    else
      expand_dense(DT_F16, nv, rows, k0, count, tile);
    return;
  }
  int64_t g0 = k0 / w->group;
  int groups = count / w->group;
  bool fused = widen_scales(w, rows->scales, g0, groups, nv, s);
  if (w->quant != Q_AFFINE) {
    if (w->bits == 8)
      expand_codes(8, 32, PLAIN, nv, rows, k0, count, w->group, s, b, tile);
    else
      expand_codes(4, 16, PLAIN, nv, rows, k0, count, w->group, s, b, tile);
    return;
  }
  widen_biases(w, rows->biases, g0, groups, nv, b);
#define AFFINE(width)                                                                                                  \
  case width:                                                                                                          \
    if (fused)                                                                                                         \
      expand_codes(width, 32, FUSED, nv, rows, k0, count, w->group, s, b, tile);                                       \
    else                                                                                                               \
      expand_codes(width, 32, SPLIT, nv, rows, k0, count, w->group, s, b, tile);                                       \
    break;
  switch (w->bits) {
    AFFINE(2)
    AFFINE(3)
    AFFINE(4)
    AFFINE(5)
    AFFINE(6)
    AFFINE(8)
  }
#undef AFFINE
}

/* ---- ternary ---- */

/* A byte row holds outputs r, r + rows, r + 2 rows and r + 3 rows, a bit pair each. */
static inline int64_t ternary_rows(const ops_weight *w)
{
  return (w->n + 3) / 4;
}

/* Where byte rows [first, first + count) begin; those past the last repeat it. */
static inline void find_ternary_rows(const ops_weight *w, int64_t first, int count, const uint8_t **rows)
{
  int64_t last = ternary_rows(w) - 1;
  for (int i = 0; i < count; i++)
    rows[i] = w->data + (first + i < last ? first + i : last) * w->k;
}

/* Values [k0, k0 + count) of bit pairs `pair` and `pair` + 1 of VW byte rows: a tile of two vectors. */
static inline void expand_ternary(const uint8_t *const *rows, int pair, int64_t k0, int count, float *tile)
{
  for (int k = 0; k < count; k += 4 * VW) {
    vu words[VW];
    int n = count - k < 4 * VW ? count - k : 4 * VW;
    load_words(rows, k0 + k, n, words);
    for (int j = 0; j < n; j++) {
      vu byte = words[j / 4] >> (8 * (j % 4) + 2 * pair);
      float *out = tile + (size_t)(k + j) * 2 * VW;
      v_store(out, v_ternary(byte));
      v_store(out + VW, v_ternary(byte >> 2));
    }
  }
}

#endif
