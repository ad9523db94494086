/* ollama_info.c - Ollama's dialect: what there is (/api/tags, /api/ps), what it is (/api/show), and which version. */
#include <stdio.h>
#include <string.h>

#include "engine/about.h"
#include "model/fingerprint.h"
#include "server/ollama.h"

static const srv_field show_rows[] = {
    {"model", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, false},
    {"name", FIELD_IS_STRING, 0, 0, NULL, NULL, "as model: an older spelling", false},
    {"verbose", FIELD_IS_BOOL, 0, 0, NULL, NULL, "let be", false},
};
const srv_fields oll_show_fields = SRV_FIELDS(show_rows, "");

/* As the dialect writes numbers of parameters: "134.52M", "8.0B". */
static const char *count_words(double n, char out[24])
{
  static const struct {
    double from;
    const char *unit;
    int digits;
  } units[] = {{1e12, "T", 1}, {1e9, "B", 1}, {1e6, "M", 2}, {1e3, "K", 0}};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (n >= units[i].from) {
      snprintf(out, 24, "%.*f%s", units[i].digits, n / units[i].from, units[i].unit);
      return out;
    }
  snprintf(out, 24, "%.0f", n);
  return out;
}

/* How most weights are stored. The dialect's names of dense types, and of schemes that both know. */
static const char *level_words(const server *s, char out[64])
{
  static const struct {
    const char *begins, *name;
  } names[] = {{"bfloat16", "BF16"}, {"float16", "F16"}, {"float32", "F32"},
               {"mxfp4", "MXFP4"},   {"mxfp8", "MXFP8"}, {"nvfp4", "NVFP4"}};
  const model *m = s->model->net;
  about_quantisation(m->cfg, m->quant, out);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strncmp(out, names[i].begins, strlen(names[i].begins)))
      snprintf(out, 64, "%s", names[i].name);
  return out;
}

/* The context that the model was made for, whatever --ctx admits. */
static int own_context(const server *s)
{
  int declared = s->model->net->config.max_positions;
  return declared ? declared : sched_context(s->scheduler);
}

static json_t *details(const server *s)
{
  const tern_model_info *i = &s->model->info;
  char count[24], level[64];
  return json_pack("{ss ss ss s[s] ss ss si si}", "parent_model", "", "format", "mlx", "family", i->model_type,
                   "families", i->model_type, "parameter_size", count_words(s->parameters, count), "quantization_level",
                   level_words(s, level), "context_length", own_context(s), "embedding_length", i->width);
}

/* The digest is the configuration's: weights are not read for it. */
static json_t *model_json(const server *s, const char *name)
{
  char tagged[300], at[OLL_TIME], digest[SHA256_HEX] = "";
  snprintf(tagged, sizeof tagged, "%.280s%s", name, strchr(name, ':') ? "" : ":latest");
  model_config_fingerprint(&s->model->net->config, digest, NULL);
  return json_pack("{ss ss ss sI ss so}", "name", tagged, "model", tagged, "modified_at", oll_time(s->started, at),
                   "size", (json_int_t)s->model->info.weight_bytes, "digest", digest, "details", details(s));
}

static void answer_list(const server *s, json_t *(*one)(const server *s, const char *name), srv_response *a)
{
  json_t *list = json_array();
  for (size_t i = 0; i < s->options.n_names - s->options.n_unlisted; i++)
    json_array_append_new(list, one(s, s->options.names[i]));
  srv_json(a, 200, json_pack("{so}", "models", list));
}

void oll_tags(server *s, const srv_request *q, srv_response *a)
{
  (void)q;
  answer_list(s, model_json, a);
}

/* It never expires: the dialect's word for that is a time far away. */
static json_t *running_json(const server *s, const char *name)
{
  json_t *out = model_json(s, name);
  bool gpu = s->model->net->cx.backend->own_memory;
  json_object_del(out, "modified_at");
  json_object_set_new(out, "expires_at", json_string("2318-01-01T00:00:00Z"));
  json_object_set_new(out, "size_vram", json_integer(gpu ? (json_int_t)s->model->info.weight_bytes : 0));
  json_object_set_new(out, "context_length", json_integer(sched_context(s->scheduler)));
  return out;
}

