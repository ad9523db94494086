/* exact_linear.cu - matrix products of numerics exact: from a record to jobs, and which kernel family takes one.
 *
 * Outputs that have a format, a group and a type of scales in common are one job and one launch; a record of unlike
 * ones (a v matrix with more bits than q and k) is several. No family needs scratch.
 */
#include "ops/cuda/exact_format.cuh"

/* What lanes with rows of their own do in a given time, in percent of the largest tile of exact_gemm.cu. */
enum { ROWS_WORTH = 25, FOUR_WORTH = 50 };

/* Whether tiles are the faster way. The others take any number of tokens, 4 or more at a time. */
static bool tiles_win(const cuda_context *cx, exact_format format, exact_job *job)
{
  int64_t tiles = cuda_ceil(exact_blocks(job, 32), cx->processors), tokens = cuda_ceil(job->tokens, 4) * 4;
  int64_t cost = tiles * 32 * tokens * 100 / 128 * 100 / (format == EXACT_PACKED ? FOUR_WORTH : ROWS_WORTH);
  return job->tokens > 8 && exact_gemm_cost(cx, format, job) < cost;
}

static exact_format format_of(const cuda_matrix *m)
{
  const ops_weight *w = &m->shape;
  if (m->layout == CUDA_EXACT_4)
    return EXACT_PACKED;
  switch (w->quant) {
  case Q_NONE:
    return w->stored == DT_F32 ? EXACT_F32 : w->stored == DT_BF16 ? EXACT_BF16 : EXACT_F16;
  case Q_AFFINE:
    for (int f = EXACT_A2; f < EXACT_A8; f++)
      if (exact_bits(f) == w->bits)
        return (exact_format)f;
    return EXACT_A8;
  case Q_MXFP4:
    return EXACT_MXFP4;
  case Q_MXFP8:
    return EXACT_MXFP8;
  case Q_NVFP4:
    return EXACT_NVFP4;
  default:
    return EXACT_TERNARY;
  }
}

static bool alike(const cuda_matrix *a, const cuda_matrix *b)
{
  return format_of(a) == format_of(b) && a->shape.group == b->shape.group && a->shape.stored == b->shape.stored;
}

static exact_output output_of(const op_linear *a, int i, const cuda_matrix *m)
{
  const ops_weight *w = &m->shape;
  exact_output out = {};
  out.data = w->data, out.scales = w->scales, out.biases = w->biases;
  out.bias = a->bias[i];
  out.residual = i == 0 ? a->residual : NULL;
  out.y = a->y[i];
  out.n = w->n;
  out.byte_rows = cuda_ceil(w->n, 4);
  out.factor = w->factor;
  out.turned = w->quant == Q_NONE && w->turned && a->bias[i];
  return out;
}

static int log2_of(int group)
{
  int log2 = 0;
  while (group > 1 << log2)
    log2++;
  return log2;
}

/* The job of output i and of those alike that follow it; returns how many. */
static int job_of(exact_job *job, const op_linear *a, int i, int tokens)
{
  const cuda_matrix *first = cuda_of(a->w[i]);
  exact_format format = format_of(first);
  job->x = a->x;
  job->k = first->shape.k;
  job->row_bytes = job->k * exact_bits(format) / 8;
  job->tokens = tokens;
  job->group_log2 = log2_of(first->shape.group);
  job->stored = first->shape.stored;
  job->x_by_16 = job->k % 4 == 0 && (uintptr_t)a->x % 16 == 0;
  job->w_by_16 = job->row_bytes % 16 == 0;
  job->shortcut = true;
  job->one = 0x3f800000;
  int count = 0;
  for (; i + count < a->outputs && alike(first, cuda_of(a->w[i + count])); count++) {
    const cuda_matrix *m = cuda_of(a->w[i + count]);
    job->out[count] = output_of(a, i + count, m);
    job->shortcut = job->shortcut && m->shortcut;
  }
  job->outputs = count;
  return count;
}

static void four(cuda_context *cx, exact_job *job)
{
  if (!exact_one_launch(cx, job))
    exact_four_launch(cx, job);
}

static void rows(cuda_context *cx, exact_format format, exact_job *job)
{
  if (!exact_rows_one_launch(cx, format, job))
    exact_rows_launch(cx, format, job);
}

void cuda_exact_linear(cuda_context *cx, const op_linear *a, int tokens)
{
  if (tokens == 0)
    return;
  for (int i = 0; i < a->outputs;) {
    exact_job job = {};
    exact_format format = format_of(cuda_of(a->w[i]));
    i += job_of(&job, a, i, tokens);
    if (tiles_win(cx, format, &job))
      exact_gemm_launch(cx, format, &job);
    else if (format == EXACT_PACKED)
      four(cx, &job);
    else
      rows(cx, format, &job);
  }
}

size_t cuda_exact_linear_scratch(const cuda_context *cx, int tokens, int64_t k)
{
  (void)cx, (void)tokens, (void)k;
  return 0;
}

void cuda_exact_setup(cuda_context *cx)
{
  exact_rows_setup(cx);
  exact_gemm_setup(cx);
  exact_four_setup(cx);
  exact_one_setup(cx);
  exact_rows_one_setup(cx);
}
