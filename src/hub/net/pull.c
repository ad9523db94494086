/* pull.c - see pull.h: the plan, and what comes before and after the download (fetch.c). */
#include "hub/net/pull.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "hub/net/ask.h"
#include "hub/net/digest.h"
#include "hub/net/fetch.h"

enum { MOST_PAGES = 1000, INFO_MOST = 32 << 20, TEXT_MOST = 64 << 20 };

/* What stays on a disk that a download fills. */
static const uint64_t spare_room = 16 << 20;

/* ---- the plan ---- */

static tern_status find_commit(http *h, const http_settings *s, const hub_watch *watch, hub_plan *p, tern_error *err)
{
  buf url = {0}, text = {0};
  char *revision = http_escape(p->repo.revision, false);
  if (revision)
    buf_addf(&url, "%s/api/models/%s/revision/%s", s->endpoint, p->repo.id, revision);
  bool failed = !revision || url.failed;
  mem_free(revision);
  tern_status status =
      failed ? err_nomem(err, "address") : ask_text(h, s, &p->repo, NULL, url.data, INFO_MOST, watch, &text, NULL, err);
  if (status == TERN_OK)
    status = listing_commit(p->repo.id, text.data, text.length, p->commit, err);
  if (status == TERN_OK && repo_is_commit(p->repo.revision) && strcmp(p->repo.revision, p->commit) != 0)
    status = err_set(err, TERN_E_FORMAT, "%s: commit %s was asked for, and the hub answers with %s", p->repo.id,
                     p->repo.revision, p->commit);
  buf_free(&url);
  buf_free(&text);
  return status;
}

/* The first bytes are enough. */
static bool look_away(void *user, const http_reply *reply, uint64_t offset, const char *data, size_t size, bool *enough,
                      tern_error *err)
{
  (void)user, (void)reply, (void)offset, (void)data, (void)size, (void)err;
  *enough = true;
  return false;
}

/* What is no model may be one of the hub's other kinds: then that is said. Of a model it was the revision that is
 * missing. */
