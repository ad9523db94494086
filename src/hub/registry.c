/* registry.c - see registry.h. */
#include "hub/registry.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"

/* As deep as a path of the hub can be (REPO_PATH_MOST), and that of a ref. */
enum { MOST_DEPTH = REPO_PATH_MOST / 2 };
enum { MOST_ENTRIES = 1000000, HELD_FILES = 16, LITTER_SECONDS = 3600 };

static const char unfinished_end[] = ".incomplete", removed_kind[] = ".removed-", left_over[] = "left over";

/* ---- folders ---- */

typedef struct names {
  char **items;
  size_t n, capacity;
} names;

static void free_names(names *l)
{
  for (size_t i = 0; i < l->n; i++)
    mem_free(l->items[i]);
  mem_free(l->items);
  *l = (names){0};
}

static int by_name(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The entries of a folder, sorted; of one that is not there none. */
static tern_status list_folder(const char *path, names *out, tern_error *err)
{
  *out = (names){0};
  DIR *dir = opendir(path);
  if (!dir)
    return errno == ENOENT ? TERN_OK : err_errno(err, path, "open");
  tern_status status = TERN_OK;
  const struct dirent *e;
  while (status == TERN_OK && (errno = 0, e = readdir(dir))) {
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
      continue;
    char *name = mem_strdup(e->d_name);
    if (!name || out->n >= MOST_ENTRIES || !mem_grow(&out->items, &out->capacity, out->n + 1, sizeof *out->items)) {
      mem_free(name);
      status = err_nomem(err, path);
    } else {
      out->items[out->n++] = name;
    }
  }
  if (status == TERN_OK && errno)
    status = err_errno(err, path, "read");
  closedir(dir);
  if (status == TERN_OK && out->n)
    qsort(out->items, out->n, sizeof *out->items, by_name);
  if (status != TERN_OK)
    free_names(out);
  return status;
}

/* ---- reading ---- */

static bool ends_with(const char *text, const char *end)
{
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

/* 40 or 64 digits; what comes has ".incomplete" after them, of huggingface_hub with something random between. */
static bool is_blob_name(const char *name)
{
  size_t n = strspn(name, "0123456789abcdef");
  if (n != 40 && n != 64)
    return false;
  return !name[n] || (name[n] == '.' && ends_with(name, unfinished_end) && !strpbrk(name, " \t\n"));
}

static tern_status read_blobs(const cache_repo *r, registry *g, tern_error *err)
{
  names found = {0};
  char *folder = path_join(r->dir, "blobs");
  tern_status status = folder ? list_folder(folder, &found, err) : err_nomem(err, "path");
  if (status != TERN_OK) {
    mem_free(folder);
    return status;
  }
  g->blobs = mem_array(found.n + 1, sizeof *g->blobs);
  if (!g->blobs)
    status = err_nomem(err, "blobs");
  for (size_t i = 0; status == TERN_OK && i < found.n; i++) {
    struct stat st = {0};
    char *path = path_join(folder, found.items[i]);
    if (!path)
      status = err_nomem(err, "path");
    else if (lstat(path, &st) != 0 && errno != ENOENT)
      status = err_errno(err, path, "look up");
    else if ((S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) && is_blob_name(found.items[i])) {
      g->blobs[g->n_blobs++] = (registry_blob){.name = found.items[i],
                                               .bytes = (uint64_t)st.st_size,
                                               .device = st.st_dev,
                                               .inode = st.st_ino,
                                               .unfinished = ends_with(found.items[i], unfinished_end)};
      found.items[i] = NULL;
    }
    mem_free(path);
  }
  free_names(&found);
  mem_free(folder);
  return status;
}

static int blob_by_name(const void *key, const void *blob)
{
  return strcmp(key, ((const registry_blob *)blob)->name);
}

static int by_number(const void *a, const void *b)
{
  size_t x = *(const size_t *)a, y = *(const size_t *)b;
  return x < y ? -1 : x > y;
}

/* The blob that a link names, by the last part of its target where "blobs" stands before that. NULL: none. */
static const registry_blob *named_by(const char *path, const registry *g)
{
  char target[4096];
  ssize_t n = readlink(path, target, sizeof target - 1);
  if (n < 0)
    return NULL;
  target[n] = 0;
  char *name = strrchr(target, '/');
  if (!name)
    return NULL;
  *name++ = 0;
  const char *folder = strrchr(target, '/');
  if (strcmp(folder ? folder + 1 : target, "blobs") != 0)
    return NULL;
  return g->n_blobs ? bsearch(name, g->blobs, g->n_blobs, sizeof *g->blobs, blob_by_name) : NULL;
}

static tern_status note_use(const registry_blob *b, const registry *g, registry_revision *v, size_t *capacity,
                            tern_error *err)
{
  if (!b)
    return TERN_OK;
  if (!mem_grow(&v->blobs, capacity, v->n_blobs + 1, sizeof *v->blobs))
    return err_nomem(err, "blobs");
  v->blobs[v->n_blobs++] = (size_t)(b - g->blobs);
  return TERN_OK;
}

/* Notes the blobs that an entry uses: the one that a link names (`own`: in this repo), and the file that it is or leads
 * to, however it is spelled. */
static tern_status note_entry(const char *path, bool own, const registry *g, registry_revision *v, size_t *capacity,
                              tern_error *err)
{
  struct stat st;
  if (own)
    TRY(note_use(named_by(path, g), g, v, capacity, err));
  if (stat(path, &st) != 0)
    return errno == ENOENT || errno == ELOOP || errno == ENOTDIR ? TERN_OK : err_errno(err, path, "look up");
  for (size_t i = 0; i < g->n_blobs; i++)
    if (g->blobs[i].inode == st.st_ino && g->blobs[i].device == st.st_dev)
      return note_use(&g->blobs[i], g, v, capacity, err);
  return TERN_OK;
}

static tern_status walk(const char *dir, int depth, bool own, const registry *g, registry_revision *v, size_t *capacity,
                        tern_error *err)
{
  names found = {0};
  if (depth > MOST_DEPTH)
    return err_set(err, TERN_E_LIMIT, "%s: more than %d folders deep", dir, MOST_DEPTH);
  TRY(list_folder(dir, &found, err));
  tern_status status = TERN_OK;
  for (size_t i = 0; status == TERN_OK && i < found.n; i++) {
    struct stat st;
    char *path = path_join(dir, found.items[i]);
    if (!path)
      status = err_nomem(err, "path");
    else if (lstat(path, &st) != 0)
      status = err_errno(err, path, "look up");
    else if (S_ISLNK(st.st_mode))
      status = note_entry(path, own, g, v, capacity, err);
    else if (S_ISDIR(st.st_mode))
      status = walk(path, depth + 1, own, g, v, capacity, err);
    else { /* where links cannot be made the bytes lie here, or are a blob under a second name */
      v->bytes += (uint64_t)st.st_size;
      status = note_entry(path, false, g, v, capacity, err);
    }
    mem_free(path);
  }
  free_names(&found);
  return status;
}

/* What a revision names, once each. */
static void count_uses(registry *g, registry_revision *v)
{
  size_t n = 0;
  if (v->n_blobs)
    qsort(v->blobs, v->n_blobs, sizeof *v->blobs, by_number);
  for (size_t i = 0; i < v->n_blobs; i++)
    if (i == 0 || v->blobs[i] != v->blobs[i - 1])
      v->blobs[n++] = v->blobs[i];
  v->n_blobs = n;
  for (size_t i = 0; i < n; i++) {
    g->blobs[v->blobs[i]].uses++;
    v->bytes += g->blobs[v->blobs[i]].bytes;
  }
}

/* An entry of snapshots/. What is there and cannot be looked up is an error, what leads nowhere is not. */
static tern_status read_revision(const char *path, const registry *g, registry_revision *v, tern_error *err)
{
  struct stat st;
  size_t capacity = 0;
  bool found = stat(path, &st) == 0;
  if (!found && errno != ENOENT && errno != ELOOP)
    return err_errno(err, path, "look up");
  v->nowhere = !found || !S_ISDIR(st.st_mode);
  return v->nowhere ? TERN_OK : walk(path, 0, true, g, v, &capacity, err);
}

static tern_status read_revisions(const cache_repo *r, registry *g, tern_error *err)
{
  names found = {0};
  char *folder = path_join(r->dir, "snapshots");
  tern_status status = folder ? list_folder(folder, &found, err) : err_nomem(err, "path");
  if (status != TERN_OK) {
    mem_free(folder);
    return status;
  }
  g->revisions = mem_array(found.n + 1, sizeof *g->revisions);
  if (!g->revisions)
    status = err_nomem(err, "revisions");
  for (size_t i = 0; status == TERN_OK && i < found.n; i++) {
    char *path = path_join(folder, found.items[i]);
    registry_revision *v = &g->revisions[g->n_revisions++];
    *v = (registry_revision){.name = found.items[i], .refs = mem_strdup("")};
    found.items[i] = NULL;
    status = path && v->refs ? read_revision(path, g, v, err) : err_nomem(err, "path");
    count_uses(g, v);
    mem_free(path);
  }
  free_names(&found);
  mem_free(folder);
  return status;
}

/* Adds a ref's name to the revision that it leads to. */
static tern_status note_ref(const cache_repo *r, const char *name, registry *g, tern_error *err)
{
  char commit[REPO_COMMIT_ROOM];
  if (strchr(name, '\n') || !cache_read_ref(r, name, commit)) /* git has none with line ends */
    return TERN_OK;
  for (size_t i = 0; i < g->n_revisions; i++) {
    registry_revision *v = &g->revisions[i];
    if (strcmp(v->name, commit) != 0)
      continue;
    buf refs = {0};
    buf_addf(&refs, "%s%s%s", v->refs, *v->refs ? "\n" : "", name);
    char *text = buf_take(&refs);
    if (!text)
      return err_nomem(err, "refs");
    mem_free(v->refs);
    v->refs = text;
  }
  return TERN_OK;
}

/* refs/ holds files, in folders where a ref's name has slashes. `prefix` ends in a slash or is empty. */
static tern_status read_refs(const cache_repo *r, const char *prefix, int depth, registry *g, tern_error *err)
{
  names found = {0};
  buf folder = {0};
  if (depth > MOST_DEPTH)
    return err_set(err, TERN_E_LIMIT, "%s/refs: more than %d folders deep", r->dir, MOST_DEPTH);
  buf_addf(&folder, "%s/refs/%s", r->dir, prefix);
  tern_status status = folder.failed ? err_nomem(err, "path") : list_folder(folder.data, &found, err);
  if (status != TERN_OK) {
    buf_free(&folder);
    return status;
  }
  for (size_t i = 0; status == TERN_OK && i < found.n; i++) {
    buf name = {0}, path = {0};
    struct stat st;
    buf_addf(&name, "%s%s", prefix, found.items[i]);
    buf_addf(&path, "%s%s", folder.data, found.items[i]);
    bool is_folder = !path.failed && lstat(path.data, &st) == 0 && S_ISDIR(st.st_mode);
    if (is_folder)
      buf_addc(&name, '/');
    if (name.failed || path.failed)
      status = err_nomem(err, "path");
    else
      status = is_folder ? read_refs(r, name.data, depth + 1, g, err) : note_ref(r, name.data, g, err);
    buf_free(&name);
    buf_free(&path);
  }
  free_names(&found);
  buf_free(&folder);
  return status;
}

/* ".KIND-PROCESS-RANDOM", as this room names what is not finished. */
static bool has_our_form(const char *name, const char *kind)
{
  size_t n = strlen(kind);
  if (strncmp(name, kind, n) != 0)
    return false;
  name += n;
  size_t digits = strspn(name, "0123456789");
  return digits && name[digits] == '-' && strlen(name + digits + 1) == 8 &&
         strspn(name + digits + 1, "0123456789abcdef") == 8;
}

/* What is being removed is nobody's at once; what is being made, when it is old. */
static bool is_litter(const char *dir, const char *name)
{
  struct stat st;
  if (has_our_form(name, removed_kind))
    return true;
  if (!has_our_form(name, ".snapshot-") && !has_our_form(name, ".ref-"))
    return false;
  char *path = path_join(dir, name);
  bool old = path && lstat(path, &st) == 0 && time(NULL) - st.st_mtime >= LITTER_SECONDS;
  mem_free(path);
  return old;
}

static tern_status read_litter(const cache_repo *r, registry *g, tern_error *err)
{
  names found = {0};
  TRY(list_folder(r->dir, &found, err));
  g->litter = mem_array(found.n + 1, sizeof *g->litter);
  tern_status status = g->litter ? TERN_OK : err_nomem(err, "names");
  for (size_t i = 0; status == TERN_OK && i < found.n; i++)
    if (is_litter(r->dir, found.items[i])) {
      g->litter[g->n_litter++] = found.items[i];
      found.items[i] = NULL;
    }
  free_names(&found);
  return status;
}

/* The repo's folder and those in it are folders, and not links to some. */
static tern_status check_folders(const cache_repo *r, tern_error *err)
{
  static const char *const folders[] = {"", "blobs", "snapshots", "refs"};
  tern_status status = TERN_OK;
  for (size_t i = 0; status == TERN_OK && i < sizeof folders / sizeof *folders; i++) {
    struct stat st;
    char *path = *folders[i] ? path_join(r->dir, folders[i]) : mem_strdup(r->dir);
    if (!path)
      status = err_nomem(err, "path");
    else if (lstat(path, &st) == 0 && !S_ISDIR(st.st_mode))
      status = err_set(err, TERN_E_UNSUPPORTED, "%s: is a symbolic link, or no folder: nothing is removed there", path);
    mem_free(path);
  }
  return status;
}

tern_status registry_look_elsewhere(const cache_repo *r, registry *g, tern_error *err)
{
  const char *self = strrchr(r->dir, '/');
  char *root = self ? mem_strndup(r->dir, (size_t)(self - r->dir)) : NULL;
  names found = {0};
  tern_status status = root ? list_folder(root, &found, err) : err_nomem(err, "path");
  for (size_t i = 0; status == TERN_OK && i < found.n; i++) {
    char id[REPO_ID_ROOM];
    buf path = {0};
    registry_revision v = {0};
    size_t capacity = 0;
    if (!repo_of_folder(found.items[i], id) || !strcmp(found.items[i], self + 1))
      continue;
    buf_addf(&path, "%s/%s/snapshots", root, found.items[i]);
    if (path.failed)
      status = err_nomem(err, "path");
    else if (file_is_directory(path.data))
      status = walk(path.data, 0, false, g, &v, &capacity, err);
    count_uses(g, &v);
    g->lent |= v.n_blobs > 0;
    mem_free(v.blobs);
    buf_free(&path);
  }
  free_names(&found);
  mem_free(root);
  return status;
}

tern_status registry_read(const cache_repo *r, registry *out, tern_error *err)
{
  *out = (registry){0};
  TRY(check_folders(r, err));
  TRY(read_blobs(r, out, err));
  TRY(read_revisions(r, out, err));
  TRY(read_refs(r, "", 0, out, err));
  return read_litter(r, out, err);
}

void registry_free(registry *g)
{
  for (size_t i = 0; i < g->n_blobs; i++)
    mem_free(g->blobs[i].name);
  for (size_t i = 0; i < g->n_revisions; i++) {
    mem_free(g->revisions[i].name);
    mem_free(g->revisions[i].refs);
    mem_free(g->revisions[i].blobs);
  }
  for (size_t i = 0; i < g->n_litter; i++)
    mem_free(g->litter[i]);
  mem_free(g->blobs);
  mem_free(g->revisions);
  mem_free(g->litter);
  *g = (registry){0};
}

/* Whether `name` is one of the list's lines. */
static bool is_among(const char *list, const char *name)
{
  size_t n = strlen(name);
  for (const char *at = list; *at; at += *at == '\n') {
    size_t length = strcspn(at, "\n");
    if (length == n && !memcmp(at, name, n))
      return true;
    at += length;
  }
  return false;
}

const registry_revision *registry_find(const registry *g, const char *revision)
{
  const registry_revision *found = NULL;
  size_t n = strlen(revision);
  for (size_t i = 0; i < g->n_revisions; i++)
    if (is_among(g->revisions[i].refs, revision) || !strcmp(g->revisions[i].name, revision))
      return &g->revisions[i];
  for (size_t i = 0; i < g->n_revisions; i++) {
    if (n < 7 || strncmp(g->revisions[i].name, revision, n) != 0)
      continue;
    if (found)
      return NULL;
    found = &g->revisions[i];
  }
  return found;
}

/* ---- plans ---- */

/* Takes over `path`, which lies below its first `parent` bytes. */
static tern_status add_item(registry_plan *plan, char *path, size_t parent, uint64_t bytes, const char *why,
                            tern_error *err)
{
  if (!path || !mem_grow(&plan->items, &plan->capacity, plan->n + 1, sizeof *plan->items)) {
    mem_free(path);
    return err_nomem(err, "plan");
  }
  plan->items[plan->n++] = (registry_item){.path = path, .bytes = bytes, .why = why, .parent = parent};
  plan->bytes += bytes;
  return TERN_OK;
}

static char *below(const cache_repo *r, const char *folder, const char *name)
{
  buf path = {0};
  buf_addf(&path, "%s/%s%s", r->dir, folder, name);
  return buf_take(&path);
}

/* Whether somebody is writing that blob: "ETAG", "ETAG.incomplete" or huggingface_hub's "ETAG.1a2b3c4d.incomplete". */
static tern_status is_held(const cache_repo *r, const char *name, bool *held, tern_error *err)
{
  char etag[LISTING_ETAG_ROOM];
  int lock;
  *held = false;
  size_t n = strcspn(name, ".");
  if (n >= sizeof etag)
    return TERN_OK;
  memcpy(etag, name, n);
  etag[n] = 0;
  TRY(cache_look_at_lock(r, etag, &lock, err));
  *held = lock == CACHE_LOCK_HELD;
  return TERN_OK;
}

static tern_status add_blob(const cache_repo *r, const registry_blob *b, registry_plan *plan, tern_error *err)
{
  bool held;
  TRY(is_held(r, b->name, &held, err));
  if (held)
    return TERN_OK;
  return add_item(plan, below(r, "blobs/", b->name), strlen(r->dir), b->bytes,
                  b->unfinished ? "unfinished" : "no revision uses it", err);
}

tern_status registry_plan_unused(const cache_repo *r, const registry *g, registry_plan *plan, tern_error *err)
{
  for (size_t i = 0; i < g->n_blobs; i++)
    if (!g->blobs[i].uses)
      TRY(add_blob(r, &g->blobs[i], plan, err));
  for (size_t i = 0; i < g->n_litter; i++)
    TRY(add_item(plan, below(r, "", g->litter[i]), strlen(r->dir), 0, left_over, err));
  return TERN_OK;
}

/* The refs that lead to it. */
static tern_status add_refs(const cache_repo *r, const registry_revision *v, registry_plan *plan, tern_error *err)
{
  for (const char *at = v->refs; *at; at += *at == '\n') {
    size_t n = strcspn(at, "\n");
    buf path = {0};
    buf_addf(&path, "%s/refs/%.*s", r->dir, (int)n, at);
    TRY(add_item(plan, buf_take(&path), strlen(r->dir), 0, "revision", err));
    at += n;
  }
  return TERN_OK;
}

tern_status registry_plan_revision(const cache_repo *r, const registry *g, const registry_revision *which,
                                   registry_plan *plan, tern_error *err)
{
  buf tree = {0};
  uint64_t own = which->bytes;
  for (size_t i = 0; i < which->n_blobs; i++)
    own -= g->blobs[which->blobs[i]].bytes;
  TRY(add_item(plan, below(r, "snapshots/", which->name), strlen(r->dir), own, "revision", err));
  TRY(add_refs(r, which, plan, err));
  buf_addf(&tree, "%s/trees/%s.json", r->dir, which->name); /* huggingface_hub's note of the file list */
  char *path = buf_take(&tree);
  if (path && access(path, F_OK) == 0)
    TRY(add_item(plan, path, strlen(r->dir), 0, "revision", err));
  else
    mem_free(path);
  for (size_t i = 0; i < which->n_blobs; i++) {
    const registry_blob *b = &g->blobs[which->blobs[i]];
    if (b->uses == 1)
      TRY(add_item(plan, below(r, "blobs/", b->name), strlen(r->dir), b->bytes, "revision", err));
  }
  return TERN_OK;
}

tern_status registry_is_held(const cache_repo *r, const registry *g, const registry_revision *which, bool *held,
                             tern_error *err)
{
  size_t n = which ? which->n_blobs : g->n_blobs;
  *held = false;
  for (size_t i = 0; i < n && !*held; i++)
    TRY(is_held(r, g->blobs[which ? which->blobs[i] : i].name, held, err));
  return TERN_OK;
}

static bool has_path(const registry_plan *plan, const char *path)
{
  for (size_t i = 0; i < plan->n; i++)
    if (!strcmp(plan->items[i].path, path))
      return true;
  return false;
}

void registry_plan_keep(registry_plan *plan, const registry_plan *now)
{
  size_t n = 0;
  for (size_t i = 0; i < plan->n; i++) {
    registry_item item = plan->items[i];
    if (item.empty || !strcmp(item.why, left_over) || has_path(now, item.path)) {
      plan->items[n++] = item;
      continue;
    }
    plan->bytes -= item.bytes;
    mem_free(item.path);
  }
  plan->n = n;
}

/* nftw has no room for a pointer of ours. */
static _Thread_local uint64_t tree_bytes;

static int add_size(const char *path, const struct stat *st, int type, struct FTW *at)
{
  (void)path, (void)at;
  tree_bytes += type == FTW_F || type == FTW_SL ? (uint64_t)st->st_size : 0;
  return 0;
}

static tern_status add_folder(registry_plan *plan, const char *path, const char *why, tern_error *err)
{
  const char *slash = strrchr(path, '/');
  return add_item(plan, mem_strdup(path), slash ? (size_t)(slash - path) : 0, tree_bytes, why, err);
}

tern_status registry_plan_folder(const char *path, registry_plan *plan, tern_error *err)
{
  tree_bytes = 0;
  if (nftw(path, add_size, HELD_FILES, FTW_PHYS | FTW_MOUNT) != 0)
    return err_errno(err, path, "look through");
  return add_folder(plan, path, "revision", err);
}

tern_status registry_plan_path(const char *path, const char *why, registry_plan *plan, tern_error *err)
{
  tree_bytes = 0;
  if (nftw(path, add_size, HELD_FILES, FTW_PHYS | FTW_MOUNT) != 0)
    return errno == ENOENT ? TERN_OK : err_errno(err, path, "look through"); /* another process was quicker */
  return add_folder(plan, path, why, err);
}

tern_status registry_plan_left(const char *path, registry_plan *plan, tern_error *err)
{
  return registry_plan_path(path, left_over, plan, err);
}

/* Both stop the walk at what is not to be there: a file or a link; a folder that is young. */
static int look_for_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
  (void)path, (void)st, (void)at;
  return type == FTW_D ? 0 : 1;
}

static int look_for_change(const char *path, const struct stat *st, int type, struct FTW *at)
{
  (void)path, (void)at;
  return type == FTW_D && time(NULL) - st->st_mtime >= LITTER_SECONDS ? 0 : 1;
}

static tern_status add_empty(registry_plan *plan, const char *path, tern_error *err)
{
  tree_bytes = 0;
  TRY(add_folder(plan, path, "empty", err));
  plan->items[plan->n - 1].empty = true;
  return TERN_OK;
}

tern_status registry_plan_empty(const char *path, bool old, registry_plan *plan, tern_error *err)
{
  int found = nftw(path, old ? look_for_change : look_for_file, HELD_FILES, FTW_PHYS | FTW_MOUNT);
  if (found < 0)
    return errno == ENOENT ? TERN_OK : err_errno(err, path, "look through");
  return found ? TERN_OK : add_empty(plan, path, err);
}

tern_status registry_plan_emptied(const char *path, registry_plan *plan, tern_error *err)
{
  names found = {0};
  bool all = true;
  TRY(list_folder(path, &found, err));
  tern_status status = TERN_OK;
  for (size_t i = 0; status == TERN_OK && i < found.n; i++) {
    char *entry = path_join(path, found.items[i]);
    if (!entry)
      status = err_nomem(err, "path");
    else
      all = all && has_path(plan, entry);
    mem_free(entry);
  }
  free_names(&found);
  return status == TERN_OK && all ? add_empty(plan, path, err) : status;
}

tern_status registry_plan_litter(const char *folder, registry_plan *plan, tern_error *err)
{
  names found = {0};
  TRY(list_folder(folder, &found, err));
  tern_status status = TERN_OK;
  for (size_t i = 0; status == TERN_OK && i < found.n; i++) {
    char *path = has_our_form(found.items[i], removed_kind) ? path_join(folder, found.items[i]) : NULL;
    if (path)
      status = registry_plan_left(path, plan, err);
    mem_free(path);
  }
  free_names(&found);
  return status;
}

/* ---- removing ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
  (void)st, (void)type, (void)at;
  return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* What is no folder, or holds something by now, stays. */
static int remove_if_empty(const char *path, const struct stat *st, int type, struct FTW *at)
{
  (void)st, (void)at;
  return type != FTW_DP || rmdir(path) == 0 || errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST ? 0 : -1;
}

static tern_status remove_empty(const char *path, tern_error *err)
{
  bool gone = nftw(path, remove_if_empty, HELD_FILES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == 0 || errno == ENOENT;
  return gone ? TERN_OK : err_errno(err, path, "remove");
}

/* A folder is renamed first, so that it goes at once for whoever looks. */
static tern_status remove_folder(const registry_item *item, tern_error *err)
{
  uint32_t drawn = 0;
  buf fresh = {0};
  if (getrandom(&drawn, sizeof drawn, GRND_NONBLOCK) < 0)
    drawn = (uint32_t)time(NULL);
  buf_add(&fresh, item->path, item->parent);
  buf_addf(&fresh, "%s%s%ld-%08x", item->parent ? "/" : "", removed_kind, (long)getpid(), (unsigned)drawn);
  tern_status status = fresh.failed ? err_nomem(err, "path") : TERN_OK;
  if (status == TERN_OK && rename(item->path, fresh.data) != 0)
    status = errno == ENOENT ? TERN_OK : err_errno(err, item->path, "remove");
  else if (status == TERN_OK && nftw(fresh.data, remove_one, HELD_FILES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0)
    status = errno == ENOENT ? TERN_OK : err_errno(err, fresh.data, "remove");
  buf_free(&fresh);
  return status;
}

tern_status registry_remove(const registry_plan *plan, tern_error *err)
{
  for (size_t i = 0; i < plan->n; i++) {
    struct stat st;
    const char *path = plan->items[i].path;
    if (lstat(path, &st) != 0 && errno == ENOENT)
      continue;
    if (plan->items[i].empty)
      TRY(remove_empty(path, err));
    else if (S_ISDIR(st.st_mode))
      TRY(remove_folder(&plan->items[i], err));
    else if (unlink(path) != 0 && errno != ENOENT)
      return err_errno(err, path, "remove");
  }
  return TERN_OK;
}

void registry_plan_free(registry_plan *plan)
{
  for (size_t i = 0; i < plan->n; i++)
    mem_free(plan->items[i].path);
  mem_free(plan->items);
  *plan = (registry_plan){0};
}
