/* dense.h - the decoder that a descriptor row describes, as op records: blocks of attention and MLP over one stream. */
#ifndef TERN_MODEL_DENSE_H
#define TERN_MODEL_DENSE_H

#include "model/emit.h"

/* Emits all records and fills the plan's segments; returns the buffer of the logits. */
int dense_emit(compiler *c);

#endif
