/* kv.cuh - storing one key or value: ref_kv.c for kernels, with its names.
 *
 * Source of the formulas: ops/ref/ref_kv.c (mx.quantize, affine). Quantising is a warp's work here: a group's smallest
 * and largest have no order, a code needs nothing but them, and a lane that has all codes makes a word. (One thread a
 * row took 100 us for a step's keys.) Rows come from float32 or float16 memory.
 */
#ifndef TERN_OPS_CUDA_KV_CUH
#define TERN_OPS_CUDA_KV_CUH

#include "ops/cuda/cuda.cuh"
#include "ops/cuda/math.cuh" /* ref.h wants tanh defined */

/* ---- plain ---- */

static inline __device__ void kv_put_key(void *block, bool fast, int key_dim, int head, int dim, int i, float x)
{
  size_t at = ref_block_key(head, key_dim, i) + (size_t)dim * KV_BLOCK;
  if (fast)
    ((uint16_t *)block)[at] = fast_half(x);
  else
    ((float *)block)[at] = x;
}

static inline __device__ void kv_put_value(void *block, bool fast, int kv_heads, int key_dim, int value_dim, int head,
                                           int dim, int i, float x)
{
  size_t at = ref_block_value(kv_heads, key_dim, head, value_dim, i) + (size_t)dim;
  if (fast)
    ((uint16_t *)block)[at] = fast_half(x);
  else
    ((float *)block)[at] = x;
}

/* ---- rows to be quantised ---- */

struct kv_floats {
  const float *x;
  size_t stride;

  static __device__ kv_floats at(const void *block, size_t offset, size_t stride)
  {
    return {(const float *)block + offset, stride};
  }
  __device__ float operator[](int i) const
  {
    return x[(size_t)i * stride];
  }
};

struct kv_halves {
  const uint16_t *x;
  size_t stride;

  static __device__ kv_halves at(const void *block, size_t offset, size_t stride)
  {
    return {(const uint16_t *)block + offset, stride};
  }
  __device__ float operator[](int i) const
  {
    return f16_to_f32(x[(size_t)i * stride]);
  }
};

/* ---- groups ---- */

struct kv_group {
  float scale, bias; /* not yet rounded to the type that keeps them: codes go by these */
};

/* Of n values from `first` on, by all lanes of a warp. NaN is passed over, as by the definition's comparisons. */
template <class row> static __device__ kv_group group_of(const row &x, int first, int n, int bits)
{
  float low = INFINITY, high = -INFINITY, most = (float)((1 << bits) - 1);
  for (int i = threadIdx.x % 32; i < n; i += 32) {
    float value = x[first + i];
    low = fminf(low, value);
    high = fmaxf(high, value);
  }
  for (int far = 16; far; far /= 2) {
    low = fminf(low, __shfl_xor_sync(~0u, low, far));
    high = fmaxf(high, __shfl_xor_sync(~0u, high, far));
  }
  bool down = fabsf(low) > fabsf(high);
  float step = (high - low) / most;
  float scale = step < 1e-7f ? 1e-7f : step;
  scale = down ? scale : -scale;
  float edge = down ? low : high, zero = rintf(edge / scale);
  if (zero == 0)
    return {scale, 0};
  return {edge / zero, edge};
}

static inline __device__ uint32_t code_of(const kv_group &g, float x, int bits)
{
  float code = (x - g.bias) / g.scale, most = (float)((1 << bits) - 1);
  code = code > 0 ? code : 0; /* NaN too */
  return (uint32_t)rintf(code < most ? code : most);
}

/* Into a stream of bits whose words stand `stride` apart. */
static inline __device__ void put_code(uint32_t *words, size_t stride, int bits, int at, uint32_t code)
{
  int bit = at * bits, shift = bit & 31;
  uint32_t *word = words + (size_t)(bit >> 5) * stride, mask = (1u << bits) - 1;
  *word = (*word & ~(mask << shift)) | code << shift;
  if (shift && shift + bits > 32) {
    word += stride;
    *word = (*word & ~(mask >> (32 - shift))) | code >> (32 - shift);
  }
}

/* Word w of a stream of codes. */
static inline __device__ uint32_t word_of(const uint8_t *codes, int bits, int w)
{
  uint32_t word = 0;
  for (int c = 32 * w / bits; c * bits < 32 * w + 32; c++) {
    int shift = c * bits - 32 * w;
    word |= shift < 0 ? (uint32_t)codes[c] >> -shift : (uint32_t)codes[c] << shift;
  }
  return word;
}

/* ---- rows, by a warp ---- */

/* codes [dim]: the warp's own. */
template <class row> static __device__ void pack_key(const ops_kv_quant &q, ref_packed p, int i, row x, uint8_t *codes)
{
  int lane = threadIdx.x % 32;
  for (int n = 0; n < p.groups; n++) {
    kv_group g = group_of(x, n * q.group, q.group, q.bits);
    for (int e = n * q.group + lane; e < (n + 1) * q.group; e += 32)
      codes[e] = (uint8_t)code_of(g, x[e], q.bits);
    if (lane == 0) {
      p.scales[n * KV_BLOCK + i] = ops_round(q.key_type, g.scale);
      p.biases[n * KV_BLOCK + i] = ops_round(q.key_type, g.bias);
    }
  }
  __syncwarp();
  for (int w = lane; w < p.dim * q.bits / 32; w += 32)
    p.words[w * KV_BLOCK + i] = word_of(codes, q.bits, w);
  __syncwarp();
}

template <class row> static __device__ void pack_value(const ops_kv_quant &q, ref_packed p, int i, row x)
{
  int lane = threadIdx.x % 32;
  for (int n = 0; n < p.groups; n++) {
    kv_group g = group_of(x, n * q.group, q.group, q.bits);
    for (int e = n * q.group + lane; e < (n + 1) * q.group; e += 32)
      put_code(p.words + e, (size_t)p.dim, q.bits, i, code_of(g, x[e], q.bits));
    if (lane == 0) {
      p.scales[i * p.groups + n] = ops_round(q.value_type, g.scale);
      p.biases[i * p.groups + n] = ops_round(q.value_type, g.bias);
    }
  }
}

#endif
