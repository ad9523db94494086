/* fast_attention_tile.cu - a chunk of a tile: neighbours of a prompt, whose queries share what is loaded.
 *
 * A block of threads has 64 queries (the heads of a share, of 64 / heads tokens) and one chunk of 256 positions: two
 * small matrix products in plain float32. A warp has 8 of the queries, and all keys: a lane 8 of them. So nothing that
 * a softmax needs leaves the warp, and terms pass from the lanes that made them to the lanes that use them through
 * memory of the warp's own. A thread holds 8 x 8 sums for the scores and 8 x 4 for the outputs (4 x 4 where values have
 * 64 dims), enough to make loads of shared memory a small part of the work: 75 instructions for 64 fused multiply-adds,
 * and 39 for 32.
 *
 * Keys come in stages of 16 dims and values in stages of 32 positions (16, where they are wide), through a ring of
 * four. Float16 is widened at each use (as floats a chunk would not fit). Terms take the place of queries, so that two
 * blocks of threads fit on a multiprocessor: with one alone, its 8 warps waited for each other and for memory half of
 * the time.
 *
 * What failed: one block of threads a multiprocessor with larger stages (8.4 TMAC/s where two reach 13); 4 queries and
 * 8 dims of outputs a thread (less shared memory traffic, and 4 % slower); masks left out for chunks that all queries
 * see whole (registers spill).
 *
 * What each chunk comes to goes through scratch, as for single tokens: 2 * 130 floats of traffic against 2 * 256 * 128
 * multiplications for each query, and there are always enough blocks of threads, however short the piece of a prompt.
 */
#include "ops/cuda/copy.cuh"
#include "ops/cuda/fast_attention.cuh"

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  QUERIES = TILE_QUERIES,
  EACH = QUERIES / WARPS,      /* queries of a warp */
  LANE_KEYS = FAST_CHUNK / 32, /* keys of a lane */
  BLOCKS = FAST_CHUNK / KV_BLOCK,
  STAGE_DIMS = 16,
  SLOT_BYTES = STAGE_DIMS * FAST_CHUNK * 2,
  SLOTS = 4,
  Q_STRIDE = QUERIES + 4, /* of a dim of queries: 4 more, for the banks */
  /* Terms of a warp: two planes of 4 queries. Key 8 i + n stands in row n * 33 + i, so that neither a store (lanes have
   * keys 8 apart) nor the sums by position (lanes have neighbouring keys) meet in a bank. */
  TERM_ROWS = LANE_KEYS * 33,
  PLANE = TERM_ROWS * 4,
  MOST_DIMS = 256,
};

/* Floats in front of the ring: queries, whose place terms take. */
static __host__ __device__ size_t shared_front(int key_dim)
{
  int queries = key_dim * Q_STRIDE, terms = WARPS * 2 * PLANE;
  return queries > terms ? queries : terms;
}

static __device__ int term_row(int key)
{
  return key % LANE_KEYS * 33 + key / LANE_KEYS;
}

/* ---- loading ---- */

struct tile_source {
  const __half *keys[BLOCKS], *values[BLOCKS]; /* of the chunk's blocks; NULL: no query looks into it */
};

/* Asks for some dims of all keys, [BLOCKS][STAGE_DIMS][64]. */
static __device__ void ask_keys(const tile_source &from, int key_dim, int stage, char *slot)
{
  enum { PIECES = STAGE_DIMS * KV_BLOCK / 8 };
  int dims = key_dim - stage * STAGE_DIMS;
#pragma unroll
  for (int n = threadIdx.x; n < BLOCKS * PIECES; n += THREADS) {
    const __half *keys = from.keys[n / PIECES];
    if (keys && n % PIECES < dims * (KV_BLOCK / 8))
      copy_async(slot + n * 16, keys + stage * STAGE_DIMS * KV_BLOCK + n % PIECES * 8);
  }
}

