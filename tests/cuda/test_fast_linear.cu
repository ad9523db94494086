/* test_fast_linear.cu - linears of numerics fast on a GPU against their definition, bit for bit (NaN being NaN).
 *
 *     test_fast_linear            every kernel, small shapes and large ones (of which rows are sampled)
 *     test_fast_linear --quick    small shapes alone, for compute-sanitizer
 *     test_fast_linear --bench    rates of the linears of an 8B llama, 4 bits, groups of 64; of these numbers of
 * tokens:
 *                                 --bench 1 32
 */
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <vector>

#include "ops/cuda/fast_pack.cuh"

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    cudaError_t e_ = (call);                                                                                           \
    if (e_ != cudaSuccess) {                                                                                           \
      printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_));                                               \
      exit(2);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* ---- random numbers, the same every time ---- */

static uint64_t random_state = 1;

static uint32_t random_bits(void)
{
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  uint64_t x = random_state;
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdu;
  return (uint32_t)(x >> 32);
}

/* About normal, now and then much larger, as activations are. */
static float random_value(void)
{
  float sum = 0;
  for (int i = 0; i < 4; i++)
    sum += (float)random_bits() * 0x1p-31f - 1.0f;
  return random_bits() % 200 ? sum : 20.0f * sum;
}

/* ---- stand-ins for what other files of the backend have ---- */

static __global__ void ternary(ops_weight w, const float *x, float *y, int tokens)
{
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, n = i % w.n, t = i / w.n, rows = (w.n + 3) / 4;
  if (t >= tokens)
    return;
  float sum = 0;
  for (int64_t k = 0; k < w.k; k++)
    sum += x[t * w.k + k] * (float)((w.data[n % rows * w.k + k] >> (2 * (int)(n / rows)) & 3) - 1);
  y[i] = sum * w.factor;
}

/* Without bias and residual. Gives way to the real one, where that is linked. */
__attribute__((weak)) void cuda_exact_linear(cuda_context *cx, const op_linear *a, int tokens)
{
  const ops_weight *w = &cuda_of(a->w[0])->shape;
  cuda_launch(cx, false, ternary, (unsigned)cuda_ceil(w->n * tokens, 128), 128, 0, *w, a->x, a->y[0], tokens);
}

__attribute__((weak)) size_t cuda_exact_linear_scratch(const cuda_context *, int, int64_t)
{
  return 0;
}

/* ---- matrices ---- */

struct kind {
  ops_quant quant;
  int bits, group;
  ops_dtype stored;
};

struct matrix {
  ops_weight host;   /* as stored, in host memory */
  ops_weight device; /* .packed: the cuda_matrix below */
  cuda_matrix on;
  cuda_matrix as_stored;
};

static void *upload(const void *from, size_t bytes)
{
  void *to;
  CHECK(cudaMalloc(&to, bytes));
  CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  return to;
}

static void put_scale(ops_dtype type, uint8_t *to, size_t i, float v)
{
  uint16_t half = type == DT_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
  if (type == DT_F32)
    memcpy(to + 4 * i, &v, 4);
  else
    memcpy(to + 2 * i, &half, 2);
}

static matrix *matrix_new(cuda_context *cx, const kind &q, int64_t n, int64_t k, bool pack)
{
  matrix *m = (matrix *)calloc(1, sizeof *m);
  ops_weight w = {};
  size_t wide = q.stored == DT_F32 ? 4 : 2;
  w.quant = q.quant, w.bits = q.bits, w.group = q.group, w.stored = q.stored, w.n = n, w.k = k;
  w.factor = 0.37f;
  size_t data = q.quant == Q_NONE      ? (size_t)(n * k) * wide
                : q.quant == Q_TERNARY ? (size_t)((n + 3) / 4 * k)
                                       : (size_t)(n * k * q.bits / 8);
  size_t groups = q.group ? (size_t)(n * k / q.group) : 0;
  uint8_t *codes = (uint8_t *)malloc(data + 8), *scales = (uint8_t *)malloc(groups * 4 + 8),
          *biases = (uint8_t *)malloc(groups * 4 + 8);
  if (q.quant == Q_NONE)
    for (size_t i = 0; i < (size_t)(n * k); i++)
      put_scale(q.stored, codes, i, 0.05f * random_value());
  else if (q.quant == Q_TERNARY)
    for (size_t i = 0; i < data; i++)
      codes[i] = (uint8_t)((random_bits() % 3) | (random_bits() % 3) << 2 | (random_bits() % 3) << 4 |
                           (random_bits() % 3) << 6);
  else
    for (size_t i = 0; i < data; i += 4) {
      uint32_t word = random_bits();
      memcpy(codes + i, &word, std::min<size_t>(4, data - i));
    }
  if (q.quant == Q_MXFP8)
    for (size_t i = 0; i < data; i++)
      codes[i] = (codes[i] & 127) == 127 ? 0 : codes[i];
  for (size_t i = 0; i < groups; i++) {
    if (q.quant == Q_AFFINE) {
      float scale = 0.01f * random_value();
      put_scale(q.stored, scales, i, scale);
      put_scale(q.stored, biases, i, -scale * (float)(1 << (q.bits - 1)) + 0.003f * random_value());
    } else {
      scales[i] = q.quant == Q_NVFP4 ? (uint8_t)(random_bits() % 0x60) : (uint8_t)(120 + random_bits() % 8);
    }
  }
  w.data = codes, w.scales = scales, w.biases = biases;
  m->host = w;
  m->as_stored.shape = w;
  m->as_stored.shape.data = (const uint8_t *)upload(codes, data);
  m->as_stored.shape.scales = (const uint8_t *)upload(scales, groups * 4 + 8);
  m->as_stored.shape.biases = (const uint8_t *)upload(biases, groups * 4 + 8);
  m->as_stored.layout = CUDA_AS_STORED;
  m->on = m->as_stored;
  if (pack && cuda_fast_packs(&w)) {
    uint8_t *to;
    CHECK(cudaMalloc(&to, cuda_fast_pack_bytes(&w)));
    cuda_fast_pack(cx, &m->as_stored, to);
    m->on.layout = CUDA_FAST_4;
    m->on.shape.data = to;
  }
  m->device = m->on.shape;
  m->device.packed = &m->on;
  return m;
}

