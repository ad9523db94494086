/* config.c - config.json through an architecture's table, then what no table can express, then the checks.
 *
 * A wrapper's config is that of its text model with some fields replaced: the two tables are merged by the member they
 * fill, so that a default that differs is one row. Refused here: values that no later room could carry, each by its
 * key. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/arch.h"

enum { MOST_FIELDS = 64 };

/* ---- layers ---- */

static tern_status no_layer(const model_config *m, const char *where, const char *kind, tern_error *err)
{
  return err_set(err, TERN_E_UNSUPPORTED, "%s: layer_types: no %s layer; the reference's %s needs one", where, kind,
                 m->arch->name);
}

static tern_status read_layer_types(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  const char *where = cfg_where(scope);
  const json_t *types = cfg_get(c, scope, "layer_types");
  bool by_fours = m->arch->layers == LAYERS_BY_TYPES_4;
  if (types && (!json_is_array(types) || json_array_size(types) != (size_t)m->layers))
    return err_set(err, TERN_E_FORMAT, "%s: layer_types: must list %d layers", where, m->layers);
  int full = 0;
  for (int i = 0; i < m->layers; i++) {
    const char *type = json_string_value(json_array_get(types, (size_t)i));
    if (!types)
      m->layer[i].sliding = by_fours && (i + 1) % 4 != 0;
    else if (type && strcmp(type, "sliding_attention") == 0)
      m->layer[i].sliding = true;
    else if (!type || strcmp(type, "full_attention") != 0)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: layer_types[%d]: %s is not full_attention or sliding_attention",
                     where, i, type ? type : "a value that is no string");
    full += !m->layer[i].sliding;
  }
  if (!full)
    return no_layer(m, where, "full_attention", err);
  return by_fours && full == m->layers ? no_layer(m, where, "sliding_attention", err) : TERN_OK;
}

static tern_status read_letters(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  const char *where = cfg_where(scope), *letters;
  const json_t *value = cfg_get(c, scope, "sliding_window_pattern");
  if (!value)
    return TERN_OK;
  letters = json_string_value(value);
  if (!letters || letters[strspn(letters, "LG")] || !strchr(letters, 'L') || !strchr(letters, 'G'))
    return err_set(err, TERN_E_FORMAT, "%s: sliding_window_pattern: must be a string of L and G that has both", where);
  size_t n = strlen(letters);
  /* The reference takes its masks from the caches of the first L and the first G. */
  if (strcspn(letters, "L") >= (size_t)m->layers || strcspn(letters, "G") >= (size_t)m->layers)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: sliding_window_pattern: its first L or G is beyond the %d layers",
                   where, m->layers);
  for (int i = 0; i < m->layers; i++)
    m->layer[i].sliding = letters[(size_t)i % n] == 'L';
  return TERN_OK;
}

static tern_status read_layers(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  const char *where = cfg_where(scope);
  switch (m->arch->layers) {
  case LAYERS_BY_TYPES:
  case LAYERS_BY_TYPES_4:
    TRY(read_layer_types(c, scope, m, err));
    break;
  case LAYERS_BY_PATTERN:
    if (m->sliding_pattern > m->layers)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: sliding_window_pattern: %d is more than the %d layers", where,
                     m->sliding_pattern, m->layers);
    for (int i = 0; i < m->layers; i++)
      m->layer[i].sliding = (i + 1) % m->sliding_pattern != 0;
    break;
  case LAYERS_BY_LETTERS:
    TRY(read_letters(c, scope, m, err));
    break;
  default:
    break;
  }
  for (int i = 0; i < m->layers; i++)
    if (m->layer[i].sliding && !m->sliding_window)
      return err_set(err, TERN_E_FORMAT, "%s: sliding_window: needed by layer %d, which slides, but absent", where, i);
  return TERN_OK;
}

/* ---- rope ---- */

static tern_status read_rope_list(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  const char *where = cfg_where(scope);
  char list_where[80];
  snprintf(list_where, sizeof list_where, "%s: no_rope_layers", where);
  const json_t *list = cfg_get(c, scope, "no_rope_layers");
  if (list && (!json_is_array(list) || json_array_size(list) != (size_t)m->layers))
    return err_set(err, TERN_E_FORMAT, "%s: no_rope_layers: must list %d layers", where, m->layers);
  if (!list && !m->no_rope_interval)
    return err_set(err, TERN_E_FORMAT, "%s: no_rope_layers: required, but absent", where);
  for (int i = 0; i < m->layers; i++) {
    bool on = list ? false : (i + 1) % m->no_rope_interval != 0;
    if (list)
      TRY(cfg_value_bool(json_array_get(list, (size_t)i), list_where, &on, err));
    m->layer[i].rope = on ? 0 : -1;
  }
  return TERN_OK;
}

