/* test_exact_linear.cu - matrix products of numerics exact on a GPU against ref_linear, bit by bit; rates with --bench.
 *
 * Each matrix is tried as stored and, where it has one, in its own layout, with many counts of tokens (each count
 * chooses other kernels), several outputs, biases and residuals. NaNs are equal as a class. The reference computes the
 * most tokens once: a token's bits do not depend on their number.
 *
 *     test_exact_linear [--quick | --bench [tokens ...] | --bench-stored]
 */
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <thread>
#include <vector>

#include "ops/cuda/exact_pack.cuh"

static int passed, failed;

static void check(cudaError_t error, const char *what)
{
  if (error == cudaSuccess)
    return;
  printf("%s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

/* ---- random things ---- */

static uint64_t state = 1;

static uint32_t random_bits(void)
{
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return (uint32_t)(z >> 32);
}

static float random_float(void) /* -1 .. 1 */
{
  return (float)(int32_t)random_bits() * 0x1p-31f;
}

static void put(std::vector<uint8_t> &to, ops_dtype type, float x)
{
  uint16_t half = type == DT_BF16 ? bf16_from_f32(x) : f16_from_f32(x);
  const uint8_t *from = type == DT_F32 ? (const uint8_t *)&x : (const uint8_t *)&half;
  to.insert(to.end(), from, from + (type == DT_F32 ? 4 : 2));
}

/* ---- matrices ---- */

struct kind {
  const char *name;
  ops_quant quant;
  int bits, group;
  ops_dtype stored;
  bool turned;
};

struct matrix {
  ops_weight host, device;
  std::vector<uint8_t> data, scales, biases;
  cuda_matrix stored, packed;
};

/* `wild`: scales that are odd: infinite, huge, tiny, with bits that no half has. */
static void fill(matrix *m, const kind &f, int64_t n, int64_t k, bool wild)
{
  *m = matrix();
  ops_weight *w = &m->host;
  w->name = f.name, w->quant = f.quant, w->bits = f.bits, w->group = f.group, w->stored = f.stored;
  w->dtype = DT_F32, w->n = n, w->k = k, w->factor = 0.37f, w->turned = f.turned;
  int64_t bytes = f.quant == Q_TERNARY ? (n + 3) / 4 * k : n * k * f.bits / 8;
  if (f.quant == Q_NONE) {
    for (int64_t i = 0; i < n * k; i++)
      put(m->data, f.stored, wild && i % 501 == 7 ? INFINITY : random_float());
  } else {
    for (int64_t i = 0; i < bytes; i++)
      m->data.push_back((uint8_t)random_bits());
  }
  for (int64_t g = 0; f.group && g < n * (k / f.group); g++) {
    if (f.quant != Q_AFFINE) {
      m->scales.push_back((uint8_t)(f.quant == Q_NVFP4 ? random_bits()
                                    : wild             ? random_bits()
                                                       : 118 + random_bits() % 12));
      continue;
    }
    static const float odd[] = {0.0f, -0.0f, 1e-40f, 3e38f, -2.9e37f, INFINITY, NAN, 1e-30f, 3e-39f};
    bool strange = wild && random_bits() % 16 == 0;
    float scale = strange ? odd[random_bits() % 9] : 0.01f * random_float();
    put(m->scales, f.stored, scale);
    put(m->biases, f.stored, strange ? odd[random_bits() % 9] : -8 * scale * (1 + 0.1f * random_float()));
  }
  w->data = m->data.data();
  w->scales = m->scales.empty() ? NULL : m->scales.data();
  w->biases = m->biases.empty() ? NULL : m->biases.data();
}

static void upload(cuda_context *cx, matrix *m, bool pack)
{
  size_t scales_at = (m->data.size() + 255) / 256 * 256, biases_at = scales_at + (m->scales.size() + 255) / 256 * 256;
  uint8_t *memory;
  check(cudaMalloc(&memory, biases_at + m->biases.size() + 1), "memory");
  check(cudaMemcpy(memory, m->data.data(), m->data.size(), cudaMemcpyHostToDevice), "copy");
  check(cudaMemcpy(memory + scales_at, m->scales.data(), m->scales.size(), cudaMemcpyHostToDevice), "copy");
  check(cudaMemcpy(memory + biases_at, m->biases.data(), m->biases.size(), cudaMemcpyHostToDevice), "copy");
  m->device = m->host;
  m->stored.shape = m->host;
  m->stored.shape.data = memory;
  m->stored.shape.scales = memory + scales_at;
  m->stored.shape.biases = memory + biases_at;
  m->stored.layout = CUDA_AS_STORED;
  m->stored.memory = memory;
  m->device.packed = &m->stored;
  m->packed = cuda_matrix();
  if (!pack || !cuda_exact_packs(&m->host))
    return;
  unsigned *inexact, counted;
  uint8_t *to;
  check(cudaMalloc(&to, cuda_exact_pack_bytes(&m->host)), "memory");
  check(cudaMalloc(&inexact, sizeof *inexact), "memory");
  check(cudaMemset(inexact, 0, sizeof *inexact), "set");
  cuda_exact_pack(cx, &m->stored, to, inexact);
  check(cx->error, "pack");
  check(cudaStreamSynchronize(cx->stream), "pack");
  check(cudaMemcpy(&counted, inexact, sizeof counted, cudaMemcpyDeviceToHost), "copy");
  cudaFree(inexact);
  m->packed = m->stored;
  m->packed.shape.data = to;
  m->packed.layout = CUDA_EXACT_4;
  m->packed.shortcut = counted == 0;
  m->packed.memory = to;
}

static __global__ void take_all(ops_weight w, float *to)
{
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < w.n * w.k)
    to[i] = exact4_value(w, i / w.k, i % w.k);
}

static bool same(float a, float b)
{
  return f32_bits(a) == f32_bits(b) || (a != a && b != b);
}

/* Whether elements taken out of the packed matrix are those of the stored one. */
static bool elements(const matrix *m)
{
  const ops_weight *w = &m->host;
  std::vector<float> got(w->n * w->k);
  float *device;
  check(cudaMalloc(&device, got.size() * sizeof(float)), "memory");
  take_all<<<(unsigned)cuda_ceil(got.size(), 256), 256>>>(m->packed.shape, device);
  check(cudaMemcpy(got.data(), device, got.size() * sizeof(float), cudaMemcpyDeviceToHost), "copy");
  cudaFree(device);
  for (int64_t i = 0; i < (int64_t)got.size(); i++) {
    const uint8_t *row = w->data + i / w->k * ref_row_bytes(w);
    float product = (float)ref_code(row, 4, i % w->k) * ops_load(w->stored, w->scales, i / w->group);
    float value = product + ops_load(w->stored, w->biases, i / w->group);
    if (!same(got[i], value)) {
      printf("  element n=%lld k=%lld: %.9g, right is %.9g\n", (long long)(i / w->k), (long long)(i % w->k), got[i],
             value);
      return false;
    }
  }
  return true;
}

static void drop(matrix *m)
{
  cudaFree(m->stored.memory);
  if (m->packed.memory)
    cudaFree(m->packed.memory);
}

/* ---- comparing ---- */

enum { MOST_OUTPUTS = 3 };
static bool quick; /* few cases: for compute-sanitizer */
static const int token_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 33, 48, 64, 65, 100, 129, 140};
enum { MOST_TOKENS = 140 };

