/* exact_four.cu - few tokens times a matrix in the layout CUDA_EXACT_4.
 *
 * As exact_rows.cu: a lane has a row and some tokens, a block has row_warps x (warps with other tokens of the same
 * rows), and a stage of a ring in shared memory has 512 k of the weights and of the inputs. One warp more only copies:
 * addresses and their waits stay out of the sums' way (they took a third of the time).
 *
 * For each k a lane spends 2 instructions on decoding and 2 a token, and a quarter of a 16-byte load a token. More
 * tokens a lane decode less often, fewer give the warps that matrices of few rows need; the table at the end has what
 * was fastest. Several rows a lane would share the loads of inputs, but those cost only two cycles each where all lanes
 * read the same, and 2 x 4 or 4 x 4 outputs a lane were slower than 1 x 4 by 5 to 15 %.
 *
 * Registers are filled ahead of their use: words by a whole body, inputs by 4 k. Bodies of 8 k were slower than those
 * of 32 and 64 by a fifth to a third: what is done at their ends adds up. Warps that go from stage to stage by
 * themselves (mbarriers instead of a barrier of the block) were slower too, by 5 to 10 %; three stages of 256 k by 3 to
 * 6 %.
 */
#include "ops/cuda/copy.cuh"
#include "ops/cuda/exact_pack.cuh"

enum { FOUR_STAGES = 2, FOUR_VALUES = 512, FOUR_WARPS = 15 /* that compute, at most */ };

static constexpr __host__ __device__ int stage_weights(int group) /* bytes of a tile's rows in a stage */
{
  return (FOUR_VALUES >> exact4_span_log2(group)) * exact4_block(group);
}

static size_t stage_bytes(int group, int tiles, int tokens)
{
  return (size_t)(tiles * stage_weights(group)) + (size_t)tokens * FOUR_VALUES * sizeof(float);
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
          copy_async_part(to + i, from + i, 16);
    } else {
      for (int i = 0; i + at < left; i += 512)
        copy_async_part(to + i, from + i, 16);
    }
  }
  to = stage + c.block_tiles * STAGE + at;
  int64_t k = (int64_t)s * FOUR_VALUES + at / 4;
  for (int t = 0; t < c.tokens; t++, to += FOUR_VALUES * sizeof(float)) {
    const float *x = job.x + min(c.first_token + t, job.tokens - 1) * job.k + k;
#pragma unroll
    for (int i = 0; i < FOUR_VALUES; i += 128) {
      if (k + i < job.k && job.x_by_16)
        copy_async_part(to + 4 * i, x + i, 16);
      else if (k + i < job.k)
        for (int j = 0; j < 4; j++)
          copy_async_4(to + 4 * (i + j), x + i + j);
    }
  }
}

/* ---- the warps that compute ---- */

static inline __device__ float element(const float4 &x, int i)
{
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* A lane's codes of STEP k, and the word of their group. */
template <int STEP> struct lane_words {
  uint32_t word[STEP / 8], pair;
};

template <int GROUP, int STEP> static inline __device__ void read_words(lane_words<STEP> &w, const uint8_t *tile, int k)
{
  const uint4 *chunks = (const uint4 *)(tile + exact4_chunk(GROUP, k)) + threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < STEP / 32; i++)
    *(uint4 *)(w.word + 4 * i) = chunks[32 * i];
  w.pair = ((const uint32_t *)(tile + exact4_group(GROUP, k)))[threadIdx.x % 32];
}

template <int GROUP, int TOKENS, bool SHORTCUT>
static __global__ void __launch_bounds__(32 * FOUR_WARPS + 32, 1) four_kernel(exact_job job)
{
  /* k of the unrolled body, whose words are read at once: of one group. */
  constexpr int STEP = GROUP > 5 ? 64 : 32;
  constexpr int STAGE = stage_weights(GROUP);
  extern __shared__ __align__(16) uint8_t shared[];
  const exact_output &out = job.out[exact_output_of(job, blockIdx.x)];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int tokens = job.token_warps * TOKENS, first_token = blockIdx.y * tokens;
  int64_t first_tile = (int64_t)(blockIdx.x - out.first) * job.row_warps;
  int stage_size = job.row_warps * STAGE + tokens * FOUR_VALUES * (int)sizeof(float);
  int stages = (int)cuda_ceil(job.k, FOUR_VALUES);

  cuda_release_next();
  cuda_await();
  if (warp == job.row_warps * job.token_warps) {
    four_copy copy = {};
    copy.tile_bytes = exact4_tile_bytes(GROUP, job.k);
    copy.weights = out.data + first_tile * copy.tile_bytes;
    copy.tiles = (int)min((int64_t)job.row_warps, cuda_ceil(out.n, EXACT4_ROWS) - first_tile);
    copy.block_tiles = job.row_warps;
    copy.first_token = first_token;
    copy.tokens = tokens;
    for (int s = 0; s < stages + FOUR_STAGES - 1; s++) {
      if (s >= FOUR_STAGES - 1) { /* what the others use now is there, and what they used is free */
        copy_wait<FOUR_STAGES - 2>();
        __syncthreads();
      }
      if (s < stages)
        four_fill<GROUP>(job, copy, shared + s % FOUR_STAGES * stage_size, s);
      copy_commit();
    }
    return;
  }

  int tile = warp % job.row_warps, token = warp / job.row_warps * TOKENS;
  float sum[TOKENS] = {};
  for (int s = 0; s < stages; s++) {
    __syncthreads();
    const uint8_t *stage = shared + s % FOUR_STAGES * stage_size, *weights = stage + tile * STAGE;
    const float *x = (const float *)(stage + job.row_warps * STAGE) + token * FOUR_VALUES;
    int values = (int)min((int64_t)FOUR_VALUES, job.k - (int64_t)s * FOUR_VALUES);
    lane_words<STEP> now, next;
    float4 input[TOKENS];
    read_words<GROUP>(next, weights, 0);
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
      input[t] = *(const float4 *)(x + t * FOUR_VALUES);
    exact4_how how = exact4_prepare<SHORTCUT>(job.stored, next.pair);
#pragma unroll 1
    for (int k = 0; k < values; k += STEP) {
      now = next;
      read_words<GROUP>(next, weights, k + STEP < values ? k + STEP : k);
#pragma unroll
      for (int half = 0; half < STEP / 4; half++) { /* 4 k */
        float4 ahead[TOKENS];
        x += 4;
#pragma unroll
        for (int t = 0; t < TOKENS; t++)
          ahead[t] = *(const float4 *)(x + t * FOUR_VALUES);
        uint32_t word = now.word[half / 2];
        float value[4];
        exact4_decode<SHORTCUT>(half % 2 ? exact4_swap(word) : word, how, job.one, value);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int t = 0; t < TOKENS; t++)
            sum[t] = sum[t] + element(input[t], i) * value[i];
#pragma unroll
        for (int t = 0; t < TOKENS; t++)
          input[t] = ahead[t];
      }
      how = exact4_prepare<SHORTCUT>(job.stored, next.pair);
    }
  }
  int64_t n = (first_tile + tile) * EXACT4_ROWS + lane;
