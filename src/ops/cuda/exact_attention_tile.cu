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
#include "ops/cuda/attention_copy.cuh"
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
  MOST_DIMS = 256,
};

/* A tile: tokens [first, first + count), the sights of its first and last one, and the heads that it covers. */
struct tile {
  int first, count, heads, row;
  sight from, to;
  head_share share;
};

/* Asked by all threads. False: the tokens are no tile. */
static __device__ bool find_tile(const op_attention &a, const cuda_step &s, const exact_room &r, int index, tile *t)
{
  t->heads = tile_heads(a);
  int tokens = QUERIES / t->heads, left;
  t->first = r.first + index * tokens;
  left = r.first + r.count - t->first;
  t->count = left < tokens ? left : tokens;
  if (!tile_shares(a, s, t->first, t->count, true))
    return false;
  t->row = s.token[t->first].row;
  t->from = sight_of(a, s.token[t->first]);
  t->to = sight_of(a, s.token[t->first + t->count - 1]);
  t->share = share_of(a, blockIdx.y, t->heads);
  return true;
}

/* What query n of the tile sees: head n % heads of token n / heads. False: there is no such query. */
static __device__ bool query_of(const op_attention &a, const cuda_step &s, const tile &t, int n, int *token, int *head,
                                sight *sees)
{
  int at = n / t.heads, h = n % t.heads;
  if (at >= t.count || h >= t.share.count)
    return false;
  *token = t.first + at;
  *head = t.share.first + h;
  *sees = sight_of(a, s.token[*token]);
  return true;
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
  for (int n = tid; n < QUERIES * a.key_dim; n += THREADS) {
    int query = n / a.key_dim, e = n % a.key_dim, h = query % t.heads, at = query / t.heads;
    bool is = at < t.count && h < t.share.count;
    q[e * Q_STRIDE + query] =
        is ? a.scale * a.q[((int64_t)(t.first + at) * a.heads + t.share.first + h) * a.key_dim + e] : 0;
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

#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int token, head;
    sight sees;
    if (!query_of(a, s, t, warp * EACH + i, &token, &head, &sees))
      continue;
    float *score = exact_scores_of(r, a, token, head);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int p = first + half * (SCORE_KEYS / 2) + lane * 4, slot = p - sees.low;
      float x[4];
#pragma unroll
      for (int n = 0; n < 4; n++)
        x[n] = attention_cap(a, sum[i][4 * half + n]);
      if (slot >= 0 && p + 4 <= sees.high && slot % 4 == 0) {
        *(float4 *)(score + slot) = *(float4 *)x;
        continue;
      }
#pragma unroll
      for (int n = 0; n < 4; n++)
        if (slot + n >= 0 && p + n < sees.high)
          score[slot + n] = x[n];
    }
  }
}

/* ---- values ---- */

/* A warp's 8 queries have DIMS outputs each in a block of threads: 4 dims to a lane, and so 8 or 4 queries to a lane.
 */
template <int DIMS> struct value_shape {
  enum { LANES = DIMS / 4, QUERIES_EACH = EACH / (32 / LANES), SLOT = KV_BLOCK * DIMS };
};

enum { PLANE = KV_BLOCK * 4 }; /* weights of 4 queries, a warp has two: [64 keys][4] */

template <int DIMS>
static __device__ void ask_values(const op_attention &a, const void *block, size_t values_at, float *slot)
{
  for (int n = threadIdx.x; n < KV_BLOCK * DIMS / 4; n += THREADS) {
    int key = n / (DIMS / 4), e = n % (DIMS / 4) * 4;
    if (blockIdx.x * DIMS + e < a.value_dim)
      copy_async(slot + key * DIMS + e, (const float *)block + values_at + (size_t)key * a.value_dim + e);
  }
}

/* out[query][dim] += weight * value over a block of keys; a weight below zero is of a key that the query does not see.
 */
