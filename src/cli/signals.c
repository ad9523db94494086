/* signals.c - see signals.h. Handlers reach static state only. */
#include "cli/signals.h"

#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t caught, watched;
static void (*volatile watcher)(void *object);
static void *volatile watched_object;

static void handle(int number)
{
  if (!watched)
    _exit(128 + number);
  if (caught) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  caught = number;
  if (watcher)
    watcher(watched_object);
}

void sig_start(void)
{
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    struct sigaction action = {.sa_handler = handle}, old;
    sigemptyset(&action.sa_mask);
    /* No SA_RESTART: a read from the terminal has to notice. nohup's wish is respected; SIGINT is handled even where a
     * shell ignores it for background jobs, since whoever sends it by hand means it. */
    if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
      continue;
    sigaction(numbers[i], &action, NULL);
  }
}

int sig_caught(void)
{
  return caught;
}

void sig_forget(void)
{
  caught = 0;
}

void sig_watch(void (*cancel)(void *object), void *object)
{
  watched = 0;
  watched_object = object;
  watcher = cancel;
  watched = 1;
  if (caught && cancel) /* it came while nothing could be cancelled yet */
    cancel(object);
}

const volatile sig_atomic_t *sig_hold(void)
{
  sig_watch(NULL, NULL);
  return &caught;
}

void sig_release(void)
{
  watched = 0;
  watcher = NULL;
  watched_object = NULL;
}
