/* fit.h - what a model takes of memory, from its headers and options alone, and whether this machine has it. */
#ifndef TERN_ENGINE_FIT_H
#define TERN_ENGINE_FIT_H

#include "model/model.h"

/* Layers whose keys and values are of one kind. */
typedef struct fit_kind {
  int layers;
  int window;   /* positions kept; 0: all */
  size_t token; /* bytes of one position in all these layers */
  size_t bytes; /* of all these layers, for the context */
} fit_kind;

enum { FIT_MOST_KINDS = 8 };

typedef struct fit {
  size_t weights, owned; /* read by steps in place (mapped), and copies of their own */
  int context;
  size_t kv_token, kv; /* keys and values: one position more, past every window and start; the whole context */
  size_t scratch;      /* activations and room for one step */
  size_t draft;        /* all that the draft model takes beside it, for the same context; 0: there is none */
  size_t total;        /* all of it, SIZE_MAX where that is more */
  size_t room;         /* what there is */
  int largest;         /* the longest context with which the total is no more than that; 0: none */
  int n_kinds;         /* kinds beyond FIT_MOST_KINDS are counted with the last */
  fit_kind kinds[FIT_MOST_KINDS];
} fit;

/* context 0: the model's own. `draft` (NULL: none) guesses for it. What open models hold already counts as room. */
void fit_of(model *m, model *draft, int context, fit *out);
/* Whether a sequence of `context` positions can be held at all; TERN_E_LIMIT with the numbers, and the largest context
 * that can. context 0: nobody asked for one, and one position has to fit. */
tern_status fit_check(model *m, model *draft, int context, tern_error *err);

#endif
