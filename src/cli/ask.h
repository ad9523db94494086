/* ask.h - questions at a terminal. */
#ifndef TERN_CLI_ASK_H
#define TERN_CLI_ASK_H

#include <stdbool.h>

/* Whether there is somebody to ask: stdin and stderr are terminals. */
bool ask_can(void);
/* "QUESTION [y/N] " on stderr; true: the line read begins with y or Y. */
bool ask_yes(const char *question);

#endif
