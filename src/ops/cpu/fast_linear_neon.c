/* fast_linear_neon.c - the matrix products of fast_linear.h at SIMD level neon. */
#define CPU_LEVEL 3
#include "ops/cpu/fast_linear.h"
