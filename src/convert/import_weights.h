/* import_weights.h - the planned weights, shared by import_weights.c (plan) and import_write.c (write). */
#ifndef TERN_CONVERT_IMPORT_WEIGHTS_H
#define TERN_CONVERT_IMPORT_WEIGHTS_H

#include "convert/ggml_blocks.h"
#include "convert/import_model.h"

/* llama's converter lays the rows of a head as pairs (i, i + half) for its kind of rope; this undoes it. */
typedef enum import_reorder { REORDER_NONE = 0, REORDER_Q, REORDER_K } import_reorder;

typedef struct import_tensor {
  const gguf_tensor *source;
  char module[80];       /* "model.layers.3.mlp.up_proj" */
  const char *parameter; /* "weight" | "bias" */
  bool matrix;           /* [rows, columns], else a vector of `columns` */
  size_t rows, columns;
  uint32_t bits; /* affine, or 0: dense */
  import_reorder reorder;
  uint32_t heads;    /* of the reordered rows */
  bool norm_offset;  /* the file holds 1 + weight */
  bool norm_rounded; /* and 1 + (value - 1) is not the value: set by import_dense_row */
} import_tensor;

struct import_weights {
  const gguf *g;
  const volatile sig_atomic_t *cancel;
  import_tensor *tensors; /* in file order */
  size_t n;
  bool wide; /* float32, else float16 */
  /* One row of work: integers, packed words (or dense output), scales, biases, dense values. */
  uint8_t *q, *packed;
  float *scale, *bias, *dense;
};

tern_status import_cancelled(const import_weights *w, tern_error *err);
/* A row's values as the result means them, in float32. */
void import_dense_row(import_tensor *t, const uint8_t *row, float *out);

#endif
