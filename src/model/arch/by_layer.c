/* by_layer.c - openelm and nemotron-nas, whose layers differ: heads and widths of their own, halves replaced by one
 * matrix or by nothing. */
#include <math.h>
#include <string.h>

#include "model/arch/rows.h"

/* ---- openelm ---- */

static const arch_names openelm_names = {
    .embed = "transformer.token_embeddings",
    .final_norm = "transformer.norm",
    .head = "lm_head",
    .norm = {"transformer.layers.{}.attn_norm", "transformer.layers.{}.ffn_norm"},
    .qkv = "transformer.layers.{}.attn.qkv_proj",
    .o = "transformer.layers.{}.attn.out_proj",
    .q_norm = "transformer.layers.{}.attn.q_norm",
    .k_norm = "transformer.layers.{}.attn.k_norm",
    .gate_up = "transformer.layers.{}.ffn.proj_1",
    .down = "transformer.layers.{}.ffn.proj_2",
};

/* Heads and widths are lists; openelm_finish reads them. */
static const cfg_field openelm_fields[] = {
    HEAD_DIM,
    LAYERS("num_transformer_layers"),
    WIDTH("model_dim"),
    VOCAB("vocab_size"),
    FLAG_OR(qk_norm, "normalize_qk_projections", true),
    FLAG_OR(tied, "share_input_output_layers", true),
    EPS_OR("rms_norm_eps", 1e-6),
    THETA_OR("rope_freq_constant", 10000),
    POSITIONS_OR("max_context_length", 0),
    CFG_FIXED_INT(heads, 1),
    CFG_FIXED_INT(ffn, 1),
};

/* A width near `v` that `divisor` divides, never more than a tenth below it. */
static double make_divisible(double v, int divisor)
{
  double whole = floor(trunc(v + divisor / 2.0) / divisor) * divisor;
  whole = whole > divisor ? whole : divisor;
  return whole < 0.9 * v ? whole + divisor : whole;
}

static tern_status layer_number(const json_t *list, const char *key, int i, double most, double *out, tern_error *err)
{
  TRY(cfg_value_float(json_array_get(list, (size_t)i), key, out, err));
  if (!(*out > 0 && *out <= most))
    return err_set(err, TERN_E_FORMAT, "%s[%d]: %g is not between 0 and %g", key, i, *out, most);
  return TERN_OK;
}

static tern_status openelm_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  static const char *const keys[] = {"num_query_heads", "num_kv_heads", "ffn_multipliers"};
  static const char *const where[] = {"config.json: num_query_heads", "config.json: num_kv_heads",
                                      "config.json: ffn_multipliers"};
  const json_t *lists[3];
  int64_t divisor;
  const json_t *value = cfg_get(c, scope, "ffn_dim_divisor");
  if (!value)
    return err_set(err, TERN_E_FORMAT, "config.json: ffn_dim_divisor: required, but absent");
  TRY(cfg_value_int(value, "config.json: ffn_dim_divisor", 1, ARCH_WIDEST, &divisor, err));
  for (int k = 0; k < 3; k++) {
    lists[k] = cfg_get(c, scope, keys[k]);
    if (!json_is_array(lists[k]) || json_array_size(lists[k]) < (size_t)m->layers)
      return err_set(err, TERN_E_FORMAT, "%s: must list %d layers", where[k], m->layers);
  }
  m->heads = m->kv_heads = m->ffn = 0;
  for (int i = 0; i < m->layers; i++) {
    double heads, kv_heads, multiplier;
    TRY(layer_number(lists[0], where[0], i, ARCH_MOST_HEADS, &heads, err));
    TRY(layer_number(lists[1], where[1], i, ARCH_MOST_HEADS, &kv_heads, err));
    TRY(layer_number(lists[2], where[2], i, 1024, &multiplier, err));
    double ffn = make_divisible(multiplier * m->width, (int)divisor);
    if (heads != rint(heads) || kv_heads != rint(kv_heads) || ffn > ARCH_WIDEST)
      return err_set(err, TERN_E_FORMAT, "config.json: layer %d: %g heads, %g kv heads, a width of %g", i, heads,
                     kv_heads, ffn);
    m->layer[i].heads = (int)heads;
    m->layer[i].kv_heads = (int)kv_heads;
    m->layer[i].ffn = (int)ffn;
    m->heads = (int)heads > m->heads ? (int)heads : m->heads;
    m->kv_heads = (int)kv_heads > m->kv_heads ? (int)kv_heads : m->kv_heads;
    m->ffn = (int)ffn > m->ffn ? (int)ffn : m->ffn;
  }
  return TERN_OK;
}

const arch arch_openelm = {
    .name = "openelm",
    FIELDS(openelm_fields),
    .finish = openelm_finish,
    .qk_norm = QK_HEAD,
    .pack = PACK_QKV,
    .mlp = MLP_FUSED,
    .rope = ROPE_PLAIN,
    .names = &openelm_names,
};

/* ---- nemotron-nas ---- */

