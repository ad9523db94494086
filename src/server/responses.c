/* responses.c - /v1/responses: OpenAI's newer dialect, and what of it is stored. See responses.h.
 *
 * The body is checked by its table, its items become messages behind those of the response that it continues, and what
 * comes of the answer becomes items, whole or told by events. One function opens, fills and closes items for both.
 * `instructions` are of one response alone: the next one has its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "format/json_util.h"
#include "server/conversation.h"
#include "server/responses.h"

enum { MOST_TOKENS = 1 << 30 };

/* ---- the body ---- */

#define ANY FIELD_IS_ANY
#define SAMPLING(name)                                                                                                 \
  {                                                                                                                    \
    (name), ANY, 0, 0, (name), NULL, "as of /v1/chat/completions", false                                               \
  }
static const srv_field rows[] = {
    {"model", FIELD_IS_STRING, 0, 0, "model", NULL, NULL, false},
    {"input", FIELD_IS_STRING | FIELD_IS_LIST, 0, 0, NULL, NULL, "a text, or items", true},
    {"instructions", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, false},
    {"previous_response_id", FIELD_IS_STRING, 0, 0, NULL, NULL, "the response to go on from", false},
    {"store", FIELD_IS_BOOL, 0, 0, NULL, NULL, "absent: true", false},
    {"stream", FIELD_IS_BOOL, 0, 0, "stream", NULL, NULL, false},
    {"max_output_tokens", FIELD_IS_INT, 1, MOST_TOKENS, "max_tokens", NULL, NULL, false},
    {"temperature", FIELD_IS_REAL, 0, 1e6, "temperature", NULL, NULL, false},
    {"top_p", FIELD_IS_REAL, 0, 1, "top_p", NULL, NULL, false},
    SAMPLING("top_k"),
    SAMPLING("min_p"),
    SAMPLING("min_tokens_to_keep"),
    SAMPLING("xtc_probability"),
    SAMPLING("xtc_threshold"),
    SAMPLING("repetition_penalty"),
    SAMPLING("presence_penalty"),
    SAMPLING("frequency_penalty"),
    SAMPLING("repetition_context_size"),
    SAMPLING("presence_context_size"),
    SAMPLING("frequency_context_size"),
    SAMPLING("logit_bias"),
    SAMPLING("seed"),
    SAMPLING("stop"),
    SAMPLING("chat_template_kwargs"),
    {"text", FIELD_IS_OBJECT, 0, 0, NULL, NULL, "format: text, json_object or json_schema", false},
    {"reasoning", FIELD_IS_OBJECT, 0, 0, NULL, NULL, "effort, where the chat template has levels", false},
    {"tools", FIELD_IS_LIST, 0, 0, NULL, NULL, "functions", false},
    {"tool_choice", FIELD_IS_STRING | FIELD_IS_OBJECT, 0, 0, "tool_choice", NULL, "auto or none", false},
    {"parallel_tool_calls", FIELD_IS_BOOL, 0, 0, "parallel_tool_calls", NULL, NULL, false},
    {"top_logprobs", FIELD_IS_INT, 0, REPLY_MOST_TOP, NULL, NULL, "with message.output_text.logprobs", false},
    {"background", FIELD_IS_BOOL, 0, 0, NULL, "false", NULL, false},
    {"include", FIELD_IS_LIST, 0, 0, NULL, NULL, "message.output_text.logprobs", false},
    {"truncation", FIELD_IS_STRING, 0, 0, NULL, "\"disabled\" \"auto\"", "let be: what is too long is an error", false},
    {"metadata", FIELD_IS_OBJECT, 0, 0, NULL, NULL, "comes back as it is", false},
    {"max_tool_calls", FIELD_IS_INT, 0, 0, NULL, NULL, "let be: of tools that a server would run", false},
    {"stream_options", FIELD_IS_OBJECT, 0, 0, NULL, "{} {\"include_obfuscation\":false} {\"include_obfuscation\":true}",
     "let be", false},
    {"user", FIELD_IS_STRING, 0, 0, NULL, NULL, "let be", false},
    {"safety_identifier", FIELD_IS_STRING, 0, 0, NULL, NULL, "let be", false},
    {"service_tier", FIELD_IS_STRING, 0, 0, NULL, NULL, "let be", false},
    {"prompt_cache_key", FIELD_IS_STRING, 0, 0, NULL, NULL, "let be", false},
    {"prompt_cache_retention", FIELD_IS_STRING, 0, 0, NULL, NULL, "let be", false},
};
const srv_fields resp_fields = SRV_FIELDS(rows, "");

