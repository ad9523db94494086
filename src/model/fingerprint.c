/* fingerprint.c - see fingerprint.h. One table row for each plain member; layers, ropes and rope_scaling follow.
 *
 * Numbers are printed so that they read back as the same double, enumerations by words of their own, so that neither
 * the order of an enum nor a compiler's layout has a say. */
#include "model/fingerprint.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/json_out.h"
#include "format/json_util.h"
#include "model/arch.h"
#include "model/rope.h"

typedef enum line_kind { LINE_INT, LINE_FLOAT, LINE_BOOL, LINE_TEXT } line_kind;

typedef struct line {
  const char *name;
  line_kind kind;
  size_t offset;
} line;

#define LINE(kind, member)                                                                                             \
  {                                                                                                                    \
#member, kind, offsetof(model_config, member)                                                                      \
  }

static const line lines[] = {
    LINE(LINE_INT, width),
    LINE(LINE_INT, layers),
    LINE(LINE_INT, heads),
    LINE(LINE_INT, kv_heads),
    LINE(LINE_INT, head_dim),
    LINE(LINE_INT, ffn),
    LINE(LINE_INT, vocab),
    LINE(LINE_INT, max_positions),
    LINE(LINE_FLOAT, norm_eps),
    LINE(LINE_BOOL, bias_qkv),
    LINE(LINE_BOOL, bias_o),
    LINE(LINE_BOOL, bias_mlp),
    LINE(LINE_BOOL, bias_head),
    LINE(LINE_BOOL, norm_bias),
    LINE(LINE_BOOL, qk_norm),
    LINE(LINE_BOOL, parallel),
    LINE(LINE_BOOL, tied),
    LINE(LINE_FLOAT, embed_scale),
    LINE(LINE_FLOAT, residual_scale),
    LINE(LINE_FLOAT, logit_scale),
    LINE(LINE_FLOAT, logit_divisor),
    LINE(LINE_FLOAT, head_divisor),
    LINE(LINE_FLOAT, attention_scale),
    LINE(LINE_FLOAT, query_pre_attn_scalar),
    LINE(LINE_FLOAT, attention_softcap),
    LINE(LINE_FLOAT, logit_softcap),
    LINE(LINE_FLOAT, act_limit),
    LINE(LINE_TEXT, act),
    LINE(LINE_FLOAT, rope_theta),
    LINE(LINE_FLOAT, rope_local_theta),
    LINE(LINE_FLOAT, rotary_factor),
    LINE(LINE_BOOL, rope_traditional),
    LINE(LINE_INT, original_positions),
    LINE(LINE_FLOAT, temperature_beta),
    LINE(LINE_INT, temperature_span),
    LINE(LINE_INT, sliding_window),
    LINE(LINE_INT, sliding_pattern),
    LINE(LINE_INT, no_rope_interval),
    LINE(LINE_INT, sparse_every),
    LINE(LINE_INT, sparse_block),
    LINE(LINE_INT, sparse_local),
    LINE(LINE_INT, sparse_stride),
};

enum { LINES = sizeof lines / sizeof *lines };

bool model_config_text_has(size_t offset)
{
  for (size_t i = 0; i < LINES; i++)
    if (lines[i].offset == offset)
      return true;
  return false;
}

static void add_number(buf *b, double x)
{
  buf_addf(b, "%.17g", x);
}

static void add_line(buf *b, const line *l, const model_config *c)
{
  const void *at = (const char *)c + l->offset;
  buf_addf(b, "%s=", l->name);
  switch (l->kind) {
  case LINE_INT:
    buf_addf(b, "%d", *(const int *)at);
    break;
  case LINE_FLOAT:
    add_number(b, *(const double *)at);
    break;
  case LINE_BOOL:
    buf_adds(b, *(const bool *)at ? "true" : "false");
    break;
  case LINE_TEXT: {
    const char *text = *(const char *const *)at;
    if (text)
      jout_str(b, text, strlen(text));
    break;
  }
  }
  buf_addc(b, '\n');
}

/* ---- rope ---- */

static const char *rope_word(rope_kind kind)
{
  static const char *const words[] = {
      [ROPE_SAME] = "same", [ROPE_FACTORY] = "factory", [ROPE_PLAIN] = "plain",         [ROPE_LINEAR] = "linear",
      [ROPE_SU] = "su",     [ROPE_NTK] = "ntk",         [ROPE_NTK_ALPHA] = "ntk-alpha", [ROPE_BACKWARD] = "backward",
  };
  return words[kind];
}

