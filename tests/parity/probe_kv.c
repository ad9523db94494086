/* probe_kv.c - what test_kv.py calls: rows that go through a quantised block of keys and values, and come back. */
#include <stdlib.h>
#include <string.h>

#include "ops/ref/ref_kv.h"
#include "probe.h"

typedef struct probe_row {
  uint32_t *codes;        /* [dim] */
  float *scales, *biases; /* [groups] */
  float *values;          /* [dim] dequantised */
} probe_row;

static void read_row(const ops_kv_quant *q, ops_dtype type, const ref_packed *p, bool keys, int i, const probe_row *out)
{
  for (int e = 0; e < p->dim; e++) {
    out->codes[e] = keys ? ref_packed_code(p->words + i, KV_BLOCK, q->bits, e)
                         : ref_packed_code(p->words + e, (size_t)p->dim, q->bits, i);
    out->values[e] = keys ? ref_packed_key_at(p, q, type, i, e) : ref_packed_value_at(p, q, type, i, e);
  }
  for (int g = 0; g < p->groups; g++) {
    int at = keys ? g * KV_BLOCK + i : i * p->groups + g;
    out->scales[g] = p->scales[at];
    out->biases[g] = p->biases[at];
  }
}

/* x [KV_BLOCK, dim] into the block's second head and back; the block is full of other bits before. type: ops_dtype. */
bool probe_kv(const float *x, int dim, int bits, int group, int type, bool keys, uint32_t *codes, float *scales,
              float *biases, float *values)
{
  ops_kv_quant q = {bits, group, 0, (ops_dtype)type, (ops_dtype)type};
  ops_kv_shape shape = {2, dim, dim, q};
  size_t bytes = ref_kv_block_bytes(&shape);
  void *block = malloc(bytes);
  if (!block)
    return false;
  memset(block, 0xa5, bytes);
  ref_packed p = keys ? ref_packed_keys(&q, block, 1, dim) : ref_packed_values(&q, block, 2, dim, 1, dim);
  for (int i = KV_BLOCK - 1; i >= 0; i--) {
    if (keys)
      ref_pack_key(&q, p, i, x + i * dim, 1);
    else
      ref_pack_value(&q, p, i, x + i * dim);
  }
  int groups = dim / group;
  for (int i = 0; i < KV_BLOCK; i++) {
    probe_row row = {codes + i * dim, scales + i * groups, biases + i * groups, values + i * dim};
    read_row(&q, (ops_dtype)type, &p, keys, i, &row);
  }
  free(block);
  return true;
}
