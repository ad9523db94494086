/* line_editor.c - a person's line, edited at the terminal with libedit: see lines.h.
 *
 * Characters are read here, not by libedit: a signal ends the waiting, a window that changes its size is drawn anew,
 * and bytes become characters without the locale's help. The locale's part is the width of characters alone (LC_CTYPE
 * is set to C.UTF-8, for this process and for nothing else that tern does).
 *
 * A paste is asked for in brackets (the terminal sends ESC [200~ before and ESC [201~ behind it), so that its newlines
 * are text and do not send the line. Terminals that do not know of that send line by line, as they always did.
 */
#ifdef TERN_EDIT

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/env.h"
#include "cli/lines.h"
#include "cli/signals.h"

static const char paste_on[] = "\33[?2004h", paste_off[] = "\33[?2004l";

struct line_editor {
  EditLine *edit;
  HistoryW *history;
  const lines_options *options;
  wchar_t prompt_room[32];
  lines_end end; /* why the last character did not come; LINES_READ: it did */
  int error;
  char bytes[4]; /* of a character that has not wholly come */
  size_t n_bytes;
  bool failed;  /* memory ran out within a line */
  bool dropped; /* the line that a signal ended was not empty */
};

static line_editor *of(EditLine *edit)
{
  void *e = NULL;
  el_wget(edit, EL_CLIENTDATA, &e);
  return e;
}

static wchar_t *show_prompt(EditLine *edit)
{
  return of(edit)->prompt_room;
}

/* ---- characters ---- */

/* Takes the line off the screen, which has its new width already, so that it is drawn anew where it began. */
static void wipe(const line_editor *e)
{
  struct winsize size;
  const LineInfoW *line = el_wline(e->edit);
  size_t at = wcslen(e->prompt_room), rows = 0;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col)
    return;
  for (const wchar_t *c = line->buffer; c < line->cursor; c++) {
    int width = wcwidth(*c);
    if (*c == L'\n') {
      rows += at / size.ws_col + 1;
      at = 0;
    } else {
      at += width > 0 ? (size_t)width : 0;
    }
  }
  rows += at / size.ws_col;
  if (rows)
    fprintf(stderr, "\33[%zuA", rows);
  fputs("\r\33[J", stderr);
}

/* One byte. False: e->end says why there is none. */
static bool next_byte(line_editor *e, char *out)
{
  for (;;) {
    if (!sig_await(STDIN_FILENO)) {
      const LineInfoW *typed = el_wline(e->edit); /* el_wgets empties it on its way out */
      e->dropped = typed->lastchar > typed->buffer;
      e->end = LINES_INTERRUPTED;
      return false;
    }
    if (sig_stopping()) {
      fputs(paste_off, stderr);
      el_wset(e->edit, EL_PREP_TERM, 0);
      fflush(stderr);
      raise(SIGSTOP); /* and goes on here, with sig_continued */
      continue;
    }
    if (sig_continued()) { /* whoever had the terminal meanwhile left it in modes of its own */
      el_wset(e->edit, EL_PREP_TERM, 0);
      el_wset(e->edit, EL_PREP_TERM, 1);
      fprintf(stderr, "%s\r", paste_on);
      el_wset(e->edit, EL_REFRESH);
      continue;
    }
    if (sig_resized()) {
      wipe(e);
      el_resize(e->edit);
      el_wset(e->edit, EL_REFRESH);
      continue;
    }
    ssize_t n = read(STDIN_FILENO, out, 1);
    if (n == 1)
      return true;
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    e->error = n ? errno : 0;
    e->end = n ? LINES_FAILED : LINES_EOF;
    return false;
  }
}

/* For libedit: 1 and a character; 0: the end; -1: none came. Bytes that are no UTF-8 become U+FFFD, one each. */
static int next_character(EditLine *edit, wchar_t *out)
{
  line_editor *e = of(edit);
  for (;;) {
    uint32_t c;
    bool incomplete = false;
    if (e->n_bytes) {
      size_t length = utf8_decode(e->bytes, e->n_bytes, &c);
      if (!length) {
        length = utf8_broken(e->bytes, e->n_bytes, &incomplete);
        c = 0xfffd;
      }
      if (!incomplete || e->n_bytes == sizeof e->bytes) {
        e->n_bytes -= length;
        memmove(e->bytes, e->bytes + length, e->n_bytes);
        *out = (wchar_t)c;
        return 1;
      }
    }
    if (!next_byte(e, &e->bytes[e->n_bytes]))
      return e->end == LINES_EOF ? 0 : -1;
    e->n_bytes++;
  }
}

