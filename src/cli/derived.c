/* derived.c - see derived.h. Each file is counted by those who use it: those that stay, and those that are about to go.
 */
#include "cli/derived.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/models.h"
#include "cli/out.h"
#include "model/prepared.h"

enum { IDENTITY = SHA256_HEX - 1, IMPORT_DIGITS = 16 };

/* One folder of prepared/. */
typedef struct derived_file {
  char *folder, *weights;
  char identity[SHA256_HEX];
  int layout; /* -1: not a file that this build knows how to identify */
  bool whole; /* `weights` is there */
  bool known; /* who uses it: what nobody noted may be somebody's */
  bool kept;  /* only since that is not known */
  size_t staying, going;
} derived_file;

typedef struct derived {
  const registry_plan *goes;
  size_t n_goes;
  derived_file *items;
  size_t n, capacity;
  bool quiet;  /* the same was said before */
  bool locked; /* prepared/ is: where a file system has no locks, who makes what is not known */
  /* of a note of an import that is looked at */
  const char *imports, *digest; /* the folder of imports, and what the note says */
  derived_file import;
  registry_plan *plan;
} derived;

typedef tern_status entry_visit(derived *d, const char *folder, const char *name, tern_error *err);

/* Every entry but those that begin with a dot. One that could not be listed must not pass for one that is not there. */
static tern_status each_entry(derived *d, const char *folder, entry_visit *visit, tern_error *err)
{
  DIR *dir = opendir(folder);
  if (!dir)
    return errno == ENOENT || errno == ENOTDIR || errno == ELOOP /* links that lead nowhere */ ? TERN_OK
                                                                                               : err_errno(err, folder,
                                                                                                           "open");
  tern_status status = TERN_OK;
  const struct dirent *e;
  while (status == TERN_OK && (errno = 0, e = readdir(dir)))
    if (e->d_name[0] != '.')
      status = visit(d, folder, e->d_name, err);
  if (status == TERN_OK && errno)
    status = err_errno(err, folder, "read");
  closedir(dir);
  return status;
}

/* ---- who goes ---- */

static bool is_hex(const char *text, size_t n)
{
  return strspn(text, "0123456789abcdef") >= n;
}

/* Whether `path`, as the system spells it, is or lies in what is about to go. Of a link nothing but itself goes. */
static bool is_going(const derived *d, const char *path)
{
  bool going = false;
  for (size_t i = 0; i < d->n_goes && !going; i++) {
    struct stat st;
    const char *item = d->goes->items[i].path;
    char *full = lstat(item, &st) == 0 && S_ISDIR(st.st_mode) ? realpath(item, NULL) : NULL;
    size_t n = full ? strlen(full) : 0;
    going = full && !strncmp(path, full, n) && (!path[n] || path[n] == '/');
    free(full); /* realpath's own allocation */
  }
  return going;
}

/* ---- prepared weights ---- */

static tern_status add_file(derived *d, const char *dir, const char *name, tern_error *err)
{
  prepared_head head;
  if (strlen(name) != IDENTITY || !is_hex(name, IDENTITY))
    return TERN_OK;
  if (!mem_grow(&d->items, &d->capacity, d->n + 1, sizeof *d->items))
    return err_nomem(err, "prepared weights");
  derived_file *f = &d->items[d->n++];
  *f = (derived_file){.layout = -1, .folder = path_join(dir, name)};
  f->weights = f->folder ? path_join(f->folder, "weights") : NULL;
  if (!f->weights)
    return err_nomem(err, "path");
  memcpy(f->identity, name, sizeof f->identity);
  f->whole = file_is_regular(f->weights);
  if (f->whole && prepared_read_head(f->weights, &head, NULL) == TERN_OK && head.format == PREPARED_FORMAT)
    f->layout = (int)head.layout;
  return TERN_OK;
}

static void count(derived_file *f, bool going)
{
  *(going ? &f->going : &f->staying) += 1;
}

/* Whether the checkpoint has the identity of the file. */
static tern_status is_of(const derived_file *f, const ckpt *c, bool *same, tern_error *err)
{
  prepared_place place = {0};
  TRY(prepared_find_place("", c, &(ops_layout){.version = f->layout}, &place, err));
  *same = !strcmp(place.identity, f->identity);
  mem_free(place.path);
  return TERN_OK;
}

/* A model of the caches: whose files it uses. One that does not open uses none. */
static tern_status note_model(derived *d, const char *dir, tern_error *err)
{
  ckpt *c = NULL;
  char *full = realpath(dir, NULL);
  bool going = full && is_going(d, full);
  free(full); /* realpath's own allocation */
  if (ckpt_open(dir, &c, NULL) != TERN_OK)
    return TERN_OK;
  tern_status status = TERN_OK;
  for (size_t i = 0; status == TERN_OK && i < d->n; i++) {
    bool same = false;
    if (d->items[i].layout >= 0)
      status = is_of(&d->items[i], c, &same, err);
    if (same)
      count(&d->items[i], going);
  }
  ckpt_close(c);
  return status;
}

