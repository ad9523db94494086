/* rowwise_avx2.c - the row-wise ops of rowwise.h at SIMD level avx2. */
#define CPU_LEVEL 1
#include "ops/cpu/rowwise.h"
