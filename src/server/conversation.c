/* conversation.c - see conversation.h. */
#include "server/conversation.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

enum { KEEP_ALIVE_MS = 10000, PIECE_TOKENS = 64 /* with log-probabilities, in one event */ };

static const char closing[] = "the server is closing";

/* ---- from a request to jobs ---- */

static void free_own(conversation_own own)
{
  if (own.free)
    own.free(own.data);
}

static void close_conversation(conversation *v)
{
  choices_close(v->set); /* before what its jobs borrow */
  for (int i = 0; i < OAI_MOST_CHOICES; i++) {
    parts_close(v->readers[i]);
    parts_free(&v->said[i]);
    json_decref(v->call_ids[i]);
  }
  oai_writer_close(&v->writer);
  oai_clear(&v->request);
  free_own(v->own);
  mem_free(v);
}

/* Where reasoning stands between tokens of its own, those can be counted. */
static void count_reasoning(const conversation *v, choice *c)
{
  const parts_reasoning *r = v->request.parts.reasoning;
  if (!r || strcmp(r->start, r->tokens[0]) != 0)
    return;
  for (int i = 0; i < 2; i++)
    c->reasoning_ids[i] = tok_id(v->server->model->tok, r->tokens[i], strlen(r->tokens[i]));
  if (c->reasoning_ids[1] < 0)
    c->reasoning_ids[0] = -1;
  c->reasons = v->request.parts.opened;
}

/* Choice i answers prompt i / n; of one prompt's answers each has a seed of its own. */
static void fill_jobs(conversation *v)
{
  const oai_request *r = &v->request;
  for (int i = 0; i < v->set->n; i++) {
    sched_job *j = &v->set->at[i].job;
    const oai_prompt *p = &r->prompts[i / r->n];
    j->ids = p->ids;
    j->n = p->n;
    j->top = r->logprobs ? r->top_logprobs : -1;
    j->options.sampling = r->sampling;
    j->options.sampling.seed += (uint64_t)(i % r->n);
    j->options.max_tokens = r->max_tokens;
    j->options.stops = r->stops;
    j->options.n_stops = r->n_stops;
    j->options.grammar = r->grammar;
    count_reasoning(v, &v->set->at[i]);
  }
}

static bool open_readers(conversation *v, tern_error *err)
{
  for (int i = 0; i < v->set->n; i++)
    if (!(v->readers[i] = parts_open(&v->request.parts))) {
      err_nomem(err, "request");
      return false;
    }
  return true;
}

void oai_answer_fault(srv_response *a, const oai_fault *f)
{
  if (f->err.status == TERN_E_CANCELLED) /* encoding was: the client has left */
    a->gone = true;
  else if (f->status || f->code)
    srv_error(a, f->status ? f->status : srv_http_status(f->err.status), f->param, f->code, f->err.text);
  else
    srv_fault(a, f->param, &f->err);
}

/* What is wrong with a shared field that was made of another one is wrong with that. */
static void rename_fault(oai_fault *f, const conversation_own *own)
{
  for (const conversation_name *n = own->names; n && n->made; n++)
    oai_rename(f, n->made, n->asked);
  for (const srv_fields *const *t = own->fields; t && *t; t++)
    if (fields_rename(*t, f))
      return;
}

/* NULL: the response has the error. */
static conversation *open_conversation(server *s, const srv_request *q, json_t *root, conversation_own own,
                                       const dialect *d, srv_response *a)
{
  oai_fault fault = {0};
  conversation *v = mem_zalloc(sizeof *v);
  if (!v) {
    json_decref(root);
    free_own(own);
    err_nomem(&fault.err, "request");
    srv_fault(a, NULL, &fault.err);
    return NULL;
  }
  v->server = s;
  v->dialect = d;
  v->own = own;
  v->fd = q->fd;
  v->lines = a->type != NULL;
  v->number = q->number;
  v->request.fills = own.fills;
  v->request.ask = srv_ask(&v->fd);
  v->request.schema_place = own.schema_place;
  v->request.tool_schema = d->tool_schema;
  v->request.root = root; /* freed with the conversation, whatever happens */
  bool ok = !d->translate || d->translate(s, &v->request.root, &fault);
  if (ok)
    ok = oai_read(s, v->request.root, d->chat, &v->request, &fault) && oai_check_context(s, &v->request, &fault);
  if (ok) {
    ok = choices_open(s, v->request.n_prompts * v->request.n, &v->set, &fault.err) == TERN_OK;
    oai_writer_open(&v->writer, s, &v->request, d->prefix, q->number);
  }
  if (ok) {
    fill_jobs(v);
    v->request.parts.pieces = v->request.stream && !d->whole_calls;
    ok = open_readers(v, &fault.err) && choices_submit(v->set, &fault.err) == TERN_OK;
  }
  if (ok)
    return v;
  rename_fault(&fault, &own);
  oai_answer_fault(a, &fault);
  close_conversation(v);
  return NULL;
}

/* ---- what answers say ---- */

/* Calls have ids that no other call of this server has. Nine letters and digits are all that some templates take: a
 * number is spread over them by a factor that is prime to 36^9, so that no two are the same. */
