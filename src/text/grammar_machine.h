/* grammar_machine.h - a grammar that runs: states, and where bytes lead.
 *
 * A thread is a place in the program and a stack of places to return to; a state is the set of threads that are about
 * to take a byte or to accept. Stacks and states are kept once each and have numbers, so that what a byte does to a
 * state is found once and then looked up. All is found when it is asked for: a grammar with recursion has no end of
 * states, a text meets few of them.
 *
 * A machine belongs to one thread of the program. What it keeps is bounded: gram_trim lets go of all but one state. So
 * is what it does: a machine stops for good where it has done all the work that gram_allow gave it, for some grammars
 * have states without number, each with thousands of threads.
 */
#ifndef TERN_TEXT_GRAMMAR_MACHINE_H
#define TERN_TEXT_GRAMMAR_MACHINE_H

#include "text/grammar.h"

enum { GRAM_DEAD = 0 }; /* the state in which nothing is allowed */
/* In units of work (a nanosecond or two): of one mask of tokens (constraint.h). What opening a machine may take. */
enum { GRAM_MASK_WORK = 4 << 20 };

typedef struct gram_machine gram_machine;

/* `g` is sealed and must outlive it. */
tern_status gram_machine_open(const grammar *g, gram_machine **out, tern_error *err);
void gram_machine_close(gram_machine *m); /* NULL is fine */

uint32_t gram_start(const gram_machine *m);
/* GRAM_DEAD too where it failed: see gram_fault. */
uint32_t gram_step(gram_machine *m, uint32_t state, uint8_t byte);
/* Whether the text may end here; whether it must. */
bool gram_accepts(const gram_machine *m, uint32_t state);
bool gram_is_final(const gram_machine *m, uint32_t state);
/* The state in which the rule begins, with nothing behind it; how many threads a state has. */
uint32_t gram_start_at(gram_machine *m, uint32_t rule);
size_t gram_width(const gram_machine *m, uint32_t state);
/* What may be done from here on; what of it is left. */
void gram_allow(gram_machine *m, uint64_t work);
uint64_t gram_left(const gram_machine *m);
/* Memory or a bound was reached by a step since open. */
tern_status gram_fault(const gram_machine *m, tern_error *err);
/* Where much is kept: forgets all states but *state, which gets a new number. True: it did. */
bool gram_trim(gram_machine *m, uint32_t *state);

/* grammar_cost.c: walks a little way into each rule, always to the state with most threads. TERN_E_LIMIT: it takes more
 * than a rule that can be followed does. */
tern_status gram_try(const grammar *g, tern_error *err);

#endif
