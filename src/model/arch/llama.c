/* llama.c - llama (mistral and iquestcoder are the same), qwen2 and qwen3: pre-norm blocks, RMS norm, silu-gated unit.
 *
 * Defaults and required keys are those of the reference's ModelArgs. Keys that its class does not read are ignored here
 * too, as they are in every model that it runs. */
#include "model/arch/rows.h"

const arch_names arch_llama_names = {
    .embed = "model.embed_tokens",
    .final_norm = "model.norm",
    .head = "lm_head",
    .norm = {"model.layers.{}.input_layernorm", "model.layers.{}.post_attention_layernorm"},
    .q = "model.layers.{}.self_attn.q_proj",
    .k = "model.layers.{}.self_attn.k_proj",
    .v = "model.layers.{}.self_attn.v_proj",
    .o = "model.layers.{}.self_attn.o_proj",
    .q_norm = "model.layers.{}.self_attn.q_norm",
    .k_norm = "model.layers.{}.self_attn.k_norm",
    .gate = "model.layers.{}.mlp.gate_proj",
    .up = "model.layers.{}.mlp.up_proj",
    .down = "model.layers.{}.mlp.down_proj",
};

/* Old checkpoints carry the rope's frequencies as a tensor; heads of tied models are copies of the embedding. */
#define DROP_INV_FREQ                                                                                                  \
  {                                                                                                                    \
    .pattern = "self_attn.rotary_emb.inv_freq"                                                                         \
  }
#define DROP_TIED_HEAD                                                                                                 \
  {                                                                                                                    \
    .pattern = "lm_head.weight", .exact = true, .when = DROP_IF_TIED                                                   \
  }

static const cfg_field llama_fields[] = {
    CFG_INT_REQUIRED(model_config, width, "hidden_size", 1, ARCH_WIDEST),
    CFG_INT_REQUIRED(model_config, layers, "num_hidden_layers", 1, MODEL_MAX_LAYERS),
    CFG_INT_REQUIRED(model_config, ffn, "intermediate_size", 1, ARCH_WIDEST),
    CFG_INT_REQUIRED(model_config, heads, "num_attention_heads", 1, ARCH_MOST_HEADS),
    CFG_FLOAT_REQUIRED(model_config, norm_eps, "rms_norm_eps", 0, 1),
    CFG_INT_REQUIRED(model_config, vocab, "vocab_size", 1, ARCH_MOST_WORDS),
    CFG_INT_OR(model_config, head_dim, "head_dim", 0, 0, ARCH_WIDEST_HEAD),
    CFG_INT_OR(model_config, max_positions, "max_position_embeddings", 0, 1, INT_MAX),
    CFG_INT_OR(model_config, kv_heads, "num_key_value_heads", 0, 1, ARCH_MOST_HEADS),
    CFG_BOOL_OR(model_config, attention_bias, "attention_bias", false),
    CFG_BOOL_OR(model_config, mlp_bias, "mlp_bias", false),
    CFG_FLOAT_OR(model_config, rope_theta, "rope_theta", 10000, ARCH_LEAST_BASE, ARCH_MOST_BASE),
    CFG_BOOL_OR(model_config, rope_traditional, "rope_traditional", false),
    CFG_BOOL_OR(model_config, tied, "tie_word_embeddings", true),
    CFG_INT_OR(model_config, sliding_window, "sliding_window", 0, 1, ARCH_WIDEST_WINDOW),
};

const arch arch_llama = {
    .name = "llama",
    .aliases = {"mistral", "iquestcoder"},
    .fields = llama_fields,
    .n_fields = sizeof llama_fields / sizeof *llama_fields,
    .bias_qkv = BIAS_ATTENTION_KEY,
    .bias_o = BIAS_ATTENTION_KEY,
    .bias_mlp = BIAS_MLP_KEY,
    .layers = LAYERS_BY_TYPES,
    .own_caches = true,
    .names = &arch_llama_names,
    .drops = {DROP_INV_FREQ, DROP_TIED_HEAD},
};

static const cfg_field qwen2_fields[] = {
    CFG_INT_REQUIRED(model_config, width, "hidden_size", 1, ARCH_WIDEST),
    CFG_INT_REQUIRED(model_config, layers, "num_hidden_layers", 1, MODEL_MAX_LAYERS),
    CFG_INT_REQUIRED(model_config, ffn, "intermediate_size", 1, ARCH_WIDEST),
    CFG_INT_REQUIRED(model_config, heads, "num_attention_heads", 1, ARCH_MOST_HEADS),
    CFG_FLOAT_REQUIRED(model_config, norm_eps, "rms_norm_eps", 0, 1),
    CFG_INT_REQUIRED(model_config, vocab, "vocab_size", 1, ARCH_MOST_WORDS),
    CFG_INT_REQUIRED(model_config, kv_heads, "num_key_value_heads", 1, ARCH_MOST_HEADS),
    CFG_INT_OR(model_config, max_positions, "max_position_embeddings", 32768, 1, INT_MAX),
    CFG_FLOAT_OR(model_config, rope_theta, "rope_theta", 1000000, ARCH_LEAST_BASE, ARCH_MOST_BASE),
    CFG_BOOL_OR(model_config, rope_traditional, "rope_traditional", false),
    CFG_BOOL_OR(model_config, tied, "tie_word_embeddings", true),
};

const arch arch_qwen2 = {
    .name = "qwen2",
    .fields = qwen2_fields,
    .n_fields = sizeof qwen2_fields / sizeof *qwen2_fields,
    .bias_qkv = BIAS_ALWAYS,
    .names = &arch_llama_names,
    .drops = {DROP_INV_FREQ, DROP_TIED_HEAD},
};

static const cfg_field qwen3_fields[] = {
    CFG_INT_REQUIRED(model_config, width, "hidden_size", 1, ARCH_WIDEST),
    CFG_INT_REQUIRED(model_config, layers, "num_hidden_layers", 1, MODEL_MAX_LAYERS),
    CFG_INT_REQUIRED(model_config, ffn, "intermediate_size", 1, ARCH_WIDEST),
    CFG_INT_REQUIRED(model_config, heads, "num_attention_heads", 1, ARCH_MOST_HEADS),
    CFG_FLOAT_REQUIRED(model_config, norm_eps, "rms_norm_eps", 0, 1),
    CFG_INT_REQUIRED(model_config, vocab, "vocab_size", 1, ARCH_MOST_WORDS),
    CFG_INT_REQUIRED(model_config, kv_heads, "num_key_value_heads", 1, ARCH_MOST_HEADS),
    CFG_INT_REQUIRED(model_config, max_positions, "max_position_embeddings", 1, INT_MAX),
    CFG_FLOAT_REQUIRED(model_config, rope_theta, "rope_theta", ARCH_LEAST_BASE, ARCH_MOST_BASE),
    CFG_INT_REQUIRED(model_config, head_dim, "head_dim", 2, ARCH_WIDEST_HEAD),
    CFG_BOOL_REQUIRED(model_config, tied, "tie_word_embeddings"),
};

const arch arch_qwen3 = {
    .name = "qwen3",
    .fields = qwen3_fields,
    .n_fields = sizeof qwen3_fields / sizeof *qwen3_fields,
    .qk_norm = true,
    .names = &arch_llama_names,
    .drops = {DROP_TIED_HEAD},
};
