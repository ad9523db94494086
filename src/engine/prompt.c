/* prompt.c - see prompt.h. */
#include "engine/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/json_util.h"

static bool has_token(const tok *t, const char *piece)
{
  return tok_id(t, piece, strlen(piece)) >= 0;
}

/* Whether the reference would call this a thinking model: the default of the template's enable_thinking. */
static bool thinks(const tok *t)
{
  static const char *const pairs[][2] = {
      {"<think>", "</think>"}, {"<longcat_think>", "</longcat_think>"}, {"<|channel>", "<channel|>"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (has_token(t, pairs[i][0]) && has_token(t, pairs[i][1]))
      return true;
  return false;
}

tern_status prompt_check_chat(const tern_model *m, tern_error *err)
{
  return m->chat ? TERN_OK : err_set(err, m->chat_error.status, "%s", m->chat_error.text);
}

/* This excludes the beginning of another message. */
bool prompt_continues(const json_t *variables)
{
  const json_t *value = json_object_get(variables, "continue_final_message");
  return json_is_true(value) || json_string_length(value) > 0;
}

/* The request that chat_render takes, as text (free). NULL: no memory, or text that is not UTF-8. */
static char *request_of(const tern_model *m, const json_t *messages, const json_t *tools, const json_t *given)
{
  json_t *variables = given ? json_deep_copy(given) : json_object();
  if (variables && !json_object_get(variables, "enable_thinking") &&
      json_object_set_new(variables, "enable_thinking", json_boolean(thinks(m->tok))) != 0) {
    json_decref(variables);
    return NULL;
  }
  json_t *request = json_pack("{sO sO? sb so}", "messages", (json_t *)messages, "tools", (json_t *)tools,
                              "add_generation_prompt", !prompt_continues(variables), "kwargs", variables);
  char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
  json_decref(request);
  if (text)
    jsonu_write_digits(text);
  return text;
}

tern_status prompt_encode(const tern_model *m, const tok_ask *ask, const char *text, size_t length, bool add_special,
                          int32_t **ids, size_t *n, tern_error *err)
{
  int32_t *made;
  size_t count, piece_length = 0;
  TRY(tok_encode_while(m->tok, ask, text, length, add_special, &made, &count, err));
  for (size_t i = 0; i < count; i++)
    if (made[i] >= m->net->config.vocab) {
      const char *piece = tok_piece(m->tok, made[i], &piece_length);
      tern_status status =
          err_set(err, TERN_E_LIMIT, "prompt: token %d \"%.*s\": the model has ids 0 to %d", made[i],
                  piece_length < 100 ? (int)piece_length : 100, piece ? piece : "", m->net->config.vocab - 1);
      mem_free(made);
      return status;
    }
  *ids = made;
  *n = count;
  return TERN_OK;
}

tern_status prompt_chat_text(const tern_model *m, const json_t *messages, const json_t *tools, const json_t *variables,
                             char **text, size_t *length, tern_error *err)
{
  TRY(prompt_check_chat(m, err));
  char *request = request_of(m, messages, tools, variables);
  if (!request)
    return err_nomem(err, "messages");
  tern_status status = chat_render(m->chat, request, strlen(request), text, length, err);
  free(request); /* jansson's own allocation */
  return status;
}

tern_status prompt_encode_chat(const tern_model *m, const tok_ask *ask, const char *text, size_t length, int32_t **ids,
                               size_t *n, tern_error *err)
{
  /* The template writes special tokens itself, BOS too. */
  return prompt_encode(m, ask, text, length, false, ids, n, err);
}

tern_status prompt_chat_ids(const tern_model *m, const json_t *messages, const json_t *variables, int32_t **ids,
                            size_t *n, tern_error *err)
{
  char *prompt;
  size_t length;
  TRY(prompt_chat_text(m, messages, NULL, variables, &prompt, &length, err));
  tern_status status = prompt_encode_chat(m, NULL, prompt, length, ids, n, err);
  mem_free(prompt);
  return status;
}
