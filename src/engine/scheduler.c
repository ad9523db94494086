/* scheduler.c - see scheduler.h.
 *
 * Three lists: `inbox`, under the lock, where sched_submit leaves jobs; `waiting` and `running`, which only the worker
 * knows. A turn of the worker: take the inbox, drop what was cancelled, admit, make the rows, run the forward, let each
 * row's job take its token.
 */
#include "engine/scheduler_impl.h"

#include <string.h>

#include "base/mem.h"
#include "base/threads.h"

enum { WORKER_STACK = 1 << 20, PREFIX_SHARE = 8 /* of the memory that is free at open, a part for prefixes */ };

/* ---- lists ---- */

static void list_clear(job_list *l)
{
  l->first = NULL;
  l->end = &l->first;
}

static void list_add(job_list *l, sched_job *j)
{
  j->next = NULL;
  *l->end = j;
  l->end = &j->next;
}

static void list_move(job_list *to, job_list *from)
{
  if (!from->first)
    return;
  *to->end = from->first;
  to->end = from->end;
  list_clear(from);
}

static sched_job *list_take(job_list *l)
{
  sched_job *j = l->first;
  l->first = j->next;
  if (!l->first)
    l->end = &l->first;
  return j;
}

/* ---- what is kept ---- */

static size_t kept_bytes(const scheduler *s)
{
  return prefixes_bytes(s->prefixes) + (s->draft_prefixes ? prefixes_bytes(s->draft_prefixes) : 0);
}

/* A draft model's first: reading again is cheap there. */
static bool forget_one(scheduler *s)
{
  return (s->draft_prefixes && prefixes_forget_one(s->draft_prefixes)) || prefixes_forget_one(s->prefixes);
}

/* ---- the end of a job ---- */

static void count_start(scheduler *s, sched_job *j)
{
  j->runs = true;
  pthread_mutex_lock(&s->lock);
  s->stats.running++;
  s->stats.cached_tokens += (uint64_t)j->cached;
  s->stats.state_bytes = s->set_aside;
  pthread_mutex_unlock(&s->lock);
}

static void count_end(scheduler *s, const sched_job *j, const sched_end *end)
{
  pthread_mutex_lock(&s->lock);
  s->inside--;
  s->stats.running -= j->runs;
  s->stats.state_bytes = s->set_aside;
  s->stats.prefix_bytes = kept_bytes(s);
  s->stats.prefixes = prefixes_count(s->prefixes);
  bool given_up = end->status == TERN_E_CANCELLED || (end->status == TERN_OK && end->finish[0] == 'c');
  if (given_up)
    s->stats.cancelled++;
  else if (end->status == TERN_OK)
    s->stats.finished++;
  else
    s->stats.failed++;
  pthread_mutex_unlock(&s->lock);
}

/* What an ended job consumed, for later ones. */
static void keep_prefix(scheduler *s, const sched_job *j)
{
  if (j->drafter && s->draft_prefixes)
    drafter_keep(j->drafter, s->draft_prefixes);
  if (!j->state || j->on_hidden || (s->forgets && !j->snapshot && j->position > (int64_t)j->n - 1))
    return;
  prefix_of of = {.state = j->state,
                  .snapshot = j->snapshot,
                  .prompt = j->ids,
                  .more = reply_ids(&j->reply),
                  .n = (int64_t)j->n,
                  .length = j->position,
                  .split = (int64_t)j->n - 1};
  prefixes_keep(s->prefixes, &of);
}

/* Gives everything back, then tells. The job is the caller's again. */
static void end_job(scheduler *s, sched_job *j, tern_status status)
{
  tern_error err = j->err;
  sched_end end = {.status = status,
                   .err = &err,
                   .finish = status == TERN_OK ? j->reply.finish : NULL,
                   .stop = status == TERN_OK ? j->reply.stops.hit : NULL,
                   .n_ids = j->reply.n_history ? reply_count(&j->reply) : 0,
                   .drafted = j->reply.n_guessed,
                   .accepted = j->reply.n_hit};
  if (status == TERN_OK || status == TERN_E_CANCELLED)
    keep_prefix(s, j);
  kv_seq_close(j->state);
  kv_seq_close(j->snapshot);
  j->state = j->snapshot = NULL;
  drafter_close(j->drafter);
  j->drafter = NULL;
  reply_close(&j->reply);
  s->set_aside -= j->set_aside;
  j->set_aside = 0;
  s->retry = true;
  count_end(s, j, &end);
  j->on_end(j->user, &end);
}

