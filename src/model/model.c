/* model.c - opening a network, in the order in which things can be refused cheapest. */
#include "model/model.h"

#include <string.h>

#include "base/mem.h"
#include "base/system.h"
#include "ops/cuda/plugin.h"

/* A step's activations, the logits of a few rows, and OPS_BYTES of scratch stay within STEP_BYTES. (Exact's attention
 * asks for more scratch in contexts beyond 100,000 positions.) */
enum { MOST_PIECE = 512, MOST_DEVICE_PIECE = 2048, STEP_BYTES = 64 << 20, OPS_BYTES = 11 << 20, KV_GROUP_SIZE = 64 };

/* ---- backend ---- */

static tern_status choose_simd(const char *name, ops_simd *out, tern_error *err)
{
  *out = ops_simd_best();
  if (!name)
    return TERN_OK;
  for (ops_simd level = SIMD_BASELINE; level < SIMD_LEVELS; level++) {
    if (strcmp(ops_simd_name(level), name))
      continue;
    if (!ops_simd_has(level))
      return err_set(err, TERN_E_UNSUPPORTED, "simd: this machine or build has no %s", name);
    *out = level;
    return TERN_OK;
  }
  return err_set(err, TERN_E_USAGE,
                 "simd: %s is not baseline, neon, dotprod, i8mm, avx2, avxvnni, avx512 or avx512vnni", name);
}

static tern_status open_cuda(model *m, const tern_model_options *o, tern_error *err)
{
  const cuda_plugin *plugin;
  cuda_options options = {
      .device = o->gpu, .fast = o->numerics == TERN_FAST, .share = o->gpu_memory > 0 ? o->gpu_memory : 1};
  if (o->numerics == TERN_NATIVE)
    return err_set(err, TERN_E_UNSUPPORTED, "backend: cuda runs numerics exact and fast; native runs on ref");
  if (o->mlock || o->simd)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: changes nothing on backend cuda", o->mlock ? "mlock" : "simd");
  TRY(cuda_load(&plugin, err));
  TRY(plugin->open(&options, &m->cx, err));
  size_t need = ckpt_bytes(m->ckpt), available = m->cx.backend->available(&m->cx);
  return need <= available ? TERN_OK
                           : err_set(err, TERN_E_LIMIT, "GPU memory: the weights need %zu MB, but %zu MB are free",
                                     need >> 20, available >> 20);
}

/* Whether AUTO looks for a GPU: not where something asks for the CPU. */
static bool may_use_gpu(const tern_model_options *o, bool headers_only)
{
  return o->numerics != TERN_NATIVE && !headers_only && !o->simd && !o->mlock && o->prepare != TERN_PREPARE_NOW &&
         cuda_driver_there();
}

/* A GPU that does not work is no reason to fail where nobody asked for it, but one to tell. */
static tern_status choose_auto(model *m, const tern_model_options *o, bool headers_only, const ops_backend *otherwise,
                               tern_error *err)
{
  m->cx.backend = otherwise;
  if (!may_use_gpu(o, headers_only))
    return TERN_OK;
  tern_status status = open_cuda(m, o, &m->backend_fault);
  if (status == TERN_E_USAGE)
    return err_set(err, status, "%s", m->backend_fault.text);
  if (status == TERN_E_NOT_FOUND) /* a package without it: nothing is wrong */
    m->backend_fault = (tern_error){0};
  if (status != TERN_OK) {
    if (m->cx.backend->close)
      m->cx.backend->close(&m->cx);
    m->cx.backend = otherwise;
  }
  return TERN_OK;
}

static tern_status choose_backend(model *m, const tern_model_options *o, bool headers_only, tern_error *err)
{
  const ops_backend *ref = o->numerics == TERN_FAST ? ops_fast_ref() : ops_ref();
  const ops_backend *cpu = o->numerics == TERN_FAST ? ops_cpu_fast(m->simd) : ops_cpu(m->simd);
  switch (o->backend) {
  case TERN_BACKEND_AUTO:
    return choose_auto(m, o, headers_only, o->numerics == TERN_NATIVE ? ref : cpu, err);
  case TERN_BACKEND_REF:
    m->cx.backend = ref;
    break;
  case TERN_BACKEND_CPU:
    if (o->numerics == TERN_NATIVE)
      return err_set(err, TERN_E_UNSUPPORTED, "backend: cpu runs numerics exact and fast; native runs on ref");
    m->cx.backend = cpu;
    break;
  case TERN_BACKEND_CUDA:
    return open_cuda(m, o, err);
  }
  return m->cx.backend ? TERN_OK
                       : err_set(err, TERN_E_INTERNAL, "backend: none for simd level %s", ops_simd_name(m->simd));
}

