/* llama.c - llama and what differs from it in numbers, flags and keys alone: pre-norm blocks, RMS norm, separate
 * projections, silu-gated unit.
 *
 * Defaults and required keys are those of the reference's ModelArgs. Keys that its class does not read are ignored here
 * too, as they are in every model that it runs. */
#include <math.h>

#include "model/arch/rows.h"

const arch_names arch_llama_names = {LLAMA_FRAME, LLAMA_NORMS, LLAMA_ATTENTION, LLAMA_QK_NORMS, LLAMA_MLP};

#define LLAMA_BIASES                                                                                                   \
  FLAG_OR(bias_qkv, "attention_bias", false), FLAG_OR(bias_o, "attention_bias", false),                                \
      FLAG_OR(bias_mlp, "mlp_bias", false)

static const cfg_field llama_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    HEAD_DIM_OR(0),
    POSITIONS_OR("max_position_embeddings", 0),
    USUAL_KV_HEADS_OR_ALL,
    LLAMA_BIASES,
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    TIED_OR(true),
    WINDOW_OR(0),
};

const arch arch_llama = {
    .name = "llama",
    .aliases = {"mistral", "iquestcoder"},
    FIELDS(llama_fields),
    .layers = LAYERS_BY_TYPES,
    .own_caches = true,
    .names = &arch_llama_names,
    .drops = {DROP_INV_FREQ, DROP_TIED_HEAD},
};

/* The interval is read where there is no list. Its caches are plain, though layer_types may ask for windows. */
static const cfg_field smollm3_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    HEAD_DIM_OR(0),
    POSITIONS_OR("max_position_embeddings", 0),
    USUAL_KV_HEADS_OR_ALL,
    LLAMA_BIASES,
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    TIED_OR(true),
    WINDOW_OR(0),
    CFG_INT_OR(model_config, no_rope_interval, "no_rope_layer_interval", 4, 1, INT_MAX),
};

const arch arch_smollm3 = {
    .name = "smollm3",
    FIELDS(smollm3_fields),
    .layers = LAYERS_BY_TYPES,
    .rope_on = ROPE_BY_LIST,
    .windows_by_time = true,
    .names = &arch_llama_names,
    .drops = {DROP_INV_FREQ, DROP_TIED_HEAD},
};

static const cfg_field qwen2_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    POSITIONS_OR("max_position_embeddings", 32768),
    THETA_OR("rope_theta", 1000000),
    TRADITIONAL_OR(false),
    TIED_OR(true),
    ALWAYS(bias_qkv),
};

const arch arch_qwen2 = {
    .name = "qwen2",
    FIELDS(qwen2_fields),
    .names = &arch_llama_names,
    .drops = {DROP_INV_FREQ, DROP_TIED_HEAD},
};

static const cfg_field mimo_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    POSITIONS_OR("max_position_embeddings", 32768),
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    TIED_OR(false),
    ALWAYS(bias_qkv),
};

const arch arch_mimo = {
    .name = "mimo",
    FIELDS(mimo_fields),
    .names = &arch_llama_names,
    .drops = {DROP_INV_FREQ, DROP_TIED_HEAD, {.pattern = "model.mtp_layers.", .match = MATCH_PREFIX}},
};

static const cfg_field qwen3_fields[] = {
    USUAL_SIZES, RMS_EPS, USUAL_KV_HEADS, POSITIONS("max_position_embeddings"), THETA("rope_theta"), HEAD_DIM, TIED,
};

const arch arch_qwen3 = {
    .name = "qwen3",
    FIELDS(qwen3_fields),
    .qk_norm = QK_HEAD,
    .names = &arch_llama_names,
    .drops = {DROP_TIED_HEAD},
};

static const cfg_field seed_oss_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    HEAD_DIM,
    POSITIONS_OR("max_position_embeddings", 0),
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_out_bias", false),
    FLAG_OR(bias_mlp, "mlp_bias", false),
    THETA_OR("rope_theta", 10000),
    TRADITIONAL_OR(false),
    TIED_OR(true),
};

const arch arch_seed_oss = {
    .name = "seed_oss",
    FIELDS(seed_oss_fields),
    .names = &arch_llama_names,
    .drops = {DROP_TIED_HEAD},
};

static const cfg_field telechat3_fields[] = {
    USUAL_SIZES,         RMS_EPS,        USUAL_KV_HEADS, POSITIONS("max_position_embeddings"),
    THETA("rope_theta"), HEAD_DIM_OR(0), LLAMA_BIASES,   TIED_OR(false),
};

const arch arch_telechat3 = {
    .name = "telechat3",
    FIELDS(telechat3_fields),
    .names = &arch_llama_names,
    .drops = {DROP_COPIED_HEAD},
};

/* ---- ministral3: rope settings in one object, and queries that grow with the position ---- */

