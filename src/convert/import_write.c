/* import_write.c - the planned tensors into model.safetensors, row by row: memory is a few rows, whatever the model.
 *
 * An affine tensor is walked three times, once for each of weight, scales and biases, because the file holds them one
 * after the other. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "convert/import_weights.h"
#include "format/st.h"

typedef enum part { PART_DENSE, PART_WEIGHT, PART_SCALES, PART_BIASES } part;

typedef struct job {
  import_weights *weights;
  import_tensor *tensor;
  part part;
} job;

/* The source row of result row r. Inside a head of d rows the file has (i, j) at 2*i + j where the result wants
 * j * d/2 + i, with j < 2. The rows are elements for a vector (a bias). */
static size_t source_row(const import_tensor *t, size_t rows, size_t r)
{
  if (t->reorder == REORDER_NONE)
    return r;
  size_t d = rows / t->heads, head = r / d, in = r % d;
  return head * d + 2 * (in % (d / 2)) + in / (d / 2);
}

static void reorder_vector(const import_tensor *t, const float *in, float *out)
{
  for (size_t i = 0; i < t->columns; i++)
    out[i] = in[source_row(t, t->columns, i)];
}

static tern_status put_floats(const import_weights *w, st_writer *out, const float *x, size_t n, tern_error *err)
{
  if (w->wide)
    return st_put(out, x, n * sizeof *x, err);
  for (size_t i = 0; i < n; i++) {
    uint16_t h = f16_from_f32(x[i]);
    memcpy(w->packed + 2 * i, &h, 2);
  }
  return st_put(out, w->packed, 2 * n, err);
}

static tern_status put_row(const job *j, const uint8_t *row, st_writer *out, tern_error *err)
{
  import_weights *w = j->weights;
  import_tensor *t = j->tensor;
  if (j->part == PART_DENSE) {
    import_dense_row(t, row, w->dense);
    if (t->reorder == REORDER_NONE || t->matrix)
      return put_floats(w, out, w->dense, t->columns, err);
    float *sorted = (float *)(void *)w->packed; /* free here: columns * 4 bytes */
    reorder_vector(t, w->dense, sorted);
    memcpy(w->dense, sorted, t->columns * sizeof *sorted);
    return put_floats(w, out, w->dense, t->columns, err);
  }
  if (j->part != PART_WEIGHT) {
    ggml_affine_scales(t->source->type, row, t->columns, w->scale, w->bias);
    return put_floats(w, out, j->part == PART_SCALES ? w->scale : w->bias, t->columns / AFFINE_GROUP, err);
  }
  ggml_affine_integers(t->source->type, row, t->columns, w->q);
  affine_pack(w->q, t->columns, t->bits, w->packed);
  return st_put(out, w->packed, t->columns * t->bits / 8, err);
}

static tern_status produce(void *user, st_writer *out, tern_error *err)
{
  const job *j = user;
  const import_tensor *t = j->tensor;
  const ggml_type_info *info = ggml_type_get(t->source->type);
  size_t row_bytes = t->columns / info->block * info->bytes;
  for (size_t r = 0; r < t->rows; r++) {
    TRY(import_cancelled(j->weights, err));
    size_t from = t->matrix ? source_row(t, t->rows, r) : r;
    TRY(put_row(j, t->source->data + from * row_bytes, out, err));
  }
  map_forget(&j->weights->g->file, t->source->data, t->source->bytes);
  if (map_broken(&j->weights->g->file))
    return err_set(err, TERN_E_IO, "%s: the file shrank while it was read", j->weights->g->path);
  return TERN_OK;
}

static tern_status add(st_writer *out, job *j, part p, st_dtype dtype, size_t columns, tern_error *err)
{
  const import_tensor *t = j->tensor;
  const char *parameter = p == PART_SCALES ? "scales" : p == PART_BIASES ? "biases" : t->parameter;
  char name[128];
  snprintf(name, sizeof name, "%s.%s", t->module, parameter);
  int64_t matrix[2] = {(int64_t)t->rows, (int64_t)columns}, vector[1] = {(int64_t)columns};
  j->part = p;
  return st_writer_add(out, name, dtype, t->matrix ? 2 : 1, t->matrix ? matrix : vector, produce, j, err);
}

static tern_status add_tensor(st_writer *out, import_weights *w, import_tensor *t, job jobs[3], tern_error *err)
{
  st_dtype floating = w->wide ? ST_F32 : ST_F16;
  for (int i = 0; i < 3; i++)
    jobs[i] = (job){.weights = w, .tensor = t};
  if (!t->bits)
    return add(out, &jobs[0], PART_DENSE, floating, t->columns, err);
  TRY(add(out, &jobs[0], PART_WEIGHT, ST_U32, t->columns * t->bits / 32, err));
  TRY(add(out, &jobs[1], PART_SCALES, floating, t->columns / AFFINE_GROUP, err));
  return add(out, &jobs[2], PART_BIASES, floating, t->columns / AFFINE_GROUP, err);
}

static const char *how(const import_tensor *t)
{
  if (t->norm_offset)
    return t->norm_rounded ? "norm weight minus 1, rounded" : "exact, norm weight minus 1";
  return t->bits || ggml_type_get(t->source->type)->block == 1 ? "exact" : "dense, same values";
}

/* Kept as it is, dense with the same values, or a norm of two ways: no type meets more fates. */
_Static_assert(IMPORT_MAX_KINDS >= 4 * GGML_TYPES, "every kind of tensor has its line in the report");

static void report_tensor(const import_weights *w, const import_tensor *t, import_report *report)
{
  const char *type = ggml_type_get(t->source->type)->name, *fate = how(t);
  import_kind *k = NULL;
  for (size_t i = 0; i < report->n_kinds && !k; i++)
    if (strcmp(report->kinds[i].type, type) == 0 && report->kinds[i].bits == t->bits &&
        strcmp(report->kinds[i].how, fate) == 0)
      k = &report->kinds[i];
  if (!k) {
    k = &report->kinds[report->n_kinds++];
    *k = (import_kind){.type = type, .bits = t->bits, .dtype = import_weights_dtype(w), .how = fate};
  }
  k->tensors++;
  k->values += t->rows * t->columns;
  report->tensors_in++;
  report->tensors_out += t->bits ? 3 : 1;
  report->bytes_in += t->source->bytes;
}

static tern_status write_all(import_weights *w, st_writer *out, job *jobs, const char *path, tern_error *err)
{
  TRY(st_writer_meta(out, "format", "mlx", err));
  for (size_t i = 0; i < w->n; i++)
    TRY(add_tensor(out, w, &w->tensors[i], jobs + 3 * i, err));
  return st_writer_write(out, path, err);
}

tern_status import_write_weights(import_weights *w, const char *path, import_report *report, tern_error *err)
{
  st_writer *out = NULL;
  job *jobs = mem_array(w->n, 3 * sizeof *jobs);
  if (!jobs)
    return err_nomem(err, path);
  tern_status status = st_writer_open(&out, err);
  if (status == TERN_OK)
    status = write_all(w, out, jobs, path, err);
  if (status == TERN_OK) {
    for (size_t i = 0; i < w->n; i++)
      report_tensor(w, &w->tensors[i], report);
    report->dtype = import_weights_dtype(w);
    report->bytes_out = st_writer_bytes(out);
  }
  st_writer_close(out);
  mem_free(jobs);
  return status;
}