/* Tokens a forward: as many as make the products efficient and keep activations within a fixed share of memory, but
 * enough for one token of every row. */
int model_max_tokens(const model_config *c)
{
  size_t logits = plan_logits_bytes(c), fixed = OPS_BYTES + logits < STEP_BYTES ? OPS_BYTES + logits : STEP_BYTES;
  size_t fit = (STEP_BYTES - fixed) / plan_bytes_per_token(c);
  int tokens = fit < MOST_PIECE ? (int)fit : MOST_PIECE;
  return tokens > MODEL_MAX_ROWS ? tokens : MODEL_MAX_ROWS;
}

/* A device wants more tokens at once to be busy, and has the memory: a sixteenth of what is free, at most. */
static int device_max_tokens(model *m)
{
  size_t fit = m->cx.backend->available(&m->cx) / 16 / plan_bytes_per_token(&m->config);
  int tokens = fit < MOST_DEVICE_PIECE ? (int)fit : MOST_DEVICE_PIECE;
  return tokens > MODEL_MAX_ROWS ? tokens / 64 * 64 : MODEL_MAX_ROWS; /* so that every buffer is well aligned */
}

/* ---- open ---- */

static tern_status open_headers(model *m, const char *dir, tern_error *err)
{
  profile_artifact artifact;
  const arch *a;
  TRY(cfg_open(dir, &m->cfg, err));
  TRY(profile_arch(m->cfg, dir, &a, err));
  TRY(model_config_read(m->cfg, a, &m->config, err));
  TRY(quant_open(m->cfg, &m->quant, err));
  profile_artifact_of(dir, &artifact);
  const profile_subject subject = {.arch = a,
                                   .config = &m->config,
                                   .ternary = quant_is_ternary(m->quant),
                                   .numerics = m->numerics,
                                   .artifact = &artifact};
  TRY(profile_resolve(profile_builtin(), &subject, &m->profile, err));
  return ckpt_open(dir, &m->ckpt, err);
}

static tern_status open_steps(model *m, tern_error *err)
{
  size_t tokens = (size_t)m->plan.max_tokens;
  m->ids = mem_array(tokens, sizeof *m->ids);
  m->want = mem_array(tokens, sizeof *m->want);
  m->use = mem_array(tokens, sizeof *m->use);
  m->row_of_want = mem_array(tokens, sizeof *m->row_of_want);
  m->index_of_want = mem_array(tokens, sizeof *m->index_of_want);
  m->choose_of_want = mem_array(tokens, sizeof *m->choose_of_want);
  m->rows = mem_array(MODEL_MAX_ROWS, sizeof *m->rows);
  if (!m->ids || !m->want || !m->use || !m->row_of_want || !m->index_of_want || !m->choose_of_want || !m->rows)
    return err_nomem(err, "step arrays");
  return TERN_OK;
}

/* What the profile says of reads and steps holds for the plan that came out; a bounded size and quantised
 * keys are the request's. */
static tern_status check_loop(const model *m, bool asked, tern_error *err)
{
  if (m->profile.run.loop == LOOP_SPLIT || asked || model_sensitive_from(m) == INT64_MAX)
    return TERN_OK;
  return err_set(err, TERN_E_INTERNAL, "profile %s: loop %s, but steps of this plan differ from reads", m->profile.id,
                 profile_loop_name(m->profile.run.loop));
}

/* A backend need not run every record. */
static tern_status check_records(const model *m, tern_error *err)
{
  const ops_backend *b = m->cx.backend;
  for (int i = 0; b->takes && i < m->plan.n_records; i++)
    if (!b->takes(&m->plan.records[i]))
      return err_set(err, TERN_E_UNSUPPORTED,
                     "backend: %s does not run this %s: its %s rounds to a half type, as its embedding's mode does",
                     b->name, m->config.arch->name, ops_name(m->plan.records[i].kind));
  return TERN_OK;
}

