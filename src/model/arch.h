/* arch.h - what varies between decoders, as data.
 *
 * One `struct arch` row describes a type: which keys its config has and what the reference assumes where they are
 * absent, which of a small number of shapes its block takes, how tensors are named, and which tensors of a release are
 * dropped. model/config.c reads a config through it, model/weights.c binds by it, model/dense.c compiles it. A new
 * architecture that fits these axes is a row in model/arch/; one that does not brings an axis with it, never a branch
 * on its name elsewhere. docs/descriptor.md lists every axis with its users.
 *
 * Numbers and flags are not here but in struct model_config, even those that the reference fixes for a type: a row's
 * field table sets them with CFG_FIXED. Zero is the commonest value of every axis.
 */
#ifndef TERN_MODEL_ARCH_H
#define TERN_MODEL_ARCH_H

#include "format/config.h"
#include "model/config.h"

typedef enum arch_norm {
  NORM_RMS,          /* root mean square, times w */
  NORM_RMS_PLUS_ONE, /* times (1 + w), the sum rounded to w's stored type */
  NORM_RMS_BARE,     /* no weight */
  NORM_LAYER,        /* mean and deviation, times w, plus b where config.norm_bias */
  NORM_LAYER_PLUS_ONE,
  NORM_LAYER_BARE,
} arch_norm;

/* Norms of q and k between projection and attention. */
typedef enum arch_qk_norm {
  QK_NONE,
  QK_HEAD,       /* each head alone, one weight [head_dim] for all heads, of the kind `qk_kind` */
  QK_WIDE,       /* the whole projection, weight [heads * head_dim] */
  QK_HEAD_LAYER, /* layer norm of each head alone, a weight of its own for every head */
} arch_qk_norm;

/* How q, k and v lie in one fused matrix. */
typedef enum arch_pack {
  PACK_SEPARATE,
  PACK_QKV,     /* rows q | k | v */
  PACK_GROUPED, /* for each kv head: its query heads, its key, its value */
} arch_pack;

typedef enum arch_mlp {
  MLP_GATED,       /* down(act(gate x) * up x) */
  MLP_FUSED,       /* the same, gate | up in one matrix */
  MLP_FUSED_UP,    /* the same, up | gate */
  MLP_INTERLEAVED, /* the same, rows gate, up, gate, up, ... */
  MLP_PLAIN,       /* down(act(up x)) */
} arch_mlp;

typedef enum arch_head {
  HEAD_BY_CONFIG,  /* tied exactly if config.tied says so */
  HEAD_BY_ABSENCE, /* tied exactly if the checkpoint has no head */
  HEAD_OR_EMBED,   /* by config; untied and absent: a copy of the embedding */
} arch_head;

typedef enum arch_layers {
  LAYERS_FULL,       /* all alike */
  LAYERS_BY_TYPES,   /* layer_types: full_attention | sliding_attention; absent: all full */
  LAYERS_BY_TYPES_4, /* the same; absent: every fourth is full, the others slide */
  LAYERS_BY_PATTERN, /* layer i is full exactly if i % sliding_pattern == sliding_pattern - 1 */
  LAYERS_BY_LETTERS, /* sliding_window_pattern: a string of L (slides) and G (full), repeated; absent: all full */
} arch_layers;

typedef enum arch_scale {
  SCALE_HEAD_DIM,   /* head_dim^-0.5 */
  SCALE_PRE_SCALAR, /* query_pre_attn_scalar^-0.5 */
  SCALE_ROOT,       /* 1 / query_pre_attn_scalar^0.5: another double */
  SCALE_INVERSE,    /* sqrt(1 / head_dim): another one still */
  SCALE_KEY,        /* config.attention_scale as it is */
} arch_scale;

typedef enum arch_rope_on {
  ROPE_EVERYWHERE,
  ROPE_BY_LIST,        /* no_rope_layers: 1 means rope; absent: all but every no_rope_interval-th */
  ROPE_SLIDING,        /* layers that slide */
  ROPE_SLIDING_OR_ALL, /* the same, but all where none slides */
  ROPE_NOWHERE,
} arch_rope_on;

typedef enum arch_precision {
  PRECISION_STREAM, /* attention in the promoted type of q, k, v */
  PRECISION_MANUAL, /* the model multiplies by hand: scores in the type of q and k, sums over values in v's with theirs
                     */
  PRECISION_F32,    /* q is cast to float32 first, the result back */
  PRECISION_F32_HALF, /* the same where q is float16; bfloat16 stays */
} arch_precision;

/* Tensor names, without ".weight" or ".bias"; "{}" stands for the layer's number, "{h}" for a head's. NULL: the block
 * has no such thing. */
