/* test_constraint.c - answers under a grammar, on tiny checkpoints with random weights: the hardest case, for nothing
 * in them leans towards JSON. Masks are what trying each token alone says; answers parse and are valid, whatever the
 * seed; and they are the same with guesses, good and bad, and however often memory is given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/constraint.h"
#include "engine/draft.h"
#include "engine/scheduler.h"
#include "text/detok.h"

static const char *const checkpoints[] = {"gemma3-bf16", "llama-4bit", "qwen3-f16"};
enum { N_CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints, SEEDS = 12, TOKENS = 160 };

/* Small enough that random weights get to the end. */
static const char schema[] =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 8}, \"kind\": {\"enum\": "
    "[\"one\", \"two\"]}, \"n\": {\"type\": \"integer\", \"minimum\": 3, \"maximum\": 120}, \"tags\": {\"type\": "
    "\"array\", "
    "\"items\": {\"type\": \"boolean\"}, \"maxItems\": 3}}, \"required\": [\"name\", \"kind\", \"n\"]}";

static void expect_ok(tern_status status, const tern_error *err)
{
  if (status != TERN_OK)
    fail_msg("%s", err->text);
}

static tern_model *open_model(const char *name)
{
  char dir[512];
  tern_error err = {0};
  tern_model *m = NULL;
  snprintf(dir, sizeof dir, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, name);
  expect_ok(tern_model_open(dir, &(tern_model_options){.threads = 1}, &m, &err), &err);
  return m;
}

static tern_grammar *open_grammar(tern_model *m, const char *text)
{
  tern_error err = {0};
  tern_grammar *g = NULL;
  expect_ok(tern_grammar_open(m, text, text ? strlen(text) : 0, &g, &err), &err);
  return g;
}

/* ---- the bytes of tokens ---- */

static uint32_t random_state = 1;

static uint32_t next_random(uint32_t below)
{
  random_state = random_state * 1664525u + 1013904223u;
  return (uint32_t)(((uint64_t)random_state * below) >> 32);
}

/* Tokens that together are characters: what they are said to write is what the detokenizer writes. */
static void bytes_are_what_is_written(void **state)
{
  (void)state;
  for (int k = 0; k < N_CHECKPOINTS; k++) {
    tern_model *m = open_model(checkpoints[k]);
    tok_bytes *later = NULL, *first = NULL;
    tern_error err = {0};
    expect_ok(tok_bytes_open(m->tok, m->info.vocab, false, &later, &err), &err);
    expect_ok(tok_bytes_open(m->tok, m->info.vocab, true, &first, &err), &err);
    assert_true(later->n > 100);
    int compared = 0;
    for (int trial = 0; trial < 20000; trial++) {
      detok *d = NULL;
      buf said = {0}, written = {0};
      const char *text;
      size_t n = 0, length = 1 + next_random(4);
      expect_ok(detok_open(m->tok, false, &d, &err), &err);
      for (size_t i = 0; i < length; i++) {
        const tok_bytes *b = i ? later : first;
        int32_t id = b->ids[next_random((uint32_t)b->n)];
        const char *bytes = tok_bytes_of(b, id, &n);
        buf_add(&said, bytes, n);
        expect_ok(detok_push(d, id, &text, &n, &err), &err);
        buf_add(&written, text, n);
      }
      expect_ok(detok_finish(d, &text, &n, &err), &err);
      buf_add(&written, text, n);
      if (!memmem(written.data ? written.data : "", written.length, "\xef\xbf\xbd", 3)) {
        assert_int_equal(said.length, written.length);
        assert_memory_equal(said.data, written.data, said.length);
        compared++;
      }
      detok_close(d);
      buf_free(&said);
      buf_free(&written);
    }
    assert_true(compared > 1000);
    tok_bytes_close(later);
    tok_bytes_close(first);
    tern_model_close(m);
  }
}

/* ---- masks ---- */

static bool is_stop(const tern_model *m, int32_t id)
{
  for (size_t i = 0; i < m->n_stop_ids; i++)
    if (m->stop_ids[i] == id)
      return true;
  return false;
}

