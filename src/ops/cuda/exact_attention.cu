/* exact_attention.cu - attention of exact in three kernels: scores, the sums of a softmax, the sums over values.
 *
 * Every sum runs left to right, so parallelism is what has no order: keys of a dot product, heads, dims of a sum over
 * values, tokens. exact_attention_step.cu and exact_attention_values.cu have the kernels of single tokens,
 * exact_attention_tile.cu those of a prompt's neighbours; one kernel of sums serves both.
 *
 * What failed: one kernel for all of a token that sees few keys, a block of threads for each key/value head. At 100
 * keys it took what the three take together, at 1000 twice as long: one multiprocessor a head is too little bandwidth.
 */
#include "ops/cuda/exact_attention.cuh"

static int64_t slots_of(const op_attention *a, int64_t most_keys)
{
  int64_t seen = a->window && a->window < most_keys ? a->window : most_keys;
  return cuda_ceil(seen, KV_BLOCK) * KV_BLOCK;
}

size_t exact_token_bytes(int64_t slots, int heads)
{
  return (size_t)heads * ((size_t)slots + 1) * sizeof(float);
}

void exact_attention_of(cuda_context *cx, const op_attention *a, const cuda_step *s, exact_rows rows)
{
  int64_t slots = slots_of(a, s->most_keys);
  int group = attention_group(cx, exact_token_bytes(slots, a->heads), s->tokens);
  exact_room r = {};
  r.slots = slots;
  r.rows = rows;
  r.scores = (float *)cx->scratch;
  r.inverse = r.scores + (size_t)group * a->heads * slots;
  bool tiled = rows == EXACT_ALL && exact_tile_fits(cx, a);
  for (r.first = 0; r.first < s->tokens; r.first += group) {
    r.count = s->tokens - r.first < group ? s->tokens - r.first : group;
    r.tiles = tiled && r.count >= tile_tokens(*a);
    if (r.tiles)
      exact_tile_scores(cx, a, s, &r);
    exact_step_scores(cx, a, s, &r);
    exact_sums(cx, a, s, &r);
    r.tiles = r.tiles && exact_tile_values_pay(cx, a, &r);
    if (r.tiles)
      exact_tile_values(cx, a, s, &r);
    exact_step_values(cx, a, s, &r);
  }
}

void cuda_exact_attention(cuda_context *cx, const op_attention *a, const cuda_step *s)
{
  exact_attention_of(cx, a, s, EXACT_ALL);
}
