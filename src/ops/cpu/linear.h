/* linear.h - matrix products at one SIMD level; linear_LEVEL.c compiles it.
 *
 * Outputs stand in lanes and k runs upward in every one of them, so each output is the reference's sum: x[k] times the
 * weight, rounded, added, rounded. Two ways, with equal bits:
 *
 * One token: weights go from the mapping through registers straight into the sums (decode); the rows of the next tile,
 * which lie one after another, are prefetched meanwhile. From the prepared layout, where a matrix has one, they come
 * without being transposed (packed.h), for several tokens too (few.h).
 *
 * Anything else: a tile of weights, some outputs wide and a block of k long, is expanded to float32 once, k-major, and
 * multiplied with all tokens from registers of MOST_TOKENS x 2 vectors (product). Sums wait in float32 between blocks
 * of k, which rounds nothing.
 *
 * A byte of a ternary matrix holds four outputs that lie a quarter of the matrix apart: a vector of bytes gives four
 * vectors of them, and its sums are multiplied by the factor of the matrix at the end.
 *
 * The fp modes sum a group first and add scale * that to the sum: a group is then the block of k that starts at zero.
 * Work is shared by outputs, in units of one tile.
 */
#ifndef TERN_OPS_CPU_LINEAR_H
#define TERN_OPS_CPU_LINEAR_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/few.h"
#include "ops/cpu/packed.h"
#include "ops/cpu/weights.h"
#include "ops/ref/ref.h"

enum {
  MOST_TOKENS =
      CPU_REGISTERS == 32 ? 12 : 6, /* of one product: tokens x 2 sums, 2 weights, 1 input fill the registers */
  TOKEN_BLOCK = 8 * MOST_TOKENS,
  K_BLOCK = 256,
  TILE_GROUPS = K_BLOCK / 16 * 2 * VW, /* scales of a tile at most */
};

typedef struct linear_job {
  const struct op_linear *a;
  int tokens;
  int unit; /* outputs of the least share of work */
} linear_job;

/* ---- sums to outputs ---- */

/* What the sums of `outputs` outputs from n on start at: zero, or the bias of a matrix that the release stores turned.
 */
static void start_sums(const linear_job *job, int i, int64_t n, int outputs, float *sums)
{
  const struct op_linear *a = job->a;
  int64_t left = a->w[i]->n - n;
  memset(sums, 0, (size_t)outputs * sizeof *sums);
  if (a->w[i]->turned && a->bias[i])
    memcpy(sums, a->bias[i] + n, (size_t)(left < outputs ? left : outputs) * sizeof *sums);
}

/* Outputs [n, n + VW) of matrix i for token t, of which `left` exist: y = residual + (sum + bias). */
static void finish_vector(const linear_job *job, int i, int t, int64_t n, int64_t left, const float *sum)
{
  const struct op_linear *a = job->a;
  int64_t at = t * a->w[i]->n + n;
  const float *bias = a->bias[i] && !a->w[i]->turned ? a->bias[i] + n : NULL,
              *residual = i == 0 && a->residual ? a->residual + at : NULL;
  float *y = a->y[i] + at;
  if (left >= VW) {
    vf x = v_load(sum);
    x = bias ? x + v_load(bias) : x;
    v_store(y, residual ? v_load(residual) + x : x);
    return;
  }
  for (int64_t lane = 0; lane < left; lane++) {
    float x = bias ? sum[lane] + bias[lane] : sum[lane];
    y[lane] = residual ? residual[lane] + x : x;
  }
}

/* Rows [t0, t0 + tokens) of outputs [n0, n0 + nv * VW) of matrix i. */
static void finish(const linear_job *job, int i, int t0, int tokens, int64_t n0, int nv, const float *sums)
{
  for (int v = 0; v < nv; v++) {
    int64_t n = n0 + v * VW;
    for (int t = 0; t < tokens; t++)
      finish_vector(job, i, t0 + t, n, job->a->w[i]->n - n, sums + (t * nv + v) * VW);
  }
}

/* ---- a tile times tokens ---- */

/* sums[t][nv * VW] += tile[k][nv * VW] * x[t][k], k ascending. With a scale, the products of this block are summed from
 * zero and scale * that is added. */
