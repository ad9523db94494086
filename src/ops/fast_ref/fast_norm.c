/* fast_norm.c - norms of numerics `fast`: exact's, but for the order of their sums. fast.h has the formulas. */
#include <math.h>

#include "ops/fast_ref/fast.h"

/* The sum of x, or of its squared distances from the mean. */
static float lanes_sum(const float *x, int width, bool squares, float mean)
{
  float lane[FAST_NORM_LANES] = {0};
  for (int k = 0; k < width; k++) {
    float v = x[k] - mean, *sum = &lane[k % FAST_NORM_LANES];
    *sum = squares ? fmaf(v, v, *sum) : *sum + x[k];
  }
  for (int half = FAST_NORM_LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++)
      lane[i] += lane[i + half];
  return lane[0];
}

void fast_rms_norm(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_rms_norm *a = &record->rms_norm;
  int n = ops_extent(record, step) * a->count;
  for (int i = 0; i < n; i++) {
    int64_t t = i / a->count, group = i % a->count * a->width;
    const float *x = a->x + t * a->x_stride + group;
    float *y = a->y + t * a->y_stride + group;
    float mean_square = lanes_sum(x, a->width, true, 0) * (float)(1.0 / a->width);
    float r = 1.0f / sqrtf(mean_square + a->eps);
    for (int k = 0; k < a->width; k++) {
      float normed = ops_round(a->type, x[k] * r);
      y[k] = a->w ? ops_round(a->type, normed * a->w[k]) : normed;
    }
  }
}

void fast_layer_norm(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_layer_norm *a = &record->layer_norm;
  float reciprocal = (float)(1.0 / a->width);
  int n = ops_extent(record, step) * a->count;
  for (int i = 0; i < n; i++) {
    int64_t t = i / a->count, group = i % a->count * a->width;
    const float *x = a->x + t * a->x_stride + group, *w = a->w && a->own ? a->w + group : a->w;
    float *y = a->y + t * a->y_stride + group;
    float mean = lanes_sum(x, a->width, false, 0) * reciprocal;
    float r = 1.0f / sqrtf(lanes_sum(x, a->width, true, mean) * reciprocal + a->eps);
    for (int k = 0; k < a->width; k++) {
      float v = ops_round(a->normed, (x[k] - mean) * r);
      v = w ? ops_round(a->type, v * w[k]) : v;
      y[k] = a->b ? ops_round(a->type, v + a->b[k]) : v;
    }
  }
}
