/* threads.c - a pool for short, frequent parallel regions: a decode step of a small model has some hundred of them, so
 * handing out work must cost less than a microsecond, and must not wait for a worker that the kernel has not let run.
 *
 * A region is announced by one word: its number and how many shares it has. Worker w has a run of them, [S*w/n,
 * S*(w+1)/n), and a `slot`: a word that says of which region how many of its run are taken. Whoever comes first, the
 * owner or a worker that has finished its own run, moves a slot on to the region and takes shares from it by
 * compare-and-swap. The region is over when all shares are done; nobody waits for workers that took none.
 *
 * Why a worker that comes late does no harm. It may hold the number of a region that is over. All shares were taken
 * then, so every slot that has a run in it stands at that region with none left, or at a later one, and numbers only
 * grow (2^49 of them last for centuries): it finds nothing to take. Whoever does take a share holds up the count in
 * `left`, so the region is not over, and `fn` and `user`, read after the taking, are the region's own.
 *
 * Why no wake-up is lost. Sleeping and waking follow one pattern, in sequentially consistent operations: the sleeper
 * counts itself, then the kernel compares the word with the value it last saw and sleeps only if they are equal; the
 * waker changes the word, then looks at the count. If the waker sees no sleeper, the sleeper's counting comes after the
 * waker's look and so after the change: the kernel finds the word changed. When nobody sleeps, nothing enters the
 * kernel. (A worker that is left asleep on purpose is not missed: the caller works too, and takes what nobody takes.)
 *
 * Who polls may as well fetch. Between two products of a small model come a dozen microseconds in which the memory has
 * nothing to do, though what it will be asked for is known: a worker with an outlook brings it to its cache, a few
 * lines between two looks at the region's word.
 */
#include "base/threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/mem.h"

/* How long a worker polls before it sleeps, and the caller for the last shares of others. The caller's is short: what
 * it waits for that long stands still, as another process has the core, and a sleeper's core is one to move it to. */
enum { WORKER_SPIN_NS = 50000, CALLER_SPIN_NS = 10000, POLLS_PER_LOOK = 16, LINE = 64, SHARE_BITS = 15 };
enum { LINES_PER_POLL = 4 };
/* Whatever `ulimit -s` says: products keep some 150 KB of tiles and sums on the stack; sanitizers take several times.
 */
enum { STACK_BYTES = 2 << 20 };
_Static_assert(POOL_MOST_SHARES < 1 << SHARE_BITS, "a count of shares has to fit");

typedef struct slot {
  _Alignas(LINE) _Atomic uint64_t taken; /* region's number << SHARE_BITS | shares taken of this worker's run */
} slot;

typedef struct outlook {                  /* what a worker is going to read */
  _Alignas(LINE) _Atomic uintptr_t bytes; /* an address, and no more: nothing is read through it */
  _Atomic size_t count;
} outlook;

typedef struct worker {
  pool *owner;
  pthread_t thread;
  int index;
} worker;

struct pool {
  _Alignas(LINE) _Atomic uint64_t region; /* number << SHARE_BITS | shares */
  pool_fn *fn;
  void *user;
  _Alignas(LINE) atomic_uint left; /* shares that are not done: what a sleeping caller waits for */
  atomic_uint caller_sleeps;       /* 0 or 1 */
  _Alignas(LINE) atomic_uint bell; /* number of the last region: what sleeping workers wait for */
  atomic_uint sleepers;            /* workers that sleep, or are about to */
  _Alignas(LINE) atomic_bool quit;
  int count;         /* workers, the caller included */
  int started;       /* threads that pool_close has to join */
  int most;          /* workers that can run at once */
  slot *slots;       /* [count] */
  outlook *outlooks; /* [count] */
  worker *workers;   /* [count] */
  char *here;        /* a page that reads 1 in this process and 0 in its children; NULL: not to be had */
  pid_t process;     /* that has the threads */
};

static _Thread_local int worker_index;

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

static inline uint64_t number_of(uint64_t word)
{
  return word >> SHARE_BITS;
}

static inline uint64_t shares_of(uint64_t word)
{
  return word & (((uint64_t)1 << SHARE_BITS) - 1);
}

