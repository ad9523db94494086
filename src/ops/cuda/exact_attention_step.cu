/* exact_attention_step.cu - exact attention of single tokens: scores, the sum of a softmax, the sum over values.
 *
 * Scores have no order among keys: a lane has a key. The other two are chains as long as the context, 4.16 cycles a
 * link whatever one does, so the kernels are built around a warp that does little but add: other warps of its block
 * bring what it needs into shared memory, and loads stand a batch ahead of the additions that use them.
 *
 * In the sum over values a lane has one dim of one head. The chain warp takes as many heads as share the values and 32
 * / heads dims: so a value is read once, and one token of 32 heads of 128 dims makes 128 blocks of threads, one for
 * nearly each multiprocessor. (A warp of 32 dims for each head reads values four times, two such in a block wait for
 * each other: 44 us at depth 8192. Products made by other warps meet the bandwidth of shared memory: 75 us.)
 */
#include "ops/cuda/attention_copy.cuh"
#include "ops/cuda/exact_attention.cuh"
#include "ops/cuda/exact_attention_sums.cuh"

enum {
  SUM_STRETCH = 2048, /* terms that are made while those before them are added */
  VALUE_THREADS = 256,
  VALUE_STAGE = 256, /* keys */
  VALUE_SLOTS = 3,
};

/* ---- scores ---- */

template <int HEADS>
static __device__ void packed_scores(const op_attention &a, void *block, int kv_head, int i, const float *q, float *sum)
{
  ref_packed keys = ref_packed_keys(&a.quant, block, kv_head, a.key_dim);
  for (int e = 0; e < a.key_dim; e++) {
    float key = ref_packed_key_at(&keys, &a.quant, DT_F32, i, e);
#pragma unroll
    for (int h = 0; h < HEADS; h++)
      sum[h] += q[e * HEADS + h] * key;
  }
}

template <int HEADS>
static __device__ void scores_of_token(const op_attention &a, const cuda_step &s, const exact_room &r, float *q,
                                       int token)
{
  int i = threadIdx.x;
  cuda_token t = s.token[token];
  sight sees = sight_of(a, t);
  int first = unit_first(a, sees, blockIdx.x, KV_BLOCK);
  if (!exact_takes(r, a, t) || !unit_seen(sees, first, KV_BLOCK))
    return;
  head_share share = share_of(a, blockIdx.y, HEADS);
  const float *queries = a.q + ((int64_t)token * a.heads + share.first) * a.key_dim;
  for (int h = 0; h < HEADS; h++)
    for (int e = i; e < a.key_dim; e += KV_BLOCK)
      q[e * HEADS + h] = h < share.count ? a.scale * queries[h * a.key_dim + e] : 0;
  __syncthreads();
  if (!sight_sees(sees, first + i))
    return;
  void *block = cuda_blocks(s, a.slot, t.row)[first / KV_BLOCK];
  float sum[HEADS] = {};
  if (cuda_quantised(a.quant, t))
    packed_scores<HEADS>(a, block, share.kv_head, i, q, sum);
  else
    plain_scores<HEADS>((const float *)block + ref_block_key(share.kv_head, a.key_dim, i), q, a.key_dim, sum);
  int slot = sight_slot(sees, first + i);
#pragma unroll
  for (int h = 0; h < HEADS; h++)
    if (h < share.count) {
      /* A key that a block-sparse head does not see gets a term of zero, which changes no sum. */
      bool seen = head_sees(a, share.first + h, (int)t.position, first + i);
      exact_scores_of(r, a, token, share.first + h)[slot] = seen ? attention_cap(a, sum[h]) : -INFINITY;
    }
}

template <int HEADS>
static __global__ void __launch_bounds__(KV_BLOCK) step_scores(op_attention a, cuda_step s, exact_room r)
{
  extern __shared__ float4 shared[];
  cuda_release_next();
  cuda_await();
  for_lone_tokens(a, s, r.first, r.count, r.tiles, true, [&](int token) {
    scores_of_token<HEADS>(a, s, r, (float *)shared, token);
    __syncthreads();
  });
}

