/* responses_events.c - what comes of an answer in /v1/responses: items, their events, the document. See responses.h.
 *
 * One function opens, fills and closes items for answers that come whole and for those that are told by events: without
 * `out` nobody is told. Items lie as trees, but for the tokens of their texts, which are written as text wherever they
 * are wanted: each has up to 20 alternatives, and they are told several times.
 */
#include "server/responses_events.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/json_util.h"
#include "server/responses.h"

void resp_free(void *data)
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
  mem_free(r->spans);
  mem_free(r);
}

static bool was_cut(const conversation *v)
{
  return !strcmp(v->set->at[0].end.finish, "length");
}

/* ---- tokens and items, as text ---- */

/* The member `logprobs`, behind others. What has no bytes of its own, being a part of a character, has an empty list of
 * them. */
static void add_logprobs(const conversation *v, resp_span of, buf *out)
{
  const response *r = v->own.data;
  buf_adds(out, ",\"logprobs\":");
  oai_add_tokens(v->server, of.n ? r->tokens + of.first : NULL, of.n, OAI_EMPTY, out);
}

/* Takes over `part`; only texts have tokens. */
static void add_text_part(const conversation *v, json_t *part, bool content, resp_span of, buf *out)
{
  if (!content) {
    srv_add_json(out, part);
    return;
  }
  json_object_del(part, "logprobs");
  srv_begin_object(out, part);
  add_logprobs(v, of, out);
  buf_adds(out, "}");
}

static void add_item(const conversation *v, const json_t *item, resp_span of, buf *out)
{
  json_t *list = json_object_get(item, "content"), *head;
  if (!of.n) {
    srv_add_json(out, json_incref((json_t *)item));
    return;
  }
  head = json_copy((json_t *)item);
  json_object_del(head, "content");
  srv_begin_object(out, head);
  buf_adds(out, ",\"content\":[");
  add_text_part(v, json_copy(json_array_get(list, 0)), true, of, out);
  buf_adds(out, "]}");
}

