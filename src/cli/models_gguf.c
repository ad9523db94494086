/* models_gguf.c - see models_gguf.h. */
#include "cli/models_gguf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"

enum { MOST_FILES = 10000, FILES_NAMED = 8 };

static const char gguf_end[] = ".gguf";

/* ---- which there are ---- */

static bool ends_with(const char *text, const char *end)
{
  size_t n = strlen(text), m = strlen(end);
  return n > m && !strcasecmp(text + n - m, end);
}

/* "…-00002-of-00003.gguf": one that only makes sense behind the first. */
static bool is_later_part(const char *name)
{
  unsigned number = 1, of = 0;
  size_t n = strlen(name), m = strlen("-00001-of-00001.gguf");
  return n > m && sscanf(name + n - m, "-%5u-of-%5u", &number, &of) == 2 && number > 1;
}

static bool is_model(const char *name)
{
  return ends_with(name, gguf_end) && strncasecmp(name, "mmproj", 6) != 0 && !is_later_part(name);
}

static tern_status add_file(gguf_files *l, const char *dir, const char *path, tern_error *err)
{
  if (l->n >= MOST_FILES)
    return err_set(err, TERN_E_LIMIT, "%s: more than %d GGUF files: name one of them by its path", dir, MOST_FILES);
  char *copy = mem_strdup(path);
  if (!copy || !mem_grow(&l->items, &l->capacity, l->n + 1, sizeof *l->items)) {
    mem_free(copy);
    return err_nomem(err, "list of files");
  }
  l->items[l->n++] = copy;
  return TERN_OK;
}

/* Links to folders are not followed: they lead around in circles, and out of the repo. */
static bool is_folder(const char *path)
{
  struct stat st;
  return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* DIR/BELOW, of which `below` is "" or ends in a slash. *dense: there are weights of the other kind at the top. */
static tern_status look_through(const char *dir, const char *below, int depth, gguf_files *l, bool *dense,
                                tern_error *err)
{
  char *folder = *below ? path_join(dir, below) : mem_strdup(dir);
  DIR *d = folder ? opendir(folder) : NULL;
  tern_status status = folder ? TERN_OK : err_nomem(err, "path");
  for (const struct dirent *e; d && status == TERN_OK && !*dense && (e = readdir(d));) {
    buf inside = {0};
    if (e->d_name[0] == '.')
      continue;
    buf_addf(&inside, "%s%s", below, e->d_name);
    char *path = inside.failed ? NULL : path_join(dir, inside.data);
    if (!path)
      status = err_nomem(err, "path");
    else if (!*below && ends_with(e->d_name, ".safetensors"))
      *dense = true;
    else if (is_model(e->d_name) && file_is_regular(path))
      status = add_file(l, dir, inside.data, err);
    else if (depth > 0 && is_folder(path)) {
      buf_addc(&inside, '/');
      status = inside.failed ? err_nomem(err, "path") : look_through(dir, inside.data, depth - 1, l, dense, err);
    }
    mem_free(path);
    buf_free(&inside);
  }
  if (d)
    closedir(d);
  mem_free(folder);
  return status;
}

static int by_name(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

tern_status gguf_files_find(const char *dir, int depth, gguf_files *out, tern_error *err)
{
  bool dense = false;
  *out = (gguf_files){0};
  tern_status status = look_through(dir, "", depth, out, &dense, err);
  if (status != TERN_OK || dense)
    gguf_files_free(out);
  else if (out->n)
    qsort(out->items, out->n, sizeof *out->items, by_name);
  return status;
}

void gguf_files_free(gguf_files *l)
{
  for (size_t i = 0; i < l->n; i++)
    mem_free(l->items[i]);
  mem_free(l->items);
  *l = (gguf_files){0};
}

bool gguf_files_there(const char *dir, int depth)
{
  gguf_files l;
  bool some = gguf_files_find(dir, depth, &l, NULL) == TERN_OK && l.n;
  gguf_files_free(&l);
  return some;
}

/* ---- which one is meant ---- */

/* How well `wanted` names a file, rising. */
typedef enum naming { NAMES_NOT, NAMES_PART, NAMES_FILE, NAMES_PATH, NAMES_EXACTLY } naming;

static naming how_named(const char *file, const char *wanted)
{
  const char *slash = strrchr(file, '/');
  if (!wanted)
    return NAMES_PART;
  if (!strcmp(file, wanted))
    return NAMES_EXACTLY;
  if (!strcasecmp(file, wanted))
    return NAMES_PATH;
  if (slash && !strcasecmp(slash + 1, wanted))
    return NAMES_FILE;
  return strcasestr(file, wanted) ? NAMES_PART : NAMES_NOT;
}

/* "a, b and 3 more" of those that are named so. */
static void name_files(const gguf_files *l, const char *before, const char *wanted, naming how, buf *out)
{
  size_t named = 0;
  buf_adds(out, "");
  for (size_t i = 0; i < l->n; i++) {
    if (how_named(l->items[i], wanted) != how)
      continue;
    if (named < FILES_NAMED)
      buf_addf(out, "%s%s%s", named ? ", " : "", before, l->items[i]);
    named++;
  }
  if (named > FILES_NAMED)
    buf_addf(out, " and %zu more", named - FILES_NAMED);
}

tern_status gguf_files_pick(const gguf_files *l, const char *dir, const char *id, const char *before,
                            const char *wanted, char **path, tern_error *err)
{
  const char *found = NULL;
  size_t meant = 0; /* by the best of the names */
  naming best = NAMES_NOT;
  for (size_t i = 0; i < l->n; i++) {
    naming how = how_named(l->items[i], wanted);
    if (how > best) {
      best = how;
      meant = 0;
    }
    if (how != NAMES_NOT && how == best)
      found = meant++ ? found : l->items[i];
  }
  if (meant == 1) {
    *path = path_join(dir, found);
    return *path ? TERN_OK : err_nomem(err, "path");
  }
  buf names = {0};
  name_files(l, before, wanted, best, &names);
  tern_status status = TERN_E_UNSUPPORTED; /* and not NOT_FOUND: a download would mend nothing */
  if (names.failed)
    status = err_nomem(err, "list of files");
  else if (!meant)
    err_set(err, status, "%s: none of its GGUF files has \"%.80s\" in its name; there are: %s", id, wanted, names.data);
  else
    err_set(err, status, "%s: holds %zu GGUF files%s%.80s%s, name one: %s", id, meant, wanted ? " with \"" : "",
            wanted ? wanted : "", wanted ? "\" in their names" : "", names.data);
  buf_free(&names);
  return status;
}
