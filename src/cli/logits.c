/* logits.c - the raw truth: rows of logits after a list of ids.
 *
 * Rows come in the order of their tokens: the prompt's (every position with --all, else the last), then one for each id
 * that is fed after it: --feed's, or the --steps greedy ones. So rows = (all ? prompt : 1) + generated, and a row for
 * an id that is only chosen, not fed, is never computed. Nothing stops at an end-of-sequence id.
 *
 * The greedy choice is the reference's: the first of the largest of logits - logsumexp(logits), in the model's type.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/trace.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "cli/whole_file.h"
#include "engine/sample.h"
#include "engine/session.h"

/* ---- rows ---- */

typedef struct collector {
  whole_file file; /* closed: nobody asked for one */
  int vocab;
  size_t rows;
  int error;        /* errno of the first failed write */
  int64_t last;     /* position whose row decides the next id */
  sampler *chooser; /* NULL: ids are given */
  int32_t next;
  tern_status status; /* of the choice */
  tern_error *err;
} collector;

static void collect(void *user, int64_t position, float *logits)
{
  collector *c = user;
  c->rows++;
  if (c->file.file && !c->error) {
    errno = 0;
    if (fwrite(logits, sizeof *logits, (size_t)c->vocab, c->file.file) != (size_t)c->vocab)
      c->error = errno ? errno : EIO;
  }
  if (c->chooser && position >= c->last && c->status == TERN_OK)
    c->status = sampler_next(c->chooser, logits, NULL, 0, &c->next, c->err);
}

static tern_status check_rows(const collector *c, tern_error *err)
{
  if (!c->error)
    return c->status;
  return err_set(err, TERN_E_IO, "%s: write: %s", c->file.path, strerror(c->error));
}

/* ---- the verb ---- */

typedef struct timeline {
  int32_t *ids; /* prompt, then generated */
  size_t n_prompt, n;
} timeline;

/* "1 2 3", "1,2,3" or a JSON array of numbers; the text is changed. out->items: mem_free, on failure too. */
static tern_status read_ids(const char *name, char *text, size_t length, cli_ints *out, tern_error *err)
{
  tern_status status = text[strspn(text, " \t\r\n")] == '['
                           ? use_ids_array(name, text, length, &out->items, &out->n, err)
                           : use_ids_list(name, text, length, out, err);
  return status == TERN_OK && !out->n ? err_set(err, TERN_E_FORMAT, "%s: no token ids", name) : status;
}

static tern_status read_ids_file(const char *path, cli_ints *out, tern_error *err)
{
  char *text;
  size_t length;
  TRY(use_text(path, &text, &length, err));
  tern_status status = read_ids(path, text, length, out, err);
  mem_free(text);
  return status;
}

/* A flag's value: what is wrong with it is wrong usage. */
static tern_status read_ids_flag(const char *flag, const char *value, cli_ints *out, tern_error *err)
{
  char *text = mem_strdup(value);
  if (!text)
    return err_nomem(err, flag);
  tern_status status = read_ids(flag, text, strlen(text), out, err);
  mem_free(text);
  if (status == TERN_E_FORMAT && err)
    err->status = TERN_E_USAGE;
  return status == TERN_E_FORMAT ? TERN_E_USAGE : status;
}

static tern_status fill(timeline *t, const cli_ints *prompt, const cli_ints *feed, size_t steps, tern_error *err)
{
  t->ids = mem_array(prompt->n + steps, sizeof *t->ids);
  if (!t->ids)
    return err_nomem(err, "token ids");
  memcpy(t->ids, prompt->items, prompt->n * sizeof *t->ids);
  if (feed->n)
    memcpy(t->ids + prompt->n, feed->items, feed->n * sizeof *t->ids);
  t->n_prompt = prompt->n;
  t->n = prompt->n + steps;
  return TERN_OK;
}

static tern_status gather(const cli_args *a, timeline *t, tern_error *err)
{
  cli_ints prompt = {0}, feed = {0};
  if ((a->ids != NULL) == (a->ids_file != NULL))
    return err_set(err, TERN_E_USAGE, "logits: the prompt comes from --ids or from --ids-file: give one of them");
  if (a->feed && ARGS_GIVEN(a, steps))
    return err_set(err, TERN_E_USAGE, "logits: --feed says the steps already: leave --steps out");
  if (a->trace)
    TRY(trace_check(a->trace, a->out, err));
  tern_status status =
      a->ids ? read_ids_flag("logits: --ids", a->ids, &prompt, err) : read_ids_file(a->ids_file, &prompt, err);
  if (status == TERN_OK && a->feed)
    status = read_ids_flag("logits: --feed", a->feed, &feed, err);
  if (status == TERN_OK)
    status = fill(t, &prompt, &feed, a->feed ? feed.n : (size_t)a->steps, err);
  mem_free(prompt.items);
  mem_free(feed.items);
  return status;
}

