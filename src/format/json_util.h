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
/* The same from a file of at most `limit` bytes. */
tern_status jsonu_file(const char *path, size_t limit, json_t **out, tern_error *err);
/* The number of a json_real or json_integer as Python has it: may be infinite or NaN. */
double jsonu_real(const json_t *number);
/* Whether no NaN and no infinity stands anywhere in a tree: it may then be handed on as JSON. */
bool jsonu_finite(json_t *value);
/* A short description of a value for messages: `the string "abc"`, `12`, `a list`. Returns out. */
const char *jsonu_describe(const json_t *value, char *out, size_t size);

#endif
