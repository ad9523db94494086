/* import_weights.c - which GGUF tensor becomes which module's parameter, and in what form.
 *
 * One table of rules names every tensor the four architectures have. A tensor without a rule, a missing one, or a shape
 * that disagrees with the hyperparameters is an error naming it. Then all values that will be floating in the result
 * are looked at once, to see whether float16 holds them exactly; one that it does not makes the whole result float32.
 *
 * Writing is in import_write.c. */
#include "convert/import_weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "format/json_out.h"

typedef enum dim { NONE, WIDTH, HIDDEN, VOCAB, QUERY, KEY, HEAD } dim;

typedef struct weight_rule {
  const char *gguf;   /* "blk.N." left out where per_layer */
  const char *module; /* "model.layers.N." left out where per_layer */
  const char *parameter;
  dim rows, columns; /* columns NONE: a vector */
  import_reorder reorder;
  unsigned allowed, required; /* of import_arch_bit */
  bool per_layer;
  bool norm; /* gemma3 stores 1 + weight */
} weight_rule;

enum { BIASED = ARCH_LLAMA | ARCH_QWEN2, QK_NORM = ARCH_QWEN3 | ARCH_GEMMA3, NOT_GEMMA = ARCH_ALL & ~ARCH_GEMMA3 };

/* llama.cpp's tensor names: gguf-py, constants.py and tensor_mapping.py. Only llama's q and k are reordered. */
static const weight_rule rules[] = {
    {"token_embd.weight", "model.embed_tokens", "weight", VOCAB, WIDTH, REORDER_NONE, ARCH_ALL, ARCH_ALL, false, false},
    {"output_norm.weight", "model.norm", "weight", WIDTH, NONE, REORDER_NONE, ARCH_ALL, ARCH_ALL, false, true},
    {"output.weight", "lm_head", "weight", VOCAB, WIDTH, REORDER_NONE, ARCH_ALL, 0, false, false},
    {"attn_norm.weight", "input_layernorm", "weight", WIDTH, NONE, REORDER_NONE, ARCH_ALL, ARCH_ALL, true, true},
    {"attn_q.weight", "self_attn.q_proj", "weight", QUERY, WIDTH, REORDER_Q, ARCH_ALL, ARCH_ALL, true, false},
    {"attn_k.weight", "self_attn.k_proj", "weight", KEY, WIDTH, REORDER_K, ARCH_ALL, ARCH_ALL, true, false},
    {"attn_v.weight", "self_attn.v_proj", "weight", KEY, WIDTH, REORDER_NONE, ARCH_ALL, ARCH_ALL, true, false},
    {"attn_output.weight", "self_attn.o_proj", "weight", WIDTH, QUERY, REORDER_NONE, ARCH_ALL, ARCH_ALL, true, false},
    {"attn_q.bias", "self_attn.q_proj", "bias", QUERY, NONE, REORDER_Q, BIASED, ARCH_QWEN2, true, false},
    {"attn_k.bias", "self_attn.k_proj", "bias", KEY, NONE, REORDER_K, BIASED, ARCH_QWEN2, true, false},
    {"attn_v.bias", "self_attn.v_proj", "bias", KEY, NONE, REORDER_NONE, BIASED, ARCH_QWEN2, true, false},
    {"attn_output.bias", "self_attn.o_proj", "bias", WIDTH, NONE, REORDER_NONE, ARCH_LLAMA, 0, true, false},
    {"attn_q_norm.weight", "self_attn.q_norm", "weight", HEAD, NONE, REORDER_NONE, QK_NORM, QK_NORM, true, true},
    {"attn_k_norm.weight", "self_attn.k_norm", "weight", HEAD, NONE, REORDER_NONE, QK_NORM, QK_NORM, true, true},
    {"post_attention_norm.weight", "post_attention_layernorm", "weight", WIDTH, NONE, REORDER_NONE, ARCH_GEMMA3,
     ARCH_GEMMA3, true, true},
    {"ffn_norm.weight", "post_attention_layernorm", "weight", WIDTH, NONE, REORDER_NONE, NOT_GEMMA, NOT_GEMMA, true,
     true},
    {"ffn_norm.weight", "pre_feedforward_layernorm", "weight", WIDTH, NONE, REORDER_NONE, ARCH_GEMMA3, ARCH_GEMMA3,
     true, true},
    {"post_ffw_norm.weight", "post_feedforward_layernorm", "weight", WIDTH, NONE, REORDER_NONE, ARCH_GEMMA3,
     ARCH_GEMMA3, true, true},
    {"ffn_gate.weight", "mlp.gate_proj", "weight", HIDDEN, WIDTH, REORDER_NONE, ARCH_ALL, ARCH_ALL, true, false},
    {"ffn_up.weight", "mlp.up_proj", "weight", HIDDEN, WIDTH, REORDER_NONE, ARCH_ALL, ARCH_ALL, true, false},
    {"ffn_down.weight", "mlp.down_proj", "weight", WIDTH, HIDDEN, REORDER_NONE, ARCH_ALL, ARCH_ALL, true, false},
};
enum { N_RULES = sizeof rules / sizeof *rules };

