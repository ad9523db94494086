/* quant_config.c - quantisation as the reference's load_model reads it, with its corners:
 *
 *   - group_size and bits must both be named globally, though either may be null (the mode's default);
 *   - an entry that is null or an empty object is falsy in Python, so it means dense, like false;
 *   - an entry's object replaces the globals: {"bits": 8} is affine, 8 bits, groups of 64, whatever stands globally;
 *   - quantization_config is looked at only without quantization, also in text_config.
 *
 * Refused where the reference would go on: members that mean nothing to it, and the quant_methods which it turns into
 * something else at load; those are conversions of their own.
 */
#include "format/quant_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "format/json_util.h"

typedef struct mode_rules {
  const char *name;
  int group_size, bits; /* defaults */
  uint32_t groups;      /* allowed sizes, as a set of bits: 1 << 6 is 64 */
  uint32_t widths;      /* allowed bits, likewise */
  const char *allowed;  /* the same in words */
  bool affine;          /* floating scales and biases; else byte scales alone */
} mode_rules;

static const mode_rules modes[QUANT_MODES] = {
    [QUANT_AFFINE] = {"affine", 64, 4, 1u << 5 | 1u << 6 | 1u << 7,
                      1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 8,
                      "bits 2, 3, 4, 5, 6 or 8 and group_size 32, 64 or 128", true},
    [QUANT_MXFP4] = {"mxfp4", 32, 4, 1u << 5, 1u << 4, "bits 4 and group_size 32", false},
    [QUANT_MXFP8] = {"mxfp8", 32, 8, 1u << 5, 1u << 8, "bits 8 and group_size 32", false},
    [QUANT_NVFP4] = {"nvfp4", 16, 4, 1u << 4, 1u << 4, "bits 4 and group_size 16", false},
};

typedef struct module_entry {
  const char *path;
  bool quantised;
  quant_params params;
  bool met; /* by quant_find */
} module_entry;

struct quant_config {
  bool present;
  quant_params globals;
  const char *source;
  arena strings;
  module_entry *entries;
  size_t n_entries;
  strmap index;          /* path to place in `entries` */
  bool ternary, inverse; /* quant_method bitnet */
  strmap kept;           /* modules that it leaves dense */
};

static const char PLACE[] = "config.json: quantization";

const char *quant_mode_name(quant_mode mode)
{
  return (size_t)mode < QUANT_MODES ? modes[mode].name : "?";
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static tern_status find_mode(const char *name, const char *where, quant_mode *mode, tern_error *err)
{
  for (int i = 0; i < QUANT_MODES; i++)
    if (strcmp(name, modes[i].name) == 0) {
      *mode = (quant_mode)i;
      return TERN_OK;
    }
  return err_set(err, TERN_E_UNSUPPORTED, "%s: unknown mode \"%.60s\"", where, name);
}

static bool in_powers(uint32_t set, int value)
{
  for (int i = 0; i < 32; i++)
    if (set >> i & 1 && value == 1 << i)
      return true;
  return false;
}

/* mode, group_size and bits of `object`; what is absent falls to the mode's defaults. */
static tern_status read_params(const json_t *object, const char *where, quant_params *out, tern_error *err)
{
  quant_params p = {0};
  const char *mode;
  TRY(cfg_obj_string(object, where, "mode", false, "affine", &mode, err));
  TRY(find_mode(mode, where, &p.mode, err));
  const mode_rules *rules = &modes[p.mode];
  TRY(cfg_obj_int(object, where, "group_size", false, rules->group_size, &p.group_size, err));
  TRY(cfg_obj_int(object, where, "bits", false, rules->bits, &p.bits, err));
  bool width = p.bits >= 0 && p.bits < 32 && (rules->widths >> p.bits & 1);
  if (!width || !in_powers(rules->groups, p.group_size))
    return err_set(err, TERN_E_UNSUPPORTED, "%s: %s with bits %d and group_size %d: it needs %s", where, rules->name,
                   p.bits, p.group_size, rules->allowed);
  *out = p;
  return TERN_OK;
}

static bool is_param(const char *key)
{
  return strcmp(key, "mode") == 0 || strcmp(key, "group_size") == 0 || strcmp(key, "bits") == 0;
}

/* ---- entries of modules ------------------------------------------------------------------------------------------ */

static tern_status read_object_entry(const json_t *object, const char *where, quant_params *out, tern_error *err)
{
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value)
  {
    if (is_param(key))
      continue;
    if (strcmp(key, "quantize_input") != 0)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: unknown key \"%.60s\"", where, key);
    bool on;
    TRY(cfg_obj_bool(object, where, key, false, false, &on, err));
    if (on)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: quantize_input: quantised activations are not run", where);
  }
  return read_params(object, where, out, err);
}