static void end_cancelled(scheduler *s, sched_job *j)
{
  err_set(&j->err, TERN_E_CANCELLED, "cancelled after %lld tokens", (long long)j->position);
  end_job(s, j, TERN_E_CANCELLED);
}

/* ---- admission ---- */

static size_t sum(size_t a, size_t b)
{
  return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static size_t state_of(const scheduler *s, const sched_job *j)
{
  const model *net = s->model->net;
  return sum(kv_store_estimate(net->store, j->limit, net->plan.max_tokens),
             draft_state_bytes(&s->options.draft, j->limit));
}

/* Bytes that states may have where this job runs too. The system is not asked again: what was set aside and not yet
 * written still counts as free there. */
static size_t room_with(const scheduler *s, const sched_job *j)
{
  if (s->options.state_bytes || s->budget == SIZE_MAX)
    return s->budget;
  size_t more = model_scratch_bytes(s->model->net, j->limit) - s->scratch; /* scratch grows and never shrinks */
  more = sum(more, draft_scratch_bytes(&s->options.draft, j->limit) - s->draft_scratch);
  return more < s->budget ? s->budget - more : 0;
}

/* Whether the job could run if it were alone. */
static tern_status check_alone(scheduler *s, sched_job *j)
{
  size_t need = state_of(s, j), most = room_with(s, j);
  j->seen = true;
  if (need <= most)
    return TERN_OK;
  return err_set(&j->err, TERN_E_LIMIT,
                 "memory: a prompt of %zu tokens and %d to come need %zu MB of state, but there are %zu MB", j->n,
                 j->options.max_tokens, need >> 20, most >> 20);
}

/* The job's state, begun where a prefix ends. */
static tern_status reserve_state(scheduler *s, sched_job *j)
{
  model *net = s->model->net;
  TRY(kv_seq_open(net->store, &j->state, &j->err));
  j->cached = j->on_hidden ? 0 : prefixes_resume(s->prefixes, j->state, j->ids, (int64_t)j->n - 1);
  return model_reserve(net, j->state, j->cached, j->limit, &j->err);
}

static tern_status reserve_drafter(scheduler *s, sched_job *j)
{
  if (!draft_asked(&s->options.draft) || j->on_hidden)
    return TERN_OK;
  TRY(drafter_open(&s->options.draft, s->model, &j->drafter, &j->err));
  return drafter_begin(j->drafter, &j->options, j->ids, j->n, j->limit, s->draft_prefixes, &j->err);
}

static tern_status reserve_all(scheduler *s, sched_job *j)
{
  TRY(reserve_state(s, j));
  TRY(reserve_drafter(s, j));
  if (j->on_hidden)
    return TERN_OK;
  return reply_open(&j->reply, s->model, &j->options, j->ids[j->n - 1], (size_t)j->options.max_tokens, j->top, &j->err);
}

static void release_all(sched_job *j)
{
  kv_seq_close(j->state);
  drafter_close(j->drafter);
  reply_close(&j->reply);
  j->state = NULL;
  j->drafter = NULL;
  j->err = (tern_error){0};
}

static bool lacks_memory(tern_status status)
{
  return status == TERN_E_NOMEM || status == TERN_E_LIMIT;
}

/* Memory, sampler and all else that the job's steps need; prefixes go where there is no memory beside them. *wait: not
 * now. */
static tern_status start_job(scheduler *s, sched_job *j, bool *wait)
{
  size_t need = state_of(s, j), most = room_with(s, j), all = sum(s->set_aside, need);
  *wait = s->n_running > 0 && all > most;
  if (*wait)
    return TERN_OK;
  while (sum(all, kept_bytes(s)) > most && forget_one(s))
    ;
  for (tern_status status; (status = reserve_all(s, j)) != TERN_OK;) {
    bool forgot = lacks_memory(status) && forget_one(s);
    *wait = !forgot && lacks_memory(status) && s->n_running > 0; /* those that run will give some back */
    if (!forgot && !*wait)
      return status;
    release_all(j);
    if (*wait)
      return TERN_OK;
  }
  j->position = j->cached;
  j->set_aside = need;
  s->set_aside += need;
  return TERN_OK;
}

static void check_arrivals(scheduler *s)
{
  job_list kept;
  list_clear(&kept);
  while (s->waiting.first) {
    sched_job *j = list_take(&s->waiting);
    tern_status status = j->seen ? TERN_OK : check_alone(s, j);
    if (atomic_load(&j->cancelled))
      end_cancelled(s, j);
    else if (status != TERN_OK)
      end_job(s, j, status);
    else
      list_add(&kept, j);
  }
  list_move(&s->waiting, &kept);
}

static void admit(scheduler *s)
{
  while (s->waiting.first && s->n_running < s->options.rows && s->retry) {
    sched_job *j = s->waiting.first;
    bool wait;
    tern_status status = start_job(s, j, &wait);
    if (wait) {
      s->retry = false;
      return;
    }
    list_take(&s->waiting);
    if (status != TERN_OK) {
      end_job(s, j, status);
      continue;
    }
    s->running[s->n_running++] = j;
    count_start(s, j);
    if (j->on_start)
      j->on_start(j->user);
  }
}

/* Ends running jobs that are done, failed or cancelled. */
static void let_go(scheduler *s)
{
  int kept = 0;
  for (int i = 0; i < s->n_running; i++) {
    sched_job *j = s->running[i];
    if (j->sampled != TERN_OK)
      end_job(s, j, j->sampled);
    else if (j->reply.finish)
      end_job(s, j, TERN_OK);
    else if (atomic_load(&j->cancelled))
      end_cancelled(s, j);
    else
      s->running[kept++] = j;
  }
  s->n_running = kept;
}

/* ---- the worker ---- */

/* Waits for work. False: the scheduler closes. */
static bool take_inbox(scheduler *s)
{
  pthread_mutex_lock(&s->lock);
  while (!s->inbox.first && !s->waiting.first && !s->n_running && !atomic_load(&s->closing))
    pthread_cond_wait(&s->news, &s->lock);
  list_move(&s->waiting, &s->inbox);
  pthread_mutex_unlock(&s->lock);
  return !atomic_load(&s->closing);
}

/* Ends everything that is left with one error. */
static void end_all(scheduler *s, const tern_error *why)
{
  for (int i = 0; i < s->n_running; i++) {
    s->running[i]->err = *why;
    end_job(s, s->running[i], why->status);
  }
  s->n_running = 0;
  pthread_mutex_lock(&s->lock);
  s->dead = s->stats.dead = true;
  s->death = *why;
  list_move(&s->waiting, &s->inbox);
  pthread_mutex_unlock(&s->lock);
  while (s->waiting.first) {
    sched_job *j = list_take(&s->waiting);
    j->err = *why;
    end_job(s, j, why->status);
  }
}

static void *work(void *user)
{
  scheduler *s = user;
  tern_error err = {0};
  tern_status status = TERN_OK;
  while (status == TERN_OK && take_inbox(s)) {
    let_go(s);
    check_arrivals(s);
    s->retry = s->retry || !s->n_running;
    admit(s);
    sched_take_snapshots(s);
    let_go(s);
    if (s->n_running)
      status = sched_step(s, &err);
    let_go(s);
  }
  bool closing = atomic_load(&s->closing);
  if (closing)
    err_set(&err, TERN_E_CANCELLED, "the server is closing");
  end_all(s, &err);
  if (!closing && s->options.on_death)
    s->options.on_death(s->options.user, &err);
  return NULL;
}

static int start_worker(scheduler *s)
{
  pthread_attr_t attributes;
  sigset_t before;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, WORKER_STACK);
  threads_block_signals(&before); /* the new thread inherits it */
  int failed = pthread_create(&s->worker, &attributes, work, s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return failed;
}

static tern_status check_options(const tern_model *m, const sched_options *o, tern_error *err)
{
  if (o->rows < 0 || o->rows > MODEL_MAX_ROWS)
    return err_set(err, TERN_E_USAGE, "rows: %d: 1 to %d run together", o->rows, MODEL_MAX_ROWS);
  if (o->prefixes < 0 || o->queue < 0 || o->prompt_share < 0 || o->context < 0)
    return err_set(err, TERN_E_USAGE, "scheduler: negative numbers mean nothing here");
  if (o->prefix_dir && !o->prefixes)
    return err_set(err, TERN_E_USAGE, "prompt-cache-dir: nothing is kept with a prompt-cache-size of 0");
  const model *net = m->net;
  if (net->weights.positions.data && o->context > net->weights.positions.n)
    return err_set(err, TERN_E_LIMIT, "ctx: %d positions, but %s has learned %lld and no more", o->context,
                   net->config.arch->name, (long long)net->weights.positions.n);
  return TERN_OK;
}

static void free_all(scheduler *s)
{
  prefixes_close(s->prefixes);
  prefixes_close(s->draft_prefixes);
  mem_free(s->numbers);
  pthread_cond_destroy(&s->news);
  pthread_mutex_destroy(&s->lock);
  mem_free(s);
}

/* One bound for what is kept; a draft model's states, of the same conversations, get what they are of both. */
static tern_status open_prefixes(scheduler *s, tern_error *err)
{
  const sched_options *o = &s->options;
  size_t all = s->budget / PREFIX_SHARE, drafts = 0;
  if (o->draft.model) {
    double one = (double)kv_store_token_bytes(s->model->net->store),
           draft = (double)kv_store_token_bytes(o->draft.model->net->store);
    drafts = (size_t)((double)all * (draft / (one + draft)));
  }
  TRY(prefixes_open(s->model->net, o->prefixes, all - drafts, &s->prefixes, err));
  return o->draft.model ? prefixes_open(o->draft.model->net, o->prefixes, drafts, &s->draft_prefixes, err) : TERN_OK;
}

tern_status sched_open(tern_model *m, const sched_options *options, scheduler **out, tern_error *err)
{
  sched_options o = options ? *options : (sched_options){0};
  TRY(check_options(m, &o, err));
  TRY(draft_check(&o.draft, m, err));
  scheduler *s = mem_zalloc(sizeof *s);
  if (!s)
    return err_nomem(err, "scheduler");
  o.rows = o.rows ? o.rows : SCHED_ROWS;
  o.queue = o.queue ? o.queue : SCHED_QUEUE;
  o.prompt_share = o.prompt_share ? o.prompt_share : SCHED_PROMPT_SHARE;
  s->model = m;
  s->options = o;
  s->context = o.context ? o.context : session_default_context(&m->net->config);
  list_clear(&s->inbox);
  list_clear(&s->waiting);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->news, NULL);
  s->retry = true;
  s->forgets = o.prefixes && model_sensitive_from(m->net) != INT64_MAX;
  s->budget = o.state_bytes ? o.state_bytes : model_memory_available(m->net);
  s->scratch = model_scratch_bytes(m->net, 0);
  s->draft_scratch = draft_scratch_bytes(&o.draft, 0);
  s->numbers = mem_array((size_t)m->net->plan.max_tokens, sizeof *s->numbers);
  for (int i = 0; s->numbers && i < m->net->plan.max_tokens; i++)
    s->numbers[i] = i;
  tern_status status = s->numbers ? TERN_OK : err_nomem(err, "scheduler");
  if (status == TERN_OK && o.prefix_dir)
    status = prefix_dir_check(o.prefix_dir, err);
  if (status == TERN_OK)
    status = open_prefixes(s, err);
  if (status == TERN_OK && o.prefix_dir)
    s->stats.prefixes = prefix_dir_load(o.prefix_dir, m->net, s->prefixes);
  if (status == TERN_OK)
    s->stats.prefix_bytes = kept_bytes(s);
  if (status == TERN_OK && start_worker(s))
    status = err_nomem(err, "worker thread");
  if (status != TERN_OK)
    free_all(s);
  else
    *out = s;
  return status;
}