/* Asks for COUNT values. */
template <int COUNT> static __device__ void ask_values(const tile_source &from, int value_dim, int stage, char *slot)
{
  int first = stage * COUNT;
  const __half *values = from.values[first / KV_BLOCK];
  if (values)
    for (int n = threadIdx.x; n < value_dim * COUNT / 8; n += THREADS)
      copy_async(slot + n * 16, values + first % KV_BLOCK * value_dim + n * 8);
}

/* ---- scores ---- */

static __device__ void widen(const uint4 &halves, float *to)
{
  const __half2 *two = (const __half2 *)&halves;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float2 f = __half22float2(two[i]);
    to[2 * i] = f.x;
    to[2 * i + 1] = f.y;
  }
}

/* sum[query][key] += q k over the dims of a stage. q: of the stage's first dim and the warp's first query. */
static __device__ void add_scores(const char *slot, const float *q, int dims, float sum[EACH][LANE_KEYS])
{
  int lane = threadIdx.x % 32;
  const char *keys = slot + lane / 8 * (STAGE_DIMS * KV_BLOCK * 2) + lane % 8 * 16;
#pragma unroll 4
  for (int e = 0; e < dims; e++) {
    float k[LANE_KEYS], x[EACH];
    widen(*(const uint4 *)(keys + e * KV_BLOCK * 2), k);
    *(float4 *)x = *(const float4 *)(q + e * Q_STRIDE);
    *(float4 *)(x + 4) = *(const float4 *)(q + e * Q_STRIDE + 4);
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int n = 0; n < LANE_KEYS; n++)
        sum[i][n] = fmaf(x[i], k[n], sum[i][n]);
  }
}

/* A query of the tile: it sees positions [0, kept) and [low, high) of the chunk; what it comes to is part `part`. */
struct tile_query {
  int kept, low, high;
  bool sees;         /* any: else nothing is written */
  int64_t part, out; /* out: its place among all queries */
};

/* Scores become terms, in the warp's memory; those that are not seen become -1. m of each query, in every lane. */
static __device__ void make_terms(const op_attention &a, float sum[EACH][LANE_KEYS], const tile_query *sees, bool whole,
                                  float *term, float *most)
{
  int lane = threadIdx.x % 32;
  if (a.softcap != 0)
#pragma unroll
    for (int i = 0; i < EACH * LANE_KEYS; i++)
      sum[i / LANE_KEYS][i % LANE_KEYS] = capped_score(a.softcap, sum[i / LANE_KEYS][i % LANE_KEYS]);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int kept = whole ? FAST_CHUNK : sees[i].kept, low = sees[i].low, high = sees[i].high;
    bool seen[LANE_KEYS];
    float largest = -INFINITY;
#pragma unroll
    for (int n = 0; n < LANE_KEYS; n++) {
      int j = lane * LANE_KEYS + n;
      seen[n] = j < kept || (j >= low && j < high);
      largest = fmaxf(largest, seen[n] ? sum[i][n] : -INFINITY);
    }
    for (int far = 16; far; far /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, far));
    most[i] = largest;
#pragma unroll
    for (int n = 0; n < LANE_KEYS; n++)
      sum[i][n] = seen[n] ? math_exp(sum[i][n] - largest) : -1.0f;
  }
#pragma unroll
  for (int n = 0; n < LANE_KEYS; n++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float4 four = {sum[4 * half][n], sum[4 * half + 1][n], sum[4 * half + 2][n], sum[4 * half + 3][n]};
      *(float4 *)(term + half * PLANE + (n * 33 + lane) * 4) = four;
    }
}

