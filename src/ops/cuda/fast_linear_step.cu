/* fast_linear_step.cu - up to 4 tokens (8, if there are many rows) times packed matrices: the kernel of steps, bound by
 * reading weights.
 *
 * One CTA an SM stays for the whole record. It holds the quantised inputs in shared memory (of a single token it
 * quantises them itself, a norm before that included: all CTAs do, in less time than a kernel for it would start), and
 * its warps walk through the chunks of its tiles: chunk i is part i % parts of tile i / parts, and warp w has chunks w,
 * w + warps, ... A lane keeps 12 loads of 16 bytes under way: the next chunk's block comes in where this one's was
 * unpacked, and the first chunk's are under way before the inputs are awaited.
 *
 * An mma has 8 columns: both bytes of 4 tokens, side by side. So lane c of a row has the two dot products of token c,
 * and needs no other lane. For more, columns are tokens, and each byte has its own mma.
 *
 * Parts meet in shared memory, where a thread for each output walks them in order; a gate's activation is done there
 * too, where a CTA has the same tile of both matrices.
 *
 * What was slower: CTAs of one tile each, two an SM, and a kernel to quantise (1.62 ms a step of an 8B model's linears
 * against 1.54); 8 warps, so that the next kernel's CTA finds room beside this one (1.69); asking for the next linear's
 * weights, for the L2 cache, when this one's are all under way (4 % of a step, 6 % of a whole model's).
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_mma.cuh"
#include "ops/cuda/fast_quantise.cuh"

enum {
  STEP_THREADS = 512,         /* at most */
  STEP_PITCH = FAST_TILE + 4, /* floats between tokens of a part: lanes (r, c) write to different banks */
  STEP_MEET = 64 * 1024,      /* bytes of parts that meet at once, about */
};

/* How a launch goes; by value to the kernel. */
struct step_plan {
  int tokens, room;                    /* places of tokens */
  int slice_parts;                     /* fast_slice */
  int meet;                            /* jobs (tiles) whose parts meet at once */
  bool inside;                         /* the CTA quantises: one token */
  int sums, steps, norm, parts, bytes; /* places in shared memory; codes are first */
};

/* ---- inputs ---- */

/* Shared memory as fast_quantise_part and the product see it: as in fast_inputs.cuh, of one group size. */
template <int GROUP>
static __device__ fast_inputs shared_inputs(uint8_t *memory, const step_plan &plan, const fast_inputs &like)
{
  fast_inputs in = like;
  float *sums = (float *)(memory + plan.sums);
  in.codes = (int8_t *)memory;
  in.sums[0] = GROUP == 32 ? sums : NULL;
  in.sums[1] = GROUP == 64 ? sums : NULL;
  in.sums[2] = GROUP == 128 ? sums : NULL;
  in.steps = (float *)(memory + plan.steps);
  return in;
}

static __device__ void copy(void *to, const void *from, int bytes) /* a multiple of 16, addresses too */
{
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  for (int i = (int)threadIdx.x * 16; i < bytes; i += (int)blockDim.x * 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + i), "l"((const uint8_t *)from + i));
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

/* A warp's place among the chunks of its CTA. */
struct step_chunk {
  int job, part;
};

static __device__ void settle(step_chunk &chunk, int parts)
{
  while (chunk.part >= parts) {
    chunk.part -= parts;
    chunk.job++;
  }
}

template <int GROUP>
static __device__ const uint8_t *address_of(const step_chunk &chunk, const fast_matrices &m, bool gated)
{
  step_job job = job_of(m, gated, chunk.job);
  return m.of[job.matrix].chunks + ((int64_t)job.tile * m.parts + chunk.part) * fast_chunk_bytes(GROUP);
}

/* ---- the product ---- */

/* Both take a part of rows r and r + 8 to `to`, [tokens][STEP_PITCH]; meanwhile `next`, if there is one, takes the
 * chunk's place in w. */

