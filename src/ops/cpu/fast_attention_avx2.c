/* fast_attention_avx2.c - the attention of fast_attention.h at SIMD level avx2. */
#define CPU_LEVEL 1
#include "ops/cpu/fast_attention.h"
