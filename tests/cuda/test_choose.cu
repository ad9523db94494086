/* test_choose.cu - the largest of a row as the GPU tells it, against the definition: ties, values that are nearly as
 * large, infinities, NaN, at either end and in between. --bench: microseconds of a row, copy to the host included.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vector>

#include "ops/cuda/host.cuh"
#include "ops/cuda/math.cuh" /* ref.h wants tanh defined */
#include "ops/ref/ref.h"

extern "C" const cuda_plugin *tern_cuda_plugin(void);

enum { ROWS = 5 };
static const float APART = 0x1p-18f;
static int passed, failed;

static float random_value(void)
{
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return ((float)(state >> 40) * 0x1p-23f - 1.0f) * 12.0f;
}

static void run(ops_context *cx, const std::vector<float> &values, int width, const char *what)
{
  int rows = (int)(values.size() / (size_t)width);
  float *on = (float *)cx->backend->alloc(cx, values.size() * sizeof(float));
  std::vector<int32_t> got((size_t)rows, -2);
  cx->backend->write(cx, on, values.data(), values.size() * sizeof(float));
  cx->backend->choose(cx, on, rows, width, APART, got.data());
  cx->backend->release(cx, on);
  for (int r = 0; r < rows; r++) {
    int32_t want = ref_largest(&values[(size_t)r * (size_t)width], width, APART);
    if (got[(size_t)r] == want) {
      passed++;
      continue;
    }
    printf("FAIL %s, width %d, row %d: %d, not %d\n", what, width, r, got[(size_t)r], want);
    failed++;
  }
}

static void cases(ops_context *cx, int width)
{
  std::vector<float> plain((size_t)width * ROWS);
  for (float &v : plain)
    v = random_value();
  run(cx, plain, width, "random");
  static const struct {
    const char *name;
    float most, other; /* put at two places of each row; 0: not put */
  } odd[] = {
      {"one", 20, 0},
      {"two alike", 20, 20},
      {"nearly", 20, 20 - 0x1p-18f},
      {"just apart", 16, 16 - 0x1p-17f},
      {"apart by less than the limit", 0.5f, 0.5f - 0x1p-20f},
      {"too large to be apart", 0x1p30f, 0x1p30f},
      {"NaN", 20, NAN},
      {"infinite", INFINITY, 3},
      {"a token that is forbidden", 20, -INFINITY},
  };
  for (const auto &o : odd) {
    std::vector<float> x = plain;
    for (int r = 0; r < ROWS; r++) {
      float *row = &x[(size_t)r * (size_t)width];
      int first = r == 0 ? 0 : r == 1 ? width - 1 : (int)((width * 77ll * r / 100) % width);
      int second = r == 0 ? width - 1 : r == 1 ? 0 : (first + 1 + r * 31) % width;
      if (o.other != 0)
        row[second] = o.other;
      row[first] = o.most;
    }
    run(cx, x, width, o.name);
  }
  run(cx, std::vector<float>((size_t)width, -INFINITY), width, "nothing but -infinity");
  run(cx, std::vector<float>((size_t)width * 2, 0.0f), width, "all alike");
}

static void bench(ops_context *cx)
{
  for (int rows : {1, 8, 16}) {
    const int width = 128256, times = 200;
    float *on = (float *)cx->backend->alloc(cx, (size_t)rows * width * sizeof(float));
    std::vector<float> host((size_t)rows * width);
    int32_t chosen[16];
    struct timespec from, to;
    for (int way = 0; way < 2; way++) {
      for (int i = -3; i < times; i++) {
        if (i == 0)
          clock_gettime(CLOCK_MONOTONIC, &from);
        if (way)
          cx->backend->choose(cx, on, rows, width, APART, chosen);
        else
          cx->backend->read(cx, host.data(), on, host.size() * sizeof(float));
      }
      clock_gettime(CLOCK_MONOTONIC, &to);
      double us = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) * 1e-3 / times;
      printf("%d rows of %d: %s %.1f us\n", rows, width, way ? "chosen" : "copied (pageable)", us);
    }
    cx->backend->release(cx, on);
  }
}

int main(int count, char **arguments)
{
  ops_context cx = {};
  tern_error err = {};
  cuda_options options = {};
  options.share = 0.9;
  if (tern_cuda_plugin()->open(&options, &cx, &err) != TERN_OK) {
    printf("%s\n", err.text);
    return 2;
  }
  if (count > 1 && !strcmp(arguments[1], "--bench"))
    bench(&cx);
  else
    for (int width : {1, 2, 31, 32, 33, 1000, 1024, 1025, 32000, 128256, 151936, 262144})
      cases(&cx, width);
  bool well = cx.backend->check(&cx, &err) == TERN_OK;
  if (!well)
    printf("%s\n", err.text);
  cx.backend->close(&cx);
  printf("%d passed, %d failed\n", passed, failed + !well);
  return failed || !well;
}
