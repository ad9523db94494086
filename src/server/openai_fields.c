/* openai_fields.c - from a request's JSON to numbers: tables of fields, and a loop. See openai.h. */
#include "server/fields.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "engine/prompt.h"
#include "format/json_util.h"

enum { MOST_TOKENS = 1 << 30 };

bool oai_wrong(oai_fault *fault, const char *param, const char *format, ...)
{
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fault->param = param;
  err_set(&fault->err, TERN_E_USAGE, "%.100s: %s", param, text);
  return false;
}

bool oai_wrong_in(oai_fault *fault, const char *within, const char *param, const char *format, ...)
{
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fault->param = param;
  err_set(&fault->err, TERN_E_USAGE, "%s%.100s: %s", within, param, text);
  return false;
}

/* Behind `begin` at the text's beginning stands `rest` from now on. */
static void put_before(oai_fault *fault, const char *param, const char *begin, const char *rest)
{
  tern_error old = fault->err;
  size_t skip = (size_t)(rest - fault->err.text);
  fault->param = param;
  err_set(&fault->err, old.status, "%s%s", begin, old.text + skip);
}

void oai_rename(oai_fault *fault, const char *made, const char *asked)
{
  size_t n = strlen(made);
  if (!fault->param || strcmp(fault->param, made) != 0)
    return;
  if (!strncmp(fault->err.text, made, n))
    put_before(fault, asked, asked, fault->err.text + n);
  fault->param = asked;
}

void oai_rename_message(oai_fault *fault, const char *asked, long element)
{
  char begin[100];
  const char *end = strchr(fault->err.text, ']');
  if (!fault->message || !end)
    return;
  snprintf(begin, sizeof begin, element < 0 ? "%.60s" : "%.60s[%ld]", asked, element);
  put_before(fault, asked, begin, end + 1);
  fault->message = 0;
}

static bool wrong_type(oai_fault *fault, const char *param, const char *wanted, const json_t *value)
{
  char is[100];
  return oai_wrong(fault, param, "must be %s, not %s", wanted, jsonu_describe(value, is, sizeof is));
}

static bool failed(oai_fault *fault, const char *param)
{
  fault->param = param;
  return false;
}

/* ---- numbers and switches ---- */

typedef enum field_kind { FIELD_BOOL, FIELD_INT, FIELD_REAL } field_kind;

typedef struct field {
  const char *name;
  field_kind kind;
  size_t offset; /* in oai_request */
  double lo, hi;
} field;

#define AT(member) offsetof(oai_request, member)
static const field fields[] = {
    {"stream", FIELD_BOOL, AT(stream), 0, 0},
    {"n", FIELD_INT, AT(n), 1, OAI_MOST_CHOICES},
    {"max_tokens", FIELD_INT, AT(max_tokens), 1, MOST_TOKENS},
    {"temperature", FIELD_REAL, AT(sampling.temp), 0, 1e6},
    {"top_p", FIELD_REAL, AT(sampling.top_p), 0, 1},
    {"top_k", FIELD_INT, AT(sampling.top_k), 0, INT_MAX},
    {"min_p", FIELD_REAL, AT(sampling.min_p), 0, 1},
    {"min_tokens_to_keep", FIELD_INT, AT(sampling.min_tokens_to_keep), 1, INT_MAX},
    {"xtc_probability", FIELD_REAL, AT(sampling.xtc_probability), 0, 1},
    {"xtc_threshold", FIELD_REAL, AT(sampling.xtc_threshold), 0, 0.5},
    {"repetition_penalty", FIELD_REAL, AT(sampling.repetition_penalty), 0, 1e6},
    {"presence_penalty", FIELD_REAL, AT(sampling.presence_penalty), -1e6, 1e6},
    {"frequency_penalty", FIELD_REAL, AT(sampling.frequency_penalty), -1e6, 1e6},
    {"repetition_context_size", FIELD_INT, AT(sampling.repetition_context), 1, INT_MAX},
    {"presence_context_size", FIELD_INT, AT(sampling.presence_context), 1, INT_MAX},
    {"frequency_context_size", FIELD_INT, AT(sampling.frequency_context), 1, INT_MAX},
};

