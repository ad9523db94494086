/* fast_attention_avx512.c - the attention of fast_attention.h at SIMD level avx512. */
#define CPU_LEVEL 2
#include "ops/cpu/fast_attention.h"
