/* anthropic_body.c - bodies of the Anthropic dialect, rewritten into the shared fields and then read as strictly as any
 * other: the system prompt becomes the first message, stop_sequences become stop, tools become functions, and blocks
 * become what a chat template takes: thinking the message's reasoning, tool_use its calls, tool_result a message of the
 * role "tool". See anthropic.h.
 *
 * Refused are tools that the service itself would run, images and documents, and results of calls that were not made.
 */
#include <string.h>

#include "server/anthropic.h"
#include "server/routes.h"

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
                                      "parallel_tool_calls",
                                      "reasoning_effort"};

static bool no_memory(oai_fault *fault)
{
  err_nomem(&fault->err, "request");
  return false;
}

static const char *text_at(const json_t *object, const char *key)
{
  return json_string_value(json_object_get(object, key));
}

static bool is_type(const json_t *block, const char *type)
{
  const char *is = text_at(block, "type");
  return is && !strcmp(is, type);
}

/* Whether an object has no keys but these; NULL ends them. A cache that is not there may be marked. */
static bool has_only(const json_t *object, const char *const *known)
{
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value)
  {
    bool is_known = json_is_null(value) || !strcmp(key, "cache_control");
    for (size_t i = 0; known[i]; i++)
      is_known |= !strcmp(key, known[i]);
    if (!is_known)
      return false;
  }
  return true;
}

/* Fields that ask for nothing. */
static void drop_neutral(json_t *root)
{
  json_object_del(root, "metadata");
  json_object_del(root, "service_tier");
}

/* ---- tools ---- */

static bool wrong_tool(oai_fault *fault, size_t i, const char *what)
{
  return oai_wrong(fault, "tools", "element %zu: %s", i, what);
}

/* NULL: *fault says why. */
static json_t *function_of(const json_t *tool, size_t i, oai_fault *fault)
{
  static const char *const known[] = {"type", "name", "description", "input_schema", "strict", NULL};
  const json_t *strict = json_object_get(tool, "strict");
  json_t *about = json_object_get(tool, "description"), *schema = json_object_get(tool, "input_schema");
  const char *type = text_at(tool, "type");
  if (type && strcmp(type, "custom") != 0)
    oai_wrong(fault, "tools", "element %zu: \"%.60s\" is a tool of Anthropic's service, which is not here", i, type);
  else if (!text_at(tool, "name") || !json_is_object(schema))
    wrong_tool(fault, i, "must have a name and an input_schema that is an object");
  else if (about && !json_is_null(about) && !json_is_string(about))
    wrong_tool(fault, i, "description must be a string");
  else if (!has_only(tool, known))
    wrong_tool(fault, i, "has a key that is not known here");
  else {
    json_t *function = json_pack("{sO sO* sO sO*}", "name", json_object_get(tool, "name"), "description", about,
                                 "parameters", schema, "strict", (json_t *)strict);
    json_t *out = json_pack("{ss so}", "type", "function", "function", function);
    if (!out)
      no_memory(fault);
    return out;
  }
  return NULL;
}

static bool move_tools(json_t *root, oai_fault *fault)
{
  const json_t *tools = json_object_get(root, "tools");
  if (!tools || json_is_null(tools))
    return true;
  if (!json_is_array(tools))
    return oai_wrong(fault, "tools", "must be a list");
  json_t *functions = json_array();
  for (size_t i = 0; i < json_array_size(tools); i++) {
    json_t *one = function_of(json_array_get(tools, i), i, fault);
    if (!one || json_array_append_new(functions, one)) {
      json_decref(functions);
      return false;
    }
  }
  return json_object_set_new(root, "tools", functions) == 0 || no_memory(fault);
}

/* {"type": "auto"}, "any" or "none", or "tool" with a name, with or without disable_parallel_tool_use. */
static bool move_choice(json_t *root, oai_fault *fault)
{
  static const char *const any[] = {"type", "disable_parallel_tool_use", NULL};
  static const char *const named[] = {"type", "name", "disable_parallel_tool_use", NULL};
  static const struct {
    const char *asked, *shared;
  } words[] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
  const json_t *wanted = json_object_get(root, "tool_choice"), *single;
  json_t *name = json_object_get(wanted, "name"), *shared = NULL;
  if (!wanted || json_is_null(wanted))
    return true;
  for (size_t i = 0; i < sizeof words / sizeof *words && has_only(wanted, any); i++)
    if (is_type(wanted, words[i].asked))
      shared = json_string(words[i].shared);
  if (is_type(wanted, "tool") && has_only(wanted, named) && json_is_string(name))
    shared = json_pack("{ss s{sO}}", "type", "function", "function", "name", name);
  if (!shared)
    return oai_wrong(fault, "tool_choice",
                     "must be {\"type\": \"auto\"}, \"any\", \"none\", or \"tool\" with a name, and may have "
                     "disable_parallel_tool_use");
  single = json_object_get(wanted, "disable_parallel_tool_use");
  bool wrong = single && !json_is_null(single) && !json_is_boolean(single), one = json_is_true(single);
  if (json_object_set_new(root, "tool_choice", shared) ||
      (one && json_object_set_new(root, "parallel_tool_calls", json_false())))
    return no_memory(fault);
  return !wrong || oai_wrong(fault, "tool_choice", "disable_parallel_tool_use must be true or false");
}