/* ---- one response ---- */

typedef struct response {
  char id[RESP_ID];
  json_t *body;   /* as it came, checked */
  json_t *input;  /* its items */
  json_t *items;  /* all items up to the answer */
  json_t *output; /* items of the answer that are whole */
  bool store;
  int sequence;   /* of the next event */
  bool open;      /* an item is under way */
  part_kind kind; /* of it: text or reasoning */
  char item_id[RESP_ID + 16];
  buf text;             /* of it, or of a call's arguments */
  tool_call call;       /* under way; without a name there is none */
  choice_token *tokens; /* [n_tokens] of the text that is under way or comes next; told: so many are out */
  size_t n_tokens, capacity, told;
  size_t reasoning_tokens;
} response;

static void free_response(void *data)
{
  response *r = data;
  json_decref(r->body);
  json_decref(r->input);
  json_decref(r->items);
  json_decref(r->output);
  buf_free(&r->text);
  mem_free(r->call.name);
  mem_free(r->call.id);
  mem_free(r->tokens);
  mem_free(r);
}

/* Nobody else can guess it: who has it may read the response. False: it can be guessed, and nothing may be stored. */
static bool draw_id(const server *s, uint64_t number, char out[RESP_ID])
{
  uint64_t drawn[2];
  bool random = getrandom(drawn, sizeof drawn, 0) == sizeof drawn;
  if (!random) {
    drawn[0] = (uint64_t)s->started;
    drawn[1] = number;
  }
  snprintf(out, RESP_ID, "resp_%016llx%016llx", (unsigned long long)drawn[0], (unsigned long long)drawn[1]);
  return random;
}

/* What came before: the items of the response that is to be continued. NULL: the fault. */
static json_t *earlier_items(server *s, const json_t *id, oai_fault *fault)
{
  json_t *root = NULL, *out;
  if (!id)
    return json_array();
  char *text = resp_store_get(s->responses_kept, json_string_value(id), json_string_length(id), RESP_ITEMS);
  if (!text) {
    fault->code = "previous_response_not_found";
    oai_wrong(fault, "previous_response_id", "\"%.60s\" is not stored here (any more)", json_string_value(id));
    return NULL;
  }
  if (jsonu_parse("stored response", text, strlen(text), &root, &fault->err) != TERN_OK)
    root = NULL;
  mem_free(text);
  out = root ? json_incref(json_object_get(root, "data")) : NULL;
  json_decref(root);
  return out;
}

/* Functions as the older dialect has them. */
static bool move_tools(const response *r, json_t *to, oai_fault *fault)
{
  const json_t *tools = json_object_get(r->body, "tools");
  json_t *list = json_array();
  for (size_t i = 0; i < json_array_size(tools); i++) {
    json_t *tool = json_array_get(tools, i), *function = json_copy(tool);
    const char *type = json_string_value(json_object_get(tool, "type"));
    json_object_del(function, "type");
    json_array_append_new(list, json_pack("{ss so}", "type", "function", "function", function));
    if (!type || strcmp(type, "function") != 0) {
      json_decref(list);
      return oai_wrong(fault, "tools", "element %zu: only functions are supported here", i);
    }
  }
  if (json_array_size(tools) && json_object_set(to, "tools", list))
    err_nomem(&fault->err, "tools");
  json_decref(list);
  return fault->err.status == TERN_OK;
}

static const srv_field reasoning_rows[] = {
    {"effort", FIELD_IS_STRING, 0, 0, "reasoning_effort", NULL, NULL, false},
    {"summary", FIELD_IS_STRING, 0, 0, NULL, NULL, "let be", false},
    {"generate_summary", FIELD_IS_STRING, 0, 0, NULL, NULL, "let be", false},
};
static const srv_fields reasoning_fields = SRV_FIELDS(reasoning_rows, "reasoning.");

