/* out.c - see out.h. The state of the two streams is the program's, hence static. */
#include "cli/out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/buf.h"
#include "base/utf8.h"

static struct {
  bool failed, reader_gone, no_color, verbose, plain;
  int bar;   /* columns of the bar that stands on the terminal; 0: none does */
  int error; /* errno of the first failure */
  FILE *results;
} state;

/* A signal that comes while output is held is no failure, and stdio would lose what it had not written yet. */
static ssize_t write_results(void *cookie, const char *text, size_t length)
{
  size_t done = 0;
  (void)cookie;
  while (done < length) {
    ssize_t n = write(STDOUT_FILENO, text + done, length - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return done ? (ssize_t)done : 0; /* for a cookie 0 is failure; errno says which */
    done += (size_t)n;
  }
  return (ssize_t)done;
}

void out_start(bool no_color, bool plain)
{
  /* Were one of them closed, the next file opened would take its number, and results would land in it. The stand-ins
   * for stdin and stdout are open the wrong way round, so that reads and writes fail, as they should. */
  for (int fd = 0; fd < 3; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 1 ? O_RDONLY : O_WRONLY) != fd)
      _exit(1);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN); /* writes beyond a limit then fail, and are cleaned up after as on a full disk */
  state.results = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_results});
  if (!state.results)
    _exit(1);
  setvbuf(state.results, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
  state.no_color = no_color;
  state.plain = plain;
}

void out_set_verbose(bool verbose)
{
  state.verbose = verbose;
}

static void note_failure(void)
{
  if (state.failed)
    return;
  state.failed = true;
  state.error = errno;
  state.reader_gone = errno == EPIPE;
}

void out_write(const char *text, size_t length)
{
  if (!state.failed && fwrite(text, 1, length, state.results) != length)
    note_failure();
}

void out_printf(const char *format, ...)
{
  va_list args;
  va_start(args, format);
  if (!state.failed && vfprintf(state.results, format, args) < 0)
    note_failure();
  va_end(args);
}

static int dump(const char *text, size_t length, void *user)
{
  (void)user;
  out_write(text, length);
  return 0;
}

void out_json(json_t *document)
{
  if (!document || json_dump_callback(document, dump, NULL, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0) {
    errno = ENOMEM;
    note_failure();
  }
  json_decref(document);
  out_write("\n", 1);
}

json_t *out_textn(const char *text, size_t n)
{
  buf whole = {0};
  for (size_t at = 0; at < n;) {
    uint32_t c;
    bool incomplete;
    size_t size = utf8_decode(text + at, n - at, &c);
    if (size) {
      buf_add(&whole, text + at, size);
    } else {
      buf_adds(&whole, "\xef\xbf\xbd");
      size = utf8_broken(text + at, n - at, &incomplete);
    }
    at += size;
  }
  json_t *string = whole.failed ? NULL : json_stringn(whole.data ? whole.data : "", whole.length);
  buf_free(&whole);
  return string;
}

json_t *out_text(const char *text)
{
  return out_textn(text, strlen(text));
}

void out_append(json_t **array, json_t *item)
{
  if (*array && json_array_append_new(*array, item) == 0)
    return;
  if (!*array)
    json_decref(item);
  json_decref(*array);
  *array = NULL;
}

void out_flush(void)
{
  if (!state.failed && fflush(state.results) != 0)
    note_failure();
}

bool out_ok(void)
{
  return !state.failed;
}

bool out_reader_gone(void)
{
  return state.reader_gone;
}

tern_status out_finish(tern_error *err)
{
  out_flush();
  if (!state.failed || state.reader_gone)
    return TERN_OK;
  return err_set(err, TERN_E_IO, "stdout: write: %s", strerror(state.error));
}

bool out_is_verbose(void)
{
  return state.verbose;
}

bool out_is_terminal(void)
{
  return isatty(STDOUT_FILENO);
}

bool out_err_is_terminal(void)
{
  return isatty(STDERR_FILENO);
}

const char *out_color(const char *sequence)
{
  return state.no_color || !isatty(STDOUT_FILENO) ? "" : sequence;
}

void say_error(const char *line)
{
  say_progress_end();
  fprintf(stderr, "tern: error: %s\n", line);
}

/* Clean, as errors are: names in it come from files. A text of several lines has these in its format, and no names. */
static void say_line(const char *format, va_list args)
{
  char line[8192];
  say_progress_end();
  if (strchr(format, '\n')) {
    vfprintf(stderr, format, args);
  } else {
    vsnprintf(line, sizeof line, format, args);
    err_clean(line);
    fputs(line, stderr);
  }
  fputc('\n', stderr);
}

void say_warning(const char *format, ...)
{
  va_list args;
  say_progress_end();
  fputs("tern: warning: ", stderr);
  va_start(args, format);
  say_line(format, args);
  va_end(args);
}

void say(const char *format, ...)
{
  va_list args;
  va_start(args, format);
  say_line(format, args);
  va_end(args);
}

void say_more(const char *format, ...)
{
  va_list args;
  if (!state.verbose)
    return;
  va_start(args, format);
  say_line(format, args);
  va_end(args);
}

void say_hint(const char *format, ...)
{
  va_list args;
  if (!state.verbose && !out_err_is_terminal())
    return;
  va_start(args, format);
  say_line(format, args);
  va_end(args);
}

/* Columns of the terminal now; a window may have any number, and change it. */
static int columns(void)
{
  enum { USUAL = 80 };
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : USUAL;
}

/* How many bytes of the text fill no more than `most` columns, whole characters; *columns: so many. */
static size_t fit_columns(const char *text, int most, int *columns)
{
  locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0), before = utf8 ? uselocale(utf8) : (locale_t)0;
  size_t at = 0, n = strlen(text);
  *columns = 0;
  while (at < n) {
    uint32_t c;
    size_t size = utf8_decode(text + at, n - at, &c);
    int width = size ? wcwidth((wchar_t)c) : 1;
    width = width >= 0 ? width : utf8 ? 0 : 1;
    if (width > most - *columns)
      break;
    *columns += width;
    at += size ? size : 1;
  }
  if (utf8) {
    uselocale(before);
    freelocale(utf8);
  }
  return at;
}