#pragma unroll
  for (int t = 0; t < TOKENS; t++)
    if (n < out.n && first_token + token + t < job.tokens)
      exact_finish<EXACT_PACKED>(out, first_token + token + t, n, sum[t]);
}

/* ---- launching ---- */

struct four_kernels {
  exact_kernel *of[3][2]; /* [log2 of the group - 5][shortcut] */
};

template <int TOKENS> static constexpr four_kernels kernels_of(void)
{
  return {{{four_kernel<5, TOKENS, false>, four_kernel<5, TOKENS, true>},
           {four_kernel<6, TOKENS, false>, four_kernel<6, TOKENS, true>},
           {four_kernel<7, TOKENS, false>, four_kernel<7, TOKENS, true>}}};
}

static const four_kernels kernels[3] = {kernels_of<1>(), kernels_of<2>(), kernels_of<4>()};

/* The first row whose limits hold is taken. Measured with the matrices of an 8B llama on an H200. */
struct four_plan {
  int tokens;      /* up to */
  int tiles;       /* of 32 rows for each multiprocessor, up to */
  int log2;        /* of the tokens of a warp */
  int token_warps; /* that share rows */
  int row_warps;   /* at most */
};
enum { ANY = 1 << 30 };
static const four_plan plans[] = {
    {2, 2, 0, 2, 2},     /* o, down, qkv */
    {2, 8, 1, 1, 8},     /* gate and up */
    {2, ANY, 1, 1, 4},   /* the head */
    {4, 1, 0, 4, 1},     /* o, down */
    {4, 2, 1, 2, 2},     /* qkv */
    {4, 8, 2, 1, 8},     /* gate and up */
    {4, ANY, 2, 1, 4},   /* the head */
    {8, 1, 1, 4, 1},     /* o, down */
    {8, 2, 2, 2, 2},     /* qkv */
    {8, 8, 2, 1, 8},     /* gate and up */
    {ANY, 2, 2, 4, 2},   /* more tokens: 16 at a time for few rows, */
    {ANY, ANY, 2, 2, 2}, /* 8 at a time for many */
};

static size_t shared_bytes(int group, int row_warps, int tokens)
{
  return FOUR_STAGES * stage_bytes(group, row_warps, tokens) + sizeof(float4); /* inputs are read ahead */
}

void exact_four_setup(cuda_context *cx)
{
  for (const four_kernels &k : kernels)
    for (int g = 0; g < 3; g++)
      for (int quick = 0; quick < 2; quick++)
        exact_allow(cx, k.of[g][quick], cx->shared_most);
}

void exact_four_launch(cuda_context *cx, exact_job *job)
{
  int each = (int)cuda_ceil(exact_blocks(job, EXACT4_ROWS), cx->processors), group = job->group_log2;
  const four_plan *plan = plans;
  while (job->tokens > plan->tokens || each > plan->tiles)
    plan++;
  int tokens = plan->token_warps << plan->log2;
  job->token_warps = plan->token_warps;
  job->row_warps = each < plan->row_warps ? each : plan->row_warps;
  while (job->row_warps > 1 && shared_bytes(group, job->row_warps, tokens) > cx->shared_most)
    job->row_warps--;
  dim3 grid(exact_blocks(job, EXACT4_ROWS * job->row_warps), (unsigned)cuda_ceil(job->tokens, tokens));
  exact_launch_alone(cx, kernels[plan->log2].of[group - 5][job->shortcut], job, grid,
                     job->row_warps * job->token_warps + 1, shared_bytes(group, job->row_warps, tokens));
}
