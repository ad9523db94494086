/* exact_one.cu - one token times a matrix in the layout CUDA_EXACT_4. Two kernels, by the number of rows.
 *
 * `stream`, for many rows: a lane has a row; each warp copies its own blocks ahead through a ring in shared memory,
 * with no barrier after the first, since a lane reads only what it copied itself. The body is 64 k: larger ones leave
 * the instruction cache (8 groups: three times slower). Four instructions a weight bound it: mask, fmaf, multiply, add.
 *
 * `chain`, for few rows: one warp only adds, six make products for it (exact_chain.cuh).
 *
 * What failed in prototypes: lanes that share a row's products inside one warp (the compiler schedules the additions
 * first), two rows a lane, more product warps, bulk copies by computing warps (250 cycles and more each), and starting
 * before the predecessor ends with more than one block a multiprocessor: blocks pile up on some.
 */
#include "ops/cuda/copy.cuh"
#include "ops/cuda/exact_chain.cuh"
#include "ops/cuda/exact_pack.cuh"

static_assert((int)CHAIN_BODY == (int)EXACT4_BODY, "makers of products take the bodies of the layout");

/* All at once, not a round trip for each 16 bytes of a thread. */
static inline __device__ void copy_input(const exact_job &job, float4 *to)
{
  for (int i = threadIdx.x; i < job.k / 4; i += blockDim.x)
    copy_async_part(to + i, (const float4 *)job.x + i, 16);
  copy_commit();
}

/* Eight products, of the weights of a word and these inputs. */
template <bool SHORTCUT>
static inline __device__ void products(float (&p)[8], uint32_t word, const exact4_how &how, uint32_t one, float4 low,
                                       float4 high)
{
  float value[4];
  exact4_decode<SHORTCUT>(word, how, one, value);
  p[0] = low.x * value[0], p[1] = low.y * value[1], p[2] = low.z * value[2], p[3] = low.w * value[3];
  exact4_decode<SHORTCUT>(exact4_swap(word), how, one, value);
  p[4] = high.x * value[0], p[5] = high.y * value[1], p[6] = high.z * value[2], p[7] = high.w * value[3];
}

/* A lane's weights of a body. */
template <int GROUP> struct body {
  uint32_t word[8], pair[GROUP == 5 ? 2 : 1];
};

/* ---- many rows ---- */

enum { STREAM_SLOTS = 4, STREAM_WARPS = 8 };

/* A slot of the ring has a body: two chunks a lane, then the words of its groups. */
static constexpr __host__ __device__ int slot_bytes(int group)
{
  return 2 * 512 + (group == 5 ? 2 : 1) * 128;
}

template <int GROUP> static inline __device__ void stream_fetch(uint8_t *slot, const uint8_t *tile, int b)
{
  const uint8_t *chunks = tile + exact4_chunk(GROUP, (int64_t)b * EXACT4_BODY);
  const uint8_t *pairs = tile + exact4_group(GROUP, (int64_t)b * EXACT4_BODY);
  int lane = threadIdx.x % 32;
  copy_async_part(slot + lane * 16, chunks + lane * 16, 16);
  copy_async_part(slot + 512 + lane * 16, chunks + 512 + lane * 16, 16);
  copy_async_4(slot + 1024 + lane * 4, pairs + lane * 4);
  if (GROUP == 5)
    copy_async_4(slot + 1152 + lane * 4, pairs + 128 + lane * 4);
}

template <int GROUP> static inline __device__ void stream_read(body<GROUP> &w, const uint8_t *slot)
{
  int lane = threadIdx.x % 32;
  *(uint4 *)w.word = ((const uint4 *)slot)[lane];
  *(uint4 *)(w.word + 4) = ((const uint4 *)slot)[32 + lane];
  w.pair[0] = ((const uint32_t *)(slot + 1024))[lane];
  if (GROUP == 5)
    w.pair[1] = ((const uint32_t *)(slot + 1152))[lane];
}

/* The additions are one chain; for nothing else to be waited for, products are a word ahead of them, and the registers
 * that products are made of are filled a body (weights) and a word (inputs) ahead. What is read ahead at the end lies
 * in the block's shared memory and is not used. */
