/* responses.c - /v1/responses: OpenAI's newer dialect, and what of it is stored. See responses.h.
 *
 * The body is checked by its table, its items become messages behind those of the response that it continues, and what
 * comes of the answer becomes items, whole or told by events. One function opens, fills and closes items for both.
 * `instructions` are of one response alone: the next one has its own.
 */
#include <stdio.h>
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
    {"text", FIELD_IS_OBJECT, 0, 0, NULL, "{} {\"format\":{\"type\":\"text\"}}", NULL, false},
    {"reasoning", FIELD_IS_OBJECT, 0, 0, NULL, "{}", NULL, false},
    {"tools", FIELD_IS_LIST, 0, 0, NULL, "[]", NULL, false},
    {"tool_choice", FIELD_IS_STRING | FIELD_IS_OBJECT, 0, 0, NULL, "\"auto\" \"none\"", NULL, false},
    {"top_logprobs", FIELD_IS_INT, 0, 0, NULL, "0", NULL, false},
    {"background", FIELD_IS_BOOL, 0, 0, NULL, "false", NULL, false},
    {"include", FIELD_IS_LIST, 0, 0, NULL, "[] [\"reasoning.encrypted_content\"]", "let be: there is none", false},
    {"truncation", FIELD_IS_STRING, 0, 0, NULL, "\"disabled\" \"auto\"", "let be: what is too long is an error", false},
    {"metadata", FIELD_IS_OBJECT, 0, 0, NULL, NULL, "comes back as it is", false},
    {"parallel_tool_calls", FIELD_IS_BOOL, 0, 0, NULL, NULL, "let be", false},
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
  int sequence; /* of the next event */
  bool open;    /* an item is under way */
  char item_id[RESP_ID + 16];
  buf text; /* of it */
} response;

static void free_response(void *data)
{
  response *r = data;
  json_decref(r->body);
  json_decref(r->input);
  json_decref(r->items);
  json_decref(r->output);
  buf_free(&r->text);
  mem_free(r);
}

