/* emit.c - see emit.h. */
#include "model/emit.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ops/value.h"

enum { ALIGN_FLOATS = 16 };

/* ---- buffers, records, operands ---- */

int emit_buffer(compiler *c, int width, ops_dtype dtype)
{
  if (c->failed || !mem_grow(&c->buffers, &c->buffer_capacity, c->n_buffers + 1, sizeof *c->buffers)) {
    c->failed = true;
    return 0;
  }
  c->buffers[c->n_buffers] = (buffer){.width = width, .dtype = dtype, .first = -1};
  return (int)c->n_buffers++;
}

ops_dtype emit_dtype(const compiler *c, int b)
{
  return c->failed ? DT_F32 : c->buffers[b].dtype;
}

int emit_width(const compiler *c, int b)
{
  return c->failed ? 1 : c->buffers[b].width;
}

static void set_dtype(compiler *c, int b, ops_dtype dtype)
{
  if (!c->failed)
    c->buffers[b].dtype = dtype;
}

static op_record *emit(compiler *c, op_kind kind)
{
  plan *p = c->plan;
  if (c->failed || !mem_grow(&p->records, &c->record_capacity, (size_t)p->n_records + 1, sizeof *p->records)) {
    c->failed = true;
    return &c->nowhere;
  }
  op_record *r = &p->records[p->n_records++];
  memset(r, 0, sizeof *r);
  r->kind = kind;
  r->layer = c->layer;
  return r;
}

/* Notes that `field`, a pointer inside the newest record, means buffer b. */
static void use(compiler *c, op_record *r, const void *field, int b)
{
  if (c->failed || !mem_grow(&c->patches, &c->patch_capacity, c->n_patches + 1, sizeof *c->patches)) {
    c->failed = true;
    return;
  }
  int record = c->plan->n_records - 1;
  c->patches[c->n_patches++] = (patch){record, (size_t)((const char *)field - (const char *)r), b};
  buffer *buf = &c->buffers[b];
  if (buf->first < 0)
    buf->first = record;
  buf->last = record;
}

/* ---- embedding ---- */

/* The fp modes dequantise embeddings to bf16, whatever the mode of numerics. */
static ops_dtype table_type(const ops_weight *w)
{
  return w->quant == Q_NONE || w->quant == Q_AFFINE ? w->dtype : DT_BF16;
}

static float embed_scale(const model_config *m, ops_dtype type)
{
  float root = (float)pow(m->width, 0.5);
  if (m->arch->embed_root_bf16) /* mx.array(width ** 0.5, bfloat16) */
    return ops_round(type, ops_round(DT_BF16, root));
  return ops_round(type, m->arch->embed_root ? root : (float)m->embed_scale);
}

int emit_embed(compiler *c)
{
  const model_weights *w = c->weights;
  ops_dtype type = table_type(&w->embed);
  float scale = embed_scale(c->config, type);
  if (w->positions.data)
    type = ops_promote(type, table_type(&w->positions));
  int x = emit_buffer(c, c->config->width, type);
  op_record *r = emit(c, OP_embed);
  r->embed = (struct op_embed){
      .table = &w->embed, .positions = w->positions.data ? &w->positions : NULL, .scale = scale, .type = type};
  use(c, r, &r->embed.out, x);
  return x;
}

/* ---- norms ---- */

static int emit_rms_norm(compiler *c, int x, const weight_vector *w, int count, int width)
{
  ops_dtype type = w->values ? ops_promote(emit_dtype(c, x), w->dtype) : emit_dtype(c, x);
  int64_t stride = (int64_t)count * width;
  int y = emit_buffer(c, count * width, type);
  op_record *r = emit(c, OP_rms_norm);
  r->rms_norm = (struct op_rms_norm){.w = w->values,
                                     .count = count,
                                     .width = width,
                                     .x_stride = stride,
                                     .y_stride = stride,
                                     .eps = (float)c->config->norm_eps,
                                     .type = type};
  use(c, r, &r->rms_norm.x, x);
  use(c, r, &r->rms_norm.y, y);
  return y;
}

static int emit_layer_norm(compiler *c, int x, struct op_layer_norm a)
{
  int y = emit_buffer(c, a.count * a.width, a.type);
  a.x_stride = a.y_stride = (int64_t)a.count * a.width;
  a.eps = (float)c->config->norm_eps;
  op_record *r = emit(c, OP_layer_norm);
  r->layer_norm = a;
  use(c, r, &r->layer_norm.x, x);
  use(c, r, &r->layer_norm.y, y);
  return y;
}

