/* exact_attention_values.cu - exact's sums over the values of single tokens.
 *
 * A lane has one dim of one head and adds up all keys, in order: a chain. A block of threads has some dims of the heads
 * that share the values, and beside the warps of its chains four that do nothing but ask for what those will need:
 * values and terms, by cp.async, up to ten stages of 64 keys ahead. Ready and free places of the ring are told by
 * barriers in shared memory. A barrier only knows odd from even, so nobody may be a whole round ahead: there are more
 * places than suppliers.
 *
 * Four heads have 32 dims a block, and 16 where tokens are few: then twice as many multiprocessors have chains, and
 * values are read once. A single token's chain goes at 10 cycles a key, where an addition takes 4.16; why is not known.
 *
 * What failed: a warp of 8 dims of 4 heads, which reads 32 bytes of a line at a time (32 rows at depth 8192 took twice
 * as long). Products made by other warps: they meet the bandwidth of shared memory (75 us at depth 8192). Four keys of
 * a dim side by side in shared memory, a load for all (no quicker).
 */
#include "ops/cuda/barrier.cuh"
#include "ops/cuda/copy.cuh"
#include "ops/cuda/exact_attention.cuh"
#include "ops/cuda/exact_attention_sums.cuh"

enum {
  KEYS = VALUES_AT_ONCE, /* of a stage */
  PLACES = 10,           /* of the ring */
  SUPPLIERS = 4,         /* warps */
};

/* WARPS chain warps; a lane has one of DIMS dims of one of the heads. */
template <int WARPS, int DIMS> struct value_stage {
  enum { WARP_HEADS = 32 / DIMS, HEADS = WARPS * WARP_HEADS, PIECES = DIMS / 4 };
  float value[KEYS][DIMS];
  float term[HEADS][KEYS];
};

template <int WARPS, int DIMS> struct value_ring {
  value_stage<WARPS, DIMS> stage[PLACES];
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
  size_t values_at;
  bool packed;
};

/* ---- suppliers ---- */

/* Terms of a stage by hand, and zeros behind the last. */
template <int WARPS, int DIMS>
static __device__ void fill_terms(const exact_room &r, const value_source &from, int base, value_stage<WARPS, DIMS> *to)
{
#pragma unroll 4
  for (int n = threadIdx.x % 32; n < to->HEADS * KEYS; n += 32) {
    int h = n / KEYS, key = n % KEYS;
    to->term[h][key] = base + key < from.keys && h < from.share.count ? from.term[h * r.slots + base + key] : 0;
  }
}

/* The block's dims of the value in a slot; NULL: behind the last. */
static __device__ const float *row_of(const op_attention &a, const value_source &from, int slot)
{
  if (slot >= from.keys)
    return nullptr;
  int p = sight_position(from.sees, slot);
  return (const float *)from.blocks[p / KV_BLOCK] + from.values_at + (int64_t)(p % KV_BLOCK) * a.value_dim;
}

/* A stage of plain values, and its terms: asked for, and the barrier will hear when all is there. Where rows are, each
 * lane finds out for two keys, at once: found one by one, a table's latency for each, this took 14 cycles a key. The
 * last stage is padded with zeros, which change no sum. */
template <int WARPS, int DIMS>
static __device__ void ask_stage(const op_attention &a, const exact_room &r, const value_source &from, int base,
                                 value_stage<WARPS, DIMS> *to, uint64_t *ready, bool await)
{
  enum { PIECES = DIMS / 4 };
  int lane = threadIdx.x % 32, dim = lane % PIECES * 4;
  const float *row[2] = {row_of(a, from, base + lane), row_of(a, from, base + 32 + lane)};
  bool whole = base + KEYS <= from.keys, is = from.dim + dim < a.value_dim;
#pragma unroll
  for (int half = 0; half < 2; half++)
#pragma unroll
    for (int key = 0; key < 32; key += 32 / PIECES) {
      int mine = key + lane / PIECES;
      const float *from_row = (const float *)__shfl_sync(~0u, (unsigned long long)row[half], mine);
      float *here = &to->value[32 * half + mine][dim];
      if (from_row && is)
        copy_async(here, from_row + dim);
      else
        *(float4 *)here = make_float4(0, 0, 0, 0);
    }
  if (await)
    cuda_await();
  if (whole) {
    for (int n = lane; n < to->HEADS * (KEYS / 4); n += 32) {
      int h = n / (KEYS / 4), key = n % (KEYS / 4) * 4;
      if (h < from.share.count)
        copy_async(&to->term[h][key], from.term + h * r.slots + base + key);
    }
    barrier_arrive_after_copies(ready);
    return;
  }
  fill_terms<WARPS, DIMS>(r, from, base, to);
  copy_commit();
  copy_wait<0>();
  barrier_arrive(ready);
}

