/* generate.c - one answer over a session: sync, then sample and step until something ends it. What a token does to the
 * answer is reply.h's.
 */
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "engine/reply.h"

enum { DEFAULT_MAX_TOKENS = 256 };

static double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct draw {
  reply *reply;
  tern_status status;
  tern_error *err;
} draw;

static void sample(void *user, int64_t position, float *logits)
{
  (void)position;
  draw *d = user;
  d->status = reply_sample(d->reply, logits, d->err);
}

static tern_status run(tern_session *s, reply *r, const int32_t *ids, size_t n, tern_result *result, tern_error *err)
{
  double start = seconds();
  draw d = {.reply = r, .err = err};
  session_sink sink = {sample, &d};
  session_request request = {.ids = ids,
                             .n = n,
                             .limit = (int64_t)(n + r->max_tokens - 1),
                             .on_read = r->options->on_prompt,
                             .user = r->options->user};
  result->prompt_tokens = n;
  TRY(session_sync(s->timeline, &request, &sink, &result->cached_tokens, err));
  TRY(d.status);
  double prompt_end = seconds();
  result->prompt_seconds = prompt_end - start;
  for (;;) {
    TRY(reply_accept(r, err));
    if (r->finish)
      break;
    TRY(session_step(s->timeline, r->token, &sink, err));
    TRY(d.status);
  }
  result->decode_seconds = seconds() - prompt_end;
  return TERN_OK;
}

/* How many tokens may come: what was asked for, or all that fits. Refuses what does not, before anything is allocated.
 */
static tern_status admit(const tern_session *s, const tern_generate_options *o, size_t n, size_t *max_tokens,
                         tern_error *err)
{
  size_t context = (size_t)session_context(s->timeline);
  size_t asked = o->max_tokens > 0 ? (size_t)o->max_tokens : o->max_tokens < 0 ? 1 : DEFAULT_MAX_TOKENS;
  if (n + asked - 1 > context)
    return err_set(err, TERN_E_LIMIT,
                   "context: a prompt of %zu tokens and %zu to come need %zu positions, but there are %zu", n,
                   asked - 1, n + asked - 1, context);
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
