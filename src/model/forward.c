/* forward.c - a batch becomes a step: rows are laid one after another, their blocks put in place, and the plan runs. */
#include <string.h>

#include "base/mem.h"
#include "model/model.h"

static tern_status check_row(const model *m, const batch_row *r, int index, tern_error *err)
{
  if (r->count <= 0 || r->position < 0)
    return err_set(err, TERN_E_INTERNAL, "batch row %d: %d tokens at %lld", index, r->count, (long long)r->position);
  if (r->kind == ROW_STEP && r->position < r->split)
    return err_set(err, TERN_E_INTERNAL, "batch row %d: a step at %lld, before the split at %lld", index,
                   (long long)r->position, (long long)r->split);
  if (r->kind == ROW_CANVAS || r->adapter)
    return err_set(err, TERN_E_UNSUPPORTED, "batch row %d: %s has no %s", index, m->profile.id,
                   r->adapter ? "adapters" : "canvas rows");
  if (m->weights.positions.data && r->position + r->count > m->weights.positions.n)
    return err_set(err, TERN_E_LIMIT, "context: %s has learned positions up to %lld", m->config.arch->name,
                   (long long)m->weights.positions.n);
  for (int i = 0; i < r->count; i++)
    if (r->ids[i] < 0 || r->ids[i] >= m->config.vocab)
      return err_set(err, TERN_E_USAGE, "token id %d: the vocabulary has ids 0 to %d", r->ids[i], m->config.vocab - 1);
  for (int i = 0; i < r->n_want; i++)
    if (r->want[i] < 0 || r->want[i] >= r->count || (i && r->want[i] <= r->want[i - 1]))
      return err_set(err, TERN_E_INTERNAL, "batch row %d: wanted tokens must ascend within the row", index);
  return TERN_OK;
}

/* A sequence in two rows would write over itself. */
static tern_status check_sequences(const batch *b, tern_error *err)
{
  for (int i = 0; i < b->n_rows; i++)
    for (int n = 0; n < i; n++)
      if (b->rows[i].sequence == b->rows[n].sequence)
        return err_set(err, TERN_E_INTERNAL, "batch rows %d and %d: the same sequence", n, i);
  return TERN_OK;
}

static tern_status place_spans(model *m, const batch_row *r, int first, tern_error *err)
{
  size_t width = (size_t)m->config.width;
  if (r->n_spans && !m->embeds) {
    m->embeds = mem_array((size_t)m->plan.max_tokens, width * sizeof *m->embeds);
    if (!m->embeds)
      return err_nomem(err, "input embeddings");
  }
  for (int i = 0; i < r->n_spans; i++) {
    const batch_span *s = &r->spans[i];
    if (s->start < 0 || s->count < 0 || s->start + s->count > r->count)
      return err_set(err, TERN_E_USAGE, "embeddings: a span of %d at %d leaves the row of %d", s->count, s->start,
                     r->count);
    memcpy(m->embeds + (size_t)(first + s->start) * width, s->rows, (size_t)s->count * width * sizeof *s->rows);
    memset(m->use + first + s->start, 1, (size_t)s->count);
  }
  return TERN_OK;
}

typedef struct relay {
  const model *m;
  batch_sink *sink;
  batch_chosen *chosen;
  void *user;
} relay;

static void pass_on(void *user, int index, float *values)
{
  const relay *r = user;
  r->sink(r->user, r->m->row_of_want[index], r->m->index_of_want[index], values);
}

static void pass_on_chosen(void *user, int index, int32_t chosen)
{
  const relay *r = user;
  r->chosen(r->user, r->m->row_of_want[index], r->m->index_of_want[index], chosen);
}

/* Tokens whose hidden states are wanted, behind those whose logits are. How many. */
static int add_hidden(model *m, const batch *b, int at)
{
  int n = 0;
  for (int i = 0; i < b->n_rows; i++)
    for (int k = 0; k < b->rows[i].n_want && b->rows[i].hidden; k++, n++) {
      m->row_of_want[at + n] = i;
      m->index_of_want[at + n] = b->rows[i].want[k];
      m->want[at + n] = m->rows[i].first + b->rows[i].want[k];
    }
  return n;
}

tern_status model_forward(model *m, const batch *b, batch_sink *sink, void *user, tern_error *err)
{
  ops_step step = {.ids = m->ids, .row = m->rows, .rows = b->n_rows, .want = m->want};
  if (b->n_rows > MODEL_MAX_ROWS)
    return err_set(err, TERN_E_INTERNAL, "batch: %d rows, at most %d", b->n_rows, MODEL_MAX_ROWS);
  TRY(check_sequences(b, err));
  memset(m->use, 0, (size_t)m->plan.max_tokens);
  for (int i = 0; i < b->n_rows; i++) {
    const batch_row *r = &b->rows[i];
    TRY(check_row(m, r, i, err));
    if (r->count > m->plan.max_tokens - step.tokens)
      return err_set(err, TERN_E_INTERNAL, "batch: more than %d tokens", m->plan.max_tokens);
    TRY(place_spans(m, r, step.tokens, err));
    if (r->n_spans) {
      step.embeds = m->embeds;
      step.use = m->use;
    }
    TRY(kv_seq_prepare(r->sequence, r->position, r->count, err));
    memcpy(m->ids + step.tokens, r->ids, (size_t)r->count * sizeof *r->ids);
    m->rows[i] = (ops_row){.first = step.tokens,
                           .count = r->count,
                           .position = r->position,
                           .kind = r->kind,
                           .split = r->split,
                           .adapter = r->adapter,
                           .slots = kv_seq_views(r->sequence)};
    for (int n = 0; n < r->n_want && !r->hidden; n++) {
      m->row_of_want[step.wanted] = i;
      m->index_of_want[step.wanted] = r->want[n];
      m->choose_of_want[step.wanted] = r->choose;
      m->want[step.wanted++] = step.tokens + r->want[n];
    }
    step.tokens += r->count;
  }
  relay to = {m, sink, b->chosen, user};
  plan_choice choice = {m->choose_of_want, b->apart, pass_on_chosen};
  int hidden = add_hidden(m, b, step.wanted);
  if (!plan_run(&m->cx, &m->plan, &step, b->cancelled, pass_on, b->chosen ? &choice : NULL, &to) ||
      !plan_run_hidden(&m->cx, &m->plan, &step, m->want + step.wanted, hidden, step.wanted, b->cancelled, pass_on, &to))
    return err_set(err, TERN_E_CANCELLED, "cancelled");
  if (m->cx.backend->check)
    TRY(m->cx.backend->check(&m->cx, err));
  TRY(prepared_check(m->prepared, err));
  return ckpt_check(m->ckpt, err);
}
