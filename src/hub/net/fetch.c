/* fetch.c - see fetch.h.
 *
 * Workers take pieces of files in the order of the files, fetch each into memory of their own, wait until what lies
 * before it is on the disk, append, and hash. The earliest piece in work never waits for anything but its bytes, so
 * nobody waits for ever. Where a host answers a range with the whole file, that file goes on as one stream, appended as
 * it comes.
 *
 * One mutex guards everything in `fetch` and in the jobs, but for what belongs to the one worker that is opening a job
 * or appending to it: the file, its length on the disk and its hash. Only the calling thread reports.
 */
#include "hub/net/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/threads.h"
#include "hub/net/ask.h"
#include "hub/net/digest.h"

enum { MOST_WORKERS = 8, PIECE = 8 << 20, MOST_TRIES_OF_PIECE = 64, NOTE_ROOM = 512 };

typedef enum job_state {
  JOB_WAITS,   /* nobody is at it: new, or another process has its lock */
  JOB_OPENING, /* a worker reads what is there */
  JOB_OPEN,
  JOB_DONE,
} job_state;

typedef struct job {
  const hub_file *file;
  char *incomplete, *blob, *from; /* from: where the hub sent us for it last; NULL: it is to be asked */
  int fd, lock;                   /* -1: none */
  uint64_t taken, written;        /* the next piece begins at `taken`; `written` are on the disk and hashed */
  bool resumed;                   /* began with what an earlier pull left */
  bool plain;                     /* the host has no ranges: one stream */
  bool appending;                 /* a worker is at the file: its turn, or the stream */
  job_state state;
  digest hash;
} job;

typedef struct fetch {
  const http_settings *caller; /* its cancellation is its thread's to look at */
  http_settings settings;      /* the workers': the caller's, with `stop` */
  atomic_bool stop;
  const cache_repo *repo;
  const hub_plan *plan;
  job *jobs; /* [n] */
  size_t n, done;
  uint64_t bytes, of_bytes; /* for the bar */
  uint64_t came;            /* bytes, of this run */
  char note[NOTE_ROOM];     /* the newest one not yet told */
  bool waits_told;
  bool failed;
  tern_error error;
  int running; /* workers */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
} fetch;

typedef struct piece {
  job *job;
  uint64_t offset, size;
  bool direct;  /* appended as it comes: its turn, or the stream of a plain job */
  uint64_t got; /* of it, so far */
} piece;

/* One worker's own. */
typedef struct worker {
  fetch *f;
  http *h;
  char *room; /* [PIECE] */
  hub_watch notes;
} worker;

static bool is_stopped(void *user)
{
  return atomic_load(&((fetch *)user)->stop);
}

static bool is_cancelled(fetch *f)
{
  return atomic_load(&f->stop);
}

/* The first failure counts; all stop. */
static void fail(fetch *f, const tern_error *err)
{
  pthread_mutex_lock(&f->mutex);
  if (!f->failed) {
    f->failed = true;
    f->error = *err;
  }
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->mutex);
}

static bool has_failed(fetch *f)
{
  pthread_mutex_lock(&f->mutex);
  bool failed = f->failed;
  pthread_mutex_unlock(&f->mutex);
  return failed;
}

static void add_bytes(fetch *f, int64_t n)
{
  pthread_mutex_lock(&f->mutex);
  f->bytes += (uint64_t)n;
  pthread_mutex_unlock(&f->mutex);
}

static void add_come(fetch *f, piece *p, size_t n)
{
  p->got += n;
  pthread_mutex_lock(&f->mutex);
  f->bytes += n;
  f->came += n;
  pthread_mutex_unlock(&f->mutex);
}

/* Left for the calling thread to tell. */
static void leave_note(void *user, const char *line)
{
  fetch *f = user;
  pthread_mutex_lock(&f->mutex);
  strncpy(f->note, line, NOTE_ROOM - 1);
  pthread_mutex_unlock(&f->mutex);
}

/* ---- a job's file ---- */

