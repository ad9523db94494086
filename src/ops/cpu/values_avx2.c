/* values_avx2.c - the value-wise ops of values.h at SIMD level avx2. */
#define CPU_LEVEL 1
#include "ops/cpu/values.h"
