/* test_threads.c - the pool: every share once, whoever is slow, asleep or gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/mem.h"
#include "base/threads.h"

enum { MOST_SHARES = 64, MOST_THREADS = 6 };

typedef struct tally {
  atomic_long sum;
  size_t n;
} tally;

static void add_share(void *user, int share, int shares)
{
  tally *t = user;
  size_t begin, end;
  pool_share(t->n, 3, share, shares, &begin, &end);
  for (size_t i = begin; i < end; i++)
    atomic_fetch_add(&t->sum, (long)i);
}

static void pools_cover_all_items(void **state)
{
  (void)state;
  for (int threads = 1; threads <= 5; threads++) {
    pool *p;
    assert_int_equal(pool_open(threads, &p, NULL), TERN_OK);
    for (size_t n = 0; n < 200; n++) {
      tally t = {.n = n};
      pool_run(p, add_share, &t);
      assert_int_equal(t.sum, n ? (long)(n * (n - 1) / 2) : 0);
    }
    pool_close(p);
  }
  tern_error err;
  pool *p;
  assert_int_equal(pool_open(POOL_MOST_THREADS + 1, &p, &err), TERN_E_USAGE);
}

typedef struct census {
  atomic_int times[MOST_SHARES]; /* that each share was done */
  atomic_int busy[MOST_THREADS]; /* shares that a worker is at: 0 or 1 */
  atomic_int wrong;
  int shares, size;
  long nap_ns;
} census;

static void nap(long ns)
{
  nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void count_share(void *user, int share, int shares)
{
  census *c = user;
  int worker = pool_worker();
  if (shares != c->shares || share < 0 || share >= shares || worker < 0 || worker >= c->size) {
    atomic_fetch_add(&c->wrong, 1);
    return;
  }
  if (atomic_fetch_add(&c->busy[worker], 1))
    atomic_fetch_add(&c->wrong, 1);
  if (c->nap_ns && worker)
    nap(c->nap_ns);
  atomic_fetch_add(&c->times[share], 1);
  atomic_fetch_sub(&c->busy[worker], 1);
}

static void take_census(pool *p, int shares, long nap_ns)
{
  census c = {.shares = shares, .size = pool_size(p), .nap_ns = nap_ns};
  pool_run_shares(p, shares, count_share, &c);
  assert_int_equal(c.wrong, 0);
  for (int i = 0; i < MOST_SHARES; i++)
    assert_int_equal(c.times[i], i < shares);
}

/* Numbers of shares below and above that of workers, in quick succession: workers come late all the time. */
static void every_share_is_done_once(void **state)
{
  (void)state;
  for (int threads = 1; threads <= MOST_THREADS; threads++) {
    pool *p;
    assert_int_equal(pool_open(threads, &p, NULL), TERN_OK);
    mem_forbid(true);
    for (int i = 0; i < 3000; i++)
      take_census(p, i * 7 % (MOST_SHARES + 1), 0);
    mem_forbid(false);
    pool_close(p);
  }
}

/* Nothing, memory, memory that was given back, addresses that never were any. */
static void what_is_expected_may_be_anything(void **state)
{
  (void)state;
  pool *p;
  assert_int_equal(pool_open(MOST_THREADS, &p, NULL), TERN_OK);
  char *gone = malloc(1 << 20);
  const uintptr_t places[] = {0, (uintptr_t)p, (uintptr_t)gone, 64, UINTPTR_MAX - (1 << 21)};
  free(gone);
  for (size_t i = 0; i < 500; i++) {
    for (size_t w = 0; w < MOST_THREADS; w++)
      pool_expect(p, (int)w, (const void *)places[(i + w) % 5], i % 3 << 19);
    if (i % 10 == 0)
      nap(30000);
    take_census(p, MOST_THREADS * 2, i % 50 ? 0 : 100000);
  }
  pool_close(p);
}

/* Workers that slept between regions; a caller that sleeps until slow workers are done. */
static void sleepers_wake_up(void **state)
{
  (void)state;
  for (int threads = 2; threads <= MOST_THREADS; threads += 2) {
    pool *p;
    assert_int_equal(pool_open(threads, &p, NULL), TERN_OK);
    for (int i = 0; i < 100; i++) {
      take_census(p, threads * 2, i % 3 ? 300000 : 0);
      if (i % 2)
        nap(20000L * (i % 20));
    }
    pool_close(p);
  }
}

typedef struct hold_up {
  atomic_int done;
  int patience; /* milliseconds left */
} hold_up;

/* The first share stands still until all others are done. */
static void stand_still(void *user, int share, int shares)
{
  hold_up *h = user;
  while (share == 0 && atomic_load(&h->done) < shares - 1 && h->patience-- > 0)
    nap(1000000);
  atomic_fetch_add(&h->done, 1);
}

static void others_take_what_a_slow_worker_leaves(void **state)
{
  (void)state;
  cores found;
  cores_find(&found);
  if (found.most < 2)
    skip(); /* nobody else would be woken */
  pool *p;
  assert_int_equal(pool_open(2, &p, NULL), TERN_OK);
  for (int i = 0; i < 20; i++) {
    hold_up h = {.patience = 20000};
    pool_run_shares(p, 16, stand_still, &h);
    assert_true(h.patience > 0);
    assert_int_equal(h.done, 16);
  }
  pool_close(p);
}

static void a_child_runs_alone(void **state)
{
  (void)state;
  if (getenv("TERN_EMULATED"))
    skip(); /* qemu-user cannot fork a program that has threads */
  pool *p;
  assert_int_equal(pool_open(4, &p, NULL), TERN_OK);
  take_census(p, 8, 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(60); /* a child that hangs is one that failed */
    for (int i = 0; i < 10; i++) {
      census c = {.shares = 8, .size = 4};
      pool_run_shares(p, 8, count_share, &c);
      for (int s = 0; s < 8; s++)
        if (c.times[s] != 1 || c.wrong)
          _exit(2);
    }
    pool_close(p);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  take_census(p, 8, 0);
  pool_close(p);
}

static void closing_takes_sleepers_along(void **state)
{
  (void)state;
  for (int i = 0; i < 50; i++) {
    pool *p;
    assert_int_equal(pool_open(MOST_THREADS, &p, NULL), TERN_OK);
    nap(10000L * i);
    pool_close(p);
  }
  pool_close(NULL);
}

static void failed_allocations_are_errors(void **state)
{
  (void)state;
  for (int n = 0; n < 4; n++) {
    pool *p;
    mem_fail_after(n);
    tern_status status = pool_open(2, &p, NULL);
    mem_fail_after(-1);
    assert_int_equal(status, TERN_E_NOMEM);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pools_cover_all_items),
      cmocka_unit_test(every_share_is_done_once),
      cmocka_unit_test(what_is_expected_may_be_anything),
      cmocka_unit_test(sleepers_wake_up),
      cmocka_unit_test(others_take_what_a_slow_worker_leaves),
      cmocka_unit_test(a_child_runs_alone),
      cmocka_unit_test(closing_takes_sleepers_along),
      cmocka_unit_test(failed_allocations_are_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
