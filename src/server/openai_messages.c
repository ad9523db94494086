/* openai_messages.c - messages as clients send them, made into what chat templates take. See openai.h.
 *
 * What is done is what mlx_lm.server does (process_message_content), with types checked. Keys that are not looked at
 * here go to the template as they are.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "format/json_util.h"
#include "server/openai.h"
#include "text/calls.h"
#include "text/json_push.h"

static bool wrong_at(oai_fault *fault, size_t i, const char *what, const char *wanted)
{
  fault->param = "messages";
  fault->message = i + 1;
  err_set(&fault->err, TERN_E_USAGE, "messages[%zu]: %s: %s", i, what, wanted);
  return false;
}

/* ---- content ---- */

/* Whether a part has its type and text alone, and what asks for nothing. */
static bool is_plain(const json_t *part)
{
  static const char *const known[] = {"type", "text", "cache_control"};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)part, key, value)
  {
    bool is_known = json_is_null(value) || (json_is_array(value) && !json_array_size(value));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      is_known |= !strcmp(known[i], key);
    if (!is_known)
      return false;
  }
  return true;
}

/* The texts of parts, one after another. */
static bool join_parts(json_t *message, const json_t *parts, size_t at, oai_fault *fault)
{
  buf text = {0};
  for (size_t i = 0; i < json_array_size(parts); i++) {
    const json_t *part = json_array_get(parts, i), *words = json_object_get(part, "text");
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type || strcmp(type, "text") != 0 || !json_is_string(words) || !is_plain(part)) {
      buf_free(&text);
      return wrong_at(fault, at, "content", "only parts {\"type\": \"text\", \"text\": \"…\"} are supported");
    }
    buf_add(&text, json_string_value(words), json_string_length(words));
  }
  int bad =
      text.failed ? -1 : json_object_set_new(message, "content", json_stringn(text.data ? text.data : "", text.length));
  buf_free(&text);
  if (bad)
    err_nomem(&fault->err, "messages");
  return !bad;
}

static bool fix_content(json_t *message, size_t at, oai_fault *fault)
{
  const json_t *content = json_object_get(message, "content");
  if (json_is_string(content))
    return true;
  if (json_is_array(content))
    return join_parts(message, content, at, fault);
  if (content && !json_is_null(content))
    return wrong_at(fault, at, "content", "must be a string, a list of parts, or null");
  if (json_object_set_new(message, "content", json_string("")) == 0)
    return true;
  err_nomem(&fault->err, "messages");
  return false;
}

/* ---- tool calls of an assistant's turn ---- */

/* A stream had told of a call that was cut, or turned out to be none. Of one that ended by an error there may be
 * nothing. */
bool oai_is_unfinished(const json_t *arguments)
{
  if (json_is_string(arguments) && !json_string_length(arguments))
    return true;
  json_push p = {0};
  buf text = {0};
  for (size_t i = 0; i < json_string_length(arguments); i++)
    json_push_byte(&p, json_string_value(arguments)[i], &text);
  buf_free(&text);
  return p.depth && p.object[0] && p.state != PUSH_STUCK;
}

bool oai_says_call(const char *content, const char *name)
{
  for (size_t i = 0; content && name && *name && calls_at(i); i++) {
    const calls_format *f = calls_at(i);
    const char *begins[] = {f->start && !*f->start ? "{" : f->start, f->bare_start, f->channels ? "functions." : NULL};
    for (size_t k = 0; k < sizeof begins / sizeof *begins; k++) {
      const char *at = begins[k] ? strstr(content, begins[k]) : NULL;
      if (at && strstr(at, name))
        return true;
    }
  }
  return false;
}

/* Calls that were never whole go, where what the model wrote of them stands in the message's content: a stream said it
 * there. Others are the client's, and wrong. */
static void drop_unfinished(json_t *message, json_t *calls)
{
  const char *content = json_string_value(json_object_get(message, "content"));
  for (size_t i = json_array_size(calls); i--;) {
    const json_t *function = json_object_get(json_array_get(calls, i), "function");
    if (oai_is_unfinished(json_object_get(function, "arguments")) &&
        oai_says_call(content, json_string_value(json_object_get(function, "name"))))
      json_array_remove(calls, i);
  }
  if (!json_array_size(calls))
    json_object_del(message, "tool_calls");
}

