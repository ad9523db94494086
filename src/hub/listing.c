/* listing.c - see listing.h. */
#include "hub/listing.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "format/json_util.h"

/* A thousand times the largest file there is. */
static const int64_t most_bytes = (int64_t)1 << 50;

static bool is_hex(const char *s, size_t n)
{
  return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

/* jsonu_parse with a word for the page that proxies and login walls send. */
static tern_status parse(const char *name, const char *text, size_t length, json_t **out, tern_error *err)
{
  size_t at = 0;
  while (at < length && strchr(" \t\r\n", text[at]))
    at++;
  if (at < length && text[at] == '<')
    return err_set(err, TERN_E_FORMAT, "%s: a web page came instead of JSON: is HF_ENDPOINT, or a proxy, right?", name);
  return jsonu_parse(name, text, length, out, err);
}

tern_status listing_commit(const char *name, const char *text, size_t length, char out[REPO_COMMIT_ROOM],
                           tern_error *err)
{
  json_t *tree;
  TRY(parse(name, text, length, &tree, err));
  const char *sha = json_string_value(json_object_get(tree, "sha"));
  bool good = sha && repo_is_commit(sha);
  if (good)
    snprintf(out, REPO_COMMIT_ROOM, "%s", sha);
  json_decref(tree);
  return good ? TERN_OK : err_set(err, TERN_E_FORMAT, "%s: \"sha\" is not a commit's 40 digits", name);
}

/* The size and the hash of one entry. */
static tern_status read_identity(const char *name, const json_t *entry, hub_file *f, tern_error *err)
{
  const json_t *lfs = json_object_get(entry, "lfs"), *holder = json_is_object(lfs) ? lfs : entry;
  const json_t *size = json_object_get(holder, "size");
  const char *oid = json_string_value(json_object_get(holder, "oid"));
  if (!json_is_integer(size) || json_integer_value(size) < 0 || json_integer_value(size) > most_bytes)
    return err_set(err, TERN_E_FORMAT, "%s: %s: \"size\" is not a file's size", name, f->path);
  if (!oid || !is_hex(oid, holder == lfs ? 64 : 40))
    return err_set(err, TERN_E_FORMAT, "%s: %s: \"oid\" is not a %s", name, f->path,
                   holder == lfs ? "SHA-256 of 64 digits" : "SHA-1 of 40 digits");
  f->size = (uint64_t)json_integer_value(size);
  snprintf(f->etag, sizeof f->etag, "%s", oid);
  return TERN_OK;
}

static tern_status add_entry(const char *name, const json_t *entry, hub_files *files, tern_error *err)
{
  const char *type = json_string_value(json_object_get(entry, "type"));
  const char *path = json_string_value(json_object_get(entry, "path"));
  if (!type || !path)
    return err_set(err, TERN_E_FORMAT, "%s: an entry without \"type\" or \"path\"", name);
  if (strcmp(type, "file") != 0)
    return TERN_OK;
  TRY(repo_check_path(name, path, err));
  if (files->n >= LISTING_MOST_FILES)
    return err_set(err, TERN_E_LIMIT, "%s: more than %d files", name, LISTING_MOST_FILES);
  hub_file f = {.path = mem_strdup(path)};
  if (!f.path || !mem_grow(&files->items, &files->capacity, files->n + 1, sizeof *files->items)) {
    mem_free(f.path);
    return err_nomem(err, "file list");
  }
  tern_status status = read_identity(name, entry, &f, err);
  if (status == TERN_OK)
    files->items[files->n++] = f;
  else
    mem_free(f.path);
  return status;
}

tern_status listing_add(const char *name, const char *text, size_t length, hub_files *files, tern_error *err)
{
  buf wrapped = {0}; /* the page is an array, and trees begin with an object */
  json_t *tree = NULL, *entry;
  size_t i, start = strspn(text, " \t\r\n");
  if (length > LISTING_PAGE_MOST)
    return err_set(err, TERN_E_LIMIT, "%s: a page of more than %d bytes", name, LISTING_PAGE_MOST);
  if (start < length && text[start] != '[') { /* a web page says so in its own words */
    TRY(parse(name, text, length, &tree, err));
    json_decref(tree);
    return err_set(err, TERN_E_FORMAT, "%s: an object stands where the list of files should", name);
  }
  buf_adds(&wrapped, "{\"l\":");
  buf_add(&wrapped, text, length);
  buf_addc(&wrapped, '}');
  if (wrapped.failed) {
    buf_free(&wrapped);
    return err_nomem(err, "file list");
  }
  tern_status status = parse(name, wrapped.data, wrapped.length, &tree, err);
  buf_free(&wrapped);
  TRY(status);
  json_array_foreach(json_object_get(tree, "l"), i, entry)
  {
    status = add_entry(name, entry, files, err);
    if (status != TERN_OK)
      break;
  }
  json_decref(tree);
  return status;
}

static int by_path(const void *a, const void *b)
{
  return strcmp(((const hub_file *)a)->path, ((const hub_file *)b)->path);
}

static bool has_file(const hub_files *files, const char *path)
{
  const hub_file key = {.path = (char *)path};
  return bsearch(&key, files->items, files->n, sizeof *files->items, by_path) != NULL;
}

tern_status listing_check(const char *name, hub_files *files, tern_error *err)
{
  if (files->n)
    qsort(files->items, files->n, sizeof *files->items, by_path);
  for (size_t i = 0; i < files->n; i++) {
    char folder[REPO_PATH_MOST + 1];
    const char *path = files->items[i].path;
    if (i && !strcmp(path, files->items[i - 1].path))
      return err_set(err, TERN_E_FORMAT, "%s: %s is listed twice", name, path);
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash; (slash = strrchr(folder, '/'));) {
      *slash = 0;
      if (has_file(files, folder))
        return err_set(err, TERN_E_FORMAT, "%s: %s is a file and a folder", name, folder);
    }
  }
  return TERN_OK;
}

