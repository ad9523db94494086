/* session.c - see session.h.
 *
 * Three facts about the timeline decide what may be reused: which ids it consumed, where its split lay (tokens from
 * there on were stepped), and which positions its rings still hold. The snapshot is a second sequence that shares
 * blocks with the first: its state at the split, kept where the model has slots that forget.
 */
#include "engine/session.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "engine/sample.h"

enum { CONTEXT_UNDECLARED = 1 << 20, MLX_PIECE = 2048 /* the reference's prefill_step_size */ };

struct session {
  model *m;
  int context;
  kv_seq *state, *snapshot;
  int64_t snapshot_length; /* tokens that the snapshot holds; 0: none */
  int32_t *ids;            /* consumed */
  size_t length, capacity;
  int64_t split;    /* tokens from here on were stepped */
  int64_t reserved; /* positions that steps may use */
  int32_t *every;   /* [plan.max_tokens] 0, 1, 2, ...: "want all" */
  atomic_bool cancelled;
};

int session_default_context(const model_config *c)
{
  return c->max_positions ? c->max_positions : CONTEXT_UNDECLARED;
}

tern_status session_open(model *m, int context, session **out, tern_error *err)
{
  if (context < 0)
    return err_set(err, TERN_E_USAGE, "ctx: %d is negative", context);
  if (m->weights.positions.data && context > m->weights.positions.n)
    return err_set(err, TERN_E_LIMIT, "ctx: %d positions, but %s has learned %lld and no more", context,
                   m->config.arch->name, (long long)m->weights.positions.n);
  session *s = mem_zalloc(sizeof *s);
  if (!s)
    return err_nomem(err, "session");
  s->m = m;
  s->context = context ? context : session_default_context(&m->config);
  s->every = mem_array((size_t)m->plan.max_tokens, sizeof *s->every);
  tern_status status = s->every ? TERN_OK : err_nomem(err, "session");
  if (status == TERN_OK)
    status = kv_seq_open(m->store, &s->state, err);
  if (status == TERN_OK)
    status = kv_seq_open(m->store, &s->snapshot, err);
  if (status != TERN_OK) {
    session_close(s);
    return status;
  }
  for (int i = 0; i < m->plan.max_tokens; i++)
    s->every[i] = i;
  *out = s;
  return TERN_OK;
}

void session_close(session *s)
{
  if (!s)
    return;
  kv_seq_close(s->state);
  kv_seq_close(s->snapshot);
  mem_free(s->ids);
  mem_free(s->every);
  mem_free(s);
}

void session_cancel(session *s)
{
  atomic_store(&s->cancelled, true);
}

const atomic_bool *session_cancelled(const session *s)
{
  return &s->cancelled;
}

void session_uncancel(session *s)
{
  atomic_store(&s->cancelled, false);
}

int session_context(const session *s)
{
  return s->context;
}

size_t session_length(const session *s)
{
  return s->length;
}

const int32_t *session_ids(const session *s)
{
  return s->ids;
}

/* ---- forwards ---- */

typedef struct relay {
  const session_sink *sink;
  int64_t position; /* of the row's first token */
} relay;

static void pass_on(void *user, int row, int index, float *logits)
{
  (void)row;
  const relay *r = user;
  r->sink->row(r->sink->user, r->position + index, logits);
}

static void pass_on_chosen(void *user, int row, int index, int32_t chosen)
{
  (void)row;
  const relay *r = user;
  r->sink->chosen(r->sink->user, r->position + index, chosen);
}

/* Consumes ids[0..count) of one kind. want: NULL: no logits. */
static tern_status consume(session *s, const int32_t *ids, int count, ops_row_kind kind, const int32_t *want,
                           int n_want, const session_sink *sink, tern_error *err)
{
  if (atomic_load(&s->cancelled))
    return err_set(err, TERN_E_CANCELLED, "cancelled after %zu tokens", s->length);
  batch_row row = {.sequence = s->state,
                   .ids = ids,
                   .count = count,
                   .position = (int64_t)s->length,
                   .split = s->split,
                   .kind = kind,
                   .want = want,
                   .n_want = n_want,
                   .choose = sink && sink->chosen};
  relay to = {sink, row.position};
  batch b = {&row, 1, &s->cancelled, row.choose ? pass_on_chosen : NULL, SAMPLER_APART};
  TRY(model_forward(s->m, &b, pass_on, &to, err));
  memmove(s->ids + s->length, ids, (size_t)count * sizeof *ids);
  s->length += (size_t)count;
  return TERN_OK;
}

/* ---- reuse ---- */

static size_t common_prefix(const session *s, const int32_t *ids, size_t n)
{
  size_t most = s->length < n ? s->length : n, i = 0;
  while (i < most && s->ids[i] == ids[i])
    i++;
  return i;
}

