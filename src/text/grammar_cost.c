/* grammar_cost.c - whether a grammar can be followed at a bounded price, found before an answer begins.
 *
 * What makes a grammar costly are patterns whose counted parts may begin anywhere (`.*a.{300}`): with each character
 * there are more threads, and a state for each set of places where a part could have begun. So a machine walks into
 * each rule, byte by byte, always to the state with most threads, and looks at all bytes there: what grows does so
 * within a few steps. A grammar that passes may still be costly further on: constraints have bounds of their own.
 */
#include "text/grammar_machine.h"

enum {
  BYTES = 32, /* of each walk */
  SOON = 8,   /* after so many, a state of few threads ends it: nothing grows here */
  FEW = 40,
  RULE_WORK = 4 << 20, /* more is too much */
  ALL_WORK = 8 << 20   /* then the other rules are not walked */
};

/* One byte of each class. */
static int pick_bytes(const grammar *g, uint8_t *out)
{
  int n = 0;
  for (int byte = 0; byte < 256; byte++)
    if (g->classes[byte] == n)
      out[n++] = (uint8_t)byte;
  return n;
}

static uint32_t widest(gram_machine *m, uint32_t from, const uint8_t *bytes, int n)
{
  uint32_t best = GRAM_DEAD;
  for (int i = 0; i < n; i++) {
    uint32_t to = gram_step(m, from, bytes[i]);
    if (gram_width(m, to) > gram_width(m, best))
      best = to;
  }
  return best;
}

/* rule: of all; the first is the whole. Returns the work done. */
static uint64_t walk(gram_machine *m, size_t rule, const uint8_t *bytes, int n)
{
  uint64_t looked = 0;
  gram_allow(m, RULE_WORK);
  uint32_t at = rule ? gram_start_at(m, (uint32_t)rule - 1) : gram_start(m), before = GRAM_DEAD;
  for (int i = 0; i < BYTES && at != GRAM_DEAD && at != before; i++) {
    if (i >= SOON && gram_width(m, at) < FEW)
      break;
    before = at;
    at = widest(m, at, bytes, n);
    looked += (uint64_t)n;
  }
  uint64_t done = RULE_WORK - gram_left(m) + looked;
  gram_trim(m, &at);
  return done;
}

tern_status gram_try(const grammar *g, tern_error *err)
{
  gram_machine *m = NULL;
  uint8_t bytes[256];
  int n = pick_bytes(g, bytes);
  uint64_t done = 0;
  tern_status status = gram_machine_open(g, &m, err);
  for (size_t rule = 0; rule <= g->n_rules && status == TERN_OK && done < ALL_WORK; rule++) {
    done += walk(m, rule, bytes, n);
    status = gram_fault(m, err);
  }
  gram_machine_close(m);
  return status;
}
