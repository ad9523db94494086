/* ref_kv.c - storing of keys and values, as they are or quantised. Layouts are in ref.h (plain) and ref_kv.h. */
#include "ops/ref/ref_kv.h"

#include <math.h>
#include <string.h>

#include "ops/ref/ref.h"

/* ---- quantisation of one group: mx.quantize, affine ---- */

typedef struct group {
  float scale, bias; /* not yet rounded to the type that keeps them: codes go by these */
} group;

static group group_of(const float *x, size_t stride, int n, int bits)
{
  float low = INFINITY, high = -INFINITY, most = (float)((1 << bits) - 1);
  for (int i = 0; i < n; i++) {
    float value = x[(size_t)i * stride];
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
  bool down = fabsf(low) > fabsf(high);
  float step = (high - low) / most;
  float scale = step < 1e-7f ? 1e-7f : step;
  scale = down ? scale : -scale;
  float edge = down ? low : high, zero = rintf(edge / scale);
  if (zero == 0)
    return (group){scale, 0};
  return (group){edge / zero, edge};
}

static uint32_t code_of(const group *g, float x, int bits)
{
  float code = (x - g->bias) / g->scale, most = (float)((1 << bits) - 1);
  code = code > 0 ? code : 0; /* NaN too. Clamped first: whole bounds and rounding change places */
  return (uint32_t)lrintf(code < most ? code : most);
}

/* ---- rows ---- */

static void put_code(uint32_t *words, size_t stride, int bits, int at, uint32_t code)
{
  int bit = at * bits, shift = bit & 31;
  uint32_t *word = words + (size_t)(bit >> 5) * stride, mask = (1u << bits) - 1;
  *word = (*word & ~(mask << shift)) | code << shift;
  if (shift && shift + bits > 32) {
    word += stride;
    *word = (*word & ~(mask >> (32 - shift))) | code >> (32 - shift);
  }
}

void ref_pack_key(const ops_kv_quant *q, ref_packed p, int i, const float *x, size_t stride)
{
  for (int n = 0; n < p.groups; n++) {
    group g = group_of(x + (size_t)(n * q->group) * stride, stride, q->group, q->bits);
    for (int e = n * q->group; e < (n + 1) * q->group; e++)
      put_code(p.words + i, KV_BLOCK, q->bits, e, code_of(&g, x[(size_t)e * stride], q->bits));
    p.scales[n * KV_BLOCK + i] = ops_round(q->key_type, g.scale);
    p.biases[n * KV_BLOCK + i] = ops_round(q->key_type, g.bias);
  }
}

void ref_pack_value(const ops_kv_quant *q, ref_packed p, int i, const float *x)
{
  for (int n = 0; n < p.groups; n++) {
    group g = group_of(x + n * q->group, 1, q->group, q->bits);
    for (int e = n * q->group; e < (n + 1) * q->group; e++)
      put_code(p.words + e, (size_t)p.dim, q->bits, i, code_of(&g, x[e], q->bits));
    p.scales[i * p.groups + n] = ops_round(q->value_type, g.scale);
    p.biases[i * p.groups + n] = ops_round(q->value_type, g.bias);
  }
}

/* ---- blocks ---- */

size_t ref_kv_block_bytes(const ops_kv_shape *s)
{
  const ops_kv_quant *q = &s->quant;
  size_t keys = (size_t)KV_BLOCK * (size_t)s->key_dim, values = (size_t)KV_BLOCK * (size_t)s->value_dim;
  if (q->bits) {
    keys = ref_packed_size(q, s->key_dim);
    values = ref_packed_size(q, s->value_dim);
  }
  return (size_t)s->kv_heads * (keys + values) * sizeof(float);
}

void ref_kv_quantise(ops_context *cx, const ops_kv_shape *s, const void *plain, void *quantised, int count)
{
  (void)cx;
  const ops_kv_quant *q = &s->quant;
  const float *from = plain;
  for (int h = 0; h < s->kv_heads; h++) {
    ref_packed keys = ref_packed_keys(q, quantised, h, s->key_dim);
    ref_packed values = ref_packed_values(q, quantised, s->kv_heads, s->key_dim, h, s->value_dim);
    for (int i = 0; i < count; i++) {
      ref_pack_key(q, keys, i, from + ref_block_key(h, s->key_dim, i), KV_BLOCK);
      ref_pack_value(q, values, i, from + ref_block_value(s->kv_heads, s->key_dim, h, s->value_dim, i));
    }
  }
}

static void store_plain(const struct op_kv_append *a, float *block, int i, int h, const float *k, const float *v)
{
  for (int e = 0; e < a->key_dim; e++)
    block[ref_block_key(h, a->key_dim, i) + (size_t)e * KV_BLOCK] = k[e];
  memcpy(block + ref_block_value(a->kv_heads, a->key_dim, h, a->value_dim, i), v, (size_t)a->value_dim * sizeof *v);
}

void ref_append_row(const struct op_kv_append *a, const ops_row *row, int t, int h)
{
  int64_t position = row->position + t, token = row->first + t;
  void *block = row->slots[a->slot].blocks[position / KV_BLOCK];
  int i = (int)(position % KV_BLOCK);
  const float *k = a->k + (token * a->kv_heads + h) * a->key_dim;
  const float *v = a->v + (token * a->kv_heads + h) * a->value_dim;
  if (!ops_quantised(&a->quant, row)) {
    store_plain(a, block, i, h, k, v);
    return;
  }
  ref_pack_key(&a->quant, ref_packed_keys(&a->quant, block, h, a->key_dim), i, k, 1);
  ref_pack_value(&a->quant, ref_packed_values(&a->quant, block, a->kv_heads, a->key_dim, h, a->value_dim), i, v);
}

void ref_kv_append(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_kv_append *a = &record->kv_append;
  for (int r = 0; r < step->rows; r++)
    for (int t = 0; t < step->row[r].count; t++)
      for (int h = 0; h < a->kv_heads; h++)
        ref_append_row(a, &step->row[r], t, h);
}
