/* fast_attention.h - attention of numerics fast at one SIMD level; fast_attention_LEVEL.c compiles it.
 * ops/fast_ref/fast.h has the formulas, whose bits these are.
 *
 * Up to SET queries of one key/value head go through a chunk of keys together: the query heads of a token, and those of
 * its neighbours in a prompt. TILE of them at a time share every load. Scores stand one key a lane, outputs one value
 * dim a lane, so no sum leaves its lane. Few queries widen float16 as they load it; more of them widen a block once,
 * into memory that stays in the cache. Both ask for the stretch that comes next: the processor's own prefetching gives
 * half of the speed, since a head's share of a block is only two pages.
 *
 * What a query sees of a block is 64 bits. A key that it does not see may hold anything: its score is replaced, its
 * term is zero, and its value is never multiplied.
 *
 * Sets are dealt to the pool. Where they are too few to keep it busy, chunks are: what each comes to waits in scratch,
 * and when a round of them is done they are joined in order. Quantised keys and values are exact's attention.
 */
#ifndef TERN_OPS_CPU_FAST_ATTENTION_H
#define TERN_OPS_CPU_FAST_ATTENTION_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/fast_append.h"
#include "ops/cpu/vmath.h"
#include "ops/fast_ref/fast.h"
#include "ops/ref/ref.h"
#include "ops/visible.h"

enum {
  TILE = 4,                         /* queries, and */
  NV = CPU_REGISTERS == 32 ? 4 : 2, /* vectors of keys or dims, whose sums stand in registers */
  STRIP = NV * VW,                  /* keys or dims */
  SET = CPU_FAST_SET,               /* queries */
  DIRECT = 2 * TILE,                /* queries up to which float16 is widened as it is loaded */
  BLOCKS = FAST_CHUNK / KV_BLOCK,   /* of a chunk */
  FOLDS = FAST_LANES / VW,          /* vectors of partial sums of a softmax */
};

/* What a chunk, or several joined ones, come to for one query: MOST the largest score, SUM the terms', SEEN whether
 * there were any (else 0), and from DIMS on the output. */
enum { MOST, SUM, SEEN, DIMS = CPU_FAST_PART_HEAD };

typedef struct query_set {
  const struct op_attention *a;
  const ops_kv_view *kv;
  int kv_head, n;
  int head[SET];
  int64_t keep[SET], low[SET], high[SET]; /* a query sees [0, keep) and [low, high), or what its head sees of them */
  int64_t most_keep, least_low, most_high;
  float *out[SET];
} query_set;

/* A worker's memory. */
typedef struct desk {
  float *q;     /* [SET][padded key_dim], scaled */
  float *block; /* keys [key_dim][KV_BLOCK] or values [KV_BLOCK][padded value_dim] as floats */
  float *terms; /* [SET][FAST_CHUNK] */
  float *parts, *joined;
} desk;

/* The sizes of an op. */
typedef struct sizes {
  size_t q, values, part; /* floats between queries, values of the widened block, and parts */
  bool direct;
} sizes;

/* ---- what is seen ---- */

/* Bits of the positions [first, end) in the block that begins at position `block`. */
static uint64_t bits_between(int64_t block, int64_t first, int64_t end)
{
  int64_t from = first > block ? first - block : 0, to = end - block < KV_BLOCK ? end - block : KV_BLOCK;
  if (from >= to)
    return 0;
  return (~UINT64_C(0) >> (KV_BLOCK - (to - from))) << from;
}

static uint64_t seen_of_block(const query_set *set, int i, int64_t block)
{
  uint64_t bits = bits_between(block, set->low[i], set->high[i]) | bits_between(block, 0, set->keep[i]);
  if (!set->a->sparse_block || !bits)
    return bits;
  int64_t size = set->a->sparse_block;
  for (int64_t p = block; p < block + KV_BLOCK; p += size - p % size)
    if (!ref_sees(set->a, set->head[i], set->high[i] - 1, p))
      bits &= ~bits_between(block, p, p + size - p % size);
  return bits;
}

