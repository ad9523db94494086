/* fast_linear_wgmma.cu - many tokens times packed matrices on GPUs of capability 9.0: prompts.
 *
 * mma.sync keeps the scheduler busy while the tensor cores work, so that the float sum of the definition adds to their
 * time (fast_linear_gemm.cu: 47 cycles a step of 16 rows, 8 tokens and 64 inputs, 24 of them mma). wgmma runs on its
 * own: here the sum of one piece is made while the next piece is multiplied, and its 16 + 8 instructions are what
 * bounds the kernel.
 *
 * A CTA has 128 rows and 128 tokens, a warp group 64 of the rows. Weights go from memory to registers, unpacked there
 * once for all 128 tokens (A of wgmma may be registers). Inputs lie in shared memory, a block (or two, where groups are
 * 128) at a time, in three slots: tokens of 16 bytes side by side, quarter by quarter, which is wgmma's layout without
 * swizzling, and that in which fast_inputs.cuh has them for this kernel. A piece is 32 tokens of a group: both bytes'
 * sums, 16 registers each; two pieces take turns.
 *
 * Accumulators start as large floats as everywhere (fast_mma.cuh). The part's sum stays in registers; slices and totals
 * change once in 512 and in 4096 inputs and lie in shared memory, each thread's own.
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_mma.cuh"

enum {
  WG_ROWS = 128,
  WG_TOKENS = 128,
  WG_THREADS = 256,
  WG_PIECE = 32, /* tokens */
  WG_PIECES = WG_TOKENS / WG_PIECE,
  WG_SLOTS = 3,
  WG_QUARTER = WG_TOKENS * 16, /* bytes: all tokens' 16 bytes of a quarter of a block */
  WG_PLANE = 4 * WG_QUARTER,
  WG_SUMS = WG_ROWS * WG_TOKENS / 4, /* outputs, in fours */
};

/* What goes by in one step of the loop. */
template <int GROUP> struct wg_step {
  enum {
    BLOCKS = GROUP == 128 ? 2 : 1,
    GROUPS = GROUP == 32 ? 2 : 1,
    HALVES = GROUP / 32,
    STEPS = FAST_BLOCKS / BLOCKS
  };
  uint8_t inputs[BLOCKS][2][4][WG_TOKENS][16]; /* planes high, low; even and odd inputs of each half */
  float sums[GROUPS][WG_TOKENS];
};

template <int GROUP> struct wg_shared {
  wg_step<GROUP> slot[WG_SLOTS];
  float steps[2][WG_TOKENS];
  float4 slices[WG_SUMS], totals[WG_SUMS];
};

/* Whether the code below is in this binary: it needs the target sm_90a. */
static __device__ int wgmma_there =
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    1;
#else
    0;
#endif

static __device__ void copy_async(void *to, const void *from)
{
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/* Matrix B of a wgmma: 32 inputs of tokens at `at` and behind; 8 tokens are 128 bytes, the next quarter is WG_QUARTER
 * bytes on. */
static __device__ uint64_t tokens_at(const void *at)
{
  uint32_t address = (uint32_t)__cvta_generic_to_shared(at);
  return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(WG_QUARTER >> 4) << 16 | (uint64_t)(128 >> 4) << 32;
}

/* d += a b: 64 rows (16 a warp), 32 tokens, 32 inputs. Asynchronous. */
static __device__ void wgmma(int d[16], const uint32_t a[4], uint64_t b)
{
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,"
               "%15}, {%16,%17,%18,%19}, %20, 1;"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]),
                 "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* Sums of one piece. */
struct wg_piece {
  int high[16], low[16];
};

/* Keeps the compiler from moving what touches the sums across. */
static __device__ void pin(wg_piece &p)
{
#pragma unroll
  for (int i = 0; i < 16; i++)
    asm volatile("" : "+r"(p.high[i]), "+r"(p.low[i])::"memory");
}

/* A step's weights as A of its products; done before the first of them begins. */
template <int BLOCKS> static __device__ void unpack(const uint4 codes[BLOCKS], uint32_t a[2 * BLOCKS][4])
{
#pragma unroll
  for (int b = 0; b < BLOCKS; b++)
    fast_unpack(codes[b], &a[2 * b]);
#pragma unroll
  for (int h = 0; h < 2 * BLOCKS; h++)
    asm volatile("" : "+r"(a[h][0]), "+r"(a[h][1]), "+r"(a[h][2]), "+r"(a[h][3])::"memory");
}

