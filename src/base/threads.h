/* threads.h - the thread pool. One pool per model; the caller's thread is worker 0.
 *
 * A region is work cut into shares, each done exactly once by whichever worker takes it: every worker has a run of
 * neighbouring shares and, when that is done, takes what is left of the others'. So a worker whose core is busy with
 * something else holds up no more than the share it is at. What a share computes must depend on (share, shares) only
 * where that changes no number; scratch memory goes by share, or by pool_worker().
 *
 * One pool_run at a time per pool. A child of fork() has the pool without its threads: pool_run then does all shares on
 * the caller's thread, and pool_close frees the memory. fork() during a pool_run leaves the child a region that no one
 * will finish: it must not use that pool (nor the model it belongs to).
 */
#ifndef TERN_BASE_THREADS_H
#define TERN_BASE_THREADS_H

#include <signal.h>

#include "base/status.h"

typedef struct pool pool;
typedef void pool_fn(void *user, int share, int shares);

enum { POOL_MOST_THREADS = 1024, POOL_MOST_SHARES = 1 << 14 };

/* threads 0: as cores_find() says. */
tern_status pool_open(int threads, pool **out, tern_error *err);
void pool_close(pool *p); /* NULL is fine */
int pool_size(const pool *p);
/* Calls fn for the shares [0, shares) and returns when all are done. More than POOL_MOST_SHARES are done one by one, on
 * the caller's thread. */
void pool_run_shares(pool *p, int shares, pool_fn *fn, void *user);
/* Outside of regions: worker w (in [0, pool_size)) reads these bytes soon. It asks the memory for them while it waits
 * for work, or, worker 0, for others' last shares. A hint: it is no matter what is there, or whether it still is. */
void pool_expect(pool *p, int w, const void *bytes, size_t count);
/* What worker w was told last, and *count; NULL: nothing. For tests. */
const void *pool_expected(const pool *p, int w, size_t *count);
/* Inside fn: the number of the worker that runs it, in [0, pool_size). */
int pool_worker(void);

/* Signals belong to the threads of the program, not to ours: blocks those that are not a thread's own doing, for
 * threads that the caller makes next and pthread_sigmask(SIG_SETMASK, before, NULL) after them. */
void threads_block_signals(sigset_t *before);

/* One share a worker. */
static inline void pool_run(pool *p, pool_fn *fn, void *user)
{
  pool_run_shares(p, pool_size(p), fn, user);
}

/* The part [*begin, *end) of n items that falls to `share`, in units of `grain` items. */
static inline void pool_share(size_t n, size_t grain, int share, int shares, size_t *begin, size_t *end)
{
  size_t units = (n + grain - 1) / grain, s = (size_t)share, c = (size_t)shares;
  size_t b = units * s / c * grain, e = units * (s + 1) / c * grain;
  *begin = b < n ? b : n;
  *end = e < n ? e : n;
}

#endif
