/* fast_linear.c - matrix products of numerics `fast`, one output after another. fast.h has the formulas. */
#include <math.h>

#include "ops/fast_ref/fast.h"

float fast_quantise(const float *x, int n, int16_t *codes)
{
  uint32_t most = 0;
  for (int i = 0; i < n; i++) {
    uint32_t magnitude = f32_bits(x[i]) & 0x7fffffff;
    most = magnitude > most ? magnitude : most;
  }
  bool finite = most < 0x7f800000;
  float largest = f32_from_bits(most);
  if (!finite || largest < 0x1p-100f) {
    memset(codes, 0, (size_t)n * sizeof *codes);
    return finite ? 0.0f : NAN;
  }
  float codes_a_one = (float)FAST_MOST / largest;
  for (int i = 0; i < n; i++)
    codes[i] = (int16_t)rintf(x[i] * codes_a_one);
  return largest / (float)FAST_MOST;
}

/* One row of the input, quantised. */
typedef struct inputs {
  const int16_t *codes; /* [K] */
  const float *steps;   /* [K / FAST_PART], upwards */
} inputs;

static float affine_part(const ops_weight *w, int64_t n, int64_t from, int64_t to, const int16_t *codes)
{
  const uint8_t *row = w->data + n * ref_row_bytes(w);
  float part = 0;
  for (int64_t k = from; k < to; k += w->group) {
    int32_t dot = 0, sum = 0;
    for (int64_t i = k; i < k + w->group; i++) {
      dot += (int32_t)ref_code(row, w->bits, i) * codes[i];
      sum += codes[i];
    }
    int64_t g = (n * w->k + k) / w->group;
    part = fmaf(ops_load(w->stored, w->scales, g), (float)dot, part);
    part = fmaf(ops_load(w->stored, w->biases, g), (float)sum, part);
  }
  return part;
}

static float dense_part(const ops_weight *w, int64_t n, int64_t from, int64_t to, const float *x)
{
  float part = 0;
  for (int64_t k = from; k < to; k++)
    part = fmaf(x[k], ops_load(w->stored, w->data, n * w->k + k), part);
  return part;
}

static float fp_part(const ops_weight *w, int64_t n, int64_t from, int64_t to, const float *x)
{
  const uint8_t *row = w->data + n * ref_row_bytes(w);
  float part = 0;
  for (int64_t k = from; k < to; k += w->group) {
    float group = 0;
    for (int64_t i = k; i < k + w->group; i++)
      group = fmaf(x[i], ref_fp_value(w, ref_code(row, w->bits, i)), group);
    part = fmaf(ref_fp_scale(w, w->scales[(n * w->k + k) / w->group]), group, part);
  }
  return part;
}

static float dot(const ops_weight *w, int64_t n, const float *x, const inputs *in)
{
  int64_t slice_length = fast_slice(w->k) * FAST_PART;
  float total = 0;
  for (int64_t s = 0; s < w->k; s += slice_length) {
    int64_t slice_end = s + slice_length < w->k ? s + slice_length : w->k;
    float slice = 0;
    for (int64_t k = s; k < slice_end; k += FAST_PART) {
      int64_t end = k + FAST_PART < slice_end ? k + FAST_PART : slice_end;
      if (w->quant == Q_AFFINE)
        slice = fmaf(in->steps[k / FAST_PART], affine_part(w, n, k, end, in->codes), slice);
      else
        slice += w->quant == Q_NONE ? dense_part(w, n, k, end, x) : fp_part(w, n, k, end, x);
    }
    total += slice;
  }
  return total;
}

static void one_row(const struct op_linear *a, int i, int64_t t, const inputs *in)
{
  const ops_weight *w = a->w[i];
  for (int64_t n = 0; n < w->n; n++) {
    float y = dot(w, n, a->x + t * w->k, in);
    y = a->bias[i] ? y + a->bias[i][n] : y;
    a->y[i][t * w->n + n] = i == 0 && a->residual ? a->residual[t * w->n + n] + y : y;
  }
}

void fast_linear(ops_context *cx, const op_record *record, const ops_step *step)
{
  const struct op_linear *a = &record->linear;
  int64_t inputs_k = a->w[0]->k;
  float *steps = cx->scratch;
  int16_t *codes = (int16_t *)(steps + fast_parts(inputs_k));
  for (int i = 0; i < a->outputs; i++) {
    if (a->w[i]->quant != Q_TERNARY)
      continue;
    op_record exact = ops_linear_alone(record, i);
    ref_linear(cx, &exact, step);
  }
  for (int64_t t = 0; t < ops_extent(record, step); t++) {
    for (int64_t k = 0; k < inputs_k; k += FAST_PART) {
      int64_t n = inputs_k - k < FAST_PART ? inputs_k - k : FAST_PART;
      steps[k / FAST_PART] = fast_quantise(a->x + t * inputs_k + k, (int)n, codes + k);
    }
    for (int i = 0; i < a->outputs; i++)
      if (a->w[i]->quant != Q_TERNARY)
        one_row(a, i, t, &(inputs){codes, steps});
  }
}
