/* arch.h - what varies between decoders, as data.
 *
 * One `struct arch` row describes a family: which keys its config has and what the reference assumes where they are
 * absent, which of a small number of shapes its block takes, how tensors are named, and which tensors of a release are
 * dropped. model/config.c reads a config through it, model/weights.c binds by it, model/plan.c compiles it. A new
 * architecture that fits these axes is a row in model/arch/; one that does not brings an axis with it, never a branch
 * on its name elsewhere.
 */
#ifndef TERN_MODEL_ARCH_H
#define TERN_MODEL_ARCH_H

#include "format/config.h"
#include "model/config.h"

typedef enum arch_block {
  BLOCK_PRE,      /* x += A(n1 x);        x += M(n2 x) */
  BLOCK_SANDWICH, /* x += n2(A(n1 x));    x += n4(M(n3 x)) */
} arch_block;

typedef enum arch_norm {
  NORM_RMS,          /* times w */
  NORM_RMS_PLUS_ONE, /* times (1 + w), the sum rounded to w's stored type */
} arch_norm;

typedef enum arch_bias { BIAS_NEVER, BIAS_ALWAYS, BIAS_ATTENTION_KEY, BIAS_MLP_KEY } arch_bias;

typedef enum arch_head {
  HEAD_BY_CONFIG,  /* tied exactly if tie_word_embeddings says so */
  HEAD_BY_ABSENCE, /* tied exactly if the checkpoint has no lm_head.weight */
} arch_head;

typedef enum arch_layers {
  LAYERS_FULL,       /* all alike */
  LAYERS_BY_TYPES,   /* layer_types: full_attention | sliding_attention */
  LAYERS_BY_PATTERN, /* layer i is full exactly if i % pattern == pattern - 1 */
} arch_layers;

typedef enum arch_scale {
  SCALE_HEAD_DIM,  /* head_dim^-0.5 */
  SCALE_PRE_SCALAR /* query_pre_attn_scalar^-0.5 */
} arch_scale;

/* Tensor names, without ".weight" or ".bias"; "{}" stands for the layer's number. NULL: the block has no such thing. */
typedef struct arch_names {
  const char *embed, *final_norm, *head;
  const char *norm[4]; /* as BLOCK_* numbers them, from 0 */
  const char *q, *k, *v, *o, *q_norm, *k_norm;
  const char *gate, *up, *down;
} arch_names;

typedef enum arch_drop_when { DROP_ALWAYS, DROP_IF_TIED } arch_drop_when;

/* A tensor that the reference drops at load. */
typedef struct arch_drop {
  const char *pattern; /* a substring of its name, or the whole name where `exact` */
  bool exact;
  arch_drop_when when;
} arch_drop;

enum { ARCH_MAX_ALIASES = 4, ARCH_MAX_DROPS = 4 };

typedef struct arch {
  const char *name; /* model_type */
  const char *aliases[ARCH_MAX_ALIASES];
  const cfg_field *fields; /* of struct model_config */
  size_t n_fields;
  arch_block block;
  arch_norm norm;
  bool qk_norm; /* per head, of the block's norm kind, before rope */
  arch_bias bias_qkv, bias_o, bias_mlp;
  ops_act act;
  arch_scale scale;
  arch_head head;
  arch_layers layers;
  bool embed_scale; /* by sqrt(width) rounded to bf16 */
  bool clip_f16;    /* residual sums in float16 are clamped to its largest value */
  bool local_rope;  /* sliding layers: base rope_local_base_freq, no scaling */
  bool own_caches;  /* the reference's model makes its own caches, so max_kv_size does not apply */
  const arch_names *names;
  arch_drop drops[ARCH_MAX_DROPS];
} arch;

/* By model_type or alias; NULL: unknown. */
const arch *arch_find(const char *model_type);
/* Walks all rows: i from 0; NULL ends. */
const arch *arch_at(size_t i);
/* The names that most decoders share. */
extern const arch_names arch_llama_names;
/* A line that lists what is known, into out. For messages. */
const char *arch_list(char *out, size_t size);

#endif