static void sleep_on(atomic_uint *word, unsigned seen)
{
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake(atomic_uint *word, int most)
{
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}

int pool_size(const pool *p)
{
  return p->count;
}

int pool_worker(void)
{
  return worker_index;
}

void pool_expect(pool *p, int w, const void *bytes, size_t count)
{
  atomic_store_explicit(&p->outlooks[w].count, count, memory_order_relaxed);
  atomic_store_explicit(&p->outlooks[w].bytes, (uintptr_t)bytes, memory_order_relaxed);
}

const void *pool_expected(const pool *p, int w, size_t *count)
{
  *count = atomic_load_explicit(&p->outlooks[w].count, memory_order_relaxed);
  return (const void *)atomic_load_explicit(&p->outlooks[w].bytes, memory_order_relaxed);
}

/* ---- waiting ---- */

static int64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t); /* not a system call, where the kernel maps its clock */
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* How far a worker has come with its outlook. */
typedef struct fetched {
  uintptr_t of, at, end;
} fetched;

/* Asks for the next lines of the outlook; false: it has been asked for. (Of another pair of values than were set
 * together it would ask for lines of no use, and that is all.) */
static bool fetch(const outlook *o, fetched *f)
{
  uintptr_t bytes = atomic_load_explicit(&o->bytes, memory_order_relaxed);
  if (bytes != f->of)
    *f = (fetched){bytes, bytes, bytes + atomic_load_explicit(&o->count, memory_order_relaxed)};
  if (f->at >= f->end)
    return false;
  for (int i = 0; i < LINES_PER_POLL; i++, f->at += LINE)
    __builtin_prefetch((const void *)f->at, 0, 2);
  return true;
}

/* A spell of polling: begins with {0}; false when the time is up. */
typedef struct spell {
  unsigned polls;
  int64_t until;
} spell;

static bool spin(spell *s, int64_t ns, const outlook *o, fetched *f)
{
  if (!fetch(o, f))
    pause_briefly();
  if (++s->polls % POLLS_PER_LOOK)
    return true;
  int64_t now = now_ns();
  if (!s->until)
    s->until = now + ns;
  return now < s->until;
}

/* The first region that comes after `seen`; rarely, that one again. */
static uint64_t await_region(pool *p, uint64_t seen, const outlook *o, fetched *f)
{
  for (spell s = {0};;) {
    uint64_t region = atomic_load_explicit(&p->region, memory_order_acquire);
    if (region != seen)
      return region;
    if (!spin(&s, WORKER_SPIN_NS, o, f))
      break;
  }
  atomic_fetch_add(&p->sleepers, 1);
  while (atomic_load(&p->bell) == (unsigned)number_of(seen))
    sleep_on(&p->bell, (unsigned)number_of(seen));
  atomic_fetch_sub(&p->sleepers, 1);
  return atomic_load(&p->region);
}

static void await_done(pool *p)
{
  fetched f = {0};
  for (spell s = {0};;) {
    if (atomic_load_explicit(&p->left, memory_order_acquire) == 0)
      return;
    if (!spin(&s, CALLER_SPIN_NS, &p->outlooks[0], &f))
      break;
  }
  atomic_store(&p->caller_sleeps, 1);
  for (unsigned left; (left = atomic_load(&p->left)) != 0;)
    sleep_on(&p->left, left);
  atomic_store(&p->caller_sleeps, 0);
}

/* ---- taking shares ---- */

/* Takes one share of worker w's run; false if the run has none left. */
static bool take(pool *p, uint64_t region, int w, int *share)
{
  uint64_t shares = shares_of(region), n = (uint64_t)p->count, v = (uint64_t)w;
  uint64_t begin = shares * v / n, run = shares * (v + 1) / n - begin;
  _Atomic uint64_t *mark = &p->slots[w].taken;
  for (uint64_t now = atomic_load_explicit(mark, memory_order_relaxed);;) {
    uint64_t taken = number_of(now) < number_of(region) ? 0 : shares_of(now);
    if (number_of(now) > number_of(region) || taken >= run)
      return false;
    uint64_t next = number_of(region) << SHARE_BITS | (taken + 1);
    if (atomic_compare_exchange_weak_explicit(mark, &now, next, memory_order_acq_rel, memory_order_relaxed)) {
      *share = (int)(begin + taken);
      return true;
    }
  }
}

/* Does shares as long as there are any, one's own first; gives how many. */
static unsigned work_on(pool *p, uint64_t region, int me)
{
  unsigned done = 0;
  for (int i = 0; i < p->count; i++) {
    int w = me + i < p->count ? me + i : me + i - p->count;
    for (int share; take(p, region, w, &share); done++)
      p->fn(p->user, share, (int)shares_of(region));
  }
  return done;
}

static void *work(void *argument)
{
  const worker *me = argument;
  pool *p = me->owner;
  uint64_t region = 0;
  fetched f = {0};
  worker_index = me->index;
  for (;;) {
    region = await_region(p, region, &p->outlooks[me->index], &f);
    if (atomic_load_explicit(&p->quit, memory_order_relaxed))
      return NULL;
    unsigned done = work_on(p, region, me->index);
    if (done && atomic_fetch_sub(&p->left, done) == done && atomic_load(&p->caller_sleeps))
      wake(&p->left, 1);
  }
}

