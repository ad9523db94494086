/* exact_rows.cu - products of few tokens with matrices as they are stored, any format.
 *
 * A lane has a row of the matrix and some tokens, and walks k upwards: decode eight weights, multiply and add them for
 * each token. Rows lie far apart in memory, so a warp whose lanes read their own rows would ask for 32 sectors at once;
 * instead the block copies a stage (up to 256 bytes of each of its rows, whole units of the format, and the inputs that
 * meet them) into shared memory with cp.async, where stages form a ring. A row there has an odd number of 16-byte
 * chunks, so that lanes read 16 bytes each without bank conflicts.
 *
 * Rows that do not start at multiples of 16 bytes (K odd in some way) are copied from the multiple before, with one
 * chunk more, and their words are put together from two. Behind the end of a row are zeros, and inputs behind the end
 * are -0: a weight of +0 times -0 is -0, which no sum minds.
 *
 * A block is row_warps warps with 32 rows each, times warps that have other tokens of the same rows: where there are
 * few rows, splitting tokens over warps fills the machine, at the price of decoding twice. If that leaves a block with
 * fewer than four warps, others only copy for them: a warp that is alone on its scheduler has nothing to hide behind.
 */
#include "ops/cuda/exact_format.cuh"

enum { ROWS_STAGES = 3, ROWS_WARPS = 8 /* that compute */, ROWS_LEAST = 4 };

/* Values of a row in a stage; of a unit, which one group covers (nvfp4: two). */
static constexpr __host__ __device__ int stage_values(int format)
{
  int bits = exact_bits(format);
  return bits <= 8 ? 256 : bits == 16 ? 128 : 64;
}

static constexpr __host__ __device__ int unit_values(int format)
{
  int bits = exact_bits(format);
  return bits <= 8 ? 32 : bits == 16 ? 16 : 8;
}

static constexpr __host__ __device__ int stage_chunks(int format)
{
  return stage_values(format) * exact_bits(format) / 8 / 16;
}

/* Bytes of a row in a stage: one chunk for rows that start inside one, and an odd number of them. */
static constexpr __host__ __device__ int stage_pitch(int format)
{
  return 16 * ((stage_chunks(format) + 1) | 1);
}

static size_t stage_bytes(int format, int rows, int tokens)
{
  return (size_t)rows * stage_pitch(format) + (size_t)tokens * stage_values(format) * sizeof(float);
}

/* The row of bytes that row n is in; `base`: that of the block's first row. */
template <int FORMAT> static inline __device__ int64_t byte_row(const exact_output &out, int64_t n)
{
  return FORMAT == EXACT_TERNARY ? (int64_t)((uint32_t)n % (uint32_t)out.byte_rows) : n;
}

/* ---- filling a stage, by threads `me` of `all` ---- */

/* CHUNKS of each row from byte `from` on. A row's chunks go to neighbouring threads. */
template <int FORMAT, int CHUNKS>
static inline __device__ void copy_rows(const exact_job &job, const exact_output &out, uint8_t *to, int64_t first,
                                        int rows, int64_t from, int me, int all)
{
  constexpr int LANES = CHUNKS <= 4 ? 4 : CHUNKS <= 8 ? 8 : CHUNKS <= 16 ? 16 : 32;
  int j = me % LANES;
  if (j >= CHUNKS)
    return;
  for (int r = me / LANES; r < rows; r += all / LANES) {
    int64_t start = byte_row<FORMAT>(out, min(first + r, out.n - 1)) * job.row_bytes;
    int64_t at = (start & ~(int64_t)15) + from + 16 * j, left = start + job.row_bytes - at;
    int valid = left >= 16 ? 16 : left > 0 ? (int)left : 0;
    exact_copy_16(to + r * stage_pitch(FORMAT) + 16 * j, out.data + (valid ? at : 0), valid);
  }
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
      exact_copy_16(target, source, 16);
      continue;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (from + j + i < job.k)
        exact_copy_4(target + i, source + i);
      else
        target[i] = -0.0f;
    }
  }
}

