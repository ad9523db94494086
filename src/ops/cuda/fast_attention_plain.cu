/* fast_attention_plain.cu - a chunk of one token, the plain way: for dims that fast_attention_step.cu has no room for.
 *
 * A thread has a key and walks the dims; then a thread has a dim and walks the keys. Nothing is staged.
 */
#include "ops/cuda/fast_attention.cuh"

enum { PLAIN_HEADS = 4, PLAIN_THREADS = 256 };

template <int HEADS>
static __global__ void __launch_bounds__(PLAIN_THREADS) plain_chunk(op_attention a, cuda_step s, fast_room r)
{
  extern __shared__ float4 memory[];
  __shared__ float term[HEADS][FAST_CHUNK], warp_most[HEADS][PLAIN_THREADS / 32], largest[HEADS], total[HEADS];
  float *q = (float *)memory; /* [key_dim][HEADS] */
  int token = r.first + blockIdx.z, j = threadIdx.x;
  cuda_token t = s.token[token];
  if (r.tiles && token_in_tile(a, s, token, r.first, r.count, false))
    return;
  sight sees = sight_of(a, t);
  int first = unit_first(a, sees, blockIdx.x, FAST_CHUNK);
  if (cuda_quantised(a.quant, t) || !unit_seen(sees, first, FAST_CHUNK))
    return;
  head_share share = share_of(a, blockIdx.y, HEADS);
  const float *queries = a.q + ((int64_t)token * a.heads + share.first) * a.key_dim;
  for (int n = j; n < a.key_dim * HEADS; n += PLAIN_THREADS)
    q[n] = n % HEADS < share.count ? a.scale * queries[(int64_t)(n % HEADS) * a.key_dim + n / HEADS] : 0;
  __syncthreads();
  void *const *blocks = cuda_blocks(s, a.slot, t.row) + first / KV_BLOCK;
  bool seen = sight_sees(sees, first + j);
  float sum[HEADS] = {};
  if (seen) {
    const __half *key = (const __half *)blocks[j / KV_BLOCK] + ref_block_key(share.kv_head, a.key_dim, j % KV_BLOCK);
    for (int e = 0; e < a.key_dim; e++) {
      float k = __half2float(key[(size_t)e * KV_BLOCK]);
#pragma unroll
      for (int h = 0; h < HEADS; h++)
        sum[h] = fmaf(q[e * HEADS + h], k, sum[h]);
    }
  }
  bool of_head[HEADS];
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    of_head[h] = seen && h < share.count && head_sees(a, share.first + h, (int)t.position, first + j);
    sum[h] = of_head[h] ? attention_cap(a, sum[h]) : -INFINITY;
    float most = sum[h];
    for (int far = 16; far; far /= 2)
      most = fmaxf(most, __shfl_xor_sync(~0u, most, far));
    warp_most[h][j / 32] = most;
  }
  __syncthreads();
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    float most = warp_most[h][0];
    for (int w = 1; w < PLAIN_THREADS / 32; w++)
      most = fmaxf(most, warp_most[h][w]);
    term[h][j] = of_head[h] ? math_exp(sum[h] - most) : -1.0f; /* below zero: not seen */
    if (j == 0)
      largest[h] = most;
  }
  __syncthreads();
  if (j < HEADS * 32 && j % 32 < FAST_LANES && j / 32 < share.count) {
    float lane = 0;
    int h = j / 32;
    for (int i = j % 32; i < FAST_CHUNK; i += FAST_LANES)
      lane += term[h][i] < 0 ? 0 : term[h][i];
    for (int half = FAST_LANES / 2; half; half /= 2)
      lane += __shfl_down_sync(0xffff, lane, half, FAST_LANES);
    if (j % 32 == 0) {
      total[h] = lane;
      r.most[fast_part(r, a, token, share.first + h, blockIdx.x)] = make_float2(largest[h], lane);
    }
  }
  __syncthreads();
  for (int n = j; n < share.count * a.value_dim; n += PLAIN_THREADS) {
    int h = n / a.value_dim, e = n % a.value_dim;
    float out = 0;
    for (int i = 0; i < FAST_CHUNK; i++) {
      if (term[h][i] < 0)
        continue;
      const __half *value = (const __half *)blocks[i / KV_BLOCK] +
                            ref_block_value(a.kv_heads, a.key_dim, share.kv_head, a.value_dim, i % KV_BLOCK);
      out = fmaf(term[h][i], __half2float(value[e]), out);
    }
    if (r.units == 1) /* nothing to join */
      a.out[((int64_t)token * a.heads + share.first + h) * a.value_dim + e] = out * (1.0f / total[h]);
    else
      r.out[fast_part(r, a, token, share.first + h, blockIdx.x) * a.value_dim + e] = out;
  }
}

void fast_plain_chunks(cuda_context *cx, const op_attention *a, const cuda_step *s, const fast_room *r)
{
  cuda_launch(cx, false, plain_chunk<PLAIN_HEADS>, dim3(r->units, share_count(*a, PLAIN_HEADS), r->count),
              dim3(PLAIN_THREADS), a->key_dim * PLAIN_HEADS * sizeof(float), *a, *s, *r);
}
