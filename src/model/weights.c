/* weights.c - see weights.h. The binder collects all faults before it gives up, so that one message names them. */
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "ops/value.h"

enum { FAULTS_NAMED = 6 };

typedef struct binder {
  ops_context *cx;
  ckpt *c;
  const quant_config *quant;
  const model_config *config;
  bool native, prepare;
  model_weights *out;
  int missing;
  buf missing_names;
  tern_error *err;
} binder;

static ops_dtype float_dtype(st_dtype d)
{
  return d == ST_BF16 ? DT_BF16 : d == ST_F16 ? DT_F16 : DT_F32;
}

static bool is_float(st_dtype d)
{
  return d == ST_F32 || d == ST_BF16 || d == ST_F16;
}

/* "model.layers.{}.x" with the number put in. */
static const char *expand(const char *pattern, int layer, const char *suffix, char out[256])
{
  const char *hole = strstr(pattern, "{}");
  if (hole)
    snprintf(out, 256, "%.*s%d%s%s", (int)(hole - pattern), pattern, layer, hole + 2, suffix);
  else
    snprintf(out, 256, "%s%s", pattern, suffix);
  return out;
}

static const st_tensor *find(binder *b, const char *pattern, int layer, const char *suffix)
{
  char name[256];
  const st_tensor *t = ckpt_find(b->c, expand(pattern, layer, suffix, name));
  if (t)
    ckpt_mark(b->c, t);
  return t;
}

static void note_missing(binder *b, const char *name)
{
  if (b->missing++ < FAULTS_NAMED)
    buf_addf(&b->missing_names, "%s%s", b->missing > 1 ? ", " : "", name);
}

static tern_status wrong_shape(binder *b, const st_tensor *t, int64_t n, int64_t k)
{
  char have[160];
  if (k)
    return err_set(b->err, TERN_E_FORMAT, "%s: tensor %s: is %s, but config.json asks for [%lld, %lld]",
                   ckpt_file(b->c, t), t->name, st_describe(t, have, sizeof have), (long long)n, (long long)k);
  return err_set(b->err, TERN_E_FORMAT, "%s: tensor %s: is %s, but config.json asks for [%lld]", ckpt_file(b->c, t),
                 t->name, st_describe(t, have, sizeof have), (long long)n);
}

static tern_status wrong_dtype(binder *b, const st_tensor *t)
{
  return err_set(b->err, TERN_E_UNSUPPORTED, "%s: tensor %s: %s weights are not run here (F32, F16 and BF16 are)",
                 ckpt_file(b->c, t), t->name, st_dtype_name(t->dtype));
}

/* ---- vectors ---- */

static tern_status bind_vector(binder *b, const char *pattern, int layer, const char *suffix, int64_t n, bool plus_one,
                               weight_vector *out)
{
  char name[256];
  const st_tensor *t = find(b, pattern, layer, suffix);
  if (!t) {
    note_missing(b, expand(pattern, layer, suffix, name));
    return TERN_OK;
  }
  if (t->rank != 1 || t->shape[0] != n)
    return wrong_shape(b, t, n, 0);
  if (!is_float(t->dtype))
    return wrong_dtype(b, t);
  ops_dtype stored = float_dtype(t->dtype), dtype = b->native ? stored : DT_F32;
  float *values = mem_array((size_t)n, sizeof *values);
  float *home = b->cx->backend->alloc(b->cx, (size_t)n * sizeof *home);
  if (!values || !home) {
    mem_free(values);
    if (home)
      b->cx->backend->release(b->cx, home);
    return err_nomem(b->err, t->name);
  }
  for (int64_t i = 0; i < n; i++) {
    values[i] = ops_load(stored, t->data, i);
    if (plus_one)
      values[i] = ops_round(dtype, 1.0f + values[i]);
  }
  b->cx->backend->write(b->cx, home, values, (size_t)n * sizeof *home);
  mem_free(values);
  b->out->owned_bytes += (size_t)n * sizeof *home;
  *out = (weight_vector){home, dtype};
  return TERN_OK;
}