void sched_close(scheduler *s)
{
  if (!s)
    return;
  pthread_mutex_lock(&s->lock);
  atomic_store(&s->closing, true);
  pthread_cond_signal(&s->news);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->worker, NULL);
  if (s->options.prefix_dir && s->death.status == TERN_E_CANCELLED) /* not what a broken forward left */
    prefix_dir_save(s->options.prefix_dir, s->model->net, s->prefixes);
  free_all(s);
}

/* ---- other threads ---- */

static tern_status check_job(const scheduler *s, const sched_job *j, tern_error *err)
{
  int vocab = s->model->info.vocab;
  if (j->n == 0)
    return err_set(err, TERN_E_USAGE, "prompt: it has no tokens");
  for (size_t i = 0; i < j->n; i++)
    if (j->ids[i] < 0 || j->ids[i] >= vocab)
      return err_set(err, TERN_E_USAGE, "prompt: token id %d at place %zu: the vocabulary has ids 0 to %d", j->ids[i],
                     i, vocab - 1);
  if (j->options.max_tokens < 1)
    return err_set(err, TERN_E_USAGE, "max_tokens: %d: give a number from 1 up", j->options.max_tokens);
  size_t need = j->n + (size_t)j->options.max_tokens - 1;
  if (need > (size_t)s->context)
    return err_set(err, TERN_E_LIMIT,
                   "context: a prompt of %zu tokens and %d to come need %zu positions, but there are %d", j->n,
                   j->options.max_tokens - 1, need, s->context);
  return TERN_OK;
}

