/* exaone.c - exaone, llama by other names, and exaone4: norms after each half, windows by letters, no rope on layers
 * that see everything. */
#include "model/arch/rows.h"

static const arch_names exaone_names = {
    .embed = "transformer.wte",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .norm = {"transformer.h.{}.ln_1", "transformer.h.{}.ln_2"},
    .q = "transformer.h.{}.attn.attention.q_proj",
    .k = "transformer.h.{}.attn.attention.k_proj",
    .v = "transformer.h.{}.attn.attention.v_proj",
    .o = "transformer.h.{}.attn.attention.out_proj",
    .gate = "transformer.h.{}.mlp.c_fc_0",
    .up = "transformer.h.{}.mlp.c_fc_1",
    .down = "transformer.h.{}.mlp.c_proj",
};

/* An RMS norm, whatever the key is called. */
static const cfg_field exaone_fields[] = {
    WIDTH("hidden_size"),
    LAYERS("num_layers"),
    FFN("intermediate_size"),
    HEADS("num_attention_heads"),
    VOCAB("vocab_size"),
    THETA("rope_theta"),
    EPS("layer_norm_epsilon"),
    USUAL_KV_HEADS,
    HEAD_DIM_OR(0),
    POSITIONS_OR("max_position_embeddings", 0),
    TRADITIONAL_OR(false),
    TIED_OR(true),
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_bias", false),
    FLAG_OR(bias_mlp, "mlp_bias", false),
};

const arch arch_exaone = {
    .name = "exaone",
    FIELDS(exaone_fields),
    .names = &exaone_names,
    .drops = {DROP_COPIED_HEAD},
};

static const arch_names exaone4_names = {
    LLAMA_FRAME,     .norm = {"model.layers.{}.post_attention_layernorm", "model.layers.{}.post_feedforward_layernorm"},
    LLAMA_ATTENTION, LLAMA_QK_NORMS,
    LLAMA_MLP,
};

static const cfg_field exaone4_fields[] = {
    USUAL_SIZES,         RMS_EPS,  USUAL_KV_HEADS, POSITIONS("max_position_embeddings"),
    THETA("rope_theta"), HEAD_DIM, TIED,           WINDOW_OR(0),
};

const arch arch_exaone4 = {
    .name = "exaone4",
    FIELDS(exaone4_fields),
    .block = BLOCK_POST,
    .qk_norm = QK_HEAD,
    .layers = LAYERS_BY_LETTERS,
    .rope_on = ROPE_SLIDING_OR_ALL,
    .own_caches = true,
    .names = &exaone4_names,
    .drops = {DROP_COPIED_HEAD},
};
