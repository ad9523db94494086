/* weights.c - see weights.h. The binder collects all faults before it gives up, so that one message names them.
 *
 * Matrices stay where the file has them: a fused matrix is bound once and its parts are views of its rows. The one
 * exception are matrices stored the other way around, which are turned into memory of their own. */
#include "model/weights.h"

#include <string.h>

#include "base/mem.h"
#include "model/weights_impl.h"
#include "ops/math.h"
#include "ops/value.h"

static const weight_place nowhere = {0};

static ops_dtype float_dtype(st_dtype d)
{
  return d == ST_BF16 ? DT_BF16 : d == ST_F16 ? DT_F16 : DT_F32;
}

static bool is_float(st_dtype d)
{
  return d == ST_F32 || d == ST_BF16 || d == ST_F16;
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

/* Fills values[n] from tensor t of shape [n] or, for one number, []; with rows > 0, of shape [rows, n / rows]. */
static tern_status load_vector(binder *b, const st_tensor *t, int64_t n, int64_t rows, float *values, ops_dtype *dtype)
{
  bool flat = t->rank == 1 && t->shape[0] == n, single = t->rank == 0 && n == 1;
  bool matrix = rows > 0 && t->rank == 2 && t->shape[0] == rows && t->shape[1] == n / rows;
  if (!(rows > 0 ? matrix : flat || single))
    return rows > 0 ? wrong_shape(b, t, rows, n / rows) : wrong_shape(b, t, n, 0);
  if (!is_float(t->dtype))
    return wrong_dtype(b, t);
  ops_dtype stored = float_dtype(t->dtype);
  *dtype = b->native ? stored : DT_F32;
  for (int64_t i = 0; i < n; i++)
    values[i] = ops_load(stored, t->data, i);
  return TERN_OK;
}

/* Hands values[n] to the backend's memory. */
static tern_status keep_vector(binder *b, const float *values, int64_t n, ops_dtype dtype, weight_vector *out)
{
  float *home = b->cx->backend->alloc(b->cx, (size_t)n * sizeof *home);
  if (!home)
    return ops_nomem(b->cx, "vectors", (size_t)n * sizeof *home, b->err);
  b->cx->backend->write(b->cx, home, values, (size_t)n * sizeof *home);
  b->out->owned_bytes += (size_t)n * sizeof *home;
  *out = (weight_vector){.values = home, .dtype = dtype};
  return TERN_OK;
}

/* A vector of n values; `rows` above 0: stored as a matrix of so many rows. With a "{h}" in the pattern there is a
 * tensor for each of `rows` heads. */
static tern_status load_parts(binder *b, const char *pattern, weight_place at, const char *suffix, int64_t n,
                              int64_t rows, float *values, ops_dtype *dtype)
{
  bool apart = strstr(pattern, "{h}") != NULL;
  int64_t parts = apart && rows > 0 ? rows : 1, part = n / parts;
  for (int64_t i = 0; i < parts; i++) {
    at.head = (int)i;
    weight_found f = weights_find(b, pattern, at, suffix);
    ops_dtype own = DT_F32;
    if (!f.tensor)
      weights_note_missing(b, f.path);
    if (!f.tensor || b->names_alone)
      continue;
    TRY(load_vector(b, f.tensor, part, apart ? 0 : rows, values + i * part, &own));
    *dtype = i ? ops_promote(*dtype, own) : own; /* as stacking them promotes */
  }
  return TERN_OK;
}

static tern_status bind_rows(binder *b, const char *pattern, weight_place at, const char *suffix, int64_t n,
                             int64_t rows, bool plus_one, weight_vector *out)
{
  ops_dtype dtype = DT_F32;
  size_t missing = b->missing.count;
  if (b->names_alone)
    return load_parts(b, pattern, at, suffix, n, rows, NULL, &dtype);
  float *values = mem_array((size_t)n, sizeof *values);
  if (!values)
    return err_nomem(b->err, pattern);
  tern_status status = load_parts(b, pattern, at, suffix, n, rows, values, &dtype);
  for (int64_t i = 0; plus_one && i < n; i++)
    values[i] = ops_round(dtype, 1.0f + values[i]);
  if (status == TERN_OK && missing == b->missing.count)
    status = keep_vector(b, values, n, dtype, out);
  mem_free(values);
  return status;
}

static tern_status bind_vector(binder *b, const char *pattern, weight_place at, const char *suffix, int64_t n,
                               weight_vector *out)
{
  return bind_rows(b, pattern, at, suffix, n, 0, false, out);
}

static weight_vector part_of(const weight_vector *v, int64_t first)
{
  weight_vector part = {.dtype = v->dtype, .borrowed = true};
  if (v->values)
    part.values = v->values + first;
  return part;
}

static tern_status bind_norm(binder *b, arch_norm kind, const char *pattern, weight_place at, int64_t n,
                             weight_vector *w, weight_vector *bias)
{
  bool bare = kind == NORM_RMS_BARE || kind == NORM_LAYER_BARE,
       layer = kind == NORM_LAYER || kind == NORM_LAYER_PLUS_ONE;
  if (bare || !pattern)
    return TERN_OK;
  TRY(bind_rows(b, pattern, at, ".weight", n, 0, kind == NORM_RMS_PLUS_ONE || kind == NORM_LAYER_PLUS_ONE, w));
  if (layer && bias && b->config->norm_bias)
    return bind_vector(b, pattern, at, ".bias", n, bias);
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

/* [k, n] in the file, [n, k] in memory of its own. */
static tern_status turn(binder *b, const st_tensor *t, ops_weight *w)
{
  size_t size = w->stored == DT_F32 ? 4 : 2, bytes;
  if (__builtin_mul_overflow((size_t)w->n * size, (size_t)w->k, &bytes))
    return err_nomem(b->err, t->name);
  uint8_t *data = mem_alloc(bytes);
  if (!data)
    return err_nomem(b->err, t->name);
  for (int64_t n = 0; n < w->n; n++)
    for (int64_t k = 0; k < w->k; k++)
      memcpy(data + (size_t)(n * w->k + k) * size, t->data + (size_t)(k * w->n + n) * size, size);
  w->data = data;
  w->hold = HOLD_OWNED;
  w->turned = true;
  b->out->owned_bytes += bytes;
  return TERN_OK;
}

static tern_status bind_dense(binder *b, const weight_found *f, int64_t n, int64_t k, ops_weight *out)
{
  const st_tensor *t = f->tensor;
  int64_t rows = f->transposed ? k : n, columns = f->transposed ? n : k;
  if (!is_float(t->dtype))
    return wrong_dtype(b, t);
  if (t->rank != 2 || t->shape[0] != rows || t->shape[1] != columns)
    return wrong_shape(b, t, rows, columns);
  ops_dtype stored = float_dtype(t->dtype);
  *out = (ops_weight){
      .name = t->name,
      .stored = stored,
      .dtype = b->native ? stored : DT_F32,
      .n = n,
      .k = k,
      .data = t->data,
  };
  return f->transposed ? turn(b, t, out) : TERN_OK;
}

/* A module's path from the name of its weight; NULL for no name. */
static const char *module_of(const char *weight, char out[NAME_BYTES])
{
  size_t n = strlen(weight), end = strlen(".weight");
  if (n <= end)
    return NULL;
  memcpy(out, weight, n - end);
  out[n - end] = '\0';
  return out;
}

static bool asks_ternary(const binder *b, const weight_found *weight, bool *inverse)
{
  char path[NAME_BYTES];
  const char *module = module_of(weight->path, path);
  return b->quant && module && quant_ternary(b->quant, module, inverse);
}

/* Packed ternary codes and the scale of the whole matrix. */
static tern_status bind_ternary(binder *b, const st_tensor *t, weight_found scale, int64_t n, int64_t k, bool inverse,
                                ops_weight *out)
{
  float factor = 1;
  ops_dtype dtype = DT_F32;
  if (!scale.tensor) {
    weights_note_missing(b, scale.path);
    return TERN_OK;
  }
  if (t->dtype != ST_U8)
    return err_set(b->err, TERN_E_FORMAT, "%s: tensor %s: is %s, but ternary weights are U8", ckpt_file(b->c, t),
                   t->name, st_dtype_name(t->dtype));
  if (t->rank != 2 || t->shape[0] != (n + 3) / 4 || t->shape[1] != k)
    return wrong_shape(b, t, (n + 3) / 4, k);
  TRY(load_vector(b, scale.tensor, 1, 0, &factor, &dtype));
  *out = (ops_weight){.name = t->name,
                      .quant = Q_TERNARY,
                      .bits = 2,
                      .stored = dtype,
                      .dtype = dtype,
                      .n = n,
                      .k = k,
                      .data = t->data,
                      .factor = inverse ? 1.0f / factor : factor};
  return TERN_OK;
}

/* What a matrix is for: tables are never ternary, the head only where the config says so. */
typedef enum matrix_role { ROLE_TABLE, ROLE_LINEAR, ROLE_HEAD } matrix_role;

/* What lies beside a weight: scales of ternary ones, which must, or of quantised ones. */
static tern_status find_companions(binder *b, const char *pattern, weight_place at, bool ternary)
{
  if (!ternary) {
    weights_find(b, pattern, at, ".scales");
    weights_find(b, pattern, at, ".biases");
    return TERN_OK;
  }
  weight_found scale = weights_find(b, pattern, at, ".weight_scale");
  if (!scale.tensor)
    weights_note_missing(b, scale.path);
  return TERN_OK;
}

static tern_status bind_matrix(binder *b, const char *pattern, weight_place at, int64_t n, int64_t k, matrix_role role,
                               ops_weight *out)
{
  weight_found weight = weights_find(b, pattern, at, ".weight");
  bool built = role == ROLE_LINEAR && b->config->arch->ternary, inverse = false;
  if (!weight.tensor) {
    weights_note_missing(b, weight.path);
    return TERN_OK;
  }
  bool ternary = built || (role != ROLE_TABLE && asks_ternary(b, &weight, &inverse));
  if (b->names_alone)
    return find_companions(b, pattern, at, ternary);
  if (ternary)
    return bind_ternary(b, weight.tensor, weights_find(b, pattern, at, ".weight_scale"), n, k, !built && inverse, out);
  weight_found scales = weights_find(b, pattern, at, ".scales"), biases = weights_find(b, pattern, at, ".biases");
  bool quantised;
  quant_params p;
  char path[NAME_BYTES], other[NAME_BYTES];
  TRY(quant_find(b->quant, module_of(weight.path, path), module_of(weight.other, other), scales.tensor != NULL,
                 &quantised, &p, b->err));
  if (quantised && weight.transposed)
    return err_set(b->err, TERN_E_UNSUPPORTED,
                   "%s: tensor %s: quantised, but of a release that stores matrices the "
                   "other way around",
                   ckpt_file(b->c, weight.tensor), weight.tensor->name);
  if (quantised)
    return bind_quantised(b, weight.tensor, scales.tensor, biases.tensor, p, n, k, out);
  if (biases.tensor)
    return err_set(b->err, TERN_E_FORMAT, "%s: tensor %s: has no .scales beside it", ckpt_file(b->c, biases.tensor),
                   biases.tensor->name);
  return bind_dense(b, &weight, n, k, out);
}

static tern_status bind_linear(binder *b, const char *pattern, int layer, int64_t n, int64_t k, bool has_bias,
                               ops_weight *w, weight_vector *bias)
{
  weight_place at = {.layer = layer};
  TRY(bind_matrix(b, pattern, at, n, k, ROLE_LINEAR, w));
  return has_bias ? bind_vector(b, pattern, at, ".bias", n, bias) : TERN_OK;
}

/* Rows of ternary matrices share bytes: a fused one cannot be taken apart in place. */
static tern_status check_fused(binder *b, const ops_weight *w)
{
  if (w->quant != Q_TERNARY)
    return TERN_OK;
  return err_set(b->err, TERN_E_UNSUPPORTED, "tensor %s: fused ternary matrices are not run", w->name);
}

/* Rows [first, first + n) of w, in place. */
static ops_weight rows_of(const ops_weight *w, int64_t first, int64_t n)
{
  ops_weight part = *w;
  int64_t float_bytes = w->stored == DT_F32 ? 4 : 2;
  int64_t scale_bytes = w->quant == Q_AFFINE ? float_bytes : 1;
  int64_t row = w->quant == Q_NONE ? w->k * float_bytes : w->k * w->bits / 8;
  int64_t groups = w->quant == Q_NONE ? 0 : w->k / w->group;
  part.n = n;
  part.hold = HOLD_VIEW;
  if (!w->data)
    return part; /* missing, and noted */
  part.data += first * row;
  if (part.scales)
    part.scales += first * groups * scale_bytes;
  if (part.biases)
    part.biases += first * groups * scale_bytes;
  return part;
}

/* ---- the halves of a layer ---- */

static tern_status bind_qk_norms(binder *b, int i, layer_weights *l)
{
  const model_config *c = b->config;
  const arch *a = c->arch;
  const arch_names *names = a->names;
  const layer_config *own = &c->layer[i];
  weight_place at = {.layer = i};
  int64_t q = (int64_t)own->heads * c->head_dim, k = (int64_t)own->kv_heads * c->head_dim;
  if (!c->qk_norm || a->qk_norm == QK_NONE)
    return TERN_OK;
  if (a->qk_norm == QK_HEAD_LAYER) {
    TRY(bind_rows(b, names->q_norm, at, ".weight", q, own->heads, false, &l->q_norm));
    return bind_rows(b, names->k_norm, at, ".weight", k, own->kv_heads, false, &l->k_norm);
  }
  bool wide = a->qk_norm == QK_WIDE;
  TRY(bind_norm(b, a->qk_kind, names->q_norm, at, wide ? q : c->head_dim, &l->q_norm, NULL));
  return bind_norm(b, a->qk_kind, names->k_norm, at, wide ? k : c->head_dim, &l->k_norm, NULL);
}

static tern_status bind_projections(binder *b, int i, layer_weights *l)
{
  const model_config *c = b->config;
  const arch_names *names = c->arch->names;
  int64_t q = (int64_t)c->layer[i].heads * c->head_dim, kv = (int64_t)c->layer[i].kv_heads * c->head_dim;
  if (c->arch->pack == PACK_SEPARATE) {
    TRY(bind_linear(b, names->q, i, q, c->width, c->bias_qkv, &l->q, &l->q_bias));
    TRY(bind_linear(b, names->k, i, kv, c->width, c->bias_qkv, &l->k, &l->k_bias));
    return bind_linear(b, names->v, i, kv, c->width, c->bias_qkv, &l->v, &l->v_bias);
  }
  TRY(bind_linear(b, names->qkv, i, q + 2 * kv, c->width, c->bias_qkv, &l->qkv, &l->qkv_bias));
  TRY(check_fused(b, &l->qkv));
  if (c->arch->pack == PACK_QKV) {
    l->q = rows_of(&l->qkv, 0, q);
    l->k = rows_of(&l->qkv, q, kv);
    l->v = rows_of(&l->qkv, q + kv, kv);
    l->q_bias = part_of(&l->qkv_bias, 0);
    l->k_bias = part_of(&l->qkv_bias, q);
    l->v_bias = part_of(&l->qkv_bias, q + kv);
  }
  return TERN_OK;
}

static tern_status bind_attention(binder *b, int i, layer_weights *l)
{
  const model_config *c = b->config;
  const arch_names *names = c->arch->names;
  int64_t q = (int64_t)c->layer[i].heads * c->head_dim;
  if (c->layer[i].attention == PART_NONE)
    return TERN_OK;
  if (c->layer[i].attention == PART_LINEAR)
    return bind_linear(b, names->attention_linear, i, c->width, c->width, c->bias_o, &l->o, &l->o_bias);
  TRY(bind_projections(b, i, l));
  TRY(bind_qk_norms(b, i, l));
  TRY(bind_norm(b, NORM_RMS, names->attention_norm, (weight_place){.layer = i}, q, &l->attention_norm, NULL));
  return bind_linear(b, names->o, i, c->width, q, c->bias_o, &l->o, &l->o_bias);
}

/* softplus as the reference composes it: log(exp(x) + exp(0)). */
static float softplus(ops_dtype type, float x)
{
  float most = x > 0 ? x : 0, least = x > 0 ? 0 : x;
  float e = ops_round(type, math_exp(ops_round(type, least - most)));
  return ops_round(type, most + ops_round(type, math_log1p(e)));
}

static tern_status bind_xielu(binder *b, int i, layer_weights *l)
{
  static const char *const suffixes[4] = {".alpha_p", ".alpha_n", ".beta", ".eps"};
  float p[4] = {0};
  ops_dtype types[4] = {DT_F32, DT_F32, DT_F32, DT_F32};
  for (int n = 0; n < 4; n++) {
    weight_found f = weights_find(b, b->config->arch->names->act, (weight_place){.layer = i}, suffixes[n]);
    if (!f.tensor)
      weights_note_missing(b, f.path);
    else if (!b->names_alone)
      TRY(load_vector(b, f.tensor, 1, 0, &p[n], &types[n]));
    if (n && f.tensor && !b->missing.count && types[n] != types[0])
      return err_set(b->err, TERN_E_UNSUPPORTED, "weights: %s: its four parameters differ in type", f.path);
  }
  l->act_dtype = types[0];
  l->act[0] = softplus(types[0], p[0]);
  l->act[1] = ops_round(types[0], p[2] + softplus(types[0], p[1]));
  l->act[2] = p[2];
  l->act[3] = p[3];
  return TERN_OK;
}

static tern_status bind_mlp(binder *b, int i, layer_weights *l)
{
  const model_config *c = b->config;
  const arch_names *names = c->arch->names;
  int64_t ffn = c->layer[i].ffn;
  bool bias = c->bias_mlp;
  if (c->layer[i].mlp == PART_NONE)
    return TERN_OK;
  if (c->layer[i].mlp == PART_LINEAR)
    return bind_linear(b, names->mlp_linear, i, c->width, c->width, bias, &l->down, &l->down_bias);
  if (names->gate_up) {
    TRY(bind_linear(b, names->gate_up, i, 2 * ffn, c->width, bias, &l->gate_up, &l->gate_up_bias));
    TRY(check_fused(b, &l->gate_up));
  }
  switch (c->arch->mlp) {
  case MLP_GATED:
    TRY(bind_linear(b, names->gate, i, ffn, c->width, bias, &l->gate, &l->gate_bias));
    TRY(bind_linear(b, names->up, i, ffn, c->width, bias, &l->up, &l->up_bias));
    break;
  case MLP_PLAIN:
    TRY(bind_linear(b, names->up, i, ffn, c->width, bias, &l->up, &l->up_bias));
    break;
  case MLP_FUSED:
  case MLP_FUSED_UP: {
    int64_t gate = c->arch->mlp == MLP_FUSED ? 0 : ffn;
    l->gate = rows_of(&l->gate_up, gate, ffn);
    l->up = rows_of(&l->gate_up, ffn - gate, ffn);
    l->gate_bias = part_of(&l->gate_up_bias, gate);
    l->up_bias = part_of(&l->gate_up_bias, ffn - gate);
    break;
  }
  case MLP_INTERLEAVED:
    break;
  }
  if (names->act)
    TRY(bind_xielu(b, i, l));
  TRY(bind_norm(b, NORM_RMS, names->mlp_norm, (weight_place){.layer = i}, ffn, &l->mlp_norm, NULL));
  return bind_linear(b, names->down, i, c->width, ffn, bias, &l->down, &l->down_bias);
}

/* Whether the block has norm n, and the half that it belongs to is there. */
static bool norm_is_there(const model_config *c, int i, int n)
{
  arch_block block = model_config_block(c);
  bool shared = block == BLOCK_PARALLEL || block == BLOCK_FORKED;
  int half = block == BLOCK_SANDWICH ? n / 2 : n;
  if (half > 1 || (shared && n > 0))
    return false;
  return (half ? c->layer[i].mlp : c->layer[i].attention) != PART_NONE;
}

static tern_status bind_layer(binder *b, int i, layer_weights *l)
{
  const model_config *c = b->config;
  for (int n = 0; n < 4; n++)
    if (norm_is_there(c, i, n))
      TRY(bind_norm(b, c->arch->norm, c->arch->names->norm[n], (weight_place){.layer = i}, c->width, &l->norm[n],
                    &l->norm_bias[n]));
  TRY(bind_attention(b, i, l));
  return bind_mlp(b, i, l);
}

/* ---- the model ---- */

static tern_status bind_head(binder *b)
{
  const model_config *c = b->config;
  const arch *a = c->arch;
  model_weights *w = b->out;
  w->tied = c->tied;
  if (a->head == HEAD_BY_ABSENCE)
    w->tied = !weights_have(b, a->names->head, nowhere, ".weight");
  if (w->tied)
    return TERN_OK;
  if (a->head == HEAD_OR_EMBED && !weights_have(b, a->names->head, nowhere, ".weight"))
    return TERN_OK; /* bind_all copies the embedding's handle */
  TRY(bind_matrix(b, a->names->head, nowhere, c->vocab, c->width, ROLE_HEAD, &w->head));
  return c->bias_head ? bind_vector(b, a->names->head, nowhere, ".bias", c->vocab, &w->head_bias) : TERN_OK;
}

/* The matrices that products use, views before what they are views of. */
enum { LAYER_MATRICES = 9 };
static void list_matrices(layer_weights *l, ops_weight *out[LAYER_MATRICES])
{
  ops_weight *all[LAYER_MATRICES] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->qkv, &l->gate_up};
  memcpy(out, all, sizeof all);
}

tern_status weights_each_product(model_weights *w, int layers, weights_visit *visit, void *user, tern_error *err)
{
  for (int i = 0; i < layers; i++) {
    ops_weight *all[LAYER_MATRICES];
    layer_weights *l = &w->layers[i];
    list_matrices(l, all);
    for (int n = 0; n < LAYER_MATRICES; n++)
      if (all[n]->data && !(all[n] == &l->qkv && l->q.data) && !(all[n] == &l->gate_up && l->gate.data))
        TRY(visit(user, all[n], err));
  }
  return w->head.data ? visit(user, &w->head, err) : TERN_OK;
}

static tern_status prepare(void *user, ops_weight *w, tern_error *err)
{
  binder *b = user;
  size_t bytes = 0;
  TRY(b->cx->backend->prepare(b->cx, w, &bytes, err));
  b->out->owned_bytes += bytes;
  return TERN_OK;
}

/* Tables too have to lie where the backend computes; one that is the head as well lies there once. */
static tern_status prepare_tables(binder *b)
{
  model_weights *w = b->out;
  if (w->embed.data == w->head.data)
    w->embed.packed = w->head.packed;
  else
    TRY(prepare(b, &w->embed, b->err));
  return w->positions.data ? prepare(b, &w->positions, b->err) : TERN_OK;
}

static tern_status bind_model(binder *b)
{
  const model_config *c = b->config;
  const arch_names *names = c->arch->names;
  model_weights *w = b->out;
  TRY(bind_matrix(b, names->embed, nowhere, c->vocab, c->width, ROLE_TABLE, &w->embed));
  if (names->positions)
    TRY(bind_matrix(b, names->positions, nowhere, c->max_positions, c->width, ROLE_TABLE, &w->positions));
  TRY(bind_head(b));
  TRY(bind_norm(b, c->arch->norm, names->final_norm, nowhere, c->width, &w->final_norm, &w->final_norm_bias));
  for (int i = 0; i < c->layers; i++)
    TRY(bind_layer(b, i, &w->layers[i]));
  return TERN_OK;
}

static tern_status bind_all(binder *b)
{
  model_weights *w = b->out;
  TRY(bind_model(b));
  TRY(weights_audit(b));
  if (!w->head.data)
    w->head = w->embed;
  if (!b->prepare || !b->cx->backend->prepare)
    return TERN_OK;
  TRY(weights_each_product(w, b->config->layers, prepare, b, b->err));
  return b->cx->backend->own_memory ? prepare_tables(b) : TERN_OK;
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
  weights_gap_free(&(weights_gap){b.missing, b.left});
  if (status != TERN_OK)
    weights_release(cx, config, out);
  return status;
}

tern_status weights_compare(ckpt *c, const quant_config *q, const model_config *config, weights_gap *out,
                            tern_error *err)
{
  model_weights w = {.layers = mem_array((size_t)config->layers, sizeof *w.layers)};
  if (!w.layers)
    return err_nomem(err, "weights");
  binder b = {.c = c, .quant = q, .config = config, .names_alone = true, .out = &w, .err = err};
  ckpt_unmark_all(c);
  tern_status status = bind_model(&b);
  weights_list_left(&b);
  mem_free(w.layers); /* nothing hangs on them */
  *out = (weights_gap){b.missing, b.left};
  if (status != TERN_OK)
    weights_gap_free(out);
  return status;
}

static void release_vector(ops_context *cx, weight_vector *v)
{
  if (v->values && !v->borrowed)
    cx->backend->release(cx, v->values);
}

static void discard(ops_context *cx, ops_weight *w)
{
  if (w->packed && cx->backend->discard) /* a layout in a file is not the backend's to free */
    cx->backend->discard(cx, w);
  if (w->hold == HOLD_OWNED)
    mem_free((void *)(uintptr_t)w->data);
}

static void release_layer(ops_context *cx, layer_weights *l)
{
  weight_vector *vectors[] = {&l->q_norm,       &l->k_norm,  &l->attention_norm, &l->mlp_norm, &l->qkv_bias,
                              &l->gate_up_bias, &l->q_bias,  &l->k_bias,         &l->v_bias,   &l->o_bias,
                              &l->gate_bias,    &l->up_bias, &l->down_bias};
  ops_weight *matrices[LAYER_MATRICES];
  list_matrices(l, matrices);
  for (int n = 0; n < 4; n++) {
    release_vector(cx, &l->norm[n]);
    release_vector(cx, &l->norm_bias[n]);
  }
  for (size_t n = 0; n < sizeof vectors / sizeof *vectors; n++)
    release_vector(cx, vectors[n]);
  for (int n = 0; n < LAYER_MATRICES; n++)
    discard(cx, matrices[n]);
}

void weights_release(ops_context *cx, const model_config *config, model_weights *w)
{
  for (int i = 0; w->layers && i < config->layers; i++)
    release_layer(cx, &w->layers[i]);
  release_vector(cx, &w->final_norm);
  release_vector(cx, &w->final_norm_bias);
  release_vector(cx, &w->head_bias);
  if (w->embed.data != w->head.data) /* else they are one */
    discard(cx, &w->embed);
  discard(cx, &w->positions);
  discard(cx, &w->head);
  mem_free(w->layers);
  *w = (model_weights){0};
}