/* A summary is of what is not shown elsewhere: here all is. */
static bool move_reasoning(const server *s, const response *r, json_t *to, oai_fault *fault)
{
  json_t *reasoning = json_object_get(r->body, "reasoning"), *copy = json_copy(reasoning);
  bool ok = !reasoning || fields_check(&reasoning_fields, copy, fault);
  const char *effort = json_string_value(json_object_get(copy, "effort"));
  bool with_tools = json_array_size(json_object_get(r->body, "tools")) > 0;
  if (ok && effort && !oai_template_has(s, with_tools, "reasoning_effort") &&
      (strcmp(effort, "none") != 0 || !oai_template_has(s, with_tools, "enable_thinking")))
    ok = oai_wrong(fault, "reasoning", "effort: the model's chat template has no such levels");
  ok = ok && (!copy || fields_move(&reasoning_fields, copy, to, fault));
  if (!ok)
    fault->param = "reasoning";
  json_decref(copy);
  return ok;
}

/* Of what an answer may be told with, log-probabilities are here; encrypted reasoning there is none of. */
static bool move_include(const response *r, json_t *to, oai_fault *fault)
{
  static const char field[] = "include", wanted[] = "message.output_text.logprobs";
  const json_t *list = json_object_get(r->body, field), *top = json_object_get(r->body, "top_logprobs");
  bool logprobs = false;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *what = json_string_value(json_array_get(list, i));
    bool is = what && !strcmp(what, wanted);
    logprobs |= is;
    if (is || (what && !strcmp(what, "reasoning.encrypted_content")))
      continue;
    fault->code = "unsupported_parameter";
    return oai_wrong(fault, field, "element %zu: only \"%s\" is supported here", i, wanted);
  }
  if (!logprobs)
    return !json_integer_value(top) || oai_wrong(fault, "top_logprobs", "needs include to have \"%s\"", wanted);
  if (json_array_size(json_object_get(r->body, "tools"))) /* whose calls' tokens cannot be told from the text's */
    return oai_wrong(fault, field, "\"%s\" is not told of answers that may have calls: leave tools out", wanted);
  if (!json_object_set_new(to, "logprobs", json_true()) &&
      (!top || !json_object_set(to, "top_logprobs", (json_t *)top)))
    return true;
  err_nomem(&fault->err, field);
  return false;
}

/* text.format, whose members the older dialect has in an object of its own where there is a schema. */
static bool move_format(const response *r, json_t *to, oai_fault *fault)
{
  static const srv_field members[] = {{"format", FIELD_IS_OBJECT, 0, 0, NULL, NULL, NULL, false}};
  static const srv_fields fields = SRV_FIELDS(members, "text.");
  json_t *text = json_object_get(r->body, "text"), *format, *moved;
  if (!text)
    return true;
  if (!fields_check(&fields, text, fault)) {
    fault->param = "text";
    return false;
  }
  format = json_object_get(text, "format");
  const char *type = json_string_value(json_object_get(format, "type"));
  if (!format)
    return true;
  if (type && !strcmp(type, "json_schema")) {
    json_t *own = json_copy(format);
    json_object_del(own, "type");
    moved = json_pack("{ss so}", "type", type, "json_schema", own);
  } else {
    moved = json_incref(format);
  }
  if (moved && json_object_set_new(to, "response_format", moved) == 0)
    return true;
  err_nomem(&fault->err, "text");
  return false;
}

/* The shared request that says what the body says; NULL: the fault. */
static json_t *shared_of(const server *s, const response *r, oai_fault *fault)
{
  json_t *to = json_object();
  size_t earlier = json_array_size(r->items) - json_array_size(r->input);
  json_t *messages = resp_messages(r->items, earlier, json_object_get(r->body, "instructions"), fault);
  if (messages && to && json_object_set_new(to, "messages", messages) == 0 &&
      fields_move(&resp_fields, r->body, to, fault) && move_tools(r, to, fault) && move_reasoning(s, r, to, fault) &&
      move_include(r, to, fault) && move_format(r, to, fault))
    return to;
  if (messages && fault->err.status == TERN_OK)
    err_nomem(&fault->err, "request");
  json_decref(to);
  return NULL;
}