static tern_status read_entry(quant_config *q, const char *path, const json_t *value, tern_error *err)
{
  char where[300];
  snprintf(where, sizeof where, "%s: %.200s", PLACE, path);
  module_entry e = {.path = arena_strndup(&q->strings, path, strlen(path)), .params = q->globals};
  if (!e.path)
    return err_nomem(err, where);
  if (json_is_object(value)) {
    e.quantised = json_object_size(value) > 0;
    if (e.quantised)
      TRY(read_object_entry(value, where, &e.params, err));
  } else if (json_is_boolean(value) || json_is_null(value)) {
    e.quantised = json_is_true(value);
  } else {
    char found[120];
    return err_set(err, TERN_E_FORMAT, "%s: neither a known key nor a module's entry (true, false or an object), is %s",
                   where, jsonu_describe(value, found, sizeof found));
  }
  if (!strmap_put(&q->index, e.path, strlen(path), (uint32_t)q->n_entries, NULL, NULL))
    return err_nomem(err, where);
  q->entries[q->n_entries++] = e;
  return TERN_OK;
}

static tern_status read_quantization(quant_config *q, const json_t *object, tern_error *err)
{
  if (!json_is_object(object))
    return err_set(err, TERN_E_FORMAT, "%s: not an object", PLACE);
  if (!json_object_get(object, "group_size") || !json_object_get(object, "bits"))
    return err_set(err, TERN_E_FORMAT, "%s: %s is missing", PLACE,
                   json_object_get(object, "group_size") ? "bits" : "group_size");
  TRY(read_params(object, PLACE, &q->globals, err));
  q->present = true;
  q->source = "quantization";
  size_t n = json_object_size(object);
  q->entries = mem_array(n, sizeof *q->entries);
  if (!q->entries || !strmap_reserve(&q->index, n))
    return err_nomem(err, PLACE);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value)
  {
    if (!is_param(key))
      TRY(read_entry(q, key, value, err));
  }
  return TERN_OK;
}

/* ---- the older key ----------------------------------------------------------------------------------------------- */

/* Ternary weights in all linears but those listed. */
static tern_status read_bitnet(quant_config *q, const json_t *object, const char *where, tern_error *err)
{
  const char **kept, *class;
  size_t n;
  TRY(cfg_obj_string(object, where, "linear_class", false, "", &class, err));
  TRY(cfg_obj_strings(object, where, "modules_to_not_convert", false, &kept, &n, err));
  tern_status status = strmap_reserve(&q->kept, n) ? TERN_OK : err_nomem(err, where);
  for (size_t i = 0; i < n && status == TERN_OK; i++) {
    const char *path = arena_strndup(&q->strings, kept[i], strlen(kept[i]));
    if (!path || !strmap_put(&q->kept, path, strlen(path), 0, NULL, NULL))
      status = err_nomem(err, where);
  }
  mem_free(kept);
  q->ternary = true;
  q->inverse = strcmp(class, "autobitlinear") != 0;
  q->source = "quant_method bitnet";
  return status;
}