static int by_text(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_value(buf *b, const json_t *value);

static bool is_type(const char *key)
{
  return strcmp(key, "type") == 0 || strcmp(key, "rope_type") == 0;
}

/* Members in order of their names, without those that are null. `type`: what stands for "type" and "rope_type", whose
 * meaning hangs on both; NULL: they are members like others. */
static void add_object(buf *b, const json_t *object, const char *type)
{
  size_t n = 0, count = json_object_size(object);
  const char **keys = mem_array(count + 2, sizeof *keys), *key;
  json_t *value;
  if (!keys) {
    b->failed = true;
    return;
  }
  if (type)
    keys[n++] = "rope_type";
  json_object_foreach((json_t *)(uintptr_t)object, key, value)
  {
    if (!json_is_null(value) && !(type && is_type(key)))
      keys[n++] = key;
  }
  qsort(keys, n, sizeof *keys, by_text);
  buf_addc(b, '{');
  for (size_t i = 0; i < n; i++) {
    if (i)
      buf_addc(b, ',');
    jout_str(b, keys[i], strlen(keys[i]));
    buf_addc(b, ':');
    if (type && is_type(keys[i]))
      jout_str(b, type, strlen(type));
    else
      add_value(b, cfg_obj_get(object, keys[i]));
  }
  buf_addc(b, '}');
  mem_free(keys);
}

static void add_list(buf *b, const json_t *list)
{
  buf_addc(b, '[');
  for (size_t i = 0; i < json_array_size(list); i++) {
    if (i)
      buf_addc(b, ',');
    add_value(b, json_array_get(list, i));
  }
  buf_addc(b, ']');
}

/* Depth is bounded where JSON is read. */
static void add_value(buf *b, const json_t *value)
{
  if (json_is_object(value))
    add_object(b, value, NULL);
  else if (json_is_array(value))
    add_list(b, value);
  else if (json_is_string(value))
    jout_str(b, json_string_value(value), json_string_length(value));
  else if (json_is_number(value))
    add_number(b, jsonu_real(value));
  else
    buf_adds(b, json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null");
}

static void add_ropes(buf *b, const model_config *c)
{
  for (int i = 0; i < MODEL_ROPES; i++) {
    const rope_config *r = &c->ropes[i];
    buf_addf(b, "rope[%d]=%s,base=", i, rope_word(r->kind));
    add_number(b, r->base);
    buf_addf(b, ",dims=%d,%s,positions=%d,original=%d\n", r->dims, r->traditional ? "pairs" : "halves",
             r->max_positions, r->original_positions);
  }
  buf_adds(b, "rope_scaling=");
  if (c->rope_scaling)
    add_object(b, c->rope_scaling, rope_type_name(c->rope_scaling));
  buf_addc(b, '\n');
}

/* ---- layers ---- */

static const char *part_word(uint8_t part)
{
  static const char *const words[] = {[PART_USUAL] = "usual", [PART_NONE] = "none", [PART_LINEAR] = "linear"};
  return words[part];
}

static void add_layers(buf *b, const model_config *c)
{
  for (int i = 0; i < c->layers; i++) {
    const layer_config *l = &c->layer[i];
    buf_addf(b, "layer[%d]=heads:%d,kv_heads:%d,ffn:%d,rope:%d,%s,attention:%s,mlp:%s\n", i, l->heads, l->kv_heads,
             l->ffn, l->rope, l->sliding ? "sliding" : "full", part_word(l->attention), part_word(l->mlp));
  }
}

void model_config_text(const model_config *c, buf *b)
{
  buf_addf(b, "tern-config-1\ntype=%s\nwrapper=%s\n", c->arch->name, c->wrapper ? c->wrapper->name : "");
  for (size_t i = 0; i < LINES; i++)
    add_line(b, &lines[i], c);
  add_ropes(b, c);
  add_layers(b, c);
}

tern_status model_config_fingerprint(const model_config *c, char out[SHA256_HEX], tern_error *err)
{
  buf b = {0};
  model_config_text(c, &b);
  if (!b.failed)
    sha256_hex(b.data, b.length, out);
  bool failed = b.failed;
  buf_free(&b);
  return failed ? err_nomem(err, "config fingerprint") : TERN_OK;
}
