/* exact_gemm.cu - products of many tokens: tiles of inputs and of decoded weights in shared memory.
 *
 * A block of 256 threads has TILE tokens x 128 rows; a thread has TILE / 16 x 8 outputs in registers, and each step of
 * k costs it one multiplication and one addition an output and a few 16-byte loads for all. While a slice of 16 k is
 * summed, the next one is on its way from memory in registers (weights undecoded); then it is decoded into the other of
 * two buffers. Every format shares all of this but the decoding of 8 weights a thread and slice. (Slices of 32 k need
 * 16 registers more for what is on its way, and there are none to spare.)
 *
 * Tiles of 128 x 128 reach 81 % of what an H200 can multiply and add (12.8 of 15.8 TMAC/s; 11.8 for 512 tokens of an
 * 8B llama). 64 rows of weights a tile were no faster; inputs turned by 4-byte copies (cp.async), and fewer slices
 * unrolled, were slower by 3 and 6 %. A smaller tile of tokens is for short prompts and for matrices of few rows; 32
 * tokens took as long as 64.
 *
 * Summed formats keep a second set of sums, of the group; they have half the occupancy.
 */
#include "ops/cuda/exact_pack.cuh"

enum { GEMM_THREADS = 256, GEMM_ROWS = 128, GEMM_SLICE = 16, GEMM_WEIGHTS = 8 /* that a thread decodes */ };

static constexpr __host__ __device__ int gemm_shared(int tile)
{
  return 2 * (GEMM_SLICE * (tile + GEMM_ROWS) + GEMM_ROWS) * (int)sizeof(float);
}

/* Blocks of a multiprocessor that registers are shared out for. */
static constexpr __host__ __device__ int gemm_blocks(int format)
{
  return format == EXACT_F32 || exact_summed(format) ? 1 : 2;
}

/* ---- weights of a slice ---- */

/* A word of which only the bytes before `end` exist. */
static inline __device__ uint32_t word_before(const uint8_t *at, const uint8_t *end)
{
  if (at + 4 <= end)
    return *(const uint32_t *)at;
  uint32_t word = 0;
  for (int i = 0; i < 3; i++)
    if (at + i < end)
      word |= (uint32_t)at[i] << 8 * i;
  return word;
}

/* Words from any address on, zeros from `end` on. */
template <int WORDS>
static inline __device__ void load_words(uint32_t (&word)[WORDS], const uint8_t *from, const uint8_t *end)
{
  constexpr int ALIGNED = WORDS % 4 == 0 ? 16 : 4;
  if (((uintptr_t)from & (ALIGNED - 1)) == 0 && from + 4 * WORDS <= end) {
#pragma unroll
    for (int i = 0; i < WORDS; i++)
      if (ALIGNED == 4)
        word[i] = ((const uint32_t *)from)[i];
      else if (i % 4 == 0)
        *(uint4 *)(word + i) = ((const uint4 *)from)[i / 4];
    return;
  }
  int skew = (int)((uintptr_t)from & 3);
  const uint8_t *at = from - skew;
  uint32_t low = word_before(at, end);
#pragma unroll
  for (int i = 0; i < WORDS; i++) {
    uint32_t high = word_before(at + 4 * (i + 1), end);
    word[i] = __funnelshift_r(low, high, 8 * skew);
    low = high;
  }
}

/* What a thread has on its way: 8 weights of a row. `line`: the row of bytes that has them. */
template <int FORMAT> struct gemm_weights {
  static constexpr int WORDS = (GEMM_WEIGHTS * exact_bits(FORMAT) + 31) / 32;
  uint32_t word[WORDS];
  uint32_t scale, bias;
};

template <int FORMAT>
static inline __device__ void load_weights(gemm_weights<FORMAT> &w, const exact_job &job, const exact_output &out,
                                           int n, int line, int k)
{
  bool begins = (k & ((1 << job.group_log2) - 1)) < GEMM_SLICE;
#pragma unroll
  for (int i = 0; i < w.WORDS; i++)
    w.word[i] = 0;
  if (n >= out.n || k >= job.k)
    return;
  if (FORMAT == EXACT_PACKED) {
    int group = job.group_log2, lane = n % EXACT4_ROWS;
    const uint8_t *tile = out.data + n / EXACT4_ROWS * exact4_tile_bytes(group, job.k);
    w.word[0] = ((const uint32_t *)(tile + exact4_chunk(group, k)))[lane * 4 + k % 32 / 8];
    if (begins)
      w.scale = ((const uint32_t *)(tile + exact4_group(group, k)))[lane];
    return;
  }
  const uint8_t *row = out.data + line * job.row_bytes;
  load_words(w.word, row + (int64_t)k * exact_bits(FORMAT) / 8, row + job.row_bytes);
  if constexpr (exact_affine(FORMAT)) {
    int64_t g = n * (job.k >> job.group_log2) + (k >> job.group_log2);
    if (begins) {
      w.scale = exact_raw(job.stored, out.scales, g);
      w.bias = exact_raw(job.stored, out.biases, g);
    }
  } else if constexpr (exact_summed(FORMAT) != 0) {
    w.scale = out.scales[n * (job.k / exact_summed(FORMAT)) + k / exact_summed(FORMAT)];
  }
}