/* A directory that the file was made for or used from. */
static tern_status note_source(const derived *d, derived_file *f, const char *dir, tern_error *err)
{
  ckpt *c = NULL;
  bool same = true;
  if (prepared_source_is_gone(dir))
    return TERN_OK;
  tern_status status = TERN_OK;
  if (f->layout >= 0 && ckpt_open(dir, &c, NULL) == TERN_OK)
    status = is_of(f, c, &same, err);
  ckpt_close(c);
  if (status == TERN_OK && same) {
    char *full = realpath(dir, NULL);
    count(f, full && is_going(d, full));
    free(full); /* realpath's own allocation */
  }
  return status;
}

/* Notes that cannot be read are one file's trouble, and nobody else's. */
static tern_status note_sources(const derived *d, derived_file *f, tern_error *err)
{
  char *paths;
  size_t n;
  tern_error why = {0};
  tern_status status = prepared_sources(f->folder, &paths, &n, &f->known, &why);
  if (status == TERN_E_NOMEM)
    return err_nomem(err, "prepared weights");
  if (status != TERN_OK) {
    if (!d->quiet)
      say("%s: stays: %s", f->folder, why.text);
    count(f, false);
    return TERN_OK;
  }
  for (size_t at = 0; status == TERN_OK && at < n; at += strlen(paths + at) + 1)
    status = note_source(d, f, paths + at, err);
  mem_free(paths);
  return status;
}

static tern_status note_folder(derived *d, const char *folder, const char *name, tern_error *err)
{
  char *path = path_join(folder, name);
  if (!path)
    return err_nomem(err, "path");
  tern_status status = file_is_directory(path) ? note_model(d, path, err) : TERN_OK;
  mem_free(path);
  return status;
}

static tern_status note_repo(derived *d, const char *root, const char *name, tern_error *err)
{
  char id[REPO_ID_ROOM];
  if (!repo_of_folder(name, id))
    return TERN_OK;
  char *path = path_join(root, name), *snapshots = path ? path_join(path, "snapshots") : NULL;
  tern_status status = snapshots ? each_entry(d, snapshots, note_folder, err) : err_nomem(err, "path");
  mem_free(snapshots);
  mem_free(path);
  return status;
}

/* Of a root where ROOT/NAME and ROOT/ORG/NAME are models too. */
static tern_status note_plain(derived *d, const char *root, const char *name, tern_error *err)
{
  char id[REPO_ID_ROOM];
  if (repo_of_folder(name, id))
    return note_repo(d, root, name, err);
  if (models_is_root(name))
    return TERN_OK;
  char *path = path_join(root, name);
  tern_status status = path ? TERN_OK : err_nomem(err, "path");
  if (path && file_is_directory(path)) {
    status = note_model(d, path, err);
    if (status == TERN_OK)
      status = each_entry(d, path, note_folder, err);
  }
  mem_free(path);
  return status;
}

static tern_status note_users(derived *d, const cli_env *env, tern_error *err)
{
  char *root;
  bool plain, failed = false;
  tern_status status = TERN_OK;
  for (size_t i = 0; status == TERN_OK && i < d->n; i++)
    status = note_sources(d, &d->items[i], err);
  for (size_t i = 0; d->n && status == TERN_OK && models_root(env, i, &root, &plain, &failed); i++) {
    if (failed)
      status = err_nomem(err, "path");
    else if (root)
      status = each_entry(d, root, plain ? note_plain : note_repo, err);
    mem_free(root);
  }
  return status;
}

static bool is_nobodys(const derived *d, size_t staying, size_t going)
{
  return !staying && (!d->goes || going);
}

static tern_status plan_file(const derived *d, derived_file *f, registry_plan *plan, tern_error *err)
{
  if (!f->whole) /* a maker's, and makers have the lock */
    return d->goes || !d->locked ? TERN_OK : registry_plan_path(f->folder, "unfinished", plan, err);
  if (!is_nobodys(d, f->staying, f->going))
    return TERN_OK;
  f->kept = !f->known;
  if (f->kept)
    return TERN_OK;
  if (prepared_is_held(f->weights)) {
    say("%s: stays: a process has it open (tern gc removes it later)", f->folder);
    return TERN_OK;
  }
  return registry_plan_path(f->folder, "prepared weights", plan, err);
}

