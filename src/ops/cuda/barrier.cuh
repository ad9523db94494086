/* barrier.cuh - barriers in shared memory (mbarrier, from sm_80), by which warps of a block hand each other
 * places of a ring.
 *
 * A barrier completes a phase each time that it has been arrived at `count` times; a waiter names the parity of the
 * phase that must be complete. What was written before an arrival is seen after the wait.
 */
#ifndef TERN_OPS_CUDA_BARRIER_CUH
#define TERN_OPS_CUDA_BARRIER_CUH

#include <stdint.h>

static inline __device__ unsigned barrier_at(const uint64_t *b)
{
  return (unsigned)__cvta_generic_to_shared(b);
}

/* Over what was there before. The block must meet before it is used. */
static inline __device__ void barrier_init(uint64_t *b, int count)
{
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier_at(b)), "r"(count) : "memory");
}

/* Its memory is free for another use, or another barrier. */
static inline __device__ void barrier_end(uint64_t *b)
{
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(barrier_at(b)) : "memory");
}

static inline __device__ void barrier_arrive(uint64_t *b)
{
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier_at(b)) : "memory");
}

/* Arrives when the thread's cp.async until now have come. */
static inline __device__ void barrier_arrive_after_copies(uint64_t *b)
{
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier_at(b)) : "memory");
}

/* Whether the phase of this parity is over. Who waits must have waited for the one before, or it takes that for it. */
static inline __device__ bool barrier_passed(uint64_t *b, int parity)
{
  unsigned passed;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(barrier_at(b)), "r"(parity)
               : "memory");
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(passed)
               : "r"(barrier_at(b)), "r"(parity)
               : "memory");
#endif
  return passed;
}

static inline __device__ void barrier_wait(uint64_t *b, int parity)
{
  while (!barrier_passed(b, parity))
    ;
}

#endif
