/* copy.cuh - copies from global to shared memory that go on while a kernel computes (cp.async, from sm_80).
 *
 * A thread's copies since its last commit are a group; groups end in the order of their commits, and a thread waits for
 * its own alone: a __syncthreads() after the wait makes everybody's visible.
 */
#ifndef TERN_OPS_CUDA_COPY_CUH
#define TERN_OPS_CUDA_COPY_CUH

static inline __device__ unsigned copy_to(const void *to)
{
  return (unsigned)__cvta_generic_to_shared(to);
}

/* 16 bytes, both addresses multiples of that; past the first cache. */
static inline __device__ void copy_async(void *to, const void *from)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(copy_to(to)), "l"(from) : "memory");
}

/* The same, of which the first `valid` bytes (0 to 16) are read and the others are zeros. */
static inline __device__ void copy_async_part(void *to, const void *from, int valid)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(copy_to(to)), "l"(from), "r"(valid) : "memory");
}

/* 4 bytes, both addresses multiples of that. */
static inline __device__ void copy_async_4(void *to, const void *from)
{
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(copy_to(to)), "l"(from) : "memory");
}

static inline __device__ void copy_commit(void)
{
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `left` groups, the newest, are still going on. */
template <int left> static inline __device__ void copy_wait(void)
{
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

#endif
