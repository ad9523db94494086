/* rows.h - what rows share: short names for the kinds of table rows, the bounds that config values must keep (sizes
 * that fit every index computation downstream; far above any published model), and pieces that many rows repeat. */
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

/* One key each. Where a function of the same shape takes a default, the key may be absent. */
#define WIDTH(keys) CFG_INT_REQUIRED(model_config, width, keys, 1, ARCH_WIDEST)
#define WIDTH_OR(keys, value) CFG_INT_OR(model_config, width, keys, value, 1, ARCH_WIDEST)
#define LAYERS(keys) CFG_INT_REQUIRED(model_config, layers, keys, 1, MODEL_MAX_LAYERS)
#define LAYERS_OR(keys, value) CFG_INT_OR(model_config, layers, keys, value, 1, MODEL_MAX_LAYERS)
#define FFN(keys) CFG_INT_REQUIRED(model_config, ffn, keys, 1, ARCH_WIDEST)
#define FFN_OR(keys, value) CFG_INT_OR(model_config, ffn, keys, value, 1, ARCH_WIDEST)
#define HEADS(keys) CFG_INT_REQUIRED(model_config, heads, keys, 1, ARCH_MOST_HEADS)
#define HEADS_OR(keys, value) CFG_INT_OR(model_config, heads, keys, value, 1, ARCH_MOST_HEADS)
#define KV_HEADS(keys) CFG_INT_REQUIRED(model_config, kv_heads, keys, 1, ARCH_MOST_HEADS)
#define KV_HEADS_OR(keys, value) CFG_INT_OR(model_config, kv_heads, keys, value, 1, ARCH_MOST_HEADS)
#define HEAD_DIM CFG_INT_REQUIRED(model_config, head_dim, "head_dim", 1, ARCH_WIDEST_HEAD)
#define HEAD_DIM_OR(value) CFG_INT_OR(model_config, head_dim, "head_dim", value, 0, ARCH_WIDEST_HEAD)
#define VOCAB(keys) CFG_INT_REQUIRED(model_config, vocab, keys, 1, ARCH_MOST_WORDS)
#define VOCAB_OR(keys, value) CFG_INT_OR(model_config, vocab, keys, value, 1, ARCH_MOST_WORDS)
#define POSITIONS(keys) CFG_INT_REQUIRED(model_config, max_positions, keys, 1, INT_MAX)
#define POSITIONS_OR(keys, value) CFG_INT_OR(model_config, max_positions, keys, value, 1, INT_MAX)
#define EPS(keys) CFG_FLOAT_REQUIRED(model_config, norm_eps, keys, 0, 1)
#define EPS_OR(keys, value) CFG_FLOAT_OR(model_config, norm_eps, keys, value, 0, 1)
#define THETA(keys) CFG_FLOAT_REQUIRED(model_config, rope_theta, keys, ARCH_LEAST_BASE, ARCH_MOST_BASE)
#define THETA_OR(keys, value) CFG_FLOAT_OR(model_config, rope_theta, keys, value, ARCH_LEAST_BASE, ARCH_MOST_BASE)
#define ROTARY(keys) CFG_FLOAT_REQUIRED(model_config, rotary_factor, keys, 0, 1)
#define ROTARY_OR(keys, value) CFG_FLOAT_OR(model_config, rotary_factor, keys, value, 0, 1)
#define WINDOW_OR(value) CFG_INT_OR(model_config, sliding_window, "sliding_window", value, 1, ARCH_WIDEST_WINDOW)
#define FLAG(member, keys) CFG_BOOL_REQUIRED(model_config, member, keys)
#define FLAG_OR(member, keys, value) CFG_BOOL_OR(model_config, member, keys, value)
#define FACTOR(member, keys) CFG_FLOAT_REQUIRED(model_config, member, keys, -1e9, 1e9)
#define FACTOR_OR(member, keys, value) CFG_FLOAT_OR(model_config, member, keys, value, -1e9, 1e9)
#define TIED FLAG(tied, "tie_word_embeddings")
#define TIED_OR(value) FLAG_OR(tied, "tie_word_embeddings", value)
#define TRADITIONAL_OR(value) FLAG_OR(rope_traditional, "rope_traditional", value)
#define ALWAYS(member) CFG_FIXED_BOOL(member, true)
#define NEVER(member) CFG_FIXED_BOOL(member, false)

