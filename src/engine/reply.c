/* reply.c - see reply.h. */
#include "engine/reply.h"

#include "base/mem.h"

/* ---- options ---- */

static sample_type logits_type(const model *m)
{
  static const sample_type types[] = {[DT_F32] = SAMPLE_F32, [DT_BF16] = SAMPLE_BF16, [DT_F16] = SAMPLE_F16};
  return types[model_logits_dtype(m)];
}

/* An id that no logit stands for would never stop anything: a mistake of the caller's. */
static tern_status check_stop_ids(const reply *r, tern_error *err)
{
  const tern_generate_options *o = r->options;
  int vocab = r->model->info.vocab;
  for (size_t i = 0; i < o->n_stop_ids; i++)
    if (o->stop_ids[i] < 0 || o->stop_ids[i] >= vocab)
      return err_set(err, TERN_E_USAGE, "stop ids: %d is not a token id from 0 to %d", (int)o->stop_ids[i], vocab - 1);
  return TERN_OK;
}

/* What XTC never cuts, as in the reference: the newline's ids and the stop ids; and what the caller names. *ids:
 * mem_free. The model's own stop ids may lie beyond the logits (its config's fault, which the reference lets pass);
 * XTC cannot cut those. */
static tern_status spare(const reply *r, int32_t **ids, size_t *n, tern_error *err)
{
  const tern_generate_options *o = r->options;
  const tern_model *m = r->model;
  int32_t *newline;
  size_t n_newline;
  TRY(tok_encode(m->tok, "\n", 1, true, &newline, &n_newline, err));
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
  return *ids ? TERN_OK : err_nomem(err, "token ids");
}

static tern_status open_sampler(reply *r, tern_error *err)
{
  const tern_model *m = r->model;
  tern_sampling o = r->options->sampling;
  int32_t *spared = NULL;
  if (o.temp > 0 && o.xtc_probability > 0) {
    TRY(spare(r, &spared, &o.n_xtc_special, err));
    o.xtc_special = spared;
  }
  tern_status status = sampler_open(&o, m->info.vocab, logits_type(m->net), &r->sampler, err);
  mem_free(spared); /* the sampler has its own copy */
  TRY(status);
  sampler_limit_simd(r->sampler, m->net->simd);
  if (r->top < 0)
    sampler_choice_alone(r->sampler);
  return TERN_OK;
}

static tern_status open_constraint(reply *r, tern_error *err)
{
  if (r->options->grammar->model != r->model)
    return err_set(err, TERN_E_USAGE, "grammar: it was made for another model");
  TRY(constraint_open(r->options->grammar, r->options, &r->constraint, err));
  r->state = constraint_start(r->constraint);
  return TERN_OK;
}

tern_status reply_open(reply *r, const tern_model *m, const tern_generate_options *options, int32_t last,
                       size_t max_tokens, int top, tern_error *err)
{
  *r = (reply){.model = m, .options = options, .max_tokens = max_tokens, .top = top};
  TRY(check_stop_ids(r, err));
  TRY(open_sampler(r, err));
  TRY(detok_open(m->tok, false, &r->detok, err)); /* special tokens show, as in the reference */
  if (options->grammar) /* the text is what its tokens write, and nothing of it is trimmed: no spacing */
    TRY(open_constraint(r, err));
  else
    r->spacing = spacing_open(m->tok);
  TRY(stop_open(&r->stops, options->stops, options->n_stops, err));
  r->history = mem_array(max_tokens + 1, sizeof *r->history);
  if (!r->history)
    return err_nomem(err, "token list");
  r->history[r->n_history++] = last;
  return TERN_OK;
}

void reply_close(reply *r)
{
  sampler_close(r->sampler);
  constraint_close(r->constraint);
  detok_close(r->detok);
  spacing_close(&r->spacing);
  stop_close(&r->stops);
  mem_free(r->history);
  *r = (reply){0};
}

/* ---- text ---- */

static bool is_stop(const reply *r, int32_t id)
{
  const tern_model *m = r->model;
  for (size_t i = 0; !r->options->ignore_eos && i < m->n_stop_ids; i++)
    if (m->stop_ids[i] == id)
      return true;
  for (size_t i = 0; i < r->options->n_stop_ids; i++)
    if (r->options->stop_ids[i] == id)
      return true;
  return false;
}

static void send(reply *r, const char *text, size_t n)
{
  if (n && r->options->on_text && !r->refused && !r->options->on_text(r->options->user, text, n))
    r->refused = true;
}

/* Adds text; true if a stop string ended the answer. */
static bool add_text(reply *r, const char *text, size_t n)
{
  const char *ready;
  size_t length;
  bool stopped = stop_add(&r->stops, text, n, &ready, &length);
  send(r, ready, length);
  return stopped;
}

/* What the detokenizer and the stop scan still hold. */
static tern_status flush(reply *r, tern_error *err)
{
  const char *text;
  size_t n;
  TRY(detok_finish(r->detok, &text, &n, err));
  spacing_finish(&r->spacing, text, n, &text, &n);
  if (add_text(r, text, n)) {
    r->finish = "stop";
    return TERN_OK;
  }
  stop_finish(&r->stops, &text, &n);
  send(r, text, n);
  return TERN_OK;
}

