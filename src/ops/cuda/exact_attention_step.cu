/* exact_attention_step.cu - exact attention of single tokens: scores, and the sums of a softmax.
 *
 * Scores have no order among keys: a lane has a key. All dims of a block's keys are asked for at once, through shared
 * memory: in batches of registers, a token waited for memory four times. The sum of a softmax is a chain as long as the
 * context, 4.16 cycles a link whatever one does; its warp does nothing but add, while others make the terms.
 */
#include "ops/cuda/copy.cuh"
#include "ops/cuda/exact_attention.cuh"
#include "ops/cuda/exact_attention_sums.cuh"

/* Terms that are made while those before them are added; the first are few, so that the adding begins. */
enum { SUM_STRETCH = 2048, FIRST_STRETCH = 512 };

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

/* Asks for a stage of a block's keys, half of the dims. */
static __device__ void ask_dims(const float *keys, int dims, float *to)
{
  for (int n = threadIdx.x * 4; n < dims * KV_BLOCK; n += KV_BLOCK * 4)
    copy_async(to + n, keys + n);
  copy_commit();
}

template <int HEADS>
static __device__ void scores_of_token(const op_attention &a, const cuda_step &s, const exact_room &r, float *shared,
                                       int token)
{
  float *keys = shared, *q = keys + a.key_dim * KV_BLOCK; /* [key_dim][KV_BLOCK], [key_dim][HEADS] */
  int i = threadIdx.x, half = (a.key_dim + 1) / 2;
  cuda_token t = s.token[token];
  sight sees = sight_of(a, t);
  int first = unit_first(a, sees, blockIdx.x, KV_BLOCK);
  if (!exact_takes(r, a, t) || !unit_seen(sees, first, KV_BLOCK))
    return;
  head_share share = share_of(a, blockIdx.y, HEADS);
  const float *queries = a.q + ((int64_t)token * a.heads + share.first) * a.key_dim;
  void *block = cuda_blocks(s, a.slot, t.row)[first / KV_BLOCK];
  bool packed = cuda_quantised(a.quant, t);
  /* What earlier steps left may be read while the kernel before this one still runs. */
  if (first + KV_BLOCK > t.row_position)
    cuda_await();
  if (!packed) {
    const float *from = (const float *)block + ref_block_key(share.kv_head, a.key_dim, 0);
    ask_dims(from, half, keys);
    ask_dims(from + half * KV_BLOCK, a.key_dim - half, keys + half * KV_BLOCK);
  }
  cuda_await();
#pragma unroll 1
  for (int e = i; e < a.key_dim; e += KV_BLOCK)
#pragma unroll
    for (int h = 0; h < HEADS; h++)
      q[e * HEADS + h] = h < share.count ? a.scale * queries[h * a.key_dim + e] : 0;
  float sum[HEADS] = {};
  if (packed) {
    __syncthreads();
    packed_scores<HEADS>(a, block, share.kv_head, i, q, sum);
  } else {
    copy_wait<1>();
    __syncthreads();
    shared_scores<HEADS>(keys + i, q, half, sum);
    copy_wait<0>();
    __syncthreads();
    shared_scores<HEADS>(keys + half * KV_BLOCK + i, q + half * HEADS, a.key_dim - half, sum);
  }
  if (!sight_sees(sees, first + i))
    return;
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
  for_lone_tokens(a, s, r.first, r.count, r.tiles, true, [&](int token) {
    scores_of_token<HEADS>(a, s, r, (float *)shared, token);
    __syncthreads();
  });
  cuda_await(); /* whoever awaits this kernel relies on what was before it, too */
}

/* ---- softmax ---- */

/* Where stretch k ends, the last padded with zeros to whole pieces of the chain: they change no sum. */
static __device__ int stretch_end(int k, int n)
{
  int end = k < 0 ? 0 : FIRST_STRETCH + k * SUM_STRETCH,
      padded = (n + TERMS_AT_ONCE - 1) / TERMS_AT_ONCE * TERMS_AT_ONCE;
  return end < padded ? end : padded;
}

/* A block a (head, token) of any kind. The largest score has no order (and where one is NaN, everything will be). Then
 * the first warp adds up a stretch of terms while the others make the next. */
static __global__ void __launch_bounds__(512) sums(op_attention a, cuda_step s, exact_room r)
{
  __shared__ __align__(16) float term[2][SUM_STRETCH];
  __shared__ float largest[16];
  cuda_release_next();
  int token = r.first + blockIdx.y, head = blockIdx.x, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  cuda_token t = s.token[token];
  int n = sight_count(sight_of(a, t));
  cuda_await();
  if (!exact_takes(r, a, t))
    return;
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
  int stretches = 1 + (n - FIRST_STRETCH + SUM_STRETCH - 1) / SUM_STRETCH;
  stretches = n <= FIRST_STRETCH ? 1 : stretches;
  for (int k = 0; k <= stretches; k++) {
    if (warp == 0 && k > 0)
      sum = add_up(term[(k - 1) % 2], stretch_end(k - 1, n) - stretch_end(k - 2, n), sum);
    if (warp > 0 && k < stretches) {
      int from = stretch_end(k - 1, n), count = stretch_end(k, n) - from;
#pragma unroll 2
      for (int i = threadIdx.x - 32; i < count; i += blockDim.x - 32) {
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

/* ---- launching ---- */

/* By the query heads of a key/value head, ascending; more than the last go in shares. */
static const struct {
  int heads;
  void (*kernel)(op_attention, cuda_step, exact_room);
} score_kernels[] = {{1, step_scores<1>}, {2, step_scores<2>}, {4, step_scores<4>}, {8, step_scores<8>}};
enum { SCORE_KERNELS = sizeof score_kernels / sizeof score_kernels[0] };

static size_t scores_shared(const op_attention *a, int heads)
{
  return (size_t)a->key_dim * (heads + KV_BLOCK) * sizeof(float);
}

void exact_step_scores(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  int i = 0;
  while (i + 1 < SCORE_KERNELS && score_kernels[i].heads < a->heads / a->kv_heads)
    i++;
  int heads = score_kernels[i].heads;
  dim3 grid((unsigned)unit_count(a, s->most_keys, KV_BLOCK), share_count(*a, heads), lone_blocks(r->count, r->tiles));
  cuda_launch(cx, true, score_kernels[i].kernel, grid, dim3(KV_BLOCK), scores_shared(a, heads), *a, *s, *r);
}

/* Few chains want many threads that make terms; many chains want many blocks. */
void exact_sums(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  bool few = r->count * a->heads <= 2 * cx->processors;
  cuda_launch(cx, true, sums, dim3(a->heads, r->count), dim3(few ? 512 : 128), 0, *a, *s, *r);
}

void exact_step_setup(cuda_context *cx)
{
  for (int i = 0; i < SCORE_KERNELS; i++)
    allow_shared(cx, (const void *)score_kernels[i].kernel, dynamic_most(cx));
}
