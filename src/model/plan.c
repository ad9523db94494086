/* plan.c - compiling and running. See plan.h. What the records are is dense.c's; how they come to be is emit.c's. */
#include "model/plan.h"

#include <string.h>

#include "base/mem.h"
#include "model/dense.h"

enum { MAX_KV_KEEP = 4 }; /* the reference's RotatingKVCache(keep=4) */
enum { HEAD_ROWS = 16 };

/* ---- tables that records point to ---- */

static tern_status make_ropes(ops_context *cx, const model_config *m, plan *p, tern_error *err)
{
  int n = 0;
  for (int i = 0; i < m->layers; i++)
    n = m->layer[i].rope >= n ? m->layer[i].rope + 1 : n;
  p->ropes = mem_array(MODEL_ROPES, sizeof *p->ropes);
  p->rope_memory = mem_array(MODEL_ROPES, sizeof *p->rope_memory);
  if (!p->ropes || !p->rope_memory)
    return err_nomem(err, "rope tables");
  for (int i = 0; i < n; i++) {
    TRY(rope_make(&m->ropes[i], "config.json: rope_scaling", &p->ropes[i], err));
    p->n_ropes = i + 1;
    size_t bytes = (size_t)(p->ropes[i].dims / 2) * sizeof(float);
    p->rope_memory[i] = cx->backend->alloc(cx, bytes);
    if (!p->rope_memory[i])
      return ops_nomem(cx, "rope tables", bytes, err);
    cx->backend->write(cx, p->rope_memory[i], p->ropes[i].inverse, bytes);
  }
  return TERN_OK;
}

/* The types of what is quantised become known when keys and values are emitted. */
static kv_slot slot_of(const model_config *m, int layer, const plan_options *o)
{
  const layer_config *l = &m->layer[layer];
  kv_slot slot = {.kv_heads = l->kv_heads, .key_dim = m->head_dim, .value_dim = m->head_dim};
  slot.quant = (ops_kv_quant){.bits = o->kv_bits, .group = o->kv_group_size, .start = o->quantized_kv_start};
  if (l->sliding) {
    slot.window = m->sliding_window;
    slot.by_time = m->arch->windows_by_time || (m->wrapper && m->wrapper->windows_by_time);
  } else if (o->max_kv_size) {
    slot.window = o->max_kv_size;
    slot.keep = MAX_KV_KEEP;
  }
  return slot;
}

static tern_status check_max_kv_size(const model_config *m, int max_kv_size, tern_error *err)
{
  const char *name = m->wrapper ? m->wrapper->name : m->arch->name;
  bool own = m->wrapper ? m->arch->own_caches && !m->wrapper->windows_by_time : m->arch->own_caches;
  if (!max_kv_size)
    return TERN_OK;
  if (own)
    return err_set(err, TERN_E_UNSUPPORTED, "max-kv-size: %s brings its own caches, to which it does not apply", name);
  if (max_kv_size <= MAX_KV_KEEP)
    return err_set(err, TERN_E_USAGE, "max-kv-size: %d must be above %d, the positions that are always kept",
                   max_kv_size, MAX_KV_KEEP);
  for (int i = 0; i < m->layers; i++)
    if (m->layer[i].sliding)
      return err_set(err, TERN_E_UNSUPPORTED, "max-kv-size: %s has windows of its own (layer %d)", name, i);
  return TERN_OK;
}

/* Where the reference raises, there is nothing to compare with, and so nothing to run. */
static tern_status check_kv_bits(const model_config *m, const plan_options *o, const plan *p, tern_error *err)
{
  const char *name = m->wrapper ? m->wrapper->name : m->arch->name;
  if (!o->kv_bits)
    return TERN_OK;
  if (m->arch->plain_keys)
    return err_set(err, TERN_E_UNSUPPORTED, "kv-bits: the reference has no quantised keys and values for %s", name);
  if (o->max_kv_size)
    return err_set(err, TERN_E_UNSUPPORTED, "kv-bits: max-kv-size makes rings, which the reference does not quantise");
  for (int i = 0; i < m->layers; i++) {
    int slot = p->slot_of_layer[i];
    if (slot >= 0 && p->slots[slot].window && !p->slots[slot].by_time)
      return err_set(err, TERN_E_UNSUPPORTED,
                     "kv-bits: layer %d of %s keeps its window in a ring, which the reference does not quantise", i,
                     name);
  }
  if (m->head_dim % o->kv_group_size)
    return err_set(err, TERN_E_UNSUPPORTED, "kv-group-size: %d does not divide the heads' %d dims", o->kv_group_size,
                   m->head_dim);
  return TERN_OK;
}