/* ---- a token ---- */

void reply_expect(reply *r, const int32_t *drafts, int n)
{
  reply_forget(r);
  r->drafts = drafts;
  r->n_drafts = n;
  r->n_guessed += (uint64_t)n;
}

/* History of the next draw: what was drawn and not taken yet is part of it. */
static size_t history_length(const reply *r)
{
  return r->n_history + (size_t)r->n_drawn;
}

/* Of the next draw, what may come. */
static tern_status allow(reply *r, tern_error *err)
{
  const uint64_t *mask = NULL;
  if (!r->constraint)
    return TERN_OK;
  if (!r->n_drawn)
    constraint_trim(r->constraint, &r->state);
  TRY(constraint_mask(r->constraint, r->state, history_length(r) == 1, &mask, err));
  sampler_allow(r->sampler, mask);
  return TERN_OK;
}

static tern_status draw(reply *r, float *logits, tern_error *err)
{
  reply_draw *d = &r->drawn[r->n_drawn];
  TRY(allow(r, err));
  d->before = sampler_key(r->sampler);
  d->state_before = r->state;
  TRY(sampler_next(r->sampler, logits, r->history, history_length(r), &d->token, err));
  if (r->constraint)
    r->state = constraint_after(r->constraint, r->state, history_length(r) == 1, d->token);
  if (r->top >= 0) {
    d->logprob = logits[d->token];
    d->n_top = r->top ? sampler_top(r->sampler, logits, r->top, d->top_ids, d->top_values) : 0;
  }
  return TERN_OK;
}

/* Whether nothing may follow what was drawn. */
static bool is_whole(const reply *r)
{
  return r->constraint && constraint_is_over(r->constraint, r->state);
}

/* drawn[n_drawn] has its token. */
static void keep(reply *r)
{
  int32_t token = r->drawn[r->n_drawn].token;
  if (reply_count(r) + (size_t)r->n_drawn < r->max_tokens)
    r->history[history_length(r)] = token;
  bool guessed = r->n_drawn < r->n_drafts && token == r->drafts[r->n_drawn];
  r->n_drawn++;
  bool full = reply_count(r) + (size_t)r->n_drawn >= r->max_tokens;
  r->settled = !guessed || full || is_stop(r, token) || is_whole(r);
}

void reply_sample(reply *r, float *logits, tern_error *err)
{
  if (r->settled)
    return;
  bool forbidden = r->constraint && mem_forbid(false); /* a grammar's states are found where they are met */
  r->fault = draw(r, logits, err);
  if (forbidden)
    mem_forbid(true);
  if (r->fault == TERN_OK)
    keep(r);
  else
    r->settled = true;
}

bool reply_takes_largest(const reply *r)
{
  return r->top < 0 && !r->constraint && sampler_takes_largest(r->sampler);
}

void reply_take_largest(reply *r, int32_t token)
{
  if (r->settled)
    return;
  r->drawn[r->n_drawn] = (reply_draw){.token = token, .before = sampler_key(r->sampler)};
  keep(r);
}

void reply_forget(reply *r)
{
  if (r->n_taken < r->n_drawn) {
    sampler_set_key(r->sampler, r->drawn[r->n_taken].before);
    r->state = r->drawn[r->n_taken].state_before;
  }
  r->n_drawn = r->n_taken = r->n_drafts = 0;
  r->settled = false;
  r->fault = TERN_OK;
}

/* Sets finish where the token ends the answer. */
static tern_status take(reply *r, tern_error *err)
{
  if (is_stop(r, r->token)) {
    r->finish = "stop";
    return flush(r, err);
  }
  r->history[r->n_history++] = r->token;
  const char *text;
  size_t n;
  TRY(detok_push(r->detok, r->token, &text, &n, err));
  spacing_push(&r->spacing, text, n, &text, &n);
  if (add_text(r, text, n)) {
    r->finish = "stop";
    return TERN_OK;
  }
  if (r->n_taken == r->n_drawn && is_whole(r)) {
    r->finish = "stop";
    return flush(r, err);
  }
  if (reply_count(r) == r->max_tokens) {
    r->finish = "length";
    return flush(r, err);
  }
  if (r->refused)
    r->finish = "cancelled";
  return TERN_OK;
}

tern_status reply_accept(reply *r, tern_error *err)
{
  if (r->n_taken == r->n_drawn)
    return r->fault != TERN_OK ? r->fault : err_set(err, TERN_E_INTERNAL, "answer: no token was drawn");
  const reply_draw *d = &r->drawn[r->n_taken];
  r->n_hit += r->n_taken < r->n_drafts && d->token == r->drafts[r->n_taken];
  r->n_taken++;
  r->token = d->token;
  r->logprob = d->logprob;
  r->n_top = d->n_top;
  r->top_ids = d->top_ids;
  r->top_values = d->top_values;
  TRY(take(r, err));
  return r->stops.text.failed || r->spacing.text.failed ? err_nomem(err, "answer") : TERN_OK;
}
