/* scheduler_step.c - one forward over all running jobs: see scheduler.h.
 *
 * First every job that decodes chooses the tokens of its row: the last one that was drawn and, behind it, guesses. Then
 * pieces of prompts get what room is left, the older job's first. After the forward each job takes what was drawn for
 * it, and its state is cut back to the guesses that were right.
 */
#include <string.h>

#include "base/mem.h"
#include "engine/scheduler_impl.h"

/* Positions of its prompt that a job reads; the last one is stepped where an answer follows. */
static int64_t read_end(const sched_job *j)
{
  return (int64_t)j->n - !j->on_hidden;
}

static bool reads(const sched_job *j)
{
  return j->position < read_end(j);
}

/* The part of the prompt that fits: none straddles the position from which keys are quantised. */
static int piece_of(const scheduler *s, const sched_job *j, int most)
{
  const model *net = s->model->net;
  int64_t left = read_end(j) - j->position, together = model_piece_most(net, j->position);
  left = left < together ? left : together;
  if (net->prefill_step > 0 && net->prefill_step < most)
    most = net->prefill_step;
  return left < most ? (int)left : most;
}

/* "The logits behind every token." */
static const int32_t every[1 + REPLY_MOST_DRAFTS] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                                     17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};
_Static_assert(REPLY_MOST_DRAFTS == 32, "every[] names each token of the longest row");
_Static_assert((int)REPLY_MOST_DRAFTS <= (int)KV_SLACK, "a ring can be cut back by all guesses of a row");

static batch_row step_row(const sched_job *j)
{
  return (batch_row){.sequence = j->state,
                     .ids = j->next_ids,
                     .count = j->n_next,
                     .position = j->position,
                     .split = (int64_t)j->n - 1,
                     .kind = ROW_STEP,
                     .want = every,
                     .n_want = j->n_next,
                     .choose = !j->on_logits && reply_takes_largest(&j->reply)};
}

static batch_row read_row(const scheduler *s, const sched_job *j, int count)
{
  batch_row row = {.sequence = j->state,
                   .ids = &j->ids[j->position],
                   .count = count,
                   .position = j->position,
                   .split = read_end(j),
                   .kind = ROW_READ,
                   .hidden = j->on_hidden};
  bool last = j->position + count == read_end(j);
  if (j->on_hidden && (j->all || last)) {
    row.want = j->all ? s->numbers : s->numbers + count - 1;
    row.n_want = j->all ? count : 1;
  }
  return row;
}

typedef struct step {
  scheduler *scheduler;
  batch_row rows[MODEL_MAX_ROWS];
  sched_job *jobs[MODEL_MAX_ROWS];
  int n;
  int prompt_tokens;
} step;

static void add_row(step *t, sched_job *j, batch_row row)
{
  t->rows[t->n] = row;
  t->jobs[t->n++] = j;
}

/* Before a job's first step, where its slots will forget: its state so far, for later jobs. Without memory for that
 * there is no snapshot; its own blocks it has in any case. */
static tern_status take_snapshot(scheduler *s, sched_job *j)
{
  model *net = s->model->net;
  if (!s->forgets || j->snapshot || j->on_hidden || j->position != (int64_t)j->n - 1)
    return TERN_OK;
  if (kv_seq_open(net->store, &j->snapshot, NULL) != TERN_OK)
    return TERN_OK;
  if (kv_seq_clone(j->snapshot, j->state, NULL) == TERN_OK &&
      model_reserve(net, j->state, j->position, j->limit, NULL) == TERN_OK)
    return TERN_OK;
  kv_seq_close(j->snapshot);
  j->snapshot = NULL;
  return model_reserve(net, j->state, j->position, j->limit, &j->err);
}

void sched_take_snapshots(scheduler *s)
{
  for (int i = 0; i < s->n_running; i++) {
    sched_job *j = s->running[i];
    tern_status status = take_snapshot(s, j);
    if (status != TERN_OK)
      j->sampled = status;
  }
}

/* Guesses that may stand behind the job's next token: as many as its answer, its positions and `room` have place for.
 */
static int guess_most(const scheduler *s, const sched_job *j, int room)
{
  if (j->position < (int64_t)j->n)
    return 0; /* its first token is not drawn yet */
  int64_t together = model_piece_most(s->model->net, j->position), left = j->limit - j->position;
  left = left < together ? left : together;
  int most = left - 1 < room ? (int)(left - 1) : room;
  return most < REPLY_MOST_DRAFTS ? most : REPLY_MOST_DRAFTS;
}

/* Guesses of all jobs at once; a draft model reads their prompts meanwhile. */
static tern_status guess(scheduler *s, tern_error *err)
{
  draft_turn turns[MODEL_MAX_ROWS];
  int readers = 0, room = s->model->net->plan.max_tokens - s->n_running;
  for (int i = 0; i < s->n_running; i++)
    readers += reads(s->running[i]);
  int steps = s->n_running - readers;
  room = readers ? room / 2 : room; /* prompts go on beside guesses */
  int n = 0;
  for (int i = 0; i < s->n_running; i++)
    if (s->running[i]->drafter) /* a job that wants hidden states has none */
      turns[n++] = (draft_turn){.drafter = s->running[i]->drafter,
                                .reply = &s->running[i]->reply,
                                .most = steps ? guess_most(s, s->running[i], room / steps) : 0};
  /* A draft model reads as fast as the model does. */
  int share = steps ? s->options.prompt_share : s->model->net->plan.max_tokens;
  TRY(n ? draft_guess(turns, n, share, &s->closing, err) : TERN_OK);
  n = 0;
  for (int i = 0; i < s->n_running; i++) {
    sched_job *j = s->running[i];
    if (!j->drafter)
      continue;
    const draft_turn *turn = &turns[n++];
    memcpy(j->next_ids + 1, turn->ids, (size_t)turn->n * sizeof *turn->ids);
    j->n_next = 1 + turn->n;
  }
  return TERN_OK;
}

