/* chain.cuh - a sum of exact whose terms lie in shared memory: left to right, by one thread.
 *
 * An addition takes four cycles, a load from shared memory about thirty. So one half of the registers is added up while
 * the other is filled. The loads are written so that they stay where they are: left to itself the compiler moves them down
 * to their uses, and the chain waits for each batch (a fifth of its time).
 */
#ifndef TERN_OPS_CUDA_CHAIN_CUH
#define TERN_OPS_CUDA_CHAIN_CUH

#include "ops/cuda/cuda.cuh"

enum { CHAIN_BATCH = 16, CHAIN_UNIT = 2 * CHAIN_BATCH };

static __device__ __forceinline__ float4 chain_load(const float *from)
{
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"((unsigned)__cvta_generic_to_shared(from)));
  return x;
}

struct chain_batch {
  float4 four[CHAIN_BATCH / 4];
};

static __device__ __forceinline__ void chain_fill(chain_batch &b, const float *from)
{
#pragma unroll
  for (int i = 0; i < CHAIN_BATCH / 4; i++)
    b.four[i] = chain_load(from + 4 * i);
}

static __device__ __forceinline__ float chain_add(const chain_batch &b, float sum)
{
#pragma unroll
  for (int i = 0; i < CHAIN_BATCH / 4; i++)
    sum = (((sum + b.four[i].x) + b.four[i].y) + b.four[i].z) + b.four[i].w;
  return sum;
}

/* sum + terms[0] + terms[1] + ...; terms are aligned to 16 bytes, n is a multiple of CHAIN_UNIT, and CHAIN_BATCH more
 * may be read. */
static __device__ __forceinline__ float chain(const float *terms, int n, float sum)
{
  chain_batch a, b;
  asm volatile("" ::: "memory"); /* what others left there is there before the loads, which the compiler does not see */
  chain_fill(a, terms);
  for (int i = 0; i < n; i += CHAIN_UNIT) {
    chain_fill(b, terms + i + CHAIN_BATCH);
    sum = chain_add(a, sum);
    chain_fill(a, terms + i + CHAIN_UNIT);
    sum = chain_add(b, sum);
  }
  return sum;
}

#endif
