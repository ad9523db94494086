/* schema_impl.h - what the files of the schema compiler share: the rules that every JSON text is made of. */
#ifndef TERN_TEXT_SCHEMA_IMPL_H
#define TERN_TEXT_SCHEMA_IMPL_H

#include "base/mem.h"
#include "text/schema.h"

typedef enum schema_rule {
  RULE_GAP,       /* white space after a bracket or a comma */
  RULE_WIDE,      /* a character of more than one byte */
  RULE_PLAIN,     /* a character of a string that needs no escape */
  RULE_CHARACTER, /* a character of a string */
  RULE_STRING,
  RULE_NUMBER,
  RULE_INTEGER,
  RULE_VALUE, /* anything */
  RULE_OBJECT,
  RULE_ARRAY,
  SCHEMA_RULES
} schema_rule;

/* A schema of its own: what `$ref`s within it are looked up in, and what its paths begin with. */
typedef struct schema_root {
  const json_t *schema;
  const char *place;
} schema_root;

typedef struct schema_item {
  const json_t *schema;
  uint32_t rule;
  const char *path;
  const schema_root *of;
} schema_item;

typedef struct schema_compiler {
  grammar *g;
  schema_item *items; /* [n]; the first `done` have their code */
  size_t n, capacity, done;
  uint32_t rules[SCHEMA_RULES];
  bool no_angle; /* strings have no "<" but as an escape: a marker that begins so ends what they stand in */
  arena memory;  /* of paths */
} schema_compiler;

/* The error of a keyword: its path and what is wrong with it. */
static inline tern_status schema_wrong(const schema_item *at, const char *key, const char *why, tern_error *err)
{
  return err_set(err, TERN_E_USAGE, "%s.%.60s: %s", at->path, key, why);
}

/* schema.c: all but strings and numbers. The rule of a whole schema, whose code comes with schema_emit_items; `root`
 * stays until then. */
uint32_t schema_add(schema_compiler *c, const schema_root *root);
/* The same schema again, as it stands. */
uint32_t schema_add_at(schema_compiler *c, const schema_item *at);
/* base.key.name, in the compiler's memory. */
const char *schema_path(schema_compiler *c, const char *base, const char *key, const char *name);
tern_status schema_emit_items(schema_compiler *c, tern_error *err);
/* A colon, and a blank or none. */
void schema_emit_colon(schema_compiler *c);

/* schema_scalar.c: code with its return. `bounded`: there are keywords about numbers. */
tern_status schema_string(schema_compiler *c, const schema_item *at, tern_error *err);
tern_status schema_integer(schema_compiler *c, const schema_item *at, bool bounded, tern_error *err);
tern_status schema_number(schema_compiler *c, const schema_item *at, tern_error *err);
bool schema_is_whole(double x);
/* A keyword that counts something. */
tern_status schema_read_count(const schema_item *at, const char *key, json_int_t fallback, json_int_t *out,
                              tern_error *err);

/* schema_json.c */
void schema_emit_rules(schema_compiler *c);
void schema_call(schema_compiler *c, schema_rule rule);
/* A call with nothing behind it. */
void schema_leave(schema_compiler *c, uint32_t rule);
/* A string of at least `least` characters and at most `most`; most < 0: any number. With its return. */
void schema_emit_string(schema_compiler *c, json_int_t least, json_int_t most);
/* A whole number from lo to hi, both within 18 digits; lo > hi: there is none. With its return. */
void schema_emit_integer(schema_compiler *c, int64_t lo, int64_t hi);
#define SCHEMA_ANGLE "\\u003c"
/* A value as it is, written without blanks. False: no memory. */
bool schema_emit_literal(schema_compiler *c, const json_t *value);
/* Never matches. */
void schema_emit_never(schema_compiler *c);
void schema_emit_nowhere(grammar *g);
/* A key, with its quotes, that is none of names [n]. With its return. */
tern_status schema_emit_other_key(schema_compiler *c, const char **names, size_t n, const char *path, tern_error *err);

/* schema_text.c */
typedef struct schema_marker {
  const char *text;
  uint32_t rule; /* where it leads; GRAM_NONE: back */
} schema_marker;
/* Anything up to the end of the first of n markers, then on with its rule; `ends`: or back at any place before. With
 * its return. */
void schema_emit_text(schema_compiler *c, const schema_marker *markers, size_t n, bool ends);
/* Text up to the end of the marker, which is ASCII, that is none of n words, blanks around it and the case of its
 * letters aside. Words have at most eight letters, and there are at most four. With its return. */
void schema_emit_text_but(schema_compiler *c, const char *marker, const char *const *words, size_t n);

/* schema_pattern.c: a string that the regular expression is found in, with its return. Returns why it is refused; NULL:
 * it is not. */
const char *schema_emit_pattern(schema_compiler *c, const char *s, size_t n);
/* The expression of a format; NULL: it is not known here. */
const char *schema_format_pattern(const char *name);

/* schema_ref.c: the schema that "#" or "#/…" names; NULL: there is none. */
tern_status schema_find(const json_t *root, const char *ref, const json_t **out, tern_error *err);

enum { SCHEMA_MOST = 8192 /* schemas in all */, SCHEMA_MOST_DIGITS = 18 };
#define SCHEMA_MOST_INTEGER INT64_C(999999999999999999)

#endif
