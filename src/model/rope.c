/* rope.c - see rope.h. In the formulas below `f` marks a step that the reference does in float32. */
#include "model/rope.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "format/json_util.h"
#include "ops/math.h"

typedef struct maker {
  const rope_config *config;
  const char *where;
  int half;
  float *freqs; /* [half]; the periods: the table gets their reciprocals */
} maker;

/* base ** (2i / dims), each step in float32. */
static float period(const rope_config *c, int i)
{
  return math_pow((float)c->base, (float)(2 * i) / (float)c->dims);
}

static tern_status finish(const maker *m, rope_table *out, tern_error *err)
{
  for (int i = 0; i < m->half; i++) {
    out->inverse[i] = 1.0f / m->freqs[i];
    if (!isfinite(out->inverse[i]))
      return err_set(err, TERN_E_FORMAT, "%s: these numbers give no finite frequency in pair %d", m->where, i);
  }
  return TERN_OK;
}

/* A divisor of the formulas: above zero, where Python would raise or give nonsense. */
static tern_status positive(const maker *m, const char *key, bool required, double fallback, double *out,
                            tern_error *err)
{
  TRY(cfg_obj_float(m->config->scaling, m->where, key, required, fallback, out, err));
  if (!(*out > 0) || !isfinite(*out))
    return err_set(err, TERN_E_FORMAT, "%s: %s: %g is not a finite number above zero", m->where, key, *out);
  return TERN_OK;
}

/* mx.fast.rope given a base: exp(-i * (log(base) / half)). */
static tern_status make_plain(const maker *m, rope_table *out, tern_error *err)
{
  (void)err;
  float step = math_log((float)m->config->base) / (float)m->half;
  for (int i = 0; i < m->half; i++)
    out->inverse[i] = math_exp((float)-i * step);
  return TERN_OK;
}

static tern_status make_linear(const maker *m, rope_table *out, tern_error *err)
{
  double factor;
  TRY(positive(m, "factor", true, 0, &factor, err));
  out->position_scale = (float)(1 / factor);
  return make_plain(m, out, err);
}

static tern_status make_mrope(const maker *m, rope_table *out, tern_error *err)
{
  const json_t *sections = cfg_obj_get(m->config->scaling, "mrope_section");
  if (!json_is_array(sections) || json_array_size(sections) != 3)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: mrope_section: must be a list of three sections", m->where);
  return make_plain(m, out, err);
}

static tern_status make_llama3(const maker *m, rope_table *out, tern_error *err)
{
  double factor, low, high, old;
  TRY(positive(m, "factor", true, 0, &factor, err));
  TRY(positive(m, "low_freq_factor", false, 1, &low, err));
  TRY(positive(m, "high_freq_factor", false, 4, &high, err));
  TRY(positive(m, "original_max_position_embeddings", false, 8192, &old, err));
  float low_wavelength = (float)(old / low), high_wavelength = (float)(old / high);
  float ffactor = (float)factor;
  for (int i = 0; i < m->half; i++) {
    float freq = period(m->config, i), wavelength = (float)(2 * 3.141592653589793) * freq;
    if (wavelength > low_wavelength)
      freq = freq * ffactor;
    if (wavelength > high_wavelength && wavelength < low_wavelength) {
      float smooth = ((float)old / wavelength - (float)low) / (float)(high - low);
      freq = freq / ((1.0f - smooth) / ffactor + smooth);
    }
    m->freqs[i] = freq;
  }
  return finish(m, out, err);
}

static double yarn_mscale(double scale, double mscale)
{
  return scale <= 1 ? 1.0 : 0.1 * mscale * log(scale) + 1.0;
}

static tern_status make_yarn(const maker *m, rope_table *out, tern_error *err)
{
  const json_t *s = m->config->scaling;
  double factor, old, fast, slow, mscale, mscale_all;
  TRY(positive(m, "factor", true, 0, &factor, err));
  TRY(positive(m, "original_max_position_embeddings", false, 4096, &old, err));
  TRY(positive(m, "beta_fast", false, 32, &fast, err));
  TRY(positive(m, "beta_slow", false, 1, &slow, err));
  TRY(cfg_obj_float(s, m->where, "mscale", false, 1, &mscale, err));
  TRY(cfg_obj_float(s, m->where, "mscale_all_dim", false, 0, &mscale_all, err));
  double dims = m->config->dims, base = log(m->config->base);
  double low = floor(dims * log(old / (fast * 2 * 3.141592653589793)) / (2 * base));
  double high = ceil(dims * log(old / (slow * 2 * 3.141592653589793)) / (2 * base));
  low = low > 0 ? low : 0;
  high = high < dims - 1 ? high : dims - 1;
  if (low == high)
    high += 0.001;
  for (int i = 0; i < m->half; i++) {
    float extra = period(m->config, i), inter = (float)factor * extra;
    float ramp = ((float)i - (float)low) / (float)(high - low);
    ramp = ramp > 0.0f ? ramp : 0.0f;
    ramp = ramp < 1.0f ? ramp : 1.0f;
    float mask = 1.0f - ramp;
    m->freqs[i] = (inter * extra) / (inter * mask + extra * (1.0f - mask));
  }
  out->mscale = (float)(yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all));
  return finish(m, out, err);
}

