/* fast_linear_step.cu - up to 4 tokens times packed matrices: the kernel of steps, bound by reading weights.
 *
 * A CTA has one tile of 16 rows and all of k; its warps take parts in turn. A lane asks for all its weights of a part
 * (12 loads of 16 bytes) before anything else, the wait for the inputs included: with two CTAs an SM some 90 KB are
 * under way, which is what full bandwidth takes (fewer registers for more CTAs was 11 to 36 % slower). While a part is
 * multiplied the next one's weights come in behind.
 *
 * An mma has 8 columns: both bytes of 4 tokens, side by side. So lane c of a row has the two dot products of token c,
 * and needs no other lane.
 *
 * Parts meet in shared memory, where a thread for each output walks them in order. That costs 4 % against any order.
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_mma.cuh"

enum {
  STEP_WARPS = 8,
  STEP_TOKENS = 4,
};

/* The parts of one output in order, and the rest of its record. parts and steps lie `stride` floats apart. */
static __device__ float join(const float *parts, int parts_stride, const float *steps, int steps_stride, int count,
                             int slice_parts)
{
  float total = 0;
  for (int s = 0; s < count; s += slice_parts) {
    int end = min(s + slice_parts, count);
    float slice = 0;
#pragma unroll 8
    for (int p = s; p < end; p++)
      slice = fmaf(steps[p * steps_stride], parts[p * parts_stride], slice);
    total += slice;
  }
  return total;
}

template <int GROUP, bool F16>
static __global__ void __launch_bounds__(STEP_WARPS * 32, 2)
    linear_step(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_inputs in, int slice_parts)
{
  extern __shared__ float shared[]; /* parts [parts][16][STEP_TOKENS], then steps [parts][STEP_TOKENS] */
  float *steps = shared + m.parts * FAST_TILE * STEP_TOKENS;
  cuda_release_next();
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4;
  int matrix = fast_matrix_of(m, (int)blockIdx.x), tile = (int)blockIdx.x - m.of[matrix].first_tile;
  const int chunk_bytes = fast_chunk_bytes(GROUP);
  const uint8_t *chunks = m.of[matrix].chunks + (int64_t)tile * m.parts * chunk_bytes;
  fast_weights<GROUP> w;
  int part = warp, stride = (int)blockDim.x / 32;
  if (part < m.parts) {
#pragma unroll
    for (int b = 0; b < FAST_BLOCKS; b++)
      fast_load_block(w, chunks + part * chunk_bytes, b, lane);
    fast_load_pairs(w, chunks + part * chunk_bytes, r);
  }
  cuda_await();
  for (int i = (int)threadIdx.x; i < m.parts * STEP_TOKENS; i += (int)blockDim.x)
    steps[i] = in.steps[i];
  const float *sums = fast_sums(in, GROUP);
  const int starts[4] = {FAST_HIGH_START, FAST_LOW_START, FAST_HIGH_START, FAST_LOW_START};
  for (; part < m.parts; part += stride) {
    uint4 x[FAST_BLOCKS];
    float sum[w.GROUPS];
#pragma unroll
    for (int b = 0; b < FAST_BLOCKS; b++) {
      x[b] = make_uint4(0, 0, 0, 0);
      if (r / 2 < in.tokens)
        x[b] = *fast_codes(in, part * FAST_BLOCKS + b, r % 2, r / 2, c);
    }
#pragma unroll
    for (int g = 0; g < w.GROUPS; g++)
      sum[g] = sums[(part * w.GROUPS + g) * STEP_TOKENS + c];
    bool more = part + stride < m.parts;
    const uint8_t *next = chunks + (part + stride) * chunk_bytes;
    float above = 0, below = 0; /* the part of rows r and r + 8 */
    int d[4];
#pragma unroll
    for (int b = 0; b < FAST_BLOCKS; b++) {
      uint32_t a[2][4];
      fast_unpack(w.codes[b], a);
      if (more)
        fast_load_block(w, next, b, lane);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int from = b * FAST_BLOCK + half * 32; /* input of the part */
        fast_mma(d, a[half], half ? x[b].z : x[b].x, half ? x[b].w : x[b].y, from % GROUP ? d : starts);
        if ((from + 32) % GROUP)
          continue;
        const int g = from / GROUP;
        float scale, bias;
        fast_scale_bias<F16>(fast_word(w.pairs[0][g / 4], g % 4), &scale, &bias);
        above = fmaf(bias, sum[g], fmaf(scale, fast_dot(d[0], d[1]), above));
        fast_scale_bias<F16>(fast_word(w.pairs[1][g / 4], g % 4), &scale, &bias);
        below = fmaf(bias, sum[g], fmaf(scale, fast_dot(d[2], d[3]), below));
      }
    }
    if (more)
      fast_load_pairs(w, next, r);
    shared[(part * FAST_TILE + r) * STEP_TOKENS + c] = above;
    shared[(part * FAST_TILE + r + 8) * STEP_TOKENS + c] = below;
  }
  __syncthreads();
  int row = tile * FAST_TILE + (int)threadIdx.x / STEP_TOKENS, token = (int)threadIdx.x % STEP_TOKENS;
  if (threadIdx.x < FAST_TILE * STEP_TOKENS && token < in.tokens && row < m.of[matrix].rows)
    fast_store(m.of[matrix].out, m.of[matrix].rows, token, row,
               join(shared + threadIdx.x, FAST_TILE * STEP_TOKENS, steps + token, STEP_TOKENS, m.parts, slice_parts));
}

typedef void step_kernel(const fast_matrices m, const fast_inputs in, int slice_parts);

void fast_linear_step(cuda_context *cx, const fast_matrices &m, const fast_inputs &in)
{
  static const struct {
    int group;
    step_kernel *bf16, *f16;
  } kernels[] = {
      {32, linear_step<32, false>, linear_step<32, true>},
      {64, linear_step<64, false>, linear_step<64, true>},
      {128, linear_step<128, false>, linear_step<128, true>},
  };
  fast_matrices tiled = fast_tiled(m, FAST_TILE);
  int at = 0, warps = m.parts < STEP_WARPS ? m.parts : STEP_WARPS;
  while (kernels[at].group != m.group)
    at++;
  /* As many parts for each warp as for the others, where that can be. The join takes two warps. */
  while (warps > 2 && cuda_ceil(m.parts, warps - 1) == cuda_ceil(m.parts, warps))
    warps--;
  warps = warps < 2 ? 2 : warps;
  size_t shared = (size_t)m.parts * (FAST_TILE + 1) * STEP_TOKENS * sizeof(float);
  cuda_launch(cx, true, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16, (unsigned)tiled.tiles,
              (unsigned)warps * 32, shared, tiled, in, (int)fast_slice((int64_t)m.parts * FAST_PART));
}
