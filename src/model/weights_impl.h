/* weights_impl.h - what binding (weights.c), looking up by name (weights_find.c) and the audit share. */
#ifndef TERN_MODEL_WEIGHTS_IMPL_H
#define TERN_MODEL_WEIGHTS_IMPL_H

#include "base/buf.h"
#include "model/weights.h"

enum { FAULTS_NAMED = 6, NAME_BYTES = 320 };

typedef struct binder {
  ops_context *cx;
  ckpt *c;
  const quant_config *quant;
  const model_config *config;
  bool native, prepare;
  model_weights *out;
  int missing;
  buf missing_names;
  tern_error *err;
} binder;

/* Where in a model: names have holes for the layer's number and for a head's. */
typedef struct weight_place {
  int layer, head;
} weight_place;

/* A tensor and how it was found. */
typedef struct weight_found {
  const st_tensor *tensor; /* NULL: not there */
  bool transposed;
  char path[NAME_BYTES];  /* the canonical name, suffix and all */
  char other[NAME_BYTES]; /* the file's, where it has another spelling; else "" */
} weight_found;

/* The tensor of a name pattern, under the canonical name or any spelling that the architecture knows; marks it. */
weight_found weights_find(binder *b, const char *pattern, weight_place at, const char *suffix);
/* The same without a mark. */
bool weights_have(const binder *b, const char *pattern, weight_place at, const char *suffix);
void weights_note_missing(binder *b, const char *name);
/* All expected are there, all others fall under drop rules, all entries of the quantisation config were met. */
tern_status weights_audit(binder *b);

#endif