typedef struct arch_names {
  const char *embed, *positions, *final_norm, *head;
  const char *norm[4];                                          /* as BLOCK_* numbers them */
  const char *qkv;                                              /* where q, k, v are packed */
  const char *q, *k, *v, *o, *q_norm, *k_norm, *attention_norm; /* attention_norm: before o */
  const char *gate_up;                                          /* where both are fused */
  const char *gate, *up, *down, *mlp_norm, *act;                /* mlp_norm: before down. act: parameters of xielu */
  const char *attention_linear, *mlp_linear;                    /* what stands in for a layer's half (PART_LINEAR) */
} arch_names;

typedef enum arch_match {
  MATCH_CONTAINS,
  MATCH_EXACT,
  MATCH_PREFIX,
  MATCH_SUFFIX,
  MATCH_MODULE, /* the pattern's .weight, .scales or .biases */
} arch_match;
typedef enum arch_drop_when {
  DROP_ALWAYS,
  DROP_IF_TIED,
  DROP_IF_COPY, /* tied, and the tensor is the embedding's, byte for byte: wider than the reference, which refuses it */
} arch_drop_when;

/* A tensor that no part of the model reads, and that may be there nevertheless. */
typedef struct arch_drop {
  const char *pattern;
  arch_match match;
  arch_drop_when when;
} arch_drop;

/* Another spelling of names: where no tensor "to..." is there, "from..." is looked for. */
typedef struct arch_rename {
  const char *to, *from; /* prefixes; "" matches everything */
  bool transposed;       /* matrices of that spelling are stored [inputs, outputs] */
} arch_rename;

enum { ARCH_MAX_ALIASES = 4, ARCH_MAX_DROPS = 4, ARCH_MAX_RENAMES = 3, ARCH_MAX_WRAPS = 3 };

/* The reference's ternary product is a Metal kernel, which runs on no CPU: `corrected` of whatever holds such matrices.
 */
#define ARCH_CORRECTED_TERNARY                                                                                         \
  "its Metal kernel of ternary products is replaced by unpacking, a float32 matmul and the scale"

struct arch;

/* What a wrapper holds: the text model to use where text_config's model_type is `type`. */
typedef struct arch_wrap {
  const char *type; /* NULL: any other */
  const struct arch *text;
} arch_wrap;

typedef struct arch {
  const char *name; /* model_type */
  const char *aliases[ARCH_MAX_ALIASES];
  const cfg_field *fields; /* of struct model_config */
  size_t n_fields;
  /* What no table can express: sizes computed from others, per-layer lists. After the fields. */
  tern_status (*finish)(const cfg *c, cfg_scope scope, model_config *m, tern_error *err);
  arch_block block, block_unless_parallel; /* the second where config.parallel is false */
  arch_norm norm;
  arch_qk_norm qk_norm; /* where config.qk_norm */
  arch_norm qk_kind;    /* of QK_HEAD and QK_WIDE */
  bool qk_norm_late;    /* after rope */
  arch_pack pack;
  arch_mlp mlp;
  ops_act act;
  arch_scale scale;
  arch_precision precision;
  arch_head head;
  arch_layers layers;
  rope_kind rope, rope_local; /* of full layers; of layers that slide */
  arch_rope_on rope_on;
  bool embed_norm;      /* a bare norm after the embedding */
  bool embed_root;      /* the embedding is multiplied by sqrt(width) */
  bool embed_root_bf16; /* the same, the root rounded to bf16 first, whatever the stream */
  bool clip_f16;        /* residual sums in float16 are clamped to its largest value */
  bool kv_tiled;        /* query head h reads kv head h mod kv_heads, not h / (heads / kv_heads) */
  bool ternary;         /* linears but embedding and head hold packed ternary weights */
  bool own_caches;      /* the reference's model makes its own caches, so max_kv_size does not apply */
  bool windows_by_time; /* ... or does not, though layers slide: keys beyond the window are kept and masked */
  bool plain_keys;      /* the reference's block reads the cache's arrays itself and cannot have them quantised */
  /* What had to be put right in the reference before it gave numbers to compare with (tests/oracle/shims.py), as a
   * clause; NULL: nothing. It lowers the fidelity that a profile may claim. */
  const char *corrected;
  const arch_names *names;
  arch_rename renames[ARCH_MAX_RENAMES];
  arch_drop drops[ARCH_MAX_DROPS];
  /* Wrappers: a text model under a prefix of names and, mostly, in text_config. `fields` then replace those of the text
   * model that fill the same member, `root_fields` are read from the top of the config, `drops` match whole names, and
   * renames apply to names with the prefix. */
  arch_wrap wraps[ARCH_MAX_WRAPS];
  const char *prefix; /* "language_model." */
  const cfg_field *root_fields;
  size_t n_root_fields;
  bool copied_head; /* the wrapper does not run its text model's load rules: a tied head has to be a copy to be dropped
                     */
  bool flat_config; /* without text_config the top of the config is it */
} arch;

/* By model_type or alias; NULL: unknown. */
const arch *arch_find(const char *model_type);
/* Walks all rows: i from 0; NULL ends. */
const arch *arch_at(size_t i);

#endif
