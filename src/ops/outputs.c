/* outputs.c - see outputs.h. A function per op, named as ops.def names the op. */
#include "ops/outputs.h"

static op_output dense(const char *name, const float *values, int width)
{
  return (op_output){.name = name, .values = values, .width = width, .stride = width};
}

static int embed_outputs(const struct op_embed *a, op_output *out)
{
  out[0] = dense("out", a->out, (int)a->table->k);
  out[0].of = a->table->name;
  return 1;
}

static int rms_norm_outputs(const struct op_rms_norm *a, op_output *out)
{
  out[0] = dense("y", a->y, a->count * a->width);
  out[0].stride = a->y_stride;
  return 1;
}

static int layer_norm_outputs(const struct op_layer_norm *a, op_output *out)
{
  out[0] = dense("y", a->y, a->count * a->width);
  out[0].stride = a->y_stride;
  return 1;
}

static int linear_outputs(const struct op_linear *a, op_output *out)
{
  static const char *const names[3] = {"y[0]", "y[1]", "y[2]"};
  for (int i = 0; i < a->outputs && i < 3; i++) {
    out[i] = dense(names[i], a->y[i], (int)a->w[i]->n);
    out[i].of = a->w[i]->name;
  }
  return a->outputs;
}

static int regroup_outputs(const struct op_regroup *a, op_output *out)
{
  out[0] = dense("y", a->y, a->n * a->width);
  return 1;
}

static int rope_outputs(const struct op_rope *a, op_output *out)
{
  out[0] = dense("q", a->q, a->q_heads * a->head_dim);
  out[1] = dense("k", a->k, a->k_heads * a->head_dim);
  return 2;
}

static int temperature_outputs(const struct op_temperature *a, op_output *out)
{
  out[0] = dense("q", a->q, a->width);
  return 1;
}

static int kv_append_outputs(const struct op_kv_append *a, op_output *out)
{
  (void)a;
  (void)out;
  return 0;
}

static int attention_outputs(const struct op_attention *a, op_output *out)
{
  out[0] = dense("out", a->out, a->heads * a->value_dim);
  return 1;
}

static int act_outputs(const struct op_act *a, op_output *out)
{
  out[0] = dense("y", a->y, a->width);
  return 1;
}

static int glu_outputs(const struct op_glu *a, op_output *out)
{
  out[0] = dense("y", a->y, a->width);
  return 1;
}

static int scale_outputs(const struct op_scale *a, op_output *out)
{
  out[0] = dense("y", a->y, a->width);
  return 1;
}

static int softcap_outputs(const struct op_softcap *a, op_output *out)
{
  out[0] = dense("y", a->y, a->width);
  return 1;
}

static int add_outputs(const struct op_add *a, op_output *out)
{
  out[0] = dense("y", a->y, a->width);
  return 1;
}

static int select_outputs(const struct op_select *a, op_output *out)
{
  out[0] = dense("y", a->y, a->width);
  return 1;
}

int ops_outputs(const op_record *r, op_output out[OP_MAX_OUTPUTS])
{
  switch (r->kind) {
#define OP(name, contract)                                                                                             \
  case OP_##name:                                                                                                      \
    return name##_outputs(&r->name, out);
#include "ops/ops.def"
#undef OP
  default:
    return 0;
  }
}