/* Begins the product of a group (HALVES times 32 inputs) with the tokens of a piece. What it reads and writes must not
 * be touched before it is awaited; nor does ptxas let a piece be under way over the end of a loop's body or a branch:
 * it then waits for each wgmma by itself, and says so (C7514). */
template <int HALVES> static __device__ void begin(wg_piece &p, const uint32_t a[HALVES][4], uint64_t tokens)
{
#pragma unroll
  for (int i = 0; i < 16; i++) {
    p.high[i] = FAST_HIGH_START;
    p.low[i] = FAST_LOW_START;
  }
  pin(p);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int h = 0; h < HALVES; h++) { /* a block has two planes of four quarters */
    uint64_t half = tokens + (uint64_t)((h / 2 * 2 * WG_PLANE + h % 2 * 2 * WG_QUARTER) >> 4);
    wgmma(p.high, a[h], half);
    wgmma(p.low, a[h], half + (WG_PLANE >> 4));
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all but the last `pending` pieces are done. */
template <int PENDING> static __device__ void await_pieces(wg_piece &p)
{
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
  pin(p);
}

/* parts (of rows r and r + 8, tokens 8 n + 2 c and the next) += the group's share. */
static __device__ void add(float parts[WG_PIECE / 8][4], const wg_piece &p, const float scale[2], const float bias[2],
                           const float *sums)
{
#pragma unroll
  for (int n = 0; n < WG_PIECE / 8; n++) {
    float2 sum = *(const float2 *)(sums + 8 * n);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float part = fmaf(scale[j / 2], fast_dot(p.high[4 * n + j], p.low[4 * n + j]), parts[n][j]);
      parts[n][j] = fmaf(bias[j / 2], j % 2 ? sum.y : sum.x, part);
    }
  }
}

/* ---- what comes from memory ---- */

/* A thread's pieces of every step's inputs, and a lane's weights. */
struct wg_source {
  const int8_t *inputs;
  int64_t quarter; /* bytes */
  const float *sums, *steps;
  int room;
  const uint8_t *chunk; /* of the warp's tile, the first part */
};

template <int GROUP> static __device__ void load_inputs(wg_shared<GROUP> &s, const wg_source &from, int step, int slot)
{
  typedef wg_step<GROUP> shape;
  shape &to = s.slot[slot];
  int i = (int)threadIdx.x;
  const int8_t *inputs = from.inputs + (int64_t)step * (8 * shape::BLOCKS) * from.quarter;
#pragma unroll
  for (int j = 0; j < 4 * shape::BLOCKS; j++) /* 256 threads take two quarters */
    copy_async(&to.inputs[0][0][0][0][0] + (j * WG_THREADS + i) * 16, inputs + 2 * j * from.quarter);
  if (i < shape::GROUPS * 32)
    copy_async(&to.sums[0][0] + i * 4, from.sums + (int64_t)step * shape::GROUPS * from.room);
  if (step % shape::STEPS == 0 && i >= 64 && i < 96)
    copy_async(&s.steps[step / shape::STEPS % 2][i % 32 * 4], from.steps + (int64_t)(step / shape::STEPS) * from.room);
}

/* A lane's weights of one step, as they come. */
template <int GROUP> struct wg_weights {
  uint4 codes[wg_step<GROUP>::BLOCKS];
  uint32_t pairs[wg_step<GROUP>::GROUPS][2];
};

template <int GROUP>
static __device__ void load_weights(wg_weights<GROUP> &w, const wg_source &from, int step, int lane)
{
  typedef wg_step<GROUP> shape;
  int at = step % shape::STEPS;
  const uint8_t *chunk = from.chunk + (int64_t)(step / shape::STEPS) * fast_chunk_bytes(GROUP);
#pragma unroll
  for (int b = 0; b < shape::BLOCKS; b++)
    w.codes[b] = __ldg((const uint4 *)(chunk + (at * shape::BLOCKS + b) * FAST_BLOCK_BYTES) + lane);
  const uint32_t *pairs = (const uint32_t *)(chunk + FAST_CHUNK_CODES) + at * shape::GROUPS;
#pragma unroll
  for (int g = 0; g < shape::GROUPS; g++)
#pragma unroll
    for (int below = 0; below < 2; below++)
      w.pairs[g][below] = __ldg(pairs + (lane / 4 + 8 * below) * (FAST_PART / GROUP) + g);
}