static tern_status take_in(scheduler *s, sched_job *const *jobs, int n, tern_error *err)
{
  int most = s->options.rows + s->options.queue;
  if (s->dead)
    return err_set(err, s->death.status, "%s", s->death.text);
  if (n > most)
    return err_set(err, TERN_E_LIMIT, "%d answers at once, but at most %d run or wait", n, most);
  if (n > most - s->inside) {
    s->stats.turned_away += (uint64_t)n;
    return err_set(err, TERN_E_BUSY, "%d requests run or wait, and no more than %d do: try again later", s->inside,
                   most);
  }
  for (int i = 0; i < n; i++)
    list_add(&s->inbox, jobs[i]);
  s->inside += n;
  pthread_cond_signal(&s->news);
  return TERN_OK;
}

tern_status sched_submit(scheduler *s, sched_job *const *jobs, int n, tern_error *err)
{
  for (int i = 0; i < n; i++) {
    sched_job *j = jobs[i];
    TRY(check_job(s, j, err));
    j->next = NULL;
    atomic_store(&j->cancelled, false);
    j->runs = j->seen = false;
    j->state = j->snapshot = NULL;
    j->drafter = NULL;
    j->cached = j->position = 0;
    j->limit = (int64_t)j->n + j->options.max_tokens - 1;
    j->set_aside = 0;
    j->reply = (reply){0};
    j->sampled = TERN_OK;
    j->err = (tern_error){0};
  }
  pthread_mutex_lock(&s->lock);
  tern_status status = take_in(s, jobs, n, err);
  pthread_mutex_unlock(&s->lock);
  return status;
}

void sched_cancel(scheduler *s, sched_job *job)
{
  (void)s; /* the worker looks at the flag before every step */
  atomic_store(&job->cancelled, true);
}

void sched_get_stats(scheduler *s, sched_stats *out)
{
  pthread_mutex_lock(&s->lock);
  *out = s->stats;
  out->waiting = s->inside - s->stats.running;
  pthread_mutex_unlock(&s->lock);
}

int sched_context(const scheduler *s)
{
  return s->context;
}
