/* fast_linear_step.cu - up to 4 tokens times packed matrices: the kernel of steps, bound by reading weights.
 *
 * One CTA an SM with 16 warps stays for the whole record. It quantises the inputs itself (all do: 4096 inputs take half
 * a microsecond, a kernel of its own takes three times that), a norm before that included, and then its warps walk
 * through the chunks of its tiles: chunk i is part i % parts of tile i / parts, and warp w has chunks w, w + 16, ...
 * A lane keeps 12 loads of 16 bytes under way, 75 KB an SM: the next chunk's block comes in where this one's was
 * unpacked, and the first chunk's are under way before the inputs are awaited.
 *
 * An mma has 8 columns: both bytes of 4 tokens, side by side. So lane c of a row has the two dot products of token c,
 * and needs no other lane.
 *
 * Parts meet in shared memory, where a thread for each output walks them in order; a gate's activation is done there
 * too, where a CTA has the same tile of both matrices. What does not fit into shared memory at once goes in rounds.
 *
 * Before, CTAs had one tile each and lived shortly, two an SM, and quantising was a kernel: 1.62 ms a step of an 8B
 * model against 1.4.
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_mma.cuh"
#include "ops/cuda/fast_quantise.cuh"

enum {
  STEP_WARPS = 16,
  STEP_THREADS = STEP_WARPS * 32,
  STEP_ROOM = STEP_TOKENS,
  STEP_ROUND = 64 * 1024, /* bytes of parts that meet at once */
};

/* Places in shared memory, in bytes. */
struct step_places {
  int sums, steps, norm, parts, bytes;
  int round; /* jobs that meet at once */
};

/* ---- before: norm and quantising ---- */

/* Shared memory as fast_quantise_part and the loop below see it: planes of a token side by side, so that the lanes of
 * an mma's columns (token, plane) read in a row. */
template <int GROUP>
static __device__ fast_inputs shared_inputs(uint8_t *memory, const step_places &at, int tokens, int parts)
{
  fast_inputs in = {};
  in.codes = (int8_t *)memory;
  in.plane = FAST_BLOCK;
  in.token = 2 * FAST_BLOCK;
  in.block = tokens * in.token;
  float *sums = (float *)(memory + at.sums);
  in.sums[0] = GROUP == 32 ? sums : NULL;
  in.sums[1] = GROUP == 64 ? sums : NULL;
  in.sums[2] = GROUP == 128 ? sums : NULL;
  in.steps = (float *)(memory + at.steps);
  in.tokens = tokens;
  in.room = STEP_ROOM;
  in.parts = parts;
  return in;
}

/* 1 / the root of the mean square of each token, into scales, by the lanes of fast.h: two warps a token. x [tokens][k]
 * and scales [STEP_TOKENS] in shared memory. */
static __device__ void norm_scales(const float *x, int k, int tokens, float eps, float *scales)
{
  __shared__ float upper[STEP_TOKENS][32];
  int token = (int)threadIdx.x / FAST_NORM_LANES, lane = (int)threadIdx.x % FAST_NORM_LANES;
  float sum = 0;
  if (token < tokens) {
#pragma unroll 8
    for (int i = lane; i < k; i += FAST_NORM_LANES)
      sum = fmaf(x[token * k + i], x[token * k + i], sum);
    if (lane >= 32)
      upper[token][lane - 32] = sum;
  }
  __syncthreads();
  if (token < tokens && lane < 32) {
    sum += upper[token][lane];
#pragma unroll
    for (int half = 16; half; half /= 2)
      sum += __shfl_down_sync(~0u, sum, half);
    if (lane == 0)
      scales[token] = 1.0f / sqrtf(sum * (float)(1.0 / k) + eps);
  }
  __syncthreads();
}

/* `staged`: the rows of x in shared memory where there is a norm. */
template <int GROUP>
static __device__ void quantise(const fast_around &around, const fast_inputs &in, float *staged, const float *norm_w)
{
  __shared__ float scales[STEP_TOKENS];
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, k = (int)around.k;
  if (around.norm) {
    for (int i = (int)threadIdx.x * 4; i < in.tokens * k; i += STEP_THREADS * 4)
      *(float4 *)(staged + i) = *(const float4 *)(around.x + i / k * around.x_stride + i % k);
    __syncthreads();
    norm_scales(staged, k, in.tokens, around.eps, scales);
  }
  for (int unit = warp; unit < in.tokens * in.parts; unit += STEP_WARPS) {
    int token = unit / in.parts, part = unit % in.parts;
    float v[2][8];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      int at = part * FAST_PART + 256 * j + 8 * lane;
      if (!around.norm) {
        fast_load8(around.x + token * around.x_stride, at, k, v[j]);
        continue;
      }
      fast_load8(staged + token * k, at, k, v[j]);
#pragma unroll
      for (int i = 0; i < 8; i++)
        v[j][i] = v[j][i] * scales[token];
      if (norm_w) {
        float w[8];
        fast_load8(norm_w, at, k, w);
#pragma unroll
        for (int i = 0; i < 8; i++)
          v[j][i] = v[j][i] * w[i];
      }
      if (around.kept && blockIdx.x == 0 && at < k) {
        float4 *kept = (float4 *)(around.kept + token * around.kept_stride + at);
        kept[0] = make_float4(v[j][0], v[j][1], v[j][2], v[j][3]);
        kept[1] = make_float4(v[j][4], v[j][5], v[j][6], v[j][7]);
      }
    }
    fast_quantise_part(v, in, token, part, lane);
  }
  __syncthreads();
}

