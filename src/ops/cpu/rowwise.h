/* rowwise.h - the ops that look at one row at a time, at one SIMD level; rowwise_LEVEL.c compiles it:
 * rms_norm, rope, kv_append.
 *
 * A sum over a row is a chain of additions that must not be cut, so VW rows are summed at once, one a lane; a single
 * row is summed by scalars. Small steps stay on the calling thread.
 */
#ifndef TERN_OPS_CPU_ROWWISE_H
#define TERN_OPS_CPU_ROWWISE_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/vmath.h"
#include "ops/ref/ref.h"

/* ---- rms_norm ---- */

typedef struct norm_job {
  const struct op_rms_norm *a;
  int rows; /* tokens * count */
} norm_job;

static const float *norm_input(const struct op_rms_norm *a, int row)
{
  return a->x + row / a->count * a->x_stride + (int64_t)(row % a->count) * a->width;
}

static float square_sum(const float *x, int n)
{
  float sum = 0;
  for (int k = 0; k < n; k++)
    sum += x[k] * x[k];
  return sum;
}

/* The sums of VW rows; rows beyond `count` repeat the last. */
static void square_sums(const struct op_rms_norm *a, int first, int count, float *sums)
{
  const float *rows[VW];
  for (int i = 0; i < VW; i++)
    rows[i] = norm_input(a, first + (i < count ? i : count - 1));
  vf sum = v_set(0);
  int k = 0;
  for (; k + VW <= a->width; k += VW) {
    vu block[VW];
    UNROLL for (int i = 0; i < VW; i++) block[i] = (vu)v_load(rows[i] + k);
    v_transpose(block);
    UNROLL for (int i = 0; i < VW; i++) sum += (vf)block[i] * (vf)block[i];
  }
  v_store(sums, sum);
  for (; k < a->width; k++)
    for (int i = 0; i < count; i++)
      sums[i] += rows[i][k] * rows[i][k];
}

static void scale_row(const struct op_rms_norm *a, int row, float sum)
{
  const float *x = norm_input(a, row);
  float *y = a->y + row / a->count * a->y_stride + (int64_t)(row % a->count) * a->width;
  float r = 1.0f / sqrtf(sum * (float)(1.0 / a->width) + a->eps);
  int k = 0;
  for (; k + VW <= a->width; k += VW) {
    vf normed = v_load(x + k) * v_set(r);
    v_store(y + k, a->w ? normed * v_load(a->w + k) : normed);
  }
  for (; k < a->width; k++)
    y[k] = a->w ? x[k] * r * a->w[k] : x[k] * r;
}

static void norm_share(void *user, int worker, int count)
{
  const norm_job *job = user;
  size_t begin, end;
  pool_share((size_t)job->rows, 1, worker, count, &begin, &end);
  for (int row = (int)begin; row < (int)end; row += VW) {
    float sums[VW];
    int n = (int)end - row < VW ? (int)end - row : VW;
    if (n == 1)
      sums[0] = square_sum(norm_input(job->a, row), job->a->width);
    else
      square_sums(job->a, row, n, sums);
    for (int i = 0; i < n; i++)
      scale_row(job->a, row + i, sums[i]);
  }
}

void CPU_NAME(cpu_rms_norm)(ops_context *cx, const op_record *record, const ops_step *step)
{
  norm_job job = {.a = &record->rms_norm, .rows = ops_extent(record, step) * record->rms_norm.count};
  if (job.a->type != DT_F32) {
    ref_rms_norm(cx, record, step);
    return;
  }
  cpu_run(cx, (int64_t)job.rows * job.a->width * 2, norm_share, &job);
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

static void rotate_token(const struct op_rope *a, int64_t token, float position)
{
  int half = a->dims / 2;
  float *q = a->q + token * a->q_heads * a->head_dim, *k = a->k + token * a->k_heads * a->head_dim;
  for (int i = 0; i < half; i += VW) {
    int n = half - i < VW ? half - i : VW;
    float inverse[VW] = {0}, c[VW], s[VW];
    memcpy(inverse, a->inverse + i, (size_t)n * sizeof *inverse);
    vf sine, cosine;
    vm_sincos(v_set(position) * v_load(inverse), &sine, &cosine);
    v_store(s, sine);
    v_store(c, cosine);
    for (int h = 0; h < a->q_heads; h++)
      rotate_pairs(a, q + h * a->head_dim, i, n, c, s);
    for (int h = 0; h < a->k_heads; h++)
      rotate_pairs(a, k + h * a->head_dim, i, n, c, s);
  }
}

static void rope_share(void *user, int worker, int count)
{
  const rope_job *job = user;
  size_t begin, end;
  pool_share((size_t)job->step->tokens, 1, worker, count, &begin, &end);
  for (int r = 0; r < job->step->rows; r++) {
    const ops_row *row = &job->step->row[r];
    for (int t = 0; t < row->count; t++) {
      int64_t token = row->first + t;
      if (token >= (int64_t)begin && token < (int64_t)end)
        rotate_token(job->a, token, (float)(row->position + t) * job->a->position_scale);
    }
  }
}

void CPU_NAME(cpu_rope)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_rope *a = &record->rope;
  if (a->type != DT_F32 || a->dims % 2 || a->ntk_from) {
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

static void append_share(void *user, int worker, int count)
{
  const append_job *job = user;
  const struct op_kv_append *a = job->a;
  size_t begin, end;
  pool_share((size_t)a->kv_heads, 1, worker, count, &begin, &end);
  for (int r = 0; r < job->step->rows; r++) {
    const ops_row *row = &job->step->row[r];
    for (int t = 0, n; t < row->count; t += n) {
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
  cpu_run(cx, (int64_t)step->tokens * a->kv_heads * (a->key_dim + a->value_dim), append_share, &job);
}

#endif