static const field *find_field(const char *name)
{
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (!strcmp(fields[i].name, name))
      return &fields[i];
  return NULL;
}

static bool read_bool(const char *name, const json_t *value, bool *out, oai_fault *fault)
{
  if (!json_is_boolean(value))
    return wrong_type(fault, name, "true or false", value);
  *out = json_is_true(value);
  return true;
}

static bool read_int(const char *name, const json_t *value, double lo, double hi, int *out, oai_fault *fault)
{
  if (!json_is_integer(value))
    return wrong_type(fault, name, "a whole number", value);
  json_int_t x = json_integer_value(value);
  if (x < (json_int_t)lo || x > (json_int_t)hi)
    return oai_wrong(fault, name, "%lld is not from %.0f to %.0f", (long long)x, lo, hi);
  *out = (int)x;
  return true;
}

static bool read_field(const field *f, const json_t *value, oai_request *r, oai_fault *fault)
{
  void *to = (char *)r + f->offset;
  if (f->kind == FIELD_BOOL)
    return read_bool(f->name, value, to, fault);
  if (f->kind == FIELD_INT)
    return read_int(f->name, value, f->lo, f->hi, to, fault);
  if (!json_is_number(value))
    return wrong_type(fault, f->name, "a number", value);
  double x = json_number_value(value);
  if (!(x >= f->lo && x <= f->hi))
    return oai_wrong(fault, f->name, "%.15g is not from %.15g to %.15g", x, f->lo, f->hi);
  *(double *)to = x;
  return true;
}

/* ---- fields with a form of their own ---- */

bool oai_check_model(const server *s, const json_t *value, const char **name, oai_fault *fault)
{
  char list[600] = "";
  size_t used = 0;
  *name = s->options.names[0];
  if (!value || json_is_null(value))
    return true;
  if (!json_is_string(value))
    return wrong_type(fault, "model", "a string", value);
  *name = json_string_value(value);
  if (srv_serves(s, *name))
    return true;
  for (size_t i = 0; i < s->options.n_names - s->options.n_unlisted && used < sizeof list - 1; i++)
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", s->options.names[i]);
  fault->status = 404;
  fault->code = "model_not_found";
  return oai_wrong(fault, "model", "\"%.100s\" is not served here (--alias NAME adds a name); what is: %s", *name,
                   list);
}

static bool read_model(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  return oai_check_model(s, value, &r->model, fault);
}

static const json_t *stop_at(const json_t *value, size_t i)
{
  return json_is_array(value) ? json_array_get(value, i) : value;
}

static size_t count_stops(const json_t *value)
{
  return json_is_array(value) ? json_array_size(value) : 1;
}

bool oai_check_stops(const char *name, const json_t *value, oai_fault *fault)
{
  size_t n = count_stops(value);
  if (n > OAI_MOST_STOPS)
    return oai_wrong(fault, name, "%zu strings, at most %d", n, OAI_MOST_STOPS);
  for (size_t i = 0; i < n; i++) {
    const json_t *one = stop_at(value, i);
    if (!json_is_string(one))
      return wrong_type(fault, name, "a string or a list of strings", one);
    if (!json_string_length(one))
      return oai_wrong(fault, name, "an empty string would end every answer");
    if (json_string_length(one) > OAI_MOST_STOP_BYTES) /* the worker looks for them at every token */
      return oai_wrong(fault, name, "a string of %zu bytes, at most %d", json_string_length(one), OAI_MOST_STOP_BYTES);
  }
  return true;
}

static bool read_stop(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  (void)s;
  if (!oai_check_stops("stop", value, fault))
    return false;
  for (r->n_stops = 0; r->n_stops < count_stops(value); r->n_stops++)
    r->stops[r->n_stops] = json_string_value(stop_at(value, r->n_stops));
  return true;
}

static bool read_seed(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  (void)s;
  if (!json_is_integer(value))
    return wrong_type(fault, "seed", "a whole number", value);
  r->seeded = json_integer_value(value) != -1; /* what other servers take for "any" */
  r->sampling.seed = (uint64_t)json_integer_value(value);
  return true;
}

