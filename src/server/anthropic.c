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
static const char *const foreign[] = {
    "stop", "n", "logprobs", "top_logprobs", "stream_options", "max_completion_tokens"};

/* Fields that ask for nothing: with these values, as JSON, or (NULL) with any. */
static const struct {
  const char *name, *value;
} neutral[] = {
    {"thinking", "{\"type\":\"disabled\"}"},
    {"tool_choice", "{\"type\":\"auto\"}"},
    {"tool_choice", "{\"type\":\"none\"}"},
    {"metadata", NULL},
    {"service_tier", NULL},
};

static void drop_neutral(json_t *root)
{
  for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++) {
    json_t *value = json_object_get(root, neutral[i].name);
    json_t *as = neutral[i].value ? json_loads(neutral[i].value, 0, NULL) : NULL;
    if (value && (!neutral[i].value || json_equal(as, value)))
      json_object_del(root, neutral[i].name);
    json_decref(as);
  }
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

/* The system prompt, a text or text blocks, becomes the first message. */
static bool move_system(json_t *root, json_t *messages, oai_fault *fault)
{
  json_t *words = json_object_get(root, "system");
  if (!words || json_is_null(words))
    return true;
  if (!json_is_string(words) && !json_is_array(words))
    return oai_wrong(fault, "system", "must be a string or a list of text blocks");
  drop_cache_control(words);
  if (json_array_insert_new(messages, 0, json_pack("{ss sO}", "role", "system", "content", words))) {
    err_nomem(&fault->err, "messages");
    return false;
  }
  json_object_del(root, "system");
  return true;
}

static bool check_roles(const json_t *messages, oai_fault *fault)
{
  for (size_t i = 0; i < json_array_size(messages); i++) {
    json_t *message = json_array_get(messages, i);
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
      return oai_wrong(fault, "messages", "message %zu: role: must be \"user\" or \"assistant\"", i);
    drop_cache_control(json_object_get(message, "content"));
  }
  return true;
}

/* The messages, for both routes. */
static bool fix_conversation(json_t *root, oai_fault *fault)
{
  json_t *messages = json_object_get(root, "messages");
  if (!json_is_array(messages) || !json_array_size(messages))
    return oai_wrong(fault, "messages", "must be a list of messages, and not empty");
  return check_roles(messages, fault) && move_system(root, messages, fault);
}

static bool translate(json_t **in, oai_fault *fault)
{
  json_t *root = *in, *stops = json_object_get(root, "stop_sequences");
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (json_object_get(root, foreign[i]))
      return oai_wrong(fault, foreign[i], "not a field of this dialect");
  if (!json_is_integer(json_object_get(root, "max_tokens")))
    return oai_wrong(fault, "max_tokens", "must be given, as a whole number");
  if (stops && !json_is_null(stops) && !json_is_array(stops))
    return oai_wrong(fault, "stop_sequences", "must be a list of strings");
  if (stops && json_object_set(root, "stop", stops)) {
    err_nomem(&fault->err, "stop_sequences");
    return false;
  }
  json_object_del(root, "stop_sequences");
  drop_neutral(root);
  return fix_conversation(root, fault);
}

/* ---- answers ---- */

static const char *stop_reason(const choice *c)
{
  return c->end.stop ? "stop_sequence" : !strcmp(c->end.finish, "length") ? "max_tokens" : "end_turn";
}

static json_t *usage(size_t input, size_t output)
{
  return json_pack("{sI si si sI}", "input_tokens", (json_int_t)input, "cache_creation_input_tokens", 0,
                   "cache_read_input_tokens", 0, "output_tokens", (json_int_t)output);
}

/* `content` and `reason` are taken over. */
static json_t *message(const conversation *v, json_t *content, const char *reason, const char *stop, size_t output)
{
  return json_pack("{ss ss ss ss so ss? ss? so}", "id", v->writer.id, "type", "message", "role", "assistant", "model",
                   v->request.model, "content", content, "stop_reason", reason, "stop_sequence", stop, "usage",
                   usage(conversation_prompt_tokens(v), output));
}

static json_t *text_of(const choice *c)
{
  return json_stringn(c->text.data ? c->text.data : "", c->text.length);
}

static json_t *whole(conversation *v)
{
  const choice *c = &v->set->at[0];
  json_t *content = json_pack("[{ss so}]", "type", "text", "text", text_of(c));
  return message(v, content, stop_reason(c), c->end.stop, c->end.n_ids);
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

static void delta(conversation *v, int index, const choice *c, buf *out)
{
  (void)v;
  if (c->text.length)
    add_event(json_pack("{ss si s{ss so}}", "type", "content_block_delta", "index", index, "delta", "type",
                        "text_delta", "text", text_of(c)),
              out);
}

static void finish(conversation *v, buf *out)
{
  const choice *c = &v->set->at[0];
  add_event(json_pack("{ss si}", "type", "content_block_stop", "index", 0), out);
  add_event(json_pack("{ss s{ss ss?} so}", "type", "message_delta", "delta", "stop_reason", stop_reason(c),
                      "stop_sequence", c->end.stop, "usage", usage(conversation_prompt_tokens(v), c->end.n_ids)),
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
  bool ok = translate(&r.root, &fault) && oai_read(s, r.root, true, &r, &fault);
  if (ok)
    srv_json(a, 200, json_pack("{sI}", "input_tokens", (json_int_t)r.prompts[0].n));
  else
    oai_answer_fault(a, &fault);
  oai_clear(&r);
}
