/* models_import.c - GGUF files named as MODEL: imported into TERN_HOME/imports on first use.
 *
 * The place is named after the file and a hash of its path, size and time of change, so a file that changed is imported
 * anew. import_gguf makes the directory whole or not at all; of two processes that import the same file at once, the
 * slower one finds the other's result.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "cli/models.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "convert/import.h"

/* mkdir -p; `path` is changed on the way and restored. */
static tern_status make_dirs(char *path, tern_error *err)
{
  for (char *at = path + 1;; at++) {
    if (*at && *at != '/')
      continue;
    char held = *at;
    *at = 0;
    bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
    tern_status status = made ? TERN_OK : err_errno(err, path, "make directory");
    *at = held;
    if (status != TERN_OK || !held)
      return status;
  }
}

/* TERN_HOME/imports/STEM-HASH */
static tern_status import_place(const cli_env *env, const char *gguf, buf *folder, buf *place, tern_error *err)
{
  struct stat st;
  buf key = {0};
  if (!env->tern_home)
    return err_set(err, TERN_E_NOT_FOUND, "%s: no place to import it to: set TERN_HOME", gguf);
  if (stat(gguf, &st) != 0)
    return err_errno(err, gguf, "look up");
  char *full = realpath(gguf, NULL);
  buf_addf(&key, "%s|%lld|%lld.%09ld", full ? full : gguf, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
           st.st_mtim.tv_nsec);
  free(full); /* realpath's own allocation */
  const char *name = strrchr(gguf, '/');
  name = name ? name + 1 : gguf;
  buf_addf(folder, "%s/imports", env->tern_home);
  if (!key.failed && !folder->failed)
    buf_addf(place, "%s/%.*s-%016llx", folder->data, (int)(strlen(name) - strlen(".gguf")), name,
             (unsigned long long)hash_bytes64(key.data, key.length));
  bool failed = key.failed || folder->failed || place->failed;
  buf_free(&key);
  return failed ? err_nomem(err, "path") : TERN_OK;
}

static bool is_whole(const char *place)
{
  buf path = {0};
  buf_addf(&path, "%s/config.json", place);
  bool there = !path.failed && file_is_regular(path.data);
  buf_free(&path);
  return there;
}

tern_status models_import(const cli_env *env, const char *gguf, char **dir, tern_error *err)
{
  buf folder = {0}, place = {0};
  tern_status status = import_place(env, gguf, &folder, &place, err);
  if (status == TERN_OK && !is_whole(place.data)) {
    status = make_dirs(folder.data, err);
    if (status == TERN_OK) {
      import_options options = {.cancel = sig_hold()};
      say_working("importing", gguf);
      status = import_gguf_with(gguf, place.data, &options, NULL, err);
      sig_release();
      if (status == TERN_OK)
        say("imported %s into %s", gguf, place.data);
    }
    if (status != TERN_OK && status != TERN_E_CANCELLED && is_whole(place.data))
      status = TERN_OK; /* another process was faster */
  }
  buf_free(&folder);
  if (status == TERN_OK)
    *dir = buf_take(&place);
  else
    buf_free(&place);
  return status;
}