/* At states along random ways, against a machine of the test's own. */
static void check_masks(tern_model *m, const char *text)
{
  tern_error err = {0};
  tern_grammar *g = open_grammar(m, text);
  const tern_generate_options options = {.grammar = g};
  constraint *c = NULL;
  gram_machine *own = NULL;
  expect_ok(constraint_open(g, &options, &c, &err), &err);
  expect_ok(gram_machine_open(&g->grammar, &own, &err), &err);
  gram_allow(own, UINT64_MAX);
  for (int walk = 0; walk < 6; walk++) {
    uint32_t at = constraint_start(c), same = gram_start(own);
    for (int step = 0; step < 30 && !constraint_is_over(c, at); step++) {
      const uint64_t *mask;
      int32_t next = -1;
      uint32_t n = 0;
      expect_ok(constraint_mask(c, at, step == 0, &mask, &err), &err);
      const tok_bytes *b = step == 0 && m->first_bytes ? m->first_bytes : m->bytes;
      for (int32_t id = 0; id < m->info.vocab; id++) {
        size_t length = 0;
        const char *s = tok_bytes_of(b, id, &length);
        uint32_t to = same;
        for (size_t i = 0; s && i < length && to; i++)
          to = gram_step(own, to, (uint8_t)s[i]);
        bool may = is_stop(m, id) ? gram_accepts(own, same) : s && to;
        if (may != (mask[id >> 6] >> (id & 63) & 1))
          fail_msg("token %d at step %d", (int)id, step);
        if (may && !is_stop(m, id) && next_random(++n) == 0)
          next = id;
      }
      if (next < 0)
        break;
      size_t length = 0;
      const char *s = tok_bytes_of(b, next, &length);
      at = constraint_after(c, at, step == 0, next);
      for (size_t i = 0; i < length; i++)
        same = gram_step(own, same, (uint8_t)s[i]);
      assert_true(at != GRAM_DEAD && same != GRAM_DEAD);
    }
  }
  gram_machine_close(own);
  constraint_close(c);
  tern_grammar_close(g);
}

static void masks_are_exact(void **state)
{
  (void)state;
  for (int k = 0; k < N_CHECKPOINTS; k++) {
    tern_model *m = open_model(checkpoints[k]);
    check_masks(m, schema);
    check_masks(m, NULL);
    check_masks(m, "{\"type\": \"array\", \"items\": {\"type\": [\"string\", \"number\"]}}");
    tern_model_close(m);
  }
}

/* ---- answers ---- */

static void check_answer(const char *text)
{
  json_error_t why;
  json_t *v = json_loads(text, JSON_REJECT_DUPLICATES, &why);
  if (!v)
    fail_msg("%s: %s", why.text, text);
  const char *name = json_string_value(json_object_get(v, "name")),
             *kind = json_string_value(json_object_get(v, "kind"));
  json_int_t n = json_integer_value(json_object_get(v, "n"));
  assert_true(name && kind && (!strcmp(kind, "one") || !strcmp(kind, "two")) && n >= 3 && n <= 120);
  assert_true(json_array_size(json_object_get(v, "tags")) <= 3);
  json_decref(v);
}

static tern_result generate(tern_model *m, const tern_grammar *g, uint64_t seed, double temp, tern_draft draft)
{
  static const int32_t ids[] = {5, 17, 9, 17, 9, 33};
  tern_error err = {0};
  tern_session *s = NULL;
  tern_result result = {0};
  const tern_generate_options options = {
      .sampling = {.temp = temp, .seed = seed, .repetition_penalty = seed % 3 ? 1.3 : 0, .top_p = seed % 2 ? 0.9 : 0},
      .max_tokens = TOKENS,
      .grammar = g};
  expect_ok(tern_session_open(m, &(tern_session_options){.context = 400, .draft = draft}, &s, &err), &err);
  expect_ok(tern_generate(s, ids, 6, &options, &result, &err), &err);
  tern_session_close(s);
  return result;
}

/* Guesses that are right for a while, then wrong: from the answer that is expected. */
typedef struct oracle {
  const tern_result *answer;
  size_t prompt;
} oracle;

static int guess(void *user, const int32_t *ids, size_t n, int32_t *out, int most)
{
  const oracle *o = user;
  size_t at = n - o->prompt;
  int k = 0;
  (void)ids;
  for (; k < most && at + (size_t)k < o->answer->n_ids; k++)
    out[k] = o->answer->ids[at + (size_t)k] ^ (next_random(4) == 0);
  return k;
}

