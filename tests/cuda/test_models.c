/* Proves that checkpoints give the same logits on a GPU as on the CPU, bit for bit: test_models [--long | --runs N]
 * DIR...
 *
 * Each is opened on both backends, in numerics exact and fast, as it is, with quantised keys and values, and with a
 * bounded cache. A prompt in pieces (every row), steps after it, nine timelines of different lengths stepped together,
 * several steps in one forward some of which are taken back, and a prompt's hidden states have to agree. What the CPU
 * refuses, the GPU has to refuse in the same words; it may refuse records that round to half types (cuda_takes), which
 * are counted apart. --runs: instead, each is run N times on the GPU, on two threads at once, and has to give the first
 * run's logits. --long: prompts and contexts that grow past powers of two, where tables of blocks, scratch and graphs
 * change.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "engine/session.h"

enum {
  STEPS = 6,
  TIMELINES = 9,
  MOST_PROMPT = 1050,
  HIDDEN = 40,
  GUESSED = 3 + 2 + 1 + 5 + 8 + 1 + 20 + 33 + 9, /* rows of step_with_guesses */
  MOST_ROWS = MOST_PROMPT + STEPS + TIMELINES * (STEPS + 1) + 1 + GUESSED + HIDDEN
};

/* What is read and in which pieces; the timelines that are stepped together. */
typedef struct shape {
  int prompt, piece;
  size_t timelines[TIMELINES];
} shape;

static const shape usual = {75, 32, {3, 30, 71, 1, 2, 9, 17, 33, 64}},
                   longer = {1021, 200, {1, 509, 1023, 5, 63, 64, 65, 255, 256}};

/* ---- rows of logits, in the order in which they came ---- */

typedef struct rows {
  float *values; /* [MOST_ROWS, vocab] */
  int n, vocab;
} rows;

static void keep(rows *r, const float *logits)
{
  if (r->n < MOST_ROWS)
    memcpy(r->values + (size_t)r->n * (size_t)r->vocab, logits, (size_t)r->vocab * sizeof *logits);
  r->n++;
}

static void keep_position(void *user, int64_t position, float *logits)
{
  (void)position;
  keep(user, logits);
}

static void keep_timeline(void *user, int which, float *logits)
{
  (void)which;
  keep(user, logits);
}

static int32_t id_at(int i, int vocab)
{
  return (int32_t)((7u * (unsigned)i * (unsigned)i + 3u * (unsigned)i + 1u) % (unsigned)vocab);
}

/* ---- one model on one backend ---- */

static tern_status step_together(model *m, const shape *at, const int32_t *ids, rows *out, tern_error *err)
{
  session *s[TIMELINES] = {0};
  session_sink sink = {.row = keep_position, .user = out};
  tern_status status = TERN_OK;
  for (int i = 0; i < TIMELINES && status == TERN_OK; i++) {
    session_request request = {
        .ids = ids, .n = at->timelines[i], .limit = (int64_t)at->timelines[i] + STEPS, .piece = at->piece};
    status = session_open(m, 2 * MOST_PROMPT, &s[i], err);
    if (status == TERN_OK)
      status = session_sync(s[i], &request, &sink, NULL, err);
  }
  for (int n = 0; n < STEPS && status == TERN_OK; n++) {
    int32_t next[TIMELINES] = {id_at(n + 1, out->vocab), id_at(n + 7, out->vocab), id_at(n + 13, out->vocab)};
    status = session_step_many(s, next, TIMELINES, keep_timeline, NULL, out, err);
  }
  for (int i = 0; i < TIMELINES; i++)
    session_close(s[i]);
  return status;
}

/* Several steps in a forward, some of which are taken back: guesses that were right and wrong. */
static tern_status step_with_guesses(session *s, const shape *at, const int32_t *ids, rows *out, tern_error *err)
{
  static const int taken[][2] = {{3, 2}, {1, 0}, {5, 8}, {1, 20}, {33, 0}, {9, 0}}; /* right, wrong */
  session_sink sink = {.row = keep_position, .user = out};
  session_request request = {.ids = ids, .n = (size_t)at->prompt, .limit = at->prompt + GUESSED, .piece = at->piece};
  TRY(session_sync(s, &request, &sink, NULL, err));
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
    int32_t next[64];
    int n = taken[i][0] + taken[i][1];
    size_t length = session_length(s);
    for (int k = 0; k < n; k++)
      next[k] = id_at((int)length + 3 * k, out->vocab);
    TRY(session_steps(s, next, n, &sink, err));
    TRY(session_rewind(s, length + (size_t)taken[i][0], err));
  }
  return TERN_OK;
}

