/* exact_attention_tile.cu - exact attention of a tile: neighbours of a prompt, whose queries share what is loaded.
 *
 * Two matrix products in plain float32 with 64 queries a block of threads, 8 of them a warp, and as in
 * fast_attention_tile.cu a thread holds 8 x 8 sums (scores) or 8 x 4 (values), which it carries through all dims, or
 * all keys, in order. Unlike there, the sums over values run through the whole context, so a block of threads of the
 * second kernel walks all keys of its tile; what keeps the machine busy is the number of tiles, and dims are shared out
 * among blocks where tiles are few.
 *
 * Only tokens whose keys are summed as they come are in tiles: their slots are positions less the lower end of their
 * window.
 */
#include "ops/cuda/copy.cuh"
#include "ops/cuda/exact_attention.cuh"

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  QUERIES = TILE_QUERIES,
  EACH = QUERIES / WARPS, /* queries of a warp */
  Q_STRIDE = QUERIES + 4, /* of a dim of queries: 4 more, for the banks */
  SLOTS = 3,
  SCORE_KEYS = 256, /* of a block of threads: 8 of a lane */
  SCORE_BLOCKS = SCORE_KEYS / KV_BLOCK,
  SCORE_DIMS = 16, /* of a stage */
  SCORE_SLOT = SCORE_KEYS * SCORE_DIMS * 4,
  VALUE_KEYS = 32, /* of a stage: a lane has one, while it makes weights */
  MOST_DIMS = 256,
};

/* A tile, the sights of its first and last token, and the heads that it covers. */
struct tile {
  tile_span span;
  int heads, row;
  sight from, to;
  head_share share;
};

/* False: the tokens are no tile. */
static __device__ bool find_tile(const op_attention &a, const cuda_step &s, const exact_room &r, int index, tile *t)
{
  t->span = tile_at(a, r.first, r.count, index);
  if (!tile_shares(a, s, t->span, true))
    return false;
  cuda_token head = s.token[t->span.first];
  t->heads = tile_heads(a);
  t->row = head.row;
  t->from = sight_of(a, head);
  t->to = sight_of(a, s.token[t->span.first + t->span.count - 1]);
  t->share = share_of(a, blockIdx.y, t->heads);
  return true;
}

/* A query of a tile: it sees positions [low, high), none where there is no such query. */
struct tile_query {
  float *score; /* of position 0, were it seen */
  float inverse;
  int low, high;
  int64_t out; /* its place among all queries */
};

/* Query n is head n % heads of token n / heads. */
static __device__ tile_query query_of(const op_attention &a, const cuda_step &s, const exact_room &r, const tile &t,
                                      int n)
{
  int at = n / t.heads, h = n % t.heads, token = t.span.first + at, head = t.share.first + h;
  if (at >= t.span.count || h >= t.share.count)
    return {nullptr, 0, 0, 0, 0};
  sight sees = sight_of(a, s.token[token]);
  return {exact_scores_of(r, a, token, head) - sees.low, r.inverse[(token - r.first) * a.heads + head], sees.low,
          sees.high, (int64_t)token * a.heads + head};
}

/* ---- scores ---- */

/* Asks for some dims of the keys, [SCORE_BLOCKS][SCORE_DIMS][64]. */
static __device__ void ask_keys(const op_attention &a, void *const *block, int seen, size_t keys_at, int stage,
                                float *slot)
{
  int dims = a.key_dim - stage * SCORE_DIMS, tid = threadIdx.x;
  dims = dims < SCORE_DIMS ? dims : SCORE_DIMS;
  for (int b = 0; b < SCORE_BLOCKS; b++)
    if (seen >> b & 1) {
      const float *keys = (const float *)block[b] + keys_at + (size_t)stage * SCORE_DIMS * KV_BLOCK;
      if (tid < dims * (KV_BLOCK / 4))
        copy_async(slot + b * SCORE_DIMS * KV_BLOCK + tid * 4, keys + tid * 4);
    }
  copy_commit();
}

