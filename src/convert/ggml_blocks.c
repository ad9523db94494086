/* ggml_blocks.c - the block layouts (ggml-common.h) and their reference arithmetic (dequantize_row_* in
 * ggml-quants.c), one small function a type. Offsets are in bytes from the block's start. */
#include "convert/ggml_blocks.h"

#include <string.h>

#include "base/half.h"

static float half_at(const uint8_t *p)
{
  uint16_t h;
  memcpy(&h, p, 2);
  return f16_to_f32(h);
}

/* ---- the affine types: integers, then scales and biases, of one block ---- */

/* 16 bytes hold values 0..15 in their low halves and 16..31 in their high ones. */
static void nibbles(const uint8_t *qs, uint8_t *q)
{
  for (int i = 0; i < 16; i++) {
    q[i] = qs[i] & 15;
    q[i + 16] = qs[i] >> 4;
  }
}

static void fifth_bits(const uint8_t *qh, uint8_t *q)
{
  uint32_t high;
  memcpy(&high, qh, 4);
  for (int i = 0; i < 32; i++)
    q[i] = (uint8_t)(q[i] | (high >> i & 1) << 4);
}

static void integers_q4_0(const uint8_t *b, uint8_t *q)
{
  nibbles(b + 2, q);
}

static void integers_q4_1(const uint8_t *b, uint8_t *q)
{
  nibbles(b + 4, q);
}

static void integers_q5_0(const uint8_t *b, uint8_t *q)
{
  nibbles(b + 6, q);
  fifth_bits(b + 2, q);
}

static void integers_q5_1(const uint8_t *b, uint8_t *q)
{
  nibbles(b + 8, q);
  fifth_bits(b + 4, q);
}

static void integers_q8_0(const uint8_t *b, uint8_t *q)
{
  for (int i = 0; i < 32; i++)
    q[i] = b[2 + i] ^ 0x80; /* int8 + 128 */
}

/* 128 bytes, 64 values per 32 bytes: low halves first. */
static void k_nibbles(const uint8_t *qs, uint8_t *q)
{
  for (int j = 0; j < 4; j++)
    for (int i = 0; i < 32; i++) {
      q[64 * j + i] = qs[32 * j + i] & 15;
      q[64 * j + 32 + i] = qs[32 * j + i] >> 4;
    }
}

static void integers_q4_k(const uint8_t *b, uint8_t *q)
{
  k_nibbles(b + 16, q);
}

static void integers_q5_k(const uint8_t *b, uint8_t *q)
{
  k_nibbles(b + 48, q);
  for (int j = 0; j < 8; j++)
    for (int i = 0; i < 32; i++)
      q[32 * j + i] = (uint8_t)(q[32 * j + i] | (b[16 + i] >> j & 1) << 4);
}

static void scales_offset(const uint8_t *b, float offset, float *scale, float *bias)
{
  *scale = half_at(b);
  *bias = offset * *scale;
}

static void scales_q4_0(const uint8_t *b, float *scale, float *bias)
{
  scales_offset(b, -8, scale, bias);
}

static void scales_q5_0(const uint8_t *b, float *scale, float *bias)
{
  scales_offset(b, -16, scale, bias);
}

static void scales_q8_0(const uint8_t *b, float *scale, float *bias)
{
  scales_offset(b, -128, scale, bias);
}

static void scales_min(const uint8_t *b, float *scale, float *bias)
{
  *scale = half_at(b);
  *bias = half_at(b + 2);
}

/* 8 scales and 8 minima of 6 bits in 12 bytes. */
static void scales_k(const uint8_t *b, float *scale, float *bias)
{
  float d = half_at(b), dmin = half_at(b + 2);
  const uint8_t *p = b + 4;
  for (int j = 0; j < 4; j++) {
    scale[j] = d * (float)(p[j] & 63);
    bias[j] = -(dmin * (float)(p[j + 4] & 63));
    scale[j + 4] = d * (float)((p[j + 8] & 15) | p[j] >> 6 << 4);
    bias[j + 4] = -(dmin * (float)(p[j + 8] >> 4 | p[j + 4] >> 6 << 4));
  }
}

static const struct affine_type {
  uint32_t bits;
  void (*integers)(const uint8_t *block, uint8_t *q);
  void (*scales)(const uint8_t *block, float *scale, float *bias);
} affine_types[GGML_TYPES] = {
    [GGML_Q4_0] = {4, integers_q4_0, scales_q4_0}, [GGML_Q4_1] = {4, integers_q4_1, scales_min},
    [GGML_Q5_0] = {5, integers_q5_0, scales_q5_0}, [GGML_Q5_1] = {5, integers_q5_1, scales_min},
    [GGML_Q8_0] = {8, integers_q8_0, scales_q8_0}, [GGML_Q4_K] = {4, integers_q4_k, scales_k},
    [GGML_Q5_K] = {5, integers_q5_k, scales_k},
};

uint32_t ggml_affine_bits(ggml_type type)
{
  return affine_types[type].bits;
}

void ggml_affine_integers(ggml_type type, const uint8_t *blocks, size_t k, uint8_t *q)
{
  const ggml_type_info *info = ggml_type_get(type);
  for (size_t i = 0; i < k / info->block; i++)
    affine_types[type].integers(blocks + i * info->bytes, q + i * info->block);
}

