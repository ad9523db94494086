/* ops_cpu.c - times the cpu backend's products on the shapes of a model, without a model: random weights of one layer
 * set and the head. Every figure is the best of several runs.
 *
 *   cc -O2 -Iinclude -Isrc bench/ops_cpu.c build/libtern.a -lpthread -lm -o build/bench_ops_cpu
 *   build/bench_ops_cpu [threads [level [tokens [format]]]]     level: baseline avx2 avx512; format: see table
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
enum { LAYERS = 24, PER_LAYER = 7 };
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

int main(int argc, char **argv)
{
  int threads = argc > 1 ? atoi(argv[1]) : 2, tokens = argc > 3 ? atoi(argv[3]) : 1;
  ops_simd level = ops_simd_best();
  for (int l = 0; argc > 2 && l < SIMD_LEVELS; l++)
    if (!strcmp(argv[2], ops_simd_name((ops_simd)l)))
      level = (ops_simd)l;
  ops_context cx = {.backend = ops_cpu(level)};
  if (!cx.backend || pool_open(threads, &cx.workers, NULL) != TERN_OK)
    return 1;
  for (size_t n = 0; n < sizeof formats / sizeof *formats; n++) {
    const format *f = &formats[n];
    if (argc > 4 ? strcmp(argv[4], f->name) : n > 1)
      continue;
    static ops_weight w[LAYERS][PER_LAYER], head;
    double weights = 0;
    for (int l = 0; l < LAYERS; l++)
      for (int i = 0; i < PER_LAYER; i++) {
        w[l][i] = make(f, shapes[i][0], shapes[i][1]);
        weights += (double)shapes[i][0] * shapes[i][1];
      }
    head = make(f, 151936, 896);
    float *x = (float *)fill((size_t)tokens * 4864, DT_F32, 1), *y[3];
    for (int i = 0; i < 3; i++)
      y[i] = aligned_alloc(64, (size_t)tokens * 4864 * 4);
    float *logits = aligned_alloc(64, (size_t)151936 * 4);
    ops_step step = {.tokens = tokens}, one = {.tokens = 1};
    double best = 1e9, best_head = 1e9;
    for (int r = 0; r < (tokens > 8 ? 5 : 15); r++) {
      double start = now(threads);
      for (int l = 0; l < LAYERS; l++) {
        const int groups[4][2] = {{0, 3}, {3, 1}, {4, 2}, {6, 1}};
        for (int g = 0; g < 4; g++) {
          op_record record = {.kind = OP_linear, .linear = {.x = x, .outputs = groups[g][1]}};
          for (int i = 0; i < groups[g][1]; i++) {
            record.linear.w[i] = &w[l][groups[g][0] + i];
            record.linear.y[i] = y[i];
          }
          cx.backend->run[OP_linear](&cx, &record, &step);
        }
      }
      double middle = now(threads);
      op_record record = {.kind = OP_linear, .linear = {.x = x, .outputs = 1, .w = {&head}, .y = {logits}}};
      cx.backend->run[OP_linear](&cx, &record, &one);
      double end = now(threads);
      best = middle - start < best ? middle - start : best;
      best_head = end - middle < best_head ? end - middle : best_head;
    }
    printf("%s %s, %d threads, %d tokens: layers %.2f ms (%.1f G weights/s, %.1f GMAC/s), head %.2f ms (%.1f), "
           "%.1f tokens/s\n",
           cx.backend->name, f->name, threads, tokens, best * 1e3, weights / best * 1e-9,
           weights * tokens / best * 1e-9, best_head * 1e3, 151936.0 * 896 / best_head * 1e-9,
           tokens / (best + (tokens == 1 ? best_head : 0)));
  }
  return 0;
}
