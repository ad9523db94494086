/* rm.c - removes a model: a repo of the hub's cache, one revision of it, or a directory under TERN_HOME.
 *
 * The whole id is needed, as `ls` shows it: a part, which may come to mean another model, removes nothing. Of one
 * revision go its links, its refs, and the blobs that no other revision uses.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/env.h"
#include "cli/models.h"
#include "cli/reclaim.h"
#include "cli/verbs.h"

/* Everything of a repo, or one revision; the last revision takes the folder with it. */
static tern_status plan_repo(const cache_repo *r, const registry *g, const char *id, const char *revision,
                             registry_plan *plan, tern_error *err)
{
  if (g->lent && (!revision || g->n_revisions == 1))
    return err_set(err, TERN_E_UNSUPPORTED,
                   "%s: another repo of the cache has links to its blobs: remove that one first", id);
  if (!revision)
    return registry_plan_folder(r->dir, plan, err);
  const registry_revision *v = registry_find(g, revision);
  if (!v)
    return err_set(err, TERN_E_NOT_FOUND, "%s: revision %s is not in the cache, or more than one begins so", id,
                   revision);
  return g->n_revisions == 1 ? registry_plan_folder(r->dir, plan, err) : registry_plan_revision(r, g, v, plan, err);
}

/* What rm is at. */
typedef struct removal {
  const cache_repo *repo; /* NULL: a directory, `id` */
  const char *id, *revision;
} removal;

static tern_status plan_again(void *user, registry_plan *plan, tern_error *err)
{
  const removal *m = user;
  registry g = {0};
  bool held = false;
  if (!m->repo)
    return registry_plan_folder(m->id, plan, err);
  tern_status status = reclaim_read(m->repo, &g, err);
  if (status == TERN_OK)
    status = registry_is_held(m->repo, &g, m->revision ? registry_find(&g, m->revision) : NULL, &held, err);
  if (status == TERN_OK && held)
    status = err_set(err, TERN_E_BUSY, "%s: another process is downloading to it: try again when it is done", m->id);
  if (status == TERN_OK)
    status = plan_repo(m->repo, &g, m->id, m->revision, plan, err);
  registry_free(&g);
  return status;
}

static tern_status remove_planned(const cli_args *a, removal *m, tern_error *err)
{
  registry_plan plan = {0};
  tern_status status = plan_again(m, &plan, err);
  if (status == TERN_OK)
    status = reclaim(a, &plan, plan_again, m, err);
  registry_plan_free(&plan);
  return status;
}

static tern_status remove_repo(const cli_args *a, const char *root, const char *id, const char *revision,
                               tern_error *err)
{
  cache_repo r;
  registry g = {0};
  int lock = CACHE_LOCK_FREE;
  tern_status status = cache_repo_open(root, id, &r, err);
  if (status == TERN_OK)
    status = reclaim_open(&r, &lock, &g, err);
  registry_free(&g);
  if (status == TERN_OK)
    status = remove_planned(a, &(removal){&r, id, revision}, err);
  cache_unlock(lock);
  cache_repo_clear(&r);
  return status;
}

static tern_status remove_plain(const cli_args *a, const char *path, tern_error *err)
{
  return remove_planned(a, &(removal){NULL, path, NULL}, err);
}

/* Whether `ls` can show it of "ROOT/NAME" or "ROOT/ORG/NAME": what lies deeper, or in a root within this one, is part
 * of something else. */
static bool is_plain_id(const char *id)
{
  char first[REPO_PATH_MOST + 1];
  const char *slash = strchr(id, '/');
  snprintf(first, sizeof first, "%.*s", (int)strcspn(id, "/"), id);
  return id[0] != '.' && !models_is_root(first) && (!slash || (slash[1] != '.' && !strchr(slash + 1, '/')));
}

/* "ROOT/models--org--name" where that is a folder, else "ROOT/org/name" where such count and config.json is in it.
 * mem_free; NULL: neither. */
static char *find_in_root(const char *root, bool plain, const char *id, bool *is_repo)
{
  char *folder = repo_folder(id), *path = folder ? path_join(root, folder) : NULL;
  mem_free(folder);
  *is_repo = path && file_is_directory(path);
  if (*is_repo || !plain || !is_plain_id(id)) {
    if (*is_repo)
      return path;
    mem_free(path);
    return NULL;
  }
  mem_free(path);
  path = path_join(root, id);
  char *config = path ? path_join(path, "config.json") : NULL;
  bool there = config && file_is_regular(config);
  mem_free(config);
  if (there)
    return path;
  mem_free(path);
  return NULL;
}

/* Of "ROOT/ORG/NAME", ORG is a folder of the root's own. */
static tern_status check_org(const char *root, const char *id, tern_error *err)
{
  const char *slash = strchr(id, '/');
  struct stat st;
  buf org = {0};
  if (!slash)
    return TERN_OK;
  buf_addf(&org, "%s/%.*s", root, (int)(slash - id), id);
  tern_status status = org.failed ? err_nomem(err, "path") : TERN_OK;
  if (status == TERN_OK && lstat(org.data, &st) != 0)
    status = err_errno(err, org.data, "look up");
  else if (status == TERN_OK && !S_ISDIR(st.st_mode))
    status = err_set(err, TERN_E_UNSUPPORTED, "%s: %s is a symbolic link: nothing is removed through it", id, org.data);
  buf_free(&org);
  return status;
}

static tern_status remove_id(const cli_args *a, const cli_env *env, const char *id, const char *revision,
                             tern_error *err)
{
  char *root;
  bool plain, failed = false;
  for (size_t i = 0; models_root(env, i, &root, &plain, &failed) && !failed; i++) {
    bool is_repo;
    char *path = root ? find_in_root(root, plain, id, &is_repo) : NULL;
    if (!path) {
      mem_free(root);
      continue;
    }
    tern_status status;
    if (is_repo)
      status = remove_repo(a, root, id, revision, err);
    else if (revision)
      status = err_set(err, TERN_E_NOT_FOUND, "%s: %s has no revisions", id, path);
    else
      status = check_org(root, id, err);
    if (!is_repo && status == TERN_OK)
      status = remove_plain(a, path, err);
    mem_free(path);
    mem_free(root);
    return status;
  }
  return failed ? err_nomem(err, "path")
                : err_set(err, TERN_E_NOT_FOUND, "%s: no model of this whole id (tern ls shows them)", id);
}

tern_status verb_rm(const cli_args *a, tern_error *err)
{
  cli_env env;
  if (a->n_words == 0)
    return err_set(err, TERN_E_USAGE, "rm: no model named: tern rm MODEL[@REV]");
  char *id = mem_strdup(a->words[0]), *at = id ? strchr(id, '@') : NULL;
  if (at)
    *at = 0;
  tern_status status = id ? TERN_OK : err_nomem(err, "name");
  if (status == TERN_OK && (repo_check_path("rm", id, NULL) != TERN_OK || (at && !at[1])))
    status = err_set(err, TERN_E_USAGE, "rm: \"%.200s\" is not the id of a model: tern ls shows them", a->words[0]);
  if (status == TERN_OK)
    status = env_read(&env, err);
  if (status == TERN_OK) {
    status = remove_id(a, &env, id, at ? at + 1 : NULL, err);
    env_clear(&env);
  }
  mem_free(id);
  return status;
}
