/* rowwise.h - the ops that look at one row at a time, at one SIMD level; rowwise_LEVEL.c compiles it:
 * rms_norm, layer_norm, rope, kv_append.
 *
 * A sum over a row is a chain of additions that must not be cut, so VW rows are summed at once, one a lane; a single
 * row is summed by scalars. In numerics fast a row's sum has FAST_NORM_LANES lanes of its own. Small steps stay on the
 * calling thread.
 */
#ifndef TERN_OPS_CPU_ROWWISE_H
#define TERN_OPS_CPU_ROWWISE_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/vmath.h"
#include "ops/ref/ref.h"
#include "ops/ref/ref_kv.h"

/* ---- rms_norm and layer_norm ---- */

/* What the two have in common. `rows` are groups of tokens: tokens * count. A single one is not divided. */
typedef struct norm_job {
  const float *x, *w, *b;
  float *y;
  bool own;   /* each group of a token has its own w */
  bool lanes; /* sums of numerics fast */
  int count, width, rows;
  int64_t x_stride, y_stride;
  float eps;
} norm_job;

static const float *norm_input(const norm_job *a, int row)
{
  return a->x + row / a->count * a->x_stride + (int64_t)(row % a->count) * a->width;
}

/* The next term of a row's sum: x, its square, or the square of its distance from the mean. */
typedef enum norm_term { PLAIN_SUM, SQUARES, CENTRED_SQUARES } norm_term;

static float row_sum(const norm_term term, const norm_job *a, int row, float mean)
{
  const float *x = norm_input(a, row);
  float sum = 0;
  if (term == PLAIN_SUM)
    for (int k = 0; k < a->width; k++)
      sum += x[k];
  else if (term == SQUARES)
    for (int k = 0; k < a->width; k++)
      sum += x[k] * x[k];
  else
    for (int k = 0; k < a->width; k++)
      sum += (x[k] - mean) * (x[k] - mean);
  return sum;
}

INLINE vf norm_value(const norm_term term, vf x, vf mean)
{
  if (term == PLAIN_SUM)
    return x;
  x = term == SQUARES ? x : x - mean;
  return x * x;
}

/* The sums of VW rows; rows beyond `count` repeat the last. */
INLINE void row_sums(const norm_term term, const norm_job *a, int first, int count, const float *means, float *sums)
{
  const float *rows[VW];
  for (int i = 0; i < VW; i++)
    rows[i] = norm_input(a, first + (i < count ? i : count - 1));
  vf sum = v_set(0), mean = term == CENTRED_SQUARES ? v_load(means) : v_set(0);
  int k = 0;
  for (; k + VW <= a->width; k += VW) {
    vu block[VW];
    UNROLL for (int i = 0; i < VW; i++) block[i] = (vu)v_load(rows[i] + k);
    v_transpose(block);
    UNROLL for (int i = 0; i < VW; i++) sum += norm_value(term, (vf)block[i], mean);
  }
  for (; k < a->width; k++) {
    float column[VW];
    for (int i = 0; i < VW; i++)
      column[i] = rows[i][k];
    sum += norm_value(term, v_load(column), mean);
  }
  v_store(sums, sum);
}

/* The sum of numerics fast (fast_ref/fast.h). */
INLINE float lanes_sum(const norm_term term, const norm_job *a, int row, float mean)
{
  enum { VECTORS = FAST_NORM_LANES / VW };
  const float *x = norm_input(a, row);
  float lane[FAST_NORM_LANES];
  vf sum[VECTORS], centre = v_set(mean);
  int k = 0;
  UNROLL for (int i = 0; i < VECTORS; i++) sum[i] = v_set(0);
  for (; k + FAST_NORM_LANES <= a->width; k += FAST_NORM_LANES)
    UNROLL for (int i = 0; i < VECTORS; i++)
    {
      vf v = v_load(x + k + i * VW);
      v = term == CENTRED_SQUARES ? v - centre : v;
      sum[i] = term == PLAIN_SUM ? sum[i] + v : v_fma(v, v, sum[i]);
    }
  UNROLL for (int i = 0; i < VECTORS; i++) v_store(lane + i * VW, sum[i]);
  for (int i = 0; k + i < a->width; i++) {
    float v = term == CENTRED_SQUARES ? x[k + i] - mean : x[k + i];
    lane[i] = term == PLAIN_SUM ? lane[i] + v : fmaf(v, v, lane[i]);
  }
  for (int half = FAST_NORM_LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++)
      lane[i] += lane[i + half];
  return lane[0];
}

