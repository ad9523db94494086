/* act.cu - activations, alone and as gates. Formulas: ops/ref/ref_act.c. One thread a value. */
#include "ops/cuda/cuda.cuh"

enum { THREADS = 256 };

static __device__ float silu(float x)
{
  return x * math_sigmoid(x);
}

static __device__ float gelu_tanh(float x)
{
  float inner = x + 0.044715f * math_pow(x, 3.0f);
  return 0.5f * x * (1.0f + math_tanh(0.7978846f * inner));
}

static __device__ float gelu(float x)
{
  return x * (1.0f + math_erf(x / 1.414214f)) / 2.0f;
}

static __device__ float xielu(const float *p, float x)
{
  float linear = p[2] * x;
  if (x > 0)
    return p[0] * (x * x) + linear;
  float e = math_expm1(x < p[3] ? x : p[3]);
  return (e - x) * p[1] + linear;
}

static __device__ float activate(ops_act act, float x)
{
  switch (act) {
  case ACT_GELU_TANH:
    return gelu_tanh(x);
  case ACT_GELU:
    return gelu(x);
  case ACT_RELU:
    return x > 0 ? x : 0;
  case ACT_RELU2:
    return x > 0 ? x * x : 0;
  default:
    return silu(x);
  }
}

static __device__ float gegelu(float top, float gate, float up)
{
  gate = !isinf(gate) && gate > top ? top : gate;
  up = isinf(up) ? up : up > top ? top : up < -top ? -top : up;
  return gate * math_sigmoid(1.702f * gate) * (up + 1.0f);
}

static __global__ void act_kernel(op_act a, int64_t n)
{
  cuda_release_next();
  cuda_await();
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
    a.y[i] = a.act == ACT_XIELU ? xielu(a.params, a.x[i]) : activate(a.act, a.x[i]);
}

static __global__ void glu_kernel(op_glu a, int64_t n)
{
  cuda_release_next();
  cuda_await();
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
    a.y[i] = a.act == ACT_GEGELU ? gegelu(a.limit, a.gate[i], a.up[i]) : activate(a.act, a.gate[i]) * a.up[i];
}

static dim3 grid_for(const cuda_context *cx, int64_t n)
{
  int64_t blocks = cuda_ceil(n, THREADS), most = (int64_t)cx->processors * 16;
  return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}

void cuda_act(cuda_context *cx, const op_act *a, int tokens)
{
  int64_t n = (int64_t)tokens * a->width;
  cuda_launch(cx, true, act_kernel, grid_for(cx, n), THREADS, 0, *a, n);
}

void cuda_glu(cuda_context *cx, const op_glu *a, int tokens)
{
  int64_t n = (int64_t)tokens * a->width;
  cuda_launch(cx, true, glu_kernel, grid_for(cx, n), THREADS, 0, *a, n);
}