/* A stage of quantised values, eight keys at a time. */
template <int WARPS, int DIMS>
static __device__ void unpack_stage(const op_attention &a, const exact_room &r, const value_source &from, int base,
                                    value_stage<WARPS, DIMS> *to, uint64_t *ready)
{
  enum { EACH = 8, WARP_HEADS = 32 / DIMS };
  int lane = threadIdx.x % 32, dim = lane % DIMS, e = from.dim + dim;
#pragma unroll 1
  for (int key = lane / DIMS; key < KEYS; key += EACH * WARP_HEADS) {
    float x[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int slot = base + key + i * WARP_HEADS;
      x[i] = 0;
      if (slot >= from.keys || e >= a.value_dim)
        continue;
      int p = sight_position(from.sees, slot);
      ref_packed values = ref_packed_values(&a.quant, from.blocks[p / KV_BLOCK], a.kv_heads, a.key_dim,
                                            from.share.kv_head, a.value_dim);
      x[i] = ref_packed_value_at(&values, &a.quant, DT_F32, p % KV_BLOCK, e);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
      to->value[key + i * WARP_HEADS][dim] = x[i];
  }
  cuda_await();
  fill_terms<WARPS, DIMS>(r, from, base, to);
  barrier_arrive(ready);
}

/* Every SUPPLIERSth stage. */
template <int WARPS, int DIMS>
static __device__ void supply(const op_attention &a, const exact_room &r, const value_source &from,
                              value_ring<WARPS, DIMS> *ring)
{
  bool first = true;
  for (int stage = threadIdx.x / 32 - WARPS; stage * KEYS < from.keys; stage += SUPPLIERS) {
    int place = stage % PLACES, round = stage / PLACES, base = stage * KEYS;
    if (round)
      barrier_wait(&ring->free[place], (round - 1) % 2);
    /* What earlier steps left may be read while the kernel before this one still runs (fill_stage reads terms with it).
     */
    bool old = !from.packed && from.sees.keep == 0 && from.sees.moved == 0 && from.sees.low + base + KEYS <= from.old;
    if (first && !old)
      cuda_await();
    if (from.packed)
      unpack_stage<WARPS, DIMS>(a, r, from, base, &ring->stage[place], &ring->ready[place]);
    else
      ask_stage<WARPS, DIMS>(a, r, from, base, &ring->stage[place], &ring->ready[place], first && old);
    first = false;
  }
}

/* ---- the chain ---- */

/* The sum of one lane. */
template <int WARPS, int DIMS>
static __device__ float follow(const value_source &from, float inverse, value_ring<WARPS, DIMS> *ring)
{
  int lane = threadIdx.x % 32, h = threadIdx.x / DIMS, place = 0, round = 0;
  float out = 0;
#pragma unroll 1
  for (int at = 0; at < from.keys; at += KEYS) {
    const value_stage<WARPS, DIMS> &stage = ring->stage[place];
    barrier_wait(&ring->ready[place], round % 2);
    out = add_weighted<DIMS>(stage.term[h], inverse, &stage.value[0][lane % DIMS], out);
    __syncwarp();
    if (lane == 0)
      barrier_arrive(&ring->free[place]);
    place = place + 1 == PLACES ? 0 : place + 1;
    round += place == 0;
  }
  return out;
}

/* ---- the kernel ---- */

template <int WARPS, int DIMS>
static __device__ void values_of_token(const op_attention &a, const cuda_step &s, const exact_room &r,
                                       value_ring<WARPS, DIMS> *ring, int token)
{
  cuda_token t = s.token[token];
  if (threadIdx.x < PLACES) {
    barrier_init(&ring->ready[threadIdx.x], 32);
    barrier_init(&ring->free[threadIdx.x], WARPS);
  }
  __syncthreads();
  value_source from;
  from.sees = sight_of(a, t);
  from.blocks = cuda_blocks(s, a.slot, t.row);
  from.share = share_of(a, blockIdx.y, ring->stage[0].HEADS);
  from.term = exact_scores_of(r, a, token, from.share.first);
  from.keys = sight_count(from.sees);
  from.dim = blockIdx.x * DIMS;
  from.old = t.row_position;
  from.values_at = ref_block_value(a.kv_heads, a.key_dim, from.share.kv_head, a.value_dim, 0) + from.dim;
  from.packed = cuda_quantised(a.quant, t);
  int h = threadIdx.x / DIMS, e = from.dim + threadIdx.x % DIMS;
  if (threadIdx.x >= 32 * WARPS) {
    supply<WARPS, DIMS>(a, r, from, ring);
    return;
  }
  cuda_await();
  int64_t query = (int64_t)(token - r.first) * a.heads + from.share.first + h;
  float out = follow<WARPS, DIMS>(from, h < from.share.count ? r.inverse[query] : 0, ring);
  if (h < from.share.count && e < a.value_dim)
    a.out[(query + (int64_t)r.first * a.heads) * a.value_dim + e] = out;
}

template <int WARPS, int DIMS>
static __global__ void __launch_bounds__(32 * (WARPS + SUPPLIERS))
    step_values(op_attention a, cuda_step s, exact_room r)
{
  extern __shared__ float4 shared[];
  value_ring<WARPS, DIMS> *ring = (value_ring<WARPS, DIMS> *)shared;
  cuda_release_next();
  for_lone_tokens(a, s, r.first, r.count, r.tiles, true, [&](int token) {
    if (!exact_takes(r, a, s.token[token]))
      return;
    values_of_token<WARPS, DIMS>(a, s, r, ring, token);
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

typedef void value_kernel(op_attention, cuda_step, exact_room);

/* By the heads that share values, ascending, more than the last go in shares; where tokens are few, half as many dims a
 * block of threads, so that twice as many multiprocessors have chains. */
static const struct {
  int heads, warps, dims, few_warps, few_dims;
  value_kernel *kernel, *few;
  size_t shared, few_shared;
} value_kernels[] = {
    {1, 1, 32, 1, 32, step_values<1, 32>, step_values<1, 32>, sizeof(value_ring<1, 32>), sizeof(value_ring<1, 32>)},
    {2, 2, 32, 1, 16, step_values<2, 32>, step_values<1, 16>, sizeof(value_ring<2, 32>), sizeof(value_ring<1, 16>)},
    {4, 4, 32, 2, 16, step_values<4, 32>, step_values<2, 16>, sizeof(value_ring<4, 32>), sizeof(value_ring<2, 16>)},
    {8, 4, 16, 4, 16, step_values<4, 16>, step_values<4, 16>, sizeof(value_ring<4, 16>), sizeof(value_ring<4, 16>)},
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
  int shares = share_count(*a, value_kernels[i].heads);
  bool few = cuda_ceil(a->value_dim, value_kernels[i].dims) * shares * r->count < cx->processors;
  int warps = few ? value_kernels[i].few_warps : value_kernels[i].warps;
  int dims = few ? value_kernels[i].few_dims : value_kernels[i].dims;
  dim3 grid((unsigned)cuda_ceil(a->value_dim, dims), shares, lone_blocks(r->count, r->tiles));
  cuda_launch(cx, true, few ? value_kernels[i].few : value_kernels[i].kernel, grid, dim3(32 * (warps + SUPPLIERS)),
              few ? value_kernels[i].few_shared : value_kernels[i].shared, *a, *s, *r);
}

void exact_values_setup(cuda_context *cx)
{
  for (int i = 0; i < VALUE_KERNELS; i++) {
    allow_shared(cx, (const void *)value_kernels[i].kernel, value_kernels[i].shared);
    allow_shared(cx, (const void *)value_kernels[i].few, value_kernels[i].few_shared);
  }
}