/* Takes over `body`. NULL: the fault. */
static response *open_response(server *s, uint64_t number, json_t *body, oai_fault *fault)
{
  response *r = mem_zalloc(sizeof *r);
  if (!r) {
    json_decref(body);
    err_nomem(&fault->err, "request");
    return NULL;
  }
  bool secret = draw_id(s, number, r->id);
  r->body = body;
  r->output = json_array();
  bool ok = fields_check(&resp_fields, body, fault);
  r->store = !json_is_false(json_object_get(body, "store"));
  if (ok && r->store && !secret) {
    fault->status = 503;
    ok = oai_wrong(fault, "store", "the system has no random numbers for an id that nobody can guess: send false");
  }
  r->input = ok ? resp_items(json_object_get(body, "input"), r->id, fault) : NULL;
  r->items = r->input ? earlier_items(s, json_object_get(body, "previous_response_id"), fault) : NULL;
  if (r->items && json_array_size(r->input) && json_array_extend(r->items, r->input) == 0)
    return r;
  if (r->items && !json_array_size(r->input))
    oai_wrong(fault, "input", "an empty list");
  else if (ok && fault->err.status == TERN_OK)
    err_nomem(&fault->err, "request");
  return r; /* with what the fault may point to */
}

/* ---- the document ---- */

static json_t *usage_of(const conversation *v)
{
  const response *r = v->own.data;
  size_t reasoning;
  if (!conversation_reasoning_tokens(v, &reasoning)) /* not to be told from the tokens */
    reasoning = r->reasoning_tokens;
  json_int_t in = (json_int_t)conversation_prompt_tokens(v), out = (json_int_t)conversation_answer_tokens(v);
  return json_pack("{sI s{sI si} sI s{sI} sI}", "input_tokens", in, "input_tokens_details", "cached_tokens",
                   (json_int_t)conversation_cached_tokens(v), "cache_write_tokens", 0, "output_tokens", out,
                   "output_tokens_details", "reasoning_tokens", (json_int_t)reasoning, "total_tokens", in + out);
}

/* A member of the body as it came, or `absent`, which is taken over. */
static void echo(json_t *to, const response *r, const char *name, json_t *absent)
{
  json_t *value = json_object_get(r->body, name);
  json_object_set_new(to, name, value ? json_incref(value) : absent);
  if (value)
    json_decref(absent);
}

/* `usage` is taken over; `error` too, and both may be NULL. */
static json_t *document(const conversation *v, const char *status, json_t *usage, json_t *error)
{
  const response *r = v->own.data;
  const tern_sampling *o = &v->request.sampling;
  json_t *out = json_pack("{ss ss sI ss so? ss sO so? sb sf sf ss}", "id", r->id, "object", "response", "created_at",
                          (json_int_t)v->writer.created, "status", status, "error", error, "model", v->request.model,
                          "output", r->output, "usage", usage, "store", r->store, "temperature", o->temp, "top_p",
                          o->top_p > 0 ? o->top_p : 1.0, "truncation", "disabled");
  bool cut = !strcmp(status, "incomplete");
  json_object_set_new(out, "incomplete_details", cut ? json_pack("{ss}", "reason", "max_output_tokens") : json_null());
  echo(out, r, "instructions", json_null());
  echo(out, r, "previous_response_id", json_null());
  echo(out, r, "max_output_tokens", json_null());
  echo(out, r, "metadata", json_object());
  echo(out, r, "tools", json_array());
  echo(out, r, "tool_choice", json_string("auto"));
  echo(out, r, "parallel_tool_calls", json_true());
  echo(out, r, "text", json_pack("{s{ss}}", "format", "type", "text"));
  echo(out, r, "reasoning", json_pack("{sn sn}", "effort", "summary"));
  echo(out, r, "top_logprobs", json_integer(0));
  echo(out, r, "user", json_null());
  return out;
}

static bool was_cut(const conversation *v)
{
  return !strcmp(v->set->at[0].end.finish, "length");
}

static char *text_of_json(json_t *document)
{
  buf text = {0};
  srv_add_json(&text, document);
  if (!text.failed)
    return buf_take(&text);
  buf_free(&text);
  return NULL;
}

static void keep(const conversation *v, json_t *whole)
{
  response *r = v->own.data;
  if (!r->store || r->text.failed)
    return;
  json_array_extend(r->items, r->output);
  resp_store_add(v->server->responses_kept, r->id, text_of_json(json_incref(whole)),
                 text_of_json(json_pack("{sO}", "data", r->input)), text_of_json(json_pack("{sO}", "data", r->items)));
}

