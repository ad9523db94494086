/* exact_attention_near.cu - exact attention of single tokens that see few keys: all of it in one kernel.
 *
 * With a thousand keys or less, three kernels spend most of their time on starting, and on fetching what the one before
 * has just written. Here a block of threads has a token and the query heads of one key/value head from scores to
 * outputs: a thread a key of all heads; a warp a head for the sum of its terms; then a thread a dim of a group of
 * heads, with the values in a ring that has been filling since the beginning. Its threads all help to fill it, so 512
 * of them are not too many for the 128 that add.
 *
 * From some depth on one multiprocessor a key/value head is too little memory bandwidth: then the three kernels of
 * exact_attention_step.cu are quicker.
 */
#include "ops/cuda/attention_copy.cuh"
#include "ops/cuda/exact_attention.cuh"
#include "ops/cuda/exact_attention_sums.cuh"

enum {
  THREADS = 512,
  WARPS = THREADS / 32,
  STAGE_KEYS = 32,
  SLOTS = 6,
  MOST_KEYS = 1024,
};

/* GROUP heads have their weights side by side, for the thread that adds for all of them. */
template <int HEADS> struct near_shape {
  enum { GROUP = HEADS < 4 ? HEADS : 4, GROUPS = HEADS / GROUP };
};

struct near_source {
  void *const *blocks;
  size_t values_at;
  int keys; /* that the token sees */
};

/* Asks for a stage of values, [STAGE_KEYS][value_dim], in the order of sums. */
static __device__ void ask_values(const op_attention &a, const sight &sees, const near_source &from, int stage,
                                  float *ring)
{
  int pieces = a.value_dim / 4, base = stage * STAGE_KEYS, count = from.keys - base;
  count = count < STAGE_KEYS ? count : STAGE_KEYS;
  float *slot = ring + stage % SLOTS * STAGE_KEYS * a.value_dim;
  for (int n = threadIdx.x; n < count * pieces; n += THREADS) {
    int key = n / pieces, p = sight_position(sees, base + key);
    copy_async(slot + n * 4, (const float *)from.blocks[p / KV_BLOCK] + from.values_at +
                                 (size_t)(p % KV_BLOCK) * a.value_dim + n % pieces * 4);
  }
  copy_commit();
}

/* Scores of the thread's keys, with the largest of each head over all threads. term [GROUPS][MOST_KEYS][GROUP]. */
template <int HEADS>
static __device__ void score_keys(const op_attention &a, const sight &sees, const near_source &from, int kv_head,
                                  const float *q, float *term, float *most)
{
  enum { GROUP = near_shape<HEADS>::GROUP };
  __shared__ float warp_most[WARPS][HEADS];
  float largest[HEADS];
#pragma unroll
  for (int h = 0; h < HEADS; h++)
    largest[h] = -INFINITY;
#pragma unroll 1
  for (int slot = threadIdx.x; slot < from.keys; slot += THREADS) {
    int p = sight_position(sees, slot);
    const float *key = (const float *)from.blocks[p / KV_BLOCK] + ref_block_key(kv_head, a.key_dim, p % KV_BLOCK);
    float sum[HEADS] = {};
    plain_scores<HEADS>(key, q, a.key_dim, sum);
    if (a.softcap != 0)
#pragma unroll
      for (int h = 0; h < HEADS; h++)
        sum[h] = capped_score(a.softcap, sum[h]);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      largest[h] = fmaxf(largest[h], sum[h]);
      term[(h / GROUP * MOST_KEYS + slot) * GROUP + h % GROUP] = sum[h];
    }
  }
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    for (int far = 16; far; far /= 2)
      largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], far));
    if (threadIdx.x % 32 == 0)
      warp_most[threadIdx.x / 32][h] = largest[h];
  }
  __syncthreads();
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    most[h] = warp_most[0][h];
    for (int w = 1; w < WARPS; w++)
      most[h] = fmaxf(most[h], warp_most[w][h]);
  }
}

