/* test_plan.c - what a descriptor compiles to: for a llama-shaped model exactly the records that one would write by
 * hand, in that order, on as few buffers; nothing of the other axes is left in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "base/half.h"
#include "format_files.h"
#include "model/arch.h"
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
  assert_int_equal(m->plan.head.end, at);
  expect(m, &at, OP_select, -1); /* where hidden states are wanted */
  expect(m, &at, OP_rms_norm, -1);
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
  assert_int_equal(m->cx.backend->reserve(&m->cx, &(ops_room){.tokens = m->plan.max_tokens, .keys = PROMPT + 1}, &err),
                   TERN_OK);
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
    assert_true(plan_run(&m->cx, &m->plan, &s, NULL, keep, NULL, rows + first));
  }
  kv_seq_close(seq);
  kv_store_close(store);
}

static void compare_plans(const char *dir)
{
  static float fused[PROMPT + 1][VOCAB_MOST], plain[PROMPT + 1][VOCAB_MOST];
  for (int native = 0; native < 2; native++) {
    tern_error err = {0};
    tern_model_options options = {.threads = 1, .numerics = native ? TERN_NATIVE : TERN_EXACT};
    model *m = NULL;
    if (model_open(dir, &options, false, &m, &err) != TERN_OK)
      fail_msg("%s: %s", dir, err.text);
    assert_in_range(m->config.vocab, 256, VOCAB_MOST);
    run(m, fused);
    plan other;
    int records = m->plan.n_records;
    if (plan_compile(&m->cx, &m->config, &m->weights, PROMPT, &(plan_options){.plain = true}, &other, &err) != TERN_OK)
      fail_msg("%s: %s", dir, err.text);
    assert_true(other.n_records > records);
    plan_release(&m->cx, &m->plan);
    m->plan = other;
    run(m, plain);
    for (int r = 0; r <= PROMPT; r++)
      assert_memory_equal(fused[r], plain[r], 256 * sizeof(float));
    model_close(m);
  }
}

static void the_plain_plan_has_the_same_bits(void **state)
{
  (void)state;
  compare_plans(GOLDEN("llama-4bit"));
  compare_plans(GOLDEN("gemma3-bf16"));
  compare_plans(GOLDEN("llama-sliding-8bit"));
  compare_plans(GOLDEN("qwen2-mxfp4"));
  compare_plans(GOLDEN("qwen3-f16"));
}

/* ---- what is expected ---- */

/* The products in the order in which they ran, and what had been named as the next one by then. */
typedef struct named {
  const ops_backend *real;
  const op_record *next;
  int ran, right;
} named;

static named names_told;

static void note_expected(ops_context *cx, const op_record *linear)
{
  (void)cx;
  names_told.next = linear;
}

static void note_linear(ops_context *cx, const op_record *record, const ops_step *step)
{
  static const op_record *before;
  names_told.right += names_told.ran && record == before;
  names_told.ran++;
  before = names_told.next;
  names_told.real->run[OP_linear](cx, record, step);
}

/* When a product begins, the one after it has been told; after the last comes the first. (The head's runs again where
 * more rows are wanted than it takes at a time.) */
static void each_product_is_told_when_the_one_before_begins(void **state)
{
  (void)state;
  static float rows[PROMPT + 1][VOCAB_MOST];
  model *m = open_golden(GOLDEN("llama-4bit"));
  ops_backend noting = *m->cx.backend;
  names_told = (named){.real = m->cx.backend};
  noting.expect = note_expected;
  noting.run[OP_linear] = note_linear;
  m->cx.backend = &noting;
  run(m, rows);
  m->cx.backend = names_told.real;
  assert_true(names_told.ran > 8);
  assert_int_equal(names_told.right, names_told.ran - 1 - (PROMPT - 1) / m->plan.head_rows);
  model_close(m);
}

/* ---- the same for the other shapes, on checkpoints of random weights made here ---- */

typedef struct writer {
  st_writer *w;
  const model_config *c;
} writer;

typedef struct amount { /* of one tensor's values */
  size_t n;
  uint32_t seed;
} amount;

static tern_status random_values(void *user, st_writer *w, tern_error *err)
{
  const amount *a = user;
  uint32_t seed = a->seed;
  for (size_t i = 0; i < a->n; i++) {
    seed = seed * 1103515245u + 12345u;
    uint16_t half = bf16_from_f32((float)(int32_t)seed * 0x1p-33f);
    TRY(st_put(w, &half, sizeof half, err));
  }
  return TERN_OK;
}

/* A tensor of n rows of k values (k 0: a vector), in bfloat16. */
static void put(writer *o, const char *pattern, int layer, const char *suffix, int64_t n, int64_t k)
{
  static amount amounts[256];
  static uint32_t used;
  char name[200];
  const char *hole = pattern ? strstr(pattern, "{}") : NULL;
  tern_error err = {0};
  if (!pattern)
    return;
  if (hole)
    snprintf(name, sizeof name, "%.*s%d%s%s", (int)(hole - pattern), pattern, layer, hole + 2, suffix);
  else
    snprintf(name, sizeof name, "%s%s", pattern, suffix);
  amount *a = &amounts[used % 256];
  *a = (amount){(size_t)(n * (k ? k : 1)), ++used * 2654435761u};
  if (st_writer_add(o->w, name, ST_BF16, k ? 2 : 1, (int64_t[]){n, k}, random_values, a, &err) != TERN_OK)
    fail_msg("%s: %s", name, err.text);
}

static void put_linear(writer *o, const char *pattern, int layer, int64_t n, int64_t k, bool bias)
{
  put(o, pattern, layer, ".weight", n, k);
  if (bias)
    put(o, pattern, layer, ".bias", n, 0);
}

