/* linear.h - matrix products at one SIMD level; linear_LEVEL.c compiles it.
 *
 * Outputs stand in lanes and k runs upward in every one of them, so each output is the reference's sum: x[k] times the
 * weight, rounded, added, rounded. Two ways, with equal bits:
 *
 *   one token      affine weights with half scales go from the mapping through registers straight into the sums
 *                  (decode); the rows of the next tile, which lie one after another, are prefetched meanwhile.
 *   anything else  a tile of weights, some outputs wide and a block of k long, is expanded to float32 once, k-major,
 *                  and multiplied with all tokens from registers of MOST_TOKENS x 2 vectors (product). Sums wait in
 *                  float32 between blocks of k, which rounds nothing.
 *
 * The fp modes sum a group first and add scale * that to the sum: a group is then the block of k that starts at zero.
 * Work is shared by outputs, in units of one tile.
 */
#ifndef TERN_OPS_CPU_LINEAR_H
#define TERN_OPS_CPU_LINEAR_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/weights.h"
#include "ops/ref/ref.h"

enum {
  MOST_TOKENS = CPU_LEVEL == 2 ? 12 : 6, /* of one product: tokens x 2 sums, 2 weights, 1 input fill the registers */
  TOKEN_BLOCK = 8 * MOST_TOKENS,
  TILE_VALUES = 256 * 2, /* vectors of a tile: 256 k by 2, or 128 by 4 */
  TILE_GROUPS = 256 / 16 * 2 * VW,
};

typedef struct linear_job {
  const struct op_linear *a;
  int tokens;
  int unit; /* outputs of the least share of work */
} linear_job;

/* ---- sums to outputs ---- */

/* Rows [t0, t0 + tokens) of outputs [n0, n0 + nv * VW) of matrix i: y = residual + (sum + bias). */
static void finish(const linear_job *job, int i, int t0, int tokens, int64_t n0, int nv, const float *sums)
{
  const struct op_linear *a = job->a;
  int64_t width = a->w[i]->n;
  for (int v = 0; v < nv; v++) {
    int64_t n = n0 + v * VW;
    int64_t left = width - n;
    for (int t = 0; t < tokens; t++) {
      const float *sum = sums + (t * nv + v) * VW;
      float *y = a->y[i] + (t0 + t) * width + n;
      const float *residual = i == 0 && a->residual ? a->residual + (t0 + t) * width + n : NULL;
      if (left >= VW) {
        vf x = v_load(sum);
        x = a->bias[i] ? x + v_load(a->bias[i] + n) : x;
        v_store(y, residual ? v_load(residual) + x : x);
        continue;
      }
      for (int64_t lane = 0; lane < left; lane++) {
        float x = a->bias[i] ? sum[lane] + a->bias[i][n + lane] : sum[lane];
        y[lane] = residual ? residual[lane] + x : x;
      }
    }
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
PRODUCT(1, 4)
#if CPU_LEVEL == 2
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
    product_fn *by_vectors[MOST_VECTORS];
  } steps[] = {
#if CPU_LEVEL == 2
    {12, {product_12_1, product_12_2}},
    {8, {product_8_1, product_8_2}},
#endif
    {6, {product_6_1, product_6_2}},
    {4, {product_4_1, product_4_2}},
    {3, {product_3_1, product_3_2}},
    {2, {product_2_1, product_2_2}},
    {1, {product_1_1, product_1_2, NULL, product_1_4}},
  };
  for (int t = 0, i = 0; t < tokens; t += steps[i].tokens) {
    while (steps[i].tokens > tokens - t)
      i++;
    steps[i].by_vectors[nv - 1](tile, count, x + t * x_stride, x_stride, sums + t * nv * VW, scale);
  }
}