/* A row of hidden states is as many values of a row of logits as it has; the others are zeros. */
typedef struct hidden_rows {
  rows *out;
  int width;
} hidden_rows;

static void keep_hidden(void *user, int row, int index, float *state)
{
  const hidden_rows *h = user;
  rows *r = h->out;
  (void)row, (void)index;
  if (r->n < MOST_ROWS) {
    float *to = r->values + (size_t)r->n * (size_t)r->vocab;
    memset(to, 0, (size_t)r->vocab * sizeof *to);
    memcpy(to, state, (size_t)(h->width < r->vocab ? h->width : r->vocab) * sizeof *to);
  }
  r->n++;
}

/* Hidden states of all tokens of a prompt. */
static tern_status read_hidden(model *m, const int32_t *ids, rows *out, tern_error *err)
{
  int32_t numbers[HIDDEN];
  kv_seq *s;
  hidden_rows to = {out, m->config.width};
  for (int i = 0; i < HIDDEN; i++)
    numbers[i] = i;
  TRY(kv_seq_open(m->store, &s, err));
  tern_status status = model_reserve(m, s, 0, HIDDEN, err);
  for (int64_t at = 0; at < HIDDEN && status == TERN_OK;) {
    int64_t most = model_piece_most(m, at), n = HIDDEN - at < most ? HIDDEN - at : most;
    batch_row row = {.sequence = s,
                     .ids = ids + at,
                     .count = (int)n,
                     .position = at,
                     .split = HIDDEN,
                     .kind = ROW_READ,
                     .want = numbers,
                     .n_want = (int)n,
                     .hidden = true};
    status = model_forward(m, &(batch){.rows = &row, .n_rows = 1, .cancelled = NULL}, keep_hidden, &to, err);
    at += n;
  }
  kv_seq_close(s);
  return status;
}

static tern_status run_model(const char *dir, const tern_model_options *o, const shape *at, rows *out, tern_error *err)
{
  model *m;
  session *s = NULL;
  int32_t ids[MOST_PROMPT];
  TRY(model_open(dir, o, false, &m, err));
  *out = (rows){.vocab = m->config.vocab};
  out->values = malloc((size_t)MOST_ROWS * (size_t)out->vocab * sizeof *out->values);
  for (int i = 0; i < MOST_PROMPT; i++)
    ids[i] = id_at(i, out->vocab);
  session_sink sink = {.row = keep_position, .user = out};
  session_request request = {
      .ids = ids, .n = (size_t)at->prompt, .limit = at->prompt + STEPS, .piece = at->piece, .all = true};
  tern_status status = session_open(m, 2 * MOST_PROMPT, &s, err);
  if (status == TERN_OK)
    status = session_sync(s, &request, &sink, NULL, err);
  for (int i = 0; i < STEPS && status == TERN_OK; i++)
    status = session_step(s, id_at(at->prompt + i, out->vocab), &sink, err);
  if (status == TERN_OK)
    status = step_together(m, at, ids, out, err);
  if (status == TERN_OK)
    status = step_with_guesses(s, at, ids, out, err);
  if (status == TERN_OK)
    status = read_hidden(m, ids, out, err);
  session_close(s);
  model_close(m);
  return status;
}

/* ---- comparing ---- */

typedef struct variant {
  const char *name;
  tern_model_options options;
} variant;

static const variant variants[] = {
    {"plain", {0}},
    {"kv-bits 4", {.kv_bits = 4, .kv_group_size = 32, .quantized_kv_start = 20}},
    {"kv-bits 6 from the start", {.kv_bits = 6, .kv_group_size = 32}},
    {"max-kv-size 24", {.max_kv_size = 24}},
};

typedef struct tally {
  int passed, failed, refused, alone;
} tally;

/* The first value that differs, or -1. */
static int64_t difference(const rows *a, const rows *b)
{
  for (int64_t i = 0; i < (int64_t)a->n * a->vocab; i++)
    if (f32_bits(a->values[i]) != f32_bits(b->values[i]) &&
        !(a->values[i] != a->values[i] && b->values[i] != b->values[i]))
      return i;
  return -1;
}

