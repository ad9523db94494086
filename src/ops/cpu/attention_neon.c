/* attention_neon.c - the attention of attention.h at SIMD level neon. */
#define CPU_LEVEL 3
#include "ops/cpu/attention.h"