static tern_status append(job *j, const char *data, size_t n, tern_error *err)
{
  for (size_t at = 0; at < n;) {
    ssize_t wrote = pwrite(j->fd, data + at, n - at, (off_t)(j->written + at));
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0) {
      errno = wrote < 0 ? errno : ENOSPC;
      return err_errno(err, j->file->path, "write to the cache");
    }
    at += (size_t)wrote;
  }
  digest_add(&j->hash, data, n);
  return TERN_OK;
}

/* What lies in the file is of no use. The counts are set by the caller, under the mutex where others read them. */
static tern_status empty_file(job *j, tern_error *err)
{
  if (ftruncate(j->fd, 0) != 0)
    return err_errno(err, j->incomplete, "truncate");
  digest_start(&j->hash, j->file);
  j->resumed = false;
  return TERN_OK;
}

/* Hashes what an earlier pull left. */
static tern_status take_up(fetch *f, job *j, char *room, tern_error *err)
{
  struct stat st;
  if (fstat(j->fd, &st) != 0)
    return err_errno(err, j->incomplete, "look up");
  TRY(S_ISREG(st.st_mode) ? TERN_OK : err_set(err, TERN_E_IO, "%s: is not a regular file", j->incomplete));
  digest_start(&j->hash, j->file);
  j->written = 0;
  if ((uint64_t)st.st_size > j->file->size)
    return empty_file(j, err);
  while (j->written < (uint64_t)st.st_size && !is_cancelled(f)) {
    uint64_t left = (uint64_t)st.st_size - j->written;
    ssize_t n = pread(j->fd, room, left < PIECE ? (size_t)left : PIECE, (off_t)j->written);
    if (n <= 0)
      return n < 0 ? err_errno(err, j->incomplete, "read")
                   : err_set(err, TERN_E_IO, "%s: shrank while it was read", j->incomplete);
    digest_add(&j->hash, room, (size_t)n);
    j->written += (uint64_t)n;
    add_bytes(f, n);
  }
  j->taken = j->written;
  j->resumed = j->written > 0;
  return TERN_OK;
}

static void close_job(job *j)
{
  if (j->fd >= 0)
    close(j->fd);
  j->fd = -1;
  cache_unlock(j->lock);
  j->lock = -1;
}

/* All bytes are there: checks them and gives the blob its name. *again: they were not the right ones, but began with
 * what another pull had left; the file is to be fetched anew. */
static tern_status finish(job *j, bool *again, tern_error *err)
{
  char have[LISTING_ETAG_ROOM] = "";
  digest_end(&j->hash, have);
  *again = false;
  if (strcmp(have, j->file->etag) != 0) {
    *again = j->resumed;
    if (*again)
      return empty_file(j, err);
    unlink(j->incomplete);
    return err_set(err, TERN_E_FORMAT, "%s: the bytes that came have the %s %s, and the hub lists %s: thrown away",
                   j->file->path, hub_file_is_lfs(j->file) ? "SHA-256" : "git SHA-1", have, j->file->etag);
  }
  if (fsync(j->fd) != 0)
    return err_errno(err, j->file->path, "write to the cache");
  if (rename(j->incomplete, j->blob) != 0)
    return err_errno(err, j->blob, "rename");
  return TERN_OK;
}

/* With the lock: what is there already. *done: all of it, since another process was quicker. */
static tern_status open_locked(fetch *f, job *j, char *room, bool *done, tern_error *err)
{
  if (cache_has_blob(f->repo, j->file)) {
    add_bytes(f, (int64_t)j->file->size);
    j->written = j->taken = j->file->size;
    *done = true;
    return TERN_OK;
  }
  j->fd = open(j->incomplete, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (j->fd < 0)
    return err_errno(err, j->incomplete, "open");
  TRY(take_up(f, j, room, err));
  if (j->written < j->file->size || is_cancelled(f))
    return TERN_OK;
  bool again;
  TRY(finish(j, &again, err));
  *done = !again;
  if (!again)
    return TERN_OK;
  j->written = j->taken = 0;
  add_bytes(f, -(int64_t)j->file->size);
  return TERN_OK;
}

/* A worker opens a job, outside the mutex. */
static void open_job(worker *w, job *j)
{
  fetch *f = w->f;
  tern_error err = {0};
  tern_status status = cache_lock(f->repo, j->file->etag, &j->lock, &err);
  bool ours = j->lock >= 0, done = false;
  if (status == TERN_OK && ours)
    status = open_locked(f, j, w->room, &done, &err);
  if (status != TERN_OK)
    fail(f, &err); /* before anyone can take a piece of it */
  if (done)
    close_job(j);
  pthread_mutex_lock(&f->mutex);
  j->state = done ? JOB_DONE : ours ? JOB_OPEN : JOB_WAITS;
  f->done += done;
  bool tell = !ours && status == TERN_OK && !f->waits_told;
  f->waits_told |= tell;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->mutex);
  if (tell)
    leave_note(f, "another process is downloading a part of this: waiting for it");
}

