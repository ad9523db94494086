/* embed.cu - rows of the embedding table, out of whichever layout it has: it may be the head's matrix too.
 * Formula: ref_embed in ops/ref/ref.c. A table of the fp modes gives bf16 in every mode of numerics, and what is done
 * with its rows here rounds to that. */
#include "ops/cuda/exact_pack.cuh"
#include "ops/cuda/fast_pack.cuh"

enum { THREADS = 256 };

static __device__ float value_of(const cuda_matrix &m, int64_t row, int64_t k)
{
  const ops_weight *w = &m.shape;
  if (m.layout == CUDA_EXACT_4)
    return exact4_value(*w, row, k);
  if (m.layout == CUDA_FAST_4)
    return (float)fast_packed_code(*w, row, k) * fast_packed_scale(*w, row, k) + fast_packed_bias(*w, row, k);
  if (w->quant == Q_NONE)
    return ops_load(w->stored, w->data, row * w->k + k);
  int64_t g = row * (w->k / w->group) + k / w->group;
  uint32_t code = ref_code(w->data + row * ref_row_bytes(w), w->bits, k);
  if (w->quant != Q_AFFINE)
    return ops_round(DT_BF16, ref_fp_value(w, code) * ref_fp_scale(w, w->scales[g]));
  return (float)code * ops_load(w->stored, w->scales, g) + ops_load(w->stored, w->biases, g);
}

static __global__ void embed(op_embed a, cuda_matrix table, cuda_matrix positions, bool add_positions, cuda_step s,
                             const float *given, const uint8_t *use)
{
  int64_t width = table.shape.k, n = s.tokens * width;
  cuda_release_next();
  cuda_await();
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) {
    int64_t t = i / width, k = i % width;
    float x = use && use[t] ? given[i] : value_of(table, s.ids[t], k);
    if (use && use[t])
      x = ops_round(a.type, x);
    if (a.scale != 1.0f)
      x = ops_round(a.type, x * a.scale);
    a.out[i] = add_positions ? ops_round(a.type, x + value_of(positions, s.token[t].position, k)) : x;
  }
}

void cuda_embed(cuda_context *cx, const op_embed *a, const cuda_step *s, const float *given, const uint8_t *use)
{
  const cuda_matrix *table = cuda_of(a->table), *positions = a->positions ? cuda_of(a->positions) : table;
  int64_t blocks = cuda_ceil((int64_t)s->tokens * a->table->k, THREADS), most = (int64_t)cx->processors * 16;
  cuda_launch(cx, false, embed, dim3((unsigned)(blocks < most ? blocks : most)), THREADS, 0, *a, *table, *positions,
              a->positions != NULL, *s, given, use);
}
