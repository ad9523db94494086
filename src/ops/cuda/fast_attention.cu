/* fast_attention.cu - attention of fast: chunks of 256 positions each on their own, then a kernel that joins them.
 *
 * ops/fast_ref/fast.h has the formulas. What a chunk comes to (m, l, o) depends on the query and its 256 positions
 * alone, so chunks may be computed anywhere; the joining goes over them ascending, once for each head of each token.
 */
#include "ops/cuda/fast_attention.cuh"

#include "ops/cuda/exact_attention.cuh"

/* ---- joining ---- */

enum { JOIN_THREADS = 128, JOIN_BATCH = 16 };

/* A unit's share in the whole: O = fma(O, old, o * now); `sum` is l * now, below zero where the head sees none of it.
 */
struct join_step {
  float old, now, sum;
};

/* Makes the steps of units [from, from + 128), a thread each; `most` is the largest score before them. Returns the
 * largest behind them. Units that are not seen leave it as it is. */
static __device__ float make_steps(const float2 *part, int from, int units, float most, join_step *step,
                                   float *warp_most)
{
  int i = threadIdx.x, lane = i % 32;
  float2 c = from + i < units ? part[from + i] : make_float2(-INFINITY, 0);
  float mine = c.y == 0 ? -INFINITY : c.x, upto = mine;
  for (int far = 1; far < 32; far *= 2) {
    float other = __shfl_up_sync(~0u, upto, far);
    upto = lane >= far ? fmaxf(upto, other) : upto;
  }
  if (lane == 31)
    warp_most[i / 32] = upto;
  float before = __shfl_up_sync(~0u, upto, 1);
  __syncthreads();
  float carried = most;
  for (int w = 0; w < i / 32; w++)
    carried = fmaxf(carried, warp_most[w]);
  before = lane ? fmaxf(before, carried) : carried;
  upto = fmaxf(upto, carried);
  join_step mine_step = {math_exp(before - upto), math_exp(mine - upto), 0};
  mine_step.sum = c.y == 0 ? -1.0f : c.y * mine_step.now;
  step[i] = mine_step;
  for (int w = 0; w < JOIN_THREADS / 32; w++)
    most = fmaxf(most, warp_most[w]);
  __syncthreads();
  return most;
}

/* One dim of the next units' outputs. */
static __device__ void load_outs(const float *part, int units, int stride, float o[JOIN_BATCH])
{
#pragma unroll
  for (int i = 0; i < JOIN_BATCH; i++)
    if (i < units)
      o[i] = part[(int64_t)i * stride];
}

/* A block a (head, token), a thread a dim. Units ascend. The first that is seen is taken as it is: that its factor
 * would be exp(0) = 1 is no difference, but 0 * 0 + -0 would be one. */
static __global__ void __launch_bounds__(JOIN_THREADS) join_chunks(op_attention a, cuda_step s, fast_room r)
{
  __shared__ join_step step[JOIN_THREADS];
  __shared__ float warp_most[JOIN_THREADS / 32];
  cuda_release_next();
  int token = r.first + blockIdx.y, head = blockIdx.x;
  cuda_token t = s.token[token];
  sight sees = sight_of(a, t);
  /* Units of the token: all of the kept positions' and of the window's, which follow on each other. */
  int last = (sees.high - 1) / FAST_CHUNK * FAST_CHUNK, low = sees.low / FAST_CHUNK * FAST_CHUNK;
  int begin = sees.keep ? 0 : unit_index(a, sees, low, FAST_CHUNK), end = unit_index(a, sees, last, FAST_CHUNK) + 1;
  cuda_await();
  if (cuda_quantised(a.quant, t))
    return;
  int64_t base = fast_part(r, a, token, head, begin);
  for (int e = threadIdx.x; e - threadIdx.x < a.value_dim; e += JOIN_THREADS) {
    bool mine = e < a.value_dim, any = false;
    float most = -INFINITY, sum = 0, out = 0, o[JOIN_BATCH];
    const float *part = r.out + base * a.value_dim + e;
    load_outs(part, mine ? end - begin : 0, a.value_dim, o); /* long before they are wanted */
    for (int u = 0; u < end - begin; u += JOIN_BATCH) {
      if (u % JOIN_THREADS == 0) {
        __syncthreads();
        most = make_steps(r.most + base, u, end - begin, most, step, warp_most);
      }
      int left = end - begin - u;
#pragma unroll
      for (int i = 0; i < JOIN_BATCH; i++) {
        join_step c = step[u % JOIN_THREADS + i];
        if (i >= left || c.sum < 0)
          continue;
        sum = any ? fmaf(sum, c.old, c.sum) : c.sum;
        out = any ? fmaf(out, c.old, o[i] * c.now) : o[i];
        any = true;
      }
      part += JOIN_BATCH * a.value_dim;
      load_outs(part, mine ? left - JOIN_BATCH : 0, a.value_dim, o);
    }
    if (mine)
      a.out[((int64_t)token * a.heads + head) * a.value_dim + e] = out * (1.0f / sum);
  }
}