struct product {
  int outputs;
  int64_t n[MOST_OUTPUTS], k;
  bool bias, residual;
};

static float *to_device(const std::vector<float> &v)
{
  float *p;
  check(cudaMalloc(&p, v.size() * sizeof(float) + 4), "memory");
  check(cudaMemcpy(p, v.data(), v.size() * sizeof(float), cudaMemcpyHostToDevice), "copy");
  return p;
}

/* ref_linear, tokens shared out. */
static void reference(const op_linear *a, int tokens)
{
  enum { EACH = 10 };
  std::vector<std::thread> workers;
  for (int from = 0; from < tokens; from += EACH)
    workers.emplace_back([=]() {
      op_record record = {};
      ops_context cx = {};
      ops_step step = {};
      record.kind = OP_linear;
      record.linear = *a;
      step.tokens = tokens - from < EACH ? tokens - from : EACH;
      record.linear.x += from * a->w[0]->k;
      for (int i = 0; i < a->outputs; i++)
        record.linear.y[i] += from * a->w[i]->n;
      if (a->residual)
        record.linear.residual += from * a->w[0]->n;
      ref_linear(&cx, &record, &step);
    });
  for (std::thread &t : workers)
    t.join();
}

static void compare(cuda_context *cx, const kind &f, const product &p, bool wild)
{
  matrix m[MOST_OUTPUTS];
  op_linear record = {}, *a = &record, b;
  std::vector<float> x(MOST_TOKENS * p.k), bias[MOST_OUTPUTS], y[MOST_OUTPUTS], residual;
  for (float &v : x)
    v = random_float();
  for (size_t i = 0; wild && i < x.size(); i += 977)
    x[i] = i % 3 ? 0.0f : 1e-42f;
  a->x = x.data();
  a->outputs = p.outputs;
  for (int i = 0; i < p.outputs; i++) {
    fill(&m[i], f, p.n[i], p.k, wild && i != 1);
    upload(cx, &m[i], true);
    for (int64_t n = 0; p.bias && n < p.n[i]; n++)
      bias[i].push_back(n % 9 == 1 ? -0.0f : random_float());
    y[i].assign(MOST_TOKENS * p.n[i], 0);
    a->w[i] = &m[i].host;
    a->bias[i] = p.bias ? bias[i].data() : NULL;
    a->y[i] = y[i].data();
  }
  for (int64_t i = 0; p.residual && i < MOST_TOKENS * p.n[0]; i++)
    residual.push_back(random_float());
  a->residual = p.residual ? residual.data() : NULL;
  reference(a, MOST_TOKENS);

  b = *a;
  /* An input that does not start at a multiple of 16 bytes, where things are wild. */
  if (wild)
    x.insert(x.begin(), 0.0f);
  const float *x_device = to_device(x);
  b.x = x_device + wild;
  float *y_device[MOST_OUTPUTS];
  for (int i = 0; i < p.outputs; i++) {
    b.bias[i] = p.bias ? to_device(bias[i]) : NULL;
    y_device[i] = to_device(y[i]);
    b.y[i] = y_device[i];
  }
  b.residual = p.residual ? y_device[0] : NULL; /* y is the residual */
  for (int packed = 0; packed < (m[0].packed.memory ? 2 : 1); packed++) {
    char name[200];
    snprintf(name, sizeof name, "%s%s k=%d n=%d+%d+%d%s%s%s%s", f.name, packed ? " packed" : "", (int)p.k, (int)p.n[0],
             p.outputs > 1 ? (int)p.n[1] : 0, p.outputs > 2 ? (int)p.n[2] : 0, p.bias ? " bias" : "",
             p.residual ? " residual" : "", wild ? " wild" : "", packed && m[0].packed.shortcut ? " shortcut" : "");
    bool right = true;
    for (int i = 0; i < p.outputs; i++) {
      right = right && (!packed || elements(&m[i]));
      m[i].device.packed = packed ? &m[i].packed : &m[i].stored;
      b.w[i] = &m[i].device;
    }
    for (int tokens : token_counts) {
      if (quick && tokens != 1 && tokens != 3 && tokens != 8 && tokens != 17 && tokens != 129)
        continue;
      std::vector<float> got[MOST_OUTPUTS];
      for (int i = 0; i < p.outputs; i++) {
        size_t bytes = tokens * p.n[i] * sizeof(float);
        if (i == 0 && p.residual)
          check(cudaMemcpy(b.y[0], residual.data(), bytes, cudaMemcpyHostToDevice), "copy");
        else
          check(cudaMemset(b.y[i], 0xa5, bytes), "set");
      }
      check(cudaDeviceSynchronize(), "before");
      cuda_exact_linear(cx, &b, tokens);
      check(cx->error, name);
      check(cudaStreamSynchronize(cx->stream), name);
      for (int i = 0; i < p.outputs; i++) {
        got[i].resize(tokens * p.n[i]);
        check(cudaMemcpy(got[i].data(), b.y[i], got[i].size() * sizeof(float), cudaMemcpyDeviceToHost), name);
        int64_t bad = 0, first = -1;
        for (int64_t j = 0; j < (int64_t)got[i].size(); j++)
          if (!same(got[i][j], y[i][j])) {
            first = bad++ ? first : j;
          }
        if (bad) {
          right = false;
          printf("  %s T=%d output %d: %lld of %zu differ, first t=%lld n=%lld: %.9g (%08x), right is %.9g (%08x)\n",
                 name, tokens, i, (long long)bad, got[i].size(), (long long)(first / p.n[i]),
                 (long long)(first % p.n[i]), got[i][first], f32_bits(got[i][first]), y[i][first],
                 f32_bits(y[i][first]));
        }
      }
    }
    printf("%s: %s\n", name, right ? "ok" : "WRONG");
    (right ? passed : failed)++;
  }
  cudaFree((void *)x_device);
  for (int i = 0; i < p.outputs; i++) {
    cudaFree(b.y[i]);
    cudaFree((void *)b.bias[i]);
    drop(&m[i]);
  }
}