/* The first chunk from `chunk` on that holds keys of some query's; may be past the last. */
static int64_t next_chunk(const query_set *set, int64_t chunk)
{
  if (chunk * FAST_CHUNK >= set->most_keep && chunk < set->least_low / FAST_CHUNK)
    return set->least_low / FAST_CHUNK;
  return chunk;
}

/* Lanes whose bits are set. */
INLINE vm lanes_of(uint64_t bits)
{
#if CPU_LEVEL == 2
  return (vm)bits;
#elif CPU_LEVEL == 1
  const vu lane = {1, 2, 4, 8, 16, 32, 64, 128};
  return (vi)((((vu){0} + (uint32_t)bits) & lane) != 0);
#else
  const vu lane = {1, 2, 4, 8};
  return (vi)((((vu){0} + (uint32_t)bits) & lane) != 0);
#endif
}

/* ---- scores ---- */

INLINE void prefetch_strip(const char *p)
{
  __builtin_prefetch(p, 0, 3);
  if (STRIP * sizeof(uint16_t) > 64)
    __builtin_prefetch(p + 64, 0, 3);
}

/* terms[i][KV_BLOCK] = q[i] . keys of a block: uint16_t where `half`, else floats. */
INLINE void score_tile(const int n, const bool half, const void *keys, int dims, const float *q, size_t q_stride,
                       float *terms, const char *ahead)
{
  for (int c = 0; c < KV_BLOCK; c += STRIP) {
    vf acc[TILE][NV];
    UNROLL for (int i = 0; i < n; i++)
    {
      UNROLL for (int v = 0; v < NV; v++) acc[i][v] = v_set(0);
    }
    for (int e = 0; e < dims; e++) {
      size_t at = (size_t)e * KV_BLOCK + (size_t)c;
      vf k[NV];
      UNROLL for (int v = 0; v < NV; v++) k[v] =
          half ? load_half((const uint16_t *)keys + at + v * VW) : v_load((const float *)keys + at + v * VW);
      prefetch_strip(ahead + at * sizeof(uint16_t));
      UNROLL for (int i = 0; i < n; i++)
      {
        vf x = v_set(q[(size_t)i * q_stride + (size_t)e]);
        UNROLL for (int v = 0; v < NV; v++) acc[i][v] = v_fma(x, k[v], acc[i][v]);
      }
    }
    UNROLL for (int i = 0; i < n; i++)
    {
      UNROLL for (int v = 0; v < NV; v++) v_store(terms + i * FAST_CHUNK + c + v * VW, acc[i][v]);
    }
  }
}

#define BY_COUNT(n, call)                                                                                              \
  switch (n) {                                                                                                         \
  case 1:                                                                                                              \
    call(1);                                                                                                           \
    break;                                                                                                             \
  case 2:                                                                                                              \
    call(2);                                                                                                           \
    break;                                                                                                             \
  case 3:                                                                                                              \
    call(3);                                                                                                           \
    break;                                                                                                             \
  default:                                                                                                             \
    call(4);                                                                                                           \
  }

static void score_floats(int n, const float *keys, int dims, const float *q, size_t stride, float *terms,
                         const char *ahead)
{
#define SCORE(n) score_tile(n, false, keys, dims, q, stride, terms, ahead)
  BY_COUNT(n, SCORE)
#undef SCORE
}

static void score_halves(int n, const uint16_t *keys, int dims, const float *q, size_t stride, float *terms,
                         const char *ahead)
{
#define SCORE(n) score_tile(n, true, keys, dims, q, stride, terms, ahead)
  BY_COUNT(n, SCORE)
#undef SCORE
}

static uint64_t any_of(const uint64_t *seen, int n)
{
  uint64_t any = 0;
  for (int i = 0; i < n; i++)
    any |= seen[i];
  return any;
}

