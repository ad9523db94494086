/* exact_attention_sums.cuh - sums of exact attention that run in a single thread: a dot product, and long chains.
 *
 * An addition that waits for the one before it takes 4.16 cycles, and a warp that adds has three free issue slots at
 * each. What may not happen is that it waits for an operand.
 */
#ifndef TERN_OPS_CUDA_EXACT_ATTENTION_SUMS_CUH
#define TERN_OPS_CUDA_EXACT_ATTENTION_SUMS_CUH

#include "ops/cuda/cuda.cuh"

/* ---- scores ---- */

/* A thread a key of a block, all heads of the share: what it loads of a key serves them all. q [dims][HEADS]. */
template <int HEADS> static __device__ void shared_scores(const float *key, const float *q, int dims, float *sum)
{
#pragma unroll 16
  for (int e = 0; e < dims; e++)
#pragma unroll
    for (int h = 0; h < HEADS; h++)
      sum[h] += q[e * HEADS + h] * key[e * KV_BLOCK];
}

/* ---- chains ---- */

/* Links that stand in one piece of straight code. Inside of one the compiler has each operand loaded in time; across
 * its edges it does not, whatever the source says, and a chain waits for shared memory once a piece. */
enum { TERMS_AT_ONCE = 128, VALUES_AT_ONCE = 64 };

/* sum + term[0] + ... in order, by every lane alike; count a multiple of TERMS_AT_ONCE, term of 16 bytes. */
static __device__ float add_up(const float *term, int count, float sum)
{
#pragma unroll 1
  for (int at = 0; at < count; at += TERMS_AT_ONCE) {
    const float4 *four = (const float4 *)(term + at);
#pragma unroll
    for (int i = 0; i < TERMS_AT_ONCE / 4; i++) {
      float4 x = four[i];
      sum = sum + x.x + x.y + x.z + x.w;
    }
  }
  return sum;
}

/* out + weight[0] * value[0] + ... in order, VALUES_AT_ONCE of them, values STRIDE apart; a weight is term * inverse,
 * rounded. */
template <int STRIDE>
static __device__ float add_weighted(const float *term, float inverse, const float *value, float out)
{
#pragma unroll
  for (int i = 0; i < VALUES_AT_ONCE / 4; i++) {
    float4 x = ((const float4 *)term)[i];
    out += x.x * inverse * value[(4 * i) * STRIDE];
    out += x.y * inverse * value[(4 * i + 1) * STRIDE];
    out += x.z * inverse * value[(4 * i + 2) * STRIDE];
    out += x.w * inverse * value[(4 * i + 3) * STRIDE];
  }
  return out;
}

#endif
