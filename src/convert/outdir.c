/* outdir.c - see outdir.h. Files and the directory are synced before the rename and the directory above after it, so
 * that a crash leaves the whole under its name or nothing. (model.safetensors is synced by its writer.)
 *
 * What a killed process left is told from what a living one fills by a lock on the directory (flock), which ends with
 * its owner. Whoever holds the lock and finds the name still leading to the locked directory may remove it: its owner
 * is dead, or has made it and not locked it yet; an owner that finds its own directory locked or gone makes another.
 * Where a file system has no such locks nothing is ever taken for left over. */
#include "convert/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/path.h"

/* 1: an empty directory, 0: nothing there, -1: something else (errno 0) or unreadable. */
static int empty_directory(const char *path)
{
  struct stat st;
  errno = 0;
  if (lstat(path, &st))
    return errno == ENOENT ? 0 : -1;
  DIR *d = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
  if (!d)
    return -1;
  int entries = 0;
  for (const struct dirent *e; (e = readdir(d));)
    entries += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
  closedir(d);
  errno = 0;
  return entries ? -1 : 1;
}

/* Where the last part of a path begins. */
static size_t last_part(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

/* mem_free; NULL: no memory. */
static char *directory_above(const char *path)
{
  size_t n = last_part(path);
  return n ? mem_strndup(path, n) : mem_strdup(".");
}

/* ---- the lock ---- */

/* Opens and locks a directory, by a name in the directory `at`. -1: it is locked, or gone, or another by now; *absent:
 * or it cannot be locked here. */
static int lock_directory(int at, const char *name, bool *absent)
{
  struct stat held, named;
  int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  *absent = fd < 0 && errno != ENOENT;
  if (fd < 0)
    return -1;
  bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  *absent = !locked && errno != EWOULDBLOCK;
  if (locked && fstat(fd, &held) == 0 && fstatat(at, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
      held.st_ino == named.st_ino && held.st_dev == named.st_dev)
    return fd;
  close(fd);
  return -1;
}

/* Removes the files in a directory; no directories, which none of ours holds. */
static void remove_files(int fd)
{
  int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  DIR *d = copy < 0 ? NULL : fdopendir(copy);
  if (!d && copy >= 0)
    close(copy);
  for (const struct dirent *e; d && (e = readdir(d));)
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      unlinkat(fd, e->d_name, 0);
  if (d)
    closedir(d);
}

/* ".NAME.part-NUMBER-NUMBER" */
static bool is_temporary_name(const char *name)
{
  static const char digits[] = "0123456789";
  const char *at = NULL;
  for (const char *next = name; *name == '.' && (next = strstr(next, ".part-")); next++)
    at = next + strlen(".part-");
  size_t n = at ? strspn(at, digits) : 0;
  return n && at[n] == '-' && at[n + 1] && strspn(at + n + 1, digits) == strlen(at + n + 1);
}

/* Removes what killed processes left in a directory. Nobody waits for that, so failures are nobody's concern. */
static void reclaim(const char *above)
{
  DIR *d = opendir(above);
  for (const struct dirent *e; d && (e = readdir(d));) {
    bool absent = false;
    int fd = is_temporary_name(e->d_name) ? lock_directory(dirfd(d), e->d_name, &absent) : -1;
    if (fd < 0)
      continue;
    remove_files(fd);
    unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
    close(fd);
  }
  if (d)
    closedir(d);
}

bool outdir_is_left(const char *dir, const char *name)
{
  enum { OLD_SECONDS = 3600 };
  struct stat st;
  bool absent;
  if (!is_temporary_name(name))
    return false;
  int above = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int fd = above < 0 ? -1 : lock_directory(above, name, &absent);
  bool left = fd >= 0 && fstat(fd, &st) == 0 && time(NULL) - st.st_mtime >= OLD_SECONDS;
  if (fd >= 0)
    close(fd);
  if (above >= 0)
    close(above);
  return left;
}

/* ---- begin ---- */

/* mkdtemp would make it private; this one gets the usual mode under the user's umask. The name begins with a dot: who
 * lists the folder meanwhile, or after a crash, does not take it for a model. */
static tern_status make_temporary(outdir *o, tern_error *err)
{
  size_t above = last_part(o->final);
  for (unsigned attempt = 0; attempt < 1000; attempt++) {
    buf name = {0};
    buf_add(&name, o->final, above);
    buf_addf(&name, ".%s.part-%ld-%u", o->final + above, (long)getpid(), attempt);
    mem_free(o->temporary);
    o->temporary = buf_take(&name);
    buf_free(&name);
    if (!o->temporary)
      return err_nomem(err, o->final);
    if (mkdir(o->temporary, 0777) == 0) {
      bool absent;
      o->lock = lock_directory(AT_FDCWD, o->temporary, &absent);
      if (o->lock >= 0 || absent)
        return TERN_OK;
      continue; /* taken for left over, so that it is being removed */
    }
    if (errno != EEXIST)
      break;
  }
  tern_status status = err_errno(err, o->temporary, "create directory");
  mem_free(o->temporary); /* not ours to remove */
  o->temporary = NULL;
  return status;
}

tern_status outdir_begin(const char *path, outdir *out, tern_error *err)
{
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/')
    n--;
  if (n == 0)
    return err_set(err, TERN_E_USAGE, "the output directory has no name");
  outdir o = {.final = mem_strndup(path, n), .lock = -1};
  if (!o.final)
    return err_nomem(err, path);
  tern_status status = TERN_OK;
  if (empty_directory(o.final) < 0)
    status = errno ? err_errno(err, o.final, "open")
                   : err_set(err, TERN_E_IO, "%s: exists and is not an empty directory", o.final);
  if (status == TERN_OK) {
    char *above = directory_above(o.final);
    if (above)
      reclaim(above);
    mem_free(above);
    status = make_temporary(&o, err);
  }
  if (status == TERN_OK)
    *out = o;
  else
    outdir_abandon(&o);
  return status;
}

char *outdir_file(const outdir *o, const char *name)
{
  return path_join(o->temporary, name);
}

static tern_status write_file(const char *path, const char *data, size_t size, tern_error *err)
{
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0)
    return err_errno(err, path, "create");
  tern_status status = TERN_OK;
  for (size_t done = 0; done < size && status == TERN_OK;) {
    ssize_t n = write(fd, data + done, size - done);
    if (n >= 0)
      done += (size_t)n;
    else if (errno != EINTR)
      status = err_errno(err, path, "write");
  }
  if (status == TERN_OK && fsync(fd) && errno != EINVAL)
    status = err_errno(err, path, "write");
  if (close(fd) && status == TERN_OK)
    status = err_errno(err, path, "write");
  return status;
}

tern_status outdir_write(const outdir *o, const char *name, const char *data, size_t size, tern_error *err)
{
  char *path = outdir_file(o, name);
  if (!path)
    return err_nomem(err, name);
  tern_status status = write_file(path, data, size, err);
  mem_free(path);
  return status;
}

/* The entries of a directory on disk. File systems that cannot sync one have nothing to sync. */
static tern_status sync_directory(const char *path, tern_error *err)
{
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return err_errno(err, path, "open");
  bool failed = fsync(fd) && errno != EINVAL && errno != ENOTSUP;
  tern_status status = failed ? err_errno(err, path, "sync") : TERN_OK;
  close(fd);
  return status;
}

/* The name is given by now: a directory above that may not be read, or cannot be synced, takes nothing back. */
static void sync_above(const char *final)
{
  char *above = directory_above(final);
  if (above)
    sync_directory(above, NULL);
  mem_free(above);
}

tern_status outdir_commit(outdir *o, tern_error *err)
{
  TRY(sync_directory(o->temporary, err));
  /* Onto an empty directory, or onto nothing; the system refuses anything else that came up meanwhile. */
  if (rename(o->temporary, o->final))
    return err_errno(err, o->final, "rename into place");
  sync_above(o->final);
  mem_free(o->temporary);
  o->temporary = NULL;
  outdir_abandon(o);
  return TERN_OK;
}

void outdir_abandon(outdir *o)
{
  if (o->temporary) {
    int fd = open(o->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
      remove_files(fd);
      close(fd);
    }
    rmdir(o->temporary);
  }
  if (o->final && o->lock >= 0)
    close(o->lock);
  mem_free(o->temporary);
  mem_free(o->final);
  *o = (outdir){0};
}