static void answers_are_valid(void **state)
{
  int whole = 0;
  (void)state;
  for (int k = 0; k < N_CHECKPOINTS; k++) {
    tern_model *m = open_model(checkpoints[k]);
    tern_grammar *g = open_grammar(m, schema);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
      tern_result plain = generate(m, g, seed, seed ? 1.0 : 0, (tern_draft){0});
      oracle right = {&plain, 6};
      tern_result guessed = generate(m, g, seed, seed ? 1.0 : 0,
                                     (tern_draft){.guess = guess, .user = &right, .tokens = 5, .always = true});
      assert_string_equal(plain.text, guessed.text);
      assert_string_equal(plain.finish, guessed.finish);
      assert_int_equal(plain.n_ids, guessed.n_ids);
      if (!strcmp(plain.finish, "stop")) {
        check_answer(plain.text);
        whole++;
      }
      tern_result_clear(&plain);
      tern_result_clear(&guessed);
    }
    tern_grammar_close(g);
    tern_model_close(m);
  }
  assert_true(whole > N_CHECKPOINTS * SEEDS / 2);
}

/* ---- many at once ---- */

typedef struct seat {
  sched_job job;
  buf text;
  const char *finish;
  pthread_mutex_t *lock;
  pthread_cond_t *ended;
  int *left;
} seat;

static bool on_text(void *user, const char *text, size_t n)
{
  buf_add(&((seat *)user)->text, text, n);
  return true;
}

static void on_end(void *user, const sched_end *end)
{
  seat *s = user;
  pthread_mutex_lock(s->lock);
  s->finish = end->status == TERN_OK ? end->finish : "failed";
  --*s->left;
  pthread_cond_signal(s->ended);
  pthread_mutex_unlock(s->lock);
}

static void neighbours_change_nothing(void **state)
{
  static const int32_t ids[] = {5, 17, 9, 17, 9, 33};
  enum { JOBS = 6 };
  tern_error err = {0};
  tern_model *m = open_model("llama-4bit");
  tern_grammar *g = open_grammar(m, schema);
  scheduler *s = NULL;
  seat seats[JOBS] = {0};
  sched_job *jobs[JOBS];
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
  int left = JOBS;
  (void)state;
  expect_ok(sched_open(m, &(sched_options){.context = 400, .draft = {.lookup = true}}, &s, &err), &err);
  for (int i = 0; i < JOBS; i++) {
    uint64_t seed = (uint64_t)i;
    seats[i].lock = &lock;
    seats[i].ended = &ended;
    seats[i].left = &left;
    seats[i].job = (sched_job){.ids = ids, .n = 6, .top = i % 2 ? 5 : -1, .on_end = on_end, .user = &seats[i]};
    seats[i].job.options = (tern_generate_options){.sampling = {.temp = i ? 1.0 : 0,
                                                                .seed = seed,
                                                                .repetition_penalty = seed % 3 ? 1.3 : 0,
                                                                .top_p = seed % 2 ? 0.9 : 0},
                                                   .max_tokens = TOKENS,
                                                   .grammar = i == JOBS - 1 ? NULL : g,
                                                   .on_text = on_text,
                                                   .user = &seats[i]};
    jobs[i] = &seats[i].job;
  }
  expect_ok(sched_submit(s, jobs, JOBS, &err), &err);
  pthread_mutex_lock(&lock);
  while (left)
    pthread_cond_wait(&ended, &lock);
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < JOBS; i++) {
    tern_result alone = generate(m, i == JOBS - 1 ? NULL : g, (uint64_t)i, i ? 1.0 : 0, (tern_draft){0});
    buf_add(&seats[i].text, "", 0);
    assert_string_equal(seats[i].finish, alone.finish);
    assert_string_equal(seats[i].text.data, alone.text);
    tern_result_clear(&alone);
    buf_free(&seats[i].text);
  }
  sched_close(s);
  tern_grammar_close(g);
  tern_model_close(m);
}