/* Up to 4 tokens: lane c has token c. */
template <int GROUP, bool F16>
static __device__ void multiply_narrow(fast_weights<GROUP> &w, const fast_inputs &in, const float *sums, int part,
                                       int lane, const uint8_t *next, float *to)
{
  const int starts[4] = {FAST_HIGH_START, FAST_LOW_START, FAST_HIGH_START, FAST_LOW_START};
  int r = lane / 4, c = lane % 4;
  bool mine = r / 2 < in.tokens; /* this column */
  const int8_t *codes = (const int8_t *)fast_codes(in, part * FAST_BLOCKS, r % 2, r / 2, c);
  sums += part * w.GROUPS * in.room + c;
  float a0 = 0, a1 = 0;
  int d[4];
#pragma unroll
  for (int b = 0; b < FAST_BLOCKS; b++) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (mine)
      x = *(const uint4 *)(codes + b * (int)in.block);
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
      float scale, bias, sum = sums[g * in.room];
      fast_scale_bias<F16>(fast_word(w.pairs[0][g / 4], g % 4), &scale, &bias);
      a0 = fmaf(bias, sum, fmaf(scale, fast_dot(d[0], d[1]), a0));
      fast_scale_bias<F16>(fast_word(w.pairs[1][g / 4], g % 4), &scale, &bias);
      a1 = fmaf(bias, sum, fmaf(scale, fast_dot(d[2], d[3]), a1));
    }
  }
  if (next)
    fast_load_pairs(w, next, r);
  if (c < in.room) {
    to[c * STEP_PITCH + r] = a0;
    to[c * STEP_PITCH + r + 8] = a1;
  }
}

/* TILES of 8 tokens: lane c has tokens 2 c and 2 c + 1 of each. */
template <int GROUP, bool F16, int TILES>
static __device__ void multiply_wide(fast_weights<GROUP> &w, const fast_inputs &in, const float *sums, int part,
                                     int lane, const uint8_t *next, float *to)
{
  const int span = GROUP == 128 ? 2 : 1; /* blocks multiplied at a time: a group is whole */
  const int high_start[4] = {FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START};
  const int low_start[4] = {FAST_LOW_START, FAST_LOW_START, FAST_LOW_START, FAST_LOW_START};
  const int room = 8 * TILES, plane_bytes = room * FAST_BLOCK;
  int r = lane / 4, c = lane % 4;
  const int8_t *codes = in.codes + part * FAST_BLOCKS * 2 * plane_bytes + lane * 16;
  sums += part * w.GROUPS * room + 2 * c;
  float parts[TILES][4] = {};
#pragma unroll
  for (int block = 0; block < FAST_BLOCKS; block += span) {
    uint32_t a[span][2][4];
#pragma unroll
    for (int b = 0; b < span; b++) {
      fast_unpack(w.codes[block + b], a[b]);
      if (next)
        fast_load_block(w, next, block + b, lane);
    }
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      uint4 x[span][2];
#pragma unroll
      for (int b = 0; b < span; b++)
#pragma unroll
        for (int plane = 0; plane < 2; plane++)
          x[b][plane] = *(const uint4 *)(codes + ((block + b) * 2 + plane) * plane_bytes + 8 * n * FAST_BLOCK);
      int high[4], low[4];
#pragma unroll
      for (int h = 0; h < 2 * span; h++) {
        const uint4 &xh = x[h / 2][0], &xl = x[h / 2][1];
        const bool fresh = h == 0 || GROUP == 32;
        fast_mma(high, a[h / 2][h % 2], h % 2 ? xh.z : xh.x, h % 2 ? xh.w : xh.y, fresh ? high_start : high);
        fast_mma(low, a[h / 2][h % 2], h % 2 ? xl.z : xl.x, h % 2 ? xl.w : xl.y, fresh ? low_start : low);
        if (GROUP != 32 && h + 1 < 2 * span)
          continue;
        const int g = block * FAST_BLOCK / GROUP + (GROUP == 32 ? h : 0);
        float2 sum = *(const float2 *)(sums + g * room + 8 * n);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          float scale, bias;
          fast_scale_bias<F16>(fast_word(w.pairs[j / 2][g / 4], g % 4), &scale, &bias);
          float p = fmaf(scale, fast_dot(high[j], low[j]), parts[n][j]);
          parts[n][j] = fmaf(bias, j % 2 ? sum.y : sum.x, p);
        }
      }
    }
  }
  if (next)
    fast_load_pairs(w, next, r);
#pragma unroll
  for (int n = 0; n < TILES; n++)
