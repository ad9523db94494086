/* kin.c - relatives of llama that each bring one or two turns of their own: fused matrices, other activations, norms of
 * q and k, ternary weights, other names. */
#include <math.h>

#include "model/arch/rows.h"

/* ---- lille-130m: norms inside the halves, a computed width ---- */

static const arch_names lille_names = {
    .embed = "transformer.tok_embeddings",
    .final_norm = "transformer.norm",
    .norm = {"transformer.layers.{}.attention.norm", "transformer.layers.{}.feed_forward.norm"},
    .qkv = "transformer.layers.{}.attention.qkv_proj",
    .o = "transformer.layers.{}.attention.out_proj",
    .gate = "transformer.layers.{}.feed_forward.gate_proj",
    .up = "transformer.layers.{}.feed_forward.up_proj",
    .down = "transformer.layers.{}.feed_forward.down_proj",
};

static const cfg_field lille_fields[] = {
    WIDTH("n_embd"),     LAYERS("n_layer"),        HEADS("n_head"),     KV_HEADS("n_kv_heads"),
    VOCAB("vocab_size"), EPS("layer_norm_eps"),    THETA("rope_theta"), POSITIONS("block_size"),
    ALWAYS(tied),        ALWAYS(rope_traditional),
};

static tern_status lille_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  (void)c, (void)scope;
  double third = floor(8.0 * m->width / 3); /* Python rounds halves to even, as rint does */
  m->ffn = 256 * (int)rint(third / 256);
  return m->ffn ? TERN_OK
                : err_set(err, TERN_E_FORMAT, "config.json: n_embd: %d gives a gated unit of no width", m->width);
}

const arch arch_lille = {
    .name = "lille-130m",
    FIELDS(lille_fields),
    .finish = lille_finish,
    .pack = PACK_QKV,
    .rope = ROPE_PLAIN,
    .names = &lille_names,
    .drops = {{.pattern = "rotary_emb"}},
};

/* ---- qwen: gate and up swapped in name, a base that no key changes ---- */

static const arch_names qwen_names = {
    .embed = "transformer.wte",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .norm = {"transformer.h.{}.ln_1", "transformer.h.{}.ln_2"},
    .qkv = "transformer.h.{}.attn.c_attn",
    .o = "transformer.h.{}.attn.c_proj",
    .gate = "transformer.h.{}.mlp.w2",
    .up = "transformer.h.{}.mlp.w1",
    .down = "transformer.h.{}.mlp.c_proj",
};

static const cfg_field qwen_fields[] = {
    WIDTH_OR("hidden_size", 2048),
    HEADS_OR("num_attention_heads", 16),
    LAYERS_OR("num_hidden_layers", 24),
    CFG_INT_OR(model_config, head_dim, "kv_channels", 128, 1, ARCH_WIDEST_HEAD),
    POSITIONS_OR("max_position_embeddings", 8192),
    EPS_OR("layer_norm_epsilon", 1e-6),
    FFN_OR("intermediate_size", 11008),
    VOCAB_OR("vocab_size", 151936),
    CFG_FIXED_FLOAT(rope_theta, 10000),
    ALWAYS(bias_qkv),
};

static tern_status qwen_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  bool no_bias = true;
  const json_t *value = cfg_get(c, scope, "no_bias");
  if (value)
    TRY(cfg_value_bool(value, "config.json: no_bias", &no_bias, err));
  m->bias_o = m->bias_mlp = m->bias_head = !no_bias;
  m->ffn /= 2;
  if (!m->ffn)
    return err_set(err, TERN_E_FORMAT, "config.json: intermediate_size: must be at least 2");
  if (m->head_dim != m->width / m->heads || m->width % m->heads)
    return err_set(err, TERN_E_FORMAT, "config.json: kv_channels: %d is not hidden_size %d / num_attention_heads %d",
                   m->head_dim, m->width, m->heads);
  return TERN_OK;
}