static uint64_t dim_of(const import_hyper *h, dim d)
{
  const uint64_t sizes[] = {[NONE] = 1,
                            [WIDTH] = h->width,
                            [HIDDEN] = h->hidden,
                            [VOCAB] = h->vocab,
                            [QUERY] = (uint64_t)h->heads * h->head_dim,
                            [KEY] = (uint64_t)h->kv_heads * h->head_dim,
                            [HEAD] = h->head_dim};
  return sizes[d];
}

/* "blk.12.rest": the layer and the rest; false for other names. */
static bool split_layer(gguf_string name, uint32_t *layer, gguf_string *rest)
{
  if (name.size < 7 || memcmp(name.data, "blk.", 4) != 0)
    return false;
  size_t i = 4;
  uint32_t n = 0;
  for (; i < name.size && name.data[i] >= '0' && name.data[i] <= '9'; i++) {
    if (n > 100000 || (i > 4 && n == 0)) /* one spelling a number: no leading zeros */
      return false;
    n = n * 10 + (uint32_t)(name.data[i] - '0');
  }
  if (i == 4 || i >= name.size || name.data[i] != '.')
    return false;
  *layer = n;
  *rest = (gguf_string){.data = name.data + i + 1, .size = name.size - i - 1};
  return true;
}

static const weight_rule *find_rule(const import_hyper *h, gguf_string name, uint32_t *layer)
{
  gguf_string rest = name;
  bool per_layer = split_layer(name, layer, &rest);
  for (size_t i = 0; i < N_RULES; i++) {
    const weight_rule *r = &rules[i];
    if (r->per_layer == per_layer && (r->allowed & h->arch->bit) && strlen(r->gguf) == rest.size &&
        memcmp(r->gguf, rest.data, rest.size) == 0)
      return r;
  }
  return NULL;
}

static tern_status check_shape(const gguf *g, const import_hyper *h, const weight_rule *r, const gguf_tensor *t,
                               tern_error *err)
{
  uint64_t rows = dim_of(h, r->rows), columns = dim_of(h, r->columns);
  bool matrix = r->columns != NONE;
  uint64_t want0 = matrix ? columns : rows, want1 = matrix ? rows : 1;
  if (t->size[0] != want0 || t->size[1] != want1 || t->size[2] != 1 || t->size[3] != 1)
    return err_set(err, TERN_E_FORMAT,
                   "%s: tensor %.*s: shape [%" PRIu64 ", %" PRIu64 "] where [%" PRIu64 ", %" PRIu64 "] is expected",
                   g->path, GGUF_STR(t->name), t->size[0], t->size[1], want0, want1);
  return TERN_OK;
}

