/* exact_attention_sums.cuh - sums of exact attention that run in a single thread: a dot product, and long chains.
 *
 * An addition that waits for the one before it takes 4.16 cycles, and a warp that adds has three free issue slots at
 * each. What may not happen is that it waits for an operand, so operands come a batch ahead, from shared memory.
 */
#ifndef TERN_OPS_CUDA_EXACT_ATTENTION_SUMS_CUH
#define TERN_OPS_CUDA_EXACT_ATTENTION_SUMS_CUH

#include "ops/cuda/attention_copy.cuh"
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

enum { BATCH = 16 }; /* links of a chain whose operands are loaded together */

/* Terms of a batch. */
struct batch {
  float4 four[BATCH / 4];
};

static __device__ batch load_batch(const float *from)
{
  batch b;
#pragma unroll
  for (int i = 0; i < BATCH / 4; i++)
    b.four[i] = load_four_now(from + 4 * i);
  return b;
}

static __device__ float add_batch(batch b, float sum)
{
#pragma unroll
  for (int i = 0; i < BATCH / 4; i++)
    sum = sum + b.four[i].x + b.four[i].y + b.four[i].z + b.four[i].w;
  return sum;
}

/* sum + term[0] + ... in order, by every lane alike; count a multiple of 2 * BATCH, and BATCH more may be read. */
static __device__ float add_up(const float *term, int count, float sum)
{
  batch now = load_batch(term), next;
#pragma unroll 1
  for (int at = 0; at < count; at += 2 * BATCH) {
    next = load_batch(term + at + BATCH);
    sum = add_batch(now, sum);
    now = load_batch(term + at + 2 * BATCH);
    sum = add_batch(next, sum);
  }
  return sum;
}

/* Terms and values of a batch. */
struct weighted_batch {
  batch term;
  float value[BATCH];
};

template <int STRIDE> static __device__ weighted_batch load_weighted(const float *value, const float *term)
{
  weighted_batch b;
  b.term = load_batch(term);
#pragma unroll
  for (int i = 0; i < BATCH; i++)
    b.value[i] = load_now(value + i * STRIDE);
  return b;
}

/* A weight is term * inverse, rounded. */
static __device__ float add_weighted_batch(const weighted_batch &b, float inverse, float out)
{
#pragma unroll
  for (int i = 0; i < BATCH / 4; i++) {
    out += b.term.four[i].x * inverse * b.value[4 * i];
    out += b.term.four[i].y * inverse * b.value[4 * i + 1];
    out += b.term.four[i].z * inverse * b.value[4 * i + 2];
    out += b.term.four[i].w * inverse * b.value[4 * i + 3];
  }
  return out;
}

#endif
