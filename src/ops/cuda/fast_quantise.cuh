/* fast_quantise.cuh - one part of one token to codes, step and sums, by a warp. The definition is fast_quantise
 * (ops/fast_ref/fast_linear.c); what is written where is in fast_inputs.cuh. */
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

/* v[j][i] is input 256 j + 8 lane + i of the part. By all lanes of a warp. */
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
    int8_t *high = in.codes + block * in.block + token * in.token + c * 16 + half * 8;
    *(uint2 *)high = make_uint2(fast_bytes<1>(carried[0], carried[2], carried[4], carried[6]),
                                fast_bytes<1>(carried[1], carried[3], carried[5], carried[7]));
    *(uint2 *)(high + in.plane) = make_uint2(fast_bytes<0>(code[0], code[2], code[4], code[6]),
                                             fast_bytes<0>(code[1], code[3], code[5], code[7]));
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
#pragma unroll
    for (int size = 0; size < 3; size++) {
      int lanes = 4 << size; /* of a group */
      if (in.sums[size] && lane % lanes == 0)
        in.sums[size][((size_t)part * (64 / lanes) + unit / lanes) * in.room + token] = (float)sum;
      sum += __shfl_xor_sync(~0u, sum, lanes);
    }
  }
  if (lane == 0)
    in.steps[(size_t)part * in.room + token] = some     ? largest / (float)FAST_MOST
                                               : finite ? 0.0f
                                                        : __uint_as_float(0x7fffffff);
}

#endif
