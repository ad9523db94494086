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

/* A small vector (norm, bias) as floats. `dtype` as arithmetic sees it. */
typedef struct weight_vector {
  float *values; /* backend memory; NULL: absent */
  ops_dtype dtype;
  bool borrowed; /* a part of another vector's memory */
} weight_vector;

/* One layer. Where a release fuses matrices whose rows follow each other, q, k, v, gate and up are views of the fused
 * one; where rows alternate, they stay empty and the plan takes the product apart. A half that is one matrix
 * (PART_LINEAR) has it in o or down. */
typedef struct layer_weights {
  weight_vector norm[4], norm_bias[4], q_norm, k_norm, attention_norm, mlp_norm;
  ops_weight qkv, gate_up;
  ops_weight q, k, v, o, gate, up, down;
  weight_vector qkv_bias, gate_up_bias;
  weight_vector q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
  float act[4]; /* ACT_XIELU: as struct op_act wants them */
  ops_dtype act_dtype;
} layer_weights;

typedef struct weight_drop { /* a drop rule and how many tensors it matched */
  const arch_drop *rule;
  size_t matched;
} weight_drop;

typedef struct model_weights {
  ops_weight embed, head; /* head: a copy of embed's handle where tied */
  ops_weight positions;   /* data NULL: none */
  weight_vector final_norm, final_norm_bias, head_bias;
  bool tied;             /* the head is the embedding, by right */
  layer_weights *layers; /* [layers] */
  size_t owned_bytes;    /* of vectors, turned matrices and packed layouts */
  weight_drop drops[2 * ARCH_MAX_DROPS];
  size_t n_drops;
} model_weights;

/* How many there are, and the first few (mem_free; NULL where memory ran out). */
enum { WEIGHTS_NAMED = 6 };
typedef struct weights_names {
  size_t count;
  char *names[WEIGHTS_NAMED];
} weights_names;

/* What a model and a checkpoint do not have in common. */
typedef struct weights_gap {
  weights_names missing; /* expected, not there */
  weights_names left;    /* there, no part of the model */
} weights_gap;

/* By names alone: no shape is looked at, no data read. Unlike binding it goes on, to the end. Takes off all marks
 * first. Of `config` only what decides which tensors there are is read; every layer must have a head. */
tern_status weights_compare(ckpt *c, const quant_config *q, const model_config *config, weights_gap *out,
                            tern_error *err);
void weights_gap_free(weights_gap *gap); /* a zeroed one is fine */

/* `native`: halves stay halves in arithmetic. `prepare`: let the backend make its packed layouts (false: not, for
 * inspect). On failure nothing is held. */
tern_status weights_bind(ops_context *cx, ckpt *c, const quant_config *q, const model_config *config, bool native,
                         bool prepare, model_weights *out, tern_error *err);
/* Calls visit with each matrix that a product reads whole, in the order of the layers; the first failure ends it. */
typedef tern_status weights_visit(void *user, ops_weight *w, tern_error *err);
tern_status weights_each_product(model_weights *w, int layers, weights_visit *visit, void *user, tern_error *err);
void weights_release(ops_context *cx, const model_config *config, model_weights *w);

#endif