template <int FORMAT>
static inline __device__ void store_weights(const gemm_weights<FORMAT> &w, const exact_job &job, int shift, float *to)
{
  float value[8];
  exact_how how = {0, 0, shift};
  if (FORMAT == EXACT_PACKED) {
    how = {exact4_scale(job.stored, w.scale), exact4_bias(job.stored, w.scale), 0};
    uint32_t word = __funnelshift_r(w.word[0], w.word[0], 7); /* as it was before packing */
    exact_decode<EXACT_A4>(&word, 0, how, value);
  } else {
    if (exact_affine(FORMAT))
      how = {exact_widen(job.stored, w.scale), exact_widen(job.stored, w.bias), 0};
    exact_decode<FORMAT>(w.word, 0, how, value);
  }
#pragma unroll
  for (int i = 0; i < 8; i++)
    to[i * GEMM_ROWS] = value[i];
}

/* ---- inputs of a slice ---- */

template <int COUNT>
static inline __device__ void load_inputs(float (&value)[COUNT], const exact_job &job, int t, int k)
{
  const float *x = job.x + (int64_t)min(t, job.tokens - 1) * job.k + k;
  if (job.x_by_16 && k + COUNT <= job.k) {
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++)
      *(float4 *)(value + 4 * i) = ((const float4 *)x)[i];
    return;
  }
#pragma unroll
  for (int i = 0; i < COUNT; i++)
    value[i] = k + i < job.k ? x[i] : -0.0f; /* as in exact_rows.cu */
}

/* ---- the product ---- */

template <int FORMAT, int TILE>
static __global__ void __launch_bounds__(GEMM_THREADS, gemm_blocks(FORMAT)) gemm_kernel(exact_job job)
{
  constexpr int SUMMED = exact_summed(FORMAT), MINE = TILE / 16, INPUTS = TILE * GEMM_SLICE / GEMM_THREADS;
  extern __shared__ __align__(16) float shared_floats[];
  float *inputs = shared_floats, *weights = inputs + 2 * GEMM_SLICE * TILE;
  float *scales = weights + 2 * GEMM_SLICE * GEMM_ROWS; /* [2][GEMM_ROWS], summed formats: of the group */
  const exact_output &out = job.out[exact_output_of(job, blockIdx.y)];
  int tid = threadIdx.x, x_lane = tid % 16, y_lane = tid / 16;
  int first_token = blockIdx.x * TILE, first = (blockIdx.y - out.first) * GEMM_ROWS;
  /* What it brings: weights 8 * half .. of a slice of a row, and inputs of a token. */
  int row = tid % GEMM_ROWS, half = tid / GEMM_ROWS, all = (int)job.k;
  int shift = FORMAT == EXACT_TERNARY ? 2 * (int)((first + row) / out.byte_rows) : 0;
  int line = (int)exact_byte_row<FORMAT>(out, first + row);
  gemm_weights<FORMAT> w = {};
  float x[INPUTS];

  auto load = [&](int k) {
    load_weights(w, job, out, first + row, line, k + half * GEMM_WEIGHTS);
    load_inputs(x, job, first_token + tid % TILE, k + tid / TILE * INPUTS);
  };
  auto store = [&](int buffer) {
    float *to = inputs + buffer * GEMM_SLICE * TILE + tid / TILE * INPUTS * TILE + tid % TILE;
#pragma unroll
    for (int i = 0; i < INPUTS; i++)
      to[i * TILE] = x[i];
    store_weights(w, job, shift, weights + (buffer * GEMM_SLICE + half * GEMM_WEIGHTS) * GEMM_ROWS + row);
    if (SUMMED && half == 0)
      scales[buffer * GEMM_ROWS + row] = exact_fp_scale<FORMAT>(w.scale);
  };

  /* The rows of a thread: 4 from x_lane * 4, and 4 from 64 + x_lane * 4. */
  float sum[MINE][8], part[MINE][8] = {}, (&into)[MINE][8] = SUMMED ? part : sum;
#pragma unroll
  for (int j = 0; j < 8; j++) {
    int n = first + x_lane * 4 + j % 4 + j / 4 * 64;
#pragma unroll
    for (int i = 0; i < MINE; i++)
      sum[i][j] = n < out.n ? exact_start<FORMAT>(out, n) : 0;
  }
  load(0);
  store(0);
  __syncthreads();
  for (int k = 0, buffer = 0; k < all; k += GEMM_SLICE, buffer ^= 1) {
    if (k + GEMM_SLICE < all)
      load(k + GEMM_SLICE);
    const float *mine = inputs + buffer * GEMM_SLICE * TILE + y_lane * 4;
    const float *theirs = weights + buffer * GEMM_SLICE * GEMM_ROWS + x_lane * 4;
#pragma unroll
    for (int i = 0; i < GEMM_SLICE; i++) {
      float a[MINE], b[8];
#pragma unroll
      for (int q = 0; q < MINE / 4; q++)
        *(float4 *)(a + 4 * q) = *(const float4 *)(mine + i * TILE + 64 * q);
      *(float4 *)b = *(const float4 *)(theirs + i * GEMM_ROWS);
      *(float4 *)(b + 4) = *(const float4 *)(theirs + i * GEMM_ROWS + 64);
#pragma unroll
      for (int p = 0; p < MINE; p++)
#pragma unroll
        for (int r = 0; r < 8; r++)
          into[p][r] = into[p][r] + a[p] * b[r];
    }
    if constexpr (SUMMED != 0) {
      if ((k + GEMM_SLICE) % SUMMED == 0) { /* the end of a group */
        const float *scale = scales + buffer * GEMM_ROWS + x_lane * 4;
#pragma unroll
        for (int r = 0; r < 8; r++) {
          float by = scale[r % 4 + r / 4 * 64];
#pragma unroll
          for (int p = 0; p < MINE; p++) {
            sum[p][r] = sum[p][r] + by * part[p][r];
            part[p][r] = 0;
          }
        }
      }
    }
    if (k + GEMM_SLICE < all)
      store(buffer ^ 1);
    __syncthreads();
  }
#pragma unroll
  for (int p = 0; p < MINE; p++) {
    int t = first_token + y_lane * 4 + p % 4 + p / 4 * 64;
#pragma unroll
    for (int r = 0; r < 8; r++) {
      int n = first + x_lane * 4 + r % 4 + r / 4 * 64;
      if (t < job.tokens && n < out.n)
        exact_finish<FORMAT>(out, t, n, sum[p][r]);
    }
  }
}

