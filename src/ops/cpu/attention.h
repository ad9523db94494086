/* attention.h - softmax(scale q k^T) v at one SIMD level; attention_LEVEL.c compiles it.
 *
 * Up to QUERIES queries of one key/value head go together and share every load of keys and values: the query heads of
 * one token, or of neighbouring tokens of a prompt. Scores stand one key a lane, outputs one value dim a lane; sums
 * over dims, over softmax terms and over keys run in the reference's order, each in its own lane or scalar.
 *
 * Keys are numbered in summation order. Queries of one token see the same keys; queries of different tokens are taken
 * together where each sees one ascending range, and the keys that not all of them see (at the two ends) are summed for
 * each alone. Scores of keys that a query does not see are computed and left out. Quantised keys and values are
 * unpacked a block at a time (attention_kv.h).
 */
#ifndef TERN_OPS_CPU_ATTENTION_H
#define TERN_OPS_CPU_ATTENTION_H

#include "ops/cpu/attention_kv.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/vmath.h"
#include "ops/ref/ref.h"
#include "ops/visible.h"

enum {
  QUERIES =
      CPU_REGISTERS == 32 ? CPU_QUERIES : 2, /* times 4 vectors of sums, 4 of keys or values: what registers hold */
  STRIP = 4 * VW,                            /* keys, or dims, at a time */
  MOST_DIM = 1024,                           /* of a key; more is the reference's */
};

/* Queries that go together. Key number j of the order is seen by query i if low[i] <= j < high[i]. */
typedef struct query_set {
  const struct op_attention *a;
  const ops_kv_view *kv;
  int kv_head, n;
  int head;            /* block-sparse only: the query head, and the */
  int64_t query_block; /* block that its queries lie in */
  ops_range ranges[VISIBLE_MOST];
  int n_ranges;
  int64_t low[QUERIES], high[QUERIES];
  int64_t common_low, common_high; /* seen by all */
  const float *q[QUERIES];
  float *out[QUERIES], *scores[QUERIES];
  float *unpacked; /* [KV_BLOCK * MOST_UNPACKED] where keys and values are quantised; else NULL */
} query_set;

/* A stretch of the order inside one block: keys [first, first + count) of the block are numbers [at, at + count). */
typedef struct stretch {
  void *block;
  int first, count;
  int64_t at;
} stretch;

/* Steps over the blocks that are hidden at `position`, and cuts what is left to the block after them. A query's own
 * block is the last, and seen. */
static int64_t skip_hidden(const query_set *set, int64_t position, int64_t *left)
{
  int64_t size = set->a->sparse_block;
  while (!ref_sees_block(set->a, set->head, set->query_block, position / size)) {
    *left -= size - position % size;
    position += size - position % size;
  }
  *left = *left < size - position % size ? *left : size - position % size;
  return position;
}

/* Steps to the next stretch; start with *range = 0, *done = 0, s->at = 0 and s->count = 0. */
static bool next_stretch(const query_set *set, int *range, int64_t *done, stretch *s)
{
  s->at += s->count;
  *done += s->count;
  if (*done == set->ranges[*range].count) {
    *done = 0;
    if (++*range == set->n_ranges)
      return false;
  }
  int64_t position = set->ranges[*range].first + *done, left = set->ranges[*range].count - *done;
  if (set->a->sparse_block) {
    int64_t seen = skip_hidden(set, position, &left);
    *done += seen - position;
    position = seen;
  }
  s->block = set->kv->blocks[position / KV_BLOCK];
  s->first = (int)(position % KV_BLOCK);
  s->count = left < KV_BLOCK - s->first ? (int)left : KV_BLOCK - s->first;
  return true;
}

/* A walk over them that knows the one ahead; at the end that is the last one again. */
typedef struct stretches {
  int range;
  int64_t done;
  stretch next;
  bool more;
} stretches;

static void begin_stretches(const query_set *set, stretches *at)
{
  *at = (stretches){0};
  at->more = next_stretch(set, &at->range, &at->done, &at->next);
}

static stretch step_stretch(const query_set *set, stretches *at)
{
  stretch s = at->next;
  at->more = next_stretch(set, &at->range, &at->done, &at->next);
  return s;
}

/* ---- scores ---- */

