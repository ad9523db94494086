/* calls_told.h - what is certain of a block of calls before it is whole: names, and arguments as far as they came.
 *
 * A block is looked through byte by byte as it grows, by the machine of its format (calls_format.tell). A call is told
 * of once its name is known and is that of a tool; its arguments then grow, as a beginning of the text that value_text
 * makes of them. Their last brace is withheld: a call that may yet turn out to be none must not look like a whole one.
 * It is whole once the next call of the block has begun, or when the block was read (calls_read) and says the same.
 *
 * At what is not understood the machine stops; what the block says is then known at its end, as if nothing had been
 * told. What is told after n bytes depends on these bytes alone, not on the steps in which they came.
 */
#ifndef TERN_TEXT_CALLS_TOLD_H
#define TERN_TEXT_CALLS_TOLD_H

#include "base/buf.h"
#include "text/calls.h"
#include "text/json_push.h"

typedef struct told_call {
  char *name, *id; /* mem_free; id NULL: none, or none that came before the arguments */
  buf arguments;
  bool closed; /* its last brace alone is missing */
  size_t end;  /* bytes of the block up to its end, once closed */
} told_call;

typedef enum told_phase {
  TOLD_HEAD,      /* what stands before a call's arguments */
  TOLD_ARGUMENTS, /* an object, or one argument after another */
  TOLD_TAIL,      /* what ends the call */
} told_phase;

typedef struct calls_told {
  told_call *at; /* all but the last are whole */
  size_t n, capacity;
  bool stopped, failed; /* failed: memory ran out */
  /* The machine's own. */
  size_t from; /* bytes that are done with */
  size_t seen; /* bytes that were looked through for what ends the piece that begins at `from` */
  told_phase phase;
  json_push outer, inner;
  buf word;               /* the key or string under way */
  int key;                /* what the last key says */
  bool named, args;       /* the object's name, and its arguments, were there */
  char *id;               /* that came before the name */
  size_t head, head_size; /* the call's beginning in the block */
  int depth;
  char quote;   /* that the string under way ends with; '\0': none */
  bool marked;  /* it is one between markers */
  bool fenced;  /* the arguments stand in a fence, which has not ended yet */
  bool no_data; /* what looks like the beginning of CDATA is none */
} calls_told;

/* Looks on, up to the block's first n bytes. */
void calls_tell(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t);
/* Whether the block's calls are those that were told, and more. */
bool calls_told_agree(const calls_told *t, const call_list *whole);
/* What the arguments of the last one that was told still lack, of the whole ones. */
const char *calls_told_rest(const calls_told *t, const char *arguments);
/* As value_text has them: mem_free, NULL: no memory. Of a call that is whole. */
char *calls_told_text(const told_call *c);
void calls_told_clear(calls_told *t);

#endif
