/* exact_four.cu - few tokens times a matrix in the layout CUDA_EXACT_4.
 *
 * As exact_rows.cu: a lane has a row and TOKENS tokens, a block has row_warps x (warps with other tokens of the same
 * rows), and a stage of a ring in shared memory has 256 k of the weights and of the inputs. Only the copying (a tile's
 * blocks follow each other) and the decoding (exact_pack.cuh) are other.
 *
 * A weight costs about 2 instructions to decode and then 2 a token. More tokens a warp decode less often; fewer give
 * more warps, which matrices of few rows need: the table at the end has what was fastest.
 */
#include "ops/cuda/exact_pack.cuh"

enum { FOUR_STAGES = 3, FOUR_VALUES = 256, FOUR_WARPS = 16 };

static constexpr __host__ __device__ int stage_weights(int group) /* bytes of a tile's rows in a stage */
{
  return (FOUR_VALUES >> exact4_span_log2(group)) * exact4_block(group);
}

static size_t stage_bytes(int group, int row_warps, int tokens)
{
  return (size_t)(row_warps * stage_weights(group)) + (size_t)tokens * FOUR_VALUES * sizeof(float);
}

template <int GROUP, int TOKENS, bool SHORTCUT>
static __global__ void __launch_bounds__(32 * FOUR_WARPS, 1) four_kernel(exact_job job)
{
  constexpr int STAGE = stage_weights(GROUP);
  constexpr int AT_ONCE = TOKENS > 4 ? 2 : 4; /* words: so that the body stays in the instruction cache */
  extern __shared__ __align__(16) uint8_t shared[];
  const exact_output &out = job.out[exact_output_of(job, blockIdx.x)];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row_warps = job.row_warps;
  int tokens = blockDim.x / 32 / row_warps * TOKENS, first_token = blockIdx.y * tokens;
  int row_warp = warp % row_warps, token = warp / row_warps * TOKENS;
  int64_t first_tile = (int64_t)(blockIdx.x - out.first) * row_warps, n = (first_tile + row_warp) * EXACT4_ROWS + lane;
  int64_t tile_bytes = exact4_tile_bytes(GROUP, job.k);
  int tiles = (int)min((int64_t)row_warps, cuda_ceil(out.n, EXACT4_ROWS) - first_tile);
  int stage_size = row_warps * STAGE + tokens * FOUR_VALUES * (int)sizeof(float);
  int stages = (int)cuda_ceil(job.k, FOUR_VALUES);

  auto fill = [&](int s) {
    if (s < stages) {
      uint8_t *stage = shared + s % FOUR_STAGES * stage_size;
      const uint8_t *from = out.data + first_tile * tile_bytes + (int64_t)s * STAGE;
      int left = (int)min((int64_t)STAGE, tile_bytes - (int64_t)s * STAGE);
      for (int r = 0; r < tiles; r++)
        for (int i = threadIdx.x * 16; i < left; i += blockDim.x * 16)
          exact_copy_16(stage + r * STAGE + i, from + r * tile_bytes + i, 16);
      float *inputs = (float *)(stage + row_warps * STAGE);
      int64_t k = (int64_t)s * FOUR_VALUES;
      for (int c = threadIdx.x; c < tokens * (FOUR_VALUES / 4); c += blockDim.x) {
        int t = c / (FOUR_VALUES / 4), j = c % (FOUR_VALUES / 4) * 4;
        const float *source = job.x + min(first_token + t, job.tokens - 1) * job.k + k + j;
        if (k + j >= job.k)
          continue;
        if (job.x_by_16) {
          exact_copy_16(inputs + t * FOUR_VALUES + j, source, 16);
        } else {
          for (int i = 0; i < 4; i++)
            exact_copy_4(inputs + t * FOUR_VALUES + j + i, source + i);
        }
      }
    }
    exact_commit();
  };

  float sum[TOKENS] = {};
  for (int s = 0; s < FOUR_STAGES - 1; s++)
    fill(s);
  for (int s = 0; s < stages; s++) {
    exact_wait<FOUR_STAGES - 2>();
    __syncthreads();
    fill(s + FOUR_STAGES - 1);
    const uint8_t *stage = shared + s % FOUR_STAGES * stage_size, *weights = stage + row_warp * STAGE;
    const float *inputs = (const float *)(stage + row_warps * STAGE) + token * FOUR_VALUES;
    int values = (int)min((int64_t)FOUR_VALUES, job.k - (int64_t)s * FOUR_VALUES);
#pragma unroll 1
    for (int k = 0; k < values; k += 32) {
      exact4_how how =
          exact4_prepare<SHORTCUT>(job.stored, ((const uint32_t *)(weights + exact4_group(GROUP, k)))[lane]);
      const uint32_t *words = (const uint32_t *)(weights + exact4_chunk(GROUP, k)) + lane * 4;
#pragma unroll 1
      for (int part = 0; part < 4; part += AT_ONCE) {
        uint32_t word[AT_ONCE];
        if (AT_ONCE == 4) {
          uint4 four = *(const uint4 *)words;
          word[0] = four.x, word[1] = four.y, word[AT_ONCE - 2] = four.z, word[AT_ONCE - 1] = four.w;
        } else {
          uint2 two = *(const uint2 *)(words + part);
          word[0] = two.x, word[1] = two.y;
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
          float value[8];
          exact4_decode<SHORTCUT>(word[j], how, job.one, value);
#pragma unroll
          for (int t = 0; t < TOKENS; t++) {
            const float4 *x = (const float4 *)(inputs + t * FOUR_VALUES + k + (part + j) * 8);
            float4 low = x[0], high = x[1];
            float total = sum[t];
            total = total + low.x * value[0], total = total + low.y * value[1];
            total = total + low.z * value[2], total = total + low.w * value[3];
            total = total + high.x * value[4], total = total + high.y * value[5];
            total = total + high.z * value[6], total = total + high.w * value[7];
            sum[t] = total;
          }
        }
      }
    }
  }
  if (n >= out.n)
    return;
#pragma unroll
  for (int t = 0; t < TOKENS; t++)
    if (first_token + token + t < job.tokens)
      exact_finish<EXACT_PACKED>(out, first_token + token + t, n, sum[t]);
}