/* The reference uses long_factor alone, at every length. */
static tern_status make_scaled(const maker *m, double old, rope_table *out, tern_error *err)
{
  const json_t *s = m->config->scaling, *factors = cfg_obj_get(s, "long_factor");
  double scale = 1;
  if (!cfg_obj_get(s, "short_factor"))
    return err_set(err, TERN_E_FORMAT, "%s: short_factor: required, but absent", m->where);
  if (!json_is_number(factors) && (!json_is_array(factors) || json_array_size(factors) != (size_t)m->half))
    return err_set(err, TERN_E_FORMAT, "%s: long_factor: must be a number or a list of %d numbers", m->where, m->half);
  if (!m->config->max_positions)
    return err_set(err, TERN_E_FORMAT, "%s: longrope needs max_position_embeddings", m->where);
  double stretch = m->config->max_positions / old;
  if (stretch > 1)
    scale = sqrt(1 + log(stretch) / log(old));
  for (int i = 0; i < m->half; i++) {
    const json_t *f = json_is_array(factors) ? json_array_get(factors, (size_t)i) : factors;
    if (!json_is_number(f))
      return err_set(err, TERN_E_FORMAT, "%s: long_factor[%d]: must be a number", m->where, i);
    m->freqs[i] = (float)jsonu_real(f) * period(m->config, i);
  }
  out->mscale = (float)scale;
  out->traditional = false;
  return finish(m, out, err);
}

static tern_status make_longrope(const maker *m, rope_table *out, tern_error *err)
{
  double old;
  TRY(positive(m, "original_max_position_embeddings", true, 0, &old, err));
  return make_scaled(m, old, out, err);
}

/* Dims past the rotated part get an infinite period: they pair up and pass. */
static tern_status make_proportional(const maker *m, rope_table *out, tern_error *err)
{
  double factor, partial;
  TRY(positive(m, "factor", false, 1, &factor, err));
  TRY(cfg_obj_float(m->config->scaling, m->where, "partial_rotary_factor", false, 1, &partial, err));
  double rotated = trunc(m->config->dims * partial);
  if (!(rotated >= 0 && rotated <= m->config->dims))
    return err_set(err, TERN_E_FORMAT, "%s: partial_rotary_factor: %g is not between 0 and 1", m->where, partial);
  for (int i = 0; i < m->half; i++)
    m->freqs[i] = 2 * i < (int)rotated ? (float)factor * period(m->config, i) : INFINITY;
  return finish(m, out, err);
}

/* ---- kinds of single models ---- */

/* "type", where it is set and not empty, else "rope_type", else `fallback`. */
static tern_status scaling_type(const rope_config *config, const char *where, const char *fallback, const char **out,
                                tern_error *err)
{
  TRY(cfg_obj_string(config->scaling, where, "type", false, "", out, err));
  if (!**out)
    TRY(cfg_obj_string(config->scaling, where, "rope_type", false, fallback, out, err));
  return TERN_OK;
}

static tern_status unknown(const maker *m, const char *name, tern_error *err)
{
  return err_set(err, TERN_E_UNSUPPORTED, "%s: rope type %s is not known%s", m->where, name,
                 m->config->kind == ROPE_FACTORY ? "" : " to this architecture");
}

const char *rope_type_name(const json_t *scaling)
{
  const char *type = json_string_value(cfg_obj_get(scaling, "type"));
  if (!type || !*type)
    type = json_string_value(cfg_obj_get(scaling, "rope_type"));
  return type ? type : "default";
}

typedef tern_status make_fn(const maker *m, rope_table *out, tern_error *err);

static tern_status make_by_name(const maker *m, rope_table *out, tern_error *err)
{
  static const struct {
    const char *name;
    make_fn *make;
  } names[] = {
      {"default", make_plain},       {"mrope", make_mrope},       {"linear", make_linear},
      {"llama3", make_llama3},       {"yarn", make_yarn},         {"deepseek_yarn", make_yarn},
      {"telechat3-yarn", make_yarn}, {"longrope", make_longrope}, {"proportional", make_proportional},
  };
  const char *name;
  TRY(scaling_type(m->config, m->where, "default", &name, err));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i].name, name) == 0)
      return names[i].make(m, out, err);
  return unknown(m, name, err);
}

