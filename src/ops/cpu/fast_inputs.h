/* fast_inputs.h - quantising the inputs of a product, at one SIMD level: a part of fast_linear.h.
 *
 * The rows of a step are quantised once an op, a part at a time (fast_quantise, by the vector and with its bits), and
 * laid out as the kernels read them, a part of all tokens after another: codes [parts][tokens][FAST_PART] in the order
 * of the weights' width (input_order), sums [parts][tokens][PART_GROUPS] of their groups as floats, steps
 * [parts][tokens]. Matrices of one op that differ in width or group have an arrangement each; the steps are the same
 * for all.
 */
#ifndef TERN_OPS_CPU_FAST_INPUTS_H
#define TERN_OPS_CPU_FAST_INPUTS_H

#include "ops/cpu/cpu.h"
#include "ops/cpu/fast_part.h"

/* What weights want of their inputs, and where it is. */
typedef struct arrangement {
  int order, group;
  int16_t *codes;
  float *sums;
} arrangement;

typedef struct fast_inputs {
  const float *x; /* [tokens, k] */
  int64_t k;
  int tokens, kinds;
  arrangement kind[3];
  float *steps;
} fast_inputs;

typedef int16_t vs __attribute__((vector_size(2 * VW)));
typedef int16_t vs_any __attribute__((vector_size(2 * VW), aligned(1), may_alias));

/* fast_quantise of n values, a multiple of 32. */
static float quantise_part(const float *x, int n, int16_t *codes)
{
  vi most = {0};
  for (int i = 0; i < n; i += VW)
    most = v_max_int(most, (vi)v_abs(v_load(x + i)));
  int32_t all = 0;
  for (int lane = 0; lane < VW; lane++)
    all = most[lane] > all ? most[lane] : all;
  bool finite = all < 0x7f800000;
  float largest = f32_from_bits((uint32_t)all);
  if (!finite || largest < 0x1p-100f) {
    memset(codes, 0, (size_t)n * sizeof *codes);
    return finite ? 0.0f : NAN;
  }
  const vf factor = v_set((float)FAST_MOST / largest),
           whole = v_set(0x1.8p23f); /* x + whole - whole: to nearest even */
  for (int i = 0; i < n; i += VW)
    *(vs_any *)(codes + i) = __builtin_convertvector(v_trunc(v_load(x + i) * factor + whole - whole), vs);
  return largest / (float)FAST_MOST;
}

static int32_t sum_of_unit(const int16_t *codes)
{
  int32_t sum = 0;
  for (int i = 0; i < UNIT; i++)
    sum += codes[i];
  return sum;
}

static void arrange(const fast_inputs *in, int64_t p, int t)
{
  int16_t codes[FAST_PART];
  int32_t sums[PART_GROUPS];
  int64_t from = p * FAST_PART, at = p * in->tokens + t;
  int n = in->k - from < FAST_PART ? (int)(in->k - from) : FAST_PART;
  in->steps[at] = quantise_part(in->x + t * in->k + from, n, codes);
  for (int u = 0; u < n / UNIT; u++)
    sums[u] = sum_of_unit(codes + u * UNIT);
  for (int i = 0; i < in->kinds; i++) {
    const arrangement *a = &in->kind[i];
    order_inputs(a->order, codes, n, a->codes + at * FAST_PART);
    float *out = a->sums + at * PART_GROUPS;
    int units = a->group / UNIT;
    for (int g = 0; g < n / a->group; g++) {
      int32_t sum = 0;
      for (int u = 0; u < units; u++)
        sum += sums[g * units + u];
      out[g] = (float)sum;
    }
  }
}

static void arrange_share(void *user, int share, int shares)
{
  const fast_inputs *in = user;
  size_t begin, end;
  pool_share((size_t)(fast_parts(in->k) * in->tokens), 1, share, shares, &begin, &end);
  for (size_t i = begin; i < end; i++)
    arrange(in, (int64_t)i / in->tokens, (int)((int64_t)i % in->tokens));
}

/* A place in `in` for inputs as w wants them; which one. */
static int add_kind(fast_inputs *in, const ops_weight *w)
{
  int order = input_order(w->bits), i = 0;
  while (i < in->kinds && (in->kind[i].order != order || in->kind[i].group != w->group))
    i++;
  if (i == in->kinds)
    in->kind[in->kinds++] = (arrangement){.order = order, .group = w->group};
  return i;
}

/* All arrangements of tokens [t0, t0 + tokens) of x, in scratch. */
static void quantise_inputs(ops_context *cx, fast_inputs *in, const float *x, int tokens)
{
  size_t rows = (size_t)fast_parts(in->k) * (size_t)tokens;
  uint8_t *at = cx->scratch;
  in->x = x;
  in->tokens = tokens;
  for (int i = 0; i < in->kinds; i++) {
    in->kind[i].codes = (int16_t *)at;
    at += rows * FAST_PART * sizeof(int16_t);
  }
  for (int i = 0; i < in->kinds; i++) {
    in->kind[i].sums = (float *)at;
    at += rows * PART_GROUPS * sizeof(float);
  }
  in->steps = (float *)at;
  if (tokens > 1)
    cpu_run(cx, in->k * tokens / 2, arrange_share, in);
  else
    arrange_share(in, 0, 1);
}

#endif
