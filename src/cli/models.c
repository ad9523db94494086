/* models.c - see models.h.
 *
 * Two layouts are known in either root. The hub's: models--org--name/refs/REV names a commit, snapshots/COMMIT holds
 * the files. The plain one: org/name with config.json. Under TERN_HOME both are looked for in TERN_HOME itself, in hub/
 * and in models/. Nothing is ever downloaded here.
 */
#include "cli/models.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"

enum { MOST_MODELS = 100000, CANDIDATES_NAMED = 8 };

/* What brings a repo. */
#ifdef TERN_HUB
#define DOWNLOADER "tern pull"
#else
#define DOWNLOADER "huggingface-cli download"
#endif

static const char hub_prefix[] = "models--";

/* ---- paths ---- */

static bool holds(const char *dir, const char *file)
{
  char *path = path_join(dir, file);
  bool there = path && file_is_regular(path);
  mem_free(path);
  return there;
}

static bool is_directory(const char *a, const char *b)
{
  char *path = path_join(a, b);
  bool there = path && file_is_directory(path);
  mem_free(path);
  return there;
}

static bool has_tokenizer(const char *dir)
{
  return holds(dir, "tokenizer.json") || holds(dir, "tokenizer.model");
}

static bool is_model_dir(const char *dir)
{
  return holds(dir, "config.json");
}

/* ---- the hub's layout ---- */

/* The commit that refs/REV names, in out; false: there is no such ref. */
static bool read_ref(const char *repo, const char *revision, char out[128])
{
  buf path = {0};
  char *text = NULL;
  size_t size = 0;
  buf_addf(&path, "%s/refs/%s", repo, revision);
  bool read = !path.failed && file_read(path.data, 120, &text, &size, NULL) == TERN_OK;
  buf_free(&path);
  if (!read)
    return false;
  size_t n = strcspn(text, " \t\r\n");
  bool good = n > 0 && n < 128 && strspn(text, "0123456789abcdefABCDEF") >= n;
  if (good) {
    memcpy(out, text, n);
    out[n] = 0;
  }
  mem_free(text);
  return good;
}

/* The one entry of snapshots/, for caches without refs; NULL: none or several. */
static char *only_snapshot(const char *repo)
{
  char *folder = path_join(repo, "snapshots"), *found = NULL;
  DIR *dir = folder ? opendir(folder) : NULL;
  int count = 0;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    if (e->d_name[0] == '.' || count++)
      continue;
    found = path_join(folder, e->d_name);
  }
  if (dir)
    closedir(dir);
  mem_free(folder);
  if (count > 1) {
    mem_free(found);
    return NULL;
  }
  return found;
}

/* The first snapshot with a model in it, by name: some revision, where main is not there. NULL: there is none. */
static char *any_snapshot(const char *repo)
{
  char *folder = path_join(repo, "snapshots"), *found = NULL;
  DIR *dir = folder ? opendir(folder) : NULL;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    char *path = e->d_name[0] == '.' ? NULL : path_join(folder, e->d_name);
    if (path && (is_model_dir(path) || has_tokenizer(path)) && (!found || strcmp(path, found) < 0)) {
      mem_free(found);
      found = path;
      path = NULL;
    }
    mem_free(path);
  }
  if (dir)
    closedir(dir);
  mem_free(folder);
  return found;
}

/* The snapshot of a repo folder: by ref, else by commit, else (no revision asked for) the only one. NULL: not there. */
static char *snapshot(const char *repo, const char *revision)
{
  char commit[128];
  const char *name = read_ref(repo, revision ? revision : "main", commit) ? commit : revision;
  if (!name)
    return only_snapshot(repo);
  if (strstr(name, ".."))
    return NULL;
  buf path = {0};
  buf_addf(&path, "%s/snapshots/%s", repo, name);
  if (!path.failed && file_is_directory(path.data))
    return buf_take(&path);
  buf_free(&path);
  return NULL;
}

/* ---- the list ---- */

static tern_status add_entry(model_list *l, const char *id, char *path, bool other, tern_error *err)
{
  if (!path)
    return err_nomem(err, "list of models");
  for (size_t i = 0; i < l->n; i++) {
    if (!strcmp(l->items[i].id, id)) { /* the first root that has it counts */
      mem_free(path);
      return TERN_OK;
    }
  }
  char *copy = mem_strdup(id);
  if (!copy || l->n >= MOST_MODELS || !mem_grow(&l->items, &l->capacity, l->n + 1, sizeof *l->items)) {
    mem_free(copy);
    mem_free(path);
    return err_nomem(err, "list of models");
  }
  l->items[l->n++] = (model_entry){copy, path, other};
  return TERN_OK;
}

