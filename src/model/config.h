/* config.h - the normalised configuration: what config.json means, after aliases and the reference's defaults.
 *
 * Filled once by model_config_read through the architecture's table; nothing later looks at config.json.
 */
#ifndef TERN_MODEL_CONFIG_H
#define TERN_MODEL_CONFIG_H

#include "format/config.h"
#include "ops/ops.h"

struct arch;

/* A rope setting, as initialize_rope of the reference takes it. */
typedef struct rope_config {
  double base;
  int dims; /* rotated */
  bool traditional;
  const json_t *scaling; /* rope_scaling; NULL: none. Borrowed from the cfg */
  int max_positions;     /* 0: not declared */
} rope_config;

enum { MODEL_MAX_LAYERS = 1024 };

typedef struct model_config {
  const struct arch *arch;
  int width, layers, heads, kv_heads, head_dim, ffn, vocab;
  int max_positions; /* 0: not declared */
  double norm_eps;
  double rope_theta, rope_local_theta;
  bool rope_traditional, attention_bias, mlp_bias;
  bool tied; /* by config; arch HEAD_BY_ABSENCE decides at binding */
  double query_pre_attn_scalar;
  int sliding_window, sliding_pattern; /* 0: absent */
  const json_t *rope_scaling;
  uint8_t sliding[MODEL_MAX_LAYERS]; /* layer i sees a window */
} model_config;

/* Reads and checks. Errors name the key. Unknown layer types, divisions that leave a rest and sizes out of range are
 * refused here, so that later rooms need no checks. */
tern_status model_config_read(const cfg *c, const struct arch *arch, model_config *out, tern_error *err);
/* The rope of a layer. */
rope_config model_config_rope(const model_config *c, int layer);
/* The attention scale, a double as in the reference. */
double model_config_scale(const model_config *c);

#endif
