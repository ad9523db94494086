/* fast_attention_step.cu - a chunk of one token: for rows that take a step each, and for whatever has no tile.
 *
 * A block of threads has a chunk of 256 positions and the query heads of one key/value head, so keys and values are
 * read once for all of them. That is memory's speed or nothing: a step at depth 8192 reads 33 MB a layer. So everything
 * is asked for at once, with cp.async into shared memory: the four blocks of keys and two of values; the other two take
 * the place of keys as soon as those are done with. Two such blocks of threads fit on a multiprocessor (dims of 128)
 * and ask for 192 KB, nearly all that they will ever want. (Asking for a second part only after the softmax left the
 * memory idle in between: 11.3 us where this is meant to take 9.)
 *
 * Sums: a thread has a key and two heads and walks the dims; then a dim and two heads, and walks the keys. Float16 is
 * widened at each use: floats in shared memory would take twice the room, and room is what keeps loads in flight.
 */
#include "ops/cuda/attention_copy.cuh"
#include "ops/cuda/fast_attention.cuh"

enum {
  THREADS = 256,
  BLOCKS = FAST_CHUNK / KV_BLOCK, /* of a chunk */
  STAGE = BLOCKS / 2,             /* blocks of keys that are scored together */
  BUFFERS = BLOCKS + STAGE,       /* keys, and the first values */
  STAGE_KEYS = STAGE * KV_BLOCK,
  MANY = 32, /* tokens */
};

/* ---- the parts of it ---- */

/* Asks for a block's keys or values: bytes of them, a multiple of 128. */
static __device__ void ask(void *to, const void *from, int bytes)
{
#pragma unroll 2
  for (int at = (int)threadIdx.x * 16; at < bytes; at += THREADS * 16)
    copy_async((char *)to + at, (const char *)from + at);
}

/* Sums of a key with the queries of a pair, q [key_dim][2]. */
static __device__ float2 pair_scores(const __half *key, const float *q, int key_dim)
{
  float2 sum = {0, 0};
  int e = 0;
#pragma unroll 8
  for (; e + 2 <= key_dim; e += 2) {
    float4 two = *(const float4 *)(q + 2 * e);
    float k0 = __half2float(key[e * KV_BLOCK]), k1 = __half2float(key[(e + 1) * KV_BLOCK]);
    sum.x = fmaf(two.x, k0, sum.x);
    sum.y = fmaf(two.y, k0, sum.y);
    sum.x = fmaf(two.z, k1, sum.x);
    sum.y = fmaf(two.w, k1, sum.y);
  }
  if (e < key_dim) {
    float k = __half2float(key[e * KV_BLOCK]);
    sum.x = fmaf(q[2 * e], k, sum.x);
    sum.y = fmaf(q[2 * e + 1], k, sum.y);
  }
  return sum;
}

/* Keys [from, to) of a block: out += term * value of one dim, for a pair; term [keys][2], those below zero are of keys
 * that a block-sparse head does not see. */
static __device__ void pair_values(const __half *value, int stride, const float *term, int from, int to, bool sparse,
                                   float2 *out)
{
  if (sparse) {
#pragma unroll 1
    for (int i = from; i < to; i++) {
      float v = __half2float(value[i * stride]);
      out->x = term[2 * i] < 0 ? out->x : fmaf(term[2 * i], v, out->x);
      out->y = term[2 * i + 1] < 0 ? out->y : fmaf(term[2 * i + 1], v, out->y);
    }
    return;
  }
  int i = from;
  if (i & 1 && i < to) {
    float v = __half2float(value[i * stride]);
    out->x = fmaf(term[2 * i], v, out->x);
    out->y = fmaf(term[2 * i + 1], v, out->y);
    i++;
  }
#pragma unroll 8
  for (; i + 2 <= to; i += 2) {
    float4 two = *(const float4 *)(term + 2 * i);
    float v0 = __half2float(value[i * stride]), v1 = __half2float(value[(i + 1) * stride]);
    out->x = fmaf(two.x, v0, out->x);
    out->y = fmaf(two.y, v0, out->y);
    out->x = fmaf(two.z, v1, out->x);
    out->y = fmaf(two.w, v1, out->y);
  }
  if (i < to) {
    float v = __half2float(value[i * stride]);
    out->x = fmaf(term[2 * i], v, out->x);
    out->y = fmaf(term[2 * i + 1], v, out->y);
  }
}

