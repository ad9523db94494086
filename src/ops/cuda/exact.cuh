/* exact.cuh - what the matrix products of numerics exact share: a record as their kernels see it, and finishing a sum.
 *
 * The definition is ref_linear.c: a sum runs over k upwards from zero, a product and its addition are two roundings. So
 * an output belongs to one thread, and nothing but more outputs makes the machine busy. Three families do it:
 *
 *   exact_rows.cu   few tokens, any format as stored: a lane has a row, weights come through a ring in shared memory
 *   exact_gemm.cu   many tokens, any format: tiles of decoded weights in shared memory, 8 x 8 outputs a thread
 *   exact_four.cu   few tokens, the layout of exact_pack.cuh (affine 4 bits)
 *
 * and exact_rows_one.cu and exact_one.cu are what the first and the last do for one token.
 * exact_linear.cu chooses. Outputs of a record that are alike (q, k and v; gate and up) run in one launch: the grid
 * goes over the blocks of rows of all of them.
 */
#ifndef TERN_OPS_CUDA_EXACT_CUH
#define TERN_OPS_CUDA_EXACT_CUH

#include "ops/cuda/math.cuh"

/* How a weight is decoded. Templates are made for each; tables of kernels have this order. */
enum exact_format {
  EXACT_F32,
  EXACT_BF16,
  EXACT_F16,
  EXACT_A2,
  EXACT_A3,
  EXACT_A4,
  EXACT_A5,
  EXACT_A6,
  EXACT_A8,
  EXACT_MXFP4,
  EXACT_MXFP8,
  EXACT_NVFP4,
  EXACT_TERNARY,
  EXACT_STORED_FORMATS,
  EXACT_PACKED = EXACT_STORED_FORMATS, /* CUDA_EXACT_4 */
  EXACT_FORMATS
};

struct exact_output {
  const uint8_t *data, *scales, *biases;
  const float *bias, *residual; /* NULL: none */
  float *y;
  int64_t n;
  int64_t byte_rows; /* ternary: ceil(n / 4) */
  float factor;      /* ternary */
  bool turned;       /* the sum starts at the bias */
  int first;         /* the first of its blocks of rows in the grid */
};

/* Outputs that are alike, by value to kernels. */
struct exact_job {
  const float *x; /* [tokens, k] */
  int64_t k, row_bytes;
  int tokens, outputs;
  int group_log2;
  ops_dtype stored;           /* of scales and biases */
  bool x_by_16;               /* rows of x start at multiples of 16 bytes */
  bool w_by_16;               /* rows of the matrices too */
  bool shortcut;              /* packed: quick decoding is exact in all of them */
  uint32_t one;               /* the bits of 1.0f (exact_pack.cuh) */
  int row_warps, token_warps; /* of a block: warps with rows of their own, times warps with other tokens of them */
  exact_output out[3];
};

/* Fills out[].first for blocks of so many rows; returns how many blocks there are. */
static inline int exact_blocks(exact_job *job, int rows)
{
  int64_t blocks = 0;
  for (int i = 0; i < job->outputs; i++) {
    job->out[i].first = (int)blocks;
    blocks += cuda_ceil(job->out[i].n, rows);
  }
  return (int)blocks;
}

/* The output that a block of rows belongs to. */
static inline __device__ int exact_output_of(const exact_job &job, int block)
{
  int o = 0;
  while (o + 1 < job.outputs && block >= job.out[o + 1].first)
    o++;
  return o;
}

/* The row of bytes that row n is in. */
template <int FORMAT> static inline __device__ int64_t exact_byte_row(const exact_output &out, int64_t n)
{
  return FORMAT == EXACT_TERNARY ? (int64_t)((uint32_t)n % (uint32_t)out.byte_rows) : n;
}

template <int FORMAT> static inline __device__ float exact_start(const exact_output &o, int64_t n)
{
  return FORMAT <= EXACT_F16 && o.turned ? o.bias[n] : 0.0f;
}

template <int FORMAT> static inline __device__ void exact_finish(const exact_output &o, int64_t t, int64_t n, float sum)
{
  if (FORMAT == EXACT_TERNARY)
    sum = sum * o.factor;
  if (o.bias && !(FORMAT <= EXACT_F16 && o.turned))
    sum = sum + o.bias[n];
  if (o.residual)
    sum = o.residual[t * o.n + n] + sum;
  o.y[t * o.n + n] = sum;
}

/* ---- the families ---- */

typedef void exact_kernel(exact_job job);

/* Each queues the job, whatever its number of tokens; those of one token may say that they have no kernel for it. */
void exact_rows_launch(cuda_context *cx, exact_format format, exact_job *job);
void exact_gemm_launch(cuda_context *cx, exact_format format, exact_job *job);
void exact_four_launch(cuda_context *cx, exact_job *job);
bool exact_one_launch(cuda_context *cx, exact_job *job);
bool exact_rows_one_launch(cuda_context *cx, exact_format format, exact_job *job);

/* What tiles would cost, in a multiprocessor's time for 128 rows and one token of the largest tile, times 100. */
int64_t exact_gemm_cost(const cuda_context *cx, exact_format format, exact_job *job);

void exact_rows_setup(cuda_context *cx);
void exact_gemm_setup(cuda_context *cx);
void exact_four_setup(cuda_context *cx);
void exact_one_setup(cuda_context *cx);
void exact_rows_one_setup(cuda_context *cx);

/* Lets a kernel have as much shared memory as it may ask for. */
static inline void exact_allow(cuda_context *cx, exact_kernel *kernel, size_t bytes)
{
  if (cx->error == cudaSuccess && bytes > 48 * 1024)
    cx->error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

/* Queues a kernel that awaits its predecessor itself. Starting before that ends gains only where every block has a
 * multiprocessor for itself: so it asks for more than half of the shared memory there. */
static inline void exact_launch_alone(cuda_context *cx, exact_kernel *kernel, const exact_job *job, dim3 grid,
                                      int warps, size_t shared)
{
  bool alone = grid.x * grid.y <= (unsigned)cx->processors;
  size_t half = cx->shared_most / 2 + 1024;
  cuda_launch(cx, alone, kernel, grid, dim3(32 * warps), alone && shared < half ? half : shared, *job);
}

#endif