static int tile_of(const query_set *set, int first)
{
  return set->n - first < TILE ? set->n - first : TILE;
}

static void score_block(const query_set *set, const sizes *z, const desk *d, const uint16_t *keys, int b,
                        const uint64_t *seen, const char *ahead)
{
  int dims = set->a->key_dim;
  if (!z->direct)
    for (size_t at = 0; at < (size_t)dims * KV_BLOCK; at += VW)
      v_store(d->block + at, load_half(keys + at));
  for (int i = 0; i < set->n; i += TILE) {
    int n = tile_of(set, i);
    float *terms = d->terms + (size_t)i * FAST_CHUNK + b * KV_BLOCK;
    const float *q = d->q + (size_t)i * z->q;
    if (!any_of(seen + i, n))
      continue;
    if (z->direct)
      score_halves(n, keys, dims, q, z->q, terms, ahead);
    else
      score_floats(n, d->block, dims, q, z->q, terms, ahead);
  }
}

/* ---- softmax of a chunk ---- */

/* The largest lane; which of two zeros changes no bit of what follows, and a NaN among the scores makes all of it
 * NaN. */
static float largest(vf x)
{
  float lane[VW];
  v_store(lane, x);
  for (int half = VW / 2; half; half /= 2)
    for (int i = 0; i < half; i++)
      lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
  return lane[0];
}

/* Scores of one query to terms, zero where it does not see a key of a block of which it sees some. */
static void soften(const struct op_attention *a, float *x, const uint64_t *seen, float *part)
{
  vf top = v_set(-INFINITY), cap = v_set(a->softcap);
  for (int b = 0; b < BLOCKS; b++) {
    for (int v = 0; seen[b] && v < KV_BLOCK / VW; v++) {
      float *at = x + b * KV_BLOCK + v * VW;
      vf s = v_load(at);
      if (a->softcap != 0)
        s = vm_tanh(s / cap) * cap;
      s = v_select(lanes_of(seen[b] >> v * VW), s, v_set(-INFINITY));
      v_store(at, s);
      top = v_max(s, top);
    }
  }
  vf lanes[FOLDS];
  for (int f = 0; f < FOLDS; f++)
    lanes[f] = v_set(0);
  part[MOST] = largest(top);
  top = v_set(part[MOST]);
  for (int b = 0; b < BLOCKS; b++) {
    for (int v = 0; seen[b] && v < KV_BLOCK / VW; v += FOLDS) {
      UNROLL for (int f = 0; f < FOLDS; f++)
      {
        float *at = x + b * KV_BLOCK + (v + f) * VW;
        vf e = v_select(lanes_of(seen[b] >> (v + f) * VW), vm_exp(v_load(at) - top), v_set(0));
        v_store(at, e);
        lanes[f] += e;
      }
    }
  }
  float lane[FAST_LANES];
  for (int f = 0; f < FOLDS; f++)
    v_store(lane + f * VW, lanes[f]);
  for (int half = FAST_LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++)
      lane[i] += lane[i + half];
  part[SUM] = lane[0];
}

/* ---- values ---- */

/* out[i][nv * VW] = fma over `count` keys of terms[i] and values, `stride` apart. */
INLINE void value_strip(const int n, const int nv, const bool half, const void *values, size_t stride, int count,
                        const float *terms, float *out, size_t out_stride, const char *ahead)
{
  vf acc[TILE][NV];
  UNROLL for (int i = 0; i < n; i++)
  {
    UNROLL for (int v = 0; v < nv; v++) acc[i][v] = v_load(out + (size_t)i * out_stride + v * VW);
  }
  for (int j = 0; j < count; j++) {
    size_t at = (size_t)j * stride;
    vf x[NV];
    UNROLL for (int v = 0; v < nv; v++) x[v] =
        half ? load_half((const uint16_t *)values + at + v * VW) : v_load((const float *)values + at + v * VW);
    prefetch_strip(ahead + at * sizeof(uint16_t));
    UNROLL for (int i = 0; i < n; i++)
    {
      vf w = v_set(terms[i * FAST_CHUNK + j]);
      UNROLL for (int v = 0; v < nv; v++) acc[i][v] = v_fma(w, x[v], acc[i][v]);
    }
  }
  UNROLL for (int i = 0; i < n; i++)
  {
    UNROLL for (int v = 0; v < nv; v++) v_store(out + (size_t)i * out_stride + v * VW, acc[i][v]);
  }
}

