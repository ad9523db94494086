/* prefix_dir.h - the folder where kept prefixes outlive the process: written when a scheduler closes, read when the
 * next one opens.
 *
 * A file is called KEY-CONTENT.prefix by the beginnings of its key (prefix_file.h) and of a digest of its ids. It is
 * written under another name, made durable, and renamed, so that a file under its name is whole; one lock on the folder
 * lets one process at a time write and clean up. Files of other models stand beside, and count in the bytes that all
 * files together may take; those used longest ago go first.
 *
 * Nothing here is worth a failure. A file of this model that does not hold (damaged, cut, of another build) is renamed
 * to NAME.aside, told of, and never used. One that another user owns or may write is told of and not used. Where the
 * disk is full or refuses, that is told of and what is there stays.
 */
#ifndef TERN_ENGINE_PREFIX_DIR_H
#define TERN_ENGINE_PREFIX_DIR_H

#include "engine/prefixes.h"

typedef struct prefix_dir {
  const char *path;
  size_t most_bytes;                          /* of all files there */
  void (*tell)(void *user, const char *line); /* warnings and what was done; may be NULL */
  void *user;
} prefix_dir;

/* Makes the folder where there is none, for its user alone. TERN_E_IO where it cannot be written to, or where somebody
 * else can write there: what is refused, at the start. */
tern_status prefix_dir_check(const prefix_dir *d, tern_error *err);
/* Keeps what is there for this model, as far as `p` has room. Returns how many. */
int prefix_dir_load(const prefix_dir *d, model *m, prefixes *p);
/* Writes all that is kept and not there yet. */
void prefix_dir_save(const prefix_dir *d, model *m, const prefixes *p);

#endif