/* l: a lane one of the 16 sums of 4 queries. The first of each 16 lanes has the four results. */
static __device__ float4 fold_terms(const float *term)
{
  int lane = threadIdx.x % 32;
  const float *mine = term + lane / FAST_LANES * PLANE;
  float sum[4] = {};
#pragma unroll 4
  for (int j = lane % FAST_LANES; j < FAST_CHUNK; j += FAST_LANES) {
    float x[4];
    *(float4 *)x = *(const float4 *)(mine + term_row(j) * 4);
#pragma unroll
    for (int i = 0; i < 4; i++)
      sum[i] += x[i] < 0 ? 0 : x[i];
  }
#pragma unroll
  for (int half = FAST_LANES / 2; half; half /= 2)
#pragma unroll
    for (int i = 0; i < 4; i++)
      sum[i] += __shfl_down_sync(~0u, sum[i], half, FAST_LANES);
  return {sum[0], sum[1], sum[2], sum[3]};
}

/* ---- values ---- */

/* How a warp shares the outputs of its 8 queries: DIMS at a time, 4 to a lane, and so 8 or 4 queries to a lane. */
template <int DIMS> struct value_share {
  enum { LANES = DIMS / 4, QUERIES_EACH = EACH / (32 / LANES) };
};

/* out[query][dim] += term * value over COUNT positions from `first` on. term: of the lane's first query. */
template <int DIMS, int COUNT, bool WHOLE>
static __device__ void add_values(const __half *value, int stride, const float *term, int first,
                                  float out[value_share<DIMS>::QUERIES_EACH][4])
{
  enum { N = value_share<DIMS>::QUERIES_EACH };
#pragma unroll 1
  for (int eight = 0; eight < COUNT; eight += LANE_KEYS) {
    const float *row = term + (first + eight) / LANE_KEYS * 4;
#pragma unroll
    for (int n = 0; n < LANE_KEYS; n++) {
      float x[N], v[4];
#pragma unroll
      for (int i = 0; i < N; i += 4)
        *(float4 *)(x + i) = *(const float4 *)(row + n * 33 * 4 + i / 4 * PLANE);
      uint2 raw = *(const uint2 *)(value + (eight + n) * stride);
      float2 low = __half22float2(*(const __half2 *)&raw.x), high = __half22float2(*(const __half2 *)&raw.y);
      v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
#pragma unroll
      for (int i = 0; i < N; i++)
        if (WHOLE || !(x[i] < 0))
#pragma unroll
          for (int e = 0; e < 4; e++)
            out[i][e] = fmaf(x[i], v[e], out[i][e]);
    }
  }
}

/* ---- the kernel ---- */

/* The scaled queries of a warp, to q [key_dim][Q_STRIDE]. Query n is head n % heads of token n / heads; what is beyond
 * the tile or the share is zero and is not written in the end. */
static __device__ void load_queries(const op_attention &a, const tile_query *queries, float *q)
{
  int first = threadIdx.x / 32 * EACH;
  for (int e = threadIdx.x % 32; e < a.key_dim; e += 32) {
    float x[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
      x[i] = queries[first + i].out < 0 ? 0 : a.q[queries[first + i].out * a.key_dim + e];
#pragma unroll
    for (int i = 0; i < EACH; i++)
      x[i] = a.scale * x[i];
    float *to = q + e * Q_STRIDE + first;
    *(float4 *)to = make_float4(x[0], x[1], x[2], x[3]);
    *(float4 *)(to + 4) = make_float4(x[4], x[5], x[6], x[7]);
  }
}

/* Writes what the chunk comes to, for each of the warp's queries that sees some of it. */
template <int DIMS, int PASSES>
static __device__ void write_parts(const op_attention &a, const fast_room &r, const tile_query *queries,
                                   const float *most, float4 total,
                                   const float out[PASSES][value_share<DIMS>::QUERIES_EACH][4])
{
  enum { N = value_share<DIMS>::QUERIES_EACH };
  int lane = threadIdx.x % 32, owner = lane / value_share<DIMS>::LANES * N; /* first query of this lane's outputs */
  bool alone = r.units == 1;                                                /* nothing to join */
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    float sum = __shfl_sync(~0u,
                            i % 4 == 0   ? total.x
                            : i % 4 == 1 ? total.y
                            : i % 4 == 2 ? total.z
                                         : total.w,
                            i / 4 * FAST_LANES);
    const tile_query &query = queries[i];
    if (!query.sees)
      continue;
    if (lane == 0)
      r.most[query.part] = make_float2(most[i], sum);
    float *to = alone ? a.out + query.out * a.value_dim : r.out + query.part * a.value_dim;
    float factor = alone ? 1.0f / sum : 1.0f;
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
      int e = pass * DIMS + lane % value_share<DIMS>::LANES * 4;
      const float *x = out[pass][i % N];
      if (i >= owner && i < owner + N && e < a.value_dim)
        *(float4 *)(to + e) = make_float4(x[0] * factor, x[1] * factor, x[2] * factor, x[3] * factor);
    }
  }
}