/* Takes over `item`: one more is whole. */
static void end_item(response *r, json_t *item, resp_span of)
{
  size_t n = json_array_size(r->output);
  if (!mem_grow(&r->spans, &r->spans_capacity, n + 1, sizeof *r->spans)) {
    r->text.failed = true;
    json_decref(item);
    return;
  }
  r->spans[n] = of;
  r->text.failed |= json_array_append_new(r->output, item) != 0;
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

/* All but the output. `usage` is taken over; `error` too, and both may be NULL. */
static json_t *head_of(const conversation *v, const char *status, json_t *usage, json_t *error)
{
  const response *r = v->own.data;
  const tern_sampling *o = &v->request.sampling;
  json_t *out = json_pack("{ss ss sI ss so? ss so? sb sf sf ss}", "id", r->id, "object", "response", "created_at",
                          (json_int_t)v->writer.created, "status", status, "error", error, "model", v->request.model,
                          "usage", usage, "store", r->store, "temperature", o->temp, "top_p",
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

static void add_document(const conversation *v, const char *status, json_t *usage, json_t *error, buf *out)
{
  const response *r = v->own.data;
  srv_begin_object(out, head_of(v, status, usage, error));
  buf_adds(out, ",\"output\":[");
  for (size_t i = 0; i < json_array_size(r->output); i++) {
    buf_adds(out, i ? "," : "");
    add_item(v, json_array_get(r->output, i), r->spans[i], out);
  }
  buf_adds(out, "]}");
  out->failed |= !r->output || r->text.failed;
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

/* The document's text, and items for whoever goes on from them: without tokens, which no message has. */
static void keep(const conversation *v, const char *whole, size_t n)
{
  response *r = v->own.data;
  buf copy = {0};
  if (!r->store)
    return;
  buf_add(&copy, whole, n);
  json_array_extend(r->items, r->output);
  resp_store_add(v->server->responses_kept, r->id, buf_take(&copy), text_of_json(json_pack("{sO}", "data", r->input)),
                 text_of_json(json_pack("{sO}", "data", r->items)));
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

/* An event of which members may follow as text. Takes over `members`. */
static void begin_event(response *r, const char *type, json_t *members, buf *out)
{
  json_object_set_new(members, "type", json_string(type));
  json_object_set_new(members, "sequence_number", json_integer(r->sequence++));
  buf_addf(out, "event: %s\ndata: ", type);
  srv_begin_object(out, members);
}

static void end_event(buf *out)
{
  buf_adds(out, "}\n\n");
}

/* Takes over `members`. Without `out` nobody is told. */
static void tell(response *r, const char *type, json_t *members, buf *out)
{
  if (!out) {
    json_decref(members);
    return;
  }
  begin_event(r, type, members, out);
  end_event(out);
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

/* What differs between items of text and of reasoning. */
static const struct kind_words {
  const char *type, *prefix, *part, *delta, *done;
} kinds[] = {
    [PART_REASONING] = {"reasoning", "rs", "reasoning_text", "response.reasoning_text.delta",
                        "response.reasoning_text.done"},
    [PART_CONTENT] = {"message", "msg", "output_text", "response.output_text.delta", "response.output_text.done"},
};

/* With an empty list of tokens, where there may be some. */
static json_t *text_part(const response *r, json_t *text)
{
  json_t *out = json_pack("{ss so}", "type", kinds[r->kind].part, "text", text);
  if (r->kind == PART_CONTENT) {
    json_object_set_new(out, "annotations", json_array());
    json_object_set_new(out, "logprobs", json_array());
  }
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

static json_t *item_place(const response *r)
{
  return json_pack("{sI}", "output_index", (json_int_t)json_array_size(r->output));
}

/* `item` is taken over. */
static void tell_new(response *r, json_t *item, buf *out)
{
  json_t *members = item_place(r);
  json_object_set_new(members, "item", item);
  tell(r, "response.output_item.added", members, out);
}

/* Takes over `item`: it is whole. */
static void close_item(const conversation *v, json_t *item, resp_span of, buf *out)
{
  response *r = v->own.data;
  if (out) {
    begin_event(r, "response.output_item.done", item_place(r), out);
    buf_adds(out, ",\"item\":");
    add_item(v, item, of, out);
    end_event(out);
  }
  end_item(r, item, of);
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
  tell_new(r, text_item(r, "in_progress", json_array()), out);
  tell(r, "response.content_part.added", place_in(r, "part", text_part(r, json_string(""))), out);
}

/* An event of the text under way; those of an answer's text have tokens, or an empty list. */
static void tell_text(const conversation *v, const char *type, json_t *members, resp_span of, buf *out)
{
  response *r = v->own.data;
  begin_event(r, type, members, out);
  if (r->kind == PART_CONTENT)
    add_logprobs(v, of, out);
  end_event(out);
}

/* A piece of text, with the tokens that came since the last one. */
static void tell_delta(const conversation *v, const char *text, size_t n, buf *out)
{
  response *r = v->own.data;
  resp_span of = {r->told, r->n_tokens - r->told};
  if (!out)
    return;
  if (r->kind == PART_CONTENT)
    r->told = r->n_tokens;
  tell_text(v, kinds[r->kind].delta, place_in(r, "delta", json_stringn(text, n)), of, out);
}

static void tell_end(const conversation *v, resp_span of, buf *out)
{
  response *r = v->own.data;
  tell_text(v, kinds[r->kind].done, place_in(r, "text", srv_string(&r->text)), of, out);
  begin_event(r, "response.content_part.done", place_in(r, "part", NULL), out);
  buf_adds(out, ",\"part\":");
  add_text_part(v, text_part(r, srv_string(&r->text)), r->kind == PART_CONTENT, of, out);
  end_event(out);
}

static void close_text(const conversation *v, const char *status, buf *out)
{
  response *r = v->own.data;
  bool content = r->kind == PART_CONTENT;
  resp_span of = {r->first, content ? r->n_tokens - r->first : 0};
  if (!r->open)
    return;
  if (content && r->told < r->n_tokens) /* tokens without text: the last one */
    tell_delta(v, "", 0, out);
  if (out)
    tell_end(v, of, out);
  close_item(v, text_item(r, status, json_pack("[o]", text_part(r, srv_string(&r->text)))), of, out);
  r->open = false;
  if (content)
    r->first = r->told = r->n_tokens;
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
  tell_delta(v, p->text.data, p->text.length, out);
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
  tell_new(r, call_item(r, &r->call, "in_progress", ""), out);
}

static void add_arguments(response *r, const buf *text, buf *out)
{
  buf_add(&r->text, text->data, text->length);
  if (out)
    out->failed |= r->text.failed;
  json_t *members = place(r);
  json_object_set_new(members, "delta", srv_string(text));
  tell(r, "response.function_call_arguments.delta", members, out);
}

/* Only of a whole call it is told that its arguments are. */
static void end_call(const conversation *v, bool whole, buf *out)
{
  response *r = v->own.data;
  const char *arguments = r->text.data ? r->text.data : "";
  if (whole) {
    json_t *members = place(r);
    json_object_set_new(members, "arguments", json_string(arguments));
    json_object_set_new(members, "name", json_string(r->call.name));
    tell(r, "response.function_call_arguments.done", members, out);
  }
  close_item(v, call_item(r, &r->call, whole ? "completed" : "incomplete", arguments), (resp_span){0}, out);
  mem_free(r->call.name);
  mem_free(r->call.id);
  r->call = (tool_call){0};
}

static void add_whole_call(const conversation *v, const tool_call *c)
{
  response *r = v->own.data;
  close_text(v, "completed", NULL);
  name_item(r, "fc");
  close_item(v, call_item(r, c, "completed", c->arguments), (resp_span){0}, NULL);
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
    end_call(v, p->kind == PART_CALL_END, out);
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

/* An answer without anything has an item all the same. */
static const char *close_answer(conversation *v, buf *out)
{
  response *r = v->own.data;
  const char *status = was_cut(v) ? "incomplete" : "completed";
  if (!r->open && !json_array_size(r->output))
    open_text(r, PART_CONTENT, out);
  close_text(v, status, out);
  return status;
}

static void add_last(const conversation *v, const char *status, buf *out)
{
  size_t from = out->length;
  add_document(v, status, usage_of(v), NULL, out);
  if (!out->failed)
    keep(v, out->data + from, out->length - from);
}

/* ---- answers ---- */

static void whole(conversation *v, buf *out)
{
  add_tokens(v->own.data, &v->set->at[0].taken);
  add_parts(v, NULL);
  add_last(v, close_answer(v, NULL), out);
}

/* An event with the document that was begun, or that an error ended. */
static void tell_status(const conversation *v, const char *type, const char *status, json_t *error, buf *out)
{
  begin_event(v->own.data, type, json_object(), out);
  buf_adds(out, ",\"response\":");
  add_document(v, status, NULL, error, out);
  end_event(out);
}

static void begin(conversation *v, buf *out)
{
  tell_status(v, "response.created", "in_progress", NULL, out);
  tell_status(v, "response.in_progress", "in_progress", NULL, out);
}

static void delta(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out)
{
  (void)index, (void)end; /* of the one choice: finish tells it */
  add_tokens(v->own.data, news);
  add_parts(v, out);
}

static void finish(conversation *v, buf *out)
{
  const char *status = close_answer(v, out);
  begin_event(v->own.data, was_cut(v) ? "response.incomplete" : "response.completed", json_object(), out);
  buf_adds(out, ",\"response\":");
  add_last(v, status, out);
  end_event(out);
}

static void fail(conversation *v, int status, const char *message, buf *out)
{
  (void)status;
  json_t *error = json_pack("{ss ss}", "code", "server_error", "message", message);
  ((response *)v->own.data)->text.failed = false; /* what is whole of it is told */
  tell_status(v, "response.failed", "failed", error, out);
}

const dialect resp_dialect = {"resp", "call_", true, NULL, whole, begin, delta, finish, fail, false, "parameters"};
