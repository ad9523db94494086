/* exact_four.cu - few tokens times a matrix in the layout CUDA_EXACT_4.
 *
 * As exact_rows.cu: a lane has rows and tokens of its own, a block has row_warps x (warps with other tokens of the same
 * rows), and a stage of a ring in shared memory has 256 k of the weights and of the inputs. One warp more only copies:
 * addresses and their waits stay out of the sums' way.
 *
 * A lane with ROWS x TOKENS outputs spends, for each k, 2 instructions a row to decode, 2 an output, and a quarter of a
 * 16-byte load a token; that load gives all lanes the same and yet costs shared memory as much as any other, so one row
 * a lane is bound by it where there are many rows. Few rows need many warps instead. The table at the end has what was
 * fastest.
 *
 * Registers are filled ahead of their use: the words of 32 k by a whole turn, the inputs by 4 k. Bodies of more than
 * 8 KB would leave the instruction cache.
 */
#include "ops/cuda/exact_pack.cuh"

enum { FOUR_STAGES = 3, FOUR_VALUES = 256 };

static constexpr __host__ __device__ int stage_weights(int group) /* bytes of a tile's rows in a stage */
{
  return (FOUR_VALUES >> exact4_span_log2(group)) * exact4_block(group);
}

static size_t stage_bytes(int group, int tiles, int tokens)
{
  return (size_t)(tiles * stage_weights(group)) + (size_t)tokens * FOUR_VALUES * sizeof(float);
}

/* Warps of a block that compute, for lanes with so many outputs: they share out the registers. */
static constexpr __host__ __device__ int most_warps(int outputs)
{
  return outputs > 8 ? 8 : 15;
}

/* ---- the warp that copies ---- */

struct four_copy {
  const uint8_t *weights; /* of the block's first tile */
  int64_t tile_bytes;
  int tiles, block_tiles, first_token, tokens;
};

/* Stage s into `stage`. */
template <int GROUP>
static inline __device__ void four_fill(const exact_job &job, const four_copy &c, uint8_t *stage, int s)
{
  constexpr int STAGE = stage_weights(GROUP);
  int at = threadIdx.x % 32 * 16;
  int64_t left = c.tile_bytes - (int64_t)s * STAGE;
  const uint8_t *from = c.weights + (int64_t)s * STAGE + at;
  uint8_t *to = stage + at;
  for (int t = 0; t < c.tiles; t++, from += c.tile_bytes, to += STAGE) {
    if (left >= STAGE) {
#pragma unroll
      for (int i = 0; i < STAGE; i += 512)
        if (i + 512 <= STAGE || at < STAGE - i)
          exact_copy_16(to + i, from + i, 16);
    } else {
      for (int i = 0; i + at < left; i += 512)
        exact_copy_16(to + i, from + i, 16);
    }
  }
  to = stage + c.block_tiles * STAGE + at;
  int64_t k = (int64_t)s * FOUR_VALUES + at / 4;
  for (int t = 0; t < c.tokens; t++, to += FOUR_VALUES * sizeof(float)) {
    const float *x = job.x + min(c.first_token + t, job.tokens - 1) * job.k + k;
#pragma unroll
    for (int i = 0; i < FOUR_VALUES; i += 128) {
      if (k + i < job.k && job.x_by_16)
        exact_copy_16(to + 4 * i, x + i, 16);
      else if (k + i < job.k)
        for (int j = 0; j < 4; j++)
          exact_copy_4(to + 4 * (i + j), x + i + j);
    }
  }
}

/* ---- the warps that compute ---- */

static inline __device__ float element(const float4 &x, int i)
{
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* The words of 32 k of a lane's rows, and of their group. */
template <int ROWS> struct lane_words {
  uint4 word[ROWS];
  uint32_t pair[ROWS];
};

template <int GROUP, int ROWS>
static inline __device__ void read_words(lane_words<ROWS> &w, const uint8_t *weights, int k)
{
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const uint8_t *tile = weights + r * stage_weights(GROUP);
    w.word[r] = ((const uint4 *)(tile + exact4_chunk(GROUP, k)))[threadIdx.x % 32];
    w.pair[r] = ((const uint32_t *)(tile + exact4_group(GROUP, k)))[threadIdx.x % 32];
  }
}

