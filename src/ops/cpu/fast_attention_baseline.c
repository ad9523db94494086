/* fast_attention_baseline.c - the attention of fast_attention.h at SIMD level baseline. */
#define CPU_LEVEL 0
#include "ops/cpu/fast_attention.h"
