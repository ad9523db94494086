/* prepared_make.c - making a file of prepared weights (prepared.h).
 *
 * A lock on DIR (flock, which ends with its owner) lets one process at a time make files there. So whoever holds it may
 * remove whatever half-made files are under DIR: nobody is writing them. Where a file system has no such locks none are
 * removed, and names with the process's number keep writers apart. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/path.h"
#include "model/prepared.h"

static const char part_prefix[] = ".weights.part-";

typedef struct maker {
  const prepared_place *place;
  const ckpt *c;
  const ops_layout *layout;
  const prepared_watch *watch;
  prepared_head head;
  prepared_entry *entries;
  const ops_weight **weights; /* of the entries */
  char *folder, *part;        /* DIR/IDENTITY, and the file's name while it is being made */
  uint8_t *piece;
  size_t piece_bytes, done;
  int fd;
} maker;

static bool cancelled(const maker *m)
{
  return m->watch && m->watch->cancel && *m->watch->cancel;
}

static tern_status check_cancel(const maker *m, tern_error *err)
{
  return cancelled(m) ? err_set(err, TERN_E_CANCELLED, "%s: interrupted", m->place->path) : TERN_OK;
}

/* ---- folders and the lock ---- */

/* mkdir -p */
static tern_status make_folders(const char *path, tern_error *err)
{
  char *copy = mem_strdup(path);
  tern_status status = copy ? TERN_OK : err_nomem(err, path);
  for (char *at = copy ? copy + 1 : NULL; status == TERN_OK && at; at++) {
    if (*at && *at != '/')
      continue;
    char held = *at;
    *at = 0;
    if (mkdir(copy, 0777) && errno != EEXIST)
      status = err_errno(err, copy, "make directory");
    *at = held;
    if (!held)
      break;
  }
  mem_free(copy);
  return status;
}

/* *fd: -1 where the file system has no locks. */
static tern_status lock_folder(const maker *m, const char *dir, int *fd, tern_error *err)
{
  *fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*fd < 0)
    return err_errno(err, dir, "open");
  while (flock(*fd, LOCK_EX | LOCK_NB)) {
    tern_status status = check_cancel(m, err);
    bool busy = errno == EWOULDBLOCK || errno == EINTR;
    if (!busy || status != TERN_OK) {
      close(*fd);
      *fd = -1;
      return status;
    }
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
  return TERN_OK;
}

static void reclaim_in(int at, const char *name)
{
  int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d && fd >= 0)
    close(fd);
  for (const struct dirent *e; d && (e = readdir(d));)
    if (!strncmp(e->d_name, part_prefix, sizeof part_prefix - 1))
      unlinkat(dirfd(d), e->d_name, 0);
  if (d)
    closedir(d);
}

/* What killed processes left; failures are nobody's concern. */
static void reclaim(const char *dir)
{
  DIR *d = opendir(dir);
  for (const struct dirent *e; d && (e = readdir(d));)
    if (e->d_name[0] != '.')
      reclaim_in(dirfd(d), e->d_name);
  if (d)
    closedir(d);
}

/* ---- what goes in ---- */

static tern_status list_entries(maker *m, const ops_weight *const *weights, size_t n, tern_error *err)
{
  m->entries = mem_array(n + 1, sizeof *m->entries);
  m->weights = mem_array(n + 1, sizeof *m->weights);
  if (!m->entries || !m->weights)
    return err_nomem(err, "prepared weights");
  for (size_t i = 0; i < n; i++) {
    const ops_weight *w = weights[i];
    uint32_t shard;
    uint64_t source;
    size_t bytes = w->data ? m->layout->bytes(w) : 0;
    if (!bytes || !prepared_source(m->c, w, &shard, &source))
      continue;
    m->weights[m->head.entries] = w;
    m->entries[m->head.entries++] = (prepared_entry){.source = source,
                                                     .shard = shard,
                                                     .bits = (uint32_t)w->bits,
                                                     .group = (uint32_t)w->group,
                                                     .stored = w->stored,
                                                     .n = (uint64_t)w->n,
                                                     .k = (uint64_t)w->k,
                                                     .bytes = bytes};
  }
  if (!m->head.entries)
    return err_set(err, TERN_E_UNSUPPORTED,
                   "nothing to prepare: no matrix has affine codes that this backend lays out");
  uint64_t at = sizeof m->head + m->head.entries * sizeof *m->entries;
  at = (at + PREPARED_PAGE - 1) / PREPARED_PAGE * PREPARED_PAGE;
  for (uint32_t i = 0; i < m->head.entries; i++) {
    m->entries[i].at = at;
    at += m->entries[i].bytes;
  }
  m->head.bytes = at;
  return TERN_OK;
}

