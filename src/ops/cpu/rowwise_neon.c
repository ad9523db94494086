/* rowwise_neon.c - the row-wise ops of rowwise.h at SIMD level neon. */
#define CPU_LEVEL 3
#include "ops/cpu/rowwise.h"
