/* import_config.c - GGUF hyperparameters: which architectures there are, the keys each may have, and the config.json
 * that says the same to mlx-lm's model classes.
 *
 * Every key under the architecture's prefix is in the table below: read by name somewhere, free of meaning for the
 * numbers (ignored), or required to have the one value that changes nothing. Others are refused by name. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert/import_model.h"
#include "format/json_out.h"

static const import_arch arches[] = {
    {"llama", "llama", "LlamaForCausalLM", ARCH_LLAMA},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", ARCH_QWEN2},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", ARCH_QWEN3},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", ARCH_GEMMA3},
};

typedef enum key_rule {
  KEY_READ,   /* by this file or import_rope.c */
  KEY_IGNORE, /* says nothing about the numbers */
  KEY_ZERO,   /* a feature that must be off: absent or 0 */
  KEY_ONE,    /* a factor that must be 1 */
  KEY_TRUE,   /* a property that must hold */
} key_rule;

static const struct known_key {
  const char *suffix;
  key_rule rule;
} known_keys[] = {
    {"context_length", KEY_READ},
    {"embedding_length", KEY_READ},
    {"block_count", KEY_READ},
    {"feed_forward_length", KEY_READ},
    {"vocab_size", KEY_IGNORE}, /* the embedding table's rows count */
    {"attention.head_count", KEY_READ},
    {"attention.head_count_kv", KEY_READ},
    {"attention.key_length", KEY_READ},
    {"attention.value_length", KEY_READ},
    {"attention.layer_norm_rms_epsilon", KEY_READ},
    {"attention.sliding_window", KEY_READ},
    {"attention.sliding_window_pattern", KEY_READ},
    {"attention.causal", KEY_TRUE},
    {"rope.dimension_count", KEY_READ},
    {"rope.freq_base", KEY_READ},
    {"rope.freq_base_swa", KEY_READ},
    {"rope.scaling.type", KEY_READ},
    {"rope.scaling.factor", KEY_READ},
    {"rope.scaling.original_context_length", KEY_READ},
    {"rope.scaling.finetuned", KEY_IGNORE},
    {"rope.scaling.attn_factor", KEY_ONE},
    {"rope.scaling.yarn_log_multiplier", KEY_ZERO},
    {"rope.scaling.yarn_ext_factor", KEY_ONE},
    {"rope.scaling.yarn_attn_factor", KEY_ONE},
    {"rope.scaling.yarn_beta_fast", KEY_READ},
    {"rope.scaling.yarn_beta_slow", KEY_READ},
    {"rope.scale_linear", KEY_READ},
    {"expert_count", KEY_ZERO},
    {"expert_used_count", KEY_ZERO},
    {"pooling_type", KEY_ZERO},
    {"logit_scale", KEY_ONE},
    {"embedding_scale", KEY_ONE},
    {"residual_scale", KEY_ONE},
    {"final_logit_softcapping", KEY_ZERO},
    {"attn_logit_softcapping", KEY_ZERO},
    {"tensor_data_layout", KEY_IGNORE},
};

static tern_status read_arch(const gguf *g, const import_arch **out, tern_error *err)
{
  gguf_string name;
  bool present;
  TRY(gguf_get_string(g, "general.architecture", &name, &present, err));
  if (!present)
    return err_set(err, TERN_E_FORMAT, "%s: key general.architecture is missing", g->path);
  for (size_t i = 0; i < sizeof arches / sizeof *arches; i++)
    if (strlen(arches[i].name) == name.size && memcmp(arches[i].name, name.data, name.size) == 0) {
      *out = &arches[i];
      return TERN_OK;
    }
  return err_set(err, TERN_E_UNSUPPORTED,
                 "%s: architecture %.*s cannot be imported: llama, qwen2, qwen3 and gemma3 can", g->path,
                 GGUF_STR(name));
}

/* A number of any kind as a double; false for other values. */
static bool value_number(const gguf *g, const char *key, double *out)
{
  uint32_t u;
  bool b, present;
  if (gguf_get_float(g, key, out, &present, NULL) == TERN_OK)
    return true;
  if (gguf_get_uint(g, key, &u, &present, NULL) == TERN_OK) {
    *out = u;
    return true;
  }
  if (gguf_get_bool(g, key, &b, &present, NULL) == TERN_OK) {
    *out = b;
    return true;
  }
  return false;
}

