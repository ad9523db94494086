/* json_push.h - JSON that comes letter by letter, passed on as far as it is certain, in the form in which value_text
 * writes it.
 *
 * What was written is a beginning of what value_text makes of the whole, however it goes on, and also where it turns
 * out to be Python's notation or to have line ends in strings: a quote, a comma and a number are written once what
 * follows them shows that they were meant so. The outermost bracket's end is left to the caller: until then nobody can
 * take the text for a whole. Strict: at what is not JSON the machine is stuck, and says no more.
 */
#ifndef TERN_TEXT_JSON_PUSH_H
#define TERN_TEXT_JSON_PUSH_H

#include "base/buf.h"

enum { JSON_PUSH_DEPTH = 62, JSON_PUSH_SCALAR = 48 };

typedef enum push_state {
  PUSH_START, /* before the outermost bracket */
  PUSH_FIRST, /* behind a bracket: an element or a key, or its end */
  PUSH_ITEM,  /* an element or a key */
  PUSH_COLON,
  PUSH_VALUE, /* behind a colon */
  PUSH_AFTER, /* a comma, or a bracket's end */
  PUSH_STRING,
  PUSH_ESCAPE,
  PUSH_HEX,
  PUSH_SCALAR, /* a number or a word */
  PUSH_DONE,
  PUSH_STUCK,
} push_state;

/* Begins as {0}. */
typedef struct json_push {
  push_state state;
  int depth;
  bool object[JSON_PUSH_DEPTH]; /* by depth: what is open there; else a list */
  bool key;                     /* the string under way is one */
  bool quote, comma;            /* to be written before what comes next */
  int digits;                   /* of the escape that were read */
  uint32_t code, high;          /* what they say; the first half of a pair, 0: none */
  char scalar[JSON_PUSH_SCALAR];
  size_t length;
} json_push;

/* One more byte; what became certain is added to `out`. */
void json_push_byte(json_push *p, char c, buf *out);
/* Somebody else has read the value that was to come. */
void json_push_skip_value(json_push *p);
/* White space of JSON's. */
bool json_push_is_blank(char c);

#endif
