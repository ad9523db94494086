/* cuda.cuh - what the files of the cuda backend share: the step as kernels see it, matrices on the device, launching.
 *
 * The backend is a library of its own (libtern-cuda.so), which `tern` loads where a GPU and its driver are there
 * (plugin.h). It runs the same plan of op records as every other backend: in numerics exact with the bits of ops/ref,
 * in numerics fast with those of ops/fast_ref. Plain C there is the definition; a kernel is right when its bits are.
 *
 * How the two keep their order on a machine of many threads: a sum of `exact` runs left to right, so one thread (one
 * lane) has one output and walks k upwards, and a multiply and an add are two instructions: everything here is compiled
 * with -fmad=false, and a fused multiply-add is written as fmaf where it is meant. `fast` has sums of parts that
 * different threads may have, and joins them in the order that fast.h fixes. Atomics on floats are never used: their
 * order is nobody's.
 *
 * Records hold device addresses, matrices excepted: ops_weight.packed points to a cuda_matrix on the host. In exact and
 * in fast the types of records are DT_F32 but behind an embedding of the fp modes, which is bf16 until something of
 * float32 joins it (a norm's weights, nearly always). What the embedding itself does with it is done here as well
 * (embed.cu, and the factor of a temperature); records beyond that are refused (cuda_takes). So nothing else rounds to
 * a half type but keys and values of fast.
 *
 * A launcher, cuda_OP, queues kernels on cx->stream and returns. It must be capturable into a graph: no allocation, no
 * waiting, no host reads of device memory; grids depend on the record, on step->tokens, on step->most_keys (rounded up)
 * and on nothing else of the step. What changes from step to step is read by kernels through the cuda_step's arrays.
 */
#ifndef TERN_OPS_CUDA_CUDA_CUH
#define TERN_OPS_CUDA_CUDA_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern "C" {
#include "ops/fast_ref/fast.h"
#include "ops/math.h"
#include "ops/ops.h"
#include "ops/ref/ref.h"
#include "ops/ref/ref_kv.h"
#include "ops/value.h"
#include "ops/visible.h"
}
#include "ops/cuda/math.cuh"

/* ---- the step on the device ---- */

/* A token of the batch: its row's facts, so that a kernel needs no search. */
struct cuda_token {
  int64_t position, split;
  int64_t row_position; /* of the row's first token: decides whether keys are quantised (ops_quantised) */
  int32_t row, kind;    /* index of the row; ops_row_kind */
};

/* Whether the token sees quantised keys and values. */
static inline __device__ bool cuda_quantised(const ops_kv_quant &q, const cuda_token &t)
{
  return q.bits && t.row_position >= q.start;
}

/* By value to kernels; the arrays lie in device memory and are filled before the step's kernels run. Their addresses
 * stay while a captured graph lives. */
struct cuda_step {
  int tokens, wanted;
  int64_t most_keys; /* no token of this step sees a position at or behind it; a multiple of 256 */
  const int32_t *ids, *want;
  const cuda_token *token; /* [tokens] */
  void *const *blocks;     /* block b of row r in slot s: blocks[(s * rows + r) * row_blocks + b] */
  int rows, row_blocks;    /* room of the table */
};

static inline __device__ void *const *cuda_blocks(const cuda_step &s, int slot, int row)
{
  return s.blocks + ((int64_t)slot * s.rows + row) * s.row_blocks;
}

/* ---- matrices ---- */

enum cuda_layout {
  CUDA_AS_STORED, /* data, scales, biases as ops_weight has them, each at a multiple of 256 bytes */
  CUDA_EXACT_4,   /* affine 4 bits for exact: exact_pack.cu */
  CUDA_FAST_4,    /* affine 4 bits for fast: fast_pack.cu */
};

/* The one copy of a matrix in device memory; by value to kernels. `shape` is the ops_weight with device addresses in
 * data, scales and biases (AS_STORED: as they are called; else all in data). */
struct cuda_matrix {
  ops_weight shape;
  cuda_layout layout;
  bool shortcut; /* CUDA_EXACT_4: the constants of its quick decoding are exact for every group (exact_pack.cu) */
  void *memory;  /* what was allocated */
  size_t bytes;
};

static inline const cuda_matrix *cuda_of(const ops_weight *w)
{
  return (const cuda_matrix *)w->packed;
}

/* ---- the context ---- */

struct cuda_context {
  int device, processors; /* multiprocessors */
  int capability;         /* 90 for 9.0 */
  size_t shared_most;     /* bytes of shared memory that a block may ask for */
  bool fast;              /* numerics */
  cudaStream_t stream;
  bool overlap;  /* kernels may be launched so that they start before their predecessor ends (capability 9.0 on) */
  void *scratch; /* for one record at a time */
  size_t scratch_bytes;
  cudaError_t error; /* the first that went wrong; launchers do nothing after it */
};

/* Queues a kernel. `overlap`: it may start while its predecessor still runs, and calls cuda_await() before it touches
 * anything but weights (and keys and values of earlier steps). */
template <class... K, class... A>
static inline void cuda_launch(cuda_context *cx, bool overlap, void (*kernel)(K...), dim3 grid, dim3 block,
                               size_t shared, A... arguments)
{
  if (cx->error != cudaSuccess)
    return;
  cudaLaunchConfig_t how = {};
  cudaLaunchAttribute attribute;
  how.gridDim = grid;
  how.blockDim = block;
  how.dynamicSmemBytes = shared;
  how.stream = cx->stream;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  if (overlap && cx->overlap) {
    how.attrs = &attribute;
    how.numAttrs = 1;
  }
  cx->error = cudaLaunchKernelEx(&how, kernel, K(arguments)...);
}

