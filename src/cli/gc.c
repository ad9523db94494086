/* gc.c - removes what no model uses: of the hub's cache blobs that no revision names, unfinished downloads that nobody
 * is at, and what a killed process left; under TERN_HOME what was made of models that are gone (derived.h); and empty
 * folders. Models stay, whatever their age: that is rm's business. Repos that a pull is at are passed over, and said
 * so. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/derived.h"
#include "cli/env.h"
#include "cli/models.h"
#include "cli/out.h"
#include "cli/reclaim.h"
#include "cli/verbs.h"
#include "convert/outdir.h"

/* A repo of which something is in the plan; its lock is held until that is done. */
typedef struct held_repo {
  cache_repo repo;
  int lock;
} held_repo;

typedef struct sweep {
  const cli_env *env;
  registry_plan plan;
  derived_lock lock; /* from the second look on */
  held_repo *held;
  size_t n_held, capacity;
} sweep;

static tern_status look_at_repo(const char *root, const char *id, sweep *s, tern_error *err)
{
  cache_repo r;
  registry g = {0};
  int lock = CACHE_LOCK_FREE;
  tern_status status = cache_repo_open(root, id, &r, err);
  if (status == TERN_OK && !mem_grow(&s->held, &s->capacity, s->n_held + 1, sizeof *s->held))
    status = err_nomem(err, "locks");
  if (status == TERN_OK)
    status = reclaim_open(&r, &lock, &g, err);
  size_t before = s->plan.n;
  if (status == TERN_OK)
    status = registry_plan_unused(&r, &g, &s->plan, err);
  if (status == TERN_OK && s->plan.n == before)
    status = registry_plan_empty(r.dir, true, &s->plan, err);
  if (status == TERN_OK && s->plan.n > before) {
    s->held[s->n_held++] = (held_repo){r, lock};
    r = (cache_repo){0};
  } else {
    cache_unlock(lock);
  }
  if (status == TERN_E_BUSY || status == TERN_E_UNSUPPORTED) {
    say("%s: passed over: %s", id, err ? err->text : "");
    status = TERN_OK;
  }
  registry_free(&g);
  cache_repo_clear(&r);
  return status;
}

/* What killed removals and killed imports left in a folder. */
static tern_status look_for_left(const char *folder, sweep *s, tern_error *err)
{
  TRY(registry_plan_litter(folder, &s->plan, err));
  DIR *dir = opendir(folder);
  if (!dir)
    return err_errno(err, folder, "open");
  tern_status status = TERN_OK;
  for (const struct dirent *e; status == TERN_OK && (e = readdir(dir));) {
    if (!outdir_is_left(folder, e->d_name))
      continue;
    char *path = path_join(folder, e->d_name);
    status = path ? registry_plan_left(path, &s->plan, err) : err_nomem(err, "path");
    mem_free(path);
  }
  closedir(dir);
  return status;
}

/* ROOT/ORG, which holds models too. A root within this one is looked through by itself; links are not followed. */
static tern_status look_at_org(const char *root, const char *name, sweep *s, tern_error *err)
{
  struct stat st;
  if (name[0] == '.' || models_is_root(name) || !strcmp(name, "prepared"))
    return TERN_OK;
  char *path = path_join(root, name);
  tern_status status = path ? TERN_OK : err_nomem(err, "path");
  if (path && lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
    status = look_for_left(path, s, err);
    if (status == TERN_OK)
      status = registry_plan_empty(path, true, &s->plan, err);
  }
  mem_free(path);
  return status;
}

/* `plain`: ROOT/ORG holds models too. */
static tern_status look_through(const char *root, bool plain, sweep *s, tern_error *err)
{
  DIR *dir = opendir(root);
  if (!dir)
    return errno == ENOENT ? TERN_OK : err_errno(err, root, "open");
  if (access(root, W_OK) != 0 && (errno == EROFS || errno == EACCES)) { /* a cache that others keep */
    say("%s: passed over: it may not be written to: %s", root, strerror(errno));
    closedir(dir);
    return TERN_OK;
  }
  tern_status status = plain ? look_for_left(root, s, err) : registry_plan_litter(root, &s->plan, err);
  for (const struct dirent *e; status == TERN_OK && (e = readdir(dir));) {
    char id[REPO_ID_ROOM];
    bool is_repo = repo_of_folder(e->d_name, id);
    char *path = is_repo ? path_join(root, e->d_name) : NULL;
    if (path && file_is_directory(path))
      status = look_at_repo(root, id, s, err);
    else if (plain && !is_repo)
      status = look_at_org(root, e->d_name, s, err);
    mem_free(path);
  }
  closedir(dir);
  return status;
}

static tern_status plan_again(void *user, registry_plan *plan, tern_error *err)
{
  sweep *s = user;
  tern_status status = derived_plan(s->env, NULL, plan, &s->lock, err);
  for (size_t i = 0; status == TERN_OK && i < s->n_held; i++) {
    registry g = {0};
    status = reclaim_read(&s->held[i].repo, &g, err);
    if (status == TERN_OK)
      status = registry_plan_unused(&s->held[i].repo, &g, plan, err);
    registry_free(&g);
  }
  return status;
}

static bool is_same_folder(const char *a, const char *b)
{
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Whether a place is one of those that come after it: the hub's cache may be TERN_HOME/hub. */
static bool comes_again(const cli_env *env, size_t at, const char *place)
{
  char *root;
  bool plain, failed = false, again = false;
  for (size_t i = at + 1; !again && models_root(env, i, &root, &plain, &failed); i++) {
    again = root && is_same_folder(root, place);
    mem_free(root);
  }
  return again;
}

tern_status verb_gc(const cli_args *a, tern_error *err)
{
  cli_env env;
  char *root;
  bool plain, failed = false;
  sweep s = {.env = &env, .lock = {.fd = -1}};
  TRY(env_read(&env, err));
  tern_status status = TERN_OK;
  for (size_t i = 0; status == TERN_OK && models_root(&env, i, &root, &plain, &failed); i++) {
    if (failed)
      status = err_nomem(err, "path");
    else if (root && !comes_again(&env, i, root))
      status = look_through(root, plain, &s, err);
    mem_free(root);
  }
  if (status == TERN_OK)
    status = derived_plan(&env, NULL, &s.plan, &s.lock, err);
  derived_unlock(&s.lock); /* a question may stand for hours */
  if (status == TERN_OK)
    status = reclaim(a, &s.plan, plan_again, &s, err);
  derived_unlock(&s.lock);
  for (size_t i = 0; i < s.n_held; i++) {
    cache_unlock(s.held[i].lock);
    cache_repo_clear(&s.held[i].repo);
  }
  mem_free(s.held);
  registry_plan_free(&s.plan);
  env_clear(&env);
  return status;
}
