/* internlm.c - internlm2, whose projections lie in one matrix by kv head, and internlm3; both with the rope that the
 * reference gives them alone (ROPE_NTK). */
#include "model/arch/rows.h"

static const arch_names internlm2_names = {
    .embed = "model.tok_embeddings",
    .final_norm = "model.norm",
    .head = "output",
    .norm = {"model.layers.{}.attention_norm", "model.layers.{}.ffn_norm"},
    .qkv = "model.layers.{}.attention.wqkv",
    .o = "model.layers.{}.attention.wo",
    .gate = "model.layers.{}.feed_forward.w1",
    .up = "model.layers.{}.feed_forward.w3",
    .down = "model.layers.{}.feed_forward.w2",
};

static const cfg_field internlm2_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    FLAG_OR(bias_qkv, "bias", true),
    FLAG_OR(bias_o, "bias", true),
    POSITIONS_OR("max_position_embeddings", 32768),
    USUAL_KV_HEADS_OR_ALL,
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    TIED_OR(false),
};

const arch arch_internlm2 = {
    .name = "internlm2",
    FIELDS(internlm2_fields),
    .pack = PACK_GROUPED,
    .rope = ROPE_NTK,
    .names = &internlm2_names,
    .drops = {{.pattern = "attention.rope.inv_freq"}, DROP_COPY("output")},
};

static const cfg_field internlm3_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    FLAG_OR(bias_mlp, "bias", false),
    FLAG_OR(bias_qkv, "qkv_bias", false),
    FLAG_OR(bias_o, "qkv_bias", false),
    POSITIONS_OR("max_position_embeddings", 32768),
    USUAL_KV_HEADS_OR_ALL,
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    TIED_OR(false),
};

const arch arch_internlm3 = {
    .name = "internlm3",
    FIELDS(internlm3_fields),
    .rope = ROPE_NTK,
    .names = &arch_llama_names,
    .drops = {{.pattern = "attention.rope.inv_freq"}, DROP_COPIED_HEAD},
};
