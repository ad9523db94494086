/* ops_attention.c - times attention at depth, alone: a model's layers one after another, each with keys and values of
 * its own, so that they come from memory as they do in decoding. Numerics exact and fast, one token and pieces of a
 * prompt. Prints the best and the median time a token takes in all layers, and what was read or computed a second.
 *
 *   cc -O2 -Iinclude -Isrc bench/ops_attention.c build/libtern.a -lpthread -lm -o build/bench_ops_attention
 *   build/bench_ops_attention [threads [level [keys [heads [kv_heads [dim [layers [window [tokens]]]]]]]]]
 *
 * With one thread its own processor time counts.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ops/ops.h"

enum { MOST_TOKENS = 512, REPEATS = 15 };

typedef struct setting {
  int threads, heads, kv_heads, dim, layers, window, tokens;
  int64_t keys;
  ops_simd level;
  float *q, *out;
} setting;

static double now(int threads)
{
  struct timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float next(void)
{
  static uint64_t z = 1;
  z = z * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (float)(z >> 40) * 0x1p-23f - 1;
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Keys and values of every layer, through the backend's own op. */
static void fill(ops_context *cx, const setting *s, void ***tables, const ops_kv_view *views)
{
  int width = s->kv_heads * s->dim;
  float *k = malloc((size_t)(KV_BLOCK * width) * sizeof *k);
  ops_kv_shape shape = {s->kv_heads, s->dim, s->dim, {0}};
  for (int i = 0; i < KV_BLOCK * width; i++)
    k[i] = next();
  for (int l = 0; l < s->layers; l++)
    for (int64_t at = 0; at < s->keys; at += KV_BLOCK) {
      tables[l][at / KV_BLOCK] = cx->backend->alloc(cx, cx->backend->kv_block_bytes(&shape));
      op_record r = {.kind = OP_kv_append, .kv_append = {.k = k, .v = k, .slot = l, .kv_heads = s->kv_heads}};
      r.kv_append.key_dim = r.kv_append.value_dim = s->dim;
      ops_row row = {.count = KV_BLOCK, .position = at, .slots = views};
      ops_step step = {.tokens = KV_BLOCK, .rows = 1, .row = &row};
      cx->backend->run[OP_kv_append](cx, &r, &step);
    }
  free(k);
}

static void measure(ops_context *cx, const setting *s, const ops_kv_view *views, int tokens, const char *name)
{
  ops_row row = {.count = tokens, .position = s->keys - tokens, .kind = tokens == 1 ? ROW_STEP : ROW_READ};
  row.split = s->keys;
  row.slots = views;
  ops_step step = {.tokens = tokens, .rows = 1, .row = &row};
  double times[REPEATS];
  for (int i = 0; i < REPEATS; i++) {
    double start = now(s->threads);
    for (int l = 0; l < s->layers; l++) {
      op_record r = {.kind = OP_attention, .attention = {.q = s->q, .out = s->out, .slot = l, .heads = s->heads}};
      r.attention.kv_heads = s->kv_heads;
      r.attention.key_dim = r.attention.value_dim = s->dim;
      r.attention.scale = 1 / sqrtf((float)s->dim);
      r.attention.window = s->window;
      cx->backend->run[OP_attention](cx, &r, &step);
    }
    times[i] = now(s->threads) - start;
  }
  qsort(times, REPEATS, sizeof *times, by_value);
  int64_t keys = s->window && s->window < s->keys ? s->window : s->keys;
  double bytes = (double)keys * s->kv_heads * 2 * s->dim * s->layers * (name[0] == 'f' ? 2 : 4);
  double products = (double)keys * s->heads * 2 * s->dim * s->layers * tokens;
  printf("%-6s %4d tokens  best %9.3f ms  median %9.3f ms  %6.1f GB/s  %6.1f GMAC/s\n", name, tokens, times[0] * 1e3,
         times[REPEATS / 2] * 1e3, bytes / times[0] * 1e-9, products / times[0] * 1e-9);
}

static void run(const ops_backend *backend, pool *workers, const setting *s, const char *name)
{
  ops_context cx = {.backend = backend, .workers = workers};
  ops_room room = {.tokens = MOST_TOKENS, .keys = s->keys, .dims = s->dim, .inputs = 1};
  if (backend->reserve(&cx, &room, NULL) != TERN_OK)
    exit(1);
  void ***tables = calloc((size_t)s->layers, sizeof *tables);
  ops_kv_view *views = calloc((size_t)s->layers, sizeof *views);
  for (int l = 0; l < s->layers; l++)
    views[l].blocks = tables[l] = calloc((size_t)(s->keys / KV_BLOCK), sizeof **tables);
  fill(&cx, s, tables, views);
  for (int tokens = 1; tokens <= s->tokens && tokens <= s->keys; tokens = tokens == 1   ? 3
                                                                          : tokens == 3 ? 64
                                                                                        : tokens * 8)
    measure(&cx, s, views, tokens, name);
  for (int l = 0; l < s->layers; l++) {
    for (int64_t n = 0; n < s->keys / KV_BLOCK; n++)
      backend->release(&cx, tables[l][n]);
    free(tables[l]);
  }
  free(tables);
  free(views);
  ops_context_clear(&cx);
}

static int number(int argc, char **argv, int i, int otherwise)
{
  return argc > i ? atoi(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
  setting s = {.threads = number(argc, argv, 1, 1),
               .keys = number(argc, argv, 3, 8192) / KV_BLOCK * KV_BLOCK,
               .heads = number(argc, argv, 4, 32),
               .kv_heads = number(argc, argv, 5, 8),
               .dim = number(argc, argv, 6, 64),
               .layers = number(argc, argv, 7, 16),
               .window = number(argc, argv, 8, 0),
               .tokens = number(argc, argv, 9, MOST_TOKENS),
               .level = ops_simd_best()};
  for (int l = 0; argc > 2 && l < SIMD_LEVELS; l++)
    if (!strcmp(argv[2], ops_simd_name((ops_simd)l)))
      s.level = (ops_simd)l;
  pool *workers;
  if (!ops_cpu(s.level) || pool_open(s.threads, &workers, NULL) != TERN_OK)
    return 1;
  size_t n = (size_t)MOST_TOKENS * (size_t)(s.heads * s.dim);
  s.q = malloc(n * sizeof *s.q);
  s.out = malloc(n * sizeof *s.out);
  for (size_t i = 0; i < n; i++)
    s.q[i] = next();
  printf("%s, %d threads, %lld keys, %d heads of %d over %d, %d layers\n", ops_cpu(s.level)->name, s.threads,
         (long long)s.keys, s.heads, s.dim, s.kv_heads, s.layers);
  run(ops_cpu_fast(s.level), workers, &s, "fast");
  run(ops_cpu(s.level), workers, &s, "exact");
  pool_close(workers);
  free(s.q);
  free(s.out);
  return 0;
}
