/* bench.c - tokens a second at prompt sizes, decode counts, batch sizes and context depths.
 *
 * Protocol. For each depth and batch size: so many timelines of random ids are brought to the depth, untimed; then each
 * prompt size is read, and each decode count stepped, as often as -r says, back at the depth each time. One untimed
 * round warms up. A batch of prompts is read one timeline after another, a batch of decodes in one forward a step. With
 * -g, a decode step of one timeline carries guesses besides, and takes them back: what speculation costs where none is
 * right. (Where k of them are, that many tokens more come of the same time.)
 *
 * Weight traffic counts every tensor once a forward, but for an embedding table of its own, of which rows are gathered.
 * The share compares it with what reading memory reaches here, measured at the end so that its buffer is not in the
 * peak.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/system.h"
#include "cli/machine.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "engine/reply.h"
#include "ops/cuda/plugin.h"

enum { MOST_BATCH = 64, MOST_ROWS = 4096, MOST_REPEATS = 1000 };

typedef struct bench_row {
  bool decode;
  int n, depth, batch, guesses;
  double tok_s, sd, ms, gb_s;
  double *rates; /* [repeats], owned */
} bench_row;

typedef struct bench {
  const cli_args *args;
  model *m;
  double open_ms, peak_mb, bandwidth, traffic; /* bytes of weights a forward */
  bench_row rows[MOST_ROWS];
  size_t n_rows, planned;
  session *sessions[MOST_BATCH];
  int batch; /* open ones */
  int32_t *ids;
  uint64_t random;
} bench;

static int32_t draw(bench *b)
{
  b->random = b->random * 6364136223846793005u + 1442695040888963407u;
  return (int32_t)((b->random >> 33) % (uint64_t)b->m->config.vocab);
}

static void ignore_row(void *user, int64_t position, float *logits)
{
  (void)user, (void)position, (void)logits;
}

static void ignore_which(void *user, int which, float *logits)
{
  (void)user, (void)which, (void)logits;
}

/* Greedy answers read no logits where the backend can tell the largest. */
static void ignore_chosen(void *user, int which, int32_t token)
{
  (void)user, (void)which, (void)token;
}

static void cancel_all(void *object)
{
  bench *b = object;
  for (int i = 0; i < b->batch; i++)
    session_cancel(b->sessions[i]);
}

/* ---- timelines ---- */

static void close_sessions(bench *b)
{
  int n = b->batch;
  b->batch = 0;
  for (int i = 0; i < n; i++)
    session_close(b->sessions[i]);
}

static tern_status open_sessions(bench *b, int count, tern_error *err)
{
  for (int i = 0; i < count; i++) {
    TRY(session_open(b->m, b->args->context, &b->sessions[i], err));
    b->batch = i + 1;
  }
  return sig_caught() ? err_set(err, TERN_E_CANCELLED, "cancelled") : TERN_OK;
}

static tern_status bring_to(bench *b, int which, int length, int limit, tern_error *err)
{
  session_sink sink = {.row = ignore_row, .user = NULL};
  session_request request = {.ids = b->ids, .n = (size_t)length, .limit = limit};
  return session_sync(b->sessions[which], &request, &sink, NULL, err);
}

/* One prompt of n tokens behind the depth, in each timeline. */
static tern_status time_prompt(bench *b, int depth, int n, double *seconds, tern_error *err)
{
  double total = 0;
  b->ids[depth] = (b->ids[depth] + 1) % b->m->config.vocab; /* so that nothing of the last round is reused */
  for (int i = 0; i < b->batch; i++) {
    if (depth)
      TRY(bring_to(b, i, depth, depth + n, err));
    double start = use_seconds();
    TRY(bring_to(b, i, depth + n, depth + n, err));
    total += use_seconds() - start;
  }
  *seconds = total;
  return TERN_OK;
}

static tern_status time_decode(bench *b, int depth, int n, double *seconds, tern_error *err)
{
  int32_t next[MOST_BATCH];
  int begin = depth ? depth : 1;
  for (int i = 0; i < b->batch; i++)
    TRY(bring_to(b, i, begin, begin + n, err));
  double start = use_seconds();
  for (int step = 0; step < n; step++) {
    for (int i = 0; i < b->batch; i++)
      next[i] = draw(b);
    TRY(session_step_many(b->sessions, next, b->batch, ignore_which, ignore_chosen, NULL, err));
  }
  *seconds = use_seconds() - start;
  return TERN_OK;
}

