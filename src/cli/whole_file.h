/* whole_file.h - a result file that appears whole or not at all: written beside its name and renamed at the end, so
 * that what stood there before is whole until then. A link stays, and what it leads to is written so, whether that is
 * there yet or not. A device or a pipe is written as it is. What a killed writer left beside the name
 * (NAME.tern-XXXXXX) goes when the next one begins. */
#ifndef TERN_CLI_WHOLE_FILE_H
#define TERN_CLI_WHOLE_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

typedef struct whole_file {
  FILE *file;       /* to be written to; NULL: not open */
  const char *path; /* the caller's */
  char *target;     /* where `path` leads, if it is a link */
  char *partial;    /* the other name; NULL where the target is written directly */
  bool secret;      /* for its user alone; whoever opened it says so */
} whole_file;

tern_status whole_open(whole_file *f, const char *path, tern_error *err);
/* Gives the file its name. whole_abandon is due in any case. Nothing is done where nothing is open. */
tern_status whole_finish(whole_file *f, tern_error *err);
/* Leaves nothing behind of what was not finished. Idempotent. */
void whole_abandon(whole_file *f);

#endif