template <int GROUP, int ROWS, int TOKENS, bool SHORTCUT>
static __global__ void __launch_bounds__(32 * most_warps(ROWS * TOKENS) + 32, 1) four_kernel(exact_job job)
{
  constexpr int STAGE = stage_weights(GROUP), OUTPUTS = ROWS * TOKENS;
  constexpr int WORDS = OUTPUTS <= 4 ? 4 : OUTPUTS <= 8 ? 2 : 1; /* of a row in the body */
  extern __shared__ __align__(16) uint8_t shared[];
  const exact_output &out = job.out[exact_output_of(job, blockIdx.x)];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, block_tiles = job.row_warps * ROWS;
  int tokens = job.token_warps * TOKENS, first_token = blockIdx.y * tokens;
  int64_t first_tile = (int64_t)(blockIdx.x - out.first) * block_tiles;
  int stage_size = block_tiles * STAGE + tokens * FOUR_VALUES * (int)sizeof(float);
  int stages = (int)cuda_ceil(job.k, FOUR_VALUES);

  if (warp == job.row_warps * job.token_warps) {
    four_copy copy = {};
    copy.tile_bytes = exact4_tile_bytes(GROUP, job.k);
    copy.weights = out.data + first_tile * copy.tile_bytes;
    copy.tiles = (int)min((int64_t)block_tiles, cuda_ceil(out.n, EXACT4_ROWS) - first_tile);
    copy.block_tiles = block_tiles;
    copy.first_token = first_token;
    copy.tokens = tokens;
    for (int s = 0; s < stages + FOUR_STAGES - 1; s++) {
      if (s >= FOUR_STAGES - 1) { /* what the others use now is there, and what they used is free */
        exact_wait<FOUR_STAGES - 2>();
        __syncthreads();
      }
      if (s < stages)
        four_fill<GROUP>(job, copy, shared + s % FOUR_STAGES * stage_size, s);
      exact_commit();
    }
    return;
  }

  int tile = warp % job.row_warps * ROWS, token = warp / job.row_warps * TOKENS;
  int stored = job.stored;
  uint32_t one = job.one;
  asm("" : "+r"(stored), "+r"(one)); /* kept in registers, not loaded again and again */
  float sum[ROWS][TOKENS] = {};
  for (int s = 0; s < stages; s++) {
    __syncthreads();
    const uint8_t *stage = shared + s % FOUR_STAGES * stage_size, *weights = stage + tile * STAGE;
    const float *x = (const float *)(stage + block_tiles * STAGE) + token * FOUR_VALUES;
    int values = (int)min((int64_t)FOUR_VALUES, job.k - (int64_t)s * FOUR_VALUES);
    lane_words<ROWS> now, next;
    exact4_how how[ROWS];
    float4 input[TOKENS];
    read_words<GROUP>(next, weights, 0);
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
      input[t] = *(const float4 *)(x + t * FOUR_VALUES);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      how[r] = exact4_prepare<SHORTCUT>((ops_dtype)stored, next.pair[r]);
#pragma unroll 1
    for (int k = 0; k < values; k += 32) {
      now = next;
      read_words<GROUP>(next, weights, k + 32 < values ? k + 32 : k);
#pragma unroll 1
      for (int part = 0; part < 4; part += WORDS) {
#pragma unroll
        for (int half = 0; half < 2 * WORDS; half++) { /* 4 k */
          float4 ahead[TOKENS];
          x += 4;
#pragma unroll
          for (int t = 0; t < TOKENS; t++)
            ahead[t] = *(const float4 *)(x + t * FOUR_VALUES);
          float value[ROWS][4];
#pragma unroll
          for (int r = 0; r < ROWS; r++) {
            uint32_t word = half / 2 == 0   ? now.word[r].x
                            : half / 2 == 1 ? now.word[r].y
                            : half / 2 == 2 ? now.word[r].z
                                            : now.word[r].w;
            exact4_decode<SHORTCUT>(half % 2 ? exact4_swap(word) : word, how[r], one, value[r]);
          }
#pragma unroll
          for (int i = 0; i < 4; i++)
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
              for (int t = 0; t < TOKENS; t++)
                sum[r][t] = sum[r][t] + element(input[t], i) * value[r][i];
#pragma unroll
          for (int t = 0; t < TOKENS; t++)
            input[t] = ahead[t];
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) { /* the next words come first */
          if (WORDS == 1)
            now.word[r] = make_uint4(now.word[r].y, now.word[r].z, now.word[r].w, 0);
          if (WORDS == 2)
            now.word[r] = make_uint4(now.word[r].z, now.word[r].w, 0, 0);
        }
      }
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        how[r] = exact4_prepare<SHORTCUT>((ops_dtype)stored, next.pair[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    int64_t n = (first_tile + tile + r) * EXACT4_ROWS + lane;
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
      if (n < out.n && first_token + token + t < job.tokens)
        exact_finish<EXACT_PACKED>(out, first_token + token + t, n, sum[r][t]);
  }
}

/* ---- launching ---- */

struct four_shape {
  int rows, tokens;           /* of a lane */
  exact_kernel *kernel[3][2]; /* [log2 of the group - 5][shortcut] */
};

template <int ROWS, int TOKENS> static constexpr four_shape shape_of(void)
{
  return {ROWS,
          TOKENS,
          {{four_kernel<5, ROWS, TOKENS, false>, four_kernel<5, ROWS, TOKENS, true>},
           {four_kernel<6, ROWS, TOKENS, false>, four_kernel<6, ROWS, TOKENS, true>},
           {four_kernel<7, ROWS, TOKENS, false>, four_kernel<7, ROWS, TOKENS, true>}}};
}

enum { R1T1, R1T2, R1T4, R2T2, R2T4, R4T4, FOUR_SHAPES };
static const four_shape shapes[FOUR_SHAPES] = {shape_of<1, 1>(), shape_of<1, 2>(), shape_of<1, 4>(),
                                               shape_of<2, 2>(), shape_of<2, 4>(), shape_of<4, 4>()};

/* The first row whose limits hold is taken. */
struct four_plan {
  int tokens;       /* up to */
  int tiles;        /* of 32 rows for each multiprocessor, up to */
  int shape, warps; /* that share rows */
  int row_warps;    /* at most */
};
enum { ANY = 1 << 30 };
static const four_plan plans[] = {
    {2, 2, R1T1, 2, 2}, {2, ANY, R1T2, 1, 8}, {4, 1, R1T1, 4, 1},  {4, 2, R1T2, 2, 2},     {4, ANY, R2T4, 1, 4},
    {8, 2, R1T2, 4, 2}, {8, ANY, R4T4, 2, 2}, {16, 2, R1T4, 4, 2}, {ANY, ANY, R4T4, 4, 2},
};
four_plan exact_four_forced;

void exact_four_setup(cuda_context *cx)
{
  for (const four_shape &shape : shapes)
    for (int g = 0; g < 3; g++)
      for (int quick = 0; quick < 2; quick++)
        exact_allow(cx, shape.kernel[g][quick], FOUR_STAGES * stage_bytes(5, 8, 32) + sizeof(float4));
}

void exact_four_launch(cuda_context *cx, exact_job *job)
{
  int each = (int)cuda_ceil(exact_blocks(job, EXACT4_ROWS), cx->processors), group = job->group_log2;
  const four_plan *plan = plans;
  while (job->tokens > plan->tokens || each > plan->tiles)
    plan++;
  if (exact_four_forced.warps)
    plan = &exact_four_forced;
  const four_shape *shape = &shapes[plan->shape];
  int row_warps = (int)cuda_ceil(each, shape->rows);
  job->row_warps = row_warps < plan->row_warps ? row_warps : plan->row_warps;
  job->token_warps = plan->warps;
  int tokens = plan->warps * shape->tokens, tiles = job->row_warps * shape->rows;
  dim3 grid(exact_blocks(job, EXACT4_ROWS * tiles), (unsigned)cuda_ceil(job->tokens, tokens));
  cuda_launch(cx, false, shape->kernel[group - 5][job->shortcut], grid, dim3(32 * plan->warps * job->row_warps + 32),
              FOUR_STAGES * stage_bytes(group, tiles, tokens) + sizeof(float4), *job);
}