/* ---- launchers ---- */

static size_t token_bytes(int units, int heads, int value_dim)
{
  return ((size_t)heads * (size_t)units * ((size_t)value_dim + 2) + 2) * sizeof(float);
}

/* turn: of tokens that are rows of their own, whose keys and values are not in their blocks yet; NULL: they are. */
static void attention(cuda_context *cx, const op_attention *a, const cuda_step *s, const fast_turn *turn)
{
  fast_room r = {};
  r.overlap = cx->overlap;
  r.units = (int)unit_count(a, s->most_keys, FAST_CHUNK);
  int group = attention_group(cx, token_bytes(r.units, a->heads, a->value_dim), s->tokens);
  r.most = (float2 *)cx->scratch;
  r.out = (float *)(r.most + ((size_t)group * a->heads * r.units + 1) / 2 * 2); /* a multiple of 16 bytes */
  bool tiled = fast_tile_fits(cx, a);
  for (r.first = 0; r.first < s->tokens; r.first += group) {
    r.count = s->tokens - r.first < group ? s->tokens - r.first : group;
    r.tiles = !turn && tiled && r.count >= tile_tokens(*a);
    if (r.tiles)
      fast_tile_chunks(cx, a, s, &r);
    if (fast_step_fits(cx, a))
      fast_step_chunks(cx, a, s, &r, turn);
    else
      fast_plain_chunks(cx, a, s, &r);
    if (r.units > 1)
      cuda_launch(cx, true, join_chunks, dim3(a->heads, r.count), dim3(JOIN_THREADS), 0, *a, *s, r);
  }
  if (a->quant.bits)
    exact_attention_of(cx, a, s, EXACT_QUANTISED_ONLY);
}

void cuda_fast_attention(cuda_context *cx, const op_attention *a, const cuda_step *s)
{
  attention(cx, a, s, NULL);
}

bool cuda_fast_rope_attention(cuda_context *cx, const op_rope *rope, const op_kv_append *append, const op_attention *a,
                              const cuda_step *s)
{
  if (!cuda_rope_append_fits(rope, append) || rope->q != a->q || rope->q_heads != a->heads ||
      rope->ntk_from || append->slot != a->slot || append->kv_heads != a->kv_heads || append->value_dim != a->value_dim ||
      append->quant.bits || a->quant.bits || a->key_dim > FAST_OWN_DIMS || a->value_dim > FAST_OWN_DIMS ||
      !fast_step_fits(cx, a))
    return false;
  fast_turn turn = {*rope, append->k, append->v};
  attention(cx, a, s, &turn);
  return true;
}

void cuda_attention_setup(cuda_context *cx)
{
  fast_attention_step_setup(cx);
  fast_tile_setup(cx);
  exact_step_setup(cx);
  exact_values_setup(cx);
  exact_tile_setup(cx);
}

size_t cuda_attention_scratch(const cuda_context *cx, const ops_room *room, int heads)
{
  int64_t keys = cuda_ceil(room->keys, FAST_CHUNK) * FAST_CHUNK;
  size_t exact = exact_token_bytes(keys, heads), fast = token_bytes((int)(keys / FAST_CHUNK) + 1, heads, room->dims);
  size_t token = !cx->fast ? exact : room->quantised && exact > fast ? exact : fast;
  size_t all = token * (size_t)room->tokens;
  return all < ATTENTION_SCRATCH ? all : token > ATTENTION_SCRATCH ? token : ATTENTION_SCRATCH;
}
