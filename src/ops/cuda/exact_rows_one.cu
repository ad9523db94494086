/* exact_rows_one.cu - one token times few rows of a matrix as stored: the chain of exact_chain.cuh, any format whose
 * weights are summed one by one (the fp modes sum groups first; exact_rows.cu has them).
 *
 * Two warps copy stages of rows (exact_rows.cuh), six make products of what they find there, one adds. Each stage has a
 * barrier for `full` and one for `empty`; every maker waits for every stage, even if it has no body in it, since a
 * barrier can only be waited for phase by phase. The input lies in shared memory as a whole.
 */
#include "ops/cuda/copy.cuh"
#include "ops/cuda/exact_chain.cuh"
#include "ops/cuda/exact_rows.cuh"

enum { ONE_STAGES = 3, ONE_SLOTS = CHAIN_MAKERS, ONE_COPY = 2, ONE_WARPS = 11 };

/* Where warps are: those that would share the adding warp's scheduler end at once. */
enum { FIRST_COPY = 9 };

static size_t shared_bytes(int format, int64_t k)
{
  return (size_t)cuda_ceil(k, CHAIN_BODY) * CHAIN_BODY * sizeof(float) + ONE_STAGES * 32 * stage_pitch(format) +
         ONE_SLOTS * CHAIN_PRODUCTS + 2 * (ONE_STAGES + ONE_SLOTS) * sizeof(uint64_t);
}

struct one_barriers {
  uint64_t full[ONE_SLOTS], empty[ONE_SLOTS];               /* of products */
  uint64_t stage_full[ONE_STAGES], stage_empty[ONE_STAGES]; /* of rows */
};

/* Inputs, -0 behind the end. */
static inline __device__ void copy_input(const exact_job &job, float *to, int padded)
{
  for (int i = threadIdx.x * 4; i < padded; i += blockDim.x * 4) {
    if (job.x_by_16 && i < job.k) {
      copy_async_part(to + i, job.x + i, 16);
      continue;
    }
    for (int j = i; j < i + 4; j++)
      if (j < job.k)
        copy_async_4(to + j, job.x + j);
      else
        to[j] = -0.0f;
  }
  copy_commit();
}

template <int FORMAT>
static inline __device__ void one_copy(const exact_job &job, const exact_output &out, int64_t first, uint8_t *ring,
                                       one_barriers *barriers, int me)
{
  constexpr int VALUES = stage_values(FORMAT), BYTES = VALUES * exact_bits(FORMAT) / 8;
  int stages = (int)cuda_ceil(job.k, VALUES);
  for (int s = 0; s < stages; s++) {
    int slot = s % ONE_STAGES;
    barrier_wait(barriers->stage_empty + slot, (s / ONE_STAGES & 1) ^ 1);
    uint8_t *stage = ring + slot * 32 * stage_pitch(FORMAT);
    if (job.w_by_16)
      copy_rows<FORMAT, true>(job, out, stage, first, 32, (int64_t)s * BYTES, me, 32 * ONE_COPY);
    else
      copy_rows<FORMAT, false>(job, out, stage, first, 32, (int64_t)s * BYTES, me, 32 * ONE_COPY);
    barrier_arrive_after_copies(barriers->stage_full + slot);
  }
}

/* Scales and biases of a body: of its two halves, which lie in one group each. */
template <int FORMAT>
static inline __device__ void fetch_body(unit_raw (&raw)[2], const exact_job &job, const exact_output &out,
                                         int64_t groups, int b)
{
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (b * CHAIN_BODY + 32 * i < job.k)
      raw[i] = unit_fetch<FORMAT>(job, out, groups, b * CHAIN_BODY + 32 * i);
}