static bool read_bias(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  const char *key;
  json_t *x;
  size_t n = 0, count = json_object_size(value);
  if (!json_is_object(value))
    return wrong_type(fault, "logit_bias", "an object", value);
  r->bias_ids = mem_array(count, sizeof *r->bias_ids);
  r->bias_values = mem_array(count, sizeof *r->bias_values);
  if (!r->bias_ids || !r->bias_values) {
    err_nomem(&fault->err, "logit_bias");
    return false;
  }
  json_object_foreach((json_t *)value, key, x)
  {
    char *end;
    long id = strtol(key, &end, 10);
    bool canonical =
        *key && strspn(key, "0123456789") == strlen(key) && (*key != '0' || !key[1]); /* none comes twice */
    if (!canonical || id >= s->model->info.vocab)
      return oai_wrong(fault, "logit_bias", "\"%.40s\" is not a token id from 0 to %d", key, s->model->info.vocab - 1);
    if (!json_is_number(x) || !isfinite((float)json_number_value(x)))
      return oai_wrong(fault, "logit_bias", "the value of %.40s is not a number that float32 has", key);
    r->bias_ids[n] = (int32_t)id;
    r->bias_values[n++] = (float)json_number_value(x);
  }
  r->sampling.bias_ids = r->bias_ids;
  r->sampling.bias_values = r->bias_values;
  r->sampling.n_bias = n;
  return true;
}

static bool read_logprobs(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  (void)s;
  if (r->chat || json_is_boolean(value))
    return read_bool("logprobs", value, &r->logprobs, fault);
  r->logprobs = true;
  return read_int("logprobs", value, 0, REPLY_MOST_TOP, &r->top_logprobs, fault);
}

static bool read_top_logprobs(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  (void)s;
  return read_int("top_logprobs", value, 0, REPLY_MOST_TOP, &r->top_logprobs, fault);
}

static bool read_stream_options(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  const char *key;
  json_t *x;
  (void)s;
  if (!json_is_object(value))
    return wrong_type(fault, "stream_options", "an object", value);
  json_object_foreach((json_t *)value, key, x)
  {
    if (!strcmp(key, "include_usage")) {
      if (!json_is_null(x) && !read_bool("stream_options.include_usage", x, &r->include_usage, fault))
        return false;
    } else if (strcmp(key, "include_obfuscation") != 0) {
      return oai_wrong(fault, "stream_options", "\"%.60s\" is not known here", key);
    }
  }
  return true;
}

static bool read_variables(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  if (!json_is_object(value))
    return wrong_type(fault, "chat_template_kwargs", "an object", value);
  r->variables = s->options.variables ? json_deep_copy(s->options.variables) : json_object();
  if (r->variables && json_object_update(r->variables, (json_t *)value) == 0)
    return true;
  err_nomem(&fault->err, "chat_template_kwargs");
  return false;
}

static bool read_completion_tokens(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  (void)s;
  (void)r;
  int unused; /* oai_read looks again: it wins over max_tokens wherever it stands */
  return read_int("max_completion_tokens", value, 1, MOST_TOKENS, &unused, fault);
}

static const struct {
  const char *name;
  bool chat_only;
  unsigned kinds; /* of value (FIELD_IS_...): what /openapi.json says; `read` knows more */
  bool (*read)(const server *s, const json_t *value, oai_request *r, oai_fault *fault);
} forms[] = {
    {"model", false, FIELD_IS_STRING, read_model},
    {"stop", false, FIELD_IS_STRING | FIELD_IS_LIST, read_stop},
    {"seed", false, FIELD_IS_INT, read_seed},
    {"logit_bias", false, FIELD_IS_OBJECT, read_bias},
    {"logprobs", false, FIELD_IS_BOOL, read_logprobs},
    {"top_logprobs", true, FIELD_IS_INT, read_top_logprobs},
    {"stream_options", false, FIELD_IS_OBJECT, read_stream_options},
    {"chat_template_kwargs", true, FIELD_IS_OBJECT, read_variables},
    {"max_completion_tokens", false, FIELD_IS_INT, read_completion_tokens},
    {"tools", true, FIELD_IS_LIST, oai_read_tools},
    {"tool_choice", true, FIELD_IS_STRING | FIELD_IS_OBJECT, oai_read_tool_choice},
    {"parallel_tool_calls", true, FIELD_IS_BOOL, oai_read_parallel},
    {"reasoning_effort", true, FIELD_IS_STRING, oai_read_effort},
    {"response_format", false, FIELD_IS_OBJECT, oai_read_format},
};

