/* exact_attention.cu - attention of exact in three kernels: scores, their softmax, and the sum of values.
 *
 * Every sum runs left to right, so parallelism is what has no order: keys of a dot product, heads, dims of a sum over
 * values. A lane has a key and walks the dims; a lane has a dim and walks the keys; and the sum of a softmax is one
 * chain that nothing shortens, fed from shared memory.
 */
#include "ops/cuda/exact_attention.cuh"

enum { SCORE_HEADS = 4, SUM_THREADS = 256, SUM_STRETCH = 4096 };

/* ---- scores ---- */

/* A thread a key of a block, all heads of the share: what it loads of a key serves them all. q [key_dim][HEADS]. */
template <int HEADS> static __device__ void plain_scores(const float *key, const float *q, int key_dim, float *sum)
{
  enum { BATCH = 32 };
  int e = 0;
  for (; e + BATCH <= key_dim; e += BATCH) {
    float k[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      k[i] = __ldcs(key + (size_t)(e + i) * KV_BLOCK);
#pragma unroll
    for (int i = 0; i < BATCH; i++)
#pragma unroll
      for (int h = 0; h < HEADS; h++)
        sum[h] += q[(e + i) * HEADS + h] * k[i];
  }
  for (; e < key_dim; e++)
#pragma unroll
    for (int h = 0; h < HEADS; h++)
      sum[h] += q[e * HEADS + h] * key[(size_t)e * KV_BLOCK];
}

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
static __global__ void __launch_bounds__(KV_BLOCK) exact_scores(op_attention a, cuda_step s, exact_room r)
{
  extern __shared__ float4 q4[];
  float *q = (float *)q4;
  int token = r.first + blockIdx.z, i = threadIdx.x;
  cuda_token t = s.token[token];
  sight sees = sight_of(a, t);
  int first = unit_first(a, sees, blockIdx.x, KV_BLOCK);
  if (!exact_takes(r, a, t) || !unit_seen(sees, first, KV_BLOCK))
    return;
  head_share share = share_of(a, blockIdx.y, HEADS);
  const float *queries = a.q + ((int64_t)token * a.heads + share.first) * a.key_dim;
  for (int n = i; n < a.key_dim * HEADS; n += KV_BLOCK)
    q[n] = n % HEADS < share.count ? a.scale * queries[(int64_t)(n % HEADS) * a.key_dim + n / HEADS] : 0;
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

/* ---- softmax ---- */

/* A block a (token, head). The largest score has no order (and where one is NaN, everything will be); the sum has: a
 * stretch of terms at a time is made by all threads, and one adds it up. */
static __global__ void __launch_bounds__(SUM_THREADS) exact_sums(op_attention a, cuda_step s, exact_room r)
{
  __shared__ float term[SUM_STRETCH], largest[SUM_THREADS / 32];
  int token = r.first + blockIdx.y, head = blockIdx.x;
  cuda_token t = s.token[token];
  if (!exact_takes(r, a, t))
    return;
  int n = sight_count(sight_of(a, t));
  float *score = exact_scores_of(r, a, token, head);
  float most = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < n; i += SUM_THREADS)
    most = fmaxf(most, score[i]);
  for (int far = 16; far; far /= 2)
    most = fmaxf(most, __shfl_xor_sync(~0u, most, far));
  if (threadIdx.x % 32 == 0)
    largest[threadIdx.x / 32] = most;
  __syncthreads();
  for (int w = 0; w < SUM_THREADS / 32; w++)
    most = fmaxf(most, largest[w]);
  for (int from = 0; from < n; from += SUM_STRETCH) {
    int count = n - from < SUM_STRETCH ? n - from : SUM_STRETCH;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += SUM_THREADS)
      score[from + i] = term[i] = math_exp(score[from + i] - most);
    __syncthreads();
    if (threadIdx.x == 0)
#pragma unroll 16
      for (int i = 0; i < count; i++)
        sum += term[i];
  }
  if (threadIdx.x == 0)
    r.inverse[(token - r.first) * a.heads + head] = 1.0f / sum;
}

/* ---- values ---- */

/* A thread a dim. */
static __global__ void __launch_bounds__(128) exact_values(op_attention a, cuda_step s, exact_room r)
{
  int token = r.first + blockIdx.z, head = blockIdx.y, e = blockIdx.x * blockDim.x + threadIdx.x;
  cuda_token t = s.token[token];
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

/* ---- launchers ---- */

static int64_t slots_of(const op_attention *a, int64_t most_keys)
{
  int64_t seen = a->window && a->window < most_keys ? a->window : most_keys;
  return cuda_ceil(seen, KV_BLOCK) * KV_BLOCK;
}

size_t exact_token_bytes(int64_t slots, int heads)
{
  return (size_t)heads * ((size_t)slots + 1) * sizeof(float);
}

void exact_attention_of(cuda_context *cx, const op_attention *a, const cuda_step *s, exact_rows rows)
{
  int64_t slots = slots_of(a, s->most_keys);
  int group = attention_group(cx, exact_token_bytes(slots, a->heads), s->tokens);
  exact_room r = {};
  r.slots = slots;
  r.rows = rows;
  r.scores = (float *)cx->scratch;
  r.inverse = r.scores + (size_t)group * a->heads * slots;
  for (r.first = 0; r.first < s->tokens; r.first += group) {
    r.count = s->tokens - r.first < group ? s->tokens - r.first : group;
    dim3 units((unsigned)unit_count(a, s->most_keys, KV_BLOCK), share_count(*a, SCORE_HEADS), r.count);
    cuda_launch(cx, false, exact_scores<SCORE_HEADS>, units, dim3(KV_BLOCK), a->key_dim * SCORE_HEADS * sizeof(float),
                *a, *s, r);
    cuda_launch(cx, false, exact_sums, dim3(a->heads, r.count), dim3(SUM_THREADS), 0, *a, *s, r);
    cuda_launch(cx, false, exact_values, dim3((unsigned)cuda_ceil(a->value_dim, 128), a->heads, r.count), dim3(128), 0,
                *a, *s, r);
  }
}

void cuda_exact_attention(cuda_context *cx, const op_attention *a, const cuda_step *s)
{
  exact_attention_of(cx, a, s, EXACT_ALL);
}
