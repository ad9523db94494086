/* fast_linear_gemm.cu - many tokens times packed matrices: prompts, and steps of many rows where the matrix has enough.
 *
 * A CTA has 128 rows and 32, 64 or 128 tokens and walks k in turns of 128 inputs: while one turn is multiplied, the
 * next one's codes come into shared memory (cp.async, two buffers, one barrier a turn). A warp has 32 rows and 32
 * tokens: its weights are unpacked once for four token tiles, a block of inputs is read once for two row tiles; four
 * warps for each scheduler hide each other's latencies (64 rows a warp and half as many warps: 4 % slower).
 *
 * A step of 16 rows, 8 tokens and 64 inputs takes four mma, two for each byte of the inputs: 24 cycles of a scheduler.
 * The definition's float sum costs 16 instructions there (two additions that make the dot product a float, two fused
 * multiply-adds, four outputs a lane), and they do not hide behind the mma: together 47 cycles, measured without
 * anything else. wgmma, which runs by itself, was tried with weights in registers and pieces of 32 tokens in turns: 85
 * TMAC/s against 100 then (its products alone took 55 cycles each, a quarter of what the tensor cores can).
 *
 * Only the sum of the current part stays in registers. Slices and totals change once in 512 inputs and once in 4096,
 * and lie in shared memory, each thread's own.
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_mma.cuh"

enum {
  GEMM_ROWS = 128,
  GEMM_TURN = 2,         /* blocks */
  GEMM_ROW_TILES = 2,    /* of 16 rows, of a warp */
  GEMM_TOKEN_TILES = 4,  /* of 8 tokens, of a warp */
  GEMM_TURN_GROUPS = 4,  /* at most */
  GEMM_SM_THREADS = 512, /* with 128 registers each */
};

/* What a turn needs, in shared memory. */
template <int TOKENS> struct gemm_turn {
  uint8_t inputs[GEMM_TURN][2][TOKENS][FAST_BLOCK]; /* planes high, low */
  uint8_t weights[GEMM_TURN][GEMM_ROWS / FAST_TILE][FAST_BLOCK_BYTES];
  uint32_t pairs[GEMM_TURN_GROUPS][GEMM_ROWS];
  float sums[GEMM_TURN_GROUPS][TOKENS];
};