/* ---- what is let be ---- */

/* Fields that change nothing in an answer. docs/server.md has the list too. */
static const char *const harmless[] = {"user",
                                       "metadata",
                                       "store",
                                       "service_tier",
                                       "safety_identifier",
                                       "prompt_cache_key",
                                       "prompt_cache_retention",
                                       "parallel_tool_calls",
                                       "request_id",
                                       "cache_prompt"};

/* Fields that are not understood, with the values under which they ask for nothing, as JSON. */
static const struct {
  const char *name, *value;
} neutral[] = {
    {"tools", "[]"},
    {"functions", "[]"},
    {"tool_choice", "\"none\""},
    {"tool_choice", "\"auto\""},
    {"function_call", "\"none\""},
    {"function_call", "\"auto\""},
    {"modalities", "[\"text\"]"},
    {"echo", "false"},
    {"best_of", "1"},
    {"suffix", "\"\""},
    {"add_generation_prompt", "true"},
};

static bool is_harmless(const char *name, const json_t *value)
{
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (!strcmp(harmless[i], name))
      return true;
  for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++) {
    if (strcmp(neutral[i].name, name) != 0)
      continue;
    json_t *as = json_loads(neutral[i].value, JSON_DECODE_ANY, NULL);
    bool same = json_equal(as, (json_t *)value);
    json_decref(as);
    if (same)
      return true;
  }
  return false;
}

/* ---- prompts ---- */

static bool too_long(oai_fault *fault, const char *param)
{
  fault->code = "context_length_exceeded";
  return failed(fault, param);
}

static bool has_prompt_room(oai_request *r, oai_fault *fault)
{
  if (r->n_prompts < OAI_MOST_CHOICES)
    return true;
  return oai_wrong(fault, "prompt", "more than %d prompts", OAI_MOST_CHOICES);
}

static bool add_text_prompt(const server *s, const json_t *text, oai_request *r, oai_fault *fault)
{
  oai_prompt *p = &r->prompts[r->n_prompts];
  if (!has_prompt_room(r, fault))
    return false;
  if (srv_check_length(s, json_string_length(text), &fault->err) != TERN_OK)
    return too_long(fault, "prompt");
  if (prompt_encode(s->model, &r->ask, json_string_value(text), json_string_length(text), true, &p->ids, &p->n,
                    &fault->err) != TERN_OK)
    return failed(fault, "prompt");
  r->n_prompts++;
  return true;
}

static bool add_ids_prompt(const server *s, const json_t *list, oai_request *r, oai_fault *fault)
{
  if (!has_prompt_room(r, fault))
    return false;
  oai_prompt *p = &r->prompts[r->n_prompts];
  p->n = json_array_size(list);
  p->ids = mem_array(p->n, sizeof *p->ids);
  if (!p->ids) {
    err_nomem(&fault->err, "prompt");
    return false;
  }
  r->n_prompts++;
  for (size_t i = 0; i < p->n; i++) {
    const json_t *id = json_array_get(list, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= s->model->info.vocab)
      return oai_wrong(fault, "prompt", "element %zu is not a token id from 0 to %d", i, s->model->info.vocab - 1);
    p->ids[i] = (int32_t)json_integer_value(id);
  }
  return true;
}

/* A text, token ids, or a list of either. */
static bool read_prompt(const server *s, oai_request *r, oai_fault *fault)
{
  const json_t *prompt = json_object_get(r->root, "prompt"), *one = json_array_get(prompt, 0);
  if (!prompt)
    return oai_wrong(fault, "prompt", "is missing");
  if (json_is_string(prompt))
    return add_text_prompt(s, prompt, r, fault);
  if (!json_is_array(prompt) || !one)
    return oai_wrong(fault, "prompt", "must be a string, a list of token ids, or a list of these, and not empty");
  if (json_is_integer(one))
    return add_ids_prompt(s, prompt, r, fault);
  for (size_t i = 0; i < json_array_size(prompt); i++) {
    const json_t *part = json_array_get(prompt, i);
    if (!json_is_string(part) && !json_is_array(part))
      return oai_wrong(fault, "prompt", "element %zu is neither a string nor a list of token ids", i);
    if (!(json_is_string(part) ? add_text_prompt : add_ids_prompt)(s, part, r, fault))
      return false;
  }
  return true;
}

