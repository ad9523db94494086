/* lines.c - see lines.h. */
#include "cli/lines.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/signals.h"

struct lines {
  line_editor *editor; /* NULL: lines are read as they come */
  bool typed;
  int error;
  /* What has been read and not used yet. */
  char data[4096];
  size_t at, n;
};

tern_status lines_open(const lines_options *options, lines **out, tern_error *err)
{
  lines *l = mem_zalloc(sizeof *l);
  if (!l)
    return err_nomem(err, "lines");
  l->typed = isatty(STDIN_FILENO);
#ifdef TERN_EDIT
  if (l->typed && isatty(STDERR_FILENO))
    l->editor = editor_open(options);
#else
  (void)options;
#endif
  *out = l;
  return TERN_OK;
}

void lines_close(lines *l)
{
#ifdef TERN_EDIT
  if (l)
    editor_close(l->editor);
#endif
  mem_free(l);
}

bool lines_typed(const lines *l)
{
  return l->typed;
}

bool lines_dropped(const lines *l)
{
#ifdef TERN_EDIT
  return l->editor && editor_dropped(l->editor);
#else
  (void)l;
  return false;
#endif
}

void lines_keep(lines *l, const char *text, size_t length)
{
#ifdef TERN_EDIT
  if (l->editor && length)
    editor_keep(l->editor, text, length);
#else
  (void)l, (void)text, (void)length;
#endif
}

int lines_error(const lines *l)
{
  return l->error;
}

/* LINES_READ: there is more now. */
static lines_end fill(lines *l)
{
  for (;;) {
    if (!sig_await(STDIN_FILENO))
      return LINES_INTERRUPTED;
    ssize_t n = read(STDIN_FILENO, l->data, sizeof l->data);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (n < 0) {
      l->error = errno;
      return LINES_FAILED;
    }
    l->at = 0;
    l->n = (size_t)n;
    return n ? LINES_READ : LINES_EOF;
  }
}

lines_end lines_read(lines *l, const char *prompt, buf *line)
{
  size_t before = line->length;
#ifdef TERN_EDIT
  if (l->editor)
    return editor_read(l->editor, prompt, line, &l->error);
#endif
  if (l->typed) {
    fputs(prompt, stderr);
    fflush(stderr);
  }
  for (;;) {
    if (l->at == l->n) {
      lines_end end = fill(l);
      if (end == LINES_EOF && line->length > before)
        return LINES_READ;
      if (end != LINES_READ)
        return end;
    }
    char c = l->data[l->at++];
    if (c == '\n') {
      if (!line->failed && line->length > before && line->data[line->length - 1] == '\r') /* a line of DOS's */
        line->data[--line->length] = 0;
      return LINES_READ;
    }
    if (line->length >= LINES_MOST)
      return LINES_TOO_LONG;
    buf_addc(line, c);
  }
}
