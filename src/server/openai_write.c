/* openai_write.c - answers in the OpenAI dialect: whole documents and events of a stream. See openai.h.
 *
 * An event comes with every token, while the model wants the processor: what all events of a stream begin with is
 * written once, and a piece of text goes straight into the buffer. Trees are for what is rare.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "format/json_out.h"
#include "server/openai.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD: a token that is part of a character */

void oai_writer_open(oai_writer *w, const server *s, const oai_request *r, const char *prefix, uint64_t number)
{
  *w = (oai_writer){.server = s, .request = r, .created = time(NULL)};
  snprintf(w->id, sizeof w->id, "%s-%llx-%llx", prefix, (unsigned long long)s->started, (unsigned long long)number);
}

void oai_writer_close(oai_writer *w)
{
  buf_free(&w->head);
}

/* ---- log-probabilities ---- */

/* A token's text as it stands within a text: decoders drop the space that begins one. NULL: no memory. */
static char *token_text(const server *s, int32_t id)
{
  static const char space[] = "\xe2\x96\x81"; /* U+2581 */
  char *text;
  size_t n = 0;
  const char *piece = tok_piece(s->model->tok, id, &n);
  if (tok_decode(s->model->tok, &id, 1, false, &text, NULL, NULL) != TERN_OK)
    return NULL;
  if (!piece || n < 3 || memcmp(piece, space, 3) != 0 || *text == ' ')
    return text;
  buf with = {0};
  buf_addc(&with, ' ');
  buf_adds(&with, text);
  mem_free(text);
  return buf_take(&with);
}

/* Sets nothing where a token has no bytes and the field is to be left out. */
static void set_bytes(json_t *to, const char *text, oai_no_bytes without)
{
  bool none = strstr(text, replacement) != NULL;
  if (none && without == OAI_LEAVES_OUT)
    return;
  json_t *list = none && without == OAI_NULL ? json_null() : json_array();
  for (const char *p = none ? "" : text; *p; p++)
    json_array_append_new(list, json_integer((uint8_t)*p));
  json_object_set_new(to, "bytes", list);
}

static json_t *one_token(const server *s, int32_t id, float logprob, oai_no_bytes without)
{
  char *text = token_text(s, id);
  json_t *out = text ? json_pack("{ss sf}", "token", text, "logprob", (double)logprob) : NULL;
  if (out)
    set_bytes(out, text, without);
  mem_free(text);
  return out;
}

static json_t *token_json(const server *s, const choice_token *t, oai_no_bytes without)
{
  json_t *one = one_token(s, t->id, t->logprob, without), *top;
  if (!t->n_top && without == OAI_LEAVES_OUT)
    return one;
  top = json_array();
  for (int k = 0; k < t->n_top; k++)
    json_array_append_new(top, one_token(s, t->top_ids[k], t->top_values[k], without));
  json_object_set_new(one, "top_logprobs", top);
  return one;
}

void oai_add_tokens(const server *s, const choice_token *tokens, size_t n, oai_no_bytes without, buf *out)
{
  buf_addc(out, '[');
  for (size_t i = 0; i < n; i++) {
    if (i)
      buf_addc(out, ',');
    srv_add_json(out, token_json(s, &tokens[i], without));
  }
  buf_addc(out, ']');
}

static void add_chat_logprobs(const server *s, const choice_part *p, buf *out)
{
  buf_adds(out, "{\"content\":");
  oai_add_tokens(s, p->tokens, p->n_tokens, OAI_NULL, out);
  buf_adds(out, ",\"refusal\":null}");
}

static json_t *text_token(oai_writer *w, int index, const choice_token *t)
{
  char *text = token_text(w->server, t->id);
  json_t *out = text ? json_string(text) : NULL;
  (void)index;
  mem_free(text);
  return out;
}

static json_t *text_value(oai_writer *w, int index, const choice_token *t)
{
  (void)w, (void)index;
  return json_real((double)t->logprob);
}

static json_t *text_tops(oai_writer *w, int index, const choice_token *t)
{
  json_t *out = json_object();
  (void)index;
  for (int k = 0; k < t->n_top; k++) {
    char *other = token_text(w->server, t->top_ids[k]);
    json_object_set_new(out, other ? other : "", json_real((double)t->top_values[k]));
    mem_free(other);
  }
  return out;
}

static json_t *text_offset(oai_writer *w, int index, const choice_token *t)
{
  char *text = token_text(w->server, t->id);
  json_t *out = json_integer((json_int_t)w->offsets[index]);
  w->offsets[index] += text ? utf8_length(text, strlen(text)) : 0;
  mem_free(text);
  return out;
}

