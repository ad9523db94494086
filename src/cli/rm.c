/* rm.c - removes a model: a repo of the hub's cache, one revision of it, or a directory under TERN_HOME; and with it
 * what was made of it alone (derived.h), and the folder of its ORG where nothing else is in that.
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
#include "cli/derived.h"
#include "cli/describe.h"
#include "cli/env.h"
#include "cli/models.h"
#include "cli/out.h"
#include "cli/reclaim.h"
#include "cli/verbs.h"

/* Of a commit, so many digits name it; of what is listed, so much. */
enum { MIN_DIGITS = 7, MOST_NAMED = 6 };

/* Says which revisions there are, or of several that begin so, which. */
static tern_status no_revision(const registry *g, const char *id, const char *revision, tern_error *err)
{
  buf list = {0};
  size_t n = strlen(revision), named = 0, meant = 0;
  for (size_t i = 0; i < g->n_revisions; i++)
    meant += n >= MIN_DIGITS && !strncmp(g->revisions[i].name, revision, n);
  for (size_t i = 0; i < g->n_revisions && named < MOST_NAMED; i++) {
    const registry_revision *v = &g->revisions[i];
    char size[32];
    if (meant && strncmp(v->name, revision, n) != 0)
      continue;
    buf_addf(&list, "%s%.*s (", named++ ? ", " : "", meant ? 40 : 12, v->name);
    for (const char *at = v->refs; *at; at++)
      buf_addc(&list, *at == '\n' ? ' ' : *at);
    buf_addf(&list, "%s%s)", *v->refs ? ", " : "", describe_bytes((double)v->bytes, size));
  }
  tern_status status = list.failed
                           ? err_nomem(err, "revisions")
                           : err_set(err, TERN_E_NOT_FOUND, "%s: %s %s; %s: %s", id,
                                     meant ? "more than one revision begins with" : "the cache has no revision",
                                     revision, meant ? "name one" : "there are", list.data ? list.data : "none");
  buf_free(&list);
  return status;
}

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
    return no_revision(g, id, revision, err);
  return g->n_revisions == 1 ? registry_plan_folder(r->dir, plan, err) : registry_plan_revision(r, g, v, plan, err);
}

/* What rm is at. */
typedef struct removal {
  const cli_env *env;
  const cache_repo *repo; /* NULL: a directory, `id` */
  const char *id, *revision;
  char *org;         /* the folder above that directory, where it is an ORG's */
  derived_lock lock; /* from the second look on */
} removal;

static tern_status plan_directory(const removal *m, registry_plan *plan, tern_error *err)
{
  TRY(registry_plan_folder(m->id, plan, err));
  return m->org ? registry_plan_emptied(m->org, plan, err) : TERN_OK;
}

