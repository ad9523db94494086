/* registry.h - what a repo's folder in the cache holds, and what of it can go.
 *
 * A blob is used while a link in any snapshot of its repo names it: a plan never has such a blob, whichever revision
 * goes. Unfinished downloads go unless somebody holds their lock. Nothing is removed while a pull is at the repo
 * (cache_lock_repo), and a snapshot disappears whole, by rename, before its blobs do: what is visible is never broken.
 *
 * Whatever cannot be read is an error and not an absence: from what was not seen nothing follows.
 */
#ifndef TERN_HUB_REGISTRY_H
#define TERN_HUB_REGISTRY_H

#include <sys/types.h>

#include "hub/cache.h"

typedef struct registry_blob {
  char *name; /* in blobs/ */
  uint64_t bytes;
  size_t uses; /* snapshots that name it, or lead to it; of other repos too after registry_look_elsewhere */
  bool unfinished;
  dev_t device; /* of the file itself */
  ino_t inode;
} registry_blob;

typedef struct registry_revision {
  char *name;    /* the folder in snapshots/, a commit */
  char *refs;    /* "main\nv1.0"; "" where none leads here */
  size_t *blobs; /* [n_blobs] which ones it names, ascending */
  size_t n_blobs;
  uint64_t bytes; /* of those */
  bool nowhere;   /* no folder and no link to one (a circle of links, say): nothing is known of it */
} registry_revision;

typedef struct registry {
  registry_blob *blobs; /* by name */
  size_t n_blobs;
  registry_revision *revisions; /* by name */
  size_t n_revisions;
  bool lent;     /* another repo leads to a blob of this one */
  char **litter; /* entries of the repo's folder that a killed process left; names */
  size_t n_litter;
} registry;

/* A folder that is not there is an empty one. What is in blobs/ and has no blob's name is left aside: it is not the
 * cache's. TERN_E_UNSUPPORTED where one of the folders is a symbolic link: what it leads to is not the cache's either.
 * Free in any case. */
tern_status registry_read(const cache_repo *r, registry *out, tern_error *err);
/* Counts what other repos of the same cache use of this one's blobs; no tool makes such links, but hands do. */
tern_status registry_look_elsewhere(const cache_repo *r, registry *g, tern_error *err);
void registry_free(registry *g);
/* The revision that a ref, or a commit or the beginning of one (7 digits or more), names; NULL: none, or several. */
const registry_revision *registry_find(const registry *g, const char *revision);

/* What goes, with its bytes and a word why. */
typedef struct registry_item {
  char *path;
  uint64_t bytes;
  const char *why; /* "revision", "no revision uses it", "unfinished", "left over", "empty", or the caller's */
  bool empty;      /* a folder that goes only if there is nothing in it, but such folders */
  size_t parent; /* so much of `path` is the folder in which what goes gets its temporary name: outside of snapshots/ */
} registry_item;

typedef struct registry_plan {
  registry_item *items; /* in the order in which they go */
  size_t n, capacity;
  uint64_t bytes;
} registry_plan;

/* All that no revision uses. Adds to the plan. */
tern_status registry_plan_unused(const cache_repo *r, const registry *g, registry_plan *plan, tern_error *err);
/* One revision, and the blobs that it alone uses. */
tern_status registry_plan_revision(const cache_repo *r, const registry *g, const registry_revision *which,
                                   registry_plan *plan, tern_error *err);
/* A folder with all that is below it. */
tern_status registry_plan_folder(const char *path, registry_plan *plan, tern_error *err);
/* What a killed removal left in `folder`: of folders that went whole. */
tern_status registry_plan_litter(const char *folder, registry_plan *plan, tern_error *err);
/* A folder that a killed process left, with all that is below it. */
tern_status registry_plan_left(const char *path, registry_plan *plan, tern_error *err);
/* A file, or a folder with all that is below it, for a reason of the caller's. Nothing where it is not there. */
tern_status registry_plan_path(const char *path, const char *why, registry_plan *plan, tern_error *err);
/* A folder, where it holds nothing but empty folders. `old`: and where nothing has changed in it for an hour. */
tern_status registry_plan_empty(const char *path, bool old, registry_plan *plan, tern_error *err);
/* A folder that will be empty once the plan is done: all that is in it goes. */
tern_status registry_plan_emptied(const char *path, registry_plan *plan, tern_error *err);
/* Whether somebody is writing one of the blobs that `which` uses; NULL: any of the repo's. */
tern_status registry_is_held(const cache_repo *r, const registry *g, const registry_revision *which, bool *held,
                             tern_error *err);
/* Leaves in `plan` what `now`, a plan made later, has too; what was left over; and empty folders, which are looked at
 * as they go. */
void registry_plan_keep(registry_plan *plan, const registry_plan *now);
/* Removes what the plan has. What somebody else removed meanwhile is no error. */
tern_status registry_remove(const registry_plan *plan, tern_error *err);
void registry_plan_free(registry_plan *plan);

#endif