/* models--org--name -> org/name, as the hub's own code cuts it; a name without an org stays whole. */
static tern_status add_hub_entry(const char *root, const char *folder, model_list *out, tern_error *err)
{
  char id[512];
  size_t n = 0;
  for (const char *at = folder + sizeof hub_prefix - 1; *at && n < sizeof id - 1; at++) {
    if (at[0] == '-' && at[1] == '-') {
      id[n++] = '/';
      at++;
    } else {
      id[n++] = *at;
    }
  }
  id[n] = 0;
  char *repo = path_join(root, folder);
  if (!repo)
    return err_nomem(err, "list of models");
  char *path = snapshot(repo, NULL);
  bool other = !path || (!is_model_dir(path) && !has_tokenizer(path));
  if (other) {
    mem_free(path);
    path = any_snapshot(repo);
  }
  mem_free(repo);
  return path ? add_entry(out, id, path, other, err) : TERN_OK;
}

/* root/NAME and root/ORG/NAME with config.json. */
static tern_status add_plain_entries(const char *root, const char *name, int depth, const char *id, model_list *out,
                                     tern_error *err)
{
  char *path = path_join(root, name);
  tern_status status = TERN_OK;
  if (!path)
    return err_nomem(err, "list of models");
  if (is_model_dir(path))
    return add_entry(out, id, path, false, err);
  DIR *dir = depth > 0 ? opendir(path) : NULL;
  for (struct dirent *e; dir && status == TERN_OK && (e = readdir(dir));) {
    buf longer = {0};
    if (e->d_name[0] == '.' || !is_directory(path, e->d_name))
      continue;
    buf_addf(&longer, "%s/%s", id, e->d_name);
    status = longer.failed ? err_nomem(err, "list of models")
                           : add_plain_entries(path, e->d_name, depth - 1, longer.data, out, err);
    buf_free(&longer);
  }
  if (dir)
    closedir(dir);
  mem_free(path);
  return status;
}

bool models_is_root(const char *name)
{
  return !strcmp(name, "hub") || !strcmp(name, "models") || !strcmp(name, "imports");
}

/* Looks through one root; plain: the plain layout counts too. */
static tern_status find_in(const char *root, bool plain, model_list *out, tern_error *err)
{
  DIR *dir = root ? opendir(root) : NULL;
  tern_status status = TERN_OK;
  if (!dir)
    return TERN_OK;
  for (struct dirent *e; status == TERN_OK && (e = readdir(dir));) {
    if (e->d_name[0] == '.')
      continue;
    if (!strncmp(e->d_name, hub_prefix, sizeof hub_prefix - 1))
      status = add_hub_entry(root, e->d_name, out, err);
    else if (plain && !models_is_root(e->d_name) && is_directory(root, e->d_name))
      status = add_plain_entries(root, e->d_name, 1, e->d_name, out, err);
  }
  closedir(dir);
  return status;
}

static int by_id(const void *a, const void *b)
{
  return strcmp(((const model_entry *)a)->id, ((const model_entry *)b)->id);
}

bool models_root(const cli_env *env, size_t i, char **root, bool *plain, bool *failed)
{
  static const char *const folders[] = {NULL, NULL, "models", "hub", "imports"}; /* the hub's cache, TERN_HOME, in it */
  const char *base = i ? env->tern_home : env->hub_cache;
  *root = NULL;
  *plain = i > 0;
  if (i >= sizeof folders / sizeof *folders)
    return false;
  if (base) {
    *root = folders[i] ? path_join(base, folders[i]) : mem_strdup(base);
    *failed |= !*root;
  }
  return true;
}

tern_status models_find(const cli_env *env, model_list *out, tern_error *err)
{
  char *root;
  bool plain, failed = false;
  tern_status status = TERN_OK;
  *out = (model_list){0};
  for (size_t i = 0; status == TERN_OK && models_root(env, i, &root, &plain, &failed); i++) {
    status = failed ? err_nomem(err, "list of models") : find_in(root, plain, out, err);
    mem_free(root);
  }
  if (status != TERN_OK)
    models_free(out);
  else if (out->n)
    qsort(out->items, out->n, sizeof *out->items, by_id);
  return status;
}

void models_free(model_list *l)
{
  for (size_t i = 0; i < l->n; i++) {
    mem_free(l->items[i].id);
    mem_free(l->items[i].path);
  }
  mem_free(l->items);
  *l = (model_list){0};
}

