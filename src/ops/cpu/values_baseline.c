/* values_baseline.c - the value-wise ops of values.h at SIMD level baseline. */
#define CPU_LEVEL 0
#include "ops/cpu/values.h"