/* Outputs [n0, n0 + nv * VW) of matrix i, for all tokens. nv is 4 for one token only. */
static void by_tile(const linear_job *job, int i, int64_t n0, int nv)
{
  const ops_weight *w = job->a->w[i];
  float tile[TILE_VALUES * VW], sums[TOKEN_BLOCK * 2 * VW], s[TILE_GROUPS], b[TILE_GROUPS];
  int block = nv > 2 ? 128 : 256;
  bool by_group = w->quant > Q_AFFINE;
  tile_rows rows;
  find_rows(w, n0, nv * VW, &rows);
  for (int t0 = 0; t0 < job->tokens; t0 += TOKEN_BLOCK) {
    int tokens = job->tokens - t0 < TOKEN_BLOCK ? job->tokens - t0 : TOKEN_BLOCK;
    memset(sums, 0, (size_t)(tokens * nv * VW) * sizeof *sums);
    for (int64_t k0 = 0; k0 < w->k; k0 += block) {
      int count = w->k - k0 < block ? (int)(w->k - k0) : block, step = by_group ? w->group : count;
      expand(nv, w, &rows, k0, count, s, b, tile);
      for (int k = 0; k < count; k += step)
        products(tokens, nv, tile + k * nv * VW, step, job->a->x + t0 * w->k + k0 + k, w->k, sums,
                 by_group ? s + k / w->group * nv * VW : NULL);
    }
    finish(job, i, t0, tokens, n0, nv, sums);
  }
}

/* ---- one token, affine with half scales ---- */

enum { PANEL_GROUPS = 2 * VW }; /* groups whose scales are widened together: a word of halves from each row */

/* acc += x * weight for the 32 codes of a unit of nv * VW outputs: `bits` words of each, packed[v][from...]. */
INLINE void decode_unit(const int bits, const int nv, vu (*packed)[TILE_WORDS], int from, const float *x,
                        const vf *scale, const vf *bias, vf *acc)
{
  if (32 % bits == 0) {
    for (int i = 0; i < bits; i++) {
      vu word[MOST_VECTORS];
      UNROLL for (int v = 0; v < nv; v++) word[v] = packed[v][from + i];
      /* Not unrolled: compilers then keep too much in flight, and spill. */
      for (int j = 0; j < 32 / bits; j++) {
        vf input = v_set(*x++);
        UNROLL for (int v = 0; v < nv; v++)
        {
          acc[v] += input * v_fma(scale[v], v_code(bits, word[v]), bias[v]);
          word[v] >>= bits;
        }
      }
    }
    return;
  }
  UNROLL for (int j = 0; j < 32; j++)
  {
    vf input = v_set(x[j]);
    UNROLL for (int v = 0; v < nv; v++) acc[v] +=
        input * v_fma(scale[v], code_value(bits, false, packed[v] + from, j), bias[v]);
    __asm__ volatile("" ::: "memory"); /* keeps the loads of later codes from moving up, and registers from spilling */
  }
}

/* Codes [k0, k0 + count). `ahead` walks the bytes of the next tile. */
INLINE void decode_panel(const int bits, const int nv, const ops_weight *w, const tile_rows *rows, int64_t k0,
                         int count, const float *x, const float *s, const float *b, const uint8_t **ahead, vf *sums)
{
  enum { UNIT = 32 };
  const int units = TILE_WORDS / bits;
  vu packed[MOST_VECTORS][TILE_WORDS];
  vf acc[MOST_VECTORS], scale[MOST_VECTORS], bias[MOST_VECTORS];
  UNROLL for (int v = 0; v < nv; v++) acc[v] = sums[v];
  for (int k = 0; k < count; k += units * UNIT) {
    for (int v = 0; v < nv; v++)
      load_tile_words(rows->data + v * VW, (k0 + k) * bits / 8, (count - k) * bits / 8, packed[v]);
    int bytes = nv * VW * units * bits * 4;
    for (int i = 0; i < bytes; i += 64)
      __builtin_prefetch(*ahead + i, 0, 2);
    *ahead += bytes;
    for (int u = 0; u < units && k + u * UNIT < count; u++) {
      int g = (k + u * UNIT) / w->group * nv * VW;
      UNROLL for (int v = 0; v < nv; v++)
      {
        scale[v] = v_load(s + g + v * VW);
        bias[v] = v_load(b + g + v * VW);
      }
      decode_unit(bits, nv, packed, u * bits, x + k + u * UNIT, scale, bias, acc);
    }
  }
  UNROLL for (int v = 0; v < nv; v++) sums[v] = acc[v];
}

/* Outputs [n0, n0 + nv * VW) of matrix i for one token. Scales that forbid a fused multiply-add send the tile the other
 * way. */
