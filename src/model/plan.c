/* plan.c - compiling and running. See plan.h.
 *
 * While records are being emitted an operand is a pair (address of a pointer field, buffer number) in a list of
 * patches; lives and offsets are computed from that list alone, so an emitter says what it uses and nothing else.
 */
#include "model/plan.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/arch.h"
#include "ops/value.h"

enum { MAX_KV_KEEP = 4 }; /* the reference's RotatingKVCache(keep=4) */
enum { HEAD_ROWS = 16 };
enum { ALIGN_FLOATS = 16 };

typedef struct buffer {
  int width;       /* floats a token */
  bool head;       /* sized by head rows */
  ops_dtype dtype; /* as arithmetic sees the values */
  int first, last; /* records that name it; first < 0: none yet */
  size_t offset;   /* floats */
} buffer;

typedef struct patch {
  int record;
  size_t field; /* byte offset of the pointer in op_record */
  int buffer;
} patch;

typedef struct compiler {
  const model_config *config;
  const model_weights *weights;
  plan *plan;
  size_t record_capacity;
  buffer *buffers;
  size_t n_buffers, buffer_capacity;
  patch *patches;
  size_t n_patches, patch_capacity;
  bool failed;       /* no memory; checked once, after emitting */
  bool mixed;        /* q and k of a layer differ in type; checked likewise */
  op_record nowhere; /* takes writes after a failure; never read */
  int layer;
} compiler;

/* ---- emitting ---- */

