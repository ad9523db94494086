/* whole_file.c - see whole_file.h. */
#include "cli/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

/* Where a link leads, if it leads to something. Were its own name replaced, /dev/stdout would become a file. true: that
 * place has no name. */
static bool link_target(const char *path, char **target)
{
  struct stat st;
  char real[PATH_MAX];
  *target = NULL;
  if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode) || stat(path, &st) != 0)
    return false;
  if (realpath(path, real))
    *target = mem_strdup(real);
  return !*target;
}

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
  buf_addf(&name, "%s.XXXXXX", f->target ? f->target : path);
  f->partial = buf_take(&name);
  if (!f->partial) {
    mem_free(f->target);
    f->target = NULL;
    return err_nomem(err, path);
  }
  int fd = mkostemp(f->partial, O_CLOEXEC);
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
