/* fast_linear_step.cu - up to 32 tokens times packed matrices: the kernel of steps.
 *
 * One CTA an SM with 16 warps stays for the whole record. It holds the quantised inputs, or as many parts of them as
 * shared memory has room for (a phase), and its warps walk through the chunks of its tiles: a warp has every 16th. A
 * lane keeps 12 loads of 16 bytes under way, 75 KB an SM: the next chunk's block comes in where this one's was
 * unpacked, and the first chunk's are under way before the inputs are awaited.
 *
 * For up to 4 tokens an mma's 8 columns are both bytes of the tokens, side by side, so that a lane has the two dot
 * products of a token and needs no other lane. For more, columns are tokens, and each byte has its own mma.
 *
 * Parts meet in shared memory, a few tiles at a time, where a thread for each output walks them in order; a gate's
 * activation is done there too, where a CTA has the same tile of both matrices. Between phases an output's slice and
 * total wait in shared memory.
 *
 * What was slower: short-lived CTAs of one tile each, two an SM (1.62 ms a step of an 8B model against 1.54); inputs
 * out of the L2 cache for each CTA anew (32 tokens: they are several times the weights' bytes); clusters whose CTAs
 * share a slice out (they wait for each other).
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_mma.cuh"
#include "ops/cuda/fast_quantise.cuh"

enum {
  STEP_WARPS = 16,
  STEP_THREADS = STEP_WARPS * 32,
  STEP_PITCH = FAST_TILE + 4, /* floats between tokens of a part: lanes (r, c) write to banks r + 8 c */
  STEP_MEET = 48 * 1024,      /* bytes of parts that meet at once, about */
  STEP_NARROW = 4,            /* tokens whose bytes are columns */
};

/* How a launch goes; by value to the kernel. */
struct step_plan {
  int first, tokens;                          /* of the inputs */
  int room;                                   /* tokens' places in shared memory */
  int slice_parts;                            /* fast_slice */
  int phase;                                  /* parts whose inputs are in shared memory at once */
  int lap;                                    /* jobs (tiles) before the phases begin anew */
  int meet;                                   /* jobs whose parts meet at once */
  bool inside;                                /* the CTA quantises: one token, one phase */
  int sums, steps, norm, parts, state, bytes; /* places in shared memory: inputs are first */
};

/* ---- inputs ---- */

/* Shared memory as fast_quantise_part and the product see it. Narrow: planes of a token side by side, so that the lanes
 * of an mma's columns read in a row. */
template <int GROUP, bool NARROW>
static __device__ fast_inputs shared_inputs(uint8_t *memory, const step_plan &plan, int parts)
{
  fast_inputs in = {};
  float *sums = (float *)(memory + plan.sums);
  in.codes = (int8_t *)memory;
  in.plane = NARROW ? FAST_BLOCK : plan.room * FAST_BLOCK;
  in.token = NARROW ? 2 * FAST_BLOCK : FAST_BLOCK;
  in.block = 2 * FAST_BLOCK * plan.room;
  in.quarter = 4;
  in.column = 16;
  in.sums[0] = GROUP == 32 ? sums : NULL;
  in.sums[1] = GROUP == 64 ? sums : NULL;
  in.sums[2] = GROUP == 128 ? sums : NULL;
  in.steps = (float *)(memory + plan.steps);
  in.tokens = plan.tokens;
  in.room = plan.room;
  in.parts = parts;
  return in;
}

static __device__ void copy_async(void *to, const void *from, int bytes)
{
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  if (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from));
}