static int new_buffer(compiler *c, int width, ops_dtype dtype)
{
  if (c->failed || !mem_grow(&c->buffers, &c->buffer_capacity, c->n_buffers + 1, sizeof *c->buffers)) {
    c->failed = true;
    return 0;
  }
  c->buffers[c->n_buffers] = (buffer){.width = width, .dtype = dtype, .first = -1};
  return (int)c->n_buffers++;
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

static ops_dtype dtype_of(const compiler *c, int b)
{
  return c->failed ? DT_F32 : c->buffers[b].dtype;
}

/* The type of x W^T: promoted with a dense or affine weight; the fp modes keep the type of x. */
static ops_dtype product_type(const ops_weight *w, ops_dtype x)
{
  return w->quant == Q_NONE || w->quant == Q_AFFINE ? ops_promote(x, w->dtype) : x;
}

static int emit_norm(compiler *c, int x, int y, const weight_vector *w, int count, int width)
{
  ops_dtype type = ops_promote(dtype_of(c, x), w->dtype);
  if (y < 0)
    y = new_buffer(c, count * width, type);
  op_record *r = emit(c, OP_rms_norm);
  r->rms_norm = (struct op_rms_norm){.w = w->values,
                                     .count = count,
                                     .width = width,
                                     .x_stride = (int64_t)count * width,
                                     .y_stride = (int64_t)count * width,
                                     .eps = (float)c->config->norm_eps,
                                     .type = type};
  use(c, r, &r->rms_norm.x, x);
  use(c, r, &r->rms_norm.y, y);
  return y;
}

typedef struct projection {
  const ops_weight *w;
  const weight_vector *bias;
  int y; /* out */
} projection;

/* Up to three products of one input. residual: a buffer that the first is added to, in place; < 0: none. */
static void emit_linear(compiler *c, int x, projection *to, int n, int residual)
{
  struct op_linear a = {.outputs = n};
  for (int i = 0; i < n; i++) {
    a.w[i] = to[i].w;
    a.bias[i] = to[i].bias ? to[i].bias->values : NULL;
    a.type[i] = product_type(to[i].w, dtype_of(c, x));
    if (a.bias[i])
      a.type[i] = ops_promote(a.type[i], to[i].bias->dtype);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the weights of every layer are bound */
    to[i].y = residual >= 0 ? residual : new_buffer(c, (int)to[i].w->n, a.type[i]);
  }
  if (residual >= 0) {
    a.residual_type = ops_promote(dtype_of(c, residual), a.type[0]);
    if (!c->failed)
      c->buffers[residual].dtype = a.residual_type;
  }
  op_record *r = emit(c, OP_linear);
  r->linear = a;
  use(c, r, &r->linear.x, x);
  for (int i = 0; i < n; i++)
    use(c, r, &r->linear.y[i], to[i].y);
  if (residual >= 0)
    use(c, r, &r->linear.residual, residual);
}

static void emit_embed(compiler *c, int x, ops_dtype type)
{
  const arch *a = c->config->arch;
  op_record *r = emit(c, OP_embed);
  r->embed = (struct op_embed){.table = &c->weights->embed, .scale = 1, .type = type};
  if (a->embed_scale) /* mx.array(width ** 0.5, bfloat16) */
    r->embed.scale = ops_round(type, ops_round(DT_BF16, (float)pow(c->config->width, 0.5)));
  use(c, r, &r->embed.out, x);
}

static void emit_rope(compiler *c, int q, int k, ops_dtype type, int rope)
{
  const rope_table *t = &c->plan->ropes[rope];
  op_record *r = emit(c, OP_rope);
  r->rope = (struct op_rope){.q_heads = c->config->heads,
                             .k_heads = c->config->kv_heads,
                             .head_dim = c->config->head_dim,
                             .dims = t->dims,
                             .inverse = c->plan->rope_memory[rope],
                             .position_scale = t->position_scale,
                             .mscale = t->mscale,
                             .traditional = t->traditional,
                             .type = type};
  use(c, r, &r->rope.q, q);
  use(c, r, &r->rope.k, k);
}

/* Adds y to the residual stream x in place: into the product itself where nothing stands between, else as an op. */
static void emit_add(compiler *c, int x, int y)
{
  ops_dtype type = ops_promote(dtype_of(c, x), dtype_of(c, y));
  op_record *r = emit(c, OP_add);
  r->add = (struct op_add){.width = c->config->width, .type = type};
  /* clip_residual looks at the type of x; in float16 it clamps the float32 sum. */
  if (c->config->arch->clip_f16 && dtype_of(c, x) == DT_F16) {
    r->add.clip = 65504.0f;
    r->add.type = type = DT_F16;
  }
  use(c, r, &r->add.x, y);
  use(c, r, &r->add.y, x);
  if (!c->failed)
    c->buffers[x].dtype = type;
}

/* ---- the dense block ---- */

static void emit_attention(compiler *c, int h, int residual, int *out)
{
  const model_config *m = c->config;
  const layer_weights *l = &c->weights->layers[c->layer];
  projection qkv[3] = {{&l->q, &l->q_bias, 0}, {&l->k, &l->k_bias, 0}, {&l->v, &l->v_bias, 0}};
  emit_linear(c, h, qkv, 3, -1);
  int q = qkv[0].y, k = qkv[1].y, v = qkv[2].y;
  if (m->arch->qk_norm) {
    q = emit_norm(c, q, -1, &l->q_norm, m->heads, m->head_dim);
    k = emit_norm(c, k, -1, &l->k_norm, m->kv_heads, m->head_dim);
  }
  c->mixed |= dtype_of(c, q) != dtype_of(c, k); /* the rotation would have to round each to its own */
  emit_rope(c, q, k, dtype_of(c, q), m->arch->local_rope && m->sliding[c->layer] ? 1 : 0);
  op_record *r = emit(c, OP_kv_append);
  r->kv_append = (struct op_kv_append){
      .slot = c->layer, .kv_heads = m->kv_heads, .key_dim = m->head_dim, .value_dim = m->head_dim};
  use(c, r, &r->kv_append.k, k);
  use(c, r, &r->kv_append.v, v);
  const kv_slot *slot = &c->plan->slots[c->layer];
  ops_dtype type = ops_promote(ops_promote(dtype_of(c, q), dtype_of(c, k)), dtype_of(c, v));
  int a = new_buffer(c, m->heads * m->head_dim, type);
  r = emit(c, OP_attention);
  r->attention = (struct op_attention){.slot = c->layer,
                                       .heads = m->heads,
                                       .kv_heads = m->kv_heads,
                                       .key_dim = m->head_dim,
                                       .value_dim = m->head_dim,
                                       .scale = (float)model_config_scale(m),
                                       .window = slot->window,
                                       .keep = slot->keep,
                                       .type = type};
  use(c, r, &r->attention.q, q);
  use(c, r, &r->attention.out, a);
  projection o = {&l->o, &l->o_bias, 0};
  emit_linear(c, a, &o, 1, residual);
  *out = o.y;
}

static void emit_mlp(compiler *c, int h, int residual, int *out)
{
  const layer_weights *l = &c->weights->layers[c->layer];
  projection in[2] = {{&l->gate, &l->gate_bias, 0}, {&l->up, &l->up_bias, 0}};
  emit_linear(c, h, in, 2, -1);
  ops_dtype type = ops_promote(dtype_of(c, in[0].y), dtype_of(c, in[1].y));
  op_record *r = emit(c, OP_glu);
  r->glu = (struct op_glu){.width = c->config->ffn, .act = c->config->arch->act, .type = type};
  use(c, r, &r->glu.gate, in[0].y);
  use(c, r, &r->glu.up, in[1].y);
  use(c, r, &r->glu.y, in[0].y);
  projection down = {&l->down, &l->down_bias, 0};
  emit_linear(c, in[0].y, &down, 1, residual);
  *out = down.y;
}

static void emit_block(compiler *c, int x)
{
  const layer_weights *l = &c->weights->layers[c->layer];
  int width = c->config->width, h, out;
  if (c->config->arch->block == BLOCK_PRE) {
    h = emit_norm(c, x, -1, &l->norm[0], 1, width);
    emit_attention(c, h, x, &out);
    h = emit_norm(c, x, -1, &l->norm[1], 1, width);
    emit_mlp(c, h, x, &out);
    return;
  }
  h = emit_norm(c, x, -1, &l->norm[0], 1, width);
  emit_attention(c, h, -1, &out);
  emit_add(c, x, emit_norm(c, out, -1, &l->norm[1], 1, width));
  h = emit_norm(c, x, -1, &l->norm[2], 1, width);
  emit_mlp(c, h, -1, &out);
  emit_add(c, x, emit_norm(c, out, -1, &l->norm[3], 1, width));
}

static int emit_head(compiler *c, int x)
{
  plan *p = c->plan;
  c->layer = -1;
  p->body = (plan_segment){0, p->n_records};
  size_t first = c->n_buffers;
  int chosen = new_buffer(c, c->config->width, dtype_of(c, x));
  op_record *r = emit(c, OP_select);
  r->select = (struct op_select){.width = c->config->width};
  use(c, r, &r->select.x, x);
  use(c, r, &r->select.y, chosen);
  int h = emit_norm(c, chosen, -1, &c->weights->final_norm, 1, c->config->width);
  projection logits = {&c->weights->head, NULL, 0};
  emit_linear(c, h, &logits, 1, -1);
  for (size_t i = first; i < c->n_buffers; i++)
    c->buffers[i].head = true;
  p->head = (plan_segment){p->body.end, p->n_records};
  for (int i = p->head.begin; i < p->head.end; i++)
    p->records[i].wanted = true;
  /* The head may run several times over one body: what it starts from must outlive it. */
  if (!c->failed)
    c->buffers[x].last = p->n_records;
  return logits.y;
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

/* First fit in order of first use: each buffer takes the lowest place that no buffer alive with it holds. */
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

/* ---- tables that records point to ---- */

static tern_status make_ropes(ops_context *cx, const model_config *m, plan *p, tern_error *err)
{
  int first_full = 0, first_sliding = 0;
  for (int i = m->layers - 1; i >= 0; i--)
    *(m->sliding[i] ? &first_sliding : &first_full) = i;
  int n = m->arch->local_rope ? 2 : 1;
  p->ropes = mem_array((size_t)n, sizeof *p->ropes);
  p->rope_memory = mem_array((size_t)n, sizeof *p->rope_memory);
  if (!p->ropes || !p->rope_memory)
    return err_nomem(err, "rope tables");
  for (int i = 0; i < n; i++) {
    rope_config config = model_config_rope(m, i ? first_sliding : first_full);
    TRY(rope_make(&config, "config.json: rope_scaling", &p->ropes[i], err));
    p->n_ropes = i + 1;
    size_t bytes = (size_t)(p->ropes[i].dims / 2) * sizeof(float);
    p->rope_memory[i] = cx->backend->alloc(cx, bytes);
    if (!p->rope_memory[i])
      return err_nomem(err, "rope tables");
    cx->backend->write(cx, p->rope_memory[i], p->ropes[i].inverse, bytes);
  }
  return TERN_OK;
}

static tern_status make_slots(const model_config *m, int max_kv_size, plan *p, tern_error *err)
{
  if (max_kv_size && m->arch->own_caches)
    return err_set(err, TERN_E_UNSUPPORTED, "max-kv-size: %s brings its own caches, to which it does not apply",
                   m->arch->name);
  if (max_kv_size && max_kv_size <= MAX_KV_KEEP)
    return err_set(err, TERN_E_USAGE, "max-kv-size: %d must be above %d, the positions that are always kept",
                   max_kv_size, MAX_KV_KEEP);
  p->slots = mem_array((size_t)m->layers, sizeof *p->slots);
  if (!p->slots)
    return err_nomem(err, "state slots");
  p->n_slots = m->layers;
  for (int i = 0; i < m->layers; i++) {
    p->slots[i] = (kv_slot){.kv_heads = m->kv_heads, .key_dim = m->head_dim, .value_dim = m->head_dim};
    if (m->sliding[i])
      p->slots[i].window = m->sliding_window;
    else if (max_kv_size) {
      p->slots[i].window = max_kv_size;
      p->slots[i].keep = MAX_KV_KEEP;
    }
  }
  return TERN_OK;
}

/* ---- compile ---- */

size_t plan_bytes_per_token(const model_config *m)
{
  size_t heads = (size_t)(m->heads + m->kv_heads) * (size_t)m->head_dim;
  size_t attention = 4 * heads, mlp = 2 * (size_t)m->ffn;
  return (3 * (size_t)m->width + (attention > mlp ? attention : mlp)) * sizeof(float);
}

static tern_status emit_all(ops_context *cx, compiler *c, tern_error *err)
{
  plan *p = c->plan;
  const ops_weight *embed = &c->weights->embed;
  /* The fp modes dequantise embeddings to bf16, whatever the mode of numerics. */
  ops_dtype type = embed->quant == Q_NONE || embed->quant == Q_AFFINE ? embed->dtype : DT_BF16;
  c->layer = -1;
  int x = new_buffer(c, c->config->width, type);
  emit_embed(c, x, type);
  for (c->layer = 0; c->layer < c->config->layers; c->layer++)
    emit_block(c, x);
  int logits = emit_head(c, x);
  if (c->failed)
    return err_nomem(err, "plan");
  if (c->mixed)
    return err_set(err, TERN_E_UNSUPPORTED,
                   "weights: the types of q_proj and k_proj differ; native numerics needs one");
  size_t floats = place_buffers(c);
  p->memory_bytes = floats * sizeof(float);
  p->memory = cx->backend->alloc(cx, p->memory_bytes);
  if (!p->memory)
    return err_set(err, TERN_E_NOMEM, "out of memory (%zu bytes of activations)", p->memory_bytes);
  apply_patches(c);
  p->logits = p->memory + c->buffers[logits].offset;
  p->logits_dtype = c->buffers[logits].dtype;
  if (cx->backend->own_memory) {
    p->host_logits = mem_array((size_t)p->head_rows, (size_t)p->vocab * sizeof *p->host_logits);
    if (!p->host_logits)
      return err_nomem(err, "logits");
  }
  return TERN_OK;
}

tern_status plan_compile(ops_context *cx, const model_config *config, const model_weights *weights, int max_tokens,
                         int max_kv_size, plan *out, tern_error *err)
{
  *out = (plan){.max_tokens = max_tokens, .head_rows = HEAD_ROWS, .vocab = config->vocab};
  compiler c = {.config = config, .weights = weights, .plan = out};
  tern_status status = make_slots(config, max_kv_size, out, err);
  if (status == TERN_OK)
    status = make_ropes(cx, config, out, err);
  if (status == TERN_OK)
    status = emit_all(cx, &c, err);
  mem_free(c.buffers);
  mem_free(c.patches);
  if (status != TERN_OK)
    plan_release(cx, out);
  return status;
}

void plan_release(ops_context *cx, plan *p)
{
  for (int i = 0; i < p->n_ropes; i++) {
    rope_free(&p->ropes[i]);
    if (p->rope_memory[i])
      cx->backend->release(cx, p->rope_memory[i]);
  }
  if (p->memory)
    cx->backend->release(cx, p->memory);
  mem_free(p->host_logits);
  mem_free(p->ropes);
  mem_free(p->rope_memory);
  mem_free(p->slots);
  mem_free(p->records);
  *p = (plan){0};
}

/* ---- run ---- */

/* False: cancelled. */
static bool run_segment(ops_context *cx, const plan *p, plan_segment s, const ops_step *step,
                        const atomic_bool *cancelled)
{
  if (cx->backend->submit) {
    cx->backend->submit(cx, p->records + s.begin, s.end - s.begin, step);
    return true;
  }
  for (int i = s.begin; i < s.end; i++) {
    if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
      return false;
    cx->backend->run[p->records[i].kind](cx, &p->records[i], step);
    if (cx->watch)
      cx->watch(cx->watch_user, &p->records[i], step);
  }
  return true;
}

bool plan_run(ops_context *cx, const plan *p, const ops_step *step, const atomic_bool *cancelled, plan_sink *sink,
              void *user)
{
  if (!run_segment(cx, p, p->body, step, cancelled))
    return false;
  for (int done = 0; done < step->wanted;) {
    int n = step->wanted - done < p->head_rows ? step->wanted - done : p->head_rows;
    ops_step part = *step;
    part.wanted = n;
    part.want = step->want + done;
    if (!run_segment(cx, p, p->head, &part, cancelled))
      return false;
    float *logits = p->logits;
    if (p->host_logits) {
      logits = p->host_logits;
      cx->backend->read(cx, logits, p->logits, (size_t)n * (size_t)p->vocab * sizeof *logits);
    }
    for (int i = 0; i < n; i++)
      sink(user, done + i, logits + (size_t)i * (size_t)p->vocab);
    done += n;
  }
  return true;
}
