/* prefixes.h - the states that ended jobs left, so that a later job need not read again what it shares with one of
 * them.
 *
 * The rules are a session's (session.h): the common beginning of both token lists is kept as long as a fresh run would
 * have the same bits. Where read and stepped tokens differ, that is up to the old job's split or the first sensitive
 * position; where slots forget, the snapshot at the old split serves. States are shared by reference: one that served
 * serves again, also two jobs at once.
 *
 * Bounded by a number and by bytes (reckoned as if nothing were shared); the one used longest ago goes first. One
 * thread.
 */
#ifndef TERN_ENGINE_PREFIXES_H
#define TERN_ENGINE_PREFIXES_H

#include "model/model.h"

typedef struct prefixes prefixes;

/* most 0: keeps nothing. */
tern_status prefixes_open(model *m, int most, size_t most_bytes, prefixes **out, tern_error *err);
void prefixes_close(prefixes *p); /* NULL is fine */

/* Makes `state`, which is empty, hold the longest beginning of ids[0..split) that may be reused under that split, and
 * returns its length, 0 where there is none. */
int64_t prefixes_resume(prefixes *p, kv_seq *state, const int32_t *ids, int64_t split);

/* Remembers a state by reference: `length` tokens, of which those from `split` on were stepped. `snapshot`: the state
 * at the split, or NULL. The ids are prompt[0..n) and then `more`. Without memory it is not remembered, and that is
 * all. */
typedef struct prefix_of {
  const kv_seq *state, *snapshot;
  const int32_t *prompt, *more;
  int64_t n, length, split;
} prefix_of;
void prefixes_keep(prefixes *p, const prefix_of *of);

/* Forgets the one that was used longest ago; false: there is none. */
bool prefixes_forget_one(prefixes *p);
size_t prefixes_bytes(const prefixes *p);
/* The i-th, used longest ago first; all its ids are in `prompt`. Valid until the next change. */
prefix_of prefixes_at(const prefixes *p, int i);
int prefixes_count(const prefixes *p);
int prefixes_most(const prefixes *p);
size_t prefixes_most_bytes(const prefixes *p);

#endif
