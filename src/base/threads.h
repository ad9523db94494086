/* threads.h - the thread pool. One pool per model; the caller's thread is worker 0.
 *
 * pool_run calls fn once per worker and returns when all are done. Between calls workers spin for a short while, then
 * sleep. The partition of work is part of the performance contract, never of the numbers: what fn computes must not
 * depend on worker or count. One pool_run at a time per pool.
 */
#ifndef TERN_BASE_THREADS_H
#define TERN_BASE_THREADS_H

#include "base/status.h"

typedef struct pool pool;
typedef void pool_fn(void *user, int worker, int count);

int cores_available(void); /* that this process may run on, at least 1 */
tern_status pool_open(int threads, pool **out, tern_error *err);
void pool_close(pool *p); /* NULL is fine */
int pool_size(const pool *p);
void pool_run(pool *p, pool_fn *fn, void *user);

/* The share [*begin, *end) of n items that falls to `worker`, in units of `grain` items. */
static inline void pool_share(size_t n, size_t grain, int worker, int count, size_t *begin, size_t *end)
{
  size_t units = (n + grain - 1) / grain, w = (size_t)worker, c = (size_t)count;
  size_t b = units * w / c * grain, e = units * (w + 1) / c * grain;
  *begin = b < n ? b : n;
  *end = e < n ? e : n;
}

#endif