static void matrix_free(matrix *m)
{
  CHECK(cudaFree((void *)m->as_stored.shape.data));
  CHECK(cudaFree((void *)m->as_stored.shape.scales));
  CHECK(cudaFree((void *)m->as_stored.shape.biases));
  if (m->on.layout == CUDA_FAST_4)
    CHECK(cudaFree((void *)m->on.shape.data));
  free((void *)m->host.data);
  free((void *)m->host.scales);
  free((void *)m->host.biases);
  free(m);
}

/* ---- the context ---- */

static cuda_context context_new(void)
{
  cuda_context cx = {};
  cudaDeviceProp is;
  CHECK(cudaGetDeviceProperties(&is, 0));
  cx.processors = is.multiProcessorCount;
  cx.capability = is.major * 10 + is.minor;
  cx.shared_most = is.sharedMemPerBlockOptin;
  cx.fast = true;
  cx.overlap = cx.capability >= 90;
  CHECK(cudaStreamCreate(&cx.stream));
  cuda_fast_setup(&cx);
  cuda_exact_setup(&cx); /* ternary matrices */
  CHECK(cx.error);
  return cx;
}

static void want_scratch(cuda_context *cx, int tokens, int64_t k)
{
  size_t bytes = cuda_fast_linear_scratch(cx, tokens, k);
  if (bytes <= cx->scratch_bytes)
    return;
  if (cx->scratch)
    CHECK(cudaFree(cx->scratch));
  CHECK(cudaMalloc(&cx->scratch, bytes));
  CHECK(cudaMemset(cx->scratch, 0xa5, bytes)); /* what is not written must not matter */
  cx->scratch_bytes = bytes;
}

/* ---- cases ---- */

static int passed, failed;

static bool same(float a, float b)
{
  return f32_bits(a) == f32_bits(b) || (a != a && b != b);
}

/* Rows [from, to) of a matrix, as a matrix (not ternary ones). */
static ops_weight rows_of(const ops_weight *w, int64_t from, int64_t to)
{
  ops_weight r = *w;
  size_t wide = w->stored == DT_F32 ? 4 : 2, group_wide = w->quant == Q_AFFINE ? wide : 1;
  r.n = to - from;
  r.data += w->quant == Q_NONE ? (size_t)(from * w->k) * wide : (size_t)(from * ref_row_bytes(w));
  if (w->group) {
    r.scales += (size_t)(from * w->k / w->group) * group_wide;
    r.biases += (size_t)(from * w->k / w->group) * group_wide;
  }
  return r;
}

enum inputs_kind { PLAIN, WITH_ODD };