/* All dims, in whole vectors; no strip of one vector where there is another to halve. */
INLINE void value_dims(const int n, const bool half, const void *values, size_t stride, int count, const float *terms,
                       float *out, size_t out_stride, size_t dims, const char *ahead)
{
  for (size_t e = 0; e < dims;) {
    size_t left = (dims - e) / VW, nv = left == NV + 1 ? (NV + 2) / 2 : left < NV ? left : NV;
    const void *at = half ? (const void *)((const uint16_t *)values + e) : (const void *)((const float *)values + e);
    const char *next = ahead + e * sizeof(uint16_t);
    if (nv == 1)
      value_strip(n, 1, half, at, stride, count, terms, out + e, out_stride, next);
    else if (nv == 2)
      value_strip(n, 2, half, at, stride, count, terms, out + e, out_stride, next);
#if CPU_REGISTERS == 32
    else if (nv == 3)
      value_strip(n, 3, half, at, stride, count, terms, out + e, out_stride, next);
    else
      value_strip(n, 4, half, at, stride, count, terms, out + e, out_stride, next);
#endif
    e += nv * VW;
  }
}

/* The values of a block, and what follows them in the order of reading. */
typedef struct value_block {
  const void *values;
  size_t stride, dims;
  bool half;
  const char *ahead;
} value_block;

/* Keys [first, first + count) of the block for n queries that see all of them. */
static void value_keys(const value_block *v, int first, int count, int n, const float *terms, float *parts, size_t part)
{
  if (count <= 0)
    return;
  float *out = parts + DIMS;
  size_t from = (size_t)first * v->stride;
  const char *ahead = v->ahead + from * sizeof(uint16_t);
  if (v->half) {
    const uint16_t *values = (const uint16_t *)v->values + from;
#define VALUE(n) value_dims(n, true, values, v->stride, count, terms + first, out, part, v->dims, ahead)
    BY_COUNT(n, VALUE)
#undef VALUE
  } else {
    const float *values = (const float *)v->values + from;
#define VALUE(n) value_dims(n, false, values, v->stride, count, terms + first, out, part, v->dims, ahead)
    BY_COUNT(n, VALUE)
#undef VALUE
  }
}

/* Every run of keys that n queries see alike. */
static void value_runs(const value_block *v, uint64_t seen, int n, const float *terms, float *parts, size_t part)
{
  for (int at = 0; seen;) {
    int skip = __builtin_ctzll(seen);
    at += skip;
    seen >>= skip;
    int run = seen == ~UINT64_C(0) ? KV_BLOCK : __builtin_ctzll(~seen);
    value_keys(v, at, run, n, terms, parts, part);
    at += run;
    seen = run == KV_BLOCK ? 0 : seen >> run;
  }
}

