/* linear_baseline.c - the matrix products of linear.h at SIMD level baseline. */
#define CPU_LEVEL 0
#include "ops/cpu/linear.h"
