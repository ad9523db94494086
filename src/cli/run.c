/* run.c - one answer to stdout, streamed as whole characters, or as one JSON document.
 *
 * The prompt is the user's message of the model's chat template; --raw, or a model without a template, takes it as it
 * is.
 */
#include <string.h>

#include "base/mem.h"
#include "cli/answer.h"
#include "cli/elsewhere.h"
#include "cli/out.h"
#include "cli/prompt_cache.h"
#include "cli/verbs.h"

/* Which of the words is MODEL and which PROMPT. One word alone is the model, unless it names none. */
static tern_status sort_words(const cli_args *a, const char **name, const char **prompt, tern_error *err)
{
  cli_env env;
  bool prompt_by_flag = a->prompt || a->prompt_file;
  args_model_and_text(a, name, prompt);
  if (a->n_words == 2 && a->model)
    return err_set(err, TERN_E_USAGE, "run: \"%.60s\" is one operand too many: --model names the model", a->words[1]);
  if ((*prompt != NULL) + (a->prompt != NULL) + (a->prompt_file != NULL) > 1)
    return err_set(err, TERN_E_USAGE, "run: the prompt comes from one place: an operand, --prompt or --file");
  if (!a->model && a->n_words == 1 && !prompt_by_flag) {
    TRY(env_read(&env, err));
    /* a word that is a model's name elsewhere was not meant as a prompt */
    if (!models_names(&env, *name) && !elsewhere_is_model(*name)) {
      *prompt = *name;
      *name = NULL;
    }
    env_clear(&env);
  }
  return TERN_OK;
}

static tern_status read_prompt(const cli_args *a, const char *operand, char **text, size_t *length, tern_error *err)
{
  const char *source = a->prompt_file ? a->prompt_file : "prompt";
  tern_status status;
  if (a->prompt_file)
    status = use_text(a->prompt_file, text, length, err);
  else if (a->prompt || operand)
    status = use_operand(a->prompt ? a->prompt : operand, text, length, err);
  else
    return err_set(err, TERN_E_USAGE, "run: no prompt: tern run MODEL \"…\", or - to read stdin");
  if (status == TERN_OK) {
    status = use_check_utf8(source, *text, *length, err);
    if (status != TERN_OK)
      mem_free(*text);
  }
  return status;
}

static tern_status prompt_ids(const answerer *r, const char *text, size_t length, int32_t **ids, size_t *n,
                              tern_error *err)
{
  const cli_args *a = r->args;
  if (a->raw || !answer_has_template(r)) {
    if (a->system)
      return err_set(err, TERN_E_UNSUPPORTED,
                     "--system: this model has no chat template to put it in (--use-default-chat-template gives one)");
    return answer_raw_ids(r, text, length, ids, n, err);
  }
  if (a->system)
    TRY(use_check_utf8("--system", a->system, strlen(a->system), err));
  json_t *messages = json_array();
  tern_status status = answer_add_message(messages, "user", text, length, err);
  if (status == TERN_OK && a->system)
    status = answer_add_message(messages, "system", a->system, strlen(a->system), err);
  if (status == TERN_OK)
    status = answer_chat_ids(r, messages, ids, n, err);
  json_decref(messages);
  return status;
}

static bool print(void *user, const char *text, size_t length)
{
  (void)user;
  out_write(text, length);
  out_flush();
  return out_ok();
}

static bool stay_silent(void *user, const char *text, size_t length)
{
  (void)user, (void)text, (void)length;
  return true;
}

static void print_json(const answerer *r, const tern_result *result, uint64_t seed)
{
  const tern_model_info *info = &r->model->info;
  json_t *usage = json_pack("{sI sI sI sI sI sI}", "prompt_tokens", (json_int_t)result->prompt_tokens,
                            "completion_tokens", (json_int_t)result->n_ids, "total_tokens",
                            (json_int_t)result->prompt_tokens + (json_int_t)result->n_ids, "cached_tokens",
                            (json_int_t)result->cached_tokens, "drafted_tokens", (json_int_t)result->drafted_tokens,
                            "accepted_tokens", (json_int_t)result->accepted_tokens);
  json_t *timings = json_pack("{sf sf sf sf sf sf}", "open_ms", r->open_ms, "prompt_ms", 1e3 * result->prompt_seconds,
                              "decode_ms", 1e3 * result->decode_seconds, "prompt_tok_s", answer_prompt_rate(result),
                              "decode_tok_s", answer_decode_rate(result), "peak_mb", use_peak_mb());
  /* jansson's integers are signed */
  json_t *seed_json =
      seed <= INT64_MAX ? json_integer((json_int_t)seed) : json_sprintf("%llu", (unsigned long long)seed);
  out_json(json_pack("{ss so ss so so so ss ss ss}", "text", result->text, "ids",
                     use_ids_json(result->ids, result->n_ids), "finish_reason", result->finish, "usage", usage,
                     "timings", timings, "seed", seed_json, "numerics", info->numerics, "backend", info->backend,
                     "profile", info->profile));
}

static tern_status answer(const answerer *r, const int32_t *ids, size_t n, tern_error *err)
{
  const cli_args *a = r->args;
  tern_session *s;
  tern_session_options options = {.context = a->context, .draft = r->draft};
  tern_result result;
  uint64_t seed = answer_seed(a);
  TRY(tern_session_open(r->model, &options, &s, err));
  tern_status status = prompt_cache_load(a, s, err);
  if (status == TERN_OK)
    status = answer_generate(r, s, ids, n, seed, a->json ? stay_silent : print, NULL, &result, err);
  if (status == TERN_OK) {
    if (a->json)
      print_json(r, &result, seed);
    else
      out_write("\n", 1);
    out_flush();
    if (!a->json)
      answer_hint_length(a, &result);
    if (a->stats)
      answer_say_stats(&result, seed);
    tern_result_clear(&result);
    status = prompt_cache_save(a, s, err);
  }
  tern_session_close(s);
  return status;
}

tern_status verb_run(const cli_args *a, tern_error *err)
{
  const char *name, *operand;
  char *dir, *text = NULL;
  size_t length, n;
  int32_t *ids = NULL;
  answerer r = {0};
  if (a->raw && (a->chat_template || a->default_template || a->template_args || a->system))
    return err_set(err, TERN_E_USAGE,
                   "run: --raw leaves the template out: --system and --chat-template… go without it");
  TRY(sort_words(a, &name, &operand, err));
  TRY(use_dir(a, name, NEED_WEIGHTS, &dir, err));
  tern_status status = read_prompt(a, operand, &text, &length, err);
  if (status == TERN_OK) {
    status = answer_open(a, dir, &r, err);
    if (status == TERN_OK)
      status = prompt_ids(&r, text, length, &ids, &n, err);
    if (status == TERN_OK && !n) /* bad input, not bad usage */
      status = err_set(err, TERN_E_FORMAT, "prompt: it has no tokens");
    if (status == TERN_OK)
      status = answer_open_grammar(&r, ids, n, !a->raw && answer_has_template(&r), err);
    if (status == TERN_OK)
      status = answer(&r, ids, n, err);
    mem_free(text);
  }
  mem_free(ids);
  answer_close(&r);
  mem_free(dir);
  return status;
}