/* ---- pieces ---- */

static void wait_a_little(fetch *f)
{
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += 100000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_cond_timedwait(&f->changed, &f->mutex, &until);
}

/* Pieces that come at once are in memory until those before them are there, and lost when all is stopped: so they are
 * small at first, and never much against what has come. */
static uint64_t piece_size(const fetch *f)
{
  enum { SMALLEST = PIECE / 8, PART = 32 };
  uint64_t size = f->came / PART;
  return size < SMALLEST ? SMALLEST : size < PIECE ? size : PIECE;
}

/* A piece of the first job that has one left. */
static bool cut_piece(fetch *f, piece *out)
{
  for (size_t i = 0; i < f->n; i++) {
    job *j = &f->jobs[i];
    if (j->state != JOB_OPEN || (j->plain ? j->appending : j->taken == j->file->size))
      continue;
    uint64_t left = j->file->size - j->taken, most = piece_size(f);
    if (j->plain) {
      *out = (piece){j, j->written, j->file->size - j->written, true, 0};
      j->appending = true;
    } else {
      *out = (piece){j, j->taken, left < most ? left : most, false, 0};
      j->taken += out->size;
    }
    return true;
  }
  return false;
}

/* The first job that nobody is at. Jobs that another process has are looked at again after a while: `from` goes round.
 */
static job *next_job(fetch *f, size_t *from)
{
  for (size_t i = 0; i < f->n; i++) {
    job *j = &f->jobs[(*from + i) % f->n];
    if (j->state == JOB_WAITS) {
      *from = (size_t)(j - f->jobs) + 1;
      j->state = JOB_OPENING;
      return j;
    }
  }
  return NULL;
}

/* False: there is nothing left to do. */
static bool take_piece(worker *w, piece *out)
{
  fetch *f = w->f;
  size_t from = 0;
  bool found = false;
  pthread_mutex_lock(&f->mutex);
  while (!found && !f->failed && f->done < f->n && !is_cancelled(f)) {
    found = cut_piece(f, out);
    job *j = found ? NULL : next_job(f, &from);
    if (j) {
      pthread_mutex_unlock(&f->mutex);
      open_job(w, j);
      pthread_mutex_lock(&f->mutex);
      if (j->state == JOB_WAITS)
        wait_a_little(f);
    } else if (!found) {
      wait_a_little(f);
    }
  }
  pthread_mutex_unlock(&f->mutex);
  return found;
}

/* Whether it is this piece's turn; the job's file is then the worker's. With the mutex held. */
static bool claim(fetch *f, const piece *p)
{
  job *j = p->job;
  bool ours = !f->failed && !is_cancelled(f) && !j->plain && !j->appending && j->written == p->offset;
  j->appending |= ours;
  return ours;
}

/* A piece that came: waits for its turn. False: nobody wants it any more. */
static bool await_turn(fetch *f, const piece *p)
{
  const job *j = p->job;
  pthread_mutex_lock(&f->mutex);
  while (!f->failed && !is_cancelled(f) && !j->plain && (j->written < p->offset || j->appending))
    wait_a_little(f);
  bool ours = claim(f, p);
  pthread_mutex_unlock(&f->mutex);
  return ours;
}

/* Appends, and says so to those who wait. */
static tern_status append_and_tell(fetch *f, job *j, const char *data, size_t n, tern_error *err)
{
  TRY(append(j, data, n, err));
  pthread_mutex_lock(&f->mutex);
  j->written += n;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->mutex);
  return TERN_OK;
}