static tern_status read_legacy(quant_config *q, const json_t *object, const char *where, tern_error *err)
{
  if (!json_is_object(object))
    return err_set(err, TERN_E_FORMAT, "%s: not an object", where);
  if (json_object_size(object) == 0)
    return TERN_OK;
  const char *method;
  TRY(cfg_obj_string(object, where, "quant_method", true, NULL, &method, err));
  if (strcmp(method, "bitnet") == 0)
    return read_bitnet(q, object, where, err);
  if (strcmp(method, "mxfp4") != 0)
    return err_set(err, TERN_E_UNSUPPORTED,
                   "%s: quant_method \"%.60s\" is not run: convert the unquantised model with mlx_lm.convert", where,
                   method);
  q->present = true;
  q->globals = (quant_params){QUANT_MXFP4, modes[QUANT_MXFP4].group_size, modes[QUANT_MXFP4].bits};
  q->source = "quant_method mxfp4";
  return TERN_OK;
}

static tern_status load(quant_config *q, const cfg *c, tern_error *err)
{
  q->source = "";
  const json_t *activations = cfg_get(c, CFG_ROOT, "quantize_activations");
  bool on = false;
  if (activations)
    TRY(cfg_value_bool(activations, "config.json: quantize_activations", &on, err));
  if (on)
    return err_set(err, TERN_E_UNSUPPORTED, "config.json: quantize_activations: quantised activations are not run");
  const json_t *modern = cfg_get(c, CFG_ROOT, "quantization");
  const json_t *legacy = cfg_get(c, CFG_ROOT, "quantization_config"); /* asked for even where it does not count */
  const json_t *nested = cfg_get(c, CFG_TEXT, "quantization_config");
  if (modern)
    return read_quantization(q, modern, err);
  if (legacy)
    return read_legacy(q, legacy, "config.json: quantization_config", err);
  return nested ? read_legacy(q, nested, "config.json: text_config: quantization_config", err) : TERN_OK;
}

tern_status quant_open(const cfg *c, quant_config **out, tern_error *err)
{
  quant_config *q = mem_zalloc(sizeof *q);
  if (!q)
    return err_nomem(err, PLACE);
  tern_status status = load(q, c, err);
  if (status == TERN_OK)
    *out = q;
  else
    quant_close(q);
  return status;
}

void quant_close(quant_config *q)
{
  if (!q)
    return;
  mem_free(q->entries);
  strmap_free(&q->index);
  strmap_free(&q->kept);
  arena_free(&q->strings);
  mem_free(q);
}

bool quant_is_ternary(const quant_config *q)
{
  return q->ternary;
}

bool quant_ternary(const quant_config *q, const char *path, bool *inverse)
{
  uint32_t i;
  *inverse = q->inverse;
  return q->ternary && !strmap_get(&q->kept, path, strlen(path), &i);
}

bool quant_present(const quant_config *q)
{
  return q->present;
}

quant_params quant_globals(const quant_config *q)
{
  return q->globals;
}

const char *quant_source(const quant_config *q)
{
  return q->source;
}

/* ---- one module -------------------------------------------------------------------------------------------------- */

static module_entry *look_up(const quant_config *q, const char *path)
{
  uint32_t i;
  if (!path || !strmap_get(&q->index, path, strlen(path), &i))
    return NULL;
  q->entries[i].met = true;
  return &q->entries[i];
}

tern_status quant_find(const quant_config *q, const char *path, const char *other, bool has_scales, bool *quantised,
                       quant_params *params, tern_error *err)
{
  const module_entry *e = look_up(q, path), *second = look_up(q, other);
  if (!e)
    e = second;
  if (has_scales && !q->present)
    return err_set(err, TERN_E_FORMAT, "config.json: quantization is missing, but \"%.200s.scales\" is there", path);
  if (e && e->quantised && !has_scales)
    return err_set(err, TERN_E_FORMAT, "%s: %.200s: said to be quantised, but its .scales is missing", PLACE, e->path);
  if (e && !e->quantised && has_scales)
    return err_set(err, TERN_E_FORMAT, "%s: %.200s: said not to be quantised, but its .scales is there", PLACE,
                   e->path);
  *quantised = has_scales;
  if (has_scales)
    *params = e ? e->params : q->globals;
  return TERN_OK;
}