/* A score that is not there. Arithmetic never makes this NaN: it has 0x7fffffff for all of them. */
enum : uint32_t { HIDDEN = 0xffffffff };

/* Scores of a chunk become terms, both [pairs][256][2]; a hidden one becomes -1. Warps share the heads: each finds the
 * largest of its head's 256 scores and makes its own part of the terms. */
template <int HEADS> static __device__ void terms_of_chunk(const float *score, float *term, float *most)
{
  enum { WARPS_EACH = THREADS / 32 / HEADS, EACH = FAST_CHUNK / WARPS_EACH };
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, h = warp / WARPS_EACH, from = warp % WARPS_EACH * EACH;
  int at = h / 2 * FAST_CHUNK * 2 + h % 2;
  float largest = -INFINITY;
#pragma unroll
  for (int j = 0; j < FAST_CHUNK; j += 32)
    largest = fmaxf(largest, score[at + 2 * (j + lane)]);
  for (int far = 16; far; far /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, far));
#pragma unroll 4
  for (int j = from + lane; j < from + EACH; j += 32) {
    float x = score[at + 2 * j];
    term[at + 2 * j] = f32_bits(x) == HIDDEN ? -1.0f : math_exp(x - largest);
  }
  if (lane == 0 && from == 0)
    most[h] = largest;
}

/* l of a head: a thread a lane of 16; term [256][2]. Lane 0 has the sum. */
static __device__ float fold_terms(const float *term, int lane)
{
  float sum = 0;
#pragma unroll
  for (int j = 0; j < FAST_CHUNK; j += FAST_LANES) {
    float x = term[2 * (j + lane)];
    sum += x < 0 ? 0 : x; /* NaN stays */
  }
  unsigned half_warp = 0xffffu << (threadIdx.x & 16);
  for (int half = FAST_LANES / 2; half; half /= 2)
    sum += __shfl_down_sync(half_warp, sum, half, FAST_LANES);
  return sum;
}

static __device__ int within(int x, int low, int high)
{
  return x < low ? low : x > high ? high : x;
}

/* ---- the kernel ---- */

