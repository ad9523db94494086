/* rowwise.cu - ops in which a token's values meet nothing but each other: norms, rotation, multipliers, sums, copies.
 * Formulas: ops/ref/ref_rowwise.c and ref_attention.c; the norm of numerics fast: fast.h.
 *
 * The sum of a norm in exact is one chain of additions, and costs its latency: 4 cycles a value, 9 microseconds for
 * 4096. So all threads of a block make the terms, in shared memory, and one adds them up. In fast the sum has
 * FAST_NORM_LANES chains and is done in a few hundred cycles.
 */
#include "ops/cuda/chain.cuh"

enum { THREADS = 256, TERMS = 8192 /* in shared memory at once */ };

/* A loop over all elements by all threads of the grid. */
static dim3 grid_for(const cuda_context *cx, int64_t n)
{
  int64_t blocks = cuda_ceil(n, THREADS), most = (int64_t)cx->processors * 16;
  return dim3((unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most));
}

#define EACH(i, n)                                                                                                     \
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (int64_t)gridDim.x * blockDim.x)

/* ---- norms ---- */

enum norm_term { PLAIN, SQUARE, OFF_CENTRE }; /* x, x^2, (x - mean)^2 */

template <norm_term TERM> static __device__ float term_of(float x, float mean)
{
  if (TERM == PLAIN)
    return x;
  float v = TERM == SQUARE ? x : x - mean;
  return v * v;
}

static __device__ float exact_fold(const float *terms, int n, float *result)
{
  __syncthreads();
  if (threadIdx.x == 0)
    *result = chain(terms, n, 0.0f);
  __syncthreads();
  return *result;
}

/* The sum of a group's terms in exact, for all threads of the block. `terms` [TERMS + 32]. What pads them is zero: a
 * sum that began at zero is never -0, so that zeros change no bit of it. */
template <norm_term TERM>
static __device__ float exact_sum(const float *x, int width, float mean, float *terms, float *result)
{
  float sum = 0;
  for (int begin = 0; begin < width; begin += TERMS) {
    int n = width - begin < TERMS ? width - begin : TERMS, padded = (n + 63) / 64 * 64;
    for (int i = threadIdx.x; i < padded; i += blockDim.x)
      terms[i] = i < n ? term_of<TERM>(x[begin + i], mean) : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0)
      *result = sum = chain(terms, padded, sum);
    __syncthreads();
  }
  return *result;
}

/* What a lane of fast adds to its sum. */
template <norm_term TERM> static __device__ float lane_sum(const float *terms, int n, float sum)
{
  if (threadIdx.x < FAST_NORM_LANES)
#pragma unroll 16
    for (int i = threadIdx.x; i < n; i += FAST_NORM_LANES)
      sum = TERM == PLAIN ? sum + terms[i] : fmaf(terms[i], terms[i], sum);
  return sum;
}

/* All lanes' sums folded in halves, for all threads of the block. */
static __device__ float folded(float *terms, float sum, float *result)
{
  int lane = threadIdx.x;
  __syncthreads();
  if (lane >= 32 && lane < FAST_NORM_LANES)
    terms[lane] = sum;
  __syncthreads();
  if (lane < 32) {
    sum += terms[lane + 32];
    for (int half = 16; half; half /= 2)
      sum += __shfl_down_sync(~0u, sum, half);
    if (lane == 0)
      *result = sum;
  }
  __syncthreads();
  return *result;
}

template <norm_term TERM> static __device__ float fast_fold(float *terms, int n, float sum, float *result)
{
  __syncthreads();
  return folded(terms, lane_sum<TERM>(terms, n, sum), result);
}

/* The sum of a group's terms in fast: a lane's elements lie FAST_NORM_LANES apart in what all threads have laid down.
 */
template <norm_term TERM>
static __device__ float fast_sum(const float *x, int width, float mean, float *terms, float *result)
{
  float sum = 0;
  for (int begin = 0; begin < width; begin += TERMS) {
    int n = width - begin < TERMS ? width - begin : TERMS;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      terms[i] = TERM == OFF_CENTRE ? x[begin + i] - mean : x[begin + i];
    __syncthreads();
    sum = lane_sum<TERM>(terms, n, sum);
    __syncthreads();
  }
  return folded(terms, sum, result);
}

template <norm_term TERM, bool FAST>
static __device__ float sum_of(const float *x, int width, float mean, float *terms, float *result)
{
  return FAST ? fast_sum<TERM>(x, width, mean, terms, result) : exact_sum<TERM>(x, width, mean, terms, result);
}

