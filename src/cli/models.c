/* models.c - see models.h.
 *
 * Two layouts are known in either root. The hub's: models--org--name/refs/REV names a commit, snapshots/COMMIT holds
 * the files. The plain one: org/name with config.json. Under TERN_HOME both are looked for in TERN_HOME itself, in hub/
 * and in models/. Nothing is ever downloaded here.
 *
 * A snapshot that holds GGUF files alone is a model for each of them: ORG/NAME where it is the only one, else
 * ORG/NAME:FILE. What one was imported into is not listed beside it.
 */
#include "cli/models.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/models_gguf.h"

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

/* Whether it has something to run, or a tokenizer. */
static bool is_of_use(const char *dir)
{
  return is_model_dir(dir) || has_tokenizer(dir) || gguf_files_there(dir, GGUF_IN_REPO);
}

/* The first snapshot with a model in it, by name: some revision, where main is not there. NULL: there is none. */
static char *any_snapshot(const char *repo)
{
  char *folder = path_join(repo, "snapshots"), *found = NULL;
  DIR *dir = folder ? opendir(folder) : NULL;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    char *path = e->d_name[0] == '.' ? NULL : path_join(folder, e->d_name);
    if (path && is_of_use(path) && (!found || strcmp(path, found) < 0)) {
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

/* The length of an entry's id without ":FILE". */
static size_t repo_length(const model_entry *e)
{
  size_t n = strlen(e->id), m = e->gguf ? strlen(e->gguf) + 1 : 0;
  return m && n > m && e->id[n - m] == ':' && !strcmp(e->id + n - m + 1, e->gguf) ? n - m : n;
}

/* Takes over `path`, whose last `file` bytes are a GGUF file's place in its repo; 0: it is a directory. */
static tern_status add_entry(model_list *l, const char *id, char *path, size_t file, bool other, tern_error *err)
{
  if (!path)
    return err_nomem(err, "list of models");
  for (size_t i = 0; i < l->n; i++) {
    if (!strcmp(l->items[i].id, id)) { /* the first root that has it counts */
      mem_free(path);
      return TERN_OK;
    }
  }
  if (l->n >= MOST_MODELS) {
    mem_free(path);
    return err_set(err, TERN_E_LIMIT, "more than %d models in the caches", MOST_MODELS);
  }
  char *copy = mem_strdup(id);
  if (!copy || !mem_grow(&l->items, &l->capacity, l->n + 1, sizeof *l->items)) {
    mem_free(copy);
    mem_free(path);
    return err_nomem(err, "list of models");
  }
  l->items[l->n++] = (model_entry){copy, path, other, file ? path + strlen(path) - file : NULL};
  return TERN_OK;
}

/* Whether a root that came before has the repo. */
static bool has_repo(const model_list *l, const char *id)
{
  for (size_t i = 0; i < l->n; i++)
    if (repo_length(&l->items[i]) == strlen(id) && !strncmp(l->items[i].id, id, strlen(id)))
      return true;
  return false;
}

static tern_status add_gguf_entries(model_list *l, const char *id, const char *dir, const gguf_files *files, bool other,
                                    tern_error *err)
{
  tern_status status = TERN_OK;
  bool here = has_repo(l, id);
  for (size_t i = 0; status == TERN_OK && !here && i < files->n; i++) {
    buf name = {0};
    buf_adds(&name, id);
    if (files->n > 1)
      buf_addf(&name, ":%s", files->items[i]);
    status = name.failed
                 ? err_nomem(err, "list of models")
                 : add_entry(l, name.data, path_join(dir, files->items[i]), strlen(files->items[i]), other, err);
    buf_free(&name);
  }
  return status;
}

/* Takes over `dir`, a snapshot. */
static tern_status add_snapshot(model_list *l, const char *id, char *dir, bool other, tern_error *err)
{
  gguf_files files;
  tern_status status = gguf_files_find(dir, GGUF_IN_REPO, &files, err);
  if (status == TERN_OK && !files.n)
    return has_repo(l, id) ? (mem_free(dir), TERN_OK) : add_entry(l, id, dir, 0, other, err);
  if (status == TERN_OK)
    status = add_gguf_entries(l, id, dir, &files, other, err);
  gguf_files_free(&files);
  mem_free(dir);
  return status;
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
  bool other = !path || !is_of_use(path);
  if (other) {
    mem_free(path);
    path = any_snapshot(repo);
  }
  mem_free(repo);
  return path ? add_snapshot(out, id, path, other, err) : TERN_OK;
}

/* A folder of the caches; NULL: it is not there, or cannot be read, which is noted. */
static DIR *open_folder(const char *path, model_list *l)
{
  DIR *dir = opendir(path);
  if (!dir && errno != ENOENT && l->closed.status == TERN_OK)
    (void)err_errno(&l->closed, path, "open");
  return dir;
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
    return add_entry(out, id, path, 0, false, err);
  DIR *dir = depth > 0 ? open_folder(path, out) : NULL;
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
  DIR *dir = root ? open_folder(root, out) : NULL;
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

/* Takes away what the GGUF files of repos were imported into: the same models again. */
static void drop_imports(const cli_env *env, model_list *l)
{
  for (size_t i = 0; i < l->n; i++) {
    char *place = l->items[i].gguf ? models_imported(env, l->items[i].path) : NULL;
    for (size_t k = 0; place && k < l->n; k++)
      if (!l->items[k].gguf && !strcmp(l->items[k].path, place)) {
        mem_free(l->items[k].id);
        mem_free(l->items[k].path);
        memmove(&l->items[k], &l->items[k + 1], (l->n - k - 1) * sizeof *l->items);
        l->n--;
        i -= k < i;
        break;
      }
    mem_free(place);
  }
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
  if (status != TERN_OK) {
    models_free(out);
    return status;
  }
  drop_imports(env, out);
  if (out->n)
    qsort(out->items, out->n, sizeof *out->items, by_id);
  return TERN_OK;
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

/* Which command brings what has the form of a repo, or of a GGUF file in one; else nothing. */
static void how_to_get(const char *model, const char *part, buf *out)
{
  size_t n = strcspn(part, ":");
  char *repo = mem_strndup(part, n);
  buf_adds(out, "");
  if (repo && has_repo_form(repo) && part[n] && part[n + 1])
    buf_addf(out, "; `" DOWNLOADER " %s --include '*%s*.gguf'` downloads it", repo, part + n + 1);
  else if (repo && has_repo_form(repo))
    buf_addf(out, "; `" DOWNLOADER " %s` downloads it, and a directory with the files will do too",
             ends_with(model, "@") ? repo : model);
  mem_free(repo);
}

/* Whether `part` is in an entry's id without ":FILE". */
static bool names_repo(const model_entry *e, const char *part)
{
  size_t n = repo_length(e), m = strlen(part);
  for (size_t i = 0; i + m <= n; i++)
    if (!strncasecmp(e->id + i, part, m))
      return true;
  return false;
}

/* Whether two entries are files of one repo. */
static bool is_same_repo(const model_entry *a, const model_entry *b)
{
  size_t n = repo_length(a);
  return a->gguf && b->gguf && repo_length(b) == n && !strncmp(a->id, b->id, n);
}

/* Which entry `part` means: its whole id, else the only one that it is a part of; of several files of one repo that it
 * means all of, the first. `model` is what the user wrote. */
static tern_status match(const model_list *l, const char *model, const char *part, const model_entry **out,
                         tern_error *err)
{
  const model_entry *found = NULL;
  size_t count = 0, repos = 0; /* files of one repo are one meaning, where that is named */
  for (size_t i = 0; i < l->n; i++) {
    const model_entry *e = &l->items[i];
    if (!strcasecmp(e->id, part) || (repo_length(e) == strlen(part) && !strncasecmp(e->id, part, strlen(part)))) {
      *out = e;
      return TERN_OK;
    }
    if (*part && contains_caseless(e->id, part)) {
      bool same = found && is_same_repo(found, e) && names_repo(e, part);
      found = same ? found : e;
      repos += !same;
      count++;
    }
  }
  *out = found;
  if (repos == 1)
    return TERN_OK;
  buf names = {0}, how = {0};
  list_candidates(l, count ? part : NULL, &names);
  how_to_get(model, part, &how);
  const char *text = names.failed ? "" : names.data;
  tern_status status;
  if (count)
    status = err_set(err, TERN_E_NOT_FOUND, "%s: could be any of %zu models, name one: %s", model, count, text);
  else if (l->closed.status != TERN_OK)
    status = err_set(err, TERN_E_NOT_FOUND, "%s: no such file, directory or model in what can be read: %s", model,
                     l->closed.text);
  else
    status = err_set(
        err, TERN_E_NOT_FOUND, "%s: no such file, directory or model%s; %s%s", model, how.failed ? "" : how.data,
        l->n ? "there are: " : "the Hugging Face cache and TERN_HOME hold none" MODELS_HOW_TO_GET, l->n ? text : "");
  buf_free(&names);
  buf_free(&how);
  return status;
}

/* The snapshot that an entry is, or is a file of: its directory. */
static char *directory_of(const model_entry *e)
{
  return e->gguf ? mem_strndup(e->path, strlen(e->path) - strlen(e->gguf) - 1) : mem_strdup(e->path);
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

/* What MODEL is cut into: NAME[@REVISION][:FILE]. */
typedef struct model_name {
  char *text; /* NAME, and the rest behind it */
  const char *revision, *file;
} model_name;

static tern_status import_file(const cli_env *env, const gguf_files *files, const char *dir, const char *id,
                               const char *before, const char *wanted, char **out, tern_error *err)
{
  char *gguf = NULL;
  tern_status status = gguf_files_pick(files, dir, id, before, wanted, &gguf, err);
  if (status == TERN_OK)
    status = models_import(env, gguf, out, err);
  mem_free(gguf);
  return status;
}

/* One of the GGUF files of a snapshot. */
static tern_status resolve_file(const cli_env *env, const model_entry *e, const char *dir, const gguf_files *files,
                                const model_name *name, char **out, tern_error *err)
{
  buf id = {0}, before = {0};
  buf_addf(&id, "%.*s", (int)repo_length(e), e->id);
  buf_addf(&before, "%.*s%s%s:", (int)repo_length(e), e->id, name->revision ? "@" : "",
           name->revision ? name->revision : "");
  tern_status status = id.failed || before.failed
                           ? err_nomem(err, "model name")
                           : import_file(env, files, dir, id.data, before.data, name->file, out, err);
  buf_free(&id);
  buf_free(&before);
  return status;
}

/* ":FILE" behind what is no repo of GGUF files. */
static tern_status no_files(const model_entry *e, const model_name *name, tern_error *err)
{
  return err_set(err, TERN_E_NOT_FOUND, "%.*s%s%s: there is no \"%.80s\" to name in it: it is not a repo of GGUF files",
                 (int)repo_length(e), e->id, name->revision ? "@" : "", name->revision ? name->revision : "",
                 name->file);
}

static tern_status resolve_found(const cli_env *env, const model_entry *e, const model_name *name, char **dir,
                                 tern_error *err)
{
  gguf_files files = {0};
  const char *revision = name->revision;
  if (!revision && e->other)
    return err_set(err, TERN_E_NOT_FOUND,
                   "%s: of its revisions main is not in the cache, but others are: name one as %s@REV (`tern ls -v` "
                   "shows them)",
                   e->id, e->id);
  char *place = directory_of(e);
  if (!place)
    return err_nomem(err, "path");
  if (revision) {
    char *repo = repo_of(place);
    mem_free(place);
    place = repo ? snapshot(repo, revision) : NULL;
    mem_free(repo);
  }
  if (!place)
    return err_set(err, TERN_E_NOT_FOUND, "%.*s: revision %s is not in the cache", (int)repo_length(e), e->id,
                   revision);
  tern_status status = e->gguf || revision ? gguf_files_find(place, GGUF_IN_REPO, &files, err) : TERN_OK;
  if (status == TERN_OK && files.n)
    status = resolve_file(env, e, place, &files, name, dir, err);
  else if (status == TERN_OK && name->file)
    status = no_files(e, name, err);
  else if (status == TERN_OK) {
    *dir = place;
    place = NULL;
  }
  gguf_files_free(&files);
  mem_free(place);
  return status;
}

/* Cuts what stands behind NAME off: neither '@' nor ':' is in a revision's name, and no '@' in an id. */
static tern_status cut_name(const char *model, bool with_file, model_name *out, tern_error *err)
{
  *out = (model_name){.text = mem_strdup(model)};
  if (!out->text)
    return err_nomem(err, "model name");
  char *colon = with_file ? strchr(out->text, ':') : NULL;
  char *at = strchr(out->text, '@');
  if (at && colon && colon < at) /* NAME:FILE, whatever is in the file's name */
    at = NULL;
  if (!with_file)
    at = strrchr(out->text, '@');
  if (colon)
    *colon = 0;
  if (at)
    *at = 0;
  out->revision = at ? at + 1 : NULL;
  out->file = colon ? colon + 1 : NULL;
  return TERN_OK;
}

static tern_status resolve_entry(const cli_env *env, const model_entry *e, bool with_file, model_name *name, char **dir,
                                 tern_error *err)
{
  if (with_file && !e->gguf && !name->revision)
    return no_files(e, name, err);
  if (!with_file && e->gguf && !names_repo(e, name->text))
    name->file = e->gguf; /* the whole id, as ls shows it, or a part of the file's name */
  return resolve_found(env, e, name, dir, err);
}

static tern_status resolve_name(const cli_env *env, const model_list *list, const char *model, bool with_file,
                                char **dir, tern_error *err)
{
  const model_entry *entry = NULL;
  model_name name;
  TRY(cut_name(model, with_file, &name, err));
  tern_status status = match(list, *model ? model : "\"\"", name.text, &entry, err);
  if (status == TERN_OK && entry)
    status = resolve_entry(env, entry, with_file, &name, dir, err);
  mem_free(name.text);
  return status;
}

/* As it stands; else with what is behind a colon taken for a file. The first error tells, unless there is a revision:
 * no colon can be in that. */
static tern_status resolve_id(const cli_env *env, const char *model, char **dir, tern_error *err)
{
  model_list list;
  tern_error why = {0};
  TRY(models_find(env, &list, err));
  tern_status status = resolve_name(env, &list, model, false, dir, err);
  if (status == TERN_E_NOT_FOUND && strchr(model, ':')) {
    tern_status second = resolve_name(env, &list, model, true, dir, &why);
    if (second != TERN_E_NOT_FOUND || strchr(model, '@'))
      status = second == TERN_OK ? second : err_set(err, second, "%s", why.text);
  }
  if (status == TERN_E_NOT_FOUND &&
      list.closed.status != TERN_OK) { /* it may be there: a download would mend nothing */
    status = TERN_E_IO;
    if (err)
      err->status = status;
  }
  models_free(&list);
  return status;
}

static tern_status resolve_only(const cli_env *env, char **dir, tern_error *err)
{
  model_list list;
  buf names = {0};
  TRY(models_find(env, &list, err));
  tern_status status = TERN_OK;
  if (list.n == 1) {
    status = resolve_found(env, &list.items[0], &(model_name){0}, dir, err);
  } else if (list.n == 0 && list.closed.status != TERN_OK) {
    status = err_set(err, TERN_E_IO, "no MODEL named, and none in what can be read: %s", list.closed.text);
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

/* The GGUF file of a directory that has such alone. *found: it has. */
static tern_status resolve_ggufs(const cli_env *env, const char *model, models_need need, bool *found, char **dir,
                                 tern_error *err)
{
  gguf_files files;
  buf before = {0};
  *found = false;
  if (need == NEED_TEXT && check_dir(model, need, NULL) == TERN_OK)
    return TERN_OK;
  size_t n = strlen(model);
  buf_addf(&before, "%s%s", model, n && model[n - 1] == '/' ? "" : "/");
  char *repo = repo_of(model);
  tern_status status = before.failed ? err_nomem(err, "path")
                                     : gguf_files_find(model, repo ? GGUF_IN_REPO : GGUF_IN_DIRECTORY, &files, err);
  mem_free(repo);
  if (status == TERN_OK) {
    *found = files.n > 0;
    if (*found)
      status = import_file(env, &files, model, model, before.data, NULL, dir, err);
    gguf_files_free(&files);
  }
  buf_free(&before);
  return status;
}

/* The directory itself; or its GGUF file, where it has such alone; or the main snapshot where it is a repo folder of
 * the hub's cache; or the model whose name it happens to share a part with. */
static tern_status resolve_directory(const cli_env *env, const char *model, models_need need, char **dir,
                                     tern_error *err)
{
  bool found;
  TRY(resolve_ggufs(env, model, need, &found, dir, err));
  if (found)
    return TERN_OK;
  tern_status status = check_dir(model, need, NULL);
  if (status != TERN_OK && status != TERN_E_IO) {
    char *main = is_directory(model, "snapshots") ? snapshot(model, NULL) : NULL;
    status = main ? resolve_ggufs(env, main, need, &found, dir, err) : TERN_OK;
    if (main && status == TERN_OK && !found) {
      *dir = main;
      return TERN_OK;
    }
    mem_free(main);
    if (status != TERN_OK || found || resolve_id(env, model, dir, NULL) == TERN_OK)
      return status;
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
