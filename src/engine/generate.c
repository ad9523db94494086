/* generate.c - one answer: sync, then sample and step until something ends it.
 *
 * The order within one token is the reference's (mlx_lm.generate.stream_generate): a stop id ends the answer before it
 * is added to the text, and the token that reaches max_tokens is still part of it. A token that ends the answer is not
 * consumed by the session.
 */
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/sample.h"
#include "engine/spacing.h"
#include "engine/stop.h"
#include "text/detok.h"

enum { DEFAULT_MAX_TOKENS = 256 };

typedef struct answer {
  tern_session *session;
  const tern_generate_options *options;
  sampler *sampler;
  detok *detok;
  spacing spacing;
  stop_scan stops;
  int32_t *history; /* last prompt token, then what was generated: what penalties look back on */
  size_t n_history;
  int32_t token; /* sampled last */
  tern_status sampled;
  tern_error *err;
  const char *finish;
  bool refused; /* on_text asked to end */
} answer;

static double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sample(void *user, int64_t position, float *logits)
{
  (void)position;
  answer *a = user;
  a->sampled = sampler_next(a->sampler, logits, a->history, a->n_history, &a->token, a->err);
}

static bool is_stop(const answer *a, int32_t id)
{
  const tern_model *m = a->session->model;
  for (size_t i = 0; !a->options->ignore_eos && i < m->n_stop_ids; i++)
    if (m->stop_ids[i] == id)
      return true;
  for (size_t i = 0; i < a->options->n_stop_ids; i++)
    if (a->options->stop_ids[i] == id)
      return true;
  return false;
}

static void send(answer *a, const char *text, size_t n)
{
  if (n && a->options->on_text && !a->refused && !a->options->on_text(a->options->user, text, n))
    a->refused = true;
}

/* Adds text; true if a stop string ended the answer. */
static bool add_text(answer *a, const char *text, size_t n)
{
  const char *ready;
  size_t length;
  bool stopped = stop_add(&a->stops, text, n, &ready, &length);
  send(a, ready, length);
  return stopped;
}

/* What the detokenizer and the stop scan still hold. */
static tern_status flush(answer *a)
{
  const char *text;
  size_t n;
  TRY(detok_finish(a->detok, &text, &n, a->err));
  spacing_finish(&a->spacing, text, n, &text, &n);
  if (add_text(a, text, n)) {
    a->finish = "stop";
    return TERN_OK;
  }
  stop_finish(&a->stops, &text, &n);
  send(a, text, n);
  return TERN_OK;
}

/* Takes the sampled token; sets finish where it ends the answer. */
static tern_status accept(answer *a, size_t max_tokens)
{
  if (is_stop(a, a->token)) {
    a->finish = "stop";
    return flush(a);
  }
  a->history[a->n_history++] = a->token;
  const char *text;
  size_t n;
  TRY(detok_push(a->detok, a->token, &text, &n, a->err));
  spacing_push(&a->spacing, text, n, &text, &n);
  if (add_text(a, text, n)) {
    a->finish = "stop";
    return TERN_OK;
  }
  if (a->n_history - 1 == max_tokens) {
    a->finish = "length";
    return flush(a);
  }
  if (a->refused)
    a->finish = "cancelled";
  return TERN_OK;
}

static tern_status run(answer *a, const int32_t *ids, size_t n, size_t max_tokens, tern_result *result)
{
  double start = seconds();
  session_sink sink = {sample, a};
  session_request request = {.ids = ids, .n = n, .limit = (int64_t)(n + max_tokens - 1)};
  a->history[a->n_history++] = ids[n - 1];
  result->prompt_tokens = n;
  TRY(session_sync(a->session->timeline, &request, &sink, &result->cached_tokens, a->err));
  TRY(a->sampled);
  double prompt_end = seconds();
  result->prompt_seconds = prompt_end - start;
  for (;;) {
    TRY(accept(a, max_tokens));
    if (a->stops.text.failed || a->spacing.text.failed)
      return err_nomem(a->err, "answer");
    if (a->finish)
      break;
    TRY(session_step(a->session->timeline, a->token, &sink, a->err));
    TRY(a->sampled);
  }
  result->decode_seconds = seconds() - prompt_end;
  return TERN_OK;
}