/* Parts [begin, begin + count) of quantised inputs. Tokens that are not there are left out. */
template <int GROUP>
static __device__ void copy_inputs(const fast_inputs &from, const fast_inputs &to, const step_plan &plan, int begin,
                                   int count)
{
  const int groups = FAST_PART / GROUP;
  int row = plan.tokens * 4; /* pieces of 16 bytes of a block and plane */
  for (int i = (int)threadIdx.x; i < count * FAST_BLOCKS * 2 * row; i += STEP_THREADS) {
    int plane = i / row % 2, block = i / row / 2, token = i % row / 4;
    copy_async(to.codes + block * to.block + plane * to.plane + token * to.token + i % 4 * 16,
               fast_codes(from, begin * FAST_BLOCKS + block, plane, plan.first + token, i % 4), 16);
  }
  const float *sums = fast_sums(from, GROUP) + (int64_t)begin * groups * from.room + plan.first;
  float *sums_to = GROUP == 32 ? to.sums[0] : GROUP == 64 ? to.sums[1] : to.sums[2];
  for (int i = (int)threadIdx.x; i < count * groups * plan.tokens; i += STEP_THREADS) {
    int g = i / plan.tokens, token = i % plan.tokens;
    copy_async(sums_to + g * to.room + token, sums + (int64_t)g * from.room + token, 4);
  }
  for (int i = (int)threadIdx.x; i < count * plan.tokens; i += STEP_THREADS) {
    int p = i / plan.tokens, token = i % plan.tokens;
    copy_async(to.steps + p * to.room + token, from.steps + (int64_t)(begin + p) * from.room + plan.first + token, 4);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
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

/* ---- a warp's way through the chunks ---- */

/* Rounds of jobs, in them phases of parts, in them jobs, in them parts. */
struct step_place {
  int lap, phase; /* first job, first part */
  int job, part;  /* from those on */
};

/* Moves a place beyond the end of its phase into the next one that has something for the warp; false: none has. */
static __device__ bool settle(step_place &at, const step_plan &plan, int parts, int jobs)
{
  int warp = (int)threadIdx.x / 32;
  while (at.lap < jobs) {
    int width = min(plan.phase, parts - at.phase), height = min(plan.lap, jobs - at.lap);
    while (at.part >= width) {
      at.part -= width;
      at.job++;
    }
    if (at.job < height)
      return true;
    at.job = 0;
    at.part = warp;
    at.phase += plan.phase;
    if (at.phase >= parts) {
      at.phase = 0;
      at.lap += plan.lap;
    }
  }
  return false;
}

template <int GROUP> static __device__ const uint8_t *chunk_at(const fast_matrices &m, bool gated, const step_place &at)
{
  step_job job = job_of(m, gated, at.lap + at.job);
  return m.of[job.matrix].chunks + ((int64_t)job.tile * m.parts + at.phase + at.part) * fast_chunk_bytes(GROUP);
}

/* ---- the product of one chunk ---- */

/* Both take a part of rows r and r + 8; `next`, if there is one, takes the chunk's place in w. part: of the phase. */

/* Up to 4 tokens: lane c has token c. */
template <int GROUP, bool F16>
static __device__ void multiply_narrow(fast_weights<GROUP> &w, const fast_inputs &in, const float *sums, int part,
                                       int lane, const uint8_t *next, float *to)
{
  const int starts[4] = {FAST_HIGH_START, FAST_LOW_START, FAST_HIGH_START, FAST_LOW_START};
  int r = lane / 4, c = lane % 4;
  bool mine = r / 2 < in.tokens; /* this column */
  const int8_t *codes = (const int8_t *)fast_codes(in, part * FAST_BLOCKS, r % 2, r / 2, c);
  float above = 0, below = 0;
  int d[4];
#pragma unroll
  for (int b = 0; b < FAST_BLOCKS; b++) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (mine)
      x = *(const uint4 *)(codes + b * in.block);
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
      float scale, bias, sum = sums[(part * w.GROUPS + g) * STEP_NARROW + c];
      fast_scale_bias<F16>(fast_word(w.pairs[0][g / 4], g % 4), &scale, &bias);
      above = fmaf(bias, sum, fmaf(scale, fast_dot(d[0], d[1]), above));
      fast_scale_bias<F16>(fast_word(w.pairs[1][g / 4], g % 4), &scale, &bias);
      below = fmaf(bias, sum, fmaf(scale, fast_dot(d[2], d[3]), below));
    }
  }
  if (next)
    fast_load_pairs(w, next, r);
  to[c * STEP_PITCH + r] = above;
  to[c * STEP_PITCH + r + 8] = below;
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

/* ---- parts meet ---- */

/* What an output has so far. */
struct step_sum {
  float slice, total;
};

/* `count` parts of one output in order, `begin` being the first of them; they lie `stride` floats apart. */
static __device__ void walk(step_sum &sum, const float *parts, int stride, const float *steps, int room, int begin,
                            int count, int slice_parts)
{
  int until = slice_parts - begin % slice_parts; /* the slice ends */
  if (until == slice_parts && begin)
    sum.total += sum.slice, sum.slice = 0;
  for (int p = 0; p < count;) {
    int end = min(count, until);
#pragma unroll 8
    for (; p < end; p++)
      sum.slice = fmaf(steps[p * room], parts[p * stride], sum.slice);
    until += slice_parts;
    if (p < count)
      sum.total += sum.slice, sum.slice = 0;
  }
}

static __device__ float silu(float x)
{
  return x * math_sigmoid(x);
}

/* Jobs [from, to) of the lap: their parts of this phase join what they have; in the last phase that is the output. */
static __device__ void meet(const fast_matrices &m, const step_plan &plan, float *gated_to, const float *parts,
                            step_sum *state, const fast_inputs &in, const step_place &at, int from, int to)
{
  bool gated = gated_to != NULL, last = at.phase + plan.phase >= m.parts;
  int together = gated ? 2 : 1, width = min(plan.phase, m.parts - at.phase), stride = plan.room * STEP_PITCH;
  for (int i = (int)threadIdx.x; i < (to - from) / together * plan.tokens * FAST_TILE; i += STEP_THREADS) {
    int row = i % FAST_TILE, token = i / FAST_TILE % plan.tokens, j = i / FAST_TILE / plan.tokens * together;
    float y[2];
    int n = 0;
    int64_t rows = 0;
    for (int k = 0; k < together; k++) {
      step_sum sum = {0, 0};
      step_sum *kept = state + ((from + j + k) * plan.tokens + token) * FAST_TILE + row;
      if (at.phase)
        sum = *kept;
      walk(sum, parts + (j + k) * width * stride + token * STEP_PITCH + row, stride, in.steps + token, in.room,
           at.phase, width, plan.slice_parts);
      if (!last) {
        *kept = sum;
        continue;
      }
      step_job job = job_of(m, gated, at.lap + from + j + k);
      rows = m.of[job.matrix].rows;
      n = job.tile * FAST_TILE + row;
      if (n >= rows)
        break;
      y[k] = fast_finish(m.of[job.matrix].out, rows, plan.first + token, n, sum.total + sum.slice);
      if (!gated)
        m.of[job.matrix].out.y[(plan.first + token) * rows + n] = y[k];
    }
    if (gated && last && n < rows)
      gated_to[(plan.first + token) * rows + n] = silu(y[0]) * y[1];
  }
}

template <int GROUP, bool F16, int TILES>
static __global__ void __launch_bounds__(STEP_THREADS, 1)
    linear_step(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_source source,
                const __grid_constant__ fast_inputs quantised, const __grid_constant__ step_plan plan, float *gated_to)
{
  const bool narrow = TILES == 0;
  extern __shared__ __align__(128) uint8_t memory[];
  cuda_release_next();
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  bool gated = gated_to != NULL;
  int jobs = jobs_of(m, gated);
  fast_weights<GROUP> w;
  step_place at = {0, 0, 0, warp};
  if (settle(at, plan, m.parts, jobs)) {
    const uint8_t *chunk = chunk_at<GROUP>(m, gated, at);
#pragma unroll
    for (int b = 0; b < FAST_BLOCKS; b++)
      fast_load_block(w, chunk, b, lane);
    fast_load_pairs(w, chunk, lane / 4);
  }
  fast_inputs in = shared_inputs<GROUP, narrow>(memory, plan, m.parts);
  const float *sums = (const float *)(memory + plan.sums);
  float *parts = (float *)(memory + plan.parts);
  step_sum *state = (step_sum *)(memory + plan.state);
  if (plan.inside)
    fast_load_norm(source, (float *)(memory + plan.norm));
  cuda_await();
  for (step_place now = {0, 0, 0, 0}; now.lap < jobs; now.lap += plan.lap)
    for (now.phase = 0; now.phase < m.parts; now.phase += plan.phase) {
      int width = min(plan.phase, m.parts - now.phase), height = min(plan.lap, jobs - now.lap);
      if (plan.inside && now.lap == 0)
        fast_quantise_row(source, 0, in, 0, parts, (float *)(memory + plan.norm), blockIdx.x == 0);
      else if (now.lap == 0 || plan.phase < m.parts)
        copy_inputs<GROUP>(quantised, in, plan, now.phase, width);
      __syncthreads();
      for (int from = 0; from < height; from += plan.meet) {
        int to = min(from + plan.meet, height);
        while (at.lap == now.lap && at.phase == now.phase && at.job < to) {
          step_place next = at;
          next.part += STEP_WARPS;
          const uint8_t *chunk = settle(next, plan, m.parts, jobs) ? chunk_at<GROUP>(m, gated, next) : NULL;
          float *place = parts + ((at.job - from) * width + at.part) * plan.room * STEP_PITCH;
          if (narrow)
            multiply_narrow<GROUP, F16>(w, in, sums, at.part, lane, chunk, place);
          else
            multiply_wide<GROUP, F16, (TILES ? TILES : 1)>(w, in, sums, at.part, lane, chunk, place);
          at = next;
        }
        __syncthreads();
        meet(m, plan, gated_to, parts, state, in, now, from, to);
        __syncthreads();
      }
    }
}

/* ---- launching ---- */

typedef void step_kernel(const fast_matrices m, const fast_source source, const fast_inputs quantised,
                         const step_plan plan, float *gated_to);

#define STEP(group, tiles, tokens)                                                                                     \
  {                                                                                                                    \
    group, tokens, linear_step<group, false, tiles>, linear_step<group, true, tiles>                                   \
  }
static const struct {
  int group, tokens;
  step_kernel *bf16, *f16;
} kernels[] = {
    STEP(32, 0, 4),  STEP(32, 1, 8),  STEP(32, 2, 16), STEP(32, 4, 32), STEP(64, 0, 4),   STEP(64, 1, 8),
    STEP(64, 2, 16), STEP(64, 4, 32), STEP(128, 0, 4), STEP(128, 1, 8), STEP(128, 2, 16), STEP(128, 4, 32),
};
#undef STEP
enum { KERNELS = sizeof kernels / sizeof kernels[0], STEP_MOST = 32 };

void fast_step_setup(cuda_context *cx)
{
  for (int i = 0; i < KERNELS; i++) {
    step_kernel *const both[2] = {kernels[i].bf16, kernels[i].f16};
    for (int j = 0; j < 2 && cx->error == cudaSuccess; j++)
      cx->error = cudaFuncSetAttribute(both[j], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       (int)cx->shared_most - FAST_STATIC);
  }
}

/* Places for what does not depend on how much is done at once. */
static void place(step_plan *plan, const fast_matrices &m, const fast_source &source, int jobs)
{
  int groups = plan->phase * (FAST_PART / m.group), norm = plan->inside && source.norm ? (int)source.k * 4 : 0;
  int parts = plan->meet * plan->phase * plan->room * STEP_PITCH * 4;
  plan->sums = plan->phase * FAST_PART * 2 * plan->room;
  plan->steps = plan->sums + groups * plan->room * 4;
  plan->norm = plan->steps + plan->phase * plan->room * 4;
  plan->parts = plan->norm + norm;
  plan->state = plan->parts + (parts > norm ? parts : norm); /* a row to be normed waits where parts will be */
  plan->bytes = plan->state + (plan->phase < m.parts ? plan->lap * plan->tokens * FAST_TILE * 8 : 0);
  (void)jobs;
}

/* As many parts at once as there is room for, then as many jobs. */
static bool make_plan(const cuda_context *cx, step_plan *plan, const fast_matrices &m, const fast_source &source,
                      int jobs, int together)
{
  int most = (int)cx->shared_most - FAST_STATIC;
  for (int phases = 1; phases <= m.parts; phases++) {
    plan->phase = (int)cuda_ceil(m.parts, phases);
    int job_bytes = plan->phase * plan->room * STEP_PITCH * 4;
    /* Rounds: all jobs, or half of them, ... where what waits between phases takes too much. */
    for (int laps = 1; laps <= jobs; laps *= 2) {
      plan->lap = (int)cuda_ceil(cuda_ceil(jobs, laps), together) * together;
      plan->meet = STEP_MEET / job_bytes / together * together;
      plan->meet = plan->meet < together ? together : plan->meet < plan->lap ? plan->meet : plan->lap;
      place(plan, m, source, jobs);
      if (plan->bytes <= most)
        return true;
      if (phases == 1)
        break;
    }
    if (plan->inside)
      return false;
  }
  return false;
}

bool fast_linear_step(cuda_context *cx, const fast_matrices &m, const fast_source &source, const fast_inputs *quantised,
                      int first, int tokens, float *gated)
{
  fast_matrices tiled = fast_tiled(m, FAST_TILE);
  int together = gated ? 2 : 1, spread = tiled.tiles / together, at = 0;
  int ctas = spread < cx->processors ? spread : cx->processors;
  while (kernels[at].group != m.group || kernels[at].tokens < tokens)
    at++;
  step_plan plan = {};
  plan.first = first;
  plan.tokens = tokens;
  plan.room = kernels[at].tokens;
  plan.slice_parts = (int)fast_slice((int64_t)m.parts * FAST_PART);
  plan.inside = quantised == NULL;
  if (!make_plan(cx, &plan, m, source, (int)cuda_ceil(spread, ctas) * together, together))
    return false;
  cuda_launch(cx, true, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16, (unsigned)ctas, STEP_THREADS,
              (size_t)plan.bytes, tiled, source, quantised ? *quantised : fast_inputs{}, plan, gated);
  return true;
}
