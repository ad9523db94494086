/* answer.c - see answer.h. */
#include "cli/answer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/out.h"
#include "cli/signals.h"
#include "engine/constraint.h"
#include "engine/draft.h"
#include "engine/fit.h"
#include "engine/prompt.h"
#include "format/json_util.h"

/* What transformers gave models without a template of their own, until it stopped: ChatML. */
static const char default_template[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/* ---- template ---- */

/* --chat-template: a file's text where there is such a file, else the template itself. */
static tern_status own_template(const answerer *r, const char *given, tern_error *err)
{
  char *text = NULL;
  size_t length = strlen(given);
  if (file_is_regular(given))
    TRY(use_text(given, &text, &length, err));
  else if (!strstr(given, "{{") && !strstr(given, "{%"))
    return err_set(err, TERN_E_NOT_FOUND, "--chat-template: \"%.60s\" is neither a file nor a template", given);
  tern_status status = prompt_check_chat(r->model, err);
  if (status == TERN_OK)
    status = chat_set_template(r->model->chat, text ? text : given, length, err);
  mem_free(text);
  return status == TERN_OK ? status : err_prefix(err, status, "--chat-template");
}

static tern_status read_variables(answerer *r, const char *text, tern_error *err)
{
  static const char flag[] = "--chat-template-args";
  const char *key;
  json_t *value;
  if (jsonu_parse(flag, text, strlen(text), &r->variables, err) != TERN_OK)
    return err ? err->status = TERN_E_USAGE : TERN_E_USAGE;
  json_object_foreach(r->variables, key, value)
  {
    if (!jsonu_finite(value))
      return err_set(err, TERN_E_USAGE, "%s: \"%.60s\" is or holds NaN or an infinity: give a finite number", flag,
                     key);
  }
  return TERN_OK;
}

static tern_status open_template(answerer *r, tern_error *err)
{
  const cli_args *a = r->args;
  if (a->template_args)
    TRY(read_variables(r, a->template_args, err));
  if (a->chat_template)
    return own_template(r, a->chat_template, err);
  if (a->default_template && !answer_has_template(r))
    return chat_set_template(r->model->chat, default_template, strlen(default_template), err);
  return TERN_OK;
}

bool answer_has_template(const answerer *r)
{
  return !r->model->chat || chat_has_template(r->model->chat);
}

/* ---- sampling ---- */

static tern_status read_bias(answerer *r, tern_error *err)
{
  json_t *tree, *value;
  const char *key;
  size_t n = 0;
  const char *text = r->args->logit_bias;
  if (jsonu_parse("--logit-bias", text, strlen(text), &tree, err) != TERN_OK)
    return err ? err->status = TERN_E_USAGE : TERN_E_USAGE;
  r->bias_ids = mem_array(json_object_size(tree), sizeof *r->bias_ids);
  r->bias_values = mem_array(json_object_size(tree), sizeof *r->bias_values);
  tern_status status = r->bias_ids && r->bias_values ? TERN_OK : err_nomem(err, "logit bias");
  json_object_foreach(tree, key, value)
  {
    int64_t id = 0;
    if (status != TERN_OK)
      break;
    if (!args_read_int(key, 0, r->model->info.vocab - 1, &id))
      status = err_set(err, TERN_E_USAGE, "--logit-bias: \"%.40s\" is not a token id from 0 to %d", key,
                       r->model->info.vocab - 1);
    else if (!json_is_number(value) || !isfinite((float)jsonu_real(value)))
      status = err_set(err, TERN_E_USAGE, "--logit-bias: the value of %s is not a finite number", key);
    else {
      r->bias_ids[n] = (int32_t)id;
      r->bias_values[n++] = (float)jsonu_real(value);
    }
  }
  json_decref(tree);
  r->options.sampling.bias_ids = r->bias_ids;
  r->options.sampling.bias_values = r->bias_values;
  r->options.sampling.n_bias = n;
  return status;
}

/* --extra-eos-token: an id, or a token's text. */
static tern_status read_extra_eos(answerer *r, tern_error *err)
{
  const cli_strings *extra = &r->args->extra_eos;
  r->stop_ids = mem_array(extra->n, sizeof *r->stop_ids);
  if (!r->stop_ids)
    return err_nomem(err, "stop ids");
  for (size_t i = 0; i < extra->n; i++) {
    int64_t id;
    if (!args_read_int(extra->items[i], 0, INT32_MAX, &id))
      id = tok_id(r->model->tok, extra->items[i], strlen(extra->items[i]));
    if (id < 0)
      return err_set(err, TERN_E_NOT_FOUND, "--extra-eos-token: \"%.60s\" is not a token of this model",
                     extra->items[i]);
    if (id >= r->model->info.vocab)
      return err_set(err, TERN_E_NOT_FOUND, "--extra-eos-token: \"%.60s\" is id %lld: this model has ids 0 to %d",
                     extra->items[i], (long long)id, r->model->info.vocab - 1);
    r->stop_ids[i] = (int32_t)id;
  }
  r->options.stop_ids = r->stop_ids;
  r->options.n_stop_ids = extra->n;
  return TERN_OK;
}

static tern_status read_sampling(answerer *r, tern_error *err)
{
  const cli_args *a = r->args;
  r->options = (tern_generate_options){
      .sampling = {.temp = a->temp,
                   .top_p = a->top_p,
                   .min_p = a->min_p,
                   .min_tokens_to_keep = a->min_tokens_to_keep,
                   .top_k = a->top_k,
                   .xtc_probability = a->xtc_probability,
                   .xtc_threshold = a->xtc_threshold,
                   .repetition_penalty = a->repetition_penalty,
                   .presence_penalty = a->presence_penalty,
                   .frequency_penalty = a->frequency_penalty,
                   .repetition_context = a->repetition_context},
      .max_tokens = a->max_tokens,
      .stops = a->stops.items,
      .n_stops = a->stops.n,
      .ignore_eos = a->ignore_eos,
  };
  for (size_t i = 0; i < a->stops.n; i++)
    if (!*a->stops.items[i])
      return err_set(err, TERN_E_USAGE, "--stop: the text must not be empty");
  if (a->logit_bias)
    TRY(read_bias(r, err));
  if (a->extra_eos.n)
    TRY(read_extra_eos(r, err));
  return TERN_OK;
}

/* ---- speculation ---- */

/* The draft model has the same numerics, backend and threads; what changes keys and values has nothing to decide there.
 */
static tern_status open_draft_model(answerer *r, tern_model_options options, tern_error *err)
{
  char *dir;
  tern_status status = use_dir(r->args, r->args->draft_model, NEED_WEIGHTS, &dir, err);
  if (status == TERN_OK) {
    options.max_kv_size = options.kv_bits = options.kv_group_size = options.quantized_kv_start = 0;
    status = use_prepare(dir, &options, err);
    if (status == TERN_OK)
      status = tern_model_open(dir, &options, &r->draft_model, err);
    mem_free(dir);
  }
  return status == TERN_OK ? TERN_OK : err_prefix(err, status, "--draft-model");
}

static tern_status open_draft(answerer *r, const tern_model_options *options, tern_error *err)
{
  const cli_args *a = r->args;
  if (a->draft_model && a->lookup)
    return err_set(err, TERN_E_USAGE, "--draft-model and --prompt-lookup exclude each other");
  if (a->draft_tokens && !a->draft_model && !a->lookup)
    return err_set(err, TERN_E_USAGE, "--num-draft-tokens: changes nothing without --draft-model or --prompt-lookup");
  if (a->draft_model)
    TRY(open_draft_model(r, *options, err));
  r->draft = (tern_draft){.lookup = a->lookup, .model = r->draft_model, .tokens = a->draft_tokens};
  return draft_check(&r->draft, r->model, err);
}

/* ---- open ---- */

tern_status answer_open(const cli_args *a, const char *dir, answerer *out, tern_error *err)
{
  tern_model_options options;
  *out = (answerer){.args = a};
  TRY(use_options(a, &options, err));
  TRY(use_prepare(dir, &options, err));
  double start = use_seconds();
  say_working("opening", dir);
  tern_status opened = tern_model_open(dir, &options, &out->model, err);
  say_progress_end();
  TRY(opened);
  out->open_ms = 1e3 * (use_seconds() - start);
  use_warn_backend(out->model->net->backend_fault.text);
  use_warn_prepared(out->model->net->prepared_fault.text);
  use_hint_native(out->model->net);
  say_more("opened in %.1f ms: %s, %s, backend %s, %d threads, weights %s", out->open_ms, out->model->info.profile,
           out->model->info.numerics, out->model->info.backend, out->model->info.threads,
           out->model->info.prepared ? "prepared" : "as mapped");
  TRY(open_draft(out, &options, err));
  TRY(path_place(dir, fit_check(out->model->net, out->draft_model ? out->draft_model->net : NULL, a->context, err),
                 err));
  TRY(open_template(out, err));
  return read_sampling(out, err);
}

void answer_close(answerer *r)
{
  tern_grammar_close(r->grammar);
  tern_model_close(r->draft_model);
  tern_model_close(r->model);
  json_decref(r->variables);
  mem_free(r->bias_ids);
  mem_free(r->bias_values);
  mem_free(r->stop_ids);
  *r = (answerer){0};
}

uint64_t answer_seed(const cli_args *a)
{
  uint32_t seed;
  if (ARGS_GIVEN(a, seed))
    return a->seed;
  if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
    seed = (uint32_t)(use_seconds() * 1e9);
  return seed; /* 32 bits: short enough to type */
}

/* ---- ids ---- */

tern_status answer_chat_ids(const answerer *r, const json_t *messages, int32_t **ids, size_t *n, tern_error *err)
{
  return prompt_chat_ids(r->model, messages, r->variables, ids, n, err);
}

tern_status answer_raw_ids(const answerer *r, const char *text, size_t length, int32_t **ids, size_t *n,
                           tern_error *err)
{
  return prompt_encode(r->model, NULL, text, length, true, ids, n, err);
}

tern_status answer_add_message(json_t *messages, const char *role, const char *text, size_t length, tern_error *err)
{
  size_t at = strcmp(role, "system") == 0 ? 0 : json_array_size(messages);
  json_t *message = json_pack("{ss so}", "role", role, "content", json_stringn(text, length));
  return json_array_insert_new(messages, at, message) ? err_nomem(err, "messages") : TERN_OK;
}

/* ---- --json-schema ---- */

static tern_status read_schema(const char *given, json_t **out, tern_error *err)
{
  static const char flag[] = "--json-schema";
  char *text = NULL;
  size_t length = strlen(given);
  if (file_is_regular(given))
    TRY(use_text(given, &text, &length, err));
  else if (*given != '{')
    return err_set(err, TERN_E_NOT_FOUND, "%s: \"%.60s\" is neither a file nor a schema, which is an object", flag,
                   given);
  tern_status status = jsonu_parse(flag, text ? text : given, length, out, err);
  mem_free(text);
  if (status != TERN_OK)
    return err ? err->status = TERN_E_USAGE : TERN_E_USAGE;
  if (jsonu_finite(*out))
    return TERN_OK;
  json_decref(*out);
  return err_set(err, TERN_E_USAGE, "%s: it holds NaN or an infinity", flag);
}

tern_status answer_open_grammar(answerer *r, const int32_t *ids, size_t n, bool templated, tern_error *err)
{
  json_t *schema = NULL;
  char *prompt = NULL;
  size_t length = 0;
  if (!r->args->json_schema)
    return TERN_OK;
  if (r->args->ignore_eos)
    return err_set(err, TERN_E_USAGE, "--json-schema and --ignore-eos exclude each other");
  TRY(read_schema(r->args->json_schema, &schema, err));
  grammar_wish wish = {.form = {.value = true, .schema = schema, .place = "--json-schema"}};
  wish.reasoning = templated ? parts_reasoning_of(r->model->tok) : NULL;
  tern_status status = wish.reasoning ? tok_decode(r->model->tok, ids, n, false, &prompt, &length, err) : TERN_OK;
  if (status == TERN_OK) {
    wish.opened = prompt && parts_opened(wish.reasoning, prompt, length, prompt_continues(r->variables));
    status = grammar_open(r->model, &wish, &r->grammar, err);
    r->options.grammar = r->grammar;
  }
  mem_free(prompt);
  json_decref(schema);
  return status;
}

/* ---- generate ---- */

static void cancel(void *s)
{
  tern_session_cancel(s);
}

static tern_status nothing(size_t n, tern_result *result, tern_error *err)
{
  *result = (tern_result){
      .finish = "length", .text = mem_strdup(""), .ids = mem_zalloc(sizeof *result->ids), .prompt_tokens = n};
  if (result->text && result->ids)
    return TERN_OK;
  tern_result_clear(result);
  return err_nomem(err, "answer");
}

static void drop_row(void *user, int64_t position, float *logits)
{
  (void)user, (void)position, (void)logits;
}

/* No answer, but the state behind the prompt, which --prompt-cache-file keeps. */
static tern_status only_read(tern_session *s, const int32_t *ids, size_t n, const tern_generate_options *o,
                             tern_result *result, tern_error *err)
{
  session_sink sink = {.row = drop_row};
  session_request request = {.ids = ids, .n = n, .on_read = o->on_prompt, .user = o->user};
  size_t cached = 0;
  double start = use_seconds();
  TRY(session_sync(s->timeline, &request, &sink, &cached, err));
  TRY(nothing(n, result, err));
  result->cached_tokens = cached;
  result->prompt_seconds = use_seconds() - start;
  return TERN_OK;
}

/* What stands between the engine and a verb: a bar while a long prompt is read, gone before the first text. */
typedef struct relay {
  bool (*on_text)(void *user, const char *text, size_t length);
  void *user;
  double start;
} relay;

static bool pass_text(void *user, const char *text, size_t length)
{
  const relay *to = user;
  say_progress_end();
  return to->on_text(to->user, text, length);
}

static void show_reading(void *user, size_t done, size_t total)
{
  enum { SOON = 1 }; /* seconds in which nobody wonders */
  const relay *to = user;
  if (use_seconds() - to->start > SOON)
    say_progress("reading", (double)done, (double)total);
}

tern_status answer_generate(const answerer *r, tern_session *s, const int32_t *ids, size_t n, uint64_t seed,
                            bool (*on_text)(void *user, const char *text, size_t length), void *user,
                            tern_result *result, tern_error *err)
{
  tern_generate_options options = r->options;
  options.sampling.seed = seed;
  options.sampling.continue_draws = true; /* a session that has not drawn yet starts from the seed */
  relay to = {on_text, user, use_seconds()};
  options.on_text = pass_text;
  options.on_prompt = show_reading;
  options.user = &to;
  bool none = n && options.max_tokens == 0;
  if (none && !r->args->cache_file)
    return nothing(n, result, err);
  session_uncancel(s->timeline);
  sig_watch(cancel, s); /* at once, where a signal has come already */
  tern_status status =
      none ? only_read(s, ids, n, &options, result, err) : engine_generate(s, ids, n, &options, result, err);
  sig_release();
  say_progress_end();
  return status;
}

double answer_prompt_rate(const tern_result *result)
{
  return use_rate((double)(result->prompt_tokens - result->cached_tokens), result->prompt_seconds);
}

double answer_decode_rate(const tern_result *result)
{
  /* The first token comes out of the prompt, and one that reaches the limit is not stepped. */
  return use_rate(result->n_ids ? (double)result->n_ids - 1 : 0, result->decode_seconds);
}

void answer_hint_length(const cli_args *a, const tern_result *result)
{
  if (strcmp(result->finish, "length") != 0)
    return;
  if (a->max_tokens >= 0 && result->n_ids >= (size_t)a->max_tokens)
    say_hint("(cut after %zu tokens: --max-tokens N, or -1 for no limit)", result->n_ids);
  else
    say_hint("(cut after %zu tokens: the context is full, with %zu of the prompt)", result->n_ids,
             result->prompt_tokens);
}

void answer_say_stats(const tern_result *result, uint64_t seed)
{
  char guesses[64] = "";
  if (result->drafted_tokens)
    snprintf(guesses, sizeof guesses, "; %zu of %zu guesses right", result->accepted_tokens, result->drafted_tokens);
  say("prompt %zu tokens (%zu cached) at %.1f tok/s; answer %zu tokens at %.1f tok/s (%s)%s; peak memory %.0f MB; seed "
      "%llu",
      result->prompt_tokens, result->cached_tokens, answer_prompt_rate(result), result->n_ids,
      answer_decode_rate(result), result->finish, guesses, use_peak_mb(), (unsigned long long)seed);
}
