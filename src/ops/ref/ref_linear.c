/* ref_linear.c - matrix products: every sum runs left to right over k, a multiply and an add are two roundings.
 *
 * Dense: sum in float32, then + bias in float32, one rounding to the type at the end; where the release stores the
 * matrix the other way around, a float32 sum starts at the bias instead (BLAS is then called with beta 1). Affine: the
 * reference sums in the type itself, with a rounding after each of the four steps of a weight, and adds the bias after;
 * so does this, and with DT_F32 it is the plain loop. The fp modes sum a group of values first and scale the sum.
 * Ternary matrices sum in float32 and scale once.
 */
#include "ops/ref/ref.h"

static float dot_dense(const ops_weight *w, int64_t n, const float *x, float sum)
{
  for (int64_t k = 0; k < w->k; k++)
    sum += x[k] * ops_load(w->stored, w->data, n * w->k + k);
  return sum;
}

static float dot_affine(const ops_weight *w, ops_dtype type, int64_t n, const float *x)
{
  const uint8_t *row = w->data + n * ref_row_bytes(w);
  int64_t groups = w->k / w->group;
  float sum = 0;
  for (int64_t k = 0; k < w->k; k++) {
    int64_t g = n * groups + k / w->group;
    float scale = ops_load(w->stored, w->scales, g), bias = ops_load(w->stored, w->biases, g);
    float value = ops_round(type, (float)ref_code(row, w->bits, k) * scale);
    value = ops_round(type, value + bias);
    sum = ops_round(type, sum + ops_round(type, x[k] * value));
  }
  return sum;
}

static float dot_fp(const ops_weight *w, ops_dtype type, int64_t n, const float *x)
{
  const uint8_t *row = w->data + n * ref_row_bytes(w);
  int64_t groups = w->k / w->group;
  float sum = 0;
  for (int64_t g = 0; g < groups; g++) {
    float part = 0;
    for (int64_t k = g * w->group; k < (g + 1) * w->group; k++) {
      float value = ops_round(type, ref_fp_value(w, ref_code(row, w->bits, k)));
      part = ops_round(type, part + ops_round(type, x[k] * value));
    }
    float scale = ops_round(type, ref_fp_scale(w, w->scales[n * groups + g]));
    sum = ops_round(type, sum + ops_round(type, scale * part));
  }
  return sum;
}

/* Codes 0, 1, 2 are -1, 0, 1; the scale of the whole matrix comes after the sum. */
static float dot_ternary(const ops_weight *w, int64_t n, const float *x)
{
  int64_t rows = (w->n + 3) / 4;
  const uint8_t *row = w->data + n % rows * w->k;
  int shift = 2 * (int)(n / rows);
  float sum = 0;
  for (int64_t k = 0; k < w->k; k++)
    sum += x[k] * (float)((row[k] >> shift & 3) - 1);
  return sum * w->factor;
}

static float output(const ops_weight *w, ops_dtype product, ops_dtype type, int64_t n, const float *x,
                    const float *bias)
{
  if (w->quant == Q_NONE) {
    if (bias && w->turned && type == DT_F32)
      return dot_dense(w, n, x, bias[n]);
    float sum = dot_dense(w, n, x, 0);
    return ops_round(type, bias ? sum + bias[n] : sum);
  }
  float sum = w->quant == Q_TERNARY  ? ops_round(product, dot_ternary(w, n, x))
              : w->quant == Q_AFFINE ? dot_affine(w, product, n, x)
                                     : dot_fp(w, product, n, x);
  return bias ? ops_round(type, sum + bias[n]) : sum;
}

void ref_linear(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_linear *a = &record->linear;
  int tokens = ops_extent(record, step);
  for (int i = 0; i < a->outputs; i++) {
    const ops_weight *w = a->w[i];
    for (int t = 0; t < tokens; t++) {
      for (int64_t n = 0; n < w->n; n++) {
        float y = output(w, a->product[i], a->type[i], n, a->x + t * w->k, a->bias[i]);
        if (i == 0 && a->residual)
          y = ops_round(a->residual_type, a->residual[t * w->n + n] + y);
        a->y[i][t * w->n + n] = y;
      }
    }
  }
}
