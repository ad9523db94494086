/* linear_neon.c - the matrix products of linear.h at SIMD level neon. */
#define CPU_LEVEL 3
#include "ops/cpu/linear.h"