INLINE void product(const int tokens, const int nv, const float *tile, int count, const float *x, int64_t x_stride,
                    float *sums, const float *scale)
{
  vf acc[12][MOST_VECTORS];
  UNROLL for (int t = 0; t < tokens; t++)
  {
    UNROLL for (int v = 0; v < nv; v++) acc[t][v] = scale ? v_set(0) : v_load(sums + (t * nv + v) * VW);
  }
  for (int k = 0; k < count; k++) {
    vf w[MOST_VECTORS];
    UNROLL for (int v = 0; v < nv; v++) w[v] = v_load(tile + (k * nv + v) * VW);
    UNROLL for (int t = 0; t < tokens; t++)
    {
      vf input = v_set(x[t * x_stride + k]);
      UNROLL for (int v = 0; v < nv; v++) acc[t][v] += input * w[v];
    }
  }
  UNROLL for (int t = 0; t < tokens; t++)
  {
    UNROLL for (int v = 0; v < nv; v++)
    {
      float *sum = sums + (t * nv + v) * VW;
      v_store(sum, scale ? v_load(sum) + v_load(scale + v * VW) * acc[t][v] : acc[t][v]);
    }
  }
}

typedef void product_fn(const float *tile, int count, const float *x, int64_t x_stride, float *sums,
                        const float *scale);

#define PRODUCT(tokens, nv)                                                                                            \
  static void product_##tokens##_##nv(const float *tile, int count, const float *x, int64_t x_stride, float *sums,     \
                                      const float *scale)                                                              \
  {                                                                                                                    \
    product(tokens, nv, tile, count, x, x_stride, sums, scale);                                                        \
  }
PRODUCT(1, 1)
PRODUCT(2, 1)
PRODUCT(3, 1)
PRODUCT(4, 1)
PRODUCT(6, 1)
PRODUCT(1, 2)
PRODUCT(2, 2)
PRODUCT(3, 2)
PRODUCT(4, 2)
PRODUCT(6, 2)
#if CPU_REGISTERS == 32
PRODUCT(8, 1)
PRODUCT(12, 1)
PRODUCT(8, 2)
PRODUCT(12, 2)
#endif

/* All tokens, in steps that have a kernel. */
static void products(int tokens, int nv, const float *tile, int count, const float *x, int64_t x_stride, float *sums,
                     const float *scale)
{
  static const struct {
    int tokens;
    product_fn *by_vectors[2];
  } steps[] = {
#if CPU_REGISTERS == 32
    {12, {product_12_1, product_12_2}},
    {8, {product_8_1, product_8_2}},
#endif
    {6, {product_6_1, product_6_2}},
    {4, {product_4_1, product_4_2}},
    {3, {product_3_1, product_3_2}},
    {2, {product_2_1, product_2_2}},
    {1, {product_1_1, product_1_2}},
  };
  for (int t = 0, i = 0; t < tokens; t += steps[i].tokens) {
    while (steps[i].tokens > tokens - t)
      i++;
    steps[i].by_vectors[nv - 1](tile, count, x + t * x_stride, x_stride, sums + t * nv * VW, scale);
  }
}

/* The baseline has no kernels for the prepared layout: its lanes are too few for it to pay. */
static bool is_packed(const ops_weight *w)
{
  return CPU_LEVEL > 0 && w->packed;
}

/* Brings values [k, k + count) of the rows of a tile near, or the first ones of the next tile: too many short pieces
 * for the processor to see a stream in them. Inlined, or gcc leaves out the call of a function that has no effect but
 * this.
 */
INLINE void fetch_ahead(int nv, const ops_weight *w, const tile_rows *rows, int64_t k, int count)
{
  int64_t bytes = row_bytes(w), at = k < w->k ? k * bytes / w->k : nv * VW * bytes, end = at + count * bytes / w->k;
  for (int r = 0; r < nv * VW; r++)
    for (int64_t i = at; i < end; i += 64)
      __builtin_prefetch(rows->data[r] + i, 0, 2);
}

