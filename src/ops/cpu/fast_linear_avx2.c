/* fast_linear_avx2.c - the matrix products of fast_linear.h at SIMD level avx2. */
#define CPU_LEVEL 1
#include "ops/cpu/fast_linear.h"