template <int HEADS>
static __device__ void chunk_of_token(const op_attention &a, const cuda_step &s, const fast_room &r, int buffer,
                                      int token)
{
  enum { PAIRS = (HEADS + 1) / 2 };
  extern __shared__ float4 shared[];
  __shared__ float most[HEADS], total[HEADS];
  int even_dim = a.key_dim + a.key_dim % 2;
  char *blocks = (char *)shared;                   /* [BUFFERS][buffer] */
  float *q = (float *)(blocks + BUFFERS * buffer); /* [PAIRS][even_dim][2] */
  float *score = q + PAIRS * even_dim * 2;         /* [PAIRS][FAST_CHUNK][2] */
  float *term = score + PAIRS * FAST_CHUNK * 2;    /* the same */

  int tid = threadIdx.x;
  cuda_token t = s.token[token];
  sight sees = sight_of(a, t);
  int first = unit_first(a, sees, blockIdx.x, FAST_CHUNK);
  if (cuda_quantised(a.quant, t) || !unit_seen(sees, first, FAST_CHUNK))
    return;
  head_share share = share_of(a, blockIdx.y, HEADS);
  void *const *from = cuda_blocks(s, a.slot, t.row) + first / KV_BLOCK;
  size_t keys_at = ref_block_key(share.kv_head, a.key_dim, 0);
  size_t values_at = ref_block_value(a.kv_heads, a.key_dim, share.kv_head, a.value_dim, 0);
  auto ask_block = [&](int b, int buffer_at, size_t at, int dims) {
    if (unit_seen(sees, first + b * KV_BLOCK, KV_BLOCK))
      ask(blocks + buffer_at * buffer, (const __half *)from[b] + at, dims * KV_BLOCK * 2);
  };
  /* What earlier steps left may be read while the kernel before this one still runs. */
  if (first + FAST_CHUNK > t.row_position)
    cuda_await();
    /* Groups of copies: two of keys, a stage each, and one for each block of values. */
#pragma unroll 1
  for (int b = 0; b < BLOCKS + STAGE; b++) {
    bool keys = b < BLOCKS;
    ask_block(keys ? b : b - BLOCKS, b, keys ? keys_at : values_at, keys ? a.key_dim : a.value_dim);
    if (b % STAGE == STAGE - 1 || !keys)
      copy_commit();
  }

  cuda_await();
  const float *queries = a.q + ((int64_t)token * a.heads + share.first) * a.key_dim;
  for (int h = tid / 32; h < PAIRS * 2; h += THREADS / 32)
#pragma unroll 4
    for (int e = tid % 32; e < even_dim; e += 32)
      q[(h / 2 * even_dim + e) * 2 + h % 2] =
          h < share.count && e < a.key_dim ? a.scale * queries[h * a.key_dim + e] : 0;

      /* Scores. */
#pragma unroll 1
  for (int stage = 0; stage < BLOCKS; stage += STAGE) {
    if (stage == 0)
      copy_wait<1 + STAGE>(); /* the other keys, and values */
    else
      copy_wait<BLOCKS>();
    __syncthreads();
#pragma unroll 1
    for (int n = tid; n < STAGE_KEYS * PAIRS; n += THREADS) {
      int pair = n / STAGE_KEYS, j = stage * KV_BLOCK + n % STAGE_KEYS;
      const __half *key = (const __half *)(blocks + j / KV_BLOCK * buffer) + j % KV_BLOCK;
      float2 sum = pair_scores(key, q + pair * even_dim * 2, a.key_dim);
      bool seen = sight_sees(sees, first + j);
      int own = (int)t.position, h = share.first + 2 * pair;
      float2 *to = (float2 *)score + pair * FAST_CHUNK + j;
      to->x = seen && head_sees(a, h, own, first + j) ? attention_cap(a, sum.x) : f32_from_bits(HIDDEN);
      to->y = seen && head_sees(a, h + 1, own, first + j) ? attention_cap(a, sum.y) : f32_from_bits(HIDDEN);
    }
    __syncthreads();
    if (stage == 0)
#pragma unroll 1
      for (int b = STAGE; b < BLOCKS; b++) {
        ask_block(b, b - STAGE, values_at, a.value_dim);
        copy_commit();
      }
  }
  terms_of_chunk<HEADS>(score, term, most);
  __syncthreads();
  for (int h = tid / FAST_LANES; h < share.count && tid < HEADS * FAST_LANES; h += HEADS) {
    float sum = fold_terms(term + h / 2 * FAST_CHUNK * 2 + h % 2, tid % FAST_LANES);
    if (tid % FAST_LANES == 0) {
      total[h] = sum;
      r.most[fast_part(r, a, token, share.first + h, blockIdx.x)] = make_float2(most[h], sum);
    }
  }

  /* Values: a thread a dim of a pair. What is seen of the chunk are two stretches at most. */
  int kept = within(sees.keep - first, 0, FAST_CHUNK);
  int low = within(sees.low - first, kept, FAST_CHUNK), high = within(sees.high - first, low, FAST_CHUNK);
#pragma unroll 1
  for (int begin = 0; begin < a.value_dim * PAIRS; begin += THREADS) {
    int n = begin + tid, pair = n / a.value_dim, e = n % a.value_dim;
    float2 out = {0, 0};
#pragma unroll 1
    for (int b = 0; b < BLOCKS; b++) {
      if (begin == 0) {
        if (b == 0)
          copy_wait<3>();
        else if (b == 1)
          copy_wait<2>();
        else if (b == 2)
          copy_wait<1>();
        else
          copy_wait<0>();
        __syncthreads();
      }
      if (pair >= PAIRS)
        continue;
      const __half *value = (const __half *)(blocks + (b < STAGE ? BLOCKS + b : b - STAGE) * buffer) + e;
      const float *terms = term + (pair * FAST_CHUNK + b * KV_BLOCK) * 2;
      int begins = b * KV_BLOCK;
#pragma unroll 1
      for (int stretch = kept ? 0 : 1; stretch < 2; stretch++)
        pair_values(value, a.value_dim, terms, within((stretch ? low : 0) - begins, 0, KV_BLOCK),
                    within((stretch ? high : kept) - begins, 0, KV_BLOCK), a.sparse_block != 0, &out);
    }
    for (int i = 0; i < 2 && pair < PAIRS; i++) {
      int h = 2 * pair + i;
      float x = i ? out.y : out.x;
      if (h >= share.count)
        break;
      if (r.units == 1) /* nothing to join */
        a.out[((int64_t)token * a.heads + share.first + h) * a.value_dim + e] = x * (1.0f / total[h]);
      else
        r.out[fast_part(r, a, token, share.first + h, blockIdx.x) * a.value_dim + e] = x;
    }
  }
}