static const kind kinds[] = {
    {"f32", Q_NONE, 32, 0, DT_F32, false},         {"bf16", Q_NONE, 16, 0, DT_BF16, false},
    {"f16", Q_NONE, 16, 0, DT_F16, false},         {"f32 turned", Q_NONE, 32, 0, DT_F32, true},
    {"bf16 turned", Q_NONE, 16, 0, DT_BF16, true}, {"mxfp4", Q_MXFP4, 4, 32, DT_F32, false},
    {"mxfp8", Q_MXFP8, 8, 32, DT_F32, false},      {"nvfp4", Q_NVFP4, 4, 16, DT_F32, false},
    {"ternary", Q_TERNARY, 2, 0, DT_BF16, false},
};

static void all_formats(cuda_context *cx)
{
  const product big3 = {3, {70, 33, 5}, 0, true, true}, one = {1, {131}, 0, false, false};
  for (const kind &f : kinds) {
    int64_t unit = f.group ? f.group : 1;
    for (int64_t k : {3 * unit, 1040 / unit * unit, f.group ? 2048 / unit * unit : 1021}) {
      product p = big3;
      p.k = k;
      compare(cx, f, p, k > 500 && k < 1030);
      if (!quick && k > 1030) {
        p = one, p.k = k;
        compare(cx, f, p, true);
      }
    }
  }
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {32, 64, 128})
      for (ops_dtype stored : {DT_BF16, DT_F16, DT_F32}) {
        if (quick && ((bits != 3 && bits != 4) || stored == DT_F16))
          continue;
        char name[64];
        snprintf(name, sizeof name, "affine %d/%d %s", bits, group,
                 stored == DT_F32   ? "f32"
                 : stored == DT_F16 ? "f16"
                                    : "bf16");
        kind f = {name, Q_AFFINE, bits, group, stored, false};
        for (int64_t k : {3 * group, 1024 + group, 1024 + 2 * group}) {
          product p = k % 256 ? big3 : one;
          p.k = k;
          compare(cx, f, p, k == 1024 + 2 * group);
        }
      }
}

