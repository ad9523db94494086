/* grammar.h - what a text may be, as a program over bytes.
 *
 * A grammar is a list of a few instructions: a range of bytes, two ways to go on, a call of a rule. Whoever writes one
 * emits code, rule by rule, and seals it; then it is immutable, and any number of machines (grammar_machine.h) may run
 * it. Text is UTF-8 by construction: a grammar that lets a lead byte through lets its continuation bytes follow.
 *
 * Sealing finds what could never end: a way that leads to no end is dead and never taken, so that a machine cannot get
 * stuck; a rule that calls itself before any byte is refused. Sizes are bounded.
 *
 * Emitting has no errors of its own: the first failure sticks, and sealing tells it.
 */
#ifndef TERN_TEXT_GRAMMAR_H
#define TERN_TEXT_GRAMMAR_H

#include "base/status.h"

enum { GRAM_MOST_CODE = 1 << 17, GRAM_MOST_RULES = 1 << 14 };
#define GRAM_NONE UINT32_MAX

typedef enum gram_op {
  GRAM_BYTES,  /* one byte from lo to hi */
  GRAM_SPLIT,  /* goes on at a and at b */
  GRAM_JUMP,   /* goes on at a */
  GRAM_CALL,   /* the rule a, then on */
  GRAM_RETURN, /* from a rule */
  GRAM_ACCEPT, /* the text may end */
} gram_op;

typedef struct gram_code {
  uint8_t op, lo, hi;
  bool alive; /* it can come to an end */
  bool tail;  /* a call with nothing behind it but the return */
  uint32_t a, b;
} gram_code;

typedef struct grammar {
  gram_code *code; /* [n] */
  size_t n, capacity;
  uint32_t *rules; /* [n_rules]: where each begins */
  size_t n_rules, rules_capacity;
  uint8_t classes[256]; /* bytes of one class are told apart by no instruction */
  int n_classes;
  bool failed, over; /* memory ran out; it became too large */
} grammar;

/* A grammar starts zeroed; execution begins at its first instruction. */
void gram_free(grammar *g);

uint32_t gram_here(const grammar *g);
/* A new rule, which begins where gram_begin says. */
uint32_t gram_rule(grammar *g);
void gram_begin(grammar *g, uint32_t rule);

void gram_bytes(grammar *g, uint8_t lo, uint8_t hi);
void gram_text(grammar *g, const char *s, size_t n);
void gram_call(grammar *g, uint32_t rule);
void gram_return(grammar *g);
void gram_accept(grammar *g);
void gram_jump_to(grammar *g, uint32_t at);
/* On, or at `at`. */
void gram_split_to(grammar *g, uint32_t at);
/* On, or where gram_land (of the place returned) will be called. */
uint32_t gram_split(grammar *g);
void gram_land(grammar *g, uint32_t split);
/* Jumps to one place that is not known yet: each takes the one before it (the first GRAM_NONE). */
uint32_t gram_jump(grammar *g, uint32_t before);
void gram_land_jumps(grammar *g, uint32_t last);

/* One of several: gram_branch before each, told whether more follow; then gram_join. Starts as GRAM_ALTERNATIVES. */
typedef struct gram_alternatives {
  uint32_t split, ends;
  bool begun;
} gram_alternatives;
#define GRAM_ALTERNATIVES                                                                                              \
  {                                                                                                                    \
    GRAM_NONE, GRAM_NONE, false                                                                                        \
  }
void gram_branch(grammar *g, gram_alternatives *a, bool more);
void gram_join(grammar *g, gram_alternatives *a);

/* One character of UTF-8 from lo to hi, surrogates left out. */
void gram_chars(grammar *g, uint32_t lo, uint32_t hi);

/* TERN_E_LIMIT: too large. TERN_E_USAGE: a rule calls itself before any byte, or nothing can come to an end. */
tern_status gram_seal(grammar *g, tern_error *err);

#endif