/* y = (x - mean) * r * w + b, as far as they are there. */
INLINE void scale_row(const bool centred, const norm_job *a, int row, float mean, float sum)
{
  int group = row % a->count;
  const float *x = norm_input(a, row), *w = a->w && a->own ? a->w + (int64_t)group * a->width : a->w;
  float *y = a->y + row / a->count * a->y_stride + (int64_t)group * a->width;
  float r = 1.0f / sqrtf(sum * (float)(1.0 / a->width) + a->eps);
  int k = 0;
  for (; k + VW <= a->width; k += VW) {
    vf v = (centred ? v_load(x + k) - v_set(mean) : v_load(x + k)) * v_set(r);
    v = w ? v * v_load(w + k) : v;
    v_store(y + k, a->b ? v + v_load(a->b + k) : v);
  }
  for (; k < a->width; k++) {
    float v = (centred ? x[k] - mean : x[k]) * r;
    v = w ? v * w[k] : v;
    y[k] = a->b ? v + a->b[k] : v;
  }
}

INLINE void norm_rows(const bool centred, const norm_job *a, int share, int shares)
{
  const norm_term squares = centred ? CENTRED_SQUARES : SQUARES;
  size_t begin, end;
  pool_share((size_t)a->rows, 1, share, shares, &begin, &end);
  for (int row = (int)begin; row < (int)end && a->lanes; row++) {
    float mean = centred ? lanes_sum(PLAIN_SUM, a, row, 0) * (float)(1.0 / a->width) : 0;
    scale_row(centred, a, row, mean, lanes_sum(squares, a, row, mean));
  }
  for (int row = (int)begin; row < (int)end && !a->lanes; row += VW) {
    float means[VW] = {0}, sums[VW];
    int n = (int)end - row < VW ? (int)end - row : VW;
    if (n == 1) {
      means[0] = centred ? row_sum(PLAIN_SUM, a, row, 0) * (float)(1.0 / a->width) : 0;
      sums[0] = row_sum(squares, a, row, means[0]);
    } else {
      if (centred) {
        row_sums(PLAIN_SUM, a, row, n, means, sums);
        v_store(means, v_load(sums) * v_set((float)(1.0 / a->width)));
      }
      row_sums(squares, a, row, n, means, sums);
    }
    for (int i = 0; i < n; i++)
      scale_row(centred, a, row + i, means[i], sums[i]);
  }
}

static void rms_norm_share(void *user, int share, int shares)
{
  norm_rows(false, user, share, shares);
}

static void layer_norm_share(void *user, int share, int shares)
{
  norm_rows(true, user, share, shares);
}

static void rms_norm(ops_context *cx, const op_record *record, const ops_step *step, bool lanes)
{
  const struct op_rms_norm *a = &record->rms_norm;
  norm_job job = {.x = a->x, .y = a->y, .w = a->w, .count = a->count, .width = a->width, .eps = a->eps};
  if (a->type != DT_F32) {
    (lanes ? fast_rms_norm : ref_rms_norm)(cx, record, step);
    return;
  }
  job.lanes = lanes;
  job.rows = ops_extent(record, step) * a->count;
  job.x_stride = a->x_stride;
  job.y_stride = a->y_stride;
  cpu_run(cx, job.rows > 1 ? (int64_t)job.rows * a->width * (lanes ? 1 : 2) : 0, rms_norm_share, &job);
}

