/* ppl.c - perplexity by mlx-lm's method (mlx_lm/perplexity.py), on a text file instead of a dataset.
 *
 * The file is one document: its ids with the tokenizer's special ones and an end-of-sequence id, cut into sequences of
 * --sequence-length, the rest left over. Each sequence is read in one forward from nothing; every id but the first is
 * predicted once. Perplexity is exp(mean loss), its error by the delta method.
 *
 * --against exact reads each sequence a second time in exact and compares the distributions of every position: the KL
 * divergence of the chosen mode from exact (mean, and the value that 99.9 % stay below), and how often both have the
 * same most likely id.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "engine/session.h"
#include "text/tok.h"

typedef struct ppl {
  const cli_args *args;
  model *m, *exact; /* exact: NULL without --against */
  session *s, *s_exact;
  int32_t *ids; /* [sequences * length] */
  size_t length, sequences;
  const int32_t *sequence; /* the current one */
  double *losses;          /* [n] */
  double *kl;              /* [n] with --against */
  float *rows;             /* [length - 1, V] of the chosen mode, with --against */
  size_t n, compared, agree;
  const model *broken; /* NULL, or whose logits gave a loss that is no number, and */
  int64_t broken_at;   /* at which position first */
  double exact_loss, seconds;
} ppl;

/* ---- one row ---- */

typedef struct row_facts {
  double logsumexp;
  int top; /* the first of the largest */
} row_facts;

static row_facts facts_of(const float *row, int vocab)
{
  row_facts f = {.top = 0};
  double sum = 0;
  for (int i = 1; i < vocab; i++)
    if (row[i] > row[f.top])
      f.top = i;
  for (int i = 0; i < vocab; i++)
    sum += exp((double)row[i] - (double)row[f.top]);
  f.logsumexp = (double)row[f.top] + log(sum);
  return f;
}

static void note_broken(ppl *p, const model *m, int64_t position, double loss)
{
  if (isfinite(loss) || p->broken)
    return;
  p->broken = m;
  p->broken_at = position;
}

static void take_row(void *user, int64_t position, float *logits)
{
  ppl *p = user;
  int vocab = p->m->config.vocab;
  double loss = facts_of(logits, vocab).logsumexp - (double)logits[p->sequence[position + 1]];
  note_broken(p, p->m, position, loss);
  p->losses[p->n++] = loss;
  if (p->rows)
    memcpy(p->rows + (size_t)position * (size_t)vocab, logits, (size_t)vocab * sizeof *logits);
}

/* The same position in exact: KL(exact || mode) = sum of p (log p - log q). */
static void compare_row(void *user, int64_t position, float *logits)
{
  ppl *p = user;
  int vocab = p->m->config.vocab;
  const float *mode = p->rows + (size_t)position * (size_t)vocab;
  row_facts a = facts_of(logits, vocab), b = facts_of(mode, vocab);
  double sum = 0;
  for (int i = 0; i < vocab; i++) {
    double log_p = (double)logits[i] - a.logsumexp;
    if (log_p > -INFINITY)
      sum += exp(log_p) * (log_p - ((double)mode[i] - b.logsumexp));
  }
  double loss = a.logsumexp - (double)logits[p->sequence[position + 1]];
  note_broken(p, p->exact, position, isfinite(sum) ? loss : sum);
  p->exact_loss += loss;
  p->kl[p->compared++] = sum > 0 ? sum : 0; /* below zero by rounding alone */
  p->agree += a.top == b.top;
}

/* ---- the text ---- */

static tern_status encode(const cli_args *a, const char *dir, int32_t **ids, size_t *n, tern_error *err)
{
  char *text;
  size_t length;
  tok *t = NULL;
  TRY(use_text(a->text_file, &text, &length, err));
  tern_status status = use_check_utf8(a->text_file, text, length, err);
  if (status == TERN_OK)
    status = tok_open(dir, &t, err);
  if (status == TERN_OK)
    status = tok_encode(t, text, length, true, ids, n, err);
  int32_t eos = t ? tok_role_id(t, TOK_EOS) : -1;
  if (status == TERN_OK && eos >= 0 && (*n == 0 || (*ids)[*n - 1] != eos)) {
    int32_t *longer = mem_realloc(*ids, (*n + 1) * sizeof **ids);
    if (longer) {
      *ids = longer;
      longer[(*n)++] = eos;
    } else {
      mem_free(*ids);
      status = err_nomem(err, "token ids");
    }
  }
  tok_close(t);
  mem_free(text);
  return status;
}