int emit_norm(compiler *c, int x, arch_norm kind, const weight_vector *w, const weight_vector *bias, int count,
              int width)
{
  if (kind < NORM_LAYER) /* ORDER arch_norm: the RMS kinds come first */
    return emit_rms_norm(c, x, w, count, width);
  /* The fused norm looks at the bias's type only where there is a weight. */
  ops_dtype type = emit_dtype(c, x);
  if (w->values)
    type = ops_promote(type, w->dtype);
  if (w->values && bias && bias->values)
    type = ops_promote(type, bias->dtype);
  return emit_layer_norm(c, x,
                         (struct op_layer_norm){.w = w->values,
                                                .b = bias ? bias->values : NULL,
                                                .count = count,
                                                .width = width,
                                                .normed = type,
                                                .type = type});
}

int emit_head_norm(compiler *c, int x, const weight_vector *w, int count, int width)
{
  ops_dtype plain = emit_dtype(c, x);
  return emit_layer_norm(c, x,
                         (struct op_layer_norm){.w = w->values,
                                                .own = true,
                                                .count = count,
                                                .width = width,
                                                .normed = plain,
                                                .type = ops_promote(plain, w->dtype)});
}

/* ---- products ---- */

/* x += y; with a clip, in float16. */
static void emit_sum(compiler *c, int x, int y, float clip)
{
  ops_dtype type = clip > 0 ? DT_F16 : ops_promote(emit_dtype(c, x), emit_dtype(c, y));
  op_record *r = emit(c, OP_add);
  r->add = (struct op_add){.width = c->config->width, .clip = clip, .type = type};
  use(c, r, &r->add.x, y);
  use(c, r, &r->add.y, x);
  set_dtype(c, x, type);
}

static const char *type_name(ops_dtype type)
{
  static const char *const names[] = {[DT_F32] = "F32", [DT_BF16] = "BF16", [DT_F16] = "F16"};
  return names[type];
}

__attribute__((format(printf, 2, 3))) static void note_fault(compiler *c, const char *format, ...)
{
  va_list args;
  if (c->fault[0])
    return;
  va_start(args, format);
  vsnprintf(c->fault, sizeof c->fault, format, args);
  va_end(args);
}

/* The type of x W^T: promoted with a dense or affine weight; the fp modes keep the type of x. */
static ops_dtype product_type(const ops_weight *w, ops_dtype x)
{
  return w->quant == Q_NONE || w->quant == Q_AFFINE ? ops_promote(x, w->dtype) : x;
}

static void emit_products(compiler *c, int x, projection *to, int n, int residual)
{
  struct op_linear a = {.outputs = n};
  for (int i = 0; i < n; i++) {
    a.w[i] = to[i].w;
    a.bias[i] = to[i].bias ? to[i].bias->values : NULL;
    a.product[i] = a.type[i] = product_type(to[i].w, emit_dtype(c, x));
    if (to[i].w->quant == Q_TERNARY && to[i].w->dtype != emit_dtype(c, x))
      note_fault(c, "%s: its weight_scale is %s, what it multiplies %s; the reference wants one type", to[i].w->name,
                 type_name(to[i].w->dtype), type_name(emit_dtype(c, x)));
    if (a.bias[i]) /* a dense product takes its bias in (addmm), a quantised one is rounded before */
      a.type[i] = ops_promote(a.type[i], to[i].bias->dtype);
    if (to[i].w->quant == Q_NONE)
      a.product[i] = a.type[i];
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the weights of every layer are bound */
    to[i].y = residual >= 0 ? residual : emit_buffer(c, (int)to[i].w->n, a.type[i]);
  }
  if (residual >= 0) {
    a.residual_type = ops_promote(emit_dtype(c, residual), a.type[0]);
    set_dtype(c, residual, a.residual_type);
  }
  op_record *r = emit(c, OP_linear);
  r->linear = a;
  use(c, r, &r->linear.x, x);
  for (int i = 0; i < n; i++)
    use(c, r, &r->linear.y[i], to[i].y);
  if (residual >= 0)
    use(c, r, &r->linear.residual, residual);
}

void emit_linear(compiler *c, int x, projection *to, int n, int residual)
{
  if (!c->plain) {
    emit_products(c, x, to, n, residual);
    return;
  }
  for (int i = 0; i < n; i++)
    emit_products(c, x, &to[i], 1, -1);
  if (residual >= 0)
    emit_sum(c, residual, to[0].y, 0);
}

int emit_regroup(compiler *c, int x, const int32_t *from, int n, int width)
{
  plan *p = c->plan;
  size_t bytes = (size_t)n * sizeof *from;
  int y = emit_buffer(c, n * width, emit_dtype(c, x));
  if (c->failed || !mem_grow(&p->lists, &p->list_capacity, p->n_lists + 1, sizeof *p->lists)) {
    c->failed = true;
    return y;
  }
  int32_t *home = c->cx->backend->alloc(c->cx, bytes);
  if (!home) {
    ops_nomem(c->cx, "lists of heads", bytes, &c->shortage);
    c->failed = true;
    return y;
  }
  c->cx->backend->write(c->cx, home, from, bytes);
  p->lists[p->n_lists++] = home;
  op_record *r = emit(c, OP_regroup);
  r->regroup = (struct op_regroup){.from = home, .n = n, .width = width, .x_width = emit_width(c, x)};
  use(c, r, &r->regroup.x, x);
  use(c, r, &r->regroup.y, y);
  return y;
}

