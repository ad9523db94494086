/* out.h - everything that tern prints. Results to stdout; notes, warnings, progress and errors to stderr.
 *
 * A failed write to stdout is remembered: out_finish reports it once, as an error. A reader that has gone (EPIPE) is no
 * error: out_ok turns false, the verb stops early, and the program ends quietly.
 */
#ifndef TERN_CLI_OUT_H
#define TERN_CLI_OUT_H

#include <jansson.h>

#include "base/status.h"

/* Once, before anything else: makes sure that the three standard streams are there, ignores SIGPIPE and SIGXFSZ. plain:
 * the terminal, if there is one, can do nothing but print: there are no bars. */
void out_start(bool no_color, bool plain);
void out_set_verbose(bool verbose);
bool out_is_verbose(void);

void out_write(const char *text, size_t length);
void out_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The document on one line; takes over the reference. NULL counts as memory that ran out. */
void out_json(json_t *document);
/* A name or a path as JSON has it, whatever its bytes: those that are not UTF-8 become U+FFFD. NULL: no memory. */
json_t *out_text(const char *text);
json_t *out_textn(const char *text, size_t n);
/* Appends to an array and takes over the item. Where memory runs out the array becomes NULL, which out_json reports. */
void out_append(json_t **array, json_t *item);
/* Hands what was written to the system now: between the pieces of a stream. */
void out_flush(void);
/* Whether what is written still arrives. */
bool out_ok(void);
/* Whether the reader of stdout has gone. */
bool out_reader_gone(void);
/* Flushes; TERN_E_IO where stdout took not everything. */
tern_status out_finish(tern_error *err);

bool out_is_terminal(void); /* stdout */
bool out_err_is_terminal(void);
/* An escape sequence where the stream is a terminal and colour is welcome, else "". */
const char *out_color(const char *sequence);

void say_error(const char *line);
void say_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line on stderr. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line on stderr with -v alone. */
void say_more(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A line on stderr where that is a terminal, or with -v. */
void say_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A bar on stderr if that is a terminal; `done` of `total`. say_progress_end wipes it. */
void say_progress(const char *what, double done, double total);
/* "WHAT ON ..." on stderr if that is a terminal, until say_progress_end or the next line wipes it. */
void say_working(const char *what, const char *on);
void say_progress_end(void);

#endif