/* ---- using it ---- */

/* The words of a unit, at byte `at` of a row that starts in the stage. */
template <int WORDS> static inline __device__ void unit_words(uint32_t (&word)[WORDS], const uint8_t *at, bool aligned)
{
  if (aligned) {
#pragma unroll
    for (int i = 0; i < WORDS; i++)
      if (WORDS % 4)
        word[i] = ((const uint32_t *)at)[i];
      else if (i % 4 == 0)
        *(uint4 *)(word + i) = ((const uint4 *)at)[i / 4];
    return;
  }
  int skew = (int)((uintptr_t)at & 3);
  const uint32_t *from = (const uint32_t *)(at - skew);
  uint32_t low = from[0];
#pragma unroll
  for (int i = 0; i < WORDS; i++) {
    uint32_t high = skew || i + 1 < WORDS ? from[i + 1] : 0;
    word[i] = __funnelshift_r(low, high, 8 * skew);
    low = high;
  }
}

/* Scales and biases of a unit as they lie in memory; nvfp4: the scales of its two groups. */
struct unit_raw {
  uint32_t a, b;
};

template <int FORMAT>
static inline __device__ unit_raw unit_fetch(const exact_job &job, const exact_output &out, int64_t n, int64_t k)
{
  unit_raw raw = {0, 0};
  if constexpr (exact_affine(FORMAT)) {
    int64_t g = n * (job.k >> job.group_log2) + (k >> job.group_log2);
    raw.a = exact_raw(job.stored, out.scales, g);
    raw.b = exact_raw(job.stored, out.biases, g);
  } else if constexpr (exact_summed(FORMAT) != 0) {
    int64_t g = n * (job.k / exact_summed(FORMAT)) + k / exact_summed(FORMAT);
    raw.a = out.scales[g];
    if (FORMAT == EXACT_NVFP4 && k + 16 < job.k)
      raw.b = out.scales[g + 1];
  }
  return raw;
}

template <int FORMAT, int TOKENS>
static __global__ void __launch_bounds__(32 * ROWS_WARPS, 1) rows_kernel(exact_job job)
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
  int skew = job.w_by_16 ? 0 : (int)(byte_row<FORMAT>(out, n) * job.row_bytes & 15);
  int stage_size = rows * PITCH + tokens * VALUES * (int)sizeof(float), stages = (int)cuda_ceil(job.k, VALUES);
  /* All copy, or those that do nothing else. */
  bool copies = workers == blockDim.x || (int)threadIdx.x >= workers, computes = (int)threadIdx.x < workers;
  int me = workers == blockDim.x ? threadIdx.x : threadIdx.x - workers;
  int all = workers == blockDim.x ? workers : blockDim.x - workers;

  auto fill = [&](int s) {
    if (s < stages && copies) {
      uint8_t *stage = shared + s % ROWS_STAGES * stage_size;
      if (job.w_by_16)
        copy_rows<FORMAT, BYTES / 16>(job, out, stage, first, rows, (int64_t)s * BYTES, me, all);
      else
        copy_rows<FORMAT, BYTES / 16 + 1>(job, out, stage, first, rows, (int64_t)s * BYTES, me, all);
      copy_inputs<VALUES>(job, (float *)(stage + rows * PITCH), first_token, tokens, (int64_t)s * VALUES, me, all);
    }
    exact_commit();
  };

  float sum[TOKENS];
