/* fast_linear_any.cu - affine matrices of numerics fast as they are stored: codes of any width, any scales.
 *
 * A warp has one row of the matrix and a few tokens. In a first pass over a slice a lane takes 32 inputs at a time,
 * which are as many words as a code has bits, and so begin and end at a word's edge; dp4a multiplies the codes with
 * both bytes of the inputs, the lanes of a group add their whole numbers, and the dot products of all groups of the
 * slice go to shared memory. In a second pass a lane has a part and a token: it walks the groups upwards. Then the
 * parts are joined in order.
 */
#include <cuda_fp16.h>

#include "ops/cuda/fast_linear.cuh"

enum {
  ANY_WARPS = 8,
  UNIT = 32,                /* inputs of a lane at a time */
  UNITS = FAST_PART / UNIT, /* of a part; as many lanes have it */
  SLICE_MOST = 8,           /* parts: fast_slice */
};

/* unsigned bytes times signed ones */
static inline __device__ int dot4(uint32_t codes, uint32_t inputs, int sum)
{
  int d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(codes), "r"(inputs), "r"(sum));
  return d;
}

/* Words that 32 codes take, by the widest loads that their alignment allows. */
template <int BITS> static inline __device__ void load_words(const uint32_t *from, uint32_t words[BITS])
{
  if (BITS % 4 == 0) {
#pragma unroll
    for (int i = 0; i < BITS / 4; i++) {
      uint4 v = __ldg((const uint4 *)from + i);
      words[4 * i] = v.x, words[4 * i + 1] = v.y, words[4 * i + 2] = v.z, words[4 * i + 3] = v.w;
    }
  } else if (BITS % 2 == 0) {
#pragma unroll
    for (int i = 0; i < BITS / 2; i++) {
      uint2 v = __ldg((const uint2 *)from + i);
      words[2 * i] = v.x, words[2 * i + 1] = v.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < BITS; i++)
      words[i] = __ldg(from + i);
  }
}

/* Code i of 32, at a place that the compiler knows. */
template <int BITS> static inline __device__ uint32_t code_of(const uint32_t words[BITS], int i)
{
  int word = i * BITS / 32, shift = i * BITS % 32;
  uint32_t v = words[word] >> shift;
  if (shift + BITS > 32)
    v |= words[word + 1] << (32 - shift);
  return v & ((1u << BITS) - 1);
}

/* Codes 8u, 8u + 2, .. as bytes (odd 0), or 8u + 1, ... */
template <int BITS> static inline __device__ uint32_t four_codes(const uint32_t words[BITS], int u, int odd)
{
  if (BITS == 8)
    return __byte_perm(words[2 * u], words[2 * u + 1], odd ? 0x7531 : 0x6420);
  if (BITS == 4)
    return words[u] >> (4 * odd) & 0x0f0f0f0f;
  uint32_t four = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    four |= code_of<BITS>(words, 8 * u + 2 * i + odd) << (8 * i);
  return four;
}

static inline __device__ float load_scale(ops_dtype type, const uint8_t *data, int64_t i)
{
  switch (type) {
  case DT_BF16:
    return bf16_to_f32(((const uint16_t *)data)[i]);
  case DT_F16:
    return __half2float(((const __half *)data)[i]);
  default:
    return ((const float *)data)[i];
  }
}

