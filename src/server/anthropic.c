/* anthropic.c - the Anthropic dialect: /v1/messages and its count_tokens. How bodies are read is anthropic_body.c.
 *
 * An answer is blocks, in the order in which the model said them: thinking, text, tool_use. One choice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/anthropic.h"

/* ---- errors ---- */

static const char *error_type(int status)
{
  switch (status) {
  case 401:
    return "authentication_error";
  case 403:
    return "permission_error";
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

/* ---- answers ---- */

static const char *stop_reason(const conversation *v)
{
  const choice *c = &v->set->at[0];
  const char *finish = conversation_finish(v, 0, &c->end);
  return c->end.stop                     ? "stop_sequence"
         : !strcmp(finish, "length")     ? "max_tokens"
         : !strcmp(finish, "tool_calls") ? "tool_use"
                                         : "end_turn";
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

/* ---- blocks ---- */

/* Clients send a thinking block back with what the server signed it with. Nothing is hidden in it here. */
static const char signature[] = "tern";

static json_t *text_of(const answer_part *p)
{
  return json_stringn(p->text.data ? p->text.data : "", p->text.length);
}

/* Arguments as a tree: a reader of parts gives the text of an object. */
static json_t *input_of(const tool_call *c)
{
  return json_loads(c->arguments, JSON_ALLOW_NUL, NULL);
}

static json_t *block_of(const answer_part *p)
{
  switch (p->kind) {
  case PART_REASONING:
    return json_pack("{ss so ss}", "type", "thinking", "thinking", text_of(p), "signature", signature);
  case PART_CONTENT:
    return json_pack("{ss so}", "type", "text", "text", text_of(p));
  case PART_CALL:
    return json_pack("{ss ss ss so}", "type", "tool_use", "id", p->call.id, "name", p->call.name, "input",
                     input_of(&p->call));
  default:
    return NULL;
  }
}

static void whole(conversation *v, buf *out)
{
  const answer_parts *said = &v->said[0];
  json_t *content = json_array();
  for (size_t i = 0; i < said->n; i++)
    if (said->at[i].kind != PART_DROPPED && json_array_append_new(content, block_of(&said->at[i])))
      out->failed = true;
  if (!json_array_size(content))
    json_array_append_new(content, json_pack("{ss ss}", "type", "text", "text", ""));
  srv_add_json(out, message(v, content, stop_reason(v), v->set->at[0].end.stop, v->set->at[0].end.n_ids));
}

/* ---- streams ---- */

/* Takes over the document, whose "type" names the event. */
static void add_event(json_t *document, buf *out)
{
  const char *type = json_string_value(json_object_get(document, "type"));
  buf_addf(out, "event: %s\n", type ? type : "error");
  oai_add_event(document, out);
}

/* Takes over `block`, which is empty yet. */
static void open_block(conversation *v, part_kind kind, json_t *block, buf *out)
{
  v->blocks.open = true;
  v->blocks.kind = kind;
  add_event(json_pack("{ss si so}", "type", "content_block_start", "index", v->blocks.n++, "content_block", block),
            out);
}

static void add_to_block(conversation *v, const char *type, const char *key, json_t *text, buf *out)
{
  add_event(json_pack("{ss si s{ss so}}", "type", "content_block_delta", "index", v->blocks.n - 1, "delta", "type",
                      type, key, text),
            out);
}

static void close_block(conversation *v, buf *out)
{
  if (!v->blocks.open)
    return;
  if (v->blocks.kind == PART_REASONING)
    add_to_block(v, "signature_delta", "signature", json_string(signature), out);
  add_event(json_pack("{ss si}", "type", "content_block_stop", "index", v->blocks.n - 1), out);
  v->blocks.open = false;
}

static void open_text(conversation *v, buf *out)
{
  open_block(v, PART_CONTENT, json_pack("{ss ss}", "type", "text", "text", ""), out);
}

/* Where an answer can be nothing but text, its block is there from the beginning. */
static void begin(conversation *v, buf *out)
{
  add_event(json_pack("{ss so}", "type", "message_start", "message", message(v, json_array(), NULL, NULL, 0)), out);
  if (!v->request.parts.calls && !v->request.parts.reasoning)
    open_text(v, out);
  add_event(json_pack("{ss}", "type", "ping"), out);
}

static void open_call(conversation *v, const tool_call *c, buf *out)
{
  close_block(v, out);
  open_block(v, PART_CALL_BEGIN, json_pack("{ss ss ss s{}}", "type", "tool_use", "id", c->id, "name", c->name, "input"),
             out);
}

static void add_text(conversation *v, const answer_part *p, buf *out)
{
  bool thinks = p->kind == PART_REASONING;
  if (v->blocks.open && v->blocks.kind != p->kind)
    close_block(v, out);
  if (!v->blocks.open && thinks)
    open_block(v, PART_REASONING, json_pack("{ss ss ss}", "type", "thinking", "thinking", "", "signature", ""), out);
  else if (!v->blocks.open)
    open_text(v, out);
  add_to_block(v, thinks ? "thinking_delta" : "text_delta", thinks ? "thinking" : "text", text_of(p), out);
}

static void add_part(conversation *v, const answer_part *p, buf *out)
{
  switch (p->kind) {
  case PART_REASONING:
  case PART_CONTENT:
    add_text(v, p, out);
    break;
  case PART_CALL_BEGIN:
    open_call(v, &p->call, out);
    break;
  case PART_CALL_TEXT:
    add_to_block(v, "input_json_delta", "partial_json", text_of(p), out);
    break;
  case PART_CALL_END:
  case PART_CALL_LOST: /* blocks have no word for that; its text follows */
    close_block(v, out);
    break;
  default:
    break;
  }
}

static void delta(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out)
{
  (void)news, (void)end; /* of the one choice: finish tells it */
  for (size_t i = 0; i < v->said[index].n; i++)
    add_part(v, &v->said[index].at[i], out);
}

static void finish(conversation *v, buf *out)
{
  const choice *c = &v->set->at[0];
  if (!v->blocks.n)
    open_text(v, out);
  close_block(v, out);
  add_event(json_pack("{ss s{ss ss?} so}", "type", "message_delta", "delta", "stop_reason", stop_reason(v),
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
  static const dialect is = {"msg", "toolu_", true, ant_translate, whole,          begin,
                             delta, finish,   fail, false,         ANT_TOOL_SCHEMA};
  conversation_run(s, q, &is, a);
}

/* What a request would have as input: the fields of /v1/messages, of which those that make the prompt count. */
void ant_count_tokens(server *s, const srv_request *q, srv_response *a)
{
  json_t *root;
  oai_fault fault = {0};
  oai_request r = {.counts = true, .ask = srv_ask(&q->fd), .tool_schema = ANT_TOOL_SCHEMA};
  if (!srv_body(q, a, &root))
    return;
  if (!json_object_get(root, "max_tokens"))
    json_object_set_new(root, "max_tokens", json_integer(1));
  r.root = root;
  bool ok = ant_translate(s, &r.root, &fault) && oai_read(s, r.root, true, &r, &fault);
  if (ok)
    srv_json(a, 200, json_pack("{sI}", "input_tokens", (json_int_t)r.prompts[0].n));
  else
    oai_answer_fault(a, &fault);
  oai_clear(&r);
}
