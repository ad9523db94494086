/* test_plan.c - what a descriptor compiles to: for a llama-shaped model exactly the records that one would write by
 * hand, in that order, on as few buffers; nothing of the other axes is left in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "model/model.h"

#define GOLDEN(name) TERN_SOURCE_DIR "/tests/golden/" name "/model"

static model *open_golden(const char *dir)
{
  tern_error err = {0};
  tern_model_options options = {.threads = 1};
  model *m = NULL;
  if (model_open(dir, &options, false, &m, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return m;
}

static void expect(const model *m, int *at, op_kind kind, int layer)
{
  assert_in_range(*at, 0, m->plan.n_records - 1);
  const op_record *r = &m->plan.records[(*at)++];
  if (r->kind != kind || r->layer != layer)
    fail_msg("record %d is %s of layer %d, not %s of layer %d", *at - 1, ops_name(r->kind), r->layer, ops_name(kind),
             layer);
}

/* Ten records a layer: both norms, one product each for q, k, v and for gate and up, the residual sums inside the
 * products that end a half. */
static void a_llama_plan_is_the_one_written_by_hand(void **state)
{
  (void)state;
  static const op_kind layer[] = {OP_rms_norm, OP_linear,   OP_rope,   OP_kv_append, OP_attention,
                                  OP_linear,   OP_rms_norm, OP_linear, OP_glu,       OP_linear};
  model *m = open_golden(GOLDEN("llama-4bit"));
  int at = 0;
  expect(m, &at, OP_embed, -1);
  for (int i = 0; i < m->config.layers; i++)
    for (size_t n = 0; n < sizeof layer / sizeof *layer; n++)
      expect(m, &at, layer[n], i);
  assert_int_equal(m->plan.body.end, at);
  expect(m, &at, OP_select, -1);
  expect(m, &at, OP_rms_norm, -1);
  expect(m, &at, OP_linear, -1);
  assert_int_equal(m->plan.n_records, at);
  assert_int_equal(m->plan.n_lists, 0);
  for (int i = 0; i < m->plan.n_records; i++) {
    const op_record *r = &m->plan.records[i];
    if (r->kind == OP_linear) {
      bool ends = r->linear.outputs == 1 && r->layer >= 0;
      assert_int_equal(r->linear.residual != NULL, ends);
    }
    if (r->kind == OP_attention)
      assert_true(r->attention.softcap == 0 && r->attention.sparse_block == 0 && !r->attention.by_time);
    if (r->kind == OP_rope)
      assert_int_equal(r->rope.ntk_from, 0);
  }
  model_close(m);
}

/* The stream, the normed input, and the widest half: as many floats a token as anyone would need. */
static void buffers_share_memory(void **state)
{
  (void)state;
  model *m = open_golden(GOLDEN("llama-4bit"));
  const model_config *c = &m->config;
  size_t attention = (size_t)(2 * c->heads + 2 * c->kv_heads) * (size_t)c->head_dim, mlp = 2 * (size_t)c->ffn;
  size_t most = 2 * (size_t)c->width + (attention > mlp ? attention : mlp);
  size_t head = (size_t)m->plan.head_rows * (2 * (size_t)c->width + (size_t)c->vocab);
  size_t bound = ((size_t)m->plan.max_tokens * most + head) * sizeof(float);
  if (m->plan.memory_bytes > bound + 64 * (size_t)m->plan.n_records)
    fail_msg("%zu bytes of activations, %zu would do", m->plan.memory_bytes, bound);
  model_close(m);
}

/* Sandwich norms cost a sum of its own for each half; windows, rope tables and clips are operands, not records. */
static void a_gemma3_plan_adds_only_its_norms(void **state)
{
  (void)state;
  static const op_kind layer[] = {OP_rms_norm,  OP_linear, OP_rms_norm, OP_rms_norm, OP_rope,     OP_kv_append,
                                  OP_attention, OP_linear, OP_rms_norm, OP_add,      OP_rms_norm, OP_linear,
                                  OP_glu,       OP_linear, OP_rms_norm, OP_add};
  model *m = open_golden(GOLDEN("gemma3-bf16"));
  int at = 0;
  expect(m, &at, OP_embed, -1);
  for (int i = 0; i < m->config.layers; i++)
    for (size_t n = 0; n < sizeof layer / sizeof *layer; n++)
      expect(m, &at, layer[n], i);
  assert_int_equal(m->plan.body.end, at);
  model_close(m);
}

