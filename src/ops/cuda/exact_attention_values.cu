/* exact_attention_values.cu - exact's sums over the values of single tokens.
 *
 * A lane has one dim of one head and adds up all keys, in order: a chain. The chain warp of a block takes as many heads
 * as share the values and 32 / heads dims, so a value is read once, and one token of 32 heads of 128 dims makes 128
 * blocks, one for nearly each multiprocessor.
 *
 * The other seven warps supply it, each a stage of keys in turn: values by cp.async, weights (term / sum) by hand. With
 * seven stages being filled while one is used, no supplier's latency matters: a table of blocks, a term and a value
 * from device memory, one after another. (With all of them filling one stage ahead, at a barrier a stage, the chain
 * took 14 cycles a key instead of under 5. A warp of 32 dims for each head reads values four times: 44 us at depth
 * 8192. Products made by other warps meet the bandwidth of shared memory: 75 us.)
 *
 * Ready and free places of the ring are told by barriers in shared memory. A barrier only knows odd from even, so
 * nobody may be a whole round ahead: there are more places than suppliers.
 */
#include "ops/cuda/attention_barrier.cuh"
#include "ops/cuda/attention_copy.cuh"
#include "ops/cuda/exact_attention.cuh"
#include "ops/cuda/exact_attention_sums.cuh"

enum { SUPPLIERS = 7, THREADS = 32 * (1 + SUPPLIERS), PLACES = 10 };

/* A stage of the ring. */
template <int HEADS> struct value_stage {
  enum { DIMS = 32 / HEADS, PIECES = DIMS / 4, KEYS = HEADS == 1 ? 64 : 128 };
  float value[KEYS][DIMS];
  float weight[HEADS][KEYS + 4]; /* 4 for the banks */
};

template <int HEADS> struct value_ring {
  value_stage<HEADS> stage[PLACES];
  uint64_t ready[PLACES], free[PLACES];
};

/* What a block computes, and where it finds it. */
struct value_source {
  void *const *blocks;
  const float *term; /* of the share's first head */
  head_share share;
  sight sees;
  int keys, dim; /* that the token sees; first of the block's dims */
  int64_t old;   /* positions before it are of earlier steps */
  bool packed;
};

/* ---- suppliers ---- */

