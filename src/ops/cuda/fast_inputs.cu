/* fast_inputs.cu - quantises the inputs of a linear for numerics fast, a norm before that included.
 *
 * Without a norm a warp has a part of a token. The largest magnitude is a maximum of bit patterns (as integers), so its
 * order means nothing and redux.sync finds it. A lane has 8 inputs in a row, twice, 256 apart: loads are whole lines,
 * and eight inputs are one word of 4-bit weights, the unit of the codes' order (fast_inputs.cuh). Sums of groups are
 * made here, once, for groups of all three sizes: outputs of one record may differ in theirs.
 *
 * With a norm a CTA has a token.
 */
#include "ops/cuda/fast_inputs.cuh"
#include "ops/cuda/fast_quantise.cuh"

enum { QUANTISE_WARPS = 4, NORM_THREADS = 512 };

static __global__ void __launch_bounds__(QUANTISE_WARPS * 32)
    quantise_inputs(const __grid_constant__ fast_source source, const __grid_constant__ fast_inputs in)
{
  cuda_release_next();
  int warp = (int)(blockIdx.x * QUANTISE_WARPS + threadIdx.x / 32), lane = (int)threadIdx.x % 32;
  int token = warp / in.parts, part = warp % in.parts;
  cuda_await();
  if (token >= in.tokens)
    return;
  float v[2][8];
#pragma unroll
  for (int j = 0; j < 2; j++)
    fast_load8(source.x + token * source.x_stride, fast_input_at(part, j, lane), source.k, v[j]);
  fast_quantise_part(v, in, token, part, lane);
}

static __global__ void __launch_bounds__(NORM_THREADS)
    quantise_normed(const __grid_constant__ fast_source source, const __grid_constant__ fast_inputs in)
{
  extern __shared__ __align__(16) float row[]; /* [k], then the norm's weights [k] */
  cuda_release_next();
  fast_load_norm(source, row + source.k);
  cuda_await();
  fast_quantise_row(source, (int)blockIdx.x, in, (int)blockIdx.x, row, row + source.k, true);
}

void fast_inputs_setup(cuda_context *cx)
{
  if (cx->error == cudaSuccess)
    cx->error = cudaFuncSetAttribute(quantise_normed, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)cx->shared_most - FAST_STATIC);
}

bool fast_norm_fits(const cuda_context *cx, int64_t k)
{
  return (size_t)k * 8 <= cx->shared_most - FAST_STATIC;
}

void fast_quantise_inputs(cuda_context *cx, const fast_source &source, const fast_inputs &in)
{
  if (source.norm) {
    cuda_launch(cx, true, quantise_normed, (unsigned)in.tokens, NORM_THREADS, (size_t)source.k * 8, source, in);
    return;
  }
  int64_t warps = (int64_t)in.tokens * in.parts;
  cuda_launch(cx, true, quantise_inputs, (unsigned)cuda_ceil(warps, QUANTISE_WARPS), QUANTISE_WARPS * 32, 0, source,
              in);
}
