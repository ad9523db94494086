/* value.h - single values of the types that arithmetic knows: rounding to one, and reading one from memory. */
#ifndef TERN_OPS_VALUE_H
#define TERN_OPS_VALUE_H

#include "base/half.h"
#include "ops/ops.h"

/* x as the type holds it. */
static inline ON_DEVICE float ops_round(ops_dtype type, float x)
{
  switch (type) {
  case DT_BF16:
    return bf16_to_f32(bf16_from_f32(x));
  case DT_F16:
    return f16_to_f32(f16_from_f32(x));
  default:
    return x;
  }
}

/* Element i of an array of `type` at any byte offset. */
static inline ON_DEVICE float ops_load(ops_dtype type, const uint8_t *data, int64_t i)
{
  uint16_t half;
  if (type == DT_F32) {
    float x;
    memcpy(&x, data + 4 * i, 4);
    return x;
  }
  memcpy(&half, data + 2 * i, 2);
  return type == DT_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

#endif