static size_t count_tokens(const server *s, const buf *text)
{
  int32_t *ids = NULL;
  size_t n = 0;
  if (tok_encode(s->model->tok, text->data ? text->data : "", text->length, false, &ids, &n, NULL) != TERN_OK)
    n = 0;
  mem_free(ids);
  return n;
}

/* ---- items and their events ---- */

/* Takes over `members`. Without `out` nobody is told. */
static void tell(response *r, const char *type, json_t *members, buf *out)
{
  if (!out) {
    json_decref(members);
    return;
  }
  json_object_set_new(members, "type", json_string(type));
  json_object_set_new(members, "sequence_number", json_integer(r->sequence++));
  buf_addf(out, "event: %s\n", type);
  oai_add_event(members, out);
}

/* Where in the output the item under way stands. */
static json_t *place(const response *r)
{
  return json_pack("{ss sI}", "item_id", r->item_id, "output_index", (json_int_t)json_array_size(r->output));
}

static json_t *place_in(const response *r, const char *key, json_t *value)
{
  json_t *out = place(r);
  json_object_set_new(out, "content_index", json_integer(0));
  if (value)
    json_object_set_new(out, key, value);
  return out;
}

static json_t *text_json(const buf *text)
{
  return json_stringn(text->data ? text->data : "", text->length);
}

static json_t *text_so_far(const response *r)
{
  return text_json(&r->text);
}

/* What differs between items of text and of reasoning. */
static const struct kind_words {
  const char *type, *prefix, *part, *delta, *done;
} kinds[] = {
    [PART_REASONING] = {"reasoning", "rs", "reasoning_text", "response.reasoning_text.delta",
                        "response.reasoning_text.done"},
    [PART_CONTENT] = {"message", "msg", "output_text", "response.output_text.delta", "response.output_text.done"},
};

static void give_bytes(json_t *token)
{
  if (json_is_null(json_object_get(token, "bytes")))
    json_object_set_new(token, "bytes", json_array());
}

/* Tokens from `first` on. What has no bytes of its own, being a part of a character, has an empty list of them. */
static json_t *tokens_json(const response *r, const server *s, size_t first)
{
  json_t *list = json_array();
  for (size_t i = first; i < r->n_tokens; i++) {
    json_t *one = oai_token_json(s, &r->tokens[i]), *other;
    size_t k;
    give_bytes(one);
    json_array_foreach(json_object_get(one, "top_logprobs"), k, other) give_bytes(other);
    json_array_append_new(list, one);
  }
  return list;
}

/* `text` and `logprobs`, which is of no use to reasoning, are taken over. */
static json_t *text_part(const response *r, json_t *text, json_t *logprobs)
{
  json_t *out = json_pack("{ss so}", "type", kinds[r->kind].part, "text", text);
  if (r->kind == PART_CONTENT) {
    json_object_set_new(out, "annotations", json_array());
    json_object_set(out, "logprobs", logprobs);
  }
  json_decref(logprobs);
  return out;
}

/* `content` is taken over. */
static json_t *text_item(const response *r, const char *status, json_t *content)
{
  json_t *out =
      json_pack("{ss ss ss so}", "id", r->item_id, "type", kinds[r->kind].type, "status", status, "content", content);
  if (r->kind == PART_CONTENT)
    json_object_set_new(out, "role", json_string("assistant"));
  else
    json_object_set_new(out, "summary", json_array());
  return out;
}

/* `item` is taken over. */
static void tell_item(response *r, const char *type, json_t *item, buf *out)
{
  tell(r, type, json_pack("{sI so}", "output_index", (json_int_t)json_array_size(r->output), "item", item), out);
}

static void name_item(response *r, const char *prefix)
{
  snprintf(r->item_id, sizeof r->item_id, "%s_%s_%zu", prefix, r->id + strlen("resp_"), json_array_size(r->output));
}

static void open_text(response *r, part_kind kind, buf *out)
{
  r->kind = kind;
  r->open = true;
  name_item(r, kinds[kind].prefix);
  buf_clear(&r->text);
  tell_item(r, "response.output_item.added", text_item(r, "in_progress", json_array()), out);
  tell(r, "response.content_part.added", place_in(r, "part", text_part(r, json_string(""), json_array())), out);
}

