/* openai.c - the two routes that generate, whole and as a stream.
 *
 * A request becomes a set of choices; each choice is a job. The whole answer waits until all have ended. A stream
 * begins once the first of them was admitted, so that a refusal still has its HTTP status; from then on an event goes
 * out whenever the worker rings, a comment when it was silent for long, and an error as an event.
 */
#include "server/openai.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { KEEP_ALIVE_MS = 10000 };

/* ---- from a request to jobs ---- */

typedef struct conversation {
  server *server;
  oai_request request;
  oai_writer writer;
  choices *set;
  int fd;
  bool begun;                    /* the stream's first events are out */
  bool closed[OAI_MOST_CHOICES]; /* choices whose end is out */
} conversation;

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

static void answer_fault(srv_response *a, const oai_fault *f)
{
  if (f->status || f->code)
    srv_error(a, f->status ? f->status : srv_http_status(f->err.status), f->param, f->code, f->err.text);
  else
    srv_fault(a, f->param, &f->err);
}

/* NULL: the response has the error. */
static conversation *open_conversation(server *s, const srv_request *q, bool is_chat, srv_response *a)
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
  v->fd = q->fd;
  bool ok = oai_read(s, root, is_chat, &v->request, &fault);
  if (ok) {
    ok = choices_open(s, v->request.n_prompts * v->request.n, &v->set, &fault.err) == TERN_OK;
    oai_writer_open(&v->writer, s, &v->request, q->number);
  }
  if (ok) {
    fill_jobs(v);
    ok = choices_submit(v->set, &fault.err) == TERN_OK;
  }
  if (ok)
    return v;
  answer_fault(a, &fault);
  close_conversation(v);
  return NULL;
}

/* ---- usage ---- */

static json_t *usage_of(const conversation *v)
{
  const oai_request *r = &v->request;
  size_t prompt = 0, completion = 0;
  for (int i = 0; i < r->n_prompts; i++)
    prompt += r->prompts[i].n;
  for (int i = 0; i < v->set->n; i++)
    completion += v->set->at[i].end.n_ids;
  return oai_usage(r, prompt, completion);
}

/* ---- whole ---- */

static json_t *whole_document(conversation *v)
{
  json_t *list = json_array();
  for (int i = 0; i < v->set->n; i++)
    json_array_append_new(list, oai_whole_choice(&v->writer, i, &v->set->at[i]));
  return oai_whole(&v->writer, list, usage_of(v));
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
      oai_add_event(srv_error_json(srv_http_status(c->end.status), NULL, NULL, why), out);
      return true;
    }
    if (!v->closed[i])
      oai_add_delta(&v->writer, i, c, c->ended, out);
    v->closed[i] = c->ended;
    forget_read(c);
    over = over && c->ended;
  }
  if (!over)
    return false;
  if (v->request.include_usage)
    oai_add_usage(&v->writer, usage_of(v), out);
  oai_add_done(out);
  return true;
}

static bool next_events(void *self, buf *out, bool *gone)
{
  conversation *v = self;
  if (!v->begun) {
    for (int i = 0; i < v->set->n; i++)
      oai_add_first(&v->writer, i, out);
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

/* ---- the routes ---- */

static void generate(server *s, const srv_request *q, bool is_chat, srv_response *a)
{
  conversation *v = open_conversation(s, q, is_chat, a);
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
    srv_json(a, 200, whole_document(v));
  close_conversation(v);
}

void oai_chat(server *s, const srv_request *q, srv_response *a)
{
  generate(s, q, true, a);
}

void oai_completions(server *s, const srv_request *q, srv_response *a)
{
  generate(s, q, false, a);
}
