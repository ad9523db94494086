/* values.h - the ops whose outputs each depend on one place of their inputs, at one SIMD level; values_LEVEL.c compiles
 * it: act, glu, scale, softcap, add, temperature.
 *
 * All but the last are one loop over all values of a step with a formula inside. A formula is an inline function of one
 * or two vectors; MAP makes the loop for it, and the table `maps` says what a value costs. The formulas are those of
 * ref_act.c and ref_rowwise.c in float32, step by step.
 */
#ifndef TERN_OPS_CPU_VALUES_H
#define TERN_OPS_CPU_VALUES_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/vmath.h"
#include "ops/ref/ref.h"

/* ---- formulas ---- */

/* Activations come first, with the numbers of ops_act. */
typedef enum formula {
  GEGELU = ACT_GEGELU,
  TIMES,
  OVER,
  CAP,
  SUM,
  FORMULAS,
} formula;

/* x * sigmoid(x). */
INLINE vf silu(vf x)
{
  return x * vm_sigmoid(x);
}

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
INLINE vf gelu_tanh(vf x)
{
  vf inner = x + v_set(0.044715f) * vm_cube(x);
  vf t = vm_tanh(v_set(0.7978846f) * inner);
  return v_set(0.5f) * x * (v_set(1.0f) + t);
}

/* x (1 + erf(x / sqrt(2))) / 2; halving is exact in the same cases as dividing by two. */
INLINE vf gelu(vf x)
{
  return x * (v_set(1.0f) + vm_erf(x / v_set(1.414214f))) * v_set(0.5f);
}

/* Positive side ap x^2 + beta x; negative side (expm1(min(x, eps)) - x) an + beta x. */
INLINE vf xielu(const float *p, vf x)
{
  vf linear = v_set(p[2]) * x;
  vf positive = v_set(p[0]) * (x * x);
  vf negative = (vm_expm1(v_min(x, v_set(p[3]))) - x) * v_set(p[1]);
  return v_select(v_lt(v_set(0.0f), x), positive, negative) + linear;
}

/* gate sigmoid(1.702 gate) (up + 1), gate clipped above and up on both sides at p[0]; infinities pass. */
INLINE vf gegelu(const float *p, vf gate, vf up)
{
  const vi infinity = (vi)v_set(INFINITY);
  vf top = v_set(p[0]), low = v_set(-p[0]);
  vf g = v_select(v_lt(top, gate), top, gate), u = v_select(v_lt(up, low), low, up);
  u = v_select(v_lt(top, up), top, u);
  g = v_select(v_eq_int((vi)v_abs(gate), infinity), gate, g);
  u = v_select(v_eq_int((vi)v_abs(up), infinity), up, u);
  return g * vm_sigmoid(v_set(1.702f) * g) * (u + v_set(1.0f));
}

INLINE vf value_of(const int f, const float *p, vf x, vf other)
{
  switch (f) {
  case ACT_SILU:
    return silu(x);
  case ACT_GELU_TANH:
    return gelu_tanh(x);
  case ACT_GELU:
    return gelu(x);
  case ACT_RELU:
    return v_max(x, v_set(0.0f));
  case ACT_RELU2:
    return v_select(v_lt(v_set(0.0f), x), x * x, v_set(0.0f));
  case ACT_XIELU:
    return xielu(p, x);
  case GEGELU:
    return gegelu(p, x, other);
  case TIMES:
    return x * v_set(p[0]);
  case OVER:
    return x / v_set(p[0]);
  case CAP:
    return vm_tanh(x / v_set(p[0])) * v_set(p[0]);
  default:
    return x + other;
  }
}

/* ---- the loop ---- */

enum { VALUES_GRAIN = 64 };

/* `other` is NULL where the formula takes one input. An activation with `other` multiplies by it. */
typedef struct values {
  const float *x, *other;
  float *y;
  const float *p; /* what the formula is given besides */
} values;

INLINE void map(const int f, const bool gated, const values *a, size_t begin, size_t end)
{
  const bool two = gated || f == SUM;
  const float *x = a->x, *other = a->other, *p = a->p;
  float *y = a->y;
  size_t i = begin;
  for (; i + VW <= end; i += VW) {
    vf second = two ? v_load(other + i) : v_set(0.0f), value = value_of(f, p, v_load(x + i), second);
    v_store(y + i, gated && f != GEGELU ? value * second : value);
  }
  if (i == end)
    return;
  float first[VW] = {0}, more[VW] = {0}, out[VW];
  memcpy(first, x + i, (end - i) * sizeof *first);
  if (two)
    memcpy(more, other + i, (end - i) * sizeof *more);
  vf value = value_of(f, p, v_load(first), v_load(more));
  v_store(out, gated && f != GEGELU ? value * v_load(more) : value);
  memcpy(y + i, out, (end - i) * sizeof *out);
}

typedef void map_fn(const values *a, size_t begin, size_t end);

#define MAP(name, f, gated)                                                                                            \
  static void map_##name(const values *a, size_t begin, size_t end)                                                    \
  {                                                                                                                    \
    map(f, gated, a, begin, end);                                                                                      \
  }