/* Events of an answer's text have its tokens, or an empty list; `logprobs` is taken over. */
static json_t *with_logprobs(const response *r, json_t *members, json_t *logprobs)
{
  if (r->kind == PART_CONTENT)
    json_object_set(members, "logprobs", logprobs);
  json_decref(logprobs);
  return members;
}

/* A piece of text, with the tokens that came since the last one. */
static void tell_delta(response *r, const server *s, const char *text, size_t n, buf *out)
{
  if (!out)
    return;
  json_t *logprobs = r->kind == PART_CONTENT ? tokens_json(r, s, r->told) : json_array();
  if (r->kind == PART_CONTENT)
    r->told = r->n_tokens;
  tell(r, kinds[r->kind].delta, with_logprobs(r, place_in(r, "delta", json_stringn(text, n)), logprobs), out);
}

static void close_text(const conversation *v, const char *status, buf *out)
{
  response *r = v->own.data;
  bool content = r->kind == PART_CONTENT;
  if (!r->open)
    return;
  if (content && r->told < r->n_tokens) /* tokens without text: the last one */
    tell_delta(r, v->server, "", 0, out);
  json_t *tokens = content ? tokens_json(r, v->server, 0) : json_array();
  tell(r, kinds[r->kind].done, with_logprobs(r, place_in(r, "text", text_so_far(r)), json_incref(tokens)), out);
  tell(r, "response.content_part.done", place_in(r, "part", text_part(r, text_so_far(r), json_incref(tokens))), out);
  json_t *item = text_item(r, status, json_pack("[o]", text_part(r, text_so_far(r), tokens)));
  tell_item(r, "response.output_item.done", json_incref(item), out);
  json_array_append_new(r->output, item);
  r->open = false;
  if (content)
    r->n_tokens = r->told = 0;
  else /* as many tokens as its text has by itself */
    r->reasoning_tokens += count_tokens(v->server, &r->text);
}

static void add_text(const conversation *v, const answer_part *p, buf *out)
{
  response *r = v->own.data;
  if (!p->text.length)
    return;
  if (r->open && r->kind != p->kind)
    close_text(v, "completed", out);
  if (!r->open)
    open_text(r, p->kind, out);
  buf_add(&r->text, p->text.data, p->text.length);
  if (out) /* what would be told of it at its end is not whole */
    out->failed |= r->text.failed;
  tell_delta(r, v->server, p->text.data, p->text.length, out);
}

static json_t *call_item(const response *r, const tool_call *c, const char *status, const char *arguments)
{
  return json_pack("{ss ss ss ss ss ss}", "id", r->item_id, "type", "function_call", "status", status, "call_id", c->id,
                   "name", c->name, "arguments", arguments);
}

static void begin_call(const conversation *v, const tool_call *c, buf *out)
{
  response *r = v->own.data;
  close_text(v, "completed", out);
  name_item(r, "fc");
  buf_clear(&r->text);
  r->call = (tool_call){.name = mem_strdup(c->name), .id = mem_strdup(c->id)};
  if (out)
    out->failed |= !r->call.name || !r->call.id;
  tell_item(r, "response.output_item.added", call_item(r, &r->call, "in_progress", ""), out);
}

static void add_arguments(response *r, const buf *text, buf *out)
{
  buf_add(&r->text, text->data, text->length);
  if (out)
    out->failed |= r->text.failed;
  json_t *members = place(r);
  json_object_set_new(members, "delta", text_json(text));
  tell(r, "response.function_call_arguments.delta", members, out);
}

/* Only of a whole call it is told that its arguments are. */
static void end_call(response *r, bool whole, buf *out)
{
  const char *arguments = r->text.data ? r->text.data : "";
  if (whole) {
    json_t *members = place(r);
    json_object_set_new(members, "arguments", json_string(arguments));
    json_object_set_new(members, "name", json_string(r->call.name));
    tell(r, "response.function_call_arguments.done", members, out);
  }
  json_t *item = call_item(r, &r->call, whole ? "completed" : "incomplete", arguments);
  tell_item(r, "response.output_item.done", json_incref(item), out);
  json_array_append_new(r->output, item);
  mem_free(r->call.name);
  mem_free(r->call.id);
  r->call = (tool_call){0};
}

static void add_whole_call(const conversation *v, const tool_call *c)
{
  response *r = v->own.data;
  close_text(v, "completed", NULL);
  name_item(r, "fc");
  json_array_append_new(r->output, call_item(r, c, "completed", c->arguments));
}