template <int GROUP, bool SHORTCUT>
static __global__ void __launch_bounds__(32 * STREAM_WARPS, 1) stream_kernel(exact_job job)
{
  extern __shared__ __align__(16) uint8_t shared[];
  const exact_output &out = job.out[exact_output_of(job, blockIdx.x)];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, bodies = (int)(job.k / EXACT4_BODY);
  int64_t tile = (int64_t)(blockIdx.x - out.first) * (blockDim.x / 32) + warp;
  const float4 *x = (const float4 *)shared;
  uint8_t *ring = shared + job.k * 4 + warp * STREAM_SLOTS * slot_bytes(GROUP);
  bool there = tile * EXACT4_ROWS < out.n;
  const uint8_t *weights = out.data + (there ? tile : 0) * exact4_tile_bytes(GROUP, job.k);

  cuda_release_next();
#pragma unroll
  for (int i = 0; i < STREAM_SLOTS - 1; i++) {
    if (i < bodies)
      stream_fetch<GROUP>(ring + i * slot_bytes(GROUP), weights, i);
    copy_commit();
  }
  cuda_await();
  copy_input(job, (float4 *)shared);
  copy_wait<0>();
  __syncthreads();
  if (!there)
    return;
  body<GROUP> now, next;
  stream_read(now, ring);
  exact4_how how = exact4_prepare<SHORTCUT>(job.stored, now.pair[0]), second = how;
  float p[8], sum = 0;
  float4 low = x[2], high = x[3];
  products<SHORTCUT>(p, now.word[0], how, job.one, x[0], x[1]);
  int slot = 0;
#pragma unroll 1
  for (int b = 0; b < bodies; b++, x += EXACT4_BODY / 4) {
    int after = slot + 1 == STREAM_SLOTS ? 0 : slot + 1, last = slot == 0 ? STREAM_SLOTS - 1 : slot - 1;
    copy_wait<STREAM_SLOTS - 3>();
    stream_read(next, ring + after * slot_bytes(GROUP));
    if (b + STREAM_SLOTS - 1 < bodies)
      stream_fetch<GROUP>(ring + last * slot_bytes(GROUP), weights, b + STREAM_SLOTS - 1);
    copy_commit();
    if (GROUP == 5)
      second = exact4_prepare<SHORTCUT>(job.stored, now.pair[GROUP == 5]);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float q[8];
      float4 x_low = low, x_high = high;
      low = x[2 * j + 4], high = x[2 * j + 5];
      if (j == 7)
        how = exact4_prepare<SHORTCUT>(job.stored, next.pair[0]);
      products<SHORTCUT>(q, j < 7 ? now.word[j < 7 ? j + 1 : 0] : next.word[0],
                         GROUP == 5 && j >= 3 && j < 7 ? second : how, job.one, x_low, x_high);
#pragma unroll
      for (int i = 0; i < 8; i++) {
        sum = sum + p[i];
        p[i] = q[i];
      }
    }
    now = next;
    slot = after;
  }
  int64_t n = tile * EXACT4_ROWS + lane;
  if (n < out.n)
    exact_finish<EXACT_PACKED>(out, 0, n, sum);
}

static size_t stream_shared(int group, int64_t k, int warps)
{
  return (size_t)k * 4 + (size_t)(warps * STREAM_SLOTS * slot_bytes(group));
}

/* ---- few rows ---- */

enum { CHAIN_SLOTS = 10, CHAIN_WARPS = 8 };

template <int GROUP> static inline __device__ void chain_load(body<GROUP> &w, const uint8_t *tile, int b)
{
  int lane = threadIdx.x % 32;
  const uint4 *chunks = (const uint4 *)(tile + exact4_chunk(GROUP, (int64_t)b * EXACT4_BODY));
  const uint32_t *pairs = (const uint32_t *)(tile + exact4_group(GROUP, (int64_t)b * EXACT4_BODY));
  *(uint4 *)w.word = __ldcs(chunks + lane);
  *(uint4 *)(w.word + 4) = __ldcs(chunks + 32 + lane);
  w.pair[0] = __ldcs(pairs + lane);
  if (GROUP == 5)
    w.pair[GROUP == 5] = __ldcs(pairs + 32 + lane);
}

/* Product warp `maker`: bodies maker, maker + CHAIN_MAKERS, ... */
template <int GROUP, bool SHORTCUT>
static inline __device__ void chain_make(const exact_job &job, const uint8_t *tile, const float4 *x, float4 *slots,
                                         uint64_t *full, uint64_t *empty, int maker, body<GROUP> next)
{
  int bodies = (int)(job.k / EXACT4_BODY), lane = threadIdx.x % 32;
#pragma unroll 1
  for (int b = maker; b < bodies; b += CHAIN_MAKERS) {
    int slot = b % CHAIN_SLOTS, round = b / CHAIN_SLOTS;
    body<GROUP> now = next;
    exact4_how how = exact4_prepare<SHORTCUT>(job.stored, now.pair[0]), second = how;
    if (GROUP == 5)
      second = exact4_prepare<SHORTCUT>(job.stored, now.pair[GROUP == 5]);
    if (b + CHAIN_MAKERS < bodies)
      chain_load<GROUP>(next, tile, b + CHAIN_MAKERS);
    barrier_wait(empty + slot, (round & 1) ^ 1);
    float4 *to = slots + slot * (CHAIN_PRODUCTS / 16) + lane;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float p[8];
      products<SHORTCUT>(p, now.word[j], GROUP == 5 && j >= 4 ? second : how, job.one, x[b * 16 + 2 * j],
                         x[b * 16 + 2 * j + 1]);
      to[(2 * j) * 32] = make_float4(p[0], p[1], p[2], p[3]);
      to[(2 * j + 1) * 32] = make_float4(p[4], p[5], p[6], p[7]);
    }
    __syncwarp();
    if (lane == 0)
      barrier_arrive(full + slot);
  }
}

