/* cache.c - see cache.h. */
#include "hub/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"

/* ---- folders ---- */

/* "A/B" with a format for B, mem_free; NULL: no memory. */
__attribute__((format(printf, 2, 3))) static char *join(const char *a, const char *format, ...)
{
  char tail[2 * REPO_PATH_MOST];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(tail, sizeof tail, format, args);
  va_end(args);
  return n < 0 || n >= (int)sizeof tail ? NULL : path_join(a, tail);
}

/* mkdir -p of folders that are the user's own affair: links are followed. */
static tern_status make_all(const char *path, tern_error *err)
{
  char *copy = mem_strdup(path);
  tern_status status = copy ? TERN_OK : err_nomem(err, path);
  for (char *at = copy ? copy + 1 : NULL; at && status == TERN_OK; at++) {
    if (*at && *at != '/')
      continue;
    char held = *at;
    *at = 0;
    if (mkdir(copy, 0777) != 0 && errno != EEXIST)
      status = err_errno(err, copy, "make directory");
    *at = held;
    if (!held)
      break;
  }
  mem_free(copy);
  return status;
}

/* One folder below the repo's own, which has to be a real one. */
static tern_status make_one(const char *path, tern_error *err)
{
  struct stat st;
  if (mkdir(path, 0777) == 0)
    return TERN_OK;
  if (errno != EEXIST)
    return err_errno(err, path, "make directory");
  if (lstat(path, &st) != 0)
    return err_errno(err, path, "look up");
  if (S_ISLNK(st.st_mode))
    return err_set(err, TERN_E_IO, "%s: is a symbolic link: nothing is written through it", path);
  return S_ISDIR(st.st_mode) ? TERN_OK : err_set(err, TERN_E_IO, "%s: is not a directory", path);
}

/* The folders between DIR and the last part of `path`, which begins with "DIR/". */
static tern_status make_between(const char *dir, char *path, tern_error *err)
{
  for (char *slash = path + strlen(dir); (slash = strchr(slash + 1, '/'));) {
    *slash = 0;
    tern_status status = make_one(path, err);
    *slash = '/';
    TRY(status);
  }
  return TERN_OK;
}

/* CACHE/.locks/REPO; the cache's own place may lead anywhere, what is in it may not. */
static tern_status make_locks(const cache_repo *r, tern_error *err)
{
  char *cache = mem_strndup(r->dir, (size_t)(strrchr(r->dir, '/') - r->dir));
  tern_status status = cache ? make_all(cache, err) : err_nomem(err, "path");
  if (status == TERN_OK)
    status = make_between(cache, r->locks, err);
  if (status == TERN_OK)
    status = make_one(r->locks, err);
  mem_free(cache);
  return status;
}

tern_status cache_repo_open(const char *cache, const char *id, cache_repo *out, tern_error *err)
{
  char *folder = repo_folder(id);
  *out = (cache_repo){0};
  if (folder) {
    out->dir = path_join(cache, folder);
    out->locks = join(cache, ".locks/%s", folder);
  }
  mem_free(folder);
  return out->dir && out->locks ? TERN_OK : err_nomem(err, "path");
}

void cache_repo_clear(cache_repo *r)
{
  mem_free(r->dir);
  mem_free(r->locks);
  *r = (cache_repo){0};
}

tern_status cache_repo_make(const cache_repo *r, tern_error *err)
{
  static const char *const folders[] = {"blobs", "snapshots", "refs"};
  TRY(make_all(r->dir, err));
  TRY(make_locks(r, err));
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    char *path = path_join(r->dir, folders[i]);
    tern_status status = path ? make_one(path, err) : err_nomem(err, "path");
    mem_free(path);
    TRY(status);
  }
  return TERN_OK;
}

uint64_t cache_room(const char *cache)
{
  struct statvfs fs;
  char path[4096];
  snprintf(path, sizeof path, "%s", cache);
  for (;;) { /* the cache may not be there yet; what is above it is of the same file system */
    if (statvfs(*path ? path : "/", &fs) == 0)
      return (uint64_t)fs.f_bavail * fs.f_frsize;
    char *slash = strrchr(path, '/');
    if (errno != ENOENT || !slash)
      return UINT64_MAX;
    *slash = 0;
  }
}

/* ---- blobs ---- */

char *cache_blob_path(const cache_repo *r, const char *etag, bool incomplete)
{
  return join(r->dir, "blobs/%s%s", etag, incomplete ? ".incomplete" : "");
}

/* The size of a regular file; -1: there is none. */
static int64_t size_of(char *path)
{
  struct stat st;
  int64_t size = path && stat(path, &st) == 0 && S_ISREG(st.st_mode) ? st.st_size : -1;
  mem_free(path);
  return size;
}

