/* tok_tree.h - JSON values in an arena: what is small in tokenizer.json, and the configuration files beside it.
 *
 * Strings are bytes with a length (they may hold NULs) and are NUL-terminated besides. Where an object names a key
 * twice, the last one counts, as in the reference's parser. Nothing is freed one by one: the arena owns all.
 */
#ifndef TERN_TEXT_TOK_TREE_H
#define TERN_TEXT_TOK_TREE_H

#include "base/mem.h"
#include "base/status.h"

typedef enum jt_kind { JT_NULL, JT_FALSE, JT_TRUE, JT_NUMBER, JT_STRING, JT_ARRAY, JT_OBJECT } jt_kind;

typedef struct jt {
  jt_kind kind;
  const char *s;   /* JT_STRING: the string; JT_NUMBER: its text */
  size_t n;        /* bytes of s; JT_ARRAY, JT_OBJECT: number of elements */
  const char *key; /* in an object */
  size_t key_n;
  struct jt *first, *last, *next;
} jt;

enum { JT_MAX_DEPTH = 64 };

/* Builds a tree from parser events. Starts zeroed but for `memory`. A step returns false when memory is out or the
 * nesting is too deep. `root` is set when `depth` is back at 0. */
typedef struct jt_builder {
  arena *memory;
  jt *stack[JT_MAX_DEPTH];
  size_t depth;
  jt *root;
  const char *key;
  size_t key_n;
  bool too_deep;
} jt_builder;
bool jt_key(jt_builder *b, const char *s, size_t n);
bool jt_open(jt_builder *b, jt_kind kind);
bool jt_close(jt_builder *b);
bool jt_value(jt_builder *b, jt_kind kind, const char *s, size_t n);

/* Parses a whole document. `file` names it in errors. */
tern_status jt_parse(const char *file, const char *data, size_t n, arena *memory, jt **out, tern_error *err);

/* The member `key` of an object; NULL where value is NULL, no object, or has no such member. */
const jt *jt_get(const jt *value, const char *key);
/* The same, but JSON null counts as absent. */
const jt *jt_get_set(const jt *value, const char *key);
bool jt_is(const jt *value, const char *text); /* a string equal to text */
/* An integer 0..limit written without point or exponent. */
bool jt_integer(const jt *value, uint64_t limit, uint64_t *out);

#endif
