/* exact_attention.cuh - what the kernels of exact attention pass each other, through scratch.
 *
 *   scores   [tokens][heads][slots]   score of the key in that slot of the order; then exp(score - most)
 *   inverse  [tokens][heads]          1 / the sum of those
 *
 * A launch covers the tokens [first, first + count): a step whose scores do not fit goes in several.
 */
#ifndef TERN_OPS_CUDA_EXACT_ATTENTION_CUH
#define TERN_OPS_CUDA_EXACT_ATTENTION_CUH

#include "ops/cuda/attention.cuh"

enum exact_rows { EXACT_ALL, EXACT_QUANTISED_ONLY }; /* fast leaves its quantised rows to exact, and only those */

struct exact_room {
  float *scores, *inverse;
  int64_t slots; /* a multiple of KV_BLOCK */
  int first, count;
  exact_rows rows;
  bool tiles; /* tile kernels go over the same tokens, and take what belongs together */
};

static inline __device__ float *exact_scores_of(const exact_room &r, const op_attention &a, int token, int head)
{
  return r.scores + ((int64_t)(token - r.first) * a.heads + head) * r.slots;
}

/* Whether this launch computes the token. */
static inline __device__ bool exact_takes(const exact_room &r, const op_attention &a, const cuda_token &t)
{
  return r.rows == EXACT_ALL || cuda_quantised(a.quant, t);
}

/* exact_attention_step.cu */
void exact_step_setup(cuda_context *cx);
void exact_step_scores(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r);
void exact_sums(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r);
/* exact_attention_values.cu */
void exact_values_setup(cuda_context *cx);
void exact_step_values(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r);
/* exact_attention_tile.cu */
void exact_tile_setup(cuda_context *cx);
bool exact_tile_fits(const cuda_context *cx, const op_attention *a);
void exact_tile_scores(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r);
bool exact_tile_values_pay(const cuda_context *cx, const op_attention *a, const exact_room *r);
void exact_tile_values(cuda_context *cx, const op_attention *a, const cuda_step *s, const exact_room *r);
/* Scratch of a token. */
size_t exact_token_bytes(int64_t slots, int heads);
void exact_attention_of(cuda_context *cx, const op_attention *a, const cuda_step *s, exact_rows rows);

#endif
