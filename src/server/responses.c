/* responses.c - /v1/responses: OpenAI's newer dialect, and what of it is stored. See responses.h.
 *
 * The body is checked by its table, and its items become messages behind those of the response that it continues; what
 * comes of the answer is in responses_events.c. `instructions` are of one response alone: the next one has its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "format/json_util.h"
#include "server/responses_events.h"

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
    {"tool_choice", FIELD_IS_STRING | FIELD_IS_OBJECT, 0, 0, NULL, NULL, NULL, false},
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

/* {"type": "function", "name"} with its name in an object of its own; what is otherwise stays for its reader. */
static json_t *function_choice(const json_t *one)
{
  json_t *name = json_object_get(one, "name");
  const char *type = json_string_value(json_object_get(one, "type"));
  if (!type || strcmp(type, "function") != 0 || json_object_size(one) != 2 || !json_is_string(name))
    return NULL;
  return json_pack("{ss s{sO}}", "type", type, "function", "name", name);
}

/* {"type": "allowed_tools", "mode", "tools"}. */
static json_t *allowed_choice(const json_t *wanted)
{
  json_t *mode = json_object_get(wanted, "mode"), *tools = json_object_get(wanted, "tools"), *list = json_array();
  bool well = json_object_size(wanted) == 3 && json_is_string(mode);
  for (size_t i = 0; i < json_array_size(tools) && well; i++)
    well = json_array_append_new(list, function_choice(json_array_get(tools, i))) == 0;
  if (well)
    return json_pack("{ss s{sO so}}", "type", "allowed_tools", "allowed_tools", "mode", mode, "tools", list);
  json_decref(list);
  return NULL;
}

/* As the older dialect has it. */
static bool move_choice(const response *r, json_t *to, oai_fault *fault)
{
  static const char field[] = "tool_choice";
  json_t *wanted = json_object_get(r->body, field), *shared;
  const char *type = json_string_value(json_object_get(wanted, "type"));
  if (!wanted)
    return true;
  shared = json_is_string(wanted)                   ? json_incref(wanted)
           : type && !strcmp(type, "allowed_tools") ? allowed_choice(wanted)
                                                    : function_choice(wanted);
  const char *word = json_string_value(shared);
  if (!shared || (word && strcmp(word, "auto") != 0 && strcmp(word, "none") != 0 && strcmp(word, "required") != 0)) {
    json_decref(shared);
    return oai_wrong(fault, field,
                     "must be \"auto\", \"none\", \"required\", {\"type\": \"function\", \"name\": …} or {\"type\": "
                     "\"allowed_tools\", \"mode\": …, \"tools\": […]}");
  }
  if (json_object_set_new(to, field, shared) == 0)
    return true;
  err_nomem(&fault->err, field);
  return false;
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
      fields_move(&resp_fields, r->body, to, fault) && move_tools(r, to, fault) && move_choice(r, to, fault) &&
      move_reasoning(s, r, to, fault) && move_include(r, to, fault) && move_format(r, to, fault))
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

/* ---- the routes ---- */

void resp_create(server *s, const srv_request *q, srv_response *a)
{
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
        .data = r, .free = resp_free, .names = names, .fields = tables, .schema_place = "text.format.schema"};
    conversation_answer(s, q, root, own, &resp_dialect, a);
    return;
  }
  oai_answer_fault(a, &fault);
  if (r)
    resp_free(r);
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
