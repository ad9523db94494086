/* choices.h - the answers that one request asked for (n of each prompt), as jobs of the scheduler with one reader.
 *
 * The worker leaves text, tokens and ends under the set's lock and rings; the connection's thread waits for the bell
 * and for the client's going at once, takes over what came by a swap of buffers, and writes it without the lock: the
 * worker never waits for more than that. What is not yet read is bounded by the answers' own max_tokens: a reader that
 * is slow holds up nobody and costs no more than its answer.
 */
#ifndef TERN_SERVER_CHOICES_H
#define TERN_SERVER_CHOICES_H

#include "server/srv.h"

/* One token with its alternatives, where they were asked for. */
typedef struct choice_token {
  int32_t id;
  float logprob;
  bool reasoning; /* as far as that can be counted */
  int n_top;
  int32_t top_ids[REPLY_MOST_TOP];
  float top_values[REPLY_MOST_TOP];
} choice_token;

/* A stretch of an answer. */
typedef struct choice_part {
  buf text;
  choice_token *tokens;
  size_t n_tokens, capacity;
} choice_part;

typedef struct choices choices;

typedef struct choice {
  sched_job job;
  choices *set;
  int32_t reasoning_ids[2]; /* of the tokens that begin and end reasoning; -1: not to be counted */
  choice_part taken;        /* the reader's own */
  /* Under the set's lock. */
  choice_part coming;          /* since the last choice_take */
  size_t cached;               /* of the prompt, once started */
  bool reasons;                /* the next token lies within reasoning */
  size_t reasoned;             /* tokens of reasoning, its ends included */
  bool started, ended, failed; /* failed: memory ran out here */
  double began, first, last;   /* srv_seconds when it was admitted, had its first token, and ended; 0: not yet */
  sched_end end;               /* once ended; end.err points to `err` */
  tern_error err;
} choice;

struct choices {
  server *server;
  pthread_mutex_t lock;
  int bell; /* eventfd */
  int n, submitted;
  double opened; /* srv_seconds of choices_open */
  void *user;    /* of callbacks that are not ours */
  choice *at;    /* [n] */
};

/* What one wait saw. */
typedef enum choices_news {
  CHOICES_NEWS,
  CHOICES_QUIET,
  CHOICES_GONE,
  CHOICES_ENDING /* the server ends, and the answer with it */
} choices_news;

/* n jobs whose ids and options the caller then fills in (callbacks are ours). */
tern_status choices_open(server *s, int n, choices **out, tern_error *err);
tern_status choices_submit(choices *c, tern_error *err);
/* Waits until something happened, the client behind `fd` has gone, the server ends, or so many milliseconds passed
 * (< 0: no end). */
choices_news choices_wait(choices *c, int fd, int milliseconds);
/* Cancels what runs, waits until all have ended, frees. NULL is fine. */
void choices_close(choices *c);

/* Under the lock: `taken`, which the reader is done with, becomes what came since. */
void choice_take(choice *o);

/* Between these the worker does not change the set. */
void choices_lock(choices *c);
void choices_unlock(choices *c);
/* Under the lock: whether all have ended; the first that did not end well, or NULL. */
bool choices_all_ended(const choices *c);
const choice *choices_first_failure(const choices *c);
bool choices_any_started(const choices *c);

#endif
