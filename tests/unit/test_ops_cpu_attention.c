/* Proves that the cpu backend stores keys and values where the reference stores them and attends with its bits:
 * windows, kept positions, read and step rows, several sequences in a batch, grouped heads, block borders. */
#include "test_ops_cpu.h"

#include "ops/visible.h"

enum { MOST_KEYS = 400, BLOCKS = MOST_KEYS / KV_BLOCK + 2, SEQUENCES = 3 };

typedef struct shape {
  int heads, kv_heads, key_dim, value_dim, window, keep;
  float softcap;
  int sparse_block, sparse_local, sparse_stride;
  ops_kv_quant quant;
} shape;

/* Sequences whose blocks are filled up to MOST_KEYS; unwritten places hold NaN, which must never show. */
typedef struct world {
  const shape *s;
  void *tables[SEQUENCES][BLOCKS];
  ops_kv_view views[SEQUENCES];
  size_t block_floats;
} world;

static void open_world(uint64_t *seed, world *w, const shape *s)
{
  const ops_backend *ref = ops_ref();
  ops_kv_shape block = {s->kv_heads, s->key_dim, s->value_dim, s->quant};
  *w = (world){.s = s, .block_floats = ref->kv_block_bytes(&block) / sizeof(float)};
  assert_int_equal(ops_cpu(SIMD_BASELINE)->kv_block_bytes(&block), w->block_floats * sizeof(float));
  for (int i = 0; i < SEQUENCES; i++) {
    for (int n = 0; n < BLOCKS; n++) {
      w->tables[i][n] = random_floats(seed, w->block_floats, 1.5f);
    }
    w->views[i].blocks = w->tables[i];
  }
}

static void close_world(world *w)
{
  for (int i = 0; i < SEQUENCES; i++)
    for (int n = 0; n < BLOCKS; n++)
      free(w->tables[i][n]);
}

static void reserve_all(bench *b, int tokens, int64_t keys)
{
  const ops_room room = {.tokens = tokens, .keys = keys, .quantised = true};
  assert_int_equal(b->ref.backend->reserve(&b->ref, &room, NULL), TERN_OK);
  for (int l = 0; l < SIMD_LEVELS; l++)
    for (int i = 0; i < THREAD_COUNTS; i++)
      if (b->cpu[l][i].backend)
        assert_int_equal(b->cpu[l][i].backend->reserve(&b->cpu[l][i], &room, NULL), TERN_OK);
}

typedef struct trial {
  const char *what;
  float *out, *expected;
  size_t n;
} trial;

static void spoil(void *user, const char *what)
{
  (void)what;
  trial *t = user;
  memset(t->out, 0x7f, t->n * sizeof(float));
}

static void check(void *user, const char *what)
{
  trial *t = user;
  int64_t at = first_difference(t->out, t->expected, t->n);
  if (at >= 0)
    fail_msg("%s, %s: value %lld of %zu: %a, expected %a", t->what, what, (long long)at, t->n, (double)t->out[at],
             (double)t->expected[at]);
}

static void compare(bench *b, const world *w, const float *q, const ops_row *rows, int n_rows, int tokens,
                    const char *what)
{
  const shape *s = w->s;
  size_t n = (size_t)(tokens * s->heads * s->value_dim);
  uint64_t seed = 0;
  trial t = {what, random_floats(&seed, n, 1), random_floats(&seed, n, 1), n};
  op_record r = {.kind = OP_attention, .attention = {.q = q, .out = t.expected, .heads = s->heads}};
  r.attention.kv_heads = s->kv_heads;
  r.attention.key_dim = s->key_dim;
  r.attention.value_dim = s->value_dim;
  r.attention.scale = 0.3f;
  r.attention.window = s->window;
  r.attention.keep = s->keep;
  r.attention.softcap = s->softcap;
  r.attention.sparse_block = s->sparse_block;
  r.attention.sparse_local = s->sparse_local;
  r.attention.sparse_stride = s->sparse_stride;
  r.attention.quant = s->quant;
  ops_step step = {.tokens = tokens, .rows = n_rows, .row = rows};
  run_ref(b, &r, &step);
  r.attention.out = t.out;
  run_everywhere(b, &r, &step, spoil, check, &t);
  free(t.out);
  free(t.expected);
}

#define PLAIN                                                                                                          \
  {                                                                                                                    \
    0, 0, 0, DT_F32, DT_F32                                                                                            \
  }
