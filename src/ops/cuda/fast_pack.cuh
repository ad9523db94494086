/* fast_pack.cuh - the layout CUDA_FAST_4: affine matrices of 4 bits as tensor cores want them.
 *
 * A tile is 16 rows; a chunk is a tile's share of a part (512 inputs), contiguous; chunks of a tile follow each other.
 * In a chunk stand 8 blocks of 64 inputs, 512 bytes each, then the scales and biases of its rows:
 *
 *     block: lane (8 rows r of 4 lanes c) has 16 bytes: words c and c + 4 of row r, words c and c + 4 of row r + 8
 *     pairs[16 rows][512 / group]: scale, and bias in the upper half
 *
 * Word w of a row and block is inputs 8 w .. 8 w + 7, as stored. So a lane's load is its share of A of two mma.m16n8k32
 * (inputs 0..31 and 32..63; groups of 32 do not straddle them), even inputs being the mma's k 0..15 and odd ones k
 * 16..31: fast_inputs.cuh orders the inputs alike.
 *
 * Rows behind the last and inputs behind k have codes, scales and biases of zero: they add fma(0, 0, fma(0, 0, part)),
 * which leaves every part as it is but for the sign of a zero, and that is lost in the sum of slices, which starts at
 * +0.
 */
#ifndef TERN_OPS_CUDA_FAST_PACK_CUH
#define TERN_OPS_CUDA_FAST_PACK_CUH

#include "ops/cuda/fast_inputs.cuh"

enum {
  FAST_TILE = 16,
  FAST_BLOCK_BYTES = FAST_TILE * FAST_BLOCK / 2,
  FAST_PACK_MOST = 65536,                            /* inputs: kernels keep the parts of a tile in shared memory */
  FAST_CHUNK_CODES = FAST_BLOCKS * FAST_BLOCK_BYTES, /* bytes before the pairs */
};

static inline __host__ __device__ int fast_chunk_bytes(int group)
{
  return FAST_CHUNK_CODES + FAST_TILE * (FAST_PART / group) * 4;
}

/* Of row n and input k. */
static inline __device__ const uint8_t *fast_chunk(const ops_weight &w, int64_t n, int64_t k)
{
  return w.data + (n / FAST_TILE * fast_parts(w.k) + k / FAST_PART) * fast_chunk_bytes(w.group);
}

static inline __device__ uint32_t fast_packed_code(const ops_weight &w, int64_t n, int64_t k)
{
  int row = (int)(n % FAST_TILE), block = (int)(k % FAST_PART) / FAST_BLOCK, word = (int)(k % FAST_BLOCK) / 8;
  int at = (row % 8 * 4 + word % 4) * 4 + row / 8 * 2 + word / 4;
  uint32_t codes = ((const uint32_t *)(fast_chunk(w, n, k) + block * FAST_BLOCK_BYTES))[at];
  return codes >> (k % 8 * 4) & 15;
}

static inline __device__ float fast_packed_half(const ops_weight &w, int64_t n, int64_t k, int upper)
{
  int row = (int)(n % FAST_TILE), group = (int)(k % FAST_PART) / w.group;
  const uint16_t *pair =
      (const uint16_t *)(fast_chunk(w, n, k) + FAST_CHUNK_CODES) + (row * (FAST_PART / w.group) + group) * 2;
  return w.stored == DT_BF16 ? bf16_to_f32(pair[upper]) : f16_to_f32(pair[upper]);
}

static inline __device__ float fast_packed_scale(const ops_weight &w, int64_t n, int64_t k)
{
  return fast_packed_half(w, n, k, 0);
}

static inline __device__ float fast_packed_bias(const ops_weight &w, int64_t n, int64_t k)
{
  return fast_packed_half(w, n, k, 1);
}

#endif