static void layer_norm(ops_context *cx, const op_record *record, const ops_step *step, bool lanes)
{
  const struct op_layer_norm *a = &record->layer_norm;
  norm_job job = {.x = a->x, .y = a->y, .w = a->w, .count = a->count, .width = a->width, .eps = a->eps};
  if (a->type != DT_F32 || a->normed != DT_F32) {
    (lanes ? fast_layer_norm : ref_layer_norm)(cx, record, step);
    return;
  }
  job.b = a->b;
  job.own = a->own;
  job.lanes = lanes;
  job.rows = ops_extent(record, step) * a->count;
  job.x_stride = a->x_stride;
  job.y_stride = a->y_stride;
  cpu_run(cx, job.rows > 1 ? (int64_t)job.rows * a->width * (lanes ? 1 : 3) : 0, layer_norm_share, &job);
}

void CPU_NAME(cpu_rms_norm)(ops_context *cx, const op_record *record, const ops_step *step)
{
  rms_norm(cx, record, step, false);
}

void CPU_NAME(cpu_layer_norm)(ops_context *cx, const op_record *record, const ops_step *step)
{
  layer_norm(cx, record, step, false);
}

void CPU_NAME(cpu_fast_rms_norm)(ops_context *cx, const op_record *record, const ops_step *step)
{
  rms_norm(cx, record, step, true);
}

void CPU_NAME(cpu_fast_layer_norm)(ops_context *cx, const op_record *record, const ops_step *step)
{
  layer_norm(cx, record, step, true);
}

/* ---- rope ---- */

typedef struct rope_job {
  const struct op_rope *a;
  const ops_step *step;
} rope_job;

/* Pairs [i, i + n) of one head, n <= VW; c and s hold their cosines and sines. */
INLINE void rotate_pairs(const struct op_rope *a, float *x, int i, int n, const float *c, const float *s)
{
  int half = a->dims / 2;
  if (!a->traditional && n == VW) {
    vf x1 = v_load(x + i), x2 = v_load(x + half + i), cosine = v_load(c), sine = v_load(s);
    if (a->mscale != 1.0f) {
      x1 = v_set(a->mscale) * x1;
      x2 = v_set(a->mscale) * x2;
    }
    v_store(x + i, x1 * cosine - x2 * sine);
    v_store(x + half + i, x1 * sine + x2 * cosine);
    return;
  }
  for (int j = 0; j < n; j++) {
    float *first = a->traditional ? x + 2 * (i + j) : x + i + j, *second = a->traditional ? first + 1 : first + half;
    float x1 = *first, x2 = *second;
    if (a->mscale != 1.0f) {
      x1 = a->mscale * x1;
      x2 = a->mscale * x2;
    }
    *first = x1 * c[j] - x2 * s[j];
    *second = x1 * s[j] + x2 * c[j];
  }
}

/* Heads [0, heads) of one token at `length`, which decides about the frequencies. */
typedef struct turned {
  float *x;
  int heads;
  int64_t length;
} turned;

/* Both kinds of heads of a token, or one: all of them turn by the same angles. */
static void rotate_heads(const struct op_rope *a, float position, const turned *parts, int n_parts)
{
  int half = a->dims / 2;
  bool grown = ref_grown(a, parts->length);
  float rate = grown ? ref_grown_rate(a, parts->length) : 0;
  for (int i = 0; i < half; i += VW) {
    int n = half - i < VW ? half - i : VW;
    float inverse[VW] = {0}, c[VW], s[VW];
    if (grown)
      for (int j = 0; j < n; j++)
        inverse[j] = (float)-(i + j) * rate;
    else
      memcpy(inverse, a->inverse + i, (size_t)n * sizeof *inverse);
    vf frequency = grown ? vm_exp(v_load(inverse)) : v_load(inverse), sine, cosine;
    vm_sincos(v_set(position) * frequency, &sine, &cosine);
    v_store(s, sine);
    v_store(c, cosine);
    for (const turned *part = parts; part < parts + n_parts; part++)
      for (int h = 0; h < part->heads; h++)
        rotate_pairs(a, part->x + h * a->head_dim, i, n, c, s);
  }
}