/* ---- attention ---- */

void emit_rope(compiler *c, int q, int k, int rope, const layer_config *l)
{
  const rope_table *t = &c->plan->ropes[rope];
  if (emit_dtype(c, q) != emit_dtype(c, k)) /* the rotation would have to round each to its own */
    note_fault(c,
               "layer %d: queries and keys differ in type (%s and %s): their projections' or their norms' weights do",
               c->layer, type_name(emit_dtype(c, q)), type_name(emit_dtype(c, k)));
  op_record *r = emit(c, OP_rope);
  r->rope = (struct op_rope){.q_heads = l->heads,
                             .k_heads = l->kv_heads,
                             .head_dim = c->config->head_dim,
                             .dims = t->dims,
                             .inverse = c->plan->rope_memory[rope],
                             .position_scale = t->position_scale,
                             .mscale = t->mscale,
                             .traditional = t->traditional,
                             .ntk_from = t->ntk_from,
                             .ntk_base = t->ntk_base,
                             .ntk_scale = t->ntk_scale,
                             .type = emit_dtype(c, q)};
  use(c, r, &r->rope.q, q);
  use(c, r, &r->rope.k, k);
}

/* The factor is cast to the type that the stream began with. */
void emit_temperature(compiler *c, int q)
{
  op_record *r = emit(c, OP_temperature);
  r->temperature = (struct op_temperature){.width = emit_width(c, q),
                                           .span = c->config->temperature_span,
                                           .beta = (float)c->config->temperature_beta,
                                           .factor_type = table_type(&c->weights->embed),
                                           .type = emit_dtype(c, q)};
  use(c, r, &r->temperature.q, q);
}

static ops_dtype attention_type(const compiler *c, int q, ops_dtype together)
{
  arch_precision precision = c->config->arch->precision;
  bool f32 = precision == PRECISION_F32 || (precision == PRECISION_F32_HALF && emit_dtype(c, q) == DT_F16);
  return f32 ? DT_F32 : together;
}

int emit_attention(compiler *c, int q, int k, int v, int slot, const layer_config *l)
{
  const model_config *m = c->config;
  kv_slot *s = &c->plan->slots[slot];
  s->quant.key_type = emit_dtype(c, k);
  s->quant.value_type = emit_dtype(c, v);
  op_record *r = emit(c, OP_kv_append);
  r->kv_append = (struct op_kv_append){
      .slot = slot, .kv_heads = l->kv_heads, .key_dim = m->head_dim, .value_dim = m->head_dim, .quant = s->quant};
  use(c, r, &r->kv_append.k, k);
  use(c, r, &r->kv_append.v, v);
  ops_dtype together = ops_promote(ops_promote(emit_dtype(c, q), emit_dtype(c, k)), emit_dtype(c, v));
  ops_dtype scores = attention_type(c, q, ops_promote(emit_dtype(c, q), emit_dtype(c, k)));
  ops_dtype values = attention_type(c, q, together), type = m->arch->precision == PRECISION_MANUAL ? scores : values;
  ops_dtype out = m->arch->precision == PRECISION_F32        ? emit_dtype(c, v)
                  : m->arch->precision == PRECISION_F32_HALF ? emit_dtype(c, q)
                                                             : together;
  bool sparse = m->sparse_every && c->layer % m->sparse_every == 0;
  int a = emit_buffer(c, l->heads * m->head_dim, out);
  r = emit(c, OP_attention);
  r->attention = (struct op_attention){.slot = slot,
                                       .heads = l->heads,
                                       .kv_heads = l->kv_heads,
                                       .key_dim = m->head_dim,
                                       .value_dim = m->head_dim,
                                       .scale = (float)model_config_scale(m),
                                       .softcap = (float)m->attention_softcap,
                                       .window = s->window,
                                       .keep = s->keep,
                                       .by_time = s->by_time,
                                       .sparse_block = sparse ? m->sparse_block : 0,
                                       .sparse_local = m->sparse_local,
                                       .sparse_stride = m->sparse_stride,
                                       .type = type,
                                       .value_type = values,
                                       .out_type = out,
                                       .quant = s->quant,
                                       .score_type = scores};
  use(c, r, &r->attention.q, q);
  use(c, r, &r->attention.out, a);
  return a;
}

/* ---- values ---- */

