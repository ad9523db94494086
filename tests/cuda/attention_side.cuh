/* attention_side.cuh - what the tests and the rates of attention share: random numbers that are the same every time,
 * device memory, a context without a model, and the op. An error of CUDA ends the program with its line. */
#ifndef TERN_TESTS_CUDA_ATTENTION_SIDE_CUH
#define TERN_TESTS_CUDA_ATTENTION_SIDE_CUH

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ops/cuda/cuda.cuh"
#include "ops/cuda/exact_attention.cuh"
#include "ops/cuda/fast_attention.cuh"
#include "ops/cuda/math.cuh" /* ref.h wants tanh defined */

#define CHECK(x)                                                                                                       \
  do {                                                                                                                 \
    cudaError_t error_ = (x);                                                                                          \
    if (error_ != cudaSuccess) {                                                                                       \
      printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_));                                           \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* ---- random ---- */

inline uint32_t attention_random = 1;

inline uint32_t random_word(void)
{
  attention_random ^= attention_random << 13;
  attention_random ^= attention_random >> 17;
  attention_random ^= attention_random << 5;
  return attention_random;
}

inline float random_float(float most)
{
  return ((float)(random_word() >> 8) * 0x1p-23f - 1.0f) * most;
}

inline std::vector<float> random_floats(size_t n, float most)
{
  std::vector<float> x(n);
  for (float &v : x)
    v = random_float(most);
  return x;
}

/* ---- device memory ---- */

template <class T> inline T *on_device(const std::vector<T> &x)
{
  T *p;
  CHECK(cudaMalloc(&p, x.size() * sizeof(T) + 16));
  CHECK(cudaMemcpy(p, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}

inline bool overlap = false; /* kernels of a step: --overlap */

inline cuda_context context_of(bool fast)
{
  cudaDeviceProp about;
  CHECK(cudaGetDeviceProperties(&about, 0));
  cuda_context cx = {};
  cx.processors = about.multiProcessorCount;
  cx.capability = about.major * 10 + about.minor;
  cx.shared_most = about.sharedMemPerBlockOptin;
  cx.fast = fast;
  cx.overlap = overlap && about.major >= 9;
  CHECK(cudaStreamCreate(&cx.stream));
  return cx;
}

inline op_attention op_of(int heads, int kv_heads, int key_dim, int value_dim)
{
  op_attention a = {};
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.key_dim = key_dim;
  a.value_dim = value_dim;
  a.scale = 1.0f / sqrtf((float)key_dim);
  return a;
}

#endif
