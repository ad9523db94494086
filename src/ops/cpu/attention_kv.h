/* attention_kv.h - quantised keys and values of a block as floats again, at one SIMD level; for attention.h.
 *
 * The reference multiplies by code * scale + bias, rounded twice, whatever it multiplies. So a stretch of a block is
 * turned into the plain layout once, in the cache, and the plain kernels go over it with the same bits. Codes lie so
 * that a vector of them is one shift away (ops/ref/ref_kv.h).
 */
#ifndef TERN_OPS_CPU_ATTENTION_KV_H
#define TERN_OPS_CPU_ATTENTION_KV_H

#include "ops/ref/ref_kv.h"

#include "ops/cpu/vec.h"

enum { MOST_UNPACKED = 256 }; /* dims; more is the reference's */

/* Codes `at` of VW bit streams that stand side by side; their words are `stride` apart. */
INLINE vf unpack_codes(const int bits, const uint32_t *words, size_t stride, int at)
{
  int bit = at * bits, shift = bit & 31;
  const uint32_t *word = words + (size_t)(bit >> 5) * stride;
  vu x = v_load_words((const uint8_t *)word) >> (uint32_t)shift;
  if (32 % bits && shift + bits > 32)
    x |= v_load_words((const uint8_t *)(word + stride)) << (uint32_t)(32 - shift);
  return v_code(bits, x);
}

/* Keys [c, c + 4 VW) to out [dim][KV_BLOCK]. */
INLINE void unpack_key_strip(const int bits, const ref_packed *p, int group, int c, float *out)
{
  for (int g = 0; g < p->groups; g++) {
    vf scale[4], bias[4];
    UNROLL for (int v = 0; v < 4; v++)
    {
      scale[v] = v_load(p->scales + g * KV_BLOCK + c + v * VW);
      bias[v] = v_load(p->biases + g * KV_BLOCK + c + v * VW);
    }
    for (int e = g * group; e < (g + 1) * group; e++) {
      UNROLL for (int v = 0; v < 4; v++)
      {
        int i = c + v * VW;
        v_store(out + e * KV_BLOCK + i, unpack_codes(bits, p->words + i, KV_BLOCK, e) * scale[v] + bias[v]);
      }
    }
  }
}

/* Values [first, first + count) to out [KV_BLOCK][dim]. Groups are whole vectors. */
INLINE void unpack_value_rows(const int bits, const ref_packed *p, int group, int first, int count, float *out)
{
  for (int i = first; i < first + count; i++) {
    for (int g = 0; g < p->groups; g++) {
      vf scale = v_set(p->scales[i * p->groups + g]), bias = v_set(p->biases[i * p->groups + g]);
      for (int e = g * group; e < (g + 1) * group; e += VW)
        v_store(out + i * p->dim + e, unpack_codes(bits, p->words + e, (size_t)p->dim, i) * scale + bias);
    }
  }
}

#define UNPACK_BY_BITS(q, call)                                                                                        \
  switch ((q)->bits) {                                                                                                 \
  case 2:                                                                                                              \
    call(2);                                                                                                           \
    break;                                                                                                             \
  case 3:                                                                                                              \
    call(3);                                                                                                           \
    break;                                                                                                             \
  case 4:                                                                                                              \
    call(4);                                                                                                           \
    break;                                                                                                             \
  case 5:                                                                                                              \
    call(5);                                                                                                           \
    break;                                                                                                             \
  case 6:                                                                                                              \
    call(6);                                                                                                           \
    break;                                                                                                             \
  default:                                                                                                             \
    call(8);                                                                                                           \
  }

static void unpack_keys(const ops_kv_quant *q, const ref_packed *p, int c, float *out)
{
#define UNPACK(bits) unpack_key_strip(bits, p, q->group, c, out)
  UNPACK_BY_BITS(q, UNPACK)
#undef UNPACK
}

static void unpack_values(const ops_kv_quant *q, const ref_packed *p, int first, int count, float *out)
{
#define UNPACK(bits) unpack_value_rows(bits, p, q->group, first, count, out)
  UNPACK_BY_BITS(q, UNPACK)
#undef UNPACK
}

#endif
