/* gpt.c - decoders with layer norms and, mostly, plain units: starcoder2, stablelm, nemotron, gpt_neox, gpt2 and
 * gpt_bigcode. */
#include "model/arch/rows.h"

/* ---- starcoder2 ---- */

static const arch_names starcoder2_names = {
    LLAMA_FRAME, LLAMA_NORMS, LLAMA_ATTENTION, .up = "model.layers.{}.mlp.c_fc", .down = "model.layers.{}.mlp.c_proj",
};

static const cfg_field starcoder2_fields[] = {
    WIDTH("hidden_size"),
    LAYERS("num_hidden_layers"),
    FFN("intermediate_size"),
    HEADS("num_attention_heads"),
    USUAL_KV_HEADS,
    EPS_OR("norm_epsilon", 1e-5),
    VOCAB_OR("vocab_size", 49152),
    THETA_OR("rope_theta", 100000),
    TIED_OR(true),
    POSITIONS_OR("max_position_embeddings", 0),
    ALWAYS(bias_qkv),
    ALWAYS(bias_o),
    ALWAYS(bias_mlp),
};

const arch arch_starcoder2 = {
    .name = "starcoder2",
    FIELDS(starcoder2_fields),
    .norm = NORM_LAYER,
    .mlp = MLP_PLAIN,
    .act = ACT_GELU,
    .rope = ROPE_PLAIN,
    .names = &starcoder2_names,
    .drops = {DROP_COPIED_HEAD},
};

/* ---- stablelm: halves one after the other or beside each other ---- */

static const arch_names stablelm_names = {
    LLAMA_FRAME,
    LLAMA_NORMS,
    LLAMA_ATTENTION,
    .q_norm = "model.layers.{}.self_attn.q_layernorm.norms.{h}",
    .k_norm = "model.layers.{}.self_attn.k_layernorm.norms.{h}",
    LLAMA_MLP,
};

static const cfg_field stablelm_fields[] = {
    USUAL_SIZES,
    USUAL_KV_HEADS,
    THETA("rope_theta"),
    FLAG(bias_qkv, "use_qkv_bias"),
    ROTARY("partial_rotary_factor"),
    EPS("layer_norm_eps"),
    FLAG_OR(parallel, "use_parallel_residual", false),
    FLAG_OR(qk_norm, "qk_layernorm", false),
    POSITIONS_OR("max_position_embeddings", 0),
};

const arch arch_stablelm = {
    .name = "stablelm",
    FIELDS(stablelm_fields),
    .finish = arch_heads_fill_width,
    .block = BLOCK_FORKED,
    .block_unless_parallel = BLOCK_PRE,
    .norm = NORM_LAYER,
    .qk_norm = QK_HEAD_LAYER,
    .scale = SCALE_INVERSE,
    .precision = PRECISION_F32,
    .rope = ROPE_PLAIN,
    .plain_keys = true,
    .names = &stablelm_names,
};

/* ---- nemotron ---- */

static const arch_names nemotron_names = {
    LLAMA_FRAME,
    LLAMA_NORMS,
    LLAMA_ATTENTION,
    .up = "model.layers.{}.mlp.up_proj",
    .down = "model.layers.{}.mlp.down_proj",
};

static const cfg_field nemotron_fields[] = {
    USUAL_SIZES,
    EPS("norm_eps"),
    USUAL_KV_HEADS,
    HEAD_DIM_OR(0),
    POSITIONS_OR("max_position_embeddings", 0),
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_bias", false),
    FLAG_OR(bias_mlp, "mlp_bias", false),
    ROTARY_OR("partial_rotary_factor", 0.5),
    THETA_OR("rope_theta", 10000),
    TIED_OR(false),
};

/* rope_traditional is a field of the reference that nothing reads. */
const arch arch_nemotron = {
    .name = "nemotron",
    FIELDS(nemotron_fields),
    .norm = NORM_LAYER_PLUS_ONE,
    .mlp = MLP_PLAIN,
    .act = ACT_RELU2,
    .rope = ROPE_LINEAR,
    .names = &nemotron_names,
    .drops = {DROP_COPIED_HEAD},
};

/* ---- gpt_neox ---- */

static const arch_names gpt_neox_names = {
    .embed = "model.embed_in",
    .final_norm = "model.final_layer_norm",
    .head = "model.embed_out",
    .norm = {"model.h.{}.input_layernorm", "model.h.{}.post_attention_layernorm"},
    .qkv = "model.h.{}.attention.query_key_value",
    .o = "model.h.{}.attention.dense",
    .up = "model.h.{}.mlp.dense_h_to_4h",
    .down = "model.h.{}.mlp.dense_4h_to_h",
};

