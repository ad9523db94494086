/* config.h - config.json and generation_config.json, read strictly.
 *
 * The files become jansson trees once; architectures then read them through tables of cfg_field, which carry names,
 * aliases, kinds, ranges and defaults. A key that is there with a wrong kind or an impossible number is an error that
 * names it; null counts as absent. Every key asked for is remembered, so that what was never asked for can be listed.
 *
 * Numbers: an int is accepted for a float, a float with an integral value for an int (Python writes both), 0 and 1 for
 * a bool. Python's `Infinity` and `-Infinity` are numbers here too; NaN is only accepted where nobody asks for it.
 *
 * All strings and json_t handed out belong to the cfg. Reading marks keys, so one cfg belongs to one thread.
 */
#ifndef TERN_FORMAT_CONFIG_H
#define TERN_FORMAT_CONFIG_H

#include <jansson.h>

#include "base/status.h"

typedef struct cfg cfg;

/* Opens DIR/config.json and, where present, DIR/generation_config.json. Errors: not found, not JSON (with line and
 * column), a key twice in one object (named), model_type absent, text_config not an object, and model_file, which would
 * run code of the checkpoint. */
tern_status cfg_open(const char *dir, cfg **out, tern_error *err);
/* The same from memory; generation may be NULL. For tests and importers. */
tern_status cfg_parse(const char *config, size_t length, const char *generation, size_t generation_length, cfg **out,
                      tern_error *err);
void cfg_close(cfg *c); /* NULL is fine */

const char *cfg_model_type(const cfg *c); /* the root's; never NULL */

/* ---- where to read ---- */

typedef enum cfg_scope {
  CFG_ROOT,
  CFG_TEXT,       /* text_config alone; where there is none, every key is absent */
  CFG_GENERATION, /* generation_config.json; where there is none, every key is absent */
} cfg_scope;

/* Whether the scope is there. */
bool cfg_has(const cfg *c, cfg_scope scope);
/* "config.json", "config.json: text_config", "generation_config.json": what messages begin with. */
const char *cfg_where(cfg_scope scope);

/* ---- tables ---- */

typedef enum cfg_kind {
  CFG_INT,    /* int */
  CFG_FLOAT,  /* double */
  CFG_BOOL,   /* bool */
  CFG_STRING, /* const char *, NULL where absent and without a default */
} cfg_kind;

typedef struct cfg_field {
  const char *keys; /* "hidden_size|n_embd|d_model": the first one present and not null wins */
  cfg_kind kind;
  size_t offset; /* in the caller's struct */
  bool required;
  /* Absent and not required: this is stored as it is, without a look at the range, so that a value outside the range
   * can say "absent". */
  double number;    /* CFG_INT, CFG_FLOAT, CFG_BOOL */
  const char *text; /* CFG_STRING */
  /* Range of what a file may say, ends included. Both 0: 0 to INT_MAX for an int, everything but NaN for a float. */
  double min, max;
} cfg_field;

/* Rows of a table. `type.member` gets the value; the range is [lo, hi]. */
#define CFG_INT_REQUIRED(type, member, keys, lo, hi)                                                                   \
  {                                                                                                                    \
    keys, CFG_INT, offsetof(type, member), true, 0, NULL, lo, hi                                                       \
  }
#define CFG_INT_OR(type, member, keys, fallback, lo, hi)                                                               \
  {                                                                                                                    \
    keys, CFG_INT, offsetof(type, member), false, fallback, NULL, lo, hi                                               \
  }
#define CFG_FLOAT_REQUIRED(type, member, keys, lo, hi)                                                                 \
  {                                                                                                                    \
    keys, CFG_FLOAT, offsetof(type, member), true, 0, NULL, lo, hi                                                     \
  }
#define CFG_FLOAT_OR(type, member, keys, fallback, lo, hi)                                                             \
  {                                                                                                                    \
    keys, CFG_FLOAT, offsetof(type, member), false, fallback, NULL, lo, hi                                             \
  }
