/* fast_linear.cu - linears of numerics fast: which kernel takes which matrix.
 *
 *     packed, 1 to 4 tokens, 5 to 8 of large matrices     fast_linear_step.cu
 *     packed, more                                        fast_linear_few.cu
 *     packed, many outputs in all                         fast_linear_gemm.cu
 *     affine as stored                                    fast_linear_any.cu
 *     dense, fp modes                                     fast_linear_floats.cu
 *     ternary                                             exact's
 *
 * Inputs of affine matrices are quantised once for all outputs of a record, into scratch. Packed matrices go together,
 * as one kernel (several outputs are one longer list of tiles); what is left goes output by output. Every kernel gives
 * the same bits, so the limits below are but what was faster on an H200.
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_pack.cuh"

enum {
  STEP_NARROW = 4,    /* tokens that a step's kernel is best for */
  STEP_MOST = 8,      /* tokens that it may have, */
  STEP_FROM = 64,     /* from so many rows a processor on */
  FEW_BEST = 16,      /* tokens for which a prompt's kernel is never better */
  GEMM_FROM = 7000,   /* it is from so many outputs a processor on; */
  GEMM_LARGE = 12000, /* a large tile of it from so many */
};

void cuda_fast_setup(cuda_context *cx)
{
  fast_inputs_setup(cx);
  fast_step_setup(cx);
  fast_few_setup(cx);
  fast_gemm_setup(cx);
}

/* The inputs as they are. */
static fast_source plain(const op_linear *a)
{
  fast_source source = {};
  source.x = a->x;
  source.x_stride = source.k = a->w[0]->k;
  return source;
}

/* What the norm makes of its inputs. */
static fast_source normed(const op_rms_norm *norm, bool keep)
{
  fast_source source = {};
  source.x = norm->x;
  source.x_stride = norm->x_stride;
  source.k = norm->width;
  source.norm = true;
  source.norm_w = norm->w;
  source.eps = norm->eps;
  source.reciprocal = (float)(1.0 / norm->width);
  source.kept = keep ? norm->y : NULL;
  source.kept_stride = norm->y_stride;
  return source;
}

/* Output i of a record goes with others of the packed layout. */
static bool packed(const op_linear *a, int i)
{
  return a->w[i]->quant == Q_AFFINE && cuda_of(a->w[i])->layout == CUDA_FAST_4;
}

/* The packed outputs from i on whose kernel is that of output i. */
static fast_matrices alike(const op_linear *a, int i, unsigned *done)
{
  const ops_weight *like = &cuda_of(a->w[i])->shape;
  fast_matrices m = {};
  m.parts = (int)fast_parts(like->k);
  m.stored = like->stored;
  m.group = like->group;
  for (; i < a->outputs; i++) {
    const ops_weight *w = &cuda_of(a->w[i])->shape;
    if (!packed(a, i) || w->stored != like->stored || w->group != like->group)
      continue;
    *done |= 1u << i;
    m.of[m.count].chunks = w->data;
    m.of[m.count].rows = (int)w->n;
    m.of[m.count].out = fast_output_of(a, i);
    m.count++;
  }
  return m;
}

/* The tokens of a tile of the prompts' kernel (fast_linear_gemm.cu); 0: steps' kernels are faster. A CTA of that one
 * takes as long alone as among others, so there is much to do before it pays; then small tiles leave fewer processors
 * idle at the end. Where k has several slices, a large tile's shared memory is well used and small ones' is not. */
static int gemm_tile(const cuda_context *cx, const fast_matrices &m, int tokens)
{
  int64_t rows = 0;
  for (int i = 0; i < m.count; i++)
    rows += m.of[i].rows;
  if (!fast_gemm_fits(cx) || tokens <= FEW_BEST || rows * tokens < (int64_t)GEMM_FROM * cx->processors)
    return 0;
  if (fast_slice((int64_t)m.parts * FAST_PART) == m.parts)
    return 32;
  return rows * tokens < (int64_t)GEMM_LARGE * cx->processors ? 64 : 128;
}

/* The step's kernel stays on its processor, and needs something to do there. */
static bool stays(const cuda_context *cx, const fast_matrices &m, int tokens)
{
  int64_t rows = 0;
  for (int i = 0; i < m.count; i++)
    rows += m.of[i].rows;
  return tokens <= STEP_NARROW || (tokens <= STEP_MOST && rows >= (int64_t)STEP_FROM * cx->processors);
}

/* Quantises into scratch with room for `least` tokens, unless that is done. */
static const fast_inputs &quantised(cuda_context *cx, const fast_source &source, int tokens, int least, fast_inputs *in)
{
  if (in->room != fast_room(tokens, least)) {
    *in = fast_inputs_at(cx->scratch, tokens, least, source.k, NULL);
    fast_quantise_inputs(cx, source, *in);
  }
  return *in;
}