static int by_etag(const void *a, const void *b)
{
  return strcmp((*(const hub_file *const *)a)->etag, (*(const hub_file *const *)b)->etag);
}

const hub_file **listing_blobs(const hub_files *files, size_t *n)
{
  const hub_file **blobs = mem_array(files->n + 1, sizeof *blobs);
  *n = 0;
  for (size_t i = 0; blobs && i < files->n; i++)
    blobs[i] = &files->items[i];
  if (blobs && files->n)
    qsort(blobs, files->n, sizeof *blobs, by_etag);
  for (size_t i = 0; blobs && i < files->n; i++)
    if (*n == 0 || strcmp(blobs[*n - 1]->etag, blobs[i]->etag) != 0)
      blobs[(*n)++] = blobs[i];
  return blobs;
}

void listing_free(hub_files *files)
{
  for (size_t i = 0; i < files->n; i++)
    mem_free(files->items[i].path);
  mem_free(files->items);
  *files = (hub_files){0};
}

/* ---- headers ---- */

/* Whether one link's parameters, up to `end`, say that its rel is next; blanks and quotes are free to be there. */
static bool is_next(const char *at, const char *end)
{
  static const char blanks[] = " \t";
  for (; at < end; at++) {
    if ((*at != ';' && !strchr(blanks, *at)) || end - at < 5 || strncasecmp(at + 1, "rel", 3) != 0)
      continue;
    const char *value = at + 4 + strspn(at + 4, blanks);
    if (*value != '=')
      continue;
    value++;
    value += strspn(value, " \t\"");
    if (!strncasecmp(value, "next", 4) && !isalnum((unsigned char)value[4]) && value[4] != '-')
      return true;
  }
  return false;
}

tern_status listing_next(const char *header, char **url, tern_error *err)
{
  *url = NULL;
  for (const char *open = strchr(header, '<'); open; open = strchr(open, '<')) {
    const char *close = strchr(open, '>');
    if (!close)
      return err_set(err, TERN_E_FORMAT, "a Link header that does not end: \"%.60s\"", open);
    const char *end = strchr(close, '<');
    if (!end)
      end = close + strlen(close);
    if (is_next(close, end)) {
      *url = mem_strndup(open + 1, (size_t)(close - open) - 1);
      return *url ? TERN_OK : err_nomem(err, "address of the next page");
    }
    open = close;
  }
  return TERN_OK;
}

static bool take_number(const char **at, char after, uint64_t *out)
{
  char *end;
  if (**at < '0' || **at > '9' || strspn(*at, "0123456789") > 18)
    return false;
  *out = strtoull(*at, &end, 10);
  *at = end + 1;
  return *end == after;
}

bool listing_range(const char *header, uint64_t *first, uint64_t *last, uint64_t *total)
{
  const char *at = header;
  if (strncasecmp(at, "bytes ", 6) != 0)
    return false;
  at += 6;
  return take_number(&at, '-', first) && take_number(&at, '/', last) && take_number(&at, 0, total) && *first <= *last &&
         *last < *total;
}