/* ---- launching ---- */

/* Tiles, and what a multiprocessor does with them in a given time, in percent of the largest: weights of a tile are
 * decoded for fewer tokens, and those as stored cost more to fetch and to decode. */
enum { GEMM_TILES = 2 };
static const struct gemm_tile {
  int tokens, stored, summed, packed;
} tiles[GEMM_TILES] = {{64, 74, 90, 94}, {128, 100, 100, 100}};

struct gemm_kernels {
  exact_kernel *tile[GEMM_TILES];
};

template <int FORMAT> static constexpr gemm_kernels kernels_of(void)
{
  return {{gemm_kernel<FORMAT, 64>, gemm_kernel<FORMAT, 128>}};
}

static const gemm_kernels kernels[EXACT_FORMATS] = {
    kernels_of<EXACT_F32>(),     kernels_of<EXACT_BF16>(),   kernels_of<EXACT_F16>(),   kernels_of<EXACT_A2>(),
    kernels_of<EXACT_A3>(),      kernels_of<EXACT_A4>(),     kernels_of<EXACT_A5>(),    kernels_of<EXACT_A6>(),
    kernels_of<EXACT_A8>(),      kernels_of<EXACT_MXFP4>(),  kernels_of<EXACT_MXFP8>(), kernels_of<EXACT_NVFP4>(),
    kernels_of<EXACT_TERNARY>(), kernels_of<EXACT_PACKED>(),
};

void exact_gemm_setup(cuda_context *cx)
{
  for (const gemm_kernels &k : kernels)
    for (int i = 0; i < GEMM_TILES; i++)
      exact_allow(cx, k.tile[i], gemm_shared(tiles[i].tokens));
}

/* The time of the busiest multiprocessor, in that of 128 rows of one token in the largest tile, times 100. */
static int64_t cost_of(const cuda_context *cx, exact_format format, int blocks, int tokens, const gemm_tile *tile)
{
  int worth = format == EXACT_PACKED ? tile->packed : exact_summed(format) ? tile->summed : tile->stored;
  return cuda_ceil(blocks * cuda_ceil(tokens, tile->tokens), cx->processors) * tile->tokens * 10000 / worth;
}

static const gemm_tile *best_tile(const cuda_context *cx, exact_format format, int blocks, int tokens)
{
  const gemm_tile *best = tiles;
  for (const gemm_tile &tile : tiles)
    if (cost_of(cx, format, blocks, tokens, &tile) <= cost_of(cx, format, blocks, tokens, best))
      best = &tile;
  return best;
}

int64_t exact_gemm_cost(const cuda_context *cx, exact_format format, exact_job *job)
{
  int blocks = exact_blocks(job, GEMM_ROWS);
  return cost_of(cx, format, blocks, job->tokens, best_tile(cx, format, blocks, job->tokens));
}

void exact_gemm_launch(cuda_context *cx, exact_format format, exact_job *job)
{
  int blocks = exact_blocks(job, GEMM_ROWS);
  const gemm_tile *best = best_tile(cx, format, blocks, job->tokens);
  dim3 grid((unsigned)cuda_ceil(job->tokens, best->tokens), blocks);
  cuda_launch(cx, false, kernels[format].tile[best - tiles], grid, dim3(GEMM_THREADS), gemm_shared(best->tokens), *job);
}
