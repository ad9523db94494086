/* fast_linear_gemm.cu - many tokens times packed matrices: prompts.
 *
 * A CTA has 128 rows and 128 tokens and walks k in turns of 128 inputs: while one turn is multiplied, the next one's
 * codes come into shared memory (cp.async, two buffers, one barrier a turn). A warp has 64 rows and 32 tokens: weights
 * are unpacked once for its four token tiles, and a block of inputs is read once for its four row tiles.
 *
 * A step of 16 rows, 8 tokens and 64 inputs takes four mma, two for each byte of the inputs: 29 cycles of the tensor
 * cores of one scheduler. The definition's float sum costs 16 instructions there (two additions that make the dot
 * product a float, two fused multiply-adds, four outputs a lane), which run beside them.
 *
 * Only the sum of the current part stays in registers. Slices and totals change once in 512 inputs and once in 4096,
 * and lie in shared memory, each thread's own.
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_mma.cuh"

enum {
  GEMM_ROWS = 128,
  GEMM_TOKENS = 128,
  GEMM_TURN = 2,        /* blocks */
  GEMM_TOKEN_TILES = 4, /* of 8, of a warp */
  GEMM_TURN_GROUPS = 4, /* at most */
  GEMM_OUTPUTS = GEMM_ROWS * GEMM_TOKENS,
};

/* What a turn needs, in shared memory. */
struct gemm_turn {
  uint8_t inputs[GEMM_TURN][2][GEMM_TOKENS][FAST_BLOCK]; /* planes high, low */
  uint8_t weights[GEMM_TURN][GEMM_ROWS / FAST_TILE][FAST_BLOCK_BYTES];
  uint32_t pairs[GEMM_TURN_GROUPS][GEMM_ROWS];
  float sums[GEMM_TURN_GROUPS][GEMM_TOKENS];
};

struct gemm_shared {
  gemm_turn turn[2];
  float steps[2][GEMM_TOKENS];
  float4 slices[GEMM_OUTPUTS / 4], totals[GEMM_OUTPUTS / 4];
};

/* 16 or 4 bytes, on their own. */
template <int BYTES> static __device__ void copy_async(void *to, const void *from)
{
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from));
}

/* Where a thread's pieces of every turn come from. Each thread copies the same places of all turns, so that an address
 * is an addition: worked out anew they cost as much as the arithmetic. */
template <int GROUP, int THREADS> struct gemm_source {
  enum {
    TURNS = FAST_BLOCKS / GEMM_TURN, /* of a part */
    GROUPS = GEMM_TURN * FAST_BLOCK / GROUP,
    CHUNK = FAST_CHUNK_CODES + FAST_TILE * (FAST_PART / GROUP) * 4,
    TOKENS = THREADS / 4, /* whose inputs all threads copy at once, 16 bytes each */
    PASSES = GEMM_TOKENS / TOKENS,
    WEIGHTS = GEMM_TURN * GEMM_ROWS * FAST_BLOCK / 2 / 16 / THREADS, /* pieces of a thread */
    PAIRS = (GROUPS * GEMM_ROWS + THREADS - 1) / THREADS,
  };
  const uint8_t *weights, *pairs;
  const int8_t *inputs[PASSES];
  const float *sums, *steps;
  int64_t plane; /* bytes */
};

