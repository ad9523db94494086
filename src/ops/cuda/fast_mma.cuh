/* fast_mma.cuh - the arithmetic that all kernels of the packed layout share: bytes through the tensor cores, and whole
 * numbers turned into the float that the definition wants.
 *
 * A dot product of a group is dot = 256 * H + L, of the inputs' high and low bytes, and the definition rounds it once.
 * Two additions do that, without a conversion (16 a cycle and SM) and without the multiplication: the mma's
 * accumulators start as the bits of a float that is so large that the integers added to it are its last places.
 *
 *     H starts at 0x4f400000, 1.5 * 2^31, whose last place is 256: read as a float it is then 1.5 * 2^31 + 256 H
 *     L starts at 0x4b400000, 1.5 * 2^23, whose last place is 1: 1.5 * 2^23 + L
 *     dot = (high - (1.5 * 2^31 + 1.5 * 2^23)) + low
 *
 * Proof: |H| and |L| are at most 128 * 15 * 128 < 2^18, so neither leaves its binade (2^22 places on each side). The
 * constant is 771 * 2^22: a float. The difference is 256 * (H - 49152), fewer than 24 bits: exact. The sum is that of
 * 256 H + L, rounded once, as (float)dot; an exact zero is +0, as there.
 */
#ifndef TERN_OPS_CUDA_FAST_MMA_CUH
#define TERN_OPS_CUDA_FAST_MMA_CUH

#include <cuda_fp16.h>

#include "ops/cuda/fast_pack.cuh"

#define FAST_HIGH_START 0x4f400000
#define FAST_LOW_START 0x4b400000
#define FAST_STARTS (0x1.8p31f + 0x1.8p23f)

static inline __device__ float fast_dot(int high, int low)
{
  return (__int_as_float(high) - FAST_STARTS) + __int_as_float(low);
}

/* d = a b + c: weights of 16 rows, 8 columns of inputs, 32 of them; bytes. */
static inline __device__ void fast_mma(int d[4], const uint32_t a[4], uint32_t b0, uint32_t b1, const int c[4])
{
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

/* A lane's 16 bytes of a block as A of its two mma. */
static inline __device__ void fast_unpack(const uint4 &w, uint32_t a[2][4])
{
  const uint32_t mask = 0x0f0f0f0f;
  a[0][0] = w.x & mask, a[0][1] = w.z & mask, a[0][2] = w.x >> 4 & mask, a[0][3] = w.z >> 4 & mask;
  a[1][0] = w.y & mask, a[1][1] = w.w & mask, a[1][2] = w.y >> 4 & mask, a[1][3] = w.w >> 4 & mask;
}

/* A pair's scale and bias. */
template <bool F16> static inline __device__ void fast_scale_bias(uint32_t pair, float *scale, float *bias)
{
  if (F16) {
    *scale = __half2float(__ushort_as_half((unsigned short)pair));
    *bias = __half2float(__ushort_as_half((unsigned short)(pair >> 16)));
  } else {
    *scale = __uint_as_float(pair << 16);
    *bias = __uint_as_float(pair & 0xffff0000u);
  }
}

/* Weights are read once: they leave the L1 cache to the inputs. */
static inline __device__ uint4 fast_stream(const void *from)
{
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

/* A lane's weights of a chunk: its share of each block, and the pairs of rows r and r + 8 (lane / 4 = r). */
template <int GROUP> struct fast_weights {
  enum { GROUPS = FAST_PART / GROUP, PAIRS = GROUPS / 4 };
  uint4 codes[FAST_BLOCKS], pairs[2][PAIRS];
};

template <int GROUP>
static inline __device__ void fast_load_block(fast_weights<GROUP> &w, const uint8_t *chunk, int b, int lane)
{
  w.codes[b] = fast_stream(chunk + b * FAST_BLOCK_BYTES + lane * 16);
}

template <int GROUP> static inline __device__ void fast_load_pairs(fast_weights<GROUP> &w, const uint8_t *chunk, int r)
{
  const uint4 *pairs = (const uint4 *)(chunk + FAST_CHUNK_CODES);
#pragma unroll
  for (int upper = 0; upper < 2; upper++)
#pragma unroll
    for (int i = 0; i < w.PAIRS; i++)
      w.pairs[upper][i] = fast_stream(pairs + (r + 8 * upper) * w.PAIRS + i);
}

/* Word i of a vector, i known to the compiler. */
static inline __device__ uint32_t fast_word(const uint4 &v, int i)
{
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

#endif