static bool read_messages(const server *s, oai_request *r, oai_fault *fault)
{
  json_t *messages = json_object_get(r->root, "messages");
  oai_prompt *p = &r->prompts[0];
  if (!messages)
    return oai_wrong(fault, "messages", "is missing");
  if (!oai_fix_messages(s, messages, fault) || !oai_settle_tools(s, r, fault))
    return false;
  const json_t *variables = r->variables ? r->variables : s->options.variables;
  char *text;
  size_t length;
  if (prompt_chat_text(s->model, messages, r->tools, variables, &text, &length, &fault->err) != TERN_OK)
    return failed(fault, "messages");
  r->parts.opened = r->parts.reasoning && parts_opened(r->parts.reasoning, text, length, prompt_continues(variables));
  bool fits = r->counts || srv_check_length(s, length, &fault->err) == TERN_OK;
  tern_status status =
      fits ? prompt_encode_chat(s->model, &r->ask, text, length, &p->ids, &p->n, &fault->err) : TERN_OK;
  mem_free(text);
  if (!fits)
    return too_long(fault, "messages");
  if (status != TERN_OK)
    return failed(fault, "messages");
  r->n_prompts = 1;
  return true;
}

/* ---- all of it ---- */

static bool read_one(const server *s, const char *name, const json_t *value, oai_request *r, oai_fault *fault)
{
  const field *f = find_field(name);
  if (json_is_null(value) || !strcmp(name, r->chat ? "messages" : "prompt"))
    return true;
  if (f)
    return read_field(f, value, r, fault);
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (!strcmp(forms[i].name, name) && (r->chat || !forms[i].chat_only))
      return forms[i].read(s, value, r, fault);
  if (is_harmless(name, value))
    return true;
  fault->code = "unsupported_parameter";
  return oai_wrong(fault, name, "not supported here, and not ignored: it could change the answer");
}

/* What one field cannot know of another, and of the model. */
static bool check_together(const server *s, oai_request *r, oai_fault *fault)
{
  const json_t *most = json_object_get(r->root, "max_completion_tokens");
  if (json_is_integer(most))
    r->max_tokens = (int)json_integer_value(most);
  if (r->top_logprobs && !r->logprobs)
    return oai_wrong(fault, "top_logprobs", "needs logprobs to be true");
  if (r->sampling.temp > 0 && r->sampling.top_k >= s->model->info.vocab)
    return oai_wrong(fault, "top_k", "%d: give less than the model's %d tokens, or 0", r->sampling.top_k,
                     s->model->info.vocab);
  if (r->sampling.temp > 0 && r->sampling.min_tokens_to_keep > s->model->info.vocab)
    return oai_wrong(fault, "min_tokens_to_keep", "the model has %d tokens", s->model->info.vocab);
  if (!r->seeded && r->sampling.temp > 0 &&
      getrandom(&r->sampling.seed, sizeof r->sampling.seed, 0) != sizeof r->sampling.seed)
    r->sampling.seed = (uint64_t)s->started;
  return true;
}

