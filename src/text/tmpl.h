/* tmpl.h - chat templates: the Jinja language as transformers configures it, rendered by tern itself.
 *
 * A template is compiled once and is immutable afterwards; several threads may render it at the same time. Each
 * rendering has its own memory, its own limits and its own error line.
 *
 * What a template cannot do: reach files, other templates, attributes of the host, or time and memory beyond the limits
 * of tmpl_limits. What the reference refuses is refused here (TERN_E_TEMPLATE); what the reference can do and this
 * engine cannot is an error that names it. docs/text-templates.md lists both.
 */
#ifndef TERN_TEXT_TMPL_H
#define TERN_TEXT_TMPL_H

#include "base/status.h"

typedef struct tmpl tmpl;

/* The clock that strftime_now reads. A zeroed one is not valid; NULL stands for the local time of the machine. */
typedef struct tmpl_clock {
  int year, month, day, hour, minute, second, microsecond; /* month and day count from 1 */
} tmpl_clock;

/* `source` is `n` bytes of UTF-8. Errors name the line: TERN_E_TEMPLATE, or TERN_E_LIMIT for absurd nesting or size. */
tern_status tmpl_compile(const char *source, size_t n, tmpl **out, tern_error *err);
void tmpl_free(tmpl *t);

/* `vars` is the text of one JSON object: the variables by name. *out is NUL-terminated (*length bytes before that,
 * which may hold NULs of their own) and goes back through mem_free. `clock` and `length` may be NULL. Errors:
 * TERN_E_TEMPLATE with the message of raise_exception or of the failed operation; TERN_E_LIMIT; TERN_E_FORMAT where
 * `vars` is not a JSON object. */
tern_status tmpl_render(const tmpl *t, const char *vars, size_t n, const tmpl_clock *clock, char **out, size_t *length,
                        tern_error *err);

/* Reads "2026-01-15T12:00:00" (date alone, or with a fraction or Z, are fine too). */
tern_status tmpl_clock_parse(const char *text, size_t n, tmpl_clock *out, tern_error *err);

#endif