static tern_status cut(ppl *p, size_t n, tern_error *err)
{
  const cli_args *a = p->args;
  p->length = (size_t)a->sequence_length;
  if (n < 2)
    return err_set(err, TERN_E_FORMAT, "%s: %zu token%s, too few to predict one", a->text_file, n, n == 1 ? "" : "s");
  if (n < p->length) {
    say_warning("%s has %zu tokens: one sequence of that length instead of %zu", a->text_file, n, p->length);
    p->length = n;
  }
  p->sequences = n / p->length;
  if (a->num_samples > 0 && p->sequences > (size_t)a->num_samples)
    p->sequences = (size_t)a->num_samples;
  for (size_t i = 0; i < n; i++)
    if (p->ids[i] >= p->m->config.vocab)
      return err_set(err, TERN_E_FORMAT, "%s: token id %d, but the model has %d", a->text_file, (int)p->ids[i],
                     p->m->config.vocab);
  return TERN_OK;
}

/* ---- running ---- */

static tern_status make_room(ppl *p, tern_error *err)
{
  size_t rows = p->length - 1, vocab = (size_t)p->m->config.vocab;
  p->losses = mem_array(p->sequences * rows, sizeof *p->losses);
  if (!p->losses)
    return err_nomem(err, "losses");
  if (!p->exact)
    return TERN_OK;
  p->kl = mem_array(p->sequences * rows, sizeof *p->kl);
  p->rows = vocab <= SIZE_MAX / sizeof *p->rows / rows ? mem_alloc(rows * vocab * sizeof *p->rows) : NULL;
  return p->kl && p->rows ? TERN_OK : err_nomem(err, "rows of logits: a smaller --sequence-length needs less");
}

static tern_status read_sequence(ppl *p, session *s, void (*row)(void *, int64_t, float *), tern_error *err)
{
  session_sink sink = {.row = row, .user = p};
  session_request request = {.ids = p->sequence,
                             .n = p->length - 1,
                             .limit = (int64_t)p->length - 1,
                             .split = SPLIT_ONE,
                             .piece = p->args->prefill_step,
                             .all = true};
  return session_sync(s, &request, &sink, NULL, err);
}

static tern_status read_all(ppl *p, tern_error *err)
{
  double start = use_seconds();
  for (size_t i = 0; i < p->sequences; i++) {
    p->sequence = p->ids + i * p->length;
    TRY(read_sequence(p, p->s, take_row, err));
    if (p->exact)
      TRY(read_sequence(p, p->s_exact, compare_row, err));
    if (p->broken)
      return err_set(
          err, TERN_E_FORMAT,
          "logits: not numbers at position %lld of sequence %zu in numerics %s: the checkpoint's weights are "
          "damaged or overflow",
          (long long)p->broken_at, i + 1, use_numerics_name(p->broken->numerics));
    say_progress("ppl", (double)i + 1, (double)p->sequences);
  }
  p->seconds = use_seconds() - start;
  return TERN_OK;
}

static void cancel_both(void *object)
{
  ppl *p = object;
  session_cancel(p->s);
  if (p->s_exact)
    session_cancel(p->s_exact);
}

static tern_status run(ppl *p, tern_error *err)
{
  TRY(make_room(p, err));
  TRY(session_open(p->m, p->args->context, &p->s, err));
  if (p->exact)
    TRY(session_open(p->exact, p->args->context, &p->s_exact, err));
  sig_watch(cancel_both, p);
  tern_status status = read_all(p, err);
  sig_release();
  return status;
}

/* ---- results ---- */

typedef struct results {
  double mean, error, perplexity, perplexity_error;
  double kl_mean, kl_most, agreement, exact_perplexity;
} results;