/* ---- keys ---- */

/* Text of a paste as a line has it: newlines of any kind as \n, tabs, and no other control characters. */
static unsigned char take_paste(EditLine *edit, wint_t key)
{
  static const wchar_t end[] = L"\33[201~";
  enum { END = 6 };
  line_editor *e = of(edit);
  wchar_t *text = NULL, c;
  size_t n = 0, capacity = 0;
  (void)key;
  while (el_wgetc(edit, &c) == 1) {
    if (n >= LINES_MOST || !mem_grow(&text, &capacity, n + 2, sizeof *text)) {
      e->failed = true; /* but the rest of the paste is to be read off the terminal */
      n = n > END ? END : n;
      if (!text)
        continue;
    }
    bool after_return = n && text[n - 1] == L'\r';
    if (after_return)
      text[n - 1] = L'\n';
    if (c == L'\n' && after_return)
      continue;
    if (c >= 32 || c == L'\n' || c == L'\r' || c == L'\t' || c == L'\33')
      text[n++] = c;
    if (n >= END && !wmemcmp(text + n - END, end, END)) {
      n -= END;
      break;
    }
  }
  size_t kept = 0;
  for (size_t i = 0; text && i < n; i++)
    if (text[i] != L'\33')
      text[kept++] = text[i] == L'\r' ? L'\n' : text[i];
  if (kept) {
    text[kept] = 0;
    e->failed = el_winsertstr(edit, text) == -1 || e->failed;
  }
  mem_free(text);
  return CC_REFRESH;
}

static unsigned char break_line(EditLine *edit, wint_t key)
{
  (void)key;
  return el_winsertstr(edit, L"\n") == -1 ? CC_ERROR : CC_REFRESH;
}

/* Completes a command as far as all that begin so agree. */
static unsigned char complete(EditLine *edit, wint_t key)
{
  const line_editor *e = of(edit);
  const LineInfoW *line = el_wline(edit);
  const char *first = NULL;
  size_t typed = (size_t)(line->cursor - line->buffer), agreed = 0;
  (void)key;
  for (size_t i = 0; i < e->options->n_words; i++) {
    const char *word = e->options->words[i];
    size_t same = 0;
    while (same < typed && word[same] && line->buffer[same] == (wchar_t)word[same])
      same++;
    if (same < typed)
      continue;
    size_t length = strlen(word), common = typed;
    if (!first)
      agreed = length;
    else
      for (agreed = length < agreed ? length : agreed; common < agreed && word[common] == first[common];)
        common++;
    if (first)
      agreed = common;
    first = first ? first : word;
  }
  if (!typed || !first || agreed <= typed)
    return CC_ERROR;
  for (size_t i = typed; i < agreed; i++)
    el_winsertstr(edit, (wchar_t[]){(wchar_t)first[i], 0});
  return CC_REFRESH;
}

/* ---- history ---- */

/* wchar_t is Unicode here, as everywhere that tern runs. mem_free; NULL: no memory. */
static wchar_t *widen(const char *text, size_t length)
{
  wchar_t *out = mem_array(length + 1, sizeof *out);
  size_t n = 0;
  for (size_t at = 0, step; out && at < length; at += step) {
    uint32_t c;
    step = utf8_decode(text + at, length - at, &c);
    out[n++] = step ? (wchar_t)c : 0xfffd;
    step = step ? step : 1;
  }
  return out;
}

static void add_entry(void *user, const char *text, size_t length)
{
  line_editor *e = user;
  HistEventW event;
  wchar_t *wide = widen(text, length);
  if (wide)
    history_w(e->history, &event, H_ENTER, wide);
  mem_free(wide);
}

/* ---- the editor ---- */