/* A block of threads a (256 positions, share, tile). A lane has keys 4 l.. of 128, and those 128 further. */
static __global__ void __launch_bounds__(THREADS, 2) tile_scores(op_attention a, cuda_step s, exact_room r)
{
  extern __shared__ float4 shared[];
  __shared__ tile_query queries[QUERIES];
  tile t;
  if (!find_tile(a, s, r, blockIdx.z, &t))
    return;
  int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  int first = unit_first(a, t.from, blockIdx.x, SCORE_KEYS);
  sight all = {0, t.from.low, t.to.high, 0};
  if (!unit_seen(all, first, SCORE_KEYS))
    return;
  void *const *block = cuda_blocks(s, a.slot, t.row) + first / KV_BLOCK;
  int seen = 0, stages = a.key_dim > 0 ? (a.key_dim + SCORE_DIMS - 1) / SCORE_DIMS : 0;
  for (int b = 0; b < SCORE_BLOCKS; b++)
    seen |= unit_seen(all, first + b * KV_BLOCK, KV_BLOCK) << b;
  size_t keys_at = ref_block_key(t.share.kv_head, a.key_dim, 0);
  float *ring = (float *)shared, *q = ring + SLOTS * SCORE_SLOT / 4; /* [key_dim][Q_STRIDE] */
  for (int stage = 0; stage < SLOTS - 1; stage++)
    if (stage < stages)
      ask_keys(a, block, seen, keys_at, stage, ring + stage * (SCORE_SLOT / 4));
    else
      copy_commit();
  if (tid < QUERIES)
    queries[tid] = query_of(a, s, r, t, tid);
  for (int query = warp; query < QUERIES; query += WARPS) {
    int h = query % t.heads, at = query / t.heads;
    bool is = at < t.span.count && h < t.share.count;
    const float *x = a.q + ((int64_t)(t.span.first + at) * a.heads + t.share.first + h) * a.key_dim;
    for (int e = lane; e < a.key_dim; e += 32)
      q[e * Q_STRIDE + query] = is ? a.scale * x[e] : 0;
  }

  float sum[EACH][8] = {};
  for (int stage = 0; stage < stages; stage++) {
    copy_wait<SLOTS - 2>();
    __syncthreads();
    if (stage + SLOTS - 1 < stages)
      ask_keys(a, block, seen, keys_at, stage + SLOTS - 1, ring + (stage + SLOTS - 1) % SLOTS * (SCORE_SLOT / 4));
    else
      copy_commit();
    int dims = a.key_dim - stage * SCORE_DIMS;
    dims = dims < SCORE_DIMS ? dims : SCORE_DIMS;
    const float *keys = ring + stage % SLOTS * (SCORE_SLOT / 4) + lane / 16 * (SCORE_DIMS * KV_BLOCK) + lane % 16 * 4;
    const float *mine = q + stage * SCORE_DIMS * Q_STRIDE + warp * EACH;
#pragma unroll 4
    for (int e = 0; e < dims; e++) {
      float k[8], x[EACH];
      *(float4 *)k = *(const float4 *)(keys + e * KV_BLOCK);
      *(float4 *)(k + 4) = *(const float4 *)(keys + e * KV_BLOCK + 2 * SCORE_DIMS * KV_BLOCK);
      *(float4 *)x = *(const float4 *)(mine + e * Q_STRIDE);
      *(float4 *)(x + 4) = *(const float4 *)(mine + e * Q_STRIDE + 4);
#pragma unroll
      for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int n = 0; n < 8; n++)
          sum[i][n] += x[i] * k[n];
    }
  }

  if (a.softcap != 0)
#pragma unroll
    for (int i = 0; i < EACH * 8; i++)
      sum[i / 8][i % 8] = capped_score(a.softcap, sum[i / 8][i % 8]);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const tile_query &query = queries[warp * EACH + i];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int p = first + half * (SCORE_KEYS / 2) + lane * 4;
      float *score = query.score + p;
      if (p >= query.low && p + 4 <= query.high && (p - query.low) % 4 == 0) {
        *(float4 *)score = *(float4 *)&sum[i][4 * half];
        continue;
      }
#pragma unroll
      for (int n = 0; n < 4; n++)
        if (p + n >= query.low && p + n < query.high)
          score[n] = sum[i][4 * half + n];
    }
  }
}

/* ---- values ---- */

/* A warp's 8 queries have DIMS outputs each in a block of threads: 4 dims to a lane, and so 8 or 4 queries to a lane.
 */
