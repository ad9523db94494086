/* fast_linear_i8mm.c - the matrix products of fast_linear.h at SIMD level i8mm. */
#define CPU_LEVEL 3
#define CPU_DOTPROD 1
#define CPU_I8MM 1
#include "ops/cpu/fast_linear.h"