static tern_status read_rope_on(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  bool slides = false;
  for (int i = 0; i < m->layers; i++)
    slides |= m->layer[i].sliding;
  arch_rope_on on = m->arch->rope_on;
  if (on == ROPE_BY_LIST)
    return read_rope_list(c, scope, m, err);
  for (int i = 0; i < m->layers; i++) {
    bool sliding = m->layer[i].sliding;
    bool yes =
        on == ROPE_EVERYWHERE || (on == ROPE_SLIDING && sliding) || (on == ROPE_SLIDING_OR_ALL && (sliding || !slides));
    m->layer[i].rope = (int8_t)(!yes ? -1 : sliding && m->arch->rope_local != ROPE_SAME ? 1 : 0);
  }
  return TERN_OK;
}

static tern_status read_ropes(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  const arch *a = m->arch;
  TRY(read_rope_on(c, scope, m, err));
  if (a->rope_on == ROPE_NOWHERE)
    return TERN_OK;
  int dims = (int)(m->head_dim * m->rotary_factor); /* int() of Python, of the same product */
  if (dims < 2 || dims % 2 || dims > m->head_dim)
    return err_set(err, TERN_E_UNSUPPORTED,
                   "%s: %d of the %d dimensions of a head would be rotated; an even number "
                   "from 2 on is needed",
                   cfg_where(scope), dims, m->head_dim);
  rope_config r = {.kind = a->rope ? a->rope : ROPE_FACTORY,
                   .base = m->rope_theta,
                   .dims = dims,
                   .traditional = m->rope_traditional,
                   .scaling = m->rope_scaling,
                   .max_positions = m->max_positions,
                   .original_positions = m->original_positions};
  m->ropes[0] = m->ropes[1] = r;
  if (a->rope_local != ROPE_SAME)
    m->ropes[1].kind = a->rope_local;
  if (m->rope_local_theta > 0)
    m->ropes[1].base = m->rope_local_theta;
  return TERN_OK;
}

/* Kinds that do not read it leave it alone, whatever it is. */
static tern_status read_scaling(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  rope_kind kind = m->arch->rope;
  if (kind == ROPE_PLAIN || kind == ROPE_BACKWARD || m->arch->rope_on == ROPE_NOWHERE)
    return TERN_OK;
  m->rope_scaling = cfg_get(c, scope, "rope_scaling");
  if (m->rope_scaling && !json_is_object(m->rope_scaling))
    return err_set(err, TERN_E_FORMAT, "%s: rope_scaling: must be an object", cfg_where(scope));
  return TERN_OK;
}

/* ---- checks ---- */

/* Axes that a block has no place for: a row that combines them would compile to wrong numbers. */
static tern_status check_axes(const model_config *m, tern_error *err)
{
  arch_block block = model_config_block(m);
  bool parts = true, normed = block == BLOCK_POST || block == BLOCK_SANDWICH;
  for (int i = 0; i < m->layers; i++)
    parts &= m->layer[i].attention != PART_NONE && m->layer[i].mlp != PART_NONE;
  const char *fault = m->residual_scale != 1 && block != BLOCK_PRE ? "a residual scale"
                      : !parts && block != BLOCK_PRE               ? "halves that are not there"
                      : m->arch->clip_f16 && !normed               ? "clipped sums"
                                                                   : NULL;
  if (fault)
    return err_set(err, TERN_E_INTERNAL, "%s: its block has no place for %s", m->arch->name, fault);
  return TERN_OK;
}

static tern_status check_heads(const model_config *m, const char *where, tern_error *err)
{
  for (int i = 0; i < m->layers; i++) {
    const layer_config *l = &m->layer[i];
    if (l->attention == PART_USUAL && l->heads % l->kv_heads)
      return err_set(err, TERN_E_FORMAT, "%s: %d query heads are not a multiple of %d key-value heads (layer %d)",
                     where, l->heads, l->kv_heads, i);
    if ((int64_t)l->heads * m->head_dim > INT32_MAX / 4)
      return err_set(err, TERN_E_FORMAT, "%s: %d heads of %d are too many", where, l->heads, m->head_dim);
  }
  return TERN_OK;
}

