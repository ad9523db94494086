/* whole_file.c - see whole_file.h. */
#include "cli/whole_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

static const char suffix[] = ".tern-XXXXXX"; /* behind the name, while a file is being written */

/* "DIR/" of a path, or "./"; mem_free. */
static char *folder_of(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? mem_strndup(path, (size_t)(slash + 1 - path)) : mem_strdup("./");
}

/* ---- links ---- */

/* What the link at `path` says, as a path that holds where `path` does; mem_free. NULL: it cannot be read. */
static char *read_link(const char *path)
{
  char said[PATH_MAX];
  buf out = {0};
  ssize_t n = readlink(path, said, sizeof said - 1);
  if (n <= 0)
    return NULL;
  said[n] = 0;
  char *folder = *said == '/' ? mem_strdup("") : folder_of(path);
  if (folder)
    buf_addf(&out, "%s%s", folder, said);
  mem_free(folder);
  return buf_take(&out);
}

/* Where a link to nothing leads to in the end: there the file comes to be. */
static char *follow(const char *path)
{
  enum { MOST_LINKS = 40 }; /* the kernel's own bound */
  struct stat st;
  char *at = mem_strdup(path);
  for (int i = 0; at && i <= MOST_LINKS; i++) {
    if (lstat(at, &st) != 0 || !S_ISLNK(st.st_mode))
      return at;
    char *next = read_link(at);
    mem_free(at);
    at = next;
  }
  mem_free(at);
  return NULL;
}

/* Were a link's own name replaced, /dev/stdout would become a file. *target: NULL where it is none. true: that place
 * has no name. */
static bool link_target(const char *path, char **target)
{
  struct stat st;
  char real[PATH_MAX];
  *target = NULL;
  if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode))
    return false;
  if (stat(path, &st) != 0)
    *target = follow(path);
  else if (realpath(path, real))
    *target = mem_strdup(real);
  return !*target;
}

/* ---- what killed writers left ---- */

static bool is_left(const char *name, const char *of)
{
  size_t n = strlen(of), fixed = strcspn(suffix, "X");
  return !strncmp(name, of, n) && !strncmp(name + n, suffix, fixed) && strlen(name + n) == sizeof suffix - 1;
}

/* A writer holds a lock on its file from before its first byte, which ends with it. Where there are no locks nothing
 * goes. */
static void remove_left(int folder, const char *name)
{
  struct stat st;
  int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0)
    return;
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size && st.st_uid == geteuid() &&
      flock(fd, LOCK_EX | LOCK_NB) == 0)
    unlinkat(folder, name, 0);
  close(fd);
}

/* Failures are nobody's concern. */
static void reclaim(const char *path)
{
  const char *slash = strrchr(path, '/');
  char *folder = folder_of(path);
  DIR *dir = folder ? opendir(folder) : NULL;
  for (const struct dirent *e; dir && (e = readdir(dir));)
    if (is_left(e->d_name, slash ? slash + 1 : path))
      remove_left(dirfd(dir), e->d_name);
  if (dir)
    closedir(dir);
  mem_free(folder);
}

/* ---- a file ---- */

tern_status whole_open(whole_file *f, const char *path, tern_error *err)
{
  struct stat st;
  buf name = {0};
  *f = (whole_file){.path = path};
  if (!*path) { /* found now, not when the result is given its name */
    errno = ENOENT;
    return err_errno(err, path, "create");
  }
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
    if (S_ISDIR(st.st_mode))
      return err_set(err, TERN_E_IO, "%s: is a directory", path);
    f->file = fopen(path, "we");
    return f->file ? TERN_OK : err_errno(err, path, "open");
  }
  if (link_target(path, &f->target)) { /* its directory cannot be named, or there is no memory: as it is */
    f->file = fopen(path, "we");
    return f->file ? TERN_OK : err_errno(err, path, "open");
  }
  const char *target = f->target ? f->target : path;
  buf_addf(&name, "%s%s", target, suffix);
  f->partial = buf_take(&name);
  if (!f->partial) {
    mem_free(f->target);
    f->target = NULL;
    return err_nomem(err, path);
  }
  reclaim(target);
  int fd = mkostemp(f->partial, O_CLOEXEC);
  if (fd >= 0)
    flock(fd, LOCK_EX | LOCK_NB);
  f->file = fd < 0 ? NULL : fdopen(fd, "w");
  if (f->file)
    return TERN_OK;
  tern_status status = err_errno(err, path, "create");
  if (fd >= 0) {
    close(fd);
    unlink(f->partial);
  }
  mem_free(f->partial);
  mem_free(f->target);
  f->partial = f->target = NULL;
  return status;
}

void whole_abandon(whole_file *f)
{
  if (f->file)
    fclose(f->file);
  if (f->partial)
    unlink(f->partial);
  mem_free(f->partial);
  mem_free(f->target);
  *f = (whole_file){0};
}

tern_status whole_finish(whole_file *f, tern_error *err)
{
  tern_status status = TERN_OK;
  if (!f->file)
    return TERN_OK;
  mode_t mask = umask(0);
  umask(mask);
  bool failed = fflush(f->file) != 0 || ferror(f->file);
  if (!failed && f->partial)
    failed = fchmod(fileno(f->file), f->secret ? 0600 : 0666 & ~mask) != 0;
  if (failed)
    status = err_errno(err, f->path, "write");
  if (fclose(f->file) != 0 && status == TERN_OK)
    status = err_errno(err, f->path, "write");
  f->file = NULL;
  if (status == TERN_OK && f->partial) {
    if (rename(f->partial, f->target ? f->target : f->path) != 0) {
      status = err_errno(err, f->path, "rename");
    } else {
      mem_free(f->partial);
      f->partial = NULL;
    }
  }
  return status;
}