#pragma unroll
  for (int t = 0; t < TOKENS; t++)
    sum[t] = exact_start(out, n);
  for (int s = 0; s < ROWS_STAGES - 1; s++)
    fill(s);
  unit_raw next_raw = unit_fetch<FORMAT>(job, out, n, 0);

  for (int s = 0; s < stages; s++) {
    exact_wait<ROWS_STAGES - 2>();
    __syncthreads();
    fill(s + ROWS_STAGES - 1);
    if (!computes)
      continue;
    const uint8_t *stage = shared + s % ROWS_STAGES * stage_size, *weights = stage + row * PITCH + skew;
    const float *inputs = (const float *)(stage + rows * PITCH) + token * VALUES;
    int64_t k = (int64_t)s * VALUES;
    int units = (int)cuda_ceil(min(job.k - k, (int64_t)VALUES), UNIT);
    uint32_t next[WORDS];
    unit_words(next, weights, job.w_by_16);
#pragma unroll 1
    for (int u = 0; u < units; u++, k += UNIT, inputs += UNIT) {
      unit_raw raw = next_raw;
      if (k + UNIT < job.k)
        next_raw = unit_fetch<FORMAT>(job, out, n, k + UNIT);
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
  if (!computes || first + row >= out.n)
    return;
#pragma unroll
  for (int t = 0; t < TOKENS; t++)
    if (first_token + token + t < job.tokens)
      exact_finish<FORMAT>(out, first_token + token + t, n, sum[t]);
}

/* ---- launching ---- */

/* [format][tokens of a warp: 1 or 4] */
static exact_kernel *const kernels[EXACT_STORED_FORMATS][2] = {
    {rows_kernel<EXACT_F32, 1>, rows_kernel<EXACT_F32, 4>},
    {rows_kernel<EXACT_BF16, 1>, rows_kernel<EXACT_BF16, 4>},
    {rows_kernel<EXACT_F16, 1>, rows_kernel<EXACT_F16, 4>},
    {rows_kernel<EXACT_A2, 1>, rows_kernel<EXACT_A2, 4>},
    {rows_kernel<EXACT_A3, 1>, rows_kernel<EXACT_A3, 4>},
    {rows_kernel<EXACT_A4, 1>, rows_kernel<EXACT_A4, 4>},
    {rows_kernel<EXACT_A5, 1>, rows_kernel<EXACT_A5, 4>},
    {rows_kernel<EXACT_A6, 1>, rows_kernel<EXACT_A6, 4>},
    {rows_kernel<EXACT_A8, 1>, rows_kernel<EXACT_A8, 4>},
    {rows_kernel<EXACT_MXFP4, 1>, rows_kernel<EXACT_MXFP4, 4>},
    {rows_kernel<EXACT_MXFP8, 1>, rows_kernel<EXACT_MXFP8, 4>},
    {rows_kernel<EXACT_NVFP4, 1>, rows_kernel<EXACT_NVFP4, 4>},
    {rows_kernel<EXACT_TERNARY, 1>, rows_kernel<EXACT_TERNARY, 4>},
};

static size_t shared_bytes(int format, int row_warps, int tokens)
{
  return ROWS_STAGES * stage_bytes(format, 32 * row_warps, tokens);
}

void exact_rows_setup(cuda_context *cx)
{
  for (int f = 0; f < EXACT_STORED_FORMATS; f++)
    for (exact_kernel *kernel : kernels[f])
      exact_allow(cx, kernel, cx->shared_most);
}

void exact_rows_launch(cuda_context *cx, exact_format format, exact_job *job)
{
  int each = (int)cuda_ceil(exact_blocks(job, 32), cx->processors);
  bool four = job->tokens > (each == 1 ? 4 : 2);
  int tokens = four ? 4 : 1;
  job->token_warps = job->tokens < 4 * tokens ? (int)cuda_ceil(job->tokens, tokens) : 4;
  job->row_warps = each < ROWS_WARPS / job->token_warps ? each : ROWS_WARPS / job->token_warps;
  while (job->row_warps > 1 && shared_bytes(format, job->row_warps, job->token_warps * tokens) > cx->shared_most)
    job->row_warps--;
  int warps = job->row_warps * job->token_warps;
  dim3 grid(exact_blocks(job, 32 * job->row_warps), (unsigned)cuda_ceil(job->tokens, job->token_warps * tokens));
  cuda_launch(cx, false, kernels[format][four], grid, dim3(32 * (warps < ROWS_LEAST ? ROWS_LEAST : warps)),
              shared_bytes(format, job->row_warps, job->token_warps * tokens), *job);
}