static const arch_names nas_names = {
    LLAMA_FRAME,
    LLAMA_NORMS,
    LLAMA_ATTENTION,
    LLAMA_MLP,
    .attention_linear = "model.layers.{}.self_attn.linear",
    .mlp_linear = "model.layers.{}.mlp.linear",
};

static const cfg_field nas_fields[] = {
    WIDTH_OR("hidden_size", 8192),
    LAYERS_OR("num_hidden_layers", 80),
    HEADS_OR("num_attention_heads", 64),
    EPS_OR("rms_norm_eps", 1e-5),
    VOCAB_OR("vocab_size", 128256),
    CFG_STRING_OR(model_config, act, "hidden_act", "silu"),
    FLAG_OR(bias_qkv, "attention_bias", false),
    FLAG_OR(bias_o, "attention_bias", false),
    FLAG_OR(bias_mlp, "mlp_bias", false),
    THETA_OR("rope_theta", 500000),
    POSITIONS_OR("max_position_embeddings", 131072),
    TIED_OR(false),
    CFG_FIXED_INT(ffn, 1),
};

/* "attention" or "ffn" of one block: which part it is; *size gets the number that the part is described by. */
static tern_status read_part(const json_t *block, const char *where, const char *key, double *size, uint8_t *part,
                             tern_error *err)
{
  static const char *const known[] = {"no_op",
                                      "replace_with_linear",
                                      "sparsify",
                                      "n_heads_in_group",
                                      "window_length",
                                      "num_sink_tokens",
                                      "use_prefill_window_in_sink_attention",
                                      "unshifted_sink",
                                      "ffn_mult"};
  bool gone, linear;
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)block, name, value)
  {
    size_t i = 0;
    while (i < sizeof known / sizeof *known && strcmp(known[i], name) != 0)
      i++;
    if (i == sizeof known / sizeof *known)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: %s: no such key", where, name);
  }
  TRY(cfg_obj_bool(block, where, "no_op", false, false, &gone, err));
  TRY(cfg_obj_bool(block, where, "replace_with_linear", false, false, &linear, err));
  *part = gone ? PART_NONE : linear ? PART_LINEAR : PART_USUAL;
  *size = 1;
  return *part == PART_USUAL ? cfg_obj_float(block, where, key, true, 0, size, err) : TERN_OK;
}

static tern_status read_block(const json_t *block, int i, model_config *m, tern_error *err)
{
  layer_config *l = &m->layer[i];
  double group, multiplier;
  if (!json_is_object(block))
    return err_set(err, TERN_E_FORMAT, "config.json: block_configs[%d]: must be an object", i);
  TRY(read_part(cfg_obj_get(block, "attention"), "config.json: block_configs: attention", "n_heads_in_group", &group,
                &l->attention, err));
  TRY(read_part(cfg_obj_get(block, "ffn"), "config.json: block_configs: ffn", "ffn_mult", &multiplier, &l->mlp, err));
  if (!(group >= 1 && group <= m->heads) || group != rint(group) || m->heads % (int)group)
    return err_set(err, TERN_E_FORMAT, "config.json: block_configs[%d]: n_heads_in_group: %g does not divide %d heads",
                   i, group, m->heads);
  l->kv_heads = m->heads / (int)group;
  multiplier = rint(multiplier * 1e6) / 1e6; /* as Python's round(x, 6) for widths of this size */
  double ffn = trunc(2 * multiplier * m->width / 3);
  ffn = ceil(ffn / 256) * 256;
  if (l->mlp == PART_USUAL && !(ffn >= 1 && ffn <= ARCH_WIDEST))
    return err_set(err, TERN_E_FORMAT, "config.json: block_configs[%d]: ffn_mult: %g gives a width of %g", i,
                   multiplier, ffn);
  l->ffn = l->mlp == PART_USUAL ? (int)ffn : 1;
  m->ffn = l->ffn > m->ffn ? l->ffn : m->ffn;
  return TERN_OK;
}

static tern_status nas_finish(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  const json_t *blocks = cfg_get(c, scope, "block_configs");
  const json_t *scaling = m->rope_scaling;
  TRY(arch_heads_fill_width(c, scope, m, err));
  if (scaling && (!cfg_obj_get(scaling, "factor") || !cfg_obj_get(scaling, "rope_type")))
    return err_set(err, TERN_E_FORMAT, "config.json: rope_scaling: needs factor and rope_type");
  if (!json_is_array(blocks) || json_array_size(blocks) != (size_t)m->layers)
    return err_set(err, TERN_E_FORMAT, "config.json: block_configs: must list %d layers", m->layers);
  for (int i = 0; i < m->layers; i++)
    TRY(read_block(json_array_get(blocks, (size_t)i), i, m, err));
  return TERN_OK;
}

const arch arch_nemotron_nas = {
    .name = "nemotron-nas",
    FIELDS(nas_fields),
    .finish = nas_finish,
    .own_caches = true,
    .names = &nas_names,
    .drops = {DROP_TIED_HEAD},
};
