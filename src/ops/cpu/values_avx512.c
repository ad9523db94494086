/* values_avx512.c - the value-wise ops of values.h at SIMD level avx512. */
#define CPU_LEVEL 2
#include "ops/cpu/values.h"
