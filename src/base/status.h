/* status.h - the one error mechanism inside tern.
 *
 * A function that can fail returns tern_status and takes `tern_error *err` last. The line is written where the fact is
 * known, by err_set, and passed up unchanged; a caller that knows a better name for the place adds it with err_prefix.
 * err may be NULL everywhere. Lines say what, which file or key or tensor, and what to do; they never end in a period
 * or a newline.
 */
#ifndef TERN_BASE_STATUS_H
#define TERN_BASE_STATUS_H

#include "tern.h"

/* Writes the line, replacing any older one, and returns `status`. Control characters in arguments come out as '?'. */
tern_status err_set(tern_error *err, tern_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before the line that is there. Returns err->status, or `status` where err is NULL. */
tern_status err_prefix(tern_error *err, tern_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Replaces controls (those of text direction too) and broken bytes by '?', in place: what a terminal may be shown. */
void err_clean(char *text);
/* Room for any path, as a copy. */
enum { ERR_CLEAN_PATH = 4097 };
/* The same of a copy in out[size] (size > 4), which is returned; a text that is too long for it is cut and ends in
 * "...". */
const char *err_clean_copy(const char *text, char *out, size_t size);
/* "out of memory (what)" */
tern_status err_nomem(tern_error *err, const char *what);
/* errno as a line: "PATH: action: strerror". Returns TERN_E_NOT_FOUND for ENOENT, else TERN_E_IO. */
tern_status err_errno(tern_error *err, const char *path, const char *action);

/* clang-tidy sees one file at a time: this tells it that the functions above never return TERN_OK. */
#if defined(__clang_analyzer__) && !defined(ERR_DEFINITIONS)
static inline tern_status err_failed_(tern_status status)
{
  if (status == TERN_OK)
    __builtin_unreachable();
  return status;
}
#define err_set(...) err_failed_(err_set(__VA_ARGS__))
#define err_prefix(...) err_failed_(err_prefix(__VA_ARGS__))
#define err_nomem(...) err_failed_(err_nomem(__VA_ARGS__))
#define err_errno(...) err_failed_(err_errno(__VA_ARGS__))
#endif

/* Passes a failure up. */
#define TRY(expression)                                                                                                \
  do {                                                                                                                 \
    tern_status try_status_ = (expression);                                                                            \
    if (try_status_ != TERN_OK)                                                                                        \
      return try_status_;                                                                                              \
  } while (0)

#endif