template <int FORMAT>
static inline __device__ void one_make(const exact_job &job, const exact_output &out, int64_t n, const float *x,
                                       const uint8_t *ring, float4 *slots, one_barriers *barriers, int maker)
{
  constexpr int VALUES = stage_values(FORMAT), UNIT = unit_values(FORMAT), PITCH = stage_pitch(FORMAT);
  constexpr int WORDS = UNIT * exact_bits(FORMAT) / 32, BODIES = VALUES / CHAIN_BODY;
  int lane = threadIdx.x % 32, stages = (int)cuda_ceil(job.k, VALUES), bodies = (int)cuda_ceil(job.k, CHAIN_BODY);
  int skew = job.w_by_16 ? 0 : (int)(exact_byte_row<FORMAT>(out, n) * job.row_bytes & 15);
  int shift = FORMAT == EXACT_TERNARY ? 2 * (int)(n / out.byte_rows) : 0;
  int64_t groups = n * (job.k >> job.group_log2);
  unit_raw raw[2] = {}, next[2] = {};
  fetch_body<FORMAT>(next, job, out, groups, maker);
  for (int s = 0, b = maker; s < stages; s++) {
    int stage = s % ONE_STAGES;
    barrier_wait(barriers->stage_full + stage, s / ONE_STAGES & 1);
    for (; b < bodies && b < (s + 1) * BODIES; b += CHAIN_MAKERS) {
      const uint8_t *weights = ring + (stage * 32 + lane) * PITCH + skew;
      weights += (b - s * BODIES) * (CHAIN_BODY * exact_bits(FORMAT) / 8);
      const float4 *in = (const float4 *)(x + b * CHAIN_BODY);
      float4 *to = slots + b % ONE_SLOTS * (CHAIN_PRODUCTS / 16) + lane;
      raw[0] = next[0], raw[1] = next[1];
      fetch_body<FORMAT>(next, job, out, groups, b + CHAIN_MAKERS);
      barrier_wait(barriers->empty + b % ONE_SLOTS, (b / ONE_SLOTS & 1) ^ 1);
#pragma unroll
      for (int u = 0; u < CHAIN_BODY / UNIT; u++) {
        uint32_t word[WORDS];
        unit_words(word, weights + u * WORDS * 4, job.w_by_16);
        exact_how how = {0, 0, shift};
        if (exact_affine(FORMAT))
          how = {exact_widen(job.stored, raw[u * UNIT / 32].a), exact_widen(job.stored, raw[u * UNIT / 32].b), 0};
#pragma unroll
        for (int piece = 0; piece < UNIT / 8; piece++) {
          int at = (u * UNIT + piece * 8) / 4;
          float value[8];
          exact_decode<FORMAT>(word, piece, how, value);
          float4 low = in[at], high = in[at + 1];
          low.x = low.x * value[0], low.y = low.y * value[1], low.z = low.z * value[2], low.w = low.w * value[3];
          high.x = high.x * value[4], high.y = high.y * value[5], high.z = high.z * value[6];
          high.w = high.w * value[7];
          if (exact_affine(FORMAT) && b * CHAIN_BODY + u * UNIT >= job.k) /* codes of no group */
            low = high = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
          to[at * 32] = low;
          to[(at + 1) * 32] = high;
        }
      }
      __syncwarp();
      if (lane == 0)
        barrier_arrive(barriers->full + b % ONE_SLOTS);
    }
    __syncwarp();
    if (lane == 0)
      barrier_arrive(barriers->stage_empty + stage);
  }
}

template <int FORMAT> static __global__ void __launch_bounds__(32 * ONE_WARPS, 1) rows_one_kernel(exact_job job)
{
  extern __shared__ __align__(16) uint8_t shared[];
  const exact_output &out = job.out[exact_output_of(job, blockIdx.x)];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, bodies = (int)cuda_ceil(job.k, CHAIN_BODY);
  int64_t first = (int64_t)(blockIdx.x - out.first) * 32, n = min(first + lane, out.n - 1);
  float *x = (float *)shared;
  float4 *slots = (float4 *)(x + bodies * CHAIN_BODY);
  uint8_t *ring = (uint8_t *)(slots + ONE_SLOTS * (CHAIN_PRODUCTS / 16));
  one_barriers *barriers = (one_barriers *)(ring + ONE_STAGES * 32 * stage_pitch(FORMAT));
  if (threadIdx.x < ONE_SLOTS) {
    barrier_init(barriers->full + threadIdx.x, 1);
    barrier_init(barriers->empty + threadIdx.x, 1);
  }
  if (threadIdx.x < ONE_STAGES) {
    barrier_init(barriers->stage_full + threadIdx.x, 32 * ONE_COPY);
    barrier_init(barriers->stage_empty + threadIdx.x, CHAIN_MAKERS);
  }
  cuda_release_next();
  cuda_await();
  copy_input(job, x, bodies * CHAIN_BODY);
  copy_wait<0>();
  __syncthreads();
  if (warp >= FIRST_COPY) {
    one_copy<FORMAT>(job, out, first, ring, barriers, threadIdx.x - 32 * FIRST_COPY);
  } else if (warp % CHAIN_IDLE != 0) {
    one_make<FORMAT>(job, out, n, x, ring, slots, barriers, warp < CHAIN_IDLE ? warp - 1 : warp - 2);
  } else if (warp == 0) {
    float sum = chain_add<ONE_SLOTS>(exact_start<FORMAT>(out, n), bodies, slots, barriers->full, barriers->empty);
    if (first + lane < out.n)
      exact_finish<FORMAT>(out, 0, n, sum);
  }
}

/* ---- launching ---- */

static exact_kernel *const kernels[EXACT_STORED_FORMATS] = {
    rows_one_kernel<EXACT_F32>,
    rows_one_kernel<EXACT_BF16>,
    rows_one_kernel<EXACT_F16>,
    rows_one_kernel<EXACT_A2>,
    rows_one_kernel<EXACT_A3>,
    rows_one_kernel<EXACT_A4>,
    rows_one_kernel<EXACT_A5>,
    rows_one_kernel<EXACT_A6>,
    rows_one_kernel<EXACT_A8>,
    NULL,
    NULL,
    NULL,
    rows_one_kernel<EXACT_TERNARY>,
};

void exact_rows_one_setup(cuda_context *cx)
{
  for (exact_kernel *kernel : kernels)
    if (kernel)
      exact_allow(cx, kernel, cx->shared_most);
}

bool exact_rows_one_launch(cuda_context *cx, exact_format format, exact_job *job)
{
  int tiles = exact_blocks(job, 32);
  if (job->tokens != 1 || !kernels[format] || tiles > 2 * cx->processors ||
      shared_bytes(format, job->k) > cx->shared_most)
    return false;
  exact_launch_alone(cx, kernels[format], job, tiles, ONE_WARPS, shared_bytes(format, job->k));
  return true;
}