/* ---- thinking ---- */

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

/* In this dialect a model thinks where it is asked to. Not said: as --chat-template-args have it, if they do. The
 * budget is what the client thinks well spent; what bounds an answer with its thinking is max_tokens. */
static bool move_thinking(const server *s, json_t *root, oai_fault *fault)
{
  static const char *const off_keys[] = {"type", NULL}, *const on_keys[] = {"type", "budget_tokens", NULL};
  const json_t *thinking = json_object_get(root, "thinking"), *budget = json_object_get(thinking, "budget_tokens");
  bool said = thinking && !json_is_null(thinking), on = is_type(thinking, "enabled");
  if (said && !(on && has_only(thinking, on_keys)) && !(is_type(thinking, "disabled") && has_only(thinking, off_keys)))
    return oai_wrong(fault, "thinking",
                     "only {\"type\": \"disabled\"} and {\"type\": \"enabled\", \"budget_tokens\": N} are supported");
  if (on && (!json_is_integer(budget) || json_integer_value(budget) < 1))
    return oai_wrong(fault, "thinking", "budget_tokens must be given, as a whole number");
  if (on && !oai_template_has(s, json_array_size(json_object_get(root, "tools")) > 0, "enable_thinking"))
    return oai_wrong(fault, "thinking", "the model's chat template has no enable_thinking to turn on");
  json_object_del(root, "thinking");
  if (!said && json_object_get(s->options.variables, "enable_thinking"))
    return true;
  return set_variable(root, "enable_thinking", on, fault);
}

/* ---- the system prompt ---- */

/* Marks for a cache that is not there. */
static void drop_cache_control(json_t *blocks)
{
  size_t i;
  json_t *block;
  json_array_foreach(blocks, i, block)
  {
    json_object_del(block, "cache_control");
  }
}

static bool check_system(const json_t *words, oai_fault *fault)
{
  if (!json_is_string(words) && !json_is_array(words))
    return oai_wrong(fault, "system", "must be a string or a list of text blocks");
  for (size_t i = 0; i < json_array_size(words); i++) {
    const json_t *block = json_array_get(words, i);
    if (!is_type(block, "text") || !text_at(block, "text"))
      return oai_wrong(fault, "system", "block %zu is not {\"type\": \"text\", \"text\": \"…\"}", i);
  }
  return true;
}

/* ---- messages ---- */

typedef struct rewriter {
  json_t *out;   /* messages */
  json_t *calls; /* names of the calls so far, by id */
  size_t at;     /* of the message, as it came */
  const server *server;
  oai_fault *fault;
} rewriter;

static bool wrong_block(rewriter *w, const char *what)
{
  w->fault->param = "messages";
  err_set(&w->fault->err, TERN_E_USAGE, "messages[%zu]: %s", w->at, what);
  return false;
}

static bool add_message(rewriter *w, json_t *message)
{
  return json_array_append_new(w->out, message) == 0 || no_memory(w->fault);
}

/* "text" blocks alone are joined where the other dialect's are. */
static bool all_text(const json_t *content)
{
  for (size_t i = 0; i < json_array_size(content); i++)
    if (!is_type(json_array_get(content, i), "text"))
      return false;
  return true;
}

static bool check_text(rewriter *w, const json_t *block)
{
  static const char *const known[] = {"type", "text", "citations", NULL};
  const json_t *citations = json_object_get(block, "citations");
  bool none = !citations || json_is_null(citations) || (json_is_array(citations) && !json_array_size(citations));
  return (text_at(block, "text") && none && has_only(block, known)) ||
         wrong_block(w, "content: a text block must have its text and nothing else");
}

/* The text of a result: a string, or text blocks. New reference; NULL: *fault says why. */
static json_t *result_text(rewriter *w, const json_t *content)
{
  buf text = {0};
  if (!content || json_is_null(content))
    return json_string("");
  if (json_is_string(content))
    return json_incref((json_t *)content);
  if (!json_is_array(content) || !all_text(content)) {
    wrong_block(w, "content of a tool_result: must be a string or text blocks");
    return NULL;
  }
  for (size_t i = 0; i < json_array_size(content); i++) {
    const json_t *block = json_array_get(content, i), *words = json_object_get(block, "text");
    if (!check_text(w, block)) {
      buf_free(&text);
      return NULL;
    }
    buf_add(&text, json_string_value(words), json_string_length(words));
  }
  json_t *out = json_stringn(text.data ? text.data : "", text.length);
  buf_free(&text);
  if (!out)
    no_memory(w->fault);
  return out;
}

