/* model.h - a network: checkpoint, bound weights, plan, state store. No text, no sampling.
 *
 * model_open goes through: config.json, architecture, normalised config, profile, checkpoint headers, binding and
 * audit, plan. Each can refuse, and names what it refused. A model is used by one thread at a time (its pool does the
 * rest).
 */
#ifndef TERN_MODEL_MODEL_H
#define TERN_MODEL_MODEL_H

#include "model/batch.h"
#include "model/plan.h"
#include "model/prepared.h"
#include "model/profile.h"

typedef struct model {
  cfg *cfg;
  model_config config;
  model_profile profile;
  quant_config *quant;
  ckpt *ckpt;
  tern_numerics numerics;
  ops_simd simd;    /* no higher than this */
  int prefill_step; /* as the options said; 0: as many tokens as the plan takes */
  pool *workers;
  ops_context cx;
  model_weights weights;
  prepared *prepared;        /* NULL: none in use; weights.*.packed point into it */
  tern_error prepared_fault; /* status TERN_OK, or why the file that is there is not in use */
  tern_error backend_fault;  /* backend AUTO: TERN_OK, or why a GPU that is there is not in use */
  plan plan;
  kv_store *store;
  bool opened; /* with weights and plan, not headers alone */
  /* step arrays, sized at open: [plan.max_tokens] and [max_rows] */
  int32_t *ids, *want;
  uint8_t *use;
  float *embeds; /* allocated on first use of spans */
  ops_row *rows;
  int *row_of_want, *index_of_want;
  bool *choose_of_want;
} model;

enum { MODEL_MAX_ROWS = 64 };

/* Tokens that one forward takes: what plan.max_tokens is in a model that is open in earnest. */
int model_max_tokens(const model_config *c);

/* headers_only: without the pool, the backend's layouts and room for more than one token: what `inspect` needs. */
tern_status model_open(const char *dir, const tern_model_options *options, bool headers_only, model **out,
                       tern_error *err);
void model_close(model *m); /* NULL is fine */
/* Makes the file of prepared weights of a checkpoint under options->prepared_dir, as the options have it run.
 * TERN_E_UNSUPPORTED where that backend has no layout, or the checkpoint nothing to lay out. `path`: mem_free. */
tern_status model_prepare(const char *dir, const tern_model_options *options, const prepared_watch *watch,
                          prepared_report *report, char **path, tern_error *err);

/* For model_open: the file in use, if any, and made first where the options say so; locking what steps read. */
tern_status model_use_prepared(model *m, const tern_model_options *o, bool headers_only, tern_error *err);
tern_status model_lock(model *m, tern_error *err);
/* Bytes of weights that steps read, from the checkpoint and from prepared weights. (Rows of a tied embedding table are
 * looked up in the checkpoint all the same.) */
size_t model_weight_bytes(model *m);

/* Runs one forward. The rows' counts sum to at most plan.max_tokens, and there are at most MODEL_MAX_ROWS of them; each
 * sequence must have been reserved up to its end (model_reserve). TERN_E_CANCELLED: nothing counts as written.
 * TERN_E_IO if a mapped file shrank. */
tern_status model_forward(model *m, const batch *b, batch_sink *sink, void *user, tern_error *err);
/* Before steps that write positions [from, to): blocks and scratch, so that forwards allocate nothing. TERN_E_LIMIT
 * with the numbers where memory for them is not there. */
tern_status model_reserve(model *m, kv_seq *sequence, int64_t from, int64_t to, tern_error *err);

/* Bytes that steps could still get: of the host, or of the device where that has memory of its own. */
size_t model_memory_available(model *m);
/* Scratch there would be after model_reserve up to `to`; 0: what there is. */
size_t model_scratch_bytes(const model *m, int64_t to);

/* Whether bits of a token at or after the returned position depend on its being read or stepped; INT64_MAX: nowhere. */
int64_t model_sensitive_from(const model *m);
/* Tokens that one row of a forward may have from `position` on: none lies on both sides of the position from which keys
 * and values are quantised. */
int64_t model_piece_most(const model *m, int64_t position);
/* The dtype that logits have in arithmetic. */
static inline ops_dtype model_logits_dtype(const model *m)
{
  return m->plan.logits_dtype;
}

#endif
