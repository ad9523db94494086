/* probe_math.c - what the Python tests call of ops/math and base/half, over arrays. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/half.h"
#include "ops/math.h"
#include "probe.h"

static float bf16_widen(float bits)
{
  return bf16_to_f32((uint16_t)f32_bits(bits));
}

static float f16_widen(float bits)
{
  return f16_to_f32((uint16_t)f32_bits(bits));
}

static float bf16_narrow(float x)
{
  return f32_from_bits(bf16_from_f32(x));
}

static float f16_narrow(float x)
{
  return f32_from_bits(f16_from_f32(x));
}

static const struct {
  const char *name;
  float (*function)(float);
} functions[] = {
    {"exp", math_exp},
    {"sin", math_sin},
    {"cos", math_cos},
    {"erf", math_erf},
    {"erfinv", math_erfinv},
    {"log", math_log},
    {"log2", math_log2},
    {"log1p", math_log1p},
    {"expm1", math_expm1},
    {"tanh", math_tanh},
    {"c7", math_c7},
    {"bf16_widen", bf16_widen},
    {"f16_widen", f16_widen},
    {"bf16_narrow", bf16_narrow},
    {"f16_narrow", f16_narrow},
};

/* False: no such function. */
TERN_API bool probe_apply(const char *name, const float *x, float *y, size_t n)
{
  for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
    if (strcmp(functions[f].name, name) != 0)
      continue;
    for (size_t i = 0; i < n; i++)
      y[i] = functions[f].function(x[i]);
    return true;
  }
  return false;
}

TERN_API void probe_sigmoid(const float *x, const float *e, float *y, size_t n)
{
  for (size_t i = 0; i < n; i++)
    y[i] = math_sigmoid_of_exp(x[i], e[i]);
}

TERN_API void probe_pow(const float *x, const float *y, float *z, size_t n)
{
  for (size_t i = 0; i < n; i++)
    z[i] = math_pow(x[i], y[i]);
}
