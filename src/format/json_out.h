/* json_out.h - writing JSON into a buf, member by member: the commas and the quoting, nothing else.
 *
 * A vocabulary of a quarter million strings is written this way without building a tree. Numbers that came from
 * float32 metadata are printed as the shortest decimal that reads back as the same float32: 1e-05, not 9.9999997e-06.
 */
#ifndef TERN_FORMAT_JSON_OUT_H
#define TERN_FORMAT_JSON_OUT_H

#include "base/buf.h"

/* "..." with the escapes JSON asks for; valid UTF-8 is copied as it is. */
void jout_str(buf *b, const char *s, size_t n);
/* A comma where the text so far ends in a value, then "key": */
void jout_key(buf *b, const char *key);
/* The same comma before an element of an array. */
void jout_item(buf *b);
void jout_float32(buf *b, double x);

void jout_put_str(buf *b, const char *key, const char *s);
void jout_put_strn(buf *b, const char *key, const char *s, size_t n);
void jout_put_int(buf *b, const char *key, int64_t x);
void jout_put_float32(buf *b, const char *key, double x);
void jout_put_bool(buf *b, const char *key, bool x);
/* `json` as it stands: null, a number, an array, an object. */
void jout_put_raw(buf *b, const char *key, const char *json);

#endif
