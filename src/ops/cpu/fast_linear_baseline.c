/* fast_linear_baseline.c - the matrix products of fast_linear.h at SIMD level baseline. */
#define CPU_LEVEL 0
#include "ops/cpu/fast_linear.h"
