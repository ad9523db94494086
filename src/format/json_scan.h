/* json_scan.h - walks over JSON text token by token: what the safetensors header and the JSON trees of this room are
 * read with. Nothing is allocated but strings that hold escapes, and those in the caller's arena.
 *
 * A function that finds something else than it wants sets an error which says so without a place, notes the place in
 * `at` and sets `failed`; whoever began the walk then puts the place before it (a line, a byte, a tensor). Running out
 * of memory is not `failed`.
 */
#ifndef TERN_FORMAT_JSON_SCAN_H
#define TERN_FORMAT_JSON_SCAN_H

#include "base/mem.h"
#include "base/status.h"

/* n bytes, not terminated. */
typedef struct slice {
  const char *s;
  size_t n;
} slice;

bool slice_is(slice a, const char *b);

typedef struct json_scan {
  const char *begin, *p, *end; /* the text; p: where the next token begins */
  arena *strings;
  size_t at; /* offset of the fault */
  bool failed;
  tern_error *err;
} json_scan;

/* Takes `c` if it stands next, white space aside. */
bool scan_accept(json_scan *s, char c);
/* The same, or the error "... where WANTED should stand". */
tern_status scan_expect(json_scan *s, char c, const char *wanted);
/* Takes the word if it stands next. */
bool scan_word(json_scan *s, const char *word);
/* Only white space may be left. */
tern_status scan_end(json_scan *s);
/* A string of valid UTF-8 without NUL. The slice lies in the text, or in the arena if there were escapes. */
tern_status scan_string(json_scan *s, const char *wanted, slice *out);
/* A number as it is written; *whole: without fraction and exponent. */
tern_status scan_number(json_scan *s, const char *wanted, slice *out, bool *whole);
/* "... where WANTED should stand", about what stands next. */
tern_status scan_unexpected(json_scan *s, const char *wanted);

#endif
