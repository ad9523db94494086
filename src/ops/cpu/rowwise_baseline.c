/* rowwise_baseline.c - the row-wise ops of rowwise.h at SIMD level baseline. */
#define CPU_LEVEL 0
#include "ops/cpu/rowwise.h"
