/* math.c - the slow ends of math.h: the inverse error function and the re-parse of compiled constants. */
#include "ops/math.h"

#include <stdio.h>
#include <stdlib.h>

/* M. Giles's approximation in the single-precision form that MLX took over (simd/math.h): two polynomials in
 * t = log(1 - a^2), cut at |t| = 6.125. */
float math_erfinv(float a)
{
  static const float far[9] = {0x1.4deb44p-32f, 0x1.f7c9aep-26f, 0x1.47e512p-20f, 0x1.dca7dep-16f, 0x1.9cab92p-12f,
                               0x1.8cc0dep-9f,  0x1.3ca92p-8f,   -0x1.0eff66p-2f, 0x1.ae16a4p-1f};
  static const float near[10] = {0x1.75cp-28f,    0x1.33b402p-23f, 0x1.499232p-20f, 0x1.e52cd2p-24f, -0x1.d70bdp-15f,
                                 -0x1.35be9p-13f, 0x1.2f64p-9f,    0x1.7a1e5p-7f,   -0x1.db2aeep-3f, 0x1.c5bf88p-1f};
  float t = math_log(math_fma(a, 0.0f - a, 1.0f));
  int n = fabsf(t) > 6.125f ? 9 : 10;
  const float *c = n == 9 ? far : near;
  float p = c[0];
  for (int i = 1; i < n; i++)
    p = math_fma(p, t, c[i]);
  return a * p;
}

float math_c7(float x)
{
  char digits[32];
  snprintf(digits, sizeof digits, "%.7g", (double)x);
  return (float)strtod(digits, NULL);
}
