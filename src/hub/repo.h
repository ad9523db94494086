/* repo.h - names: a repo of the hub, a revision, a file in it. What passes here may become a part of a path and of a
 * URL; what does not is refused by name.
 */
#ifndef TERN_HUB_REPO_H
#define TERN_HUB_REPO_H

#include "base/status.h"

enum { REPO_ID_ROOM = 200, REPO_REVISION_ROOM = 256, REPO_COMMIT_ROOM = 41, REPO_PATH_MOST = 1024 };

typedef struct hub_repo {
  char id[REPO_ID_ROOM];             /* "org/name" */
  char revision[REPO_REVISION_ROOM]; /* a branch, a tag or a commit; "main" where nobody says */
} hub_repo;

/* ORG/NAME[@REV]. TERN_E_USAGE with the form. */
tern_status repo_parse(const char *text, hub_repo *out, tern_error *err);
/* Whether it begins as ORG/NAME and nothing else follows, by the hub's rules for names. */
bool repo_is_id(const char *text);
/* 40 hexadecimal digits. */
bool repo_is_commit(const char *revision);
/* A path below a folder: not empty, UTF-8 without controls, no part of it empty, "." or "..", none longer than a file
 * system takes, and not absolute. TERN_E_FORMAT; `what` begins the line. */
tern_status repo_check_path(const char *what, const char *path, tern_error *err);
/* "models--org--name", mem_free; NULL: no memory. */
char *repo_folder(const char *id);
/* The reverse of it, in out; false: no such folder, or too long. */
bool repo_of_folder(const char *folder, char out[REPO_ID_ROOM]);

#endif
