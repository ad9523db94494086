/* scheduler.h - continuous batching: one worker thread owns a model and advances a list of jobs by one forward a step.
 *
 * A step carries one token of every job that decodes and, beside them, pieces of the prompts that are being read. A
 * job's tokens, text and logits are those of the same job alone (tern_generate): a prompt of n ids is read up to its
 * last one, which is stepped; piece sizes and neighbours change no bit.
 *
 * Fairness. While some job decodes, a step carries at most `prompt_share` prompt tokens, so that a long prompt delays
 * each token of the others by that much and no more. The share is split evenly over the prompts being read: a short one
 * does not wait for a long one before it.
 *
 * Admission. Jobs start in the order in which they came. One starts when fewer than `rows` run and memory for its
 * prompt and all of its max_tokens is there, which is then set aside; until that it waits, and the jobs behind it wait
 * with it. What may be set aside in all is fixed at open: what was free then, less the scratch of the longest job. What
 * could not run even alone ends with TERN_E_LIMIT and the numbers. At most `rows` + `queue` jobs are in the house:
 * sched_submit answers more with TERN_E_BUSY.
 *
 * Reuse. What ended jobs left is kept (prefixes.h), and a job starts behind what it shares with one of them: no bit
 * changes by that. Running jobs come first: what is kept goes when memory is wanted, and takes an eighth of it at most,
 * a draft model's states included.
 *
 * Speculation (draft.h). A decoding job's row may carry guesses behind its token, verified in the same forward; how
 * many depends on what became of earlier ones and on how many jobs there are, and changes no token. A draft model's
 * state is counted in admission like the job's own.
 *
 * Ownership. A job is the caller's, with everything it points to. From a sched_submit that gave TERN_OK until its
 * on_end it is lent to the scheduler and must not change; after on_end the scheduler never touches it again. Every
 * submitted job gets exactly one on_end.
 *
 * Threads. sched_submit, sched_cancel and sched_get_stats may be called from any thread. sched_open and sched_close
 * belong to one, which is not the worker. Callbacks run on the worker thread: they must be quick, and call nothing of
 * the scheduler but sched_cancel. While a scheduler is open no one else runs forwards on its model; reading it
 * (tokenize, render) is free to all. The lock guards the list of new jobs and the counts, nothing else.
 *
 * Errors of one job (options that the sampler refuses, memory, logits with NaN) end that job. A forward that fails (a
 * mapped file that shrank, a GPU that is lost) ends all jobs with its error and the scheduler with them: `on_death` is
 * called, and sched_submit returns that error from then on.
 */
#ifndef TERN_ENGINE_SCHEDULER_H
#define TERN_ENGINE_SCHEDULER_H

#include <stdatomic.h>

#include "engine/draft.h"
#include "engine/prefix_dir.h"

typedef struct scheduler scheduler;

typedef struct sched_options {
  int context;                  /* positions of one job at most; 0: the model's own */
  int rows;                     /* jobs that run together, at most MODEL_MAX_ROWS; 0: SCHED_ROWS */
  int queue;                    /* jobs that may wait; 0: SCHED_QUEUE */
  int prompt_share;             /* prompt tokens in a step beside decoding jobs; 0: SCHED_PROMPT_SHARE */
  int prefixes;                 /* states of ended jobs that are kept for later ones; 0: none */
  size_t state_bytes;           /* > 0: state of all running jobs at most; 0: what the machine has free at open */
  const prefix_dir *prefix_dir; /* what is kept is read from there at open and written at close; NULL: neither */
  tern_draft draft;             /* its model is the scheduler's alone while that is open */
  void (*on_death)(void *user, const tern_error *err); /* may be NULL */
  void *user;
} sched_options;

enum { SCHED_ROWS = 32, SCHED_QUEUE = 128, SCHED_PROMPT_SHARE = 128 };

/* How a job ended. */
typedef struct sched_end {
  tern_status status; /* TERN_E_CANCELLED: by sched_cancel, or because the scheduler closed */
  const tern_error *err;
  const char *finish;         /* "stop" | "length" | "cancelled"; NULL where status is not TERN_OK */
  const char *stop;           /* the one of options.stops that ended it; NULL: none of them did */
  size_t n_ids;               /* generated, a final stop id left out; also of a job that failed on its way */
  uint64_t drafted, accepted; /* tokens guessed ahead; those that became part of the answer */
} sched_end;

typedef struct sched_job {
  /* The caller's. */
  const int32_t *ids; /* [n], n >= 1: the prompt */
  size_t n;
  tern_generate_options options;                /* max_tokens >= 1; on_text as everywhere */
  int top;                                      /* as in reply */
  void (*on_start)(void *user);                 /* it was admitted */
  void (*on_token)(void *user, const reply *r); /* r->token is part of the answer; its text comes by on_text, now or
                                                   later */
  void (*on_logits)(void *user, const float *logits,
                    int vocab);                     /* as the forward left them; of tokens that are drawn */
  void (*on_end)(void *user, const sched_end *end); /* the one callback that may not be NULL */
  /* Not NULL: there is no answer. The prompt is read as a whole, to its last id, and gives the hidden states [D] of the
   * last position, or of all (`all`), in order. No state is found or kept. max_tokens has to be 1. */
  void (*on_hidden)(void *user, int64_t position, const float *state, int width);
  bool all;
  void *user;
  /* The scheduler's. */
  struct sched_job *next;
  atomic_bool cancelled;
  bool runs; /* it was admitted */
  bool seen; /* checked against what the machine has */
  kv_seq *state;
  kv_seq *snapshot; /* its state at the split, where slots forget; NULL: not needed, or not there yet */
  int64_t cached;   /* tokens that it found in a prefix; to be read from on_start on */
  int64_t position; /* tokens consumed */
  int64_t limit;    /* positions it may need */
  size_t set_aside; /* bytes of state reckoned for it */
  reply reply;
  drafter *drafter;                        /* NULL: no speculation */
  int32_t next_ids[1 + REPLY_MOST_DRAFTS]; /* what its row of this step carries: a token and guesses behind it */
  int n_next;
  tern_status sampled;
  tern_error err;
} sched_job;

typedef struct sched_stats {
  int running, waiting;
  uint64_t steps;                                    /* forwards */
  uint64_t finished, cancelled, failed, turned_away; /* jobs by their end; turned_away: TERN_E_BUSY */
  uint64_t prompt_tokens, generated_tokens, cached_tokens;
  uint64_t drafted_tokens, accepted_tokens;
  size_t prefix_bytes; /* of kept prefixes */
  int prefixes;
  size_t state_bytes; /* set aside for running jobs */
  bool dead;
} sched_stats;

/* Starts the worker. It blocks the program's signals. */
tern_status sched_open(tern_model *m, const sched_options *options, scheduler **out, tern_error *err);
/* Ends all jobs (TERN_E_CANCELLED), within one op of the running forward, and the worker. NULL is fine. */
void sched_close(scheduler *s);

/* All of them or none. TERN_E_BUSY: try again later. TERN_E_USAGE, TERN_E_LIMIT: what can be seen at once is wrong
 * with one of them: a token id that there is not, more than the context has. */
tern_status sched_submit(scheduler *s, sched_job *const *jobs, int n, tern_error *err);
/* The job ends before the next step. Does not wait for that. */
void sched_cancel(scheduler *s, sched_job *job);
void sched_get_stats(scheduler *s, sched_stats *out);

/* Positions that one job may have. */
int sched_context(const scheduler *s);

#endif