static void put_norm(writer *o, const char *pattern, int layer)
{
  put(o, pattern, layer, ".weight", o->c->width, 0);
  if (o->c->arch->norm == NORM_LAYER && o->c->norm_bias)
    put(o, pattern, layer, ".bias", o->c->width, 0);
}

static void put_layer(writer *o, int i)
{
  const model_config *c = o->c;
  const arch_names *names = c->arch->names;
  int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
  arch_block block = model_config_block(c);
  int norms = block == BLOCK_SANDWICH ? 4 : block == BLOCK_PARALLEL || block == BLOCK_FORKED ? 1 : 2;
  for (int n = 0; n < norms; n++)
    put_norm(o, names->norm[n], i);
  put_linear(o, names->qkv, i, q + 2 * kv, c->width, c->bias_qkv);
  put_linear(o, names->q, i, q, c->width, c->bias_qkv);
  put_linear(o, names->k, i, kv, c->width, c->bias_qkv);
  put_linear(o, names->v, i, kv, c->width, c->bias_qkv);
  put_linear(o, names->o, i, c->width, q, c->bias_o);
  put_linear(o, names->gate_up, i, 2 * c->ffn, c->width, c->bias_mlp);
  put_linear(o, names->gate, i, c->ffn, c->width, c->bias_mlp);
  put_linear(o, names->up, i, c->ffn, c->width, c->bias_mlp);
  put_linear(o, names->down, i, c->width, c->ffn, c->bias_mlp);
}

static void make_checkpoint(const char *text)
{
  tern_error err = {0};
  cfg *file = NULL;
  static model_config c;
  const arch *a;
  char path[600];
  empty_folder();
  put_text("config.json", text);
  assert_int_equal(cfg_parse(text, strlen(text), NULL, 0, &file, &err), TERN_OK);
  a = arch_find(cfg_model_type(file));
  assert_non_null(a);
  if (model_config_read(file, a, &c, &err) != TERN_OK)
    fail_msg("%s", err.text);
  writer o = {.c = &c};
  assert_int_equal(st_writer_open(&o.w, &err), TERN_OK);
  put(&o, a->names->embed, 0, ".weight", c.vocab, c.width);
  put(&o, a->names->positions, 0, ".weight", c.max_positions, c.width);
  put_norm(&o, a->names->final_norm, 0);
  if (!c.tied)
    put_linear(&o, a->names->head, 0, c.vocab, c.width, c.bias_head);
  for (int i = 0; i < c.layers; i++)
    put_layer(&o, i);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  if (st_writer_write(o.w, path, &err) != TERN_OK)
    fail_msg("%s", err.text);
  st_writer_close(o.w);
  cfg_close(file);
}

#define SIZES                                                                                                          \
  "\"hidden_size\":32,\"num_hidden_layers\":2,\"intermediate_size\":48,\"num_attention_heads\":4,"                     \
  "\"num_key_value_heads\":2,\"vocab_size\":256,\"max_position_embeddings\":64,\"rope_theta\":10000,"

static void the_plain_plan_has_the_same_bits_in_every_shape(void **state)
{
  (void)state;
  static const char *const configs[] = {
      /* PARALLEL, biases, float32 attention; a head with a bias */
      "{\"model_type\":\"phi\"," SIZES "\"partial_rotary_factor\":0.5}",
      /* FORKED */
      "{\"model_type\":\"stablelm\"," SIZES "\"layer_norm_eps\":1e-5,\"use_qkv_bias\":true,"
      "\"partial_rotary_factor\":0.5,\"use_parallel_residual\":true}",
      /* PARALLEL2, interleaved heads */
      "{\"model_type\":\"gpt_neox\"," SIZES "\"layer_norm_eps\":1e-5,\"rotary_emb_base\":10000,\"rotary_pct\":0.5}",
      /* multipliers: a sum that is not part of a product */
      "{\"model_type\":\"granite\"," SIZES "\"rms_norm_eps\":1e-5,\"logits_scaling\":2,\"attention_multiplier\":0.1,"
      "\"embedding_multiplier\":12,\"residual_multiplier\":0.22,\"attention_bias\":true,\"mlp_bias\":true}",
      /* POST would need norms of q and k; views of fused matrices */
      "{\"model_type\":\"phi3\"," SIZES "\"rms_norm_eps\":1e-5}",
      /* grouped heads with biases */
      "{\"model_type\":\"internlm2\"," SIZES "\"rms_norm_eps\":1e-5}",
      /* learned positions */
      "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_head\":4,\"n_layer\":2,\"n_ctx\":64,\"n_positions\":64,"
      "\"layer_norm_epsilon\":1e-5,\"vocab_size\":256}",
      /* one norm for both halves, scaled logits */
      "{\"model_type\":\"cohere\"," SIZES "\"layer_norm_eps\":1e-5}",
      /* caps, sandwich norms */
      "{\"model_type\":\"gemma2\"," SIZES "\"rms_norm_eps\":1e-6,\"head_dim\":8}",
  };
  for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
    make_checkpoint(configs[i]);
    compare_plans(folder);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_llama_plan_is_the_one_written_by_hand),
      cmocka_unit_test(buffers_share_memory),
      cmocka_unit_test(a_gemma3_plan_adds_only_its_norms),
      cmocka_unit_test(the_plain_plan_has_the_same_bits),
      cmocka_unit_test(each_product_is_told_when_the_one_before_begins),
      cmocka_unit_test(the_plain_plan_has_the_same_bits_in_every_shape),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