/* The next part's weights to the L2 cache. */
template <int GROUP> static __device__ void fetch_chunk(const wg_source &from, int part, int lane)
{
  const uint8_t *chunk = from.chunk + (int64_t)part * fast_chunk_bytes(GROUP);
  asm volatile("prefetch.global.L2 [%0];" ::"l"(chunk + lane * 128));
  if (lane * 128 + 4096 < fast_chunk_bytes(GROUP))
    asm volatile("prefetch.global.L2 [%0];" ::"l"(chunk + 4096 + lane * 128));
}
#endif

template <int GROUP, bool F16>
static __global__ void __launch_bounds__(WG_THREADS, 1)
    linear_wgmma(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_inputs in, int slice_parts)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  typedef wg_step<GROUP> shape;
  const int pieces = WG_PIECES * shape::GROUPS; /* of a step */
  extern __shared__ __align__(1024) uint8_t memory[];
  wg_shared<GROUP> &s = *(wg_shared<GROUP> *)memory;
  cuda_release_next();
  int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32, r = lane / 4, c = lane % 4;
  int token_tiles = (in.tokens + WG_TOKENS - 1) / WG_TOKENS;
  int first_token = (int)blockIdx.x % token_tiles * WG_TOKENS, tile = (int)blockIdx.x / token_tiles;
  int matrix = fast_matrix_of(m, tile), rows = m.of[matrix].rows;
  int first_row = (tile - m.of[matrix].first_tile) * WG_ROWS, steps = m.parts * shape::STEPS;
  wg_source from;
  from.room = in.room;
  from.quarter = in.quarter;
  from.inputs = in.codes + thread / 128 * in.quarter + min(first_token + thread % 128, in.room - 1) * 16;
  from.sums = fast_sums(in, GROUP) + (int64_t)(thread / 32) * in.room + min(first_token + lane * 4, in.room - 4);
  from.steps = in.steps + min(first_token + lane * 4, in.room - 4);
  from.chunk = m.of[matrix].chunks +
               (int64_t)min(first_row / FAST_TILE + warp, (rows - 1) / FAST_TILE) * m.parts * fast_chunk_bytes(GROUP);
  wg_weights<GROUP> next;
  uint32_t a[2][2 * shape::BLOCKS][4]; /* of this step and the next, in turns */
  load_weights(next, from, 0, lane);
  fetch_chunk<GROUP>(from, min(1, m.parts - 1), lane);
  cuda_await();
  load_inputs(s, from, 0, 0);
  if (steps > 1)
    load_inputs(s, from, 1, 1);
  float parts[WG_TOKENS / 8][4] = {};
  wg_piece piece[2];
  asm volatile("cp.async.wait_all;\n\tfence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  int slot = 0;
  for (int twice = 0; twice < steps; twice += 2) { /* their number is even */
#pragma unroll
    for (int now = 0; now < 2; now++) {
      int step = twice + now, next_slot = slot + 1 < WG_SLOTS ? slot + 1 : 0;
      float scale[shape::GROUPS][2], bias[shape::GROUPS][2];
#pragma unroll
      for (int g = 0; g < shape::GROUPS; g++)
#pragma unroll
        for (int below = 0; below < 2; below++)
          fast_scale_bias<F16>(next.pairs[g][below], &scale[g][below], &bias[g][below]);
      wg_step<GROUP> &here = s.slot[slot];
      if (now == 0) {
        unpack<shape::BLOCKS>(next.codes, a[0]);
        begin<shape::HALVES>(piece[0], a[0], tokens_at(here.inputs[0][0][0][0]));
      }
      load_weights(next, from, min(step + 1, steps - 1), lane);
#pragma unroll
      for (int q = 0; q < pieces; q++) {
        if (q == 1) { /* the step before is done with its slot, and the next one's inputs are there */
          asm volatile("cp.async.wait_all;\n\tfence.proxy.async.shared::cta;" ::: "memory");
          __syncthreads();
          if (step + 2 < steps)
            load_inputs(s, from, step + 2, next_slot + 1 < WG_SLOTS ? next_slot + 1 : 0);
        }
        if (q + 1 < pieces) {
          const int g = (q + 1) / WG_PIECES, p = (q + 1) % WG_PIECES;
          begin<shape::HALVES>(piece[(q + 1) % 2], &a[now][g], tokens_at(here.inputs[0][0][2 * g][p * WG_PIECE]));
          await_pieces<1>(piece[q % 2]);
        } else if (now == 0) {
          unpack<shape::BLOCKS>(next.codes, a[1]);
          begin<shape::HALVES>(piece[(q + 1) % 2], a[1], tokens_at(s.slot[next_slot].inputs[0][0][0][0]));
          await_pieces<1>(piece[q % 2]);
        } else {
          await_pieces<0>(piece[q % 2]);
        }
        const int g = q / WG_PIECES, p = q % WG_PIECES;
        add(&parts[p * (WG_PIECE / 8)], piece[q % 2], scale[g], bias[g], &here.sums[g][p * WG_PIECE + 2 * c]);
      }
      slot = next_slot;
      if (now == 0 || step % shape::STEPS != shape::STEPS - 1) /* a part has an even number of steps */
        continue;
      int part = step / shape::STEPS, in_slice = part % slice_parts;
      bool last = part + 1 == m.parts, ends = in_slice + 1 == slice_parts || last;
      if (part + 2 < m.parts)
        fetch_chunk<GROUP>(from, part + 2, lane);
#pragma unroll
      for (int n = 0; n < WG_TOKENS / 8; n++) {
        float2 by = *(const float2 *)&s.steps[part % 2][8 * n + 2 * c];
        float *p = parts[n];
        int at = n * WG_THREADS + thread;
        float4 slice = in_slice ? s.slices[at] : make_float4(0, 0, 0, 0);
        slice.x = fmaf(by.x, p[0], slice.x);
        slice.y = fmaf(by.y, p[1], slice.y);
        slice.z = fmaf(by.x, p[2], slice.z);
        slice.w = fmaf(by.y, p[3], slice.w);
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
          int row = first_row + warp * FAST_TILE + r + j / 2 * 8, token = first_token + 8 * n + 2 * c + j % 2;
          if (row < rows && token < in.tokens)
            fast_store(m.of[matrix].out, rows, token, row, done[j]);
        }
      }
    }
  }