template <int GROUP, bool SHORTCUT>
static __global__ void __launch_bounds__(32 * CHAIN_WARPS, 1) chain_kernel(exact_job job)
{
  extern __shared__ __align__(16) uint8_t shared[];
  const exact_output &out = job.out[exact_output_of(job, blockIdx.x)];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, bodies = (int)(job.k / EXACT4_BODY);
  int64_t tile = blockIdx.x - out.first;
  float4 *x = (float4 *)shared, *slots = (float4 *)(shared + job.k * 4);
  uint64_t *full = (uint64_t *)(slots + CHAIN_SLOTS * (CHAIN_PRODUCTS / 16)), *empty = full + CHAIN_SLOTS;
  const uint8_t *weights = out.data + tile * exact4_tile_bytes(GROUP, job.k);
  int maker = warp < CHAIN_IDLE ? warp - 1 : warp - 2;
  body<GROUP> w;
  cuda_release_next();
  if (threadIdx.x < CHAIN_SLOTS) {
    barrier_init(full + threadIdx.x, 1);
    barrier_init(empty + threadIdx.x, 1);
  }
  if (warp != 0 && warp != CHAIN_IDLE && maker < bodies)
    chain_load<GROUP>(w, weights, maker);
  cuda_await();
  copy_input(job, x);
  copy_wait<0>();
  __syncthreads();
  if (warp == CHAIN_IDLE)
    return;
  if (warp != 0) {
    chain_make<GROUP, SHORTCUT>(job, weights, x, slots, full, empty, maker, w);
    return;
  }
  float sum = chain_add<CHAIN_SLOTS>(0, bodies, slots, full, empty);
  int64_t n = tile * EXACT4_ROWS + lane;
  if (n < out.n)
    exact_finish<EXACT_PACKED>(out, 0, n, sum);
}

static size_t chain_shared(int64_t k)
{
  return (size_t)k * 4 + CHAIN_SLOTS * (CHAIN_PRODUCTS + 2 * sizeof(uint64_t));
}

/* ---- launching ---- */

/* [log2 of the group - 5][shortcut] */
#define KERNELS(name)                                                                                                  \
  {                                                                                                                    \
    {name<5, false>, name<5, true>}, {name<6, false>, name<6, true>},                                                  \
    {                                                                                                                  \
      name<7, false>, name<7, true>                                                                                    \
    }                                                                                                                  \
  }
static exact_kernel *const streams[3][2] = KERNELS(stream_kernel);
static exact_kernel *const chains[3][2] = KERNELS(chain_kernel);
#undef KERNELS

void exact_one_setup(cuda_context *cx)
{
  for (int g = 0; g < 3; g++)
    for (int quick = 0; quick < 2; quick++) {
      exact_allow(cx, streams[g][quick], cx->shared_most);
      exact_allow(cx, chains[g][quick], cx->shared_most);
    }
}

bool exact_one_launch(cuda_context *cx, exact_job *job)
{
  int tiles = exact_blocks(job, EXACT4_ROWS), group = job->group_log2;
  if (job->tokens != 1 || !job->x_by_16)
    return false;
  if (tiles <= 2 * cx->processors && chain_shared(job->k) <= cx->shared_most) {
    exact_launch_alone(cx, chains[group - 5][job->shortcut], job, tiles, CHAIN_WARPS, chain_shared(job->k));
    return true;
  }
  int warps = (int)cuda_ceil(tiles, cx->processors);
  warps = warps < STREAM_WARPS ? warps : STREAM_WARPS;
  while (warps > 1 && stream_shared(group, job->k, warps) > cx->shared_most)
    warps--;
  if (stream_shared(group, job->k, warps) > cx->shared_most)
    return false;
  int blocks = exact_blocks(job, EXACT4_ROWS * warps);
  exact_launch_alone(cx, streams[group - 5][job->shortcut], job, blocks, warps, stream_shared(group, job->k, warps));
  return true;
}