void oll_ps(server *s, const srv_request *q, srv_response *a)
{
  (void)q;
  answer_list(s, running_json, a);
}

void oll_version(server *s, const srv_request *q, srv_response *a)
{
  (void)s, (void)q;
  srv_json(a, 200, json_pack("{ss}", "version", tern_version()));
}

/* ---- /api/show ---- */

static void put(json_t *to, const char *family, const char *name, json_t *value)
{
  char key[160];
  snprintf(key, sizeof key, "%.100s.%s", family, name);
  json_object_set_new(to, key, value);
}

/* The keys of a GGUF file's head, which is where the dialect's own server has them from. */
static json_t *model_info(const server *s)
{
  const model_config *c = &s->model->net->config;
  const char *family = s->model->info.model_type;
  const struct {
    const char *name;
    int value;
  } numbers[] = {{"context_length", own_context(s)},
                 {"embedding_length", c->width},
                 {"block_count", c->layers},
                 {"feed_forward_length", c->ffn},
                 {"attention.head_count", c->heads},
                 {"attention.head_count_kv", c->kv_heads},
                 {"attention.key_length", c->head_dim},
                 {"attention.value_length", c->head_dim},
                 {"attention.sliding_window", c->sliding_window},
                 {"vocab_size", c->vocab}};
  json_t *out =
      json_pack("{ss sI}", "general.architecture", family, "general.parameter_count", (json_int_t)s->parameters);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].value) /* 0: there is none */
      put(out, family, numbers[i].name, json_integer(numbers[i].value));
  if (c->rope_theta > 0)
    put(out, family, "rope.freq_base", json_real(c->rope_theta));
  return out;
}

/* Defaults of requests that say nothing, as Ollama's parameters are written. */
static json_t *parameters(const server *s)
{
  char text[400];
  const tern_sampling *o = &s->options.sampling;
  int n = snprintf(text, sizeof text, "temperature %g\ntop_p %g\ntop_k %d\nmin_p %g\nnum_predict %d\nnum_ctx %d",
                   o->temp, o->top_p, o->top_k, o->min_p, s->options.max_tokens, sched_context(s->scheduler));
  return json_stringn(text, (size_t)n);
}

/* What of tools and thinking the model's template and this server know. */
static json_t *capabilities(const server *s)
{
  json_t *out = json_pack("[s]", "completion");
  if (s->model->chat && oai_template_has(s, true, "tools") && oai_calls_format(s))
    json_array_append_new(out, json_string("tools"));
  if (s->reasoning)
    json_array_append_new(out, json_string("thinking"));
  return out;
}

static json_t *show_json(const server *s)
{
  size_t n = 0;
  char at[OLL_TIME];
  const char *template = s->model->chat ? chat_template_source(s->model->chat, false, &n) : NULL;
  return json_pack("{ss so so so so so ss}", "modelfile", "", "parameters", parameters(s), "template",
                   json_stringn(template ? template : "", n), "details", details(s), "model_info", model_info(s),
                   "capabilities", capabilities(s), "modified_at", oll_time(s->started, at));
}

void oll_show(server *s, const srv_request *q, srv_response *a)
{
  json_t *root;
  oai_fault fault = {0};
  if (!srv_body(q, a, &root))
    return;
  bool ok = fields_check(&oll_show_fields, root, &fault);
  json_t *name = json_object_get(root, "name");
  if (ok && name && !json_object_get(root, "model"))
    json_object_set(root, "model", name);
  ok = ok && oll_fix_model(s, root, &fault);
  const char *wanted = json_string_value(json_object_get(root, "model"));
  if (ok && wanted && !srv_serves(s, wanted)) {
    fault.status = 404;
    ok = oai_wrong(&fault, "model", "\"%.100s\" is not served here", wanted);
  }
  if (ok)
    srv_json(a, 200, show_json(s));
  else
    oai_answer_fault(a, &fault);
  json_decref(root);
}
