/* fast_linear_avx512vnni.c - the matrix products of fast_linear.h at SIMD level avx512vnni. */
#define CPU_LEVEL 2
#define CPU_VNNI 1
#include "ops/cpu/fast_linear.h"