/* ---- what MODEL means ---- */

static bool ends_with(const char *text, const char *end)
{
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcasecmp(text + n - m, end);
}

static bool contains_caseless(const char *text, const char *part)
{
  size_t n = strlen(part);
  for (; *text; text++)
    if (!strncasecmp(text, part, n))
      return true;
  return n == 0;
}

/* "a, b, c and 4 more" of the entries whose id has `part` in it (NULL: all). */
static void list_candidates(const model_list *l, const char *part, buf *out)
{
  size_t count = 0;
  for (size_t i = 0; i < l->n; i++) {
    if (part && !contains_caseless(l->items[i].id, part))
      continue;
    if (count < CANDIDATES_NAMED)
      buf_addf(out, "%s%s", count ? ", " : "", l->items[i].id);
    count++;
  }
  if (count > CANDIDATES_NAMED)
    buf_addf(out, " and %zu more", count - CANDIDATES_NAMED);
  if (!out->data)
    buf_adds(out, "");
}

/* Whether something stands there; what it is, its reader will see. A directory that may not be searched is an error. */
static tern_status look_for(const char *dir, const char *file, bool *found, tern_error *err)
{
  mode_t type = 0;
  char *path = path_join(dir, file);
  tern_status status = path ? path_type(path, &type, err) : err_nomem(err, "path");
  mem_free(path);
  *found = type != 0;
  return status;
}

static tern_status check_dir(const char *dir, models_need need, tern_error *err)
{
  bool found;
  if (need == NEED_TEXT) {
    TRY(look_for(dir, "tokenizer.json", &found, err));
    if (!found)
      TRY(look_for(dir, "tokenizer.model", &found, err));
    return found ? TERN_OK
                 : err_set(err, TERN_E_NOT_FOUND, "%s: no tokenizer.json or tokenizer.model in this directory", dir);
  }
  TRY(look_for(dir, "config.json", &found, err));
  if (found)
    return TERN_OK;
  return err_set(err, TERN_E_NOT_FOUND, "%s: no config.json in this directory: not an MLX-format checkpoint", dir);
}

/* ORG/NAME, as the hub has names: letters, digits, '-', '_' and '.', which begins none. */
static bool has_repo_form(const char *id)
{
  const char *slash = strchr(id, '/');
  if (!slash || slash == id || !slash[1] || *id == '.' || *id == '-' || slash[1] == '.')
    return false;
  for (const char *at = id; *at; at++)
    if (at != slash && !isalnum((unsigned char)*at) && !strchr("-_.", *at))
      return false;
  return true;
}

/* Which entry `part` means: its whole id, else the only one that it is a part of. `model` is what the user wrote. */
static tern_status match(const model_list *l, const char *model, const char *part, const model_entry **out,
                         tern_error *err)
{
  const model_entry *found = NULL;
  size_t count = 0;
  for (size_t i = 0; i < l->n; i++) {
    if (!strcasecmp(l->items[i].id, part)) {
      *out = &l->items[i];
      return TERN_OK;
    }
    if (*part && contains_caseless(l->items[i].id, part)) {
      found = &l->items[i];
      count++;
    }
  }
  *out = found;
  if (count == 1)
    return TERN_OK;
  buf names = {0};
  list_candidates(l, count ? part : NULL, &names);
  const char *text = names.failed ? "" : names.data;
  tern_status status;
  bool is_repo = has_repo_form(part);
  if (count)
    status = err_set(err, TERN_E_NOT_FOUND, "%s: could be any of %zu models, name one: %s", model, count, text);
  else
    status = err_set(err, TERN_E_NOT_FOUND, "%s: no such file, directory or model%s%s%s; %s%s", model,
                     is_repo ? "; `" DOWNLOADER " " : "", is_repo ? model : "",
                     is_repo ? "` downloads it, and a directory with the files will do too" : "",
                     l->n ? "there are: " : "the Hugging Face cache and TERN_HOME hold none" MODELS_HOW_TO_GET,
                     l->n ? text : "");
  buf_free(&names);
  return status;
}

/* The repo folder that `path` is a snapshot of: two levels up, if that is a hub folder. */
static char *repo_of(const char *path)
{
  char *copy = mem_strdup(path);
  for (int i = 0; copy && i < 2; i++) {
    char *slash = strrchr(copy, '/');
    if (slash)
      *slash = 0;
  }
  const char *name = copy ? strrchr(copy, '/') : NULL;
  if (name && !strncmp(name + 1, hub_prefix, sizeof hub_prefix - 1))
    return copy;
  mem_free(copy);
  return NULL;
}