void ggml_affine_scales(ggml_type type, const uint8_t *blocks, size_t k, float *scale, float *bias)
{
  const ggml_type_info *info = ggml_type_get(type);
  size_t groups = info->block / AFFINE_GROUP;
  for (size_t i = 0; i < k / info->block; i++)
    affine_types[type].scales(blocks + i * info->bytes, scale + i * groups, bias + i * groups);
}

/* ---- float32 values ---- */

static void dense_f32(const uint8_t *b, float *y)
{
  memcpy(y, b, 4);
}

static void dense_f16(const uint8_t *b, float *y)
{
  *y = half_at(b);
}

static void dense_bf16(const uint8_t *b, float *y)
{
  uint16_t h;
  memcpy(&h, b, 2);
  *y = bf16_to_f32(h);
}

static void dense_q2_k(const uint8_t *b, float *y)
{
  const uint8_t *scales = b, *qs = b + 16;
  float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int j = 0; j < 16; j++) { /* 16 values a scale; 128 values share 32 bytes, two bits each */
    const uint8_t *q = qs + 32 * (j / 8) + 16 * (j % 2);
    int shift = 2 * (j % 8 / 2);
    float scale = d * (scales[j] & 15), min = dmin * (scales[j] >> 4);
    for (int i = 0; i < 16; i++)
      y[16 * j + i] = scale * (q[i] >> shift & 3) - min;
  }
}

static void dense_q3_k(const uint8_t *b, float *y)
{
  const uint8_t *hmask = b, *qs = b + 32, *scales = b + 96;
  float d = half_at(b + 108);
  for (int j = 0; j < 16; j++) {
    int low = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4, high = scales[8 + j % 4] >> 2 * (j / 4) & 3;
    float scale = d * ((low | high << 4) - 32);
    const uint8_t *q = qs + 32 * (j / 8) + 16 * (j % 2), *h = hmask + 16 * (j % 2);
    int shift = 2 * (j % 8 / 2), bit = j / 2;
    for (int i = 0; i < 16; i++)
      y[16 * j + i] = scale * ((q[i] >> shift & 3) - (h[i] >> bit & 1 ? 0 : 4));
  }
}

static void dense_q6_k(const uint8_t *b, float *y)
{
  const uint8_t *scales = b + 192;
  float d = half_at(b + 208);
  for (int j = 0; j < 8; j++) { /* 32 values: of a half (128), quarter j % 4 */
    const uint8_t *ql = b + 64 * (j / 4) + 32 * (j % 2), *qh = b + 128 + 32 * (j / 4);
    for (int i = 0; i < 32; i++) {
      int low = j % 4 < 2 ? ql[i] & 15 : ql[i] >> 4, high = qh[i] >> 2 * (j % 4) & 3;
      float scale = d * (int8_t)scales[2 * j + i / 16];
      y[32 * j + i] = scale * ((low | high << 4) - 32);
    }
  }
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void iq4_group(const uint8_t *qs, float scale, float *y)
{
  for (int i = 0; i < 16; i++) {
    y[i] = scale * iq4_values[qs[i] & 15];
    y[i + 16] = scale * iq4_values[qs[i] >> 4];
  }
}

static void dense_iq4_nl(const uint8_t *b, float *y)
{
  iq4_group(b + 2, half_at(b), y);
}

static void dense_iq4_xs(const uint8_t *b, float *y)
{
  float d = half_at(b);
  unsigned high = (unsigned)b[2] | (unsigned)b[3] << 8;
  for (int j = 0; j < 8; j++) {
    int low = b[4 + j / 2] >> 4 * (j % 2) & 15;
    float scale = d * ((low | (int)(high >> 2 * j & 3) << 4) - 32);
    iq4_group(b + 8 + 16 * j, scale, y + 32 * j);
  }
}

typedef void dense_fn(const uint8_t *block, float *y);

static dense_fn *const dense_types[GGML_TYPES] = {
    [GGML_F32] = dense_f32,   [GGML_F16] = dense_f16,   [GGML_BF16] = dense_bf16,     [GGML_Q2_K] = dense_q2_k,
    [GGML_Q3_K] = dense_q3_k, [GGML_Q6_K] = dense_q6_k, [GGML_IQ4_NL] = dense_iq4_nl, [GGML_IQ4_XS] = dense_iq4_xs,
};

bool ggml_has_dense(ggml_type type)
{
  return dense_types[type] != NULL;
}

void ggml_dense_row(ggml_type type, const uint8_t *blocks, size_t k, float *out)
{
  const ggml_type_info *info = ggml_type_get(type);
  for (size_t i = 0; i < k / info->block; i++)
    dense_types[type](blocks + i * info->bytes, out + i * info->block);
}

/* ---- packing ---- */

void affine_pack(const uint8_t *q, size_t k, uint32_t bits, uint8_t *out)
{
  for (size_t i = 0; i < k; i += 8) { /* 8 values are `bits` whole bytes */
    uint64_t word = 0;
    for (uint32_t j = 0; j < 8; j++)
      word |= (uint64_t)q[i + j] << j * bits;
    memcpy(out, &word, bits);
    out += bits;
  }
}