static const cfg_field ministral3_fields[] = {
    USUAL_SIZES,           RMS_EPS,       HEAD_DIM_OR(0), POSITIONS_OR("max_position_embeddings", 0),
    USUAL_KV_HEADS_OR_ALL, TIED_OR(true), WINDOW_OR(0),
};

static tern_status ministral3_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  const char *where = scope == CFG_ROOT ? "config.json: rope_parameters" : "config.json: text_config: rope_parameters";
  const json_t *rope = cfg_get(c, scope, "rope_parameters");
  static const cfg_field fields[] = {
      THETA("rope_theta"),
      CFG_FLOAT_REQUIRED(model_config, temperature_beta, "llama_4_scaling_beta", 0, 1e6),
      CFG_INT_REQUIRED(model_config, temperature_span, "original_max_position_embeddings", 1, INT_MAX),
  };
  if (!json_is_object(rope))
    return err_set(err, TERN_E_FORMAT, "%s: must be an object", where);
  m->rope_scaling = rope;
  return cfg_read_object(rope, where, fields, sizeof fields / sizeof *fields, m, err);
}

const arch arch_ministral3 = {
    .name = "ministral3",
    FIELDS(ministral3_fields),
    .finish = ministral3_finish,
    .layers = LAYERS_BY_TYPES,
    .own_caches = true,
    .names = &arch_llama_names,
    .drops = {DROP_INV_FREQ, DROP_TIED_HEAD, {.pattern = "activation_scale"}},
};

/* ---- rope in pairs ---- */

/* The reference has an untied head even in tied models, loads it and does not use it: a file may bring one. */
static const cfg_field helium_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    FLAG(bias_qkv, "attention_bias"),
    FLAG(bias_mlp, "mlp_bias"),
    POSITIONS("max_position_embeddings"),
    THETA("rope_theta"),
    TIED,
    ALWAYS(rope_traditional),
};

const arch arch_helium = {
    .name = "helium",
    FIELDS(helium_fields),
    .rope = ROPE_PLAIN,
    .names = &arch_llama_names,
    .drops = {{.pattern = "lm_head", .match = MATCH_MODULE, .when = DROP_IF_TIED}},
};

static const cfg_field ernie4_5_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    HEAD_DIM_OR(0),
    FLAG(bias_qkv, "use_bias"),
    FLAG(bias_o, "use_bias"),
    FLAG(bias_mlp, "use_bias"),
    POSITIONS("max_position_embeddings"),
    THETA("rope_theta"),
    TIED,
    ALWAYS(rope_traditional),
};

const arch arch_ernie4_5 = {
    .name = "ernie4_5",
    FIELDS(ernie4_5_fields),
    .rope = ROPE_PLAIN,
    .names = &arch_llama_names,
    .drops = {DROP_COPIED_HEAD},
};

/* ---- multipliers ---- */

static const cfg_field granite_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    FACTOR(logit_divisor, "logits_scaling"),
    FACTOR(attention_scale, "attention_multiplier"),
    FACTOR(embed_scale, "embedding_multiplier"),
    FACTOR(residual_scale, "residual_multiplier"),
    POSITIONS("max_position_embeddings"),
    FLAG(bias_qkv, "attention_bias"),
    FLAG(bias_o, "attention_bias"),
    FLAG(bias_mlp, "mlp_bias"),
    THETA("rope_theta"),
    TIED_OR(true),
};

const arch arch_granite = {
    .name = "granite",
    FIELDS(granite_fields),
    .scale = SCALE_KEY,
    .names = &arch_llama_names,
    .drops = {DROP_COPIED_HEAD},
};

/* residual_scale is read as scale_depth, head_divisor as dim_model_base. */
static const cfg_field minicpm_fields[] = {
    USUAL_SIZES,
    RMS_EPS,
    USUAL_KV_HEADS,
    CFG_FLOAT_REQUIRED(model_config, head_divisor, "dim_model_base", 1e-6, 1e9),
    FACTOR(residual_scale, "scale_depth"),
    FACTOR(embed_scale, "scale_emb"),
    POSITIONS_OR("max_position_embeddings", 0),
    THETA_OR("rope_theta", 1000000),
    TRADITIONAL_OR(false),
    TIED_OR(false),
};

static tern_status minicpm_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  (void)c, (void)scope, (void)err;
  m->residual_scale /= pow(m->layers, 0.5);
  m->head_divisor = m->width / m->head_divisor;
  return TERN_OK;
}

const arch arch_minicpm = {
    .name = "minicpm",
    FIELDS(minicpm_fields),
    .finish = minicpm_finish,
    .head = HEAD_OR_EMBED,
    .names = &arch_llama_names,
    .drops = {DROP_COPIED_HEAD},
};
