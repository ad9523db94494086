/* linear_avx2.c - the matrix products of linear.h at SIMD level avx2. */
#define CPU_LEVEL 1
#include "ops/cpu/linear.h"
