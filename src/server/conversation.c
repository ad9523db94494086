/* conversation.c - see conversation.h. */
#include "server/conversation.h"

#include "base/mem.h"

enum { KEEP_ALIVE_MS = 10000 };

/* ---- from a request to jobs ---- */

static void close_conversation(conversation *v)
{
  choices_close(v->set); /* before what its jobs borrow */
  oai_clear(&v->request);
  mem_free(v);
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
  }
}

void oai_answer_fault(srv_response *a, const oai_fault *f)
{
  if (f->status || f->code)
    srv_error(a, f->status ? f->status : srv_http_status(f->err.status), f->param, f->code, f->err.text);
  else
    srv_fault(a, f->param, &f->err);
}

/* NULL: the response has the error. */
static conversation *open_conversation(server *s, const srv_request *q, const dialect *d, srv_response *a)
{
  json_t *root;
  oai_fault fault = {0};
  if (!srv_body(q, a, &root))
    return NULL;
  conversation *v = mem_zalloc(sizeof *v);
  if (!v) {
    json_decref(root);
    err_nomem(&fault.err, "request");
    srv_fault(a, NULL, &fault.err);
    return NULL;
  }
  v->server = s;
  v->dialect = d;
  v->fd = q->fd;
  v->request.root = root; /* freed with the conversation, whatever happens */
  bool ok = !d->translate || d->translate(&v->request.root, &fault);
  if (ok)
    ok = oai_read(s, v->request.root, d->chat, &v->request, &fault);
  if (ok) {
    ok = choices_open(s, v->request.n_prompts * v->request.n, &v->set, &fault.err) == TERN_OK;
    oai_writer_open(&v->writer, s, &v->request, d->prefix, q->number);
  }
  if (ok) {
    fill_jobs(v);
    ok = choices_submit(v->set, &fault.err) == TERN_OK;
  }
  if (ok)
    return v;
  oai_answer_fault(a, &fault);
  close_conversation(v);
  return NULL;
}

/* ---- whole ---- */

size_t conversation_prompt_tokens(const conversation *v)
{
  size_t n = 0;
  for (int i = 0; i < v->request.n_prompts; i++)
    n += v->request.prompts[i].n;
  return n;
}

size_t conversation_answer_tokens(const conversation *v)
{
  size_t n = 0;
  for (int i = 0; i < v->set->n; i++)
    n += v->set->at[i].end.n_ids;
  return n;
}

static bool any_failed(const choices *c)
{
  for (int i = 0; i < c->n; i++)
    if (c->at[i].failed)
      return true;
  return false;
}

/* Whether the wait is over: with `a` filled in where it went wrong. */
static bool wait_over(conversation *v, bool started_is_enough, srv_response *a)
{
  choices_lock(v->set);
  const choice *failure = choices_first_failure(v->set);
  bool over = failure || choices_all_ended(v->set) || (started_is_enough && choices_any_started(v->set));
  if (failure)
    srv_fault(a, NULL, &failure->err);
  else if (any_failed(v->set))
    srv_error(a, 503, NULL, NULL, "out of memory (answer)");
  choices_unlock(v->set);
  return over;
}

static void wait_for(conversation *v, bool started_is_enough, srv_response *a)
{
  while (!wait_over(v, started_is_enough, a))
    if (choices_wait(v->set, v->fd, -1) == CHOICES_GONE) {
      a->gone = true;
      return;
    }
}

/* ---- a stream ---- */

static void forget_read(choice *c)
{
  buf_clear(&c->text);
  c->n_tokens = 0;
}

/* What is new. True: the stream is over. */
static bool add_news(conversation *v, buf *out)
{
  bool over = true;
  for (int i = 0; i < v->set->n; i++) {
    choice *c = &v->set->at[i];
    if (c->ended && (c->end.status != TERN_OK || c->failed)) {
      const char *why = c->end.status != TERN_OK ? c->err.text : "out of memory (answer)";
      v->dialect->fail(v, srv_http_status(c->end.status), why, out);
      return true;
    }
    if (!v->closed[i])
      v->dialect->delta(v, i, c, out);
    v->closed[i] = c->ended;
    forget_read(c);
    over = over && c->ended;
  }
  if (!over)
    return false;
  v->dialect->finish(v, out);
  return true;
}

static bool next_events(void *self, buf *out, bool *gone)
{
  conversation *v = self;
  if (!v->begun) {
    v->dialect->begin(v, out);
    v->begun = true;
    if (out->length)
      return true;
  }
  for (;;) {
    choices_lock(v->set);
    bool over = add_news(v, out);
    choices_unlock(v->set);
    if (over || out->length)
      return !over;
    switch (choices_wait(v->set, v->fd, KEEP_ALIVE_MS)) {
    case CHOICES_GONE:
      *gone = true;
      return false;
    case CHOICES_QUIET:
      buf_adds(out, ": keepalive\n\n");
      return true;
    case CHOICES_NEWS:
      break;
    }
  }
}

static void close_stream(void *self)
{
  close_conversation(self);
}

/* ---- the route ---- */

void conversation_run(server *s, const srv_request *q, const dialect *d, srv_response *a)
{
  conversation *v = open_conversation(s, q, d, a);
  if (!v)
    return;
  wait_for(v, v->request.stream, a);
  if (!a->gone && !a->status && v->request.stream) {
    a->status = 200;
    a->type = "text/event-stream; charset=utf-8";
    a->source = (srv_source){next_events, close_stream, v};
    return;
  }
  if (!a->gone && !a->status)
    srv_json(a, 200, d->whole(v));
  close_conversation(v);
}
