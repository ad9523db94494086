/* outdir.h - a directory that appears whole or not at all: filled under a temporary name beside its final one, which
 * begins with a dot, then renamed. Whatever happens in between, outdir_abandon removes it with everything in it; what a
 * killed process could not remove goes when the next one begins a directory beside it. */
#ifndef TERN_CONVERT_OUTDIR_H
#define TERN_CONVERT_OUTDIR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct outdir {
  char *final, *temporary; /* NULL: closed */
  int lock;                /* held on `temporary` while `final` is set; -1: the file system has none */
} outdir;

/* Refuses a PATH that exists, unless it is an empty directory. Removes leftovers of killed processes beside it. */
tern_status outdir_begin(const char *path, outdir *out, tern_error *err);
/* Whether NAME in DIR is what a killed process left: of a temporary directory's form, an hour old, and in nobody's
 * hands. False, too, where the file system has no locks that would tell. */
bool outdir_is_left(const char *dir, const char *name);
/* The path of a file inside; mem_free. NULL: no memory. */
char *outdir_file(const outdir *o, const char *name);
tern_status outdir_write(const outdir *o, const char *name, const char *data, size_t size, tern_error *err);
/* Gives the directory its name. On failure it is still to be abandoned. */
tern_status outdir_commit(outdir *o, tern_error *err);
/* Removes what was begun and not committed. Idempotent. */
void outdir_abandon(outdir *o);

#endif