/* One head's terms, GROUP apart, added up; terms up to a whole batch and one more may be read. */
template <int GROUP> static __device__ float add_terms(const float *term, int count)
{
  float sum = 0, now[BATCH], next[BATCH];
#pragma unroll
  for (int i = 0; i < BATCH; i++)
    now[i] = load_now(term + i * GROUP);
#pragma unroll 1
  for (int at = 0; at < count; at += BATCH) {
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      next[i] = load_now(term + (at + BATCH + i) * GROUP);
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      sum += now[i];
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      now[i] = next[i];
  }
  return sum;
}

template <int HEADS> static __device__ void near_token(const op_attention &a, const cuda_step &s, int token)
{
  typedef near_shape<HEADS> shape;
  enum { GROUP = shape::GROUP };
  extern __shared__ float4 shared[];
  __shared__ float inverse[HEADS];
  float *ring = (float *)shared;                             /* [SLOTS][STAGE_KEYS][value_dim] */
  float *term = ring + SLOTS * STAGE_KEYS * a.value_dim;     /* [GROUPS][MOST_KEYS][GROUP], and two batches */
  float *q = term + (HEADS * MOST_KEYS + 2 * BATCH * GROUP); /* [key_dim][HEADS] */
  int tid = threadIdx.x, warp = tid / 32;
  cuda_token t = s.token[token];
  sight sees = sight_of(a, t);
  head_share share = share_of(a, blockIdx.x, HEADS);
  near_source from;
  from.blocks = cuda_blocks(s, a.slot, t.row);
  from.values_at = ref_block_value(a.kv_heads, a.key_dim, share.kv_head, a.value_dim, 0);
  from.keys = sight_count(sees);
  int stages = (from.keys + STAGE_KEYS - 1) / STAGE_KEYS;
  /* What earlier steps left may be read while the kernel before this one still runs. */
  if (sees.keep || sees.moved || sees.low + (SLOTS - 1) * STAGE_KEYS > t.row_position)
    cuda_await();
  for (int stage = 0; stage < SLOTS - 1; stage++)
    if (stage < stages)
      ask_values(a, sees, from, stage, ring);
    else
      copy_commit();
  cuda_await();
  const float *queries = a.q + ((int64_t)token * a.heads + share.first) * a.key_dim;
  for (int n = tid; n < HEADS * a.key_dim; n += THREADS) {
    int h = n / a.key_dim, e = n % a.key_dim;
    q[e * HEADS + h] = h < share.count ? a.scale * queries[n] : 0;
  }
  __syncthreads();
  float most[HEADS];
  score_keys<HEADS>(a, sees, from, share.kv_head, q, term, most);
  /* Terms, by the thread that made the score, and zeros behind them: those change no sum. */
  int padded = (from.keys + BATCH - 1) / BATCH * BATCH;
#pragma unroll 1
  for (int slot = tid; slot < padded; slot += THREADS)
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      float *here = term + (h / GROUP * MOST_KEYS + slot) * GROUP + h % GROUP;
      *here = slot < from.keys ? math_exp(*here - most[h]) : 0;
    }
  __syncthreads();
  if (warp < HEADS) {
    float sum = add_terms<GROUP>(term + warp / GROUP * MOST_KEYS * GROUP + warp % GROUP, padded);
    if (tid % 32 == 0)
      inverse[warp] = 1.0f / sum;
  }
  __syncthreads();
#pragma unroll 1
  for (int slot = tid; slot < from.keys; slot += THREADS)
#pragma unroll
    for (int h = 0; h < HEADS; h++)
      term[(h / GROUP * MOST_KEYS + slot) * GROUP + h % GROUP] *= inverse[h];

  /* Values: a thread a dim of a group. */
  int group = tid / a.value_dim, e = tid % a.value_dim;
  float out[GROUP] = {};