/* Packed matrices of a few tokens: false, and nothing done, where that is not for the kernel that stays. */
static bool step(cuda_context *cx, const fast_matrices &m, const fast_source &source, int tokens, float *gated,
                 fast_inputs *in)
{
  if (!stays(cx, m, tokens))
    return false;
  if (tokens == 1)
    return fast_linear_step(cx, m, source, NULL, gated);
  return fast_linear_step(cx, m, source, &quantised(cx, source, tokens, 1, in), gated);
}

/* The affine outputs of a record. Whether the gate is done, too. */
static bool affine_outputs(cuda_context *cx, const op_linear *a, const fast_source &source, int tokens, float *gated)
{
  fast_inputs in = {}; /* what is quantised */
  unsigned done = 0;
  for (int i = 0; i < a->outputs; i++) {
    if (a->w[i]->quant != Q_AFFINE || (done >> i & 1))
      continue;
    if (!packed(a, i)) {
      fast_linear_affine(cx, a, i, quantised(cx, source, tokens, 1, &in));
      continue;
    }
    fast_matrices m = alike(a, i, &done);
    if (step(cx, m, source, tokens, gated, &in))
      continue;
    int tile = gemm_tile(cx, m, tokens);
    quantised(cx, source, tokens, FAST_FEW_LEAST, &in);
    if (tile)
      fast_linear_gemm(cx, m, in, tile);
    else
      fast_linear_few(cx, m, in);
    gated = NULL; /* these kernels have no gate */
  }
  return gated != NULL;
}

/* y[0] may be the residual; no output is the input, so their order means nothing. Ternary matrices go first: their
 * kernels may use the scratch that then has the quantised inputs. */
void cuda_fast_linear(cuda_context *cx, const op_linear *a, int tokens)
{
  if (tokens == 0)
    return;
  for (int i = 0; i < a->outputs; i++) {
    if (a->w[i]->quant == Q_TERNARY) {
      op_record all = {};
      all.linear = *a;
      op_record alone = ops_linear_alone(&all, i);
      cuda_exact_linear(cx, &alone.linear, tokens);
    } else if (a->w[i]->quant != Q_AFFINE) {
      fast_linear_floats(cx, a, i, tokens);
    }
  }
  affine_outputs(cx, a, plain(a), tokens, NULL);
}

/* ---- norm and gate in the same kernels ---- */

static bool overlap(const float *a, int64_t a_count, const float *b, int64_t b_count)
{
  return a < b + b_count && b < a + a_count;
}

/* The norm's rows can be quantised as they are normed. A CTA may still read x when another writes its outputs: nothing
 * may be written over it. */
static bool takes_norm(const cuda_context *cx, const op_rms_norm *norm, const op_linear *a, int tokens, bool keep)
{
  int64_t x_count = norm->x_stride * tokens;
  if (norm->count != 1 || norm->width != a->w[0]->k || norm->y != a->x || norm->y_stride != norm->width ||
      norm->x_stride % 4 || !fast_norm_fits(cx, norm->width) ||
      (keep && overlap(norm->y, norm->y_stride * tokens, norm->x, x_count)))
    return false;
  for (int i = 0; i < a->outputs; i++)
    if (a->w[i]->quant != Q_AFFINE || overlap(a->y[i], a->w[i]->n * tokens, norm->x, x_count))
      return false;
  return true;
}

/* The gate's two inputs are the outputs, by one kernel. */
static bool takes_gate(const op_linear *a, const op_glu *glu, const float *x, int64_t x_count, int tokens)
{
  unsigned done = 0;
  return glu->act == ACT_SILU && a->outputs == 2 && a->w[0]->n == a->w[1]->n && glu->gate == a->y[0] &&
         glu->up == a->y[1] && packed(a, 0) && packed(a, 1) && alike(a, 0, &done).count == 2 &&
         !overlap(glu->y, a->w[0]->n * tokens, x, x_count);
}

void cuda_fast_norm_linear(cuda_context *cx, const op_rms_norm *norm, const op_linear *a, const op_glu *glu, int tokens,
                           bool keep)
{
  if (tokens == 0)
    return;
  bool with_norm = norm && takes_norm(cx, norm, a, tokens, keep);
  fast_source source = with_norm ? normed(norm, keep) : plain(a);
  bool with_gate = glu && takes_gate(a, glu, source.x, source.x_stride * tokens, tokens);
  if (norm && !with_norm)
    cuda_rms_norm(cx, norm, tokens);
  if (with_norm || with_gate)
    with_gate = affine_outputs(cx, a, source, tokens, with_gate ? glu->y : NULL);
  else
    cuda_fast_linear(cx, a, tokens);
  if (glu && !with_gate)
    cuda_glu(cx, glu, tokens);
}

size_t cuda_fast_linear_scratch(const cuda_context *cx, int tokens, int64_t k)
{
  size_t bytes, exact = cuda_exact_linear_scratch(cx, tokens, k);
  fast_inputs_at(NULL, tokens, FAST_FEW_LEAST, k, &bytes);
  return bytes > exact ? bytes : exact;
}
