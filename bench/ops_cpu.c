/* ops_cpu.c - times the cpu backend's products on the shapes of a model, without a model: random weights of one layer
 * set and the head. Every figure is the median of several runs; with one thread, of its own processor
 * time.
 *
 *   cc -O2 -Iinclude -Isrc bench/ops_cpu.c build/libtern.a -lpthread -lm -o build/bench_ops_cpu
 *   build/bench_ops_cpu [threads [level [tokens [format [packed [numerics]]]]]]     level: as --simd; format: see table
 *
 * packed: mapping (the default), prepared, or both, run after run in turn, which also gives the ratio of their medians.
 * numerics: exact (the default) or fast.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/half.h"
#include "ops/ops.h"

typedef struct format {
  const char *name;
  ops_quant quant;
  int bits, group;
  ops_dtype stored;
} format;

static const format formats[] = {
    {"4g64bf16", Q_AFFINE, 4, 64, DT_BF16}, {"4g32f16", Q_AFFINE, 4, 32, DT_F16},
    {"4g64f32", Q_AFFINE, 4, 64, DT_F32},   {"8g64bf16", Q_AFFINE, 8, 64, DT_BF16},
    {"6g64bf16", Q_AFFINE, 6, 64, DT_BF16}, {"3g64bf16", Q_AFFINE, 3, 64, DT_BF16},
    {"mxfp4", Q_MXFP4, 4, 32, DT_F32},      {"nvfp4", Q_NVFP4, 4, 16, DT_F32},
    {"mxfp8", Q_MXFP8, 8, 32, DT_F32},      {"bf16", Q_NONE, 16, 1, DT_BF16},
    {"f16", Q_NONE, 16, 1, DT_F16},         {"f32", Q_NONE, 32, 1, DT_F32},
};

/* N, K of the products of a layer (Qwen2.5 0.5B), the first `layers` times over, then the head. */
enum { LAYERS = 24, PER_LAYER = 7, HEAD_ROWS = 151936 };
static const int shapes[PER_LAYER][2] = {{896, 896},  {128, 896},  {128, 896}, {896, 896},
                                         {4864, 896}, {4864, 896}, {896, 4864}};

