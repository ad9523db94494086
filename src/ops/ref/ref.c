/* ref.c - the reference backend: its table, its memory, and the embedding. Runs on the calling thread alone. */
#include "ops/ref/ref.h"

#include <string.h>

#include "base/mem.h"
#include "ops/math.h"
#include "ops/ref/ref_kv.h"

/* ---- memory ---- */

void *ref_alloc(ops_context *cx, size_t bytes)
{
  (void)cx;
  return mem_aligned(64, bytes);
}

void ref_release(ops_context *cx, void *p)
{
  (void)cx;
  mem_free(p);
}

void ref_copy(ops_context *cx, void *to, const void *from, size_t bytes)
{
  (void)cx;
  memcpy(to, from, bytes);
}

size_t ref_floats(size_t floats)
{
  size_t bytes;
  return __builtin_mul_overflow(floats, sizeof(float), &bytes) ? SIZE_MAX : bytes;
}

tern_status ref_reserve(ops_context *cx, const ops_room *room, tern_error *err)
{
  size_t bytes = cx->backend->scratch_bytes(cx, room);
  if (bytes <= cx->scratch_bytes)
    return TERN_OK;
  void *scratch = bytes == SIZE_MAX ? NULL : mem_aligned(64, bytes);
  if (!scratch)
    return err_nomem(err, "scratch of the ops");
  mem_free(cx->scratch);
  cx->scratch = scratch;
  cx->scratch_bytes = bytes;
  return TERN_OK;
}

/* One row of scores. */
static size_t scratch_bytes(const ops_context *cx, const ops_room *room)
{
  (void)cx;
  return ref_floats((size_t)room->keys);
}

int32_t ref_largest(const float *x, int n, float apart)
{
  int32_t at = 0;
  for (int i = 0; i < n; i++) {
    if (x[i] != x[i])
      return -1;
    at = x[i] > x[at] ? i : at;
  }
  if (!isfinite(x[at]))
    return -1;
  for (int i = 0; i < n; i++)
    if (i != at && x[i] >= x[at] - apart)
      return -1;
  return at;
}

static void choose(ops_context *cx, const float *values, int rows, int width, float apart, int32_t *chosen)
{
  (void)cx;
  for (int i = 0; i < rows; i++)
    chosen[i] = ref_largest(values + (size_t)i * (size_t)width, width, apart);
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
      .kv_quantise = ref_kv_quantise,
      .scratch_bytes = scratch_bytes,
      .reserve = ref_reserve,
      .choose = choose,
  };
  return &backend;
}

tern_status ops_nomem(ops_context *cx, const char *what, size_t bytes, tern_error *err)
{
  if (!cx->backend->available)
    return err_nomem(err, what);
  if (cx->backend->check)
    TRY(cx->backend->check(cx, err)); /* nothing is given after a failure */
  return err_set(err, TERN_E_LIMIT, "GPU memory: %s need %zu KB more, but %zu KB are free", what, (bytes + 1023) / 1024,
                 cx->backend->available(cx) / 1024);
}

void ops_context_clear(ops_context *cx)
{
  if (cx->backend && cx->backend->close)
    cx->backend->close(cx);
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

/* Value k of row `id` of the table, as the reference dequantises it: q*scale rounded, + bias rounded. The fp modes give
 * bf16. */
static float embedding_value(const ops_weight *w, int64_t id, int64_t k)
{
  if (w->quant == Q_NONE)
    return ops_load(w->stored, w->data, id * w->k + k);
  int64_t g = id * (w->k / w->group) + k / w->group;
  uint32_t code = ref_code(w->data + id * ref_row_bytes(w), w->bits, k);
  if (w->quant != Q_AFFINE)
    return ops_round(DT_BF16, ref_fp_value(w, code) * ref_fp_scale(w, w->scales[g]));
  float scaled = ops_round(w->dtype, (float)code * ops_load(w->stored, w->scales, g));
  return ops_round(w->dtype, scaled + ops_load(w->stored, w->biases, g));
}

/* Row `id` into out or, where `sum` is given, added to it. */
static void embedding_row(const ops_weight *w, int64_t id, float *out, const struct op_embed *sum)
{
  for (int64_t k = 0; k < w->k; k++) {
    float value = embedding_value(w, id, k);
    out[k] = sum ? ops_round(sum->type, out[k] + value) : value;
  }
}

void ref_embed(ops_context *cx, const op_record *record, const ops_step *step)
{
  (void)cx;
  const struct op_embed *a = &record->embed;
  int64_t width = a->table->k;
  for (int r = 0; r < step->rows; r++) {
    const ops_row *row = &step->row[r];
    for (int t = row->first; t < row->first + row->count; t++) {
      float *out = a->out + t * width;
      if (step->use && step->use[t])
        for (int64_t k = 0; k < width; k++)
          out[k] = ops_round(a->type, step->embeds[t * width + k]);
      else
        embedding_row(a->table, step->ids[t], out, NULL);
      if (a->scale != 1.0f)
        for (int64_t k = 0; k < width; k++)
          out[k] = ops_round(a->type, out[k] * a->scale);
      if (a->positions)
        embedding_row(a->positions, row->position + t - row->first, out, a);
    }
  }
}