static void add_part(const conversation *v, const answer_part *p, buf *out)
{
  response *r = v->own.data;
  switch (p->kind) {
  case PART_REASONING:
  case PART_CONTENT:
    add_text(v, p, out);
    break;
  case PART_CALL:
    add_whole_call(v, &p->call);
    break;
  case PART_CALL_BEGIN:
    begin_call(v, &p->call, out);
    break;
  case PART_CALL_TEXT:
    add_arguments(r, &p->text, out);
    break;
  case PART_CALL_END:
  case PART_CALL_LOST:
    end_call(r, p->kind == PART_CALL_END, out);
    break;
  case PART_DROPPED:
    break;
  }
}

/* Tokens of the answer's text. */
static void add_tokens(response *r, const choice_part *news)
{
  for (size_t i = 0; i < news->n_tokens; i++) {
    if (news->tokens[i].reasoning)
      continue;
    if (!mem_grow(&r->tokens, &r->capacity, r->n_tokens + 1, sizeof *r->tokens)) {
      r->text.failed = true;
      return;
    }
    r->tokens[r->n_tokens++] = news->tokens[i];
  }
}

static void add_parts(const conversation *v, buf *out)
{
  const answer_parts *said = &v->said[0];
  for (size_t i = 0; i < said->n; i++)
    add_part(v, &said->at[i], out);
}

/* An answer without anything has an item all the same. New reference: the whole document. */
static json_t *close_answer(conversation *v, buf *out)
{
  response *r = v->own.data;
  const char *status = was_cut(v) ? "incomplete" : "completed";
  if (!r->open && !json_array_size(r->output))
    open_text(r, PART_CONTENT, out);
  close_text(v, status, out);
  json_t *whole = document(v, status, usage_of(v), NULL);
  keep(v, whole);
  return whole;
}

/* ---- answers ---- */

static void whole(conversation *v, buf *out)
{
  add_tokens(v->own.data, &v->set->at[0].taken);
  add_parts(v, NULL);
  srv_add_json(out, close_answer(v, NULL));
  out->failed |= ((const response *)v->own.data)->text.failed;
}

static void begin(conversation *v, buf *out)
{
  tell(v->own.data, "response.created", json_pack("{so}", "response", document(v, "in_progress", NULL, NULL)), out);
  tell(v->own.data, "response.in_progress", json_pack("{so}", "response", document(v, "in_progress", NULL, NULL)), out);
}

static void delta(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out)
{
  (void)index, (void)end; /* of the one choice: finish tells it */
  add_tokens(v->own.data, news);
  add_parts(v, out);
}

static void finish(conversation *v, buf *out)
{
  json_t *all = close_answer(v, out);
  tell(v->own.data, was_cut(v) ? "response.incomplete" : "response.completed", json_pack("{so}", "response", all), out);
}

static void fail(conversation *v, int status, const char *message, buf *out)
{
  (void)status;
  json_t *error = json_pack("{ss ss}", "code", "server_error", "message", message);
  tell(v->own.data, "response.failed", json_pack("{so}", "response", document(v, "failed", NULL, error)), out);
}

/* ---- the routes ---- */

void resp_create(server *s, const srv_request *q, srv_response *a)
{
  static const dialect is = {"resp", "call_", true, NULL, whole, begin, delta, finish, fail, false};
  static const conversation_name names[] = {{"messages", "input"}, {"response_format", "text"}, {NULL, NULL}};
  static const srv_fields *const tables[] = {&resp_fields, &reasoning_fields, NULL};
  json_t *body;
  oai_fault fault = {0};
  if (!srv_body(q, a, &body))
    return;
  response *r = open_response(s, q->number, body, &fault);
  json_t *root = r && fault.err.status == TERN_OK ? shared_of(s, r, &fault) : NULL;
  if (root) {
    conversation_own own = {
        .data = r, .free = free_response, .names = names, .fields = tables, .schema_place = "text.format.schema"};
    conversation_answer(s, q, root, own, &is, a);
    return;
  }
  oai_answer_fault(a, &fault);
  if (r)
    free_response(r);
}

