/* fast_inputs.cuh - quantised inputs of a linear of numerics fast, as kernels read them.
 *
 * A code of 16 bits is 256 * high + low, two signed bytes, and a tensor core multiplies bytes: so the inputs are two
 * planes. A block is 64 inputs; a token's share of a block and plane is 64 bytes, in the order in which the four lanes
 * of an mma's column want them (m16n8k32: lane c of a column has bytes 4c..4c+3 and 16+4c..16+4c+3):
 *
 *     codes[((block * 2 + plane) * room + token) * 64 + c * 16 + half * 8 + odd * 4 + i]
 *         is the byte of k = 64 * block + 32 * half + 8 * c + 2 * i + odd          plane 0: high, 1: low
 *
 * so a lane's uint4 holds both halves (two mma of 32 inputs). Evens and odds are apart because a word of eight 4-bit
 * weights parts into them: word & 0x0f0f0f0f has the even ones, word >> 4 & 0x0f0f0f0f the odd ones. Inside a group the
 * sum is of whole numbers, so its order is free.
 *
 * Tokens lie side by side inside a block (`room` of them), since kernels walk along k with several tokens. Places of
 * tokens that are not there hold anything: a column of an mma touches no other. Inputs behind k up to the end of the
 * last part are zero, and so are their sums.
 */
#ifndef TERN_OPS_CUDA_FAST_INPUTS_CUH
#define TERN_OPS_CUDA_FAST_INPUTS_CUH

#include "ops/cuda/cuda.cuh"

enum {
  FAST_BLOCK = 64, /* inputs; a part has 8 */
  FAST_BLOCKS = FAST_PART / FAST_BLOCK,
};

struct fast_inputs {
  int8_t *codes;
  int64_t block, plane, token; /* bytes between two of each: here as above */
  float *sums[3];              /* of groups of 32, 64, 128 codes: [groups][room], whole numbers; NULL: not wanted */
  float *steps;                /* [parts][room] */
  int tokens, room, parts;
};

/* Tokens' places: what a kernel reads at a time, `least` or more. */
static inline int fast_room(int tokens, int least)
{
  int room = least;
  while (room < tokens && room < 32)
    room *= 2;
  return tokens <= 32 ? room : (tokens + 31) / 32 * 32;
}

/* Their places in memory at a multiple of 256 bytes; NULL: the bytes they take are what matters. */
static inline fast_inputs fast_inputs_at(void *memory, int tokens, int least, int64_t k, size_t *bytes)
{
  fast_inputs in = {};
  in.tokens = tokens;
  in.room = fast_room(tokens, least);
  in.parts = (int)fast_parts(k);
  in.token = FAST_BLOCK;
  in.plane = in.room * FAST_BLOCK;
  in.block = in.plane * 2;
  size_t column = (size_t)in.parts * (size_t)in.room;
  uint8_t *at = (uint8_t *)memory;
  in.codes = (int8_t *)at;
  at += column * FAST_PART * 2;
  for (int i = 0; i < 3; i++) {
    in.sums[i] = (float *)at;
    at += column * (FAST_PART / (32u << i)) * sizeof(float);
  }
  in.steps = (float *)at;
  at += (column * sizeof(float) + 15) / 16 * 16;
  if (bytes)
    *bytes = (size_t)(at - (uint8_t *)memory);
  return in;
}

static inline __device__ const float *fast_sums(const fast_inputs &in, int group)
{
  return group == 32 ? in.sums[0] : group == 64 ? in.sums[1] : in.sums[2];
}

/* The address of 16 bytes: what lane c of a token's column needs of a block and plane. */
static inline __device__ const uint4 *fast_codes(const fast_inputs &in, int block, int plane, int token, int c)
{
  return (const uint4 *)(in.codes + block * in.block + plane * in.plane + token * in.token) + c;
}

/* What is quantised; by value to kernels. */
struct fast_source {
  const float *x; /* rows of k, x_stride floats apart */
  int64_t x_stride, k;
  bool norm;             /* x is to be normed first */
  const float *norm_w;   /* [k] or NULL */
  float eps, reciprocal; /* (float)(1.0 / k) */
  float *kept;           /* where the norm's result goes too, or NULL */
  int64_t kept_stride;
};

enum { FAST_STATIC = 2048 }; /* bytes of shared memory that kernels have besides the dynamic, at most */

/* Quantises all tokens (fast_inputs.cu). */
void fast_quantise_inputs(cuda_context *cx, const fast_source &source, const fast_inputs &in);
/* Whether a norm of rows of k may be asked for. */
bool fast_norm_fits(const cuda_context *cx, int64_t k);
void fast_inputs_setup(cuda_context *cx);

#endif