template <int HEADS>
static __device__ void supply_values(const op_attention &a, const value_source &from, int base, int count, int padded,
                                     value_stage<HEADS> *to)
{
  typedef value_stage<HEADS> shape;
#pragma unroll 4
  for (int n = threadIdx.x % 32; n < padded * shape::PIECES; n += 32) {
    int key = n / shape::PIECES, dim = n % shape::PIECES * 4, e = from.dim + dim;
    float *here = &to->value[key][dim];
    if (key >= count || e >= a.value_dim) {
      *(float4 *)here = make_float4(0, 0, 0, 0);
      continue;
    }
    int p = sight_position(from.sees, base + key), i = p % KV_BLOCK;
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
}

template <int HEADS>
static __device__ void supply_weights(const exact_room &r, const value_source &from, const float *inverse, int base,
                                      int count, int padded, value_stage<HEADS> *to)
{
  enum { EACH = value_stage<HEADS>::KEYS / 32 };
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    float e[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int key = 32 * i + lane;
      e[i] = key < count && h < from.share.count ? from.term[h * r.slots + base + key] : 0;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
      if (32 * i < padded)
        to->weight[h][32 * i + lane] = e[i] * inverse[h];
  }
}

/* Every SUPPLIERSth stage. The last is padded with zeros to whole batches of the chain: they change no sum. */
template <int HEADS>
static __device__ void supply(const op_attention &a, const exact_room &r, const value_source &from,
                              const float *inverses, value_ring<HEADS> *ring)
{
  enum { KEYS = value_stage<HEADS>::KEYS };
  float inverse[HEADS];
  bool waited = false;
  for (int stage = threadIdx.x / 32 - 1; stage * KEYS < from.keys; stage += SUPPLIERS) {
    int place = stage % PLACES, round = stage / PLACES, base = stage * KEYS, count = from.keys - base;
    int padded = count < KEYS ? (count + 2 * BATCH - 1) / (2 * BATCH) * (2 * BATCH) : KEYS;
    if (round)
      barrier_wait(&ring->free[place], (round - 1) % 2);
    /* What earlier steps left may be read while the kernel before this one still runs. */
    if (!waited && !(from.sees.keep == 0 && from.sees.moved == 0 && from.sees.low + base + KEYS <= from.old))
      cuda_await();
    supply_values<HEADS>(a, from, base, count, padded, &ring->stage[place]);
    if (!waited) {
      cuda_await();
#pragma unroll
      for (int h = 0; h < HEADS; h++)
        inverse[h] = h < from.share.count ? inverses[h] : 0;
      waited = true;
    }
    supply_weights<HEADS>(r, from, inverse, base, count, padded, &ring->stage[place]);
    copy_wait<0>();
    barrier_arrive(&ring->ready[place]);
  }
}

/* ---- the chain ---- */

/* The sum of one lane. Operands of the next batch are loaded before those of this one are added, across stages too. */
template <int HEADS> static __device__ float follow(const value_source &from, value_ring<HEADS> *ring)
{
  enum { KEYS = value_stage<HEADS>::KEYS, DIMS = value_stage<HEADS>::DIMS };
  int lane = threadIdx.x, d = lane % DIMS, h = lane / DIMS, place = 0, round = 0;
  int padded = (from.keys + 2 * BATCH - 1) / (2 * BATCH) * (2 * BATCH);
  float out = 0;
  auto load = [&](int key) {
    const value_stage<HEADS> &stage = ring->stage[place];
    return load_weighted<DIMS>(&stage.value[key][d], &stage.weight[h][key]);
  };
  barrier_wait(&ring->ready[0], 0);
  weighted_batch now = load(0), next;
#pragma unroll 1
  for (int at = 0, key = 0; at < padded; at += 2 * BATCH) {
    next = load(key + BATCH);
    out = add_weighted_batch(now, out);
    key += 2 * BATCH;
    int used = place;
    if (key == KEYS) {
      key = 0;
      place = place + 1 == PLACES ? 0 : place + 1;
      round += place == 0;
      if (at + 2 * BATCH < padded)
        barrier_wait(&ring->ready[place], round % 2);
    }
    if (at + 2 * BATCH < padded)
      now = load(key);
    out = add_weighted_batch(next, out);
    if (key == 0) {
      __syncwarp();
      if (lane == 0)
        barrier_arrive(&ring->free[used]);
    }
  }
  return out;
}

/* ---- the kernel ---- */

template <int HEADS>
static __device__ void values_of_token(const op_attention &a, const cuda_step &s, const exact_room &r,
                                       value_ring<HEADS> *ring, int token)
{
  enum { DIMS = value_stage<HEADS>::DIMS };
  cuda_token t = s.token[token];
  if (threadIdx.x < PLACES) {
    barrier_init(&ring->ready[threadIdx.x], 32);
    barrier_init(&ring->free[threadIdx.x], 1);
  }
  __syncthreads();
  value_source from;
  from.sees = sight_of(a, t);
  from.blocks = cuda_blocks(s, a.slot, t.row);
  from.share = share_of(a, blockIdx.y, HEADS);
  from.term = exact_scores_of(r, a, token, from.share.first);
  from.keys = sight_count(from.sees);
  from.dim = blockIdx.x * DIMS;
  from.packed = cuda_quantised(a.quant, t);
  from.old = t.row_position;
  if (threadIdx.x >= 32) {
    supply<HEADS>(a, r, from, r.inverse + (token - r.first) * a.heads + from.share.first, ring);
    return;
  }
  float out = follow<HEADS>(from, ring);
  int d = from.dim + threadIdx.x % DIMS, h = threadIdx.x / DIMS;
  if (h < from.share.count && d < a.value_dim)
    a.out[((int64_t)token * a.heads + from.share.first + h) * a.value_dim + d] = out;
}

template <int HEADS>
static __global__ void __launch_bounds__(THREADS) step_values(op_attention a, cuda_step s, exact_room r)
{
  extern __shared__ float4 shared[];
  cuda_release_next();
  for_lone_tokens(a, s, r.first, r.count, r.tiles, true, [&](int token) {
    if (!exact_takes(r, a, s.token[token]))
      return;
    value_ring<HEADS> *ring = (value_ring<HEADS> *)shared;
    values_of_token<HEADS>(a, s, r, ring, token);
    __syncthreads();
    if (threadIdx.x < PLACES) {
      barrier_end(&ring->ready[threadIdx.x]);
      barrier_end(&ring->free[threadIdx.x]);
    }
  });
  cuda_await(); /* whoever awaits this kernel relies on what was before it, too */
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

/* By the query heads of a key/value head, ascending; more than the last go in shares. */
static const struct {
  int heads;
  void (*kernel)(op_attention, cuda_step, exact_room);
  size_t shared;
} value_kernels[] = {
    {1, step_values<1>, sizeof(value_ring<1>)},
    {2, step_values<2>, sizeof(value_ring<2>)},
    {4, step_values<4>, sizeof(value_ring<4>)},
    {8, step_values<8>, sizeof(value_ring<8>)},
};
enum { VALUE_KERNELS = sizeof value_kernels / sizeof value_kernels[0] };

void exact_step_values(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r)
{
  int i = 0;
  while (i + 1 < VALUE_KERNELS && value_kernels[i].heads < a->heads / a->kv_heads)
    i++;
  if (a->sparse_block || a->value_dim % 4 || value_kernels[i].shared > dynamic_most(cx)) {
    dim3 grid((unsigned)cuda_ceil(a->value_dim, 128), a->heads, r->count);
    cuda_launch(cx, false, plain_values, grid, dim3(128), 0, *a, *s, *r);
    return;
  }
  int heads = value_kernels[i].heads;
  dim3 grid((unsigned)cuda_ceil(a->value_dim, 32 / heads), share_count(*a, heads), lone_blocks(r->count, r->tiles));
  cuda_launch(cx, true, value_kernels[i].kernel, grid, dim3(THREADS), value_kernels[i].shared, *a, *s, *r);
}

void exact_values_setup(cuda_context *cx)
{
  for (int i = 0; i < VALUE_KERNELS; i++)
    allow_shared(cx, (const void *)value_kernels[i].kernel, value_kernels[i].shared);
}
