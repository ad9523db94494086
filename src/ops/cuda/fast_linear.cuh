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

/* Where the inputs of a step come from, and what becomes of its outputs; by value to the kernel. */
struct fast_around {
  const float *x; /* rows of k, x_stride floats apart */
  int64_t x_stride, k;
  bool norm;           /* x is to be normed first */
  const float *norm_w; /* [k] or NULL */
  float eps;
  float *kept; /* where its result goes too, or NULL */
  int64_t kept_stride;
  float *gated; /* [tokens, rows]: silu(output 0) * output 1, which then go nowhere; NULL: no such thing */
};

enum {
  STEP_TOKENS = 4,    /* the most of fast_linear_step */
  STEP_STATIC = 1024, /* bytes of shared memory that it has anyway, at most */
};

/* Up to 4 tokens, inputs not quantised yet; false, and nothing done, where the GPU has too little shared memory. */
bool fast_linear_step(cuda_context *cx, const fast_matrices &m, const fast_around &around,
                      int tokens); /* fast_linear_step.cu */
/* Any number of tokens, made for 5 to 32; false, and nothing done, where the GPU has no clusters. */
bool fast_linear_cluster(cuda_context *cx, const fast_matrices &m, const fast_inputs &in); /* fast_linear_cluster.cu */
/* Any number of tokens, made for 5 to 32; many, where the GPU has as much shared memory as it takes. */
void fast_linear_few(cuda_context *cx, const fast_matrices &m, const fast_inputs &in);  /* fast_linear_few.cu */
void fast_linear_gemm(cuda_context *cx, const fast_matrices &m, const fast_inputs &in); /* fast_linear_gemm.cu */
bool fast_gemm_fits(const cuda_context *cx);
/* Before the first launch. */
void fast_step_setup(cuda_context *cx);
void fast_cluster_setup(cuda_context *cx);
void fast_gemm_setup(cuda_context *cx);

/* Output i of a record. Affine: the inputs are quantised already. */
void fast_linear_affine(cuda_context *cx, const op_linear *a, int i, const fast_inputs &in); /* fast_linear_any.cu */
void fast_linear_floats(cuda_context *cx, const op_linear *a, int i, int tokens);            /* fast_linear_floats.cu */

#endif
