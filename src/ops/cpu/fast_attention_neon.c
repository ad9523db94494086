/* fast_attention_neon.c - the attention of fast_attention.h at SIMD level neon. */
#define CPU_LEVEL 3
#include "ops/cpu/fast_attention.h"