static tern_status make_slots(const model_config *m, const plan_options *o, plan *p, tern_error *err)
{
  TRY(check_max_kv_size(m, o->max_kv_size, err));
  p->slots = mem_array((size_t)m->layers, sizeof *p->slots);
  p->slot_of_layer = mem_array((size_t)m->layers, sizeof *p->slot_of_layer);
  if (!p->slots || !p->slot_of_layer)
    return err_nomem(err, "state slots");
  for (int i = 0; i < m->layers; i++) {
    bool attends = m->layer[i].attention == PART_USUAL;
    p->slot_of_layer[i] = attends ? p->n_slots : -1;
    if (attends)
      p->slots[p->n_slots++] = slot_of(m, i, o);
  }
  if (p->n_slots == 0)
    return err_set(err, TERN_E_UNSUPPORTED, "config.json: no layer has attention");
  return check_kv_bits(m, o, p, err);
}

/* ---- compile ---- */

size_t plan_bytes_per_token(const model_config *m)
{
  size_t most = 0;
  for (int i = 0; i < m->layers; i++) {
    const layer_config *l = &m->layer[i];
    size_t heads = (size_t)(l->heads + l->kv_heads) * (size_t)m->head_dim;
    size_t attention = 4 * heads, mlp = 2 * (size_t)l->ffn;
    attention = attention > mlp ? attention : mlp;
    most = attention > most ? attention : most;
  }
  return (3 * (size_t)m->width + most) * sizeof(float);
}

size_t plan_logits_bytes(const model_config *m)
{
  return (size_t)HEAD_ROWS * (size_t)m->vocab * sizeof(float);
}

static void measure_room(plan *p)
{
  p->room.tokens = p->max_tokens;
  for (int i = 0; i < p->n_records; i++) {
    const op_record *r = &p->records[i];
    if (r->kind == OP_linear && r->linear.w[0]->k > p->room.inputs)
      p->room.inputs = r->linear.w[0]->k;
    if (r->kind != OP_attention)
      continue;
    const struct op_attention *a = &r->attention;
    int dims = a->key_dim > a->value_dim ? a->key_dim : a->value_dim;
    p->room.quantised = p->room.quantised || a->quant.bits > 0;
    p->room.dims = dims > p->room.dims ? dims : p->room.dims;
    p->room.heads = a->heads > p->room.heads ? a->heads : p->room.heads;
  }
}

static tern_status finish_outputs(compiler *c, int logits, tern_error *err)
{
  plan *p = c->plan;
  p->logits = p->memory + c->buffers[logits].offset;
  p->logits_dtype = c->buffers[logits].dtype;
  p->states = p->memory + c->buffers[c->hidden].offset;
  if (!c->cx->backend->own_memory)
    return TERN_OK;
  size_t rows = (size_t)p->head_rows;
  p->host_logits = c->cx->backend->host_alloc(c->cx, rows * (size_t)p->vocab * sizeof *p->host_logits);
  p->host_states = c->cx->backend->host_alloc(c->cx, rows * (size_t)p->width * sizeof *p->host_states);
  return p->host_logits && p->host_states ? TERN_OK : err_nomem(err, "logits");
}

static tern_status compile_all(compiler *c, const plan_options *o, tern_error *err)
{
  TRY(make_slots(c->config, o, c->plan, err));
  TRY(make_ropes(c->cx, c->config, c->plan, err));
  TRY(model_config_act(c->config, &c->act, err));
  int logits = dense_emit(c);
  TRY(emit_close(c, err));
  measure_room(c->plan);
  return finish_outputs(c, logits, err);
}

tern_status plan_compile(ops_context *cx, const model_config *config, const model_weights *weights, int max_tokens,
                         const plan_options *options, plan *out, tern_error *err)
{
  *out = (plan){.max_tokens = max_tokens, .head_rows = HEAD_ROWS, .vocab = config->vocab, .width = config->width};
  compiler c = {.cx = cx, .config = config, .weights = weights, .plan = out, .plain = options->plain};
  tern_status status = compile_all(&c, options, err);
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
  for (size_t i = 0; i < p->n_lists; i++)
    cx->backend->release(cx, p->lists[i]);
  if (p->memory)
    cx->backend->release(cx, p->memory);
  mem_free(p->lists);
  if (p->host_logits)
    cx->backend->host_release(cx, p->host_logits);
  if (p->host_states)
    cx->backend->host_release(cx, p->host_states);
  mem_free(p->ropes);
  mem_free(p->rope_memory);
  mem_free(p->slots);
  mem_free(p->slot_of_layer);
  mem_free(p->records);
  *p = (plan){0};
}

