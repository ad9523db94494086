/* tok_fields.h - reads the members of a step's JSON object. Every function names file, stage, type and key on error. */
#ifndef TERN_TEXT_TOK_FIELDS_H
#define TERN_TEXT_TOK_FIELDS_H

#include "text/tok_impl.h"

typedef struct fields { /* one step: {"type": ..., ...} */
  tok *t;
  const char *stage; /* "normalizer", ... */
  const char *type;
  const jt *value;
} fields;

/* Opens a step's object: it must be one, and have a type. */
tern_status fields_open(tok *t, const char *stage, const jt *value, fields *out, tern_error *err);
/* Refuses members other than "type" and those of `known` (NULL-terminated). */
tern_status fields_only(const fields *f, const char *const *known, tern_error *err);
tern_status fields_unknown_type(const fields *f, tern_error *err);
tern_status fields_bad(const fields *f, const char *key, const char *what, tern_error *err);

tern_status fields_flag(const fields *f, const char *key, bool *out, tern_error *err); /* must be there */
tern_status fields_flag_or(const fields *f, const char *key, bool absent, bool *out, tern_error *err);
tern_status fields_text(const fields *f, const char *key, tok_span *out, tern_error *err);
tern_status fields_character(const fields *f, const char *key, uint32_t *out, tern_error *err);
tern_status fields_size(const fields *f, const char *key, size_t *out, tern_error *err);
/* {"String": ...} or {"Regex": ...}; owned by the tok. */
tern_status fields_pattern(const fields *f, const char *key, tok_pattern **out, tern_error *err);
tern_status fields_behavior(const fields *f, const char *key, split_behavior *out, tern_error *err);

/* Metaspace is a pre-tokenizer and a decoder, with the same members. */
tern_status metaspace_read(const fields *f, pretok_step *step, tern_error *err);

/* Calls `one` for a step, or for each step of a Sequence (whose members stand under `list`), nested ones included. */
typedef tern_status fields_step(const fields *f, void *user, tern_error *err);
tern_status fields_each(tok *t, const char *stage, const char *list, const jt *value, fields_step *one, void *user,
                        tern_error *err);

#endif
