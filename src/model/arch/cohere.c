/* cohere.c - cohere and cohere2: one layer norm for both halves, rotation in pairs, tied heads whose logits are scaled.
 * cohere2 has windows; its layers that see everything have no rope. */
#include "model/arch/rows.h"

static const arch_names cohere_names = {
    .embed = "model.embed_tokens",
    .final_norm = "model.norm",
    .norm = {"model.layers.{}.input_layernorm"},
    LLAMA_ATTENTION,
    LLAMA_QK_NORMS,
    LLAMA_MLP,
};

static const cfg_field cohere_fields[] = {
    WIDTH_OR("hidden_size", 8192),
    LAYERS_OR("num_hidden_layers", 40),
    FFN_OR("intermediate_size", 22528),
    HEADS_OR("num_attention_heads", 64),
    KV_HEADS_OR("num_key_value_heads", 64),
    THETA_OR("rope_theta", 8000000),
    VOCAB_OR("vocab_size", 256000),
    EPS_OR("layer_norm_eps", 1e-5),
    FACTOR_OR(logit_scale, "logit_scale", 0.0625),
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_bias", false),
    FLAG_OR(norm_bias, "layer_norm_bias", false),
    FLAG_OR(qk_norm, "use_qk_norm", false),
    POSITIONS_OR("max_position_embeddings", 0),
    ALWAYS(rope_traditional),
    ALWAYS(tied),
};

const arch arch_cohere = {
    .name = "cohere",
    FIELDS(cohere_fields),
    .block = BLOCK_PARALLEL,
    .norm = NORM_LAYER,
    .qk_norm = QK_HEAD_LAYER,
    .rope = ROPE_PLAIN,
    .names = &cohere_names,
    .drops = {DROP_COPIED_HEAD},
};

static const cfg_field cohere2_fields[] = {
    WIDTH_OR("hidden_size", 4096),
    HEAD_DIM_OR(128),
    LAYERS_OR("num_hidden_layers", 32),
    FFN_OR("intermediate_size", 14336),
    HEADS_OR("num_attention_heads", 32),
    KV_HEADS_OR("num_key_value_heads", 8),
    THETA_OR("rope_theta", 50000),
    VOCAB_OR("vocab_size", 256000),
    EPS_OR("layer_norm_eps", 1e-5),
    FACTOR_OR(logit_scale, "logit_scale", 0.0625),
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_bias", false),
    FLAG_OR(norm_bias, "layer_norm_bias", false),
    WINDOW_OR(4096),
    CFG_INT_OR(model_config, sliding_pattern, "sliding_window_pattern", 4, 1, MODEL_MAX_LAYERS),
    POSITIONS_OR("max_position_embeddings", 0),
    ALWAYS(rope_traditional),
    ALWAYS(tied),
};

const arch arch_cohere2 = {
    .name = "cohere2",
    FIELDS(cohere2_fields),
    .finish = arch_heads_fill_width,
    .block = BLOCK_PARALLEL,
    .norm = NORM_LAYER,
    .precision = PRECISION_F32_HALF,
    .layers = LAYERS_BY_PATTERN,
    .rope = ROPE_PLAIN,
    .rope_on = ROPE_SLIDING,
    .own_caches = true,
    .names = &cohere_names,
    .drops = {DROP_COPIED_HEAD},
};