/* What the rows of jobs that decode will carry. */
static tern_status choose_tokens(scheduler *s, tern_error *err)
{
  for (int i = 0; i < s->n_running; i++) {
    sched_job *j = s->running[i];
    /* The prompt's last id, then what was drawn. */
    j->next_ids[0] = j->position < (int64_t)j->n ? j->ids[j->n - 1] : j->reply.token;
    j->n_next = 1;
  }
  if (draft_asked(&s->options.draft))
    TRY(guess(s, err));
  for (int i = 0; i < s->n_running; i++)
    reply_expect(&s->running[i]->reply, s->running[i]->next_ids + 1, s->running[i]->n_next - 1);
  return TERN_OK;
}

/* Steps of all that decode, then pieces of prompts, the older first. */
static void make_rows(scheduler *s, step *t)
{
  int readers = 0, budget;
  for (int i = 0; i < s->n_running; i++)
    if (reads(s->running[i]))
      readers++;
    else
      add_row(t, s->running[i], step_row(s->running[i]));
  budget = s->model->net->plan.max_tokens;
  for (int i = 0; i < t->n; i++)
    budget -= t->rows[i].count;
  if (t->n && budget > s->options.prompt_share)
    budget = s->options.prompt_share;
  for (int i = 0; i < s->n_running && readers && budget > 0; i++) {
    sched_job *j = s->running[i];
    if (!reads(j))
      continue;
    int fair = (budget + readers - 1) / readers, count = piece_of(s, j, fair);
    add_row(t, j, read_row(s, j, count));
    budget -= count;
    readers--;
    t->prompt_tokens += count;
  }
}

static void take_logits(void *user, int row, int index, float *logits)
{
  step *t = user;
  sched_job *j = t->jobs[row];
  if (j->on_hidden) {
    j->on_hidden(j->user, j->position + index, logits, t->scheduler->model->info.width);
    return;
  }
  if (j->on_logits && !j->reply.settled)
    j->on_logits(j->user, logits, t->scheduler->model->info.vocab);
  reply_sample(&j->reply, logits, &j->err);
}

static void take_chosen(void *user, int row, int index, int32_t chosen)
{
  step *t = user;
  (void)index;
  reply_take_largest(&t->jobs[row]->reply, chosen);
}

static tern_status take_token(sched_job *j)
{
  size_t before = reply_count(&j->reply);
  /* The token is part of the answer unless it is a stop id, which reply_accept knows; its text may go out inside. */
  TRY(reply_accept(&j->reply, &j->err));
  if (reply_count(&j->reply) > before && j->on_token)
    j->on_token(j->user, &j->reply);
  return TERN_OK;
}

/* All that the forward drew, unless the job ends on the way; its state then has what it took but the last. */
static tern_status take_tokens(sched_job *j)
{
  do
    TRY(take_token(j));
  while (reply_waits(&j->reply) && !atomic_load(&j->cancelled));
  j->position += j->reply.n_taken;
  if (j->reply.n_taken < j->n_next)
    kv_seq_truncate(j->state, j->position);
  return TERN_OK;
}

/* What the forward gave, to the jobs; those that ended leave. */
static void advance(scheduler *s, const step *t)
{
  uint64_t generated = 0, drafted = 0, accepted = 0;
  for (int i = 0; i < t->n; i++) {
    sched_job *j = t->jobs[i];
    if (t->rows[i].kind != ROW_STEP) {
      j->position += t->rows[i].count;
      if (j->on_hidden && !reads(j))
        j->reply.finish = "stop";
      continue;
    }
    size_t before = reply_count(&j->reply);
    uint64_t hit = j->reply.n_hit;
    j->sampled = take_tokens(j);
    generated += reply_count(&j->reply) - before;
    drafted += (uint64_t)t->rows[i].count - 1;
    accepted += j->reply.n_hit - hit;
  }
  pthread_mutex_lock(&s->lock);
  s->stats.steps++;
  s->stats.prompt_tokens += (uint64_t)t->prompt_tokens;
  for (int i = 0; i < t->n; i++)
    s->stats.prompt_tokens += t->rows[i].kind == ROW_STEP && t->jobs[i]->position == (int64_t)t->jobs[i]->n;
  s->stats.generated_tokens += generated;
  s->stats.drafted_tokens += drafted;
  s->stats.accepted_tokens += accepted;
  pthread_mutex_unlock(&s->lock);
}

tern_status sched_step(scheduler *s, tern_error *err)
{
  step t = {.scheduler = s};
  TRY(choose_tokens(s, err));
  make_rows(s, &t);
  mem_forbid(!t.prompt_tokens); /* in test builds: decoding allocates nothing */
  batch b = {t.rows, t.n, &s->closing, take_chosen, SAMPLER_APART};
  tern_status status = model_forward(s->model->net, &b, take_logits, &t, err);
  mem_forbid(false);
  if (status == TERN_OK)
    advance(s, &t);
  return status;
}