static char *new_call_id(const conversation *v, int index, size_t nth)
{
  static const uint64_t most = 101559956668416, spread = 55555555555541; /* 36^9 */
  static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  uint64_t number = (v->number * OAI_MOST_CHOICES + (uint64_t)index) << 10 | (nth & 1023);
  char id[64];
  if (!v->request.parts.calls->short_ids) {
    snprintf(id, sizeof id, "%s%08llx%08llx%03zx", v->dialect->call_prefix, (unsigned long long)v->server->started,
             (unsigned long long)v->number * OAI_MOST_CHOICES + (unsigned)index, nth);
    return mem_strdup(id);
  }
  number = (uint64_t)((unsigned __int128)(number + (uint64_t)v->server->started) * spread % most);
  for (int i = 0; i < 9; i++, number /= 36)
    id[i] = digits[number % 36];
  return mem_strndup(id, 9);
}

/* The model's own id, if it is the first of its kind in the answer. */
static bool keep_call_id(conversation *v, int index, const char *id)
{
  json_t *known = v->call_ids[index];
  if (!known)
    known = v->call_ids[index] = json_object();
  return !json_object_get(known, id) && json_object_set_new(known, id, json_true()) == 0;
}

static void name_call(conversation *v, int index, tool_call *c)
{
  if (!c->id || !keep_call_id(v, index, c->id)) {
    mem_free(c->id);
    c->id = new_call_id(v, index, v->begun_calls[index]);
    v->said[index].failed |= !c->id;
  }
  v->begun_calls[index]++;
}

/* Counts and names the calls that are new; of one that was to be the only one, what follows it goes. */
static void name_calls(conversation *v, int index)
{
  answer_parts *said = &v->said[index];
  for (size_t i = 0; i < said->n; i++) {
    answer_part *p = &said->at[i];
    if (v->request.one_call && v->calls[index])
      p->kind = PART_DROPPED;
    if (p->kind == PART_CALL || p->kind == PART_CALL_BEGIN)
      name_call(v, index, &p->call);
    v->calls[index] += p->kind == PART_CALL || p->kind == PART_CALL_END;
  }
}

/* A stretch of the choice's text, which may be its last, into `said`. */
static void take_apart(conversation *v, int index, const buf *text, const sched_end *end)
{
  answer_parts *said = &v->said[index];
  parts_clear(said);
  parts_feed(v->readers[index], text->data ? text->data : "", text->length, said);
  if (end)
    parts_end(v->readers[index], end->stop || !end->finish || strcmp(end->finish, "stop") != 0, said);
  name_calls(v, index);
}

const char *conversation_finish(const conversation *v, int index, const sched_end *end)
{
  return v->calls[index] && end->finish && !strcmp(end->finish, "stop") ? "tool_calls" : end->finish;
}

/* ---- whole ---- */

size_t conversation_prompt_tokens(const conversation *v)
{
  size_t n = 0;
  for (int i = 0; i < v->request.n_prompts; i++)
    n += v->request.prompts[i].n;
  return n;
}

size_t conversation_cached_tokens(const conversation *v)
{
  size_t n = 0;
  for (int i = 0; i < v->set->n; i += v->request.n)
    n += v->set->at[i].cached;
  return n;
}

size_t conversation_answer_tokens(const conversation *v)
{
  size_t n = 0;
  for (int i = 0; i < v->set->n; i++)
    n += v->set->at[i].end.n_ids;
  return n;
}

bool conversation_reasoning_tokens(const conversation *v, size_t *n)
{
  *n = 0;
  for (int i = 0; i < v->set->n; i++) {
    const choice *c = &v->set->at[i];
    bool reasoned = v->readers[i] && parts_reasoning_bytes(v->readers[i]) > 0;
    if (reasoned != (c->reasoned > 0)) /* letters that spell the marker, or no token for it */
      return false;
    *n += c->reasoned;
  }
  return v->request.parts.reasoning && v->set->at[0].reasoning_ids[0] >= 0;
}

static bool any_failed(const choices *c)
{
  for (int i = 0; i < c->n; i++)
    if (c->at[i].failed)
      return true;
  return false;
}

/* Whether the wait is over: with `a` filled in where it went wrong, outside the lock. */
static bool wait_over(conversation *v, bool started_is_enough, srv_response *a)
{
  tern_error why = {0};
  choices_lock(v->set);
  const choice *failure = choices_first_failure(v->set);
  bool broken = any_failed(v->set), begun = started_is_enough && choices_any_started(v->set);
  bool over = failure || broken || begun || choices_all_ended(v->set);
  if (failure)
    why = failure->err;
  else if (broken)
    err_nomem(&why, "answer");
  choices_unlock(v->set);
  if (why.status != TERN_OK)
    srv_fault(a, NULL, &why);
  return over;
}

static void wait_for(conversation *v, bool started_is_enough, srv_response *a)
{
  while (!wait_over(v, started_is_enough, a))
    switch (choices_wait(v->set, v->fd, -1)) {
    case CHOICES_GONE:
      a->gone = true;
      return;
    case CHOICES_ENDING:
      srv_error(a, 503, NULL, "closing", closing);
      return;
    case CHOICES_NEWS:
    case CHOICES_QUIET:
      break;
    }
}

