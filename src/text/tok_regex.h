/* tok_regex.h - the patterns of Split and Replace: an Oniguruma regular expression, or a plain string.
 *
 * Finding goes as in the reference: from left to right, without overlap; an empty match that touches the match before
 * it does not count. Patterns are immutable once made and may be used by many threads; a cursor belongs to one.
 */
#ifndef TERN_TEXT_TOK_REGEX_H
#define TERN_TEXT_TOK_REGEX_H

#include "base/buf.h"
#include "base/status.h"

typedef struct tok_pattern tok_pattern;

/* `where` names the key for errors. */
tern_status pattern_regex(const char *where, const char *source, size_t n, tok_pattern **out, tern_error *err);
tern_status pattern_literal(const char *text, size_t n, tok_pattern **out, tern_error *err);
/* The string of a plain pattern; NULL for a regular expression. */
const char *pattern_text(const tok_pattern *p, size_t *n);
/* Whether the pattern matches in an empty text. */
bool pattern_matches_nothing(const tok_pattern *p);
/* Appends the expression with its Unicode classes spelt out, see tok_classes.c. False: no memory. */
bool pattern_spell_out(const char *source, size_t n, buf *out);
/* Takes the whole list that starts at p (see pattern_link). */
void pattern_free(tok_pattern *p);
/* Puts p in front of the list *head, which will free it. */
void pattern_link(tok_pattern **head, tok_pattern *p);

typedef struct pattern_cursor {
  const tok_pattern *pattern;
  const char *s;
  size_t n;
  size_t at;            /* where the next search starts */
  size_t last_end;      /* of the last match; SIZE_MAX: none yet */
  void *region, *param; /* Oniguruma's, made at the first search */
} pattern_cursor;

/* A cursor starts zeroed; start may be called again for another text. */
void pattern_start(pattern_cursor *c, const tok_pattern *p, const char *s, size_t n);
/* *found: whether there is another match, then at [*begin, *end). */
tern_status pattern_next(pattern_cursor *c, bool *found, size_t *begin, size_t *end, tern_error *err);
void pattern_finish(pattern_cursor *c);

#endif
