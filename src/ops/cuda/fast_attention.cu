/* fast_attention.cu - attention of fast: chunks of 256 positions each on their own, then a kernel that joins them.
 *
 * ops/fast_ref/fast.h has the formulas. What a chunk comes to (m, l, o) depends on the query and its 256 positions
 * alone, so chunks may be computed anywhere; the joining goes over them ascending, once for each head of each token.
 */
#include "ops/cuda/fast_attention.cuh"

#include "ops/cuda/exact_attention.cuh"

/* ---- joining ---- */

/* A block a (head, token), a thread a dim. */
static __global__ void join_chunks(op_attention a, cuda_step s, fast_room r)
{
  int token = r.first + blockIdx.y, head = blockIdx.x;
  cuda_token t = s.token[token];
  if (cuda_quantised(a.quant, t))
    return;
  sight sees = sight_of(a, t);
  for (int e = threadIdx.x; e < a.value_dim; e += blockDim.x) {
    float most = 0, sum = 0, out = 0;
    bool any = false;
    for (int u = 0; u < r.units; u++) {
      int first = unit_first(a, sees, u, FAST_CHUNK);
      if (first >= sees.high)
        break;
      if (!unit_seen(sees, first, FAST_CHUNK))
        continue;
      int64_t part = fast_part(r, a, token, head, u);
      float2 c = r.most[part];
      if (c.y == 0)
        continue;
      float o = r.out[part * a.value_dim + e];
      if (any) {
        float larger = c.x > most ? c.x : most;
        float f = math_exp(most - larger), g = math_exp(c.x - larger);
        most = larger;
        sum = fmaf(sum, f, c.y * g);
        out = fmaf(out, f, o * g);
      } else {
        most = c.x;
        sum = c.y;
        out = o;
      }
      any = true;
    }
    a.out[((int64_t)token * a.heads + head) * a.value_dim + e] = out * (1.0f / sum);
  }
}

/* ---- launchers ---- */

static size_t token_bytes(int units, int heads, int value_dim)
{
  return (size_t)heads * (size_t)units * ((size_t)value_dim + 2) * sizeof(float);
}

void cuda_fast_attention(cuda_context *cx, const op_attention *a, const cuda_step *s)
{
  fast_room r = {};
  r.units = (int)unit_count(a, s->most_keys, FAST_CHUNK);
  int group = attention_group(cx, token_bytes(r.units, a->heads, a->value_dim), s->tokens);
  r.out = (float *)cx->scratch;
  r.most = (float2 *)(r.out + (size_t)group * a->heads * r.units * a->value_dim);
  for (r.first = 0; r.first < s->tokens; r.first += group) {
    r.count = s->tokens - r.first < group ? s->tokens - r.first : group;
    fast_chunks(cx, a, s, &r);
    cuda_launch(cx, false, join_chunks, dim3(a->heads, r.count), dim3(128), 0, *a, *s, r);
  }
  if (a->quant.bits)
    exact_attention_of(cx, a, s, EXACT_QUANTISED_ONLY);
}

void cuda_attention_setup(cuda_context *cx)
{
  fast_attention_setup(cx);
}

size_t cuda_attention_scratch(const cuda_context *cx, const ops_room *room, int heads)
{
  int64_t keys = cuda_ceil(room->keys, FAST_CHUNK) * FAST_CHUNK;
  size_t exact = exact_token_bytes(keys, heads), fast = token_bytes((int)(keys / FAST_CHUNK) + 1, heads, room->dims);
  size_t token = !cx->fast ? exact : room->quantised && exact > fast ? exact : fast;
  size_t all = token * (size_t)room->tokens;
  return all < ATTENTION_SCRATCH ? all : token > ATTENTION_SCRATCH ? token : ATTENTION_SCRATCH;
}