/* ---- matrices ---- */

static tern_status bind_quantised(binder *b, const st_tensor *weight, const st_tensor *scales, const st_tensor *biases,
                                  quant_params p, int64_t n, int64_t k, ops_weight *out)
{
  static const ops_quant modes[QUANT_MODES] = {
      [QUANT_AFFINE] = Q_AFFINE, [QUANT_MXFP4] = Q_MXFP4, [QUANT_MXFP8] = Q_MXFP8, [QUANT_NVFP4] = Q_NVFP4};
  int64_t columns;
  tern_status status = quant_check_tensors(p, weight, scales, biases, &columns, b->err);
  if (status != TERN_OK)
    return err_prefix(b->err, status, "%s", ckpt_file(b->c, weight));
  if (weight->shape[0] != n || columns != k) {
    return err_set(b->err, TERN_E_FORMAT,
                   "%s: tensor %s: has shape [%lld, %lld] at %d bits, but config.json asks for [%lld, %lld]",
                   ckpt_file(b->c, weight), weight->name, (long long)weight->shape[0], (long long)columns, p.bits,
                   (long long)n, (long long)k);
  }
  ops_dtype stored = p.mode == QUANT_AFFINE ? float_dtype(scales->dtype) : DT_F32;
  *out = (ops_weight){
      .name = weight->name,
      .quant = modes[p.mode],
      .bits = p.bits,
      .group = p.group_size,
      .stored = stored,
      .dtype = b->native ? stored : DT_F32,
      .n = n,
      .k = k,
      .data = weight->data,
      .scales = scales->data,
      .biases = biases ? biases->data : NULL,
  };
  return TERN_OK;
}

static tern_status bind_matrix(binder *b, const char *pattern, int layer, int64_t n, int64_t k, ops_weight *out)
{
  char path[256], name[256];
  const st_tensor *weight = find(b, pattern, layer, ".weight");
  if (!weight) {
    note_missing(b, expand(pattern, layer, ".weight", name));
    return TERN_OK;
  }
  const st_tensor *scales = find(b, pattern, layer, ".scales"), *biases = find(b, pattern, layer, ".biases");
  bool quantised;
  quant_params p;
  TRY(quant_find(b->quant, expand(pattern, layer, "", path), NULL, scales != NULL, &quantised, &p, b->err));
  if (quantised)
    return bind_quantised(b, weight, scales, biases, p, n, k, out);
  if (biases)
    return err_set(b->err, TERN_E_FORMAT, "%s: tensor %s: has no .scales beside it", ckpt_file(b->c, biases),
                   biases->name);
  if (!is_float(weight->dtype))
    return wrong_dtype(b, weight);
  if (weight->rank != 2 || weight->shape[0] != n || weight->shape[1] != k)
    return wrong_shape(b, weight, n, k);
  ops_dtype stored = float_dtype(weight->dtype);
  *out = (ops_weight){
      .name = weight->name,
      .stored = stored,
      .dtype = b->native ? stored : DT_F32,
      .n = n,
      .k = k,
      .data = weight->data,
  };
  return TERN_OK;
}

/* ---- the model ---- */

static bool wants_bias(const binder *b, arch_bias rule)
{
  switch (rule) {
  case BIAS_ALWAYS:
    return true;
  case BIAS_ATTENTION_KEY:
    return b->config->attention_bias;
  case BIAS_MLP_KEY:
    return b->config->mlp_bias;
  default:
    return false;
  }
}

static tern_status bind_linear(binder *b, const char *pattern, int layer, int64_t n, int64_t k, arch_bias rule,
                               ops_weight *w, weight_vector *bias)
{
  TRY(bind_matrix(b, pattern, layer, n, k, w));
  if (wants_bias(b, rule))
    TRY(bind_vector(b, pattern, layer, ".bias", n, false, bias));
  return TERN_OK;
}