/* Steps with guesses behind them that are all wrong. */
static tern_status time_guesses(bench *b, const bench_row *row, double *seconds, tern_error *err)
{
  int32_t next[1 + REPLY_MOST_DRAFTS];
  int begin = row->depth ? row->depth : 1;
  session_sink sink = {.row = ignore_row, .user = NULL};
  TRY(bring_to(b, 0, begin, begin + row->n + row->guesses, err));
  double start = use_seconds();
  for (int step = 0; step < row->n; step++) {
    size_t length = session_length(b->sessions[0]);
    for (int i = 0; i <= row->guesses; i++)
      next[i] = draw(b);
    TRY(session_steps(b->sessions[0], next, 1 + row->guesses, &sink, err));
    TRY(session_rewind(b->sessions[0], length + 1, err));
  }
  *seconds = use_seconds() - start;
  return TERN_OK;
}

/* ---- rows ---- */

static tern_status time_once(bench *b, const bench_row *row, double *seconds, tern_error *err)
{
  if (row->guesses)
    return time_guesses(b, row, seconds, err);
  return row->decode ? time_decode(b, row->depth, row->n, seconds, err)
                     : time_prompt(b, row->depth, row->n, seconds, err);
}

/* Forwards that one repeat makes: the last token of a prompt is a step of its own. */
static double forwards(const bench *b, const bench_row *row)
{
  if (row->decode)
    return row->n;
  int piece = b->args->prefill_step < b->m->plan.max_tokens ? b->args->prefill_step : b->m->plan.max_tokens;
  return row->batch * (1 + ceil((row->n - 1.0) / piece));
}

static tern_status measure(bench *b, bench_row row, tern_error *err)
{
  double rates[MOST_REPEATS], sum = 0, squares = 0, time = 0;
  int repeats = b->args->repeats;
  if (row.n == 0)
    return TERN_OK;
  if (b->n_rows == MOST_ROWS)
    return err_set(err, TERN_E_LIMIT, "bench: more than %d rows: ask for fewer sizes", MOST_ROWS);
  for (int i = -1; i < repeats; i++) {
    double seconds;
    TRY(time_once(b, &row, &seconds, err));
    say_progress("bench", (double)b->n_rows + (i + 1.0) / (repeats + 1), (double)b->planned);
    if (i < 0)
      continue;
    rates[i] = use_rate((double)row.n * row.batch, seconds);
    sum += rates[i];
    time += seconds;
  }
  row.tok_s = sum / repeats;
  for (int i = 0; i < repeats; i++)
    squares += (rates[i] - row.tok_s) * (rates[i] - row.tok_s);
  row.sd = repeats > 1 ? sqrt(squares / (repeats - 1)) : 0;
  row.ms = 1e3 * time / repeats / row.n / (row.decode ? 1 : row.batch);
  row.gb_s = use_rate(b->traffic * forwards(b, &row) * repeats, time) / 1e9;
  row.rates = mem_array((size_t)repeats, sizeof *rates);
  if (!row.rates)
    return err_nomem(err, "rates");
  memcpy(row.rates, rates, (size_t)repeats * sizeof *rates);
  b->rows[b->n_rows++] = row;
  return TERN_OK;
}

/* Guesses are measured on one timeline alone. */
static tern_status measure_decodes(bench *b, int depth, int count, int n, tern_error *err)
{
  const cli_ints *guesses = &b->args->bench_guesses;
  tern_status status = TERN_OK;
  if (!guesses->items)
    return measure(b, (bench_row){.decode = true, .n = n, .depth = depth, .batch = count}, err);
  for (size_t i = 0; i < guesses->n && status == TERN_OK; i++)
    if (guesses->items[i] == 0 || count == 1)
      status = measure(
          b, (bench_row){.decode = true, .n = n, .depth = depth, .batch = count, .guesses = guesses->items[i]}, err);
  return status;
}

