/* records.cu - from op records to launches: one by one, or several at once where there is a kernel for them.
 *
 * The records are the definition; what is launched in place of several has the same bits. A fusion may leave a value
 * unwritten that nobody reads but the fused: so who reads it is looked up here, in the records that follow.
 */
#include "ops/cuda/host.cuh"

static bool grow_alike(const op_rope *a, const op_rope *b)
{
  return a->ntk_from == b->ntk_from && a->ntk_base == b->ntk_base && a->ntk_scale == b->ntk_scale &&
         a->dims == b->dims && a->q_heads == b->q_heads && a->k_heads == b->k_heads;
}

int cuda_rates_of(const cuda_rates *r, const op_rope *a)
{
  for (int i = 0; a->ntk_from && i < r->n; i++)
    if (grow_alike(r->rope[i], a))
      return i;
  return -1;
}

static const float *rates_for(const cuda_run *run, const op_rope *a)
{
  int i = cuda_rates_of(&run->rates, a);
  return i < 0 ? NULL : run->rate_values + 2 * (size_t)i * (size_t)run->step.tokens;
}

/* ---- one by one ---- */

static void run_record(cuda_run *run, const op_record *r)
{
  cuda_context *cx = &run->s->cx;
  const cuda_step *step = &run->step;
  int tokens = r->wanted ? step->wanted : step->tokens;
  switch (r->kind) {
  case OP_embed:
    return cuda_embed(cx, &r->embed, step, run->given, run->use);
  case OP_rms_norm:
    return cuda_rms_norm(cx, &r->rms_norm, tokens);
  case OP_layer_norm:
    return cuda_layer_norm(cx, &r->layer_norm, tokens);
  case OP_linear:
    return cx->fast ? cuda_fast_linear(cx, &r->linear, tokens) : cuda_exact_linear(cx, &r->linear, tokens);
  case OP_regroup:
    return cuda_regroup(cx, &r->regroup, tokens);
  case OP_rope:
    return cuda_rope(cx, &r->rope, step, rates_for(run, &r->rope));
  case OP_temperature:
    return cuda_temperature(cx, &r->temperature, step);
  case OP_kv_append:
    return cuda_kv_append(cx, &r->kv_append, step);
  case OP_attention:
    return cx->fast ? cuda_fast_attention(cx, &r->attention, step) : cuda_exact_attention(cx, &r->attention, step);
  case OP_act:
    return cuda_act(cx, &r->act, tokens);
  case OP_glu:
    return cuda_glu(cx, &r->glu, tokens);
  case OP_scale:
    return cuda_scale(cx, &r->scale, tokens);
  case OP_softcap:
    return cuda_softcap(cx, &r->softcap, tokens);
  case OP_add:
    return cuda_add(cx, &r->add, tokens);
  case OP_select:
    return cuda_select(cx, &r->select, step);
  case OP_COUNT:
    return;
  }
}

/* ---- what can be run ---- */

static bool plain(const ops_kv_quant *q)
{
  return q->key_type == DT_F32 && q->value_type == DT_F32;
}

static bool takes_linear(const op_linear *a)
{
  bool all = !a->residual || a->residual_type == DT_F32;
  for (int i = 0; i < a->outputs; i++)
    all = all && a->product[i] == DT_F32 && a->type[i] == DT_F32;
  return all;
}

bool cuda_takes(const op_record *r)
{
  switch (r->kind) {
  case OP_rms_norm:
    return r->rms_norm.type == DT_F32;
  case OP_layer_norm:
    return r->layer_norm.normed == DT_F32 && r->layer_norm.type == DT_F32;
  case OP_linear:
    return takes_linear(&r->linear);
  case OP_rope:
    return r->rope.type == DT_F32;
  case OP_temperature:
    return r->temperature.type == DT_F32;
  case OP_kv_append:
    return plain(&r->kv_append.quant);
  case OP_attention:
    return r->attention.type == DT_F32 && r->attention.value_type == DT_F32 && r->attention.out_type == DT_F32 &&
           r->attention.score_type == DT_F32 && plain(&r->attention.quant);
  case OP_act:
    return r->act.x_type == DT_F32 && r->act.type == DT_F32;
  case OP_glu:
    return r->glu.gate_type == DT_F32 && r->glu.type == DT_F32;
  case OP_scale:
    return r->scale.type == DT_F32;
  case OP_softcap:
    return r->softcap.type == DT_F32;
  case OP_add:
    return r->add.type == DT_F32;
  case OP_embed: /* these round, or only copy */
  case OP_regroup:
  case OP_select:
  case OP_COUNT:
    break;
  }
  return true;
}

/* ---- who reads what ---- */

enum { MOST_INPUTS = 3 };