/* ---- rates ---- */

static __global__ void fill_bits(uint32_t *to, size_t words, uint32_t seed, uint32_t mask, uint32_t fixed)
{
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
    uint32_t x = (uint32_t)i * 2654435761u + seed;
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
    to[i] = (x & mask) | fixed;
  }
}

/* A matrix of random bits in device memory alone; scales and biases near 0.01. Packed where it has a layout. */
static cuda_matrix *bench_matrix(cuda_context *cx, const kind &f, int64_t n, int64_t k, uint32_t seed, bool pack)
{
  cuda_matrix *m = new cuda_matrix();
  size_t bytes = f.quant == Q_TERNARY ? (n + 3) / 4 * k : n * k * f.bits / 8, align = 255;
  size_t groups = f.group ? n * (k / f.group) * (f.quant != Q_AFFINE ? 1 : f.stored == DT_F32 ? 4 : 2) : 0;
  bytes = (bytes + align) & ~align, groups = (groups + align) & ~align;
  uint8_t *memory;
  check(cudaMalloc(&memory, bytes + 2 * groups + 4), "memory");
  fill_bits<<<1024, 256>>>((uint32_t *)memory, bytes / 4, seed, f.quant == Q_NONE ? 0xbfffbfff : ~0u, 0);
  fill_bits<<<1024, 256>>>((uint32_t *)(memory + bytes), groups / 2, seed + 1, 0x007f007f, 0x3c003c00);
  m->shape.quant = f.quant, m->shape.bits = f.bits, m->shape.group = f.group, m->shape.stored = f.stored;
  m->shape.n = n, m->shape.k = k, m->shape.data = memory, m->shape.scales = memory + bytes;
  m->shape.biases = memory + bytes + groups, m->memory = memory, m->bytes = bytes + 2 * groups;
  if (pack && cuda_exact_packs(&m->shape)) {
    cuda_matrix stored = *m;
    unsigned *inexact, counted;
    uint8_t *to;
    check(cudaMalloc(&inexact, 4), "memory");
    check(cudaMalloc(&to, cuda_exact_pack_bytes(&m->shape)), "memory");
    check(cudaMemset(inexact, 0, 4), "set");
    check(cudaDeviceSynchronize(), "fill");
    cuda_exact_pack(cx, &stored, to, inexact);
    check(cudaStreamSynchronize(cx->stream), "pack");
    check(cudaMemcpy(&counted, inexact, 4, cudaMemcpyDeviceToHost), "copy");
    cudaFree(memory);
    cudaFree(inexact);
    m->layout = CUDA_EXACT_4, m->shape.data = to, m->memory = to, m->shortcut = counted == 0;
  }
  check(cudaDeviceSynchronize(), "fill");
  return m;
}

