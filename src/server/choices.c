/* choices.c - see choices.h. */
#include "server/choices.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

/* ---- on the worker ---- */

static void ring(choices *c)
{
  eventfd_write(c->bell, 1);
}

static bool add_text(void *user, const char *text, size_t n)
{
  choice *o = user;
  pthread_mutex_lock(&o->set->lock);
  buf_add(&o->coming.text, text, n);
  o->failed |= o->coming.text.failed;
  bool go_on = !o->failed;
  pthread_mutex_unlock(&o->set->lock);
  return go_on;
}

/* Whether it is a token of reasoning, or an end of it. */
static bool count_reasoning(choice *o, int32_t token)
{
  if (o->reasoning_ids[0] < 0)
    return false;
  o->reasons |= token == o->reasoning_ids[0];
  bool counts = o->reasons;
  o->reasoned += counts;
  o->reasons &= token != o->reasoning_ids[1];
  return counts;
}

static void add_token(void *user, const reply *r)
{
  choice *o = user;
  choice_part *p = &o->coming;
  pthread_mutex_lock(&o->set->lock);
  if (o->first == 0)
    o->first = srv_seconds();
  bool reasoning = count_reasoning(o, r->token);
  if (o->job.top >= 0) {
    if (mem_grow(&p->tokens, &p->capacity, p->n_tokens + 1, sizeof *p->tokens)) {
      choice_token *t = &p->tokens[p->n_tokens++];
      t->id = r->token;
      t->logprob = r->logprob;
      t->reasoning = reasoning;
      t->n_top = r->n_top;
      memcpy(t->top_ids, r->top_ids, (size_t)r->n_top * sizeof *t->top_ids);
      memcpy(t->top_values, r->top_values, (size_t)r->n_top * sizeof *t->top_values);
    } else {
      o->failed = true;
    }
  }
  bool news = p->text.length || p->n_tokens;
  pthread_mutex_unlock(&o->set->lock);
  if (news)
    ring(o->set);
}

static void note_start(void *user)
{
  choice *o = user;
  pthread_mutex_lock(&o->set->lock);
  o->started = true;
  o->began = srv_seconds();
  o->cached = (size_t)o->job.cached;
  pthread_mutex_unlock(&o->set->lock);
  ring(o->set);
}

/* The bell is rung under the lock: once `ended` shows, the set may be freed. */
static void note_end(void *user, const sched_end *end)
{
  choice *o = user;
  choices *c = o->set;
  pthread_mutex_lock(&c->lock);
  o->end = *end;
  o->err = *end->err;
  o->end.err = &o->err;
  o->last = srv_seconds();
  o->ended = true;
  ring(c);
  pthread_mutex_unlock(&c->lock);
}

/* ---- on the connection's thread ---- */

tern_status choices_open(server *s, int n, choices **out, tern_error *err)
{
  choices *c = mem_zalloc(sizeof *c);
  if (!c)
    return err_nomem(err, "request");
  c->server = s;
  c->n = n;
  c->opened = srv_seconds();
  c->at = mem_array((size_t)n, sizeof *c->at);
  c->bell = c->at ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  if (c->bell < 0) { /* descriptors come back as others end */
    tern_status status =
        c->at ? err_set(err, TERN_E_BUSY, "request: %s: try again later", strerror(errno)) : err_nomem(err, "request");
    mem_free(c->at);
    mem_free(c);
    return status;
  }
  pthread_mutex_init(&c->lock, NULL);
  for (int i = 0; i < n; i++) {
    choice *o = &c->at[i];
    o->set = c;
    o->job.on_start = note_start;
    o->job.on_token = add_token;
    o->job.on_end = note_end;
    o->job.options.on_text = add_text;
    o->job.options.user = o;
    o->job.user = o;
    o->reasoning_ids[0] = o->reasoning_ids[1] = -1;
  }
  *out = c;
  return TERN_OK;
}

tern_status choices_submit(choices *c, tern_error *err)
{
  sched_job **jobs = mem_array((size_t)c->n, sizeof *jobs);
  if (!jobs)
    return err_nomem(err, "request");
  for (int i = 0; i < c->n; i++)
    jobs[i] = &c->at[i].job;
  tern_status status = sched_submit(c->server->scheduler, jobs, c->n, err);
  mem_free(jobs);
  srv_turn_end(c->server);
  if (status == TERN_OK)
    c->submitted = c->n;
  return status;
}

choices_news choices_wait(choices *c, int fd, int milliseconds)
{
  eventfd_t count;
  struct pollfd at[] = {{.fd = c->bell, .events = POLLIN},
                        {.fd = fd, .events = POLLRDHUP},
                        {.fd = c->server->ending_fd, .events = POLLIN}};
  int n = poll(at, sizeof at / sizeof *at, milliseconds);
  if (n > 0 && at[1].revents)
    return CHOICES_GONE;
  if (n > 0 && at[2].revents)
    return CHOICES_ENDING;
  if (n <= 0)
    return CHOICES_QUIET;
  eventfd_read(c->bell, &count);
  return CHOICES_NEWS;
}

static void wait_for_bell(choices *c)
{
  eventfd_t count;
  struct pollfd bell = {.fd = c->bell, .events = POLLIN};
  if (poll(&bell, 1, -1) > 0)
    eventfd_read(c->bell, &count);
}

static void free_part(choice_part *p)
{
  buf_free(&p->text);
  mem_free(p->tokens);
}

void choices_close(choices *c)
{
  if (!c)
    return;
  for (int i = 0; i < c->submitted; i++)
    sched_cancel(c->server->scheduler, &c->at[i].job);
  for (;;) { /* within a step */
    choices_lock(c);
    bool over = !c->submitted || choices_all_ended(c);
    choices_unlock(c);
    if (over)
      break;
    wait_for_bell(c);
  }
  for (int i = 0; i < c->n; i++) {
    free_part(&c->at[i].taken);
    free_part(&c->at[i].coming);
  }
  pthread_mutex_destroy(&c->lock);
  close(c->bell);
  mem_free(c->at);
  mem_free(c);
}

void choice_take(choice *o)
{
  choice_part done = o->taken;
  buf_clear(&done.text);
  done.n_tokens = 0;
  o->taken = o->coming;
  o->coming = done;
}

void choices_lock(choices *c)
{
  pthread_mutex_lock(&c->lock);
}

void choices_unlock(choices *c)
{
  pthread_mutex_unlock(&c->lock);
}

bool choices_all_ended(const choices *c)
{
  for (int i = 0; i < c->n; i++)
    if (!c->at[i].ended)
      return false;
  return true;
}

const choice *choices_first_failure(const choices *c)
{
  for (int i = 0; i < c->n; i++)
    if (c->at[i].ended && c->at[i].end.status != TERN_OK)
      return &c->at[i];
  return NULL;
}

bool choices_any_started(const choices *c)
{
  for (int i = 0; i < c->n; i++)
    if (c->at[i].started)
      return true;
  return false;
}
