/* parts_impl.h - the reader as its files see it: what it holds, and the search for markers. See parts.h. */
#ifndef TERN_TEXT_PARTS_IMPL_H
#define TERN_TEXT_PARTS_IMPL_H

#include "text/calls_told.h"
#include "text/parts.h"

typedef enum reader_state {
  IN_CONTENT, /* of channels: between messages */
  IN_REASONING,
  IN_CALL,
  IN_BARE_CALL,  /* without its wrapper */
  IN_WHOLE_CALL, /* the answer as a whole may be calls */
  IN_HEADER,     /* of a message of a channel */
  IN_MESSAGE,    /* of one that is content */
} reader_state;

struct parts_reader {
  parts_options options;
  reader_state state;
  buf held;
  size_t from;        /* of `held`: what is before is done with; the block's marker where it is one of calls */
  size_t scanned;     /* where the search for a block's end goes on */
  calls_scan strings; /* of the block, once an end marker stood in it that was none */
  int tries;          /* at reading it, while a string seemed open */
  calls_told told;    /* of the block, before it is whole */
  size_t begun_calls; /* of those, that have come out; the last of them may be under way */
  size_t told_bytes;  /* of its arguments that have come out */
  bool begun;         /* something came that is not white space, or a marker did */
  bool behind;        /* nothing but white space came since the last marker */
  bool no_calls;      /* the answer began with something else, where that means that there are none */
  bool called;        /* that marker was the end of a call */
  size_t blank_end;   /* of `held`: from `from` on up to here is nothing but white space */
  size_t gap;         /* white space before `from` that is content if the block is no call */
  size_t reasoned;
  bool channels; /* the text is harmony's */
};

typedef struct marker {
  const char *text; /* NULL or "": none */
  reader_state to;
} marker;

/* What is held and not done with. */
const char *parts_at(const parts_reader *r);
size_t parts_left(const parts_reader *r);
/* The first of n markers that stands in the text from `start` on; NULL: none, and *keep bytes at the end may begin one.
 */
const marker *parts_find(const parts_reader *r, const marker *all, size_t n, size_t start, size_t *where, size_t *keep);
/* A part of its own; NULL: no memory. */
answer_part *parts_new(answer_parts *p, part_kind kind);
/* Adds text that is part of the answer. */
void parts_add(answer_parts *p, part_kind kind, const char *text, size_t n);
/* parts_calls.c: what is certain of the block under way, of its first `size` bytes. The next two end it. */
void parts_tell_calls(parts_reader *r, size_t skip, size_t size, answer_parts *out);
/* The block of `size` bytes, of which `n` from `skip` on are the calls' text. False: they are not understood. */
bool parts_take_calls(parts_reader *r, size_t size, size_t skip, size_t n, answer_parts *out);
/* The next `size` bytes are no calls, whatever their markers say. */
void parts_refuse_calls(parts_reader *r, size_t skip, size_t size, answer_parts *out);

/* parts_channels.c: the same for harmony. */
bool channels_step(parts_reader *r, answer_parts *out);
void channels_end(parts_reader *r, answer_parts *out);

#endif