/* ---- which tiles a CTA has ---- */

/* Job j of this CTA: a tile. Gated: jobs 2 j and 2 j + 1 are the same tile of both matrices. */
struct step_job {
  int matrix, tile; /* of the matrix */
};

static __device__ step_job job_of(const fast_matrices &m, bool gated, int j)
{
  step_job job;
  if (gated) {
    job.matrix = j % 2;
    job.tile = (int)blockIdx.x + j / 2 * (int)gridDim.x;
    return job;
  }
  int tile = (int)blockIdx.x + j * (int)gridDim.x;
  job.matrix = fast_matrix_of(m, tile);
  job.tile = tile - m.of[job.matrix].first_tile;
  return job;
}

static __device__ int jobs_of(const fast_matrices &m, bool gated)
{
  int tiles = gated ? m.tiles / 2 : m.tiles, mine = (tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
  return gated ? 2 * mine : mine;
}

/* ---- the product ---- */

/* A warp's place among the chunks of its CTA. */
struct step_chunk {
  int job, part;
  const uint8_t *at;
};

template <int GROUP> static __device__ void find_chunk(step_chunk &chunk, const fast_matrices &m, bool gated)
{
  while (chunk.part >= m.parts) {
    chunk.part -= m.parts;
    chunk.job++;
  }
  step_job job = job_of(m, gated, chunk.job);
  chunk.at = m.of[job.matrix].chunks + ((int64_t)job.tile * m.parts + chunk.part) * fast_chunk_bytes(GROUP);
}

/* One chunk: the part of rows r and r + 8 and token c. Meanwhile `next`, if there is one, takes its place in w. */
template <int GROUP, bool F16>
static __device__ void multiply(fast_weights<GROUP> &w, const fast_inputs &in, const float *sums, int part, int lane,
                                const uint8_t *next, float *above, float *below)
{
  const int starts[4] = {FAST_HIGH_START, FAST_LOW_START, FAST_HIGH_START, FAST_LOW_START};
  int r = lane / 4, c = lane % 4;
  bool mine = r / 2 < in.tokens; /* this column */
  const uint4 *codes = fast_codes(in, part * FAST_BLOCKS, r % 2, r / 2, c);
  float a0 = 0, a1 = 0;
  int d[4];
#pragma unroll
  for (int b = 0; b < FAST_BLOCKS; b++) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (mine)
      x = *(const uint4 *)((const int8_t *)codes + b * in.block);
    uint32_t a[2][4];
    fast_unpack(w.codes[b], a);
    if (next)
      fast_load_block(w, next, b, lane);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int from = b * FAST_BLOCK + half * 32; /* input of the part */
      fast_mma(d, a[half], half ? x.z : x.x, half ? x.w : x.y, from % GROUP ? d : starts);
      if ((from + 32) % GROUP)
        continue;
      const int g = from / GROUP;
      float scale, bias, sum = sums[(part * w.GROUPS + g) * STEP_ROOM + c];
      fast_scale_bias<F16>(fast_word(w.pairs[0][g / 4], g % 4), &scale, &bias);
      a0 = fmaf(bias, sum, fmaf(scale, fast_dot(d[0], d[1]), a0));
      fast_scale_bias<F16>(fast_word(w.pairs[1][g / 4], g % 4), &scale, &bias);
      a1 = fmaf(bias, sum, fmaf(scale, fast_dot(d[2], d[3]), a1));
    }
  }
  if (next)
    fast_load_pairs(w, next, r);
  *above = a0;
  *below = a1;
}

/* The parts of one output in order. */
static __device__ float join(const float *parts, int stride, const float *steps, int count, int slice_parts)
{
  float total = 0;
  for (int s = 0; s < count; s += slice_parts) {
    int end = min(s + slice_parts, count);
    float slice = 0;
#pragma unroll 8
    for (int p = s; p < end; p++)
      slice = fmaf(steps[p * STEP_ROOM], parts[p * stride], slice);
    total += slice;
  }
  return total;
}

static __device__ float silu(float x)
{
  return x * math_sigmoid(x);
}