/* Odd ones: parts that are zero, tiny, infinite, NaN. */
static std::vector<float> inputs(int tokens, int64_t k, inputs_kind which)
{
  std::vector<float> x((size_t)tokens * k);
  for (float &v : x)
    v = random_value();
  if (which == PLAIN)
    return x;
  for (int t = 0; t < tokens; t++)
    for (int64_t p = 0; p < fast_parts(k); p++) {
      float *at = &x[t * k + p * FAST_PART];
      int64_t n = std::min<int64_t>(FAST_PART, k - p * FAST_PART);
      switch (t % 3 == 2 ? 99 : random_bits() % 24) {
      case 0:
        std::fill(at, at + n, 0.0f);
        break;
      case 1:
        for (int64_t i = 0; i < n; i++)
          at[i] *= 0x1p-104f;
        break;
      case 2:
        at[random_bits() % n] = t % 2 ? INFINITY : NAN;
        break;
      case 3:
        for (int64_t i = 0; i < n; i++)
          at[i] = i % 3 ? 1.0f : -1.0f;
        break;
      case 4:
        for (int64_t i = 0; i < n; i++)
          at[i] = 1.0f; /* the largest codes */
        break;
      case 5:
        for (int64_t i = 0; i < n; i++)
          at[i] *= 0x1p90f;
        break;
      }
    }
  return x;
}

struct linear_case {
  const char *name;
  kind q[3];
  int64_t n[3]; /* 0: no such output */
  int64_t k;
  int tokens;
  bool pack, bias, residual;
  inputs_kind which;
};

static void run_case(cuda_context *cx, const linear_case &c)
{
  std::vector<float> x = inputs(c.tokens, c.k, c.which);
  matrix *m[3] = {};
  op_linear on = {};
  std::vector<float> bias[3], residual;
  on.x = (float *)upload(x.data(), x.size() * 4);
  bool packed = false;
  for (int i = 0; i < 3 && c.n[i]; i++) {
    m[i] = matrix_new(cx, c.q[i], c.n[i], c.k, c.pack);
    packed |= m[i]->on.layout == CUDA_FAST_4;
    on.outputs = i + 1;
    on.w[i] = &m[i]->device;
    size_t out = (size_t)(c.n[i] * c.tokens);
    bool ternary = c.q[i].quant == Q_TERNARY;
    if (c.bias && !ternary) {
      bias[i].resize(c.n[i]);
      for (float &v : bias[i])
        v = random_value();
      on.bias[i] = (float *)upload(bias[i].data(), bias[i].size() * 4);
    }
    if (c.residual && i == 0) {
      residual.resize(out);
      for (float &v : residual)
        v = random_value();
      on.y[i] = (float *)upload(residual.data(), out * 4); /* in place */
      on.residual = on.y[i];
    } else {
      CHECK(cudaMalloc(&on.y[i], out * 4));
      CHECK(cudaMemset(on.y[i], 0xff, out * 4));
    }
  }
  want_scratch(cx, c.tokens, c.k);
  cuda_fast_linear(cx, &on, c.tokens);
  CHECK(cx->error);
  CHECK(cudaStreamSynchronize(cx->stream));

  /* Large ones: a few rows and tokens. */
  ops_context host = {};
  std::vector<float> scratch(c.k * 2 + 64);
  host.scratch = scratch.data();
  size_t wrong = 0, checked = 0;
  char where[160] = "";
  for (int i = 0; i < on.outputs; i++) {
    std::vector<float> y((size_t)c.n[i] * c.tokens);
    CHECK(cudaMemcpy(y.data(), on.y[i], y.size() * 4, cudaMemcpyDeviceToHost));
    double work = (double)c.n[i] * c.tokens * c.k;
    bool all = work < 3e7 || c.q[i].quant == Q_TERNARY;
    for (int sample = 0; sample < (all ? c.tokens : 24); sample++) {
      int t = all ? sample : (int)(random_bits() % (unsigned)c.tokens);
      int64_t rows = all ? c.n[i] : std::min<int64_t>(c.n[i], 17);
      int64_t from = all ? 0 : (int64_t)(random_bits() % (unsigned)(c.n[i] - rows + 1));
      if (!all && sample < 2) /* the corners */
        t = sample ? c.tokens - 1 : 0, from = sample ? c.n[i] - rows : 0;
      ops_weight part = all ? m[i]->host : rows_of(&m[i]->host, from, from + rows);
      std::vector<float> z(rows);
      op_record record = {};
      record.kind = OP_linear;
      record.linear.outputs = 1;
      record.linear.x = &x[t * c.k];
      record.linear.w[0] = &part;
      record.linear.bias[0] = bias[i].empty() ? NULL : &bias[i][from];
      record.linear.residual = i == 0 && c.residual ? &residual[t * c.n[i] + from] : NULL;
      record.linear.y[0] = z.data();
      ops_step step = {};
      step.tokens = 1;
      fast_linear(&host, &record, &step);
      for (int64_t r = 0; r < rows; r++, checked++)
        if (!same(z[r], y[t * c.n[i] + from + r]) && !wrong++)
          snprintf(where, sizeof where, "  output %d token %d row %lld: %.9g, should be %.9g", i, t,
                   (long long)(from + r), y[t * c.n[i] + from + r], z[r]);
    }
  }
  printf("%s %-44s k %-6lld n %-6lld T %-4d%s%s%s%s %zu of %zu wrong%s\n", wrong ? "FAIL" : "ok  ", c.name,
         (long long)c.k, (long long)c.n[0], c.tokens, packed ? " packed" : "", c.bias ? " bias" : "",
         c.residual ? " residual" : "", c.which == WITH_ODD ? " odd" : "", wrong, checked, where);
  (wrong ? failed : passed)++;
  CHECK(cudaFree((void *)on.x));
  for (int i = 0; i < on.outputs; i++) {
    if (on.bias[i])
      CHECK(cudaFree((void *)on.bias[i]));
    CHECK(cudaFree(on.y[i]));
    matrix_free(m[i]);
  }
}