static int ascending(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static results conclude(ppl *p)
{
  results r = {0};
  double squares = 0, n = (double)p->n;
  for (size_t i = 0; i < p->n; i++)
    r.mean += p->losses[i] / n;
  for (size_t i = 0; i < p->n; i++)
    squares += (p->losses[i] - r.mean) * (p->losses[i] - r.mean);
  r.error = p->n > 1 ? sqrt(squares / (n - 1)) / sqrt(n) : 0;
  r.perplexity = exp(r.mean);
  r.perplexity_error = r.perplexity * r.error;
  if (!p->exact)
    return r;
  for (size_t i = 0; i < p->compared; i++)
    r.kl_mean += p->kl[i] / n;
  qsort(p->kl, p->compared, sizeof *p->kl, ascending);
  r.kl_most = p->kl[(size_t)ceil(0.999 * n) - 1];
  r.agreement = (double)p->agree / n;
  r.exact_perplexity = exp(p->exact_loss / n);
  return r;
}

static void print_json(const ppl *p, const results *r)
{
  json_t *against = NULL;
  if (p->exact)
    against = json_pack("{ss sf sf sf sf}", "numerics", "exact", "kl_mean", r->kl_mean, "kl_999", r->kl_most, "top1",
                        r->agreement, "perplexity", r->exact_perplexity);
  out_json(json_pack("{sf sf sf sI sI sI sf sf ss ss so*}", "perplexity", r->perplexity, "standard_error",
                     r->perplexity_error, "loss", r->mean, "tokens", (json_int_t)p->n, "sequences",
                     (json_int_t)p->sequences, "sequence_length", (json_int_t)p->length, "seconds", p->seconds, "tok_s",
                     use_rate((double)p->n, p->seconds), "numerics", use_numerics_name(p->m->numerics), "backend",
                     p->m->cx.backend->name, "against", against));
}

static void print_text(const ppl *p, const results *r)
{
  out_printf("perplexity  %.3f ± %.3f\n", r->perplexity, r->perplexity_error);
  out_printf("tokens      %zu in %zu sequence%s of %zu, %.0f tok/s, %s on %s\n", p->n, p->sequences,
             p->sequences == 1 ? "" : "s", p->length, use_rate((double)p->n, p->seconds),
             use_numerics_name(p->m->numerics), p->m->cx.backend->name);
  if (p->exact)
    out_printf("vs exact    perplexity %.3f; KL mean %.3g, 99.9 %% below %.3g; top-1 agreement %.3f %%\n",
               r->exact_perplexity, r->kl_mean, r->kl_most, 100 * r->agreement);
}

static tern_status open_models(ppl *p, const char *dir, tern_error *err)
{
  tern_model_options options;
  TRY(use_options(p->args, &options, err));
  TRY(use_network(dir, &options, &p->m, err));
  if (!p->args->against)
    return TERN_OK;
  options.numerics = TERN_EXACT;
  options.backend = TERN_BACKEND_AUTO;
  return use_network(dir, &options, &p->exact, err);
}

tern_status verb_ppl(const cli_args *a, tern_error *err)
{
  const char *name;
  char *dir = NULL;
  size_t n = 0;
  ppl p = {.args = a};
  TRY(args_need_model(a, &name, NULL, err));
  if (!a->text_file)
    return err_set(err, TERN_E_USAGE, "ppl: --text names the file to measure on");
  if (a->num_samples == 0)
    return err_set(err, TERN_E_USAGE, "ppl: --num-samples: 0 sequences measure nothing; -1 takes all");
  tern_status status = use_dir(a, name, NEED_WEIGHTS, &dir, err);
  if (status == TERN_OK)
    status = encode(a, dir, &p.ids, &n, err);
  if (status == TERN_OK)
    status = open_models(&p, dir, err);
  if (status == TERN_OK)
    status = cut(&p, n, err);
  if (status == TERN_OK)
    status = run(&p, err);
  say_progress_end();
  if (status == TERN_OK) {
    results r = conclude(&p);
    if (a->json)
      print_json(&p, &r);
    else
      print_text(&p, &r);
  }
  session_close(p.s);
  session_close(p.s_exact);
  model_close(p.m);
  model_close(p.exact);
  void *all[] = {p.ids, p.losses, p.kl, p.rows, dir};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    mem_free(all[i]);
  return status;
}
