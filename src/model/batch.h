/* batch.h - the unit of work: rows of tokens, each row a share of one sequence, run by one forward.
 *
 * Prefill, decode, verification of drafts and continuous batching are all this: a row says which sequence it extends,
 * with which tokens, in which kind. Rows of different kinds and lengths run together, without padding; each token's
 * output is what it would be alone.
 *
 * A row that asks for what the model's plan cannot do (a canvas, embeddings where no input takes them, index lists) is
 * refused by model_forward with TERN_E_UNSUPPORTED: nothing is ignored.
 */
#ifndef TERN_MODEL_BATCH_H
#define TERN_MODEL_BATCH_H

#include <stdatomic.h>

#include "cache/kv.h"

typedef enum batch_commit {
  COMMIT_APPEND,  /* the sequence is longer afterwards */
  COMMIT_SCRATCH, /* the caller truncates the sequence back to `position`: verification, denoising */
} batch_commit;

/* A run of float32 rows [count, D] that replace token embeddings from token `start` of the row on. */
typedef struct batch_span {
  int start, count;
  const float *rows;
} batch_span;

typedef struct batch_row {
  kv_seq *sequence;
  const int32_t *ids; /* [count]; ids stay even where embeddings replace them: some models need both */
  int count;
  int64_t position; /* of the first token; positions are consecutive. Multi-axis rope will add [3, count] beside it */
  int64_t split;    /* prompt length - 1: see ops/visible.h */
  ops_row_kind kind;
  batch_commit commit; /* for the caller's own books: a forward writes its positions either way */
  const batch_span *spans;
  int n_spans;
  int adapter;         /* 0: none */
  const int32_t *want; /* [n_want] token indices in the row, ascending, of which something is wanted */
  int n_want;
  bool hidden; /* what is wanted: not logits but hidden states, behind the last norm and before the head */
  bool choose; /* what is wanted: no more than which logit is the largest, where batch.chosen can be told that */
} batch_row;

/* The largest logit of wanted token `index` of row `row` is that of token `chosen`. */
typedef void batch_chosen(void *user, int row, int index, int32_t chosen);

typedef struct batch {
  const batch_row *rows;
  int n_rows;
  const atomic_bool *cancelled; /* looked at between ops; NULL: never */
  /* Takes the place of the sink for rows with `choose`, where the backend can tell and the largest logit is more than
   * `apart` ahead of all others. NULL: never. */
  batch_chosen *chosen;
  float apart;
} batch;

/* Logits [V], or the hidden state [D], of wanted token `index` of row `row`; scratch once the call returns. Logits come
 * first. */
typedef void batch_sink(void *user, int row, int index, float *values);

#endif
