/* draft.h - guesses of the tokens that come next, for one forward to verify.
 *
 * A guess decides how fast an answer comes and never which one: the target draws its own token behind every row, and a
 * guess counts where it is that token (reply.h). So nothing here has to be exact, reproducible or right.
 *
 *   lookup      the last tokens, 5 of them or at least 2, where they stood before: what followed there. For answers
 * that repeat their prompt: edits, quotations, code. a model     a smaller one with the same vocabulary goes ahead
 * token by token. It draws with the target's options and with the random number that the target will use, so that the
 * two agree when sampling too. Its keys and values are its own, plain, and follow the answer; a prompt is read in
 * pieces, `share` tokens a turn. a function  of the caller's.
 *
 * How many. A row more in a forward is not free, and neither is a token of the draft model. From what became of former
 * guesses comes a chance p that the next one is right, and from it the number k for which (tokens expected) / (cost) is
 * greatest; that may be none, and then now and again one is tried. A function's guesses are all taken.
 *
 * A drafter follows one timeline at a time. It allocates in drafter_begin alone. Guessing for many timelines at once
 * shares the draft model's forwards.
 *
 * Every kind of state that models have today (ops/visible.h, cache/kv.h) can be stepped several tokens at once and cut
 * back; one that could not would have to be refused in draft_check.
 */
#ifndef TERN_ENGINE_DRAFT_H
#define TERN_ENGINE_DRAFT_H

#include "engine/prefixes.h"
#include "engine/reply.h"

typedef struct drafter drafter;

/* Whether there is anything to do. */
static inline bool draft_asked(const tern_draft *o)
{
  return o->lookup || o->model || o->guess;
}

/* TERN_E_USAGE: two ways at once, a number out of range. TERN_E_UNSUPPORTED: a draft model with another vocabulary;
 * names the first token that differs. */
tern_status draft_check(const tern_draft *o, const tern_model *target, tern_error *err);
/* Bytes of the draft model's state for a timeline of so many positions; and of that model's scratch, which is there
 * already as far as 0 positions have it. */
size_t draft_state_bytes(const tern_draft *o, int64_t positions);
size_t draft_scratch_bytes(const tern_draft *o, int64_t positions);

/* Options as draft_check let them pass. */
tern_status drafter_open(const tern_draft *o, const tern_model *target, drafter **out, tern_error *err);
void drafter_close(drafter *d); /* NULL is fine */
/* A new answer behind ids[0..n): positions up to `limit`. What the state has of them is kept; an empty one begins where
 * one of `kept` (of the draft model; may be NULL) ends. */
tern_status drafter_begin(drafter *d, const tern_generate_options *options, const int32_t *ids, size_t n, int64_t limit,
                          prefixes *kept, tern_error *err);
/* Leaves the draft model's state for later drafters. */
void drafter_keep(const drafter *d, prefixes *kept);

/* One timeline: the prompt that drafter_begin got, and what the reply has taken since. */
typedef struct draft_turn {
  drafter *drafter;
  const reply *reply;
  int most;           /* guesses that have room, at most REPLY_MOST_DRAFTS; 0: none, but the draft model may read on */
  const int32_t *ids; /* out: [n], until the drafter's next turn */
  int n;
} draft_turn;

/* Guesses for n timelines, 1 <= n <= MODEL_MAX_ROWS, that will be stepped together. share: prompt tokens that the draft
 * model may read now, in all. cancelled: looked at between the ops of its forwards (TERN_E_CANCELLED); NULL: never. */
tern_status draft_guess(draft_turn *turns, int n, int share, const atomic_bool *cancelled, tern_error *err);

#endif