static tern_status open_all(model *m, const char *dir, const tern_model_options *o, bool headers_only, tern_error *err)
{
  TRY(choose_simd(o->simd, &m->simd, err));
  TRY(open_headers(m, dir, err)); /* before a device is woken up */
  TRY(choose_backend(m, o, headers_only, err));
  if (!headers_only) {
    TRY(pool_open(o->threads, &m->workers, err));
    m->cx.workers = m->workers;
  }
  TRY(weights_bind(&m->cx, m->ckpt, m->quant, &m->config, m->numerics == TERN_NATIVE, !headers_only, &m->weights, err));
  TRY(model_use_prepared(m, o, headers_only, err));
  if (o->mlock)
    TRY(model_lock(m, err));
  plan_options keep = {.max_kv_size = o->max_kv_size,
                       .kv_bits = o->kv_bits,
                       .kv_group_size = o->kv_group_size,
                       .quantized_kv_start = o->quantized_kv_start};
  int tokens = headers_only ? 1 : m->cx.backend->own_memory ? device_max_tokens(m) : model_max_tokens(&m->config);
  TRY(plan_compile(&m->cx, &m->config, &m->weights, tokens, &keep, &m->plan, err));
  TRY(check_records(m, err));
  TRY(check_loop(m, o->max_kv_size > 0 || o->kv_bits > 0, err));
  TRY(kv_store_open(&m->cx, m->plan.slots, m->plan.n_slots, &m->store, err));
  TRY(open_steps(m, err));
  if (m->cx.backend->settle)
    TRY(m->cx.backend->settle(&m->cx, err));
  m->opened = !headers_only;
  return TERN_OK;
}

/* Fills the group size in. What would change nothing is refused. */
static tern_status check_kv_options(tern_model_options *o, tern_error *err)
{
  bool bits = (o->kv_bits >= 2 && o->kv_bits <= 6) || o->kv_bits == 8;
  if (o->quantized_kv_start < 0)
    return err_set(err, TERN_E_USAGE, "quantized-kv-start: must not be negative");
  if (!o->kv_bits && (o->kv_group_size || o->quantized_kv_start))
    return err_set(err, TERN_E_USAGE, "%s: changes nothing without kv-bits",
                   o->kv_group_size ? "kv-group-size" : "quantized-kv-start");
  if (o->kv_bits && !bits)
    return err_set(err, TERN_E_USAGE, "kv-bits: %d is not 2, 3, 4, 5, 6 or 8", o->kv_bits);
  if (o->kv_bits && !o->kv_group_size)
    o->kv_group_size = KV_GROUP_SIZE;
  if (o->kv_bits && o->kv_group_size != 32 && o->kv_group_size != 64 && o->kv_group_size != 128)
    return err_set(err, TERN_E_USAGE, "kv-group-size: %d is not 32, 64 or 128", o->kv_group_size);
  return TERN_OK;
}

/* *on_gpu: the backend that failed to open it has a device. */
static tern_status open_one(const char *dir, const tern_model_options *o, bool headers_only, const tern_error *gpu,
                            model **out, bool *on_gpu, tern_error *err)
{
  model *m = mem_zalloc(sizeof *m);
  if (!m)
    return err_nomem(err, "model");
  m->numerics = o->numerics;
  m->prefill_step = o->prefill_step;
  if (gpu)
    m->backend_fault = *gpu;
  tern_status status = open_all(m, dir, o, headers_only, err);
  *on_gpu = m->cx.backend && m->cx.backend->own_memory;
  if (status != TERN_OK)
    model_close(m);
  else
    *out = m;
  return status;
}

