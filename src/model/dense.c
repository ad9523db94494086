/* dense.c - what a descriptor means: every branch on it is taken here, once, at open.
 *
 * Read dense_emit first. A half of a block (attention, MLP) takes a normed input and gives its result as a buffer, or
 * adds it to the stream within its last product where nothing stands between. */
#include "model/dense.h"

#include <string.h>

#include "base/mem.h"
#include "model/arch.h"

enum { NO_RESIDUAL = -1 };

static const layer_weights *weights_of(const compiler *c)
{
  return &c->weights->layers[c->layer];
}

static const layer_config *config_of(const compiler *c)
{
  return &c->config->layer[c->layer];
}

static int emit_linear_one(compiler *c, int x, const ops_weight *w, const weight_vector *bias, int residual)
{
  projection one = {w, bias, 0};
  emit_linear(c, x, &one, 1, residual);
  return one.y;
}

/* ---- attention ---- */

/* Takes the product of an interleaved matrix apart: groups of `each` query heads, a key and a value. */
static void ungroup(compiler *c, int fused, int out[3])
{
  const layer_config *l = config_of(c);
  int each = l->heads / l->kv_heads, step = each + 2, n = 0;
  int32_t *from = mem_array((size_t)l->heads, sizeof *from);
  if (!from) {
    c->failed = true;
    return;
  }
  for (int g = 0; g < l->kv_heads; g++)
    for (int h = 0; h < each; h++)
      from[n++] = g * step + h;
  out[0] = emit_regroup(c, fused, from, l->heads, c->config->head_dim);
  for (int part = 0; part < 2; part++) {
    for (int g = 0; g < l->kv_heads; g++)
      from[g] = g * step + each + part;
    out[1 + part] = emit_regroup(c, fused, from, l->kv_heads, c->config->head_dim);
  }
  mem_free(from);
}

static void project(compiler *c, int h, int out[3])
{
  const layer_weights *l = weights_of(c);
  if (c->config->arch->pack == PACK_GROUPED) {
    ungroup(c, emit_linear_one(c, h, &l->qkv, &l->qkv_bias, NO_RESIDUAL), out);
    return;
  }
  projection qkv[3] = {{&l->q, &l->q_bias, 0}, {&l->k, &l->k_bias, 0}, {&l->v, &l->v_bias, 0}};
  emit_linear(c, h, qkv, 3, NO_RESIDUAL);
  for (int i = 0; i < 3; i++)
    out[i] = qkv[i].y;
}

static void norm_qk(compiler *c, int *q, int *k)
{
  const model_config *m = c->config;
  const layer_weights *l = weights_of(c);
  int heads = config_of(c)->heads, kv_heads = config_of(c)->kv_heads, width = m->head_dim;
  switch (m->qk_norm ? m->arch->qk_norm : QK_NONE) {
  case QK_HEAD:
    *q = emit_norm(c, *q, m->arch->qk_kind, &l->q_norm, NULL, heads, width);
    *k = emit_norm(c, *k, m->arch->qk_kind, &l->k_norm, NULL, kv_heads, width);
    break;
  case QK_WIDE:
    *q = emit_norm(c, *q, m->arch->qk_kind, &l->q_norm, NULL, 1, heads * width);
    *k = emit_norm(c, *k, m->arch->qk_kind, &l->k_norm, NULL, 1, kv_heads * width);
    break;
  case QK_HEAD_LAYER:
    *q = emit_head_norm(c, *q, &l->q_norm, heads, width);
    *k = emit_head_norm(c, *k, &l->k_norm, kv_heads, width);
    break;
  case QK_NONE:
    break;
  }
}

/* Query heads in the order that puts those of one kv head together (`back`: the way home). Head h reads kv head
 * h mod kv_heads. */