static void rotate_token(const struct op_rope *a, const ops_row *row, int t)
{
  int64_t token = row->first + t, at = row->position + t;
  float position = (float)at * a->position_scale;
  const turned parts[] = {{a->q + token * a->q_heads * a->head_dim, a->q_heads, ref_length(row, at, a->q_heads)},
                          {a->k + token * a->k_heads * a->head_dim, a->k_heads, ref_length(row, at, a->k_heads)}};
  bool apart = ref_grown(a, parts[0].length) || ref_grown(a, parts[1].length);
  rotate_heads(a, position, &parts[0], apart ? 1 : 2);
  if (apart)
    rotate_heads(a, position, &parts[1], 1);
}

static void rope_share(void *user, int share, int shares)
{
  const rope_job *job = user;
  size_t begin, end;
  pool_share((size_t)job->step->tokens, 1, share, shares, &begin, &end);
  for (int r = 0; r < job->step->rows; r++) {
    const ops_row *row = &job->step->row[r];
    for (int t = 0; t < row->count; t++) {
      int64_t token = row->first + t;
      if (token >= (int64_t)begin && token < (int64_t)end)
        rotate_token(job->a, row, t);
    }
  }
}

void CPU_NAME(cpu_rope)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_rope *a = &record->rope;
  if (a->type != DT_F32 || a->dims % 2) {
    ref_rope(cx, record, step);
    return;
  }
  rope_job job = {a, step};
  cpu_run(cx, (int64_t)step->tokens * (a->q_heads + a->k_heads) * a->dims / 4, rope_share, &job);
}

/* ---- kv_append ---- */

typedef struct append_job {
  const struct op_kv_append *a;
  const ops_step *step;
} append_job;

/* Tokens [t, t + n) of a row, all in one block, of one head. */
static void append_head(const struct op_kv_append *a, const ops_row *row, int t, int n, int h)
{
  int64_t position = row->position + t, token = row->first + t;
  float *block = row->slots[a->slot].blocks[position / KV_BLOCK];
  int i = (int)(position % KV_BLOCK);
  const float *k = a->k + (token * a->kv_heads + h) * a->key_dim;
  const float *v = a->v + (token * a->kv_heads + h) * a->value_dim;
  float *keys = block + ref_block_key(h, a->key_dim, i);
  for (int e = 0; e < a->key_dim; e++)
    for (int j = 0; j < n; j++)
      keys[(size_t)e * KV_BLOCK + (size_t)j] = k[(int64_t)j * a->kv_heads * a->key_dim + e];
  for (int j = 0; j < n; j++)
    memcpy(block + ref_block_value(a->kv_heads, a->key_dim, h, a->value_dim, i + j),
           v + (int64_t)j * a->kv_heads * a->value_dim, (size_t)a->value_dim * sizeof *v);
}

static void append_share(void *user, int share, int shares)
{
  const append_job *job = user;
  const struct op_kv_append *a = job->a;
  size_t begin, end;
  pool_share((size_t)a->kv_heads, 1, share, shares, &begin, &end);
  for (int r = 0; r < job->step->rows; r++) {
    const ops_row *row = &job->step->row[r];
    for (int t = 0; ops_quantised(&a->quant, row) && t < row->count; t++)
      for (int h = (int)begin; h < (int)end; h++)
        ref_append_row(a, row, t, h);
    for (int t = 0, n; !ops_quantised(&a->quant, row) && t < row->count; t += n) {
      n = KV_BLOCK - (int)((row->position + t) % KV_BLOCK);
      n = n < row->count - t ? n : row->count - t;
      for (int h = (int)begin; h < (int)end; h++)
        append_head(a, row, t, n, h);
    }
  }
}

void CPU_NAME(cpu_kv_append)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_kv_append *a = &record->kv_append;
  append_job job = {a, step};
  int64_t cost = a->quant.bits ? 16 : 1; /* cycles a value */
  cpu_run(cx, cost * step->tokens * a->kv_heads * (a->key_dim + a->value_dim), append_share, &job);
}

#endif
