/* repo.c - see repo.h. The rules are the hub's own (huggingface_hub, utils/_validators.py): letters, digits, '-', '_'
 * and '.', no "--" or "..", at most 96 characters a part. */
#include "hub/repo.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/utf8.h"

enum { MOST_OF_NAME = 96, MOST_OF_PART = 255 };

static const char folder_prefix[] = "models--";

static bool is_name(const char *s, size_t n)
{
  if (n == 0 || n > MOST_OF_NAME || strchr("-.", s[0]) || strchr("-.", s[n - 1]))
    return false;
  for (size_t i = 0; i < n; i++) {
    if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i]))
      return false;
    if (i && s[i] == s[i - 1] && (s[i] == '-' || s[i] == '.'))
      return false;
  }
  return true;
}

bool repo_is_id(const char *text)
{
  const char *slash = strchr(text, '/');
  return slash && is_name(text, (size_t)(slash - text)) && is_name(slash + 1, strlen(slash + 1));
}

bool repo_is_commit(const char *revision)
{
  return strlen(revision) == 40 && strspn(revision, "0123456789abcdef") == 40;
}

tern_status repo_parse(const char *text, hub_repo *out, tern_error *err)
{
  const char *at = strchr(text, '@');
  size_t n = at ? (size_t)(at - text) : strlen(text);
  *out = (hub_repo){.revision = "main"};
  if (n < sizeof out->id)
    memcpy(out->id, text, n);
  if (n >= sizeof out->id || !repo_is_id(out->id)) {
    char *tag = n < sizeof out->id ? strchr(out->id, ':') : NULL;
    if (tag)
      *tag++ = 0;
    if (tag && repo_is_id(out->id) && !strcasecmp(tag, "latest"))
      return err_set(err, TERN_E_USAGE, "\"%.200s\": a repo of the hub has no \":latest\": tern pull %s", text,
                     out->id);
    if (tag && *tag && repo_is_id(out->id))
      return err_set(
          err, TERN_E_USAGE,
          "\"%.200s\": \":%.80s\" names a GGUF file: tern pull %s --include '*%.80s*.gguf' brings it, and tern "
          "run %s:%.80s answers with it",
          text, tag, out->id, tag, out->id, tag);
    return err_set(err, TERN_E_USAGE, "\"%.200s\" is not ORG/NAME[@REV], as a repo of the hub is named (%s)", text,
                   strstr(text, "://") ? "without the address before it" : "tern pull mlx-community/NAME, say");
  }
  if (!at)
    return TERN_OK;
  if (strlen(at + 1) >= sizeof out->revision || repo_check_path("revision", at + 1, NULL) != TERN_OK)
    return err_set(err, TERN_E_USAGE, "%s: \"%.200s\" is not a branch, a tag or a commit", out->id, at + 1);
  snprintf(out->revision, sizeof out->revision, "%s", at + 1);
  return TERN_OK;
}

static bool has_control(const char *s)
{
  for (; *s; s++)
    if ((unsigned char)*s < 0x20 || *s == 0x7f)
      return true;
  return false;
}

tern_status repo_check_path(const char *what, const char *path, tern_error *err)
{
  size_t length = strlen(path), bad;
  if (length == 0 || length > REPO_PATH_MOST)
    return err_set(err, TERN_E_FORMAT, "%s: a path of %zu bytes", what, length);
  if (!utf8_valid(path, length, &bad))
    return err_set(err, TERN_E_FORMAT, "%s: \"%.200s\" is not UTF-8", what, path);
  if (has_control(path))
    return err_set(err, TERN_E_FORMAT, "%s: \"%.200s\" has control characters in it", what, path);
  for (const char *part = path;; part++) {
    size_t n = strcspn(part, "/");
    bool dots = (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.');
    if (n == 0 || n > MOST_OF_PART || dots || memchr(part, '\\', n))
      return err_set(err, TERN_E_FORMAT, "%s: \"%.200s\" is no path inside a repo", what, path);
    part += n;
    if (!*part)
      return TERN_OK;
  }
}

char *repo_folder(const char *id)
{
  const char *slash = strchr(id, '/');
  buf folder = {0};
  if (slash)
    buf_addf(&folder, "%s%.*s--%s", folder_prefix, (int)(slash - id), id, slash + 1);
  else
    buf_addf(&folder, "%s%s", folder_prefix, id);
  return buf_take(&folder);
}

bool repo_of_folder(const char *folder, char out[REPO_ID_ROOM])
{
  size_t n = 0;
  if (strncmp(folder, folder_prefix, sizeof folder_prefix - 1) != 0)
    return false;
  for (const char *at = folder + sizeof folder_prefix - 1; *at; at++) {
    bool dashes = at[0] == '-' && at[1] == '-';
    if (n + 1 >= REPO_ID_ROOM)
      return false;
    out[n++] = dashes ? '/' : *at;
    at += dashes;
  }
  out[n] = 0;
  return n > 0;
}
