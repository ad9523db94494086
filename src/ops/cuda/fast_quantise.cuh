/* fast_quantise.cuh - inputs to codes, steps and sums, and the norm before that, by the threads of a CTA. The
 * definition is fast_quantise (ops/fast_ref/fast_linear.c) and the norm of fast.h; what is written where is in
 * fast_inputs.cuh.
 */
#ifndef TERN_OPS_CUDA_FAST_QUANTISE_CUH
#define TERN_OPS_CUDA_FAST_QUANTISE_CUH

#include "ops/cuda/fast_inputs.cuh"

/* Inputs at .. at + 7 of a row of k, zeros behind its end. k is a multiple of 8, the row at a multiple of 16 bytes. */
static inline __device__ void fast_load8(const float *row, int64_t at, int64_t k, float v[8])
{
  float4 a = make_float4(0, 0, 0, 0), b = a;
  if (at < k) {
    a = ((const float4 *)(row + at))[0];
    b = ((const float4 *)(row + at))[1];
  }
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
  v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

/* Byte `which` of four words, as one. */
template <int which> static inline __device__ uint32_t fast_bytes(int a, int b, int c, int d)
{
  const unsigned two = which | (4u + which) << 4;
  return __byte_perm(__byte_perm((unsigned)a, (unsigned)b, two), __byte_perm((unsigned)c, (unsigned)d, two), 0x5410);
}

/* One part of one token, by all lanes of a warp. v[j][i] is input 256 j + 8 lane + i of the part. */
static inline __device__ void fast_quantise_part(const float v[2][8], const fast_inputs &in, int token, int part,
                                                 int lane)
{
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < 16; i++) {
    uint32_t magnitude = __float_as_uint(v[i / 8][i % 8]) & 0x7fffffff;
    most = magnitude > most ? magnitude : most;
  }
  most = __reduce_max_sync(~0u, most);
  float largest = __uint_as_float(most);
  bool finite = most < 0x7f800000, some = finite && largest >= 0x1p-100f;
  float codes_a_one = (float)FAST_MOST / largest;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    int code[8], carried[8], sum = 0; /* byte 1 of code + 128 is its high part, low being signed */
#pragma unroll
    for (int i = 0; i < 8; i++) {
      code[i] = some ? __float2int_rn(v[j][i] * codes_a_one) : 0;
      carried[i] = code[i] + 128;
      sum += code[i];
    }
    int unit = 32 * j + lane, block = part * FAST_BLOCKS + unit / 8, c = unit % 4, half = unit / 4 % 2;
    int8_t *to = in.codes + block * in.block + token * in.token + c * 16 + half * 8;
    *(uint2 *)to = make_uint2(fast_bytes<1>(carried[0], carried[2], carried[4], carried[6]),
                              fast_bytes<1>(carried[1], carried[3], carried[5], carried[7]));
    *(uint2 *)(to + in.plane) = make_uint2(fast_bytes<0>(code[0], code[2], code[4], code[6]),
                                           fast_bytes<0>(code[1], code[3], code[5], code[7]));
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
#pragma unroll
    for (int size = 0; size < 3; size++) {
      int lanes = 4 << size; /* of a group */
      if (in.sums[size] && lane % lanes == 0)
        in.sums[size][((int64_t)part * (64 / lanes) + unit / lanes) * in.room + token] = (float)sum;
      sum += __shfl_xor_sync(~0u, sum, lanes);
    }
  }
  if (lane == 0)
    in.steps[(int64_t)part * in.room + token] = some     ? largest / (float)FAST_MOST
                                                : finite ? 0.0f
                                                         : __uint_as_float(0x7fffffff);
}

/* 1 / the root of the mean square of a row in shared memory, for all threads of the CTA, which has two warps at least:
 * they have the lanes of fast.h. */
static inline __device__ float fast_norm_scale(const float *row, int k, float reciprocal, float eps)
{
  __shared__ float upper[FAST_NORM_LANES / 2], scale;
  int lane = (int)threadIdx.x;
  float sum = 0;
  if (lane < FAST_NORM_LANES) {
#pragma unroll 16
    for (int i = lane; i < k; i += FAST_NORM_LANES)
      sum = fmaf(row[i], row[i], sum);
    if (lane >= 32)
      upper[lane - 32] = sum;
  }
  __syncthreads();
  if (lane < 32) {
    sum += upper[lane];
#pragma unroll
    for (int half = 16; half; half /= 2)
      sum += __shfl_down_sync(~0u, sum, half);
    if (lane == 0)
      scale = 1.0f / sqrtf(sum * reciprocal + eps);
  }
  __syncthreads();
  return scale;
}

/* The first of a lane's eight inputs of a part, j = 0 or 1 (fast_quantise_part). */
static inline __device__ int fast_input_at(int part, int j, int lane)
{
  return part * FAST_PART + 256 * j + 8 * lane;
}

/* Inputs at .. at + 7 of row `token`, normed. */
static inline __device__ void fast_norm8(float v[8], float scale, const fast_source &source, const float *norm_w,
                                         int at, int token, bool keep)
{
  float w[8];
#pragma unroll
  for (int i = 0; i < 8; i++)
    v[i] = v[i] * scale;
  if (source.norm_w) {
    fast_load8(norm_w, at, source.k, w);
#pragma unroll
    for (int i = 0; i < 8; i++)
      v[i] = v[i] * w[i];
  }
  if (keep && source.kept && at < source.k) {
    float4 *kept = (float4 *)(source.kept + token * source.kept_stride + at);
    kept[0] = make_float4(v[0], v[1], v[2], v[3]);
    kept[1] = make_float4(v[4], v[5], v[6], v[7]);
  }
}

/* Token `from` of `source` becomes token `to` of `in`. `row` and `norm_w` [k]: shared memory where there is a norm; the
 * latter has its weights already. `keep`: this CTA writes what the norm gives. */
static inline __device__ void fast_quantise_row(const fast_source &source, int from, const fast_inputs &in, int to,
                                                float *row, const float *norm_w, bool keep)
{
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, warps = (int)blockDim.x / 32, k = (int)source.k;
  const float *x = source.x + from * source.x_stride;
  float scale = 1;
  if (source.norm) {
    for (int i = (int)threadIdx.x * 4; i < k; i += (int)blockDim.x * 4)
      *(float4 *)(row + i) = *(const float4 *)(x + i);
    __syncthreads();
    scale = fast_norm_scale(row, k, source.reciprocal, source.eps);
    x = row;
  }
  for (int part = warp; part < in.parts; part += 2 * warps) { /* two at a time: their loads, then the rest */
    float v[2][2][8];
#pragma unroll
    for (int i = 0; i < 4; i++)
      fast_load8(x, fast_input_at(part + i / 2 * warps, i % 2, lane), k, v[i / 2][i % 2]);
#pragma unroll
    for (int p = 0; p < 2; p++) {
      if (part + p * warps >= in.parts)
        break;
      if (source.norm)
#pragma unroll
        for (int j = 0; j < 2; j++)
          fast_norm8(v[p][j], scale, source, norm_w, fast_input_at(part + p * warps, j, lane), from, keep);
      fast_quantise_part(v[p], in, to, part + p * warps, lane);
    }
  }
}

/* The norm's weights into shared memory; they are weights: before the predecessor's results are awaited. */
static inline __device__ void fast_load_norm(const fast_source &source, float *norm_w)
{
  if (source.norm && source.norm_w)
    for (int i = (int)threadIdx.x * 4; i < source.k; i += (int)blockDim.x * 4)
      *(float4 *)(norm_w + i) = __ldg((const float4 *)(source.norm_w + i));
}

#endif