/* The lines of a strip at p, of the block after this one: they are asked for as many cycles ahead as memory takes. */
INLINE void prefetch_strip(const float *p)
{
  UNROLL for (int at = 0; at < STRIP; at += 16) __builtin_prefetch(p + at, 0, 3);
}

/* out[i][STRIP] = q[i] . keys, for STRIP keys that stand side by side, dims KV_BLOCK apart. */
INLINE void score_strip(const int n, const float *keys, const float *ahead, int dims, float (*q)[MOST_DIM],
                        float (*out)[STRIP])
{
  vf acc[QUERIES][4];
  UNROLL for (int i = 0; i < n; i++)
  {
    UNROLL for (int v = 0; v < 4; v++) acc[i][v] = v_set(0);
  }
  for (int e = 0; e < dims; e++) {
    vf k[4];
    UNROLL for (int v = 0; v < 4; v++) k[v] = v_load(keys + (size_t)e * KV_BLOCK + v * VW);
    prefetch_strip(ahead + (size_t)e * KV_BLOCK);
    UNROLL for (int i = 0; i < n; i++)
    {
      vf x = v_set(q[i][e]);
      UNROLL for (int v = 0; v < 4; v++) acc[i][v] += x * k[v];
    }
  }
  UNROLL for (int i = 0; i < n; i++)
  {
    UNROLL for (int v = 0; v < 4; v++) v_store(out[i] + v * VW, acc[i][v]);
  }
}

/* `next` is the block that is read after this one. */
static void score_stretch(const query_set *set, const stretch *s, const void *next, float (*q)[MOST_DIM])
{
  const struct op_attention *a = set->a;
  size_t offset = ref_block_key(set->kv_head, a->key_dim, 0);
  const float *keys = (const float *)s->block + offset, *ahead = (const float *)next + offset;
  if (set->unpacked) {
    ref_packed packed = ref_packed_keys(&a->quant, s->block, set->kv_head, a->key_dim);
    for (int c = s->first / STRIP * STRIP; c < s->first + s->count; c += STRIP)
      unpack_keys(&a->quant, &packed, c, set->unpacked);
    keys = ahead = set->unpacked;
  }
  for (int c = s->first / STRIP * STRIP; c < s->first + s->count; c += STRIP) {
    float out[QUERIES][STRIP];
    if (set->n == 1)
      score_strip(1, keys + c, ahead + c, set->a->key_dim, q, out);
    else if (set->n == 2)
      score_strip(2, keys + c, ahead + c, set->a->key_dim, q, out);
#if CPU_REGISTERS == 32
    else if (set->n == 3)
      score_strip(3, keys + c, ahead + c, set->a->key_dim, q, out);
    else
      score_strip(4, keys + c, ahead + c, set->a->key_dim, q, out);
#endif
    int begin = c > s->first ? c : s->first, end = c + STRIP;
    end = end < s->first + s->count ? end : s->first + s->count;
    for (int i = 0; i < set->n; i++)
      memcpy(set->scores[i] + s->at + (begin - s->first), out[i] + (begin - c), (size_t)(end - begin) * sizeof(float));
  }
}

/* ---- softmax ---- */

static float most_of(const float *x, int64_t n)
{
  vf most = v_set(x[0]);
  int64_t i = 0;
  for (; i + VW <= n; i += VW)
    most = v_max(v_load(x + i), most);
  float lane[VW], result = x[0];
  v_store(lane, most);
  for (int l = 0; l < VW; l++)
    result = lane[l] > result ? lane[l] : result;
  for (; i < n; i++)
    result = x[i] > result ? x[i] : result;
  return result;
}

/* Scores of one query that a model caps. */
static void cap_scores(float cap, float *x, int64_t n)
{
  for (int64_t j = 0; j < n; j += VW)
    v_store(x + j, vm_tanh(v_load(x + j) / v_set(cap)) * v_set(cap));
}

/* Terms of the softmax in place of the scores, and their sums. Vectors may run over the end of what a query sees: the
 * rows of scores have room, and nobody reads it. */
