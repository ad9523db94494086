/* exact_one.cu - one token times a matrix in the layout CUDA_EXACT_4. Two kernels, by the number of rows.
 *
 * `stream`, for many rows: a lane has a row; each warp copies its own blocks ahead through a ring in shared memory,
 * with no barrier after the first, since a lane reads only what it copied itself. The body is 64 k: larger ones leave
 * the instruction cache (8 groups: three times slower). Four instructions a weight bound it: mask, fmaf, multiply, add.
 *
 * `chain`, for few rows (4096 rows are 128 warps, one for each multiprocessor: then the time is that of K additions in
 * a row, and everything else must get out of their way). One warp only adds. Six warps decode and multiply, and leave
 * products for it in shared memory, as float4 [16][32 lanes] for 64 k. The adding warp is warp 0 and has its scheduler
 * for itself (warp 4, which would share it, ends at once); it loads the next 16 products before it adds these.
 *
 * What failed in prototypes: lanes that share a row's products inside one warp (the compiler schedules the additions
 * first), two rows a lane, more product warps, bulk copies by computing warps (250 cycles and more each), and starting
 * before the predecessor ends with more than one block a multiprocessor: blocks pile up on some.
 */
#include "ops/cuda/exact_pack.cuh"

/* Shared memory of a multiprocessor that a block may count on, and a little for barriers. */
enum { ONE_SHARED = 227 * 1024, BODY_PRODUCTS = EXACT4_BODY * EXACT4_ROWS * 4 };

static inline __device__ void copy_input(const exact_job &job, float4 *to)
{
  for (int i = threadIdx.x; i < job.k / 4; i += blockDim.x)
    to[i] = ((const float4 *)job.x)[i];
}

/* Eight products with the inputs at x, of the weights of a word. */
template <bool SHORTCUT>
static inline __device__ void products(float (&p)[8], uint32_t word, const exact4_how &how, uint32_t one,
                                       const float4 *x)
{
  float value[8];
  exact4_decode<SHORTCUT>(word, how, one, value);
  float4 low = x[0], high = x[1];
  p[0] = low.x * value[0], p[1] = low.y * value[1], p[2] = low.z * value[2], p[3] = low.w * value[3];
  p[4] = high.x * value[4], p[5] = high.y * value[5], p[6] = high.z * value[6], p[7] = high.w * value[7];
}

/* ---- many rows ---- */

enum { STREAM_STAGES = 4, STREAM_WARPS = 8 };

template <int GROUP, bool SHORTCUT>
static __global__ void __launch_bounds__(32 * STREAM_WARPS) stream_kernel(exact_job job)
{
  /* A stage is a block: 64 k, or 128 where the group is. */
  constexpr int SPAN = 1 << exact4_span_log2(GROUP), BLOCK = exact4_block(GROUP), PAIRS = SPAN >> GROUP;
  constexpr int CHUNKS = SPAN / 32;
  extern __shared__ __align__(16) uint8_t shared[];
  const exact_output &out = job.out[exact_output_of(job, blockIdx.x)];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, blocks = (int)(job.k / SPAN);
  int64_t tile = (int64_t)(blockIdx.x - out.first) * (blockDim.x / 32) + warp;
  float4 *x = (float4 *)shared;
  uint8_t *ring = shared + job.k * 4 + warp * STREAM_STAGES * BLOCK;
  bool there = tile * EXACT4_ROWS < out.n;
  const uint8_t *from = out.data + (there ? tile : 0) * blocks * BLOCK;

  auto fetch = [&](int b, int slot) {
    if (b < blocks) {
      const uint8_t *source = from + (int64_t)b * BLOCK;
      uint8_t *to = ring + slot * BLOCK;
#pragma unroll
      for (int i = 0; i < CHUNKS; i++)
        exact_copy_16(to + i * 512 + lane * 16, source + i * 512 + lane * 16, 16);
#pragma unroll
      for (int i = 0; i < PAIRS; i++)
        exact_copy_4(to + CHUNKS * 512 + i * 128 + lane * 4, source + CHUNKS * 512 + i * 128 + lane * 4);
    }
    exact_commit();
  };
#pragma unroll
  for (int i = 0; i < STREAM_STAGES - 1; i++)
    fetch(i, i);
  copy_input(job, x);
  __syncthreads();
  if (!there)
    return;
  float sum = 0;
  int slot = 0;
#pragma unroll 1
  for (int b = 0; b < blocks; b++) {
    exact_wait<STREAM_STAGES - 2>();
    fetch(b + STREAM_STAGES - 1, slot == 0 ? STREAM_STAGES - 1 : slot - 1); /* the slot that was used last */
    const uint8_t *block = ring + slot * BLOCK;
#pragma unroll(GROUP > 6 ? 1 : 2)
    for (int body = 0; body < SPAN / EXACT4_BODY; body++) {
      exact4_how how;
#pragma unroll
      for (int c = 0; c < 2; c++) {
        int chunk = 2 * body + c;
        if (c == 0 || GROUP == 5) {
          int pair = GROUP == 5 ? c : 0;
          how = exact4_prepare<SHORTCUT>(job.stored, ((const uint32_t *)(block + CHUNKS * 512 + pair * 128))[lane]);
        }
        uint4 four = ((const uint4 *)(block + chunk * 512))[lane];
        uint32_t word[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
          float p[8];
          products<SHORTCUT>(p, word[j], how, job.one, x + b * (SPAN / 4) + chunk * 8 + j * 2);
#pragma unroll
          for (int i = 0; i < 8; i++)
            sum = sum + p[i];
        }
      }
    }
    slot = slot + 1 == STREAM_STAGES ? 0 : slot + 1;
  }
  int64_t n = tile * EXACT4_ROWS + lane;
  if (n < out.n)
    exact_finish<EXACT_PACKED>(out, 0, n, sum);
}