/* Rows of up to HELD elements a thread stay in registers from the sum to the result; the weights were fetched before
 * the predecessor ended. Longer ones are read twice. */
enum { HELD = 8, MOST_THREADS = 1024 };

template <bool FAST> static __global__ void __launch_bounds__(MOST_THREADS) rms_norm(op_rms_norm a)
{
  __shared__ __align__(16) float terms[TERMS + 32];
  __shared__ float result;
  int64_t t = blockIdx.x / a.count, group = blockIdx.x % a.count * a.width;
  const float *x = a.x + t * a.x_stride + group;
  float *y = a.y + t * a.y_stride + group;
  float held[HELD], weight[HELD];
  int tid = threadIdx.x, threads = blockDim.x;
  bool fits = a.width <= HELD * threads;
#pragma unroll
  for (int j = 0; j < HELD; j++) {
    int k = tid + j * threads;
    weight[j] = fits && a.w && k < a.width ? a.w[k] : 0.0f;
  }
  cuda_release_next();
  cuda_await();
#pragma unroll
  for (int j = 0; j < HELD; j++) {
    int k = tid + j * threads;
    held[j] = fits && k < a.width ? x[k] : 0.0f;
  }
  float sum;
  if (fits) {
    int padded = (a.width + 63) / 64 * 64;
#pragma unroll
    for (int j = 0; j < HELD; j++) {
      int k = tid + j * threads;
      if (k < padded)
        terms[k] = FAST ? held[j] : held[j] * held[j];
    }
    for (int k = tid + HELD * threads; k < padded; k += threads)
      terms[k] = 0.0f;
    sum = FAST ? fast_fold<SQUARE>(terms, a.width, 0.0f, &result) : exact_fold(terms, padded, &result);
  } else {
    sum = sum_of<SQUARE, FAST>(x, a.width, 0, terms, &result);
  }
  float r = 1.0f / sqrtf(sum * (float)(1.0 / a.width) + a.eps);
  if (!fits) {
    for (int k = tid; k < a.width; k += threads) {
      float normed = x[k] * r;
      y[k] = a.w ? normed * a.w[k] : normed;
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < HELD; j++) {
    int k = tid + j * threads;
    float normed = held[j] * r;
    if (k < a.width)
      y[k] = a.w ? normed * weight[j] : normed;
  }
}

template <bool FAST> static __global__ void layer_norm(op_layer_norm a)
{
  __shared__ __align__(16) float terms[TERMS + 32];
  __shared__ float result;
  int64_t t = blockIdx.x / a.count, group = blockIdx.x % a.count * a.width;
  const float *x = a.x + t * a.x_stride + group, *w = a.w && a.own ? a.w + group : a.w;
  float *y = a.y + t * a.y_stride + group;
  float reciprocal = (float)(1.0 / a.width);
  cuda_release_next();
  cuda_await();
  float mean = sum_of<PLAIN, FAST>(x, a.width, 0, terms, &result) * reciprocal;
  __syncthreads();
  float squares = sum_of<OFF_CENTRE, FAST>(x, a.width, mean, terms, &result);
  float r = 1.0f / sqrtf(squares * reciprocal + a.eps);
  for (int k = threadIdx.x; k < a.width; k += blockDim.x) {
    float v = (x[k] - mean) * r;
    v = w ? v * w[k] : v;
    y[k] = a.b ? v + a.b[k] : v;
  }
}

void cuda_rms_norm(cuda_context *cx, const op_rms_norm *a, int tokens)
{
  int threads = (a->width + HELD - 1) / HELD, least = FAST_NORM_LANES;
  threads = threads < least ? least : threads > MOST_THREADS ? MOST_THREADS : (threads + 31) / 32 * 32;
  cuda_launch(cx, true, cx->fast ? rms_norm<true> : rms_norm<false>, dim3((unsigned)(tokens * a->count)), threads, 0,
              *a);
}

void cuda_layer_norm(cuda_context *cx, const op_layer_norm *a, int tokens)
{
  cuda_launch(cx, true, cx->fast ? layer_norm<true> : layer_norm<false>, dim3((unsigned)(tokens * a->count)), THREADS,
              0, *a);
}

/* ---- rotation ---- */

/* One thread a pair of a head. `rates`: [tokens][2], NaN where the token's frequencies are the table's; NULL: all. */
static __global__ void rope(op_rope a, cuda_step s, const float *rates)
{
  int half = a.dims / 2, heads = a.q_heads + a.k_heads;
  cuda_release_next();
  cuda_await();
  EACH(n, (int64_t)s.tokens * heads * half)
  {
    int i = (int)(n % half), h = (int)(n / half % heads);
    int64_t t = n / half / heads;
    bool query = h < a.q_heads;
    float *x = query ? a.q + (t * a.q_heads + h) * a.head_dim : a.k + (t * a.k_heads + h - a.q_heads) * a.head_dim;
    float rate = rates ? rates[2 * t + !query] : NAN;
    float position = (float)s.token[t].position * a.position_scale;
    float angle = position * (rate == rate ? math_exp((float)-i * rate) : a.inverse[i]);
    float sine, cosine;
    math_sincos(angle, &sine, &cosine);
    float *first = a.traditional ? x + 2 * i : x + i, *second = a.traditional ? first + 1 : first + half;
    float x1 = a.mscale != 1.0f ? a.mscale * *first : *first, x2 = a.mscale != 1.0f ? a.mscale * *second : *second;
    *first = x1 * cosine - x2 * sine;
    *second = x1 * sine + x2 * cosine;
  }
}

void cuda_rope(cuda_context *cx, const op_rope *a, const cuda_step *s, const float *rates)
{
  int64_t pairs = (int64_t)s->tokens * (a->q_heads + a->k_heads) * (a->dims / 2);
  cuda_launch(cx, true, rope, grid_for(cx, pairs), THREADS, 0, *a, *s, rates);
}

static __global__ void temperature(op_temperature a, cuda_step s)
{
  cuda_release_next();
  cuda_await();
  EACH(i, (int64_t)s.tokens * a.width)
  {
    float steps = floorf((float)s.token[i / a.width].position / (float)a.span);
    a.q[i] *= ops_round(a.factor_type, 1.0f + a.beta * math_log(1.0f + steps));
  }
}

void cuda_temperature(cuda_context *cx, const op_temperature *a, const cuda_step *s)
{
  cuda_launch(cx, true, temperature, grid_for(cx, (int64_t)s->tokens * a->width), THREADS, 0, *a, *s);
}

/* ---- multipliers, caps, sums ---- */

static __global__ void scale(op_scale a, int64_t n)
{
  cuda_release_next();
  cuda_await();
  EACH(i, n) a.y[i] = a.divide ? a.x[i] / a.factor : a.x[i] * a.factor;
}

void cuda_scale(cuda_context *cx, const op_scale *a, int tokens)
{
  int64_t n = (int64_t)tokens * a->width;
  cuda_launch(cx, true, scale, grid_for(cx, n), THREADS, 0, *a, n);
}

static __global__ void softcap(op_softcap a, int64_t n)
{
  cuda_release_next();
  cuda_await();
  EACH(i, n) a.y[i] = ref_cap(DT_F32, a.cap, a.x[i]);
}

void cuda_softcap(cuda_context *cx, const op_softcap *a, int tokens)
{
  int64_t n = (int64_t)tokens * a->width;
  cuda_launch(cx, true, softcap, grid_for(cx, n), THREADS, 0, *a, n);
}

static __global__ void add(op_add a, int64_t n)
{
  cuda_release_next();
  cuda_await();
  EACH(i, n)
  {
    float sum = a.x[i] + a.y[i];
    if (a.clip != 0) {
      sum = sum > -a.clip ? sum : -a.clip;
      sum = sum < a.clip ? sum : a.clip;
    }
    a.y[i] = sum;
  }
}

void cuda_add(cuda_context *cx, const op_add *a, int tokens)
{
  int64_t n = (int64_t)tokens * a->width;
  cuda_launch(cx, true, add, grid_for(cx, n), THREADS, 0, *a, n);
}

/* ---- copies ---- */

static __global__ void choose(op_select a, cuda_step s)
{
  cuda_release_next();
  cuda_await();
  EACH(i, (int64_t)s.wanted * a.width) a.y[i] = a.x[(int64_t)s.want[i / a.width] * a.width + i % a.width];
}

void cuda_select(cuda_context *cx, const op_select *a, const cuda_step *s)
{
  cuda_launch(cx, true, choose, grid_for(cx, (int64_t)s->wanted * a->width), THREADS, 0, *a, *s);
}

static __global__ void regroup(op_regroup a, int tokens)
{
  int64_t width = (int64_t)a.n * a.width;
  cuda_release_next();
  cuda_await();
  EACH(i, tokens * width)
  {
    int64_t t = i / width, group = i % width / a.width;
    a.y[i] = a.x[t * a.x_width + (int64_t)a.from[group] * a.width + i % a.width];
  }
}

void cuda_regroup(cuda_context *cx, const op_regroup *a, int tokens)
{
  cuda_launch(cx, true, regroup, grid_for(cx, (int64_t)tokens * a->n * a->width), THREADS, 0, *a, tokens);
}
