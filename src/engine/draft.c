/* draft.c - see draft.h: options, following an answer, how many to guess, lookup. The draft model is draft_model.c. */
#include <string.h>

#include "base/mem.h"
#include "engine/draft_impl.h"

enum { LOOKUP_TOKENS = 10, MODEL_TOKENS = 3, LOOKUP_LEAST = 2, LOOKUP_MOST = 5, PATIENCE = 16 };

/* What a row more costs in a step of one, measured on a 1B model with 4 bits (docs/performance.md has the rates of one
 * and of eight rows, docs/cuda.md those of a GPU). A wrong number here costs time and nothing else. */
static const struct {
  bool device, fast;
  double cost;
} row_costs[] = {{false, false, 0.3}, {false, true, 0.22}, {true, false, 0.1}, {true, true, 0.06}};

/* ---- options ---- */

static tern_status check_vocabulary(const tern_model *draft, const tern_model *target, tern_error *err)
{
  int32_t a = tok_vocab_size(draft->tok), b = tok_vocab_size(target->tok), n = a > b ? a : b;
  for (int32_t id = 0; id < n; id++) {
    size_t n_there = 0, n_here = 0;
    const char *there = tok_piece(draft->tok, id, &n_there), *here = tok_piece(target->tok, id, &n_here);
    if (!there && !here)
      continue;
    if (!there || !here)
      return err_set(err, TERN_E_UNSUPPORTED,
                     "draft model: its vocabulary is another: token %d, \"%.*s\", is one of %s alone", (int)id,
                     (int)(there ? n_there : n_here), there ? there : here, there ? "the draft model" : "the model");
    if (n_there != n_here || memcmp(there, here, n_here))
      return err_set(err, TERN_E_UNSUPPORTED,
                     "draft model: its vocabulary is another: token %d is \"%.*s\" there and \"%.*s\" in the model",
                     (int)id, (int)n_there, there, (int)n_here, here);
  }
  return TERN_OK;
}

tern_status draft_check(const tern_draft *o, const tern_model *target, tern_error *err)
{
  if (o->lookup + (o->model != NULL) + (o->guess != NULL) > 1)
    return err_set(err, TERN_E_USAGE, "draft: lookup, a draft model and a function exclude each other");
  if (o->tokens < 0 || o->tokens > REPLY_MOST_DRAFTS)
    return err_set(err, TERN_E_USAGE, "num-draft-tokens: %d: give a number from 1 to %d", o->tokens, REPLY_MOST_DRAFTS);
  if ((o->tokens || o->always) && !draft_asked(o))
    return err_set(err, TERN_E_USAGE, "num-draft-tokens: nothing makes drafts: a draft model or lookup does");
  if (o->model == target)
    return err_set(err, TERN_E_USAGE, "draft model: it is the model itself: open it a second time");
  return o->model ? check_vocabulary(o->model, target, err) : TERN_OK;
}

size_t draft_state_bytes(const tern_draft *o, int64_t positions)
{
  const model *net = o->model ? o->model->net : NULL;
  return net ? kv_store_estimate(net->store, positions, net->plan.max_tokens) : 0;
}

size_t draft_scratch_bytes(const tern_draft *o, int64_t positions)
{
  return o->model ? model_scratch_bytes(o->model->net, positions) : 0;
}

/* ---- open ---- */

static double row_cost(const model *m)
{
  for (size_t i = 0; i < sizeof row_costs / sizeof *row_costs; i++)
    if (row_costs[i].device == m->cx.backend->own_memory && row_costs[i].fast == (m->numerics == TERN_FAST))
      return row_costs[i].cost;
  return 0.3;
}

tern_status drafter_open(const tern_draft *o, const tern_model *target, drafter **out, tern_error *err)
{
  drafter *d = mem_zalloc(sizeof *d);
  if (!d)
    return err_nomem(err, "drafts");
  d->options = *o;
  d->target = target;
  d->most = o->tokens ? o->tokens : o->model ? MODEL_TOKENS : LOOKUP_TOKENS;
  d->row_cost = row_cost(target->net);
  tern_status status = o->model ? draft_model_open(d, err) : TERN_OK;
  if (status != TERN_OK) {
    drafter_close(d);
    return status;
  }
  *out = d;
  return TERN_OK;
}

void drafter_close(drafter *d)
{
  if (!d)
    return;
  draft_model_close(d);
  mem_free(d->ids);
  mem_free(d);
}

tern_status drafter_begin(drafter *d, const tern_generate_options *options, const int32_t *ids, size_t n, int64_t limit,
                          prefixes *kept, tern_error *err)
{
  size_t same = 0;
  if (!mem_grow(&d->ids, &d->capacity, (size_t)limit + 1 + REPLY_MOST_DRAFTS, sizeof *d->ids))
    return err_nomem(err, "token list");
  while (same < n && (int64_t)same < d->consumed && d->ids[same] == ids[same])
    same++;
  memcpy(d->ids, ids, n * sizeof *ids);
  d->n_prompt = d->length = n;
  d->n_guesses = 0;
  d->seen_guessed = d->seen_hit = 0;
  d->idle = 0;
  for (int i = 0; i < DRAFT_RECORDS; i++)
    d->records[i] = (draft_record){.hits = i ? 1.8 : 1.4, .tries = 2};
  if (!d->options.model)
    return TERN_OK;
  draft_model_cut(d, (int64_t)same);
  if (kept && !d->consumed)
    d->consumed = prefixes_resume(kept, d->state, ids, (int64_t)n);
  return draft_model_begin(d, options, limit, err);
}