/* Takes the bar off the screen, to the beginning of its line: of several, where the window has become narrower than the
 * bar and the terminal has broken it. */
static void wipe_bar(int wide)
{
  int rows = state.bar ? (state.bar - 1) / wide : 0;
  if (rows)
    fprintf(stderr, "\33[%dA\r\33[J", rows);
  else
    fputs("\r", stderr);
}

void say_progress(const char *what, double done, double total)
{
  enum { MOST = 30, REST = 8 }; /* " [", "] 100%" */
  static const char full[] = "##############################";
  if (state.plain || !out_err_is_terminal() || total <= 0)
    return;
  int length, wide = columns();
  fit_columns(what, INT_MAX, &length);
  int room = wide - 1 - REST - length,
      width = room < MOST ? room : MOST; /* the last column stays free: no line breaks */
  int filled = (int)(width * done / total);
  filled = filled < 0 ? 0 : filled > width ? width : filled;
  wipe_bar(wide);
  if (width > 0) {
    fprintf(stderr, "%s [%.*s%*s] %3.0f%%", what, filled, full, width - filled, "", 100 * done / total);
    state.bar = length + REST + width;
  } else { /* no room for a bar: what there is of the words */
    fwrite(what, 1, fit_columns(what, wide - 1, &state.bar), stderr);
    state.bar = state.bar ? state.bar : 1;
  }
  fputs("\33[K", stderr);
  fflush(stderr);
}

void say_working(const char *what, const char *on)
{
  enum { MOST = 50, REST = 8 }; /* a line that wraps could not be wiped */
  static const char dots[] = "...";
  if (state.plain || !out_err_is_terminal())
    return;
  int own, length;
  fit_columns(what, INT_MAX, &own);
  int room = columns() - 1 - REST - own, most = room < 0 ? 0 : room < MOST ? room : MOST;
  const char *end = on;
  for (fit_columns(end, INT_MAX, &length); *end && length > most; fit_columns(end, INT_MAX, &length))
    for (end++; ((unsigned char)*end & 0xc0) == 0x80;) /* the end of it tells more */
      end++;
  say_progress_end();
  fprintf(stderr, "%s %s%s ...", what, end > on ? dots : "", end);
  state.bar = own + length + (end > on ? 8 : 5);
  fflush(stderr);
}

void say_progress_end(void)
{
  if (!state.bar)
    return;
  wipe_bar(columns());
  fputs("\33[K", stderr);
  state.bar = 0;
}
