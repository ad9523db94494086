/* json_util.h - small JSON files as jansson trees, read as Python's json module writes and reads them, but strictly:
 * a key twice in one object is an error, and depth and size are bounded. Big files have their own readers. */
#ifndef TERN_FORMAT_JSON_UTIL_H
#define TERN_FORMAT_JSON_UTIL_H

#include <jansson.h>

#include "base/status.h"

/* Parses `length` bytes whose top level must be an object; `name` begins the messages. Errors are
 * TERN_E_FORMAT with line and column, or TERN_E_LIMIT. *out is a new reference.
 *
 * Beyond JSON, as in Python: Infinity, -Infinity and NaN, and numbers of any size (whole ones become reals where they
 * do not fit 64 bits). jansson cannot hold an infinity or NaN; they stand in the tree as reals that no file means,
 * which jsonu_real turns back. */
tern_status jsonu_parse(const char *name, const char *text, size_t length, json_t **out, tern_error *err);
/* The same, but a whole number beyond 64 bits keeps its digits: it is a string of JSONU_DIGITS and these, which no
 * string of a file is. *any: there is one. Numbers of more than 4300 digits, which Python's int does not read, are
 * reals. */
#define JSONU_DIGITS "\0int:"
tern_status jsonu_parse_digits(const char *name, const char *text, size_t length, bool *any, json_t **out,
                               tern_error *err);
bool jsonu_is_digits(const json_t *value);
/* Makes such a string the real that it would have been, or those within a list or object, but for members of the names
 * in `kept`, which ends with NULL, that are objects. Takes over `value`; NULL: no memory. */
json_t *jsonu_drop_digits(json_t *value, const char *const *kept);
/* Of text that json_dumps has made: such strings become the numbers. In place. */
void jsonu_write_digits(char *text);
/* As jsonu_parse, from a file of at most `limit` bytes. */
tern_status jsonu_file(const char *path, size_t limit, json_t **out, tern_error *err);
/* The number of a json_real or json_integer as Python has it: may be infinite or NaN. */
double jsonu_real(const json_t *number);
/* Whether no NaN and no infinity stands anywhere in a tree: it may then be handed on as JSON. */
bool jsonu_finite(json_t *value);
/* A short description of a value for messages: `the string "abc"`, `12`, `a list`. Returns out. */
const char *jsonu_describe(const json_t *value, char *out, size_t size);

#endif