#pragma unroll
    for (int j = 0; j < 4; j++)
      to[(8 * n + 2 * c + j % 2) * STEP_PITCH + r + j / 2 * 8] = parts[n][j];
}

/* The parts of one output in order. */
static __device__ float join(const float *parts, int stride, const float *steps, int room, int count, int slice_parts)
{
  float total = 0;
  for (int s = 0; s < count; s += slice_parts) {
    int end = min(s + slice_parts, count);
    float slice = 0;
#pragma unroll 8
    for (int p = s; p < end; p++)
      slice = fmaf(steps[p * room], parts[p * stride], slice);
    total += slice;
  }
  return total;
}

/* What the end will read of memory, to the L1 cache. */
static __device__ void fetch(const float *from)
{
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

/* Jobs [from, to): their parts become outputs. */
static __device__ void meet(const fast_matrices &m, const step_plan &plan, float *gated_to, const float *parts,
                            const float *steps, int from, int to)
{
  int together = gated_to ? 2 : 1, stride = plan.room * STEP_PITCH, job_parts = m.parts * stride;
  for (int i = (int)threadIdx.x; i < (to - from) / together * plan.tokens * FAST_TILE; i += (int)blockDim.x) {
    int row = i % FAST_TILE, token = i / FAST_TILE % plan.tokens, j = i / FAST_TILE / plan.tokens * together;
    step_job job = job_of(m, gated_to != NULL, from + j);
    int rows = m.of[job.matrix].rows, n = job.tile * FAST_TILE + row;
    if (n >= rows)
      continue;
    const float *first = parts + j * job_parts + token * STEP_PITCH + row;
    float sum = join(first, stride, steps + token, plan.room, m.parts, plan.slice_parts);
    if (!gated_to) {
      fast_store(m.of[job.matrix].out, rows, token, n, sum);
      continue;
    }
    float up = join(first + job_parts, stride, steps + token, plan.room, m.parts, plan.slice_parts);
    sum = fast_finish(m.of[0].out, rows, token, n, sum);
    up = fast_finish(m.of[1].out, rows, token, n, up);
    gated_to[(int64_t)token * rows + n] = fast_silu(sum) * up;
  }
}

/* TILES of 8 tokens; 0: up to 4. */
template <int GROUP, bool F16, int TILES>
static __global__ void __launch_bounds__(STEP_THREADS, 1)
    linear_step(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_source source,
                const __grid_constant__ fast_inputs given, const __grid_constant__ step_plan plan, float *gated_to)
{
  extern __shared__ __align__(128) uint8_t memory[];
  cuda_release_next();
  int warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32, r = lane / 4;
  bool gated = gated_to != NULL;
  int jobs = jobs_of(m, gated);
  fast_weights<GROUP> w;
  step_chunk at = {0, warp};
  settle(at, m.parts);
  if (at.job < jobs) {
    const uint8_t *chunk = address_of<GROUP>(at, m, gated);
#pragma unroll
    for (int b = 0; b < FAST_BLOCKS; b++)
      fast_load_block(w, chunk, b, lane);
    fast_load_pairs(w, chunk, r);
  }
  fast_inputs in = shared_inputs<GROUP>(memory, plan, given);
  const float *sums = (const float *)(memory + plan.sums);
  float *parts = (float *)(memory + plan.parts);
  if (plan.inside)
    fast_load_norm(source, (float *)(memory + plan.norm));
  cuda_await();
  if (plan.inside) {
    fast_quantise_row(source, 0, in, 0, parts, (float *)(memory + plan.norm), blockIdx.x == 0);
  } else {
    copy(memory, given.codes, plan.sums);
    copy(memory + plan.sums, fast_sums(given, GROUP), plan.steps - plan.sums);
    copy(memory + plan.steps, given.steps, plan.norm - plan.steps);
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
  if (!gated && (int)threadIdx.x < jobs * plan.tokens * FAST_TILE) {
    int row = (int)threadIdx.x % FAST_TILE, token = (int)threadIdx.x / FAST_TILE % plan.tokens;
    step_job job = job_of(m, false, (int)threadIdx.x / FAST_TILE / plan.tokens);
    int rows = m.of[job.matrix].rows, n = job.tile * FAST_TILE + row;
    const fast_output &out = m.of[job.matrix].out;
    if (out.residual && n < rows)
      fetch(out.residual + (int64_t)token * rows + n);
    if (out.bias && n < rows)
      fetch(out.bias + n);
  }
  __syncthreads();
  for (int first = 0; first < jobs; first += plan.meet) {
    int end = min(first + plan.meet, jobs);
    while (at.job < end) {
      step_chunk next = {at.job, at.part + warps};
      settle(next, m.parts);
      const uint8_t *chunk = next.job < jobs ? address_of<GROUP>(next, m, gated) : NULL;
      float *to = parts + ((at.job - first) * m.parts + at.part) * plan.room * STEP_PITCH;
      if (TILES == 0)
        multiply_narrow<GROUP, F16>(w, in, sums, at.part, lane, chunk, to);
      else
        multiply_wide<GROUP, F16, (TILES ? TILES : 1)>(w, in, sums, at.part, lane, chunk, to);
      at = next;
    }
    __syncthreads();
    meet(m, plan, gated_to, parts, in.steps, first, end);
    __syncthreads();
  }
}

/* ---- launching ---- */

typedef void step_kernel(const fast_matrices m, const fast_source source, const fast_inputs given, const step_plan plan,
                         float *gated_to);

#define STEP(group, tokens, tiles)                                                                                     \
  {                                                                                                                    \
    group, tokens, linear_step<group, false, tiles>, linear_step<group, true, tiles>                                   \
  }
static const struct {
  int group, tokens;
  step_kernel *bf16, *f16;
} kernels[] = {
    STEP(32, 4, 0), STEP(32, 8, 1), STEP(64, 4, 0), STEP(64, 8, 1), STEP(128, 4, 0), STEP(128, 8, 1),
};
#undef STEP
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

void fast_step_setup(cuda_context *cx)
{
  for (int i = 0; i < KERNELS; i++) {
    step_kernel *const both[2] = {kernels[i].bf16, kernels[i].f16};
    for (int j = 0; j < 2 && cx->error == cudaSuccess; j++)
      cx->error = cudaFuncSetAttribute(both[j], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       (int)cx->shared_most - FAST_STATIC);
  }
}

bool fast_linear_step(cuda_context *cx, const fast_matrices &m, const fast_source &source, const fast_inputs *given,
                      float *gated)
{
  bool inside = given == NULL;
  fast_inputs in = inside ? fast_inputs_at(NULL, 1, 1, source.k, NULL) : *given;
  fast_matrices tiled = fast_tiled(m, FAST_TILE);
  int together = gated ? 2 : 1, spread = tiled.tiles / together, at = 0;
  int ctas = spread < cx->processors ? spread : cx->processors;
  int jobs = (int)cuda_ceil(spread, ctas) * together, job_bytes = m.parts * in.room * STEP_PITCH * 4;
  step_plan plan = {};
  plan.tokens = in.tokens;
  plan.room = in.room;
  plan.slice_parts = (int)fast_slice((int64_t)m.parts * FAST_PART);
  plan.inside = inside;
  plan.meet = STEP_MEET / job_bytes / together * together;
  plan.meet = plan.meet < together ? together : plan.meet < jobs ? plan.meet : jobs;
  plan.sums = m.parts * FAST_PART * 2 * in.room;
  plan.steps = plan.sums + m.parts * (FAST_PART / m.group) * in.room * 4;
  plan.norm = plan.steps + (m.parts * in.room * 4 + 15) / 16 * 16;
  plan.parts = plan.norm + (inside && source.norm ? (int)source.k * 4 : 0);
  int meet_bytes = plan.meet * job_bytes, row = inside && source.norm ? (int)source.k * 4 : 0;
  plan.bytes = plan.parts + (meet_bytes > row ? meet_bytes : row); /* a row to be normed waits where parts will be */
  if (plan.bytes > (int)cx->shared_most - FAST_STATIC)
    return false;
  while (kernels[at].group != m.group || kernels[at].tokens < in.tokens)
    at++;
  cuda_launch(cx, true, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16, (unsigned)ctas, STEP_THREADS,
              (size_t)plan.bytes, tiled, source, in, plan, gated);
  return true;
}
