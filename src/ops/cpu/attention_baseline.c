/* attention_baseline.c - the attention of attention.h at SIMD level baseline. */
#define CPU_LEVEL 0
#include "ops/cpu/attention.h"
