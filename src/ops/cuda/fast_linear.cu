/* fast_linear.cu - linears of numerics fast: which kernel takes which matrix.
 *
 * Inputs are quantised once for all outputs of a record, into scratch. Matrices in the packed layout go together, as
 * one kernel (several outputs are one longer list of tiles); what is left goes output by output.
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_pack.cuh"

/* From so many tokens on a prompt's kernel is faster than that of steps. */
enum { GEMM_FROM = 65 };

void cuda_fast_setup(cuda_context *cx)
{
  fast_step_setup(cx);
  fast_cluster_setup(cx);
  fast_gemm_setup(cx);
}

/* The inputs as they are. */
static fast_around plain(const op_linear *a)
{
  fast_around around = {};
  around.x = a->x;
  around.x_stride = around.k = a->w[0]->k;
  return around;
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

/* All affine outputs of a record. Every kernel gives the same bits. A step's kernel quantises for itself; for the
 * others that is done once, into scratch. */
static void affine_outputs(cuda_context *cx, const op_linear *a, int tokens)
{
  fast_inputs in = fast_inputs_at(cx->scratch, tokens, a->w[0]->k, NULL);
  fast_around around = plain(a);
  unsigned done = 0;
  bool quantised = false;
  for (int i = 0; i < a->outputs; i++) {
    if (a->w[i]->quant != Q_AFFINE || (done >> i & 1))
      continue;
    fast_matrices m = {};
    if (packed(a, i))
      m = alike(a, i, &done);
    if (m.count && tokens <= STEP_TOKENS && fast_linear_step(cx, m, around, tokens))
      continue;
    if (!quantised)
      fast_quantise_inputs(cx, a->x, a->w[0]->k, in);
    quantised = true;
    if (!m.count)
      fast_linear_affine(cx, a, i, in);
    else if (tokens >= GEMM_FROM && fast_gemm_fits(cx))
      fast_linear_gemm(cx, m, in);
    else if (!fast_linear_cluster(cx, m, in))
      fast_linear_few(cx, m, in);
  }
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
  affine_outputs(cx, a, tokens);
}

/* ---- norm and gate in the same kernel ---- */

static bool overlap(const float *a, int64_t a_count, const float *b, int64_t b_count)
{
  return a < b + b_count && b < a + a_count;
}

/* One kernel for all outputs. Other CTAs may still read x when the first one writes: nothing may be written over it. */
static bool alone_in_kernel(const op_linear *a, const float *x, int64_t x_stride, int tokens, fast_matrices *m)
{
  unsigned done = 0;
  for (int i = 0; i < a->outputs; i++)
    if (!packed(a, i) || overlap(a->y[i], a->w[i]->n * tokens, x, x_stride * tokens))
      return false;
  *m = alike(a, 0, &done);
  return m->count == a->outputs;
}

void cuda_fast_norm_linear(cuda_context *cx, const op_rms_norm *norm, const op_linear *a, const op_glu *glu, int tokens,
                           bool keep)
{
  fast_around around = plain(a);
  fast_matrices m;
  bool gate = glu && glu->act == ACT_SILU && a->outputs == 2 && a->w[0]->n == a->w[1]->n && glu->gate == a->y[0] &&
              glu->up == a->y[1];
  if (norm) {
    around.x = norm->x;
    around.x_stride = norm->x_stride;
    around.norm = true;
    around.norm_w = norm->w;
    around.eps = norm->eps;
    around.kept = keep ? norm->y : NULL;
    around.kept_stride = norm->y_stride;
  }
  if (gate)
    around.gated = glu->y;
  bool fits = tokens && tokens <= STEP_TOKENS && (!norm || (norm->count == 1 && norm->y == a->x)) &&
              alone_in_kernel(a, around.x, around.x_stride, tokens, &m);
  if (fits && around.kept)
    fits = !overlap(around.kept, around.kept_stride * tokens, around.x, around.x_stride * tokens);
  if (fits && gate)
    fits = !overlap(glu->y, a->w[0]->n * tokens, around.x, around.x_stride * tokens);
  fits = fits && fast_linear_step(cx, m, around, tokens);
  if (!fits && norm)
    cuda_rms_norm(cx, norm, tokens);
  if (!fits)
    cuda_fast_linear(cx, a, tokens);
  if (glu && !(fits && gate))
    cuda_glu(cx, glu, tokens);
}

size_t cuda_fast_linear_scratch(const cuda_context *cx, int tokens, int64_t k)
{
  size_t bytes, exact = cuda_exact_linear_scratch(cx, tokens, k);
  fast_inputs_at(NULL, tokens, k, &bytes);
  return bytes > exact ? bytes : exact;
}