/* Where a piece's bytes go. */
typedef struct sink {
  worker *w;
  piece *p;
  uint64_t got;   /* of the piece */
  uint64_t asked; /* of the file: where this try's range begins */
  bool no_ranges;
} sink;

static tern_status check_head(const sink *s, const http_reply *reply, tern_error *err)
{
  const hub_file *file = s->p->job->file;
  uint64_t first = 0, last = 0, total = file->size;
  if (reply->status == 206 && (!listing_range(reply->range, &first, &last, &total) || first != s->asked))
    return err_set(err, TERN_E_FORMAT, "%s: the host sent other bytes than were asked for (\"%s\")", file->path,
                   reply->range);
  if (reply->status == 200 && reply->length >= 0)
    total = (uint64_t)reply->length;
  if (total != file->size)
    return err_set(err, TERN_E_FORMAT, "%s: the host has %llu bytes, and the hub lists %llu", file->path,
                   (unsigned long long)total, (unsigned long long)file->size);
  return TERN_OK;
}

/* Into memory, or into the file once the piece's turn has come: what came on a slow line is then not lost. */
static bool store(sink *s, const char *data, size_t n, tern_error *err)
{
  fetch *f = s->w->f;
  piece *p = s->p;
  bool turn = false;
  if (!p->direct) {
    memcpy(s->w->room + s->got, data, n);
    pthread_mutex_lock(&f->mutex);
    turn = p->direct = claim(f, p);
    pthread_mutex_unlock(&f->mutex);
  }
  s->got += n;
  if (p->direct && append_and_tell(f, p->job, turn ? s->w->room : data, turn ? (size_t)s->got : n, err) != TERN_OK)
    return false;
  add_come(f, p, n);
  return true;
}

static bool take_bytes(void *user, const http_reply *reply, uint64_t offset, const char *data, size_t size,
                       bool *enough, tern_error *err)
{
  sink *s = user;
  piece *p = s->p;
  job *j = p->job;
  if (offset == 0 && check_head(s, reply, err) != TERN_OK)
    return false;
  if (reply->status == 200 && !p->direct && p->size != j->file->size) {
    s->no_ranges = *enough = true;
    return false;
  }
  uint64_t at = offset + (reply->status == 200 ? 0 : s->asked), want = p->offset + s->got; /* in the file */
  uint64_t skip = at < want ? want - at : 0;
  if (skip >= size)
    return true;
  data += skip;
  size -= (size_t)skip;
  uint64_t left = p->size - s->got;
  bool further = reply->status == 200 && p->offset + p->size < j->file->size; /* what follows belongs to other pieces */
  if (size > left && !further) {
    err_set(err, TERN_E_FORMAT, "%s: more bytes came than the hub lists", j->file->path);
    return false;
  }
  if (!store(s, data, size < left ? size : (size_t)left, err))
    return false;
  *enough = further && s->got == p->size;
  return !*enough;
}

/* The address for a piece: the content host's that the hub named last, or the hub's own (mem_free). */
static char *address(worker *w, const job *j, bool *direct)
{
  pthread_mutex_lock(&w->f->mutex);
  char *url = j->from ? mem_strdup(j->from) : NULL;
  pthread_mutex_unlock(&w->f->mutex);
  *direct = url != NULL;
  return url ? url : ask_file_url(&w->f->settings, w->f->plan, j->file->path);
}

static void remember_address(worker *w, job *j, const char *url)
{
  char *copy = url ? mem_strdup(url) : NULL;
  pthread_mutex_lock(&w->f->mutex);
  mem_free(j->from);
  j->from = copy;
  pthread_mutex_unlock(&w->f->mutex);
}

