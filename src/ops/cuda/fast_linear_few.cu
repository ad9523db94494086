/* fast_linear_few.cu - 5 to some hundred tokens times packed matrices: steps of many rows, short prompts.
 *
 * A CTA has two tiles of 16 rows, a warp a part of them, whose weights are all under way before the inputs are awaited.
 * Columns of an mma are tokens, 8 to a tile, and each byte of the inputs has its own mma. Inputs are not held in shared
 * memory: a slice of 32 tokens is 256 KB. They come through the L1 cache, which is asked to be large, out of the L2
 * cache where that does not hold them (32 tokens); two row tiles a warp halve that.
 *
 * The warps of a CTA are the parts of a slice: after each slice the parts meet in shared memory, in order, and the next
 * slice's weights are already under way.
 *
 * What was slower: CTAs that stay and have their next rows' weights come in behind (10 to 20 %: registers spill), one
 * row tile and two CTAs an SM (10 % at 16 tokens), inputs in shared memory in phases (16 tokens: 30 %), clusters whose
 * CTAs have a part each and read each other's results (40 %: they wait for each other).
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_mma.cuh"

enum {
  FEW_WARPS = 8,     /* the most parts of a slice */
  FEW_ROW_TILES = 2, /* of a CTA */
  FEW_ROWS = FEW_ROW_TILES * FAST_TILE,
  FEW_PITCH = FEW_ROWS + 4, /* floats between tokens of a part: lanes (r, c) write to banks r + 8 c */
};

/* Inputs of a group, or of a block where groups are smaller: what one turn of the loop takes. */
template <int GROUP, int TILES> struct few_inputs {
  enum { BLOCKS = GROUP == 128 ? 2 : 1, GROUPS = GROUP == 32 ? 2 : 1 };
  uint4 high[TILES][BLOCKS], low[TILES][BLOCKS];
  float2 sums[TILES][GROUPS]; /* of tokens 2c and 2c + 1 */
};

template <int GROUP, int TILES>
static __device__ void load_inputs(few_inputs<GROUP, TILES> &x, const fast_inputs &in, const float *sums, int first,
                                   int turn, int r, int c)
{
#pragma unroll
  for (int n = 0; n < TILES; n++) {
#pragma unroll
    for (int b = 0; b < x.BLOCKS; b++) {
      x.high[n][b] = *fast_codes(in, turn * x.BLOCKS + b, 0, first + 8 * n + r, c);
      x.low[n][b] = *fast_codes(in, turn * x.BLOCKS + b, 1, first + 8 * n + r, c);
    }
#pragma unroll
    for (int g = 0; g < x.GROUPS; g++)
      x.sums[n][g] = *(const float2 *)(sums + (size_t)(turn * x.GROUPS + g) * in.room + first + 8 * n + 2 * c);
  }
}

/* parts += what 16 rows and 8 tokens get from one group. */
template <bool F16>
static __device__ void add_group(float parts[4], const int high[4], const int low[4], uint32_t pair_above,
                                 uint32_t pair_below, float2 sums)
{
  float scale, bias;
  fast_scale_bias<F16>(pair_above, &scale, &bias);
  parts[0] = fmaf(bias, sums.x, fmaf(scale, fast_dot(high[0], low[0]), parts[0]));
  parts[1] = fmaf(bias, sums.y, fmaf(scale, fast_dot(high[1], low[1]), parts[1]));
  fast_scale_bias<F16>(pair_below, &scale, &bias);
  parts[2] = fmaf(bias, sums.x, fmaf(scale, fast_dot(high[2], low[2]), parts[2]));
  parts[3] = fmaf(bias, sums.y, fmaf(scale, fast_dot(high[3], low[3]), parts[3]));
}

