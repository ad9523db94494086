/* map.h - files mapped read-only, whole.
 *
 * A file that shrinks while it is mapped would kill the process with SIGBUS. map_guard_install sets a handler which
 * puts zero pages under the missing part and marks the mapping as broken; whoever uses mapped data asks map_broken
 * after each unit of work and reports an error. A SIGBUS elsewhere is passed on to the handler that was there before.
 */
#ifndef TERN_BASE_MAP_H
#define TERN_BASE_MAP_H

#include <stdbool.h>

#include "base/status.h"

typedef struct map {
  const uint8_t *data; /* NULL for an empty file */
  size_t size;
  int slot; /* in the guard's table; -1: nothing mapped */
  int fd;   /* kept open to see the file shrink within its last page, which no fault tells; -1: nothing mapped */
} map;

/* Maps PATH, a regular file. Errors: not found, not a regular file, no memory; TERN_E_LIMIT where the guard's table of
 * 1024 mappings is full. */
tern_status map_open(const char *path, map *out, tern_error *err);
void map_close(map *m); /* idempotent */
/* Lets go of the memory under `size` bytes at `data` (in the mapping) until they are read again, so that a pass over a
 * large file does not keep it resident. */
void map_forget(const map *m, const uint8_t *data, size_t size);
/* Whether a part of the file vanished under the mapping. */
bool map_broken(const map *m);
/* map_open does this. Again where something else has taken SIGBUS since; that something then comes second. */
void map_guard_install(void);
/* Reads a whole small file into memory (mem_free), NUL-terminated; refuses more than `limit` bytes. */
tern_status file_read(const char *path, size_t limit, char **data, size_t *size, tern_error *err);
/* Whether PATH is a regular file / a directory (links followed). */
bool file_is_regular(const char *path);
bool file_is_directory(const char *path);

#endif
