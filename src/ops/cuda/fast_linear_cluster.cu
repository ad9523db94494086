/* fast_linear_cluster.cu - 5 to 64 tokens or so times packed matrices, where CTAs of a cluster may read each other's
 * shared memory (capability 9.0).
 *
 * With several tokens the inputs are the problem: a slice of 32 tokens is 256 KB, more than a shared memory, and read
 * by every CTA for its few rows they cost several times what the weights do (fast_linear_few.cu). So the CTAs of a
 * cluster share a slice out among them: CTA p of it has part p, whose inputs fit, and stays while the cluster walks
 * over blocks of rows. A warp has one tile of 16 rows, whose weights come in behind the ones that it multiplies, as in
 * fast_linear_step.cu.
 *
 * After each block of rows the cluster meets: every CTA lays its part of all outputs into its shared memory, and then
 * takes some of the tokens and walks in order through the parts that the others have. Two such buffers take turns, so
 * that a block of rows costs one meeting.
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_mma.cuh"

enum {
  CLUSTER_WARPS = 8, /* 16 rows each */
  CLUSTER_THREADS = CLUSTER_WARPS * 32,
  CLUSTER_ROWS = CLUSTER_WARPS * FAST_TILE,
  CLUSTER_PITCH = CLUSTER_ROWS + 4, /* floats between tokens of a part: lanes (r, c) write to banks r + 8 c */
  CLUSTER_MOST = 8,                 /* CTAs: parts of a slice */
};

