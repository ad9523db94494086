/* anthropic.c - the Anthropic dialect: /v1/messages and its count_tokens.
 *
 * The body is rewritten into the shared fields (the system prompt becomes the first message, stop_sequences becomes
 * stop) and then read as strictly as any other. One choice, text blocks alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/conversation.h"

/* ---- errors ---- */

static const char *error_type(int status)
{
  switch (status) {
  case 401:
    return "authentication_error";
  case 404:
    return "not_found_error";
  case 413:
    return "request_too_large";
  case 429:
    return "rate_limit_error";
  case 503:
    return "overloaded_error";
  default:
    return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

json_t *ant_error(int status, const char *param, const char *code, const char *message)
{
  (void)param, (void)code; /* the message has the field's name */
  return json_pack("{ss s{ss ss}}", "type", "error", "error", "type", error_type(status), "message", message);
}

/* ---- the body ---- */

/* Fields that are not the dialect's, though the other dialect would understand them. */
static const char *const foreign[] = {"stop",
                                      "n",
                                      "logprobs",
                                      "top_logprobs",
                                      "stream_options",
                                      "max_completion_tokens",
                                      "functions",
                                      "function_call",
                                      "response_format",
                                      "modalities",
                                      "echo",
                                      "best_of",
                                      "suffix",
                                      "user",
                                      "store",
                                      "safety_identifier",
                                      "parallel_tool_calls"};

static bool no_memory(oai_fault *fault)
{
  err_nomem(&fault->err, "request");
  return false;
}

/* A choice among no tools: {"type": "auto"} or "none", in parallel or not. */
static bool asks_for_no_tool(const json_t *wanted)
{
  const char *type = json_string_value(json_object_get(wanted, "type"));
  size_t known = 1 + json_is_boolean(json_object_get(wanted, "disable_parallel_tool_use"));
  return type && (!strcmp(type, "auto") || !strcmp(type, "none")) && json_object_size(wanted) == known;
}

/* Fields that ask for nothing. */
static void drop_neutral(json_t *root)
{
  if (asks_for_no_tool(json_object_get(root, "tool_choice")))
    json_object_del(root, "tool_choice");
  json_object_del(root, "metadata");
  json_object_del(root, "service_tier");
}

/* A variable of the template, unless the request has it. */
static bool set_variable(json_t *root, const char *name, bool value, oai_fault *fault)
{
  json_t *variables = json_object_get(root, "chat_template_kwargs");
  if (json_is_null(variables) || !variables) {
    variables = json_object();
    if (json_object_set_new(root, "chat_template_kwargs", variables))
      return no_memory(fault);
  }
  if (!json_is_object(variables) || json_object_get(variables, name)) /* oai_read refuses what is no object */
    return true;
  return json_object_set_new(variables, name, json_boolean(value)) == 0 || no_memory(fault);
}

/* In this dialect a model thinks where it is asked to, and that is not here yet. Not said: as --chat-template-args
 * have it, if they do. */
static bool move_thinking(const server *s, json_t *root, oai_fault *fault)
{
  const json_t *thinking = json_object_get(root, "thinking");
  const char *type = json_string_value(json_object_get(thinking, "type"));
  bool said = thinking && !json_is_null(thinking);
  if (said && (!type || strcmp(type, "disabled") != 0 || json_object_size(thinking) != 1))
    return oai_wrong(fault, "thinking", "only {\"type\": \"disabled\"} is supported here");
  json_object_del(root, "thinking");
  if (!said && json_object_get(s->options.variables, "enable_thinking"))
    return true;
  return set_variable(root, "enable_thinking", false, fault);
}

/* Marks for a cache that is not there. */
static void drop_cache_control(json_t *parts)
{
  size_t i;
  json_t *part;
  json_array_foreach(parts, i, part)
  {
    json_object_del(part, "cache_control");
  }
}

static bool check_system(const json_t *words, oai_fault *fault)
{
  if (!json_is_string(words) && !json_is_array(words))
    return oai_wrong(fault, "system", "must be a string or a list of text blocks");
  for (size_t i = 0; i < json_array_size(words); i++) {
    const json_t *block = json_array_get(words, i);
    const char *type = json_string_value(json_object_get(block, "type"));
    if (!type || strcmp(type, "text") != 0 || !json_is_string(json_object_get(block, "text")))
      return oai_wrong(fault, "system", "block %zu is not {\"type\": \"text\", \"text\": \"…\"}", i);
  }
  return true;
}

/* The system prompt, a text or text blocks, becomes the first message. */
static bool move_system(json_t *root, json_t *messages, oai_fault *fault)
{
  json_t *words = json_object_get(root, "system");
  if (!words || json_is_null(words))
    return true;
  if (!check_system(words, fault))
    return false;
  drop_cache_control(words);
  if (json_array_insert_new(messages, 0, json_pack("{ss sO}", "role", "system", "content", words)))
    return no_memory(fault);
  json_object_del(root, "system");
  return true;
}

static const char *role_at(const json_t *messages, size_t i)
{
  return json_string_value(json_object_get(json_array_get(messages, i), "role"));
}

static bool check_roles(const json_t *messages, oai_fault *fault)
{
  for (size_t i = 0; i < json_array_size(messages); i++) {
    const char *role = role_at(messages, i);
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
      return oai_wrong(fault, "messages", "message %zu: role: must be \"user\" or \"assistant\"", i);
    drop_cache_control(json_object_get(json_array_get(messages, i), "content"));
  }
  return true;
}

/* The messages, for both routes. They are fixed before the system prompt shifts their numbers. */
static bool fix_conversation(const server *s, json_t *root, oai_fault *fault)
{
  json_t *messages = json_object_get(root, "messages");
  if (!json_is_array(messages) || !json_array_size(messages))
    return oai_wrong(fault, "messages", "must be a list of messages, and not empty");
  if (!check_roles(messages, fault) || !oai_fix_messages(s, messages, fault))
    return false;
  /* The assistant's beginning of its answer is continued. */
  bool begun = !strcmp(role_at(messages, json_array_size(messages) - 1), "assistant");
  if (begun && !set_variable(root, "continue_final_message", true, fault))
    return false;
  return move_system(root, messages, fault);
}

static bool move_stops(json_t *root, oai_fault *fault)
{
  json_t *stops = json_object_get(root, "stop_sequences");
  if (!stops || json_is_null(stops))
    return true;
  if (!json_is_array(stops))
    return oai_wrong(fault, "stop_sequences", "must be a list of strings");
  if (!oai_check_stops("stop_sequences", stops, fault))
    return false;
  if (json_object_set(root, "stop", stops))
    return no_memory(fault);
  json_object_del(root, "stop_sequences");
  return true;
}

static bool translate(const server *s, json_t **in, oai_fault *fault)
{
  json_t *root = *in;
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (json_object_get(root, foreign[i]))
      return oai_wrong(fault, foreign[i], "not a field of this dialect");
  if (!json_is_integer(json_object_get(root, "max_tokens")))
    return oai_wrong(fault, "max_tokens", "must be given, as a whole number");
  drop_neutral(root);
  return move_stops(root, fault) && move_thinking(s, root, fault) && fix_conversation(s, root, fault);
}

/* ---- answers ---- */

static const char *stop_reason(const choice *c)
{
  return c->end.stop ? "stop_sequence" : !strcmp(c->end.finish, "length") ? "max_tokens" : "end_turn";
}

/* Input that was found in a prefix is counted apart. */
static json_t *usage(const conversation *v, size_t output)
{
  size_t cached = conversation_cached_tokens(v), input = conversation_prompt_tokens(v) - cached;
  return json_pack("{sI si sI sI}", "input_tokens", (json_int_t)input, "cache_creation_input_tokens", 0,
                   "cache_read_input_tokens", (json_int_t)cached, "output_tokens", (json_int_t)output);
}

/* `content` and `reason` are taken over. */
static json_t *message(const conversation *v, json_t *content, const char *reason, const char *stop, size_t output)
{
  return json_pack("{ss ss ss ss so ss? ss? so}", "id", v->writer.id, "type", "message", "role", "assistant", "model",
                   v->request.model, "content", content, "stop_reason", reason, "stop_sequence", stop, "usage",
                   usage(v, output));
}

static json_t *text_of(const choice_part *p)
{
  return json_stringn(p->text.data ? p->text.data : "", p->text.length);
}

static void whole(conversation *v, buf *out)
{
  const choice *c = &v->set->at[0];
  json_t *content = json_pack("[{ss so}]", "type", "text", "text", text_of(&c->taken));
  srv_add_json(out, message(v, content, stop_reason(c), c->end.stop, c->end.n_ids));
}

/* Takes over the document, whose "type" names the event. */
static void add_event(json_t *document, buf *out)
{
  const char *type = json_string_value(json_object_get(document, "type"));
  buf_addf(out, "event: %s\n", type ? type : "error");
  oai_add_event(document, out);
}

static void begin(conversation *v, buf *out)
{
  add_event(json_pack("{ss so}", "type", "message_start", "message", message(v, json_array(), NULL, NULL, 0)), out);
  add_event(json_pack("{ss si s{ss ss}}", "type", "content_block_start", "index", 0, "content_block", "type", "text",
                      "text", ""),
            out);
  add_event(json_pack("{ss}", "type", "ping"), out);
}

static void delta(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out)
{
  (void)v, (void)end; /* of the one choice: finish tells it */
  if (news->text.length)
    add_event(json_pack("{ss si s{ss so}}", "type", "content_block_delta", "index", index, "delta", "type",
                        "text_delta", "text", text_of(news)),
              out);
}

static void finish(conversation *v, buf *out)
{
  const choice *c = &v->set->at[0];
  add_event(json_pack("{ss si}", "type", "content_block_stop", "index", 0), out);
  add_event(json_pack("{ss s{ss ss?} so}", "type", "message_delta", "delta", "stop_reason", stop_reason(c),
                      "stop_sequence", c->end.stop, "usage", usage(v, c->end.n_ids)),
            out);
  add_event(json_pack("{ss}", "type", "message_stop"), out);
}

static void fail(conversation *v, int status, const char *why, buf *out)
{
  (void)v;
  add_event(ant_error(status, NULL, NULL, why), out);
}

/* ---- the routes ---- */

void ant_messages(server *s, const srv_request *q, srv_response *a)
{
  static const dialect is = {"msg", true, translate, whole, begin, delta, finish, fail};
  conversation_run(s, q, &is, a);
}

/* What a request would have as input: the fields of /v1/messages, of which those that make the prompt count. */
void ant_count_tokens(server *s, const srv_request *q, srv_response *a)
{
  json_t *root;
  oai_fault fault = {0};
  oai_request r = {0};
  if (!srv_body(q, a, &root))
    return;
  if (!json_object_get(root, "max_tokens"))
    json_object_set_new(root, "max_tokens", json_integer(1));
  r.root = root;
  bool ok = translate(s, &r.root, &fault) && oai_read(s, r.root, true, &r, &fault);
  if (ok)
    srv_json(a, 200, json_pack("{sI}", "input_tokens", (json_int_t)r.prompts[0].n));
  else
    oai_answer_fault(a, &fault);
  oai_clear(&r);
}