template <int DIMS> struct value_shape {
  enum { LANES = DIMS / 4, QUERIES_EACH = EACH / (32 / LANES), SLOT = VALUE_KEYS * DIMS };
};

enum { PLANE = VALUE_KEYS * 4 }; /* weights of 4 queries, [keys][4]; a warp has two */

/* Asks for a stage of values, [VALUE_KEYS][DIMS]. */
template <int DIMS>
static __device__ void ask_values(const op_attention &a, void *const *blocks, size_t values_at, int stage, float *slot)
{
  const float *from = (const float *)blocks[stage * VALUE_KEYS / KV_BLOCK] + values_at +
                      (size_t)(stage * VALUE_KEYS % KV_BLOCK) * a.value_dim;
  for (int n = threadIdx.x; n < VALUE_KEYS * DIMS / 4; n += THREADS) {
    int key = n / (DIMS / 4), e = n % (DIMS / 4) * 4;
    if (blockIdx.x * DIMS + e < a.value_dim)
      copy_async(slot + key * DIMS + e, from + (size_t)key * a.value_dim + e);
  }
}

/* out[query][dim] += weight * value over a stage of keys; a weight below zero is of a key that the query does not see.
 */
template <int DIMS, bool WHOLE>
static __device__ void add_values(const float *value, const float *weight,
                                  float out[value_shape<DIMS>::QUERIES_EACH][4])
{
  enum { N = value_shape<DIMS>::QUERIES_EACH };
#pragma unroll 8
  for (int key = 0; key < VALUE_KEYS; key++) {
    float w[N], v[4];
#pragma unroll
    for (int i = 0; i < N; i += 4)
      *(float4 *)(w + i) = *(const float4 *)(weight + key * 4 + i / 4 * PLANE);
    *(float4 *)v = *(const float4 *)(value + key * DIMS);
#pragma unroll
    for (int i = 0; i < N; i++)
      if (WHOLE || !(w[i] < 0))
#pragma unroll
        for (int e = 0; e < 4; e++)
          out[i][e] += w[i] * v[e];
  }
}

/* The lane's terms of a stage, a key for each query of the warp. */
static __device__ void load_terms(const tile_query *query, int stage, float term[EACH])
{
  int p = stage * VALUE_KEYS + threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < EACH; i++)
    term[i] = p >= query[i].low && p < query[i].high ? query[i].score[p] : -1.0f;
}

/* A block of threads a (DIMS dims, share, tile). The last tiles have most to do, and go first. */
template <int DIMS>
static __global__ void __launch_bounds__(THREADS, 2) tile_values(op_attention a, cuda_step s, exact_room r)
{
  enum { N = value_shape<DIMS>::QUERIES_EACH, LANES = value_shape<DIMS>::LANES, SLOT = value_shape<DIMS>::SLOT };
  extern __shared__ float4 shared[];
  __shared__ tile_query queries[QUERIES];
  tile t;
  if (!find_tile(a, s, r, gridDim.z - 1 - blockIdx.z, &t))
    return;
  int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  float *ring = (float *)shared, *weight = ring + SLOTS * SLOT + warp * 2 * PLANE;
  void *const *blocks = cuda_blocks(s, a.slot, t.row);
  size_t values_at =
      ref_block_value(a.kv_heads, a.key_dim, t.share.kv_head, a.value_dim, 0) + (size_t)blockIdx.x * DIMS;
  int stage = t.from.low / VALUE_KEYS, last = (t.to.high - 1) / VALUE_KEYS;
  for (int n = 0; n < SLOTS - 1; n++) {
    if (stage + n <= last)
      ask_values<DIMS>(a, blocks, values_at, stage + n, ring + (stage + n) % SLOTS * SLOT);
    copy_commit();
  }
  if (tid < QUERIES)
    queries[tid] = query_of(a, s, r, t, tid);
  __syncthreads();
  const tile_query *mine = queries + warp * EACH;
  float out[N][4] = {}, term[EACH];
  load_terms(mine, stage, term);
  for (; stage <= last; stage++) {
    copy_wait<SLOTS - 2>();
    __syncthreads();
    int ahead = stage + SLOTS - 1;
    if (ahead <= last)
      ask_values<DIMS>(a, blocks, values_at, ahead, ring + ahead % SLOTS * SLOT);
    copy_commit();
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float e = term[4 * half + i];
        x[i] = e < 0 ? -1.0f : e * mine[4 * half + i].inverse;
      }
      *(float4 *)(weight + half * PLANE + lane * 4) = *(float4 *)x;
    }
    __syncwarp();
    if (stage < last)
      load_terms(mine, stage + 1, term);
    bool whole = t.to.low <= stage * VALUE_KEYS && (stage + 1) * VALUE_KEYS <= t.from.high;
    const float *value = ring + stage % SLOTS * SLOT + lane % LANES * 4, *w = weight + lane / LANES * PLANE;
    if (whole)
      add_values<DIMS, true>(value, w, out);
    else
      add_values<DIMS, false>(value, w, out);
    __syncwarp();
  }
  int e = blockIdx.x * DIMS + lane % LANES * 4;