static int retile(compiler *c, int x, bool back)
{
  const layer_config *l = config_of(c);
  int each = l->heads / l->kv_heads;
  int32_t *from = mem_array((size_t)l->heads, sizeof *from);
  if (!from) {
    c->failed = true;
    return x;
  }
  for (int h = 0; h < l->heads; h++) {
    int tiled = h % l->kv_heads * each + h / l->kv_heads; /* where head h stands between */
    from[back ? h : tiled] = back ? tiled : h;
  }
  int y = emit_regroup(c, x, from, l->heads, c->config->head_dim);
  mem_free(from);
  return y;
}

static int attend(compiler *c, int h, int residual)
{
  const model_config *m = c->config;
  const arch *a = m->arch;
  const layer_weights *l = weights_of(c);
  const layer_config *own = config_of(c);
  int qkv[3] = {0, 0, 0};
  if (own->attention == PART_LINEAR)
    return emit_linear_one(c, h, &l->o, &l->o_bias, residual);
  project(c, h, qkv);
  int q = qkv[0], k = qkv[1];
  if (!a->qk_norm_late)
    norm_qk(c, &q, &k);
  if (own->rope >= 0)
    emit_rope(c, q, k, own->rope, own);
  if (a->qk_norm_late)
    norm_qk(c, &q, &k);
  if (m->temperature_beta > 0)
    emit_temperature(c, q);
  if (a->kv_tiled)
    q = retile(c, q, false);
  int out = emit_attention(c, q, k, qkv[2], c->plan->slot_of_layer[c->layer], own);
  if (a->kv_tiled)
    out = retile(c, out, true);
  if (a->names->attention_norm)
    out = emit_norm(c, out, NORM_RMS, &l->attention_norm, NULL, 1, own->heads * m->head_dim);
  return emit_linear_one(c, out, &l->o, &l->o_bias, residual);
}

/* ---- MLP ---- */

static int deinterleave(compiler *c, int fused, int first)
{
  int n = config_of(c)->ffn;
  int32_t *from = mem_array((size_t)n, sizeof *from);
  if (!from) {
    c->failed = true;
    return fused;
  }
  for (int i = 0; i < n; i++)
    from[i] = 2 * i + first;
  int y = emit_regroup(c, fused, from, n, 1);
  mem_free(from);
  return y;
}

static int hidden(compiler *c, int h)
{
  const layer_weights *l = weights_of(c);
  if (c->config->arch->mlp == MLP_PLAIN)
    return emit_act(c, emit_linear_one(c, h, &l->up, &l->up_bias, NO_RESIDUAL), l->act, l->act_dtype);
  if (c->config->arch->mlp == MLP_INTERLEAVED) {
    int fused = emit_linear_one(c, h, &l->gate_up, &l->gate_up_bias, NO_RESIDUAL);
    int gate = deinterleave(c, fused, 0);
    return emit_glu(c, gate, deinterleave(c, fused, 1));
  }
  projection in[2] = {{&l->gate, &l->gate_bias, 0}, {&l->up, &l->up_bias, 0}};
  emit_linear(c, h, in, 2, NO_RESIDUAL);
  return emit_glu(c, in[0].y, in[1].y);
}

static int feed(compiler *c, int h, int residual)
{
  const layer_weights *l = weights_of(c);
  const layer_config *own = config_of(c);
  if (own->mlp == PART_USUAL) {
    h = hidden(c, h);
    if (c->config->arch->names->mlp_norm)
      h = emit_norm(c, h, NORM_RMS, &l->mlp_norm, NULL, 1, own->ffn);
  }
  return emit_linear_one(c, h, &l->down, &l->down_bias, residual);
}

/* ---- blocks ---- */

typedef int half_fn(compiler *c, int h, int residual);

static int norm(compiler *c, int x, int n)
{
  const layer_weights *l = weights_of(c);
  return emit_norm(c, x, c->config->arch->norm, &l->norm[n], &l->norm_bias[n], 1, c->config->width);
}

/* x += f(h), with what the architecture does to a half's result before the sum. */
static void add_half(compiler *c, int x, int h, half_fn *f)
{
  if (c->config->residual_scale == 1) {
    f(c, h, x);
    return;
  }
  int y = f(c, h, NO_RESIDUAL);
  emit_scale(c, y, c->config->residual_scale, false);
  emit_add(c, x, y);
}

