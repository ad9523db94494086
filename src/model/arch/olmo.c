/* olmo.c - olmo (bare layer norms, everything fused), olmo2 (norms after each half, q and k normed whole) and olmo3
 * (olmo2 with windows; rope_scaling counts on full layers alone). */
#include "model/arch/rows.h"

static const arch_names olmo_names = {
    .embed = "model.transformer.wte",
    .head = "model.transformer.ff_out",
    .qkv = "model.transformer.blocks.{}.att_proj",
    .o = "model.transformer.blocks.{}.attn_out",
    .gate_up = "model.transformer.blocks.{}.ff_proj",
    .down = "model.transformer.blocks.{}.ff_out",
};

/* ffn is read as mlp_hidden_size, the width of both halves together. The vocabulary is the embedding's. */
static const cfg_field olmo_fields[] = {
    WIDTH("d_model"),
    LAYERS("n_layers"),
    CFG_INT_REQUIRED(model_config, ffn, "mlp_hidden_size", 2, 2 * ARCH_WIDEST),
    HEADS("n_heads"),
    VOCAB("embedding_size"),
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    FLAG_OR(tied, "weight_tying", false),
    POSITIONS_OR("max_sequence_length", 0),
    CFG_FIXED_FLOAT(norm_eps, 1e-5),
};

static tern_status olmo_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  (void)c, (void)scope, (void)err;
  m->ffn /= 2;
  return TERN_OK;
}

const arch arch_olmo = {
    .name = "olmo",
    FIELDS(olmo_fields),
    .finish = olmo_finish,
    .norm = NORM_LAYER_BARE,
    .pack = PACK_QKV,
    .mlp = MLP_FUSED_UP,
    .precision = PRECISION_MANUAL,
    .rope = ROPE_PLAIN,
    .plain_keys = true,
    .names = &olmo_names,
    .corrected =
        "its import of hf_olmo is met by an empty module, its mask is applied as every other model file applies it, "
        "and a tied head gives an array, not a tuple",
};

static const arch_names olmo2_names = {
    LLAMA_FRAME,     .norm = {"model.layers.{}.post_attention_layernorm", "model.layers.{}.post_feedforward_layernorm"},
    LLAMA_ATTENTION, LLAMA_QK_NORMS,
    LLAMA_MLP,
};

static const cfg_field olmo2_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    HEAD_DIM_OR(0),
    POSITIONS_OR("max_position_embeddings", 0),
    USUAL_KV_HEADS_OR_ALL,
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_bias", false),
    FLAG_OR(bias_mlp, "mlp_bias", false),
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    TIED_OR(true),
};

const arch arch_olmo2 = {
    .name = "olmo2",
    FIELDS(olmo2_fields),
    .block = BLOCK_POST,
    .qk_norm = QK_WIDE,
    .names = &olmo2_names,
    .drops = {DROP_INV_FREQ, DROP_COPIED_HEAD},
};

static const cfg_field olmo3_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    POSITIONS("max_position_embeddings"),
    CFG_INT_REQUIRED(model_config, sliding_window, "sliding_window", 1, ARCH_WIDEST_WINDOW),
    THETA("rope_theta"),
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_bias", false),
    USUAL_KV_HEADS_OR_ALL,
    HEAD_DIM_OR(0),
    TIED_OR(false),
};

const arch arch_olmo3 = {
    .name = "olmo3",
    FIELDS(olmo3_fields),
    .block = BLOCK_POST,
    .qk_norm = QK_WIDE,
    .layers = LAYERS_BY_TYPES_4,
    .rope_local = ROPE_PLAIN,
    .own_caches = true,
    .names = &olmo2_names,
    .drops = {DROP_COPIED_HEAD},
};