bool cache_has_blob(const cache_repo *r, const hub_file *f)
{
  return size_of(cache_blob_path(r, f->etag, false)) == (int64_t)f->size;
}

uint64_t cache_missing(const cache_repo *r, const hub_file *f)
{
  if (cache_has_blob(r, f))
    return 0;
  int64_t have = size_of(cache_blob_path(r, f->etag, true));
  return have > 0 && (uint64_t)have <= f->size ? f->size - (uint64_t)have : f->size;
}

/* ---- locks ---- */

/* `how`: LOCK_EX or LOCK_SH; `flags` O_CREAT or 0, where no file is as good as a free lock. */
static tern_status take_lock(const cache_repo *r, const char *name, int how, int flags, int *lock, tern_error *err)
{
  struct stat held, named;
  char *path = join(r->locks, "%s.lock", name);
  if (!path)
    return err_nomem(err, "path");
  *lock = CACHE_LOCK_HELD;
  tern_status status = TERN_OK;
  for (int tries = 0; tries < 100; tries++) {
    int fd = open(path, O_RDWR | flags | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (fd < 0 && errno == ENOENT && !flags) {
      *lock = CACHE_LOCK_FREE;
      break;
    }
    if (fd < 0) {
      status = err_errno(err, path, "open");
      break;
    }
    if (flock(fd, how | LOCK_NB) != 0) {
      int why = errno;
      close(fd);
      if (why != EWOULDBLOCK && why != EINTR)
        status = err_set(err, TERN_E_IO, "%s: lock: %s", path, strerror(why));
      break;
    }
    /* Some releases of filelock remove the file as they let go of it: then it is another that counts. */
    if (fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
        held.st_dev == named.st_dev) {
      *lock = fd;
      break;
    }
    close(fd);
  }
  mem_free(path);
  return status;
}

tern_status cache_lock(const cache_repo *r, const char *etag, int *lock, tern_error *err)
{
  return take_lock(r, etag, LOCK_EX, O_CREAT, lock, err);
}

tern_status cache_lock_repo(const cache_repo *r, bool alone, int *lock, tern_error *err)
{
  TRY(make_locks(r, err));
  return take_lock(r, "tern", alone ? LOCK_EX : LOCK_SH, O_CREAT, lock, err);
}

tern_status cache_look_at_lock(const cache_repo *r, const char *etag, int *lock, tern_error *err)
{
  TRY(take_lock(r, etag, LOCK_EX, 0, lock, err));
  if (*lock >= 0) {
    cache_unlock(*lock);
    *lock = CACHE_LOCK_FREE;
  }
  return TERN_OK;
}

void cache_unlock(int lock)
{
  if (lock >= 0)
    close(lock);
}

/* ---- snapshots ---- */

char *cache_snapshot_path(const cache_repo *r, const char *commit)
{
  return join(r->dir, "snapshots/%s", commit);
}

bool cache_is_whole(const cache_repo *r, const char *commit, const hub_files *files)
{
  for (size_t i = 0; i < files->n; i++) {
    const hub_file *f = &files->items[i];
    if (size_of(join(r->dir, "snapshots/%s/%s", commit, f->path)) != (int64_t)f->size || !cache_has_blob(r, f))
      return false;
  }
  return true;
}

/* SNAPSHOT/PATH -> ../../blobs/ETAG, one "../" more for each folder in PATH. An older link gives way, by rename. */
static tern_status link_one(const char *snapshot, const hub_file *f, tern_error *err)
{
  buf target = {0};
  char *path = path_join(snapshot, f->path), held[LISTING_ETAG_ROOM + 2 * REPO_PATH_MOST];
  buf_adds(&target, "../../");
  for (const char *at = f->path; (at = strchr(at, '/')); at++)
    buf_adds(&target, "../");
  buf_addf(&target, "blobs/%s", f->etag);
  tern_status status = path && !target.failed ? make_between(snapshot, path, err) : err_nomem(err, "path");
  if (status == TERN_OK && symlink(target.data, path) != 0) {
    ssize_t n = errno == EEXIST ? readlink(path, held, sizeof held) : -1;
    if (n != (ssize_t)target.length || memcmp(held, target.data, target.length) != 0) {
      buf fresh = {0};
      buf_addf(&fresh, "%s.%ld.tern", path, (long)getpid());
      if (fresh.failed)
        status = err_nomem(err, "path");
      else if ((unlink(fresh.data) != 0 && errno != ENOENT) || symlink(target.data, fresh.data) != 0 ||
               rename(fresh.data, path) != 0) {
        status = err_errno(err, path, "link");
        unlink(fresh.data);
      }
      buf_free(&fresh);
    }
  }
  buf_free(&target);
  mem_free(path);
  return status;
}

/* A repo is a model to its readers once config.json is there: it comes last. */
static tern_status link_all(const char *snapshot, const hub_files *files, tern_error *err)
{
  for (int last = 0; last < 2; last++)
    for (size_t i = 0; i < files->n; i++)
      if ((strcmp(files->items[i].path, "config.json") == 0) == last)
        TRY(link_one(snapshot, &files->items[i], err));
  return TERN_OK;
}

/* Removes a folder of links. */
static void remove_links(const char *dir, const hub_files *files)
{
  for (size_t i = 0; i < files->n; i++) {
    char *path = path_join(dir, files->items[i].path);
    for (char *slash; path && strlen(path) > strlen(dir); *slash = 0) {
      if (unlink(path) != 0)
        rmdir(path);
      slash = strrchr(path, '/');
    }
    mem_free(path);
  }
  rmdir(dir);
}

/* "DIR/.KIND-NUMBERS": a name of our own, also beside a process that has our number in another container. */
static char *fresh_name(const cache_repo *r, const char *kind)
{
  uint32_t drawn = 0;
  if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) < 0)
    drawn = (uint32_t)time(NULL);
  return join(r->dir, ".%s-%ld-%08x", kind, (long)getpid(), (unsigned)drawn);
}