INLINE void decode(const int bits, const int nv, const linear_job *job, int i, int64_t n0)
{
  const ops_weight *w = job->a->w[i];
  float s[PANEL_GROUPS * MOST_ROWS], b[PANEL_GROUPS * MOST_ROWS], out[MOST_ROWS];
  vf sums[MOST_VECTORS];
  UNROLL for (int v = 0; v < nv; v++) sums[v] = v_set(0);
  tile_rows rows;
  find_rows(w, n0, nv * VW, &rows);
  const uint8_t *ahead = w->data + (n0 + nv * VW) * row_bytes(w);
  int64_t groups = w->k / w->group;
  for (int64_t g = 0; g < groups; g += PANEL_GROUPS) {
    int some = groups - g < PANEL_GROUPS ? (int)(groups - g) : PANEL_GROUPS;
    int64_t k0 = g * w->group;
    if (!widen_scales(w, rows.scales, g, some, nv, s)) {
      by_tile(job, i, n0, nv);
      return;
    }
    widen_scales(w, rows.biases, g, some, nv, b);
    decode_panel(bits, nv, w, &rows, k0, some * w->group, job->a->x + k0, s, b, &ahead, sums);
  }
  UNROLL for (int v = 0; v < nv; v++) v_store(out + v * VW, sums[v]);
  finish(job, i, 0, 1, n0, nv, out);
}

typedef void tile_fn(const linear_job *job, int i, int64_t n0);

#define DECODE(bits, nv)                                                                                               \
  static void decode_##bits##_##nv(const linear_job *job, int i, int64_t n0)                                           \
  {                                                                                                                    \
    decode(bits, nv, job, i, n0);                                                                                      \
  }
#define DECODES(bits) DECODE(bits, 1) DECODE(bits, 2) DECODE(bits, 4)
DECODES(2)
DECODES(3)
DECODES(4)
DECODES(5)
DECODES(6)
DECODES(8)

/* The kernel for one token, or NULL. */
static tile_fn *decode_kernel(const ops_weight *w, int nv)
{
#define KERNELS(bits) [bits] = { decode_##bits##_1, decode_##bits##_2, NULL, decode_##bits##_4 }
  static tile_fn *const kernels[9][MOST_VECTORS] = {KERNELS(2), KERNELS(3), KERNELS(4),
                                                    KERNELS(5), KERNELS(6), KERNELS(8)};
#undef KERNELS
  return w->quant == Q_AFFINE && w->stored != DT_F32 ? kernels[w->bits][nv - 1] : NULL;
}

/* ---- sharing ---- */

/* Vectors of outputs that the next tile takes, of `left` outputs in this share. */
static int tile_vectors(const linear_job *job, int64_t left)
{
  int most = job->tokens == 1 ? 4 : 2;
  if (left >= most * VW)
    return most;
  return left > VW ? 2 : 1;
}

static void run_outputs(const linear_job *job, int i, int64_t begin, int64_t end)
{
  for (int64_t n = begin; n < end;) {
    int nv = tile_vectors(job, end - n);
    tile_fn *kernel = job->tokens == 1 ? decode_kernel(job->a->w[i], nv) : NULL;
    if (kernel)
      kernel(job, i, n);
    else
      by_tile(job, i, n, nv);
    n += nv * VW;
  }
}

static int64_t units_of(const linear_job *job, int i)
{
  return (job->a->w[i]->n + job->unit - 1) / job->unit;
}

static void run_share(void *user, int worker, int count)
{
  const linear_job *job = user;
  int64_t units = 0, before = 0;
  for (int i = 0; i < job->a->outputs; i++)
    units += units_of(job, i);
  size_t begin, end;
  pool_share((size_t)units, 1, worker, count, &begin, &end);
  for (int i = 0; i < job->a->outputs; i++) {
    int64_t first = (int64_t)begin - before, last = (int64_t)end - before, own = units_of(job, i);
    before += own;
    first = first > 0 ? first * job->unit : 0;
    last = last < own ? last * job->unit : job->a->w[i]->n;
    if (first < last)
      run_outputs(job, i, first, last);
  }
}

void CPU_NAME(cpu_linear)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_linear *a = &record->linear;
  linear_job job = {.a = a, .tokens = ops_extent(record, step)};
  job.unit = job.tokens == 1 ? VW : 2 * VW;
  int64_t products = 0;
  for (int i = 0; i < a->outputs; i++) {
    products += a->w[i]->n * a->w[i]->k * job.tokens;
    if (a->type[i] != DT_F32) {
      ref_linear(cx, record, step);
      return;
    }
  }
  cpu_run(cx, products / VW, run_share, &job);
}

#endif