/* In a kernel launched with overlap, by every thread: waits until the predecessor's results stand. */
static inline __device__ void cuda_await(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the successor start (it still awaits this kernel's end before it reads results). */
static inline __device__ void cuda_release_next(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

static inline __host__ __device__ int64_t cuda_ceil(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

/* ---- launchers ----
 * `tokens` is ops_extent of the record. Each file defines those of its heading. */

/* exact_linear.cu (and exact_*.cu): x W^T + bias, + residual, for every format. y of the outputs in turn. */
void cuda_exact_linear(cuda_context *cx, const op_linear *a, int tokens);
/* fast_linear.cu (and fast_*.cu). Inputs are quantised once for all outputs; ternary matrices are exact's. */
void cuda_fast_linear(cuda_context *cx, const op_linear *a, int tokens);
/* The same with the norm that makes its inputs and the gate that joins its two outputs, either NULL: as few kernels as
 * there can be, the records one after another where they cannot be one. `keep`: norm->y is read by others too. What the
 * gate joins is read by nobody else, and may stay unwritten. */
void cuda_fast_norm_linear(cuda_context *cx, const op_rms_norm *norm, const op_linear *a, const op_glu *glu, int tokens,
                           bool keep);
/* Once, before the first of them: more than the usual shared memory for the kernels that take it. */
void cuda_fast_setup(cuda_context *cx);
/* What the kernels of exact_*.cu ask of the driver before their first launch: more shared memory. At open. */
void cuda_exact_setup(cuda_context *cx);
/* Bytes of scratch that they want for `tokens` tokens and inputs of `k`. */
size_t cuda_exact_linear_scratch(const cuda_context *cx, int tokens, int64_t k);
size_t cuda_fast_linear_scratch(const cuda_context *cx, int tokens, int64_t k);

/* exact_pack.cu, fast_pack.cu. The layout that a matrix gets (CUDA_AS_STORED: none of its own), its bytes, and making
 * it in `to` from a copy as stored: queued. `inexact` [1]: counts groups whose quick decoding would not be exact. */
bool cuda_exact_packs(const ops_weight *w);
bool cuda_fast_packs(const ops_weight *w);
size_t cuda_exact_pack_bytes(const ops_weight *w);
size_t cuda_fast_pack_bytes(const ops_weight *w);
void cuda_exact_pack(cuda_context *cx, const cuda_matrix *stored, uint8_t *to, unsigned *inexact);
void cuda_fast_pack(cuda_context *cx, const cuda_matrix *stored, uint8_t *to);
/* Code, scale and bias of element (n, k) of a packed matrix, for the embedding: exact4_at, exact4_value of
 * exact_pack.cuh. */

/* kv.cu */
size_t cuda_kv_block_bytes(bool fast, const ops_kv_shape *shape);
void cuda_kv_append(cuda_context *cx, const op_kv_append *a, const cuda_step *s);
/* A rope and the kv_append behind it at once, with the bits of the two; `fits` where their keys are the same. */
bool cuda_rope_append_fits(const op_rope *rope, const op_kv_append *a);
void cuda_rope_append(cuda_context *cx, const op_rope *rope, const op_kv_append *a, const cuda_step *s,
                      const float *rates);
void cuda_kv_quantise(cuda_context *cx, const ops_kv_shape *shape, const void *plain, void *quantised, int count);
/* exact_attention.cu, fast_attention.cu. Quantised keys and values are exact's in both. */
void cuda_exact_attention(cuda_context *cx, const op_attention *a, const cuda_step *s);
void cuda_fast_attention(cuda_context *cx, const op_attention *a, const cuda_step *s);
/* A rope, the kv_append behind it and the attention behind that as one, where no row has more than one token; what the
 * rope leaves in q and k stays unwritten. False, and nothing done: not for these. */
bool cuda_fast_rope_attention(cuda_context *cx, const op_rope *rope, const op_kv_append *append, const op_attention *a,
                              const cuda_step *s);
size_t cuda_attention_scratch(const cuda_context *cx, const ops_room *room, int heads);
/* Lets kernels ask for the shared memory that they want: once, when the device is opened. */
void cuda_attention_setup(cuda_context *cx);

/* rowwise.cu, act.cu, embed.cu */
void cuda_embed(cuda_context *cx, const op_embed *a, const cuda_step *s, const float *given, const uint8_t *use);
void cuda_rms_norm(cuda_context *cx, const op_rms_norm *a, int tokens);
void cuda_layer_norm(cuda_context *cx, const op_layer_norm *a, int tokens);
void cuda_rope(cuda_context *cx, const op_rope *a, const cuda_step *s, const float *rates);
void cuda_temperature(cuda_context *cx, const op_temperature *a, const cuda_step *s);
void cuda_regroup(cuda_context *cx, const op_regroup *a, int tokens);
void cuda_act(cuda_context *cx, const op_act *a, int tokens);
void cuda_glu(cuda_context *cx, const op_glu *a, int tokens);
void cuda_scale(cuda_context *cx, const op_scale *a, int tokens);
void cuda_softcap(cuda_context *cx, const op_softcap *a, int tokens);
void cuda_add(cuda_context *cx, const op_add *a, int tokens);
void cuda_select(cuda_context *cx, const op_select *a, const cuda_step *s);

#endif
