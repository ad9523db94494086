/* status.c - writes error lines. Keeps them to one line of valid UTF-8, whatever the arguments hold: names in them come
 * from files that nobody has checked yet. */
#define ERR_DEFINITIONS
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static const char *const status_names[] = {
    [TERN_OK] = "ok",
    [TERN_E_USAGE] = "usage",
    [TERN_E_IO] = "io",
    [TERN_E_FORMAT] = "format",
    [TERN_E_UNSUPPORTED] = "unsupported",
    [TERN_E_LIMIT] = "limit",
    [TERN_E_NOMEM] = "nomem",
    [TERN_E_TEMPLATE] = "template",
    [TERN_E_CANCELLED] = "cancelled",
    [TERN_E_NOT_FOUND] = "not_found",
    [TERN_E_INTERNAL] = "internal",
    [TERN_E_BUSY] = "busy",
};

const char *tern_status_name(tern_status status)
{
  size_t i = (size_t)status;
  return i < sizeof status_names / sizeof *status_names ? status_names[i] : "unknown";
}

const char *tern_version(void)
{
  return TERN_VERSION;
}

/* What a terminal acts on instead of showing it: control characters, line and paragraph ends, and the marks,
 * embeddings, overrides and isolates that turn the direction of the text after them. */
static bool is_control(uint32_t c)
{
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* Drops what a cut left of a character at the end of a full buffer; controls and broken bytes become '?'. */
static void make_presentable(char *text, size_t size)
{
  size_t n = strlen(text), i = 0;
  while (i < n) {
    uint32_t c;
    size_t used = utf8_decode(text + i, n - i, &c);
    bool incomplete = false;
    if (used == 0) {
      utf8_broken(text + i, n - i, &incomplete);
      if (incomplete && n == size - 1) {
        text[i] = '\0';
        return;
      }
      text[i++] = '?';
      continue;
    }
    if (is_control(c))
      memset(text + i, '?', used);
    i += used;
  }
}

void err_clean(char *text)
{
  make_presentable(text, 0); /* nothing was cut off */
}

const char *err_clean_copy(const char *text, char *out, size_t size)
{
  static const char more[] = "...";
  size_t n = strnlen(text, size);
  bool whole = n < size;
  size_t room = whole ? size : size - (sizeof more - 1);
  memcpy(out, text, whole ? n : room - 1);
  out[whole ? n : room - 1] = '\0';
  make_presentable(out, whole ? 0 : room);
  if (!whole)
    strcat(out, more); /* NOLINT: there is room for it */
  return out;
}

tern_status err_set(tern_error *err, tern_status status, const char *format, ...)
{
  if (err) {
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    err->status = status;
    make_presentable(err->text, sizeof err->text);
  }
  return status;
}

tern_status err_prefix(tern_error *err, tern_status status, const char *format, ...)
{
  if (!err)
    return status;
  char old[sizeof err->text];
  memcpy(old, err->text, sizeof old);
  va_list args;
  va_start(args, format);
  int n = vsnprintf(err->text, sizeof err->text, format, args);
  va_end(args);
  if (n >= 0 && (size_t)n < sizeof err->text)
    snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", old);
  make_presentable(err->text, sizeof err->text);
  return err->status;
}

tern_status err_nomem(tern_error *err, const char *what)
{
  return err_set(err, TERN_E_NOMEM, "out of memory (%s)", what);
}

tern_status err_errno(tern_error *err, const char *path, const char *action)
{
  int code = errno;
  char reason[128];
  /* GNU strerror_r: returns the text, which may or may not stand in `reason`. */
  const char *text = strerror_r(code, reason, sizeof reason);
  return err_set(err, code == ENOENT ? TERN_E_NOT_FOUND : TERN_E_IO, "%s: cannot %s: %s", *path ? path : "\"\"", action,
                 text);
}