/* ---- how many ---- */

/* What became of the last guess. */
static void learn(drafter *d, const reply *r)
{
  static const double fade = 0.85;
  uint64_t guessed = r->n_guessed - d->seen_guessed, hit = r->n_hit - d->seen_hit;
  draft_record *record = &d->records[d->record];
  d->seen_guessed = r->n_guessed;
  d->seen_hit = r->n_hit;
  if (!guessed)
    return;
  record->hits = fade * record->hits + (double)hit;
  record->tries = fade * record->tries + (double)(hit + (hit < guessed)); /* behind a wrong one nothing is known */
}

/* The number of guesses for which tokens a cost are most, where `beside` timelines step together. */
static int worth(const drafter *d, int beside, int most)
{
  double p = d->records[d->record].hits / d->records[d->record].tries, chance = 1;
  double tokens = beside, cost = 1 + d->row_cost * (beside - 1), best = tokens / cost;
  int n = 0;
  for (int k = 1; k <= most; k++) {
    chance *= p;
    tokens += chance;
    cost += d->row_cost + d->guess_cost;
    if (tokens > best * cost) {
      best = tokens / cost;
      n = k;
    }
  }
  return n;
}

/* How many of `most` possible guesses to make. Where none is worth it, one is tried now and again. */
static int choose(drafter *d, int beside, int most)
{
  if (d->options.always)
    return most;
  int n = most ? worth(d, beside, most) : 0;
  if (!most || n || ++d->idle >= PATIENCE) {
    n = most && !n ? 1 : n;
    d->idle = n ? 0 : d->idle;
  }
  return n;
}

/* ---- following ---- */

/* What the reply took since the last turn joins the timeline. */
static void follow(drafter *d, const reply *r)
{
  const int32_t *taken = reply_ids(r);
  size_t length = d->n_prompt + reply_count(r);
  for (size_t i = d->length; i < length; i++) {
    int32_t id = taken[i - d->n_prompt];
    if ((int64_t)i < d->consumed && d->ids[i] != id)
      draft_model_cut(d, (int64_t)i);
    d->ids[i] = id;
  }
  d->length = length;
}

/* ---- lookup ---- */

/* The place behind the latest of the longest earlier runs that end as the timeline does, 0: none. */
static size_t find(const int32_t *ids, size_t n, int *matched)
{
  size_t place = 0;
  *matched = LOOKUP_LEAST - 1;
  for (size_t end = n - 1; end > 0 && *matched < LOOKUP_MOST; end--) {
    int same = 0;
    while (same < LOOKUP_MOST && (size_t)same < end && ids[end - 1 - (size_t)same] == ids[n - 1 - (size_t)same])
      same++;
    if (same > *matched) {
      *matched = same;
      place = end;
    }
  }
  return place;
}

static int look_up(drafter *d, int beside, int most)
{
  int matched;
  size_t place = find(d->ids, d->length, &matched);
  if (!place)
    return 0;
  d->record = matched == LOOKUP_MOST;
  int n = choose(d, beside, most);
  /* Where the earlier run reaches into the end, what follows repeats. */
  for (size_t i = 0; i < (size_t)n; i++)
    d->guesses[i] = place + i < d->length ? d->ids[place + i] : d->guesses[place + i - d->length];
  return n;
}

/* ---- turns ---- */

static int call(drafter *d, int most)
{
  int n = d->options.guess(d->options.user, d->ids, d->length, d->guesses, most);
  n = n < 0 ? 0 : n < most ? n : most;
  for (int i = 0; i < n; i++)
    if (d->guesses[i] < 0 || d->guesses[i] >= d->target->info.vocab)
      return i;
  return n;
}

tern_status draft_guess(draft_turn *turns, int n, int share, const atomic_bool *cancelled, tern_error *err)
{
  for (int i = 0; i < n; i++) {
    drafter *d = turns[i].drafter;
    int most = turns[i].most < d->most ? turns[i].most : d->most;
    learn(d, turns[i].reply);
    follow(d, turns[i].reply);
    if (d->options.guess)
      d->n_guesses = most > 0 ? call(d, most) : 0;
    else if (d->options.lookup)
      d->n_guesses = most > 0 ? look_up(d, n, most) : 0;
    else
      d->n_guesses = choose(d, n, most > 0 ? most : 0);
    turns[i].ids = d->guesses;
    turns[i].n = d->n_guesses;
  }
  return turns[0].drafter->options.model ? draft_model_guess(turns, n, share, cancelled, err) : TERN_OK;
}