/* Outputs [n0, n0 + nv * VW) of matrix i, for all tokens; nv <= 2. */
static void by_tile(const linear_job *job, int i, int64_t n0, int nv)
{
  const ops_weight *w = job->a->w[i];
  float tile[K_BLOCK * 2 * VW], sums[TOKEN_BLOCK * 2 * VW], s[TILE_GROUPS], b[TILE_GROUPS];
  bool by_group = w->quant > Q_AFFINE;
  tile_rows rows;
  if (!is_packed(w))
    find_rows(w, n0, nv * VW, &rows);
  for (int t0 = 0; t0 < job->tokens; t0 += TOKEN_BLOCK) {
    int tokens = job->tokens - t0 < TOKEN_BLOCK ? job->tokens - t0 : TOKEN_BLOCK;
    for (int t = 0; t < tokens; t++)
      start_sums(job, i, n0, nv * VW, sums + t * nv * VW);
    for (int64_t k0 = 0; k0 < w->k; k0 += K_BLOCK) {
      int count = w->k - k0 < K_BLOCK ? (int)(w->k - k0) : K_BLOCK, step = by_group ? w->group : count;
#if CPU_LEVEL > 0
      if (w->packed)
        expand_packed(nv, w, n0, k0, count, tile);
      else
#endif
      {
        fetch_ahead(nv, w, &rows, k0 + count, count);
        expand(nv, w, &rows, k0, count, s, b, tile);
      }
      for (int k = 0; k < count; k += step)
        products(tokens, nv, tile + k * nv * VW, step, job->a->x + t0 * w->k + k0 + k, w->k, sums,
                 by_group ? s + k / w->group * nv * VW : NULL);
    }
    finish(job, i, t0, tokens, n0, nv, sums);
  }
}

/* ---- one token, quantised ---- */

enum { PANEL_GROUPS = 2 * VW }; /* groups whose scales are widened together: a word of halves from each row */

/* What a kernel for one token is made for. A unit is `unit` codes with one scale, in whole words. PLAIN: the fp modes,
 * whose sums of a unit are scaled. */
typedef struct code_format {
  int bits, unit;
  arithmetic how;
} code_format;

INLINE vf decoded(const code_format f, vf scale, vf code, vf bias)
{
  return f.how == PLAIN ? code : f.how == FUSED ? affine_value(scale, code, bias) : scale * code + bias;
}

/* acc += x * weight for the codes of a unit of nv * VW outputs, whose words are packed[v][from...]. */
INLINE void decode_unit(const code_format f, const int nv, vu (*packed)[TILE_WORDS], int from, const float *x,
                        const vf *scale, const vf *bias, vf *acc)
{
  if (32 % f.bits == 0) {
    for (int i = 0; i < f.unit * f.bits / 32; i++) {
      vu word[MOST_VECTORS];
      UNROLL for (int v = 0; v < nv; v++) word[v] = packed[v][from + i];
      UNROLL for (int j = 0; j < 32 / f.bits; j++)
      {
        vf input = v_set(*x++);
        UNROLL for (int v = 0; v < nv; v++)
        {
          vf q = low_code(f.bits, f.how == PLAIN, word[v] >> (f.bits * j));
          acc[v] += input * decoded(f, scale[v], q, bias[v]);
          KEEP_HERE(acc[v]);
        }
      }
    }
    return;
  }
  UNROLL for (int j = 0; j < f.unit; j++)
  {
    vf input = v_set(x[j]);
    UNROLL for (int v = 0; v < nv; v++)
    {
      acc[v] += input * decoded(f, scale[v], code_value(f.bits, false, packed[v] + from, j), bias[v]);
      KEEP_HERE(acc[v]);
    }
  }
}

/* Codes [k0, k0 + count). `ahead` walks the bytes of the next tile. */
INLINE void decode_panel(const code_format f, const int nv, const ops_weight *w, const tile_rows *rows, int64_t k0,
                         int count, const float *x, const float *s, const float *b, const uint8_t **ahead, vf *sums)
{
  const int unit_words = f.unit * f.bits / 32, units = TILE_WORDS / unit_words;
  vu packed[MOST_VECTORS][TILE_WORDS];
  vf acc[MOST_VECTORS], scale[MOST_VECTORS], bias[MOST_VECTORS], part[MOST_VECTORS];
  UNROLL for (int v = 0; v < nv; v++) acc[v] = sums[v];
  for (int k = 0; k < count; k += units * f.unit) {
    for (int v = 0; v < nv; v++)
      load_tile_words(rows->data + v * VW, (k0 + k) * f.bits / 8, (count - k) * f.bits / 8, packed[v]);
    int bytes = nv * VW * units * unit_words * 4;
    for (int i = 0; i < bytes; i += 64)
      __builtin_prefetch(*ahead + i, 0, 2);
    *ahead += bytes;
    for (int u = 0; u < units && k + u * f.unit < count; u++) {
      int g = (k + u * f.unit) / w->group * nv * VW;
      UNROLL for (int v = 0; v < nv; v++)
      {
        scale[v] = v_load(s + g + v * VW);
        bias[v] = f.how == PLAIN ? v_set(0) : v_load(b + g + v * VW);
        part[v] = v_set(0);
      }
      decode_unit(f, nv, packed, u * unit_words, x + k + u * f.unit, scale, bias, f.how == PLAIN ? part : acc);
      UNROLL for (int v = 0; v < nv; v++) acc[v] = f.how == PLAIN ? acc[v] + scale[v] * part[v] : acc[v];
    }
  }
  UNROLL for (int v = 0; v < nv; v++) sums[v] = acc[v];
}

