/* prepared_sources.c - whose prepared weights are (prepared.h): the notes beside them, and what follows from these.
 *
 * Whoever makes or opens a file notes its own directory there, so one that was copied or moved since is found. From
 * what is not there nothing follows: a folder made before there were notes has none, notes that are full may lack some,
 * and a disk that is not mounted hides what is on it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "model/prepared.h"

/* Bytes. One more path is noted while that is sure to fit. */
enum { MOST_SOURCES = 1 << 20, FULL = MOST_SOURCES - PATH_MAX - 2 };

tern_status prepared_read_head(const char *path, prepared_head *out, tern_error *err)
{
  FILE *f = fopen(path, "re");
  if (!f)
    return err_errno(err, path, "open");
  bool read = fread(out, sizeof *out, 1, f) == 1 && !memcmp(out->magic, "TERNPREP", sizeof out->magic);
  fclose(f);
  return read ? TERN_OK : err_set(err, TERN_E_FORMAT, "%s: not a file of prepared weights", path);
}

bool prepared_is_held(const char *path)
{
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);
  if (fd >= 0)
    close(fd);
  return held;
}

/* ---- reading ---- */

tern_status prepared_sources(const char *folder, char **paths, size_t *n, bool *known, tern_error *err)
{
  mode_t type;
  char *path = path_join(folder, "sources");
  *paths = NULL;
  *n = 0;
  tern_status status = path ? path_type(path, &type, err) : err_nomem(err, "path");
  if (status == TERN_OK && type)
    status = file_read(path, MOST_SOURCES, paths, n, err);
  *known = status == TERN_OK && *n && *n <= FULL;
  mem_free(path);
  return status;
}

/* ---- file systems ---- */

/* Of "PATH" cut at `n`: whether another file system begins there. */
static bool is_mount(const char *path, size_t n)
{
  struct stat here, above;
  buf name = {0};
  buf_addf(&name, "%.*s/..", (int)n, path);
  bool is = !name.failed && stat(name.data, &above) == 0;
  if (is) {
    name.data[n] = 0;
    is = stat(name.data, &here) == 0 && here.st_dev != above.st_dev;
  }
  buf_free(&name);
  return is;
}

bool prepared_source_is_gone(const char *path)
{
  struct stat st;
  const char *mark = strstr(path, "//");
  bool gone = stat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
  return gone && (!mark || mark == path || is_mount(path, (size_t)(mark - path)));
}

/* "/mnt/disk//models/one" of a path without links; mem_free. */
static char *marked(const char *full)
{
  buf out = {0};
  size_t at = strlen(full);
  while (at > 1 && !is_mount(full, at)) /* up to the root, which has no mark */
    for (at--; at > 0 && full[at] != '/'; at--)
      ;
  buf_addf(&out, "%.*s%s%s", (int)at, full, at <= 1 ? "" : full[at] ? "/" : "//", full + at);
  return buf_take(&out);
}

/* ---- noting ---- */

static bool is_noted(const char *paths, size_t n, const char *path)
{
  for (size_t at = 0; at < n; at += strlen(paths + at) + 1)
    if (!strcmp(paths + at, path))
      return true;
  return false;
}

/* The folder that the checkpoint's files are in, marked; mem_free. */
static char *source_of(const ckpt *c)
{
  const char *shard = ckpt_file_at(c, 0)->path, *slash = strrchr(shard, '/');
  char *dir = slash ? mem_strndup(shard, (size_t)(slash - shard)) : mem_strdup(".");
  char *full = dir ? realpath(*dir ? dir : "/", NULL) : NULL;
  char *path = full ? marked(full) : NULL;
  free(full); /* realpath's own allocation */
  mem_free(dir);
  return path;
}

/* Whoever adds holds a lock on the notes: what was read is what they are. */
static void add_note(const char *place, const char *folder, const char *source)
{
  char *paths = NULL;
  size_t n, all = strlen(source) + 1;
  bool known;
  struct stat st;
  int fd = open(place, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
  if (fd < 0)
    return;
  flock(fd, LOCK_EX); /* where there are no locks a path may stand there twice */
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && prepared_sources(folder, &paths, &n, &known, NULL) == TERN_OK &&
      n <= FULL && !is_noted(paths, n, source) && write(fd, source, all) != (ssize_t)all && ftruncate(fd, (off_t)n))
    unlink(place); /* half a path is worse than none */
  mem_free(paths);
  close(fd);
}

void prepared_note(const prepared_place *place, const ckpt *c)
{
  const char *slash = strrchr(place->path, '/');
  char *folder = slash ? mem_strndup(place->path, (size_t)(slash - place->path)) : NULL;
  char *notes = folder ? path_join(folder, "sources") : NULL, *source = notes ? source_of(c) : NULL, *paths = NULL;
  size_t n;
  bool known;
  if (source && prepared_sources(folder, &paths, &n, &known, NULL) == TERN_OK && n <= FULL &&
      !is_noted(paths, n, source))
    add_note(notes, folder, source);
  mem_free(paths);
  mem_free(source);
  mem_free(notes);
  mem_free(folder);
}