static tern_status check_key(const gguf *g, const gguf_value *v, size_t prefix, tern_error *err)
{
  char key[128];
  if (v->key.size < sizeof key) {
    memcpy(key, v->key.data, v->key.size);
    key[v->key.size] = '\0';
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++) {
      if (strcmp(known_keys[i].suffix, key + prefix) != 0)
        continue;
      key_rule rule = known_keys[i].rule;
      double x = 0, wanted = rule == KEY_ZERO ? 0 : 1;
      if (rule == KEY_READ || rule == KEY_IGNORE || (value_number(g, key, &x) && x == wanted))
        return TERN_OK;
      return err_set(err, TERN_E_UNSUPPORTED, "%s: key %s: only %g can be imported", g->path, key, wanted);
    }
  }
  return err_set(err, TERN_E_UNSUPPORTED, "%s: key %.*s: not known for this architecture", g->path, GGUF_STR(v->key));
}

static tern_status check_keys(const gguf *g, const import_arch *arch, tern_error *err)
{
  size_t prefix = strlen(arch->name);
  for (size_t i = 0; i < g->n_values; i++) {
    const gguf_string *key = &g->values[i].key;
    if (key->size > prefix && memcmp(key->data, arch->name, prefix) == 0 && key->data[prefix] == '.')
      TRY(check_key(g, &g->values[i], prefix + 1, err));
  }
  uint32_t parts = 0;
  bool present;
  TRY(gguf_get_uint(g, "split.count", &parts, &present, err));
  if (present && parts > 1)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: one of %" PRIu32 " parts: merge them first (gguf-split --merge)",
                   g->path, parts);
  return TERN_OK;
}

/* ARCH.suffix */
static const char *arch_key(const import_arch *arch, const char *suffix, char out[128])
{
  snprintf(out, 128, "%s.%s", arch->name, suffix);
  return out;
}

typedef struct uint_field {
  const char *suffix;
  size_t offset; /* in import_hyper */
  bool required;
  uint32_t limit;
} uint_field;

static const uint_field uint_fields[] = {
    {"block_count", offsetof(import_hyper, layers), true, 10000},
    {"context_length", offsetof(import_hyper, context), true, UINT32_MAX},
    {"embedding_length", offsetof(import_hyper, width), true, 1 << 24},
    {"feed_forward_length", offsetof(import_hyper, hidden), true, 1 << 24},
    {"attention.head_count", offsetof(import_hyper, heads), true, 1 << 16},
    {"attention.head_count_kv", offsetof(import_hyper, kv_heads), false, 1 << 16},
    {"attention.key_length", offsetof(import_hyper, head_dim), false, 1 << 16},
};

static tern_status read_uints(const gguf *g, import_hyper *h, tern_error *err)
{
  char key[128];
  for (size_t i = 0; i < sizeof uint_fields / sizeof *uint_fields; i++) {
    const uint_field *f = &uint_fields[i];
    uint32_t *out = (uint32_t *)((char *)h + f->offset);
    bool present;
    TRY(gguf_get_uint(g, arch_key(h->arch, f->suffix, key), out, &present, err));
    if (!present && f->required)
      return err_set(err, TERN_E_FORMAT, "%s: key %s is missing", g->path, key);
    if (present && (*out == 0 || *out > f->limit))
      return err_set(err, TERN_E_FORMAT, "%s: key %s: %" PRIu32 " is out of range", g->path, key, *out);
  }
  return TERN_OK;
}

static tern_status check_heads(const gguf *g, import_hyper *h, tern_error *err)
{
  char key[128];
  bool present;
  uint32_t value_length, rope_dims;
  if (h->kv_heads == 0)
    h->kv_heads = h->heads;
  if (h->heads % h->kv_heads)
    return err_set(err, TERN_E_FORMAT, "%s: %" PRIu32 " heads do not divide among %" PRIu32 " key-value heads", g->path,
                   h->heads, h->kv_heads);
  if (h->head_dim == 0) {
    if (h->width % h->heads)
      return err_set(err, TERN_E_FORMAT, "%s: key %s is missing and %" PRIu32 " does not divide by %" PRIu32 " heads",
                     g->path, arch_key(h->arch, "attention.key_length", key), h->width, h->heads);
    h->head_dim = h->width / h->heads;
  }
  if (h->head_dim % 2)
    return err_set(err, TERN_E_FORMAT, "%s: odd head size %" PRIu32, g->path, h->head_dim);
  value_length = rope_dims = h->head_dim;
  TRY(gguf_get_uint(g, arch_key(h->arch, "attention.value_length", key), &value_length, &present, err));
  if (value_length != h->head_dim)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: key %s: %" PRIu32 " differs from the key length %" PRIu32, g->path,
                   key, value_length, h->head_dim);
  TRY(gguf_get_uint(g, arch_key(h->arch, "rope.dimension_count", key), &rope_dims, &present, err));
  if (rope_dims != h->head_dim)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: key %s: rotating %" PRIu32 " of %" PRIu32 " dimensions", g->path, key,
                   rope_dims, h->head_dim);
  /* mlx-lm's qwen2 has no head_dim. */
  if (h->arch->bit == ARCH_QWEN2 && (uint64_t)h->heads * h->head_dim != h->width)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: %" PRIu32 " heads of %" PRIu32 " in a width of %" PRIu32, g->path,
                   h->heads, h->head_dim, h->width);
  return TERN_OK;
}