static const char *kind_name(const kind &q, char *to, size_t room)
{
  static const char *const quants[] = {"dense", "affine", "mxfp4", "mxfp8", "nvfp4", "ternary"};
  static const char *const types[] = {"f32", "bf16", "f16"};
  snprintf(to, room, "%s %d/%d %s", quants[q.quant], q.bits, q.group, types[q.stored]);
  return to;
}

/* Code, scale and bias of every element of a packed matrix, by the functions that the embedding uses. */
static __global__ void count_differences(ops_weight packed, ops_weight w, int *wrong)
{
  int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, n = i / w.k, k = i % w.k;
  if (n >= w.n)
    return;
  int64_t g = i / w.group;
  if (fast_packed_code(packed, n, k) != ref_code(w.data + n * ref_row_bytes(&w), w.bits, k) ||
      fast_packed_scale(packed, n, k) != ops_load(w.stored, w.scales, g) ||
      fast_packed_bias(packed, n, k) != ops_load(w.stored, w.biases, g))
    atomicAdd(wrong, 1);
}

static void packing(cuda_context *cx)
{
  static const kind kinds[] = {{Q_AFFINE, 4, 32, DT_BF16}, {Q_AFFINE, 4, 64, DT_F16}, {Q_AFFINE, 4, 128, DT_BF16}};
  static const int64_t shapes[][2] = {{40, 1152}, {16, 128}, {7, 512}};
  int *wrong, count;
  CHECK(cudaMalloc(&wrong, 4));
  for (const kind &q : kinds)
    for (auto &shape : shapes) {
      matrix *m = matrix_new(cx, q, shape[0], shape[1], true);
      CHECK(cudaMemsetAsync(wrong, 0, 4, cx->stream));
      cuda_launch(cx, false, count_differences, (unsigned)cuda_ceil(shape[0] * shape[1], 128), 128, 0, m->on.shape,
                  m->as_stored.shape, wrong);
      CHECK(cudaStreamSynchronize(cx->stream));
      CHECK(cudaMemcpy(&count, wrong, 4, cudaMemcpyDeviceToHost));
      char name[64];
      printf("%s packing %s n %lld k %lld: %d wrong\n", count ? "FAIL" : "ok  ", kind_name(q, name, sizeof name),
             (long long)shape[0], (long long)shape[1], count);
      (count ? failed : passed)++;
      matrix_free(m);
    }
  CHECK(cudaFree(wrong));
}

static void every_kind(cuda_context *cx)
{
  static const kind kinds[] = {
      {Q_AFFINE, 2, 64, DT_BF16}, {Q_AFFINE, 3, 32, DT_F16},  {Q_AFFINE, 3, 128, DT_BF16}, {Q_AFFINE, 4, 64, DT_F32},
      {Q_AFFINE, 5, 64, DT_BF16}, {Q_AFFINE, 6, 128, DT_F16}, {Q_AFFINE, 8, 32, DT_F32},   {Q_AFFINE, 8, 64, DT_BF16},
      {Q_NONE, 0, 0, DT_F32},     {Q_NONE, 0, 0, DT_BF16},    {Q_NONE, 0, 0, DT_F16},      {Q_MXFP4, 4, 32, DT_F32},
      {Q_MXFP8, 8, 32, DT_F32},   {Q_NVFP4, 4, 16, DT_F32},   {Q_TERNARY, 2, 0, DT_F32},
  };
  static const int tokens[] = {1, 2, 5, 9};
  for (const kind &q : kinds)
    for (int i = 0; i < 8; i++) {
      char name[64];
      linear_case c = {};
      c.name = kind_name(q, name, sizeof name);
      c.q[0] = q;
      c.n[0] = i % 4 == 0 ? 33 : i % 4 == 1 ? 7 : i % 4 == 2 ? 64 : 19;
      c.k = i % 4 == 0 ? 640 : i % 4 == 1 ? 4608 : i % 4 == 2 ? 128 : 14336;
      if (q.quant == Q_NONE && i % 4 < 2)
        c.k = i % 4 ? 519 : 61;
      c.tokens = tokens[(i + i / 4) % 4];
      c.bias = i & 1;
      c.residual = q.quant != Q_TERNARY && (i & 2);
      c.which = i < 4 ? PLAIN : WITH_ODD;
      run_case(cx, c);
    }
}