/* Wakes no more workers than can run at once: the others would only be in their way. No shares: all, to quit. */
static uint64_t announce(pool *p, uint32_t shares)
{
  uint64_t number = number_of(atomic_load_explicit(&p->region, memory_order_relaxed)) + 1;
  uint64_t region = number << SHARE_BITS | shares;
  atomic_store_explicit(&p->region, region, memory_order_release);
  atomic_store(&p->bell, (unsigned)number);
  int asleep = (int)atomic_load(&p->sleepers), room = p->most - (p->count - asleep);
  if (asleep && (room > 0 || !shares))
    wake(&p->bell, shares ? room : INT_MAX);
  return region;
}

/* Whether this process has the threads: a child of fork() has not. */
static bool has_threads(const pool *p)
{
  return p->here ? *p->here : getpid() == p->process;
}

void pool_run_shares(pool *p, int shares, pool_fn *fn, void *user)
{
  if (p->count == 1 || shares == 1 || shares > POOL_MOST_SHARES || !has_threads(p)) {
    for (int share = 0; share < shares; share++)
      fn(user, share, shares);
    return;
  }
  p->fn = fn;
  p->user = user;
  atomic_store_explicit(&p->left, (unsigned)shares, memory_order_relaxed);
  unsigned done = work_on(p, announce(p, (uint32_t)shares), 0);
  if (atomic_fetch_sub(&p->left, done) != done)
    await_done(p);
}

/* ---- opening, closing ---- */

static void free_pool(pool *p)
{
  if (p->here)
    munmap(p->here, (size_t)sysconf(_SC_PAGESIZE));
  mem_free(p->slots);
  mem_free(p->outlooks);
  mem_free(p->workers);
  mem_free(p);
}

static void mark_process(pool *p)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *here = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  p->process = getpid();
  if (here == MAP_FAILED)
    return;
  if (madvise(here, page, MADV_WIPEONFORK)) {
    munmap(here, page);
    return;
  }
  p->here = here;
  *p->here = 1;
}

void threads_block_signals(sigset_t *before)
{
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGBUS); /* a thread that takes one of these and blocks it is killed */
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGFPE);
  sigdelset(&all, SIGILL);
  pthread_sigmask(SIG_SETMASK, &all, before);
}

static tern_status start_threads(pool *p, tern_error *err)
{
  sigset_t before;
  threads_block_signals(&before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  tern_status status = TERN_OK;
  for (int i = 1; i < p->count && status == TERN_OK; i++) {
    p->workers[i] = (worker){.owner = p, .index = i};
    if (pthread_create(&p->workers[i].thread, &attributes, work, &p->workers[i]))
      status = err_set(err, TERN_E_LIMIT, "threads: the system refused thread %d of %d", i + 1, p->count);
    else
      p->started = i;
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status;
}

tern_status pool_open(int threads, pool **out, tern_error *err)
{
  cores found;
  cores_find(&found);
  if (threads <= 0)
    threads = found.threads;
  if (threads > POOL_MOST_THREADS)
    return err_set(err, TERN_E_USAGE, "threads: %d is above the limit of %d", threads, POOL_MOST_THREADS);
  pool *p = mem_aligned(LINE, sizeof *p);
  if (!p)
    return err_nomem(err, "thread pool");
  *p = (pool){.count = threads, .most = found.most};
  p->workers = mem_array((size_t)threads, sizeof *p->workers);
  p->slots = mem_aligned(LINE, (size_t)threads * sizeof *p->slots);
  p->outlooks = mem_aligned(LINE, (size_t)threads * sizeof *p->outlooks);
  if (!p->workers || !p->slots || !p->outlooks) {
    free_pool(p);
    return err_nomem(err, "thread pool");
  }
  for (int i = 0; i < threads; i++) {
    atomic_init(&p->slots[i].taken, 0);
    atomic_init(&p->outlooks[i].bytes, 0);
    atomic_init(&p->outlooks[i].count, 0);
  }
  mark_process(p);
  tern_status status = start_threads(p, err);
  if (status == TERN_OK)
    *out = p;
  else
    pool_close(p);
  return status;
}

void pool_close(pool *p)
{
  if (!p)
    return;
  if (has_threads(p)) {
    atomic_store(&p->quit, true);
    announce(p, 0);
    for (int i = 1; i <= p->started; i++)
      pthread_join(p->workers[i].thread, NULL);
  }
  free_pool(p);
}
