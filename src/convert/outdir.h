/* outdir.h - a directory that appears whole or not at all: filled under a temporary name beside its final one, which
 * begins with a dot, then renamed. Whatever happens in between, outdir_abandon removes it with everything in it; what a
 * killed process could not remove goes when the next one begins a directory beside it. */
#ifndef TERN_CONVERT_OUTDIR_H
#define TERN_CONVERT_OUTDIR_H

#include <stddef.h>

#include "base/status.h"

typedef struct outdir {
  char *final, *temporary; /* NULL: closed */
  int lock;                /* held on `temporary` while `final` is set; -1: the file system has none */
} outdir;

/* Refuses a PATH that exists, unless it is an empty directory. Removes leftovers of killed processes beside it. */
tern_status outdir_begin(const char *path, outdir *out, tern_error *err);
/* The path of a file inside; mem_free. NULL: no memory. */
char *outdir_file(const outdir *o, const char *name);
tern_status outdir_write(const outdir *o, const char *name, const char *data, size_t size, tern_error *err);
/* Gives the directory its name. On failure it is still to be abandoned. */
tern_status outdir_commit(outdir *o, tern_error *err);
/* Removes what was begun and not committed. Idempotent. */
void outdir_abandon(outdir *o);

#endif
