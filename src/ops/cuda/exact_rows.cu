/* exact_rows.cu - products of few tokens with matrices as they are stored, any format.
 *
 * A lane has a row of the matrix and some tokens, and walks k upwards: decode eight weights, multiply and add them for
 * each token. Weights and the inputs that meet them come in stages, which form a ring (exact_rows.cuh).
 *
 * A block is row_warps warps with 32 rows each, times warps that have other tokens of the same rows: where there are
 * few rows, splitting tokens over warps fills the machine, at the price of decoding twice. Two more only copy: with
 * addresses in between, sums took twice as long.
 */
#include "ops/cuda/exact_rows.cuh"

enum { ROWS_STAGES = 3, ROWS_WARPS = 8 /* that compute, at most */, ROWS_COPY = 2 /* that copy */ };

static size_t stage_bytes(int format, int rows, int tokens)
{
  return (size_t)rows * stage_pitch(format) + (size_t)tokens * stage_values(format) * sizeof(float);
}

template <int VALUES>
static inline __device__ void copy_inputs(const exact_job &job, float *to, int first, int tokens, int64_t from, int me,
                                          int all)
{
  for (int c = me; c < tokens * (VALUES / 4); c += all) {
    int t = c / (VALUES / 4), j = c % (VALUES / 4) * 4;
    int token = min(first + t, job.tokens - 1);
    const float *source = job.x + token * job.k + from + j;
    float *target = to + t * VALUES + j;
    if (job.x_by_16 && from + j < job.k) {
      copy_async_part(target, source, 16);
      continue;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (from + j + i < job.k)
        copy_async_4(target + i, source + i);
      else
        target[i] = -0.0f;
    }
  }
}

template <int FORMAT, int TOKENS>
static __global__ void __launch_bounds__(32 * (ROWS_WARPS + ROWS_COPY), 1) rows_kernel(exact_job job)
{
  constexpr int VALUES = stage_values(FORMAT), UNIT = unit_values(FORMAT), PITCH = stage_pitch(FORMAT);
  constexpr int WORDS = UNIT * exact_bits(FORMAT) / 32, BYTES = VALUES * exact_bits(FORMAT) / 8;
  constexpr int SUMMED = exact_summed(FORMAT);
  extern __shared__ __align__(16) uint8_t shared[];
  const exact_output &out = job.out[exact_output_of(job, blockIdx.x)];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rows = 32 * job.row_warps;
  int tokens = job.token_warps * TOKENS, first_token = blockIdx.y * tokens, workers = rows * job.token_warps;
  int64_t first = (int64_t)(blockIdx.x - out.first) * rows;
  int row = warp % job.row_warps * 32 + lane, token = warp / job.row_warps * TOKENS;
  int64_t n = min(first + row, out.n - 1);
  int shift = FORMAT == EXACT_TERNARY ? 2 * (int)(n / out.byte_rows) : 0;
  int skew = job.w_by_16 ? 0 : (int)(exact_byte_row<FORMAT>(out, n) * job.row_bytes & 15);
  int stage_size = rows * PITCH + tokens * VALUES * (int)sizeof(float), stages = (int)cuda_ceil(job.k, VALUES);
  int group = exact_summed(FORMAT) ? exact_summed(FORMAT) : 1 << job.group_log2, k = 0;
  int64_t groups = n * (job.k / group);

  cuda_release_next();
  cuda_await();
  if ((int)threadIdx.x >= workers) {
    int me = threadIdx.x - workers, all = blockDim.x - workers;
    for (int s = 0; s < stages + ROWS_STAGES - 1; s++) {
      if (s >= ROWS_STAGES - 1) { /* what the others use now is there, and what they used is free */
        copy_wait<ROWS_STAGES - 2>();
        __syncthreads();
      }
      if (s < stages) {
        uint8_t *stage = shared + s % ROWS_STAGES * stage_size;
        if (job.w_by_16)
          copy_rows<FORMAT, true>(job, out, stage, first, rows, (int64_t)s * BYTES, me, all);
        else
          copy_rows<FORMAT, false>(job, out, stage, first, rows, (int64_t)s * BYTES, me, all);
        copy_inputs<VALUES>(job, (float *)(stage + rows * PITCH), first_token, tokens, (int64_t)s * VALUES, me, all);
      }
      copy_commit();
    }
    return;
  }

  float sum[TOKENS];
#pragma unroll
  for (int t = 0; t < TOKENS; t++)
    sum[t] = exact_start<FORMAT>(out, n);
  unit_raw next_raw = unit_fetch<FORMAT>(job, out, groups, 0);

  for (int s = 0; s < stages; s++) {
    __syncthreads();
    const uint8_t *stage = shared + s % ROWS_STAGES * stage_size, *weights = stage + row * PITCH + skew;
    const float *inputs = (const float *)(stage + rows * PITCH) + token * VALUES;
    int units = (int)cuda_ceil(min(job.k - k, (int64_t)VALUES), UNIT);
    uint32_t next[WORDS];
    unit_words(next, weights, job.w_by_16);
#pragma unroll 1
    for (int u = 0; u < units; u++, k += UNIT, inputs += UNIT) {
      unit_raw raw = next_raw;
      if (k + UNIT < job.k)
        next_raw = unit_fetch<FORMAT>(job, out, groups, k + UNIT);
      uint32_t word[WORDS];
#pragma unroll
      for (int i = 0; i < WORDS; i++)
        word[i] = next[i];
      weights += u + 1 < units ? WORDS * 4 : 0;
      unit_words(next, weights, job.w_by_16);
      exact_how how = {0, 0, shift};
      if (exact_affine(FORMAT))
        how = {exact_widen(job.stored, raw.a), exact_widen(job.stored, raw.b), 0};
      float part[TOKENS] = {}, (&into)[TOKENS] = SUMMED ? part : sum;
#pragma unroll
      for (int piece = 0; piece < UNIT / 8; piece++) {
        float value[8];
        exact_decode<FORMAT>(word, piece, how, value);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
          const float4 *x = (const float4 *)(inputs + t * VALUES + piece * 8);
          float4 low = x[0], high = x[1];
          float total = into[t];
          total = total + low.x * value[0], total = total + low.y * value[1];
          total = total + low.z * value[2], total = total + low.w * value[3];
          total = total + high.x * value[4], total = total + high.y * value[5];
          total = total + high.z * value[6], total = total + high.w * value[7];
          into[t] = total;
        }
        if constexpr (SUMMED != 0) {
          /* The end of a group; half of a unit of nvfp4 may not be there. */
          if ((piece + 1) * 8 % SUMMED == 0 && (SUMMED == 32 || k + piece * 8 < job.k)) {
            float scale = exact_fp_scale<FORMAT>(SUMMED == 16 && piece >= 2 ? raw.b : raw.a);
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
              sum[t] = sum[t] + scale * part[t];
              part[t] = 0;
            }
          }
        }
      }
    }
  }
  if (first + row >= out.n)
    return;
