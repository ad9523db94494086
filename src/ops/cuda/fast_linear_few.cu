/* fast_linear_few.cu - 5 to some hundred tokens times packed matrices: steps of many rows, short prompts.
 *
 * As in fast_linear_step.cu a CTA stays on its processor and a lane's weights come in behind the ones it multiplies,
 * but a warp has two tiles of 16 rows, and the inputs are not held in shared memory: a slice of 32 tokens is 256 KB.
 * They come through the L1 cache, which is asked to be large, out of the L2 cache where that does not hold them (32
 * tokens); two row tiles a warp halve that. Columns of an mma are tokens, 8 to a tile, and each byte of the inputs has
 * its own mma.
 *
 * The warps of a CTA are the parts of a slice: after each slice the parts meet in shared memory, in order. With a gate
 * the two row tiles are the same one of both matrices, and its activation is done where they meet.
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

/* What a CTA does at a time: 32 rows of a matrix, or 16 of both that are gated. */
struct few_rows {
  int matrix, first; /* row */
  const uint8_t *chunks[FEW_ROW_TILES];
};

template <int GROUP> static __device__ few_rows rows_of(const fast_matrices &m, bool gated, int tile)
{
  few_rows at;
  at.matrix = gated ? 0 : fast_matrix_of(m, tile);
  at.first = gated ? tile * FAST_TILE : (tile - m.of[at.matrix].first_tile) * FEW_ROWS;
#pragma unroll
  for (int i = 0; i < FEW_ROW_TILES; i++) {
    int last = (m.of[at.matrix].rows - 1) / FAST_TILE; /* it may be alone */
    int row_tile = gated ? tile : min(at.first / FAST_TILE + i, last);
    at.chunks[i] = m.of[gated ? i : at.matrix].chunks + (int64_t)row_tile * m.parts * fast_chunk_bytes(GROUP);
  }
  return at;
}

template <int GROUP, bool F16, int TILES>
static __global__ void __launch_bounds__(FEW_WARPS * 32, 1)
    linear_few(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_inputs in, int tiles,
               int slice_parts, float *gated_to)
{
  const int tokens = TILES * 8, turns = FAST_PART / (GROUP < FAST_BLOCK ? FAST_BLOCK : GROUP);
  const int ahead = TILES == 1 ? (GROUP == 128 ? 2 : 4) : TILES == 2 ? 2 : 1; /* turns that inputs load early */
  const int chunk_bytes = fast_chunk_bytes(GROUP);
  __shared__ float shared_parts[FEW_WARPS][tokens][FEW_PITCH], totals[tokens][FEW_ROWS];
  __shared__ float shared_steps[FEW_WARPS][tokens];
  cuda_release_next();
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4;
  int first = (int)blockIdx.y * tokens; /* token */
  bool gated = gated_to != NULL;
  few_rows now = rows_of<GROUP>(m, gated, (int)blockIdx.x);
  fast_weights<GROUP> w[FEW_ROW_TILES];
#pragma unroll
  for (int i = 0; i < FEW_ROW_TILES; i++) {
#pragma unroll
    for (int b = 0; b < FAST_BLOCKS; b++)
      fast_load_block(w[i], now.chunks[i] + warp * chunk_bytes, b, lane);
    fast_load_pairs(w[i], now.chunks[i] + warp * chunk_bytes, r);
  }
  cuda_await();
  const float *sums = fast_sums(in, GROUP);
  const int high_start[4] = {FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START};
  const int low_start[4] = {FAST_LOW_START, FAST_LOW_START, FAST_LOW_START, FAST_LOW_START};
  for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x)
    for (int s = 0; s < m.parts; s += slice_parts) {
      now = rows_of<GROUP>(m, gated, tile);
      int count = min(slice_parts, m.parts - s), part = s + warp, rows = m.of[now.matrix].rows;
      /* The next chunks of this warp: another slice, or other rows. */
      bool last = s + slice_parts >= m.parts;
      int next_tile = last ? tile + (int)gridDim.x : tile, next_part = last ? warp : part + slice_parts;
      bool more = next_tile < tiles && next_part < m.parts;
      const uint8_t *next[FEW_ROW_TILES] = {};
      if (more) {
        few_rows then = rows_of<GROUP>(m, gated, next_tile);
#pragma unroll
        for (int i = 0; i < FEW_ROW_TILES; i++)
          next[i] = then.chunks[i] + next_part * chunk_bytes;
      }
      for (int i = (int)threadIdx.x; i < count * tokens; i += (int)blockDim.x)
        shared_steps[i / tokens][i % tokens] = in.steps[(int64_t)(s + i / tokens) * in.room + first + i % tokens];
      if (warp < count) {
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
                fast_load_block(w[i], next[i], turn * blocks + b, lane);
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
            fast_load_pairs(w[i], next[i], r);
#pragma unroll
          for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int j = 0; j < 4; j++)
              shared_parts[warp][8 * n + 2 * c + j % 2][FAST_TILE * i + r + j / 2 * 8] = parts[i][n][j];
        }
      } else if (more) { /* a short last slice had nothing for this warp */
#pragma unroll
        for (int i = 0; i < FEW_ROW_TILES; i++) {
#pragma unroll
          for (int b = 0; b < FAST_BLOCKS; b++)
            fast_load_block(w[i], next[i], b, lane);
          fast_load_pairs(w[i], next[i], r);
        }
      }
      __syncthreads();
      int together = gated ? 2 : 1, height = FEW_ROWS / together;
      for (int i = (int)threadIdx.x; i < min(in.tokens - first, tokens) * height; i += (int)blockDim.x) {
        int token = i / height, row = i % height, n = now.first + row;
        float done[2];
        for (int k = 0; k < together; k++) {
          float slice = 0, *total = &totals[token][row + k * FAST_TILE];
          for (int p = 0; p < count; p++)
            slice = fmaf(shared_steps[p][token], shared_parts[p][token][row + k * FAST_TILE], slice);
          done[k] = s ? *total + slice : 0.0f + slice;
          if (!last)
            *total = done[k];
        }
        if (!last || n >= rows)
          continue;
        if (!gated) {
          fast_store(m.of[now.matrix].out, rows, first + token, n, done[0]);
          continue;
        }
        float gate = fast_finish(m.of[0].out, rows, first + token, n, done[0]);
        float up = fast_finish(m.of[1].out, rows, first + token, n, done[1]);
        gated_to[(int64_t)(first + token) * rows + n] = fast_silu(gate) * up;
      }
      __syncthreads();
    }
}

typedef void few_kernel(const fast_matrices m, const fast_inputs in, int tiles, int slice_parts, float *gated_to);

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

void fast_linear_few(cuda_context *cx, const fast_matrices &m, const fast_inputs &in, float *gated)
{
  fast_matrices tiled = fast_tiled(m, gated ? (int)FAST_TILE : (int)FEW_ROWS);
  int at = 0, slice_parts = (int)fast_slice((int64_t)m.parts * FAST_PART), tiles = tiled.tiles / (gated ? 2 : 1);
  while (kernels[at].group != m.group || kernels[at].tokens < (in.tokens < 32 ? in.tokens : 32))
    at++;
  dim3 grid((unsigned)(tiles < cx->processors ? tiles : cx->processors),
            (unsigned)cuda_ceil(in.tokens, kernels[at].tokens));
  cuda_launch(cx, true, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16, grid, (unsigned)slice_parts * 32, 0,
              tiled, in, tiles, slice_parts, gated);
}
