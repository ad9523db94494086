/* responses_input.c - items of /v1/responses, made into the shared messages. See responses.h.
 *
 * An assistant's turn may be several items: its reasoning, its text, its calls. They become one message, as templates
 * want it. Instructions and system messages that stand first become one system message: there are templates that take
 * no second. Keys that are not known here are errors, and so are kinds of items that this server could not have made.
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "format/json_util.h"
#include "server/responses.h"

static bool no_memory(oai_fault *fault)
{
  err_nomem(&fault->err, "input");
  return false;
}

static const char *text_at(const json_t *object, const char *key)
{
  return json_string_value(json_object_get(object, key));
}

static bool wrong_item(oai_fault *fault, size_t i, const char *what)
{
  fault->param = "input";
  err_set(&fault->err, TERN_E_USAGE, "input[%zu]: %.150s", i, what);
  return false;
}

/* ---- a list of items ---- */

json_t *resp_items(const json_t *input, const char *id, oai_fault *fault)
{
  json_t *list = json_is_string(input) ? json_pack("[{ss ss s[{ss sO}]}]", "type", "message", "role", "user", "content",
                                                   "type", "input_text", "text", input)
                                       : json_copy((json_t *)input); /* its own list of the same items */
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *item = json_array_get(list, i);
    if (!json_is_object(item)) {
      wrong_item(fault, i, "must be an object");
      json_decref(list);
      return NULL;
    }
    if (!json_is_string(json_object_get(item, "id")))
      json_object_set_new(item, "id", json_sprintf("item_%s_%zu", id, i));
    if (!json_object_get(item, "type"))
      json_object_set_new(item, "type", json_string("message"));
  }
  if (!list)
    no_memory(fault);
  return list;
}

/* ---- parts ---- */

static bool is_one_of(const char *name, const char *const *names)
{
  for (; *names; names++)
    if (!strcmp(*names, name))
      return true;
  return false;
}

/* Whether an object has these keys and ones that are null or empty, alone. */
static bool has_only(const json_t *object, const char *const *known)
{
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value)
  {
    bool empty = json_is_null(value) || (json_is_array(value) && !json_array_size(value));
    if (!empty && !is_one_of(key, known))
      return false;
  }
  return true;
}

/* The texts of parts whose type is one of `types`, one after another; a string is itself. New reference; NULL: fault.
 */
static json_t *joined(const json_t *content, const char *const *types, size_t at, oai_fault *fault)
{
  static const char *const keys[] = {"type", "text", "refusal", "annotations", "logprobs", NULL};
  buf text = {0};
  if (json_is_string(content))
    return json_incref((json_t *)content);
  if (!json_is_array(content)) {
    wrong_item(fault, at, "its text must be a string or a list of parts");
    return NULL;
  }
  for (size_t i = 0; i < json_array_size(content); i++) {
    const json_t *part = json_array_get(content, i);
    const char *type = text_at(part, "type");
    const json_t *words = json_object_get(part, type && !strcmp(type, "refusal") ? "refusal" : "text");
    if (!type || !is_one_of(type, types) || !json_is_string(words) || !has_only(part, keys)) {
      buf_free(&text);
      char what[120];
      snprintf(what, sizeof what, "content: part %zu is no text part that is known here", i);
      wrong_item(fault, at, what);
      return NULL;
    }
    buf_add(&text, json_string_value(words), json_string_length(words));
  }
  json_t *out = text.failed ? NULL : json_stringn(text.data ? text.data : "", text.length);
  buf_free(&text);
  if (!out)
    no_memory(fault);
  return out;
}

/* ---- messages ---- */

typedef struct reading {
  const json_t *items;
  size_t i; /* of those, the one that is read */
  json_t *messages;
  json_t *reasoning; /* that came last, for the turn behind it; NULL: none */
  json_t *names;     /* of calls, by their ids: an output has its call's name */
  size_t at;         /* in `input`: what came before is right */
  oai_fault *fault;
} reading;

static const char *role_of(const json_t *message)
{
  const char *role = text_at(message, "role");
  return role ? role : "";
}