/* What leaves nothing to a sampler must not let it draw what the grammar forbids. */
static void odd_sampling(void **state)
{
  static const tern_sampling odd[] = {{.temp = 1e-40},
                                      {.temp = 1, .top_p = 1e-9},
                                      {.temp = 1, .top_k = 1},
                                      {.temp = 50, .xtc_probability = 1, .xtc_threshold = 0.01},
                                      {.temp = 2, .min_p = 1}};
  static const int32_t ids[] = {5, 17, 9};
  (void)state;
  for (int k = 0; k < N_CHECKPOINTS; k++) {
    tern_model *m = open_model(checkpoints[k]);
    tern_grammar *g = open_grammar(m, "{\"enum\": [\"alpha\", \"beta\", 17]}");
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
      tern_error err = {0};
      tern_session *s = NULL;
      tern_result result = {0};
      const tern_generate_options options = {.sampling = odd[i], .max_tokens = 40, .grammar = g};
      expect_ok(tern_session_open(m, &(tern_session_options){.context = 100}, &s, &err), &err);
      expect_ok(tern_generate(s, ids, 3, &options, &result, &err), &err);
      assert_string_equal(result.finish, "stop");
      assert_true(!strcmp(result.text, "\"alpha\"") || !strcmp(result.text, "\"beta\"") || !strcmp(result.text, "17"));
      tern_result_clear(&result);
      tern_session_close(s);
    }
    const tern_generate_options both = {.ignore_eos = true, .max_tokens = 4, .grammar = g};
    tern_session *s = NULL;
    tern_result result = {0};
    tern_error err = {0};
    expect_ok(tern_session_open(m, NULL, &s, &err), &err);
    assert_int_equal(tern_generate(s, ids, 3, &both, &result, &err), TERN_E_USAGE);
    tern_session_close(s);
    tern_grammar_close(g);
    tern_model_close(m);
  }
}

/* ---- bounds ---- */

static tern_status answer(tern_model *m, const tern_grammar *g, tern_error *err)
{
  static const int32_t ids[] = {5, 17, 9};
  tern_session *s = NULL;
  tern_result result = {0};
  const tern_generate_options options = {.max_tokens = 8, .grammar = g};
  expect_ok(tern_session_open(m, &(tern_session_options){.context = 100}, &s, err), err);
  tern_status status = tern_generate(s, ids, 3, &options, &result, err);
  tern_result_clear(&result);
  tern_session_close(s);
  return status;
}

/* Thousands of threads at each byte: no schema's, for those are tried. The mask is given up, and the answer with it. */
static void a_mask_has_a_bound(void **state)
{
  tern_model *m = open_model("llama-4bit");
  tern_grammar *g = open_grammar(m, NULL);
  tern_error err = {0};
  gram_alternatives any = GRAM_ALTERNATIVES;
  (void)state;
  gram_free(&g->grammar);
  for (int i = 0; i < 4000; i++) {
    gram_branch(&g->grammar, &any, i < 3999);
    gram_bytes(&g->grammar, 0, 255);
    gram_bytes(&g->grammar, 0, 255);
    gram_bytes(&g->grammar, (uint8_t)i, 255);
  }
  gram_join(&g->grammar, &any);
  gram_accept(&g->grammar);
  expect_ok(gram_seal(&g->grammar, &err), &err);
  assert_int_equal(answer(m, g, &err), TERN_E_LIMIT);
  assert_non_null(strstr(err.text, "too costly"));
  tern_grammar_close(g);
  tern_model_close(m);
}

/* A byte that is in no token. */
static void no_token_goes_on(void **state)
{
  tern_model *m = open_model("llama-4bit");
  tern_grammar *g = open_grammar(m, NULL);
  tern_error err = {0};
  (void)state;
  gram_free(&g->grammar);
  gram_bytes(&g->grammar, 0xff, 0xff);
  for (int i = 0; i < 64; i++)
    gram_bytes(&g->grammar, 0xfe, 0xfe);
  gram_accept(&g->grammar);
  expect_ok(gram_seal(&g->grammar, &err), &err);
  tok_bytes *b = m->first_bytes ? m->first_bytes : m->bytes;
  size_t kept = b->n;
  b->n = 0; /* a tokenizer of which none can */
  assert_int_equal(answer(m, g, &err), TERN_E_UNSUPPORTED);
  assert_non_null(strstr(err.text, "no token"));
  b->n = kept;
  tern_grammar_close(g);
  tern_model_close(m);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_are_what_is_written),
      cmocka_unit_test(masks_are_exact),
      cmocka_unit_test(answers_are_valid),
      cmocka_unit_test(neighbours_change_nothing),
      cmocka_unit_test(odd_sampling),
      cmocka_unit_test(a_mask_has_a_bound),
      cmocka_unit_test(no_token_goes_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
