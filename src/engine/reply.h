/* reply.h - the rules of one answer, whoever runs the forwards: which token comes next, what text may go out, what ends
 * it. tern_generate feeds it from a session, the scheduler from rows of a batch; both get the same tokens and text.
 *
 * The order within one token is the reference's (mlx_lm.generate.stream_generate): a stop id ends the answer before it
 * is added to the text, and the token that reaches max_tokens is still part of it. A token that ends the answer is not
 * consumed by the timeline.
 *
 * Drafts. A forward may carry guesses of the tokens to come, and give the logits behind each of them. reply_expect
 * names the guesses; reply_sample draws from one row after the other, as long as what was drawn is what was guessed: so
 * token i of an answer is drawn with history, penalties and random number i, whatever was guessed. What was drawn waits
 * until the forward is known to be sound, and then reply_accept takes it, token by token. A token that ends the answer
 * leaves those behind it undrawn: the random numbers go back too.
 *
 * Grammar. Each token is drawn among those that may follow the tokens drawn before it (constraint.h): so guesses change
 * nothing there either. A draw moves the grammar's state on; a draw that is forgotten takes it back.
 *
 * A reply belongs to one thread. reply_sample allocates nothing, but with a grammar; reply_accept grows the text.
 */
#ifndef TERN_ENGINE_REPLY_H
#define TERN_ENGINE_REPLY_H

#include "engine/constraint.h"
#include "engine/engine.h"
#include "engine/sample.h"
#include "engine/spacing.h"
#include "engine/stop.h"
#include "text/detok.h"

enum { REPLY_MOST_TOP = 20, REPLY_MOST_DRAFTS = 32 };

/* A token that was drawn. */
typedef struct reply_draw {
  int32_t token;
  float logprob;
  int n_top;
  int32_t top_ids[REPLY_MOST_TOP];
  float top_values[REPLY_MOST_TOP];
  rng_key before;        /* the random numbers before it was drawn */
  uint32_t state_before; /* of the grammar */
} reply_draw;

typedef struct reply {
  const tern_model *model;
  const tern_generate_options *options; /* not owned */
  size_t max_tokens;
  sampler *sampler;
  detok *detok;
  spacing spacing;
  stop_scan stops;  /* holds the text */
  int32_t *history; /* last prompt token, then what was generated: what penalties look back on */
  size_t n_history;
  int top; /* alternatives wanted with each token; below 0: no log-probabilities at all */
  /* The token taken last; its alternatives, most likely first. */
  int32_t token;
  float logprob;
  int n_top;
  const int32_t *top_ids;
  const float *top_values;
  /* What one forward drew. */
  reply_draw drawn[1 + REPLY_MOST_DRAFTS];
  int n_drawn, n_taken;
  const int32_t *drafts; /* [n_drafts], not owned */
  int n_drafts;
  bool settled;           /* rows that are still to come are behind a wrong guess, or behind the end */
  tern_status fault;      /* of the draw that comes after the drawn ones */
  uint64_t n_guessed;     /* drafts of all forwards */
  uint64_t n_hit;         /* those that became tokens of the answer */
  constraint *constraint; /* NULL: any token may come */
  uint32_t state;         /* of the grammar, behind what was drawn */
  const char *finish;     /* NULL: it goes on; else "stop", "length" or "cancelled" */
  bool refused;           /* on_text asked to end */
} reply;

/* last: the prompt's last id. max_tokens >= 1. top: as in the struct, at most REPLY_MOST_TOP. `options` must outlive
 * the reply. Free with reply_close in any case. Errors: options that the sampler refuses, stop ids that are none. */
tern_status reply_open(reply *r, const tern_model *m, const tern_generate_options *options, int32_t last,
                       size_t max_tokens, int top, tern_error *err);
void reply_close(reply *r);

/* Before every forward but the first: it carries n <= REPLY_MOST_DRAFTS drafts behind the token taken last. They must
 * stay until they are taken. */
void reply_expect(reply *r, const int32_t *drafts, int n);
/* Draws from logits [V] (which are changed) behind the next row of the forward, unless earlier rows made that void.
 * What fails is told by reply_accept, in its turn; `err` has the words. */
void reply_sample(reply *r, float *logits, tern_error *err);
/* The same where the place of the largest logit is all that was asked for, which reply_takes_largest allows
 * (sampler_takes_largest). */
void reply_take_largest(reply *r, int32_t token);
bool reply_takes_largest(const reply *r);
/* Takes the next token that was drawn: sends text through options->on_text, sets `finish` where the answer ends. Then
 * as long as reply_waits says so. */
tern_status reply_accept(reply *r, tern_error *err);
static inline bool reply_waits(const reply *r)
{
  return !r->finish && (r->n_taken < r->n_drawn || r->fault != TERN_OK);
}
/* Forgets what was drawn and not taken. */
void reply_forget(reply *r);

/* Ids generated so far, a final stop id left out: [reply_count]. */
static inline const int32_t *reply_ids(const reply *r)
{
  return r->history + 1;
}
static inline size_t reply_count(const reply *r)
{
  return r->n_history - 1;
}

#endif
