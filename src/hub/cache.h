/* cache.h - a repo in the Hugging Face cache, written as huggingface_hub writes it:
 *
 *   CACHE/models--org--name/blobs/ETAG                  the bytes, once; ETAG.incomplete while they come
 *   CACHE/models--org--name/snapshots/COMMIT/PATH       links to ../../blobs/ETAG
 *   CACHE/models--org--name/refs/REVISION               the commit that a branch or tag stood at
 *   CACHE/.locks/models--org--name/ETAG.lock            held (flock) by who writes that blob
 *   CACHE/.locks/models--org--name/tern.lock            shared by tern's pulls, held alone by rm and gc
 *
 * A blob has its name once its bytes are checked, by rename. A snapshot that was not there appears whole, by rename; to
 * one that was there (another program's, with other files) links are added, config.json last. Below the repo's folder
 * no symbolic link to a folder is followed for writing, so nothing is written outside the cache.
 */
#ifndef TERN_HUB_CACHE_H
#define TERN_HUB_CACHE_H

#include "hub/listing.h"

typedef struct cache_repo {
  char *dir;   /* CACHE/models--org--name */
  char *locks; /* CACHE/.locks/models--org--name */
} cache_repo;

/* Names the folders, makes none. Clear in any case. */
tern_status cache_repo_open(const char *cache, const char *id, cache_repo *out, tern_error *err);
void cache_repo_clear(cache_repo *r);
/* Makes the folders that a download needs. */
tern_status cache_repo_make(const cache_repo *r, tern_error *err);

/* "DIR/blobs/ETAG" and, `incomplete`, with that ending. mem_free; NULL: no memory. */
char *cache_blob_path(const cache_repo *r, const char *etag, bool incomplete);
/* Whether the blob is there with so many bytes. */
bool cache_has_blob(const cache_repo *r, const hub_file *f);
/* Bytes of it that are still to come: all, or those after what lies in .incomplete. */
uint64_t cache_missing(const cache_repo *r, const hub_file *f);

enum { CACHE_LOCK_HELD = -1, CACHE_LOCK_FREE = -2 };

/* Tries to take the lock of a blob: *lock is a descriptor, or CACHE_LOCK_HELD where someone else has it. */
tern_status cache_lock(const cache_repo *r, const char *etag, int *lock, tern_error *err);
/* The same of the whole repo, tern's own: a pull shares it, what removes has it alone. */
tern_status cache_lock_repo(const cache_repo *r, bool alone, int *lock, tern_error *err);
/* CACHE_LOCK_HELD or CACHE_LOCK_FREE; makes no file. */
tern_status cache_look_at_lock(const cache_repo *r, const char *etag, int *lock, tern_error *err);
void cache_unlock(int lock); /* what is no descriptor is fine */

/* Whether every file of the list has its link and its blob. */
bool cache_is_whole(const cache_repo *r, const char *commit, const hub_files *files);
/* Makes the snapshot of files whose blobs are all there. */
tern_status cache_link(const cache_repo *r, const char *commit, const hub_files *files, tern_error *err);
/* Whether refs/REVISION can be written: "v1" and "v1/x" cannot both be refs, though of two commits both can be here.
 * To be asked before anything is downloaded. */
tern_status cache_check_ref(const cache_repo *r, const char *revision, tern_error *err);
/* refs/REVISION, by rename; nothing where the revision is the commit itself. */
tern_status cache_write_ref(const cache_repo *r, const char *revision, const char *commit, tern_error *err);
/* The commit that a revision means here; false: there is none. */
bool cache_read_ref(const cache_repo *r, const char *revision, char commit[REPO_COMMIT_ROOM]);
/* "DIR/snapshots/COMMIT", mem_free; NULL: no memory. */
char *cache_snapshot_path(const cache_repo *r, const char *commit);

/* Bytes that the file system of `cache` has for us; UINT64_MAX where it does not say. */
uint64_t cache_room(const char *cache);

#endif