#define QUANTISED(bits, group)                                                                                         \
  {                                                                                                                    \
    bits, group, 0, DT_F32, DT_F32                                                                                     \
  }
/* Heads, key heads, dims, window, keep; cap; block, local blocks, stride. */
static const shape shapes[] = {
    {4, 4, 16, 16, 0, 0, 0, 0, 0, 0, PLAIN},
    {14, 2, 64, 64, 0, 0, 0, 0, 0, 0, PLAIN},
    {9, 3, 64, 64, 0, 0, 0, 0, 0, 0, PLAIN},
    {8, 1, 80, 80, 70, 0, 0, 0, 0, 0, PLAIN},
    {4, 2, 128, 96, 20, 4, 0, 0, 0, 0, PLAIN},
    {3, 1, 33, 17, 2, 0, 0, 0, 0, 0, PLAIN},
    {2, 2, 256, 256, 1, 0, 0, 0, 0, 0, PLAIN},
    {16, 8, 40, 24, 64, 0, 0, 0, 0, 0, PLAIN},
    {6, 2, 64, 64, 129, 4, 0, 0, 0, 0, PLAIN},
    {5, 5, 1, 1, 0, 0, 0, 0, 0, 0, PLAIN},
    {2, 1, 1040, 8, 0, 0, 0, 0, 0, 0, PLAIN},
    {12, 2, 64, 128, 5, 4, 0, 0, 0, 0, PLAIN},
    {8, 4, 64, 64, 0, 0, 0.5f, 0, 0, 0, PLAIN},
    {6, 2, 40, 24, 129, 4, 2, 0, 0, 0, PLAIN},
    {3, 1, 33, 17, 20, 0, 50, 0, 0, 0, PLAIN},
    {8, 2, 64, 64, 0, 0, 0, 64, 2, 3, PLAIN},
    {6, 2, 40, 24, 0, 0, 0, 16, 1, 4, PLAIN},
    {5, 5, 33, 17, 0, 0, 0, 7, 3, 8, PLAIN},
    {4, 1, 64, 64, 0, 0, 0, 100, 1, 2, PLAIN},
    {3, 1, 32, 32, 0, 0, 0, 1, 1, 50, PLAIN},
    {8, 2, 64, 64, 0, 0, 3, 16, 16, 1, PLAIN},
    {4, 2, 64, 64, 30, 0, 0, 16, 1, 4, PLAIN},
    {4, 2, 16, 16, 0, 0, 0, 16, 0, 4, PLAIN},
    /* quantised */
    {4, 4, 32, 32, 0, 0, 0, 0, 0, 0, QUANTISED(2, 32)},
    {7, 1, 64, 64, 0, 0, 0, 0, 0, 0, QUANTISED(4, 64)},
    {3, 3, 128, 64, 0, 0, 0, 0, 0, 0, QUANTISED(8, 64)},
    {4, 1, 96, 160, 70, 0, 0, 0, 0, 0, QUANTISED(3, 32)},
    {2, 1, 128, 256, 20, 4, 0, 0, 0, 0, QUANTISED(5, 128)},
    {2, 1, 256, 64, 0, 0, 0, 0, 0, 0, QUANTISED(6, 32)},
    {1, 1, 32, 288, 30, 0, 0, 0, 0, 0, QUANTISED(4, 32)},
    {4, 2, 64, 64, 0, 0, 3, 16, 2, 3, QUANTISED(4, 32)},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Prompts read from every kind of position, and single steps. Where not every case is taken, every position, count and
 * kind of every shape still is. */
static void test_positions(void **state)
{
  static const int positions[] = {0, 1, 5, 62, 63, 64, 65, 127, 128, 200, 335}, counts[] = {1, 2, 3, 5, 13, 64};
  bench *b = *state;
  for (int i = 0; i < SHAPES; i++) {
    const shape *s = &shapes[i];
    uint64_t seed = 100 + (uint64_t)i;
    world w;
    open_world(&seed, &w, s);
    reserve_all(*state, 64, MOST_KEYS);
    float *q = random_floats(&seed, (size_t)(64 * s->heads * s->key_dim), 1);
    for (int p = 0; p < 11; p++)
      for (int c = 0; c < 6; c++)
        for (int kind = ROW_READ; kind <= ROW_STEP; kind++) {
          if (!take_case(&b->cases, 7, 5))
            continue;
          char what[96];
          snprintf(what, sizeof what, "shape %d, %d tokens at %d, %s", i, counts[c], positions[p],
                   kind == ROW_READ ? "read" : "step");
          int split = kind == ROW_READ ? positions[p] + counts[c] : positions[p] * 2 / 3;
          ops_row row = {.count = counts[c], .position = positions[p], .kind = (ops_row_kind)kind, .split = split};
          row.slots = &w.views[0];
          compare(*state, &w, q, &row, 1, counts[c], what);
        }
    free(q);
    close_world(&w);
  }
}

/* Several sequences in one batch, each of its own kind. */
static void test_batch(void **state)
{
  for (int i = 0; i < SHAPES; i++) {
    const shape *s = &shapes[i];
    uint64_t seed = 200 + (uint64_t)i;
    world w;
    open_world(&seed, &w, s);
    reserve_all(*state, 32, MOST_KEYS);
    float *q = random_floats(&seed, (size_t)(32 * s->heads * s->key_dim), 1);
    const ops_row rows[SEQUENCES] = {
        {.first = 0, .count = 1, .position = 301, .kind = ROW_STEP, .split = 130, .slots = &w.views[0]},
        {.first = 1, .count = 23, .position = 50, .kind = ROW_READ, .split = 90, .slots = &w.views[1]},
        {.first = 24, .count = 7, .position = 130, .kind = ROW_STEP, .split = 100, .slots = &w.views[2]},
    };
    compare(*state, &w, q, rows, SEQUENCES, 31, "batch");
    free(q);
    close_world(&w);
  }
}

/* Scores that are infinite, NaN, equal, and far apart. */
static void test_odd_scores(void **state)
{
  static const shape several[] = {{.heads = 4, .kv_heads = 2, .key_dim = 32, .value_dim = 32},
                                  {.heads = 4, .kv_heads = 2, .key_dim = 32, .value_dim = 32, .softcap = 5}};
  for (int n = 0; n < 4; n++) {
    const shape *s = &several[n / 2];
    bool nonfinite = n % 2;
    uint64_t seed = 300;
    world w;
    open_world(&seed, &w, s);
    reserve_all(*state, 16, MOST_KEYS);
    float *q = random_floats(&seed, (size_t)(16 * s->heads * s->key_dim), 40);
    sprinkle(&seed, w.tables[0][1], w.block_floats, nonfinite);
    sprinkle(&seed, q, (size_t)(4 * s->heads * s->key_dim), nonfinite);
    memset(q + 8 * s->heads * s->key_dim, 0, (size_t)(s->heads * s->key_dim) * sizeof *q);
    ops_row row = {.count = 16, .position = 100, .kind = ROW_READ, .split = 200, .slots = &w.views[0]};
    compare(*state, &w, q, &row, 1, 16, "odd scores");
    free(q);
    close_world(&w);
  }
}

/* What a token does not see has no influence, whatever it is: unwritten places are NaN here. */
static void test_hidden_keys(void **state)
{
  const shape s = {.heads = 4, .kv_heads = 2, .key_dim = 64, .value_dim = 64};
  uint64_t seed = 400;
  world w;
  open_world(&seed, &w, &s);
  reserve_all(*state, 8, MOST_KEYS);
  float *block = w.tables[0][1];
  for (size_t at = 0; at < w.block_floats; at++) {
    size_t i = at < w.block_floats / 2 ? at % KV_BLOCK : at / 64 % KV_BLOCK; /* the position inside the block */
    if (i > 10)
      block[at] = NAN;
  }
  float *q = random_floats(&seed, (size_t)(8 * s.heads * s.key_dim), 1);
  ops_row row = {.count = 8, .position = 67, .kind = ROW_READ, .split = 200, .slots = &w.views[0]};
  compare(*state, &w, q, &row, 1, 8, "hidden keys");
  free(q);
  close_world(&w);
}

/* Blocks that no head of a block-sparse layer looks at may be absent. */
static void test_hidden_blocks(void **state)
{
  const shape s = {4, 2, 64, 64, 0, 0, 0, 64, 1, 50, PLAIN};
  uint64_t seed = 500;
  world w;
  open_world(&seed, &w, &s);
  reserve_all(*state, 8, MOST_KEYS);
  void *kept[2] = {w.tables[0][0], w.tables[0][1]};
  w.tables[0][0] = w.tables[0][1] = NULL;
  float *q = random_floats(&seed, (size_t)(8 * s.heads * s.key_dim), 1);
  ops_row row = {.count = 8, .position = 140, .kind = ROW_READ, .split = 200, .slots = &w.views[0]};
  compare(*state, &w, q, &row, 1, 8, "hidden blocks");
  memcpy(w.tables[0], kept, sizeof kept);
  free(q);
  close_world(&w);
}

/* ---- kv_append ---- */

typedef struct appended {
  world w;
  float *expected[SEQUENCES][BLOCKS];
} appended;

static void clear_blocks(void *user, const char *what)
{
  (void)what;
  appended *a = user;
  for (int i = 0; i < SEQUENCES; i++)
    for (int n = 0; n < BLOCKS; n++)
      memset(a->w.tables[i][n], 0x3c, a->w.block_floats * sizeof(float));
}

static void check_blocks(void *user, const char *what)
{
  appended *a = user;
  for (int i = 0; i < SEQUENCES; i++)
    for (int n = 0; n < BLOCKS; n++)
      if (memcmp(a->w.tables[i][n], a->expected[i][n], a->w.block_floats * sizeof(float)))
        fail_msg("kv_append, %s: sequence %d, block %d", what, i, n);
}

static void test_append(void **state)
{
  for (int s = 0; s < SHAPES; s++) {
    uint64_t seed = 500 + (uint64_t)s;
    enum { TOKENS = 172 };
    appended a;
    open_world(&seed, &a.w, &shapes[s]);
    float *k = random_floats(&seed, (size_t)(TOKENS * shapes[s].kv_heads * shapes[s].key_dim), 1);
    float *v = random_floats(&seed, (size_t)(TOKENS * shapes[s].kv_heads * shapes[s].value_dim), 1);
    op_record r = {.kind = OP_kv_append, .kv_append = {.k = k, .v = v, .kv_heads = shapes[s].kv_heads}};
    r.kv_append.key_dim = shapes[s].key_dim;
    r.kv_append.value_dim = shapes[s].value_dim;
    r.kv_append.quant = shapes[s].quant;
    const ops_row rows[SEQUENCES] = {{.first = 0, .count = 1, .position = 63, .slots = &a.w.views[0]},
                                     {.first = 1, .count = 1, .position = 64, .slots = &a.w.views[1]},
                                     {.first = 2, .count = 170, .position = 37, .slots = &a.w.views[2]}};
    ops_step step = {.tokens = TOKENS, .rows = SEQUENCES, .row = rows};
    clear_blocks(&a, NULL);
    run_ref(*state, &r, &step);
    for (int i = 0; i < SEQUENCES; i++)
      for (int n = 0; n < BLOCKS; n++) {
        a.expected[i][n] = malloc(a.w.block_floats * sizeof(float));
        assert_non_null(a.expected[i][n]);
        memcpy(a.expected[i][n], a.w.tables[i][n], a.w.block_floats * sizeof(float));
      }
    run_everywhere(*state, &r, &step, clear_blocks, check_blocks, &a);
    for (int i = 0; i < SEQUENCES; i++)
      for (int n = 0; n < BLOCKS; n++)
        free(a.expected[i][n]);
    free(k);
    free(v);
    close_world(&a.w);
  }
}

/* reserve refuses what memory cannot hold and leaves the context usable. */
static void test_reserve(void **state)
{
  (void)state;
  ops_context cx = {.backend = ops_cpu(SIMD_BASELINE)};
  tern_error err = {0};
  assert_int_equal(cx.backend->reserve(&cx, &(ops_room){.keys = INT64_MAX}, &err), TERN_E_NOMEM);
  assert_int_equal(cx.backend->reserve(&cx, &(ops_room){.keys = 100}, &err), TERN_OK);
  size_t bytes = cx.scratch_bytes;
  assert_int_equal(cx.backend->reserve(&cx, &(ops_room){.keys = 10}, &err), TERN_OK);
  assert_int_equal(cx.scratch_bytes, bytes);
  mem_fail_after(0);
  assert_int_equal(cx.backend->reserve(&cx, &(ops_room){.keys = 100000}, &err), TERN_E_NOMEM);
  mem_fail_after(-1);
  assert_int_equal(cx.scratch_bytes, bytes);
  ops_context_clear(&cx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_positions),   cmocka_unit_test(test_batch),         cmocka_unit_test(test_odd_scores),
      cmocka_unit_test(test_hidden_keys), cmocka_unit_test(test_hidden_blocks), cmocka_unit_test(test_append),
      cmocka_unit_test(test_reserve),
  };
  return cmocka_run_group_tests(tests, open_bench, close_bench);
}