static json_t *last_message(const reading *r)
{
  size_t n = json_array_size(r->messages);
  return n ? json_array_get(r->messages, n - 1) : NULL;
}

static bool add_message(reading *r, json_t *message)
{
  if (message && r->reasoning && !strcmp(role_of(message), "assistant"))
    json_object_set(message, "reasoning_content", r->reasoning);
  json_decref(r->reasoning);
  r->reasoning = NULL;
  return json_array_append_new(r->messages, message) == 0 || no_memory(r->fault);
}

static bool read_message(reading *r, const json_t *item)
{
  static const char *const keys[] = {"type", "role", "content", "id", "status", "phase", NULL};
  static const char *const roles[] = {"user", "system", "developer", "assistant", NULL};
  static const char *const types[] = {"input_text", "output_text", "text", "refusal", NULL};
  const char *role = text_at(item, "role");
  if (!role || !is_one_of(role, roles))
    return wrong_item(r->fault, r->at, "role must be user, system, developer or assistant");
  if (!has_only(item, keys))
    return wrong_item(r->fault, r->at, "a message has a role and content, and no keys that are not known here");
  json_t *content = joined(json_object_get(item, "content"), types, r->at, r->fault);
  return content && add_message(r, json_pack("{ss so}", "role", role, "content", content));
}

static bool is_incomplete(const json_t *item)
{
  const char *status = text_at(item, "status");
  return status && !strcmp(status, "incomplete");
}

/* Whether what the model wrote of a call that was never whole stands in a message behind it, of the same turn. */
static bool is_said_behind(const reading *r, const char *name)
{
  static const char *const types[] = {"output_text", "text", NULL};
  for (size_t i = r->i + 1; i < json_array_size(r->items); i++) {
    const json_t *item = json_array_get(r->items, i);
    if (strcmp(text_at(item, "type"), "message") != 0) /* resp_items: each has one */
      continue;
    if (strcmp(role_of(item), "assistant") != 0)
      return false;
    oai_fault ignored = {0};
    json_t *content = joined(json_object_get(item, "content"), types, i, &ignored);
    bool says = content && oai_says_call(json_string_value(content), name);
    json_decref(content);
    if (says)
      return true;
  }
  return false;
}

/* Whether a call has its output. */
static bool is_answered(const reading *r, const char *id)
{
  for (size_t i = r->i + 1; i < json_array_size(r->items); i++) {
    const json_t *item = json_array_get(r->items, i);
    const char *answered = text_at(item, "call_id");
    if (!strcmp(text_at(item, "type"), "function_call_output") && answered && !strcmp(answered, id))
      return true;
  }
  return false;
}

static bool is_object_text(const json_t *text)
{
  json_t *parsed = oai_arguments(text);
  bool is = parsed && jsonu_finite(parsed);
  json_decref(parsed);
  return is;
}

static bool read_call(reading *r, const json_t *item)
{
  static const char *const keys[] = {"type", "id", "call_id", "name", "arguments", "status", NULL};
  const char *id = text_at(item, "call_id"), *name = text_at(item, "name"), *arguments = text_at(item, "arguments");
  if (!id || !name || !arguments || !has_only(item, keys))
    return wrong_item(r->fault, r->at, "a function_call has call_id, name and arguments, which are strings");
  json_object_set_new(r->names, id, json_string(name));
  bool unfinished = is_incomplete(item) || oai_is_unfinished(json_object_get(item, "arguments"));
  if (unfinished && (is_said_behind(r, name) || (is_incomplete(item) && !is_answered(r, id))))
    return true;
  if (*arguments && !is_object_text(json_object_get(item, "arguments")))
    return wrong_item(r->fault, r->at, "arguments: must be the text of a JSON object");
  json_t *turn = last_message(r);
  if (!turn || r->reasoning || strcmp(role_of(turn), "assistant") != 0) {
    if (!add_message(r, json_pack("{ss ss}", "role", "assistant", "content", "")))
      return false;
    turn = last_message(r);
  }
  json_t *calls = json_object_get(turn, "tool_calls");
  if (!calls) {
    calls = json_array();
    if (json_object_set_new(turn, "tool_calls", calls))
      return no_memory(r->fault);
  }
  return json_array_append_new(calls, json_pack("{ss ss s{ss ss}}", "id", id, "type", "function", "function", "name",
                                                name, "arguments", arguments)) == 0 ||
         no_memory(r->fault);
}