json_t *oai_arguments(const json_t *text)
{
  json_t *parsed;
  tern_error err = {0};
  const char *letters = json_string_value(text);
  size_t n = json_string_length(text);
  bool digits;
  if (jsonu_parse_digits("arguments", letters, n, &digits, &parsed, &err) == TERN_OK)
    return parsed;
  return json_loadb(letters, n, JSON_ALLOW_NUL, NULL);
}

/* Templates want arguments as an object; clients send its text. None are an empty one, as where a model writes none. */
static bool fix_arguments(json_t *function, size_t at, oai_fault *fault)
{
  json_t *arguments = json_object_get(function, "arguments"), *parsed;
  if (!arguments && json_object_set_new(function, "arguments", json_object())) {
    err_nomem(&fault->err, "messages");
    return false;
  }
  if (!json_is_string(arguments))
    return !arguments || json_is_object(arguments) || json_is_null(arguments) ||
           wrong_at(fault, at, "arguments of a tool call", "must be the text of a JSON object");
  if (!json_string_length(arguments))
    return true;
  if (!(parsed = oai_arguments(arguments)))
    return wrong_at(fault, at, "arguments of a tool call", "must be the text of a JSON object");
  bool finite = jsonu_finite(parsed);
  json_object_set_new(function, "arguments", parsed);
  return finite || wrong_at(fault, at, "arguments of a tool call",
                            "has NaN, an infinity, or a number that is too long or too large");
}

static bool fix_each_call(const json_t *calls, size_t at, oai_fault *fault)
{
  for (size_t i = 0; i < json_array_size(calls); i++) {
    json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
    if (!json_is_object(function))
      return wrong_at(fault, at, "tool_calls", "each must be an object with a \"function\" that is one");
    if (!json_is_string(json_object_get(function, "name")))
      return wrong_at(fault, at, "name of a tool call", "must be a string");
    if (!fix_arguments(function, at, fault))
      return false;
  }
  return true;
}

static bool fix_tool_calls(json_t *message, size_t at, oai_fault *fault)
{
  json_t *calls = json_object_get(message, "tool_calls"), *old = json_object_get(message, "function_call");
  if (old && !json_is_null(old))
    return wrong_at(fault, at, "function_call", "no template reads it: give tool_calls");
  if (!calls || json_is_null(calls))
    return true;
  if (!json_is_array(calls))
    return wrong_at(fault, at, "tool_calls", "must be a list");
  json_incref(calls);
  if (json_array_size(calls))
    drop_unfinished(message, calls);
  bool ok = fix_each_call(calls, at, fault);
  json_decref(calls);
  return ok;
}

/* ---- roles ---- */

static bool knows_developer(const server *s)
{
  size_t n;
  const char *source = s->model->chat ? chat_template_source(s->model->chat, false, &n) : NULL;
  return source && memmem(source, n, "developer", strlen("developer"));
}

static bool fix_role(const server *s, json_t *message, size_t at, oai_fault *fault)
{
  const char *role = json_string_value(json_object_get(message, "role"));
  if (!role)
    return wrong_at(fault, at, "role", "must be a string");
  if (strcmp(role, "developer") != 0 || knows_developer(s))
    return true;
  return json_object_set_new(message, "role", json_string("system")) == 0;
}

bool oai_fix_messages(const server *s, json_t *messages, oai_fault *fault)
{
  if (!json_is_array(messages) || !json_array_size(messages))
    return oai_wrong(fault, "messages", "must be a list of messages, and not empty");
  if (s->model->chat && !chat_has_template(s->model->chat)) {
    fault->code = "no_chat_template";
    return oai_wrong(fault, "messages",
                     "this model has no chat template: start the server with --chat-template or "
                     "--use-default-chat-template, or use /v1/completions");
  }
  for (size_t i = 0; i < json_array_size(messages); i++) {
    json_t *message = json_array_get(messages, i);
    if (!json_is_object(message))
      return wrong_at(fault, i, "a message", "must be an object");
    if (!fix_role(s, message, i, fault) || !fix_content(message, i, fault) || !fix_tool_calls(message, i, fault))
      return false;
  }
  return true;
}
