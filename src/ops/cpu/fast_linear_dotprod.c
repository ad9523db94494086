/* fast_linear_dotprod.c - the matrix products of fast_linear.h at SIMD level dotprod. */
#define CPU_LEVEL 3
#define CPU_DOTPROD 1
#include "ops/cpu/fast_linear.h"