static void not_found(const srv_request *q, srv_response *a)
{
  char message[160];
  snprintf(message, sizeof message, "response \"%.*s\" is not stored here (any more)",
           q->part_length < 60 ? (int)q->part_length : 60, q->part);
  srv_error(a, 404, NULL, "not_found", message);
}

/* A stored response comes whole. */
static bool asks_for_stream(const srv_request *q)
{
  const char *stream = q->argument(q->connection, "stream");
  return (stream && strcmp(stream, "false") != 0) || q->argument(q->connection, "starting_after");
}

void resp_get(server *s, const srv_request *q, srv_response *a)
{
  if (asks_for_stream(q)) {
    srv_error(a, 400, "stream", "unsupported_parameter", "stream: a stored response comes whole");
    return;
  }
  buf text = {.data = resp_store_get(s->responses_kept, q->part, q->part_length, RESP_RESPONSE)};
  if (!text.data) {
    not_found(q, a);
    return;
  }
  text.length = strlen(text.data);
  text.capacity = text.length + 1;
  srv_text(a, 200, &text);
}

/* A part of a list: how many, from which end, behind which id. */
typedef struct page {
  int limit;
  bool ascending;
  const char *after; /* NULL: from the beginning */
} page;

static bool read_page(const srv_request *q, page *out, oai_fault *fault)
{
  const char *limit = q->argument(q->connection, "limit"), *order = q->argument(q->connection, "order");
  char *end = NULL;
  long n = limit ? strtol(limit, &end, 10) : 20;
  if (limit && (*end || end == limit || n < 1 || n > 100))
    return oai_wrong(fault, "limit", "\"%.20s\" is not a number from 1 to 100", limit);
  if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
    return oai_wrong(fault, "order", "\"%.20s\" is neither asc nor desc", order);
  *out = (page){(int)n, order && !strcmp(order, "asc"), q->argument(q->connection, "after")};
  return true;
}

static const char *id_at(const json_t *items, size_t i)
{
  const char *id = json_string_value(json_object_get(json_array_get(items, i), "id"));
  return id ? id : "";
}

/* Takes over nothing; a list of its own. */
static bool cut_page(const json_t *items, const page *p, json_t *out, bool *more, oai_fault *fault)
{
  size_t n = json_array_size(items), begin = 0;
  while (p->after && begin < n && strcmp(id_at(items, p->ascending ? begin : n - 1 - begin), p->after) != 0)
    begin++;
  if (p->after && begin == n)
    return oai_wrong(fault, "after", "\"%.60s\" is none of the items", p->after);
  begin += p->after != NULL;
  for (size_t i = begin; i < n && json_array_size(out) < (size_t)p->limit; i++)
    json_array_append(out, json_array_get(items, p->ascending ? i : n - 1 - i));
  *more = begin + json_array_size(out) < n;
  return true;
}

static void answer_page(const json_t *items, const page *p, srv_response *a)
{
  json_t *data = json_array();
  bool more = false;
  oai_fault fault = {0};
  if (!cut_page(items, p, data, &more, &fault)) {
    oai_answer_fault(a, &fault);
    json_decref(data);
    return;
  }
  size_t n = json_array_size(data);
  srv_json(a, 200,
           json_pack("{ss so ss ss sb}", "object", "list", "data", data, "first_id", id_at(data, 0), "last_id",
                     id_at(data, n ? n - 1 : 0), "has_more", more));
}

void resp_get_input(server *s, const srv_request *q, srv_response *a)
{
  json_t *list = NULL;
  page p = {0};
  oai_fault fault = {0};
  if (!read_page(q, &p, &fault)) {
    oai_answer_fault(a, &fault);
    return;
  }
  char *text = resp_store_get(s->responses_kept, q->part, q->part_length, RESP_INPUT);
  if (text && jsonu_parse("stored response", text, strlen(text), &list, NULL) != TERN_OK)
    list = NULL;
  mem_free(text);
  if (list)
    answer_page(json_object_get(list, "data"), &p, a);
  else
    not_found(q, a);
  json_decref(list);
}

void resp_delete(server *s, const srv_request *q, srv_response *a)
{
  if (resp_store_delete(s->responses_kept, q->part, q->part_length))
    srv_json(a, 200,
             json_pack("{ss% ss sb}", "id", q->part, q->part_length, "object", "response.deleted", "deleted", 1));
  else
    not_found(q, a);
}
