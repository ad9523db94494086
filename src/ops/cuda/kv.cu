/* kv.cu - keys and values on their way into blocks: appending, rotating and appending at once, and quantising a block
 * that had been plain.
 *
 * Blocks have the definition's layouts: keys [G][key_dim][64] and values [G][64][value_dim], of float32 in exact and
 * float16 in fast; quantised as ref_kv.h says. They suit a GPU: a lane a key reads 64 keys of a dim in one line, and a
 * lane a dim reads a value in one line.
 *
 * Quantised rows have a warp a (token, head). A key has words of its own. The word of a dim of the values holds codes
 * of several tokens, so a warp packs the values of all tokens that a step puts into one block, one after another.
 */
#include "ops/cuda/kv.cuh"

enum { THREADS = 128, PACK_WARPS = 4 };

/* ---- plain ---- */

/* Element n of a token's keys and values, to its place. */
static __device__ void store_element(const op_kv_append &a, void *block, bool fast, int i, int n, float x)
{
  int keys = a.kv_heads * a.key_dim;
  if (n < keys)
    kv_put_key(block, fast, a.key_dim, n / a.key_dim, n % a.key_dim, i, x);
  else
    kv_put_value(block, fast, a.kv_heads, a.key_dim, a.value_dim, (n - keys) / a.value_dim, (n - keys) % a.value_dim, i,
                 x);
}

/* Where a token's keys and values go; NULL: not as plain ones. */
static __device__ void *plain_block(const op_kv_append &a, const cuda_step &s, const cuda_token &t)
{
  return cuda_quantised(a.quant, t) ? nullptr : cuda_blocks(s, a.slot, t.row)[t.position / KV_BLOCK];
}

/* Blocks of threads (some elements, token). */
static __global__ void append_plain(op_kv_append a, cuda_step s, bool fast)
{
  cuda_release_next();
  int token = blockIdx.y, keys = a.kv_heads * a.key_dim, values = a.kv_heads * a.value_dim;
  int n = blockIdx.x * THREADS + threadIdx.x;
  cuda_token t = s.token[token];
  void *block = plain_block(a, s, t);
  cuda_await();
  if (block && n < keys + values)
    store_element(a, block, fast, (int)(t.position % KV_BLOCK), n,
                  n < keys ? a.k[(int64_t)token * keys + n] : a.v[(int64_t)token * values + n - keys]);
}

/* The same, with the rotation of queries and keys before it (ref_rope; `rates` as in cuda_rope). A thread has a pair of
 * a head's dims, of those that pass unrotated too, or two dims of a value. Angles are no business of the kernel before
 * this one, which may still run. */
static __global__ void rope_append(op_rope rope, op_kv_append a, cuda_step s, const float *rates, bool fast)
{
  cuda_release_next();
  int token = blockIdx.y, n = blockIdx.x * THREADS + threadIdx.x;
  int pairs = rope.head_dim / 2, half = rope.dims / 2, heads = rope.q_heads + rope.k_heads;
  int h = n / pairs, i = n % pairs;
  bool query = h < rope.q_heads, turns = h < heads && i < half;
  cuda_token t = s.token[token];
  void *block = plain_block(a, s, t);
  int at = (int)(t.position % KV_BLOCK);
  float sine = 0, cosine = 1;
  if (turns) {
    float rate = rates ? rates[2 * token + !query] : NAN, position = (float)t.position * rope.position_scale;
    math_sincos(position * (rate == rate ? math_exp((float)-i * rate) : rope.inverse[i]), &sine, &cosine);
  }
  cuda_await();
  if (h >= heads) {
    int keys = a.kv_heads * a.key_dim, values = a.kv_heads * a.value_dim;
    for (int v = (n - heads * pairs) * 2, end = v + 2; v < end && v < values && block; v++)
      store_element(a, block, fast, at, keys + v, a.v[(int64_t)token * values + v]);
    return;
  }
  h -= query ? 0 : rope.q_heads;
  float *x = query ? rope.q + ((int64_t)token * rope.q_heads + h) * rope.head_dim
                   : rope.k + ((int64_t)token * rope.k_heads + h) * rope.head_dim;
  /* Dims 2 i and 2 i + 1, or i and i + half; behind the rotated ones, two neighbours. */
  int first = turns && !rope.traditional ? i : 2 * i, second = turns && !rope.traditional ? i + half : 2 * i + 1;
  float x1 = x[first], x2 = x[second];
  if (turns) {
    x1 = rope.mscale != 1.0f ? rope.mscale * x1 : x1;
    x2 = rope.mscale != 1.0f ? rope.mscale * x2 : x2;
    float y1 = x1 * cosine - x2 * sine, y2 = x1 * sine + x2 * cosine;
    x[first] = x1 = y1;
    x[second] = x2 = y2;
  }
  if (!query && block) {
    store_element(a, block, fast, at, h * a.key_dim + first, x1);
    store_element(a, block, fast, at, h * a.key_dim + second, x2);
  }
}

/* ---- quantised ---- */

/* A warp a (token, head): keys. */
static __global__ void append_packed_keys(op_kv_append a, cuda_step s)
{
  extern __shared__ uint8_t codes[]; /* [PACK_WARPS][key_dim] */
  cuda_release_next();
  cuda_await();
  int warp = threadIdx.x / 32, n = blockIdx.x * PACK_WARPS + warp, token = n / a.kv_heads, head = n % a.kv_heads;
  if (token >= s.tokens)
    return;
  cuda_token t = s.token[token];
  if (!cuda_quantised(a.quant, t))
    return;
  void *block = cuda_blocks(s, a.slot, t.row)[t.position / KV_BLOCK];
  pack_key(a.quant, ref_packed_keys(&a.quant, block, head, a.key_dim), (int)(t.position % KV_BLOCK),
           kv_floats{a.k + (int64_t)n * a.key_dim, 1}, codes + warp * a.key_dim);
}

