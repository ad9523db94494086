/* test_hidden.c - hidden states of wanted tokens: the same bits in one forward, in pieces, and beside rows that want
 * logits, whose own stay the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

enum { TOKENS = 40, PIECE = 7, WIDEST = 512 };

typedef struct record {
  float states[TOKENS][WIDEST], logits[WIDEST];
  int width, vocab, base; /* base: position of the row's first token */
  int n_states, n_logits;
  int hidden_row; /* of the batch */
} record;

static model *open_model(const char *name, tern_backend backend)
{
  char dir[512];
  tern_error err = {0};
  tern_model_options options = {.threads = 2, .backend = backend};
  model *m = NULL;
  snprintf(dir, sizeof dir, "%s/tests/golden/%s/model", TERN_SOURCE_DIR, name);
  if (model_open(dir, &options, false, &m, &err) != TERN_OK)
    fail_msg("%s: %s", name, err.text);
  return m;
}

static void keep(void *user, int row, int index, float *values)
{
  record *r = user;
  if (row == r->hidden_row) {
    memcpy(r->states[r->base + index], values, (size_t)r->width * sizeof *values);
    r->n_states++;
    return;
  }
  assert_int_equal(r->n_states, 0); /* logits come first */
  memcpy(r->logits, values, (size_t)r->vocab * sizeof *values);
  r->n_logits++;
}

static kv_seq *open_sequence(model *m)
{
  kv_seq *s;
  tern_error err = {0};
  if (kv_seq_open(m->store, &s, &err) != TERN_OK || model_reserve(m, s, 0, TOKENS, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return s;
}

static const int32_t numbers[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
                                  20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39};

/* Reads the ids in pieces; beside the first piece another sequence steps a token. */
static void read_in_pieces(model *m, const int32_t *ids, int piece, bool beside, record *out)
{
  tern_error err = {0};
  kv_seq *own = open_sequence(m), *other = open_sequence(m);
  *out = (record){.width = m->config.width, .vocab = m->config.vocab};
  assert_true(out->width <= WIDEST && out->vocab <= WIDEST);
  for (int at = 0; at < TOKENS; at += piece) {
    int n = TOKENS - at < piece ? TOKENS - at : piece;
    batch_row rows[2] = {
        {.sequence = own,
         .ids = ids + at,
         .count = n,
         .position = at,
         .split = TOKENS,
         .kind = ROW_READ,
         .want = numbers,
         .n_want = n,
         .hidden = true},
        {.sequence = other, .ids = ids, .count = 1, .kind = ROW_STEP, .want = numbers, .n_want = 1},
    };
    out->base = at;
    out->n_states = 0;
    if (model_forward(m, &(batch){.rows = rows, .n_rows = beside && !at ? 2 : 1, .cancelled = NULL}, keep, out, &err) !=
        TERN_OK)
      fail_msg("%s", err.text);
    assert_int_equal(out->n_states, n);
  }
  kv_seq_close(own);
  kv_seq_close(other);
}

static void states_are_the_same_however_they_come_about(void **state)
{
  (void)state;
  static const char *const names[] = {"llama-4bit", "llama-sliding-8bit", "gemma3-bf16", "qwen2-mxfp4", "qwen3-f16"};
  record *want = malloc(sizeof *want), *got = malloc(sizeof *got), *alone = malloc(sizeof *alone);
  int32_t ids[TOKENS];
  for (size_t c = 0; c < sizeof names / sizeof *names; c++)
    for (int ref = 0; ref < 2; ref++) {
      model *m = open_model(names[c], ref ? TERN_BACKEND_REF : TERN_BACKEND_CPU);
      for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * 37 + 11) % m->config.vocab;
      if (!ref)
        read_in_pieces(m, ids, TOKENS, false, want);
      for (int way = 0; way < 3; way++) {
        read_in_pieces(m, ids, way == 1 ? PIECE : TOKENS, way == 2, got);
        for (int t = 0; t < TOKENS; t++)
          if (memcmp(got->states[t], want->states[t], (size_t)want->width * sizeof(float)) != 0)
            fail_msg("%s, backend %d, way %d: the state of token %d differs", names[c], ref, way, t);
        assert_int_equal(got->n_logits, way == 2);
      }
      /* The neighbour's logits are those it has alone. */
      tern_error err = {0};
      kv_seq *s = open_sequence(m);
      batch_row row = {.sequence = s, .ids = ids, .count = 1, .kind = ROW_STEP, .want = numbers, .n_want = 1};
      *alone = (record){.width = got->width, .vocab = got->vocab, .hidden_row = -1};
      assert_int_equal(model_forward(m, &(batch){.rows = &row, .n_rows = 1, .cancelled = NULL}, keep, alone, &err),
                       TERN_OK);
      assert_memory_equal(alone->logits, got->logits, (size_t)got->vocab * sizeof(float));
      kv_seq_close(s);
      model_close(m);
    }
  free(want);
  free(got);
  free(alone);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(states_are_the_same_however_they_come_about)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