/* Outputs [n0, n0 + nv * VW) of matrix i for one token. */
INLINE void decode(const int bits, const int unit, const bool fp, const int nv, const linear_job *job, int i,
                   int64_t n0)
{
  const ops_weight *w = job->a->w[i];
  const code_format fused = {bits, unit, fp ? PLAIN : FUSED}, split = {bits, unit, SPLIT};
  float s[PANEL_GROUPS * MOST_ROWS], b[PANEL_GROUPS * MOST_ROWS], out[MOST_ROWS];
  vf sums[MOST_VECTORS];
  UNROLL for (int v = 0; v < nv; v++) sums[v] = v_set(0);
  tile_rows rows;
  find_rows(w, n0, nv * VW, &rows);
  const uint8_t *ahead = w->data + (n0 + nv * VW) * row_bytes(w);
  int64_t groups = w->k / w->group;
  for (int64_t g = 0; g < groups; g += PANEL_GROUPS) {
    int some = groups - g < PANEL_GROUPS ? (int)(groups - g) : PANEL_GROUPS, count = some * w->group;
    const float *x = job->a->x + g * w->group;
    bool exact = widen_scales(w, rows.scales, g, some, nv, s);
    if (!fp && !exact && nv < 4) { /* rare and short: no kernels of its own */
      by_tile(job, i, n0, nv);
      return;
    }
    if (!fp)
      widen_biases(w, rows.biases, g, some, nv, b);
    if (fp || exact || nv < 4)
      decode_panel(fused, nv, w, &rows, g * w->group, count, x, s, b, &ahead, sums);
    else
      decode_panel(split, nv, w, &rows, g * w->group, count, x, s, b, &ahead, sums);
  }
  UNROLL for (int v = 0; v < nv; v++) v_store(out + v * VW, sums[v]);
  finish(job, i, 0, 1, n0, nv, out);
}

#if CPU_LEVEL > 0
/* The same from the prepared layout; the outputs lie in one panel. */
INLINE void decode_packed(const int bits, const int nv, const linear_job *job, int i, int64_t n0)
{
  const ops_weight *w = job->a->w[i];
  float out[MOST_ROWS];
  vf acc[MOST_VECTORS];
  UNROLL for (int v = 0; v < nv; v++) acc[v] = v_set(0);
  if (layout_exact(w))
    packed_sums(bits, FUSED, nv, w, n0, job->a->x, acc);
  else
    packed_sums(bits, SPLIT, nv, w, n0, job->a->x, acc);
  UNROLL for (int v = 0; v < nv; v++) v_store(out + v * VW, acc[v]);
  finish(job, i, 0, 1, n0, nv, out);
}
#endif

#if CPU_LEVEL > 0
static bool takes_few(const linear_job *job, const ops_weight *w, int64_t n0, int64_t left)
{
  return FEW_LEAST <= job->tokens && job->tokens <= FEW_MOST && w->packed && layout_exact(w) &&
         n0 % LAYOUT_PANEL == 0 && left >= LAYOUT_PANEL;
}

/* The panel at n0 for all tokens, in sets of nearly equal size. */
static void by_few(const linear_job *job, int i, int64_t n0)
{
  const ops_weight *w = job->a->w[i];
  float sums[FEW_TOKENS * 4 * VW];
  int sets = (job->tokens + FEW_TOKENS - 1) / FEW_TOKENS;
  for (int s = 0; s < sets; s++) {
    int t0 = job->tokens * s / sets, tokens = job->tokens * (s + 1) / sets - t0, nv = few_vectors(tokens);
    few_fn *kernel = few_kernel(w->bits, tokens);
    for (int64_t n = n0; n < n0 + LAYOUT_PANEL; n += nv * VW) {
      kernel(w, n, job->a->x + t0 * w->k, sums);
      finish(job, i, t0, tokens, n, nv, sums);
    }
  }
}
#endif

