/* linear_avx512.c - the matrix products of linear.h at SIMD level avx512. */
#define CPU_LEVEL 2
#include "ops/cpu/linear.h"
