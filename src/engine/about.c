/* about.c - see about.h. */
#include "engine/about.h"

#include <stdio.h>
#include <string.h>

/* The tensor PATH.other beside PATH.own; NULL: `t` is no PATH.own, or there is none. */
static const st_tensor *beside(const ckpt *c, const st_tensor *t, const char *own, const char *other)
{
  char name[1024];
  size_t n = strlen(t->name), m = strlen(own);
  if (n < m || strcmp(t->name + n - m, own) != 0 || n - m + strlen(other) >= sizeof name)
    return NULL;
  snprintf(name, sizeof name, "%.*s%s", (int)(n - m), t->name, other);
  return ckpt_find(c, name);
}

/* Values that a tensor stands for: packed ones count, their scales do not. */
static double values_of(const model *m, const st_tensor *t)
{
  char path[1024];
  bool quantised = false;
  quant_params p;
  double values = (double)t->bytes / (double)st_dtype_size(t->dtype);
  const st_tensor *packed = beside(m->ckpt, t, ".scales", ".weight");
  if (!packed)
    packed = beside(m->ckpt, t, ".biases", ".weight");
  if (packed && packed->dtype == ST_U32)
    return 0;
  if (t->dtype == ST_U8 && quant_is_ternary(m->quant))
    return 4 * values;
  if (t->dtype != ST_U32 || !beside(m->ckpt, t, ".weight", ".scales"))
    return values;
  snprintf(path, sizeof path, "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
  if (quant_find(m->quant, path, NULL, true, &quantised, &p, NULL) != TERN_OK || !quantised)
    return values;
  return values * 32 / p.bits;
}

double about_parameters(const model *m)
{
  double all = 0;
  for (size_t i = 0; i < ckpt_count(m->ckpt); i++)
    all += ckpt_marked(m->ckpt, ckpt_at(m->ckpt, i)) ? values_of(m, ckpt_at(m->ckpt, i)) : 0;
  return all;
}

const char *about_quantisation(const cfg *c, const quant_config *q, char out[64])
{
  if (quant_present(q)) {
    quant_params p = quant_globals(q);
    snprintf(out, 64, "%s %d-bit g%d", quant_mode_name(p.mode), p.bits, p.group_size);
    return out;
  }
  const json_t *dtype = cfg_get(c, CFG_ROOT, "torch_dtype");
  if (!dtype)
    dtype = cfg_get(c, CFG_ROOT, "dtype");
  snprintf(out, 64, "%.60s", json_is_string(dtype) ? json_string_value(dtype) : "dense");
  return out;
}