static bool read_output(reading *r, const json_t *item)
{
  static const char *const keys[] = {"type", "id", "call_id", "output", "status", "name", NULL};
  static const char *const types[] = {"input_text", "output_text", "text", NULL};
  const char *id = text_at(item, "call_id");
  if (!id || !has_only(item, keys))
    return wrong_item(r->fault, r->at, "a function_call_output has a call_id and an output");
  json_t *name = json_object_get(r->names, id);
  if (!name)
    return wrong_item(r->fault, r->at, "a function_call_output's call_id is that of no function_call before it");
  json_t *content = joined(json_object_get(item, "output"), types, r->at, r->fault);
  if (!content)
    return false;
  return add_message(r,
                     json_pack("{ss ss sO so}", "role", "tool", "tool_call_id", id, "name", name, "content", content));
}

/* Kept for the turn that it led to. What is encrypted was not made here. */
static bool read_reasoning(reading *r, const json_t *item)
{
  static const char *const keys[] = {"type", "id", "summary", "content", "status", NULL};
  static const char *const types[] = {"reasoning_text", "summary_text", "text", NULL};
  if (!has_only(item, keys))
    return wrong_item(r->fault, r->at, "reasoning has content or a summary, and no keys that are not known here");
  const json_t *words = json_object_get(item, "content");
  if (!json_array_size(words))
    words = json_object_get(item, "summary");
  json_t *text = json_array_size(words) ? joined(words, types, r->at, r->fault) : json_string("");
  if (!text)
    return false;
  json_decref(r->reasoning);
  r->reasoning = text;
  return true;
}

static const struct {
  const char *type;
  bool (*read)(reading *r, const json_t *item);
} kinds[] = {{"message", read_message},
             {"function_call", read_call},
             {"function_call_output", read_output},
             {"reasoning", read_reasoning}};

static bool read_item(reading *r, const json_t *item)
{
  char what[120];
  const char *type = text_at(item, "type");
  for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kinds[i].type, type))
      return kinds[i].read(r, item);
  snprintf(what, sizeof what, "type \"%.60s\" is not supported here", type ? type : "");
  return wrong_item(r->fault, r->at, what);
}

static bool is_system(const json_t *message)
{
  return !strcmp(role_of(message), "system") || !strcmp(role_of(message), "developer");
}

/* Instructions and the system messages at the beginning become one, with an empty line between. */
static bool join_system(json_t *messages, const json_t *instructions, oai_fault *fault)
{
  buf text = {0};
  size_t n = 0;
  if (json_string_length(instructions))
    buf_add(&text, json_string_value(instructions), json_string_length(instructions));
  while (n < json_array_size(messages) && is_system(json_array_get(messages, n))) {
    buf_adds(&text, text.length ? "\n\n" : "");
    buf_adds(&text, text_at(json_array_get(messages, n++), "content"));
  }
  if (!text.length) {
    buf_free(&text);
    return true;
  }
  for (size_t i = 0; i < n; i++)
    json_array_remove(messages, 0);
  json_t *words = text.failed ? NULL : json_stringn(text.data, text.length);
  buf_free(&text);
  return (words && json_array_insert_new(messages, 0, json_pack("{ss so}", "role", "system", "content", words)) == 0) ||
         no_memory(fault);
}

json_t *resp_messages(const json_t *items, size_t earlier, const json_t *instructions, oai_fault *fault)
{
  reading r = {.items = items, .messages = json_array(), .names = json_object(), .fault = fault};
  bool ok = (r.messages && r.names) || no_memory(fault);
  for (; ok && r.i < json_array_size(items); r.i++) {
    r.at = r.i < earlier ? 0 : r.i - earlier;
    ok = read_item(&r, json_array_get(items, r.i));
  }
  ok = ok && join_system(r.messages, instructions, fault);
  json_decref(r.names);
  json_decref(r.reasoning);
  if (ok)
    return r.messages;
  json_decref(r.messages);
  return NULL;
}