#pragma unroll
  for (int i = 0; i < N; i++) {
    const tile_query &query = mine[lane / LANES * N + i];
    if (query.high && e < a.value_dim)
      *(float4 *)(a.out + query.out * a.value_dim + e) = *(float4 *)out[i];
  }
}

/* ---- launching ---- */

static size_t scores_shared(const op_attention *a)
{
  return (size_t)SLOTS * SCORE_SLOT + (size_t)a->key_dim * Q_STRIDE * sizeof(float);
}

/* Dims of a block of threads, descending: the first that keeps the machine busy. */
static const struct {
  int dims;
  void (*kernel)(op_attention, cuda_step, exact_room);
  size_t shared;
} value_kernels[] = {
    {128, tile_values<128>, (SLOTS * value_shape<128>::SLOT + WARPS * 2 * PLANE) * sizeof(float)},
    {64, tile_values<64>, (SLOTS * value_shape<64>::SLOT + WARPS * 2 * PLANE) * sizeof(float)},
};
enum { VALUE_KERNELS = sizeof value_kernels / sizeof value_kernels[0] };

bool exact_tile_fits(const cuda_context *cx, const op_attention *a)
{
  return !a->sparse_block && a->value_dim % 4 == 0 && a->key_dim <= MOST_DIMS && a->value_dim <= MOST_DIMS &&
         scores_shared(a) <= dynamic_most(cx) && value_kernels[0].shared <= dynamic_most(cx);
}

void exact_tile_scores(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  /* Tokens of a tile may begin in one unit and end in the next. */
  int64_t units = unit_count(a, s->most_keys, SCORE_KEYS) + (a->window ? 1 : 0);
  dim3 grid((unsigned)units, share_count(*a, tile_heads(*a)), tile_count(*a, r->count));
  cuda_launch(cx, false, tile_scores, grid, dim3(THREADS), scores_shared(a), *a, *s, *r);
}

/* Whether there are so many tiles that walking all keys of each is quicker than a chain a token: from about a block of
 * threads for every other multiprocessor on. */
bool exact_tile_values_pay(const cuda_context *cx, const op_attention *a, const exact_room *r)
{
  int64_t slices = cuda_ceil(a->value_dim, value_kernels[VALUE_KERNELS - 1].dims);
  return share_count(*a, tile_heads(*a)) * tile_count(*a, r->count) * slices * 20 >= cx->processors * 9;
}

void exact_tile_values(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  int shares = share_count(*a, tile_heads(*a)), tiles = tile_count(*a, r->count), i = 0;
  while (i + 1 < VALUE_KERNELS &&
         (a->value_dim <= value_kernels[i + 1].dims ||
          shares * tiles * cuda_ceil(a->value_dim, value_kernels[i].dims) < 2 * cx->processors))
    i++;
  dim3 grid((unsigned)cuda_ceil(a->value_dim, value_kernels[i].dims), shares, tiles);
  cuda_launch(cx, false, value_kernels[i].kernel, grid, dim3(THREADS), value_kernels[i].shared, *a, *s, *r);
}

void exact_tile_setup(cuda_context *cx)
{
  allow_shared(cx, (const void *)tile_scores, dynamic_most(cx));
  for (int i = 0; i < VALUE_KERNELS; i++)
    allow_shared(cx, (const void *)value_kernels[i].kernel, value_kernels[i].shared);
}