/* A tile's queries: alike, or each one run of which the middle is everyone's, or each alone. */
static void value_tile(const value_block *v, const uint64_t *seen, int n, const float *terms, float *parts, size_t part)
{
  uint64_t all = seen[0], runs = 0;
  bool alike = true;
  for (int i = 0; i < n; i++) {
    uint64_t run = seen[i] ? seen[i] >> __builtin_ctzll(seen[i]) : 0;
    runs |= run & (run + 1); /* zero where it is one run */
    alike = alike && seen[i] == seen[0];
    all &= seen[i];
  }
  if (alike) {
    value_runs(v, seen[0], n, terms, parts, part);
    return;
  }
  uint64_t below = all ? (all & -all) - 1 : 0;
  for (int i = 0; i < n; i++) {
    const float *own = terms + i * FAST_CHUNK;
    value_runs(v, runs || !all ? seen[i] : seen[i] & below, 1, own, parts + (size_t)i * part, part);
  }
  if (runs || !all)
    return;
  value_runs(v, all, n, terms, parts, part);
  for (int i = 0; i < n; i++)
    value_runs(v, seen[i] & ~all & ~below, 1, terms + i * FAST_CHUNK, parts + (size_t)i * part, part);
}

static void widen_values(const uint16_t *from, int dims, float *to, size_t stride)
{
  for (int j = 0; j < KV_BLOCK; j++, from += dims, to += stride) {
    int e = 0;
    for (; e + VW <= dims; e += VW)
      v_store(to + e, load_half(from + e));
    for (; e < dims; e++)
      to[e] = f16_to_f32(from[e]);
    for (; e < (int)stride; e++)
      to[e] = 0;
  }
}

static void values_of_block(const query_set *set, const sizes *z, const desk *d, const uint16_t *values, int b,
                            const uint64_t *seen, float *parts, const char *ahead)
{
  value_block v = {values, (size_t)set->a->value_dim, z->values, true, ahead};
  if (!z->direct) {
    widen_values(values, set->a->value_dim, d->block, z->values);
    v = (value_block){d->block, z->values, z->values, false, ahead};
  }
  for (int i = 0; i < set->n; i += TILE)
    value_tile(&v, seen + i, tile_of(set, i), d->terms + (size_t)i * FAST_CHUNK + b * KV_BLOCK,
               parts + (size_t)i * z->part, z->part);
}

/* ---- a chunk ---- */

static const uint16_t *keys_of(const query_set *set, int64_t block)
{
  const uint16_t *at = set->kv->blocks[block];
  return at + ref_block_key(set->kv_head, set->a->key_dim, 0);
}

static const uint16_t *values_of(const query_set *set, int64_t block)
{
  const struct op_attention *a = set->a;
  const uint16_t *at = set->kv->blocks[block];
  return at + ref_block_value(a->kv_heads, a->key_dim, set->kv_head, a->value_dim, 0);
}

/* What the set's queries make of a chunk, to `parts`. `after` is the block read next, -1: none. */
static void run_chunk(const query_set *set, const sizes *z, const desk *d, int64_t chunk, float *parts, int64_t after)
{
  uint64_t seen[BLOCKS][SET], any[BLOCKS];
  for (int b = 0; b < BLOCKS; b++) {
    any[b] = 0;
    for (int i = 0; i < set->n; i++) {
      bool same = i && !set->a->sparse_block && set->high[i] == set->high[i - 1];
      seen[b][i] = same ? seen[b][i - 1] : seen_of_block(set, i, chunk * FAST_CHUNK + b * KV_BLOCK);
      any[b] |= seen[b][i];
    }
  }
  const uint16_t *order[2 * BLOCKS + 1]; /* of reading: keys, values, and what comes after */
  int n = 0, at = 0;
  for (int b = 0; b < BLOCKS; b++)
    if (any[b])
      order[n++] = keys_of(set, chunk * BLOCKS + b);
  for (int b = 0; b < BLOCKS; b++)
    if (any[b])
      order[n++] = values_of(set, chunk * BLOCKS + b);
  order[n] = after >= 0 && set->kv->blocks[after] ? keys_of(set, after) : n ? order[n - 1] : NULL;
  for (int b = 0; b < BLOCKS; b++)
    if (any[b]) {
      score_block(set, z, d, order[at], b, seen[b], (const char *)order[at + 1]);
      at++;
    }
  for (int i = 0; i < set->n; i++) {
    const uint64_t own[BLOCKS] = {seen[0][i], seen[1][i], seen[2][i], seen[3][i]};
    float *part = parts + (size_t)i * z->part;
    part[SEEN] = any_of(own, BLOCKS) != 0;
    memset(part + DIMS, 0, z->values * sizeof *part);
    if (part[SEEN] != 0)
      soften(set->a, d->terms + (size_t)i * FAST_CHUNK, own, part);
  }
  for (int b = 0; b < BLOCKS; b++)
    if (any[b]) {
      values_of_block(set, z, d, order[at], b, seen[b], parts, (const char *)order[at + 1]);
      at++;
    }
}