static tern_status make_linear_or_plain(const maker *m, rope_table *out, tern_error *err)
{
  const char *name;
  if (!m->config->scaling)
    return make_plain(m, out, err);
  TRY(scaling_type(m->config, m->where, "(absent type)", &name, err));
  return strcmp(name, "linear") == 0 ? make_linear(m, out, err) : unknown(m, name, err);
}

/* phi3 prints a warning for other types and goes on without; here they are refused. */
static tern_status make_su(const maker *m, rope_table *out, tern_error *err)
{
  const json_t *s = m->config->scaling;
  const char *name;
  if (!s)
    return make_plain(m, out, err);
  TRY(scaling_type(m->config, m->where, "(absent type)", &name, err));
  if (!cfg_obj_get(s, "long_factor"))
    return err_set(err, TERN_E_FORMAT, "%s: long_factor: required, but absent", m->where);
  if (strcmp(name, "linear") == 0)
    return make_linear(m, out, err);
  if (strcmp(name, "longrope") != 0 && strcmp(name, "su") != 0)
    return unknown(m, name, err);
  return make_scaled(m, m->config->original_positions, out, err);
}

/* internlm2 and internlm3 take the number of heads for the length and double every position where nothing says
 * "linear": both are defects, and the reference's bits (docs/parity.md). */
static tern_status make_ntk(const maker *m, rope_table *out, tern_error *err)
{
  const char *name = "";
  out->ntk_scale = 2;
  if (m->config->scaling) {
    double factor;
    TRY(scaling_type(m->config, m->where, "(absent type)", &name, err));
    TRY(positive(m, "factor", true, 0, &factor, err));
    if (strcmp(name, "linear") != 0 && strcmp(name, "dynamic") != 0)
      return unknown(m, name, err);
    if (strcmp(name, "linear") == 0)
      out->ntk_scale = 1 / factor;
  }
  if (m->config->dims <= 2)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: a head of %d dimensions has no base that grows", m->where,
                   m->config->dims);
  out->position_scale = (float)out->ntk_scale;
  out->ntk_base = m->config->base;
  out->ntk_from = m->config->max_positions;
  return make_plain(m, out, err);
}

static tern_status make_ntk_alpha(const maker *m, rope_table *out, tern_error *err)
{
  double alpha = 1, factor, dims = m->config->dims;
  const char *name;
  if (m->config->scaling) { /* all three keys are required, factor and type without effect */
    TRY(positive(m, "alpha", true, 0, &alpha, err));
    TRY(cfg_obj_float(m->config->scaling, m->where, "factor", true, 0, &factor, err));
    TRY(cfg_obj_string(m->config->scaling, m->where, "type", true, "", &name, err));
  }
  if (dims <= 2)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: a head of %d dimensions has no base that grows", m->where,
                   m->config->dims);
  rope_config grown = *m->config;
  grown.base *= pow(alpha, dims / (dims - 2));
  for (int i = 0; i < m->half; i++)
    m->freqs[i] = period(&grown, i);
  out->traditional = false;
  return finish(m, out, err);
}

/* Negated periods: -exp(i * (log(base) / half)). */
static tern_status make_backward(const maker *m, rope_table *out, tern_error *err)
{
  float step = (float)(log(m->config->base) / m->half);
  for (int i = 0; i < m->half; i++)
    m->freqs[i] = -math_exp((float)i * step);
  out->traditional = false;
  return finish(m, out, err);
}

tern_status rope_make(const rope_config *config, const char *where, rope_table *out, tern_error *err)
{
  static make_fn *const kinds[] = {
      [ROPE_FACTORY] = make_by_name,
      [ROPE_PLAIN] = make_plain,
      [ROPE_LINEAR] = make_linear_or_plain,
      [ROPE_SU] = make_su,
      [ROPE_NTK] = make_ntk,
      [ROPE_NTK_ALPHA] = make_ntk_alpha,
      [ROPE_BACKWARD] = make_backward,
  };
  maker m = {config, where, config->dims / 2, NULL};
  rope_table table = {.dims = config->dims, .traditional = config->traditional, .position_scale = 1, .mscale = 1};
  table.inverse = mem_array((size_t)m.half, sizeof *table.inverse);
  m.freqs = mem_array((size_t)m.half, sizeof *m.freqs);
  tern_status status = table.inverse && m.freqs ? kinds[config->kind](&m, &table, err) : err_nomem(err, "rope table");
  mem_free(m.freqs);
  if (status != TERN_OK)
    rope_free(&table);
  else
    *out = table;
  return status;
}

void rope_free(rope_table *table)
{
  mem_free(table->inverse);
  *table = (rope_table){0};
}
