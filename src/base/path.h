/* path.h - names of files, of any length, and what stands there. */
#ifndef TERN_BASE_PATH_H
#define TERN_BASE_PATH_H

#include <sys/types.h>

#include "base/status.h"

/* "DIR/NAME", mem_free; NULL: no memory. */
char *path_join(const char *dir, const char *name);
/* *type: S_IFREG, S_IFDIR and so on, links followed, or 0 where nothing stands. A path that the system refuses (too
 * long, not to be searched) is an error: it must not pass for a file that is not there. */
tern_status path_type(const char *path, mode_t *type, tern_error *err);
/* Where a failure's line begins with the bare name of a file ("config.json: ..."), puts "DIR/" before it. Returns
 * `status`. */
tern_status path_place(const char *dir, tern_status status, tern_error *err);

#endif