static tern_status measure_at(bench *b, int depth, int count, const cli_ints *prompts, const cli_ints *decodes,
                              tern_error *err)
{
  tern_status status = open_sessions(b, count, err);
  for (size_t i = 0; i < prompts->n && status == TERN_OK; i++)
    status = measure(b, (bench_row){.n = prompts->items[i], .depth = depth, .batch = count}, err);
  for (size_t i = 0; i < decodes->n && status == TERN_OK; i++)
    status = measure_decodes(b, depth, count, decodes->items[i], err);
  close_sessions(b);
  return status;
}

/* ---- the plan of the measurement ---- */

static int largest(const cli_ints *list)
{
  int most = 0;
  for (size_t i = 0; i < list->n; i++)
    most = list->items[i] > most ? list->items[i] : most;
  return most;
}

static const cli_ints *or_default(const cli_ints *given, const cli_ints *fallback)
{
  return given->items ? given : fallback;
}

/* Whether the largest of the measurements has room, before hours of the smaller ones. */
static tern_status check_fits(const bench *b, int positions, int timelines, tern_error *err)
{
  double need = (double)kv_store_estimate(b->m->store, positions, b->m->plan.max_tokens) * timelines;
  double available = (double)model_memory_available(b->m);
  if (need <= available)
    return TERN_OK;
  return err_set(err, TERN_E_LIMIT, "bench: %d timeline%s of %d positions need %.0f MB of state, but %.0f MB are free",
                 timelines, timelines > 1 ? "s" : "", positions, need / (1 << 20), available / (1 << 20));
}

static tern_status measure_all(bench *b, tern_error *err)
{
  int some_prompts[] = {512}, some_decodes[] = {128}, one[] = {1}, zero[] = {0};
  cli_ints default_p = {some_prompts, 1, 1}, default_n = {some_decodes, 1, 1}, default_b = {one, 1, 1};
  cli_ints default_d = {zero, 1, 1};
  const cli_args *a = b->args;
  const cli_ints *prompts = or_default(&a->bench_prompts, &default_p);
  const cli_ints *decodes = or_default(&a->bench_decodes, &default_n);
  const cli_ints *batches = or_default(&a->bench_batches, &default_b),
                 *depths = or_default(&a->bench_depths, &default_d);
  size_t most = (size_t)largest(depths) + (size_t)largest(prompts) + 1;
  int longest = largest(prompts) > largest(decodes) ? largest(prompts) : largest(decodes);
  TRY(check_fits(b, largest(depths) + longest + largest(&a->bench_guesses), largest(batches), err));
  b->planned = (prompts->n + decodes->n * (a->bench_guesses.n ? a->bench_guesses.n : 1)) * batches->n * depths->n;
  b->ids = mem_array(most, sizeof *b->ids);
  if (!b->ids)
    return err_nomem(err, "token ids");
  for (size_t i = 0; i < most; i++)
    b->ids[i] = draw(b);
  tern_status status = TERN_OK;
  sig_watch(cancel_all, b);
  for (size_t d = 0; d < depths->n && status == TERN_OK; d++)
    for (size_t i = 0; i < batches->n && status == TERN_OK; i++)
      status = measure_at(b, depths->items[d], batches->items[i], prompts, decodes, err);
  sig_release();
  mem_free(b->ids);
  b->ids = NULL;
  return status;
}

/* Bytes of weights that a decode step reads: all but an embedding that is not the head too. */
static double weight_traffic(const model *m)
{
  const char *parts[] = {".weight", ".scales", ".biases"}, *embed = m->weights.embed.name;
  double bytes = (double)ckpt_bytes(m->ckpt);
  if (m->weights.head.data == m->weights.embed.data)
    return bytes;
  for (int i = 0; i < 3; i++) {
    char name[320];
    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(embed) - strlen(".weight")), embed, parts[i]);
    const st_tensor *t = ckpt_find(m->ckpt, name);
    bytes -= t ? (double)t->bytes : 0;
  }
  return bytes;
}

/* ---- output ---- */

