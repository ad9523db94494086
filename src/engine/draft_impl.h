/* draft_impl.h - what the drafter's files share. */
#ifndef TERN_ENGINE_DRAFT_IMPL_H
#define TERN_ENGINE_DRAFT_IMPL_H

#include "engine/draft.h"

/* How often guesses were right lately: both fade. */
typedef struct draft_record {
  double hits, tries;
} draft_record;

enum { DRAFT_RECORDS = 2 }; /* lookup keeps one of short and one of long matches */

struct drafter {
  tern_draft options;
  const tern_model *target;
  int most;
  double row_cost, guess_cost; /* of one more row, of one more guess; a step alone costs 1 */

  /* The timeline: the prompt, what was taken of the answer, and behind that what the draft model went ahead with. */
  int32_t *ids;
  size_t n_prompt, length, capacity;
  int32_t guesses[REPLY_MOST_DRAFTS];
  int n_guesses;

  draft_record records[DRAFT_RECORDS];
  int record; /* the one that the last guess belongs to */
  uint64_t seen_guessed, seen_hit;
  int idle; /* turns without a guess, though there could have been one */

  /* The draft model's. */
  kv_seq *state;
  int64_t consumed; /* of ids */
  sampler *sampler;
  bool lost; /* the draft model cannot follow this answer */
};

/* draft_model.c */
tern_status draft_model_open(drafter *d, tern_error *err);
void draft_model_close(drafter *d);
tern_status draft_model_begin(drafter *d, const tern_generate_options *options, int64_t limit, tern_error *err);
/* The state keeps what holds for the first `length` ids. */
void draft_model_cut(drafter *d, int64_t length);
/* turns[i].n guesses are wanted of each; fewer come where the model has not caught up. */
tern_status draft_model_guess(draft_turn *turns, int n, int share, const atomic_bool *cancelled, tern_error *err);

#endif