static bool add_result(rewriter *w, const json_t *block)
{
  static const char *const known[] = {"type", "tool_use_id", "content", "is_error", NULL};
  const char *id = text_at(block, "tool_use_id");
  json_t *name = id ? json_object_get(w->calls, id) : NULL;
  if (!has_only(block, known))
    return wrong_block(w, "a tool_result has a key that is not known here");
  if (!name)
    return wrong_block(w, "a tool_result's tool_use_id is that of no tool_use before it");
  json_t *text = result_text(w, json_object_get(block, "content"));
  return text &&
         add_message(w, json_pack("{ss ss sO so}", "role", "tool", "tool_call_id", id, "name", name, "content", text));
}

/* Results and what the user says beside them, in their order. */
static bool add_user(rewriter *w, const json_t *content)
{
  json_t *words = NULL; /* of the message that is being made */
  bool well = true;
  for (size_t i = 0; i < json_array_size(content) && well; i++) {
    json_t *block = json_array_get(content, i);
    if (is_type(block, "tool_result")) {
      if (words)
        well = add_message(w, json_pack("{ss so}", "role", "user", "content", words));
      words = NULL;
      well = well && add_result(w, block);
    } else if (is_type(block, "text")) {
      words = words ? words : json_array();
      well = check_text(w, block) && (json_array_append(words, block) == 0 || no_memory(w->fault));
    } else {
      well = wrong_block(w, "content: of the user only text and tool_result blocks are supported");
    }
  }
  if (well && words)
    return add_message(w, json_pack("{ss so}", "role", "user", "content", words));
  json_decref(words);
  return well;
}

/* Adds a tool_use to the calls of a message. */
static bool add_use(rewriter *w, const json_t *block, json_t *calls)
{
  static const char *const known[] = {"type", "id", "name", "input", NULL};
  json_t *id = json_object_get(block, "id"), *name = json_object_get(block, "name");
  json_t *input = json_object_get(block, "input");
  if (!json_string_length(id) || !json_string_length(name) || !json_is_object(input) || !has_only(block, known))
    return wrong_block(w, "a tool_use must have an id, a name and an input that is an object, and nothing else");
  json_t *one =
      json_pack("{sO ss s{sO sO}}", "id", id, "type", "function", "function", "name", name, "arguments", input);
  if (json_array_append_new(calls, one) || json_object_set(w->calls, json_string_value(id), name))
    return no_memory(w->fault);
  return true;
}

/* Joins one block of the assistant's to what its message will have. */
static bool add_said(rewriter *w, const json_t *block, buf *text, buf *thinking, json_t *calls)
{
  static const char *const known[] = {"type", "thinking", "signature", NULL};
  if (is_type(block, "tool_use"))
    return add_use(w, block, calls);
  bool thinks = is_type(block, "thinking");
  const json_t *words = json_object_get(block, thinks ? "thinking" : "text");
  if (!thinks && !is_type(block, "text"))
    return wrong_block(w, "content: of the assistant only text, thinking and tool_use blocks are supported");
  if (thinks && (!json_is_string(words) || !has_only(block, known)))
    return wrong_block(w, "a thinking block must have its text, and beside it a signature alone");
  if (!thinks && !check_text(w, block))
    return false;
  buf_add(thinks ? thinking : text, json_string_value(words), json_string_length(words));
  return true;
}

static bool add_assistant(rewriter *w, const json_t *content)
{
  buf text = {0}, thinking = {0};
  json_t *calls = json_array(), *message = NULL;
  bool well = true;
  for (size_t i = 0; i < json_array_size(content) && well; i++)
    well = add_said(w, json_array_get(content, i), &text, &thinking, calls);
  if (well) {
    message = json_pack("{ss ss%}", "role", "assistant", "content", text.data ? text.data : "", text.length);
    if (thinking.length)
      json_object_set_new(message, "reasoning_content", json_stringn(thinking.data, thinking.length));
    if (json_array_size(calls))
      json_object_set(message, "tool_calls", calls);
    well = !text.failed && !thinking.failed ? add_message(w, message) : (json_decref(message), no_memory(w->fault));
  }
  buf_free(&text);
  buf_free(&thinking);
  json_decref(calls);
  return well;
}