/* One request for what is left of a piece. *again: it is worth another try. */
static tern_status try_piece(worker *w, sink *s, http_reply *reply, bool *again, tern_error *err)
{
  const piece *p = s->p;
  bool known;
  char *url = address(w, p->job, &known);
  *again = false;
  if (!url)
    return err_nomem(err, "address");
  s->asked = p->offset + s->got;
  http_request request = {
      .url = url, .first = s->asked, .last = p->offset + p->size - 1, .sink = take_bytes, .user = s};
  request.ranged = s->asked > 0 || p->size < p->job->file->size;
  http_outcome outcome = http_get(w->h, &request, reply, err);
  mem_free(url);
  bool good = outcome == HTTP_ANSWERED && (reply->status == 200 || reply->status == 206);
  if (good) {
    remember_address(w, p->job, http_same_origin(reply->url, w->f->settings.endpoint) ? NULL : reply->url);
    if (s->no_ranges || s->got == p->size)
      return TERN_OK;
    *again = true;
    return err_set(err, TERN_E_IO, "%s: the answer ended early", p->job->file->path);
  }
  if (outcome == HTTP_ANSWERED) {
    ask_refusal(&w->f->settings, &w->f->plan->repo, p->job->file->path, reply, err);
    *again = ask_again(reply->status) || known; /* a signed address runs out: the hub has a new one */
  }
  *again |= outcome == HTTP_BROKEN;
  if (known)
    remember_address(w, p->job, NULL);
  return err->status;
}

/* The whole piece, whatever number of tries that takes, as long as they bring something. */
static tern_status fetch_piece(worker *w, piece *p, bool *no_ranges, tern_error *err)
{
  sink s = {.w = w, .p = p};
  for (int tried = 0, all = 0;; tried++, all++) {
    uint64_t before = s.got;
    bool again;
    tern_error why = {0};
    http_reply reply = {0};
    tern_status status = try_piece(w, &s, &reply, &again, &why);
    *no_ranges = s.no_ranges;
    if (s.got > before)
      tried = 0;
    if (status == TERN_OK || has_failed(w->f)) {
      http_reply_clear(&reply);
      return TERN_OK;
    }
    bool waited =
        again && all < MOST_TRIES_OF_PIECE &&
        ask_wait(&w->f->settings, &w->notes, tried, reply.status ? &reply : NULL, p->job->file->path, why.text, err);
    http_reply_clear(&reply);
    if (!again || all == MOST_TRIES_OF_PIECE)
      return err_set(err, why.status, "%s", why.text);
    if (!waited)
      return err->status;
  }
}

/* The worker's turn has come: nobody else touches the job's file until `written` moves. */
static tern_status settle(worker *w, piece *p, tern_error *err)
{
  fetch *f = w->f;
  job *j = p->job;
  bool again = false, whole = p->offset + p->size == j->file->size;
  if (!p->direct)
    TRY(append_and_tell(f, j, w->room, (size_t)p->size, err));
  if (whole)
    TRY(finish(j, &again, err));
  if (whole && !again)
    close_job(j);
  pthread_mutex_lock(&f->mutex);
  if (again) {
    f->bytes -= j->file->size;
    j->written = j->taken = 0;
  }
  j->appending = false;
  if (whole && !again) {
    j->state = JOB_DONE;
    f->done++;
  }
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->mutex);
  return TERN_OK;
}

static void work_on(worker *w, piece *p)
{
  fetch *f = w->f;
  tern_error err = {0};
  bool no_ranges = false;
  tern_status status = fetch_piece(w, p, &no_ranges, &err);
  if (status == TERN_OK && no_ranges) {
    pthread_mutex_lock(&f->mutex);
    p->job->plain = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
  } else if (status == TERN_OK && (p->direct ? !has_failed(f) : await_turn(f, p))) {
    status = settle(w, p, &err);
  } else if (status == TERN_OK && !p->direct) {
    add_bytes(f, -(int64_t)p->got); /* dropped; its bytes come again */
  }
  if (status != TERN_OK)
    fail(f, &err);
}

static void *run_worker(void *user)
{
  fetch *f = user;
  worker w = {.f = f, .room = mem_alloc(PIECE), .notes = {.note = leave_note, .user = f}};
  tern_error err = {0};
  piece p;
  tern_status status = w.room ? http_open(&f->settings, &w.h, &err) : err_nomem(&err, "download");
  if (status != TERN_OK)
    fail(f, &err);
  while (status == TERN_OK && take_piece(&w, &p))
    work_on(&w, &p);
  http_close(w.h);
  mem_free(w.room);
  pthread_mutex_lock(&f->mutex);
  f->running--;
  pthread_cond_broadcast(&f->changed);
  pthread_mutex_unlock(&f->mutex);
  return NULL;
}

