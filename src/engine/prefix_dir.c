/* prefix_dir.c - see prefix_dir.h. */
#include "engine/prefix_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/path.h"
#include "engine/prefix_file.h"

enum { NAME_DIGITS = 16 };

static const char suffix[] = ".prefix", aside[] = ".aside", begun[] = ".part-";

__attribute__((format(printf, 2, 3))) static void tell(const prefix_dir *d, const char *format, ...)
{
  char line[1200];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof line, format, list);
  va_end(list);
  if (d->tell)
    d->tell(d->user, line);
}

/* ---- whose it is ---- */

static tern_status open_folder(const prefix_dir *d, int *fd, tern_error *err)
{
  *fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*fd < 0)
    return errno == ENOTDIR ? err_set(err, TERN_E_IO, "%s: not a directory", d->path) : err_errno(err, d->path, "open");
  tern_status status = prefix_check_owner(*fd, d->path, err);
  if (status != TERN_OK)
    close(*fd);
  return status;
}

tern_status prefix_dir_check(const prefix_dir *d, tern_error *err)
{
  int fd;
  if (mkdir(d->path, 0700) && errno != EEXIST)
    return err_errno(err, d->path, "make directory");
  TRY(open_folder(d, &fd, err));
  close(fd);
  return access(d->path, R_OK | W_OK | X_OK) ? err_errno(err, d->path, "use") : TERN_OK;
}

/* ---- what is there ---- */

typedef struct found {
  char *name;
  size_t bytes;
  struct timespec used;
} found;

typedef struct listing {
  found *at; /* used longest ago first */
  size_t n, capacity;
} listing;

static bool ends_with(const char *name, const char *end)
{
  size_t n = strlen(name), m = strlen(end);
  return n >= m && !strcmp(name + n - m, end);
}

static int by_use(const void *a, const void *b)
{
  const struct timespec *x = &((const found *)a)->used, *y = &((const found *)b)->used;
  if (x->tv_sec != y->tv_sec)
    return x->tv_sec < y->tv_sec ? -1 : 1;
  return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

static void listing_free(listing *l)
{
  for (size_t i = 0; i < l->n; i++)
    mem_free(l->at[i].name);
  mem_free(l->at);
}

/* The files of ours, of all models; others in the folder are nobody's business here. */
static listing list(const prefix_dir *d)
{
  listing l = {0};
  DIR *dir = opendir(d->path);
  struct stat st;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    if (!ends_with(e->d_name, suffix) && !ends_with(e->d_name, aside))
      continue;
    if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
      continue;
    char *name = mem_strdup(e->d_name);
    if (!name || !mem_grow(&l.at, &l.capacity, l.n + 1, sizeof *l.at)) {
      mem_free(name);
      break;
    }
    l.at[l.n++] = (found){name, (size_t)st.st_size, st.st_mtim};
  }
  if (dir)
    closedir(dir);
  if (l.n)
    qsort(l.at, l.n, sizeof *l.at, by_use);
  return l;
}

/* ---- loading ---- */

static void set_aside(const prefix_dir *d, const char *name, const char *why)
{
  char *from = path_join(d->path, name), to[300];
  snprintf(to, sizeof to, "%s%s", name, aside);
  char *there = path_join(d->path, to);
  bool done = from && there && !rename(from, there);
  tell(d, "%s/%s: %s: %s", d->path, name, why, done ? "set aside" : "not used");
  mem_free(from);
  mem_free(there);
}

static tern_status load_one(const char *path, model *m, const char *key, prefixes *p, tern_error *err)
{
  prefix_loaded l;
  tern_status status = prefix_file_open(path, m, key, &l, err);
  if (status == TERN_OK)
    prefixes_keep(p, &l.of);
  prefix_file_close(&l);
  return status;
}

static bool is_of(const char *name, const char *key)
{
  return !strncmp(name, key, NAME_DIGITS) && name[NAME_DIGITS] == '-' && ends_with(name, suffix);
}

int prefix_dir_load(const prefix_dir *d, model *m, prefixes *p)
{
  char key[SHA256_HEX];
  tern_error err = {0};
  if (prefix_file_key(m, key, &err) != TERN_OK) {
    tell(d, "%s: not used: %s", d->path, err.text);
    return 0;
  }
  listing l = list(d);
  /* The latest that fit, in the order in which they were used. */
  size_t first = l.n, room = prefixes_most_bytes(p);
  int left = prefixes_most(p);
  for (size_t i = l.n; i-- && left > 0;) {
    if (!is_of(l.at[i].name, key))
      continue;
    if (l.at[i].bytes > room)
      break;
    room -= l.at[i].bytes;
    left--;
    first = i;
  }
  for (size_t i = first; i < l.n; i++) {
    if (!is_of(l.at[i].name, key))
      continue;
    char *path = path_join(d->path, l.at[i].name);
    tern_status status = path ? load_one(path, m, key, p, &err) : err_nomem(&err, "path");
    if (status == TERN_E_FORMAT)
      set_aside(d, l.at[i].name, err.text);
    else if (status != TERN_OK)
      tell(d, "%s/%s: not used: %s", d->path, l.at[i].name, err.text);
    mem_free(path);
  }
  listing_free(&l);
  return prefixes_count(p);
}

