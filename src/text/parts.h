/* parts.h - an answer's text, taken apart while it comes: reasoning, content, calls of tools.
 *
 * A reader is fed pieces of the text, cut anywhere, and gives parts; what the parts of all pieces amount to does not
 * depend on the cuts. Markers are looked for in the text, so one may be of several tokens and come in several pieces.
 *
 * No text is lost. What lies between the markers of a call and is not understood, or was cut, comes as content, whole
 * and with its markers; a call inside of reasoning is reasoning. Only markers themselves, and white space that stands
 * alone between two of them or after the last, are left out.
 *
 * A call comes once it is whole: when its block has ended, or the next call of the block began. With `pieces` it comes
 * as it is written, name first, as far as it is certain (text/calls_told.h); if it then turns out to be none, or was
 * cut, that is said, and its text is content as it would be without them. What was decided does not depend on `pieces`.
 */
#ifndef TERN_TEXT_PARTS_H
#define TERN_TEXT_PARTS_H

#include "base/buf.h"
#include "text/calls.h"
#include "text/tok.h"

/* What reasoning stands between. */
typedef struct parts_reasoning {
  const char *name;
  const char *start, *end;
  const char *tokens[2]; /* a tokenizer that has both is one of a model that reasons so */
  bool channels;         /* the whole answer is messages with headers, harmony's */
} parts_reasoning;

/* NULL: there is none of that name. */
const parts_reasoning *parts_reasoning_find(const char *name);
/* What the reference would find in the vocabulary, and beyond it; NULL: nothing. */
const parts_reasoning *parts_reasoning_of(const tok *t);
const parts_reasoning *parts_reasoning_at(size_t i);
/* Whether a prompt ends inside of reasoning: templates open the block. `within`: the prompt may end in the middle of
 * it, as where a begun answer is continued; else only white space may follow the marker. */
bool parts_opened(const parts_reasoning *r, const char *prompt, size_t n, bool within);

typedef enum part_kind {
  PART_REASONING,
  PART_CONTENT,
  PART_CALL,       /* a whole one */
  PART_CALL_BEGIN, /* its name, and the model's id for it; one is under way until one of the last two */
  PART_CALL_TEXT,  /* more of its arguments' text */
  PART_CALL_END,   /* it is whole */
  PART_CALL_LOST,  /* it never will be */
  PART_DROPPED,    /* a reader of parts wants it no longer; parts_reader gives none */
} part_kind;

typedef struct answer_part {
  part_kind kind;
  buf text;       /* of reasoning, content, and arguments in pieces */
  tool_call call; /* of a call; of a beginning without arguments */
} answer_part;

/* Neighbours that are text of one kind are one part. */
typedef struct answer_parts {
  answer_part *at;
  size_t n, capacity;
  bool failed; /* memory ran out */
} answer_parts;

void parts_clear(answer_parts *p); /* n 0; `failed` kept */
void parts_free(answer_parts *p);

typedef struct parts_options {
  const parts_reasoning *reasoning; /* NULL: none is looked for */
  bool opened;                      /* the prompt has begun it */
  bool once;                        /* it stands at the beginning, or nowhere: what follows is content, markers too */
  const calls_format *calls;        /* NULL: none are looked for */
  bool calls_alone;                 /* an answer that begins with anything else has none */
  const json_t *tools;              /* of the request; borrowed */
  bool pieces;                      /* calls come as they are written */
} parts_options;

typedef struct parts_reader parts_reader;

/* NULL: no memory. Without reasoning and calls all text is content, and none is held back. */
parts_reader *parts_open(const parts_options *options);
void parts_close(parts_reader *r);
/* Adds what can be told after n more bytes. */
void parts_feed(parts_reader *r, const char *text, size_t n, answer_parts *out);
/* The text has ended; `cut`: not by itself, so that a call may be incomplete. */
void parts_end(parts_reader *r, bool cut, answer_parts *out);
/* Bytes of the text that were reasoning or its markers, so far. */
size_t parts_reasoning_bytes(const parts_reader *r);

#endif
