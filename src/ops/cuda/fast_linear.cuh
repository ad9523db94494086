/* fast_linear.cuh - what the kernels of fast's linears share: where an output goes, and which file has which kernel. */
#ifndef TERN_OPS_CUDA_FAST_LINEAR_CUH
#define TERN_OPS_CUDA_FAST_LINEAR_CUH

#include "ops/cuda/fast_inputs.cuh"

/* One output of a record; by value to kernels. */
struct fast_output {
  const float *bias;     /* [n] or NULL */
  const float *residual; /* [tokens, n] or NULL; may be y */
  float *y;              /* [tokens, n] */
};

static inline fast_output fast_output_of(const op_linear *a, int i)
{
  return fast_output{a->bias[i], i == 0 ? a->residual : NULL, a->y[i]};
}

static inline __device__ float fast_finish(const fast_output &out, int64_t rows, int64_t token, int64_t row, float sum)
{
  if (out.bias)
    sum = sum + out.bias[row];
  if (out.residual)
    sum = out.residual[token * rows + row] + sum;
  return sum;
}

static inline __device__ void fast_store(const fast_output &out, int64_t rows, int64_t token, int64_t row, float sum)
{
  out.y[token * rows + row] = fast_finish(out, rows, token, row, sum);
}

/* As ref_glu's. */
static inline __device__ float fast_silu(float x)
{
  return x * math_sigmoid(x);
}

/* Matrices of one shape of packing that go in one kernel, by value: their tiles, one after another. */
struct fast_matrices {
  int count, tiles, parts;
  ops_dtype stored; /* of scales and biases */
  int group;
  struct {
    const uint8_t *chunks; /* fast_pack.cuh */
    int rows, first_tile;
    fast_output out;
  } of[3];
};

/* Which of them a tile belongs to. */
static inline __device__ int fast_matrix_of(const fast_matrices &m, int tile)
{
  int i = 0;
  while (i + 1 < m.count && tile >= m.of[i + 1].first_tile)
    i++;
  return i;
}

/* The same with tiles of `rows` rows. */
static inline fast_matrices fast_tiled(fast_matrices m, int rows)
{
  m.tiles = 0;
  for (int i = 0; i < m.count; i++) {
    m.of[i].first_tile = m.tiles;
    m.tiles += (m.of[i].rows + rows - 1) / rows;
  }
  return m;
}

/* Up to 8 tokens, quantised in `given`; NULL: the kernel quantises one token of `source` itself. gated: [tokens, rows],
 * to be silu(output 0) * output 1, which then go nowhere; NULL: no such thing. False, and nothing done, where the GPU
 * has too little shared memory. fast_linear_step.cu. */
bool fast_linear_step(cuda_context *cx, const fast_matrices &m, const fast_source &source, const fast_inputs *given,
                      float *gated);
/* Any number of tokens, made for 5 to 32, quantised with room for FAST_FEW_LEAST at least. fast_linear_few.cu. */
void fast_linear_few(cuda_context *cx, const fast_matrices &m, const fast_inputs &in);
enum { FAST_FEW_LEAST = 8 };
/* More than 16 tokens, in tiles of 32, 64 or 128, where the GPU has as much shared memory as that takes.
 * fast_linear_gemm.cu. */
void fast_linear_gemm(cuda_context *cx, const fast_matrices &m, const fast_inputs &in, int tile);
bool fast_gemm_fits(const cuda_context *cx);
/* Before the first launch. */
void fast_step_setup(cuda_context *cx);
void fast_few_setup(cuda_context *cx);
void fast_gemm_setup(cuda_context *cx);

/* Output i of a record. Affine: the inputs are quantised already. */
void fast_linear_affine(cuda_context *cx, const op_linear *a, int i, const fast_inputs &in); /* fast_linear_any.cu */
void fast_linear_floats(cuda_context *cx, const op_linear *a, int i, int tokens);            /* fast_linear_floats.cu */

#endif
