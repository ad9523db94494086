/* exact_pack.cu - making CUDA_EXACT_4 (exact_pack.cuh) from a matrix as stored, in device memory: once, at open. */
#include "ops/cuda/exact_pack.cuh"

bool cuda_exact_packs(const ops_weight *w)
{
  return w->quant == Q_AFFINE && w->bits == 4 && w->stored != DT_F32 && w->k % EXACT4_BODY == 0 &&
         (w->group == 32 || w->group == 64 || w->group == 128);
}

size_t cuda_exact_pack_bytes(const ops_weight *w)
{
  return (size_t)cuda_ceil(w->n, EXACT4_ROWS) * (size_t)exact4_tile_bytes(exact4_log2(w->group), w->k);
}

/* A thread has 32 k of a row: one chunk, and the word of the group if it starts there. */
static __global__ void pack_kernel(ops_weight w, uint8_t *to, unsigned *inexact)
{
  int64_t chunks = w.k / 32, rows = cuda_ceil(w.n, EXACT4_ROWS) * EXACT4_ROWS;
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  int64_t tile = i / (chunks * EXACT4_ROWS), k = i / EXACT4_ROWS % chunks * 32;
  int lane = (int)(i % EXACT4_ROWS), group = exact4_log2(w.group);
  int64_t n = tile * EXACT4_ROWS + lane;
  if (n >= rows)
    return;
  uint8_t *base = to + tile * exact4_tile_bytes(group, w.k);
  uint32_t word[4] = {0, 0, 0, 0}, pair = 0;
  bool there = n < w.n;
  if (there) {
    uint4 four = *(const uint4 *)(w.data + (n * w.k + k) / 2); /* rows are multiples of 32 bytes */
    word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
  }
  for (int j = 0; j < 4; j++)
    word[j] = __funnelshift_l(word[j], word[j], 7);
  *(uint4 *)(base + exact4_chunk(group, k) + lane * 16) = make_uint4(word[0], word[1], word[2], word[3]);
  if (k % w.group)
    return;
  if (there) {
    int64_t g = (n * w.k + k) / w.group;
    pair = exact_raw(w.stored, w.scales, g) | exact_raw(w.stored, w.biases, g) << 16;
    if (!exact4_quick(exact4_scale(w.stored, pair), exact4_bias(w.stored, pair)))
      atomicAdd(inexact, 1);
  }
  ((uint32_t *)(base + exact4_group(group, k)))[lane] = pair;
}

void cuda_exact_pack(cuda_context *cx, const cuda_matrix *stored, uint8_t *to, unsigned *inexact)
{
  const ops_weight *w = &stored->shape;
  int64_t threads = cuda_ceil(w->n, EXACT4_ROWS) * EXACT4_ROWS * (w->k / 32);
  cuda_launch(cx, false, pack_kernel, dim3((unsigned)cuda_ceil(threads, 256)), dim3(256), 0, *w, to, inexact);
}
