/* signals.h - SIGINT, SIGTERM and SIGHUP.
 *
 * While something watches, the first signal asks it to stop, and a second one kills. While nothing does, the first one
 * ends the program at once, with 128 + its number.
 */
#ifndef TERN_CLI_SIGNALS_H
#define TERN_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

void sig_start(void);
/* The first signal that came while something watched, 0: none. Exit status is 128 + it. */
int sig_caught(void);
/* Forgets it: for chat, which goes on. */
void sig_forget(void);

/* From now on a signal calls cancel(object), which must be async-signal-safe. One watcher at a time. */
void sig_watch(void (*cancel)(void *object), void *object);
/* From now on a signal only sets the flag that is returned. */
const volatile sig_atomic_t *sig_hold(void);
/* Nothing watches any more. */
void sig_release(void);

#endif