static void add_text_logprobs(oai_writer *w, int index, const choice_part *p, buf *out)
{
  static const struct {
    const char *name;
    json_t *(*of)(oai_writer *w, int index, const choice_token *t);
  } lists[] = {{"tokens", text_token},
               {"token_logprobs", text_value},
               {"top_logprobs", text_tops},
               {"text_offset", text_offset}};
  for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
    buf_addf(out, "%s\"%s\":[", l ? "," : "{", lists[l].name);
    for (size_t i = 0; i < p->n_tokens; i++) {
      buf_adds(out, i ? "," : "");
      srv_add_json(out, lists[l].of(w, index, &p->tokens[i]));
    }
    buf_adds(out, "]");
  }
  buf_adds(out, "}");
}

static void add_logprobs(oai_writer *w, int index, const choice_part *p, buf *out)
{
  if (!w->request->logprobs || !p->n_tokens)
    buf_adds(out, "null");
  else if (w->request->chat)
    add_chat_logprobs(w->server, p, out);
  else
    add_text_logprobs(w, index, p, out);
}

/* ---- documents and events ---- */

/* What every document and event begins with, up to the choices. */
static void begin_document(const oai_writer *w, const char *object, buf *out)
{
  const tern_model_info *i = &w->server->model->info;
  char fingerprint[128];
  snprintf(fingerprint, sizeof fingerprint, "tern-%s-%s-%s", tern_version(), i->numerics, i->backend);
  srv_begin_object(out, json_pack("{ss ss sI ss ss}", "id", w->id, "object", object, "created", (json_int_t)w->created,
                                  "model", w->request->model, "system_fingerprint", fingerprint));
  buf_adds(out, ",\"choices\":[");
}

/* `usage` is taken over; NULL: there is none. */
static void end_document(json_t *usage, buf *out)
{
  buf_adds(out, "]");
  if (usage) {
    buf_adds(out, ",\"usage\":");
    srv_add_json(out, usage);
  }
  buf_adds(out, "}");
}

/* What follows a choice's text. `p`: log-probabilities of its tokens; NULL: none. `finish`, a plain word, may be NULL.
 */
static void end_choice(oai_writer *w, int index, const choice_part *p, const char *finish, buf *out)
{
  buf_adds(out, ",\"logprobs\":");
  if (p)
    add_logprobs(w, index, p, out);
  else
    buf_adds(out, "null");
  if (finish)
    buf_addf(out, ",\"finish_reason\":\"%s\"}", finish);
  else
    buf_adds(out, ",\"finish_reason\":null}");
}

/* `text` is taken over; otherwise as end_choice. */
static void add_choice(oai_writer *w, int index, const char *key, json_t *text, const choice_part *p,
                       const char *finish, buf *out)
{
  srv_begin_object(out, json_pack("{si so}", "index", index, key, text));
  end_choice(w, index, p, finish, out);
}

/* ---- what an answer says ---- */

/* All parts of one kind, in one text. */
static json_t *joined(const answer_parts *said, part_kind kind)
{
  buf text = {0};
  for (size_t i = 0; i < said->n; i++)
    if (said->at[i].kind == kind)
      buf_add(&text, said->at[i].text.data, said->at[i].text.length);
  json_t *out = text.failed ? NULL : srv_string(&text);
  buf_free(&text);
  return out;
}

/* Reasoning stands under the names that clients look for: vLLM's and DeepSeek's, mlx_lm.server's and OpenRouter's.
 * Takes over the text. */
static void set_reasoning(json_t *message, json_t *text)
{
  json_object_set(message, "reasoning_content", text);
  json_object_set_new(message, "reasoning", text);
}

static json_t *call_json(const tool_call *c)
{
  return json_pack("{ss ss s{ss ss}}", "id", c->id, "type", "function", "function", "name", c->name, "arguments",
                   c->arguments);
}

static json_t *message_json(const answer_parts *said)
{
  json_t *calls = json_array(), *content = joined(said, PART_CONTENT), *reasoning = joined(said, PART_REASONING);
  for (size_t i = 0; i < said->n; i++)
    if (said->at[i].kind == PART_CALL)
      json_array_append_new(calls, call_json(&said->at[i].call));
  if (json_array_size(calls) && !json_string_length(content)) {
    json_decref(content);
    content = json_null();
  }
  json_t *out = json_pack("{ss so sn}", "role", "assistant", "content", content, "refusal");
  if (json_string_length(reasoning))
    set_reasoning(out, json_incref(reasoning));
  if (json_array_size(calls))
    json_object_set(out, "tool_calls", calls);
  json_decref(reasoning);
  json_decref(calls);
  return out;
}

/* ---- whole ---- */

void oai_begin_whole(const oai_writer *w, buf *out)
{
  begin_document(w, w->request->chat ? "chat.completion" : "text_completion", out);
}

