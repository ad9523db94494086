/* threads.c - a pool for short, frequent parallel regions: a decode step of a small model has some hundred of them, so
 * handing out work must cost a microsecond, not a wake-up. Workers poll a generation counter, then fall asleep on a
 * condition; more workers than cores never spin. */
#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/mem.h"

/* Polls before sleeping: about 50 us of pauses. */
enum { SPINS = 2000 };

typedef struct worker {
  pool *owner;
  pthread_t thread;
  int index;
} worker;

struct pool {
  int count;   /* workers, the caller included */
  int spins;   /* 0 when there are more workers than cores */
  int started; /* threads that pool_close has to join */
  worker *workers;
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  pool_fn *fn;
  void *user;
  atomic_uint generation; /* changes when there is work */
  atomic_int pending;     /* workers that have not finished it */
  atomic_bool quit;
};

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int cores_available(void)
{
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set))
    return 1;
  int n = CPU_COUNT(&set);
  return n > 0 ? n : 1;
}

int pool_size(const pool *p)
{
  return p->count;
}

static unsigned await_work(pool *p, unsigned seen)
{
  for (int i = 0; i < p->spins; i++) {
    unsigned now = atomic_load_explicit(&p->generation, memory_order_acquire);
    if (now != seen)
      return now;
    pause_briefly();
  }
  pthread_mutex_lock(&p->lock);
  while (atomic_load(&p->generation) == seen)
    pthread_cond_wait(&p->wake, &p->lock);
  pthread_mutex_unlock(&p->lock);
  return atomic_load(&p->generation);
}

static void *work(void *argument)
{
  worker *me = argument;
  pool *p = me->owner;
  unsigned seen = 0;
  for (;;) {
    seen = await_work(p, seen);
    if (atomic_load(&p->quit))
      return NULL;
    p->fn(p->user, me->index, p->count);
    if (atomic_fetch_sub(&p->pending, 1) == 1) {
      pthread_mutex_lock(&p->lock);
      pthread_cond_signal(&p->done);
      pthread_mutex_unlock(&p->lock);
    }
  }
}

static void announce(pool *p)
{
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->generation, 1);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
}

void pool_run(pool *p, pool_fn *fn, void *user)
{
  if (p->count == 1) {
    fn(user, 0, 1);
    return;
  }
  p->fn = fn;
  p->user = user;
  atomic_store(&p->pending, p->count - 1);
  announce(p);
  fn(user, 0, p->count);
  for (int i = 0; i < p->spins; i++) {
    if (atomic_load_explicit(&p->pending, memory_order_acquire) == 0)
      return;
    pause_briefly();
  }
  pthread_mutex_lock(&p->lock);
  while (atomic_load(&p->pending))
    pthread_cond_wait(&p->done, &p->lock);
  pthread_mutex_unlock(&p->lock);
}

tern_status pool_open(int threads, pool **out, tern_error *err)
{
  int cores = cores_available();
  if (threads <= 0)
    threads = cores;
  if (threads > 1024)
    return err_set(err, TERN_E_USAGE, "threads: %d is above the limit of 1024", threads);
  pool *p = mem_zalloc(sizeof *p);
  worker *workers = mem_array((size_t)threads, sizeof *workers);
  if (!p || !workers) {
    mem_free(p);
    mem_free(workers);
    return err_nomem(err, "thread pool");
  }
  p->count = threads;
  p->spins = threads > cores ? 0 : SPINS;
  p->workers = workers;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);
  /* Signals belong to the threads of the program, not to ours. */
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGFPE);
  sigdelset(&all, SIGILL);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  tern_status status = TERN_OK;
  for (int i = 1; i < threads; i++) {
    workers[i] = (worker){.owner = p, .index = i};
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) {
      status = err_set(err, TERN_E_LIMIT, "threads: the system refused thread %d of %d", i + 1, threads);
      break;
    }
    p->started = i;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (status != TERN_OK)
    pool_close(p);
  else
    *out = p;
  return status;
}

void pool_close(pool *p)
{
  if (!p)
    return;
  atomic_store(&p->quit, true);
  announce(p);
  for (int i = 1; i <= p->started; i++)
    pthread_join(p->workers[i].thread, NULL);
  pthread_cond_destroy(&p->done);
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->lock);
  mem_free(p->workers);
  mem_free(p);
}