static void join(const sizes *z, float *all, const float *part)
{
  if (part[SEEN] == 0)
    return;
  if (all[SEEN] == 0) {
    memcpy(all, part, z->part * sizeof *all);
    return;
  }
  float most = part[MOST] > all[MOST] ? part[MOST] : all[MOST];
  float a = math_exp(all[MOST] - most), b = math_exp(part[MOST] - most);
  all[MOST] = most;
  all[SUM] = fmaf(all[SUM], a, part[SUM] * b);
  vf x = v_set(a), y = v_set(b);
  for (size_t e = DIMS; e < z->part; e += VW)
    v_store(all + e, v_fma(v_load(all + e), x, v_load(part + e) * y));
}

static void finish(const float *all, int dims, float *out)
{
  float reciprocal = 1.0f / all[SUM];
  for (int e = 0; e < dims; e++)
    out[e] = all[DIMS + e] * reciprocal;
}

/* ---- sets ---- */

typedef struct attention_job {
  const struct op_attention *a;
  const ops_step *step;
  sizes z;
  float *scratch;
  size_t desk_floats;
  int sets;
  /* By chunks: of each set, `each` queries have parts of `chunks` chunks from `first` on; what was joined before. */
  int each, chunks;
  int64_t first;
  float *parts, *joined;
} attention_job;

static int sets_of(const attention_job *job, const ops_row *row)
{
  const struct op_attention *a = job->a;
  if (ops_quantised(&a->quant, row))
    return 0;
  return (int)(((int64_t)row->count * (a->heads / a->kv_heads) + SET - 1) / SET) * a->kv_heads;
}

/* Adds the query of head h of token t of a row. */
static void add_query(query_set *set, const ops_row *row, int t, int h)
{
  const struct op_attention *a = set->a;
  ops_range ranges[VISIBLE_MOST];
  int n = ops_visible(a->window, a->keep, row->position + t, row->split, a->by_time ? ROW_READ : row->kind, ranges);
  int i = set->n++, kept = n > 1 && ranges[0].first == 0;
  set->keep[i] = kept ? ranges[0].count : 0;
  set->high[i] = row->position + t + 1;
  set->low[i] = ranges[kept].first;
  for (int r = kept; r < n; r++)
    set->low[i] = ranges[r].first < set->low[i] ? ranges[r].first : set->low[i];
  set->most_keep = i == 0 || set->keep[i] > set->most_keep ? set->keep[i] : set->most_keep;
  set->least_low = i == 0 || set->low[i] < set->least_low ? set->low[i] : set->least_low;
  set->most_high = i == 0 || set->high[i] > set->most_high ? set->high[i] : set->most_high;
  set->head[i] = h;
  set->out[i] = a->out + ((int64_t)(row->first + t) * a->heads + h) * a->value_dim;
}

/* Set number `index` of the step. Queries are counted token by token; those of block-sparse heads head by head. Its
 * scaled queries go to q, which may be NULL. */
