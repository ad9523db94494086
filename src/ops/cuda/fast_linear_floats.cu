/* fast_linear_floats.cu - matrices that numerics fast multiplies as floats: dense ones, and those of the fp modes.
 *
 * Inside a part of 512 inputs the sum is a chain of fused multiply-adds, k ascending; parts are independent. So a lane
 * has a row, a warp a part of it, a CTA 32 rows and a slice at a time: as many warps as a slice has parts, and the 32
 * rows' parts are joined in order in shared memory. Rows of a warp lie far apart in memory, but a lane takes 16 bytes
 * of its own and the rest of the line comes from the L1 cache in its next turns.
 */
#include <cuda_fp16.h>

#include "ops/cuda/fast_linear.cuh"

enum {
  FLOATS_WARPS = 8, /* the most parts of a slice */
  FLOATS_ROWS = 32,
};

/* Eight weights at k .. k + 7 of a row, which begins at element `at` of data; `whole`: rows are whole 16 bytes. */
static __device__ void load_dense8(const ops_weight &w, int64_t at, bool whole, float v[8])
{
  if (w.stored == DT_F32) {
    if (whole) {
      float4 a = __ldg((const float4 *)(w.data + 4 * at)), b = __ldg((const float4 *)(w.data + 4 * at) + 1);
      v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
      return;
    }
    for (int i = 0; i < 8; i++)
      v[i] = ((const float *)w.data)[at + i];
    return;
  }
  uint32_t pairs[4];
  if (whole) {
    uint4 u = __ldg((const uint4 *)(w.data + 2 * at));
    pairs[0] = u.x, pairs[1] = u.y, pairs[2] = u.z, pairs[3] = u.w;
  } else {
    const uint16_t *halves = (const uint16_t *)w.data + at;
    for (int i = 0; i < 4; i++)
      pairs[i] = halves[2 * i] | (uint32_t)halves[2 * i + 1] << 16;
  }
#pragma unroll
  for (int i = 0; i < 8; i++) {
    uint16_t half = (uint16_t)(pairs[i / 2] >> (16 * (i % 2)));
    v[i] = w.stored == DT_BF16 ? bf16_to_f32(half) : __half2float(__ushort_as_half(half));
  }
}

static __device__ float load_dense1(const ops_weight &w, int64_t at)
{
  if (w.stored == DT_F32)
    return ((const float *)w.data)[at];
  uint16_t half = ((const uint16_t *)w.data)[at];
  return w.stored == DT_BF16 ? bf16_to_f32(half) : __half2float(__ushort_as_half(half));
}

static __device__ void load_inputs8(const float *x, bool whole, float v[8])
{
  if (whole) {
    float4 a = ((const float4 *)x)[0], b = ((const float4 *)x)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    return;
  }
  for (int i = 0; i < 8; i++)
    v[i] = x[i];
}

template <int TOKENS>
static __device__ void dense_part(const ops_weight &w, int64_t n, int64_t from, int64_t to,
                                  const float *const x[TOKENS], float part[TOKENS])
{
  bool whole = w.k % 8 == 0;
  int64_t k = from;
#pragma unroll 4
  for (; k + 8 <= to; k += 8) {
    float weights[8];
    load_dense8(w, n * w.k + k, whole, weights);
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
      float v[8];
      load_inputs8(x[t] + k, whole, v);
#pragma unroll
      for (int i = 0; i < 8; i++)
        part[t] = fmaf(v[i], weights[i], part[t]);
    }
  }
  for (; k < to; k++) {
    float weight = load_dense1(w, n * w.k + k);
    for (int t = 0; t < TOKENS; t++)
      part[t] = fmaf(x[t][k], weight, part[t]);
  }
}

/* ref_fp_value without its table: fp4 (e2m1) and fp8 (e4m3) are float16 numbers, shifted and too small by a power of
 * two, subnormal ones too. */
static __device__ float fp_value(int bits, uint32_t code)
{
  if (bits == 4)
    return __half2float(__ushort_as_half((unsigned short)((code & 7) << 9 | (code & 8) << 12))) * 16384.0f;
  return __half2float(__ushort_as_half((unsigned short)((code & 127) << 7 | (code & 128) << 8))) * 256.0f;
}

/* Groups are 16 or 32 inputs: words of 4 or 8 codes. */
template <int TOKENS>
static __device__ void fp_part(const ops_weight &w, int64_t n, int64_t from, int64_t to, const float *const x[TOKENS],
                               float part[TOKENS])
{
  const uint32_t *row = (const uint32_t *)(w.data + n * ref_row_bytes(&w));
  int codes = 32 / w.bits; /* a word */
  for (int64_t k = from; k < to; k += w.group) {
    float group[TOKENS] = {};
    for (int64_t i = k; i < k + w.group; i += codes) {
      uint32_t word = __ldg(row + i / codes);
      for (int j = 0; j < codes; j++) {
        float value = fp_value(w.bits, word >> (j * w.bits));
#pragma unroll
        for (int t = 0; t < TOKENS; t++)
          group[t] = fmaf(x[t][i + j], value, group[t]);
      }
    }
    float scale = ref_fp_scale(&w, w.scales[(n * w.k + k) / w.group]);
#pragma unroll
    for (int t = 0; t < TOKENS; t++)
      part[t] = fmaf(scale, group[t], part[t]);
  }
}

template <int TOKENS>
static __global__ void __launch_bounds__(FLOATS_WARPS * 32)
    linear_floats(ops_weight w, const float *x, int tokens, fast_output out)
{
  __shared__ float shared_parts[FLOATS_WARPS][TOKENS][FLOATS_ROWS];
  int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  int64_t n = (int64_t)blockIdx.x * FLOATS_ROWS + lane, row = n < w.n ? n : w.n - 1;
  int first = (int)blockIdx.y * TOKENS;
  const float *inputs[TOKENS];
  for (int t = 0; t < TOKENS; t++)
    inputs[t] = x + min(first + t, tokens - 1) * w.k;
  cuda_release_next();
  cuda_await();
  int64_t slice_length = fast_slice(w.k) * FAST_PART;
  float total = 0; /* of row `lane` and token `warp` */
  for (int64_t s = 0; s < w.k; s += slice_length) {
    int64_t end = min(s + slice_length, w.k), from = s + warp * FAST_PART;
    if (from < end) {
      float part[TOKENS] = {};
      int64_t to = min(from + FAST_PART, end);
      if (w.quant == Q_NONE)
        dense_part<TOKENS>(w, row, from, to, inputs, part);
      else
        fp_part<TOKENS>(w, row, from, to, inputs, part);
      for (int t = 0; t < TOKENS; t++)
        shared_parts[warp][t][lane] = part[t];
    }
    __syncthreads();
    if (warp < TOKENS) {
      float slice = 0;
      for (int p = 0; s + p * FAST_PART < end; p++)
        slice += shared_parts[p][warp][lane];
      total += slice;
    }
    __syncthreads();
  }
  if (warp < TOKENS && first + warp < tokens && n < w.n)
    fast_store(out, w.n, first + warp, n, total);
}

void fast_linear_floats(cuda_context *cx, const op_linear *a, int i, int tokens)
{
  const ops_weight *w = &cuda_of(a->w[i])->shape;
  int tile = tokens == 1 ? 1 : 4;
  dim3 grid((unsigned)cuda_ceil(w->n, FLOATS_ROWS), (unsigned)cuda_ceil(tokens, tile));
  cuda_launch(cx, true, tile == 1 ? linear_floats<1> : linear_floats<4>, grid, FLOATS_WARPS * 32, 0, *w, a->x, tokens,
              fast_output_of(a, i));
}
