/* exact_chain.cuh - one token times few rows: a warp that only adds, and what it shares with its suppliers.
 *
 * 4096 rows are 128 warps of a row a lane, one for each multiprocessor. Then the time is that of K additions in a row,
 * 4.16 cycles each, and everything else must get out of their way; besides, a warp that is alone on its scheduler
 * issues to the float units only every other cycle (measured), so decoding, multiplying and adding in one warp takes
 * 12 to 16 cycles for each k. Here six warps decode and multiply and leave their products in shared memory, 64 k (a
 * body) at a time, as float4 [16][32 lanes]; warp 0 adds them, at 4.6 cycles for each k. It has its scheduler for
 * itself: warp 4, which would share it, ends at once (0.5 cycles for each k). It loads the next 16 products before it
 * adds these.
 *
 * Products wait in a ring of slots. Makers take bodies in turn, so each finds its slots in the same order; a slot has a
 * barrier for `full` and one for `empty`.
 */
#ifndef TERN_OPS_CUDA_EXACT_CHAIN_CUH
#define TERN_OPS_CUDA_EXACT_CHAIN_CUH

#include "ops/cuda/barrier.cuh"
#include "ops/cuda/exact.cuh"

enum {
  CHAIN_BODY = 64,
  CHAIN_PRODUCTS = CHAIN_BODY * 32 * 4, /* bytes of a slot */
  CHAIN_MAKERS = 6,
  CHAIN_IDLE = 4,
};

static inline __device__ float add_four(float sum, float4 p)
{
  sum = sum + p.x;
  sum = sum + p.y;
  sum = sum + p.z;
  return sum + p.w;
}

/* The adding warp, from `sum` on: 16 products at a time, the next 16 in registers before these are added. */
template <int SLOTS>
static inline __device__ float chain_add(float sum, int bodies, const float4 *slots, uint64_t *full, uint64_t *empty)
{
  const float4 *mine = slots + threadIdx.x % 32;
  float4 now[4], next[4];
  int slot = 0;
  uint32_t parity = 0;
  barrier_wait(full, 0);
#pragma unroll
  for (int i = 0; i < 4; i++)
    now[i] = mine[i * 32];
#pragma unroll 1
  for (int b = 0; b < bodies; b++) {
    int next_slot = slot + 1 == SLOTS ? 0 : slot + 1;
    uint32_t next_parity = next_slot ? parity : parity ^ 1;
    bool ready = true;
#pragma unroll
    for (int part = 0; part < 4; part++) {
      if (part == 2 && b + 1 < bodies)
        ready = barrier_passed(full + next_slot, next_parity);
      if (part == 3 && !ready)
        barrier_wait(full + next_slot, next_parity);
      const float4 *from = mine + (part < 3 ? slot : next_slot) * (CHAIN_PRODUCTS / 16) + (part + 1) % 4 * 128;
#pragma unroll
      for (int i = 0; i < 4; i++)
        next[i] = from[i * 32];
#pragma unroll
      for (int i = 0; i < 4; i++)
        sum = add_four(sum, now[i]);
      if (part == 3) {
        __syncwarp();
        if (threadIdx.x == 0)
          barrier_arrive(empty + slot);
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
        now[i] = next[i];
    }
    slot = next_slot;
    parity = next_parity;
  }
  return sum;
}

#endif