/* All have ended: the lock is held for form. */
static void answer_whole(conversation *v, srv_response *a)
{
  buf text = {0};
  choices_lock(v->set);
  for (int i = 0; i < v->set->n; i++)
    choice_take(&v->set->at[i]);
  choices_unlock(v->set);
  for (int i = 0; i < v->set->n; i++) {
    take_apart(v, i, &v->set->at[i].taken.text, &v->set->at[i].end);
    text.failed |= v->said[i].failed;
  }
  if (!text.failed) /* else parts may lack names and texts */
    v->dialect->whole(v, &text);
  srv_text(a, 200, &text);
}

/* ---- a stream ---- */

/* Under the lock: what came of the choices whose last part is out. False: one failed, and the stream ends with that. */
static bool take_news(conversation *v, tern_error *why)
{
  for (int i = 0; i < v->set->n; i++) {
    choice *c = &v->set->at[i];
    if (c->ended && c->end.status != TERN_OK) {
      *why = c->err;
      why->status = c->end.status;
      return false;
    }
    if (c->ended && c->failed) {
      err_nomem(why, "answer");
      return false;
    }
    if (v->ended[i] || v->told[i] < c->taken.n_tokens)
      continue;
    choice_take(c);
    v->told[i] = 0;
    v->ended[i] = c->ended;
  }
  return true;
}

/* Tells a piece of what was taken: a reader that was slow finds many tokens, and one event has not too many. */
static void tell_piece(conversation *v, int i, buf *out)
{
  choice *c = &v->set->at[i];
  choice_part piece = c->taken;
  size_t left = c->taken.n_tokens - v->told[i];
  piece.tokens = c->taken.tokens ? c->taken.tokens + v->told[i] : NULL;
  piece.n_tokens = left < PIECE_TOKENS ? left : PIECE_TOKENS;
  v->closed[i] = v->ended[i] && piece.n_tokens == left;
  take_apart(v, i, &piece.text, v->closed[i] ? &c->end : NULL);
  if (v->said[i].failed) /* parts may lack names and texts then, and no dialect is to look */
    return;
  v->dialect->delta(v, i, &piece, v->closed[i] ? &c->end : NULL, out);
  v->told[i] += piece.n_tokens;
  buf_clear(&c->taken.text);
}

/* What is new, outside the lock: the worker does not wait for it. True: the stream is over. */
static bool add_news(conversation *v, buf *out)
{
  bool over = true;
  tern_error why = {0};
  choices_lock(v->set);
  bool well = take_news(v, &why);
  choices_unlock(v->set);
  if (!well) {
    v->dialect->fail(v, srv_http_status(why.status), why.text, out);
    return true;
  }
  for (int i = 0; i < v->set->n; i++) {
    if (!v->closed[i])
      tell_piece(v, i, out);
    over = over && v->closed[i];
    if (v->said[i].failed) {
      v->dialect->fail(v, 503, "out of memory (answer)", out);
      return true;
    }
  }
  if (over)
    v->dialect->finish(v, out);
  return over;
}

static int64_t now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Tokens may come for long of which nothing is told yet, those of a call: then too the client is to hear something. */
static bool next_events(void *self, buf *out, bool *gone)
{
  conversation *v = self;
  int64_t until = now_ms() + KEEP_ALIVE_MS;
  if (!v->begun) {
    v->dialect->begin(v, out);
    v->begun = true;
    if (out->length)
      return true;
  }
  for (;;) {
    bool over = add_news(v, out);
    if (!over && atomic_load(&v->server->ending)) {
      v->dialect->fail(v, 503, closing, out);
      return false;
    }
    if (over || out->length)
      return !over;
    int64_t left = until - now_ms();
    switch (left > 0 ? choices_wait(v->set, v->fd, (int)left) : CHOICES_QUIET) {
    case CHOICES_GONE:
      *gone = true;
      return false;
    case CHOICES_QUIET:
      if (v->lines)
        break;
      buf_adds(out, ": keepalive\n\n");
      return true;
    case CHOICES_NEWS:
    case CHOICES_ENDING:
      break;
    }
  }
}

static void close_stream(void *self)
{
  close_conversation(self);
}

/* ---- the route ---- */

void conversation_answer(server *s, const srv_request *q, json_t *root, conversation_own own, const dialect *d,
                         srv_response *a)
{
  conversation *v = open_conversation(s, q, root, own, d, a);
  if (!v)
    return;
  wait_for(v, v->request.stream, a);
  if (!a->gone && !a->status && v->request.stream) {
    a->status = 200;
    if (!a->type)
      a->type = "text/event-stream; charset=utf-8";
    a->source = (srv_source){next_events, close_stream, v};
    return;
  }
  if (!a->gone && !a->status)
    answer_whole(v, a);
  close_conversation(v);
}

void conversation_run(server *s, const srv_request *q, const dialect *d, srv_response *a)
{
  json_t *root;
  if (srv_body(q, a, &root))
    conversation_answer(s, q, root, (conversation_own){0}, d, a);
}