/* ---- the plain plan gives the same bits ---- */

enum { PROMPT = 19, VOCAB_MOST = 512 };

static void keep(void *user, int index, float *logits)
{
  float(*rows)[VOCAB_MOST] = user;
  memcpy(rows[index], logits, 256 * sizeof *logits); /* the least vocabulary of the checkpoints */
}

/* Logits of a prompt's every token, then of one step, by whatever plan the model has. */
static void run(model *m, float rows[PROMPT + 1][VOCAB_MOST])
{
  tern_error err = {0};
  kv_store *store = NULL;
  kv_seq *seq = NULL;
  int32_t ids[PROMPT + 1], want[PROMPT];
  assert_int_equal(kv_store_open(&m->cx, m->plan.slots, m->plan.n_slots, &store, &err), TERN_OK);
  assert_int_equal(kv_seq_open(store, &seq, &err), TERN_OK);
  assert_int_equal(kv_seq_reserve(seq, 0, PROMPT + 1, m->plan.max_tokens, &err), TERN_OK);
  assert_int_equal(m->cx.backend->reserve(&m->cx, m->plan.max_tokens, PROMPT + 1, m->config.heads, &err), TERN_OK);
  for (int i = 0; i <= PROMPT; i++)
    ids[i] = i * 37 % 256;
  for (int i = 0; i < PROMPT; i++)
    want[i] = i;
  for (int step = 0; step < 2; step++) {
    int first = step ? PROMPT : 0, count = step ? 1 : PROMPT;
    assert_int_equal(kv_seq_prepare(seq, first, count, &err), TERN_OK);
    ops_row row = {.count = count,
                   .position = first,
                   .kind = step ? ROW_STEP : ROW_READ,
                   .split = PROMPT - 1,
                   .slots = kv_seq_views(seq)};
    ops_step s = {.tokens = count, .ids = ids + first, .rows = 1, .row = &row, .wanted = count, .want = want};
    assert_true(plan_run(&m->cx, &m->plan, &s, NULL, keep, rows + first));
  }
  kv_seq_close(seq);
  kv_store_close(store);
}

static void the_plain_plan_has_the_same_bits(void **state)
{
  (void)state;
  static const char *const dirs[] = {GOLDEN("llama-4bit"), GOLDEN("gemma3-bf16"), GOLDEN("llama-sliding-8bit"),
                                     GOLDEN("qwen2-mxfp4"), GOLDEN("qwen3-f16")};
  static float fused[PROMPT + 1][VOCAB_MOST], plain[PROMPT + 1][VOCAB_MOST];
  for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
    for (int native = 0; native < 2; native++) {
      tern_error err = {0};
      tern_model_options options = {.threads = 1, .numerics = native ? TERN_NATIVE : TERN_EXACT};
      model *m = NULL;
      if (model_open(dirs[i], &options, false, &m, &err) != TERN_OK)
        fail_msg("%s: %s", dirs[i], err.text);
      assert_in_range(m->config.vocab, 1, VOCAB_MOST);
      run(m, fused);
      plan other;
      int records = m->plan.n_records;
      if (plan_compile(&m->cx, &m->config, &m->weights, PROMPT, &(plan_options){.plain = true}, &other, &err) !=
          TERN_OK)
        fail_msg("%s: %s", dirs[i], err.text);
      assert_true(other.n_records > records);
      plan_release(&m->cx, &m->plan);
      m->plan = other;
      run(m, plain);
      for (int r = 0; r <= PROMPT; r++)
        assert_memory_equal(fused[r], plain[r], 256 * sizeof(float));
      model_close(m);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_llama_plan_is_the_one_written_by_hand),
      cmocka_unit_test(buffers_share_memory),
      cmocka_unit_test(a_gemma3_plan_adds_only_its_norms),
      cmocka_unit_test(the_plain_plan_has_the_same_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