/* DIMS of a value at a time, PASSES of those. */
template <int DIMS, int PASSES>
static __global__ void __launch_bounds__(THREADS, 2) tile_chunk(op_attention a, cuda_step s, fast_room r, int heads)
{
  enum { N = value_share<DIMS>::QUERIES_EACH, STAGE_KEYS = 32 / PASSES, VALUE_STAGES = FAST_CHUNK / STAGE_KEYS };
  extern __shared__ float4 shared[];
  __shared__ tile_query queries[QUERIES];
  __shared__ tile_source source;
  int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
  tile_span span = tile_at(a, r.first, r.count, blockIdx.z);
  if (!tile_shares(a, s, span, false))
    return;
  int first_token = span.first, count = span.count;
  cuda_token head_token = s.token[first_token], tail_token = s.token[first_token + count - 1];
  sight from = sight_of(a, head_token), to = sight_of(a, tail_token);
  int first = unit_first(a, from, blockIdx.x, FAST_CHUNK);
  sight all = {to.keep > from.keep ? to.keep : from.keep, from.low, to.high, 0};
  if (!unit_seen(all, first, FAST_CHUNK))
    return;

  head_share share = share_of(a, blockIdx.y, heads);
  if (tid < BLOCKS) {
    bool seen = unit_seen(all, first + tid * KV_BLOCK, KV_BLOCK);
    const __half *block =
        seen ? (const __half *)cuda_blocks(s, a.slot, head_token.row)[first / KV_BLOCK + tid] : nullptr;
    source.keys[tid] = seen ? block + ref_block_key(share.kv_head, a.key_dim, 0) : nullptr;
    source.values[tid] = seen ? block + ref_block_value(a.kv_heads, a.key_dim, share.kv_head, a.value_dim, 0) : nullptr;
  }
  bool whole = true;
  if (tid < QUERIES) {
    int h = tid % heads, at = tid / heads < count ? tid / heads : count - 1, token = first_token + at;
    bool is = tid / heads < count && h < share.count;
    sight sees = sight_of(a, s.token[token]);
    tile_query mine = {sees.keep - first, sees.low - first, sees.high - first, false, 0, -1};
    whole = mine.kept >= FAST_CHUNK || (mine.low <= 0 && mine.high >= FAST_CHUNK);
    if (is) {
      mine.sees = unit_seen(sees, first, FAST_CHUNK);
      mine.part = fast_part(r, a, token, share.first + h, unit_index(a, sees, first, FAST_CHUNK));
      mine.out = (int64_t)token * a.heads + share.first + h;
    }
    queries[tid] = mine;
  }
  whole = __syncthreads_and(whole);

  /* Queries until the scores are done, then terms. */
  float *q = (float *)shared, *term = q + warp * 2 * PLANE;
  char *ring = (char *)(q + shared_front(a.key_dim)); /* [SLOTS][SLOT_BYTES] */
  int key_stages = (a.key_dim + STAGE_DIMS - 1) / STAGE_DIMS, stages = key_stages + VALUE_STAGES;
  auto ask = [&](int stage) {
    char *slot = ring + stage % SLOTS * SLOT_BYTES;
    if (stage < key_stages)
      ask_keys(source, a.key_dim, stage, slot);
    else if (stage < stages)
      ask_values<STAGE_KEYS>(source, a.value_dim, stage - key_stages, slot);
    copy_commit();
  };
  for (int stage = 0; stage < SLOTS - 1; stage++)
    ask(stage);
  load_queries(a, queries, q);

  int stage = 0;
  float most[EACH];
  {
    float score[EACH][LANE_KEYS] = {};
    for (; stage < key_stages; stage++) {
      copy_wait<SLOTS - 2>();
      __syncthreads();
      ask(stage + SLOTS - 1);
      int dims = a.key_dim - stage * STAGE_DIMS;
      const float *mine = q + stage * STAGE_DIMS * Q_STRIDE + warp * EACH;
      if (dims >= STAGE_DIMS)
        add_scores(ring + stage % SLOTS * SLOT_BYTES, mine, STAGE_DIMS, score);
      else
        add_scores(ring + stage % SLOTS * SLOT_BYTES, mine, dims, score);
    }
    __syncthreads();
    make_terms(a, score, queries + warp * EACH, whole, term, most);
  }
  __syncwarp();
  float4 total = fold_terms(term);

  float out[PASSES][N][4] = {};
  const float *mine = term + lane / value_share<DIMS>::LANES * PLANE;
  for (; stage < stages; stage++) {
    copy_wait<SLOTS - 2>();
    __syncthreads();
    ask(stage + SLOTS - 1);
    int at = (stage - key_stages) * STAGE_KEYS;
    if (!source.values[at / KV_BLOCK])
      continue;
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
      const __half *value =
          (const __half *)(ring + stage % SLOTS * SLOT_BYTES) + pass * DIMS + lane % value_share<DIMS>::LANES * 4;
      if (whole)
        add_values<DIMS, STAGE_KEYS, true>(value, a.value_dim, mine, at, out[pass]);
      else
        add_values<DIMS, STAGE_KEYS, false>(value, a.value_dim, mine, at, out[pass]);
    }
  }
  write_parts<DIMS, PASSES>(a, r, queries + warp * EACH, most, total, out);
}