#pragma unroll
  for (int t = 0; t < TOKENS; t++)
    if (first_token + token + t < job.tokens)
      exact_finish<FORMAT>(out, first_token + token + t, n, sum[t]);
}

/* ---- launching ---- */

struct rows_kernels {
  exact_kernel *of[3]; /* [log2 of the tokens of a warp] */
};

template <int FORMAT> static constexpr rows_kernels kernels_of(void)
{
  return {{rows_kernel<FORMAT, 1>, rows_kernel<FORMAT, 2>, rows_kernel<FORMAT, 4>}};
}

static const rows_kernels kernels[EXACT_STORED_FORMATS] = {
    kernels_of<EXACT_F32>(),     kernels_of<EXACT_BF16>(),  kernels_of<EXACT_F16>(),   kernels_of<EXACT_A2>(),
    kernels_of<EXACT_A3>(),      kernels_of<EXACT_A4>(),    kernels_of<EXACT_A5>(),    kernels_of<EXACT_A6>(),
    kernels_of<EXACT_A8>(),      kernels_of<EXACT_MXFP4>(), kernels_of<EXACT_MXFP8>(), kernels_of<EXACT_NVFP4>(),
    kernels_of<EXACT_TERNARY>(),
};

static size_t shared_bytes(int format, int row_warps, int tokens)
{
  return ROWS_STAGES * stage_bytes(format, 32 * row_warps, tokens);
}

void exact_rows_setup(cuda_context *cx)
{
  for (const rows_kernels &k : kernels)
    for (exact_kernel *kernel : k.of)
      exact_allow(cx, kernel, cx->shared_most);
}

void exact_rows_launch(cuda_context *cx, exact_format format, exact_job *job)
{
  int each = (int)cuda_ceil(exact_blocks(job, 32), cx->processors);
  /* Few rows: more warps, each with fewer tokens. */
  int log2 = job->tokens <= (each == 1 ? 4 : 2) ? 0 : each == 1 && job->tokens <= 8 ? 1 : 2, tokens = 1 << log2;
  job->token_warps = job->tokens < 4 * tokens ? (int)cuda_ceil(job->tokens, tokens) : 4;
  job->row_warps = each < ROWS_WARPS / job->token_warps ? each : ROWS_WARPS / job->token_warps;
  while (job->row_warps > 1 && shared_bytes(format, job->row_warps, job->token_warps * tokens) > cx->shared_most)
    job->row_warps--;
  dim3 grid(exact_blocks(job, 32 * job->row_warps), (unsigned)cuda_ceil(job->tokens, job->token_warps * tokens));
  exact_launch_alone(cx, kernels[format].of[log2], job, grid, job->row_warps * job->token_warps + ROWS_COPY,
                     shared_bytes(format, job->row_warps, job->token_warps * tokens));
}