tern_status model_config_act(const model_config *m, ops_act *out, tern_error *err)
{
  static const struct {
    const char *name;
    ops_act act;
  } acts[] = {{"silu", ACT_SILU},
              {"relu", ACT_RELU},
              {"gelu", ACT_GELU},
              {"gelu_new", ACT_GELU_TANH},
              {"gelu_fast", ACT_GELU_TANH}};
  *out = m->arch->act;
  if (!m->act)
    return TERN_OK;
  for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
    if (strcmp(acts[i].name, m->act) == 0) {
      *out = acts[i].act;
      return TERN_OK;
    }
  return err_set(err, TERN_E_UNSUPPORTED, "config.json: hidden_act: %s is not silu, relu, gelu, gelu_new or gelu_fast",
                 m->act);
}

/* ---- wrappers ---- */

/* The text model of wrapper `w`: chosen by text_config's model_type where there is a choice. */
static tern_status choose_text(const cfg *c, const arch *w, cfg_scope scope, const arch **out, tern_error *err)
{
  const char *type = json_string_value(cfg_get(c, scope, "model_type"));
  for (int i = 0; i < ARCH_MAX_WRAPS && w->wraps[i].text; i++) {
    if (w->wraps[i].type && !(type && strcmp(type, w->wraps[i].type) == 0))
      continue;
    *out = w->wraps[i].text;
    return TERN_OK;
  }
  return err_set(err, TERN_E_UNSUPPORTED, "%s: model_type: %s is no text model of %s", cfg_where(scope),
                 type ? type : "(absent)", w->name);
}

/* The text model's table with the wrapper's rows in place of those that fill the same member, or behind them. */
static tern_status merge_fields(const arch *text, const arch *wrapper, cfg_field out[MOST_FIELDS], size_t *count,
                                tern_error *err)
{
  size_t n = 0, more = wrapper ? wrapper->n_fields : 0;
  if (text->n_fields + more > MOST_FIELDS)
    return err_set(err, TERN_E_INTERNAL, "%s: more than %d keys", text->name, MOST_FIELDS);
  for (size_t i = 0; i < text->n_fields; i++)
    out[n++] = text->fields[i];
  for (size_t i = 0; i < more; i++) {
    size_t k = 0;
    while (k < n && out[k].offset != wrapper->fields[i].offset)
      k++;
    out[k] = wrapper->fields[i];
    n += k == n;
  }
  *count = n;
  return TERN_OK;
}

/* ---- read ---- */

static tern_status fill_sizes(model_config *m, const char *where, tern_error *err)
{
  if (m->kv_heads == 0)
    m->kv_heads = m->heads;
  if (m->head_dim == 0)
    m->head_dim = m->width / m->heads;
  if (m->head_dim == 0)
    return err_set(err, TERN_E_FORMAT, "%s: hidden_size: %d is less than num_attention_heads %d", where, m->width,
                   m->heads);
  return TERN_OK;
}

static void fill_layers(model_config *m)
{
  for (int i = 0; i < m->layers; i++) {
    layer_config *l = &m->layer[i];
    l->heads = l->heads ? l->heads : m->heads;
    l->kv_heads = l->kv_heads ? l->kv_heads : m->kv_heads;
    l->ffn = l->ffn ? l->ffn : m->ffn;
  }
}

static tern_status read_text(const cfg *c, cfg_scope scope, model_config *m, tern_error *err)
{
  const arch *a = m->arch, *w = m->wrapper;
  cfg_field fields[MOST_FIELDS];
  size_t n;
  ops_act act;
  TRY(merge_fields(a, w, fields, &n, err));
  TRY(cfg_read(c, scope, fields, n, m, err));
  if (w && w->n_root_fields)
    TRY(cfg_read(c, CFG_ROOT, w->root_fields, w->n_root_fields, m, err));
  TRY(read_scaling(c, scope, m, err));
  TRY(fill_sizes(m, cfg_where(scope), err));
  if (a->finish)
    TRY(a->finish(c, scope, m, err));
  fill_layers(m);
  TRY(read_layers(c, scope, m, err));
  TRY(read_ropes(c, scope, m, err));
  TRY(model_config_act(m, &act, err));
  TRY(check_axes(m, err));
  return check_heads(m, cfg_where(scope), err);
}

static model_config blank(const arch *a)
{
  return (model_config){.arch = a,
                        .norm_bias = true,
                        .qk_norm = true,
                        .parallel = true,
                        .embed_scale = 1,
                        .residual_scale = 1,
                        .logit_scale = 1,
                        .logit_divisor = 1,
                        .head_divisor = 1,
                        .rotary_factor = 1};
}