static void packed_kinds(cuda_context *cx, bool quick)
{
  static const kind kinds[] = {{Q_AFFINE, 4, 64, DT_BF16}, {Q_AFFINE, 4, 64, DT_F16},  {Q_AFFINE, 4, 32, DT_BF16},
                               {Q_AFFINE, 4, 32, DT_F16},  {Q_AFFINE, 4, 128, DT_F16}, {Q_AFFINE, 4, 128, DT_BF16}};
  static const int tokens[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 64, 65, 128, 130, 200};
  static const int64_t ks[] = {4096, 640, 14336, 128, 4608, 1024, 2880};
  static const int64_t ns[] = {64, 40, 33, 7, 128, 130, 200};
  int at = 0;
  for (const kind &q : kinds)
    for (int t : tokens) {
      if (quick && (at++ % 3 || t > 70))
        continue;
      char name[64];
      linear_case c = {};
      c.name = kind_name(q, name, sizeof name);
      c.q[0] = q;
      c.k = ks[random_bits() % (quick ? 2 : 7)];
      if (c.k % q.group)
        c.k = 640;
      c.n[0] = ns[random_bits() % 7];
      c.tokens = t;
      c.pack = true;
      c.bias = random_bits() & 1;
      c.residual = random_bits() & 1;
      c.which = random_bits() % 4 ? PLAIN : WITH_ODD;
      run_case(cx, c);
    }
}

static void several_outputs(cuda_context *cx)
{
  const kind four = {Q_AFFINE, 4, 64, DT_BF16}, eight = {Q_AFFINE, 8, 64, DT_BF16}, other = {Q_AFFINE, 4, 32, DT_BF16},
             dense = {Q_NONE, 0, 0, DT_BF16};
  for (int t : {1, 3, 6, 13, 30, 70}) {
    run_case(cx, {"three packed", {four, four, four}, {80, 33, 17}, 1024, t, true, true, true, PLAIN});
    run_case(cx, {"packed, 8 bits, packed", {four, eight, four}, {20, 33, 40}, 640, t, true, false, true, PLAIN});
    run_case(cx, {"two groups, dense", {four, other, dense}, {20, 33, 40}, 640, t, true, true, false, WITH_ODD});
  }
}