static tern_status check_room(const maker *m, tern_error *err)
{
  struct statvfs fs;
  if (statvfs(m->folder, &fs))
    return TERN_OK; /* writing will tell */
  uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
  if (room >= m->head.bytes)
    return TERN_OK;
  return err_set(err, TERN_E_LIMIT, "%s: needs %llu MB, but the disk has %llu MB left", m->folder,
                 (unsigned long long)(m->head.bytes >> 20) + 1, (unsigned long long)(room >> 20));
}

/* ---- writing ---- */

static tern_status write_all(const maker *m, const void *data, size_t n, tern_error *err)
{
  const char *bytes = data;
  for (size_t done = 0; done < n;) {
    ssize_t some = write(m->fd, bytes + done, n - done);
    if (some >= 0)
      done += (size_t)some;
    else if (errno != EINTR)
      return err_errno(err, m->part, "write");
  }
  return TERN_OK;
}

static void forget(const maker *m, const ops_weight *w)
{
  uint32_t shard;
  uint64_t source;
  int64_t scales = w->n * (w->k / w->group) * (w->stored == DT_F32 ? 4 : 2);
  if (!prepared_source(m->c, w, &shard, &source))
    return;
  const map *file = &ckpt_file_at(m->c, shard)->map;
  map_forget(file, w->data, (size_t)(w->n * w->k * w->bits / 8));
  map_forget(file, w->scales, (size_t)scales);
  map_forget(file, w->biases, (size_t)scales);
}

static tern_status write_layout(maker *m, uint32_t i, tern_error *err)
{
  const ops_weight *w = m->weights[i];
  prepared_sum sum = {0};
  for (size_t at = 0, n; at < m->entries[i].bytes; at += n) {
    TRY(check_cancel(m, err));
    n = m->layout->piece(w, at, NULL);
    if (!mem_grow(&m->piece, &m->piece_bytes, n, 1))
      return err_nomem(err, "prepared weights");
    m->layout->piece(w, at, m->piece);
    prepared_sum_add(&sum, m->piece, n);
    TRY(write_all(m, m->piece, n, err));
    m->done += n;
    if (m->watch && m->watch->progress)
      m->watch->progress(m->watch->user, m->done, m->head.bytes);
  }
  m->entries[i].sum = prepared_sum_end(&sum);
  forget(m, w);
  return ckpt_check(m->c, err);
}

/* Samples of the layouts as they stand in the file. */
static tern_status take_samples(maker *m, tern_error *err)
{
  map file = {.slot = -1, .fd = -1};
  TRY(map_open(m->part, &file, err));
  for (uint32_t i = 0; i < m->head.entries; i++)
    m->entries[i].sample = prepared_sample(file.data + m->entries[i].at, m->entries[i].bytes);
  map_close(&file);
  return TERN_OK;
}

/* Zeros where head and entries come, the layouts, then those. */
static tern_status write_file(maker *m, tern_error *err)
{
  static const char zeros[PREPARED_PAGE];
  char digest[SHA256_HEX];
  for (uint64_t at = 0; at < m->entries[0].at; at += PREPARED_PAGE)
    TRY(write_all(m, zeros, PREPARED_PAGE, err));
  for (uint32_t i = 0; i < m->head.entries; i++)
    TRY(write_layout(m, i, err));
  TRY(take_samples(m, err));
  prepared_digest(&m->head, m->entries, digest);
  memcpy(m->head.digest, digest, sizeof m->head.digest);
  if (lseek(m->fd, 0, SEEK_SET) < 0)
    return err_errno(err, m->part, "seek");
  TRY(write_all(m, &m->head, sizeof m->head, err));
  TRY(write_all(m, m->entries, m->head.entries * sizeof *m->entries, err));
  return fsync(m->fd) && errno != EINVAL ? err_errno(err, m->part, "write") : TERN_OK;
}

/* As a reader would. */
static tern_status read_back(const maker *m, tern_error *err)
{
  prepared_place part = *m->place;
  prepared *p;
  part.path = m->part;
  TRY(prepared_open(&part, m->layout, &p, err));
  tern_status status = prepared_verify(p, err);
  prepared_close(p);
  return status;
}

/* Whether the checkpoint is still what it was when its identity was taken. */
static tern_status check_identity(const maker *m, tern_error *err)
{
  prepared_place now = {0};
  TRY(prepared_find_place("", m->c, m->layout, &now, err));
  bool same = memcmp(now.identity, m->place->identity, sizeof now.identity) == 0;
  mem_free(now.path);
  return same ? TERN_OK
              : err_set(err, TERN_E_IO, "%s: the checkpoint changed while its weights were prepared", m->place->path);
}