static cfg_scope text_scope(const cfg *c, const arch *a)
{
  return a->wraps[0].text && (cfg_has(c, CFG_TEXT) || !a->flat_config) ? CFG_TEXT : CFG_ROOT;
}

tern_status model_config_read(const cfg *c, const arch *a, model_config *out, tern_error *err)
{
  cfg_scope scope = text_scope(c, a);
  *out = blank(a);
  if (a->wraps[0].text) {
    out->wrapper = a;
    if (!cfg_has(c, scope))
      return err_set(err, TERN_E_FORMAT, "config.json: text_config: required by %s, but absent", a->name);
    TRY(choose_text(c, a, scope, &out->arch, err));
  }
  return read_text(c, scope, out, err);
}

/* ---- sketches ---- */

/* One field, whatever its trouble: absent or wrong, it gets its fallback. */
static void sketch_field(const cfg *c, cfg_scope scope, cfg_field f, model_config *m)
{
  f.required = false;
  if (cfg_read(c, scope, &f, 1, m, NULL) != TERN_OK)
    cfg_read_object(NULL, "", &f, 1, m, NULL);
}

static bool is_there(const cfg *c, cfg_scope scope, const char *keys)
{
  char key[64];
  for (size_t n; *keys; keys += n + (keys[n] == '|')) {
    n = strcspn(keys, "|");
    snprintf(key, sizeof key, "%.*s", (int)n, keys);
    if (cfg_get(c, scope, key))
      return true;
  }
  return false;
}

/* Sizes of one where there are none: nothing is divided by zero, and each layer has a head. */
static void sketch_sizes(model_config *m, int layers)
{
  m->layers = m->layers > 0 ? m->layers : layers;
  m->layers = m->layers < 1 ? 1 : m->layers > MODEL_MAX_LAYERS ? MODEL_MAX_LAYERS : m->layers;
  m->width = m->width > 0 ? m->width : 1;
  m->heads = m->heads > 0 ? m->heads : 1;
  m->kv_heads = m->kv_heads > 0 ? m->kv_heads : m->heads;
  m->head_dim = m->head_dim > 0 ? m->head_dim : 1;
  m->ffn = m->ffn > 0 ? m->ffn : 1;
  fill_layers(m);
}

void model_config_sketch(const cfg *c, const arch *a, int layers, model_config *out, model_config_missing *missing,
                         void *user)
{
  cfg_field fields[MOST_FIELDS];
  cfg_scope scope = text_scope(c, a);
  *out = blank(a);
  if (a->wraps[0].text) {
    out->wrapper = a;
    if (!cfg_has(c, scope))
      missing(user, CFG_ROOT, "text_config");
    if (choose_text(c, a, scope, &out->arch, NULL) != TERN_OK)
      out->arch = a->wraps[0].text;
  }
  size_t n = 0;
  if (merge_fields(out->arch, out->wrapper, fields, &n, NULL) != TERN_OK)
    n = 0; /* a row that no table holds: its own test fails */
  for (size_t i = 0; i < n; i++) {
    char first[64];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(fields[i].keys, "|"), fields[i].keys);
    if (fields[i].required && !is_there(c, scope, fields[i].keys))
      missing(user, scope, first);
    sketch_field(c, scope, fields[i], out);
  }
  for (size_t i = 0; i < a->n_root_fields; i++)
    sketch_field(c, CFG_ROOT, a->root_fields[i], out);
  sketch_sizes(out, layers);
  read_scaling(c, scope, out, NULL); /* from here on for the marks, and for parts that layers do not have */
  if (out->arch->finish)
    out->arch->finish(c, scope, out, NULL);
  sketch_sizes(out, layers);
  read_layers(c, scope, out, NULL);
  read_rope_on(c, scope, out, NULL);
}

arch_block model_config_block(const model_config *m)
{
  return m->parallel ? m->arch->block : m->arch->block_unless_parallel;
}

double model_config_scale(const model_config *m)
{
  switch (m->arch->scale) {
  case SCALE_PRE_SCALAR:
    return pow(m->query_pre_attn_scalar, -0.5); /* Python's d ** -0.5 */
  case SCALE_ROOT:
    return 1.0 / pow(m->query_pre_attn_scalar, 0.5);
  case SCALE_INVERSE:
    return sqrt(1.0 / m->head_dim);
  case SCALE_KEY:
    return m->attention_scale;
  default:
    return pow(m->head_dim, -0.5);
  }
}