static tern_status bind_layer(binder *b, int i, layer_weights *l)
{
  const model_config *c = b->config;
  const arch *a = c->arch;
  const arch_names *names = a->names;
  int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
  bool plus_one = a->norm == NORM_RMS_PLUS_ONE;
  for (int n = 0; n < 4; n++)
    if (names->norm[n])
      TRY(bind_vector(b, names->norm[n], i, ".weight", c->width, plus_one, &l->norm[n]));
  if (a->qk_norm) {
    TRY(bind_vector(b, names->q_norm, i, ".weight", c->head_dim, plus_one, &l->q_norm));
    TRY(bind_vector(b, names->k_norm, i, ".weight", c->head_dim, plus_one, &l->k_norm));
  }
  TRY(bind_linear(b, names->q, i, q, c->width, a->bias_qkv, &l->q, &l->q_bias));
  TRY(bind_linear(b, names->k, i, kv, c->width, a->bias_qkv, &l->k, &l->k_bias));
  TRY(bind_linear(b, names->v, i, kv, c->width, a->bias_qkv, &l->v, &l->v_bias));
  TRY(bind_linear(b, names->o, i, c->width, q, a->bias_o, &l->o, &l->o_bias));
  TRY(bind_linear(b, names->gate, i, c->ffn, c->width, a->bias_mlp, &l->gate, &l->gate_bias));
  TRY(bind_linear(b, names->up, i, c->ffn, c->width, a->bias_mlp, &l->up, &l->up_bias));
  return bind_linear(b, names->down, i, c->width, c->ffn, a->bias_mlp, &l->down, &l->down_bias);
}

static tern_status bind_head(binder *b)
{
  const model_config *c = b->config;
  model_weights *w = b->out;
  char name[256];
  w->tied = c->tied;
  if (c->arch->head == HEAD_BY_ABSENCE)
    w->tied = ckpt_find(b->c, expand(c->arch->names->head, 0, ".weight", name)) == NULL;
  if (w->tied)
    return TERN_OK;
  return bind_matrix(b, c->arch->names->head, 0, c->vocab, c->width, &w->head);
}

/* ---- the audit ---- */

static bool drop_matches(const arch_drop *d, const char *name, bool tied)
{
  if (d->when == DROP_IF_TIED && !tied)
    return false;
  return d->exact ? strcmp(d->pattern, name) == 0 : strstr(name, d->pattern) != NULL;
}

static tern_status audit(binder *b)
{
  const arch *a = b->config->arch;
  if (b->missing) {
    if (b->missing > FAULTS_NAMED)
      buf_addf(&b->missing_names, " and %d more", b->missing - FAULTS_NAMED);
    return err_set(b->err, TERN_E_FORMAT, "weights: %d tensor%s that %s needs %s not in the checkpoint: %s", b->missing,
                   b->missing > 1 ? "s" : "", a->name, b->missing > 1 ? "are" : "is",
                   b->missing_names.data ? b->missing_names.data : "");
  }
  buf left = {0};
  int count = 0;
  for (size_t i = 0; i < ckpt_count(b->c); i++) {
    const st_tensor *t = ckpt_at(b->c, i);
    if (ckpt_marked(b->c, t))
      continue;
    bool dropped = false;
    for (int d = 0; d < ARCH_MAX_DROPS && a->drops[d].pattern && !dropped; d++) {
      dropped = drop_matches(&a->drops[d], t->name, b->out->tied);
      b->out->drop_matches[d] += dropped;
    }
    if (!dropped && count++ < FAULTS_NAMED)
      buf_addf(&left, "%s%s", count > 1 ? ", " : "", t->name);
  }
  tern_status status = TERN_OK;
  if (count) {
    if (count > FAULTS_NAMED)
      buf_addf(&left, " and %d more", count - FAULTS_NAMED);
    status = err_set(b->err, TERN_E_FORMAT, "weights: %d tensor%s in the checkpoint %s no part of %s: %s", count,
                     count > 1 ? "s" : "", count > 1 ? "have" : "has", a->name, left.data ? left.data : "");
  }
  buf_free(&left);
  if (status != TERN_OK)
    return status;
  size_t cursor = 0;
  const char *unused = quant_unused(b->quant, &cursor);
  if (unused)
    return err_set(b->err, TERN_E_FORMAT, "config.json: quantization: %s: no such module in %s", unused, a->name);
  return TERN_OK;
}

