/* fast_linear_avxvnni.c - the matrix products of fast_linear.h at SIMD level avxvnni. */
#define CPU_LEVEL 1
#define CPU_VNNI 1
#include "ops/cpu/fast_linear.h"