/* A norm, a linear and a gate as one, against the three records of the definition. */
static void run_fused(cuda_context *cx, const kind &q, int64_t n, int64_t k, int tokens, bool gated, bool keep,
                      bool weights, int act)
{
  const int64_t stride = k + 32; /* of the norm's rows, in and out */
  int outputs = gated ? 2 : 1;
  std::vector<float> x = inputs(tokens, stride, PLAIN), w = inputs(1, k, PLAIN), normed((size_t)(tokens * k));
  std::vector<float> y[3], ref[3], kept((size_t)(tokens * k));
  op_record norm = {}, linear = {}, glu = {};
  matrix *m[2];
  ops_weight weight[2];
  float *on_normed;
  norm.rms_norm.x = x.data(), norm.rms_norm.y = normed.data(), norm.rms_norm.w = weights ? w.data() : NULL;
  norm.rms_norm.count = 1, norm.rms_norm.width = (int)k, norm.rms_norm.x_stride = stride, norm.rms_norm.y_stride = k;
  norm.rms_norm.eps = 1e-5f;
  linear.linear.x = normed.data();
  linear.linear.outputs = outputs;
  op_rms_norm on_norm = norm.rms_norm;
  op_linear on = {};
  CHECK(cudaMalloc(&on_normed, (size_t)(tokens * k) * 4));
  on_norm.x = (float *)upload(x.data(), x.size() * 4);
  on_norm.y = on_normed;
  on_norm.w = weights ? (float *)upload(w.data(), w.size() * 4) : NULL;
  on.x = on_normed;
  on.outputs = outputs;
  for (int i = 0; i < 3; i++) {
    y[i].resize((size_t)(tokens * n));
    ref[i].resize((size_t)(tokens * n));
  }
  for (int i = 0; i < outputs; i++) {
    m[i] = matrix_new(cx, q, n, k, true);
    weight[i] = m[i]->host;
    linear.linear.w[i] = &weight[i];
    linear.linear.y[i] = ref[i].data();
    on.w[i] = &m[i]->device;
    CHECK(cudaMalloc(&on.y[i], y[i].size() * 4));
  }
  glu.glu.gate = ref[0].data(), glu.glu.up = ref[1].data(), glu.glu.y = ref[2].data();
  glu.glu.width = (int)n, glu.glu.act = (ops_act)act;
  op_glu on_glu = glu.glu;
  on_glu.gate = on.y[0], on_glu.up = on.y[1];
  CHECK(cudaMalloc(&on_glu.y, y[2].size() * 4));
  want_scratch(cx, tokens, k);
  cuda_fast_norm_linear(cx, &on_norm, &on, gated ? &on_glu : NULL, tokens, keep);
  CHECK(cx->error);
  CHECK(cudaStreamSynchronize(cx->stream));
  std::vector<float> scratch(k * 2 + 64);
  ops_context host = {};
  ops_step step = {};
  host.scratch = scratch.data();
  step.tokens = tokens;
  fast_rms_norm(&host, &norm, &step);
  fast_linear(&host, &linear, &step);
  if (gated)
    ref_glu(&host, &glu, &step);
  int result = gated ? 2 : 0;
  CHECK(cudaMemcpy(y[result].data(), gated ? on_glu.y : on.y[0], y[0].size() * 4, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(kept.data(), on_normed, kept.size() * 4, cudaMemcpyDeviceToHost));
  size_t wrong = 0, wrong_kept = 0;
  for (size_t i = 0; i < y[result].size(); i++)
    wrong += !same(y[result][i], ref[result][i]);
  for (size_t i = 0; keep && i < kept.size(); i++)
    wrong_kept += !same(kept[i], normed[i]);
  char name[64];
  printf("%s norm, linear%s: %s k %lld n %lld T %d%s%s %zu wrong, %zu of the norm\n",
         wrong + wrong_kept ? "FAIL" : "ok  ", gated ? ", gate" : "", kind_name(q, name, sizeof name), (long long)k,
         (long long)n, tokens, keep ? " kept" : "", weights ? " weights" : "", wrong, wrong_kept);
  (wrong + wrong_kept ? failed : passed)++;
  CHECK(cudaFree((void *)on_norm.x));
  CHECK(cudaFree(on_normed));
  CHECK(cudaFree((void *)on_norm.w));
  CHECK(cudaFree(on_glu.y));
  for (int i = 0; i < outputs; i++) {
    CHECK(cudaFree(on.y[i]));
    matrix_free(m[i]);
  }
}

static void fused(cuda_context *cx)
{
  static const kind kinds[] = {{Q_AFFINE, 4, 64, DT_BF16}, {Q_AFFINE, 4, 32, DT_F16}, {Q_AFFINE, 4, 128, DT_BF16}};
  int at = 0;
  for (const kind &q : kinds)
    for (int64_t k : {128, 640, 4096, 5120})
      for (int t : {1, 3, 6, 20, 70}) {
        run_fused(cx, q,
                  at % 2   ? 40
                  : t <= 3 ? 2200
                           : 200,
                  k, t, at % 3 == 0, at % 5 < 3, at % 7 != 0, at % 4 ? ACT_SILU : ACT_RELU2);
        at++;
      }
}

static void large_shapes(cuda_context *cx)
{
  const kind four = {Q_AFFINE, 4, 64, DT_BF16};
  for (int t : {1, 4, 8, 16, 32, 100, 512}) {
    run_case(cx, {"qkv of 8B", {four, four, four}, {4096, 1024, 1024}, 4096, t, true, false, false, PLAIN});
    run_case(cx, {"down of 8B", {four}, {4096}, 14336, t, true, false, true, PLAIN});
  }
}

/* ---- rates ---- */

struct shape {
  const char *name;
  int64_t n[3], k;
  int copies, layers; /* distinct matrices to cycle over; times it is in a step */
};

static void fill_random(void *to, size_t bytes)
{
  std::vector<uint32_t> block(1 << 20);
  for (uint32_t &v : block)
    v = random_bits() & 0x3fff3fffu; /* as scales: small and positive halves */
  for (size_t at = 0; at < bytes; at += block.size() * 4)
    CHECK(cudaMemcpy((uint8_t *)to + at, block.data(), std::min(block.size() * 4, bytes - at), cudaMemcpyHostToDevice));
}

static float median_of_graph(cuda_context *cx, void (*work)(void *), void *user)
{
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t from, to;
  CHECK(cudaStreamBeginCapture(cx->stream, cudaStreamCaptureModeThreadLocal));
  work(user);
  CHECK(cudaStreamEndCapture(cx->stream, &graph));
  CHECK(cx->error);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  std::vector<float> times;
  for (int i = 0; i < 11; i++) {
    float ms;
    CHECK(cudaEventRecord(from, cx->stream));
    CHECK(cudaGraphLaunch(exec, cx->stream));
    CHECK(cudaEventRecord(to, cx->stream));
    CHECK(cudaEventSynchronize(to));
    CHECK(cudaEventElapsedTime(&ms, from, to));
    if (i >= 2)
      times.push_back(ms);
  }
  CHECK(cudaEventDestroy(from));
  CHECK(cudaEventDestroy(to));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct bench_work {
  cuda_context *cx;
  std::vector<op_linear> ops;
  int tokens;
};

static void bench_run(void *user)
{
  bench_work *b = (bench_work *)user;
  for (const op_linear &a : b->ops)
    cuda_fast_linear(b->cx, &a, b->tokens);
}

/* All linears, norms and gates of a step, each reading what the one before wrote (attention left out). */
struct bench_step {
  cuda_context *cx;
  int tokens, layers;
  bool joined; /* as few kernels as there can be */
  float *stream, *norm_w, *normed, *qkv[3], *gate, *up, *mid, *logits;
  ops_weight (*weights)[16][3];
};

static void bench_layers(void *user)
{
  bench_step *b = (bench_step *)user;
  op_rms_norm norm = {};
  norm.x = b->stream, norm.y = b->normed, norm.w = b->norm_w, norm.count = 1, norm.width = 4096;
  norm.x_stride = norm.y_stride = 4096, norm.eps = 1e-5f;
  op_glu glu = {};
  glu.gate = b->gate, glu.up = b->up, glu.y = b->mid, glu.width = 14336, glu.act = ACT_SILU;
  struct {
    op_linear a;
    bool norm, gate;
  } all[4 * 64 + 1];
  memset(all, 0, sizeof all);
  for (int i = 0; i <= 4 * b->layers; i++) {
    op_linear *a = &all[i].a;
    int l = i / 4, what = i == 4 * b->layers ? 4 : i % 4;
    static const int outputs[] = {3, 1, 2, 1, 1}, copies[] = {16, 16, 8, 8, 1};
    a->outputs = outputs[what];
    for (int k = 0; k < a->outputs; k++)
      a->w[k] = &b->weights[what][l % copies[what]][k];
    all[i].norm = what == 0 || what == 2 || what == 4;
    all[i].gate = what == 2;
    a->x = all[i].norm ? b->normed : what == 1 ? b->qkv[0] : b->mid;
    if (what == 0)
      a->y[0] = b->qkv[0], a->y[1] = b->qkv[1], a->y[2] = b->qkv[2];
    else if (what == 2)
      a->y[0] = b->gate, a->y[1] = b->up;
    else
      a->y[0] = what == 4 ? b->logits : b->stream, a->residual = what == 4 ? NULL : b->stream;
  }
  for (int i = 0; i <= 4 * b->layers; i++) {
    if (b->joined) {
      cuda_fast_norm_linear(b->cx, all[i].norm ? &norm : NULL, &all[i].a, all[i].gate ? &glu : NULL, b->tokens, false);
      continue;
    }
    if (all[i].norm)
      cuda_rms_norm(b->cx, &norm, b->tokens);
    cuda_fast_linear(b->cx, &all[i].a, b->tokens);
    if (all[i].gate)
      cuda_glu(b->cx, &glu, b->tokens);
  }
}

static void bench_whole(cuda_context *cx, ops_weight (*weights)[16][3], int tokens)
{
  bench_step b = {cx, tokens, 32, false};
  float *all;
  b.weights = weights;
  std::vector<float> host = inputs(tokens, 8192, PLAIN);
  CHECK(cudaMalloc(&all, (size_t)tokens * (2 * 4096 + 6144 + 3 * 14336 + 128256) * 4 + 16384));
  float *at = all;
  auto take = [&](int64_t width) { return at += width, at - width; };
  b.norm_w = take(4096);
  b.stream = take((int64_t)tokens * 4096), b.normed = take((int64_t)tokens * 4096);
  b.qkv[0] = take((int64_t)tokens * 4096), b.qkv[1] = take((int64_t)tokens * 1024);
  b.qkv[2] = take((int64_t)tokens * 1024), b.gate = take((int64_t)tokens * 14336);
  b.up = take((int64_t)tokens * 14336), b.mid = take((int64_t)tokens * 14336);
  b.logits = take((int64_t)tokens * 128256);
  CHECK(cudaMemcpy(b.norm_w, host.data(), 16384, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b.stream, host.data(), (size_t)tokens * 16384, cudaMemcpyHostToDevice));
  float apart = median_of_graph(cx, bench_layers, &b);
  b.joined = true;
  float joined = median_of_graph(cx, bench_layers, &b);
  printf("T %d: a step without attention %.3f ms with norms and gates apart, %.3f ms joined: %.0f tokens/s\n", tokens,
         apart, joined, tokens * 1e3 / joined);
  CHECK(cudaFree(all));
}

static void bench(cuda_context *cx, std::vector<int> counts)
{
  static const shape shapes[] = {
      {"qkv", {4096, 1024, 1024}, 4096, 16, 32},
      {"o", {4096}, 4096, 16, 32},
      {"gate+up", {14336, 14336}, 4096, 8, 32},
      {"down", {4096}, 14336, 8, 32},
      {"head", {128256}, 4096, 2, 1},
  };
  const int most = 2048;
  float *x, *y[3];
  std::vector<float> host = inputs(most, 14336, PLAIN);
  x = (float *)upload(host.data(), host.size() * 4);
  for (float *&p : y)
    CHECK(cudaMalloc(&p, (size_t)most * 14336 * 4));
  CHECK(cudaFree(y[0]));
  CHECK(cudaMalloc(&y[0], (size_t)most * 128256 * 4));
  want_scratch(cx, most, 14336);
  static cuda_matrix matrices[5][16][3];
  static ops_weight weights[5][16][3];
  for (int s = 0; s < 5; s++)
    for (int i = 0; i < shapes[s].copies; i++)
      for (int o = 0; o < 3 && shapes[s].n[o]; o++) {
        ops_weight w = {};
        w.quant = Q_AFFINE, w.bits = 4, w.group = 64, w.stored = DT_BF16, w.n = shapes[s].n[o], w.k = shapes[s].k;
        uint8_t *data;
        CHECK(cudaMalloc(&data, cuda_fast_pack_bytes(&w)));
        fill_random(data, cuda_fast_pack_bytes(&w));
        w.data = data;
        matrices[s][i][o].shape = w;
        matrices[s][i][o].layout = CUDA_FAST_4;
        w.packed = &matrices[s][i][o];
        weights[s][i][o] = w;
      }
  if (counts.empty())
    counts = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
  for (int tokens : counts) {
    float step = 0;
    double macs = 0;
    printf("T %-4d", tokens);
    for (int s = 0; s < 5; s++) {
      const shape &h = shapes[s];
      if (s == 4 && tokens > 32)
        continue;
      bench_work work = {cx, {}, tokens};
      double bytes = 0, mac = 0;
      for (int i = 0; i < h.copies; i++) {
        op_linear a = {};
        a.x = x;
        bytes = mac = 0;
        for (int o = 0; o < 3 && h.n[o]; o++) {
          a.outputs = o + 1;
          a.w[o] = &weights[s][i][o];
          a.y[o] = y[o];
          bytes += (double)h.n[o] * h.k * 9 / 16;
          mac += (double)h.n[o] * h.k * tokens;
        }
        work.ops.push_back(a);
      }
      float us = median_of_graph(cx, bench_run, &work) * 1000 / (float)h.copies;
      if (tokens <= 32)
        printf(" | %s %.1f us %.0f GB/s %.0f%%", h.name, us, bytes / us * 1e-3, bytes / us * 1e-3 / 4500 * 100);
      else
        printf(" | %s %.1f us %.1f TMAC/s", h.name, us, mac / us * 1e-6);
      step += us * (float)h.layers;
      macs += mac * h.layers;
    }
    printf(" | step %.3f ms, %.0f tokens/s, %.1f TMAC/s\n", step * 1e-3, tokens * 1e6 / step, macs / step * 1e-6);
    fflush(stdout);
  }
  for (int tokens : counts)
    if (tokens <= 32)
      bench_whole(cx, weights, tokens);
}

int main(int count, char **arguments)
{
  setvbuf(stdout, NULL, _IOLBF, 0);
  cuda_context cx = context_new();
  bool quick = count > 1 && !strcmp(arguments[1], "--quick");
  if (count > 1 && !strcmp(arguments[1], "--bench")) {
    std::vector<int> counts;
    for (int i = 2; i < count; i++)
      counts.push_back(atoi(arguments[i]));
    bench(&cx, counts);
    return 0;
  }
  packing(&cx);
  every_kind(&cx);
  packed_kinds(&cx, quick);
  several_outputs(&cx);
  fused(&cx);
  /* Kernels go by processors and shared memory: those that this GPU would not choose for so small shapes. */
  cuda_context other = cx;
  printf("as with little shared memory\n");
  other.shared_most = 99 * 1024;
  packed_kinds(&other, true);
  printf("as with one processor\n");
  other.shared_most = cx.shared_most;
  other.processors = 1;
  packed_kinds(&other, false);
  cx.scratch = other.scratch;
  cx.scratch_bytes = other.scratch_bytes;
  if (!quick)
    large_shapes(&cx);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