/* What a record reads of the step's values. */
static int inputs_of(const op_record *r, const float *in[MOST_INPUTS])
{
  int n = 0;
  switch (r->kind) {
  case OP_rms_norm:
    in[n++] = r->rms_norm.x;
    break;
  case OP_layer_norm:
    in[n++] = r->layer_norm.x;
    break;
  case OP_linear:
    in[n++] = r->linear.x;
    in[n++] = r->linear.residual;
    break;
  case OP_regroup:
    in[n++] = r->regroup.x;
    break;
  case OP_rope:
    in[n++] = r->rope.q;
    in[n++] = r->rope.k;
    break;
  case OP_temperature:
    in[n++] = r->temperature.q;
    break;
  case OP_kv_append:
    in[n++] = r->kv_append.k;
    in[n++] = r->kv_append.v;
    break;
  case OP_attention:
    in[n++] = r->attention.q;
    break;
  case OP_act:
    in[n++] = r->act.x;
    break;
  case OP_glu:
    in[n++] = r->glu.gate;
    in[n++] = r->glu.up;
    break;
  case OP_scale:
    in[n++] = r->scale.x;
    break;
  case OP_softcap:
    in[n++] = r->softcap.x;
    break;
  case OP_add:
    in[n++] = r->add.x;
    in[n++] = r->add.y;
    break;
  case OP_select:
    in[n++] = r->select.x;
    break;
  case OP_embed:
  case OP_COUNT:
    break;
  }
  return n;
}

/* Whether one of the records reads memory of values[n]. Where other values came to lie there since, the answer may be
 * yes for no. */
static bool read_by(const op_record *records, int count, const float *values, int64_t n)
{
  const float *in[MOST_INPUTS];
  for (int i = 0; i < count; i++)
    for (int k = inputs_of(&records[i], in); k--;)
      if (in[k] >= values && in[k] < values + n)
        return true;
  return false;
}

/* How many records from `at` on lie before one that writes the values anew, as a linear or a norm does. */
static int until_written(const op_record *records, int count, const float *values)
{
  for (int i = 0; i < count; i++) {
    const op_record *r = &records[i];
    if (r->kind == OP_rms_norm && r->rms_norm.y == values)
      return i + 1; /* it may read them first */
    for (int k = 0; r->kind == OP_linear && k < r->linear.outputs; k++)
      if (r->linear.y[k] == values)
        return i + 1;
  }
  return count;
}

static bool needed(const op_record *records, int count, const float *values, int64_t n)
{
  return read_by(records, until_written(records, count, values), values, n);
}

/* ---- fusions: each returns how many records it launched, 0: none ---- */

typedef int fusion(cuda_run *run, const op_record *r, int left);

static bool gates(const op_linear *a, const op_glu *glu)
{
  return a->outputs == 2 && !a->residual && glu->gate == a->y[0] && glu->up == a->y[1];
}

/* [norm] linear [gate] of numerics fast: inputs are normed and quantised in one go, the gate's result is all that is
 * written. */
static int norm_linear_gate(cuda_run *run, const op_record *r, int left)
{
  int n = 0;
  const op_rms_norm *norm = NULL;
  const op_glu *glu = NULL;
  if (!run->s->cx.fast)
    return 0;
  if (r->kind == OP_rms_norm && r->rms_norm.count == 1)
    norm = &r[n++].rms_norm;
  if (n == left || r[n].kind != OP_linear || r->wanted != r[n].wanted)
    return 0;
  if (norm && (norm->y != r[n].linear.x || norm->y == r[n].linear.residual))
    return 0;
  const op_linear *a = &r[n++].linear;
  int64_t tokens = r->wanted ? run->step.wanted : run->step.tokens;
  if (n < left && r[n].kind == OP_glu && gates(a, &r[n].glu)) {
    bool others = false; /* in place, what was gated is gone with the gate */
    for (int k = 0; k < 2; k++)
      others = others || (a->y[k] != r[n].glu.y && needed(&r[n + 1], left - n - 1, a->y[k], tokens * a->w[k]->n));
    if (!others)
      glu = &r[n++].glu;
  }
  if (n == 1)
    return 0;
  bool keep = norm && needed(r + n, left - n, norm->y, tokens * norm->width);
  cuda_fast_norm_linear(&run->s->cx, norm, a, glu, (int)tokens, keep);
  return n;
}

static int rope_append(cuda_run *run, const op_record *r, int left)
{
  if (left < 2 || r[0].kind != OP_rope || r[1].kind != OP_kv_append ||
      !cuda_rope_append_fits(&r[0].rope, &r[1].kv_append))
    return 0;
  cuda_rope_append(&run->s->cx, &r[0].rope, &r[1].kv_append, &run->step, rates_for(run, &r[0].rope));
  return 2;
}

/* The same with the attention behind it, of numerics fast, where no row has more than one token. Nothing else reads what
 * a rope turns: a layer's queries are its attention's, and its keys are in the blocks. A few tokens are better apart: they
 * are rotated while the products before still hold the processors (3 % of a step of one token, nothing for 8; for 16
 * together is 4 % faster). */
enum { APART_MOST = 8 };

static int rope_attention(cuda_run *run, const op_record *r, int left)
{
  if (!run->s->cx.fast || !run->singles || run->step.tokens <= APART_MOST || left < 3 || r[0].kind != OP_rope ||
      r[1].kind != OP_kv_append || r[2].kind != OP_attention)
    return 0;
  return cuda_fast_rope_attention(&run->s->cx, &r[0].rope, &r[1].kv_append, &r[2].attention, &run->step) ? 3 : 0;
}

void cuda_run_records(cuda_run *run, const op_record *records, int n)
{
  static fusion *const fusions[] = {norm_linear_gate, rope_attention, rope_append};
  for (int i = 0; i < n && run->s->cx.error == cudaSuccess;) {
    int done = 0;
    for (size_t f = 0; !done && f < sizeof fusions / sizeof *fusions; f++)
      done = fusions[f](run, &records[i], n - i);
    if (!done)
      run_record(run, &records[i]);
    i += done ? done : 1;
  }
}