/* ---- run ---- */

/* Tells the backend of the first product from record i on; after the last comes the next step's first. */
static void expect_product(ops_context *cx, const plan *p, int i)
{
  for (int n = 0; cx->backend->expect && n < p->n_records; n++, i++) {
    i = i < p->n_records ? i : 0;
    if (p->records[i].kind == OP_linear) {
      cx->backend->expect(cx, &p->records[i]);
      return;
    }
  }
}

/* False: cancelled. */
static bool run_segment(ops_context *cx, const plan *p, plan_segment s, const ops_step *step,
                        const atomic_bool *cancelled)
{
  if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
    return false;
  if (cx->backend->submit) {
    cx->backend->submit(cx, p->records + s.begin, s.end - s.begin, step);
    return true;
  }
  for (int i = s.begin; i < s.end; i++) {
    if (cancelled && atomic_load_explicit(cancelled, memory_order_relaxed))
      return false;
    if (p->records[i].kind == OP_linear)
      expect_product(cx, p, i + 1);
    cx->backend->run[p->records[i].kind](cx, &p->records[i], step);
    if (cx->watch)
      cx->watch(cx->watch_user, &p->records[i], step);
  }
  return true;
}

/* What a segment over wanted rows gives: [head_rows, width] at `values`, and at `host` where the host has to read it.
 */
typedef struct outputs {
  plan_segment segment;
  float *values, *host;
  int width;
} outputs;

/* Where the rows' values are for the host to see. */
static float *seen(ops_context *cx, const outputs *o, int row, int n)
{
  size_t at = (size_t)row * (size_t)o->width;
  if (!o->host)
    return o->values + at;
  cx->backend->read(cx, o->host + at, o->values + at, (size_t)n * (size_t)o->width * sizeof *o->host);
  return o->host + at;
}

/* n rows, the first of which is `index`. (One row alone is read as quickly as its largest is told.) */
static void hand_over(ops_context *cx, const outputs *o, int index, int n, plan_sink *sink, const plan_choice *choice,
                      void *user)
{
  int32_t chosen[HEAD_ROWS];
  int enough = 0;
  for (int i = 0; i < n && choice && cx->backend->choose; i++)
    enough += choice->enough[index + i];
  bool asked = enough > 1;
  if (asked)
    cx->backend->choose(cx, o->values, n, o->width, choice->apart, chosen);
  float *values = asked ? NULL : seen(cx, o, 0, n);
  for (int i = 0; i < n; i++)
    if (asked && choice->enough[index + i] && chosen[i] >= 0)
      choice->sink(user, index + i, chosen[i]);
    else
      sink(user, index + i, asked ? seen(cx, o, i, 1) : values + (size_t)i * (size_t)o->width);
}

/* The segment over the wanted rows, in batches; the sinks count from `first`. */
static bool run_wanted(ops_context *cx, const plan *p, const outputs *o, const ops_step *step, int first,
                       const atomic_bool *cancelled, plan_sink *sink, const plan_choice *choice, void *user)
{
  for (int done = 0; done < step->wanted;) {
    int n = step->wanted - done < p->head_rows ? step->wanted - done : p->head_rows;
    ops_step part = *step;
    part.wanted = n;
    part.want = step->want + done;
    if (!run_segment(cx, p, o->segment, &part, cancelled))
      return false;
    hand_over(cx, o, first + done, n, sink, choice, user);
    done += n;
  }
  return true;
}

bool plan_run(ops_context *cx, const plan *p, const ops_step *step, const atomic_bool *cancelled, plan_sink *sink,
              const plan_choice *choice, void *user)
{
  outputs logits = {p->head, p->logits, p->host_logits, p->vocab};
  return run_segment(cx, p, p->body, step, cancelled) &&
         run_wanted(cx, p, &logits, step, 0, cancelled, sink, choice, user);
}

bool plan_run_hidden(ops_context *cx, const plan *p, const ops_step *step, const int32_t *want, int n, int first,
                     const atomic_bool *cancelled, plan_sink *sink, void *user)
{
  outputs states = {p->hidden, p->states, p->host_states, p->width};
  ops_step of = *step;
  of.want = want;
  of.wanted = n;
  return run_wanted(cx, p, &states, &of, first, cancelled, sink, NULL, user);
}