/* A warp a (token, head) that leaves when the token before it goes into the same block, and else packs the values of
 * all that do. */
static __global__ void append_packed_values(op_kv_append a, cuda_step s)
{
  cuda_release_next();
  cuda_await();
  int n = blockIdx.x * PACK_WARPS + threadIdx.x / 32, token = n / a.kv_heads, head = n % a.kv_heads;
  if (token >= s.tokens)
    return;
  cuda_token t = s.token[token];
  bool first = token == 0 || s.token[token - 1].row != t.row || t.position % KV_BLOCK == 0;
  if (!cuda_quantised(a.quant, t) || !first)
    return;
  void *block = cuda_blocks(s, a.slot, t.row)[t.position / KV_BLOCK];
  ref_packed values = ref_packed_values(&a.quant, block, a.kv_heads, a.key_dim, head, a.value_dim);
  for (int i = (int)(t.position % KV_BLOCK), at = token; i < KV_BLOCK && at < s.tokens; i++, at++) {
    if (s.token[at].row != t.row)
      break;
    pack_value(a.quant, values, i, kv_floats{a.v + ((int64_t)at * a.kv_heads + head) * a.value_dim, 1});
  }
}

/* A block of threads a head: the first warp walks the values, the others share the keys. Once in the life of a block.
 */
template <class source>
static __global__ void quantise_block(ops_kv_shape shape, const void *plain, void *quantised, int count)
{
  extern __shared__ uint8_t codes[]; /* [PACK_WARPS][key_dim] */
  int head = blockIdx.x, warp = threadIdx.x / 32;
  const ops_kv_quant &q = shape.quant;
  size_t value = ref_block_value(shape.kv_heads, shape.key_dim, head, shape.value_dim, 0);
  ref_packed keys = ref_packed_keys(&q, quantised, head, shape.key_dim);
  ref_packed values = ref_packed_values(&q, quantised, shape.kv_heads, shape.key_dim, head, shape.value_dim);
  if (warp == 0)
    for (int i = 0; i < count; i++)
      pack_value(q, values, i, source::at(plain, value + (size_t)i * shape.value_dim, 1));
  else
    for (int i = warp - 1; i < count; i += PACK_WARPS - 1)
      pack_key(q, keys, i, source::at(plain, ref_block_key(head, shape.key_dim, i), KV_BLOCK),
               codes + warp * shape.key_dim);
}

/* ---- launchers ---- */

size_t cuda_kv_block_bytes(bool fast, const ops_kv_shape *s)
{
  const ops_kv_quant *q = &s->quant;
  size_t keys = (size_t)KV_BLOCK * (size_t)s->key_dim, values = (size_t)KV_BLOCK * (size_t)s->value_dim;
  if (q->bits) {
    keys = ref_packed_size(q, s->key_dim);
    values = ref_packed_size(q, s->value_dim);
  }
  return (size_t)s->kv_heads * (keys + values) * (fast && !q->bits ? sizeof(uint16_t) : sizeof(float));
}

static void append_packed(cuda_context *cx, const op_kv_append *a, const cuda_step *s)
{
  if (!a->quant.bits)
    return;
  dim3 grid((unsigned)cuda_ceil((int64_t)s->tokens * a->kv_heads, PACK_WARPS));
  cuda_launch(cx, true, append_packed_keys, grid, dim3(PACK_WARPS * 32), (size_t)PACK_WARPS * a->key_dim, *a, *s);
  cuda_launch(cx, true, append_packed_values, grid, dim3(PACK_WARPS * 32), 0, *a, *s);
}

void cuda_kv_append(cuda_context *cx, const op_kv_append *a, const cuda_step *s)
{
  dim3 grid((unsigned)cuda_ceil((int64_t)a->kv_heads * (a->key_dim + a->value_dim), THREADS), s->tokens);
  cuda_launch(cx, true, append_plain, grid, dim3(THREADS), 0, *a, *s, cx->fast);
  append_packed(cx, a, s);
}

bool cuda_rope_append_fits(const op_rope *rope, const op_kv_append *a)
{
  return rope->k == a->k && rope->k_heads == a->kv_heads && rope->head_dim == a->key_dim && rope->dims % 2 == 0 &&
         rope->head_dim % 2 == 0;
}

void cuda_rope_append(cuda_context *cx, const op_rope *rope, const op_kv_append *a, const cuda_step *s,
                      const float *rates)
{
  int64_t pairs = (int64_t)(rope->q_heads + rope->k_heads) * (rope->head_dim / 2);
  int64_t values = cuda_ceil((int64_t)a->kv_heads * a->value_dim, 2);
  dim3 grid((unsigned)cuda_ceil(pairs + values, THREADS), s->tokens);
  cuda_launch(cx, true, rope_append, grid, dim3(THREADS), 0, *rope, *a, *s, rates, cx->fast);
  append_packed(cx, a, s);
}

void cuda_kv_quantise(cuda_context *cx, const ops_kv_shape *shape, const void *plain, void *quantised, int count)
{
  cuda_launch(cx, false, cx->fast ? quantise_block<kv_halves> : quantise_block<kv_floats>, dim3(shape->kv_heads),
              dim3(PACK_WARPS * 32), (size_t)PACK_WARPS * shape->key_dim, *shape, plain, quantised, count);
}