template <int GROUP, int THREADS>
static __device__ gemm_source<GROUP, THREADS> source_of(const uint8_t *chunks, int64_t tile_bytes, int tiles,
                                                        const fast_inputs &in, int first_token)
{
  gemm_source<GROUP, THREADS> from;
  int i = (int)threadIdx.x, tile = i % 256 / 32, row = i % GEMM_ROWS;
  from.weights = chunks + min(tile, tiles - 1) * tile_bytes + i / 256 * FAST_BLOCK_BYTES + i % 32 * 16;
  from.pairs = chunks + min(row / FAST_TILE, tiles - 1) * tile_bytes + FAST_CHUNK_CODES +
               (row % FAST_TILE * (FAST_PART / GROUP) + i / GEMM_ROWS) * 4;
  from.plane = in.plane;
#pragma unroll
  for (int p = 0; p < from.PASSES; p++)
    from.inputs[p] = in.codes + min(first_token + p * from.TOKENS + i / 4, in.tokens - 1) * FAST_BLOCK + i % 4 * 16;
  int token = min(first_token + i % 32 * 4, in.room - 4);
  from.sums = fast_sums(in, GROUP) + (int64_t)(i / 32) * in.room + token;
  from.steps = in.steps + token;
  return from;
}

template <int GROUP, int THREADS>
static __device__ void load_weights(gemm_turn &to, const gemm_source<GROUP, THREADS> &from, int turn)
{
  int i = (int)threadIdx.x;
  int64_t chunk = (int64_t)(turn / from.TURNS) * from.CHUNK;
  const uint8_t *weights = from.weights + chunk + turn % from.TURNS * GEMM_TURN * FAST_BLOCK_BYTES;
  const uint8_t *pairs = from.pairs + chunk + turn % from.TURNS * from.GROUPS * 4;
#pragma unroll
  for (int j = 0; j < from.WEIGHTS; j++) /* 256 threads take a block */
    copy_async<16>(&to.weights[0][0][0] + (i + j * THREADS) * 16, weights + j * (THREADS / 256) * FAST_BLOCK_BYTES);
#pragma unroll
  for (int j = 0; j < from.PAIRS; j++)
    if (from.GROUPS * GEMM_ROWS >= THREADS || i < from.GROUPS * GEMM_ROWS)
      copy_async<4>(&to.pairs[0][0] + i + j * THREADS, pairs + j * (THREADS / GEMM_ROWS) * 4);
}

template <int GROUP, int THREADS>
static __device__ void load_inputs(gemm_shared &s, const gemm_source<GROUP, THREADS> &from, int room, int turn)
{
  int i = (int)threadIdx.x;
  gemm_turn &to = s.turn[turn % 2];
  int64_t at = turn * (2 * GEMM_TURN) * from.plane;
#pragma unroll
  for (int p = 0; p < from.PASSES; p++)
#pragma unroll
    for (int j = 0; j < GEMM_TURN * 2; j++)
      copy_async<16>(&to.inputs[0][0][0][0] + ((j * GEMM_TOKENS + p * from.TOKENS) * 4 + i) * 16,
                     from.inputs[p] + at + j * from.plane);
  if (i < from.GROUPS * 32)
    copy_async<16>(&to.sums[0][0] + i * 4, from.sums + (int64_t)turn * from.GROUPS * room);
  if (turn % from.TURNS == 0 && i >= 128 && i < 160)
    copy_async<16>(&s.steps[turn / from.TURNS % 2][i % 32 * 4], from.steps + (int64_t)(turn / from.TURNS) * room);
}