/* ---- launching ---- */

#define KERNELS(group, tokens)                                                                                         \
  {                                                                                                                    \
    four_kernel<group, tokens, false>, four_kernel<group, tokens, true>                                                \
  }
#define GROUPS(tokens)                                                                                                 \
  {                                                                                                                    \
    KERNELS(5, tokens), KERNELS(6, tokens), KERNELS(7, tokens)                                                         \
  }
/* [log2 tokens of a warp][log2 of the group - 5][shortcut] */
static exact_kernel *const kernels[4][3][2] = {GROUPS(1), GROUPS(2), GROUPS(4), GROUPS(8)};
#undef KERNELS
#undef GROUPS

/* The first row of which both limits hold is taken. */
struct four_plan {
  int tokens;      /* up to */
  int tiles;       /* of 32 rows for each multiprocessor, up to */
  int log2, warps; /* tokens of a warp, log2; warps that share rows */
  int row_warps;   /* at most */
};
enum { ANY = 1 << 30 };
four_plan four_plans[] = {
    {2, 1, 0, 2, 2}, {2, ANY, 1, 1, 8}, {4, 1, 0, 4, 1},  {4, 2, 1, 2, 2},  {4, ANY, 2, 1, 8},
    {8, 2, 1, 4, 2}, {8, ANY, 2, 2, 4}, {16, 1, 1, 8, 1}, {16, 2, 2, 4, 2}, {ANY, ANY, 3, 2, 4},
};

void exact_four_setup(cuda_context *cx)
{
  for (int i = 0; i < 4; i++)
    for (int g = 0; g < 3; g++)
      for (int quick = 0; quick < 2; quick++)
        exact_allow(cx, kernels[i][g][quick], FOUR_STAGES * stage_bytes(5, 8, 16));
}

void exact_four_launch(cuda_context *cx, exact_job *job)
{
  int tiles = exact_blocks(job, EXACT4_ROWS), each = (int)cuda_ceil(tiles, cx->processors);
  int group = job->group_log2;
  const four_plan *plan = four_plans;
  while (job->tokens > plan->tokens || each > plan->tiles)
    plan++;
  job->row_warps = each < plan->row_warps ? each : plan->row_warps;
  int tokens = plan->warps << plan->log2, blocks = exact_blocks(job, EXACT4_ROWS * job->row_warps);
  cuda_launch(cx, false, kernels[plan->log2][group - 5][job->shortcut],
              dim3(blocks, (unsigned)cuda_ceil(job->tokens, tokens)), dim3(32 * plan->warps * job->row_warps),
              FOUR_STAGES * stage_bytes(group, job->row_warps, tokens), *job);
}