tern_status cache_link(const cache_repo *r, const char *commit, const hub_files *files, tern_error *err)
{
  char *final = cache_snapshot_path(r, commit), *fresh = fresh_name(r, "snapshot");
  tern_status status = final && fresh ? TERN_OK : err_nomem(err, "path");
  if (status == TERN_OK && !file_is_directory(final)) {
    status = make_one(fresh, err);
    if (status == TERN_OK)
      status = link_all(fresh, files, err);
    if (status == TERN_OK && rename(fresh, final) != 0 && errno != EEXIST && errno != ENOTEMPTY)
      status = err_errno(err, final, "make");
    remove_links(fresh, files); /* nothing, where it was renamed */
  }
  if (status == TERN_OK) /* what was there already, or what another process was quicker with */
    status = make_one(final, err);
  if (status == TERN_OK)
    status = link_all(final, files, err);
  mem_free(final);
  mem_free(fresh);
  return status;
}

/* ---- refs ---- */

tern_status cache_check_ref(const cache_repo *r, const char *revision, tern_error *err)
{
  struct stat st;
  char *path = join(r->dir, "refs/%s", revision);
  if (!path)
    return err_nomem(err, "path");
  bool taken = lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
  for (char *slash = path + strlen(r->dir); !taken && (slash = strchr(slash + 1, '/')); *slash = '/') {
    *slash = 0;
    if (lstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
      taken = true;
      break;
    }
  }
  tern_status status = TERN_OK;
  if (taken)
    status =
        err_set(err, TERN_E_IO,
                "%s: another ref of this repo is in the way of \"%s\": pull that by its commit, or remove the other "
                "(tern rm)",
                path, revision);
  mem_free(path);
  return status;
}

tern_status cache_write_ref(const cache_repo *r, const char *revision, const char *commit, tern_error *err)
{
  char held[REPO_COMMIT_ROOM];
  if (!strcmp(revision, commit) || (cache_read_ref(r, revision, held) && !strcmp(held, commit)))
    return TERN_OK;
  char *path = join(r->dir, "refs/%s", revision), *fresh = fresh_name(r, "ref");
  tern_status status = path && fresh ? make_between(r->dir, path, err) : err_nomem(err, "path");
  FILE *f = status == TERN_OK ? fopen(fresh, "we") : NULL;
  if (status == TERN_OK) {
    bool written = f && fputs(commit, f) >= 0;
    written = f && fclose(f) == 0 && written;
    if (!written || rename(fresh, path) != 0) {
      status = err_errno(err, path, "write");
      unlink(fresh);
    }
  }
  mem_free(path);
  mem_free(fresh);
  return status;
}

bool cache_read_ref(const cache_repo *r, const char *revision, char commit[REPO_COMMIT_ROOM])
{
  char *path = join(r->dir, "refs/%s", revision), *text = NULL;
  size_t size;
  bool read = path && file_read(path, 120, &text, &size, NULL) == TERN_OK;
  mem_free(path);
  if (!read)
    return false;
  text[strcspn(text, " \t\r\n")] = 0;
  bool good = repo_is_commit(text);
  if (good)
    snprintf(commit, REPO_COMMIT_ROOM, "%s", text);
  mem_free(text);
  return good;
}
