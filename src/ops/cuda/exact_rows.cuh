/* exact_rows.cuh - rows of a matrix as stored, on their way through shared memory: for kernels whose lanes have a row.
 *
 * Rows lie far apart in memory, so a warp whose lanes read their own rows would ask for 32 sectors at once; instead,
 * warps copy a stage (up to 256 bytes of each of the block's rows, whole units of the format) into shared memory with
 * cp.async. A row there has an odd number of 16-byte chunks, so that lanes read 16 bytes each without bank conflicts.
 *
 * Rows that do not start at multiples of 16 bytes (K odd in some way) are copied from the multiple before, with one
 * chunk more, and their words are put together from two. Behind the end of a row are zeros, and inputs behind the end
 * are -0: a weight of +0 times -0 is -0, which no sum minds.
 */
#ifndef TERN_OPS_CUDA_EXACT_ROWS_CUH
#define TERN_OPS_CUDA_EXACT_ROWS_CUH

#include "ops/cuda/copy.cuh"
#include "ops/cuda/exact_format.cuh"

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

/* ---- filling a stage, by threads `me` of `all` ---- */

/* What a row has from byte `from` on. A row's chunks go to neighbouring threads. */
template <int FORMAT, bool ALIGNED>
static inline __device__ void copy_rows(const exact_job &job, const exact_output &out, uint8_t *to, int64_t first,
                                        int rows, int64_t from, int me, int all)
{
  constexpr int CHUNKS = stage_chunks(FORMAT) + !ALIGNED;
  constexpr int LANES = CHUNKS <= 4 ? 4 : CHUNKS <= 8 ? 8 : CHUNKS <= 16 ? 16 : 32;
  int j = me % LANES, r = me / LANES, count = (int)min((int64_t)rows, out.n - first);
  if (j >= CHUNKS)
    return;
  int64_t start = exact_byte_row<FORMAT>(out, first + r) * job.row_bytes, step = all / LANES * job.row_bytes;
  int64_t wrap = out.byte_rows * job.row_bytes;
  for (; r < count; r += all / LANES, start += step) {
    while (FORMAT == EXACT_TERNARY && start >= wrap)
      start -= wrap;
    int64_t at = (ALIGNED ? start : start & ~(int64_t)15) + from + 16 * j, left = start + job.row_bytes - at;
    int valid = left >= 16 ? 16 : left > 0 ? (int)left : 0;
    copy_async_part(to + r * stage_pitch(FORMAT) + 16 * j, out.data + (valid ? at : 0), valid);
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

/* `at`: the row's first group. */
template <int FORMAT>
static inline __device__ unit_raw unit_fetch(const exact_job &job, const exact_output &out, int64_t at, int k)
{
  unit_raw raw = {0, 0};
  if constexpr (exact_affine(FORMAT)) {
    raw.a = exact_raw(job.stored, out.scales, at + (k >> job.group_log2));
    raw.b = exact_raw(job.stored, out.biases, at + (k >> job.group_log2));
  } else if constexpr (exact_summed(FORMAT) != 0) {
    const uint8_t *scale = out.scales + at + k / exact_summed(FORMAT);
    raw.a = scale[0];
    if (FORMAT == EXACT_NVFP4 && k + 16 < job.k)
      raw.b = scale[1];
  }
  return raw;
}

#endif