/* Nobody else can guess it: who has it may read the response. */
static void draw_id(const server *s, uint64_t number, char out[RESP_ID])
{
  uint64_t drawn[2];
  if (getrandom(drawn, sizeof drawn, 0) != sizeof drawn) {
    drawn[0] = (uint64_t)s->started;
    drawn[1] = number;
  }
  snprintf(out, RESP_ID, "resp_%016llx%016llx", (unsigned long long)drawn[0], (unsigned long long)drawn[1]);
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

/* The shared request that says what the body says; NULL: the fault. */
static json_t *shared_of(const response *r, oai_fault *fault)
{
  json_t *to = json_object();
  json_t *messages = resp_messages(r->items, json_object_get(r->body, "instructions"), fault);
  if (messages && to && json_object_set_new(to, "messages", messages) == 0 &&
      fields_move(&resp_fields, r->body, to, fault))
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
  draw_id(s, number, r->id);
  r->body = body;
  r->output = json_array();
  bool ok = fields_check(&resp_fields, body, fault);
  r->store = !json_is_false(json_object_get(body, "store"));
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
  json_int_t in = (json_int_t)conversation_prompt_tokens(v), out = (json_int_t)conversation_answer_tokens(v);
  return json_pack("{sI s{sI si} sI s{si} sI}", "input_tokens", in, "input_tokens_details", "cached_tokens",
                   (json_int_t)conversation_cached_tokens(v), "cache_write_tokens", 0, "output_tokens", out,
                   "output_tokens_details", "reasoning_tokens", 0, "total_tokens", in + out);
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
  if (!r->store)
    return;
  json_array_extend(r->items, r->output);
  resp_store_add(v->server->responses_kept, r->id, text_of_json(json_incref(whole)),
                 text_of_json(json_pack("{sO}", "data", r->input)), text_of_json(json_pack("{sO}", "data", r->items)));
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

static json_t *text_so_far(const response *r)
{
  return json_stringn(r->text.data ? r->text.data : "", r->text.length);
}

static json_t *text_part(json_t *text)
{
  return json_pack("{ss so s[] s[]}", "type", "output_text", "text", text, "annotations", "logprobs");
}

/* `content` is taken over. */
static json_t *message_item(const response *r, const char *status, json_t *content)
{
  return json_pack("{ss ss ss ss so}", "id", r->item_id, "type", "message", "status", status, "role", "assistant",
                   "content", content);
}

static void open_message(response *r, buf *out)
{
  snprintf(r->item_id, sizeof r->item_id, "msg_%s_%zu", r->id + strlen("resp_"), json_array_size(r->output));
  buf_clear(&r->text);
  r->open = true;
  tell(r, "response.output_item.added",
       json_pack("{sI so}", "output_index", (json_int_t)json_array_size(r->output), "item",
                 message_item(r, "in_progress", json_array())),
       out);
  tell(r, "response.content_part.added", place_in(r, "part", text_part(json_string(""))), out);
}

static void add_text(response *r, const char *text, size_t n, buf *out)
{
  if (!n)
    return;
  if (!r->open)
    open_message(r, out);
  buf_add(&r->text, text, n);
  json_t *members = place_in(r, "delta", json_stringn(text, n));
  json_object_set_new(members, "logprobs", json_array());
  tell(r, "response.output_text.delta", members, out);
}

static void close_message(response *r, const char *status, buf *out)
{
  json_t *members = place_in(r, "text", text_so_far(r));
  json_object_set_new(members, "logprobs", json_array());
  tell(r, "response.output_text.done", members, out);
  tell(r, "response.content_part.done", place_in(r, "part", text_part(text_so_far(r))), out);
  json_t *item = message_item(r, status, json_pack("[o]", text_part(text_so_far(r))));
  tell(r, "response.output_item.done",
       json_pack("{sI sO}", "output_index", (json_int_t)json_array_size(r->output), "item", item), out);
  json_array_append_new(r->output, item);
  r->open = false;
}

/* An answer without text has an item all the same. New reference: the whole document. */
static json_t *close_answer(conversation *v, buf *out)
{
  response *r = v->own.data;
  const char *status = was_cut(v) ? "incomplete" : "completed";
  if (!r->open && !json_array_size(r->output))
    open_message(r, out);
  if (r->open)
    close_message(r, status, out);
  json_t *whole = document(v, status, usage_of(v), NULL);
  keep(v, whole);
  return whole;
}

/* ---- answers ---- */

static void whole(conversation *v, buf *out)
{
  const buf *text = &v->set->at[0].taken.text;
  add_text(v->own.data, text->data, text->length, NULL);
  srv_add_json(out, close_answer(v, NULL));
}

static void begin(conversation *v, buf *out)
{
  tell(v->own.data, "response.created", json_pack("{so}", "response", document(v, "in_progress", NULL, NULL)), out);
  tell(v->own.data, "response.in_progress", json_pack("{so}", "response", document(v, "in_progress", NULL, NULL)), out);
}

static void delta(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out)
{
  (void)index, (void)end; /* of the one choice: finish tells it */
  add_text(v->own.data, news->text.data, news->text.length, out);
}

static void finish(conversation *v, buf *out)
{
  json_t *whole = close_answer(v, out);
  tell(v->own.data, was_cut(v) ? "response.incomplete" : "response.completed", json_pack("{so}", "response", whole),
       out);
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
  static const dialect is = {"resp", true, NULL, whole, begin, delta, finish, fail};
  json_t *body;
  oai_fault fault = {0};
  if (!srv_body(q, a, &body))
    return;
  response *r = open_response(s, q->number, body, &fault);
  json_t *root = r && fault.err.status == TERN_OK ? shared_of(r, &fault) : NULL;
  if (root) {
    conversation_answer(s, q, root, (conversation_own){r, free_response}, &is, a);
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

void resp_get(server *s, const srv_request *q, srv_response *a)
{
  buf text = {.data = resp_store_get(s->responses_kept, q->part, q->part_length, RESP_RESPONSE)};
  if (!text.data) {
    not_found(q, a);
    return;
  }
  text.length = strlen(text.data);
  text.capacity = text.length + 1;
  srv_text(a, 200, &text);
}

/* The newest first, as the dialect's default is. */
void resp_get_input(server *s, const srv_request *q, srv_response *a)
{
  json_t *list = NULL, *data = json_array();
  char *text = resp_store_get(s->responses_kept, q->part, q->part_length, RESP_INPUT);
  if (text && jsonu_parse("stored response", text, strlen(text), &list, NULL) != TERN_OK)
    list = NULL;
  mem_free(text);
  size_t n = json_array_size(json_object_get(list, "data"));
  for (size_t i = n; i-- > 0;)
    json_array_append(data, json_array_get(json_object_get(list, "data"), i));
  if (list)
    srv_json(a, 200,
             json_pack("{ss sO sO? sO? sb}", "object", "list", "data", data, "first_id",
                       json_object_get(json_array_get(data, 0), "id"), "last_id",
                       json_object_get(json_array_get(data, n ? n - 1 : 0), "id"), "has_more", 0));
  else
    not_found(q, a);
  json_decref(data);
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