static size_t stream_shared(int group, int64_t k, int warps)
{
  return (size_t)k * 4 + (size_t)(warps * STREAM_STAGES * exact4_block(group));
}

/* ---- few rows ---- */

enum { CHAIN_SLOTS = 10, CHAIN_WARPS = 8, CHAIN_MAKERS = 6, CHAIN_IDLE = 4 };

static inline __device__ uint32_t barrier_at(const uint64_t *barrier)
{
  return (uint32_t)__cvta_generic_to_shared(barrier);
}

static inline __device__ void barrier_make(uint64_t *barrier)
{
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier_at(barrier)) : "memory");
}

static inline __device__ void barrier_arrive(uint64_t *barrier)
{
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier_at(barrier)) : "memory");
}

/* Whether the phase of this parity is over. */
static inline __device__ bool barrier_passed(uint64_t *barrier, uint32_t parity)
{
  uint32_t passed;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(passed)
               : "r"(barrier_at(barrier)), "r"(parity)
               : "memory");
#else
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(passed)
               : "r"(barrier_at(barrier)), "r"(parity)
               : "memory");
#endif
  return passed;
}

static inline __device__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
  while (!barrier_passed(barrier, parity))
    ;
}

/* What is on its way for one body. */
struct chain_weights {
  uint4 chunk[2];
  uint32_t pair[2];
};

template <int GROUP> static inline __device__ void chain_load(chain_weights &w, const uint8_t *tile, int body)
{
  int lane = threadIdx.x % 32;
  int64_t k = (int64_t)body * EXACT4_BODY;
  const uint4 *chunks = (const uint4 *)(tile + exact4_chunk(GROUP, k));
  const uint32_t *pairs = (const uint32_t *)(tile + exact4_group(GROUP, k));
  w.chunk[0] = __ldcs(chunks + lane);
  w.chunk[1] = __ldcs(chunks + 32 + lane);
  w.pair[0] = __ldcs(pairs + lane);
  if (GROUP == 5)
    w.pair[1] = __ldcs(pairs + 32 + lane);
}

/* Product warp `maker`: bodies maker, maker + CHAIN_MAKERS, ... */
template <int GROUP, bool SHORTCUT>
static inline __device__ void chain_make(const exact_job &job, const uint8_t *tile, const float4 *x, float4 *slots,
                                         uint64_t *full, uint64_t *empty, int maker, chain_weights w)
{
  int bodies = (int)(job.k / EXACT4_BODY), lane = threadIdx.x % 32;
#pragma unroll 1
  for (int b = maker; b < bodies; b += CHAIN_MAKERS) {
    int slot = b % CHAIN_SLOTS, round = b / CHAIN_SLOTS;
    exact4_how how = exact4_prepare<SHORTCUT>(job.stored, w.pair[0]);
    exact4_how second = GROUP == 5 ? exact4_prepare<SHORTCUT>(job.stored, w.pair[1]) : how;
    uint32_t word[8] = {w.chunk[0].x, w.chunk[0].y, w.chunk[0].z, w.chunk[0].w,
                        w.chunk[1].x, w.chunk[1].y, w.chunk[1].z, w.chunk[1].w};
    if (b + CHAIN_MAKERS < bodies)
      chain_load<GROUP>(w, tile, b + CHAIN_MAKERS);
    barrier_wait(empty + slot, (round & 1) ^ 1);
    float4 *to = slots + slot * (BODY_PRODUCTS / 16) + lane;
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float p[8];
      products<SHORTCUT>(p, word[j], GROUP == 5 && j >= 4 ? second : how, job.one, x + b * 16 + 2 * j);
      to[(2 * j) * 32] = make_float4(p[0], p[1], p[2], p[3]);
      to[(2 * j + 1) * 32] = make_float4(p[4], p[5], p[6], p[7]);
    }
    __syncwarp();
    if (lane == 0)
      barrier_arrive(full + slot);
  }
}

static inline __device__ float add_four(float sum, float4 p)
{
  sum = sum + p.x;
  sum = sum + p.y;
  sum = sum + p.z;
  return sum + p.w;
}