const arch arch_qwen = {
    .name = "qwen",
    FIELDS(qwen_fields),
    .finish = qwen_finish,
    .pack = PACK_QKV,
    .rope = ROPE_PLAIN,
    .names = &qwen_names,
};

/* ---- apertus: xielu, whose four parameters are tensors ---- */

static const arch_names apertus_names = {
    LLAMA_FRAME,
    .norm = {"model.layers.{}.attention_layernorm", "model.layers.{}.feedforward_layernorm"},
    LLAMA_ATTENTION,
    LLAMA_QK_NORMS,
    .up = "model.layers.{}.mlp.up_proj",
    .down = "model.layers.{}.mlp.down_proj",
    .act = "model.layers.{}.mlp.act_fn",
};

static const cfg_field apertus_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    FLAG(bias_mlp, "mlp_bias"),
    POSITIONS("max_position_embeddings"),
    THETA("rope_theta"),
    TRADITIONAL_OR(false),
    TIED,
};

const arch arch_apertus = {
    .name = "apertus",
    FIELDS(apertus_fields),
    .qk_norm = QK_HEAD,
    .mlp = MLP_PLAIN,
    .act = ACT_XIELU,
    .names = &apertus_names,
    .drops = {DROP_TIED_HEAD},
};

/* ---- hunyuan_v1_dense: q and k normed after the rotation ---- */

static const arch_names hunyuan_names = {
    LLAMA_FRAME,
    LLAMA_NORMS,
    LLAMA_ATTENTION,
    .q_norm = "model.layers.{}.self_attn.query_layernorm",
    .k_norm = "model.layers.{}.self_attn.key_layernorm",
    LLAMA_MLP,
};

static const cfg_field hunyuan_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    THETA_OR("rope_theta", 10000),
    POSITIONS_OR("max_position_embeddings", 32768),
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_bias", false),
    FLAG_OR(qk_norm, "use_qk_norm", true),
    TIED_OR(false),
    HEAD_DIM_OR(0),
};

const arch arch_hunyuan_v1_dense = {
    .name = "hunyuan_v1_dense",
    FIELDS(hunyuan_fields),
    .qk_norm = QK_HEAD,
    .qk_norm_late = true,
    .rope = ROPE_NTK_ALPHA,
    .names = &hunyuan_names,
    .drops = {DROP_TIED_HEAD},
};

/* ---- bitnet: ternary weights, a norm before each second matrix ---- */

static const arch_names bitnet_names = {
    LLAMA_FRAME,
    LLAMA_NORMS,
    LLAMA_ATTENTION,
    LLAMA_MLP,
    .attention_norm = "model.layers.{}.self_attn.attn_sub_norm",
    .mlp_norm = "model.layers.{}.mlp.ffn_sub_norm",
};

static const cfg_field bitnet_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    HEAD_DIM_OR(0),
    POSITIONS_OR("max_position_embeddings", 0),
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_bias", false),
    FLAG_OR(bias_mlp, "mlp_bias", false),
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    TIED_OR(true),
};

const arch arch_bitnet = {
    .name = "bitnet",
    FIELDS(bitnet_fields),
    .act = ACT_RELU2,
    .ternary = true,
    .names = &bitnet_names,
    .drops = {DROP_INV_FREQ, DROP_TIED_HEAD},
    .corrected = ARCH_CORRECTED_TERNARY,
};

/* ---- llama4_text: some layers without rope, bare norms of q and k on all ---- */

static const arch_names llama4_names = {
    .embed = "model.embed_tokens",
    .final_norm = "model.norm",
    .head = "output",
    LLAMA_NORMS,
    LLAMA_ATTENTION,
    .gate = "model.layers.{}.feed_forward.gate_proj",
    .up = "model.layers.{}.feed_forward.up_proj",
    .down = "model.layers.{}.feed_forward.down_proj",
};

