/* ref_attention.c - rotation and attention. Keys are summed in the order of ops/visible.h;
 * hidden keys take no part: the reference gives them a weight of exactly zero, which changes no sum. */
#include <math.h>
#include <string.h>

#include "ops/math.h"
#include "ops/ref/ref.h"
#include "ops/ref/ref_kv.h"
#include "ops/visible.h"

/* ---- rope ---- */

/* The base grows with the length: mx.fast.rope given that base, whose logarithm it takes once. */
float ref_grown_rate(const struct op_rope *a, int64_t length)
{
  double stretch = a->ntk_scale * (double)length / a->ntk_from - (a->ntk_scale - 1);
  double base = a->ntk_base * pow(stretch, (double)a->dims / (a->dims - 2));
  int half = a->dims / 2;
  return math_log((float)base) / (float)half;
}

static void rotate_head(const struct op_rope *a, float *x, float position, int64_t length)
{
  int half = a->dims / 2;
  bool grown = ref_grown(a, length);
  float rate = grown ? ref_grown_rate(a, length) : 0;
  if (a->mscale != 1.0f)
    for (int i = 0; i < a->dims; i++)
      x[i] = ops_round(a->type, ops_round(a->type, a->mscale) * x[i]);
  for (int i = 0; i < half; i++) {
    float angle = position * (grown ? math_exp((float)-i * rate) : a->inverse[i]);
    float c = ops_round(a->type, math_cos(angle)), s = ops_round(a->type, math_sin(angle));
    float *first = a->traditional ? x + 2 * i : x + i, *second = a->traditional ? first + 1 : first + half;
    float x1 = *first, x2 = *second;
    *first = ops_round(a->type, ops_round(a->type, x1 * c) - ops_round(a->type, x2 * s));
    *second = ops_round(a->type, ops_round(a->type, x1 * s) + ops_round(a->type, x2 * c));
  }
}

void ref_rope(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_rope *a = &record->rope;
  for (int r = 0; r < step->rows; r++) {
    const ops_row *row = &step->row[r];
    for (int t = 0; t < row->count; t++) {
      int64_t at = row->position + t, token = row->first + t;
      float position = (float)at * a->position_scale;
      for (int h = 0; h < a->q_heads; h++)
        rotate_head(a, a->q + (token * a->q_heads + h) * a->head_dim, position, ref_length(row, at, a->q_heads));
      for (int h = 0; h < a->k_heads; h++)
        rotate_head(a, a->k + (token * a->k_heads + h) * a->head_dim, position, ref_length(row, at, a->k_heads));
    }
  }
}

/* ---- attention ---- */

typedef struct query {
  const struct op_attention *a;
  const ops_kv_view *kv;
  bool quantised;
  ops_dtype type; /* of queries, scores and weights */
  float scale;
  int head, kv_head;
  int64_t position;
  const ops_range *ranges;
  int n_ranges;
} query;

/* ---- products with one key or value ---- */

static float plain_score(const query *at, const float *q, const void *block, int i)
{
  const struct op_attention *a = at->a;
  const float *key = (const float *)block + ref_block_key(at->kv_head, a->key_dim, i);
  float sum = 0;
  for (int e = 0; e < a->key_dim; e++)
    sum += ops_round(at->type, at->scale * q[e]) * key[(size_t)e * KV_BLOCK];
  return ops_round(a->type, sum);
}

/* Quantised products round every step. */
static float quantised_score(const query *at, const float *q, void *block, int i)
{
  const struct op_attention *a = at->a;
  ref_packed keys = ref_packed_keys(&a->quant, block, at->kv_head, a->key_dim);
  float sum = 0;
  for (int e = 0; e < a->key_dim; e++) {
    float key = ref_packed_key_at(&keys, &a->quant, at->type, i, e);
    sum = ops_round(at->type, sum + ops_round(at->type, ops_round(at->type, at->scale * q[e]) * key));
  }
  return sum;
}

