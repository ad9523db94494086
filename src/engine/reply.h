/* reply.h - the rules of one answer, whoever runs the forwards: which token comes next, what text may go out, what ends
 * it. tern_generate feeds it from a session, the scheduler from rows of a batch; both get the same tokens and text.
 *
 * The order within one token is the reference's (mlx_lm.generate.stream_generate): a stop id ends the answer before it
 * is added to the text, and the token that reaches max_tokens is still part of it. A token that ends the answer is not
 * consumed by the timeline.
 *
 * A reply belongs to one thread. reply_sample allocates nothing; reply_accept grows the text.
 */
#ifndef TERN_ENGINE_REPLY_H
#define TERN_ENGINE_REPLY_H

#include "engine/engine.h"
#include "engine/sample.h"
#include "engine/spacing.h"
#include "engine/stop.h"
#include "text/detok.h"

enum { REPLY_MOST_TOP = 20 };

typedef struct reply {
  const tern_model *model;
  const tern_generate_options *options; /* not owned */
  size_t max_tokens;
  sampler *sampler;
  detok *detok;
  spacing spacing;
  stop_scan stops;  /* holds the text */
  int32_t *history; /* last prompt token, then what was generated: what penalties look back on */
  size_t n_history;
  int32_t token; /* sampled last */
  int top;       /* alternatives wanted with each token; below 0: no log-probabilities at all */
  float logprob; /* of `token` */
  int n_top;     /* its alternatives, most likely first */
  int32_t top_ids[REPLY_MOST_TOP];
  float top_values[REPLY_MOST_TOP];
  const char *finish; /* NULL: it goes on; else "stop", "length" or "cancelled" */
  bool refused;       /* on_text asked to end */
} reply;

/* last: the prompt's last id. max_tokens >= 1. top: as in the struct, at most REPLY_MOST_TOP. `options` must outlive
 * the reply. Free with reply_close in any case. Errors: options that the sampler refuses, stop ids that are none. */
tern_status reply_open(reply *r, const tern_model *m, const tern_generate_options *options, int32_t last,
                       size_t max_tokens, int top, tern_error *err);
void reply_close(reply *r);

/* Draws the next token from logits [V], which are changed. */
tern_status reply_sample(reply *r, float *logits, tern_error *err);
/* Takes the token that was drawn: sends text through options->on_text, sets `finish` where the answer ends. */
tern_status reply_accept(reply *r, tern_error *err);

/* Ids generated so far, a final stop id left out: [reply_count]. */
static inline const int32_t *reply_ids(const reply *r)
{
  return r->history + 1;
}
static inline size_t reply_count(const reply *r)
{
  return r->n_history - 1;
}

#endif