static tern_status take_lock(derived *d, const char *dir, derived_lock *lock, tern_error *err)
{
  lock->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock->fd < 0)
    return errno == ENOENT ? TERN_OK : err_errno(err, dir, "open");
  d->locked = flock(lock->fd, LOCK_EX | LOCK_NB) == 0;
  lock->busy = !d->locked && (errno == EWOULDBLOCK || errno == EINTR);
  return TERN_OK;
}

void derived_unlock(derived_lock *lock)
{
  if (lock->fd >= 0)
    close(lock->fd);
  lock->fd = -1;
  lock->busy = false;
}

/* What stays since nobody noted whose it is: how many, and what can be done. */
static void tell_kept(const derived *d, const char *dir)
{
  size_t n = 0;
  for (size_t i = 0; i < d->n; i++)
    n += d->items[i].kept;
  if (!n || d->quiet)
    return;
  say("%zu of the prepared weights in %s stay%s: not noted which models use them (running a model notes its own; rm -r "
      "removes those of no use%s)",
      n, dir, n == 1 ? "s" : "", out_is_verbose() ? "" : "; --verbose names them");
  for (size_t i = 0; i < d->n; i++)
    if (d->items[i].kept)
      say_more("  %s", d->items[i].folder);
}

static tern_status plan_prepared(derived *d, const cli_env *env, registry_plan *plan, derived_lock *lock,
                                 tern_error *err)
{
  char *dir = path_join(env->tern_home, "prepared");
  tern_status status = dir ? take_lock(d, dir, lock, err) : err_nomem(err, "path");
  if (status == TERN_OK && lock->busy) {
    say("%s: passed over: another process is making prepared weights", dir);
  } else if (status == TERN_OK && lock->fd >= 0) {
    status = each_entry(d, dir, add_file, err);
    if (status == TERN_OK)
      status = note_users(d, env, err);
    for (size_t i = 0; status == TERN_OK && i < d->n; i++)
      status = plan_file(d, &d->items[i], plan, err);
    if (status == TERN_OK)
      tell_kept(d, dir);
  }
  mem_free(dir);
  return status;
}

/* ---- notes of imports ---- */

/* Counts the imports whose name ends in the digest's beginning. */
static tern_status count_import(derived *d, const char *imports, const char *name, tern_error *err)
{
  size_t n = strlen(name);
  if (n <= IMPORT_DIGITS || strncmp(name + n - IMPORT_DIGITS, d->digest, IMPORT_DIGITS) != 0)
    return TERN_OK;
  char *path = path_join(imports, name);
  if (!path)
    return err_nomem(err, "path");
  char *full = realpath(path, NULL);
  if (full || errno != ENOENT)
    count(&d->import, full && is_going(d, full));
  free(full); /* realpath's own allocation */
  mem_free(path);
  return TERN_OK;
}

static tern_status plan_note(derived *d, const char *seen, const char *name, tern_error *err)
{
  size_t size;
  char *path = path_join(seen, name), *digest = NULL;
  if (!path)
    return err_nomem(err, "path");
  tern_status status = file_read(path, SHA256_HEX, &digest, &size, NULL);
  if (status == TERN_E_NOMEM) {
    status = err_nomem(err, path);
  } else if (status != TERN_OK) {
    status = TERN_OK; /* not one of ours, or gone by now */
  } else if (size == IDENTITY && is_hex(digest, IDENTITY)) {
    d->import = (derived_file){0};
    d->digest = digest;
    status = each_entry(d, d->imports, count_import, err);
    d->digest = NULL;
    if (status == TERN_OK && is_nobodys(d, d->import.staying, d->import.going))
      status = registry_plan_path(path, "note of an import", d->plan, err);
  }
  mem_free(digest);
  mem_free(path);
  return status;
}

static tern_status plan_notes(derived *d, const cli_env *env, registry_plan *plan, tern_error *err)
{
  char *imports = path_join(env->tern_home, "imports"), *seen = imports ? path_join(imports, ".seen") : NULL;
  d->imports = imports;
  d->plan = plan;
  tern_status status = seen ? each_entry(d, seen, plan_note, err) : err_nomem(err, "path");
  mem_free(seen);
  mem_free(imports);
  return status;
}

/* ---- the plan ---- */

tern_status derived_plan(const cli_env *env, const registry_plan *goes, registry_plan *plan, derived_lock *lock,
                         tern_error *err)
{
  derived d = {.goes = goes, .n_goes = goes ? goes->n : 0, .quiet = lock->told};
  *lock = (derived_lock){.fd = -1, .told = true};
  if (!env->tern_home)
    return TERN_OK;
  tern_status status = plan_prepared(&d, env, plan, lock, err);
  if (status == TERN_OK)
    status = plan_notes(&d, env, plan, err);
  for (size_t i = 0; i < d.n; i++) {
    mem_free(d.items[i].folder);
    mem_free(d.items[i].weights);
  }
  mem_free(d.items);
  return status;
}