/* Cuts the state to the longest reusable beginning of `ids` under the new split, and returns its length. */
static tern_status cut_to_reusable(session *s, const int32_t *ids, int64_t split, size_t *kept, tern_error *err)
{
  /* Tokens from the split on must run again: they give the logits. */
  int64_t length = (int64_t)common_prefix(s, ids, (size_t)split);
  int64_t sensitive = model_sensitive_from(s->m);
  int64_t first_other = s->split > sensitive ? s->split : sensitive;
  if (length > first_other)
    length = first_other;
  if (!kv_seq_can_resume(s->state, length)) {
    if (length > s->snapshot_length)
      length = s->snapshot_length;
    s->length = 0; /* what the state holds, should cloning fail */
    if (kv_seq_can_resume(s->snapshot, length))
      TRY(kv_seq_clone(s->state, s->snapshot, err));
    else
      length = 0;
  }
  kv_seq_truncate(s->state, length);
  s->length = (size_t)length;
  if (s->snapshot_length > length) {
    kv_seq_truncate(s->snapshot, length);
    s->snapshot_length = length;
  }
  *kept = (size_t)length;
  return TERN_OK;
}

/* ---- sync ---- */

static int64_t split_of(const session_request *r, int piece)
{
  int64_t n = (int64_t)r->n;
  switch (r->split) {
  case SPLIT_ONE:
    return n;
  case SPLIT_MLX: /* n - 1 tokens in pieces; a piece of one is a step, and so is everything after it */
    if (piece == 1)
      return 0;
    return (n - 1) % piece == 1 ? n - 2 : n - 1;
  default:
    return n - 1;
  }
}

static tern_status check_request(const session *s, const session_request *r, tern_error *err)
{
  if (r->n == 0)
    return err_set(err, TERN_E_USAGE, "prompt: it has no tokens");
  for (size_t i = 0; i < r->n; i++)
    if (r->ids[i] < 0 || r->ids[i] >= s->m->config.vocab)
      return err_set(err, TERN_E_USAGE, "prompt: token id %d at place %zu: the vocabulary has ids 0 to %d", r->ids[i],
                     i, s->m->config.vocab - 1);
  int64_t need = r->limit > (int64_t)r->n ? r->limit : (int64_t)r->n;
  if (need > s->context)
    return err_set(err, TERN_E_LIMIT,
                   "context: a prompt of %zu tokens and %lld to come need %lld positions, but there are %d", r->n,
                   (long long)(need - (int64_t)r->n), (long long)need, s->context);
  return TERN_OK;
}

static tern_status read_tokens(session *s, const session_request *r, int piece, const session_sink *sink,
                               tern_error *err)
{
  while ((int64_t)s->length < s->split) {
    int64_t left = s->split - (int64_t)s->length, most = model_piece_most(s->m, (int64_t)s->length);
    left = left < most ? left : most;
    int count = left < piece ? (int)left : piece;
    bool last = s->length + (size_t)count == r->n; /* SPLIT_ONE alone reads the last token */
    const int32_t *want = r->all ? s->every : last ? &s->every[count - 1] : NULL;
    TRY(consume(s, r->ids + s->length, count, ROW_READ, want, r->all ? count : want != NULL, sink, err));
    if (r->on_read)
      r->on_read(r->user, s->length, r->n);
  }
  return TERN_OK;
}

tern_status session_sync(session *s, const session_request *r, const session_sink *sink, size_t *cached,
                         tern_error *err)
{
  TRY(check_request(s, r, err));
  int asked = r->piece > 0 ? r->piece : s->m->prefill_step;
  int piece = asked > 0 && asked < s->m->plan.max_tokens ? asked : s->m->plan.max_tokens;
  int64_t split = split_of(r, asked > 0 ? asked : MLX_PIECE);
  int64_t limit = r->limit > (int64_t)r->n ? r->limit : (int64_t)r->n;
  if (!mem_grow(&s->ids, &s->capacity, (size_t)limit, sizeof *s->ids))
    return err_nomem(err, "token list");
  size_t kept = 0;
  TRY(cut_to_reusable(s, r->ids, r->all || r->split != SPLIT_CANONICAL ? 0 : split, &kept, err));
  s->split = split;
  s->reserved = 0;
  TRY(model_reserve(s->m, s->state, (int64_t)kept, limit, err));
  TRY(read_tokens(s, r, piece, sink, err));
  if (model_sensitive_from(s->m) != INT64_MAX) {
    s->snapshot_length = 0;
    TRY(kv_seq_clone(s->snapshot, s->state, err));
    s->snapshot_length = (int64_t)s->length;
    TRY(model_reserve(s->m, s->state, (int64_t)s->length, limit, err));
  }
  s->reserved = limit;
  while (s->length < r->n) {
    bool wanted = r->all || s->length + 1 == r->n;
    TRY(consume(s, r->ids + s->length, 1, ROW_STEP, s->every, wanted, sink, err));
  }
  if (cached)
    *cached = kept;
  return TERN_OK;
}

int session_steps_most(const session *s)
{
  int64_t most = s->reserved - (int64_t)s->length, together = model_piece_most(s->m, (int64_t)s->length);
  most = most < together ? most : together;
  most = most < s->m->plan.max_tokens ? most : s->m->plan.max_tokens;
  return most > 0 ? (int)most : 0;
}

