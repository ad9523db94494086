/* session.h - one mutable timeline over a model: the tokens consumed so far and the state they left.
 *
 * The caller always passes the whole token list. session_sync finds the longest part of the state that a fresh run
 * would have with the same bits, cuts the rest off, and reads what is missing; session_step consumes one token more.
 *
 * The canonical split (docs/engine.md): a list of n ids has split n - 1; tokens before it are read, the last one and
 * what follows are stepped. State is reused up to the common prefix, but in exact terms only: where the model has
 * tokens whose bits depend on read or step (rings past their window), reuse ends at the first such token whose kind
 * would differ. The session keeps a snapshot of its state at the split, so that a chat turn re-reads about one answer.
 */
#ifndef TERN_ENGINE_SESSION_H
#define TERN_ENGINE_SESSION_H

#include "engine/prefixes.h"

/* How a prompt is cut. All give the same bits, but for families in which the reference's own bits depend on the cut. */
typedef enum session_split {
  SPLIT_CANONICAL, /* the meaning of tern: n - 1 read, then stepped; piece size changes no bit */
  SPLIT_MLX,       /* the reference's own pieces: a piece of one token is stepped. For parity */
  SPLIT_ONE,       /* all n ids in one forward, read. For parity */
} session_split;

typedef struct session session;

typedef struct session_sink {
  /* Logits [V] of the token at `position`; may be changed, scratch afterwards. */
  void (*row)(void *user, int64_t position, float *logits);
  /* Instead, where it can be told that the largest logit, more than SAMPLER_APART ahead of all others, is that of
   * `token`: for whoever wants no more. NULL: logits in any case. */
  void (*chosen)(void *user, int64_t position, int32_t token);
  void *user;
} session_sink;

typedef struct session_request {
  const int32_t *ids; /* [n], n >= 1: the whole timeline */
  size_t n;
  int64_t limit; /* positions to reserve: n + tokens still to come; checked against the context */
  session_split split;
  int piece; /* at most so many tokens a forward; 0: as the model was opened */
  bool all;  /* the sink gets every prompt position that is read now, else the last one alone */
  void (*on_read)(void *user, size_t done, size_t total); /* after each piece that is read; may be NULL */
  void *user;
} session_request;

/* The positions admitted where nobody says how many: the model's own, or 1 << 20 where it declares none. */
int session_default_context(const model_config *c);
/* context 0: the default. */
tern_status session_open(model *m, int context, session **out, tern_error *err);
void session_close(session *s); /* NULL is fine */
/* Async-signal-safe; the running call returns TERN_E_CANCELLED after at most one forward, and so do later ones until
 * session_uncancel. */
void session_cancel(session *s);
void session_uncancel(session *s);
/* What session_cancel sets, for work beside the session's own. */
const atomic_bool *session_cancelled(const session *s);

/* Brings the session to `ids`, all consumed; the sink gets the logits of the last one. *cached (may be NULL): tokens
 * whose state was reused. A cancelled or failed sync leaves a valid, shorter timeline. `all` needs a fresh timeline: it
 * reuses nothing. Errors: TERN_E_LIMIT with the numbers if limit does not fit the context. */
tern_status session_sync(session *s, const session_request *request, const session_sink *sink, size_t *cached,
                         tern_error *err);
/* Consumes one token after the timeline. Within the reserved limit it allocates nothing. */
tern_status session_step(session *s, int32_t id, const session_sink *sink, tern_error *err);

/* Several steps in one forward, for drafts that are to be verified: the sink gets the logits behind each id in order,
 * with the bits of as many session_step. All ids are consumed, or (on failure) none. 1 <= n <= session_steps_most. */
tern_status session_steps(session *s, const int32_t *ids, int n, const session_sink *sink, tern_error *err);
/* Steps that one forward may take now: within the reserved limit, on one side of where keys are quantised. */
int session_steps_most(const session *s);
/* Forgets the tokens from `length` on. Always possible down to one token behind where the last forward began;
 * TERN_E_INTERNAL where the state has let go of what a token at `length` sees. */
tern_status session_rewind(session *s, size_t length, tern_error *err);

int session_context(const session *s);
size_t session_length(const session *s);
const int32_t *session_ids(const session *s); /* [session_length] */

/* The timeline as states are kept; length 0: there is none. Valid until the session's next call. */
prefix_of session_kept(const session *s);
/* Puts a kept state in the timeline's place, by reference; the next sync finds what of it serves. */
tern_status session_take(session *s, const prefix_of *of, tern_error *err);

/* Several timelines advance by one token each in one forward; what a scheduler does, and the test of it. Rows come in
 * order of `s`. chosen: as in a sink; may be NULL. */
tern_status session_step_many(session *const *s, const int32_t *ids, int n,
                              void (*row)(void *user, int which, float *logits),
                              void (*chosen)(void *user, int which, int32_t token), void *user, tern_error *err);

#endif
