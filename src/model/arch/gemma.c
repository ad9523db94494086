/* gemma.c - gemma3_text: sandwich norms around both halves of a block, norms that add one to their weight, windows on
 * all layers but every pattern-th, an embedding scaled by sqrt(width) in bfloat16, and a head that is tied exactly if
 * the checkpoint has none. */
#include "model/arch/rows.h"

static const arch_names gemma3_names = {
    .embed = "model.embed_tokens",
    .final_norm = "model.norm",
    .head = "lm_head",
    .norm = {"model.layers.{}.input_layernorm", "model.layers.{}.post_attention_layernorm",
             "model.layers.{}.pre_feedforward_layernorm", "model.layers.{}.post_feedforward_layernorm"},
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

static const cfg_field gemma3_fields[] = {
    CFG_INT_OR(model_config, width, "hidden_size", 1152, 1, ARCH_WIDEST),
    CFG_INT_OR(model_config, layers, "num_hidden_layers", 26, 1, MODEL_MAX_LAYERS),
    CFG_INT_OR(model_config, ffn, "intermediate_size", 6912, 1, ARCH_WIDEST),
    CFG_INT_OR(model_config, heads, "num_attention_heads", 4, 1, ARCH_MOST_HEADS),
    CFG_INT_OR(model_config, head_dim, "head_dim", 256, 2, ARCH_WIDEST_HEAD),
    CFG_FLOAT_OR(model_config, norm_eps, "rms_norm_eps", 1e-6, 0, 1),
    CFG_INT_OR(model_config, vocab, "vocab_size", 262144, 1, ARCH_MOST_WORDS),
    CFG_INT_OR(model_config, kv_heads, "num_key_value_heads", 1, 1, ARCH_MOST_HEADS),
    CFG_FLOAT_OR(model_config, rope_theta, "rope_theta", 1000000, ARCH_LEAST_BASE, ARCH_MOST_BASE),
    CFG_FLOAT_OR(model_config, rope_local_theta, "rope_local_base_freq", 10000, ARCH_LEAST_BASE, ARCH_MOST_BASE),
    CFG_FLOAT_OR(model_config, query_pre_attn_scalar, "query_pre_attn_scalar", 256, 1e-6, 1e9),
    CFG_INT_OR(model_config, sliding_window, "sliding_window", 512, 1, ARCH_WIDEST_WINDOW),
    CFG_INT_OR(model_config, sliding_pattern, "sliding_window_pattern", 6, 1, MODEL_MAX_LAYERS),
    CFG_INT_OR(model_config, max_positions, "max_position_embeddings", 32768, 1, INT_MAX),
};

const arch arch_gemma3_text = {
    .name = "gemma3_text",
    .fields = gemma3_fields,
    .n_fields = sizeof gemma3_fields / sizeof *gemma3_fields,
    .block = BLOCK_SANDWICH,
    .norm = NORM_RMS_PLUS_ONE,
    .qk_norm = true,
    .act = ACT_GELU_TANH,
    .scale = SCALE_PRE_SCALAR,
    .head = HEAD_BY_ABSENCE,
    .layers = LAYERS_BY_PATTERN,
    .embed_scale = true,
    .clip_f16 = true,
    .local_rope = true,
    .own_caches = true,
    .names = &gemma3_names,
};