static tern_status plan_tensor(const gguf *g, const import_hyper *h, const gguf_tensor *t, import_tensor *out,
                               tern_error *err)
{
  uint32_t layer = 0;
  const weight_rule *r = find_rule(h, t->name, &layer);
  if (!r || (r->per_layer && layer >= h->layers))
    return err_set(err, TERN_E_UNSUPPORTED, "%s: tensor %.*s: not one that %s has", g->path, GGUF_STR(t->name),
                   h->arch->name);
  TRY(check_shape(g, h, r, t, err));
  bool matrix = r->columns != NONE;
  *out = (import_tensor){
      .source = t,
      .matrix = matrix,
      .rows = matrix ? t->size[1] : 1,
      .columns = t->size[0],
      .bits = matrix ? ggml_affine_bits(t->type) : 0,
      .reorder = h->arch->bit == ARCH_LLAMA ? r->reorder : REORDER_NONE,
      .heads = r->reorder == REORDER_Q ? h->heads : h->kv_heads,
      .parameter = r->parameter,
      .norm_offset = r->norm && h->arch->bit == ARCH_GEMMA3,
  };
  if (!out->bits && !ggml_has_dense(t->type))
    return err_set(err, TERN_E_UNSUPPORTED, "%s: tensor %.*s: type %s cannot be imported%s", g->path, GGUF_STR(t->name),
                   ggml_type_get(t->type)->name, ggml_affine_bits(t->type) ? " for a vector" : "");
  if (r->per_layer)
    snprintf(out->module, sizeof out->module, "model.layers.%" PRIu32 ".%s", layer, r->module);
  else
    snprintf(out->module, sizeof out->module, "%s", r->module);
  return TERN_OK;
}

static tern_status require(const gguf *g, const weight_rule *r, uint32_t layer, tern_error *err)
{
  char name[128];
  if (r->per_layer)
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", layer, r->gguf);
  else
    snprintf(name, sizeof name, "%s", r->gguf);
  if (gguf_find_tensor(g, name))
    return TERN_OK;
  return err_set(err, TERN_E_FORMAT, "%s: tensor %s is missing", g->path, name);
}

static tern_status check_complete(const gguf *g, const import_hyper *h, tern_error *err)
{
  for (size_t i = 0; i < N_RULES; i++) {
    const weight_rule *r = &rules[i];
    bool llama_bias = h->attention_bias && strcmp(r->parameter, "bias") == 0;
    if (!(r->required & h->arch->bit) && !(llama_bias && (r->allowed & ARCH_LLAMA)))
      continue;
    for (uint32_t layer = 0; layer < (r->per_layer ? h->layers : 1); layer++)
      TRY(require(g, r, layer, err));
  }
  return TERN_OK;
}

/* ---- the common dtype ---- */

static bool fits_f16(float x)
{
  return f16_to_f32(f16_from_f32(x)) == x || isnan(x);
}

static bool all_fit_f16(const float *x, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (!fits_f16(x[i]))
      return false;
  return true;
}

/* One row of scales and biases: an infinite or undefined scale has no affine form that means the same. */
static tern_status scan_affine(const import_weights *w, const import_tensor *t, const uint8_t *row, bool *fits,
                               tern_error *err)
{
  size_t groups = t->columns / AFFINE_GROUP;
  ggml_affine_scales(t->source->type, row, t->columns, w->scale, w->bias);
  for (size_t i = 0; i < groups; i++)
    if (!isfinite(w->scale[i]) || !isfinite(w->bias[i]))
      return err_set(err, TERN_E_FORMAT, "%s: tensor %.*s: a block scale is not finite", w->g->path,
                     GGUF_STR(t->source->name));
  *fits = *fits && all_fit_f16(w->scale, groups) && all_fit_f16(w->bias, groups);
  return TERN_OK;
}

tern_status import_cancelled(const import_weights *w, tern_error *err)
{
  return w->cancel && *w->cancel ? err_set(err, TERN_E_CANCELLED, "%s: import interrupted", w->g->path) : TERN_OK;
}

/* Sets *fits to false if some value does not. Rows of dense tensors are looked at only while that is open. */
static tern_status scan_tensor(const import_weights *w, import_tensor *t, bool *fits, tern_error *err)
{
  const ggml_type_info *info = ggml_type_get(t->source->type);
  size_t row_bytes = t->columns / info->block * info->bytes;
  if (!t->bits && t->source->type == GGML_F16 && !t->norm_offset)
    return TERN_OK;
  for (size_t r = 0; r < t->rows; r++) {
    TRY(import_cancelled(w, err));
    const uint8_t *row = t->source->data + r * row_bytes;
    if (t->bits) {
      TRY(scan_affine(w, t, row, fits, err));
    } else if (*fits || t->norm_offset) {
      import_dense_row(t, row, w->dense);
      *fits = *fits && all_fit_f16(w->dense, t->columns);
    } else {
      break;
    }
  }
  return TERN_OK;
}

