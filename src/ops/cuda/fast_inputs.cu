/* fast_inputs.cu - quantises the inputs of a linear for numerics fast: fast_quantise of fast.h, a warp for each part of
 * a token.
 *
 * The largest magnitude is a maximum of bit patterns (as integers), so its order means nothing and redux.sync finds it.
 * A lane has 8 inputs in a row, twice, 256 apart: loads are whole lines, and eight inputs are one word of 4-bit
 * weights, the unit of the codes' order (fast_inputs.cuh). Sums of groups are made here, once, for groups of all three
 * sizes: outputs of one record may differ in theirs.
 */
#include "ops/cuda/fast_inputs.cuh"
#include "ops/cuda/fast_quantise.cuh"

enum { QUANTISE_WARPS = 4 };

static __global__ void __launch_bounds__(QUANTISE_WARPS * 32) quantise_inputs(const float *x, int64_t k, fast_inputs in)
{
  cuda_release_next();
  int warp = (int)(blockIdx.x * QUANTISE_WARPS + threadIdx.x / 32), lane = (int)threadIdx.x % 32;
  int token = warp / in.parts, part = warp % in.parts;
  cuda_await();
  if (token >= in.tokens)
    return;
  float v[2][8];
  for (int j = 0; j < 2; j++)
    fast_load8(x + token * k, (int64_t)part * FAST_PART + 256 * j + 8 * lane, k, v[j]);
  fast_quantise_part(v, in, token, part, lane);
}

void fast_quantise_inputs(cuda_context *cx, const float *x, int64_t k, const fast_inputs &in)
{
  int64_t warps = (int64_t)in.tokens * in.parts;
  cuda_launch(cx, true, quantise_inputs, (unsigned)cuda_ceil(warps, QUANTISE_WARPS), QUANTISE_WARPS * 32, 0, x, k, in);
}