/* What needs no rewriting is checked while it is known where it stood: in the field, at the element (-1: all of it). */
static bool check_message(const server *s, json_t *message, const char *field, long element, oai_fault *fault)
{
  json_t *alone = json_pack("[O]", message);
  bool well = alone ? oai_fix_messages(s, alone, fault) : no_memory(fault);
  if (!well)
    oai_rename_message(fault, field, element);
  json_decref(alone);
  return well;
}

static bool rewrite_message(rewriter *w, json_t *message)
{
  const char *role = text_at(message, "role");
  json_t *content = json_object_get(message, "content");
  bool user = role && !strcmp(role, "user");
  if (!user && !(role && !strcmp(role, "assistant")))
    return wrong_block(w, "role: must be \"user\" or \"assistant\"");
  if (!json_is_array(content) || all_text(content)) {
    drop_cache_control(content);
    return check_message(w->server, message, "messages", (long)w->at, w->fault) && add_message(w, json_incref(message));
  }
  return user ? add_user(w, content) : add_assistant(w, content);
}

/* The messages. Numbers in errors are as they came. */
static bool rewrite_messages(const server *s, json_t *root, json_t *messages, oai_fault *fault)
{
  rewriter w = {.out = json_array(), .calls = json_object(), .server = s, .fault = fault};
  bool well = true;
  for (w.at = 0; w.at < json_array_size(messages) && well; w.at++)
    well = rewrite_message(&w, json_array_get(messages, w.at));
  if (well)
    well = json_object_set(root, "messages", w.out) == 0 || no_memory(fault);
  json_decref(w.out);
  json_decref(w.calls);
  return well;
}

/* The system prompt, a text or text blocks, becomes the first message. */
static bool move_system(const server *s, json_t *root, json_t *messages, oai_fault *fault)
{
  json_t *words = json_object_get(root, "system");
  if (!words || json_is_null(words))
    return true;
  if (!check_system(words, fault))
    return false;
  drop_cache_control(words);
  json_t *message = json_pack("{ss sO}", "role", "system", "content", words);
  if (!message || json_array_insert_new(messages, 0, message))
    return no_memory(fault);
  if (!check_message(s, message, "system", -1, fault))
    return false;
  json_object_del(root, "system");
  return true;
}

static bool move_messages(const server *s, json_t *root, oai_fault *fault)
{
  json_t *messages = json_object_get(root, "messages");
  if (!json_is_array(messages) || !json_array_size(messages))
    return oai_wrong(fault, "messages", "must be a list of messages, and not empty");
  const char *last = text_at(json_array_get(messages, json_array_size(messages) - 1), "role");
  bool begun = last && !strcmp(last, "assistant"); /* the beginning of the answer, which is continued */
  if (!rewrite_messages(s, root, messages, fault))
    return false;
  if (begun && !set_variable(root, "continue_final_message", true, fault))
    return false;
  return move_system(s, root, json_object_get(root, "messages"), fault);
}

/* ---- the whole ---- */

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

bool ant_translate(const server *s, json_t **in, oai_fault *fault)
{
  json_t *root = *in;
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (json_object_get(root, foreign[i]))
      return oai_wrong(fault, foreign[i], "not a field of this dialect");
  if (!json_is_integer(json_object_get(root, "max_tokens")))
    return oai_wrong(fault, "max_tokens", "must be given, as a whole number");
  drop_neutral(root);
  return move_stops(root, fault) && move_tools(root, fault) && move_choice(root, fault) &&
         move_thinking(s, root, fault) && move_messages(s, root, fault);
}

json_t *ant_schema(void)
{
  static const srv_field rows[] = {
      {"system", FIELD_IS_STRING | FIELD_IS_LIST, 0, 0, NULL, NULL, NULL, false},
      {"stop_sequences", FIELD_IS_LIST, 0, 0, NULL, NULL, NULL, false},
      {"thinking", FIELD_IS_OBJECT, 0, 0, NULL, NULL, NULL, false},
      {"tools", FIELD_IS_LIST, 0, 0, NULL, NULL, NULL, false},
      {"tool_choice", FIELD_IS_OBJECT, 0, 0, NULL, NULL, NULL, false},
  };
  json_t *out = oai_schema(true), *properties = json_object_get(out, "properties");
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    json_object_del(properties, foreign[i]);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    json_object_set_new(properties, rows[i].name, fields_row_schema(&rows[i]));
  return out;
}

/* Where an answer is asked for, its length has to be. */
json_t *ant_messages_schema(void)
{
  json_t *out = ant_schema();
  json_array_append_new(json_object_get(out, "required"), json_string("max_tokens"));
  json_object_set_new(json_object_get(json_object_get(out, "properties"), "max_tokens"), "type",
                      json_string("integer"));
  return out;
}
