/* ref.c - the reference backend: its table, its memory, and the ops that are one line of arithmetic. Runs on the
 * calling thread alone. */
#include "ops/ref/ref.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/math.h"

/* ---- memory ---- */

static void *ref_alloc(ops_context *cx, size_t bytes)
{
  (void)cx;
  return mem_aligned(64, bytes);
}

static void ref_release(ops_context *cx, void *p)
{
  (void)cx;
  mem_free(p);
}

static void ref_copy(ops_context *cx, void *to, const void *from, size_t bytes)
{
  (void)cx;
  memcpy(to, from, bytes);
}

static size_t ref_kv_block_bytes(int kv_heads, int key_dim, int value_dim)
{
  return (size_t)KV_BLOCK * (size_t)kv_heads * ((size_t)key_dim + (size_t)value_dim) * sizeof(float);
}

/* One row of scores. */
static tern_status ref_reserve(ops_context *cx, int tokens, int64_t keys, int heads, tern_error *err)
{
  (void)tokens;
  (void)heads;
  size_t bytes = (size_t)keys * sizeof(float);
  if (bytes <= cx->scratch_bytes)
    return TERN_OK;
  void *scratch = mem_aligned(64, bytes);
  if (!scratch)
    return err_nomem(err, "attention scores");
  mem_free(cx->scratch);
  cx->scratch = scratch;
  cx->scratch_bytes = bytes;
  return TERN_OK;
}

const ops_backend *ops_ref(void)
{
  static const ops_backend backend = {
      .name = "ref",
      .run =
          {
#define OP(name, contract) [OP_##name] = ref_##name,
#include "ops/ops.def"
#undef OP
          },
      .alloc = ref_alloc,
      .release = ref_release,
      .write = ref_copy,
      .read = ref_copy,
      .kv_block_bytes = ref_kv_block_bytes,
      .reserve = ref_reserve,
  };
  return &backend;
}

void ops_context_clear(ops_context *cx)
{
  mem_free(cx->scratch);
  *cx = (ops_context){0};
}

const char *ops_name(op_kind kind)
{
  static const char *const names[OP_COUNT] = {
#define OP(name, contract) [OP_##name] = #name,
#include "ops/ops.def"
#undef OP
  };
  return (unsigned)kind < OP_COUNT ? names[kind] : "unknown";
}

/* ---- embed ---- */

/* Row `id` of the table, as the reference dequantises it: q*scale rounded, + bias rounded. The fp modes give bf16. */
static void embedding_row(const ops_weight *w, int64_t id, float *out)
{
  if (w->quant == Q_NONE) {
    for (int64_t k = 0; k < w->k; k++)
      out[k] = ops_load(w->stored, w->data, id * w->k + k);
    return;
  }
  const uint8_t *row = w->data + id * ref_row_bytes(w);
  int64_t groups = w->k / w->group;
  for (int64_t k = 0; k < w->k; k++) {
    int64_t g = id * groups + k / w->group;
    uint32_t code = ref_code(row, w->bits, k);
    if (w->quant == Q_AFFINE) {
      float scaled = ops_round(w->dtype, (float)code * ops_load(w->stored, w->scales, g));
      out[k] = ops_round(w->dtype, scaled + ops_load(w->stored, w->biases, g));
    } else {
      out[k] = ops_round(DT_BF16, ref_fp_value(w, code) * ref_fp_scale(w, w->scales[g]));
    }
  }
}

void ref_embed(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_embed *a = &record->embed;
  int64_t width = a->table->k;
  for (int t = 0; t < step->tokens; t++) {
    float *out = a->out + t * width;
    if (step->use && step->use[t])
      for (int64_t k = 0; k < width; k++)
        out[k] = ops_round(a->type, step->embeds[t * width + k]);
    else
      embedding_row(a->table, step->ids[t], out);
    if (a->scale != 1.0f)
      for (int64_t k = 0; k < width; k++)
        out[k] = ops_round(a->type, out[k] * a->scale);
  }
}

/* ---- row-wise ops ---- */

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

void ref_glu(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_glu *a = &record->glu;
  int64_t n = (int64_t)ops_extent(record, step) * a->width;
  for (int64_t i = 0; i < n; i++) {
    float act = a->act == ACT_SILU ? silu(a->type, a->gate[i]) : gelu_tanh(a->type, a->gate[i]);
    a->y[i] = ops_round(a->type, act * a->up[i]);
  }
}

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
