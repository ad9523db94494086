/* rope.h - from a rope setting to the table that op_rope takes.
 *
 * Each kind follows the reference (mlx-lm 0.31.3) operation by operation: what Python computes there is computed in
 * double here, what an mx array computes is computed in float32, in the same order. ROPE_FACTORY is
 * mlx_lm/models/rope_utils.py: default, mrope (three sections; plain for text), linear, llama3, yarn (deepseek_yarn,
 * telechat3-yarn), longrope, proportional; every other kind is refused there and here. The rest of rope_kind are what
 * single model files of the reference build for themselves.
 */
#ifndef TERN_MODEL_ROPE_H
#define TERN_MODEL_ROPE_H

#include "model/config.h"

typedef struct rope_table {
  float *inverse; /* [dims / 2] inverse frequencies; mem_free */
  int dims;
  bool traditional;
  float position_scale; /* linear: 1 / factor */
  float mscale;         /* multiplies the rotated values of q and k; 1: none */
  int ntk_from;         /* lengths above it grow the base (struct op_rope); 0: never */
  double ntk_base, ntk_scale;
} rope_table;

/* `where` begins the messages ("config.json: rope_scaling"). */
tern_status rope_make(const rope_config *config, const char *where, rope_table *out, tern_error *err);
/* What a rope_scaling object calls itself: "type" where it is text and not empty, else "rope_type", else "default". */
const char *rope_type_name(const json_t *scaling);
void rope_free(rope_table *table);

#endif
