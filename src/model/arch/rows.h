/* rows.h - the rows, one declaration each, and the bounds that config values must keep (sizes that fit every index
 * computation downstream; far above any published model). */
#ifndef TERN_MODEL_ARCH_ROWS_H
#define TERN_MODEL_ARCH_ROWS_H

#include <limits.h>

#include "model/arch.h"

enum {
  ARCH_WIDEST = 1 << 20,
  ARCH_WIDEST_HEAD = 1 << 14,
  ARCH_MOST_HEADS = 1 << 14,
  ARCH_MOST_WORDS = 1 << 26,
  ARCH_WIDEST_WINDOW = 1 << 28,
};
#define ARCH_LEAST_BASE 1e-3
#define ARCH_MOST_BASE 1e30

extern const arch arch_llama, arch_qwen2, arch_qwen3, arch_gemma3_text;

#endif