template <int GROUP, bool F16>
static __global__ void __launch_bounds__(STEP_THREADS, 1)
    linear_step(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_around around,
                const __grid_constant__ step_places places, int tokens, int slice_parts)
{
  extern __shared__ __align__(128) uint8_t memory[];
  cuda_release_next();
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4;
  bool gated = around.gated != NULL;
  int jobs = jobs_of(m, gated);
  fast_weights<GROUP> w;
  step_chunk chunk = {0, warp, NULL};
  find_chunk<GROUP>(chunk, m, gated);
  if (chunk.job < jobs) {
#pragma unroll
    for (int b = 0; b < FAST_BLOCKS; b++)
      fast_load_block(w, chunk.at, b, lane);
    fast_load_pairs(w, chunk.at, r);
  }
  float *norm_w = NULL;
  if (around.norm && around.norm_w) {
    norm_w = (float *)(memory + places.norm);
    for (int i = (int)threadIdx.x * 4; i < around.k; i += STEP_THREADS * 4)
      *(float4 *)(norm_w + i) = __ldg((const float4 *)(around.norm_w + i));
  }
  fast_inputs in = shared_inputs<GROUP>(memory, places, tokens, m.parts);
  const float *sums = (const float *)(memory + places.sums);
  float *parts = (float *)(memory + places.parts);
  cuda_await();
  quantise<GROUP>(around, in, parts, norm_w);
  for (int first = 0; first < jobs; first += places.round) {
    int end = min(first + places.round, jobs);
    while (chunk.job < end) {
      step_chunk next = {chunk.job, chunk.part + STEP_WARPS, NULL};
      find_chunk<GROUP>(next, m, gated);
      float above, below;
      multiply<GROUP, F16>(w, in, sums, chunk.part, lane, next.job < jobs ? next.at : NULL, &above, &below);
      if (c < tokens) {
        float *to = parts + (((chunk.job - first) * m.parts + chunk.part) * FAST_TILE + r) * tokens + c;
        to[0] = above;
        to[8 * tokens] = below;
      }
      chunk = next;
    }
    __syncthreads();
    int together = gated ? 2 : 1, outputs = FAST_TILE * tokens, job_parts = m.parts * outputs;
    for (int i = (int)threadIdx.x; i < (end - first) / together * outputs; i += STEP_THREADS) {
      int row = i % FAST_TILE, token = i / FAST_TILE % tokens, j = i / outputs * together;
      const float *from = parts + j * job_parts + row * tokens + token;
      float sum = join(from, outputs, in.steps + token, m.parts, slice_parts);
      step_job job = job_of(m, gated, first + j);
      int rows = m.of[job.matrix].rows, n = job.tile * FAST_TILE + row;
      if (n >= rows)
        continue;
      if (!gated) {
        fast_store(m.of[job.matrix].out, rows, token, n, sum);
        continue;
      }
      float up = join(from + job_parts, outputs, in.steps + token, m.parts, slice_parts);
      sum = fast_finish(m.of[0].out, rows, token, n, sum);
      up = fast_finish(m.of[1].out, rows, token, n, up);
      around.gated[(int64_t)token * rows + n] = silu(sum) * up;
    }
    __syncthreads();
  }
}

typedef void step_kernel(const fast_matrices m, const fast_around around, const step_places places, int tokens,
                         int slice_parts);

static const struct {
  int group;
  step_kernel *bf16, *f16;
} kernels[] = {
    {32, linear_step<32, false>, linear_step<32, true>},
    {64, linear_step<64, false>, linear_step<64, true>},
    {128, linear_step<128, false>, linear_step<128, true>},
};

void fast_step_setup(cuda_context *cx)
{
  for (int i = 0; i < 3; i++) {
    step_kernel *const both[2] = {kernels[i].bf16, kernels[i].f16};
    for (int j = 0; j < 2 && cx->error == cudaSuccess; j++)
      cx->error = cudaFuncSetAttribute(both[j], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       (int)cx->shared_most - STEP_STATIC);
  }
}

bool fast_linear_step(cuda_context *cx, const fast_matrices &m, const fast_around &around, int tokens)
{
  fast_matrices tiled = fast_tiled(m, FAST_TILE);
  int together = around.gated ? 2 : 1, spread = tiled.tiles / together, at = 0;
  int ctas = spread < cx->processors ? spread : cx->processors;
  int jobs = (int)cuda_ceil(spread, ctas) * together, job_bytes = m.parts * FAST_TILE * tokens * 4;
  step_places places = {};
  places.round = STEP_ROUND / job_bytes / together * together;
  places.round = places.round < together ? together : places.round < jobs ? places.round : jobs;
  places.sums = m.parts * FAST_PART * 2 * tokens;
  places.steps = places.sums + m.parts * (FAST_PART / m.group) * STEP_ROOM * 4;
  places.norm = places.steps + m.parts * STEP_ROOM * 4;
  places.parts = places.norm + (around.norm && around.norm_w ? (int)around.k * 4 : 0);
  int meet = places.round * job_bytes, staged = around.norm ? tokens * (int)around.k * 4 : 0;
  places.bytes = places.parts + (meet > staged ? meet : staged);
  if (places.bytes > (int)cx->shared_most - STEP_STATIC)
    return false;
  while (kernels[at].group != m.group)
    at++;
  cuda_launch(cx, true, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16, (unsigned)ctas, STEP_THREADS,
              (size_t)places.bytes, tiled, around, places, tokens, (int)fast_slice((int64_t)m.parts * FAST_PART));
  return true;
}