static tern_status plan_model(const removal *m, registry_plan *plan, tern_error *err)
{
  registry g = {0};
  bool held = false;
  if (!m->repo)
    return plan_directory(m, plan, err);
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

static tern_status plan_again(void *user, registry_plan *plan, tern_error *err)
{
  removal *m = user;
  TRY(plan_model(m, plan, err));
  return derived_plan(m->env, plan, plan, &m->lock, err);
}

static tern_status remove_planned(const cli_args *a, removal *m, tern_error *err)
{
  registry_plan plan = {0};
  m->lock = (derived_lock){.fd = -1};
  tern_status status = plan_again(m, &plan, err);
  derived_unlock(&m->lock); /* a question may stand for hours */
  if (status == TERN_OK)
    status = reclaim(a, &plan, plan_again, m, err);
  derived_unlock(&m->lock);
  registry_plan_free(&plan);
  return status;
}

static tern_status remove_repo(const cli_args *a, const cli_env *env, const char *root, const char *id,
                               const char *revision, tern_error *err)
{
  cache_repo r;
  registry g = {0};
  int lock = CACHE_LOCK_FREE;
  tern_status status = cache_repo_open(root, id, &r, err);
  if (status == TERN_OK)
    status = reclaim_open(&r, &lock, &g, err);
  registry_free(&g);
  if (status == TERN_OK)
    status = remove_planned(a, &(removal){.env = env, .repo = &r, .id = id, .revision = revision}, err);
  cache_unlock(lock);
  cache_repo_clear(&r);
  return status;
}

/* `id` is the end of `path`. */
static tern_status remove_plain(const cli_args *a, const cli_env *env, const char *path, const char *id,
                                tern_error *err)
{
  removal m = {.env = env, .id = path};
  if (strchr(id, '/') && !(m.org = mem_strndup(path, (size_t)(strrchr(path, '/') - path))))
    return err_nomem(err, "path");
  tern_status status = remove_planned(a, &m, err);
  mem_free(m.org);
  return status;
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

/* "org/name (in the hub's cache, 1.2 GB)" */
static void describe_match(const model_entry *e, buf *out)
{
  char size[32];
  registry_plan plan = {0};
  char *place = mem_strdup(e->path), *snapshots = place ? strstr(place, "/snapshots/") : NULL;
  bool is_repo = snapshots && strstr(place, "/models--");
  if (is_repo)
    *snapshots = 0;
  if (place && registry_plan_path(place, "", &plan, NULL) == TERN_OK)
    buf_addf(out, "%.*s (%s%s%s, %s)", (int)(e->gguf ? strcspn(e->id, ":") : strlen(e->id)), e->id,
             is_repo ? "in the hub's cache" : "the directory ", is_repo ? "" : place,
             e->other ? ", other revisions than main" : "", describe_bytes((double)plan.bytes, size));
  registry_plan_free(&plan);
  mem_free(place);
}

/* Whether an entry is a further GGUF file of the repo that the one before it is of. */
static bool is_told(const model_list *l, size_t i)
{
  const model_entry *e = &l->items[i], *before = i ? e - 1 : e;
  size_t n = strcspn(e->id, ":");
  return i && e->gguf && before->gguf && strcspn(before->id, ":") == n && !strncmp(e->id, before->id, n);
}

/* ORG/NAME:FILE, as ls shows it; or behind such a repo's name what names no file. */
static tern_status one_file(const model_list *l, const char *id, tern_error *err)
{
  size_t n = strcspn(id, ":");
  bool of_repo = false, is_file = false;
  for (size_t i = 0; i < l->n && id[n]; i++) {
    const model_entry *e = &l->items[i];
    if (e->gguf && !strncmp(e->id, id, n) && (e->id[n] == ':' || !e->id[n])) {
      of_repo = true;
      is_file |= !strcmp(e->gguf, id + n + 1);
    }
  }
  if (!of_repo)
    return TERN_OK;
  return err_set(err, TERN_E_UNSUPPORTED, "%s: %s, and rm removes repos: tern rm %.*s", id,
                 is_file ? "is one file of a repo" : "no file of the repo has this name", (int)n, id);
}

/* Nothing has this whole id: what it is a part of is told. */
static tern_status not_there(const cli_env *env, const char *id, tern_error *err)
{
  model_list list;
  buf matches = {0};
  size_t found = 0;
  TRY(models_find(env, &list, err));
  for (size_t i = 0; i < list.n; i++) {
    if (!strcasestr(list.items[i].id, id) || is_told(&list, i) || found++ >= MOST_NAMED)
      continue;
    buf_adds(&matches, found > 1 ? ", " : "");
    describe_match(&list.items[i], &matches);
  }
  tern_status status = one_file(&list, id, err);
  if (status == TERN_OK && matches.failed)
    status = err_nomem(err, "list of models");
  else if (status == TERN_OK && !found && list.closed.status != TERN_OK)
    status = err_set(err, TERN_E_IO, "%s: no model of this whole id in what can be read: %s", id, list.closed.text);
  else if (status == TERN_OK && !found)
    status = err_set(err, TERN_E_NOT_FOUND, "%s: no model of this whole id (tern ls shows them)", id);
  else if (status == TERN_OK)
    status = err_set(err, TERN_E_NOT_FOUND, "%s: rm takes a whole id, and this is a part of %s%s%s", id,
                     found > 1 ? "several: " : "", matches.data, found > MOST_NAMED ? ", and more" : "");
  buf_free(&matches);
  models_free(&list);
  return status;
}

/* The same id in a place that comes later stays, and that is said. */
static void tell_of_others(const cli_env *env, size_t at, const char *id)
{
  char *root;
  bool plain, failed = false, is_repo;
  for (size_t i = at + 1; models_root(env, i, &root, &plain, &failed); i++) {
    char *path = root ? find_in_root(root, plain, id, &is_repo) : NULL;
    if (path)
      say("%s: another one of this id stays: %s", id, path);
    mem_free(path);
    mem_free(root);
  }
}

/* What GGUF files of a repo were imported into is a model of its own, which stays. `repo` is the repo's folder. */
static void tell_of_imports(const cli_env *env, const char *repo)
{
  model_list list;
  size_t n = strlen(repo);
  if (models_find(env, &list, NULL) != TERN_OK)
    return;
  for (size_t i = 0; i < list.n; i++) {
    const model_entry *e = &list.items[i];
    bool of_it = e->gguf && !strncmp(e->path, repo, n) && e->path[n] == '/';
    char *place = of_it ? models_imported(env, e->path) : NULL;
    if (place)
      say("%s: was imported, and that stays: tern rm %s", e->gguf, strrchr(place, '/') + 1);
    mem_free(place);
  }
  models_free(&list);
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
    tell_of_others(env, i, id);
    if (is_repo)
      tell_of_imports(env, path);
    if (is_repo)
      status = remove_repo(a, env, root, id, revision, err);
    else if (revision)
      status = err_set(err, TERN_E_NOT_FOUND, "%s: %s has no revisions", id, path);
    else
      status = check_org(root, id, err);
    if (!is_repo && status == TERN_OK)
      status = remove_plain(a, env, path, id, err);
    mem_free(path);
    mem_free(root);
    return status;
  }
  return failed ? err_nomem(err, "path") : not_there(env, id, err);
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