/* The adding warp: 16 products at a time, the next 16 in registers before these are added. */
static inline __device__ float chain_add(int bodies, const float4 *slots, uint64_t *full, uint64_t *empty)
{
  const float4 *mine = slots + threadIdx.x % 32;
  float sum = 0;
  float4 now[4], next[4];
  int slot = 0;
  uint32_t parity = 0;
  barrier_wait(full, 0);
#pragma unroll
  for (int i = 0; i < 4; i++)
    now[i] = mine[i * 32];
#pragma unroll 1
  for (int b = 0; b < bodies; b++) {
    int next_slot = slot + 1 == CHAIN_SLOTS ? 0 : slot + 1;
    uint32_t next_parity = next_slot ? parity : parity ^ 1;
    bool ready = true;
#pragma unroll
    for (int part = 0; part < 4; part++) {
      if (part == 2 && b + 1 < bodies)
        ready = barrier_passed(full + next_slot, next_parity);
      if (part == 3 && !ready)
        barrier_wait(full + next_slot, next_parity);
      const float4 *from = mine + (part < 3 ? slot : next_slot) * (BODY_PRODUCTS / 16) + (part + 1) % 4 * 128;
#pragma unroll
      for (int i = 0; i < 4; i++)
        next[i] = from[i * 32];
#pragma unroll
      for (int i = 0; i < 4; i++)
        sum = add_four(sum, now[i]);
      if (part == 3) {
        __syncwarp();
        if (threadIdx.x == 0)
          barrier_arrive(empty + slot);
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
        now[i] = next[i];
    }
    slot = next_slot;
    parity = next_parity;
  }
  return sum;
}

template <int GROUP, bool SHORTCUT>
static __global__ void __launch_bounds__(32 * CHAIN_WARPS) chain_kernel(exact_job job)
{
  extern __shared__ __align__(16) uint8_t shared[];
  const exact_output &out = job.out[exact_output_of(job, blockIdx.x)];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, bodies = (int)(job.k / EXACT4_BODY);
  int64_t tile = blockIdx.x - out.first;
  float4 *x = (float4 *)shared, *slots = (float4 *)(shared + job.k * 4);
  uint64_t *full = (uint64_t *)(slots + CHAIN_SLOTS * (BODY_PRODUCTS / 16)), *empty = full + CHAIN_SLOTS;
  const uint8_t *weights = out.data + tile * exact4_tile_bytes(GROUP, job.k);
  int maker = warp < CHAIN_IDLE ? warp - 1 : warp - 2;
  chain_weights w;
  if (threadIdx.x < CHAIN_SLOTS) {
    barrier_make(full + threadIdx.x);
    barrier_make(empty + threadIdx.x);
  }
  if (warp != 0 && warp != CHAIN_IDLE && maker < bodies)
    chain_load<GROUP>(w, weights, maker);
  copy_input(job, x);
  __syncthreads();
  if (warp == CHAIN_IDLE)
    return;
  if (warp != 0) {
    chain_make<GROUP, SHORTCUT>(job, weights, x, slots, full, empty, maker, w);
    return;
  }
  float sum = chain_add(bodies, slots, full, empty);
  int64_t n = tile * EXACT4_ROWS + lane;
  if (n < out.n)
    exact_finish<EXACT_PACKED>(out, 0, n, sum);
}

static size_t chain_shared(int64_t k)
{
  return (size_t)k * 4 + CHAIN_SLOTS * (BODY_PRODUCTS + 2 * sizeof(uint64_t));
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
  size_t most = cx->shared_most < ONE_SHARED ? cx->shared_most : ONE_SHARED;
  for (int g = 0; g < 3; g++)
    for (int quick = 0; quick < 2; quick++) {
      exact_allow(cx, streams[g][quick], most);
      exact_allow(cx, chains[g][quick], most);
    }
}

bool exact_one_launch(cuda_context *cx, exact_job *job)
{
  size_t most = cx->shared_most < ONE_SHARED ? cx->shared_most : ONE_SHARED;
  int tiles = exact_blocks(job, EXACT4_ROWS), group = job->group_log2, g = group - 5;
  if (job->tokens != 1 || !job->x_by_16)
    return false;
  if (tiles <= 2 * cx->processors && chain_shared(job->k) <= most) {
    cuda_launch(cx, false, chains[g][job->shortcut], dim3(tiles), dim3(32 * CHAIN_WARPS), chain_shared(job->k), *job);
    return true;
  }
  int warps = (int)cuda_ceil(tiles, cx->processors);
  warps = warps < STREAM_WARPS ? warps : STREAM_WARPS;
  while (warps > 1 && stream_shared(group, job->k, warps) > most)
    warps--;
  size_t shared = stream_shared(group, job->k, warps);
  if (shared > most)
    return false;
  int blocks = exact_blocks(job, EXACT4_ROWS * warps);
  cuda_launch(cx, false, streams[g][job->shortcut], dim3(blocks), dim3(32 * warps), shared, *job);
  return true;
}