bool oai_check_context(const server *s, oai_request *r, oai_fault *fault)
{
  size_t context = (size_t)sched_context(s->scheduler), longest = 0;
  static const char completion[] = "max_completion_tokens";
  const char *param = r->chat ? "messages" : "prompt";
  for (int i = 0; i < r->n_prompts; i++) {
    if (!r->prompts[i].n)
      return oai_wrong(fault, param, "the prompt has no tokens");
    longest = r->prompts[i].n > longest ? r->prompts[i].n : longest;
  }
  bool said = r->max_tokens > 0;
  if (r->fills && longest <= context)
    r->max_tokens = (int)(context - longest + 1);
  else if (!said)
    r->max_tokens = s->options.max_tokens;
  if (!said && longest <= context && longest + (size_t)r->max_tokens - 1 > context)
    r->max_tokens = (int)(context - longest + 1);
  if (longest + (size_t)r->max_tokens - 1 <= context)
    return true;
  fault->code = "context_length_exceeded";
  if (said && longest <= context)
    return oai_wrong(fault, json_object_get(r->root, completion) ? completion : "max_tokens",
                     "%d: behind a prompt of %zu tokens %zu at most have room, as there are %zu positions",
                     r->max_tokens, longest, context - longest + 1, context);
  return oai_wrong(fault, param, "a prompt of %zu tokens and %d to come need %zu positions, but there are %zu", longest,
                   r->max_tokens, longest + (size_t)r->max_tokens - 1, context);
}

bool oai_read(const server *s, json_t *root, bool is_chat, oai_request *out, oai_fault *fault)
{
  const char *name;
  json_t *value;
  *out = (oai_request){.counts = out->counts,
                       .fills = out->fills,
                       .ask = out->ask,
                       .schema_place = out->schema_place,
                       .tool_schema = out->tool_schema,
                       .chat = is_chat,
                       .n = 1,
                       .sampling = s->options.sampling,
                       .seeded = s->options.seeded,
                       .model = s->options.names[0],
                       .root = root};
  json_object_foreach(root, name, value)
  {
    if (!read_one(s, name, value, out, fault))
      return false;
  }
  if (!check_together(s, out, fault))
    return false;
  if (!(is_chat ? read_messages : read_prompt)(s, out, fault) || !oai_settle_grammar(s, out, fault))
    return false;
  if (out->n_prompts * out->n > OAI_MOST_CHOICES)
    return oai_wrong(fault, "n", "%d answers to %d prompts are more than %d", out->n, out->n_prompts, OAI_MOST_CHOICES);
  return true;
}

void oai_clear(oai_request *r)
{
  for (int i = 0; i < OAI_MOST_CHOICES; i++)
    mem_free(r->prompts[i].ids);
  mem_free(r->bias_ids);
  mem_free(r->bias_values);
  tern_grammar_close(r->grammar);
  json_decref(r->allowed);
  json_decref(r->variables);
  json_decref(r->root);
  *r = (oai_request){0};
}

/* ---- telling ---- */

static json_t *field_schema(const field *f)
{
  srv_field row = {.name = f->name, .lo = f->lo, .hi = f->hi};
  row.kinds = f->kind == FIELD_BOOL ? FIELD_IS_BOOL : f->kind == FIELD_INT ? FIELD_IS_INT : FIELD_IS_REAL;
  return fields_row_schema(&row);
}

/* The values that a field may have which is not understood. */
static json_t *neutral_schema(const char *name)
{
  json_t *values = json_pack("[n]");
  for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
    if (!strcmp(neutral[i].name, name))
      json_array_append_new(values, json_loads(neutral[i].value, JSON_DECODE_ANY, NULL));
  return json_pack("{so}", "enum", values);
}

json_t *oai_schema(bool is_chat)
{
  json_t *properties = json_object();
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    json_object_set_new(properties, harmless[i], json_pack("{ss}", "description", "let be"));
  for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
    json_object_set_new(properties, neutral[i].name, neutral_schema(neutral[i].name));
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    json_object_set_new(properties, fields[i].name, field_schema(&fields[i]));
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    bool counts = !is_chat && !strcmp(forms[i].name, "logprobs");
    srv_field row = {.name = forms[i].name, .kinds = forms[i].kinds | (counts ? FIELD_IS_INT : 0)};
    if (is_chat || !forms[i].chat_only)
      json_object_set_new(properties, row.name, fields_row_schema(&row));
  }
  const char *asked = is_chat ? "messages" : "prompt";
  json_t *of = is_chat ? json_pack("{ss si s{ss}}", "type", "array", "minItems", 1, "items", "type", "object")
                       : json_pack("{s[ss]}", "type", "string", "array");
  json_object_set_new(properties, asked, of);
  return json_pack("{ss so s[s] sb}", "type", "object", "properties", properties, "required", asked,
                   "additionalProperties", 0);
}