/* ---- saving ---- */

/* Opens the folder and holds its lock; a file system that has none keeps nobody out. */
static tern_status lock_folder(const prefix_dir *d, int *fd, tern_error *err)
{
  TRY(open_folder(d, fd, err));
  while (flock(*fd, LOCK_EX) && errno == EINTR)
    ;
  return TERN_OK;
}

/* What killed processes left half-written; whoever writes holds the lock. */
static void remove_begun(int folder)
{
  int fd = dup(folder);
  DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
  if (!dir && fd >= 0)
    close(fd);
  for (struct dirent *e; dir && (e = readdir(dir));)
    if (!strncmp(e->d_name, begun, sizeof begun - 1))
      unlinkat(folder, e->d_name, 0);
  if (dir)
    closedir(dir);
}

static void name_of(const char *key, const prefix_of *of, char out[64])
{
  char all[2 * SHA256_HEX + 40], ids[SHA256_HEX], content[SHA256_HEX];
  sha256_hex(of->prompt, (size_t)of->length * sizeof *of->prompt, ids);
  snprintf(all, sizeof all, "%s %s %lld %d", key, ids, (long long)of->split, of->snapshot != NULL);
  sha256_hex(all, strlen(all), content);
  snprintf(out, 64, "%.*s-%.*s%s", NAME_DIGITS, key, NAME_DIGITS, content, suffix);
}

static tern_status write_one(int folder, const char *name, const model *m, const char *key, const prefix_of *of,
                             tern_error *err)
{
  char part[96];
  snprintf(part, sizeof part, "%s%s", begun, name);
  int fd = openat(folder, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return err_errno(err, part, "write");
  tern_status status = prefix_file_write(fd, part, m, key, of, err);
  if (status == TERN_OK && fsync(fd) && errno != EINVAL)
    status = err_errno(err, part, "write");
  if (close(fd) && status == TERN_OK)
    status = err_errno(err, part, "write");
  if (status == TERN_OK && renameat(folder, part, folder, name))
    status = err_errno(err, name, "rename into place");
  if (status != TERN_OK)
    unlinkat(folder, part, 0);
  return status;
}

/* Removes the oldest until `more` bytes fit. False: they never do, and nothing goes for them. */
static bool make_room(const prefix_dir *d, int folder, size_t more)
{
  listing l = list(d);
  size_t sum = 0;
  for (size_t i = 0; i < l.n; i++)
    sum += l.at[i].bytes;
  for (size_t i = 0; i < l.n && more <= d->most_bytes && sum > d->most_bytes - more; i++)
    if (!unlinkat(folder, l.at[i].name, 0))
      sum -= l.at[i].bytes;
  listing_free(&l);
  return more <= d->most_bytes && sum <= d->most_bytes - more;
}

/* Used longest ago first, so that where room ends the latest are there. */
static void save_all(const prefix_dir *d, int folder, model *m, const char *key, const prefixes *p)
{
  for (int i = 0; i < prefixes_count(p); i++) {
    char name[64];
    tern_error err = {0};
    prefix_of of = prefixes_at(p, i);
    name_of(key, &of, name);
    if (!utimensat(folder, name, NULL, AT_SYMLINK_NOFOLLOW)) /* the same ids have the same bits */
      continue;
    size_t bytes = prefix_file_bytes(m, &of);
    if (!make_room(d, folder, bytes)) {
      tell(d, "%s: %zu MB of a conversation are not kept: all files there may have %zu MB", d->path, bytes >> 20,
           d->most_bytes >> 20);
      continue;
    }
    if (write_one(folder, name, m, key, &of, &err) != TERN_OK) {
      tell(d, "%s: not saved: %s", d->path, err.text);
      break;
    }
  }
  make_room(d, folder, 0); /* what was there may be more than now is wanted */
  fsync(folder);
}

void prefix_dir_save(const prefix_dir *d, model *m, const prefixes *p)
{
  char key[SHA256_HEX];
  tern_error err = {0};
  int folder = -1;
  tern_status status = lock_folder(d, &folder, &err);
  bool locked = status == TERN_OK;
  if (status == TERN_OK)
    status = prefix_file_key(m, key, &err);
  if (status == TERN_OK) {
    remove_begun(folder);
    save_all(d, folder, m, key, p);
  } else {
    tell(d, "%s: not saved: %s", d->path, err.text);
  }
  if (locked)
    close(folder);
}