template <int GROUP, bool F16, int TILES>
static __global__ void __launch_bounds__(FEW_WARPS * 32, 1)
    linear_few(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_inputs in, int slice_parts)
{
  const int tokens = TILES * 8, turns = FAST_PART / (GROUP < FAST_BLOCK ? FAST_BLOCK : GROUP);
  const int ahead = TILES == 1 ? (GROUP == 128 ? 2 : 4) : TILES == 2 ? 2 : 1; /* turns that inputs load early */
  __shared__ float shared_parts[FEW_WARPS][tokens][FEW_PITCH], totals[tokens][FEW_ROWS];
  __shared__ float shared_steps[FEW_WARPS][tokens];
  cuda_release_next();
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4;
  int first = (int)blockIdx.y * tokens; /* token */
  int matrix = fast_matrix_of(m, (int)blockIdx.x);
  int first_row = ((int)blockIdx.x - m.of[matrix].first_tile) * FEW_ROWS, rows = m.of[matrix].rows;
  const int chunk_bytes = fast_chunk_bytes(GROUP);
  const uint8_t *chunks[FEW_ROW_TILES];
#pragma unroll
  for (int i = 0; i < FEW_ROW_TILES; i++) {
    int tile = min(first_row / FAST_TILE + i, (rows - 1) / FAST_TILE); /* a last one may be alone */
    chunks[i] = m.of[matrix].chunks + (int64_t)tile * m.parts * chunk_bytes;
  }
  fast_weights<GROUP> w[FEW_ROW_TILES];
  if (warp < m.parts) {
#pragma unroll
    for (int b = 0; b < FAST_BLOCKS; b++)
#pragma unroll
      for (int i = 0; i < FEW_ROW_TILES; i++)
        fast_load_block(w[i], chunks[i] + warp * chunk_bytes, b, lane);
#pragma unroll
    for (int i = 0; i < FEW_ROW_TILES; i++)
      fast_load_pairs(w[i], chunks[i] + warp * chunk_bytes, r);
  }
  cuda_await();
  const float *sums = fast_sums(in, GROUP);
  const int high_start[4] = {FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START};
  const int low_start[4] = {FAST_LOW_START, FAST_LOW_START, FAST_LOW_START, FAST_LOW_START};
  for (int s = 0; s < m.parts; s += slice_parts) {
    int count = min(slice_parts, m.parts - s), part = s + warp;
    for (int i = (int)threadIdx.x; i < count * tokens; i += (int)blockDim.x)
      shared_steps[i / tokens][i % tokens] = in.steps[(size_t)(s + i / tokens) * in.room + first + i % tokens];
    if (warp < count) {
      bool more = part + slice_parts < m.parts;
      float parts[FEW_ROW_TILES][TILES][4] = {};
      few_inputs<GROUP, TILES> x[turns];
#pragma unroll
      for (int i = 0; i < ahead; i++)
        load_inputs(x[i], in, sums, first, part * turns + i, r, c);
#pragma unroll
      for (int turn = 0; turn < turns; turn++) {
        const int blocks = x[0].BLOCKS;
        if (turn + ahead < turns)
          load_inputs(x[turn + ahead], in, sums, first, part * turns + turn + ahead, r, c);
        uint32_t a[FEW_ROW_TILES][blocks][2][4];
#pragma unroll
        for (int b = 0; b < blocks; b++)
#pragma unroll
          for (int i = 0; i < FEW_ROW_TILES; i++) {
            fast_unpack(w[i].codes[turn * blocks + b], a[i][b]);
            if (more)
              fast_load_block(w[i], chunks[i] + (part + slice_parts) * chunk_bytes, turn * blocks + b, lane);
          }
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
          for (int i = 0; i < FEW_ROW_TILES; i++) {
            int high[4], low[4];
#pragma unroll
            for (int h = 0; h < 2 * blocks; h++) {
              const uint4 &xh = x[turn].high[n][h / 2], &xl = x[turn].low[n][h / 2];
              const bool fresh = h == 0 || GROUP == 32;
              fast_mma(high, a[i][h / 2][h % 2], h % 2 ? xh.z : xh.x, h % 2 ? xh.w : xh.y, fresh ? high_start : high);
              fast_mma(low, a[i][h / 2][h % 2], h % 2 ? xl.z : xl.x, h % 2 ? xl.w : xl.y, fresh ? low_start : low);
              if (GROUP != 32 && h + 1 < 2 * blocks)
                continue;
              const int g = turn * x[0].GROUPS + (GROUP == 32 ? h : 0);
              add_group<F16>(parts[i][n], high, low, fast_word(w[i].pairs[0][g / 4], g % 4),
                             fast_word(w[i].pairs[1][g / 4], g % 4), x[turn].sums[n][GROUP == 32 ? h : 0]);
            }
          }
      }
#pragma unroll
      for (int i = 0; i < FEW_ROW_TILES; i++) {
        if (more)
          fast_load_pairs(w[i], chunks[i] + (part + slice_parts) * chunk_bytes, r);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
          for (int j = 0; j < 4; j++)
            shared_parts[warp][8 * n + 2 * c + j % 2][FAST_TILE * i + r + j / 2 * 8] = parts[i][n][j];
      }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < min(in.tokens - first, tokens) * FEW_ROWS; i += (int)blockDim.x) {
      int token = i / FEW_ROWS, row = i % FEW_ROWS;
      float slice = 0;
      for (int p = 0; p < count; p++)
        slice = fmaf(shared_steps[p][token], shared_parts[p][token][row], slice);
      float total = s ? totals[token][row] + slice : 0.0f + slice;
      totals[token][row] = total;
      if (s + slice_parts >= m.parts && first_row + row < rows)
        fast_store(m.of[matrix].out, rows, first + token, first_row + row, total);
    }
    __syncthreads();
  }
}

typedef void few_kernel(const fast_matrices m, const fast_inputs in, int slice_parts);

#define FEW(group, tiles)                                                                                              \
  {                                                                                                                    \
    group, tiles * 8, linear_few<group, false, tiles>, linear_few<group, true, tiles>                                  \
  }
static const struct {
  int group, tokens;
  few_kernel *bf16, *f16;
} kernels[] = {
    FEW(32, 1), FEW(32, 2), FEW(32, 4), FEW(64, 1), FEW(64, 2), FEW(64, 4), FEW(128, 1), FEW(128, 2), FEW(128, 4),
};
#undef FEW
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

void fast_few_setup(cuda_context *cx)
{
  for (int i = 0; i < KERNELS; i++) {
    few_kernel *const both[2] = {kernels[i].bf16, kernels[i].f16};
    for (int j = 0; j < 2 && cx->error == cudaSuccess; j++)
      cx->error = cudaFuncSetAttribute(both[j], cudaFuncAttributePreferredSharedMemoryCarveout, 28);
  }
}

void fast_linear_few(cuda_context *cx, const fast_matrices &m, const fast_inputs &in)
{
  fast_matrices tiled = fast_tiled(m, FEW_ROWS);
  int at = 0, slice_parts = (int)fast_slice((int64_t)m.parts * FAST_PART);
  while (kernels[at].group != m.group || kernels[at].tokens < (in.tokens < 32 ? in.tokens : 32))
    at++;
  dim3 grid((unsigned)tiled.tiles, (unsigned)cuda_ceil(in.tokens, kernels[at].tokens));
  cuda_launch(cx, true, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16, grid, (unsigned)slice_parts * 32, 0,
              tiled, in, slice_parts);
}
