/* weights_impl.h - what binding (weights.c), looking up by name (weights_find.c) and the audit share. */
#ifndef TERN_MODEL_WEIGHTS_IMPL_H
#define TERN_MODEL_WEIGHTS_IMPL_H

#include "model/weights.h"

enum { NAME_BYTES = 320 };

typedef struct binder {
  ops_context *cx;
  ckpt *c;
  const quant_config *quant;
  const model_config *config;
  bool native, prepare;
  bool names_alone; /* for weights_compare: looks names up and loads nothing; cx is NULL, quant may be */
  model_weights *out;
  weights_names missing, left;
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
/* Fills b->left with what is neither marked nor under a drop rule. */
void weights_list_left(binder *b);
/* All expected are there, all others fall under drop rules, all entries of the quantisation config were met. */
tern_status weights_audit(binder *b);

#endif