static tern_status explain_missing(http *h, const http_settings *s, const hub_repo *repo, tern_status missing,
                                   tern_error *err)
{
  static const struct {
    const char *path, *what;
  } kinds[] = {{"models", NULL}, {"datasets", "a dataset"}, {"spaces", "a space"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    buf url = {0};
    http_reply reply;
    buf_addf(&url, "%s/api/%s/%s", s->endpoint, kinds[i].path, repo->id);
    if (url.failed)
      return err_nomem(err, "address");
    http_outcome outcome = http_get(h, &(http_request){.url = url.data, .text = true, .sink = look_away}, &reply, NULL);
    bool there = outcome == HTTP_ANSWERED && reply.status == 200;
    http_reply_clear(&reply);
    buf_free(&url);
    if (there && !kinds[i].what)
      return missing;
    if (there)
      return err_set(err, missing, "%s: is %s of the hub, and tern pulls models: tern pull ORG/NAME", repo->id,
                     kinds[i].what);
    if (outcome != HTTP_ANSWERED)
      break;
  }
  return missing;
}

/* All pages of the file list. Their addresses come from the hub, and the token goes with each: they must be its own. */
static tern_status list_files(http *h, const http_settings *s, const hub_watch *watch, const hub_plan *p,
                              hub_files *files, tern_error *err)
{
  buf url = {0}, text = {0};
  tern_status status = TERN_OK;
  buf_addf(&url, "%s/api/models/%s/tree/%s?recursive=true&expand=false", s->endpoint, p->repo.id, p->commit);
  for (int pages = 0; status == TERN_OK && url.length; pages++) {
    char *next = NULL;
    buf link = {0};
    if (url.failed)
      status = err_nomem(err, "address");
    else if (pages == MOST_PAGES)
      status = err_set(err, TERN_E_LIMIT, "%s: a file list of more than %d pages", p->repo.id, MOST_PAGES);
    else
      status = ask_text(h, s, &p->repo, NULL, url.data, LISTING_PAGE_MOST, watch, &text, &link, err);
    if (status == TERN_OK)
      status = listing_add(p->repo.id, text.data, text.length, files, err);
    if (status == TERN_OK)
      status = link.data ? listing_next(link.data, &next, err) : TERN_OK;
    if (status == TERN_OK && next && !http_same_origin(next, s->endpoint))
      status =
          err_set(err, TERN_E_FORMAT, "%s: the file list goes on at another host (\"%.80s\"), which is not followed",
                  p->repo.id, next);
    if (status == TERN_OK && next && !strcmp(next, url.data))
      status = err_set(err, TERN_E_FORMAT, "%s: a page of the file list names itself as the next one", p->repo.id);
    buf_clear(&url);
    if (next)
      buf_adds(&url, next);
    mem_free(next);
    buf_free(&link);
  }
  buf_free(&url);
  buf_free(&text);
  if (status == TERN_OK)
    status = listing_check(p->repo.id, files, err);
  return status;
}

/* Whether a path ends so; `inside`: and has that in its name. */
static bool has_end(const char *path, const char *end, const char *inside)
{
  size_t n = strlen(path), m = strlen(end);
  return n >= m && !strcmp(path + n - m, end) && (!inside || strstr(path, inside));
}

/* The file of that kind that is named first; of GGUF files the usual middle of size and quality. NULL: there is none.
 */
static const char *find_end(const hub_files *all, const char *end, size_t *n)
{
  const char *first = NULL, *usual = NULL;
  *n = 0;
  for (size_t i = 0; i < all->n; i++) {
    const char *path = all->items[i].path;
    if (!has_end(path, end, NULL))
      continue;
    ++*n;
    first = first ? first : path;
    usual = !usual && has_end(path, end, "Q4_K_M") ? path : usual;
  }
  return usual ? usual : first;
}

/* Weights that are no model*.safetensors, by the ends of their names. */
static const struct {
  const char *end, *what;
} foreign[] = {
    {".safetensors", "files of safetensors, but none named model*.safetensors: an adapter, or another kind of model"},
    {".bin", "PyTorch weights alone"},
    {".pt", "PyTorch weights alone"},
    {".pth", "PyTorch weights alone"},
    {".h5", "TensorFlow weights alone"},
    {".msgpack", "Flax weights alone"},
    {".onnx", "ONNX graphs alone"},
    {".npz", "NumPy arrays alone, as early releases of mlx wrote them"},
};

/* Why nothing is wanted: what else is there tells. */
static tern_status nothing_wanted(const hub_plan *p, const hub_files *all, const hub_patterns *patterns,
                                  tern_error *err)
{
  size_t n;
  const char *gguf = find_end(all, ".gguf", &n);
  if (patterns->n_include || patterns->n_exclude)
    return err_set(err, TERN_E_NOT_FOUND, "%s: none of its %zu files is one that --include and --exclude leave",
                   p->repo.id, all->n);
  if (gguf)
    return err_set(
        err, TERN_E_NOT_FOUND,
        "%s: no model*.safetensors in it, but %zu .gguf file%s: tern pull %s --include '%.300s' brings %s, and "
        "tern run %s answers with it",
        p->repo.id, n, n > 1 ? "s" : "", p->repo.id, gguf, n > 1 ? "one" : "it", p->repo.id);
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (find_end(all, foreign[i].end, &n))
      return err_set(err, TERN_E_NOT_FOUND,
                     "%s: %s: mlx_lm.convert makes what tern runs, and mlx-community may have it already", p->repo.id,
                     foreign[i].what);
  return err_set(err, TERN_E_NOT_FOUND,
                 "%s: none of its %zu files is a model*.safetensors, as mlx-lm writes them (--include takes others)",
                 p->repo.id, all->n);
}

static bool is_weights(const char *path)
{
  const char *end = strrchr(path, '.');
  return end && !strcmp(end, ".safetensors");
}

/* Of "...-00001-of-00003.safetensors" the next one has to be listed, of the last the first: then all are. */
static tern_status check_shard(const hub_plan *p, const hub_files *all, const char *path, tern_error *err)
{
  unsigned number, of;
  int end = 0;
  char next[REPO_PATH_MOST + 16];
  const char *at = strstr(path, "-of-");
  if (!at || at - path < 6 || sscanf(at - 6, "-%5u-of-%5u.safetensors%n", &number, &of, &end) != 2 || at[end - 6] ||
      !number || number > of)
    return TERN_OK;
  snprintf(next, sizeof next, "%.*s-%05u-of-%05u.safetensors", (int)(at - 6 - path), path, number % of + 1, of);
  for (size_t i = 0; i < all->n; i++)
    if (all->items[i].path && !strcmp(all->items[i].path, next))
      return TERN_OK;
  return err_set(err, TERN_E_FORMAT, "%s: %s is listed, but not %s: half a model, or half a list", p->repo.id, path,
                 next);
}

/* Moves the wanted files from `all` into the plan. */
static tern_status choose(const hub_patterns *patterns, hub_files *all, hub_plan *p, tern_error *err)
{
  size_t weights = 0, wanted = 0;
  p->listed = all->n;
  for (size_t i = 0; i < all->n; i++) {
    if (!select_wants(patterns, all->items[i].path))
      continue;
    wanted++;
    weights += is_weights(all->items[i].path);
    if (!patterns->n_include && !patterns->n_exclude)
      TRY(check_shard(p, all, all->items[i].path, err));
  }
  if (!wanted || (!weights && !patterns->n_include && !patterns->n_exclude))
    return nothing_wanted(p, all, patterns, err);
  for (size_t i = 0; i < all->n; i++) {
    hub_file *f = &all->items[i];
    if (!select_wants(patterns, f->path))
      continue;
    if (!mem_grow(&p->files.items, &p->files.capacity, p->files.n + 1, sizeof *p->files.items))
      return err_nomem(err, "file list");
    p->files.items[p->files.n++] = *f;
    f->path = NULL;
  }
  return TERN_OK;
}

/* Bytes of the files, and of what is missing; a blob that two files share counts once. */
static tern_status count_bytes(const cache_repo *r, hub_plan *p, tern_error *err)
{
  size_t n;
  const hub_file **blobs = listing_blobs(&p->files, &n);
  if (!blobs)
    return err_nomem(err, "file list");
  for (size_t i = 0; i < n; i++) {
    p->bytes += blobs[i]->size;
    p->missing += cache_missing(r, blobs[i]);
  }
  mem_free(blobs);
  return TERN_OK;
}

tern_status hub_plan_make(const http_settings *s, const char *cache, const hub_repo *repo, const hub_patterns *patterns,
                          const hub_watch *watch, hub_plan *out, tern_error *err)
{
  http *h = NULL;
  cache_repo r = {0};
  hub_files all = {0};
  *out = (hub_plan){.repo = *repo};
  TRY(http_open(s, &h, err));
  tern_status status = find_commit(h, s, watch, out, err);
  if (status == TERN_E_NOT_FOUND)
    status = explain_missing(h, s, repo, status, err);
  if (status == TERN_OK)
    status = list_files(h, s, watch, out, &all, err);
  if (status == TERN_OK)
    status = choose(patterns, &all, out, err);
  if (status == TERN_OK)
    status = cache_repo_open(cache, repo->id, &r, err);
  if (status == TERN_OK)
    status = count_bytes(&r, out, err);
  cache_repo_clear(&r);
  listing_free(&all);
  http_close(h);
  return status;
}

void hub_plan_clear(hub_plan *p)
{
  listing_free(&p->files);
  *p = (hub_plan){0};
}

static bool is_page(const char *text)
{
  return text[strspn(text, " \t\r\n")] == '<';
}

/* The bytes are the listed ones. */
static tern_status check_text(const hub_file *f, const buf *text, tern_error *err)
{
  char have[LISTING_ETAG_ROOM] = "";
  digest d;
  digest_start(&d, f);
  digest_add(&d, text->data, text->length);
  digest_end(&d, have);
  if (text->length == f->size && !strcmp(have, f->etag))
    return TERN_OK;
  return err_set(err, TERN_E_FORMAT, "%s: %s, and not the bytes that the hub lists (%s)", f->path,
                 is_page(text->data) ? "a web page came" : "other bytes came", f->etag);
}

static tern_status ask_file(const http_settings *s, const hub_plan *p, const hub_file *f, const hub_watch *watch,
                            char **text, size_t *length, tern_error *err)
{
  http *h = NULL;
  buf got = {0};
  if (f->size > TEXT_MOST)
    return err_set(err, TERN_E_LIMIT, "%s: %llu bytes", f->path, (unsigned long long)f->size);
  TRY(http_open(s, &h, err));
  char *url = ask_file_url(s, p, f->path);
  tern_status status =
      url ? ask_text(h, s, &p->repo, f->path, url, TEXT_MOST, watch, &got, NULL, err) : err_nomem(err, "address");
  mem_free(url);
  http_close(h);
  if (status == TERN_OK)
    status = check_text(f, &got, err);
  if (status == TERN_OK) {
    *length = got.length;
    *text = buf_take(&got);
    status = *text ? TERN_OK : err_nomem(err, f->path);
  }
  buf_free(&got);
  return status;
}

tern_status hub_plan_text(const http_settings *s, const char *cache, const hub_plan *p, const char *path,
                          const hub_watch *watch, char **text, size_t *length, tern_error *err)
{
  const hub_file *f = NULL;
  cache_repo r;
  for (size_t i = 0; i < p->files.n; i++)
    if (!strcmp(p->files.items[i].path, path))
      f = &p->files.items[i];
  if (!f)
    return err_set(err, TERN_E_NOT_FOUND, "%s: no %s among the files", p->repo.id, path);
  tern_status status = cache_repo_open(cache, p->repo.id, &r, err);
  char *blob = status == TERN_OK && cache_has_blob(&r, f) ? cache_blob_path(&r, f->etag, false) : NULL;
  if (status == TERN_OK)
    status = blob ? file_read(blob, TEXT_MOST, text, length, err) : ask_file(s, p, f, watch, text, length, err);
  mem_free(blob);
  cache_repo_clear(&r);
  if (status != TERN_OK || !is_page(*text))
    return status;
  mem_free(*text);
  return err_set(err, TERN_E_FORMAT, "%s: %s is a web page and not JSON: this repo is no model", p->repo.id, path);
}

/* ---- the pull ---- */

static tern_status check_room(const char *cache, const hub_plan *p, tern_error *err)
{
  uint64_t room = cache_room(cache);
  if (p->missing == 0 || (room > spare_room && room - spare_room >= p->missing))
    return TERN_OK;
  return err_set(err, TERN_E_IO,
                 "%s: %.1f MB have still to come and %.1f MB are to stay free, but the disk has %.1f MB left: tern gc "
                 "and tern rm make room",
                 cache, (double)p->missing / 1e6, (double)spare_room / 1e6, (double)room / 1e6);
}

/* Until it ends nobody removes blobs that no snapshot names yet. Waits for rm and gc. */
static tern_status share_repo(const http_settings *s, const cache_repo *r, const hub_watch *watch, int *lock,
                              tern_error *err)
{
  for (bool told = false;; told = true) {
    TRY(cache_lock_repo(r, false, lock, err));
    if (*lock >= 0)
      return TERN_OK;
    if (!told && watch->note)
      watch->note(watch->user, "another process is removing files of this repo: waiting for it");
    if (!http_sleep(s, 0.1))
      return err_set(err, TERN_E_CANCELLED, "cancelled");
  }
}

tern_status hub_pull(const http_settings *s, const char *cache, const hub_plan *p, const hub_watch *watch,
                     char **snapshot, tern_error *err)
{
  cache_repo r;
  int lock = CACHE_LOCK_FREE;
  tern_status status = cache_repo_open(cache, p->repo.id, &r, err);
  if (status == TERN_OK && strcmp(p->repo.revision, p->commit) != 0)
    status = cache_check_ref(&r, p->repo.revision, err);
  if (status == TERN_OK && !cache_is_whole(&r, p->commit, &p->files)) {
    status = check_room(cache, p, err);
    if (status == TERN_OK)
      status = share_repo(s, &r, watch, &lock, err);
    if (status == TERN_OK)
      status = cache_repo_make(&r, err);
    if (status == TERN_OK)
      status = fetch_blobs(s, &r, p, watch, err);
    if (status == TERN_OK)
      status = cache_link(&r, p->commit, &p->files, err);
  }
  if (status == TERN_OK)
    status = cache_write_ref(&r, p->repo.revision, p->commit, err);
  if (status == TERN_OK) {
    *snapshot = cache_snapshot_path(&r, p->commit);
    status = *snapshot ? TERN_OK : err_nomem(err, "path");
  }
  cache_unlock(lock);
  cache_repo_clear(&r);
  return status;
}