static void exponentiate(const query_set *set, float *totals)
{
  for (int i = 0; i < set->n; i++) {
    float *x = set->scores[i] + set->low[i];
    int64_t n = set->high[i] - set->low[i];
    if (set->a->softcap != 0)
      cap_scores(set->a->softcap, x, n);
    vf most = v_set(most_of(x, n));
    for (int64_t j = 0; j < n; j += VW)
      v_store(x + j, vm_exp(v_load(x + j) - most));
    totals[i] = 0;
    for (int64_t j = set->low[i]; j < set->common_low; j++)
      totals[i] += set->scores[i][j];
  }
  /* Four chains side by side hide the latency of an addition; sets of fewer repeat their last query. */
  const float *x[4];
  float sum[4];
  for (int i = 0; i < 4; i++) {
    x[i] = set->scores[i < set->n ? i : set->n - 1];
    sum[i] = totals[i < set->n ? i : set->n - 1];
  }
  for (int64_t j = set->common_low; j < set->common_high; j++)
    for (int i = 0; i < 4; i++)
      sum[i] += x[i][j];
  for (int i = 0; i < set->n; i++) {
    totals[i] = sum[i];
    for (int64_t j = set->common_high; j < set->high[i]; j++)
      totals[i] += set->scores[i][j];
  }
}

static void normalise(const query_set *set, const float *totals)
{
  for (int i = 0; i < set->n; i++) {
    float *x = set->scores[i] + set->low[i];
    vf reciprocal = v_set(1.0f / totals[i]);
    for (int64_t j = 0; j < set->high[i] - set->low[i]; j += VW)
      v_store(x + j, v_load(x + j) * reciprocal);
  }
}

/* ---- values ---- */

/* out[i][nv * VW] += sum over keys, ascending, of weights[i][j] * values[j]. */
INLINE void value_strip(const int n, const int nv, const float *values, const float *ahead, int stride, int count,
                        const float *const *weights, float *const *out)
{
  vf acc[QUERIES][4];
  UNROLL for (int i = 0; i < n; i++)
  {
    UNROLL for (int v = 0; v < nv; v++) acc[i][v] = v_load(out[i] + v * VW);
  }
  for (int j = 0; j < count; j++) {
    vf x[4];
    UNROLL for (int v = 0; v < nv; v++) x[v] = v_load(values + (size_t)j * (size_t)stride + v * VW);
    if (nv == 4)
      prefetch_strip(ahead + (size_t)j * (size_t)stride);
    UNROLL for (int i = 0; i < n; i++)
    {
      vf w = v_set(weights[i][j]);
      UNROLL for (int v = 0; v < nv; v++) acc[i][v] += w * x[v];
    }
  }
  UNROLL for (int i = 0; i < n; i++)
  {
    UNROLL for (int v = 0; v < nv; v++) v_store(out[i] + v * VW, acc[i][v]);
  }
}

/* All dims of n queries over `count` keys that all of them see. */
INLINE void value_rows(const int n, const float *values, const float *ahead, int dims, int count,
                       const float *const *weights, float *const *out)
{
  float *to[QUERIES];
  int e = 0;
  for (; e + STRIP <= dims; e += STRIP) {
    UNROLL for (int i = 0; i < n; i++) to[i] = out[i] + e;
    value_strip(n, 4, values + e, ahead + e, dims, count, weights, to);
  }
  for (; e + VW <= dims; e += VW) {
    UNROLL for (int i = 0; i < n; i++) to[i] = out[i] + e;
    value_strip(n, 1, values + e, ahead + e, dims, count, weights, to);
  }
  for (; e < dims; e++)
    for (int i = 0; i < n; i++)
      for (int j = 0; j < count; j++)
        out[i][e] += weights[i][j] * values[(size_t)j * (size_t)dims + (size_t)e];
}

/* Numbers [begin, end) of the order, inside stretch s, for the queries [first, first + n). */
static void value_span(const query_set *set, const stretch *s, const void *next, int64_t begin, int64_t end, int first,
                       int n)
{
  if (begin >= end)
    return;
  const struct op_attention *a = set->a;
  int at = s->first + (int)(begin - s->at);
  size_t offset = ref_block_value(a->kv_heads, a->key_dim, set->kv_head, a->value_dim, at);
  const float *values = set->unpacked ? set->unpacked + at * a->value_dim : (const float *)s->block + offset;
  const float *ahead = set->unpacked ? values : (const float *)next + offset;
  const float *weights[QUERIES] = {0};
  for (int i = 0; i < n; i++)
    weights[i] = set->scores[first + i] + begin;
  int count = (int)(end - begin);
  if (n == 1)
    value_rows(1, values, ahead, a->value_dim, count, weights, set->out + first);
  else if (n == 2)
    value_rows(2, values, ahead, a->value_dim, count, weights, set->out + first);
#if CPU_REGISTERS == 32
  else if (n == 3)
    value_rows(3, values, ahead, a->value_dim, count, weights, set->out + first);
  else
    value_rows(4, values, ahead, a->value_dim, count, weights, set->out + first);
#endif
}

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

