/* pull.h - from a repo of the hub to a snapshot in the cache: first a plan, then the download.
 *
 * A plan costs a few small requests and writes nothing: the commit, the files that are wanted, their sizes and hashes.
 * Who pulls can look at it, and at config.json, before any weight comes.
 *
 * The download runs on several connections. Files are cut into pieces that come side by side and are appended in order,
 * so that ETAG.incomplete is at every moment the beginning of the file: whatever interrupts it, the next pull goes on
 * from there, and the hash is taken as the bytes pass. A blob gets its name when size and hash are the listed ones.
 *
 * Refused, each by name: a repo or revision that is not there, one that is gated, a list that makes no sense, a disk
 * that is too small, bytes that are not the listed ones, a host that says another size, forbidden redirects (http.h).
 */
#ifndef TERN_HUB_NET_PULL_H
#define TERN_HUB_NET_PULL_H

#include "hub/cache.h"
#include "hub/net/http.h"
#include "hub/select.h"

typedef struct hub_plan {
  hub_repo repo;
  char commit[REPO_COMMIT_ROOM];
  hub_files files;         /* the wanted ones, by path */
  size_t listed;           /* files in the repo */
  uint64_t bytes, missing; /* of the files; of those, what has still to come */
} hub_plan;

typedef struct hub_watch {
  void (*progress)(void *user, uint64_t done, uint64_t of_bytes); /* ten times a second; may be NULL */
  void (*note)(void *user, const char *line);                     /* a wait, another try; may be NULL */
  void *user;
} hub_watch;

/* Clear with hub_plan_clear in any case. TERN_E_NOT_FOUND where no file is wanted. */
tern_status hub_plan_make(const http_settings *s, const char *cache, const hub_repo *repo, const hub_patterns *patterns,
                          const hub_watch *watch, hub_plan *out, tern_error *err);
void hub_plan_clear(hub_plan *p);
/* The text of one small file of the plan (mem_free, NUL-terminated); TERN_E_NOT_FOUND where the plan has it not.
 * Nothing is written. */
tern_status hub_plan_text(const http_settings *s, const char *cache, const hub_plan *p, const char *path,
                          const hub_watch *watch, char **text, size_t *length, tern_error *err);
/* Brings what is missing, and makes the snapshot visible. *snapshot: its directory (mem_free). */
tern_status hub_pull(const http_settings *s, const char *cache, const hub_plan *p, const hub_watch *watch,
                     char **snapshot, tern_error *err);

#endif
