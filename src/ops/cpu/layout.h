/* layout.h - the prepared layout of an affine matrix: the words of 16 rows side by side, so that a register is loaded
 * as it stands where the mapping's rows would have to be transposed (docs/ops-cpu.md has the rates).
 *
 *   head     64 bytes: LAYOUT_EXACT in the first word where scale * code is exact for all of it (weights.h), zeros
 *   panels   64 rows each, fewer in the last, which is filled up to whole blocks of 16 with zeros. B: its blocks
 *     groups   of w->group inputs, one after another:
 *       scales   [B][16] as stored      biases   [B][16] as stored
 *       words    [group * bits / 32][B][16] uint32: word i of 16 rows, as the checkpoint has it
 *
 * So one token reads a panel as one ascending stream. A block is 16 rows wide at every level: AVX2 takes it as two
 * halves. Everything stands at a multiple of 64 bytes from the head. The layout is part of a file's format
 * (model/prepared.h): whoever changes it raises LAYOUT_VERSION. Little-endian machines only.
 *
 * No layout: dense, ternary and fp modes, whose kernels read the mapping.
 */
#ifndef TERN_OPS_CPU_LAYOUT_H
#define TERN_OPS_CPU_LAYOUT_H

#include "ops/ops.h"

enum {
  LAYOUT_VERSION = 1,
  LAYOUT_BLOCK = 16, /* rows */
  LAYOUT_PANEL = 64, /* rows */
  LAYOUT_HEAD = 64,  /* bytes */
  LAYOUT_EXACT = 1,  /* flag */
};

extern const ops_layout cpu_layout;

/* ops_backend's `expect`: each worker is told the beginning of its share. */
void cpu_expect(ops_context *cx, const op_record *linear);

static inline int64_t layout_scale_bytes(const ops_weight *w)
{
  return w->stored == DT_F32 ? 4 : 2;
}

/* Bytes of one block of a group: scales, biases, words. */
static inline int64_t layout_group_bytes(const ops_weight *w)
{
  return LAYOUT_BLOCK * (2 * layout_scale_bytes(w) + w->group * w->bits / 8);
}

static inline int64_t layout_blocks(const ops_weight *w)
{
  return (w->n + LAYOUT_BLOCK - 1) / LAYOUT_BLOCK;
}

/* Where some rows of one panel stand: those from n0 on, n0 a multiple of a vector. */
typedef struct layout_place {
  const uint8_t *group; /* the panel's first group */
  int64_t blocks, row;  /* of the panel; n0's place in it */
} layout_place;

static inline layout_place layout_find(const ops_weight *w, int64_t n0)
{
  int64_t first = n0 / LAYOUT_PANEL * (LAYOUT_PANEL / LAYOUT_BLOCK), left = layout_blocks(w) - first;
  return (layout_place){
      .group = (const uint8_t *)w->packed + LAYOUT_HEAD + first * (w->k / w->group) * layout_group_bytes(w),
      .blocks = left < LAYOUT_PANEL / LAYOUT_BLOCK ? left : LAYOUT_PANEL / LAYOUT_BLOCK,
      .row = n0 % LAYOUT_PANEL,
  };
}

static inline bool layout_exact(const ops_weight *w)
{
  return *(const uint8_t *)w->packed & LAYOUT_EXACT;
}

#endif