static tern_status resolve_found(const model_entry *e, const char *revision, char **dir, tern_error *err)
{
  if (!revision && e->other)
    return err_set(err, TERN_E_NOT_FOUND,
                   "%s: of its revisions main is not in the cache, but others are: name one as %s@REV (`tern ls -v` "
                   "shows them)",
                   e->id, e->id);
  if (!revision) {
    *dir = mem_strdup(e->path);
    return *dir ? TERN_OK : err_nomem(err, "path");
  }
  char *repo = repo_of(e->path);
  *dir = repo ? snapshot(repo, revision) : NULL;
  mem_free(repo);
  if (*dir)
    return TERN_OK;
  return err_set(err, TERN_E_NOT_FOUND, "%s: revision %s is not in the cache", e->id, revision);
}

static tern_status resolve_id(const cli_env *env, const char *model, char **dir, tern_error *err)
{
  model_list list;
  const model_entry *entry;
  char *part = mem_strdup(model);
  if (!part)
    return err_nomem(err, "model name");
  char *at = strrchr(part, '@');
  if (at)
    *at = 0;
  tern_status status = models_find(env, &list, err);
  if (status == TERN_OK) {
    status = match(&list, *model ? model : "\"\"", part, &entry, err);
    if (status == TERN_OK)
      status = resolve_found(entry, at ? at + 1 : NULL, dir, err);
    models_free(&list);
  }
  mem_free(part);
  return status;
}

static tern_status resolve_only(const cli_env *env, char **dir, tern_error *err)
{
  model_list list;
  buf names = {0};
  TRY(models_find(env, &list, err));
  tern_status status = TERN_OK;
  if (list.n == 1) {
    status = resolve_found(&list.items[0], NULL, dir, err);
  } else if (list.n == 0) {
    status = err_set(
        err, TERN_E_NOT_FOUND, "no MODEL named, and neither the Hugging Face cache (%s) nor TERN_HOME (%s) holds one%s",
        env->hub_cache ? env->hub_cache : "none", env->tern_home ? env->tern_home : "none", MODELS_HOW_TO_GET);
  } else {
    list_candidates(&list, NULL, &names);
    status =
        err_set(err, TERN_E_NOT_FOUND, "no MODEL named, and there are several: %s", names.failed ? "" : names.data);
  }
  buf_free(&names);
  models_free(&list);
  return status;
}

/* The directory itself; or the main snapshot where it is a repo folder of the hub's cache; or the model whose name it
 * happens to share a part with. */
static tern_status resolve_directory(const cli_env *env, const char *model, models_need need, char **dir,
                                     tern_error *err)
{
  tern_status status = check_dir(model, need, NULL);
  if (status != TERN_OK && status != TERN_E_IO) {
    *dir = is_directory(model, "snapshots") ? snapshot(model, NULL) : NULL;
    if (*dir || resolve_id(env, model, dir, NULL) == TERN_OK)
      return TERN_OK;
  }
  *dir = mem_strdup(model);
  return *dir ? TERN_OK : err_nomem(err, "path");
}

tern_status models_resolve(const cli_env *env, const char *model, models_need need, char **dir, tern_error *err)
{
  char *found = NULL;
  mode_t type;
  if (!model)
    TRY(resolve_only(env, &found, err));
  else if (file_is_regular(model) && ends_with(model, ".gguf"))
    TRY(models_import(env, model, &found, err));
  else if (file_is_directory(model))
    TRY(resolve_directory(env, model, need, &found, err));
  else if (file_is_regular(model))
    return err_set(err, TERN_E_UNSUPPORTED, "%s: is neither a directory nor a .gguf file", model);
  else {
    tern_status missing = resolve_id(env, model, &found, err);
    if (missing == TERN_E_NOT_FOUND)
      TRY(path_type(model, &type, err)); /* not absent, but in a directory that may not be searched */
    TRY(missing);
  }
  tern_status status = check_dir(found, need, err);
  if (status == TERN_OK)
    *dir = found;
  else
    mem_free(found);
  return status;
}

bool models_names(const cli_env *env, const char *model)
{
  model_list list;
  bool found = false;
  if (file_is_directory(model) || ends_with(model, ".gguf") || (strchr(model, '/') && !strpbrk(model, " \t\n")))
    return true;
  if (models_find(env, &list, NULL) != TERN_OK)
    return false;
  for (size_t i = 0; i < list.n && !found; i++)
    found = *model && contains_caseless(list.items[i].id, model);
  models_free(&list);
  return found;
}