MAP(silu, ACT_SILU, false)
MAP(gelu_tanh, ACT_GELU_TANH, false)
MAP(gelu, ACT_GELU, false)
MAP(relu, ACT_RELU, false)
MAP(relu2, ACT_RELU2, false)
MAP(xielu, ACT_XIELU, false)
MAP(silu_gate, ACT_SILU, true)
MAP(gelu_tanh_gate, ACT_GELU_TANH, true)
MAP(gelu_gate, ACT_GELU, true)
MAP(relu_gate, ACT_RELU, true)
MAP(relu2_gate, ACT_RELU2, true)
MAP(gegelu_gate, GEGELU, true)
MAP(times, TIMES, false)
MAP(over, OVER, false)
MAP(cap, CAP, false)
MAP(sum, SUM, false)

/* Loops without and with a gate; eighths of a cycle a value, roughly. */
static const struct {
  map_fn *alone, *gated;
  int cost;
} maps[FORMULAS] = {
    [ACT_SILU] = {map_silu, map_silu_gate, 32},
    [ACT_GELU_TANH] = {map_gelu_tanh, map_gelu_tanh_gate, 128},
    [ACT_GELU] = {map_gelu, map_gelu_gate, 48},
    [ACT_RELU] = {map_relu, map_relu_gate, 1},
    [ACT_RELU2] = {map_relu2, map_relu2_gate, 1},
    [ACT_XIELU] = {map_xielu, NULL, 48},
    [GEGELU] = {NULL, map_gegelu_gate, 32},
    [TIMES] = {map_times, NULL, 1},
    [OVER] = {map_over, NULL, 4},
    [CAP] = {map_cap, NULL, 48},
    [SUM] = {map_sum, NULL, 1},
};

typedef struct values_job {
  values a;
  map_fn *run;
  size_t n;
} values_job;

static void values_share(void *user, int share, int shares)
{
  const values_job *job = user;
  size_t begin, end;
  pool_share(job->n, VALUES_GRAIN, share, shares, &begin, &end);
  job->run(&job->a, begin, end);
}

/* All values of a record that has `width` of them a token. */
static void run_values(ops_context *cx, const op_record *record, const ops_step *step, int width, int f, bool gated,
                       values a)
{
  values_job job = {a, gated ? maps[f].gated : maps[f].alone, (size_t)ops_extent(record, step) * (size_t)width};
  cpu_run(cx, (int64_t)job.n * maps[f].cost / 8, values_share, &job);
}

/* ---- ops ---- */

void CPU_NAME(cpu_act)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_act *a = &record->act;
  if (a->type != DT_F32 || a->x_type != DT_F32 || !maps[a->act].alone)
    ref_act(cx, record, step);
  else
    run_values(cx, record, step, a->width, (int)a->act, false, (values){a->x, NULL, a->y, a->params});
}

void CPU_NAME(cpu_glu)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_glu *a = &record->glu;
  if (a->type != DT_F32 || a->gate_type != DT_F32 || !maps[a->act].gated)
    ref_glu(cx, record, step);
  else
    run_values(cx, record, step, a->width, (int)a->act, true, (values){a->gate, a->up, a->y, &a->limit});
}

void CPU_NAME(cpu_scale)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_scale *a = &record->scale;
  if (a->type != DT_F32)
    ref_scale(cx, record, step);
  else
    run_values(cx, record, step, a->width, a->divide ? OVER : TIMES, false, (values){a->x, NULL, a->y, &a->factor});
}

void CPU_NAME(cpu_softcap)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_softcap *a = &record->softcap;
  if (a->type != DT_F32)
    ref_softcap(cx, record, step);
  else
    run_values(cx, record, step, a->width, CAP, false, (values){a->x, NULL, a->y, &a->cap});
}

/* Only float16 clips. */
void CPU_NAME(cpu_add)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_add *a = &record->add;
  if (a->type != DT_F32 || a->clip != 0)
    ref_add(cx, record, step);
  else
    run_values(cx, record, step, a->width, SUM, false, (values){a->x, a->y, a->y, NULL});
}

/* ---- temperature: a factor a token ---- */

typedef struct temperature_job {
  const struct op_temperature *a;
  const ops_step *step;
} temperature_job;

static void temperature_share(void *user, int share, int shares)
{
  const temperature_job *job = user;
  const struct op_temperature *a = job->a;
  size_t begin, end;
  pool_share((size_t)job->step->tokens, 1, share, shares, &begin, &end);
  for (int r = 0; r < job->step->rows; r++) {
    const ops_row *row = &job->step->row[r];
    for (int t = 0; t < row->count; t++) {
      size_t token = (size_t)row->first + (size_t)t, width = (size_t)a->width;
      if (token < begin || token >= end)
        continue;
      float steps = floorf((float)(row->position + t) / (float)a->span);
      float factor = ops_round(a->factor_type, 1.0f + a->beta * math_log(1.0f + steps));
      map_times(&(values){a->q, NULL, a->q, &factor}, token * width, (token + 1) * width);
    }
  }
}

void CPU_NAME(cpu_temperature)(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_temperature *a = &record->temperature;
  if (a->type != DT_F32) {
    ref_temperature(cx, record, step);
    return;
  }
  temperature_job job = {a, step};
  cpu_run(cx, (int64_t)step->tokens * (a->width / 8 + 40), temperature_share, &job);
}

#endif