template <int TOKENS> struct gemm_shared {
  enum { THREADS = TOKENS * 4, FOURS = GEMM_ROWS * TOKENS / 4 };
  gemm_turn<TOKENS> turn[2];
  float steps[2][TOKENS];
  float4 slices[FOURS];
  float4 totals[FOURS]; /* last: not there where there is one slice */
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
template <int GROUP, int TOKENS> struct gemm_source {
  enum {
    THREADS = TOKENS * 4,            /* 16 bytes of all tokens at once */
    TURNS = FAST_BLOCKS / GEMM_TURN, /* of a part */
    GROUPS = GEMM_TURN * FAST_BLOCK / GROUP,
    CHUNK = FAST_CHUNK_CODES + FAST_TILE * (FAST_PART / GROUP) * 4,
    TILES = GEMM_ROWS / FAST_TILE,
    TILES_AT_ONCE = THREADS / 32 < TILES ? THREADS / 32 : TILES,
    BLOCKS_AT_ONCE = THREADS / 32 / TILES_AT_ONCE,
    PASSES = TILES / TILES_AT_ONCE,
    PAIRS = (GROUPS * GEMM_ROWS + THREADS - 1) / THREADS,
  };
  const uint8_t *weights[PASSES], *pairs;
  const int8_t *inputs;
  const float *sums, *steps;
  int64_t plane; /* bytes */
};

template <int GROUP, int TOKENS>
static __device__ gemm_source<GROUP, TOKENS> source_of(const uint8_t *chunks, int64_t tile_bytes, int tiles,
                                                       const fast_inputs &in, int first_token)
{
  typedef gemm_source<GROUP, TOKENS> source;
  source from;
  int i = (int)threadIdx.x, row = i % GEMM_ROWS;
#pragma unroll
  for (int p = 0; p < source::PASSES; p++)
    from.weights[p] = chunks + min(i / 32 % source::TILES_AT_ONCE + p * source::TILES_AT_ONCE, tiles - 1) * tile_bytes +
                      i / 32 / source::TILES_AT_ONCE * FAST_BLOCK_BYTES + i % 32 * 16;
  from.pairs = chunks + min(row / FAST_TILE, tiles - 1) * tile_bytes + FAST_CHUNK_CODES +
               (row % FAST_TILE * (FAST_PART / GROUP) + i / GEMM_ROWS) * 4;
  from.plane = in.plane;
  from.inputs = in.codes + min(first_token + i / 4, in.tokens - 1) * FAST_BLOCK + i % 4 * 16;
  int token = min(first_token + i % (TOKENS / 4) * 4, in.room - 4);
  from.sums = fast_sums(in, GROUP) + (int64_t)(i / (TOKENS / 4)) * in.room + token;
  from.steps = in.steps + token;
  return from;
}

template <int GROUP, int TOKENS>
static __device__ void load_weights(gemm_turn<TOKENS> &to, const gemm_source<GROUP, TOKENS> &from, int turn)
{
  typedef gemm_source<GROUP, TOKENS> source;
  int i = (int)threadIdx.x;
  int64_t chunk = (int64_t)(turn / source::TURNS) * source::CHUNK;
#pragma unroll
  for (int b = 0; b < GEMM_TURN; b += source::BLOCKS_AT_ONCE)
#pragma unroll
    for (int p = 0; p < source::PASSES; p++)
      copy_async<16>(&to.weights[b][p * source::TILES_AT_ONCE][0] + i * 16,
                     from.weights[p] + chunk + (turn % source::TURNS * GEMM_TURN + b) * FAST_BLOCK_BYTES);
  const uint8_t *pairs = from.pairs + chunk + turn % source::TURNS * source::GROUPS * 4;
#pragma unroll
  for (int j = 0; j < source::PAIRS; j++)
    if (source::GROUPS * GEMM_ROWS >= source::THREADS || i < source::GROUPS * GEMM_ROWS)
      copy_async<4>(&to.pairs[0][0] + i + j * source::THREADS, pairs + j * (source::THREADS / GEMM_ROWS) * 4);
}

template <int GROUP, int TOKENS>
static __device__ void load_inputs(gemm_shared<TOKENS> &s, const gemm_source<GROUP, TOKENS> &from, int room, int turn)
{
  typedef gemm_source<GROUP, TOKENS> source;
  int i = (int)threadIdx.x, fours = TOKENS / 4;
  gemm_turn<TOKENS> &to = s.turn[turn % 2];
  const int8_t *inputs = from.inputs + (int64_t)turn * (2 * GEMM_TURN) * from.plane;
#pragma unroll
  for (int j = 0; j < GEMM_TURN * 2; j++)
    copy_async<16>(&to.inputs[0][j][0][0] + i * 16, inputs + j * from.plane);
  if (i < source::GROUPS * fours)
    copy_async<16>(&to.sums[0][0] + i * 4, from.sums + (int64_t)turn * source::GROUPS * room);
  if (turn % source::TURNS == 0 && i >= source::THREADS / 2 && i < source::THREADS / 2 + fours)
    copy_async<16>(&s.steps[turn / source::TURNS % 2][i % fours * 4],
                   from.steps + (int64_t)(turn / source::TURNS) * room);
}

template <int GROUP, bool F16, int TOKENS>
static __global__ void __launch_bounds__(TOKENS * 4, GEMM_SM_THREADS / (TOKENS * 4))
    linear_gemm(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_inputs in, int slice_parts)
{
  const int threads = TOKENS * 4, turns = FAST_BLOCKS / GEMM_TURN; /* of a part */
  const int span = GROUP == 128 ? 2 : 1;                           /* blocks multiplied at a time: a group is whole */
  const int span_groups = GROUP == 32 ? 2 : 1;
  extern __shared__ __align__(128) uint8_t memory[];
  gemm_shared<TOKENS> &s = *(gemm_shared<TOKENS> *)memory;
  cuda_release_next();
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4;
  int token_tiles = (in.tokens + TOKENS - 1) / TOKENS;
  int first_token = (int)blockIdx.x % token_tiles * TOKENS, tile = (int)blockIdx.x / token_tiles;
  int matrix = fast_matrix_of(m, tile), rows = m.of[matrix].rows;
  int first_row = (tile - m.of[matrix].first_tile) * GEMM_ROWS;
  int64_t tile_bytes = (int64_t)m.parts * fast_chunk_bytes(GROUP);
  gemm_source<GROUP, TOKENS> from =
      source_of<GROUP, TOKENS>(m.of[matrix].chunks + first_row / FAST_TILE * tile_bytes, tile_bytes,
                               (rows - first_row + FAST_TILE - 1) / FAST_TILE, in, first_token);
  const int high_start[4] = {FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START};
  const int low_start[4] = {FAST_LOW_START, FAST_LOW_START, FAST_LOW_START, FAST_LOW_START};
  /* The warp's share of the tile. */
  int row_tile = warp / (TOKENS / 32) * GEMM_ROW_TILES, token_tile = warp % (TOKENS / 32) * GEMM_TOKEN_TILES;

  load_weights(s.turn[0], from, 0);
  cuda_await();
  load_inputs(s, from, in.room, 0);
  float parts[GEMM_ROW_TILES][GEMM_TOKEN_TILES][4] = {};
  for (int turn = 0; turn < m.parts * turns; turn++) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads(); /* this turn's inputs stand, and nobody reads the other buffer any more */
    if (turn + 1 < m.parts * turns) {
      load_weights(s.turn[(turn + 1) % 2], from, turn + 1);
      load_inputs(s, from, in.room, turn + 1);
    }
    const gemm_turn<TOKENS> &now = s.turn[turn % 2];
#pragma unroll 1
    for (int block = 0; block < GEMM_TURN; block += span) {
      uint32_t a[GEMM_ROW_TILES][span][2][4];
      float scale[GEMM_ROW_TILES][span_groups][2], bias[GEMM_ROW_TILES][span_groups][2];
#pragma unroll
      for (int i = 0; i < GEMM_ROW_TILES; i++) {
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
        for (int i = 0; i < GEMM_ROW_TILES; i++) {
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
      for (int i = 0; i < GEMM_ROW_TILES; i++) {
        float *p = parts[i][n];
        int at = (n * GEMM_ROW_TILES + i) * threads + (int)threadIdx.x;
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

#define GEMM(group, tokens)                                                                                            \
  {                                                                                                                    \
    group, tokens, (int)sizeof(gemm_shared<tokens>), (int)sizeof(gemm_shared<tokens>::totals),                         \
        linear_gemm<group, false, tokens>, linear_gemm<group, true, tokens>                                            \
  }
static const struct {
  int group, tokens, shared, totals; /* bytes of shared memory, with those of totals */
  gemm_kernel *bf16, *f16;
} kernels[] = {
    GEMM(32, 32),  GEMM(32, 64),  GEMM(32, 128), GEMM(64, 32),   GEMM(64, 64),
    GEMM(64, 128), GEMM(128, 32), GEMM(128, 64), GEMM(128, 128),
};
#undef GEMM
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

void fast_gemm_setup(cuda_context *cx)
{
  for (int i = 0; i < KERNELS && fast_gemm_fits(cx); i++) {
    gemm_kernel *const both[2] = {kernels[i].bf16, kernels[i].f16};
    for (int j = 0; j < 2 && cx->error == cudaSuccess; j++)
      cx->error = cudaFuncSetAttribute(both[j], cudaFuncAttributeMaxDynamicSharedMemorySize, kernels[i].shared);
  }
}

bool fast_gemm_fits(const cuda_context *cx)
{
  return cx->shared_most >= sizeof(gemm_shared<128>);
}

void fast_linear_gemm(cuda_context *cx, const fast_matrices &m, const fast_inputs &in, int tile)
{
  fast_matrices tiled = fast_tiled(m, GEMM_ROWS);
  int at = 0, slice_parts = (int)fast_slice((int64_t)m.parts * FAST_PART);
  while (kernels[at].group != m.group || kernels[at].tokens != tile)
    at++;
  cuda_launch(cx, true, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16,
              (unsigned)(tiled.tiles * (int)cuda_ceil(in.tokens, tile)), (unsigned)tile * 4,
              (size_t)(kernels[at].shared - (m.parts <= slice_parts ? kernels[at].totals : 0)), tiled, in, slice_parts);
}