static void value_stretch(const query_set *set, const stretch *s, const void *next)
{
  int64_t end = s->at + s->count;
  if (set->unpacked) {
    const struct op_attention *a = set->a;
    ref_packed packed = ref_packed_values(&a->quant, s->block, a->kv_heads, a->key_dim, set->kv_head, a->value_dim);
    unpack_values(&a->quant, &packed, s->first, s->count, set->unpacked);
  }
  int64_t low = least(most(s->at, set->common_low), end), high = most(least(end, set->common_high), low);
  for (int i = 0; i < set->n; i++)
    value_span(set, s, next, most(s->at, set->low[i]), least(low, set->high[i]), i, 1);
  value_span(set, s, next, low, high, 0, set->n);
  for (int i = 0; i < set->n; i++)
    value_span(set, s, next, most(high, set->low[i]), least(end, set->high[i]), i, 1);
}

/* ---- a set of queries ---- */

static void attend(const query_set *set)
{
  const struct op_attention *a = set->a;
  float q[QUERIES][MOST_DIM], totals[QUERIES];
  for (int i = 0; i < set->n; i++)
    for (int e = 0; e < a->key_dim; e++)
      q[i][e] = a->scale * set->q[i][e];
  stretches at;
  for (begin_stretches(set, &at); at.more;) {
    stretch s = step_stretch(set, &at);
    score_stretch(set, &s, at.next.block, q);
  }
  exponentiate(set, totals);
  normalise(set, totals);
  for (int i = 0; i < set->n; i++)
    memset(set->out[i], 0, (size_t)a->value_dim * sizeof(float));
  for (begin_stretches(set, &at); at.more;) {
    stretch s = step_stretch(set, &at);
    value_stretch(set, &s, at.next.block);
  }
}

/* Adds one query of a block-sparse head, which sees keys of the positions up to its own. */
static bool join_sparse(query_set *set, int head, int64_t position)
{
  const struct op_attention *a = set->a;
  int64_t query_block = position / a->sparse_block, *high = &set->high[set->n];
  if (set->n == 0) {
    set->head = head;
    set->query_block = query_block;
    set->n_ranges = 1;
    *high = position % a->sparse_block + 1;
    for (int64_t block = 0; block < query_block; block++)
      *high += ref_sees_block(a, head, query_block, block) ? a->sparse_block : 0;
    set->common_low = 0;
    set->common_high = *high;
  } else {
    if (head != set->head || query_block != set->query_block)
      return false;
    *high = high[-1] + 1;
  }
  set->ranges[0] = (ops_range){0, position + 1};
  set->low[set->n++] = 0;
  return true;
}

/* Adds one query, whose keys are `ranges`; false if it cannot go together with those already there. */
static bool join(query_set *set, const ops_range *ranges, int n, bool same_token)
{
  int64_t keys = 0;
  for (int r = 0; r < n; r++)
    keys += ranges[r].count;
  int64_t *low = &set->low[set->n], *high = &set->high[set->n];
  if (set->n == 0) {
    memcpy(set->ranges, ranges, (size_t)n * sizeof *ranges);
    set->n_ranges = n;
    *low = set->common_low = 0;
    *high = set->common_high = keys;
  } else if (same_token) {
    *low = low[-1];
    *high = high[-1];
  } else {
    if (n != 1 || set->n_ranges != 1)
      return false;
    /* Later tokens of a row see later keys: the union only grows upward. */
    *low = ranges[0].first - set->ranges[0].first;
    *high = *low + keys;
    if (*low < 0 || most(set->common_low, *low) >= least(set->common_high, *high))
      return false; /* nothing that all of them see */
    set->ranges[0].count = most(set->ranges[0].count, *high);
  }
  set->common_low = most(set->common_low, *low);
  set->common_high = least(set->common_high, *high);
  set->n++;
  return true;
}

