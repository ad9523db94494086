/* constraint.h - which tokens may be drawn next, so that an answer is what a grammar lets a text be.
 *
 * The logits do not change; of what they say, only tokens may be drawn whose bytes lead somewhere in the grammar
 * (text/grammar.h). A stop id may be drawn just where the text may end; where it must end, the answer is over without
 * one. Special tokens never come, but for those that stand around reasoning and calls.
 *
 * A tern_grammar is immutable, and made for one model; a constraint is the running of it for one answer, and belongs to
 * one thread. It allocates where a state is met for the first time. Its work and its memory are bounded.
 */
#ifndef TERN_ENGINE_CONSTRAINT_H
#define TERN_ENGINE_CONSTRAINT_H

#include <jansson.h>

#include "engine/engine.h"
#include "text/answer.h"
#include "text/grammar_machine.h"
#include "text/parts.h"
#include "text/tok_bytes.h"

struct tern_grammar {
  const tern_model *model;
  grammar grammar;
  bool calls; /* tokens that stand around calls may come */
};

/* What an answer is to be. */
typedef struct grammar_wish {
  answer_form form;                 /* its frame and `again` are said by what follows */
  const parts_reasoning *reasoning; /* may stand before it; NULL: nothing may */
  bool opened;                      /* the prompt has begun it */
} grammar_wish;

/* TERN_E_USAGE: the schema is wrong, or has what is not enforced here, named by its path. TERN_E_UNSUPPORTED: the
 * model's tokens, or its way to reason or to call, cannot be held against a grammar. */
tern_status grammar_open(tern_model *m, const grammar_wish *wish, tern_grammar **out, tern_error *err);

typedef struct constraint constraint;

tern_status constraint_open(const tern_grammar *g, const tern_generate_options *options, constraint **out,
                            tern_error *err);
void constraint_close(constraint *c); /* NULL is fine */

/* The state of an answer that has no token yet; it is GRAM_DEAD of no other. */
uint32_t constraint_start(const constraint *c);
/* The tokens that may follow: [vocab bits], valid until the next call. first: the answer has none yet. TERN_E_LIMIT: to
 * find them is more work than an answer may make; it stays so. */
tern_status constraint_mask(constraint *c, uint32_t state, bool first, const uint64_t **mask, tern_error *err);
/* The state behind a token that may follow. */
uint32_t constraint_after(constraint *c, uint32_t state, bool first, int32_t id);
/* Whether the answer is over: nothing more may follow. */
bool constraint_is_over(const constraint *c, uint32_t state);
/* Now and again, while no other state of it is remembered: gives memory back, and *state may get a new number. */
void constraint_trim(constraint *c, uint32_t *state);

#endif