/* ---- one token, dense ---- */

INLINE void decode_dense(const ops_dtype stored, const int nv, const linear_job *job, int i, int64_t n0)
{
  const int a_word = stored == DT_F32 ? 1 : 2, size = 4 / a_word, chunk = VW * a_word;
  const ops_weight *w = job->a->w[i];
  float out[MOST_ROWS];
  vf acc[MOST_VECTORS];
  vu packed[MOST_VECTORS][VW];
  start_sums(job, i, n0, nv * VW, out);
  UNROLL for (int v = 0; v < nv; v++) acc[v] = v_load(out + v * VW);
  tile_rows rows;
  find_rows(w, n0, nv * VW, &rows);
  const uint8_t *ahead = w->data + (n0 + nv * VW) * row_bytes(w);
  for (int64_t k = 0; k < w->k; k += chunk) {
    int n = w->k - k < chunk ? (int)(w->k - k) : chunk;
    const float *x = job->a->x + k;
    for (int v = 0; v < nv; v++)
      load_words(rows.data + v * VW, k * size, n * size, packed[v]);
    for (int r = 0; r < nv * VW; r++)
      __builtin_prefetch(ahead + r * 4 * VW, 0, 2);
    ahead += nv * VW * 4 * VW;
    for (int j = 0; j < n; j++) {
      vf input = v_set(x[j]);
      UNROLL for (int v = 0; v < nv; v++)
      {
        vu word = packed[v][j / a_word];
        acc[v] += input * (a_word == 1 ? (vf)word : widen_half(stored, word, j % 2));
      }
    }
  }
  UNROLL for (int v = 0; v < nv; v++) v_store(out + v * VW, acc[v]);
  finish(job, i, 0, 1, n0, nv, out);
}

/* ---- the kernels for one token ---- */

typedef void tile_fn(const linear_job *job, int i, int64_t n0);

#define KERNEL(name, nv, call)                                                                                         \
  static void decode_##name##_##nv(const linear_job *job, int i, int64_t n0)                                           \
  {                                                                                                                    \
    call;                                                                                                              \
  }
#define CODES(name, bits, unit, fp)                                                                                    \
  KERNEL(name, 1, decode(bits, unit, fp, 1, job, i, n0))                                                               \
  KERNEL(name, 2, decode(bits, unit, fp, 2, job, i, n0))                                                               \
  KERNEL(name, 4, decode(bits, unit, fp, 4, job, i, n0))
#define DENSE(name, stored)                                                                                            \
  KERNEL(name, 1, decode_dense(stored, 1, job, i, n0))                                                                 \
  KERNEL(name, 2, decode_dense(stored, 2, job, i, n0))                                                                 \
  KERNEL(name, 4, decode_dense(stored, 4, job, i, n0))
