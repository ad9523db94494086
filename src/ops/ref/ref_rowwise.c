/* ref_rowwise.c - ops in which a token's values meet nothing but each other and numbers fixed by the model: norms,
 * multipliers, caps, sums, copies. */
#include <math.h>
#include <string.h>

#include "ops/math.h"
#include "ops/ref/ref.h"

/* ---- norms ---- */

void ref_rms_norm(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_rms_norm *a = &record->rms_norm;
  float reciprocal = (float)(1.0 / a->width);
  int n = ops_extent(record, step) * a->count;
  for (int i = 0; i < n; i++) {
    int64_t t = i / a->count, group = i % a->count * a->width;
    const float *x = a->x + t * a->x_stride + group;
    float *y = a->y + t * a->y_stride + group;
    float sum = 0;
    for (int k = 0; k < a->width; k++)
      sum += x[k] * x[k];
    float r = 1.0f / sqrtf(sum * reciprocal + a->eps);
    for (int k = 0; k < a->width; k++) {
      float normed = ops_round(a->type, x[k] * r);
      y[k] = a->w ? ops_round(a->type, normed * a->w[k]) : normed;
    }
  }
}

/* Two passes, as the reference's composition: the mean, then the mean of the squared differences. */
void ref_layer_norm(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_layer_norm *a = &record->layer_norm;
  float reciprocal = (float)(1.0 / a->width);
  int n = ops_extent(record, step) * a->count;
  for (int i = 0; i < n; i++) {
    int64_t t = i / a->count, group = i % a->count * a->width;
    const float *x = a->x + t * a->x_stride + group, *w = a->w && a->own ? a->w + group : a->w;
    float *y = a->y + t * a->y_stride + group;
    float sum = 0, squares = 0;
    for (int k = 0; k < a->width; k++)
      sum += x[k];
    float mean = sum * reciprocal;
    for (int k = 0; k < a->width; k++)
      squares += (x[k] - mean) * (x[k] - mean);
    float r = 1.0f / sqrtf(squares * reciprocal + a->eps);
    for (int k = 0; k < a->width; k++) {
      float v = ops_round(a->normed, (x[k] - mean) * r);
      v = w ? ops_round(a->type, v * w[k]) : v;
      y[k] = a->b ? ops_round(a->type, v + a->b[k]) : v;
    }
  }
}

/* ---- multipliers and caps ---- */

void ref_scale(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_scale *a = &record->scale;
  int64_t n = (int64_t)ops_extent(record, step) * a->width;
  for (int64_t i = 0; i < n; i++)
    a->y[i] = ops_round(a->type, a->divide ? a->x[i] / a->factor : a->x[i] * a->factor);
}

void ref_softcap(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_softcap *a = &record->softcap;
  int64_t n = (int64_t)ops_extent(record, step) * a->width;
  for (int64_t i = 0; i < n; i++)
    a->y[i] = ref_cap(a->type, a->cap, a->x[i]);
}

void ref_temperature(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_temperature *a = &record->temperature;
  for (int r = 0; r < step->rows; r++) {
    const ops_row *row = &step->row[r];
    for (int t = 0; t < row->count; t++) {
      float steps = floorf((float)(row->position + t) / (float)a->span);
      float factor = ops_round(a->factor_type, 1.0f + a->beta * math_log(1.0f + steps));
      float *q = a->q + (int64_t)(row->first + t) * a->width;
      for (int i = 0; i < a->width; i++)
        q[i] = ops_round(a->type, q[i] * factor);
    }
  }
}

/* ---- sums and copies ---- */

void ref_add(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_add *a = &record->add;
  int64_t n = (int64_t)ops_extent(record, step) * a->width;
  for (int64_t i = 0; i < n; i++) {
    float sum = a->x[i] + a->y[i];
    if (a->clip != 0) {
      sum = sum > -a->clip ? sum : -a->clip;
      sum = sum < a->clip ? sum : a->clip;
    }
    a->y[i] = ops_round(a->type, sum);
  }
}

void ref_select(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_select *a = &record->select;
  for (int r = 0; r < step->wanted; r++)
    memcpy(a->y + (int64_t)r * a->width, a->x + (int64_t)step->want[r] * a->width, (size_t)a->width * sizeof *a->x);
}

void ref_regroup(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_regroup *a = &record->regroup;
  int64_t width = (int64_t)a->n * a->width;
  for (int t = 0; t < ops_extent(record, step); t++)
    for (int i = 0; i < a->n; i++)
      memcpy(a->y + t * width + (int64_t)i * a->width, a->x + t * a->x_width + (int64_t)a->from[i] * a->width,
             (size_t)a->width * sizeof *a->x);
}