static void compare(const char *dir, const variant *v, tern_numerics numerics, const shape *at, tally *t)
{
  tern_model_options o = v->options;
  rows cpu = {0}, gpu = {0};
  tern_error cpu_error = {0}, gpu_error = {0};
  const char *name = numerics == TERN_FAST ? "fast" : "exact";
  o.numerics = numerics;
  o.threads = 2;
  o.backend = TERN_BACKEND_CPU;
  tern_status a = run_model(dir, &o, at, &cpu, &cpu_error);
  o.backend = TERN_BACKEND_CUDA;
  tern_status b = run_model(dir, &o, at, &gpu, &gpu_error);
  int64_t differs = a == TERN_OK && b == TERN_OK && cpu.n == gpu.n ? difference(&cpu, &gpu) : -1;
  if (a != TERN_OK && strcmp(cpu_error.text, gpu_error.text) == 0) {
    t->refused++;
  } else if (a == TERN_OK && b == TERN_E_UNSUPPORTED && strstr(gpu_error.text, "rounds to a half type")) {
    t->alone++;
  } else if (a != TERN_OK || b != TERN_OK) {
    t->failed++;
    printf("FAILED %s, %s, %s: cpu: %s; cuda: %s\n", dir, name, v->name, a ? cpu_error.text : "ran",
           b ? gpu_error.text : "ran");
  } else if (cpu.n != gpu.n || cpu.n > MOST_ROWS || differs >= 0) {
    t->failed++;
    printf("FAILED %s, %s, %s: row %lld of %d, value %lld of %d: cpu %a, cuda %a\n", dir, name, v->name,
           (long long)(differs / cpu.vocab), cpu.n, (long long)(differs % cpu.vocab), cpu.vocab,
           differs < 0 ? 0 : (double)cpu.values[differs], differs < 0 ? 0 : (double)gpu.values[differs]);
  } else {
    t->passed++;
  }
  fflush(stdout);
  free(cpu.values);
  free(gpu.values);
}

/* ---- again and again ---- */

typedef struct repeats {
  const char *dir;
  tern_model_options options;
  int runs;
  const rows *first;
  bool differs;
  tern_error err;
} repeats;

static void *run_again(void *user)
{
  repeats *r = user;
  for (int i = 0; i < r->runs && !r->differs; i++) {
    rows now = {0};
    tern_status status = run_model(r->dir, &r->options, &usual, &now, &r->err);
    r->differs = status != TERN_OK || now.n != r->first->n || difference(r->first, &now) >= 0;
    free(now.values);
  }
  return NULL;
}

static void repeat(const char *dir, tern_numerics numerics, int runs, tally *t)
{
  tern_model_options o = {.numerics = numerics, .threads = 1, .backend = TERN_BACKEND_CUDA};
  rows first = {0};
  tern_error err = {0};
  pthread_t other;
  if (run_model(dir, &o, &usual, &first, &err) != TERN_OK) {
    printf("FAILED %s: %s\n", dir, err.text);
    t->failed++;
    return;
  }
  repeats both[2] = {{dir, o, runs / 2, &first, false, {0}}, {dir, o, runs - runs / 2, &first, false, {0}}};
  pthread_create(&other, NULL, run_again, &both[0]);
  run_again(&both[1]);
  pthread_join(other, NULL);
  for (int i = 0; i < 2; i++)
    if (both[i].differs)
      printf("FAILED %s: a run differs from the first %s\n", dir, both[i].err.text);
  *(both[0].differs || both[1].differs ? &t->failed : &t->passed) += 1;
  free(first.values);
}

int main(int argc, char **argv)
{
  tally t = {0};
  int runs = argc > 2 && !strcmp(argv[1], "--runs") ? atoi(argv[2]) : 0;
  for (int i = 3; runs && i < argc; i++) {
    repeat(argv[i], TERN_EXACT, runs, &t);
    repeat(argv[i], TERN_FAST, runs, &t);
  }
  const shape *at = argc > 1 && !strcmp(argv[1], "--long") ? &longer : &usual;
  for (int i = at == &longer ? 2 : 1; !runs && i < argc; i++)
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
      compare(argv[i], &variants[v], TERN_EXACT, at, &t);
      compare(argv[i], &variants[v], TERN_FAST, at, &t);
    }
  printf("%d passed, %d failed, %d refused alike, %d by cuda alone\n", t.passed, t.failed, t.refused, t.alone);
  return t.failed || !t.passed;
}
