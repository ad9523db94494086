/* plan.h - the plan: what a forward pass does, as an array of op records made once at open, and its one executor.
 *
 * Compiling walks the descriptor and emits records whose operands are numbered buffers; every branch on the
 * configuration is taken here. When all records stand, each buffer's life is known (first to last record that names
 * it), buffers whose lives do not meet share memory, and the numbers become addresses. A step then only brings tokens.
 *
 * The records form segments: the unit that a backend may capture and queue whole. Between segments the host may wait
 * (docs/architecture.md names what for: residency of experts, a collective). Every plan today has three: the body, over
 * all tokens, and behind it the head, or the last norm alone where hidden states are wanted, over the wanted rows
 * (op_record.wanted), which run in batches of at most `head_rows`.
 *
 * Buffers are float arrays of `width` floats a token, for at most `max_tokens` tokens (head buffers: `head_rows` rows).
 */
#ifndef TERN_MODEL_PLAN_H
#define TERN_MODEL_PLAN_H

#include <stdatomic.h>

#include "cache/kv.h"
#include "model/config.h"
#include "model/rope.h"
#include "model/weights.h"

typedef struct plan_segment { /* records [begin, end) */
  int begin, end;
} plan_segment;

typedef struct plan {
  op_record *records;
  int n_records;
  plan_segment body, head, hidden;
  int max_tokens, head_rows;
  ops_room room; /* what records ask of scratch; keys are the session's */
  float *memory; /* backend memory, all buffers */
  size_t memory_bytes;
  float *logits;      /* [head_rows, V], in `memory` */
  float *host_logits; /* [head_rows, V] on the host, where the backend's memory is not the host's; else NULL */
  float *states;      /* [head_rows, D], what `hidden` gives: in `memory`, and where the host reads it; as logits */
  float *host_states;
  int vocab, width;
  ops_dtype logits_dtype;
  kv_slot *slots; /* [n_slots], one for each layer that attends */
  int n_slots;
  int *slot_of_layer;  /* [layers]; -1: none */
  rope_table *ropes;   /* [n_ropes] shared by layers */
  float **rope_memory; /* [n_ropes] the tables in backend memory */
  int n_ropes;
  int32_t **lists; /* [n_lists] of regroup records, in backend memory */
  size_t n_lists, list_capacity;
} plan;

/* What a model's user decides about its state. */
typedef struct plan_options {
  /* > 0: layers without a window of their own see the first 4 and the last max_kv_size - 4 positions. */
  int max_kv_size;
  /* > 0: keys and values are quantised (ops_kv_quant), from quantized_kv_start on. */
  int kv_bits, kv_group_size, quantized_kv_start;
  /* For checks: a product a record and every sum an op of its own. Slower, with the same bits. */
  bool plain;
} plan_options;

tern_status plan_compile(ops_context *cx, const model_config *config, const model_weights *weights, int max_tokens,
                         const plan_options *options, plan *out, tern_error *err);
void plan_release(ops_context *cx, plan *p);
/* For choosing max_tokens before compiling: bytes of activations a token, and of the head's logits. */
size_t plan_bytes_per_token(const model_config *config);
size_t plan_logits_bytes(const model_config *config);

/* What plan_run hands over, in ascending order: logits [V] of wanted row `index`. The array may be changed; it is
 * scratch once the call returns. */
typedef void plan_sink(void *user, int index, float *logits);

/* For rows of which the place of the largest logit is enough. Where the backend can tell it (ops_backend.choose), such
 * a row comes here and not to the plan_sink, unless the largest is too near the next. */
typedef struct plan_choice {
  const bool *enough; /* [wanted] */
  float apart;        /* how far ahead of all others the largest must be */
  void (*sink)(void *user, int index, int32_t chosen);
} plan_choice;

/* Runs one step: step->tokens <= max_tokens, blocks in place, any number of wanted rows. choice: may be NULL.
 * False: `cancelled` (may be NULL) became true between two records, and the step was left. */
bool plan_run(ops_context *cx, const plan *p, const ops_step *step, const atomic_bool *cancelled, plan_sink *sink,
              const plan_choice *choice, void *user);
/* Right behind plan_run of a step: hidden states [D] of tokens want[0..n) of it, ascending, to the sink as rows `first`
 * and on. */
bool plan_run_hidden(ops_context *cx, const plan *p, const ops_step *step, const int32_t *want, int n, int first,
                     const atomic_bool *cancelled, plan_sink *sink, void *user);

#endif