static sample_type logits_type(const model *m)
{
  static const sample_type types[] = {[DT_F32] = SAMPLE_F32, [DT_BF16] = SAMPLE_BF16, [DT_F16] = SAMPLE_F16};
  return types[model_logits_dtype(m)];
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

/* An id that no logit stands for would never stop anything: a mistake of the caller's. */
static tern_status check_stop_ids(const answer *a)
{
  const tern_generate_options *o = a->options;
  int vocab = a->session->model->info.vocab;
  for (size_t i = 0; i < o->n_stop_ids; i++)
    if (o->stop_ids[i] < 0 || o->stop_ids[i] >= vocab)
      return err_set(a->err, TERN_E_USAGE, "stop ids: %d is not a token id from 0 to %d", (int)o->stop_ids[i],
                     vocab - 1);
  return TERN_OK;
}

/* What XTC never cuts, as in the reference: the newline's ids and the stop ids; and what the caller names. *ids:
 * mem_free. The model's own stop ids may lie beyond the logits (its config's fault, which the reference lets pass);
 * XTC cannot cut those. */
static tern_status spare(const answer *a, int32_t **ids, size_t *n)
{
  const tern_generate_options *o = a->options;
  const tern_model *m = a->session->model;
  int32_t *newline;
  size_t n_newline;
  TRY(tok_encode(m->tok, "\n", 1, true, &newline, &n_newline, a->err));
  const struct {
    const int32_t *ids;
    size_t n;
    bool unchecked;
  } parts[] = {{newline, n_newline, true},
               {m->stop_ids, m->n_stop_ids, true},
               {o->stop_ids, o->n_stop_ids, false},
               {o->sampling.xtc_special, o->sampling.n_xtc_special, false}};
  size_t room = n_newline + m->n_stop_ids + o->n_stop_ids + o->sampling.n_xtc_special;
  *n = 0;
  *ids = mem_array(room, sizeof **ids);
  for (size_t p = 0; *ids && p < sizeof parts / sizeof *parts; p++)
    for (size_t i = 0; i < parts[p].n; i++)
      if (!parts[p].unchecked || parts[p].ids[i] < m->info.vocab)
        (*ids)[(*n)++] = parts[p].ids[i];
  mem_free(newline);
  return *ids ? TERN_OK : err_nomem(a->err, "token ids");
}

static tern_status open_sampler(answer *a)
{
  const tern_model *m = a->session->model;
  tern_sampling o = a->options->sampling;
  int32_t *spared = NULL;
  if (o.temp > 0 && o.xtc_probability > 0) {
    TRY(spare(a, &spared, &o.n_xtc_special));
    o.xtc_special = spared;
  }
  tern_status status = sampler_open(&o, m->info.vocab, logits_type(m->net), &a->sampler, a->err);
  mem_free(spared); /* the sampler has its own copy */
  return status;
}

static tern_status prepare(answer *a, size_t max_tokens)
{
  const tern_generate_options *o = a->options;
  const tern_model *m = a->session->model;
  TRY(check_stop_ids(a));
  TRY(open_sampler(a));
  sampler_limit_simd(a->sampler, m->net->simd);
  sampler_choice_alone(a->sampler);
  if (o->sampling.continue_draws && a->session->drew)
    sampler_set_key(a->sampler, a->session->key);
  TRY(detok_open(m->tok, false, &a->detok, a->err)); /* special tokens show, as in the reference */
  a->spacing = spacing_open(m->tok);
  TRY(stop_open(&a->stops, o->stops, o->n_stops, a->err));
  a->history = mem_array(max_tokens + 1, sizeof *a->history);
  return a->history ? TERN_OK : err_nomem(a->err, "token list");
}

/* Hands text and ids over; on failure nothing. */
static tern_status hand_over(answer *a, tern_result *result)
{
  size_t n = a->n_history - 1;
  memmove(a->history, a->history + 1, n * sizeof *a->history);
  result->text = buf_take(&a->stops.text);
  if (!result->text)
    return err_nomem(a->err, "answer");
  result->ids = a->history;
  a->history = NULL;
  result->n_ids = n;
  result->finish = a->finish;
  return TERN_OK;
}

tern_status engine_generate(tern_session *s, const int32_t *ids, size_t n, const tern_generate_options *opt,
                            tern_result *result, tern_error *err)
{
  static const tern_generate_options defaults = {0};
  answer a = {.session = s, .options = opt ? opt : &defaults, .err = err};
  *result = (tern_result){0};
  if (n == 0)
    return err_set(err, TERN_E_USAGE, "prompt: it has no tokens");
  size_t max_tokens = 0;
  TRY(admit(s, a.options, n, &max_tokens, err));
  tern_status status = prepare(&a, max_tokens);
  if (status == TERN_OK)
    status = run(&a, ids, n, max_tokens, result);
  if (status == TERN_OK)
    status = hand_over(&a, result);
  if (a.sampler) {
    s->key = sampler_key(a.sampler);
    s->drew = true;
  }
  sampler_close(a.sampler);
  detok_close(a.detok);
  spacing_close(&a.spacing);
  stop_close(&a.stops);
  mem_free(a.history);
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
