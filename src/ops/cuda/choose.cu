/* choose.cu - where the largest value of a row is, told on the device: a greedy token then costs four bytes of the bus
 * instead of a row of logits, and the host looks at none of them. ref_largest is the definition; rows it gives -1 for
 * go to the host as ever.
 */
#include "ops/cuda/host.cuh"

enum {
  CHOOSE_THREADS = 256,
  CHOOSE_WARPS = CHOOSE_THREADS / 32,
  CHOOSE_PARTS = 32, /* of a row, a block each */
  CHOOSE_ROWS = 64,  /* at once */
};

struct largest {
  float most, next; /* next: the largest of all others; as large as `most` where there are two of it */
  int at;
};

static __device__ largest nothing(void)
{
  return {-INFINITY, -INFINITY, 0};
}

static __device__ largest joined(largest a, largest b)
{
  if (b.most > a.most) {
    largest swapped = a;
    a = b;
    b = swapped;
  }
  a.next = fmaxf(a.next, b.most);
  return a;
}

static __device__ largest of_warp(largest mine)
{
  for (int step = 16; step > 0; step /= 2) {
    largest other;
    other.most = __shfl_down_sync(~0u, mine.most, step);
    other.next = __shfl_down_sync(~0u, mine.next, step);
    other.at = __shfl_down_sync(~0u, mine.at, step);
    mine = joined(mine, other);
  }
  return mine;
}

/* What all threads of the block found, in thread 0. */
static __device__ largest of_block(largest mine)
{
  __shared__ largest warps[CHOOSE_WARPS];
  mine = of_warp(mine);
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x < 32)
    mine = of_warp(threadIdx.x < CHOOSE_WARPS ? warps[threadIdx.x] : nothing());
  return mine;
}

/* Blocks (part, row). The last one of a row to end joins what all of them found. */
static __global__ void __launch_bounds__(CHOOSE_THREADS)
    choose(const float *values, int width, float apart, largest *parts, unsigned *ended, int32_t *chosen)
{
  const float *x = values + (size_t)blockIdx.y * (size_t)width;
  largest *found = parts + blockIdx.y * CHOOSE_PARTS;
  largest mine = nothing();
#pragma unroll 8
  for (int i = (int)(blockIdx.x * CHOOSE_THREADS + threadIdx.x); i < width; i += CHOOSE_PARTS * CHOOSE_THREADS) {
    float v = x[i] == x[i] ? x[i] : INFINITY; /* NaN: not to be chosen, like infinity */
    mine.next = fmaxf(mine.next, fminf(v, mine.most));
    if (v > mine.most) {
      mine.most = v;
      mine.at = i;
    }
  }
  mine = of_block(mine);
  __shared__ bool last;
  if (threadIdx.x == 0) {
    found[blockIdx.x] = mine;
    __threadfence();
    last = atomicAdd(&ended[blockIdx.y], 1) == CHOOSE_PARTS - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x >= 32)
    return;
  __threadfence();
  mine = of_warp(found[threadIdx.x]);
  if (threadIdx.x == 0) {
    chosen[blockIdx.y] = !isfinite(mine.most) || mine.next >= mine.most - apart ? -1 : mine.at;
    ended[blockIdx.y] = 0; /* for the next launch */
  }
}

static_assert(CHOOSE_PARTS == 32, "a warp joins them");

size_t cuda_choose_bytes(void)
{
  return CHOOSE_ROWS * (CHOOSE_PARTS * sizeof(largest) + sizeof(unsigned) + sizeof(int32_t));
}

void cuda_choose(ops_context *context, const float *values, int rows, int width, float apart, int32_t *chosen)
{
  cuda_state *s = cuda_state_of(context);
  largest *parts = (largest *)s->choosing;
  unsigned *ended = (unsigned *)(parts + CHOOSE_ROWS * CHOOSE_PARTS);
  int32_t *found = (int32_t *)(ended + CHOOSE_ROWS);
  for (int done = 0; done < rows; done += CHOOSE_ROWS) {
    int n = rows - done < CHOOSE_ROWS ? rows - done : CHOOSE_ROWS;
    cuda_launch(&s->cx, false, choose, dim3(CHOOSE_PARTS, n), CHOOSE_THREADS, 0, values + (size_t)done * (size_t)width,
                width, apart, parts, ended, found);
    cuda_memory_read(context, chosen + done, found, (size_t)n * sizeof *chosen);
  }
}