/* With one thread its own processor time, so that a busy machine does not count. */
static double now(int threads)
{
  struct timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint8_t *fill(size_t n, ops_dtype stored, int scale)
{
  static uint64_t z = 1;
  uint8_t *p = aligned_alloc(4096, (n * 4 + 8191) / 4096 * 4096);
  for (size_t i = 0; i < n; i++) {
    z = z * UINT64_C(6364136223846793005) + 1442695040888963407u;
    float x = ((float)(z >> 40) * 0x1p-23f - 1) * 0.01f;
    uint16_t h = stored == DT_BF16 ? bf16_from_f32(x) : f16_from_f32(x);
    if (!scale)
      p[i] = (uint8_t)(z >> 56);
    else if (stored == DT_F32)
      memcpy(p + 4 * i, &x, 4);
    else
      memcpy(p + 2 * i, &h, 2);
  }
  return p + 0;
}

static ops_weight make(const format *f, int64_t n, int64_t k)
{
  ops_weight w = {.quant = f->quant, .bits = f->bits, .group = f->group, .stored = f->stored, .n = n, .k = k};
  if (f->quant == Q_NONE) {
    w.data = fill((size_t)(n * k), f->stored, 1);
    return w;
  }
  w.data = fill((size_t)(n * k * f->bits / 8), DT_F32, 0);
  w.scales = fill((size_t)(n * k / f->group), f->stored, f->quant == Q_AFFINE);
  w.biases = fill((size_t)(n * k / f->group), f->stored, 1);
  return w;
}

/* The prepared layout of w, or NULL. */
static const void *pack(const ops_backend *backend, const ops_weight *w)
{
  size_t bytes = backend->layout ? backend->layout->bytes(w) : 0;
  uint8_t *out = bytes ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : NULL;
  for (size_t at = 0; at < bytes;)
    at += backend->layout->piece(w, at, out + at);
  return out;
}

/* ---- a run ---- */

typedef struct network {
  ops_weight layer[LAYERS][PER_LAYER], head;
  const void *packed[LAYERS][PER_LAYER], *packed_head;
  double weights;
  float *x, *y[3], *logits;
} network;

typedef struct times {
  double layers, head;
} times;

enum { MOST_RUNS = 64 };

static void open_network(network *n, const ops_backend *backend, const format *f, int tokens)
{
  for (int l = 0; l < LAYERS; l++)
    for (int i = 0; i < PER_LAYER; i++) {
      n->layer[l][i] = make(f, shapes[i][0], shapes[i][1]);
      n->packed[l][i] = pack(backend, &n->layer[l][i]);
      n->weights += (double)shapes[i][0] * shapes[i][1];
    }
  n->head = make(f, HEAD_ROWS, 896);
  n->packed_head = pack(backend, &n->head);
  n->x = (float *)fill((size_t)tokens * 4864, DT_F32, 1);
  for (int i = 0; i < 3; i++)
    n->y[i] = aligned_alloc(64, (size_t)tokens * 4864 * 4);
  n->logits = aligned_alloc(64, (size_t)HEAD_ROWS * 4);
}

static times run_once(ops_context *cx, network *n, int threads, int tokens, bool packed)
{
  static const int groups[4][2] = {{0, 3}, {3, 1}, {4, 2}, {6, 1}};
  ops_step step = {.tokens = tokens}, one = {.tokens = 1};
  double start = now(threads);
  for (int l = 0; l < LAYERS; l++) {
    for (int g = 0; g < 4; g++) {
      op_record record = {.kind = OP_linear, .linear = {.x = n->x, .outputs = groups[g][1]}};
      for (int i = 0; i < groups[g][1]; i++) {
        ops_weight *w = &n->layer[l][groups[g][0] + i];
        w->packed = packed ? n->packed[l][groups[g][0] + i] : NULL;
        record.linear.w[i] = w;
        record.linear.y[i] = n->y[i];
      }
      cx->backend->run[OP_linear](cx, &record, &step);
    }
  }
  double middle = now(threads);
  n->head.packed = packed ? n->packed_head : NULL;
  op_record record = {.kind = OP_linear, .linear = {.x = n->x, .outputs = 1, .w = {&n->head}, .y = {n->logits}}};
  cx->backend->run[OP_linear](cx, &record, &one);
  return (times){middle - start, now(threads) - middle};
}

static int ascending(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int n)
{
  qsort(values, (size_t)n, sizeof *values, ascending);
  return values[n / 2];
}

static void report(const char *where, const char *name, const char *how, int threads, int tokens, double weights,
                   const times *t, int runs)
{
  double layers[MOST_RUNS], head[MOST_RUNS];
  for (int r = 0; r < runs; r++) {
    layers[r] = t[r].layers;
    head[r] = t[r].head;
  }
  double middle = median(layers, runs), of_head = median(head, runs);
  double most = HEAD_ROWS * 896.0 / head[0] * 1e-9; /* sorted by now */
  printf("%s %s %s, %d threads, %d tokens: layers %.2f ms (%.1f G weights/s, best %.1f; %.1f GMAC/s), head %.2f ms "
         "(%.1f, best %.1f), %.1f tokens/s\n",
         where, name, how, threads, tokens, middle * 1e3, weights / middle * 1e-9, weights / layers[0] * 1e-9,
         weights * tokens / middle * 1e-9, of_head * 1e3, HEAD_ROWS * 896.0 / of_head * 1e-9, most,
         tokens / (middle + (tokens == 1 ? of_head : 0)));
}

int main(int argc, char **argv)
{
  int threads = argc > 1 ? atoi(argv[1]) : 2, tokens = argc > 3 ? atoi(argv[3]) : 1, runs = tokens > 8 ? 7 : 31;
  const char *how = argc > 5 ? argv[5] : "mapping";
  bool mapping = strcmp(how, "prepared") != 0, prepared = strcmp(how, "mapping") != 0;
  ops_simd level = ops_simd_best();
  for (int l = 0; argc > 2 && l < SIMD_LEVELS; l++)
    if (!strcmp(argv[2], ops_simd_name((ops_simd)l)))
      level = (ops_simd)l;
  bool fast = argc > 6 && !strcmp(argv[6], "fast");
  ops_context cx = {.backend = fast ? ops_cpu_fast(level) : ops_cpu(level)};
  const ops_room room = {.tokens = tokens, .keys = 64, .dims = 64, .inputs = 4864};
  if (!cx.backend || pool_open(threads, &cx.workers, NULL) != TERN_OK ||
      cx.backend->reserve(&cx, &room, NULL) != TERN_OK)
    return 1;
  for (size_t n = 0; n < sizeof formats / sizeof *formats; n++) {
    const format *f = &formats[n];
    if (argc > 4 ? strcmp(argv[4], f->name) : n > 1)
      continue;
    static network net;
    times t[2][MOST_RUNS];
    double ratio[MOST_RUNS];
    open_network(&net, cx.backend, f, tokens);
    for (int r = 0; r < runs; r++) {
      for (int side = 0; side < 2; side++) /* in turn, so that both meet the same neighbours on the machine */
        if (side ? prepared : mapping)
          t[side][r] = run_once(&cx, &net, threads, tokens, side);
      if (mapping && prepared)
        ratio[r] = (t[0][r].layers + t[0][r].head) / (t[1][r].layers + t[1][r].head);
    }
    if (mapping)
      report(cx.backend->name, f->name, "mapping", threads, tokens, net.weights, t[0], runs);
    if (prepared)
      report(cx.backend->name, f->name, "prepared", threads, tokens, net.weights, t[1], runs);
    if (mapping && prepared)
      printf("%s %s, %d threads, %d tokens: prepared is %.2f times as fast (median of %d pairs)\n", cx.backend->name,
             f->name, threads, tokens, median(ratio, runs), runs);
  }
  return 0;
}