void import_dense_row(import_tensor *t, const uint8_t *row, float *out)
{
  ggml_dense_row(t->source->type, row, t->columns, out);
  if (!t->norm_offset)
    return;
  t->norm_rounded = false;
  for (size_t i = 0; i < t->columns; i++) {
    float stored = out[i];
    out[i] = stored - 1.0f;
    t->norm_rounded |= 1.0f + out[i] != stored;
  }
}

/* ---- the plan ---- */

static tern_status allocate_rows(import_weights *w, tern_error *err)
{
  size_t widest = 0;
  for (size_t i = 0; i < w->n; i++)
    widest = w->tensors[i].columns > widest ? w->tensors[i].columns : widest;
  w->q = mem_array(widest, 1);
  w->packed = mem_array(widest, 4);
  w->scale = mem_array(widest / AFFINE_GROUP + 1, sizeof(float));
  w->bias = mem_array(widest / AFFINE_GROUP + 1, sizeof(float));
  w->dense = mem_array(widest, sizeof(float));
  return w->q && w->packed && w->scale && w->bias && w->dense ? TERN_OK : err_nomem(err, "rows to convert");
}

static tern_status plan(import_weights *w, const import_hyper *h, tern_error *err)
{
  const gguf *g = w->g;
  w->tensors = mem_array(g->n_tensors, sizeof *w->tensors);
  if (!w->tensors)
    return err_nomem(err, "the list of tensors");
  for (size_t i = 0; i < g->n_tensors; i++) {
    const gguf_tensor *t = &g->tensors[i];
    /* Llama 3's rope divisors are configuration: import_rope.c reads them. */
    bool divisors = h->arch->bit == ARCH_LLAMA && t == gguf_find_tensor(g, "rope_freqs.weight");
    if (!divisors)
      TRY(plan_tensor(g, h, t, &w->tensors[w->n++], err));
  }
  TRY(check_complete(g, h, err));
  TRY(allocate_rows(w, err));
  bool fits = true;
  for (size_t i = 0; i < w->n; i++) {
    TRY(scan_tensor(w, &w->tensors[i], &fits, err));
    map_forget(&g->file, w->tensors[i].source->data, w->tensors[i].source->bytes);
  }
  w->wide = !fits;
  if (map_broken(&g->file))
    return err_set(err, TERN_E_IO, "%s: the file shrank while it was read", g->path);
  return TERN_OK;
}

tern_status import_plan_weights(const gguf *g, const import_hyper *h, const volatile sig_atomic_t *cancel,
                                import_weights **out, tern_error *err)
{
  import_weights *w = mem_zalloc(sizeof *w);
  if (!w)
    return err_nomem(err, "the list of tensors");
  w->g = g;
  w->cancel = cancel;
  tern_status status = plan(w, h, err);
  if (status == TERN_OK)
    *out = w;
  else
    import_weights_free(w);
  return status;
}

void import_weights_free(import_weights *w)
{
  if (!w)
    return;
  mem_free(w->tensors);
  mem_free(w->q);
  mem_free(w->packed);
  mem_free(w->scale);
  mem_free(w->bias);
  mem_free(w->dense);
  mem_free(w);
}

const char *import_weights_dtype(const import_weights *w)
{
  return w->wide ? "float32" : "float16";
}

/* The bits that most modules have are the global ones; the others, and dense modules, are named. */
void import_quantization(const import_weights *w, buf *out)
{
  size_t count[9] = {0}, best = 0;
  for (size_t i = 0; i < w->n; i++)
    if (w->tensors[i].matrix)
      count[w->tensors[i].bits]++;
  for (size_t bits = 1; bits < 9; bits++)
    if (count[bits] && (!best || count[bits] > count[best]))
      best = bits;
  if (!best)
    return;
  buf_adds(out, "{");
  jout_put_int(out, "group_size", AFFINE_GROUP);
  jout_put_int(out, "bits", (int64_t)best);
  jout_put_str(out, "mode", "affine");
  for (size_t i = 0; i < w->n; i++) {
    const import_tensor *t = &w->tensors[i];
    if (!t->matrix || t->bits == best)
      continue;
    if (!t->bits) {
      jout_put_bool(out, t->module, false);
      continue;
    }
    jout_key(out, t->module);
    buf_addf(out, "{\"group_size\": %d, \"bits\": %" PRIu32 "}", AFFINE_GROUP, t->bits);
  }
  buf_adds(out, "}");
}
