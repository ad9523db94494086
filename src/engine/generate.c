/* generate.c - one answer over a session: sync, then sample and step until something ends it. What a token does to the
 * answer is reply.h's. A step carries the guesses of draft.h too, where the session has a drafter; the timeline is then
 * cut back to what was right.
 */
#include <limits.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "engine/draft.h"

enum { DEFAULT_MAX_TOKENS = 256 };

static double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct draw {
  reply *reply;
  tern_error *err;
} draw;

static void sample(void *user, int64_t position, float *logits)
{
  (void)position;
  const draw *d = user;
  reply_sample(d->reply, logits, d->err);
}

static void take_largest(void *user, int64_t position, int32_t token)
{
  (void)position;
  const draw *d = user;
  reply_take_largest(d->reply, token);
}

/* Takes what the last forward drew. The timeline then has all of the answer but its last token. */
static tern_status take(tern_session *s, reply *r, size_t before, tern_error *err)
{
  do
    TRY(reply_accept(r, err));
  while (reply_waits(r));
  return session_rewind(s->timeline, before + (size_t)r->n_taken, err);
}

/* The token taken last, and guesses behind it: ids [1 + REPLY_MOST_DRAFTS], *n of them. */
static tern_status next_ids(tern_session *s, const reply *r, int32_t *ids, int *n, tern_error *err)
{
  ids[0] = r->token;
  *n = 1;
  if (!s->drafter)
    return TERN_OK;
  size_t left = r->max_tokens - reply_count(r);
  int most = session_steps_most(s->timeline) - 1;
  most = (size_t)most < left - 1 ? most : (int)(left - 1);
  draft_turn turn = {.drafter = s->drafter, .reply = r, .most = most < REPLY_MOST_DRAFTS ? most : REPLY_MOST_DRAFTS};
  TRY(draft_guess(&turn, 1, INT_MAX, session_cancelled(s->timeline), err));
  memcpy(ids + 1, turn.ids, (size_t)turn.n * sizeof *ids);
  *n += turn.n;
  return TERN_OK;
}

static tern_status run(tern_session *s, reply *r, const int32_t *ids, size_t n, tern_result *result, tern_error *err)
{
  double start = seconds();
  draw d = {.reply = r, .err = err};
  session_sink sink = {.row = sample, .chosen = reply_takes_largest(r) ? take_largest : NULL, .user = &d};
  session_request request = {.ids = ids,
                             .n = n,
                             .limit = (int64_t)(n + r->max_tokens - 1),
                             .on_read = r->options->on_prompt,
                             .user = r->options->user};
  result->prompt_tokens = n;
  if (s->drafter)
    TRY(drafter_begin(s->drafter, r->options, ids, n, request.limit, NULL, err));
  TRY(session_sync(s->timeline, &request, &sink, &result->cached_tokens, err));
  double prompt_end = seconds();
  result->prompt_seconds = prompt_end - start;
  TRY(take(s, r, n - 1, err));
  while (!r->finish) {
    int32_t next[1 + REPLY_MOST_DRAFTS];
    int count;
    size_t before = session_length(s->timeline);
    TRY(next_ids(s, r, next, &count, err));
    reply_expect(r, next + 1, count - 1);
    TRY(session_steps(s->timeline, next, count, &sink, err));
    TRY(take(s, r, before, err));
  }
  result->decode_seconds = seconds() - prompt_end;
  result->drafted_tokens = (size_t)r->n_guessed;
  result->accepted_tokens = (size_t)r->n_hit;
  return TERN_OK;
}

/* How many tokens may come: what was asked for, or all that fits. Refuses what does not, before anything is allocated.
 */
static tern_status admit(const tern_session *s, const tern_generate_options *o, size_t n, size_t *max_tokens,
                         tern_error *err)
{
  size_t context = (size_t)session_context(s->timeline);
  size_t asked = o->max_tokens > 0 ? (size_t)o->max_tokens : o->max_tokens < 0 ? 1 : DEFAULT_MAX_TOKENS;
  if (n > context)
    return err_set(err, TERN_E_LIMIT, "context: a prompt of %zu tokens, but there are %zu positions", n, context);
  if (n + asked - 1 > context)
    return err_set(err, TERN_E_LIMIT,
                   "context: a prompt of %zu tokens and %zu to come need %zu positions, but there are %zu (a limit of "
                   "-1 is as many as fit)",
                   n, asked - 1, n + asked - 1, context);
  *max_tokens = o->max_tokens < 0 ? context - n + 1 : asked;
  return TERN_OK;
}

/* Hands text and ids over; on failure nothing. */
static tern_status hand_over(reply *r, tern_result *result, tern_error *err)
{
  size_t n = reply_count(r);
  memmove(r->history, r->history + 1, n * sizeof *r->history);
  result->text = buf_take(&r->stops.text);
  if (!result->text)
    return err_nomem(err, "answer");
  result->ids = r->history;
  r->history = NULL;
  result->n_ids = n;
  result->finish = r->finish;
  return TERN_OK;
}

tern_status engine_generate(tern_session *s, const int32_t *ids, size_t n, const tern_generate_options *opt,
                            tern_result *result, tern_error *err)
{
  static const tern_generate_options defaults = {0};
  const tern_generate_options *o = opt ? opt : &defaults;
  reply r;
  *result = (tern_result){0};
  if (n == 0)
    return err_set(err, TERN_E_USAGE, "prompt: it has no tokens");
  size_t max_tokens = 0;
  TRY(admit(s, o, n, &max_tokens, err));
  tern_status status = reply_open(&r, s->model, o, ids[n - 1], max_tokens, -1, err);
  if (status == TERN_OK) {
    if (o->sampling.continue_draws && s->drew)
      sampler_set_key(r.sampler, s->key);
    status = run(s, &r, ids, n, result, err);
  }
  if (status == TERN_OK)
    status = hand_over(&r, result, err);
  if (r.sampler) {
    reply_forget(&r);
    s->key = sampler_key(r.sampler);
    s->drew = true;
  }
  reply_close(&r);
  if (status != TERN_OK)
    *result = (tern_result){0};
  return status;
}

tern_status tern_generate(tern_session *s, const int32_t *ids, size_t n, const tern_generate_options *opt,
                          tern_result *result, tern_error *err)
{
  session_uncancel(s->timeline); /* a cancel that came too late for the last answer is not meant for this one */
  return engine_generate(s, ids, n, opt, result, err);
}

void tern_result_clear(tern_result *result)
{
  mem_free(result->text);
  mem_free(result->ids);
  *result = (tern_result){0};
}