static const cfg_field gpt_neox_fields[] = {
    POSITIONS("max_position_embeddings"),
    WIDTH("hidden_size"),
    HEADS("num_attention_heads"),
    LAYERS("num_hidden_layers"),
    EPS("layer_norm_eps"),
    VOCAB("vocab_size"),
    THETA("rotary_emb_base"),
    ROTARY("rotary_pct"),
    FLAG_OR(parallel, "use_parallel_residual", true),
    ALWAYS(bias_qkv),
    ALWAYS(bias_o),
    ALWAYS(bias_mlp),
};

static tern_status four_widths(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  (void)c, (void)scope;
  if (m->width % m->heads)
    return err_set(err, TERN_E_FORMAT, "config.json: %d heads do not divide a width of %d", m->heads, m->width);
  m->ffn = 4 * m->width;
  return TERN_OK;
}

const arch arch_gpt_neox = {
    .name = "gpt_neox",
    FIELDS(gpt_neox_fields),
    .finish = four_widths,
    .block = BLOCK_PARALLEL2,
    .block_unless_parallel = BLOCK_PRE,
    .norm = NORM_LAYER,
    .pack = PACK_GROUPED,
    .mlp = MLP_PLAIN,
    .act = ACT_GELU_TANH,
    .rope = ROPE_PLAIN,
    .names = &gpt_neox_names,
    .renames = {{"model.h.", "gpt_neox.layers.", false}, {"model.", "gpt_neox.", false}, {"model.", "", false}},
    .drops = {{.pattern = ".attention.bias", .match = MATCH_SUFFIX},
              {.pattern = ".attention.masked_bias", .match = MATCH_SUFFIX},
              {.pattern = ".attention.rotary_emb.inv_freq", .match = MATCH_SUFFIX}},
};

/* ---- gpt2 and gpt_bigcode: learned positions ---- */

static const arch_names gpt2_names = {
    .embed = "model.wte",
    .positions = "model.wpe",
    .final_norm = "model.ln_f",
    .norm = {"model.h.{}.ln_1", "model.h.{}.ln_2"},
    .qkv = "model.h.{}.attn.c_attn",
    .o = "model.h.{}.attn.c_proj",
    .up = "model.h.{}.mlp.c_fc",
    .down = "model.h.{}.mlp.c_proj",
};

static const cfg_field gpt2_fields[] = {
    WIDTH("n_embd"),     HEADS("n_head"),  LAYERS("n_layer"), POSITIONS("n_positions"), EPS("layer_norm_epsilon"),
    VOCAB("vocab_size"), ALWAYS(bias_qkv), ALWAYS(bias_o),    ALWAYS(bias_mlp),         ALWAYS(tied),
};

/* Releases have names without "model." and matrices the other way around. */
const arch arch_gpt2 = {
    .name = "gpt2",
    FIELDS(gpt2_fields),
    .finish = four_widths,
    .norm = NORM_LAYER,
    .pack = PACK_QKV,
    .mlp = MLP_PLAIN,
    .act = ACT_GELU_TANH,
    .rope_on = ROPE_NOWHERE,
    .names = &gpt2_names,
    .renames = {{"model.h.", "h.", true}, {"model.", "", false}},
    .drops = {{.pattern = ".attn.bias", .match = MATCH_SUFFIX}},
};

static const arch_names gpt_bigcode_names = {
    .embed = "transformer.wte",
    .positions = "transformer.wpe",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .norm = {"transformer.h.{}.ln_1", "transformer.h.{}.ln_2"},
    .qkv = "transformer.h.{}.attn.c_attn",
    .o = "transformer.h.{}.attn.c_proj",
    .up = "transformer.h.{}.mlp.c_fc",
    .down = "transformer.h.{}.mlp.c_proj",
};

static const cfg_field gpt_bigcode_fields[] = {
    WIDTH("n_embd"),
    HEADS("n_head"),
    LAYERS("n_layer"),
    FFN("n_inner"),
    POSITIONS("n_positions"),
    EPS("layer_norm_epsilon"),
    VOCAB("vocab_size"),
    FLAG_OR(bias_qkv, "attention_bias", true),
    FLAG_OR(bias_o, "attention_bias", true),
    FLAG_OR(bias_mlp, "mlp_bias", true),
    TIED_OR(true),
};

static tern_status gpt_bigcode_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  bool single = true;
  const json_t *value = cfg_get(c, scope, "multi_query");
  if (value)
    TRY(cfg_value_bool(value, "config.json: multi_query", &single, err));
  m->kv_heads = single ? 1 : m->heads;
  if (m->width % m->heads)
    return err_set(err, TERN_E_FORMAT, "config.json: n_head: %d does not divide n_embd %d", m->heads, m->width);
  return TERN_OK;
}

const arch arch_gpt_bigcode = {
    .name = "gpt_bigcode",
    FIELDS(gpt_bigcode_fields),
    .finish = gpt_bigcode_finish,
    .norm = NORM_LAYER,
    .pack = PACK_QKV,
    .mlp = MLP_PLAIN,
    .act = ACT_GELU,
    .rope_on = ROPE_NOWHERE,
    .names = &gpt_bigcode_names,
    .drops = {DROP_COPIED_HEAD},
};
