/* kv.cu - keys and values on their way into blocks: appending, and quantising a block that had been plain.
 *
 * Blocks have the definition's layouts: keys [G][key_dim][64] and values [G][64][value_dim], of float32 in exact and
 * float16 in fast; quantised as ref_kv.h says. They suit a GPU: a lane a key reads 64 keys of a dim in one line, and a
 * lane a dim reads a value in one line.
 *
 * Quantised values need care. The word of a dim holds codes of several keys, so tokens of one step write bits of the
 * same word: values are packed by a thread a (row, block, dim), which walks the tokens of its block, and never by a
 * thread a token. Keys have a word of their own for each key: a thread a (token, head, group), save that groups whose
 * codes do not fill whole words would share one: then a thread takes all groups of a key.
 */
#include "ops/cuda/kv.cuh"

/* ---- plain ---- */

/* A thread a dim of a token's keys and values. */
static __global__ void append_plain(op_kv_append a, cuda_step s, bool fast)
{
  int token = blockIdx.x;
  cuda_token t = s.token[token];
  if (cuda_quantised(a.quant, t))
    return;
  void *block = cuda_blocks(s, a.slot, t.row)[t.position / KV_BLOCK];
  int i = (int)(t.position % KV_BLOCK), keys = a.kv_heads * a.key_dim, values = a.kv_heads * a.value_dim;
  for (int n = threadIdx.x; n < keys + values; n += blockDim.x)
    if (n < keys)
      kv_put_key(block, fast, a.key_dim, n / a.key_dim, n % a.key_dim, i, a.k[(int64_t)token * keys + n]);
    else
      kv_put_value(block, fast, a.kv_heads, a.key_dim, a.value_dim, (n - keys) / a.value_dim, (n - keys) % a.value_dim,
                   i, a.v[(int64_t)token * values + n - keys]);
}

/* ---- quantised ---- */

/* A thread a (token, head): keys. */
static __global__ void append_packed_keys(op_kv_append a, cuda_step s)
{
  int n = blockIdx.x * blockDim.x + threadIdx.x, token = n / a.kv_heads, head = n % a.kv_heads;
  if (token >= s.tokens)
    return;
  cuda_token t = s.token[token];
  if (!cuda_quantised(a.quant, t))
    return;
  void *block = cuda_blocks(s, a.slot, t.row)[t.position / KV_BLOCK];
  pack_key(a.quant, ref_packed_keys(&a.quant, block, head, a.key_dim), (int)(t.position % KV_BLOCK),
           kv_floats{a.k + (int64_t)n * a.key_dim, 1});
}

/* The first token of a (row, block) packs the values of all of its tokens: a thread a (token, head), which leaves when
 * the token before it is of the same row and block. */
static __global__ void append_packed_values(op_kv_append a, cuda_step s)
{
  int n = blockIdx.x * blockDim.x + threadIdx.x, token = n / a.kv_heads, head = n % a.kv_heads;
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

/* A thread a (key, head), then a thread a head that walks the values. Runs once in the life of a block. */
template <class source>
static __global__ void quantise_block(ops_kv_shape shape, const void *plain, void *quantised, int count)
{
  int head = blockIdx.x, i = threadIdx.x;
  const ops_kv_quant &q = shape.quant;
  size_t key = ref_block_key(head, shape.key_dim, i);
  size_t value = ref_block_value(shape.kv_heads, shape.key_dim, head, shape.value_dim, 0);
  if (i < count)
    pack_key(q, ref_packed_keys(&q, quantised, head, shape.key_dim), i, source::at(plain, key, KV_BLOCK));
  ref_packed values = ref_packed_values(&q, quantised, shape.kv_heads, shape.key_dim, head, shape.value_dim);
  if (i == 0)
    for (int n = 0; n < count; n++)
      pack_value(q, values, n, source::at(plain, value + (size_t)n * shape.value_dim, 1));
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

void cuda_kv_append(cuda_context *cx, const op_kv_append *a, const cuda_step *s)
{
  cuda_launch(cx, false, append_plain, dim3(s->tokens), dim3(256), 0, *a, *s, cx->fast);
  if (!a->quant.bits)
    return;
  dim3 grid((unsigned)cuda_ceil((int64_t)s->tokens * a->kv_heads, 64));
  cuda_launch(cx, false, append_packed_keys, grid, dim3(64), 0, *a, *s);
  cuda_launch(cx, false, append_packed_values, grid, dim3(64), 0, *a, *s);
}

void cuda_kv_quantise(cuda_context *cx, const ops_kv_shape *shape, const void *plain, void *quantised, int count)
{
  cuda_launch(cx, false, cx->fast ? quantise_block<kv_halves> : quantise_block<kv_floats>, dim3(shape->kv_heads),
              dim3(KV_BLOCK), 0, *shape, plain, quantised, count);
}
