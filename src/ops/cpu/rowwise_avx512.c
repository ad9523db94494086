/* rowwise_avx512.c - the row-wise ops of rowwise.h at SIMD level avx512. */
#define CPU_LEVEL 2
#include "ops/cpu/rowwise.h"
