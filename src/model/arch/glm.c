/* glm.c - glm and glm4: gate and up in one matrix, rotation in pairs; glm4 norms both sides of each half. glm rotates
 * whole heads, whatever partial_rotary_factor says, as the reference does. */
#include "model/arch/rows.h"

static const arch_names glm_names = {
    LLAMA_FRAME,
    LLAMA_NORMS,
    LLAMA_ATTENTION,
    .gate_up = "model.layers.{}.mlp.gate_up_proj",
    .down = "model.layers.{}.mlp.down_proj",
};

static const cfg_field glm_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    HEAD_DIM_OR(0),
    USUAL_KV_HEADS,
    POSITIONS_OR("max_position_embeddings", 0),
    FLAG_OR(bias_qkv, "attention_bias", false),
    THETA_OR("rope_theta", 10000),
    TIED_OR(true),
    ALWAYS(rope_traditional),
};

const arch arch_glm = {
    .name = "glm",
    FIELDS(glm_fields),
    .mlp = MLP_FUSED,
    .rope = ROPE_PLAIN,
    .names = &glm_names,
    .drops = {DROP_INV_FREQ, DROP_TIED_HEAD},
};

static const arch_names glm4_names = {
    LLAMA_FRAME,
    .norm = {"model.layers.{}.input_layernorm", "model.layers.{}.post_self_attn_layernorm",
             "model.layers.{}.post_attention_layernorm", "model.layers.{}.post_mlp_layernorm"},
    LLAMA_ATTENTION,
    .gate_up = "model.layers.{}.mlp.gate_up_proj",
    .down = "model.layers.{}.mlp.down_proj",
};

static const cfg_field glm4_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    HEAD_DIM,
    USUAL_KV_HEADS,
    FLAG(bias_qkv, "attention_bias"),
    ROTARY("partial_rotary_factor"),
    THETA("rope_theta"),
    TRADITIONAL_OR(true),
    POSITIONS_OR("max_position_embeddings", 32768),
};

const arch arch_glm4 = {
    .name = "glm4",
    FIELDS(glm4_fields),
    .block = BLOCK_SANDWICH,
    .mlp = MLP_FUSED,
    .rope = ROPE_PLAIN,
    .names = &glm4_names,
};