static tern_status check_ids(const timeline *t, bool fed, int vocab, tern_error *err)
{
  size_t given = fed ? t->n : t->n_prompt;
  for (size_t i = 0; i < given; i++)
    if (t->ids[i] >= vocab)
      return err_set(err, TERN_E_LIMIT, "token id %d: the model has ids 0 to %d", (int)t->ids[i], vocab - 1);
  return TERN_OK;
}

static tern_status walk(const cli_args *a, session *s, timeline *t, collector *c, tern_error *err)
{
  static const session_split splits[] = {SPLIT_CANONICAL, SPLIT_MLX, SPLIT_ONE};
  session_sink sink = {.row = collect, .user = c};
  session_request request = {
      .ids = t->ids,
      .n = t->n_prompt,
      .limit = (int64_t)t->n,
      .split = splits[a->split],
      .piece = a->prefill_step,
      .all = a->all,
  };
  c->last = (int64_t)t->n_prompt - 1;
  TRY(session_sync(s, &request, &sink, NULL, err));
  TRY(check_rows(c, err));
  for (size_t i = t->n_prompt; i < t->n; i++) {
    if (c->chooser)
      t->ids[i] = c->next;
    TRY(session_step(s, t->ids[i], &sink, err));
    TRY(check_rows(c, err));
    say_progress("steps", (double)(i + 1 - t->n_prompt), (double)(t->n - t->n_prompt));
  }
  return TERN_OK;
}

static void cancel_session(void *s)
{
  session_cancel(s);
}

static tern_status run_session(const cli_args *a, model *m, timeline *t, collector *c, tern_error *err)
{
  session *s;
  c->vocab = m->config.vocab;
  TRY(check_ids(t, a->feed != NULL, c->vocab, err));
  TRY(session_open(m, a->context, &s, err));
  sig_watch(cancel_session, s);
  tern_status status = walk(a, s, t, c, err);
  sig_release();
  session_close(s);
  return status;
}

static void report(const model *m, const timeline *t, const collector *c)
{
  json_t *ids = use_ids_json(t->ids, t->n), *generated = use_ids_json(t->ids + t->n_prompt, t->n - t->n_prompt);
  out_json(json_pack("{so so sI si ss ss ss}", "ids", ids, "generated", generated, "rows", (json_int_t)c->rows, "vocab",
                     c->vocab, "numerics", use_numerics_name(m->numerics), "backend", m->cx.backend->name, "profile",
                     m->profile.id));
}

static tern_status with_model(const cli_args *a, model *m, timeline *t, tern_error *err)
{
  static const sample_type types[] = {[DT_F32] = SAMPLE_F32, [DT_BF16] = SAMPLE_BF16, [DT_F16] = SAMPLE_F16};
  static const tern_sampling greedy = {0};
  collector c = {.err = err};
  trace *recorder = NULL;
  tern_status status = TERN_OK;
  if (!a->feed && a->steps)
    status = sampler_open(&greedy, m->config.vocab, types[model_logits_dtype(m)], &c.chooser, err);
  if (c.chooser)
    sampler_choice_alone(c.chooser);
  if (status == TERN_OK && a->out)
    status = whole_open(&c.file, a->out, err);
  if (status == TERN_OK && a->trace)
    status = trace_open(a->trace, &m->cx, &recorder, err);
  if (status == TERN_OK)
    status = run_session(a, m, t, &c, err);
  if (status == TERN_OK)
    status = trace_finish(recorder, err);
  if (status == TERN_OK)
    status = whole_finish(&c.file, err);
  whole_abandon(&c.file);
  trace_close(recorder);
  sampler_close(c.chooser);
  if (status == TERN_OK)
    report(m, t, &c);
  return status;
}

tern_status verb_logits(const cli_args *a, tern_error *err)
{
  const char *name;
  char *dir = NULL;
  model *m = NULL;
  timeline t = {0};
  tern_model_options options;
  TRY(args_need_model(a, &name, NULL, err));
  TRY(use_options(a, &options, err));
  if (a->trace && options.backend == TERN_BACKEND_AUTO && options.numerics != TERN_NATIVE)
    options.backend = TERN_BACKEND_CPU; /* a GPU shows no single ops */
  tern_status status = gather(a, &t, err);
  if (status == TERN_OK)
    status = use_dir(a, name, NEED_WEIGHTS, &dir, err);
  if (status == TERN_OK)
    status = use_network(dir, &options, &m, err);
  if (status == TERN_OK)
    status = with_model(a, m, &t, err);
  model_close(m);
  mem_free(dir);
  mem_free(t.ids);
  return status;
}