/* ---- launching ---- */

typedef void tile_kernel(op_attention, cuda_step, fast_room, int);

/* By value_dim, ascending. */
static const struct {
  int dims;
  tile_kernel *kernel;
} tile_kernels[] = {{64, tile_chunk<64, 1>}, {128, tile_chunk<128, 1>}, {256, tile_chunk<128, 2>}};
enum { TILE_KERNELS = sizeof tile_kernels / sizeof tile_kernels[0] };

static size_t shared_of(const op_attention *a)
{
  return shared_front(a->key_dim) * sizeof(float) + (size_t)SLOTS * SLOT_BYTES;
}

bool fast_tile_fits(const cuda_context *cx, const op_attention *a)
{
  return !a->sparse_block && a->value_dim <= MOST_DIMS && a->value_dim % 4 == 0 && shared_of(a) <= dynamic_most(cx);
}

void fast_tile_chunks(cuda_context *cx, const op_attention *a, const cuda_step *s, const fast_room *r)
{
  int i = 0, heads = tile_heads(*a);
  while (tile_kernels[i].dims < a->value_dim)
    i++;
  /* Tokens of a tile may begin in one unit and end in the next. */
  int units = a->window ? r->units + 1 : r->units;
  dim3 grid(units, share_count(*a, heads), tile_count(*a, r->count));
  cuda_launch(cx, false, tile_kernels[i].kernel, grid, dim3(THREADS), shared_of(a), *a, *s, *r, heads);
}

void fast_tile_setup(cuda_context *cx)
{
  for (int i = 0; i < TILE_KERNELS; i++)
    allow_shared(cx, (const void *)tile_kernels[i].kernel, dynamic_most(cx));
}
