/* ref.h - what the files of the reference backend share: rounding, and reading one stored value.
 *
 * The reference defines every op in plain C, for float32 and for the half types alike. It is the shortest form, not a
 * fast one; other backends must reproduce its bits. Source of every formula: the arithmetic of mlx-cpu 0.31.2, as
 * docs/ops.md restates it.
 */
#ifndef TERN_OPS_REF_REF_H
#define TERN_OPS_REF_REF_H

#include "ops/math.h"
#include "ops/value.h"

#define OP(name, contract) ops_fn ref_##name;
#include "ops/ops.def"
#undef OP

/* Memory of a backend that computes on the host: aligned to 64 bytes, NULL where there is none; the caller releases. */
void *ref_alloc(ops_context *cx, size_t bytes);
void ref_release(ops_context *cx, void *p);
void ref_copy(ops_context *cx, void *to, const void *from, size_t bytes);

/* The scratch of such a backend, as much as its scratch_bytes says. */
tern_status ref_reserve(ops_context *cx, const ops_room *room, tern_error *err);
/* Bytes of so many floats; SIZE_MAX: too many. */
size_t ref_floats(size_t floats);

/* One row of ops_backend.choose. */
int32_t ref_largest(const float *x, int n, float apart);

/* Whether a head of a block-sparse op looks at a key block. */
static inline ON_DEVICE bool ref_sees_block(const struct op_attention *a, int head, int64_t query_block, int64_t block)
{
  return query_block - block < a->sparse_local || (block + head + 1) % a->sparse_stride == 0;
}

/* Whether it sees position p from `position`; all do where the op is dense. */
static inline ON_DEVICE bool ref_sees(const struct op_attention *a, int head, int64_t position, int64_t p)
{
  return !a->sparse_block || ref_sees_block(a, head, position / a->sparse_block, p / a->sparse_block);
}

/* Layout of a block of keys and values, in floats: keys [G][key_dim][64], so that 64 keys load together; then values
 * [G][64][value_dim]. Offsets of key i of a head (its dims are KV_BLOCK apart) and of value i. */
static inline ON_DEVICE size_t ref_block_key(int head, int key_dim, int i)
{
  return (size_t)head * (size_t)key_dim * KV_BLOCK + (size_t)i;
}

static inline ON_DEVICE size_t ref_block_value(int kv_heads, int key_dim, int head, int value_dim, int i)
{
  return (size_t)kv_heads * (size_t)key_dim * KV_BLOCK + ((size_t)head * KV_BLOCK + (size_t)i) * (size_t)value_dim;
}

/* cap * tanh(x / cap), each step rounded; cap is already of the type. */
static inline DEVICE_ONLY float ref_cap(ops_dtype type, float cap, float x)
{
  return ops_round(type, ops_round(type, math_tanh(ops_round(type, x / cap))) * cap);
}

/* What the reference takes for the length of a token's sequence (struct op_rope); 0 where it cannot grow a base. */
static inline ON_DEVICE int64_t ref_length(const ops_row *row, int64_t position, int heads)
{
  return row->kind == ROW_STEP ? position + heads : 0;
}

/* Whether a rotation at this length has grown frequencies. Frequency i is then exp(-i * rate). */
static inline ON_DEVICE bool ref_grown(const struct op_rope *a, int64_t length)
{
  return a->ntk_from && length > a->ntk_from;
}

float ref_grown_rate(const struct op_rope *a, int64_t length);

/* Bytes of one packed row. */
static inline ON_DEVICE int64_t ref_row_bytes(const ops_weight *w)
{
  return w->k * w->bits / 8;
}

/* Code k of a packed row: bits [k*bits, (k+1)*bits) of its little-endian bit stream. */
static inline ON_DEVICE uint32_t ref_code(const uint8_t *row, int bits, int64_t k)
{
  int64_t at = k * bits;
  int shift = (int)(at & 7);
  uint32_t word = row[at >> 3];
  if (shift + bits > 8)
    word |= (uint32_t)row[(at >> 3) + 1] << 8;
  return word >> shift & ((1u << bits) - 1);
}

/* The value of a code of the fp modes, before scaling: fp4 (e2m1) or fp8 (e4m3). 0x7F of fp8 is 480, as in the
 * reference. */
static inline ON_DEVICE float ref_fp8(uint8_t byte)
{
  float magnitude = f16_to_f32((uint16_t)((byte & 127) << 7)) * 256.0f;
  return byte & 128 ? -magnitude : magnitude;
}

static inline ON_DEVICE float ref_fp_value(const ops_weight *w, uint32_t code)
{
  static const float fp4[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return w->bits == 4 ? fp4[code] : ref_fp8((uint8_t)code);
}

/* The scale byte of the fp modes: e8m0 as bf16 bits (0 stands for 2^-127), or e4m3 for nvfp4. */
static inline ON_DEVICE float ref_fp_scale(const ops_weight *w, uint8_t byte)
{
  if (w->quant == Q_NVFP4)
    return ref_fp8(byte);
  return bf16_to_f32(byte == 0 ? 0x0040 : (uint16_t)(byte << 7));
}

#endif
