/* signals.c - see signals.h. Handlers reach static state only, and run in the main thread: the pool's threads block
 * these signals. So what the main thread writes here needs an order, but no locks. */
#include "cli/signals.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <termios.h>
#include <unistd.h>

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static volatile sig_atomic_t resized, continued, stopping;
static volatile sig_atomic_t changed; /* the terminal's modes, which were `modes` */
static struct termios modes;
static volatile sig_atomic_t caught, watched; /* watched: how many watch, one within the other */
static void (*volatile watcher)(void *object);
static void *volatile watched_object;

static void handle(int number)
{
  if (!watched)
    _exit(128 + number);
  if (caught) {
    if (changed)
      tcsetattr(STDIN_FILENO, TCSANOW, &modes);
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
  for (size_t i = 0; i < NUMBERS; i++) {
    struct sigaction action = {.sa_handler = handle}, old;
    sigemptyset(&action.sa_mask);
    /* No SA_RESTART: a read from the terminal has to notice. nohup's wish is respected; SIGINT is handled even where a
     * shell ignores it for background jobs, since whoever sends it by hand means it. */
    if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
      continue;
    sigaction(numbers[i], &action, NULL);
  }
}

static void handle_resize(int number)
{
  (void)number;
  resized = 1;
}

static void handle_continue(int number)
{
  (void)number;
  continued = 1;
}

static void handle_stop(int number)
{
  (void)number;
  stopping = 1;
}

void sig_note_resize(bool on)
{
  /* A write that is held goes on; waiting in ppoll ends in any case. */
  struct sigaction action = {.sa_handler = on ? handle_resize : SIG_DFL, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGWINCH, &action, NULL);
  action.sa_handler = on ? handle_continue : SIG_DFL;
  sigaction(SIGCONT, &action, NULL);
}

void sig_note_stop(bool on)
{
  struct sigaction action = {.sa_handler = on ? handle_stop : SIG_DFL, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGTSTP, &action, NULL);
}

bool sig_stopping(void)
{
  bool was = stopping;
  stopping = 0;
  return was;
}

bool sig_continued(void)
{
  bool was = continued;
  continued = 0;
  return was;
}

void sig_hush(bool on)
{
  if (on && !changed && tcgetattr(STDIN_FILENO, &modes) == 0) {
    struct termios quiet = modes;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    changed = 1;
    tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
  } else if (!on && changed) {
    tcsetattr(STDIN_FILENO, TCSANOW, &modes);
    changed = 0;
  }
}

bool sig_resized(void)
{
  bool was = resized;
  resized = 0;
  return was;
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
  watched_object = object;
  watcher = cancel;
  watched++;
  if (caught && cancel) /* it came while nothing could be cancelled yet */
    cancel(object);
}

const volatile sig_atomic_t *sig_hold(void)
{
  watched++;
  return &caught;
}

void sig_release(void)
{
  watcher = NULL;
  watched_object = NULL;
  watched--;
}

bool sig_await(int fd)
{
  sigset_t ours, before;
  sigemptyset(&ours);
  for (size_t i = 0; i < NUMBERS; i++)
    sigaddset(&ours, numbers[i]);
  sigaddset(&ours, SIGWINCH);
  sigaddset(&ours, SIGCONT);
  sigaddset(&ours, SIGTSTP);
  /* Blocked between the look at the flags and the wait, which lets them through: none can come in between. */
  pthread_sigmask(SIG_BLOCK, &ours, &before);
  bool ready = false;
  while (!caught && !ready && !resized && !continued && !stopping) {
    struct pollfd at = {.fd = fd, .events = POLLIN};
    ready = ppoll(&at, 1, NULL, &before) >= 0 || errno != EINTR; /* other failures are the reader's to find */
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return !caught; /* one that waited while there was something to read has come now */
}