/* ---- prepared layouts ---- */

static tern_status prepare(binder *b, ops_weight *w)
{
  if (!b->cx->backend->prepare)
    return TERN_OK;
  size_t bytes = 0;
  TRY(b->cx->backend->prepare(b->cx, w, &bytes, b->err));
  b->out->owned_bytes += bytes;
  return TERN_OK;
}

static tern_status prepare_all(binder *b)
{
  model_weights *w = b->out;
  for (int i = 0; i < b->config->layers; i++) {
    layer_weights *l = &w->layers[i];
    ops_weight *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
      TRY(prepare(b, all[n]));
  }
  return prepare(b, &w->head);
}

static tern_status bind_all(binder *b)
{
  const model_config *c = b->config;
  model_weights *w = b->out;
  TRY(bind_matrix(b, c->arch->names->embed, 0, c->vocab, c->width, &w->embed));
  TRY(bind_head(b));
  TRY(bind_vector(b, c->arch->names->final_norm, 0, ".weight", c->width, c->arch->norm == NORM_RMS_PLUS_ONE,
                  &w->final_norm));
  for (int i = 0; i < c->layers; i++)
    TRY(bind_layer(b, i, &w->layers[i]));
  TRY(audit(b));
  if (w->tied)
    w->head = w->embed;
  return b->prepare ? prepare_all(b) : TERN_OK;
}

tern_status weights_bind(ops_context *cx, ckpt *c, const quant_config *q, const model_config *config, bool native,
                         bool prepare_layouts, model_weights *out, tern_error *err)
{
  *out = (model_weights){.layers = mem_array((size_t)config->layers, sizeof *out->layers)};
  if (!out->layers)
    return err_nomem(err, "weights");
  binder b = {.cx = cx,
              .c = c,
              .quant = q,
              .config = config,
              .native = native,
              .prepare = prepare_layouts,
              .out = out,
              .err = err};
  tern_status status = bind_all(&b);
  buf_free(&b.missing_names);
  if (status != TERN_OK)
    weights_release(cx, config, out);
  return status;
}

static void release_vector(ops_context *cx, weight_vector *v)
{
  if (v->values)
    cx->backend->release(cx, v->values);
}

static void discard(ops_context *cx, ops_weight *w)
{
  if (w->packed)
    cx->backend->discard(cx, w);
}

void weights_release(ops_context *cx, const model_config *config, model_weights *w)
{
  for (int i = 0; w->layers && i < config->layers; i++) {
    layer_weights *l = &w->layers[i];
    weight_vector *vectors[] = {&l->norm[0],   &l->norm[1], &l->norm[2],  &l->norm[3], &l->q_norm,
                                &l->k_norm,    &l->q_bias,  &l->k_bias,   &l->v_bias,  &l->o_bias,
                                &l->gate_bias, &l->up_bias, &l->down_bias};
    ops_weight *matrices[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t n = 0; n < sizeof vectors / sizeof *vectors; n++)
      release_vector(cx, vectors[n]);
    for (size_t n = 0; n < sizeof matrices / sizeof *matrices; n++)
      discard(cx, matrices[n]);
  }
  release_vector(cx, &w->final_norm);
  discard(cx, &w->head);
  mem_free(w->layers);
  *w = (model_weights){0};
}
