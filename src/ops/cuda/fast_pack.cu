/* fast_pack.cu - makes the layout CUDA_FAST_4 (fast_pack.cuh) from a matrix as stored, on the device: a CTA a chunk. */
#include "ops/cuda/fast_pack.cuh"

bool cuda_fast_packs(const ops_weight *w)
{
  return w->quant == Q_AFFINE && w->bits == 4 && (w->stored == DT_BF16 || w->stored == DT_F16) &&
         (w->group == 32 || w->group == 64 || w->group == 128) && w->k % FAST_BLOCK == 0 && w->k <= FAST_PACK_MOST;
}

size_t cuda_fast_pack_bytes(const ops_weight *w)
{
  return (size_t)(cuda_ceil(w->n, FAST_TILE) * fast_parts(w->k)) * (size_t)fast_chunk_bytes(w->group);
}

static __global__ void __launch_bounds__(256) pack(ops_weight w, uint32_t *to)
{
  int chunk_words = fast_chunk_bytes(w.group) / 4, part_groups = FAST_PART / w.group;
  int64_t parts = fast_parts(w.k), first_row = blockIdx.x / parts * FAST_TILE, part = blockIdx.x % parts;
  uint32_t *chunk = to + (int64_t)blockIdx.x * chunk_words;
  for (int i = (int)threadIdx.x; i < chunk_words; i += (int)blockDim.x) {
    uint32_t value = 0;
    if (i < FAST_CHUNK_CODES / 4) {
      int block = i / (FAST_BLOCK_BYTES / 4), lane = i / 4 % 32;
      int word = lane % 4 + i % 2 * 4;
      int64_t n = first_row + lane / 4 + i / 2 % 2 * 8, k = part * FAST_PART + block * FAST_BLOCK + word * 8;
      if (n < w.n && k < w.k)
        value = ((const uint32_t *)w.data)[(n * w.k + k) / 8];
    } else {
      int pair = i - FAST_CHUNK_CODES / 4;
      int64_t n = first_row + pair / part_groups, g = part * part_groups + pair % part_groups;
      int64_t at = n * (w.k / w.group) + g;
      if (n < w.n && g < w.k / w.group)
        value = ((const uint16_t *)w.scales)[at] | (uint32_t)((const uint16_t *)w.biases)[at] << 16;
    }
    chunk[i] = value;
  }
}

void cuda_fast_pack(cuda_context *cx, const cuda_matrix *stored, uint8_t *to)
{
  const ops_weight *w = &stored->shape;
  cuda_launch(cx, false, pack, (unsigned)(cuda_ceil(w->n, FAST_TILE) * fast_parts(w->k)), 256, 0, *w, (uint32_t *)to);
}