const char *quant_unused(const quant_config *q, size_t *cursor)
{
  while (*cursor < q->n_entries && q->entries[*cursor].met)
    ++*cursor;
  return *cursor < q->n_entries ? q->entries[(*cursor)++].path : NULL;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

tern_status quant_check_shape(const char *tensor, quant_params params, int64_t words, int64_t scale_columns,
                              int64_t *columns, tern_error *err)
{
  int64_t values, packed_bits, said_bits;
  if (words < 0 || scale_columns < 1 || __builtin_mul_overflow(scale_columns, params.group_size, &values) ||
      __builtin_mul_overflow(words, 32, &packed_bits) || __builtin_mul_overflow(values, params.bits, &said_bits))
    return err_set(err, TERN_E_FORMAT, "tensor \"%.200s\": rows of %" PRId64 " words and %" PRId64 " scales", tensor,
                   words, scale_columns);
  if (packed_bits == said_bits) {
    *columns = values;
    return TERN_OK;
  }
  if (packed_bits % values == 0)
    return err_set(err, TERN_E_FORMAT,
                   "tensor \"%.200s\": packed with %" PRId64 " bits (%" PRId64 " words for %" PRId64
                   " groups of %d), but config.json says %d",
                   tensor, packed_bits / values, words, scale_columns, params.group_size, params.bits);
  return err_set(err, TERN_E_FORMAT,
                 "tensor \"%.200s\": %" PRId64 " words do not pack %" PRId64
                 " groups of %d at any width; config.json says %d bits",
                 tensor, words, scale_columns, params.group_size, params.bits);
}

static bool is_floating(st_dtype dtype)
{
  return dtype == ST_F32 || dtype == ST_F16 || dtype == ST_BF16;
}

/* Whether all sizes but the last are equal. */
static bool same_rows(const st_tensor *a, const st_tensor *b)
{
  if (a->rank != b->rank)
    return false;
  for (int i = 0; i + 1 < a->rank; i++)
    if (a->shape[i] != b->shape[i])
      return false;
  return true;
}

static tern_status disagree(const st_tensor *a, const st_tensor *b, tern_error *err)
{
  char first[160], second[160];
  return err_set(err, TERN_E_FORMAT, "tensor \"%.200s\": %s, which does not go with \"%.200s\", %s", a->name,
                 st_describe(a, first, sizeof first), b->name, st_describe(b, second, sizeof second));
}

/* Names the tensor that is not there: ".scales" of the one that is, replaced. */
static tern_status missing_biases(const st_tensor *scales, tern_error *err)
{
  const char *dot = strrchr(scales->name, '.');
  int stem = (int)(dot ? dot - scales->name : (ptrdiff_t)strlen(scales->name));
  return err_set(err, TERN_E_FORMAT, "tensor \"%.*s.biases\": missing: mode affine needs it beside \"%.200s\"",
                 stem < 200 ? stem : 200, scales->name, scales->name);
}

tern_status quant_check_tensors(quant_params params, const st_tensor *weight, const st_tensor *scales,
                                const st_tensor *biases, int64_t *columns, tern_error *err)
{
  const mode_rules *rules = &modes[params.mode];
  if (weight->dtype != ST_U32 || weight->rank < 2)
    return err_set(err, TERN_E_FORMAT,
                   "tensor \"%.200s\": packed weights must be a matrix of U32, but it has rank %d of %s", weight->name,
                   weight->rank, st_dtype_name(weight->dtype));
  if (rules->affine ? !is_floating(scales->dtype) : scales->dtype != ST_U8)
    return err_set(err, TERN_E_FORMAT, "tensor \"%.200s\": %s, but scales of mode %s are %s", scales->name,
                   st_dtype_name(scales->dtype), rules->name, rules->affine ? "F32, F16 or BF16" : "U8");
  if (!same_rows(weight, scales))
    return disagree(scales, weight, err);
  if (rules->affine && !biases)
    return missing_biases(scales, err);
  if (!rules->affine && biases)
    return err_set(err, TERN_E_FORMAT, "tensor \"%.200s\": mode %s has no biases", biases->name, rules->name);
  int last = weight->rank - 1;
  if (biases &&
      (biases->dtype != scales->dtype || !same_rows(scales, biases) || biases->shape[last] != scales->shape[last]))
    return disagree(biases, scales, err);
  return quant_check_shape(weight->name, params, weight->shape[last], scales->shape[last], columns, err);
}