template <int GROUP, int TILES> struct cluster_shared {
  enum { TOKENS = 8 * TILES, GROUPS = FAST_PART / GROUP };
  uint8_t inputs[FAST_BLOCKS][2][TOKENS][FAST_BLOCK]; /* planes high, low */
  float sums[GROUPS][TOKENS];
  float steps[CLUSTER_MOST][TOKENS]; /* of the whole slice */
  float parts[2][TOKENS][CLUSTER_PITCH];
  float totals[4][CLUSTER_THREADS]; /* of the outputs of a thread, where there are several slices */
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
static __device__ int cluster_rank(void)
{
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/* What was written before is there for all CTAs of the cluster after. */
static __device__ void cluster_meet(void)
{
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The float that CTA `rank` has where this one has `mine`. */
static __device__ float read_of(int rank, const float *mine)
{
  uint32_t at = (uint32_t)__cvta_generic_to_shared(mine);
  float x;
  asm volatile("{ .reg .u32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.f32 %0, [there]; }"
               : "=f"(x)
               : "r"(at), "r"(rank)
               : "memory");
  return x;
}

static __device__ void copy_async(void *to, const void *from)
{
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
}

/* Inputs of a part, tokens from `first` on, and steps of the slice that begins with part `slice`. */
template <int GROUP, int TILES>
static __device__ void load_inputs(cluster_shared<GROUP, TILES> &s, const fast_inputs &in, int part, int slice,
                                   int count, int first)
{
  const int row = s.TOKENS * 4; /* pieces of 16 bytes of a block and plane */
  if (part < in.parts) {
#pragma unroll
    for (int i = (int)threadIdx.x; i < FAST_BLOCKS * 2 * row; i += CLUSTER_THREADS)
      copy_async(&s.inputs[0][0][0][0] + i * 16,
                 in.codes + (part * FAST_BLOCKS * 2 + i / row) * in.plane + first * FAST_BLOCK + i % row * 16);
    const float *sums = fast_sums(in, GROUP) + (int64_t)part * s.GROUPS * in.room + first;
    for (int i = (int)threadIdx.x * 4; i < s.GROUPS * s.TOKENS; i += CLUSTER_THREADS * 4)
      copy_async(&s.sums[0][0] + i, sums + i / s.TOKENS * in.room + i % s.TOKENS);
  }
  for (int i = (int)threadIdx.x * 4; i < count * s.TOKENS; i += CLUSTER_THREADS * 4)
    copy_async(&s.steps[0][0] + i, in.steps + (int64_t)(slice + i / s.TOKENS) * in.room + first + i % s.TOKENS);
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
}

/* A tile's part of all tokens; `next`, if there is one, takes its place in w. */
template <int GROUP, bool F16, int TILES>
static __device__ void multiply(fast_weights<GROUP> &w, const cluster_shared<GROUP, TILES> &s, const uint8_t *next,
                                int lane, float parts[TILES][4])
{
  const int span = GROUP == 128 ? 2 : 1; /* blocks multiplied at a time: a group is whole */
  const int high_start[4] = {FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START, FAST_HIGH_START};
  const int low_start[4] = {FAST_LOW_START, FAST_LOW_START, FAST_LOW_START, FAST_LOW_START};
  int c = lane % 4;
#pragma unroll
  for (int block = 0; block < FAST_BLOCKS; block += span) {
    uint32_t a[span][2][4];
#pragma unroll
    for (int b = 0; b < span; b++) {
      fast_unpack(w.codes[block + b], a[b]);
      if (next)
        fast_load_block(w, next, block + b, lane);
    }
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      uint4 x[span][2];
#pragma unroll
      for (int b = 0; b < span; b++)
#pragma unroll
        for (int plane = 0; plane < 2; plane++)
          x[b][plane] = ((const uint4 *)s.inputs[block + b][plane][8 * n])[lane];
      int high[4], low[4];
#pragma unroll
      for (int h = 0; h < 2 * span; h++) {
        const uint4 &xh = x[h / 2][0], &xl = x[h / 2][1];
        const bool fresh = h == 0 || GROUP == 32;
        fast_mma(high, a[h / 2][h % 2], h % 2 ? xh.z : xh.x, h % 2 ? xh.w : xh.y, fresh ? high_start : high);
        fast_mma(low, a[h / 2][h % 2], h % 2 ? xl.z : xl.x, h % 2 ? xl.w : xl.y, fresh ? low_start : low);
        if (GROUP != 32 && h + 1 < 2 * span)
          continue;
        const int g = block * FAST_BLOCK / GROUP + (GROUP == 32 ? h : 0);
        float2 sum = *(const float2 *)&s.sums[g][8 * n + 2 * c];
#pragma unroll
        for (int j = 0; j < 4; j++) {
          float scale, bias;
          fast_scale_bias<F16>(fast_word(w.pairs[j / 2][g / 4], g % 4), &scale, &bias);
          float part = fmaf(scale, fast_dot(high[j], low[j]), parts[n][j]);
          parts[n][j] = fmaf(bias, j % 2 ? sum.y : sum.x, part);
        }
      }
    }
  }
  if (next)
    fast_load_pairs(w, next, lane / 4);
}

/* Where the warp's chunk of a block of rows and a part is; rows behind the last have those of the last tile. */
template <int GROUP>
static __device__ const uint8_t *chunk_of(const fast_matrices &m, int rows_block, int part, int *matrix, int *first_row)
{
  int i = fast_matrix_of(m, rows_block);
  *matrix = i;
  *first_row = (rows_block - m.of[i].first_tile) * CLUSTER_ROWS;
  int tile = min(*first_row / FAST_TILE + (int)threadIdx.x / 32, (m.of[i].rows - 1) / FAST_TILE);
  return m.of[i].chunks + ((int64_t)tile * m.parts + part) * fast_chunk_bytes(GROUP);
}
#endif

template <int GROUP, bool F16, int TILES>
static __global__ void __launch_bounds__(CLUSTER_THREADS, 2)
    linear_cluster(const __grid_constant__ fast_matrices m, const __grid_constant__ fast_inputs in, int slice_parts)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t memory[];
  cluster_shared<GROUP, TILES> &s = *(cluster_shared<GROUP, TILES> *)memory;
  cuda_release_next();
  int lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4, rank = cluster_rank();
  int cluster = (int)blockIdx.x / slice_parts, clusters = (int)gridDim.x / slice_parts;
  int first = (int)blockIdx.y * s.TOKENS, tokens = min(in.tokens - first, (int)s.TOKENS);
  int matrix, first_row, turn = 0;
  const uint8_t *chunk = chunk_of<GROUP>(m, cluster, rank, &matrix, &first_row);
  fast_weights<GROUP> w;
  if (rank < m.parts) {
#pragma unroll
    for (int b = 0; b < FAST_BLOCKS; b++)
      fast_load_block(w, chunk, b, lane);
    fast_load_pairs(w, chunk, r);
  }
  cuda_await();
  for (int rows_block = cluster; rows_block < m.tiles; rows_block += clusters) {
    for (int slice = 0; slice < m.parts; slice += slice_parts, turn++) {
      int count = min(slice_parts, m.parts - slice), part = slice + rank;
      bool last = slice + slice_parts >= m.parts;
      if (turn == 0 || m.parts > slice_parts)
        load_inputs(s, in, part, slice, count, first);
      chunk_of<GROUP>(m, rows_block, part, &matrix, &first_row);
      int rows = m.of[matrix].rows;
      /* The next chunk of this warp: another slice, or another block of rows. */
      int next_block = last ? rows_block + clusters : rows_block, next_part = last ? rank : part + slice_parts, i, j;
      const uint8_t *next = NULL;
      if (next_block < m.tiles && next_part < m.parts)
        next = chunk_of<GROUP>(m, next_block, next_part, &i, &j);
      if (part < m.parts) {
        float parts[TILES][4] = {};
        multiply<GROUP, F16, TILES>(w, s, next, lane, parts);
        int row = (int)threadIdx.x / 32 * FAST_TILE + r;
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
          for (int k = 0; k < 4; k++)
            s.parts[turn % 2][8 * n + 2 * c + k % 2][row + k / 2 * 8] = parts[n][k];
      } else if (next) { /* this CTA had nothing to do in the short last slice */
#pragma unroll
        for (int b = 0; b < FAST_BLOCKS; b++)
          fast_load_block(w, next, b, lane);
        fast_load_pairs(w, next, r);
      }
      cluster_meet();
      int row = (int)threadIdx.x % CLUSTER_ROWS, which = 0;
      for (int token = rank + (int)threadIdx.x / CLUSTER_ROWS * slice_parts; token < tokens;
           token += 2 * slice_parts, which++) {
        float sum = 0;
#pragma unroll
        for (int p = 0; p < CLUSTER_MOST; p++)
          if (p < count)
            sum = fmaf(s.steps[p][token], read_of(p, &s.parts[turn % 2][token][row]), sum);
        float total = slice ? s.totals[which % 4][threadIdx.x] + sum : 0.0f + sum;
        if (!last)
          s.totals[which % 4][threadIdx.x] = total;
        else if (first_row + row < rows)
          fast_store(m.of[matrix].out, rows, first + token, first_row + row, total);
      }
      if (m.parts > slice_parts)
        __syncthreads(); /* the inputs and steps are about to change */
    }
  }
  cluster_meet(); /* nobody leaves whose parts are still read */
#endif
}

typedef void cluster_kernel(const fast_matrices m, const fast_inputs in, int slice_parts);

#define CLUSTER(group, tiles)                                                                                          \
  {                                                                                                                    \
    group, tiles * 8, (int)sizeof(cluster_shared<group, tiles>), linear_cluster<group, false, tiles>,                  \
        linear_cluster<group, true, tiles>                                                                             \
  }
static const struct {
  int group, tokens, shared;
  cluster_kernel *bf16, *f16;
} kernels[] = {
    CLUSTER(32, 1), CLUSTER(32, 2),  CLUSTER(32, 4),  CLUSTER(64, 1),  CLUSTER(64, 2),
    CLUSTER(64, 4), CLUSTER(128, 1), CLUSTER(128, 2), CLUSTER(128, 4),
};
#undef CLUSTER
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

static cudaLaunchConfig_t launch_of(cudaLaunchAttribute attributes[2], dim3 grid, int cluster, int shared)
{
  cudaLaunchConfig_t how = {};
  how.gridDim = grid;
  how.blockDim = dim3(CLUSTER_THREADS);
  how.dynamicSmemBytes = (size_t)shared;
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = (unsigned)cluster;
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  how.attrs = attributes;
  how.numAttrs = 1;
  return how;
}

/* Clusters of each size that the GPU has room for at once, by kernel. */
static int resident[KERNELS][CLUSTER_MOST + 1];

void fast_cluster_setup(cuda_context *cx)
{
  if (cx->capability < 90)
    return;
  for (int i = 0; i < KERNELS; i++) {
    cluster_kernel *const both[2] = {kernels[i].bf16, kernels[i].f16};
    for (int j = 0; j < 2 && cx->error == cudaSuccess; j++)
      cx->error = cudaFuncSetAttribute(both[j], cudaFuncAttributeMaxDynamicSharedMemorySize, kernels[i].shared);
    for (int size = 1; size <= CLUSTER_MOST && cx->error == cudaSuccess; size++) {
      cudaLaunchAttribute attributes[2];
      cudaLaunchConfig_t how = launch_of(attributes, dim3((unsigned)size), size, kernels[i].shared);
      cx->error = cudaOccupancyMaxActiveClusters(&resident[i][size], kernels[i].bf16, &how);
    }
  }
}

bool fast_linear_cluster(cuda_context *cx, const fast_matrices &m, const fast_inputs &in)
{
  if (cx->capability < 90 || cx->error != cudaSuccess)
    return false;
  fast_matrices tiled = fast_tiled(m, CLUSTER_ROWS);
  int at = 0, slice_parts = (int)fast_slice((int64_t)m.parts * FAST_PART);
  while (kernels[at].group != m.group || kernels[at].tokens < (in.tokens < 32 ? in.tokens : 32))
    at++;
  int clusters = resident[at][slice_parts];
  if (clusters < 1)
    return false;
  clusters = tiled.tiles < clusters ? tiled.tiles : clusters;
  dim3 grid((unsigned)(clusters * slice_parts), (unsigned)cuda_ceil(in.tokens, kernels[at].tokens));
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t how = launch_of(attributes, grid, slice_parts, kernels[at].shared);
  how.stream = cx->stream;
  how.numAttrs = cx->overlap ? 2 : 1;
  cx->error = cudaLaunchKernelEx(&how, m.stored == DT_F16 ? kernels[at].f16 : kernels[at].bf16, tiled, in, slice_parts);
  return true;
}