/* ROW_TILES of 16 rows a warp: 4 for 8 warps, 2 for 16. */
template <int GROUP, bool F16, int ROW_TILES>
static __global__ void __launch_bounds__(GEMM_OUTPUTS / (ROW_TILES * GEMM_TOKEN_TILES * 4), 1)
    linear_gemm(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_inputs in, int slice_parts)
{
  const int threads = GEMM_OUTPUTS / (ROW_TILES * GEMM_TOKEN_TILES * 4);
  const int span = GROUP == 128 ? 2 : 1; /* blocks multiplied at a time: a group is whole */
  const int span_groups = GROUP == 32 ? 2 : 1, turns = FAST_BLOCKS / GEMM_TURN; /* of a part */
  extern __shared__ __align__(128) uint8_t memory[];
  gemm_shared &s = *(gemm_shared *)memory;
  cuda_release_next();
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4;
  int token_tiles = (in.tokens + GEMM_TOKENS - 1) / GEMM_TOKENS;
  int first_token = (int)blockIdx.x % token_tiles * GEMM_TOKENS, tile = (int)blockIdx.x / token_tiles;
  int matrix = fast_matrix_of(m, tile), rows = m.of[matrix].rows;
  int first_row = (tile - m.of[matrix].first_tile) * GEMM_ROWS;
  int64_t tile_bytes = (int64_t)m.parts * fast_chunk_bytes(GROUP);
  gemm_source<GROUP, threads> from =
      source_of<GROUP, threads>(m.of[matrix].chunks + first_row / FAST_TILE * tile_bytes, tile_bytes,
                                (rows - first_row + FAST_TILE - 1) / FAST_TILE, in, first_token);
  const int high_start[4] = {FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START};
  const int low_start[4] = {FAST_LOW_START, FAST_LOW_START, FAST_LOW_START, FAST_LOW_START};
  /* The warp's share of the tile. */
  int row_tile = warp / (GEMM_TOKENS / 32) * ROW_TILES, token_tile = warp % (GEMM_TOKENS / 32) * GEMM_TOKEN_TILES;

  load_weights(s.turn[0], from, 0);
  cuda_await();
  load_inputs(s, from, in.room, 0);
  float parts[ROW_TILES][GEMM_TOKEN_TILES][4] = {};
  for (int turn = 0; turn < m.parts * turns; turn++) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads(); /* this turn's inputs stand, and nobody reads the other buffer any more */
    if (turn + 1 < m.parts * turns) {
      load_weights(s.turn[(turn + 1) % 2], from, turn + 1);
      load_inputs(s, from, in.room, turn + 1);
    }
    const gemm_turn &now = s.turn[turn % 2];
#pragma unroll 1
    for (int block = 0; block < GEMM_TURN; block += span) {
      uint32_t a[ROW_TILES][span][2][4];
      float scale[ROW_TILES][span_groups][2], bias[ROW_TILES][span_groups][2];
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++) {
#pragma unroll
        for (int b = 0; b < span; b++)
          fast_unpack(((const uint4 *)now.weights[block + b][row_tile + i])[lane], a[i][b]);
#pragma unroll
        for (int g = 0; g < span_groups; g++)
#pragma unroll
          for (int below = 0; below < 2; below++)
            fast_scale_bias<F16>(now.pairs[block / span * span_groups + g][(row_tile + i) * FAST_TILE + r + 8 * below],
                                 &scale[i][g][below], &bias[i][g][below]);
      }
#pragma unroll
      for (int n = 0; n < GEMM_TOKEN_TILES; n++) {
        uint4 x[span][2];
        float2 sum[span_groups];
#pragma unroll
        for (int b = 0; b < span; b++)
#pragma unroll
          for (int plane = 0; plane < 2; plane++)
            x[b][plane] = ((const uint4 *)now.inputs[block + b][plane][(token_tile + n) * 8])[lane];
#pragma unroll
        for (int g = 0; g < span_groups; g++)
          sum[g] = *(const float2 *)&now.sums[block / span * span_groups + g][(token_tile + n) * 8 + 2 * c];
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) {
          int high[4], low[4];
#pragma unroll
          for (int h = 0; h < 2 * span; h++) {
            const uint4 &xh = x[h / 2][0], &xl = x[h / 2][1];
            const bool fresh = h == 0 || GROUP == 32;
            fast_mma(high, a[i][h / 2][h % 2], h % 2 ? xh.z : xh.x, h % 2 ? xh.w : xh.y, fresh ? high_start : high);
            fast_mma(low, a[i][h / 2][h % 2], h % 2 ? xl.z : xl.x, h % 2 ? xl.w : xl.y, fresh ? low_start : low);
            if (GROUP != 32 && h + 1 < 2 * span)
              continue;
            const int g = GROUP == 32 ? h : 0;
#pragma unroll
            for (int j = 0; j < 4; j++) {
              float part = fmaf(scale[i][g][j / 2], fast_dot(high[j], low[j]), parts[i][n][j]);
              parts[i][n][j] = fmaf(bias[i][g][j / 2], j % 2 ? sum[g].y : sum[g].x, part);
            }
          }
        }
      }
    }
    if (turn % turns != turns - 1)
      continue;
    int part = turn / turns, in_slice = part % slice_parts;
    bool last = part + 1 == m.parts, ends = in_slice + 1 == slice_parts || last;
