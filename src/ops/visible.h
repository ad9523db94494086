/* visible.h - which keys a token sees, and in which order they are summed.
 *
 * Float sums depend on their order, so the order is part of the definition. It is the order in which the reference's
 * caches hold the keys:
 *
 *   no window    all positions up to the token's own, ascending.
 *   window W     ROW_READ: the last W positions, ascending (its own included).
 *                ROW_STEP: while p <= W (p = tokens so far, this one counted) positions 0..p-1, ascending. Then ring
 *                order: the `keep` first positions, and the last W - keep positions with the newest
 *                (p - max(split, W)) mod (W - keep) of them moved to the front.
 *
 * The ring order is that of mlx_lm.models.cache.RotatingKVCache fed with `split` tokens of prompt in one piece and then
 * one token at a time; physical layout has no part in it. It is written down here once; every backend uses it.
 */
#ifndef TERN_OPS_VISIBLE_H
#define TERN_OPS_VISIBLE_H

#include "ops/ops.h"

typedef struct ops_range {
  int64_t first, count;
} ops_range;

enum { VISIBLE_MOST = 3 };

/* Fills `out` with the ranges for the token at `position` (0-based), in summation order, none empty; returns how many.
 */
static inline ON_DEVICE int ops_visible(int window, int keep, int64_t position, int64_t split, ops_row_kind kind,
                                        ops_range out[VISIBLE_MOST])
{
  int64_t p = position + 1, w = window;
  if (w == 0 || p <= w) {
    out[0] = (ops_range){0, p};
    return 1;
  }
  if (kind == ROW_READ) {
    out[0] = (ops_range){p - w, w};
    return 1;
  }
  int64_t ring = w - keep, moved = (p - (split > w ? split : w)) % ring;
  int n = 0;
  if (keep)
    out[n++] = (ops_range){0, keep};
  if (moved)
    out[n++] = (ops_range){p - moved, moved};
  out[n++] = (ops_range){p - ring, ring - moved};
  return n;
}

/* Keys that a token sees. */
static inline ON_DEVICE int64_t ops_visible_count(int window, int64_t position)
{
  return window && position + 1 > window ? window : position + 1;
}

#endif
