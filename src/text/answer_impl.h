/* answer_impl.h - what the files of the answer's grammar share: answer.c is the whole, calls_grammar.c the calls. */
#ifndef TERN_TEXT_ANSWER_IMPL_H
#define TERN_TEXT_ANSWER_IMPL_H

#include "text/answer.h"
#include "text/schema_impl.h"

enum { ANSWER_BLANKS = 4 /* between reasoning and what follows it */ };

/* Up to `most` blanks and new lines. */
void answer_emit_space(grammar *g, int most);

/* calls_grammar.c. The marker that calls begin with; "": they are the whole answer. */
const char *calls_start(const calls_format *f);
/* Whether a block's text goes on to the next block's beginning or the answer's end. */
bool calls_open_ended(const calls_format *f);
/* Begins two rules: `block`, from behind the marker to a block's end; `all`, blocks as a whole answer. */
tern_status calls_emit(schema_compiler *c, const answer_form *form, uint32_t block, uint32_t all, tern_error *err);

/* calls_members.c: arguments between tags. */
enum { MEMBERS_MOST = 128 };

typedef struct member_form {
  const char *argument;  /* before an argument's name */
  const char *opens;     /* behind it, before the value */
  const char *line_end;  /* behind a value that does not go up to its tag */
  const char *value_end; /* the tag */
  const char *end;       /* of the call */
  const char *nulls[3];  /* texts that the reader takes for null */
  size_t n_nulls;
  bool guesses; /* what is no string by its type is read as JSON, whatever it may be */
} member_form;

/* A call's arguments and its end, at this place, with the return. root->schema NULL: they may be any. */
tern_status members_emit(schema_compiler *c, const member_form *w, const schema_root *root, tern_error *err);

#endif
