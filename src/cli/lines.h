/* lines.h - lines from stdin, one after another: typed by a person at a terminal, or written by a program.
 *
 * Where stdin and stderr are a terminal the line is edited (libedit, where tern is built with it): cursor keys, history
 * (up, down, Ctrl-R), Tab on commands. A paste of several lines (bracketed paste) is one line with newlines in it, and
 * so is what Alt-Enter broke. History is a file under TERN_HOME, a JSON string a line; lines_keep appends to it, so
 * that a message of several lines is one entry.
 *
 * Everything else is read as it comes. Not stdio's: before waiting one has to know that nothing is left. For use inside
 * sig_hold: a signal ends the waiting and is left for the caller to see.
 */
#ifndef TERN_CLI_LINES_H
#define TERN_CLI_LINES_H

#include "base/buf.h"
#include "base/status.h"

typedef struct lines lines;

typedef enum lines_end {
  LINES_READ,
  LINES_EOF,
  LINES_INTERRUPTED,
  LINES_TOO_LONG, /* more than LINES_MOST bytes */
  LINES_FAILED,   /* lines_error says why */
} lines_end;

enum { LINES_MOST = 16 << 20 };

typedef struct lines_options {
  const char *const *words; /* [n_words]: what Tab completes at the beginning of a line */
  size_t n_words;
  const char *history; /* a file, which need not be there; NULL: nothing is kept. Borrowed */
} lines_options;

tern_status lines_open(const lines_options *options, lines **out, tern_error *err);
void lines_close(lines *l); /* NULL is fine */

/* A person types. */
bool lines_typed(const lines *l);
/* Appends one line, without its end, to `line`. The prompt goes to stderr, where a person types. What the editor cannot
 * hold for lack of memory makes `line` fail. */
lines_end lines_read(lines *l, const char *prompt, buf *line);
/* Keeps what was typed, of whatever lines, as one entry of the history. Nothing where nobody types. */
void lines_keep(lines *l, const char *text, size_t length);
/* Whether the line that a signal ended had something in it, as far as that can be seen: it is gone. */
bool lines_dropped(const lines *l);
/* errno of the read that failed. */
int lines_error(const lines *l);

/* line_editor.c, where tern has it: one line of a person's. NULL from editor_open: this terminal cannot be edited on,
 * or there is no memory; lines are then read as they come. */
typedef struct line_editor line_editor;
line_editor *editor_open(const lines_options *options);
void editor_close(line_editor *e); /* NULL is fine */
lines_end editor_read(line_editor *e, const char *prompt, buf *line, int *error);
bool editor_dropped(const line_editor *e);
void editor_keep(line_editor *e, const char *text, size_t length);

/* history.c: calls `add` with each of the last entries of the file, oldest first, and shortens a file that has grown
 * much beyond that. A file that is absent or damaged has fewer. */
enum { HISTORY_MOST = 1000 };
void history_load(const char *path, void (*add)(void *user, const char *text, size_t length), void *user);
/* Appends an entry, in one write. What cannot be written is not kept: a conversation does not end for that. */
void history_append(const char *path, const char *text, size_t length);

#endif