#pragma unroll 1
  for (int stage = 0; stage < stages; stage++) {
    copy_wait<SLOTS - 2>();
    __syncthreads();
    if (stage + SLOTS - 1 < stages)
      ask_values(a, sees, from, stage + SLOTS - 1, ring);
    else
      copy_commit();
    int base = stage * STAGE_KEYS, count = from.keys - base;
    if (group >= shape::GROUPS)
      continue;
    const float *value = ring + stage % SLOTS * STAGE_KEYS * a.value_dim + e;
    const float *weight = term + (group * MOST_KEYS + base) * GROUP;
    if (count >= STAGE_KEYS) {
#pragma unroll
      for (int i = 0; i < STAGE_KEYS; i++)
#pragma unroll
        for (int h = 0; h < GROUP; h++)
          out[h] += weight[i * GROUP + h] * value[i * a.value_dim];
    } else {
      for (int i = 0; i < count; i++)
#pragma unroll
        for (int h = 0; h < GROUP; h++)
          out[h] += weight[i * GROUP + h] * value[i * a.value_dim];
    }
  }
#pragma unroll
  for (int h = 0; h < GROUP; h++)
    if (group < shape::GROUPS && group * GROUP + h < share.count)
      a.out[((int64_t)token * a.heads + share.first + group * GROUP + h) * a.value_dim + e] = out[h];
}

/* Blocks of threads (share, token). */
template <int HEADS> static __global__ void __launch_bounds__(THREADS, 2) near(op_attention a, cuda_step s)
{
  cuda_release_next();
  near_token<HEADS>(a, s, blockIdx.y);
  cuda_await();
}

/* ---- launching ---- */

/* By the query heads of a key/value head, ascending; more than the last go in shares. */
static const struct {
  int heads, group;
  void (*kernel)(op_attention, cuda_step);
} near_kernels[] = {
    {1, near_shape<1>::GROUP, near<1>},
    {2, near_shape<2>::GROUP, near<2>},
    {4, near_shape<4>::GROUP, near<4>},
    {8, near_shape<8>::GROUP, near<8>},
};
enum { NEAR_KERNELS = sizeof near_kernels / sizeof near_kernels[0] };

static int kernel_of(const op_attention *a)
{
  int i = 0;
  while (i + 1 < NEAR_KERNELS && near_kernels[i].heads < a->heads / a->kv_heads)
    i++;
  return i;
}

static size_t shared_of(const op_attention *a, int i)
{
  int heads = near_kernels[i].heads, group = near_kernels[i].group;
  size_t floats = (size_t)SLOTS * STAGE_KEYS * a->value_dim + (size_t)heads * (MOST_KEYS + a->key_dim);
  return (floats + 2 * BATCH * group) * sizeof(float);
}

/* Tokens of a step that all see few keys, plain ones. */
bool exact_near_fits(const cuda_context *cx, const op_attention *a, const cuda_step *s)
{
  int64_t keys = a->window && a->window < s->most_keys ? a->window : s->most_keys;
  int i = kernel_of(a), groups = near_kernels[i].heads / near_kernels[i].group;
  return keys <= MOST_KEYS && !a->sparse_block && !a->quant.bits && a->value_dim % 4 == 0 &&
         a->value_dim * groups <= THREADS && shared_of(a, i) <= dynamic_most(cx);
}

void exact_near_attention(cuda_context *cx, const op_attention *a, const cuda_step *s)
{
  int i = kernel_of(a);
  dim3 grid(share_count(*a, near_kernels[i].heads), s->tokens);
  cuda_launch(cx, true, near_kernels[i].kernel, grid, dim3(THREADS), shared_of(a, i), *a, *s);
}

void exact_near_setup(cuda_context *cx)
{
  for (int i = 0; i < NEAR_KERNELS; i++)
    allow_shared(cx, (const void *)near_kernels[i].kernel, dynamic_most(cx));
}