int emit_act(compiler *c, int x, const float params[4], ops_dtype params_dtype)
{
  ops_dtype type = emit_dtype(c, x);
  op_record *r = emit(c, OP_act);
  r->act = (struct op_act){.width = emit_width(c, x), .act = c->act, .x_type = type};
  if (c->act == ACT_XIELU)
    type = ops_promote(type, params_dtype);
  r->act.type = type;
  memcpy(r->act.params, params, sizeof r->act.params);
  use(c, r, &r->act.x, x);
  use(c, r, &r->act.y, x);
  set_dtype(c, x, type);
  return x;
}

int emit_glu(compiler *c, int gate, int up)
{
  ops_dtype type = ops_promote(emit_dtype(c, gate), emit_dtype(c, up));
  op_record *r = emit(c, OP_glu);
  r->glu = (struct op_glu){.width = emit_width(c, gate),
                           .act = c->act,
                           .limit = (float)c->config->act_limit,
                           .gate_type = emit_dtype(c, gate),
                           .type = type};
  use(c, r, &r->glu.gate, gate);
  use(c, r, &r->glu.up, up);
  use(c, r, &r->glu.y, gate);
  set_dtype(c, gate, type);
  return gate;
}

void emit_scale(compiler *c, int x, double factor, bool divide)
{
  ops_dtype type = emit_dtype(c, x);
  op_record *r = emit(c, OP_scale);
  r->scale = (struct op_scale){
      .width = emit_width(c, x), .factor = ops_round(type, (float)factor), .divide = divide, .type = type};
  use(c, r, &r->scale.x, x);
  use(c, r, &r->scale.y, x);
}

void emit_softcap(compiler *c, int x, double cap)
{
  ops_dtype type = emit_dtype(c, x);
  op_record *r = emit(c, OP_softcap);
  r->softcap = (struct op_softcap){.width = emit_width(c, x), .cap = ops_round(type, (float)cap), .type = type};
  use(c, r, &r->softcap.x, x);
  use(c, r, &r->softcap.y, x);
}

void emit_add(compiler *c, int x, int y)
{
  /* clip_residual looks at the type of x; in float16 it clamps the float32 sum. */
  bool clip = c->config->arch->clip_f16 && emit_dtype(c, x) == DT_F16;
  emit_sum(c, x, y, clip ? 65504.0f : 0);
}

int emit_select(compiler *c, int x)
{
  int y = emit_buffer(c, emit_width(c, x), emit_dtype(c, x));
  op_record *r = emit(c, OP_select);
  r->select = (struct op_select){.width = emit_width(c, x)};
  use(c, r, &r->select.x, x);
  use(c, r, &r->select.y, y);
  return y;
}

/* ---- buffers to memory ---- */

static size_t buffer_floats(const compiler *c, const buffer *b)
{
  size_t rows = (size_t)(b->head ? c->plan->head_rows : c->plan->max_tokens);
  return (rows * (size_t)b->width + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static bool lives_meet(const buffer *a, const buffer *b)
{
  return a->first <= b->last && b->first <= a->last;
}

/* First fit in order of creation: each buffer takes the lowest place that no buffer alive with it holds. */
static size_t place_buffers(compiler *c)
{
  size_t total = 0;
  for (size_t i = 0; i < c->n_buffers; i++) {
    buffer *b = &c->buffers[i];
    size_t size = buffer_floats(c, b);
    b->offset = 0;
    for (size_t n = 0; n < i; n++) {
      const buffer *other = &c->buffers[n];
      size_t other_size = buffer_floats(c, other);
      if (lives_meet(b, other) && b->offset < other->offset + other_size && other->offset < b->offset + size) {
        b->offset = other->offset + other_size;
        n = (size_t)-1; /* moved: look at all again */
      }
    }
    if (b->offset + size > total)
      total = b->offset + size;
  }
  return total;
}

static void apply_patches(compiler *c)
{
  for (size_t i = 0; i < c->n_patches; i++) {
    const patch *at = &c->patches[i];
    float *address = c->plan->memory + c->buffers[at->buffer].offset;
    memcpy((char *)&c->plan->records[at->record] + at->field, &address, sizeof address);
  }
}

tern_status emit_close(compiler *c, tern_error *err)
{
  plan *p = c->plan;
  if (c->shortage.status != TERN_OK)
    return err_set(err, c->shortage.status, "%s", c->shortage.text);
  if (c->failed)
    return err_nomem(err, "plan");
  if (c->fault[0])
    return err_set(err, TERN_E_UNSUPPORTED, "weights: %s", c->fault);
  p->memory_bytes = place_buffers(c) * sizeof(float);
  p->memory = c->cx->backend->alloc(c->cx, p->memory_bytes);
  if (!p->memory)
    return ops_nomem(c->cx, "activations", p->memory_bytes, err);
  apply_patches(c);
  return TERN_OK;
}