static void add_plain(const query *at, float weight, const void *block, int i, float *out)
{
  const struct op_attention *a = at->a;
  const float *value = (const float *)block + ref_block_value(a->kv_heads, a->key_dim, at->kv_head, a->value_dim, i);
  for (int e = 0; e < a->value_dim; e++)
    out[e] += weight * value[e];
}

static void add_quantised(const query *at, float weight, void *block, int i, float *out)
{
  const struct op_attention *a = at->a;
  ops_dtype type = ops_promote(at->type, a->quant.value_type);
  ref_packed values = ref_packed_values(&a->quant, block, a->kv_heads, a->key_dim, at->kv_head, a->value_dim);
  for (int e = 0; e < a->value_dim; e++) {
    float value = ref_packed_value_at(&values, &a->quant, type, i, e);
    out[e] = ops_round(type, out[e] + ops_round(type, weight * value));
  }
}

/* ---- one head of one token ---- */

/* out = scores times values: [E]. */
static void gather(const query *at, const float *scores, float reciprocal, float *out)
{
  const struct op_attention *a = at->a;
  int64_t n = 0;
  memset(out, 0, (size_t)a->value_dim * sizeof *out);
  for (int r = 0; r < at->n_ranges; r++) {
    for (int64_t p = at->ranges[r].first; p < at->ranges[r].first + at->ranges[r].count; p++) {
      if (!ref_sees(a, at->head, at->position, p))
        continue;
      void *block = at->kv->blocks[p / KV_BLOCK];
      float weight = ops_round(at->type, scores[n++] * reciprocal);
      if (at->quantised)
        add_quantised(at, weight, block, (int)(p % KV_BLOCK), out);
      else
        add_plain(at, weight, block, (int)(p % KV_BLOCK), out);
    }
  }
  for (int e = 0; e < a->value_dim; e++)
    out[e] = ops_round(a->out_type, at->quantised ? out[e] : ops_round(a->value_type, out[e]));
}

/* scores [S], out [E]. */
static void attend(const query *at, const float *q, float *scores, float *out)
{
  const struct op_attention *a = at->a;
  float cap = ops_round(at->type, a->softcap), most = 0, total = 0;
  int64_t n = 0;
  for (int r = 0; r < at->n_ranges; r++) {
    for (int64_t p = at->ranges[r].first; p < at->ranges[r].first + at->ranges[r].count; p++) {
      if (!ref_sees(a, at->head, at->position, p))
        continue;
      void *block = at->kv->blocks[p / KV_BLOCK];
      int i = (int)(p % KV_BLOCK);
      float sum = at->quantised ? quantised_score(at, q, block, i) : plain_score(at, q, block, i);
      sum = cap != 0 ? ref_cap(at->type, cap, sum) : sum;
      most = n == 0 || sum > most ? sum : most;
      scores[n++] = sum;
    }
  }
  for (int64_t i = 0; i < n; i++) {
    scores[i] = math_exp(scores[i] - most);
    total += scores[i];
  }
  gather(at, scores, 1.0f / total, out);
}

void ref_attention(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_attention *a = &record->attention;
  int repeats = a->heads / a->kv_heads;
  for (int r = 0; r < step->rows; r++) {
    const ops_row *row = &step->row[r];
    bool quantised = ops_quantised(&a->quant, row);
    ops_dtype type = quantised ? a->score_type : a->type;
    for (int t = 0; t < row->count; t++) {
      ops_range ranges[VISIBLE_MOST];
      ops_row_kind kind = a->by_time ? ROW_READ : row->kind;
      int n = ops_visible(a->window, a->keep, row->position + t, row->split, kind, ranges);
      for (int h = 0; h < a->heads; h++) {
        int64_t token = (int64_t)(row->first + t) * a->heads + h;
        query at = {.a = a,
                    .kv = &row->slots[a->slot],
                    .quantised = quantised,
                    .type = type,
                    .scale = ops_round(type, a->scale),
                    .head = h,
                    .kv_head = h / repeats,
                    .position = row->position + t,
                    .ranges = ranges,
                    .n_ranges = n};
        attend(&at, a->q + token * a->key_dim, cx->scratch, a->out + token * a->value_dim);
      }
    }
  }
}
