/* draft_model.c - the draft model of draft.h: its state follows the timeline, and goes ahead of it by some tokens.
 *
 * A turn is at most k forwards of the draft model. The first brings every timeline up to its last token, as far as
 * `share` allows; who has got there draws a guess from its logits, and the others wait for their next turn. The next
 * forwards step the guesses. When the target drew something else, the state is cut back (kv_seq_truncate); a ring that
 * has let go of too much is read again from the beginning.
 */
#include <string.h>

#include "base/mem.h"
#include "engine/draft_impl.h"

static int vocabulary(const drafter *d)
{
  int there = d->options.model->info.vocab, here = d->target->info.vocab;
  return there < here ? there : here;
}

tern_status draft_model_open(drafter *d, tern_error *err)
{
  model *net = d->options.model->net;
  d->guess_cost = (double)model_weight_bytes(net) / (double)(model_weight_bytes(d->target->net) + 1);
  return kv_seq_open(net->store, &d->state, err);
}

void draft_model_close(drafter *d)
{
  sampler_close(d->sampler);
  kv_seq_close(d->state);
}

void draft_model_cut(drafter *d, int64_t length)
{
  if (length >= d->consumed)
    return;
  d->consumed = kv_seq_can_resume(d->state, length) ? length : 0;
  kv_seq_truncate(d->state, d->consumed);
}

/* Its bits are nobody's promise, so that all of it serves: as if no token of it had been stepped. */
void drafter_keep(const drafter *d, prefixes *kept)
{
  if (d->state)
    prefixes_keep(
        kept, &(prefix_of){
                  .state = d->state, .prompt = d->ids, .n = d->consumed, .length = d->consumed, .split = d->consumed});
}

/* The target's options; greedy where they do not hold for the part of the vocabulary that both have. */
static tern_status open_sampler(drafter *d, const tern_generate_options *options, tern_error *err)
{
  static const sample_type types[] = {[DT_F32] = SAMPLE_F32, [DT_BF16] = SAMPLE_BF16, [DT_F16] = SAMPLE_F16};
  model *net = d->options.model->net;
  sample_type type = types[model_logits_dtype(net)];
  sampler_close(d->sampler);
  d->sampler = NULL;
  if (sampler_open(&options->sampling, vocabulary(d), type, &d->sampler, NULL) != TERN_OK)
    TRY(sampler_open(&(tern_sampling){0}, vocabulary(d), type, &d->sampler, err));
  sampler_limit_simd(d->sampler, net->simd);
  sampler_choice_alone(d->sampler);
  return TERN_OK;
}

tern_status draft_model_begin(drafter *d, const tern_generate_options *options, int64_t limit, tern_error *err)
{
  TRY(open_sampler(d, options, err));
  d->lost = false;
  tern_status status = model_reserve(d->options.model->net, d->state, d->consumed, limit, err);
  return status == TERN_OK ? TERN_OK : err_prefix(err, status, "draft model");
}

/* ---- a turn ---- */

/* Timelines in one forward. */
typedef struct round {
  batch_row rows[MODEL_MAX_ROWS];
  draft_turn *turns[MODEL_MAX_ROWS];
  int32_t want[MODEL_MAX_ROWS];
  int n;
} round;

static void draw(void *user, int row, int index, float *logits)
{
  (void)index;
  const round *at = user;
  drafter *d = at->turns[row]->drafter;
  size_t begin = d->n_prompt - 1, end = d->length + (size_t)d->n_guesses;
  int32_t id;
  /* What cannot be drawn is not guessed. */
  if (sampler_next(d->sampler, logits, d->ids + begin, end - begin, &id, NULL) != TERN_OK)
    return;
  d->ids[end] = id;
  d->guesses[d->n_guesses++] = id;
}

static void add_row(round *at, draft_turn *turn, int count, bool wanted)
{
  drafter *d = turn->drafter;
  at->want[at->n] = count - 1;
  at->rows[at->n] = (batch_row){.sequence = d->state,
                                .ids = d->ids + d->consumed,
                                .count = count,
                                .position = d->consumed,
                                .kind = count > 1 + REPLY_MOST_DRAFTS ? ROW_READ : ROW_STEP, /* bits do not matter */
                                .want = &at->want[at->n],
                                .n_want = wanted};
  at->turns[at->n++] = turn;
}

static tern_status run(round *at, const atomic_bool *cancelled, tern_error *err)
{
  if (!at->n)
    return TERN_OK;
  model *net = at->turns[0]->drafter->options.model->net;
  TRY(model_forward(net, &(batch){.rows = at->rows, .n_rows = at->n, .cancelled = cancelled}, draw, at, err));
  for (int i = 0; i < at->n; i++)
    at->turns[i]->drafter->consumed += at->rows[i].count;
  return TERN_OK;
}

/* Whether the draft model has the ids and positions that are wanted of it. */
static bool can_follow(drafter *d, int guesses)
{
  const model *net = d->options.model->net;
  const int64_t *most = net->weights.positions.data ? &net->weights.positions.n : NULL;
  for (size_t i = (size_t)d->consumed; i < d->length && !d->lost; i++)
    d->lost = d->ids[i] >= net->config.vocab;
  d->lost = d->lost || (most && (int64_t)d->length + guesses > *most);
  return !d->lost;
}

tern_status draft_model_guess(draft_turn *turns, int n, int share, const atomic_bool *cancelled, tern_error *err)
{
  model *net = turns[0].drafter->options.model->net;
  int room = net->plan.max_tokens, wanted = 0;
  round at = {0};
  for (int i = 0; i < n; i++) {
    drafter *d = turns[i].drafter;
    int most = turns[i].n;
    d->n_guesses = turns[i].n = 0;
    draft_model_cut(d, (int64_t)d->length - 1); /* guesses that nobody took went further than the answer */
    int64_t behind = (int64_t)d->length - d->consumed;
    if (!can_follow(d, most) || (!most && behind <= 1 + REPLY_MOST_DRAFTS))
      continue;
    /* A step or two are always let through; what is more is a prompt. */
    int fit = behind > 1 + REPLY_MOST_DRAFTS ? share : room;
    fit = fit < room - (n - 1 - i) ? fit : room - (n - 1 - i);
    int count = behind < fit ? (int)behind : fit;
    if (count < 1)
      continue;
    room -= count;
    share -= behind > 1 + REPLY_MOST_DRAFTS ? count : 0;
    turns[i].n = count == behind ? most : 0;
    wanted = turns[i].n > wanted ? turns[i].n : wanted;
    sampler_set_key(d->sampler, sampler_key(turns[i].reply->sampler));
    add_row(&at, &turns[i], count, turns[i].n > 0);
  }
  TRY(run(&at, cancelled, err));
  for (int k = 1; k < wanted; k++) {
    at.n = 0;
    for (int i = 0; i < n; i++)
      if (turns[i].n > k && turns[i].drafter->n_guesses == k)
        add_row(&at, &turns[i], 1, true);
    TRY(run(&at, cancelled, err));
  }
  for (int i = 0; i < n; i++)
    turns[i].n = turns[i].drafter->n_guesses;
  return TERN_OK;
}