void editor_close(line_editor *e)
{
  if (!e)
    return;
  if (e->edit)
    el_end(e->edit);
  if (e->history)
    history_wend(e->history);
  sig_note_resize(false);
  mem_free(e);
}

static bool prepare(line_editor *e)
{
  HistEventW event;
  EditLine *edit = e->edit;
  el_wset(edit, EL_CLIENTDATA, e);
  el_wset(edit, EL_GETCFN, next_character);
  el_wset(edit, EL_SIGNAL, 0); /* ours are handled by signals.c */
  el_wset(edit, EL_EDITOR, L"emacs");
  el_wset(edit, EL_SETTY, L"-d", L"-icrnl", L"-inlcr", NULL); /* a paste may have \r\n for one newline */
  el_wset(edit, EL_PROMPT, show_prompt);
  el_wset(edit, EL_HIST, history_w, e->history);
  el_wset(edit, EL_ADDFN, L"tern-paste", L"text between the brackets of a paste", take_paste);
  el_wset(edit, EL_ADDFN, L"tern-break", L"a newline within the line", break_line);
  el_wset(edit, EL_ADDFN, L"tern-complete", L"a command's name", complete);
  el_wset(edit, EL_BIND, L"\\e[200~", L"tern-paste", NULL);
  el_wset(edit, EL_BIND, L"\\e\\r", L"tern-break", NULL);
  el_wset(edit, EL_BIND, L"\\e\\n", L"tern-break", NULL);
  el_wset(edit, EL_BIND, L"\\t", L"tern-complete", NULL);
  el_wset(edit, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
  el_wset(edit, EL_BIND, L"\\e[1;5C", L"em-next-word", NULL);
  el_wset(edit, EL_BIND, L"\\e[1;5D", L"ed-prev-word", NULL);
  return history_w(e->history, &event, H_SETSIZE, (int)HISTORY_MOST) >= 0 &&
         history_w(e->history, &event, H_SETUNIQUE, 1) >= 0;
}

line_editor *editor_open(const lines_options *options)
{
  if (env_plain_terminal())
    return NULL;
  line_editor *e = mem_zalloc(sizeof *e);
  if (!e)
    return NULL;
  e->options = options;
  setlocale(LC_CTYPE, "C.UTF-8");
  e->history = history_winit();
  e->edit = e->history ? el_init("tern", stdin, stderr, stderr) : NULL;
  if (!e->edit || !prepare(e)) {
    editor_close(e);
    return NULL;
  }
  sig_note_resize(true);
  if (options->history)
    history_load(options->history, add_entry, e);
  return e;
}

bool editor_dropped(const line_editor *e)
{
  return e->dropped;
}

lines_end editor_read(line_editor *e, const char *prompt, buf *line, int *error)
{
  int n = 0;
  size_t before = line->length;
  e->end = LINES_READ;
  e->failed = false;
  swprintf(e->prompt_room, sizeof e->prompt_room / sizeof *e->prompt_room, L"%s", prompt);
  el_wset(e->edit, EL_PREP_TERM, 1); /* now: who sees the prompt may type, and nothing is echoed twice */
  fputs(paste_on, stderr);
  sig_note_stop(true);
  const wchar_t *text = el_wgets(e->edit, &n);
  sig_note_stop(false);
  fputs(paste_off, stderr);
  fflush(stderr);
  *error = e->error;
  if (!text || n <= 0) {
    e->n_bytes = 0;
    return e->end == LINES_READ ? LINES_EOF : e->end; /* Ctrl-D on an empty line is libedit's own end */
  }
  for (int i = 0; i < n; i++)
    buf_add_utf8(line, (uint32_t)text[i]);
  line->failed = line->failed || e->failed;
  if (line->failed)
    return LINES_READ;
  if (line->length > before && line->data[line->length - 1] == '\n')
    line->data[--line->length] = 0;
  return line->length - before > LINES_MOST ? LINES_TOO_LONG : LINES_READ;
}

void editor_keep(line_editor *e, const char *text, size_t length)
{
  add_entry(e, text, length);
  if (e->options->history)
    history_append(e->options->history, text, length);
}

#endif