template <int DIMS, bool WHOLE>
static __device__ void add_values(const float *value, const float *weight,
                                  float out[value_shape<DIMS>::QUERIES_EACH][4])
{
  enum { N = value_shape<DIMS>::QUERIES_EACH };
#pragma unroll 8
  for (int key = 0; key < KV_BLOCK; key++) {
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

/* A query of a warp, as its lanes need it. */
struct query_terms {
  const float *term; /* of position 0 */
  float inverse;
  int low, high; /* none: both 0 */
};

/* Terms of the warp's queries for a block of keys: two keys a lane. */
static __device__ void load_terms(const query_terms *query, int first, float term[EACH][2])
{
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int n = 0; n < 2; n++) {
      int p = first + n * 32 + threadIdx.x % 32;
      term[i][n] = p >= query[i].low && p < query[i].high ? query[i].term[p] : -1.0f;
    }
}

/* A block of threads a (DIMS dims, share, tile). The last tiles have most to do, and go first. */
template <int DIMS>
static __global__ void __launch_bounds__(THREADS, 2) tile_values(op_attention a, cuda_step s, exact_room r)
{
  enum { N = value_shape<DIMS>::QUERIES_EACH, LANES = value_shape<DIMS>::LANES, SLOT = value_shape<DIMS>::SLOT };
  extern __shared__ float4 shared[];
  __shared__ query_terms queries[QUERIES];
  tile t;
  if (!find_tile(a, s, r, gridDim.z - 1 - blockIdx.z, &t))
    return;
  int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  float *ring = (float *)shared, *weight = ring + SLOTS * SLOT + warp * 2 * PLANE;
  void *const *blocks = cuda_blocks(s, a.slot, t.row);
  size_t values_at =
      ref_block_value(a.kv_heads, a.key_dim, t.share.kv_head, a.value_dim, 0) + (size_t)blockIdx.x * DIMS;
  int block = t.from.low / KV_BLOCK, last = (t.to.high - 1) / KV_BLOCK;
  for (int n = 0; n < SLOTS - 1; n++) {
    if (block + n <= last)
      ask_values<DIMS>(a, blocks[block + n], values_at, ring + (block + n) % SLOTS * SLOT);
    copy_commit();
  }
  if (tid < QUERIES) {
    int token, head;
    sight sees;
    query_terms mine = {nullptr, 0, 0, 0};
    if (query_of(a, s, t, tid, &token, &head, &sees)) {
      mine.term = exact_scores_of(r, a, token, head) - sees.low;
      mine.inverse = r.inverse[(token - r.first) * a.heads + head];
      mine.low = sees.low;
      mine.high = sees.high;
    }
    queries[tid] = mine;
  }
  __syncthreads();
  const query_terms *mine = queries + warp * EACH;
  float out[N][4] = {}, term[EACH][2];
  load_terms(mine, block * KV_BLOCK, term);
  for (; block <= last; block++) {
    copy_wait<SLOTS - 2>();
    __syncthreads();
    int ahead = block + SLOTS - 1;
    if (ahead <= last)
      ask_values<DIMS>(a, blocks[ahead], values_at, ring + ahead % SLOTS * SLOT);
    copy_commit();
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float e = term[4 * half + i][n];
          x[i] = e < 0 ? -1.0f : e * mine[4 * half + i].inverse;
        }
        *(float4 *)(weight + half * PLANE + (n * 32 + lane) * 4) = *(float4 *)x;
      }
    __syncwarp();
    load_terms(mine, (block + 1) * KV_BLOCK, term);
    bool whole = t.to.low <= block * KV_BLOCK && (block + 1) * KV_BLOCK <= t.from.high;
    const float *value = ring + block % SLOTS * SLOT + lane % LANES * 4, *w = weight + lane / LANES * PLANE;
    if (whole)
      add_values<DIMS, true>(value, w, out);
    else
      add_values<DIMS, false>(value, w, out);
    __syncwarp();
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    int token, head, e = blockIdx.x * DIMS + lane % LANES * 4;
    sight sees;
    if (!query_of(a, s, t, warp * EACH + lane / LANES * N + i, &token, &head, &sees) || e >= a.value_dim)
      continue;
    *(float4 *)(a.out + ((int64_t)token * a.heads + head) * a.value_dim + e) = *(float4 *)out[i];
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
         scores_shared(a) + 1024 <= cx->shared_most && value_kernels[0].shared + 4096 <= cx->shared_most;
}

static int tile_count(const op_attention *a, const exact_room *r)
{
  return (int)cuda_ceil(r->count, tile_tokens(*a));
}

void exact_tile_scores(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  /* Tokens of a tile may begin in one unit and end in the next. */
  int64_t units = unit_count(a, s->most_keys, SCORE_KEYS) + (a->window ? 1 : 0);
  dim3 grid((unsigned)units, share_count(*a, tile_heads(*a)), tile_count(a, r));
  cuda_launch(cx, false, tile_scores, grid, dim3(THREADS), scores_shared(a), *a, *s, *r);
}

void exact_tile_values(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  int shares = share_count(*a, tile_heads(*a)), tiles = tile_count(a, r), i = 0;
  while (i + 1 < VALUE_KERNELS &&
         (a->value_dim <= value_kernels[i + 1].dims ||
          shares * tiles * cuda_ceil(a->value_dim, value_kernels[i].dims) < 2 * cx->processors))
    i++;
  dim3 grid((unsigned)cuda_ceil(a->value_dim, value_kernels[i].dims), shares, tiles);
  cuda_launch(cx, false, value_kernels[i].kernel, grid, dim3(THREADS), value_kernels[i].shared, *a, *s, *r);
}

void exact_tile_setup(cuda_context *cx)
{
  if (cx->error == cudaSuccess)
    cx->error =
        cudaFuncSetAttribute(tile_scores, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)cx->shared_most - 1024);
  for (int i = 0; i < VALUE_KERNELS && cx->error == cudaSuccess; i++)
    cx->error = cudaFuncSetAttribute(value_kernels[i].kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)value_kernels[i].shared);
}
