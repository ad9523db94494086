/* schema.h - a JSON Schema as a grammar (grammar.h): of the texts that it lets through, those that this says.
 *
 * Every text of the grammar is valid under the schema; not every valid text is one of the grammar:
 *   - members stand in the order in which the schema lists them, then additional ones; optional ones may be left out;
 *   - where `properties` stand and nothing is said of others, there are no others;
 *   - white space is a blank or nothing after a colon; and after a bracket, a comma and before a closing bracket a
 * blank, nothing, or a new line with up to 40 blanks or 20 tabs;
 *   - numbers have up to 18 digits, and exponents two;
 *   - oneOf is anyOf: that just one of them holds is not enforced.
 *
 * A keyword that is not enforced is an error that names it by its path, unless it is one that says nothing about
 * values (title, description, default, examples …). docs/server.md lists what is enforced.
 */
#ifndef TERN_TEXT_SCHEMA_H
#define TERN_TEXT_SCHEMA_H

#include <jansson.h>

#include "text/grammar.h"

/* What may stand before the value: `end` NULL: nothing; else text up to the first `end`, which begins with `start` and
 * may be left out, or, `start` NULL, has begun already. */
typedef struct schema_frame {
  const char *start, *end;
} schema_frame;

/* answer.c. schema: NULL: any object. place: begins the paths in messages. Free with gram_free in any case.
 * TERN_E_USAGE: the schema is wrong, or has what is not enforced; TERN_E_LIMIT: it is too large, or too costly to
 * follow (gram_try). */
tern_status schema_compile(const json_t *schema, const char *place, const schema_frame *frame, grammar *out,
                           tern_error *err);

#endif
