/* exact_pack.cuh - CUDA_EXACT_4, the layout of affine 4-bit matrices for exact: where an element is, and decoding.
 *
 * Rows go in tiles of 32, one row a lane (the last tile is filled up with zeros); a tile's blocks of SPAN k follow each
 * other, SPAN being 64 or the group if that is more:
 *
 *     uint4 [SPAN / 32][32 lanes]      the codes: word w of a lane's 32 k has k = 8 w .. 8 w + 7, rotated left by 7
 *     uint32_t [SPAN / GROUP][32]      scale | bias << 16 of each group, bf16 or f16 as stored
 *
 * so whatever a warp reads is contiguous, and the size is that of the file.
 *
 * Quick decoding. After the rotation, code i < 4 of a word is bits 7 + 4 i .., inside the mantissa of a float32, and
 * the other four get there when halves are swapped. (word & mask) | bits of 1.0f, one instruction, is then the float 1
 * + code / P with P = 2^16, 2^12, 2^8, 2^4; so
 *
 *     fmaf(scale * P, 1 + code / P, bias - scale * P)
 *
 * is scale * code + bias rounded once, if its two constants are exact. That has the bits of the definition where scale
 * * code is exact (exact_format.cuh has why, and when). Packing counts the groups for which one of this fails
 * (exact4_quick); a matrix without any has `shortcut`. Groups as mlx quantises them to bfloat16 never fail: their
 * |bias| is 7.5 scales at least, so both 8-bit numbers lie within 24 bits; float16 scales often do. Safe decoding takes
 * the code out of the same float by an fmaf, which is exact, and then does as the definition: two instructions more.
 *
 * (A weight that is zero may have the other sign than in the definition. No sum notices: it starts at +0 and so is
 * never -0. exact4_value is for those who take a weight itself, and has the definition's own operations.)
 */
#ifndef TERN_OPS_CUDA_EXACT_PACK_CUH
#define TERN_OPS_CUDA_EXACT_PACK_CUH

#include "ops/cuda/exact_format.cuh"

enum { EXACT4_ROWS = 32, EXACT4_BODY = 64 /* k that kernels take at once: in one block always */ };

/* All of these take the log2 of the group: 5, 6 or 7. k of a block; its bytes. */
static constexpr __host__ __device__ int exact4_span_log2(int group)
{
  return group > 6 ? group : 6;
}

static constexpr __host__ __device__ int exact4_block(int group)
{
  return (16 << exact4_span_log2(group)) + (128 << (exact4_span_log2(group) - group));
}

static inline __host__ __device__ int64_t exact4_tile_bytes(int group, int64_t k)
{
  return (k >> exact4_span_log2(group)) * exact4_block(group);
}

/* Offsets in a tile: the 32 chunks (a lane's 16 bytes, 32 k) that hold k; the 32 words of its group. */
static inline __host__ __device__ int64_t exact4_chunk(int group, int64_t k)
{
  int in = (int)k & ((1 << exact4_span_log2(group)) - 1);
  return exact4_tile_bytes(group, k) + in / 32 * 512;
}

static inline __host__ __device__ int64_t exact4_group(int group, int64_t k)
{
  int in = (int)k & ((1 << exact4_span_log2(group)) - 1);
  return exact4_tile_bytes(group, k) + (16 << exact4_span_log2(group)) + (in >> group) * 128;
}

static inline __host__ __device__ int exact4_log2(int group)
{
  return group == 32 ? 5 : group == 64 ? 6 : 7;
}

/* The scale and the bias in a group's word. */
static inline __device__ float exact4_scale(ops_dtype stored, uint32_t word)
{
  return exact_widen(stored, word & 0xffff);
}

static inline __device__ float exact4_bias(ops_dtype stored, uint32_t word)
{
  return exact_widen(stored, word >> 16);
}

/* Element (n, k) of a packed matrix: its code, its group's scale and bias; and the weight. */
struct exact4_element {
  uint32_t code;
  float scale, bias;
};

static inline __device__ exact4_element exact4_at(const ops_weight &w, int64_t n, int64_t k)
{
  int lane = (int)(n % EXACT4_ROWS), group = exact4_log2(w.group);
  const uint8_t *tile = w.data + n / EXACT4_ROWS * exact4_tile_bytes(group, w.k);
  uint32_t word = ((const uint32_t *)(tile + exact4_chunk(group, k) + lane * 16))[k % 32 / 8];
  uint32_t pair = ((const uint32_t *)(tile + exact4_group(group, k)))[lane];
  exact4_element e;
  e.code = __funnelshift_r(word, word, 7) >> 4 * (k % 8) & 15;
  e.scale = exact4_scale(w.stored, pair);
  e.bias = exact4_bias(w.stored, pair);
  return e;
}

static inline __device__ float exact4_value(const ops_weight &w, int64_t n, int64_t k)
{
  exact4_element e = exact4_at(w, n, k);
  return (float)e.code * e.scale + e.bias;
}

/* Whether all weights of a group may be decoded quickly. */
static inline __device__ bool exact4_quick(float scale, float bias)
{
  if (!exact_scale(scale))
    return false;
  for (int e = 4; e <= 16; e += 4) {
    /* What the difference of two floats loses is itself a float, and these six operations have it (Knuth). */
    float a = -(scale * (float)(1 << e)), c = bias + a;
    float a_part = c - bias, bias_part = c - a_part;
    float lost = (bias - bias_part) + (a - a_part);
    if (!(lost == 0)) /* not so where something overflowed */
      return false;
  }
  return true;
}

/* ---- decoding in kernels ---- */

/* Constants of a group. */
struct exact4_how {
  float by[4], plus[4]; /* scale * P, bias - scale * P; safe: scale, bias */
};

template <bool SHORTCUT> static inline __device__ exact4_how exact4_prepare(ops_dtype stored, uint32_t pair)
{
  exact4_how how;
  float scale = exact4_scale(stored, pair), bias = exact4_bias(stored, pair);
  if constexpr (SHORTCUT) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      how.by[i] = scale * (float)(1 << (16 - 4 * i));
      how.plus[i] = bias - how.by[i];
    }
  } else {
    how.by[0] = scale;
    how.plus[0] = bias;
  }
  return how;
}

/* (word & mask) | one. The compiler makes two instructions of it where it knows both constants: `one`, the bits
 * of 1.0f, is an argument of kernels. */
template <int MASK> static inline __device__ float exact4_float(uint32_t word, uint32_t one)
{
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(bits) : "r"(word), "n"(MASK), "r"(one));
  return __uint_as_float(bits);
}

/* Four weights: the first of the word, or the last with the word's halves swapped. */
template <bool SHORTCUT>
static inline __device__ void exact4_decode(uint32_t word, const exact4_how &how, uint32_t one, float (&value)[4])
{
  value[0] = exact4_float<0x780>(word, one);
  value[1] = exact4_float<0x7800>(word, one);
  value[2] = exact4_float<0x78000>(word, one);
  value[3] = exact4_float<0x780000>(word, one);
  if constexpr (SHORTCUT) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      value[i] = fmaf(how.by[i], value[i], how.plus[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++)
      value[i] = fmaf(value[i], (float)(1 << (16 - 4 * i)), -(float)(1 << (16 - 4 * i)));
#pragma unroll
    for (int i = 0; i < 4; i++)
      value[i] = value[i] * how.by[0] + how.plus[0];
  }
}

static inline __device__ uint32_t exact4_swap(uint32_t word)
{
  return __funnelshift_l(word, word, 16);
}

#endif