static void emit_block(compiler *c, int x)
{
  bool attends = config_of(c)->attention != PART_NONE, feeds = config_of(c)->mlp != PART_NONE;
  int h, y;
  switch (model_config_block(c->config)) {
  case BLOCK_PRE:
    if (attends)
      add_half(c, x, norm(c, x, 0), attend);
    if (feeds)
      add_half(c, x, norm(c, x, 1), feed);
    break;
  case BLOCK_POST:
    emit_add(c, x, norm(c, attend(c, x, NO_RESIDUAL), 0));
    emit_add(c, x, norm(c, feed(c, x, NO_RESIDUAL), 1));
    break;
  case BLOCK_SANDWICH:
    emit_add(c, x, norm(c, attend(c, norm(c, x, 0), NO_RESIDUAL), 1));
    emit_add(c, x, norm(c, feed(c, norm(c, x, 2), NO_RESIDUAL), 3));
    break;
  case BLOCK_PARALLEL:
  case BLOCK_PARALLEL2:
    h = norm(c, x, 0);
    y = attend(c, h, NO_RESIDUAL);
    if (model_config_block(c->config) == BLOCK_PARALLEL2)
      h = norm(c, x, 1);
    feed(c, h, y);
    emit_add(c, x, y);
    break;
  case BLOCK_FORKED:
    h = norm(c, x, 0);
    attend(c, h, x);
    feed(c, h, x);
    break;
  }
}

/* ---- ends ---- */

/* The last norm of the rows that are wanted. */
static int emit_last_norm(compiler *c, int x)
{
  const model_weights *w = c->weights;
  return emit_norm(c, emit_select(c, x), c->config->arch->norm, &w->final_norm, &w->final_norm_bias, 1,
                   c->config->width);
}

/* What was emitted since those buffers and records runs over wanted rows. */
static plan_segment close_wanted(compiler *c, size_t first_buffer, int first_record)
{
  plan *p = c->plan;
  for (size_t i = first_buffer; i < c->n_buffers; i++)
    c->buffers[i].head = true;
  for (int i = first_record; i < p->n_records; i++)
    p->records[i].wanted = true;
  return (plan_segment){first_record, p->n_records};
}

static int emit_head(compiler *c, int x)
{
  const model_config *m = c->config;
  const model_weights *w = c->weights;
  plan *p = c->plan;
  c->layer = -1;
  p->body = (plan_segment){0, p->n_records};
  size_t first = c->n_buffers;
  int h = emit_last_norm(c, x);
  if (!w->tied && m->head_divisor != 1)
    emit_scale(c, h, m->head_divisor, true);
  int logits = emit_linear_one(c, h, &w->head, &w->head_bias, NO_RESIDUAL);
  if (m->logit_scale != 1)
    emit_scale(c, logits, m->logit_scale, false);
  if (m->logit_divisor != 1)
    emit_scale(c, logits, m->logit_divisor, true);
  if (m->logit_softcap > 0)
    emit_softcap(c, logits, m->logit_softcap);
  p->head = close_wanted(c, first, p->body.end);
  first = c->n_buffers;
  c->hidden = emit_last_norm(c, x);
  p->hidden = close_wanted(c, first, p->head.end);
  /* Both may run several times over one body: what they start from must outlive them. */
  if (!c->failed)
    c->buffers[x].last = p->n_records;
  return logits;
}

int dense_emit(compiler *c)
{
  c->layer = -1;
  int x = emit_embed(c);
  if (c->config->arch->embed_norm) {
    static const weight_vector none = {0};
    x = emit_norm(c, x, NORM_RMS_BARE, &none, NULL, 1, c->config->width);
  }
  for (c->layer = 0; c->layer < c->config->layers; c->layer++)
    emit_block(c, x);
  return emit_head(c, x);
}