/* Median milliseconds of a replay of what `queue` queues. */
template <class Queue> static double replay(cuda_context *cx, Queue queue)
{
  cudaGraph_t graph;
  cudaGraphExec_t work;
  check(cudaStreamBeginCapture(cx->stream, cudaStreamCaptureModeThreadLocal), "capture");
  queue();
  check(cudaStreamEndCapture(cx->stream, &graph), "capture");
  check(cx->error, "capture");
  check(cudaGraphInstantiate(&work, graph, 0), "capture");
  cudaEvent_t from, to;
  check(cudaEventCreate(&from), "event");
  check(cudaEventCreate(&to), "event");
  std::vector<float> times;
  for (int i = 0; i < 11; i++) {
    check(cudaEventRecord(from, cx->stream), "event");
    check(cudaGraphLaunch(work, cx->stream), "launch");
    check(cudaEventRecord(to, cx->stream), "event");
    check(cudaEventSynchronize(to), "run");
    float ms;
    check(cudaEventElapsedTime(&ms, from, to), "event");
    if (i >= 2)
      times.push_back(ms);
  }
  cudaGraphExecDestroy(work);
  cudaGraphDestroy(graph);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/* Kernels that start before their predecessor ends must still see its results: a chain of products, each the input of
 * the next, in a graph; again and again, against the same without early starts. */
static void early_starts(cuda_context *cx, const kind &f, bool pack)
{
  enum { NARROW = 4096, WIDE = 14336, MOST = 5, LINKS = 6, ROUNDS = 20 };
  cuda_matrix *m[2] = {bench_matrix(cx, f, WIDE, NARROW, 1, pack), bench_matrix(cx, f, NARROW, WIDE, 2, pack)};
  ops_weight w[2];
  op_linear a[2] = {};
  float *x[2];
  for (int i = 0; i < 2; i++)
    check(cudaMalloc(&x[i], MOST * WIDE * sizeof(float)), "memory");
  for (int i = 0; i < 2; i++) {
    w[i] = m[i]->shape;
    w[i].packed = m[i];
    a[i].x = x[i], a[i].outputs = 1, a[i].w[0] = &w[i], a[i].y[0] = x[1 - i];
  }
  for (int tokens : {1, 2, (int)MOST}) {
    std::vector<float> first(tokens * NARROW), right(first.size()), got(first.size());
    size_t bytes = first.size() * sizeof(float);
    int bad = 0;
    for (float &v : first)
      v = random_float();
    cudaGraph_t graph;
    cudaGraphExec_t work;
    for (int overlap = 0; overlap < 2; overlap++) {
      cx->overlap = overlap && cx->capability >= 90;
      check(cudaStreamBeginCapture(cx->stream, cudaStreamCaptureModeThreadLocal), "capture");
      for (int i = 0; i < LINKS; i++)
        cuda_exact_linear(cx, &a[i % 2], tokens);
      check(cudaStreamEndCapture(cx->stream, &graph), "capture");
      check(cx->error, "capture");
      check(cudaGraphInstantiate(&work, graph, 0), "capture");
      for (int round = 0; round < (overlap ? ROUNDS : 1); round++) {
        check(cudaMemcpy(x[0], first.data(), bytes, cudaMemcpyHostToDevice), "copy");
        check(cudaGraphLaunch(work, cx->stream), "launch");
        check(cudaStreamSynchronize(cx->stream), "run");
        check(cudaMemcpy(got.data(), x[0], bytes, cudaMemcpyDeviceToHost), "copy");
        if (!overlap)
          right = got;
        bad += memcmp(got.data(), right.data(), bytes) != 0;
      }
      cudaGraphExecDestroy(work);
      cudaGraphDestroy(graph);
    }
    printf("%s early starts T=%d: %s\n", f.name, tokens, bad ? "WRONG" : "ok");
    (bad ? failed : passed)++;
  }
  for (int i = 0; i < 2; i++) {
    cudaFree(x[i]);
    cudaFree(m[i]->memory);
    delete m[i];
  }
}

struct shape {
  const char *name;
  int outputs;
  int64_t n[3], k;
  int copies; /* distinct ones, so that none is in the cache when its turn comes */
};
static const shape shapes[] = {
    {"qkv", 3, {4096, 1024, 1024}, 4096, 12}, {"o", 1, {4096}, 4096, 16},
    {"gate+up", 2, {14336, 14336}, 4096, 3},  {"down", 1, {4096}, 14336, 6},
    {"head", 1, {128256}, 4096, 1},
};
static const int layers[] = {32, 32, 32, 32, 1};

static void bench(cuda_context *cx, const kind &f, bool pack, const std::vector<int> &tokens, bool head)
{
  std::vector<double> step(tokens.size());
  float *x, *y;
  int most = *std::max_element(tokens.begin(), tokens.end());
  check(cudaMalloc(&x, (size_t)most * 14336 * 4), "memory");
  check(cudaMalloc(&y, (size_t)std::max(most * 28672, 128256 * (head ? most : 1)) * 4), "memory");
  fill_bits<<<1024, 256>>>((uint32_t *)x, (size_t)most * 14336, 3, 0x80ffffff, 0x3e000000);
  for (int s = 0; s < 5 - !head; s++) {
    const shape &p = shapes[s];
    std::vector<op_linear> records;
    std::vector<cuda_matrix *> matrices;
    std::vector<ops_weight> weights(p.copies * p.outputs);
    double bytes = 0, rows = 0;
    for (int c = 0; c < p.copies; c++) {
      op_linear a = {};
      int64_t at = 0;
      a.x = x, a.outputs = p.outputs;
      for (int i = 0; i < p.outputs; i++) {
        matrices.push_back(bench_matrix(cx, f, p.n[i], p.k, 100 * c + i, pack));
        weights[c * p.outputs + i] = matrices.back()->shape;
        weights[c * p.outputs + i].packed = matrices.back();
        a.w[i] = &weights[c * p.outputs + i];
        a.y[i] = y + at, at += most * p.n[i];
        bytes += c ? 0 : (double)matrices.back()->bytes;
        rows += c ? 0 : (double)p.n[i];
      }
      records.push_back(a);
    }
    for (size_t t = 0; t < tokens.size(); t++) {
      int count = tokens[t] > 64 ? std::min(p.copies, 3) : p.copies;
      double ms = replay(cx,
                         [&]() {
                           for (int c = 0; c < count; c++)
                             cuda_exact_linear(cx, &records[c], tokens[t]);
                         }) /
                  count;
      step[t] += layers[s] * ms;
      printf("%s %s T=%d: %.1f us, %.0f GB/s (%.0f %% of 4500), %.2f TMAC/s\n", f.name, p.name, tokens[t], ms * 1e3,
             bytes / ms * 1e-6, bytes / ms * 1e-6 / 45, rows * p.k * tokens[t] / ms * 1e-9);
    }
    for (cuda_matrix *m : matrices) {
      cudaFree(m->memory);
      delete m;
    }
  }
  for (size_t t = 0; t < tokens.size(); t++)
    printf("%s step of 32 layers%s T=%d: %.3f ms, %.0f tokens/s\n", f.name, head ? " and head" : "", tokens[t], step[t],
           tokens[t] / step[t] * 1e3);
  fflush(stdout);
  cudaFree(x);
  cudaFree(y);
}

int main(int argc, char **argv)
{
  cuda_context cx = {};
  cudaDeviceProp facts;
  check(cudaGetDeviceProperties(&facts, 0), "device");
  cx.processors = facts.multiProcessorCount;
  cx.capability = 10 * facts.major + facts.minor;
  cx.shared_most = facts.sharedMemPerBlockOptin;
  cx.overlap = cx.capability >= 90;
  check(cudaStreamCreate(&cx.stream), "stream");
  cuda_exact_setup(&cx);
  check(cx.error, "setup");
  if (argc > 1 && !strcmp(argv[1], "--bench")) {
    kind four = {"affine 4/64 bf16", Q_AFFINE, 4, 64, DT_BF16, false};
    std::vector<int> tokens;
    for (int i = 2; i < argc; i++)
      tokens.push_back(atoi(argv[i]));
    if (tokens.empty())
      tokens = {1, 2, 4, 8, 16, 32, 64};
    bench(&cx, four, true, tokens, true);
    bench(&cx, four, true, {128, 512, 2048}, false);
    return 0;
  }
  if (argc > 1 && !strcmp(argv[1], "--bench-stored")) {
    std::vector<int> tokens = {1, 8, 512};
    for (const kind &f : {kind{"as stored 4/64 bf16", Q_AFFINE, 4, 64, DT_BF16, false},
                          kind{"affine 8/64 bf16", Q_AFFINE, 8, 64, DT_BF16, false},
                          kind{"affine 6/64 bf16", Q_AFFINE, 6, 64, DT_BF16, false}, kinds[1], kinds[5], kinds[8]})
      bench(&cx, f, false, tokens, false);
    return 0;
  }
  quick = argc > 1 && !strcmp(argv[1], "--quick");
  all_formats(&cx);
  early_starts(&cx, kind{"affine 4/64 packed", Q_AFFINE, 4, 64, DT_BF16, false}, true);
  early_starts(&cx, kind{"affine 8/64", Q_AFFINE, 8, 64, DT_BF16, false}, false);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