/* The sizes that most configs spell alike. */
#define USUAL_SIZES                                                                                                    \
  WIDTH("hidden_size"), LAYERS("num_hidden_layers"), FFN("intermediate_size"), HEADS("num_attention_heads"),           \
      VOCAB("vocab_size")
#define USUAL_KV_HEADS KV_HEADS("num_key_value_heads")
#define USUAL_KV_HEADS_OR_ALL KV_HEADS_OR("num_key_value_heads", 0)
#define RMS_EPS EPS("rms_norm_eps")

#define FIELDS(table) .fields = (table), .n_fields = sizeof(table) / sizeof *(table)

/* Old checkpoints carry the rope's frequencies as a tensor; tied models may carry their head. */
#define DROP_INV_FREQ                                                                                                  \
  {                                                                                                                    \
    .pattern = "self_attn.rotary_emb.inv_freq"                                                                         \
  }
#define DROP_TIED_HEAD                                                                                                 \
  {                                                                                                                    \
    .pattern = "lm_head.weight", .match = MATCH_EXACT, .when = DROP_IF_TIED                                            \
  }
/* Where the reference has no such rule and refuses the file, the head has to be the copy that it is taken for. */
#define DROP_COPY(name)                                                                                                \
  {                                                                                                                    \
    .pattern = (name), .match = MATCH_MODULE, .when = DROP_IF_COPY                                                     \
  }
#define DROP_COPIED_HEAD DROP_COPY("lm_head")

/* Names that most decoders share: all of llama's, or its attention alone, or its gated unit alone. */
#define LLAMA_ATTENTION                                                                                                \
  .q = "model.layers.{}.self_attn.q_proj", .k = "model.layers.{}.self_attn.k_proj",                                    \
  .v = "model.layers.{}.self_attn.v_proj", .o = "model.layers.{}.self_attn.o_proj"
#define LLAMA_QK_NORMS .q_norm = "model.layers.{}.self_attn.q_norm", .k_norm = "model.layers.{}.self_attn.k_norm"
#define LLAMA_MLP                                                                                                      \
  .gate = "model.layers.{}.mlp.gate_proj", .up = "model.layers.{}.mlp.up_proj", .down = "model.layers.{}.mlp.down_proj"
#define LLAMA_FRAME .embed = "model.embed_tokens", .final_norm = "model.norm", .head = "lm_head"
#define LLAMA_NORMS .norm = {"model.layers.{}.input_layernorm", "model.layers.{}.post_attention_layernorm"}
extern const arch_names arch_llama_names;

/* A finish: width has to be heads * head_dim, as the reference checks. */
tern_status arch_heads_fill_width(const cfg *c, cfg_scope scope, model_config *m, tern_error *err);

/* The rows, by file. */
extern const arch arch_llama, arch_qwen2, arch_qwen3, arch_mimo, arch_seed_oss, arch_telechat3, arch_smollm3,
    arch_ministral3, arch_helium, arch_ernie4_5, arch_granite, arch_minicpm; /* llama.c */
extern const arch arch_glm, arch_glm4;                                       /* glm.c */
extern const arch arch_internlm2, arch_internlm3;                            /* internlm.c */
extern const arch arch_exaone, arch_exaone4;                                 /* exaone.c */
extern const arch arch_phi, arch_phi3, arch_phi3small;                       /* phi.c */
extern const arch arch_lille, arch_qwen, arch_apertus, arch_hunyuan_v1_dense, arch_bitnet, arch_llama4_text, arch_plamo,
    arch_nanochat;                                           /* kin.c */
extern const arch arch_openelm, arch_nemotron_nas;           /* by_layer.c */
extern const arch arch_olmo, arch_olmo2, arch_olmo3;         /* olmo.c */
extern const arch arch_gemma, arch_gemma2, arch_gemma3_text; /* gemma.c */
extern const arch arch_starcoder2, arch_stablelm, arch_nemotron, arch_gpt_neox, arch_gpt2, arch_gpt_bigcode; /* gpt.c */
extern const arch arch_cohere, arch_cohere2;                                              /* cohere.c */
extern const arch arch_gemma3, arch_mistral3, arch_pixtral, arch_qwen2_vl, arch_qwen3_vl; /* wrappers.c */

#endif