/* Every p-th layer sees everything: p from one number, or from a list of booleans (true: windowed). */
static tern_status read_window_pattern(const gguf *g, import_hyper *h, tern_error *err)
{
  char key[128];
  const gguf_value *v = gguf_find(g, arch_key(h->arch, "attention.sliding_window_pattern", key));
  h->window_pattern = 6;
  if (!v)
    return TERN_OK;
  if (v->type != GGUF_ARRAY) {
    bool present;
    TRY(gguf_get_uint(g, key, &h->window_pattern, &present, err));
    if (h->window_pattern == 0)
      return err_set(err, TERN_E_FORMAT, "%s: key %s: 0 is out of range", g->path, key);
    return TERN_OK;
  }
  int32_t *windowed = NULL;
  size_t n = 0;
  TRY(gguf_get_ints(g, key, &windowed, &n, err));
  size_t period = 0;
  while (period < n && windowed[period])
    period++;
  period++; /* all windowed: a period beyond the last layer */
  bool regular = n == h->layers;
  for (size_t i = 0; i < n && regular; i++)
    regular = (windowed[i] != 0) == ((i + 1) % period != 0);
  mem_free(windowed);
  if (!regular)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: key %s: not one full layer after every few windowed ones", g->path,
                   key);
  h->window_pattern = (uint32_t)period;
  return TERN_OK;
}

static tern_status read_window(const gguf *g, import_hyper *h, tern_error *err)
{
  char key[128];
  bool present;
  TRY(gguf_get_uint(g, arch_key(h->arch, "attention.sliding_window", key), &h->window, &present, err));
  if (h->arch->bit != ARCH_GEMMA3) {
    /* Written by some converters for models that never use it; within the context it changes nothing. */
    if (present && h->window && h->window < h->context)
      return err_set(err, TERN_E_UNSUPPORTED, "%s: key %s: a window of %" PRIu32 " in a context of %" PRIu32, g->path,
                     key, h->window, h->context);
    return TERN_OK;
  }
  if (!present || h->window == 0)
    return err_set(err, TERN_E_FORMAT, "%s: key %s is missing", g->path, key);
  h->rope_local_base = 10000;
  TRY(gguf_get_float(g, arch_key(h->arch, "rope.freq_base_swa", key), &h->rope_local_base, &present, err));
  return read_window_pattern(g, h, err);
}

static tern_status read_floats(const gguf *g, import_hyper *h, tern_error *err)
{
  char key[128];
  bool present;
  TRY(gguf_get_float(g, arch_key(h->arch, "attention.layer_norm_rms_epsilon", key), &h->eps, &present, err));
  if (!present)
    return err_set(err, TERN_E_FORMAT, "%s: key %s is missing", g->path, key);
  if (!(h->eps >= 0))
    return err_set(err, TERN_E_FORMAT, "%s: key %s: %g is out of range", g->path, key, h->eps);
  /* llama.cpp's default where the key is absent; gemma3's converter always writes it. */
  h->rope_base = 10000;
  TRY(gguf_get_float(g, arch_key(h->arch, "rope.freq_base", key), &h->rope_base, &present, err));
  if (!(h->rope_base > 0))
    return err_set(err, TERN_E_FORMAT, "%s: key %s: %g is out of range", g->path, key, h->rope_base);
  return TERN_OK;
}

static tern_status read_tensor_facts(const gguf *g, import_hyper *h, tern_error *err)
{
  const gguf_tensor *embedding = gguf_find_tensor(g, "token_embd.weight");
  if (!embedding)
    return err_set(err, TERN_E_FORMAT, "%s: tensor token_embd.weight is missing", g->path);
  if (embedding->dims != 2 || embedding->size[1] > INT32_MAX)
    return err_set(err, TERN_E_FORMAT, "%s: tensor token_embd.weight is not a table of rows", g->path);
  h->vocab = (uint32_t)embedding->size[1];
  h->tied = !gguf_find_tensor(g, "output.weight");
  h->attention_bias = h->arch->bit == ARCH_LLAMA && gguf_find_tensor(g, "blk.0.attn_q.bias");
  return TERN_OK;
}