#pragma unroll
    for (int n = 0; n < GEMM_TOKEN_TILES; n++) {
      float2 step = *(const float2 *)&s.steps[part % 2][(token_tile + n) * 8 + 2 * c];
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++) {
        float *p = parts[i][n];
        int at = (n * ROW_TILES + i) * threads + (int)threadIdx.x;
        float4 slice = in_slice ? s.slices[at] : make_float4(0, 0, 0, 0);
        slice.x = fmaf(step.x, p[0], slice.x);
        slice.y = fmaf(step.y, p[1], slice.y);
        slice.z = fmaf(step.x, p[2], slice.z);
        slice.w = fmaf(step.y, p[3], slice.w);
        p[0] = p[1] = p[2] = p[3] = 0;
        if (!ends) {
          s.slices[at] = slice;
          continue;
        }
        float4 total = part < slice_parts ? make_float4(0, 0, 0, 0) : s.totals[at];
        total.x += slice.x, total.y += slice.y, total.z += slice.z, total.w += slice.w;
        if (!last) {
          s.totals[at] = total;
          continue;
        }
        float done[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
          int row = first_row + (row_tile + i) * FAST_TILE + r + j / 2 * 8;
          int token = first_token + (token_tile + n) * 8 + 2 * c + j % 2;
          if (row < rows && token < in.tokens)
            fast_store(m.of[matrix].out, rows, token, row, done[j]);
        }
      }
    }
  }
}

typedef void gemm_kernel(const fast_matrices m, const fast_inputs in, int slice_parts);

enum { GEMM_WARP_TILES = 4, GEMM_THREADS = GEMM_OUTPUTS / (GEMM_WARP_TILES * GEMM_TOKEN_TILES * 4) };

static const struct {
  int group;
  gemm_kernel *bf16, *f16;
} kernels[] = {
    {32, linear_gemm<32, false, GEMM_WARP_TILES>, linear_gemm<32, true, GEMM_WARP_TILES>},
    {64, linear_gemm<64, false, GEMM_WARP_TILES>, linear_gemm<64, true, GEMM_WARP_TILES>},
    {128, linear_gemm<128, false, GEMM_WARP_TILES>, linear_gemm<128, true, GEMM_WARP_TILES>},
};

void fast_gemm_setup(cuda_context *cx)
{
  for (int i = 0; i < 3 && fast_gemm_fits(cx); i++) {
    gemm_kernel *const both[2] = {kernels[i].bf16, kernels[i].f16};
    for (int j = 0; j < 2 && cx->error == cudaSuccess; j++)
      cx->error = cudaFuncSetAttribute(both[j], cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(gemm_shared));
  }
}

bool fast_gemm_fits(const cuda_context *cx)
{
  return cx->shared_most >= sizeof(gemm_shared);
}

void fast_linear_gemm(cuda_context *cx, const fast_matrices &m, const fast_inputs &in)
{
  fast_matrices tiled = fast_tiled(m, GEMM_ROWS);
  int at = 0, token_tiles = (int)cuda_ceil(in.tokens, GEMM_TOKENS);
  while (kernels[at].group != m.group)
    at++;
  cuda_launch(cx, true, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16, (unsigned)(tiled.tiles * token_tiles),
              GEMM_THREADS, sizeof(gemm_shared), tiled, in, (int)fast_slice((int64_t)m.parts * FAST_PART));
}
