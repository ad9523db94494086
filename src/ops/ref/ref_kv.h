/* ref_kv.h - quantised keys and values: their layout in a block, and one row's way in and out.
 *
 * Codes stand so that kernels shift a whole vector by one count. Keys load 64 to a dim: word w of key i, a
 * little-endian bit stream over the dims, is at [w][i]. Values load a dim a lane: the bit stream of a dim runs over the
 * 64 keys, and its word w is at [w][dim]. Scales and biases follow the words they belong to; a half type's are held as
 * floats.
 *
 *   a head of keys     words [key_dim * bits / 32][64], scales [groups][64], biases [groups][64]
 *   a head of values   words [2 * bits][value_dim],     scales [64][groups], biases [64][groups]
 *   a block            all heads of keys, then all heads of values
 *
 * A block is not cleared before its first row: each row writes its own bits, and nobody looks at others.
 */
#ifndef TERN_OPS_REF_REF_KV_H
#define TERN_OPS_REF_REF_KV_H

#include "ops/value.h"

/* One head of keys or of values inside a block. */
typedef struct ref_packed {
  uint32_t *words;
  float *scales, *biases;
  int dim, groups;
} ref_packed;

static inline ON_DEVICE size_t ref_packed_words(const ops_kv_quant *q, int dim)
{
  return (size_t)KV_BLOCK / 32 * (size_t)q->bits * (size_t)dim;
}

/* Floats, or words, of one head. */
static inline ON_DEVICE size_t ref_packed_size(const ops_kv_quant *q, int dim)
{
  return ref_packed_words(q, dim) + 2 * (size_t)KV_BLOCK * (size_t)(dim / q->group);
}

static inline ON_DEVICE ref_packed ref_packed_at(const ops_kv_quant *q, void *block, size_t offset, int dim)
{
  float *at = (float *)block + offset;
  int groups = dim / q->group;
  size_t words = ref_packed_words(q, dim);
  return (ref_packed){(uint32_t *)(void *)at, at + words, at + words + (size_t)KV_BLOCK * (size_t)groups, dim, groups};
}

static inline ON_DEVICE ref_packed ref_packed_keys(const ops_kv_quant *q, void *block, int head, int key_dim)
{
  return ref_packed_at(q, block, (size_t)head * ref_packed_size(q, key_dim), key_dim);
}

static inline ON_DEVICE ref_packed ref_packed_values(const ops_kv_quant *q, void *block, int kv_heads, int key_dim,
                                                     int head, int value_dim)
{
  size_t keys = (size_t)kv_heads * ref_packed_size(q, key_dim);
  return ref_packed_at(q, block, keys + (size_t)head * ref_packed_size(q, value_dim), value_dim);
}

/* Code `at` of a bit stream whose words stand `stride` apart. */
static inline ON_DEVICE uint32_t ref_packed_code(const uint32_t *words, size_t stride, int bits, int at)
{
  int bit = at * bits, shift = bit & 31;
  const uint32_t *word = words + (size_t)(bit >> 5) * stride;
  uint32_t code = *word >> shift;
  if (shift + bits > 32)
    code |= word[stride] << (32 - shift);
  return code & ((1u << bits) - 1);
}

/* Value `dim` of key i, or of value i, in arithmetic of `type`: what the reference's quantised product multiplies by.
 */
static inline ON_DEVICE float ref_packed_value(ops_dtype type, uint32_t code, float scale, float bias)
{
  return ops_round(type, ops_round(type, (float)code * scale) + bias);
}

static inline ON_DEVICE float ref_packed_key_at(const ref_packed *p, const ops_kv_quant *q, ops_dtype type, int i,
                                                int dim)
{
  size_t g = (size_t)(dim / q->group) * KV_BLOCK + (size_t)i;
  uint32_t code = ref_packed_code(p->words + i, KV_BLOCK, q->bits, dim);
  return ref_packed_value(type, code, p->scales[g], p->biases[g]);
}

static inline ON_DEVICE float ref_packed_value_at(const ref_packed *p, const ops_kv_quant *q, ops_dtype type, int i,
                                                  int dim)
{
  size_t g = (size_t)i * (size_t)p->groups + (size_t)(dim / q->group);
  uint32_t code = ref_packed_code(p->words + dim, (size_t)p->dim, q->bits, i);
  return ref_packed_value(type, code, p->scales[g], p->biases[g]);
}

/* One token's row x [dim] becomes key i, or value i. Values of x stand `stride` apart. */
void ref_pack_key(const ops_kv_quant *q, ref_packed p, int i, const float *x, size_t stride);
void ref_pack_value(const ops_kv_quant *q, ref_packed p, int i, const float *x);

/* Head h of token t of a row, to its place, quantised or not. */
void ref_append_row(const struct op_kv_append *a, const ops_row *row, int t, int h);

size_t ref_kv_block_bytes(const ops_kv_shape *shape);
void ref_kv_quantise(ops_context *cx, const ops_kv_shape *shape, const void *plain, void *quantised, int count);

#endif