/* A block has several tokens only where there are many: most of those are in tiles, and blocks that only find that out
 * would cost more than this loop. */
template <int HEADS>
static __global__ void __launch_bounds__(THREADS, 2) step_chunk(op_attention a, cuda_step s, fast_room r, int buffer)
{
  cuda_release_next();
  for (int n = blockIdx.z; n < r.count; n += gridDim.z) {
    if (r.tiles && token_in_tile(a, s, r.first + n, r.first, r.count, false))
      continue;
    chunk_of_token<HEADS>(a, s, r, buffer, r.first + n);
    __syncthreads();
  }
  cuda_await(); /* whoever awaits this kernel relies on what was before it, too */
}

/* ---- launching ---- */

typedef void step_kernel(op_attention, cuda_step, fast_room, int);

/* By the query heads of a key/value head, ascending; more than the last go in shares. */
static const struct {
  int heads;
  step_kernel *kernel;
} step_kernels[] = {{1, step_chunk<1>}, {2, step_chunk<2>}, {4, step_chunk<4>}, {8, step_chunk<8>}};
enum { STEP_KERNELS = sizeof step_kernels / sizeof step_kernels[0] };

static int buffer_of(const op_attention *a)
{
  return (a->key_dim > a->value_dim ? a->key_dim : a->value_dim) * KV_BLOCK * 2;
}

static size_t shared_of(const op_attention *a, int heads)
{
  int pairs = (heads + 1) / 2, even_dim = a->key_dim + a->key_dim % 2;
  return (size_t)BUFFERS * buffer_of(a) + (size_t)pairs * 2 * (even_dim + 2 * FAST_CHUNK) * sizeof(float);
}

void fast_step_chunks(cuda_context *cx, const op_attention *a, const cuda_step *s, const fast_room *r)
{
  int i = 0;
  while (i + 1 < STEP_KERNELS && step_kernels[i].heads < a->heads / a->kv_heads)
    i++;
  int heads = step_kernels[i].heads;
  dim3 grid(r->units, share_count(*a, heads), r->tiles && r->count > MANY ? MANY : r->count);
  cuda_launch(cx, true, step_kernels[i].kernel, grid, dim3(THREADS), shared_of(a, heads), *a, *s, *r, buffer_of(a));
}

/* Heads so wide that a chunk does not fit (dims beyond 256) have no kernel here. */
bool fast_step_fits(const cuda_context *cx, const op_attention *a)
{
  return shared_of(a, 8) + 1024 <= cx->shared_most;
}

void fast_attention_step_setup(cuda_context *cx)
{
  for (int i = 0; i < STEP_KERNELS && cx->error == cudaSuccess; i++)
    cx->error = cudaFuncSetAttribute(step_kernels[i].kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)cx->shared_most - 1024);
}