static void print_json(const bench *b, const char *dir)
{
  json_t *rows = json_array();
  for (size_t i = 0; i < b->n_rows; i++) {
    const bench_row *r = &b->rows[i];
    json_t *samples = json_array();
    for (int k = 0; k < b->args->repeats; k++)
      out_append(&samples, json_real(r->rates[k]));
    out_append(&rows,
               json_pack("{ss si si si si sf sf sf sf sf so}", "kind", r->decode ? "decode" : "prompt", "n", r->n,
                         "depth", r->depth, "batch", r->batch, "guesses", r->guesses, "tok_s", r->tok_s, "sd", r->sd,
                         "ms", r->ms, "gb_s", r->gb_s, "share", use_rate(r->gb_s, b->bandwidth), "samples", samples));
  }
  out_json(json_pack("{so ss ss sb si sf sf sf so}", "model", out_text(dir), "numerics",
                     use_numerics_name(b->m->numerics), "backend", b->m->cx.backend->name, "prepared",
                     b->m->prepared != NULL, "threads", pool_size(b->m->workers), "open_ms", b->open_ms, "peak_mb",
                     b->peak_mb, "bandwidth_gb_s", b->bandwidth, "rows", rows));
}

static void print_table(const bench *b, const char *dir)
{
  char shown[ERR_CLEAN_PATH];
  out_printf("%s: %s on %s, weights %s, %d thread%s; opened in %.1f ms, peak %.0f MB, memory reads at %.1f GB/s\n\n",
             err_clean_copy(dir, shown, sizeof shown), use_numerics_name(b->m->numerics), b->m->cx.backend->name,
             b->m->prepared ? "prepared" : "as mapped", pool_size(b->m->workers),
             pool_size(b->m->workers) > 1 ? "s" : "", b->open_ms, b->peak_mb, b->bandwidth);
  bool guesses = b->args->bench_guesses.items;
  out_printf("| kind   |      n |  depth | batch |%s            tok/s |  ms/token | weights GB/s | share |\n",
             guesses ? " guesses |" : "");
  out_printf("|--------|-------:|-------:|------:|%s-----------------:|----------:|-------------:|------:|\n",
             guesses ? "--------:|" : "");
  for (size_t i = 0; i < b->n_rows; i++) {
    const bench_row *r = &b->rows[i];
    char column[24] = "";
    if (guesses)
      snprintf(column, sizeof column, " %7d |", r->guesses);
    out_printf("| %-6s | %6d | %6d | %5d |%s %8.1f ± %5.1f | %9.3f | %12.1f | %4.0f%% |\n",
               r->decode ? "decode" : "prompt", r->n, r->depth, r->batch, column, r->tok_s, r->sd, r->ms, r->gb_s,
               100 * use_rate(r->gb_s, b->bandwidth));
  }
}

static tern_status gpu_bandwidth(int gpu, double *gb_s, tern_error *err)
{
  const cuda_plugin *plugin;
  tern_error why = {0};
  TRY(cuda_load(&plugin, err));
  *gb_s = 0;
  if (plugin->bandwidth(gpu, gb_s, &why) != TERN_OK) /* what was measured stands */
    say_warning("%s", why.text);
  return TERN_OK;
}

static tern_status bench_model(bench *b, const char *dir, const tern_model_options *options, tern_error *err)
{
  double start = use_seconds();
  TRY(use_network(dir, options, &b->m, err));
  b->open_ms = 1e3 * (use_seconds() - start);
  b->traffic = weight_traffic(b->m);
  TRY(measure_all(b, err));
  b->peak_mb = use_peak_mb();
  return b->m->cx.backend->own_memory ? gpu_bandwidth(options->gpu, &b->bandwidth, err)
                                      : machine_bandwidth(options->threads, &b->bandwidth, err);
}

tern_status verb_bench(const cli_args *a, tern_error *err)
{
  const char *name;
  char *dir;
  tern_model_options options;
  TRY(args_need_model(a, &name, NULL, err));
  TRY(use_options(a, &options, err));
  TRY(use_dir(a, name, NEED_WEIGHTS, &dir, err));
  bench *b = mem_zalloc(sizeof *b);
  tern_status status = b ? TERN_OK : err_nomem(err, "bench");
  if (b) {
    b->args = a;
    b->random = a->seed;
    status = bench_model(b, dir, &options, err);
    say_progress_end();
    if (status == TERN_OK && a->json)
      print_json(b, dir);
    else if (status == TERN_OK)
      print_table(b, dir);
    model_close(b->m);
  }
  for (size_t i = 0; b && i < b->n_rows; i++)
    mem_free(b->rows[i].rates);
  mem_free(b);
  mem_free(dir);
  return status;
}
