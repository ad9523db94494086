/* config.h - the normalised configuration: what config.json means, after aliases and the reference's defaults.
 *
 * Filled once by model_config_read through the architecture's table; nothing later looks at config.json.
 */
#ifndef TERN_MODEL_CONFIG_H
#define TERN_MODEL_CONFIG_H

#include "format/config.h"
#include "ops/ops.h"

struct arch;

typedef enum arch_block {
  BLOCK_PRE,       /* x += A(n0 x);      x += M(n1 x) */
  BLOCK_POST,      /* x += n0(A x);      x += n1(M x) */
  BLOCK_SANDWICH,  /* x += n1(A(n0 x));  x += n3(M(n2 x)) */
  BLOCK_PARALLEL,  /* x = (A(n0 x) + M(n0 x)) + x */
  BLOCK_PARALLEL2, /* x = (A(n0 x) + M(n1 x)) + x */
  BLOCK_FORKED,    /* x = (x + A(n0 x)) + M(n0 x) */
} arch_block;

/* From rope settings to frequencies; model/rope.h has the formulas. */
typedef enum rope_kind {
  ROPE_SAME,      /* in descriptors, of layers that slide: as full layers */
  ROPE_FACTORY,   /* the reference's initialize_rope: every kind that rope_scaling may name */
  ROPE_PLAIN,     /* rope_scaling is not read */
  ROPE_LINEAR,    /* rope_scaling may say "linear" */
  ROPE_SU,        /* rope_scaling may say "longrope" or "su" (original length at the config's top) or "linear" */
  ROPE_NTK,       /* positions doubled unless "linear", a base that grows with the length */
  ROPE_NTK_ALPHA, /* base * alpha^(dims / (dims - 2)) */
  ROPE_BACKWARD,  /* rotates the other way */
} rope_kind;

/* A rope setting. */
typedef struct rope_config {
  rope_kind kind;
  double base;
  int dims; /* rotated */
  bool traditional;
  const json_t *scaling;  /* rope_scaling; NULL: none. Borrowed from the cfg */
  int max_positions;      /* 0: not declared */
  int original_positions; /* ROPE_SU */
} rope_config;

enum { MODEL_MAX_LAYERS = 1024, MODEL_ROPES = 2 };

/* What a half of a block is. */
typedef enum layer_part {
  PART_USUAL,
  PART_NONE,   /* not there, its norm neither */
  PART_LINEAR, /* one matrix in its place */
} layer_part;

typedef struct layer_config {
  int heads, kv_heads, ffn; /* 0: the model's */
  int8_t rope;              /* which of model_config.ropes; -1: none */
  bool sliding;             /* sees a window */
  uint8_t attention, mlp;   /* layer_part */
} layer_config;

typedef struct model_config {
  const struct arch *arch;    /* of the text model */
  const struct arch *wrapper; /* NULL: none */
  int width, layers, heads, kv_heads, head_dim, ffn, vocab;
  int max_positions; /* 0: not declared */
  double norm_eps;
  bool bias_qkv, bias_o, bias_mlp, bias_head; /* which linears have one */
  bool norm_bias, qk_norm, parallel;          /* true unless the config can say otherwise */
  bool tied;                                  /* by config; arch HEAD_* decides at binding */
  double embed_scale, residual_scale;         /* 1: none */
  double logit_scale, logit_divisor,
      head_divisor; /* 1: none. head_divisor: of the hidden state before an untied head */
  double attention_scale, query_pre_attn_scalar;
  double attention_softcap, logit_softcap; /* 0: none */
  double act_limit;                        /* ACT_GEGELU */
  const char *act;                         /* NULL: the architecture's */
  double rope_theta, rope_local_theta;     /* local: of layers that slide; 0: the same */
  double rotary_factor;                    /* the rotated share of head_dim */
  bool rope_traditional;
  int original_positions;
  double temperature_beta; /* 0: none */
  int temperature_span;
  int sliding_window, sliding_pattern, no_rope_interval;       /* 0: absent */
  int sparse_every, sparse_block, sparse_local, sparse_stride; /* every n-th layer from the first; 0: none */
  const json_t *rope_scaling;
  rope_config ropes[MODEL_ROPES]; /* of full layers; of layers that slide */
  layer_config layer[MODEL_MAX_LAYERS];
} model_config;

/* Table rows for what a type fixes. */
#define CFG_FIXED_INT(member, value) CFG_INT_OR(model_config, member, "", value, 0, 0)
#define CFG_FIXED_FLOAT(member, value) CFG_FLOAT_OR(model_config, member, "", value, 0, 0)
#define CFG_FIXED_BOOL(member, value) CFG_BOOL_OR(model_config, member, "", value)

/* Reads and checks, `a` being the row that config.json's model_type names. Errors name the key. Unknown layer types,
 * divisions that leave a rest and sizes out of range are refused here, so that later rooms need no checks. */
tern_status model_config_read(const cfg *c, const struct arch *a, model_config *out, tern_error *err);
/* As much as a config that the row cannot read says of which tensors there are: what is absent or wrong gets its
 * default or the least size, `layers` where their number is not said. `missing` (not NULL) hears of each required key
 * that is absent, by its first spelling. Marks what the row's table reads. Not for running: sizes may be made up. */
typedef void model_config_missing(void *user, cfg_scope scope, const char *key);
void model_config_sketch(const cfg *c, const struct arch *a, int layers, model_config *out,
                         model_config_missing *missing, void *user);
/* The block's shape, which config.parallel may decide. */
arch_block model_config_block(const model_config *c);
/* The attention scale, a double as in the reference. */
double model_config_scale(const model_config *c);
/* The activation, which config.act may name. */
tern_status model_config_act(const model_config *c, ops_act *out, tern_error *err);

#endif