/* ---- softmax ---- */

/* A block a (head, token) of any kind. The largest score has no order (and where one is NaN, everything will be). Then
 * the first warp adds up a stretch of terms while the others make the next. */
static __global__ void __launch_bounds__(512) sums(op_attention a, cuda_step s, exact_room r)
{
  __shared__ __align__(16) float term[2][SUM_STRETCH + BATCH];
  __shared__ float largest[16];
  cuda_release_next();
  cuda_await();
  int token = r.first + blockIdx.y, head = blockIdx.x, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  cuda_token t = s.token[token];
  if (!exact_takes(r, a, t))
    return;
  int n = sight_count(sight_of(a, t));
  float *score = exact_scores_of(r, a, token, head);
  float most = -INFINITY, sum = 0;
#pragma unroll 8
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    most = fmaxf(most, score[i]);
  for (int far = 16; far; far /= 2)
    most = fmaxf(most, __shfl_xor_sync(~0u, most, far));
  if (threadIdx.x % 32 == 0)
    largest[warp] = most;
  __syncthreads();
  for (int w = 0; w < warps; w++)
    most = fmaxf(most, largest[w]);
  int stretches = (n + SUM_STRETCH - 1) / SUM_STRETCH;
  for (int k = 0; k <= stretches; k++) {
    if (warp == 0 && k > 0) {
      int count = n - (k - 1) * SUM_STRETCH;
      count = count < SUM_STRETCH ? (count + 2 * BATCH - 1) / (2 * BATCH) * (2 * BATCH) : SUM_STRETCH;
      sum = add_up(term[(k - 1) % 2], count, sum);
    }
    if (warp > 0 && k < stretches) {
      int from = k * SUM_STRETCH, padded = (n + 2 * BATCH - 1) / (2 * BATCH) * (2 * BATCH) - from;
      padded = padded < SUM_STRETCH ? padded : SUM_STRETCH;
#pragma unroll 2
      for (int i = threadIdx.x - 32; i < padded; i += blockDim.x - 32) {
        float e = 0;
        if (from + i < n)
          score[from + i] = e = math_exp(score[from + i] - most);
        term[k % 2][i] = e;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0)
    r.inverse[(token - r.first) * a.heads + head] = 1.0f / sum;
}

/* ---- values: a chain warp and its suppliers ---- */

/* A stage of the ring: VALUE_STAGE keys. */
template <int HEADS> struct value_stage {
  enum { DIMS = 32 / HEADS, PIECES = DIMS / 4 };
  float value[VALUE_STAGE][DIMS];
  float weight[HEADS][VALUE_STAGE + 4]; /* 4 for the banks */
};

/* What suppliers need to know. */
struct value_source {
  void *const *blocks;
  const float *term; /* of the share's first head */
  const float *inverse;
  head_share share;
  int keys, dim; /* that the token sees; first of the block's dims */
  bool packed;
};

/* Brings a stage, padded with zeros to whole batches: they change no sum. Values come by themselves (cp.async) where
 * they are plain. */
template <int HEADS>
static __device__ void supply(const op_attention &a, const exact_room &r, const sight &sees, const value_source &from,
                              int stage, value_stage<HEADS> *to)
{
  typedef value_stage<HEADS> shape;
  enum { SUPPLIERS = VALUE_THREADS - 32 };
  int base = stage * VALUE_STAGE, count = from.keys - base, tid = threadIdx.x - 32;
  int padded = (count + 2 * BATCH - 1) / (2 * BATCH) * (2 * BATCH);
  padded = padded < VALUE_STAGE ? padded : VALUE_STAGE;
  for (int n = tid; n < padded * shape::PIECES; n += SUPPLIERS) {
    int key = n / shape::PIECES, dim = n % shape::PIECES * 4, e = from.dim + dim;
    float *here = &to->value[key][dim];
    if (key >= count || e >= a.value_dim) {
      *(float4 *)here = make_float4(0, 0, 0, 0);
      continue;
    }
    int p = sight_position(sees, base + key), i = p % KV_BLOCK;
    void *block = from.blocks[p / KV_BLOCK];
    if (from.packed) {
      ref_packed values = ref_packed_values(&a.quant, block, a.kv_heads, a.key_dim, from.share.kv_head, a.value_dim);
      for (int d = 0; d < 4; d++)
        here[d] = ref_packed_value_at(&values, &a.quant, DT_F32, i, e + d);
    } else {
      copy_async(here,
                 (const float *)block + ref_block_value(a.kv_heads, a.key_dim, from.share.kv_head, a.value_dim, i) + e);
    }
  }
  copy_commit();
  for (int key = tid; key < padded; key += SUPPLIERS) {
    float e[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++)
      e[h] = key < count && h < from.share.count ? from.term[h * r.slots + base + key] : 0;
#pragma unroll
    for (int h = 0; h < HEADS; h++)
      to->weight[h][key] = e[h] * (h < from.share.count ? from.inverse[h] : 0);
  }
}

template <int HEADS>
static __device__ void values_of_token(const op_attention &a, const cuda_step &s, const exact_room &r,
                                       value_stage<HEADS> *ring, int token)
{
  enum { DIMS = value_stage<HEADS>::DIMS };
  cuda_token t = s.token[token];
  if (!exact_takes(r, a, t))
    return;
  sight sees = sight_of(a, t);
  value_source from;
  from.blocks = cuda_blocks(s, a.slot, t.row);
  from.share = share_of(a, blockIdx.y, HEADS);
  from.term = exact_scores_of(r, a, token, from.share.first);
  from.inverse = r.inverse + (token - r.first) * a.heads + from.share.first;
  from.keys = sight_count(sees);
  from.dim = blockIdx.x * DIMS;
  from.packed = cuda_quantised(a.quant, t);
  int stages = (from.keys + VALUE_STAGE - 1) / VALUE_STAGE, lane = threadIdx.x, d = lane % DIMS, h = lane / DIMS;
  bool chain = threadIdx.x < 32;
  float out = 0;
  for (int stage = -1; stage < stages; stage++) {
    if (chain && stage >= 0) {
      int count = from.keys - stage * VALUE_STAGE;
      count = count < VALUE_STAGE ? (count + 2 * BATCH - 1) / (2 * BATCH) * (2 * BATCH) : VALUE_STAGE;
      const value_stage<HEADS> *here = ring + stage % VALUE_SLOTS;
      out = add_weighted<DIMS>(&here->value[0][d], here->weight[h], count, out);
    }
    if (!chain) { /* stage + 2 into the place of stage - 1; stage + 1 must have come before the barrier */
      for (int next = stage < 0 ? 0 : stage + 2; next <= stage + 2; next++)
        if (next < stages)
          supply<HEADS>(a, r, sees, from, next, ring + next % VALUE_SLOTS);
        else
          copy_commit();
      copy_wait<1>();
    }
    __syncthreads();
  }
  if (chain && h < from.share.count && from.dim + d < a.value_dim)
    a.out[((int64_t)token * a.heads + from.share.first + h) * a.value_dim + from.dim + d] = out;
}

template <int HEADS>
static __global__ void __launch_bounds__(VALUE_THREADS) step_values(op_attention a, cuda_step s, exact_room r)
{
  extern __shared__ float4 shared[];
  cuda_release_next();
  cuda_await();
  for_lone_tokens(a, s, r.first, r.count, r.tiles, true, [&](int token) {
    values_of_token<HEADS>(a, s, r, (value_stage<HEADS> *)shared, token);
    __syncthreads();
  });
}

/* ---- values, the plain way ---- */

/* A thread a dim: for block-sparse ops, whose heads do not see the same keys, and for odd dims. */
static __global__ void __launch_bounds__(128) plain_values(op_attention a, cuda_step s, exact_room r)
{
  int token = r.first + blockIdx.z, head = blockIdx.y, e = blockIdx.x * blockDim.x + threadIdx.x;
  cuda_token t = s.token[token];
  if (r.tiles && token_in_tile(a, s, token, r.first, r.count, true))
    return;
  if (!exact_takes(r, a, t) || e >= a.value_dim)
    return;
  sight sees = sight_of(a, t);
  int kv_head = head / (a.heads / a.kv_heads), n = sight_count(sees);
  bool packed = cuda_quantised(a.quant, t);
  void *const *blocks = cuda_blocks(s, a.slot, t.row);
  const float *term = exact_scores_of(r, a, token, head);
  float inverse = r.inverse[(token - r.first) * a.heads + head], out = 0;
  for (int slot = 0; slot < n; slot++) {
    int p = sight_position(sees, slot), i = p % KV_BLOCK;
    if (!head_sees(a, head, (int)t.position, p))
      continue;
    float weight = term[slot] * inverse, value;
    if (packed) {
      ref_packed values =
          ref_packed_values(&a.quant, blocks[p / KV_BLOCK], a.kv_heads, a.key_dim, kv_head, a.value_dim);
      value = ref_packed_value_at(&values, &a.quant, DT_F32, i, e);
    } else {
      value =
          ((const float *)blocks[p / KV_BLOCK])[ref_block_value(a.kv_heads, a.key_dim, kv_head, a.value_dim, i) + e];
    }
    out += weight * value;
  }
  a.out[((int64_t)token * a.heads + head) * a.value_dim + e] = out;
}

/* ---- launching ---- */

typedef void exact_kernel(op_attention, cuda_step, exact_room);

/* By the query heads of a key/value head, ascending; more than the last go in shares. */
static const struct {
  int heads;
  exact_kernel *scores, *values;
  size_t ring;
} step_kernels[] = {
    {1, step_scores<1>, step_values<1>, sizeof(value_stage<1>) * VALUE_SLOTS},
    {2, step_scores<2>, step_values<2>, sizeof(value_stage<2>) * VALUE_SLOTS},
    {4, step_scores<4>, step_values<4>, sizeof(value_stage<4>) * VALUE_SLOTS},
    {8, step_scores<8>, step_values<8>, sizeof(value_stage<8>) * VALUE_SLOTS},
};
enum : size_t { STEP_KERNELS = sizeof step_kernels / sizeof step_kernels[0], AHEAD = BATCH * 32 * sizeof(float) };

static size_t kernel_of(const op_attention *a)
{
  size_t i = 0;
  while (i + 1 < STEP_KERNELS && step_kernels[i].heads < a->heads / a->kv_heads)
    i++;
  return i;
}

void exact_step_scores(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  size_t i = kernel_of(a);
  int heads = step_kernels[i].heads;
  dim3 grid((unsigned)unit_count(a, s->most_keys, KV_BLOCK), share_count(*a, heads), lone_blocks(r->count, r->tiles));
  cuda_launch(cx, true, step_kernels[i].scores, grid, dim3(KV_BLOCK), a->key_dim * heads * sizeof(float), *a, *s, *r);
}

/* Few chains want many threads that make terms; many chains want many blocks. */
void exact_sums(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  bool few = r->count * a->heads <= 2 * cx->processors;
  cuda_launch(cx, true, sums, dim3(a->heads, r->count), dim3(few ? 512 : 128), 0, *a, *s, *r);
}

void exact_step_values(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  size_t i = kernel_of(a);
  if (a->sparse_block || a->value_dim % 4 || step_kernels[i].ring + AHEAD > dynamic_most(cx)) {
    dim3 grid((unsigned)cuda_ceil(a->value_dim, 128), a->heads, r->count);
    cuda_launch(cx, false, plain_values, grid, dim3(128), 0, *a, *s, *r);
    return;
  }
  int heads = step_kernels[i].heads;
  dim3 grid((unsigned)cuda_ceil(a->value_dim, 32 / heads), share_count(*a, heads), lone_blocks(r->count, r->tiles));
  cuda_launch(cx, true, step_kernels[i].values, grid, dim3(VALUE_THREADS), step_kernels[i].ring + AHEAD, *a, *s, *r);
}

void exact_step_setup(cuda_context *cx)
{
  for (size_t i = 0; i < STEP_KERNELS; i++)
    allow_shared(cx, (const void *)step_kernels[i].values, step_kernels[i].ring + AHEAD);
}