tern_status import_read_hyper(const gguf *g, import_hyper *out, tern_error *err)
{
  import_hyper h = {0};
  TRY(read_arch(g, &h.arch, err));
  TRY(check_keys(g, h.arch, err));
  TRY(read_uints(g, &h, err));
  TRY(check_heads(g, &h, err));
  TRY(read_floats(g, &h, err));
  TRY(read_window(g, &h, err));
  TRY(read_tensor_facts(g, &h, err));
  *out = h;
  return TERN_OK;
}

static void put_gemma3(buf *b, const import_hyper *h)
{
  jout_put_str(b, "hidden_activation", "gelu_pytorch_tanh");
  jout_put_int(b, "sliding_window", h->window);
  jout_put_int(b, "sliding_window_pattern", h->window_pattern);
  jout_put_float32(b, "rope_local_base_freq", h->rope_local_base);
  /* llama.cpp: the 27B model (62 layers) scales by its width over heads, every other by the head size. */
  uint32_t scalar = h->layers == 62 ? h->width / h->heads : h->head_dim;
  jout_put_int(b, "query_pre_attn_scalar", scalar);
}

static void put_ids(buf *b, const char *key, const int64_t *ids, size_t n)
{
  jout_key(b, key);
  buf_addc(b, '[');
  for (size_t i = 0; i < n; i++)
    buf_addf(b, "%s%" PRId64, i ? ", " : "", ids[i]);
  buf_addc(b, ']');
}

static tern_status finish(buf *b, const char *what, tern_error *err)
{
  buf_adds(b, "\n}\n");
  return b->failed ? err_nomem(err, what) : TERN_OK;
}

tern_status import_generation_config(const import_vocab *v, buf *b, tern_error *err)
{
  buf_adds(b, "{");
  if (v->bos >= 0)
    jout_put_int(b, "bos_token_id", v->bos);
  if (v->n_stops)
    put_ids(b, "eos_token_id", v->stops, v->n_stops);
  if (v->pad >= 0)
    jout_put_int(b, "pad_token_id", v->pad);
  return finish(b, "generation_config.json", err);
}

tern_status import_config(const gguf *g, const import_hyper *h, const import_vocab *v, const import_weights *w, buf *b,
                          tern_error *err)
{
  buf_addf(b, "{\n\"architectures\": [\"%s\"]", h->arch->class_name);
  jout_put_str(b, "model_type", h->arch->model_type);
  jout_put_int(b, "hidden_size", h->width);
  jout_put_int(b, "num_hidden_layers", h->layers);
  jout_put_int(b, "intermediate_size", h->hidden);
  jout_put_int(b, "num_attention_heads", h->heads);
  jout_put_int(b, "num_key_value_heads", h->kv_heads);
  if (h->arch->bit != ARCH_QWEN2)
    jout_put_int(b, "head_dim", h->head_dim);
  jout_put_float32(b, "rms_norm_eps", h->eps);
  jout_put_int(b, "vocab_size", h->vocab);
  jout_put_int(b, "max_position_embeddings", h->context);
  jout_put_float32(b, "rope_theta", h->rope_base);
  jout_key(b, "rope_scaling");
  size_t before = b->length;
  TRY(import_rope_scaling(g, h, b, err));
  if (b->length == before)
    buf_adds(b, "null");
  if (h->arch->bit == ARCH_GEMMA3)
    put_gemma3(b, h);
  else
    jout_put_str(b, "hidden_act", "silu");
  if (h->arch->bit == ARCH_LLAMA) {
    jout_put_bool(b, "attention_bias", h->attention_bias);
    jout_put_bool(b, "mlp_bias", false);
  }
  jout_put_bool(b, "tie_word_embeddings", h->tied);
  if (v->bos >= 0)
    jout_put_int(b, "bos_token_id", v->bos);
  if (v->n_stops == 1)
    jout_put_int(b, "eos_token_id", v->stops[0]);
  else if (v->n_stops)
    put_ids(b, "eos_token_id", v->stops, v->n_stops);
  if (v->pad >= 0)
    jout_put_int(b, "pad_token_id", v->pad);
  jout_put_str(b, "torch_dtype", import_weights_dtype(w));
  buf quantization = {0};
  import_quantization(w, &quantization);
  if (quantization.length)
    jout_put_raw(b, "quantization", quantization.data);
  b->failed |= quantization.failed;
  buf_free(&quantization);
  return finish(b, "config.json", err);
}