static void find_set(const attention_job *job, int index, query_set *set, float *q)
{
  const struct op_attention *a = job->a;
  const ops_row *row = job->step->row;
  for (; index >= sets_of(job, row); row++)
    index -= sets_of(job, row);
  int repeats = a->heads / a->kv_heads, begin = index / a->kv_heads * SET, queries = row->count * repeats;
  set->a = a;
  set->kv = &row->slots[a->slot];
  set->kv_head = index % a->kv_heads;
  set->n = 0;
  for (int i = begin; i < queries && i < begin + SET; i++) {
    int t = a->sparse_block ? i % row->count : i / repeats;
    int h = set->kv_head * repeats + (a->sparse_block ? i / row->count : i % repeats);
    add_query(set, row, t, h);
    const float *from = a->q + ((int64_t)(row->first + t) * a->heads + h) * a->key_dim;
    float *to = q ? q + (size_t)(i - begin) * job->z.q : NULL;
    for (int e = 0; to && e < a->key_dim; e++)
      to[e] = a->scale * from[e];
  }
}

static desk open_desk(const attention_job *job)
{
  const struct op_attention *a = job->a;
  desk d = {.q = job->scratch + (size_t)pool_worker() * job->desk_floats};
  d.block = d.q + SET * job->z.q;
  d.terms = d.block + KV_BLOCK * cpu_fast_padded(a->key_dim > a->value_dim ? a->key_dim : a->value_dim);
  d.parts = d.terms + (size_t)SET * FAST_CHUNK;
  d.joined = d.parts + SET * job->z.part;
  return d;
}

/* The block after a chunk in the order of reading, -1: none. */
static int64_t block_after(const query_set *set, int64_t chunk)
{
  int64_t next = next_chunk(set, chunk + 1);
  return next * FAST_CHUNK < set->most_high ? next * BLOCKS : -1;
}

/* Whole sets, which go to the shares in turn: later tokens cost more than earlier ones. */
static void set_share(void *user, int share, int shares)
{
  const attention_job *job = user;
  desk d = open_desk(job);
  query_set set;
  sizes z = job->z;
  for (int s = share; s < job->sets; s += shares) {
    find_set(job, s, &set, d.q);
    z.direct = job->z.direct && set.n <= DIRECT;
    for (int i = 0; i < set.n; i++)
      d.joined[(size_t)i * z.part + SEEN] = 0;
    for (int64_t c = next_chunk(&set, 0); c * FAST_CHUNK < set.most_high; c = next_chunk(&set, c + 1)) {
      run_chunk(&set, &z, &d, c, d.parts, block_after(&set, c));
      for (int i = 0; i < set.n; i++)
        join(&z, d.joined + (size_t)i * z.part, d.parts + (size_t)i * z.part);
    }
    for (int i = 0; i < set.n; i++)
      finish(d.joined + (size_t)i * z.part, job->a->value_dim, set.out[i]);
  }
}

/* ---- by chunks ---- */

static float *parts_at(const attention_job *job, int s, int c)
{
  return job->parts + ((size_t)s * (size_t)job->chunks + (size_t)c) * (size_t)job->each * job->z.part;
}

/* Chunks of all sets. */
static void chunk_share(void *user, int share, int shares)
{
  const attention_job *job = user;
  desk d = open_desk(job);
  query_set set;
  sizes z = job->z;
  size_t begin, end;
  int last = -1;
  pool_share((size_t)job->sets * (size_t)job->chunks, 1, share, shares, &begin, &end);
  for (size_t at = begin; at < end; at++) {
    int s = (int)(at / (size_t)job->chunks), c = (int)(at % (size_t)job->chunks);
    int64_t chunk = job->first + c;
    if (s != last)
      find_set(job, s, &set, d.q);
    last = s;
    z.direct = job->z.direct && set.n <= DIRECT;
    if (chunk * FAST_CHUNK < set.most_high && next_chunk(&set, chunk) == chunk)
      run_chunk(&set, &z, &d, chunk, parts_at(job, s, c), at + 1 < end ? block_after(&set, chunk) : -1);
    else
      for (int i = 0; i < set.n; i++)
        parts_at(job, s, c)[(size_t)i * z.part + SEEN] = 0;
  }
}

