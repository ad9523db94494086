/* exact_format.cuh - decoding stored weights in registers, eight at a time.
 *
 * A kernel has some words of a row's little-endian bit stream in registers, from a weight whose bits start a word. All
 * positions are known when the template is made, so a code costs a shift and a mask.
 *
 * An affine weight is fl(fl(code * scale) + bias): two roundings, unless code * scale is exact. It is when scale has at
 * most 16 significant bits (its lowest 8 are zero; every bf16 and f16 scale is such) and the product is finite: a code
 * has at most 8 bits, 16 + 8 = 24, and multiplying by a whole number needs no bit below the lowest of the scale, so
 * subnormals are no exception. fmaf(code, scale, bias) has the same bits then, and exact_pack.cuh builds on that. Here
 * the two operations are what is done: which scales allow one would be a question in the innermost loop.
 *
 * Values of the fp modes: the bits of an fp4 or fp8 put where float32 has its exponent and mantissa are the value too
 * small by 2^126 or 2^120 (the biases differ by that; subnormals fit), and multiplying by a power of two is exact.
 */
#ifndef TERN_OPS_CUDA_EXACT_FORMAT_CUH
#define TERN_OPS_CUDA_EXACT_FORMAT_CUH

#include <cuda_fp16.h>

#include "ops/cuda/exact.cuh"

/* Bits of a weight in its row. */
static constexpr __host__ __device__ int exact_bits(int format)
{
  constexpr int bits[EXACT_FORMATS] = {32, 16, 16, 2, 3, 4, 5, 6, 8, 4, 8, 4, 8, 4};
  return bits[format];
}

static constexpr __host__ __device__ bool exact_affine(int format)
{
  return format >= EXACT_A2 && format <= EXACT_A8;
}

/* Formats that sum a group of values before they scale it, and their groups; 0: the others. */
static constexpr __host__ __device__ int exact_summed(int format)
{
  return format == EXACT_NVFP4 ? 16 : format == EXACT_MXFP4 || format == EXACT_MXFP8 ? 32 : 0;
}

/* What decodes the weights of a row from some k on. */
struct exact_how {
  float scale, bias;
  int shift; /* ternary: of the row's pair of bits */
};

/* Whether code * scale is exact for every code of 8 bits: |scale| < 2^119 keeps 255 * scale below 2^127. */
static inline __device__ bool exact_scale(float scale)
{
  uint32_t bits = __float_as_uint(scale);
  return (bits & 0xff) == 0 && (bits & 0x7fffffff) < 0x7b000000;
}

/* A scale or bias as it lies in memory, widened later: so that a load may be under way for long. */
static inline __device__ uint32_t exact_raw(ops_dtype stored, const uint8_t *data, int64_t i)
{
  return stored == DT_F32 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
}

static inline __device__ float exact_widen(ops_dtype stored, uint32_t raw)
{
  if (stored == DT_F16)
    return __half2float(__ushort_as_half((unsigned short)raw));
  return __uint_as_float(stored == DT_BF16 ? raw << 16 : raw);
}

/* The scale byte of a summed format (ref_fp_scale). */
template <int FORMAT> static inline __device__ float exact_fp_scale(uint32_t byte)
{
  if (FORMAT == EXACT_NVFP4)
    return __uint_as_float((byte & 0x7f) << 20 | (byte & 0x80) << 24) * 0x1p120f;
  return __uint_as_float(byte ? byte << 23 : 0x00400000);
}

/* Code i of a bit stream in registers. */
template <int BITS> static inline __device__ uint32_t exact_code(const uint32_t *words, int i)
{
  int at = i * BITS, word = at / 32, shift = at % 32;
  uint32_t low = shift + BITS > 32 ? __funnelshift_r(words[word], words[word + 1], shift) : words[word] >> shift;
  return low & ((1u << (BITS < 32 ? BITS : 0)) - 1);
}

/* 0..255 to float: two cheap instructions instead of a conversion, which run at a quarter of the rate. */
static inline __device__ float exact_float(uint32_t code)
{
  return __uint_as_float(code | 0x4b000000) - 8388608.0f;
}

template <int BITS> static inline __device__ float exact_code_float(const uint32_t *words, int i)
{
  if (BITS == 8) /* the byte under the top byte of 2^23 in one instruction */
    return __uint_as_float(__byte_perm(words[i / 4], 0x4b000000, 0x7440 | i % 4)) - 8388608.0f;
  return exact_float(exact_code<BITS>(words, i));
}

/* Weights 8 * piece .. of the words, as far as they are decoded before summing: summed formats are not yet scaled. */
template <int FORMAT>
static inline __device__ void exact_decode(const uint32_t *words, int piece, const exact_how &how, float (&value)[8])
{
  constexpr int BITS = exact_bits(FORMAT);
  if constexpr (exact_affine(FORMAT)) {
#pragma unroll
    for (int i = 0; i < 8; i++)
      value[i] = exact_code_float<BITS>(words, 8 * piece + i) * how.scale + how.bias;
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      uint32_t code = FORMAT == EXACT_F32 ? words[8 * piece + i] : exact_code<BITS>(words, 8 * piece + i);
      if (FORMAT == EXACT_F32)
        value[i] = __uint_as_float(code);
      else if (FORMAT == EXACT_BF16)
        value[i] = __uint_as_float(code << 16);
      else if (FORMAT == EXACT_F16)
        value[i] = __half2float(__ushort_as_half((unsigned short)code));
      else if (FORMAT == EXACT_TERNARY)
        value[i] = exact_float(code >> how.shift & 3) - 1.0f;
      else if (FORMAT == EXACT_MXFP8)
        value[i] = __uint_as_float((code & 0x7f) << 20 | (code & 0x80) << 24) * 0x1p120f;
      else
        value[i] = __uint_as_float((code & 7) << 22 | (code & 8) << 28) * 0x1p126f;
    }
  }
}

#endif
