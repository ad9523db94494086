/* fast_attention.cuh - what the kernels of fast attention pass each other, through scratch.
 *
 *   most  [tokens][heads][units]              m and l of a chunk; l 0: the head sees none of its keys
 *   out   [tokens][heads][units][value_dim]   o of it
 *
 * A part is written for each unit that a token's sight touches; the joining kernel knows which by the same sight.
 * A launch covers the tokens [first, first + count).
 */
#ifndef TERN_OPS_CUDA_FAST_ATTENTION_CUH
#define TERN_OPS_CUDA_FAST_ATTENTION_CUH

#include <cuda_fp16.h>

#include "ops/cuda/attention.cuh"

struct fast_room {
  float2 *most; /* and sum */
  float *out;
  int units, first, count;
  bool overlap; /* cuda_context */
  bool ahead;   /* fast_attention_step.cu: values have a place of their own */
  bool tiles;   /* a tile kernel goes over the same tokens, and takes what belongs together */
};

enum { FAST_OWN_DIMS = 256 }; /* the most of keys and values that it takes */

/* Keys and values of tokens that are rows of their own, on their way into their blocks, and the rotation of queries and
 * keys before that, for a kernel that does all of it (rope_append of kv.cu is the same alone). */
struct fast_turn {
  op_rope rope;
  const float *k, *v; /* [tokens][kv_heads][key_dim], [tokens][kv_heads][value_dim] */
};

static inline __device__ int64_t fast_part(const fast_room &r, const op_attention &a, int token, int head, int unit)
{
  return ((int64_t)(token - r.first) * a.heads + head) * r.units + unit;
}

/* fast_attention_step.cu; fits: whether its kernels have the room that they need. */
void fast_attention_step_setup(cuda_context *cx);
bool fast_step_fits(const cuda_context *cx, const op_attention *a);
void fast_step_chunks(cuda_context *cx, const op_attention *a, const cuda_step *s, const fast_room *r,
                      const fast_turn *turn);
/* fast_attention_tile.cu */
void fast_tile_setup(cuda_context *cx);
bool fast_tile_fits(const cuda_context *cx, const op_attention *a);
void fast_tile_chunks(cuda_context *cx, const op_attention *a, const cuda_step *s, const fast_room *r);
/* fast_attention_plain.cu */
void fast_plain_chunks(cuda_context *cx, const op_attention *a, const cuda_step *s, const fast_room *r);

#endif