tern_status model_open(const char *dir, const tern_model_options *options, bool headers_only, model **out,
                       tern_error *err)
{
  tern_model_options o = options ? *options : (tern_model_options){0};
  TRY(check_kv_options(&o, err));
  if (o.max_kv_size < 0 || o.prefill_step < 0 || o.threads < 0)
    return err_set(err, TERN_E_USAGE, "%s: must not be negative",
                   o.max_kv_size < 0    ? "max-kv-size"
                   : o.prefill_step < 0 ? "prefill-step-size"
                                        : "threads");
  if ((unsigned)o.numerics > TERN_FAST || (unsigned)o.backend > TERN_BACKEND_CUDA)
    return err_set(err, TERN_E_USAGE, "options: no such %s", (unsigned)o.numerics > TERN_FAST ? "numerics" : "backend");
  if (o.gpu < 0)
    return err_set(err, TERN_E_USAGE, "gpu: must not be negative");
  if (!(o.gpu_memory >= 0 && o.gpu_memory <= 1))
    return err_set(err, TERN_E_USAGE, "gpu-memory-fraction: %g is not from 0 to 1", o.gpu_memory);
  if ((unsigned)o.prepare > TERN_PREPARE_NOW)
    return err_set(err, TERN_E_USAGE, "options: no such way to prepare");
  tern_error fault = {0};
  bool on_gpu = false;
  tern_status status = open_one(dir, &o, headers_only, NULL, out, &on_gpu, &fault);
  if (status != TERN_OK && on_gpu && o.backend == TERN_BACKEND_AUTO) { /* it may open without one */
    tern_error gpu = fault;
    o.backend = TERN_BACKEND_CPU;
    status = open_one(dir, &o, headers_only, &gpu, out, &on_gpu, &fault);
  }
  return status == TERN_OK ? TERN_OK : err_set(err, status, "%s", fault.text);
}

void model_close(model *m)
{
  if (!m)
    return;
  kv_store_close(m->store);
  plan_release(&m->cx, &m->plan);
  weights_release(&m->cx, &m->config, &m->weights);
  ops_context_clear(&m->cx);
  pool_close(m->workers);
  prepared_close(m->prepared);
  ckpt_close(m->ckpt);
  quant_close(m->quant);
  cfg_close(m->cfg);
  mem_free(m->ids);
  mem_free(m->want);
  mem_free(m->use);
  mem_free(m->row_of_want);
  mem_free(m->index_of_want);
  mem_free(m->choose_of_want);
  mem_free(m->rows);
  mem_free(m->embeds);
  mem_free(m);
}

size_t model_memory_available(model *m)
{
  return m->cx.backend->available ? m->cx.backend->available(&m->cx) : system_memory_available();
}

int64_t model_sensitive_from(const model *m)
{
  int64_t least = INT64_MAX;
  for (int i = 0; i < m->plan.n_slots; i++) {
    int64_t from = kv_slot_sensitive_from(&m->plan.slots[i]);
    least = from < least ? from : least;
  }
  for (int i = 0; i < m->plan.n_ropes; i++) { /* a base that grows does so in steps alone */
    int64_t from = m->plan.ropes[i].ntk_from - m->config.heads;
    if (m->plan.ropes[i].ntk_from)
      least = from < least ? from : least;
  }
  return least < 0 ? 0 : least;
}

int64_t model_piece_most(const model *m, int64_t position)
{
  int64_t start = m->plan.slots[0].quant.bits ? m->plan.slots[0].quant.start : 0;
  return position < start ? start - position : INT64_MAX;
}

static size_t scratch_for(const model *m, int64_t to, ops_room *room)
{
  *room = m->plan.room;
  room->keys = to;
  return m->cx.backend->scratch_bytes(&m->cx, room);
}

size_t model_scratch_bytes(const model *m, int64_t to)
{
  ops_room room;
  size_t bytes = to ? scratch_for(m, to, &room) : 0;
  return bytes > m->cx.scratch_bytes ? bytes : m->cx.scratch_bytes;
}

tern_status model_reserve(model *m, kv_seq *sequence, int64_t from, int64_t to, tern_error *err)
{
  if (m->cx.backend->check)
    TRY(m->cx.backend->check(&m->cx, err)); /* a broken device has no memory to speak of */
  size_t need = kv_seq_shortage(sequence, from, to, m->plan.max_tokens);
  ops_room room;
  size_t scratch = scratch_for(m, to, &room);
  size_t more = scratch > m->cx.scratch_bytes ? scratch - m->cx.scratch_bytes : 0;
  need = __builtin_add_overflow(need, more, &need) ? SIZE_MAX : need;
  size_t available = need ? model_memory_available(m) : 0;
  if (need > available)
    return err_set(err, TERN_E_LIMIT, "%smemory: %lld positions need %zu MB more of state, but %zu MB are free",
                   m->cx.backend->own_memory ? "GPU " : "", (long long)to, need >> 20, available >> 20);
  TRY(kv_seq_reserve(sequence, from, to, m->plan.max_tokens, err));
  return m->cx.backend->reserve(&m->cx, &room, err);
}
