/* outputs.h - what an op record leaves behind: which arrays, how wide. For traces; a forward pass does without it.
 *
 * One row an op, in outputs.c, made from ops.def: an op without one does not compile.
 */
#ifndef TERN_OPS_OUTPUTS_H
#define TERN_OPS_OUTPUTS_H

#include "ops/ops.h"

typedef struct op_output {
  const char *name;    /* the member of the record's struct: "y", "q" */
  const char *of;      /* the weight that made it; NULL: none */
  const float *values; /* [ops_extent rows, width], in the backend's memory */
  int width;
  int64_t stride; /* floats from row to row */
} op_output;

enum { OP_MAX_OUTPUTS = 8 };

/* Fills `out` and returns how many there are. kv_append has none: its blocks are private to the backend. */
int ops_outputs(const op_record *r, op_output out[OP_MAX_OUTPUTS]);

#endif