template <int BITS, int TOKENS>
static __global__ void __launch_bounds__(ANY_WARPS * 32) affine_any(ops_weight w, fast_inputs in, fast_output out)
{
  __shared__ float shared_dots[ANY_WARPS][SLICE_MOST][UNITS][TOKENS];
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  int64_t n = (int64_t)blockIdx.x * ANY_WARPS + warp;
  int first = (int)blockIdx.y * TOKENS;
  cuda_release_next();
  cuda_await();
  if (n >= w.n)
    return;
  float(*dots)[UNITS][TOKENS] = shared_dots[warp];
  const uint32_t *row = (const uint32_t *)(w.data + n * ref_row_bytes(&w));
  int group_units = w.group / UNIT, part_groups = FAST_PART / w.group;
  const float *sums = fast_sums(in, w.group);
  int64_t row_groups = w.k / w.group;
  int slice_parts = (int)fast_slice(w.k);
  int my_part = lane / TOKENS, my_token = min(first + lane % TOKENS, in.tokens - 1);
  float total = 0;
  for (int s = 0; s < in.parts; s += slice_parts) {
    int count = min(slice_parts, in.parts - s);
    for (int p = lane / UNITS; p - lane / UNITS < count; p += 2) {
      int64_t k = (int64_t)(s + p) * FAST_PART + lane % UNITS * UNIT;
      int high[TOKENS] = {}, low[TOKENS] = {};
      if (p < count && k < w.k) {
        uint32_t words[BITS];
        load_words<BITS>(row + k / UNIT * BITS, words);
        const int8_t *codes = in.codes + k / FAST_BLOCK * in.block + k / UNIT % 2 * 8;
#pragma unroll
        for (int u = 0; u < 4; u++) {
          uint32_t even = four_codes<BITS>(words, u, 0), odd = four_codes<BITS>(words, u, 1);
#pragma unroll
          for (int t = 0; t < TOKENS; t++) {
            const int8_t *at = codes + min(first + t, in.tokens - 1) * FAST_BLOCK + u * 16;
            uint2 h = *(const uint2 *)at, l = *(const uint2 *)(at + in.plane);
            high[t] = dot4(odd, h.y, dot4(even, h.x, high[t]));
            low[t] = dot4(odd, l.y, dot4(even, l.x, low[t]));
          }
        }
      }
#pragma unroll
      for (int t = 0; t < TOKENS; t++) {
        int dot = high[t] * 256 + low[t];
        for (int o = 1; o < group_units; o *= 2)
          dot += __shfl_xor_sync(~0u, dot, o);
        if (p < count && lane % group_units == 0)
          dots[p][lane % UNITS / group_units][t] = __int2float_rn(dot);
      }
    }
    __syncwarp();
    float part = 0;
    if (my_part < count) {
      int64_t g = (int64_t)(s + my_part) * part_groups, groups = min((int64_t)part_groups, row_groups - g);
      for (int i = 0; i < groups; i++) {
        part = fmaf(load_scale(w.stored, w.scales, n * row_groups + g + i), dots[my_part][i][lane % TOKENS], part);
        part = fmaf(load_scale(w.stored, w.biases, n * row_groups + g + i), sums[(g + i) * in.room + my_token], part);
      }
    }
    float slice = 0;
    for (int p = 0; p < count; p++)
      slice = fmaf(in.steps[(size_t)(s + p) * in.room + my_token], __shfl_sync(~0u, part, p * TOKENS + lane % TOKENS),
                   slice);
    total += slice;
    __syncwarp();
  }
  if (lane < TOKENS && first + lane < in.tokens)
    fast_store(out, w.n, first + lane, n, total);
}

typedef void affine_kernel(ops_weight w, fast_inputs in, fast_output out);

void fast_linear_affine(cuda_context *cx, const op_linear *a, int i, const fast_inputs &in)
{
  static const struct {
    int bits;
    affine_kernel *one, *four; /* tokens */
  } kernels[] = {
      {2, affine_any<2, 1>, affine_any<2, 4>}, {3, affine_any<3, 1>, affine_any<3, 4>},
      {4, affine_any<4, 1>, affine_any<4, 4>}, {5, affine_any<5, 1>, affine_any<5, 4>},
      {6, affine_any<6, 1>, affine_any<6, 4>}, {8, affine_any<8, 1>, affine_any<8, 4>},
  };
  const ops_weight *w = &cuda_of(a->w[i])->shape;
  int at = 0, tokens = in.tokens == 1 ? 1 : 4;
  while (kernels[at].bits != w->bits)
    at++;
  dim3 grid((unsigned)cuda_ceil(w->n, ANY_WARPS), (unsigned)cuda_ceil(in.tokens, tokens));
  cuda_launch(cx, true, tokens == 1 ? kernels[at].one : kernels[at].four, grid, ANY_WARPS * 32, 0, *w, in,
              fast_output_of(a, i));
}
