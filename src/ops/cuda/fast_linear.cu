/* fast_linear.cu - linears of numerics fast: which kernel takes which matrix.
 *
 * Inputs are quantised once for all outputs of a record, into scratch. Matrices in the packed layout go together, as
 * one kernel (several outputs are one longer list of tiles); what is left goes output by output.
 */
#include "ops/cuda/fast_linear.cuh"
#include "ops/cuda/fast_pack.cuh"

/* From so many tokens on a prompt's kernel is faster than that of steps. */
enum { GEMM_FROM = 65 };

/* By tokens. Every kernel gives the same bits. */
static void fast_linear_packed(cuda_context *cx, const fast_matrices &m, const fast_inputs &in)
{
  if (in.tokens <= 4)
    fast_linear_step(cx, m, in);
  else if (in.tokens < GEMM_FROM || !fast_gemm_fits(cx))
    fast_linear_few(cx, m, in);
  else
    fast_linear_gemm(cx, m, in);
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

/* Ternary matrices go first: their kernels may use the scratch that then has the quantised inputs. y[0] may be the
 * residual; no output is the input or another's residual, so the order means nothing. */
void cuda_fast_linear(cuda_context *cx, const op_linear *a, int tokens)
{
  unsigned done = 0;
  bool affine = false;
  if (tokens == 0)
    return;
  for (int i = 0; i < a->outputs; i++) {
    affine |= a->w[i]->quant == Q_AFFINE;
    if (a->w[i]->quant == Q_AFFINE)
      continue;
    done |= 1u << i;
    if (a->w[i]->quant == Q_TERNARY) {
      op_record all = {};
      all.linear = *a;
      op_record alone = ops_linear_alone(&all, i);
      cuda_exact_linear(cx, &alone.linear, tokens);
    } else {
      fast_linear_floats(cx, a, i, tokens);
    }
  }
  if (!affine)
    return;
  fast_inputs in = fast_inputs_at(cx->scratch, tokens, a->w[0]->k, NULL);
  fast_quantise_inputs(cx, a->x, a->w[0]->k, in);
  for (int i = 0; i < a->outputs; i++) {
    if (done >> i & 1)
      continue;
    if (packed(a, i))
      fast_linear_packed(cx, alike(a, i, &done), in);
    else
      fast_linear_affine(cx, a, i, in);
  }
}

size_t cuda_fast_linear_scratch(const cuda_context *cx, int tokens, int64_t k)
{
  size_t bytes, exact = cuda_exact_linear_scratch(cx, tokens, k);
  fast_inputs_at(NULL, tokens, k, &bytes);
  return bytes > exact ? bytes : exact;
}
