/* fast_linear_avx512.c - the matrix products of fast_linear.h at SIMD level avx512. */
#define CPU_LEVEL 2
#include "ops/cpu/fast_linear.h"