typedef struct attention_job {
  const struct op_attention *a;
  const ops_step *step;
  float *scratch;
  size_t stride; /* floats between rows of scores */
} attention_job;

/* Queries [begin, end) of a row's head, counted token by token; those of block-sparse heads head by head. */
static void run_queries(const attention_job *job, const ops_row *row, int kv_head, int begin, int end, float *scratch)
{
  const struct op_attention *a = job->a;
  int repeats = a->heads / a->kv_heads;
  float unpacked[KV_BLOCK * MOST_UNPACKED];
  query_set set = {.a = a,
                   .kv = &row->slots[a->slot],
                   .kv_head = kv_head,
                   .unpacked = ops_quantised(&a->quant, row) ? unpacked : NULL};
  int last_token = -1;
  for (int i = begin; i < end;) {
    ops_range ranges[VISIBLE_MOST];
    int t = a->sparse_block ? i % row->count : i / repeats;
    int head = kv_head * repeats + (a->sparse_block ? i / row->count : i % repeats);
    ops_row_kind kind = a->by_time ? ROW_READ : row->kind;
    int n = ops_visible(a->window, a->keep, row->position + t, row->split, kind, ranges);
    if (a->sparse_block ? !join_sparse(&set, head, row->position + t) : !join(&set, ranges, n, t == last_token)) {
      attend(&set);
      set.n = 0;
      last_token = -1;
      continue;
    }
    int64_t at = (int64_t)(row->first + t) * a->heads + head;
    set.q[set.n - 1] = a->q + at * a->key_dim;
    set.out[set.n - 1] = a->out + at * a->value_dim;
    set.scores[set.n - 1] = scratch + (size_t)(set.n - 1) * job->stride;
    last_token = t;
    i++;
  }
  attend(&set);
}

/* Items (row, set of queries, head) go to the shares in turn: later tokens cost more than earlier ones. */
static void attention_share(void *user, int share, int shares)
{
  const attention_job *job = user;
  const struct op_attention *a = job->a;
  int repeats = a->heads / a->kv_heads;
  int64_t item = 0;
  float *scratch = job->scratch + (size_t)pool_worker() * CPU_QUERIES * job->stride;
  for (int r = 0; r < job->step->rows; r++) {
    const ops_row *row = &job->step->row[r];
    int queries = row->count * repeats;
    for (int begin = 0; begin < queries; begin += QUERIES)
      for (int h = 0; h < a->kv_heads; h++)
        if (item++ % shares == share)
          run_queries(job, row, h, begin, queries - begin < QUERIES ? queries : begin + QUERIES, scratch);
  }
}

/* Whether there is a kernel for it: a head that might see nothing of its own block, or a block-sparse window, is the
 * reference's. */
static bool has_kernel(const struct op_attention *a)
{
  if (a->quant.bits && (a->score_type != DT_F32 || a->key_dim > MOST_UNPACKED || a->value_dim > MOST_UNPACKED))
    return false;
  return a->type == DT_F32 && a->value_type == DT_F32 && a->out_type == DT_F32 && a->key_dim <= MOST_DIM &&
         (!a->sparse_block || (!a->window && a->sparse_local > 0));
}

void CPU_NAME(cpu_attention)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_attention *a = &record->attention;
  if (!has_kernel(a)) {
    ref_attention(cx, record, step);
    return;
  }
  size_t rows = (size_t)CPU_QUERIES * (size_t)cpu_workers(cx);
  attention_job job = {a, step, cx->scratch, cx->scratch_bytes / sizeof(float) / rows / VW * VW};
  int64_t cycles = 0, items = 0;
  for (int r = 0; r < step->rows; r++) {
    items += (step->row[r].count * (a->heads / a->kv_heads) + QUERIES - 1) / QUERIES * a->kv_heads;
    int64_t keys = ops_visible_count(a->window, step->row[r].position + step->row[r].count - 1);
    cycles += keys * step->row[r].count * a->heads * (a->key_dim + a->value_dim + 32) / VW;
  }
  int shares = cpu_shares(cx, cycles);
  cpu_run_shares(cx, shares < items ? shares : (int)items, attention_share, &job);
}

#endif