#define CFG_BOOL_REQUIRED(type, member, keys)                                                                          \
  {                                                                                                                    \
    keys, CFG_BOOL, offsetof(type, member), true, 0, NULL, 0, 0                                                        \
  }
#define CFG_BOOL_OR(type, member, keys, fallback)                                                                      \
  {                                                                                                                    \
    keys, CFG_BOOL, offsetof(type, member), false, fallback, NULL, 0, 0                                                \
  }
#define CFG_STRING_REQUIRED(type, member, keys)                                                                        \
  {                                                                                                                    \
    keys, CFG_STRING, offsetof(type, member), true, 0, NULL, 0, 0                                                      \
  }
#define CFG_STRING_OR(type, member, keys, fallback)                                                                    \
  {                                                                                                                    \
    keys, CFG_STRING, offsetof(type, member), false, 0, fallback, 0, 0                                                 \
  }

/* Fills `out` from the scope. On failure `out` may be partly filled. All aliases of a row count as asked for. */
tern_status cfg_read(const cfg *c, cfg_scope scope, const cfg_field *fields, size_t n, void *out, tern_error *err);
/* The same from any object of the tree (rope_scaling, a layer's entry); `where` begins the messages. Marks nothing. */
tern_status cfg_read_object(const json_t *object, const char *where, const cfg_field *fields, size_t n, void *out,
                            tern_error *err);

/* ---- raw values ---- */

/* NULL: absent or null. Marks the key. */
const json_t *cfg_get(const cfg *c, cfg_scope scope, const char *key);
/* NULL: absent or null. */
const json_t *cfg_obj_get(const json_t *object, const char *key);

/* One member of an object, strictly. `object` may be NULL (every key absent). Absent: an error if required, else *out
 * gets the fallback. Messages read "WHERE: KEY: …". */
tern_status cfg_obj_int(const json_t *object, const char *where, const char *key, bool required, int fallback, int *out,
                        tern_error *err);
tern_status cfg_obj_float(const json_t *object, const char *where, const char *key, bool required, double fallback,
                          double *out, tern_error *err);
tern_status cfg_obj_bool(const json_t *object, const char *where, const char *key, bool required, bool fallback,
                         bool *out, tern_error *err);
tern_status cfg_obj_string(const json_t *object, const char *where, const char *key, bool required,
                           const char *fallback, const char **out, tern_error *err);
/* Lists: *out (mem_free) gets *n values; absent and not required: NULL and 0. */
tern_status cfg_obj_ints(const json_t *object, const char *where, const char *key, bool required, int **out, size_t *n,
                         tern_error *err);
tern_status cfg_obj_floats(const json_t *object, const char *where, const char *key, bool required, double **out,
                           size_t *n, tern_error *err);
/* The strings themselves stay the tree's; *out is the array alone. */
tern_status cfg_obj_strings(const json_t *object, const char *where, const char *key, bool required, const char ***out,
                            size_t *n, tern_error *err);

/* One value, whatever it stands in; `where` names it completely. */
tern_status cfg_value_int(const json_t *value, const char *where, int64_t min, int64_t max, int64_t *out,
                          tern_error *err);
tern_status cfg_value_float(const json_t *value, const char *where, double *out, tern_error *err);
tern_status cfg_value_bool(const json_t *value, const char *where, bool *out, tern_error *err);

/* ---- token ids ---- */

/* End-of-sequence ids: generation_config.json's, then config.json's, then text_config's; a number or a list each,
 * without repetitions. *ids (mem_free) is NULL where there are none. */
tern_status cfg_eos_ids(const cfg *c, int32_t **ids, size_t *n, tern_error *err);
/* config.json's, else text_config's, else generation_config.json's; -1: none. */
tern_status cfg_bos_id(const cfg *c, int32_t *id, tern_error *err);

/* ---- what nobody read ---- */

/* Walks the scope's keys that were never asked for: start with *cursor = 0; NULL ends. */
const char *cfg_unread(const cfg *c, cfg_scope scope, size_t *cursor);
/* Walks all keys of the scope, in file order. */
const char *cfg_key(const cfg *c, cfg_scope scope, size_t *cursor);

#endif