static tern_status make_file(maker *m, tern_error *err)
{
  for (int tries = 0; tries < 2; tries++) { /* a name that is taken is a killed process's of the same number */
    m->fd = open(m->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (m->fd >= 0 || errno != EEXIST)
      break;
    unlink(m->part);
  }
  if (m->fd < 0)
    return err_errno(err, m->part, "create");
  tern_status status = write_file(m, err);
  if (close(m->fd) && status == TERN_OK)
    status = err_errno(err, m->part, "write");
  if (status == TERN_OK)
    status = read_back(m, err);
  if (status == TERN_OK)
    status = check_identity(m, err);
  if (status == TERN_OK && rename(m->part, m->place->path))
    status = err_errno(err, m->place->path, "rename into place");
  if (status != TERN_OK) {
    unlink(m->part);
    return status;
  }
  int folder = open(m->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) { /* the name is given by now: one that cannot be synced takes nothing back */
    fsync(folder);
    close(folder);
  }
  return TERN_OK;
}

/* ---- making ---- */

/* The sum of the layout that the checkpoint gives. False: no memory, or cancelled. */
static bool sum_again(maker *m, uint32_t i, uint64_t *out)
{
  prepared_sum sum = {0};
  for (size_t at = 0, n; at < m->entries[i].bytes; at += n) {
    n = m->layout->piece(m->weights[i], at, NULL);
    if (cancelled(m) || !mem_grow(&m->piece, &m->piece_bytes, n, 1))
      return false;
    m->layout->piece(m->weights[i], at, m->piece);
    prepared_sum_add(&sum, m->piece, n);
  }
  *out = prepared_sum_end(&sum);
  return true;
}

/* Whether a file is there that has every layout and holds in every byte what this checkpoint gives. */
static bool is_whole(maker *m)
{
  prepared *p;
  if (prepared_open(m->place, m->layout, &p, NULL) != TERN_OK)
    return false;
  bool whole = true;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < m->head.entries; i++)
    whole = whole && prepared_layout(p, m->c, m->layout, m->weights[i]) && sum_again(m, i, &sum) &&
            prepared_has_sum(p, m->c, m->weights[i], sum);
  whole = whole && prepared_verify(p, NULL) == TERN_OK;
  prepared_close(p);
  return whole;
}

static tern_status make_locked(maker *m, prepared_report *report, tern_error *err)
{
  if (is_whole(m)) {
    report->was_there = true;
    return TERN_OK;
  }
  TRY(make_folders(m->folder, err));
  tern_status status = check_room(m, err);
  if (status == TERN_OK)
    status = make_file(m, err);
  if (status != TERN_OK)
    rmdir(m->folder); /* where it is empty */
  return status;
}

static tern_status set_names(maker *m, const char *dir, tern_error *err)
{
  buf folder = {0}, part = {0};
  buf_addf(&folder, "%s/%s", dir, m->place->identity);
  buf_addf(&part, "%s/%s/%s%ld", dir, m->place->identity, part_prefix, (long)getpid());
  bool failed = folder.failed || part.failed;
  if (!failed) {
    m->folder = buf_take(&folder);
    m->part = buf_take(&part);
  }
  buf_free(&folder);
  buf_free(&part);
  return failed ? err_nomem(err, "prepared weights") : TERN_OK;
}

static tern_status make_all(maker *m, const char *dir, const ops_weight *const *weights, size_t n,
                            prepared_report *report, tern_error *err)
{
  int lock;
  TRY(list_entries(m, weights, n, err));
  TRY(set_names(m, dir, err));
  TRY(make_folders(dir, err));
  TRY(lock_folder(m, dir, &lock, err));
  if (lock >= 0)
    reclaim(dir);
  tern_status status = make_locked(m, report, err);
  if (status == TERN_OK)
    prepared_note(m->place, m->c);
  if (lock >= 0)
    close(lock);
  report->bytes = m->head.bytes;
  report->matrices = m->head.entries;
  return status;
}

tern_status prepared_make(const char *dir, const prepared_place *place, const ckpt *c, const ops_layout *layout,
                          const ops_weight *const *weights, size_t n, const prepared_watch *watch,
                          prepared_report *report, tern_error *err)
{
  maker m = {.place = place, .c = c, .layout = layout, .watch = watch, .fd = -1};
  prepared_report own = {0};
  memcpy(m.head.magic, "TERNPREP", sizeof m.head.magic);
  memcpy(m.head.identity, place->identity, sizeof m.head.identity);
  m.head.format = PREPARED_FORMAT;
  m.head.layout = (uint32_t)layout->version;
  tern_status status = make_all(&m, dir, weights, n, &own, err);
  if (status == TERN_OK && report)
    *report = own;
  mem_free(m.entries);
  mem_free(m.weights);
  mem_free(m.folder);
  mem_free(m.part);
  mem_free(m.piece);
  return status;
}
