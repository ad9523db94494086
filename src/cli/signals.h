/* signals.h - SIGINT, SIGTERM, SIGHUP and SIGQUIT.
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

/* From now on a signal calls cancel(object), which must be async-signal-safe; at once where one has been caught and not
 * forgotten. One such watcher at a time, but inside a sig_hold, which goes on when it is released. */
void sig_watch(void (*cancel)(void *object), void *object);
/* From now on a signal only sets the flag that is returned. */
const volatile sig_atomic_t *sig_hold(void);
/* Ends the last sig_watch or sig_hold. */
void sig_release(void);
/* Waits until fd can be read (or has an end or an error to tell), or one of the flags below has risen; false: a signal
 * has been caught, before or meanwhile. For use inside sig_hold. */
bool sig_await(int fd);
/* From now on the terminal on stdin shows nothing of what is typed, or what it showed before: for the time of an
 * answer. What is typed waits. A signal that kills gives the terminal back as it was. */
void sig_hush(bool on);
/* From now on changes of the window's size, and going on after a stop (fg), are noted, or no longer; whether there was
 * one since the last call. */
void sig_note_resize(bool on);
bool sig_resized(void);
bool sig_continued(void);
/* From now on a stop by the keyboard is noted instead, or stops again; whether there was one since the last call. Who
 * notes it tidies the terminal up and raises SIGSTOP. */
void sig_note_stop(bool on);
bool sig_stopping(void);

#endif
