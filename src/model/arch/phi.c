/* phi.c - phi (one norm, both halves beside each other, attention in float32), phi3 (llama with fused matrices) and
 * phi3small (block-sparse attention, gegelu, scales of its own). */
#include "model/arch/rows.h"

static const arch_names phi_names = {
    .embed = "model.embed_tokens",
    .final_norm = "model.final_layernorm",
    .head = "lm_head",
    .norm = {"model.layers.{}.input_layernorm"},
    .q = "model.layers.{}.self_attn.q_proj",
    .k = "model.layers.{}.self_attn.k_proj",
    .v = "model.layers.{}.self_attn.v_proj",
    .o = "model.layers.{}.self_attn.dense",
    .up = "model.layers.{}.mlp.fc1",
    .down = "model.layers.{}.mlp.fc2",
};

static const cfg_field phi_fields[] = {
    POSITIONS_OR("max_position_embeddings", 2048),
    VOCAB_OR("vocab_size", 51200),
    WIDTH_OR("hidden_size", 2560),
    HEADS_OR("num_attention_heads", 32),
    LAYERS_OR("num_hidden_layers", 32),
    KV_HEADS_OR("num_key_value_heads", 32),
    ROTARY_OR("partial_rotary_factor", 0.4),
    FFN_OR("intermediate_size", 10240),
    EPS_OR("layer_norm_eps", 1e-5),
    THETA_OR("rope_theta", 10000),
    ALWAYS(bias_qkv),
    ALWAYS(bias_o),
    ALWAYS(bias_mlp),
    ALWAYS(bias_head),
};

const arch arch_phi = {
    .name = "phi",
    FIELDS(phi_fields),
    .finish = arch_heads_fill_width,
    .block = BLOCK_PARALLEL,
    .norm = NORM_LAYER,
    .mlp = MLP_PLAIN,
    .act = ACT_GELU_TANH,
    .scale = SCALE_INVERSE,
    .precision = PRECISION_F32,
    .rope = ROPE_PLAIN,
    .plain_keys = true,
    .names = &phi_names,
};

static const arch_names phi3_names = {
    LLAMA_FRAME,
    LLAMA_NORMS,
    .qkv = "model.layers.{}.self_attn.qkv_proj",
    .o = "model.layers.{}.self_attn.o_proj",
    .gate_up = "model.layers.{}.mlp.gate_up_proj",
    .down = "model.layers.{}.mlp.down_proj",
};

static const cfg_field phi3_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS_OR_ALL,
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    ROTARY_OR("partial_rotary_factor", 1),
    POSITIONS_OR("max_position_embeddings", 131072),
    CFG_INT_OR(model_config, original_positions, "original_max_position_embeddings", 4096, 1, INT_MAX),
    TIED_OR(false),
};

const arch arch_phi3 = {
    .name = "phi3",
    FIELDS(phi3_fields),
    .pack = PACK_QKV,
    .mlp = MLP_FUSED,
    .rope = ROPE_SU,
    .names = &phi3_names,
    .drops = {DROP_COPIED_HEAD},
};

static const arch_names phi3small_names = {
    .embed = "model.embed_tokens",
    .final_norm = "model.final_layernorm",
    .norm = {"model.layers.{}.input_layernorm", "model.layers.{}.post_attention_layernorm"},
    .qkv = "model.layers.{}.self_attn.query_key_value",
    .o = "model.layers.{}.self_attn.dense",
    .gate_up = "model.layers.{}.mlp.up_proj",
    .down = "model.layers.{}.mlp.down_proj",
};

/* attention_scale is read as mup_attn_multiplier. */
static const cfg_field phi3small_fields[] = {
    WIDTH("hidden_size"),
    LAYERS("num_hidden_layers"),
    FFN("ff_intermediate_size"),
    HEADS("num_attention_heads"),
    USUAL_KV_HEADS,
    VOCAB("vocab_size"),
    EPS("layer_norm_epsilon"),
    CFG_FLOAT_REQUIRED(model_config, act_limit, "gegelu_limit", 0, 1e6),
    CFG_INT_REQUIRED(model_config, sparse_every, "dense_attention_every_n_layers", 1, MODEL_MAX_LAYERS),
    CFG_INT_OR(model_config, sparse_block, "blocksparse_block_size", 64, 32, 64),
    CFG_INT_OR(model_config, sparse_local, "blocksparse_num_local_blocks", 16, 1, INT_MAX),
    CFG_INT_OR(model_config, sparse_stride, "blocksparse_vert_stride", 8, 1, INT_MAX),
    CFG_FLOAT_OR(model_config, attention_scale, "mup_attn_multiplier", 1, 1e-6, 1e9),
    FACTOR_OR(embed_scale, "mup_embedding_multiplier", 10),
    FACTOR_OR(logit_divisor, "mup_width_multiplier", 8),
    THETA_OR("rope_embedding_base", 1000000),
    POSITIONS_OR("max_position_embeddings", 0),
    ALWAYS(bias_qkv),
    ALWAYS(bias_o),
    ALWAYS(bias_mlp),
    ALWAYS(tied),
};

static tern_status phi3small_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  static const char where[] = "config.json";
  bool scaled = true;
  double position_scale = 1;
  const json_t *value = cfg_get(c, scope, "mup_use_scaling");
  if (value)
    TRY(cfg_value_bool(value, "config.json: mup_use_scaling", &scaled, err));
  if ((value = cfg_get(c, scope, "rope_position_scale")))
    TRY(cfg_value_float(value, "config.json: rope_position_scale", &position_scale, err));
  if (!scaled || position_scale != 1)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: %s: only %s is run here", where,
                   scaled ? "rope_position_scale" : "mup_use_scaling", scaled ? "1" : "true");
  if (m->sparse_block != 32 && m->sparse_block != 64)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: blocksparse_block_size: %d is not 32 or 64", where, m->sparse_block);
  m->attention_scale = 1.0 / (m->head_dim / m->attention_scale);
  m->embed_scale = m->embed_scale == 0 ? 1 : m->embed_scale; /* 0 switches it off */
  m->logit_divisor = m->logit_divisor == 0 ? 1 : m->logit_divisor;
  return TERN_OK;
}

const arch arch_phi3small = {
    .name = "phi3small",
    FIELDS(phi3small_fields),
    .finish = phi3small_finish,
    .norm = NORM_LAYER,
    .pack = PACK_GROUPED,
    .mlp = MLP_INTERLEAVED,
    .act = ACT_GEGELU,
    .scale = SCALE_KEY,
    .rope = ROPE_PLAIN,
    .plain_keys = true,
    .names = &phi3small_names,
    .drops = {DROP_INV_FREQ},
    .corrected =
        "masked scores of block-sparse layers become -inf, blocks of queries are counted from position 0, and the "
        "list of dummy token ids is empty",
};
