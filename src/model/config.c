/* config.c - config.json through an architecture's table, then the checks that no table can express. */
#include "model/config.h"

#include <math.h>
#include <string.h>

#include "model/arch.h"

/* Where every decoder of the reference that takes rope_scaling has it. */
static tern_status read_rope_scaling(const cfg *c, model_config *m, tern_error *err)
{
  m->rope_scaling = cfg_get(c, CFG_ROOT, "rope_scaling");
  if (m->rope_scaling && !json_is_object(m->rope_scaling))
    return err_set(err, TERN_E_FORMAT, "config.json: rope_scaling: must be an object");
  return TERN_OK;
}

static tern_status read_layer_types(const cfg *c, model_config *m, tern_error *err)
{
  const json_t *types = cfg_get(c, CFG_ROOT, "layer_types");
  if (!types)
    return TERN_OK;
  if (!json_is_array(types) || json_array_size(types) != (size_t)m->layers)
    return err_set(err, TERN_E_FORMAT, "config.json: layer_types: must list %d layers", m->layers);
  int full = 0;
  for (int i = 0; i < m->layers; i++) {
    const char *type = json_string_value(json_array_get(types, (size_t)i));
    if (type && strcmp(type, "full_attention") == 0)
      full++;
    else if (type && strcmp(type, "sliding_attention") == 0)
      m->sliding[i] = 1;
    else
      return err_set(err, TERN_E_UNSUPPORTED,
                     "config.json: layer_types[%d]: %s is not full_attention or sliding_attention", i,
                     type ? type : "a value that is no string");
  }
  if (!full)
    return err_set(err, TERN_E_UNSUPPORTED,
                   "config.json: layer_types: no full_attention layer; the reference needs one");
  if (full < m->layers && !m->sliding_window)
    return err_set(err, TERN_E_FORMAT,
                   "config.json: sliding_window: needed by the sliding_attention layers, but absent");
  return TERN_OK;
}

static tern_status read_layers(const cfg *c, model_config *m, tern_error *err)
{
  switch (m->arch->layers) {
  case LAYERS_BY_TYPES:
    return read_layer_types(c, m, err);
  case LAYERS_BY_PATTERN:
    if (m->sliding_pattern > m->layers)
      return err_set(err, TERN_E_UNSUPPORTED, "config.json: sliding_window_pattern: %d is more than the %d layers",
                     m->sliding_pattern, m->layers);
    for (int i = 0; i < m->layers; i++)
      m->sliding[i] = (i + 1) % m->sliding_pattern != 0;
    return TERN_OK;
  default:
    return TERN_OK;
  }
}

static tern_status check(const model_config *m, tern_error *err)
{
  if (m->heads % m->kv_heads)
    return err_set(err, TERN_E_FORMAT,
                   "config.json: num_attention_heads: %d is not a multiple of num_key_value_heads %d", m->heads,
                   m->kv_heads);
  if (m->head_dim % 2)
    return err_set(err, TERN_E_UNSUPPORTED, "config.json: head_dim: %d is odd", m->head_dim);
  return TERN_OK;
}

tern_status model_config_read(const cfg *c, const arch *a, model_config *out, tern_error *err)
{
  model_config m = {.arch = a};
  TRY(cfg_read(c, CFG_ROOT, a->fields, a->n_fields, &m, err));
  TRY(read_rope_scaling(c, &m, err));
  if (m.kv_heads == 0)
    m.kv_heads = m.heads;
  if (m.head_dim == 0) {
    m.head_dim = m.width / m.heads;
    if (m.head_dim == 0)
      return err_set(err, TERN_E_FORMAT, "config.json: hidden_size: %d is less than num_attention_heads %d", m.width,
                     m.heads);
  }
  TRY(read_layers(c, &m, err));
  TRY(check(&m, err));
  *out = m;
  return TERN_OK;
}

rope_config model_config_rope(const model_config *c, int layer)
{
  rope_config r = {
      .base = c->rope_theta,
      .dims = c->head_dim,
      .traditional = c->rope_traditional,
      .scaling = c->rope_scaling,
      .max_positions = c->max_positions,
  };
  if (c->arch->local_rope && c->sliding[layer]) {
    r.base = c->rope_local_theta;
    r.scaling = NULL;
  }
  return r;
}

double model_config_scale(const model_config *c)
{
  double d = c->arch->scale == SCALE_PRE_SCALAR ? c->query_pre_attn_scalar : c->head_dim;
  return pow(d, -0.5); /* Python's d ** -0.5 */
}
