/* models_import.c - GGUF files named as MODEL: imported into TERN_HOME/imports on first use.
 *
 * The place is named after the file and the SHA-256 of its bytes, so that a copy, or the same file under another name,
 * is found, and one that changed is imported anew. Reading all bytes at every start would cost seconds: what a file had
 * is noted in imports/.seen under its path, size, times and inode. import_gguf makes the directory whole or not at all;
 * of two processes that import the same file at once, the slower one finds the other's result.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "cli/models.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "convert/import.h"

enum { LONGEST_STEM = 100 };

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

/* ---- the content ---- */

/* TERN_HOME/imports/.seen/HASH of what the system says of the file. The time of its inode's change cannot be set. */
static tern_status seen_place(const char *folder, const char *gguf, buf *place, tern_error *err)
{
  struct stat st;
  buf key = {0};
  if (stat(gguf, &st) != 0)
    return err_errno(err, gguf, "look up");
  char *full = realpath(gguf, NULL);
  buf_addf(&key, "%s|%lld|%lld.%09ld|%lld.%09ld|%llu", full ? full : gguf, (long long)st.st_size,
           (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec,
           (unsigned long long)st.st_ino);
  free(full); /* realpath's own allocation */
  if (!key.failed)
    buf_addf(place, "%s/.seen/%016llx", folder, (unsigned long long)hash_bytes64(key.data, key.length));
  bool failed = key.failed || place->failed;
  buf_free(&key);
  return failed ? err_nomem(err, "path") : TERN_OK;
}

static bool read_seen(const char *place, char digest[SHA256_HEX])
{
  char *text = NULL;
  size_t size;
  if (file_read(place, SHA256_HEX, &text, &size, NULL) != TERN_OK)
    return false;
  bool good = size == SHA256_HEX - 1 && strspn(text, "0123456789abcdef") == size;
  if (good)
    memcpy(digest, text, SHA256_HEX);
  mem_free(text);
  return good;
}

/* What cannot be noted is read again next time. */
static void write_seen(const char *place, const char *digest)
{
  buf fresh = {0}, folder = {0};
  buf_addf(&fresh, "%s.%ld", place, (long)getpid());
  buf_add(&folder, place, (size_t)(strrchr(place, '/') - place));
  FILE *f = !fresh.failed && !folder.failed && make_dirs(folder.data, NULL) == TERN_OK ? fopen(fresh.data, "we") : NULL;
  if (f) {
    bool written = fputs(digest, f) >= 0;
    if (fclose(f) != 0 || !written || rename(fresh.data, place) != 0)
      unlink(fresh.data);
  }
  buf_free(&fresh);
  buf_free(&folder);
}

static tern_status hash_file(const char *gguf, char digest[SHA256_HEX], tern_error *err)
{
  map m;
  say_working("reading", gguf);
  tern_status status = map_open(gguf, &m, err);
  if (status == TERN_OK) {
    sha256_hex(m.data, m.size, digest);
    if (map_broken(&m))
      status = err_set(err, TERN_E_IO, "%s: shrank while it was read", gguf);
    map_close(&m);
  }
  say_progress_end();
  return status;
}

/* ---- the place ---- */

static bool is_whole(const char *place)
{
  buf path = {0};
  buf_addf(&path, "%s/config.json", place);
  bool there = !path.failed && file_is_regular(path.data);
  buf_free(&path);
  return there;
}

/* The file's name without its ending, as a word that no shell and no terminal takes for anything else. */
static void add_stem(buf *place, const char *gguf)
{
  const char *slash = strrchr(gguf, '/'), *name = slash ? slash + 1 : gguf;
  size_t n = strlen(name) - strlen(".gguf");
  for (size_t i = 0; i < n && i < LONGEST_STEM; i++) {
    bool plain = isalnum((unsigned char)name[i]) || name[i] == '_' || (i && (name[i] == '.' || name[i] == '-'));
    buf_addc(place, plain ? name[i] : '_');
  }
}

/* An import of the same bytes under whatever name, in `place`; else the name that it will have. */
static tern_status find_place(const char *folder, const char *gguf, const char *digest, buf *place, tern_error *err)
{
  char end[24];
  snprintf(end, sizeof end, "-%.16s", digest);
  DIR *dir = opendir(folder);
  for (const struct dirent *e; dir && !place->length && (e = readdir(dir));) {
    size_t n = strlen(e->d_name);
    if (e->d_name[0] == '.' || n <= strlen(end) || strcmp(e->d_name + n - strlen(end), end) != 0)
      continue;
    buf_addf(place, "%s/%s", folder, e->d_name);
    if (!place->failed && !is_whole(place->data))
      buf_clear(place);
  }
  if (dir)
    closedir(dir);
  if (!place->length) {
    buf_addf(place, "%s/", folder);
    add_stem(place, gguf);
    buf_adds(place, end);
  }
  return place->failed ? err_nomem(err, "path") : TERN_OK;
}

static tern_status import_into(const char *gguf, char *folder, const char *place, tern_error *err)
{
  TRY(make_dirs(folder, err));
  import_options options = {.cancel = sig_hold()};
  say_working("importing", gguf);
  tern_status status = import_gguf_with(gguf, place, &options, NULL, err);
  sig_release();
  if (status == TERN_OK)
    say("imported %s into %s", gguf, place);
  else if (status != TERN_E_CANCELLED && is_whole(place))
    status = TERN_OK; /* another process was faster */
  return status;
}

char *models_imported(const cli_env *env, const char *gguf)
{
  buf folder = {0}, seen = {0}, place = {0};
  char digest[SHA256_HEX];
  if (!env->tern_home)
    return NULL;
  buf_addf(&folder, "%s/imports", env->tern_home);
  bool there = !folder.failed && seen_place(folder.data, gguf, &seen, NULL) == TERN_OK &&
               read_seen(seen.data, digest) && find_place(folder.data, gguf, digest, &place, NULL) == TERN_OK &&
               is_whole(place.data);
  buf_free(&folder);
  buf_free(&seen);
  if (there)
    return buf_take(&place);
  buf_free(&place);
  return NULL;
}

tern_status models_import(const cli_env *env, const char *gguf, char **dir, tern_error *err)
{
  buf folder = {0}, seen = {0}, place = {0};
  char digest[SHA256_HEX];
  if (!env->tern_home)
    return err_set(err, TERN_E_NOT_FOUND, "%s: no place to import it to: set TERN_HOME", gguf);
  buf_addf(&folder, "%s/imports", env->tern_home);
  tern_status status = folder.failed ? err_nomem(err, "path") : seen_place(folder.data, gguf, &seen, err);
  bool noted = status == TERN_OK && read_seen(seen.data, digest);
  if (status == TERN_OK && !noted)
    status = hash_file(gguf, digest, err);
  if (status == TERN_OK)
    status = find_place(folder.data, gguf, digest, &place, err);
  if (status == TERN_OK && !is_whole(place.data))
    status = import_into(gguf, folder.data, place.data, err);
  if (status == TERN_OK && !noted)
    write_seen(seen.data, digest);
  buf_free(&folder);
  buf_free(&seen);
  if (status == TERN_OK)
    *dir = buf_take(&place);
  else
    buf_free(&place);
  return status;
}
