/* fields.h - the fields that a body may have, as rows of a table: one loop checks a body by them, another tells
 * /openapi.json of them, so that the two cannot differ.
 *
 * A row gives the kinds of value and their range, and either the shared field (openai.h) that says the same, or that
 * the field is let be, or nothing: its dialect reads it. `null` is the same as absent everywhere.
 */
#ifndef TERN_SERVER_FIELDS_H
#define TERN_SERVER_FIELDS_H

#include "server/openai.h"

enum {
  FIELD_IS_BOOL = 1,
  FIELD_IS_INT = 2,
  FIELD_IS_REAL = 4, /* whole numbers too */
  FIELD_IS_STRING = 8,
  FIELD_IS_LIST = 16,
  FIELD_IS_OBJECT = 32,
  FIELD_IS_ANY = 63
};

typedef struct srv_field {
  const char *name;
  unsigned kinds;
  double lo, hi;    /* of numbers, where lo < hi */
  const char *to;   /* the shared field of the same meaning; NULL: its dialect reads it, or it is let be */
  const char *only; /* JSON values, with a blank between: the ones it may have, which ask for nothing; NULL: any */
  const char *note; /* for the document; NULL: the name says it */
  bool required;
} srv_field;

typedef struct srv_fields {
  const srv_field *rows;
  size_t n;
  const char *within; /* "options.": the body is part of another, and messages say so; "": the whole */
} srv_fields;

#define SRV_FIELDS(table, within)                                                                                      \
  {                                                                                                                    \
    (table), sizeof(table) / sizeof *(table), (within)                                                                 \
  }

/* Whether each member has a row and is as that says. Members that are null are taken out. */
bool fields_check(const srv_fields *f, json_t *body, oai_fault *fault);
/* Puts the shared fields of members that have one into `to`. */
bool fields_move(const srv_fields *f, const json_t *body, json_t *to, oai_fault *fault);
/* What is wrong with a shared field is wrong with the member that it came of. False: it is none of these. */
bool fields_rename(const srv_fields *f, oai_fault *fault);
/* The JSON schema of such a body, and of one member: new references. NULL: no memory. */
json_t *fields_schema(const srv_fields *f);
json_t *fields_row_schema(const srv_field *row);

#endif
