/* listing.h - what the hub's API says, read strictly: the commit of a revision, the pages of its file list, where the
 * next page is. All of it comes from outside: sizes, counts, names and addresses are checked here.
 */
#ifndef TERN_HUB_LISTING_H
#define TERN_HUB_LISTING_H

#include "hub/repo.h"

enum { LISTING_MOST_FILES = 100000, LISTING_ETAG_ROOM = 65, LISTING_PAGE_MOST = 32 << 20 };

typedef struct hub_file {
  char *path; /* inside the repo */
  uint64_t size;
  char etag[LISTING_ETAG_ROOM]; /* SHA-256 of a file that git-lfs keeps, else git's SHA-1 of it as a blob */
} hub_file;

static inline bool hub_file_is_lfs(const hub_file *f)
{
  return f->etag[40] != 0;
}

/* Starts zeroed. */
typedef struct hub_files {
  hub_file *items;
  size_t n, capacity;
} hub_files;

/* {"sha": ...} of GET /api/models/ORG/NAME/revision/REV. `name` begins the messages. */
tern_status listing_commit(const char *name, const char *text, size_t length, char out[REPO_COMMIT_ROOM],
                           tern_error *err);
/* Adds a page of GET /api/models/ORG/NAME/tree/COMMIT?recursive=true. Folders are left out. A path twice, a path that
 * leaves the repo, an impossible size or hash is an error. */
tern_status listing_add(const char *name, const char *text, size_t length, hub_files *files, tern_error *err);
/* No two files of one path, and no file where another has a folder. Sorts by path. */
tern_status listing_check(const char *name, hub_files *files, tern_error *err);
/* One file for every blob (files of the same bytes share one), by hash; mem_free, NULL: no memory. */
const hub_file **listing_blobs(const hub_files *files, size_t *n);
void listing_free(hub_files *files);

/* The address in a Link header that has rel="next" (mem_free); *url is NULL where there is none.
 * TERN_E_FORMAT: an address in it has no end. */
tern_status listing_next(const char *header, char **url, tern_error *err);

/* "bytes FIRST-LAST/TOTAL"; false: it is something else. */
bool listing_range(const char *header, uint64_t *first, uint64_t *last, uint64_t *total);

#endif