static const cfg_field llama4_fields[] = {
    WIDTH("hidden_size"),
    LAYERS("num_hidden_layers"),
    FFN("intermediate_size_mlp"),
    HEADS("num_attention_heads"),
    VOCAB("vocab_size"),
    USUAL_KV_HEADS,
    RMS_EPS,
    THETA("rope_theta"),
    HEAD_DIM,
    TIED,
    FLAG(qk_norm, "use_qk_norm"),
    POSITIONS_OR("max_position_embeddings", 0),
    ALWAYS(rope_traditional),
};

const arch arch_llama4_text = {
    .name = "llama4_text",
    FIELDS(llama4_fields),
    .qk_norm = QK_HEAD,
    .qk_kind = NORM_RMS_BARE,
    .rope = ROPE_PLAIN,
    .rope_on = ROPE_BY_LIST,
    .names = &llama4_names,
    .drops = {DROP_COPY("output")},
};

/* ---- plamo: one norm for both halves, kv heads dealt out in turn ---- */

static const arch_names plamo_names = {
    LLAMA_FRAME,
    .norm = {"model.layers.layers.{}.norm"},
    .q = "model.layers.layers.{}.self_attn.q_proj",
    .k = "model.layers.layers.{}.self_attn.k_proj",
    .v = "model.layers.layers.{}.self_attn.v_proj",
    .o = "model.layers.layers.{}.self_attn.o_proj",
    .gate = "model.layers.layers.{}.mlp.gate_proj",
    .up = "model.layers.layers.{}.mlp.up_proj",
    .down = "model.layers.layers.{}.mlp.down_proj",
};

/* kv_heads is read as n_shared_head, the query heads that share one. */
static const cfg_field plamo_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    KV_HEADS_OR("n_shared_head", 8),
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    POSITIONS_OR("max_position_embeddings", 0),
};

static tern_status plamo_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  (void)c, (void)scope;
  if (m->heads % m->kv_heads)
    return err_set(err, TERN_E_UNSUPPORTED, "config.json: n_shared_head: %d does not divide num_attention_heads %d",
                   m->kv_heads, m->heads);
  m->kv_heads = m->heads / m->kv_heads;
  return TERN_OK;
}

const arch arch_plamo = {
    .name = "plamo",
    FIELDS(plamo_fields),
    .finish = plamo_finish,
    .block = BLOCK_FORKED,
    .rope = ROPE_PLAIN,
    .kv_tiled = true,
    .plain_keys = true,
    .names = &plamo_names,
};

/* ---- nanochat: bare norms everywhere, rotation backwards, capped logits ---- */

static const arch_names nanochat_names = {
    .embed = "transformer.wte",
    .head = "lm_head",
    .q = "transformer.h.{}.attn.c_q",
    .k = "transformer.h.{}.attn.c_k",
    .v = "transformer.h.{}.attn.c_v",
    .o = "transformer.h.{}.attn.c_proj",
    .up = "transformer.h.{}.mlp.c_fc",
    .down = "transformer.h.{}.mlp.c_proj",
};

static const cfg_field nanochat_fields[] = {
    WIDTH_OR("hidden_size", 1280),       LAYERS_OR("num_hidden_layers", 20),
    HEADS_OR("num_attention_heads", 10), KV_HEADS_OR("num_key_value_heads", 10),
    VOCAB_OR("vocab_size", 65536),       POSITIONS_OR("max_position_embeddings", 2048),
    FFN_OR("intermediate_size", 5120),   THETA_OR("rope_theta", 10000),
    CFG_FIXED_FLOAT(norm_eps, 1e-5),     CFG_FIXED_FLOAT(logit_softcap, 15),
};

const arch arch_nanochat = {
    .name = "nanochat",
    FIELDS(nanochat_fields),
    .norm = NORM_RMS_BARE,
    .qk_norm = QK_HEAD,
    .qk_kind = NORM_RMS_BARE,
    .qk_norm_late = true,
    .mlp = MLP_PLAIN,
    .act = ACT_RELU2,
    .rope = ROPE_BACKWARD,
    .embed_norm = true,
    .names = &nanochat_names,
};
