/* half.h - bfloat16 and float16 as the reference converts them (MLX types/bf16.h and types/fp16.h, software forms).
 *
 * To float is exact. From float rounds to nearest, ties to even; overflow gives infinity; NaN becomes 0x7FC0 (bf16) or
 * sign | 0x7D00 (f16), payload lost. Subnormals are honoured.
 */
#ifndef TERN_BASE_HALF_H
#define TERN_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/device.h"

static inline ON_DEVICE uint32_t f32_bits(float x)
{
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}

static inline ON_DEVICE float f32_from_bits(uint32_t u)
{
  float x;
  memcpy(&x, &u, 4);
  return x;
}

static inline ON_DEVICE float bf16_to_f32(uint16_t h)
{
  return f32_from_bits((uint32_t)h << 16);
}

static inline ON_DEVICE uint16_t bf16_from_f32(float x)
{
  uint32_t u = f32_bits(x);
  if ((u & 0x7fffffff) > 0x7f800000)
    return 0x7fc0;
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline ON_DEVICE float f16_to_f32(uint16_t h)
{
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = h & 0x7fff;
  if (magnitude >= 0x7c00) /* infinity and NaN keep their mantissa */
    return f32_from_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= 0x400)
    return f32_from_bits(sign | ((magnitude << 13) + 0x38000000));
  /* Subnormal: an integer count of 2^-24. */
  return f32_from_bits(sign | f32_bits((float)magnitude * 0x1p-24f));
}

static inline ON_DEVICE uint16_t f16_from_f32(float x)
{
  uint32_t u = f32_bits(x), sign = u >> 16 & 0x8000;
  u &= 0x7fffffff;
  if (u > 0x7f800000)
    return (uint16_t)(sign | 0x7d00);
  if (u >= 0x477ff000) /* 65520 and above round to infinity */
    return (uint16_t)(sign | 0x7c00);
  if (u < 0x38800000) { /* below 2^-14: adding 0.5 leaves the rounded count of 2^-24 in the low bits */
    float sum = f32_from_bits(u) + 0.5f;
    return (uint16_t)(sign | (f32_bits(sum) - 0x3f000000));
  }
  return (uint16_t)(sign | ((u + 0xfff + (u >> 13 & 1) - 0x38000000) >> 13));
}

#endif