/* Joins what a round left, and writes the outputs that are complete with it. */
static void join_share(void *user, int share, int shares)
{
  const attention_job *job = user;
  const sizes *z = &job->z;
  size_t begin, end;
  query_set set;
  pool_share((size_t)job->sets, 1, share, shares, &begin, &end);
  for (int s = (int)begin; s < (int)end; s++) {
    find_set(job, s, &set, NULL);
    for (int i = 0; i < set.n; i++) {
      float *joined = job->joined + ((size_t)s * (size_t)job->each + (size_t)i) * z->part;
      if (job->first == 0)
        joined[SEEN] = 0;
      for (int c = 0; c < job->chunks; c++)
        join(z, joined, parts_at(job, s, c) + (size_t)i * z->part);
      if ((job->first + job->chunks) * FAST_CHUNK >= set.most_high)
        finish(joined, job->a->value_dim, set.out[i]);
    }
  }
}

/* Whether to share out chunks, of which the longest row has so many, instead of sets; sees to what that needs. */
static bool by_chunks(const ops_context *cx, attention_job *job, int64_t chunks)
{
  const struct op_attention *a = job->a;
  if (cpu_workers(cx) == 1 || job->sets >= 4 * cpu_workers(cx) || chunks < 2)
    return false;
  int64_t most = 0;
  for (int r = 0; r < job->step->rows; r++)
    most = job->step->row[r].count > most ? job->step->row[r].count : most;
  most *= a->heads / a->kv_heads;
  job->each = most < SET ? (int)most : SET;
  int64_t a_chunk = (int64_t)job->sets * job->each * (int64_t)job->z.part, room = CPU_FAST_PARTS / a_chunk - 1;
  if (room < 2)
    return false;
  job->chunks = (int)(room < chunks ? room : chunks);
  job->joined = job->scratch + (size_t)cpu_workers(cx) * job->desk_floats;
  job->parts = job->joined + a_chunk;
  return true;
}

void CPU_NAME(cpu_fast_attention)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_attention *a = &record->attention;
  size_t padded = cpu_fast_padded(a->value_dim);
  attention_job job = {.a = a, .step = step, .scratch = cx->scratch};
  job.z = (sizes){cpu_fast_padded(a->key_dim), padded, cpu_fast_part(a->value_dim), a->value_dim == (int)padded};
  job.desk_floats = cpu_fast_desk(a->key_dim, a->value_dim);
  int64_t cycles = 0, chunks = 0;
  for (int r = 0; r < step->rows; r++) {
    const ops_row *row = &step->row[r];
    if (ops_quantised(&a->quant, row)) {
      ops_step alone = *step;
      alone.row = row;
      alone.rows = 1;
      CPU_NAME(cpu_attention)(cx, record, &alone);
      continue;
    }
    int64_t end = row->position + row->count, keys = ops_visible_count(a->window, end - 1);
    job.sets += sets_of(&job, row);
    chunks = chunks > (end - 1) / FAST_CHUNK + 1 ? chunks : (end - 1) / FAST_CHUNK + 1;
    cycles += keys * row->count * a->heads * (a->key_dim + a->value_dim + 32) / VW;
  }
  if (!job.sets)
    return;
  int shares = cpu_shares(cx, cycles);
  if (shares == 1 || !by_chunks(cx, &job, chunks)) {
    cpu_run_shares(cx, shares < job.sets ? shares : job.sets, set_share, &job);
    return;
  }
  for (; job.first < chunks; job.first += job.chunks) {
    int64_t units = (int64_t)job.sets * job.chunks;
    cpu_run_shares(cx, shares < units ? shares : (int)units, chunk_share, &job);
    cpu_run(cx, (int64_t)(job.parts - job.joined) * job.chunks / VW, join_share, &job);
  }
}

#endif
