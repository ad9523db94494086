/* values_neon.c - the value-wise ops of values.h at SIMD level neon. */
#define CPU_LEVEL 3
#include "ops/cpu/values.h"
