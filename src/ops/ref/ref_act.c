/* ref_act.c - activations, alone and as gates. The reference compiles each of them into one kernel: every step is
 * rounded to the type, and constants have the seven digits that its printer leaves. */
#include <math.h>

#include "ops/math.h"
#include "ops/ref/ref.h"

/* silu(x) = x * sigmoid(x). */
static float silu(ops_dtype type, float x)
{
  float e = ops_round(type, math_exp(fabsf(x)));
  float y = 1.0f / (1.0f + e);
  return ops_round(type, x * ops_round(type, x < 0 ? y : 1.0f - y));
}

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), each step rounded; the constant is the compiled kernel's 7 digits.
 */
static float gelu_tanh(ops_dtype type, float x)
{
  float cube = ops_round(type, math_pow(x, 3.0f));
  float inner = ops_round(type, x + ops_round(type, ops_round(type, 0.044715f) * cube));
  float tanh_ = ops_round(type, math_tanh(ops_round(type, ops_round(type, 0.7978846f) * inner)));
  float half = ops_round(type, 0.5f * x);
  return ops_round(type, half * ops_round(type, 1.0f + tanh_));
}

/* x (1 + erf(x / sqrt(2))) / 2; sqrt(2) as printed. */
static float gelu(ops_dtype type, float x)
{
  float e = ops_round(type, math_erf(ops_round(type, x / ops_round(type, 1.414214f))));
  float product = ops_round(type, x * ops_round(type, 1.0f + e));
  return ops_round(type, product / 2.0f);
}

/* Positive side ap x^2 + beta x; negative side (expm1(min(x, eps)) - x) an + beta x. */
static float xielu(ops_dtype type, ops_dtype x_type, const float p[4], float x)
{
  float linear = ops_round(type, p[2] * x);
  if (x > 0) /* the square knows x's type alone */
    return ops_round(type, ops_round(type, p[0] * ops_round(x_type, x * x)) + linear);
  float e = ops_round(type, math_expm1(x < p[3] ? x : p[3]));
  return ops_round(type, ops_round(type, ops_round(type, e - x) * p[1]) + linear);
}

static float activate(ops_act act, ops_dtype type, float x)
{
  switch (act) {
  case ACT_GELU_TANH:
    return gelu_tanh(type, x);
  case ACT_GELU:
    return gelu(type, x);
  case ACT_RELU:
    return x > 0 ? x : 0;
  case ACT_RELU2:
    return x > 0 ? ops_round(type, x * x) : 0;
  default:
    return silu(type, x);
  }
}

void ref_act(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_act *a = &record->act;
  int64_t n = (int64_t)ops_extent(record, step) * a->width;
  for (int64_t i = 0; i < n; i++)
    a->y[i] = a->act == ACT_XIELU ? xielu(a->type, a->x_type, a->params, a->x[i]) : activate(a->act, a->type, a->x[i]);
}

/* phi3small's gate: gate sigmoid(1.702 gate) (up + 1), gate clipped above and up on both sides; infinities pass. */
static float gegelu(ops_dtype type, float limit, float gate, float up)
{
  float top = ops_round(type, limit);
  gate = !isinf(gate) && gate > top ? top : gate;
  up = isinf(up) ? up : up > top ? top : up < -top ? -top : up;
  float x = ops_round(type, ops_round(type, 1.702f) * gate);
  float sigmoid = ops_round(type, math_sigmoid_of_exp(x, ops_round(type, math_exp(fabsf(x)))));
  return ops_round(type, ops_round(type, gate * sigmoid) * ops_round(type, up + 1.0f));
}

void ref_glu(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_glu *a = &record->glu;
  int64_t n = (int64_t)ops_extent(record, step) * a->width;
  for (int64_t i = 0; i < n; i++)
    a->y[i] = a->act == ACT_GEGELU ? gegelu(a->type, a->limit, a->gate[i], a->up[i])
                                   : ops_round(a->type, activate(a->act, a->gate_type, a->gate[i]) * a->up[i]);
}