#endif
}

typedef void wgmma_kernel(const fast_matrices m, const fast_inputs in, int slice_parts);

static const struct {
  int group, shared;
  wgmma_kernel *bf16, *f16;
} kernels[] = {
    {32, (int)sizeof(wg_shared<32>), linear_wgmma<32, false>, linear_wgmma<32, true>},
    {64, (int)sizeof(wg_shared<64>), linear_wgmma<64, false>, linear_wgmma<64, true>},
    {128, (int)sizeof(wg_shared<128>), linear_wgmma<128, false>, linear_wgmma<128, true>},
};

static int there; /* in this binary, and the GPU can run it */

void fast_wgmma_setup(cuda_context *cx)
{
  there = 0;
  if (cx->capability != 90 || cx->error != cudaSuccess)
    return;
  cx->error = cudaMemcpyFromSymbol(&there, wgmma_there, sizeof there);
  for (int i = 0; i < 3; i++) {
    wgmma_kernel *const both[2] = {kernels[i].bf16, kernels[i].f16};
    for (int j = 0; j < 2 && there && cx->error == cudaSuccess; j++)
      cx->error = cudaFuncSetAttribute(both[j], cudaFuncAttributeMaxDynamicSharedMemorySize, kernels[i].shared);
  }
}

bool fast_wgmma_fits(const cuda_context *cx)
{
  return there && cx->capability == 90;
}

void fast_linear_wgmma(cuda_context *cx, const fast_matrices &m, const fast_inputs &in)
{
  fast_matrices tiled = fast_tiled(m, WG_ROWS);
  int at = 0, token_tiles = (int)cuda_ceil(in.tokens, WG_TOKENS);
  while (kernels[at].group != m.group)
    at++;
  cuda_launch(cx, true, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16, (unsigned)(tiled.tiles * token_tiles),
              WG_THREADS, (size_t)kernels[at].shared, tiled, in, (int)fast_slice((int64_t)m.parts * FAST_PART));
}
