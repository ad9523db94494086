/* fast_linear_side.cuh - what the tests and the rates of numerics fast's linears share: random numbers that are the
 * same every time, matrices of every kind on both sides, and a context without a model. An error of CUDA ends the
 * program. */
#ifndef TERN_TESTS_CUDA_FAST_LINEAR_SIDE_CUH
#define TERN_TESTS_CUDA_FAST_LINEAR_SIDE_CUH

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

inline uint64_t linear_random = 1;

inline uint32_t random_bits(void)
{
  linear_random = linear_random * 6364136223846793005u + 1442695040888963407u;
  uint64_t x = linear_random;
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdu;
  return (uint32_t)(x >> 32);
}

/* About normal, now and then much larger, as activations are. */
inline float random_value(void)
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

inline void *upload(const void *from, size_t bytes)
{
  void *to;
  CHECK(cudaMalloc(&to, bytes));
  CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  return to;
}

inline void put_scale(ops_dtype type, uint8_t *to, size_t i, float v)
{
  uint16_t half = type == DT_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
  if (type == DT_F32)
    memcpy(to + 4 * i, &v, 4);
  else
    memcpy(to + 2 * i, &half, 2);
}

inline matrix *matrix_new(cuda_context *cx, const kind &q, int64_t n, int64_t k, bool pack)
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

inline void matrix_free(matrix *m)
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

inline cuda_context context_new(void)
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

inline void want_scratch(cuda_context *cx, int tokens, int64_t k)
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

/* ---- inputs ---- */

enum inputs_kind { PLAIN, WITH_ODD };

/* Odd ones: parts that are zero, tiny, infinite, NaN. */
inline std::vector<float> inputs(int tokens, int64_t k, inputs_kind which)
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

#endif
