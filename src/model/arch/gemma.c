/* gemma.c - gemma, gemma2 and gemma3_text: norms that add one to their weight, an embedding scaled by sqrt(width), tied
 * heads. gemma2 caps scores and logits and sees everything everywhere, whatever its config says of windows; gemma3_text
 * has windows on all layers but every pattern-th. */
#include "model/arch/rows.h"

static const cfg_field gemma_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    HEAD_DIM,
    USUAL_KV_HEADS,
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    POSITIONS_OR("max_position_embeddings", 0),
    ALWAYS(tied),
};

/* gelu with erf: the reference does not read hidden_act, which asks for the tanh form. */
const arch arch_gemma = {
    .name = "gemma",
    FIELDS(gemma_fields),
    .norm = NORM_RMS_PLUS_ONE,
    .act = ACT_GELU,
    .rope = ROPE_PLAIN,
    .embed_root = true,
    .names = &arch_llama_names,
    .drops = {DROP_COPIED_HEAD},
};

static const arch_names gemma2_names = {
    LLAMA_FRAME,
    .norm = {"model.layers.{}.input_layernorm", "model.layers.{}.post_attention_layernorm",
             "model.layers.{}.pre_feedforward_layernorm", "model.layers.{}.post_feedforward_layernorm"},
    LLAMA_ATTENTION,
    LLAMA_QK_NORMS,
    LLAMA_MLP,
};

static const cfg_field gemma2_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    HEAD_DIM,
    USUAL_KV_HEADS,
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    CFG_FLOAT_OR(model_config, attention_softcap, "attn_logit_softcapping", 50, 1e-6, 1e9),
    CFG_FLOAT_OR(model_config, logit_softcap, "final_logit_softcapping", 30, 1e-6, 1e9),
    CFG_FLOAT_OR(model_config, query_pre_attn_scalar, "query_pre_attn_scalar", 144, 1e-6, 1e9),
    POSITIONS_OR("max_position_embeddings", 0),
    ALWAYS(tied),
};

const arch arch_gemma2 = {
    .name = "gemma2",
    FIELDS(gemma2_fields),
    .block = BLOCK_SANDWICH,
    .norm = NORM_RMS_PLUS_ONE,
    .act = ACT_GELU_TANH,
    .scale = SCALE_ROOT,
    .precision = PRECISION_MANUAL,
    .rope = ROPE_PLAIN,
    .embed_root = true,
    .plain_keys = true,
    .names = &gemma2_names,
    .drops = {DROP_COPIED_HEAD},
};

static const cfg_field gemma3_fields[] = {
    WIDTH_OR("hidden_size", 1152),
    LAYERS_OR("num_hidden_layers", 26),
    FFN_OR("intermediate_size", 6912),
    HEADS_OR("num_attention_heads", 4),
    HEAD_DIM_OR(256),
    EPS_OR("rms_norm_eps", 1e-6),
    VOCAB_OR("vocab_size", 262144),
    KV_HEADS_OR("num_key_value_heads", 1),
    THETA_OR("rope_theta", 1000000),
    CFG_FLOAT_OR(model_config, rope_local_theta, "rope_local_base_freq", 10000, ARCH_LEAST_BASE, ARCH_MOST_BASE),
    CFG_FLOAT_OR(model_config, query_pre_attn_scalar, "query_pre_attn_scalar", 256, 1e-6, 1e9),
    WINDOW_OR(512),
    CFG_INT_OR(model_config, sliding_pattern, "sliding_window_pattern", 6, 1, MODEL_MAX_LAYERS),
    POSITIONS_OR("max_position_embeddings", 32768),
};

const arch arch_gemma3_text = {
    .name = "gemma3_text",
    FIELDS(gemma3_fields),
    .block = BLOCK_SANDWICH,
    .norm = NORM_RMS_PLUS_ONE,
    .qk_norm = QK_HEAD,
    .qk_kind = NORM_RMS_PLUS_ONE,
    .act = ACT_GELU_TANH,
    .scale = SCALE_PRE_SCALAR,
    .head = HEAD_BY_ABSENCE,
    .layers = LAYERS_BY_PATTERN,
    .rope_local = ROPE_PLAIN,
    .embed_root_bf16 = true,
    .clip_f16 = true,
    .own_caches = true,
    .names = &gemma2_names,
};