tern_status session_steps(session *s, const int32_t *ids, int n, const session_sink *sink, tern_error *err)
{
  if ((int64_t)s->length + n > s->reserved)
    return err_set(err, TERN_E_LIMIT, "context: position %lld was not admitted", (long long)s->length + n - 1);
  if (n < 1 || n > session_steps_most(s))
    return err_set(err, TERN_E_INTERNAL, "%d steps at position %zu: 1 to %d may be taken together", n, s->length,
                   session_steps_most(s));
  mem_forbid(true); /* in test builds: the token loop allocates nothing */
  tern_status status = consume(s, ids, n, ROW_STEP, s->every, n, sink, err);
  mem_forbid(false);
  return status;
}

tern_status session_step(session *s, int32_t id, const session_sink *sink, tern_error *err)
{
  return session_steps(s, &id, 1, sink, err);
}

tern_status session_rewind(session *s, size_t length, tern_error *err)
{
  if (length >= s->length)
    return TERN_OK;
  if (!kv_seq_can_resume(s->state, (int64_t)length))
    return err_set(err, TERN_E_INTERNAL, "session: %zu tokens cannot be cut back to %zu", s->length, length);
  kv_seq_truncate(s->state, (int64_t)length);
  s->length = length;
  if (s->snapshot_length > (int64_t)length) {
    kv_seq_truncate(s->snapshot, (int64_t)length);
    s->snapshot_length = (int64_t)length;
  }
  return TERN_OK;
}

/* ---- kept states ---- */

prefix_of session_kept(const session *s)
{
  int64_t length = (int64_t)s->length, split = s->split;
  bool whole = s->snapshot_length > 0 && s->snapshot_length == (split < length ? split : length);
  return (prefix_of){.state = s->state,
                     .snapshot = whole ? s->snapshot : NULL,
                     .prompt = s->ids,
                     .n = length,
                     .length = length,
                     .split = split};
}

tern_status session_take(session *s, const prefix_of *of, tern_error *err)
{
  int64_t in_prompt = of->length < of->n ? of->length : of->n;
  if (!mem_grow(&s->ids, &s->capacity, (size_t)of->length, sizeof *s->ids))
    return err_nomem(err, "token list");
  s->length = 0; /* what the state holds, should cloning fail */
  s->snapshot_length = s->reserved = 0;
  TRY(kv_seq_clone(s->state, of->state, err));
  if (of->snapshot) {
    TRY(kv_seq_clone(s->snapshot, of->snapshot, err));
    s->snapshot_length = of->split < of->length ? of->split : of->length;
  }
  memcpy(s->ids, of->prompt, (size_t)in_prompt * sizeof *s->ids);
  if (of->length > in_prompt)
    memcpy(s->ids + in_prompt, of->more, (size_t)(of->length - in_prompt) * sizeof *s->ids);
  s->length = (size_t)of->length;
  s->split = of->split;
  return TERN_OK;
}

/* ---- several timelines ---- */

typedef struct many_relay {
  void (*row)(void *user, int which, float *logits);
  void (*chosen)(void *user, int which, int32_t token);
  void *user;
} many_relay;

static void pass_row(void *user, int row, int index, float *logits)
{
  (void)index;
  const many_relay *r = user;
  r->row(r->user, row, logits);
}

static void pass_chosen(void *user, int row, int index, int32_t token)
{
  (void)index;
  const many_relay *r = user;
  r->chosen(r->user, row, token);
}

tern_status session_step_many(session *const *s, const int32_t *ids, int n,
                              void (*row)(void *user, int which, float *logits),
                              void (*chosen)(void *user, int which, int32_t token), void *user, tern_error *err)
{
  batch_row rows[MODEL_MAX_ROWS];
  if (n < 1 || n > MODEL_MAX_ROWS)
    return err_set(err, TERN_E_USAGE, "batch: %d rows, but 1 to %d run together", n, MODEL_MAX_ROWS);
  for (int i = 0; i < n; i++) {
    if (atomic_load(&s[i]->cancelled))
      return err_set(err, TERN_E_CANCELLED, "cancelled after %zu tokens", s[i]->length);
    if ((int64_t)s[i]->length >= s[i]->reserved)
      return err_set(err, TERN_E_LIMIT, "context: position %zu was not admitted", s[i]->length);
    rows[i] = (batch_row){.sequence = s[i]->state,
                          .ids = &ids[i],
                          .count = 1,
                          .position = (int64_t)s[i]->length,
                          .split = s[i]->split,
                          .kind = ROW_STEP,
                          .want = s[i]->every,
                          .n_want = 1,
                          .choose = chosen};
  }
  many_relay to = {row, chosen, user};
  batch b = {rows, n, &s[0]->cancelled, chosen ? pass_chosen : NULL, SAMPLER_APART};
  TRY(model_forward(s[0]->m, &b, pass_row, &to, err));
  for (int i = 0; i < n; i++)
    s[i]->ids[s[i]->length++] = ids[i];
  return TERN_OK;
}
