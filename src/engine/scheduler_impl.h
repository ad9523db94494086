/* scheduler_impl.h - what the files of the scheduler share: its state, and a step's two entrances.
 *
 * scheduler.c has the lists, admission, the worker and what other threads may call; scheduler_step.c one forward over
 * all running jobs, from the tokens that stand in it to those that were drawn.
 */
#ifndef TERN_ENGINE_SCHEDULER_IMPL_H
#define TERN_ENGINE_SCHEDULER_IMPL_H

#include <pthread.h>

#include "engine/prefixes.h"
#include "engine/scheduler.h"

typedef struct job_list {
  sched_job *first, **end;
} job_list;

struct scheduler {
  tern_model *model;
  sched_options options;
  int context;
  size_t budget;                 /* bytes for states of running jobs; fixed at open, SIZE_MAX: nobody knows */
  size_t scratch, draft_scratch; /* bytes of these that the budget does not have to pay for: there already at open */
  pthread_t worker;
  atomic_bool closing;

  pthread_mutex_t lock; /* guards the members down to the blank line */
  pthread_cond_t news;
  job_list inbox;
  int inside; /* submitted and not ended */
  bool dead;
  tern_error death;
  sched_stats stats;

  /* the worker's own */
  job_list waiting;
  prefixes *prefixes;
  prefixes *draft_prefixes; /* of the draft model; NULL: there is none */
  bool forgets;             /* jobs need a snapshot at their split */
  sched_job *running[MODEL_MAX_ROWS];
  int n_running;
  size_t set_aside; /* of running jobs */
  bool retry;       /* room may be there for the first of `waiting` */
  int32_t *numbers; /* 0, 1, 2, …: which tokens of a piece are wanted */
};

/* Before their first steps, the state of running jobs whose slots will forget it. On the worker. */
void sched_take_snapshots(scheduler *s);
/* One forward, and what it gave to the jobs: those that ended have `reply.finish` or `sampled`, and are still there.
 * There is at least one running job. An error ends the scheduler. On the worker. */
tern_status sched_step(scheduler *s, tern_error *err);

#endif
