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

#endif
