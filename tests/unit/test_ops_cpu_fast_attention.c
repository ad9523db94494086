/* Proves that numerics fast stores keys and values and attends with the bits of its definition (ops/fast_ref) at every
 * SIMD level and number of threads: dims that are no whole vectors, groupings of heads, windows, caps, block-sparse
 * heads, chunk borders, prompts and steps, several rows. Places that no token sees hold NaN. */
#include "test_ops_cpu.h"

#include "ops/visible.h"

enum { MOST_KEYS = 5400, BLOCKS = MOST_KEYS / KV_BLOCK + 2, SEQUENCES = 3 };

typedef struct shape {
  int heads, kv_heads, key_dim, value_dim, window, keep;
  float softcap;
  int sparse_block, sparse_local, sparse_stride;
  ops_kv_quant quant;
  bool by_time;
} shape;

#define QUANTISED(bits, group, start)                                                                                  \
  {                                                                                                                    \
    bits, group, start, DT_F32, DT_F32                                                                                 \
  }
#define PLAIN QUANTISED(0, 0, 0)
/* Heads, key heads, dims, window, keep; cap; block, local blocks, stride; quantised; by time. */
static const shape shapes[] = {
    {4, 4, 16, 16, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {4, 2, 40, 40, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {8, 2, 64, 64, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {7, 1, 80, 80, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {8, 1, 96, 96, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {2, 1, 128, 128, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {2, 2, 256, 256, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {3, 1, 33, 17, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {72, 2, 16, 24, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {2, 1, 48, 128, 0, 0, 0, 0, 0, 0, PLAIN, false},
    {8, 2, 64, 64, 300, 0, 0, 0, 0, 0, PLAIN, false},
    {6, 2, 64, 64, 129, 4, 0, 0, 0, 0, PLAIN, false},
    {4, 1, 40, 24, 20, 4, 2, 0, 0, 0, PLAIN, false},
    {4, 4, 64, 64, 300, 0, 0, 0, 0, 0, PLAIN, true},
    {3, 1, 64, 64, 1, 0, 0, 0, 0, 0, PLAIN, false},
    {4, 2, 64, 64, 700, 300, 0, 0, 0, 0, PLAIN, false},
    {8, 4, 64, 64, 0, 0, 0.5f, 0, 0, 0, PLAIN, false},
    {8, 2, 64, 64, 0, 0, 0, 64, 2, 3, PLAIN, false},
    {6, 2, 40, 24, 0, 0, 0, 16, 1, 4, PLAIN, false},
    {5, 5, 33, 17, 0, 0, 3, 7, 3, 8, PLAIN, false},
    {4, 1, 64, 64, 0, 0, 0, 300, 1, 5, PLAIN, false},
    {8, 2, 64, 64, 0, 0, 0, 0, 0, 0, QUANTISED(4, 32, 256), false},
    {4, 2, 128, 64, 0, 0, 0, 0, 0, 0, QUANTISED(8, 64, 1000), false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Sequences whose keys and values were stored up to `stored`; all else is NaN, as halves and as floats. Quantised
 * blocks lie in a table of their own. */
typedef struct world {
  const shape *s;
  void *plain[SEQUENCES][BLOCKS], *quantised[SEQUENCES][BLOCKS];
  ops_kv_view views[SEQUENCES][2];
  size_t plain_bytes, quantised_bytes;
} world;

static ops_kv_shape shape_of(const shape *s, bool quantised)
{
  ops_kv_shape k = {s->kv_heads, s->key_dim, s->value_dim, s->quant};
  k.quant.bits = quantised ? k.quant.bits : 0;
  return k;
}

static void *nothing(size_t bytes)
{
  void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
  assert_non_null(p);
  memset(p, 0x7f, bytes);
  return p;
}

static op_record append_record(const shape *s, const float *k, const float *v)
{
  op_record r = {.kind = OP_kv_append, .kv_append = {.k = k, .v = v, .kv_heads = s->kv_heads, .quant = s->quant}};
  r.kv_append.key_dim = s->key_dim;
  r.kv_append.value_dim = s->value_dim;
  return r;
}

/* Stores positions [0, stored) by the definition. Now and then a value is huge, and clamped. */
static void fill(bench *b, world *w, uint64_t *seed, int sequence, int stored)
{
  const shape *s = w->s;
  size_t nk = (size_t)(stored * s->kv_heads * s->key_dim), nv = (size_t)(stored * s->kv_heads * s->value_dim);
  float *k = random_floats(seed, nk, 1.5f), *v = random_floats(seed, nv, 1.5f);
  for (int i = 0; i < 5; i++) {
    k[next_random(seed) % nk] = i % 2 ? 1e6f : -3e38f;
    v[next_random(seed) % nv] = i % 2 ? 1e6f : -65519.0f;
  }
  op_record r = append_record(s, k, v);
  r.kv_append.quant.bits = 0;
  ops_row row = {.count = stored, .slots = &w->views[sequence][0]};
  ops_step step = {.tokens = stored, .rows = 1, .row = &row};
  run_ref(b, &r, &step);
  ops_kv_shape q = shape_of(s, true);
  for (int n = 0; s->quant.bits && n * KV_BLOCK < stored; n++) {
    int count = stored - n * KV_BLOCK < KV_BLOCK ? stored - n * KV_BLOCK : KV_BLOCK;
    b->ref.backend->kv_quantise(&b->ref, &q, w->plain[sequence][n], w->quantised[sequence][n], count);
  }
  free(k);
  free(v);
}

static void open_world(world *w, const shape *s)
{
  ops_kv_shape plain = shape_of(s, false), quantised = shape_of(s, true);
  *w = (world){.s = s, .plain_bytes = ops_fast_ref()->kv_block_bytes(&plain)};
  w->quantised_bytes = ops_fast_ref()->kv_block_bytes(&quantised);
  assert_int_equal(ops_cpu_fast(SIMD_BASELINE)->kv_block_bytes(&plain), w->plain_bytes);
  for (int i = 0; i < SEQUENCES; i++) {
    for (int n = 0; n < BLOCKS; n++) {
      w->plain[i][n] = nothing(w->plain_bytes);
      w->quantised[i][n] = s->quant.bits ? nothing(w->quantised_bytes) : NULL;
    }
    w->views[i][0].blocks = w->plain[i];
    w->views[i][1].blocks = w->quantised[i];
  }
}

static void close_world(world *w)
{
  for (int i = 0; i < SEQUENCES; i++)
    for (int n = 0; n < BLOCKS; n++) {
      free(w->plain[i][n]);
      free(w->quantised[i][n]);
    }
}

static void reserve_all(bench *b, const shape *s, int tokens, int64_t keys)
{
  const ops_room room = {
      .quantised = true, .tokens = tokens, .keys = keys, .dims = s->key_dim > s->value_dim ? s->key_dim : s->value_dim};
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

/* The rows' slots are set here: quantised ones where the position is past the start. */
static void compare(bench *b, const world *w, float scale, const float *q, ops_row *rows, int n_rows, int tokens,
                    const char *what)
{
  const shape *s = w->s;
  size_t n = (size_t)tokens * (size_t)(s->heads * s->value_dim);
  uint64_t seed = 0;
  trial t = {what, random_floats(&seed, n, 1), random_floats(&seed, n, 1), n};
  op_record r = {.kind = OP_attention, .attention = {.q = q, .out = t.expected, .heads = s->heads}};
  r.attention.kv_heads = s->kv_heads;
  r.attention.key_dim = s->key_dim;
  r.attention.value_dim = s->value_dim;
  r.attention.scale = scale;
  r.attention.window = s->window;
  r.attention.keep = s->keep;
  r.attention.by_time = s->by_time;
  r.attention.softcap = s->softcap;
  r.attention.sparse_block = s->sparse_block;
  r.attention.sparse_local = s->sparse_local;
  r.attention.sparse_stride = s->sparse_stride;
  r.attention.quant = s->quant;
  for (int i = 0; i < n_rows; i++)
    rows[i].slots = &w->views[i][ops_quantised(&s->quant, &rows[i])];
  ops_step step = {.tokens = tokens, .rows = n_rows, .row = rows};
  run_ref(b, &r, &step);
  for (size_t i = 0; scale < 1 && i < n; i++)
    assert_true(isfinite(t.expected[i]));
  r.attention.out = t.out;
  run_everywhere(b, &r, &step, spoil, check, &t);
  free(t.out);
  free(t.expected);
}

/* One row: `count` tokens at a position, all keys behind the last one unwritten. */
static void one_row(bench *b, int i, int position, int count, int kind)
{
  const shape *s = &shapes[i];
  if (s->quant.bits && position < s->quant.start && position + count > s->quant.start)
    return; /* a step lies on one side of it */
  char what[96];
  snprintf(what, sizeof what, "shape %d, %d tokens at %d, %s", i, count, position, kind == ROW_READ ? "read" : "step");
  uint64_t seed = 100 + (uint64_t)i;
  world w;
  open_world(&w, s);
  reserve_all(b, s, count, MOST_KEYS);
  fill(b, &w, &seed, 0, position + count);
  float *q = random_floats(&seed, (size_t)(count * s->heads * s->key_dim), 1);
  int split = kind == ROW_READ ? position + count : position * 2 / 3;
  ops_row row = {.count = count, .position = position, .kind = (ops_row_kind)kind, .split = split};
  compare(b, &w, 0.3f, q, &row, 1, count, what);
  free(q);
  close_world(&w);
}

/* Every shape: prompts and steps around the borders of blocks and chunks. */
static void test_positions(void **state)
{
  static const struct {
    int position, count;
  } rows[] = {{0, 1},   {0, 3},    {0, 37},  {0, 300},  {62, 3},   {255, 1}, {256, 1},
              {257, 1}, {250, 37}, {511, 3}, {1000, 1}, {1000, 3}, {700, 60}};
  bench *b = *state;
  for (int i = 0; i < SHAPES; i++)
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
      for (int kind = ROW_READ; kind <= ROW_STEP; kind++)
        if ((shapes[i].window || kind == ROW_READ) && take_case(&b->cases, 5, 5)) /* without a window both are one */
          one_row(b, i, rows[r].position, rows[r].count, kind);
}

/* Depth, where a few heads are shared out by chunks. */
static void test_depth(void **state)
{
  static const int some[] = {2, 3, 8, 11, 15, 17, 21};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    one_row(*state, some[i], 5000, 1, ROW_STEP);
    if (how_thorough() != EMULATED)
      one_row(*state, some[i], 5119, 3, ROW_READ);
  }
}

/* Several sequences in one batch, each of its own kind. */
static void test_batch(void **state)
{
  for (int i = 0; i < SHAPES; i++) {
    const shape *s = &shapes[i];
    if (s->quant.bits && s->quant.start > 600)
      continue;
    uint64_t seed = 200 + (uint64_t)i;
    world w;
    open_world(&w, s);
    reserve_all(*state, s, 31, MOST_KEYS);
    float *q = random_floats(&seed, (size_t)(31 * s->heads * s->key_dim), 1);
    ops_row rows[SEQUENCES] = {
        {.first = 0, .count = 1, .position = 901, .kind = ROW_STEP, .split = 130},
        {.first = 1, .count = 23, .position = 50, .kind = ROW_READ, .split = 90},
        {.first = 24, .count = 7, .position = 513, .kind = ROW_STEP, .split = 100},
    };
    for (int r = 0; r < SEQUENCES; r++)
      fill(*state, &w, &seed, r, (int)rows[r].position + rows[r].count);
    compare(*state, &w, 0.3f, q, rows, SEQUENCES, 31, "batch");
    free(q);
    close_world(&w);
  }
}

/* Scores that are infinite, NaN, equal, and far apart. */
static void test_odd_scores(void **state)
{
  static const int some[] = {2, 16, 3, 11};
  for (int n = 0; n < 8; n++) {
    const shape *s = &shapes[some[n / 2]];
    uint64_t seed = 300;
    world w;
    open_world(&w, s);
    reserve_all(*state, s, 16, MOST_KEYS);
    fill(*state, &w, &seed, 0, 416);
    float *q = random_floats(&seed, (size_t)(16 * s->heads * s->key_dim), 40);
    sprinkle(&seed, q, (size_t)(4 * s->heads * s->key_dim), n % 2);
    memset(q + 8 * s->heads * s->key_dim, 0, (size_t)(s->heads * s->key_dim) * sizeof *q);
    ops_row row = {.count = 16, .position = 400, .kind = ROW_READ, .split = 500};
    compare(*state, &w, 3, q, &row, 1, 16, "odd scores");
    free(q);
    close_world(&w);
  }
}

/* Blocks of which no token sees a key may be absent. */
static void test_hidden_blocks(void **state)
{
  static const shape hidden[] = {{4, 2, 64, 64, 0, 0, 0, 64, 1, 50, PLAIN, false},
                                 {4, 2, 64, 64, 100, 0, 0, 0, 0, 0, PLAIN, false},
                                 {4, 2, 64, 64, 100, 0, 0, 0, 0, 0, PLAIN, true}};
  for (int i = 0; i < 3; i++)
    for (int position = 600; position < 1000; position += 168) {
      uint64_t seed = 500;
      world w;
      open_world(&w, &hidden[i]);
      reserve_all(*state, &hidden[i], 8, MOST_KEYS);
      fill(*state, &w, &seed, 0, position + 8);
      for (int n = 0; n < (position - 100) / KV_BLOCK; n++) {
        free(w.plain[0][n]);
        w.plain[0][n] = NULL;
      }
      float *q = random_floats(&seed, 8 * 4 * 64, 1);
      ops_row row = {.count = 8, .position = position, .kind = ROW_STEP, .split = 200};
      compare(*state, &w, 0.3f, q, &row, 1, 8, "hidden blocks");
      free(q);
      close_world(&w);
    }
}

/* ---- kv_append ---- */

typedef struct appended {
  world w;
  uint8_t *expected[SEQUENCES][BLOCKS];
} appended;

static void **tables(world *w, int i)
{
  return w->s->quant.bits ? w->quantised[i] : w->plain[i];
}

static size_t bytes_of(const world *w)
{
  return w->s->quant.bits ? w->quantised_bytes : w->plain_bytes;
}

static void clear_blocks(void *user, const char *what)
{
  (void)what;
  appended *a = user;
  for (int i = 0; i < SEQUENCES; i++)
    for (int n = 0; n < 4; n++)
      memset(tables(&a->w, i)[n], 0x3c, bytes_of(&a->w));
}

static void check_blocks(void *user, const char *what)
{
  appended *a = user;
  for (int i = 0; i < SEQUENCES; i++)
    for (int n = 0; n < 4; n++)
      if (memcmp(tables(&a->w, i)[n], a->expected[i][n], bytes_of(&a->w)))
        fail_msg("kv_append, %s: sequence %d, block %d", what, i, n);
}

/* Ordinary numbers; then huge, tiny and odd ones. */
static void test_append(void **state)
{
  for (int round = 0; round < 2 * SHAPES; round++) {
    shape s = shapes[round / 2];
    uint64_t seed = 500 + (uint64_t)round;
    enum { TOKENS = 172 };
    s.quant.start = 0;
    appended a;
    open_world(&a.w, &s);
    size_t nk = (size_t)(TOKENS * s.kv_heads * s.key_dim), nv = (size_t)(TOKENS * s.kv_heads * s.value_dim);
    float *k = random_floats(&seed, nk, round % 2 ? 1e5f : 1), *v = random_floats(&seed, nv, round % 2 ? 1e-5f : 1);
    if (round % 2 && !s.quant.bits) {
      sprinkle(&seed, k, nk, true);
      sprinkle(&seed, v, nv, true);
      k[0] = 65504.0f, k[1] = 65519.9f, k[2] = 65520.0f, k[3] = -65520.0f, k[4] = 0x1p-25f, k[5] = 0x1.8p-24f;
      k[6] = -NAN, k[7] = INFINITY, k[8] = -INFINITY, v[1] = -INFINITY;
      v[0] = f32_from_bits(0x7f812345);
    }
    op_record r = append_record(&s, k, v);
    ops_row rows[SEQUENCES] = {{.first = 0, .count = 1, .position = 63},
                               {.first = 1, .count = 1, .position = 64},
                               {.first = 2, .count = 170, .position = 37}};
    for (int i = 0; i < SEQUENCES; i++)
      rows[i].slots = &a.w.views[i][s.quant.bits != 0];
    ops_step step = {.tokens = TOKENS, .rows = SEQUENCES, .row = rows};
    clear_blocks(&a, NULL);
    run_ref(*state, &r, &step);
    for (int i = 0; i < SEQUENCES; i++)
      for (int n = 0; n < 4; n++) {
        a.expected[i][n] = malloc(bytes_of(&a.w));
        assert_non_null(a.expected[i][n]);
        memcpy(a.expected[i][n], tables(&a.w, i)[n], bytes_of(&a.w));
      }
    run_everywhere(*state, &r, &step, clear_blocks, check_blocks, &a);
    for (int i = 0; i < SEQUENCES; i++)
      for (int n = 0; n < 4; n++)
        free(a.expected[i][n]);
    free(k);
    free(v);
    close_world(&a.w);
  }
}

/* reserve refuses what memory cannot hold and leaves the context usable; keys take room where they are quantised. */
static void test_reserve(void **state)
{
  bench *b = *state;
  ops_context cx = {.backend = ops_cpu_fast(SIMD_BASELINE), .workers = b->pools[1]};
  tern_error err = {0};
  assert_int_equal(cx.backend->reserve(&cx, &(ops_room){.keys = INT64_MAX, .quantised = true}, &err), TERN_E_NOMEM);
  assert_int_equal(cx.backend->scratch_bytes(&cx, &(ops_room){.keys = 1 << 30, .dims = 64}),
                   cx.backend->scratch_bytes(&cx, &(ops_room){.keys = 1, .dims = 64}));
  assert_int_equal(cx.backend->reserve(&cx, &(ops_room){.keys = 100, .dims = 64}, &err), TERN_OK);
  size_t bytes = cx.scratch_bytes;
  assert_int_equal(cx.backend->reserve(&cx, &(ops_room){.keys = 10, .dims = 32}, &err), TERN_OK);
  assert_int_equal(cx.scratch_bytes, bytes);
  mem_fail_after(0);
  assert_int_equal(cx.backend->reserve(&cx, &(ops_room){.keys = 100, .dims = 20000}, &err), TERN_E_NOMEM);
  mem_fail_after(-1);
  assert_int_equal(cx.scratch_bytes, bytes);
  ops_context_clear(&cx);
}

static int open_fast_bench(void **state)
{
  int result = open_bench(state);
  bench *b = *state;
  if (result)
    return result;
  b->ref.backend = ops_fast_ref();
  for (int l = 0; l < SIMD_LEVELS; l++)
    for (int i = 0; i < THREAD_COUNTS; i++)
      b->cpu[l][i].backend = ops_cpu_fast((ops_simd)l);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_append),  cmocka_unit_test(test_positions),  cmocka_unit_test(test_depth),
      cmocka_unit_test(test_batch),   cmocka_unit_test(test_odd_scores), cmocka_unit_test(test_hidden_blocks),
      cmocka_unit_test(test_reserve),
  };
  return cmocka_run_group_tests(tests, open_fast_bench, close_bench);
}
