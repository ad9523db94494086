/* weights.h - binding: from a checkpoint's tensors to the handles that a plan holds, and the audit of what is left.
 *
 * Every tensor that the architecture expects must be there with its shape; every tensor that is there must be bound or
 * matched by one of the architecture's drop rules. Whatever breaks either is listed by name, and the load fails.
 */
#ifndef TERN_MODEL_WEIGHTS_H
#define TERN_MODEL_WEIGHTS_H

#include "format/checkpoint.h"
#include "format/quant_config.h"
#include "model/arch.h"
#include "ops/ops.h"

/* A small vector (norm, bias) as floats, OWNED. `dtype` as arithmetic sees it. */
typedef struct weight_vector {
  float *values; /* backend memory; NULL: absent */
  ops_dtype dtype;
} weight_vector;

typedef struct layer_weights {
  weight_vector norm[4], q_norm, k_norm;
  ops_weight q, k, v, o, gate, up, down;
  weight_vector q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
} layer_weights;

typedef struct model_weights {
  ops_weight embed, head; /* head: a copy of embed's handle where tied */
  weight_vector final_norm;
  bool tied;
  layer_weights *layers; /* [layers] */
  size_t owned_bytes;    /* of vectors and packed layouts */
  size_t drop_matches[ARCH_MAX_DROPS];
} model_weights;

/* `native`: halves stay halves in arithmetic. `prepare`: let the backend make its packed layouts (false: handles only,
 * for inspect). On failure nothing is held. */
tern_status weights_bind(ops_context *cx, ckpt *c, const quant_config *q, const model_config *config, bool native,
                         bool prepare, model_weights *out, tern_error *err);
void weights_release(ops_context *cx, const model_config *config, model_weights *w);

#endif
