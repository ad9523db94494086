/* outdir.c - see outdir.h. Files are synced before the rename, so that a crash cannot leave a named but empty one. */
#include "convert/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"

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

/* mkdtemp would make it private; this one gets the usual mode under the user's umask. */
static tern_status make_temporary(outdir *o, tern_error *err)
{
  for (unsigned attempt = 0; attempt < 1000; attempt++) {
    buf name = {0};
    buf_addf(&name, "%s.part-%ld-%u", o->final, (long)getpid(), attempt);
    mem_free(o->temporary);
    o->temporary = buf_take(&name);
    buf_free(&name);
    if (!o->temporary)
      return err_nomem(err, o->final);
    if (mkdir(o->temporary, 0777) == 0)
      return TERN_OK;
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
  outdir o = {.final = mem_strndup(path, n)};
  if (!o.final)
    return err_nomem(err, path);
  tern_status status = TERN_OK;
  if (empty_directory(o.final) < 0)
    status = errno ? err_errno(err, o.final, "open")
                   : err_set(err, TERN_E_IO, "%s: exists and is not an empty directory", o.final);
  if (status == TERN_OK)
    status = make_temporary(&o, err);
  if (status == TERN_OK)
    *out = o;
  else
    outdir_abandon(&o);
  return status;
}

char *outdir_file(const outdir *o, const char *name)
{
  buf path = {0};
  buf_addf(&path, "%s/%s", o->temporary, name);
  char *out = buf_take(&path);
  buf_free(&path);
  return out;
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

tern_status outdir_commit(outdir *o, tern_error *err)
{
  /* Onto an empty directory, or onto nothing; the system refuses anything else that came up meanwhile. */
  if (rename(o->temporary, o->final))
    return err_errno(err, o->final, "rename into place");
  mem_free(o->temporary);
  o->temporary = NULL;
  outdir_abandon(o);
  return TERN_OK;
}

void outdir_abandon(outdir *o)
{
  if (o->temporary) {
    DIR *d = opendir(o->temporary);
    for (const struct dirent *e; d && (e = readdir(d));)
      if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
        unlinkat(dirfd(d), e->d_name, 0);
    if (d)
      closedir(d);
    rmdir(o->temporary);
  }
  mem_free(o->temporary);
  mem_free(o->final);
  *o = (outdir){0};
}
