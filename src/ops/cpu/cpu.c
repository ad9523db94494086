/* cpu.c - placeholder table until SIMD levels land: every level is the reference. */
#include "ops/ops.h"

const char *ops_simd_name(ops_simd level)
{
  static const char *const names[SIMD_LEVELS] = {"baseline", "avx2", "avx512"};
  return names[level];
}

ops_simd ops_simd_best(void)
{
  return SIMD_BASELINE;
}

const ops_backend *ops_cpu(ops_simd level)
{
  return level == SIMD_BASELINE ? ops_ref() : NULL;
}