void oai_add_whole(oai_writer *w, int index, const choice *c, const answer_parts *said, const char *finish, buf *out)
{
  json_t *text = w->request->chat ? message_json(said) : joined(said, PART_CONTENT);
  buf_adds(out, index ? "," : "");
  add_choice(w, index, w->request->chat ? "message" : "text", text, &c->taken, finish, out);
}

void oai_end_whole(json_t *usage, buf *out)
{
  end_document(usage, out);
}

json_t *oai_usage(size_t prompt, size_t completion, size_t cached)
{
  return json_pack("{sI sI sI s{sI}}", "prompt_tokens", (json_int_t)prompt, "completion_tokens", (json_int_t)completion,
                   "total_tokens", (json_int_t)prompt + (json_int_t)completion, "prompt_tokens_details",
                   "cached_tokens", (json_int_t)cached);
}

/* ---- events ---- */

void oai_add_event(json_t *document, buf *out)
{
  buf_adds(out, "data: ");
  srv_add_json(out, document);
  buf_adds(out, "\n\n");
}

void oai_add_done(buf *out)
{
  buf_adds(out, "data: [DONE]\n\n");
}

static void begin_event(oai_writer *w, buf *out)
{
  if (!w->head.length) {
    buf_adds(&w->head, "data: ");
    begin_document(w, w->request->chat ? "chat.completion.chunk" : "text_completion", &w->head);
  }
  out->failed |= w->head.failed;
  buf_add(out, w->head.data, w->head.length);
}

/* Clients that asked for usage find the key in every event. */
static void end_event(const oai_writer *w, buf *out)
{
  buf_adds(out, w->request->include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

void oai_add_first(oai_writer *w, int index, buf *out)
{
  if (!w->request->chat)
    return;
  begin_event(w, out);
  add_choice(w, index, "delta", json_pack("{ss ss}", "role", "assistant", "content", ""), NULL, NULL, out);
  end_event(w, out);
}

/* Takes over `text`; otherwise as add_choice. */
static void add_event(oai_writer *w, int index, json_t *text, const choice_part *tokens, const char *finish, buf *out)
{
  begin_event(w, out);
  add_choice(w, index, w->request->chat ? "delta" : "text", text, tokens, finish, out);
  end_event(w, out);
}

/* What a part of a call adds to the message; *n_calls have begun. NULL: nothing. */
static json_t *call_delta(const answer_part *p, size_t *n_calls)
{
  if (p->kind == PART_CALL_BEGIN)
    return json_pack("{s[{sI ss ss s{ss ss}}]}", "tool_calls", "index", (json_int_t)(*n_calls)++, "id", p->call.id,
                     "type", "function", "function", "name", p->call.name, "arguments", "");
  if (p->kind == PART_CALL_TEXT)
    return json_pack("{s[{sI s{so}}]}", "tool_calls", "index", (json_int_t)*n_calls - 1, "function", "arguments",
                     srv_string(&p->text));
  return NULL;
}

/* A piece of text or reasoning, as add_event, without a tree. */
static void add_piece(oai_writer *w, int index, const answer_part *p, const choice_part *tokens, buf *out)
{
  const char *text = p->text.data ? p->text.data : "";
  bool talks = w->request->chat, reasoning = talks && p->kind == PART_REASONING;
  begin_event(w, out);
  buf_addf(out, "{\"index\":%d,%s", index,
           reasoning ? "\"delta\":{\"reasoning_content\":"
           : talks   ? "\"delta\":{\"content\":"
                     : "\"text\":");
  jout_str(out, text, p->text.length);
  if (reasoning) { /* under both its names: set_reasoning */
    buf_adds(out, ",\"reasoning\":");
    jout_str(out, text, p->text.length);
  }
  buf_adds(out, talks ? "}" : "");
  end_choice(w, index, tokens, NULL, out);
  end_event(w, out);
}

void oai_add_delta(oai_writer *w, int index, const choice_part *news, const answer_parts *said, size_t n_calls,
                   const char *finish, buf *out)
{
  const choice_part *tokens = news; /* go with the first event */
  for (size_t i = 0; i < said->n; i++) {
    const answer_part *p = &said->at[i];
    if (p->kind == PART_CONTENT || p->kind == PART_REASONING)
      add_piece(w, index, p, tokens, out);
    else if (p->kind == PART_CALL_BEGIN || p->kind == PART_CALL_TEXT)
      add_event(w, index, call_delta(p, &n_calls), tokens, NULL, out);
    else
      continue;
    tokens = NULL;
  }
  if (tokens && news->n_tokens)
    add_event(w, index, w->request->chat ? json_pack("{ss}", "content", "") : json_string(""), tokens, NULL, out);
  if (finish)
    add_event(w, index, w->request->chat ? json_object() : json_string(""), NULL, finish, out);
}

void oai_add_usage(oai_writer *w, json_t *usage, buf *out)
{
  begin_event(w, out);
  end_document(usage, out);
  buf_adds(out, "\n\n");
}
