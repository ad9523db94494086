/* one_thread.c - linked into the tests that tests/CMakeLists.txt lists as programs with one thread, in the place of
 * pthread_create. The thread sanitizer's build leaves these tests out; one that starts a thread has to be taken off the
 * list, and says so here. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *user);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *user)
{
  (void)thread, (void)how, (void)run, (void)user;
  fputs("a thread is started: this test is no longer one of ONE_THREAD in tests/CMakeLists.txt\n", stderr);
  abort();
}