/* ---- all of them ---- */

/* Until every worker has ended: the bar, and what they have to say. */
static void report(fetch *f, const hub_watch *watch)
{
  char note[NOTE_ROOM];
  pthread_mutex_lock(&f->mutex);
  while (f->running) {
    wait_a_little(f);
    uint64_t bytes = f->bytes;
    memcpy(note, f->note, sizeof note);
    f->note[0] = 0;
    pthread_mutex_unlock(&f->mutex);
    if (http_is_cancelled(f->caller))
      atomic_store(&f->stop, true);
    if (*note && watch->note)
      watch->note(watch->user, note);
    if (watch->progress)
      watch->progress(watch->user, bytes < f->of_bytes ? bytes : f->of_bytes, f->of_bytes);
    pthread_mutex_lock(&f->mutex);
  }
  pthread_mutex_unlock(&f->mutex);
}

static tern_status start_jobs(fetch *f, tern_error *err)
{
  size_t n;
  const hub_file **blobs = listing_blobs(&f->plan->files, &n);
  f->jobs = mem_array(n + 1, sizeof *f->jobs);
  tern_status status = blobs && f->jobs ? TERN_OK : err_nomem(err, "download");
  for (size_t i = 0; status == TERN_OK && i < n; i++) {
    if (cache_has_blob(f->repo, blobs[i]))
      continue;
    job *j = &f->jobs[f->n++];
    *j = (job){.file = blobs[i], .fd = -1, .lock = -1};
    j->blob = cache_blob_path(f->repo, blobs[i]->etag, false);
    j->incomplete = cache_blob_path(f->repo, blobs[i]->etag, true);
    f->of_bytes += blobs[i]->size;
    if (!j->blob || !j->incomplete)
      status = err_nomem(err, "path");
  }
  mem_free(blobs);
  return status;
}

/* Connections that the bytes are worth. */
static int count_workers(const fetch *f)
{
  uint64_t pieces = f->of_bytes / PIECE + f->n;
  return pieces < MOST_WORKERS ? (int)pieces : MOST_WORKERS;
}

static tern_status run_workers(fetch *f, const hub_watch *watch, tern_error *err)
{
  pthread_t threads[MOST_WORKERS];
  int n = count_workers(f), started = 0;
  sigset_t before;
  f->running = n;
  threads_block_signals(&before);
  while (started < n && pthread_create(&threads[started], NULL, run_worker, f) == 0)
    started++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_mutex_lock(&f->mutex);
  f->running -= n - started;
  pthread_mutex_unlock(&f->mutex);
  report(f, watch);
  for (int i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  if (!started && n)
    return err_set(err, TERN_E_NOMEM, "download: no thread can be started");
  if (f->failed)
    return err_set(err, f->error.status, "%s", f->error.text);
  return f->done < f->n ? err_set(err, TERN_E_CANCELLED, "cancelled") : TERN_OK;
}

tern_status fetch_blobs(const http_settings *s, const cache_repo *r, const hub_plan *p, const hub_watch *watch,
                        tern_error *err)
{
  fetch f = {.caller = s, .settings = *s, .repo = r, .plan = p};
  f.settings.cancelled = is_stopped;
  f.settings.user = &f;
  pthread_mutex_init(&f.mutex, NULL);
  pthread_condattr_t clock;
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&f.changed, &clock);
  pthread_condattr_destroy(&clock);
  tern_status status = start_jobs(&f, err);
  if (status == TERN_OK)
    status = run_workers(&f, watch, err);
  for (size_t i = 0; i < f.n; i++) {
    close_job(&f.jobs[i]);
    mem_free(f.jobs[i].incomplete);
    mem_free(f.jobs[i].blob);
    mem_free(f.jobs[i].from);
  }
  mem_free(f.jobs);
  pthread_cond_destroy(&f.changed);
  pthread_mutex_destroy(&f.mutex);
  return status;
}
