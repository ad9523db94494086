/* path.c - see path.h. Paths are never cut: one that the system finds too long is the system's to refuse. */
#include "base/path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"

char *path_join(const char *dir, const char *name)
{
  buf path = {0};
  buf_adds(&path, dir);
  buf_addc(&path, '/');
  buf_adds(&path, name);
  return buf_take(&path);
}

tern_status path_type(const char *path, mode_t *type, tern_error *err)
{
  struct stat st;
  *type = 0;
  if (stat(path, &st) == 0)
    *type = st.st_mode & S_IFMT;
  else if (errno != ENOENT && errno != ENOTDIR)
    return err_errno(err, path, "look up");
  return TERN_OK;
}

tern_status path_place(const char *dir, tern_status status, tern_error *err)
{
  static const char *const ends[] = {".json", ".safetensors", ".jinja", ".model"};
  if (status == TERN_OK || !err)
    return status;
  size_t n = strcspn(err->text, ":/ ");
  for (size_t i = 0; err->text[n] == ':' && i < sizeof ends / sizeof *ends; i++) {
    size_t length = strlen(ends[i]);
    if (n > length && memcmp(err->text + n - length, ends[i], length) == 0) {
      char line[sizeof err->text];
      memcpy(line, err->text, sizeof line);
      return err_set(err, status, "%s/%s", dir, line);
    }
  }
  return status;
}