CODES(2, 2, 32, false)
CODES(3, 3, 32, false)
CODES(4, 4, 32, false)
CODES(5, 5, 32, false)
CODES(6, 6, 32, false)
CODES(8, 8, 32, false)
CODES(mxfp4, 4, 32, true)
CODES(mxfp8, 8, 32, true)
CODES(nvfp4, 4, 16, true)
#if CPU_LEVEL > 0
#define PACKED(bits)                                                                                                   \
  KERNEL(packed##bits, 1, decode_packed(bits, 1, job, i, n0))                                                          \
  KERNEL(packed##bits, 2, decode_packed(bits, 2, job, i, n0))                                                          \
  KERNEL(packed##bits, 4, decode_packed(bits, 4, job, i, n0))
PACKED(2)
PACKED(3)
PACKED(4)
PACKED(5)
PACKED(6)
PACKED(8)
#endif
DENSE(f32, DT_F32)
DENSE(bf16, DT_BF16)
DENSE(f16, DT_F16)

#define KERNELS(name)                                                                                                  \
  {                                                                                                                    \
    decode_##name##_1, decode_##name##_2, NULL, decode_##name##_4                                                      \
  }

static tile_fn *decode_kernel(const ops_weight *w, int nv)
{
  static tile_fn *const affine[9][MOST_VECTORS] = {
      [2] = KERNELS(2), [3] = KERNELS(3), [4] = KERNELS(4), [5] = KERNELS(5), [6] = KERNELS(6), [8] = KERNELS(8)};
  static tile_fn *const fp[][MOST_VECTORS] = {
      [Q_MXFP4] = KERNELS(mxfp4), [Q_MXFP8] = KERNELS(mxfp8), [Q_NVFP4] = KERNELS(nvfp4)};
  static tile_fn *const dense[][MOST_VECTORS] = {
      [DT_F32] = KERNELS(f32), [DT_BF16] = KERNELS(bf16), [DT_F16] = KERNELS(f16)};
#if CPU_LEVEL > 0
  static tile_fn *const packed[9][MOST_VECTORS] = {
      [2] = KERNELS(packed2), [3] = KERNELS(packed3), [4] = KERNELS(packed4),
      [5] = KERNELS(packed5), [6] = KERNELS(packed6), [8] = KERNELS(packed8)};
  if (w->packed)
    return packed[w->bits][nv - 1];
#endif
  switch (w->quant) {
  case Q_NONE:
    return dense[w->stored][nv - 1];
  case Q_AFFINE:
    return affine[w->bits][nv - 1];
  default:
    return fp[w->quant][nv - 1];
  }
}

/* ---- ternary ---- */

/* The sums of bit pairs [pair, pair + nv) of VW byte rows from r0 on, times the factor of the matrix. */
static void finish_ternary(const linear_job *job, int i, int t0, int tokens, int64_t r0, int pair, int nv, float *sums)
{
  const ops_weight *w = job->a->w[i];
  int64_t rows = ternary_rows(w);
  for (int v = 0; v < nv; v++) {
    int64_t n = (pair + v) * rows + r0, left = w->n - n < rows - r0 ? w->n - n : rows - r0;
    for (int t = 0; left > 0 && t < tokens; t++) {
      float *sum = sums + (t * nv + v) * VW;
      v_store(sum, v_load(sum) * v_set(w->factor));
      finish_vector(job, i, t0 + t, n, left, sum);
    }
  }
}

/* Byte rows [r0, r0 + tiles * VW) for one token: each byte gives four outputs. */
INLINE void decode_ternary(const int tiles, const linear_job *job, int i, int64_t r0)
{
  const ops_weight *w = job->a->w[i];
  const uint8_t *rows[2 * VW], *ahead = w->data + (r0 + tiles * VW) * w->k;
  vf acc[2][4];
  vu packed[2][VW];
  UNROLL for (int s = 0; s < tiles; s++)
  {
    UNROLL for (int v = 0; v < 4; v++) acc[s][v] = v_set(0);
  }
  find_ternary_rows(w, r0, tiles * VW, rows);
  for (int64_t k = 0; k < w->k; k += 4 * VW) {
    int n = w->k - k < 4 * VW ? (int)(w->k - k) : 4 * VW;
    const float *x = job->a->x + k;
    for (int s = 0; s < tiles; s++)
      load_words(rows + s * VW, k, n, packed[s]);
    for (int line = 0; line < tiles * VW * 4 * VW; line += 64)
      __builtin_prefetch(ahead + line, 0, 2);
    ahead += tiles * VW * 4 * VW;
    for (int j = 0; j < n; j++) {
      vf input = v_set(x[j]);
      UNROLL for (int s = 0; s < tiles; s++)
      {
        vu byte = packed[s][j / 4] >> (8 * (j % 4));
        UNROLL for (int v = 0; v < 4; v++) acc[s][v] += input * v_ternary(byte >> (2 * v));
      }
    }
  }
  for (int s = 0; s < tiles; s++) {
    float sums[4 * VW];
    UNROLL for (int v = 0; v < 4; v++) v_store(sums + v * VW, acc[s][v]);
    finish_ternary(job, i, 0, 1, r0 + s * VW, 0, 4, sums);
  }
}

/* VW byte rows from r0 on for all tokens, two of their bit pairs at a time. */
static void ternary_by_tile(const linear_job *job, int i, int64_t r0)
{
  const ops_weight *w = job->a->w[i];
  const uint8_t *rows[VW];
  float tile[K_BLOCK * 2 * VW], sums[TOKEN_BLOCK * 2 * VW];
  find_ternary_rows(w, r0, VW, rows);
  for (int pair = 0; pair < 4; pair += 2) {
    for (int t0 = 0; t0 < job->tokens; t0 += TOKEN_BLOCK) {
      int tokens = job->tokens - t0 < TOKEN_BLOCK ? job->tokens - t0 : TOKEN_BLOCK;
      memset(sums, 0, (size_t)(tokens * 2 * VW) * sizeof *sums);
      for (int64_t k0 = 0; k0 < w->k; k0 += K_BLOCK) {
        int count = w->k - k0 < K_BLOCK ? (int)(w->k - k0) : K_BLOCK;
        expand_ternary(rows, pair, k0, count, tile);
        products(tokens, 2, tile, count, job->a->x + t0 * w->k + k0, w->k, sums, NULL);
      }
      finish_ternary(job, i, t0, tokens, r0, pair, 2, sums);
    }
  }
}

/* Byte rows [begin, end). */
static void run_ternary(const linear_job *job, int i, int64_t begin, int64_t end)
{
  for (int64_t r = begin; r < end; r += VW) {
    if (job->tokens > 1)
      ternary_by_tile(job, i, r);
    else if (end - r <= VW)
      decode_ternary(1, job, i, r);
    else {
      decode_ternary(2, job, i, r);
      r += VW;
    }
  }
}

/* ---- sharing ---- */

/* Vectors of outputs that the next tile takes, of `left` outputs in this share. */
static int tile_vectors(const linear_job *job, const ops_weight *w, int64_t n, int64_t left)
{
  int most = job->tokens == 1 ? 4 : 2;
  if (is_packed(w) && job->tokens == 1) {
    int64_t in_panel = LAYOUT_PANEL - n % LAYOUT_PANEL;
    most = in_panel >= 4 * VW ? 4 : in_panel >= 2 * VW ? 2 : 1;
    left = left < in_panel ? left : in_panel;
  }
  if (left >= most * VW)
    return most;
  return left > VW ? 2 : 1;
}

static void run_outputs(const linear_job *job, int i, int64_t begin, int64_t end)
{
  for (int64_t n = begin; n < end;) {
#if CPU_LEVEL > 0
    if (takes_few(job, job->a->w[i], n, end - n)) {
      by_few(job, i, n);
      n += LAYOUT_PANEL;
      continue;
    }
#endif
    int nv = tile_vectors(job, job->a->w[i], n, end - n);
    if (job->tokens == 1)
      decode_kernel(job->a->w[i], nv)(job, i, n);
    else
      by_tile(job, i, n, nv);
    n += nv * VW;
  }
}

/* What workers share: outputs, or byte rows of a ternary matrix. */
static int64_t extent_of(const linear_job *job, int i)
{
  const ops_weight *w = job->a->w[i];
  return w->quant == Q_TERNARY ? ternary_rows(w) : w->n;
}

static int64_t units_of(const linear_job *job, int i)
{
  return (extent_of(job, i) + job->unit - 1) / job->unit;
}

static void run_share(void *user, int share, int shares)
{
  const linear_job *job = user;
  int64_t units = 0, before = 0;
  for (int i = 0; i < job->a->outputs; i++)
    units += units_of(job, i);
  size_t begin, end;
  pool_share((size_t)units, 1, share, shares, &begin, &end);
  for (int i = 0; i < job->a->outputs; i++) {
    int64_t first = (int64_t)begin - before, last = (int64_t)end - before, own = units_of(job, i);
    before += own;
    first = first > 0 ? first * job->unit : 0;
    last = last < own ? last * job->unit : extent_of(job, i);
    if (first < last)
      (job->a->w[i]->quant == Q_TERNARY ? run_ternary : run_outputs)(job, i, first, last);
  }
}

/* Outputs of the least share. Whole panels of the prepared layout read best, where that leaves each worker enough. */
static int unit_for(const linear_job *job, int workers)
{
  int64_t panels = 0;
  for (int i = 0; i < job->a->outputs; i++)
    panels += is_packed(job->a->w[i]) ? job->a->w[i]->n / LAYOUT_PANEL : 0;
  if (panels >= (int64_t)4 * workers)
    return LAYOUT_PANEL;
  return job->tokens > 1 ? 2 * VW : VW;
}

void CPU_NAME(cpu_linear)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_linear *a = &record->linear;
  linear_job job = {.a = a, .tokens = ops_extent(record, step)};
  job.unit = unit_for(&job, cpu_workers(cx));
  int64_t products = 0;
  for (int i = 0; i < a->outputs; i++) {
    products += a->w[i]->n * a->w[i]->k * job.tokens;
    if (a->product[i] != DT_F32 || a->type[i] != DT_F32) {
      ref_linear(cx, record, step);
      return;
    }
  }
  cpu_run(cx, products / VW, run_share, &job);
}

#endif
