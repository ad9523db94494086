/* openai_write.c - answers in the OpenAI dialect: whole documents and events of a stream. See openai.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/openai.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD: a token that is part of a character */

void oai_writer_open(oai_writer *w, const server *s, const oai_request *r, const char *prefix, uint64_t number)
{
  *w = (oai_writer){.server = s, .request = r, .created = time(NULL)};
  snprintf(w->id, sizeof w->id, "%s-%llx-%llx", prefix, (unsigned long long)s->started, (unsigned long long)number);
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

static json_t *bytes_json(const char *text)
{
  if (strstr(text, replacement))
    return json_null();
  json_t *list = json_array();
  for (const char *p = text; *p; p++)
    json_array_append_new(list, json_integer((uint8_t)*p));
  return list;
}

static json_t *chat_token(const server *s, int32_t id, float logprob)
{
  char *text = token_text(s, id);
  json_t *out =
      text ? json_pack("{ss sf so}", "token", text, "logprob", (double)logprob, "bytes", bytes_json(text)) : NULL;
  mem_free(text);
  return out;
}

static json_t *chat_logprobs(const server *s, const choice_part *c)
{
  json_t *list = json_array();
  for (size_t i = 0; i < c->n_tokens; i++) {
    const choice_token *t = &c->tokens[i];
    json_t *one = chat_token(s, t->id, t->logprob), *top = json_array();
    for (int k = 0; k < t->n_top; k++)
      json_array_append_new(top, chat_token(s, t->top_ids[k], t->top_values[k]));
    json_object_set_new(one, "top_logprobs", top);
    json_array_append_new(list, one);
  }
  return json_pack("{so sn}", "content", list, "refusal");
}

static json_t *text_logprobs(oai_writer *w, int index, const choice_part *c)
{
  json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array();
  for (size_t i = 0; i < c->n_tokens; i++) {
    const choice_token *t = &c->tokens[i];
    char *text = token_text(w->server, t->id);
    json_t *top = json_object();
    json_array_append_new(tokens, json_string(text ? text : ""));
    json_array_append_new(values, json_real((double)t->logprob));
    json_array_append_new(offsets, json_integer((json_int_t)w->offsets[index]));
    w->offsets[index] += text ? utf8_length(text, strlen(text)) : 0;
    for (int k = 0; k < t->n_top; k++) {
      char *other = token_text(w->server, t->top_ids[k]);
      json_object_set_new(top, other ? other : "", json_real((double)t->top_values[k]));
      mem_free(other);
    }
    json_array_append_new(tops, top);
    mem_free(text);
  }
  return json_pack("{so so so so}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops, "text_offset",
                   offsets);
}

static json_t *logprobs(oai_writer *w, int index, const choice_part *c)
{
  if (!w->request->logprobs || !c->n_tokens)
    return json_null();
  return w->request->chat ? chat_logprobs(w->server, c) : text_logprobs(w, index, c);
}

/* ---- whole ---- */

static json_t *text_json(const choice_part *c)
{
  return json_stringn(c->text.data ? c->text.data : "", c->text.length);
}

json_t *oai_whole_choice(oai_writer *w, int index, const choice *c)
{
  json_t *probabilities = logprobs(w, index, &c->taken);
  if (!w->request->chat)
    return json_pack("{si so so ss}", "index", index, "text", text_json(&c->taken), "logprobs", probabilities,
                     "finish_reason", c->end.finish);
  json_t *message = json_pack("{ss so sn}", "role", "assistant", "content", text_json(&c->taken), "refusal");
  return json_pack("{si so so ss}", "index", index, "message", message, "logprobs", probabilities, "finish_reason",
                   c->end.finish);
}

json_t *oai_usage(size_t prompt, size_t completion, size_t cached)
{
  return json_pack("{sI sI sI s{sI}}", "prompt_tokens", (json_int_t)prompt, "completion_tokens", (json_int_t)completion,
                   "total_tokens", (json_int_t)prompt + (json_int_t)completion, "prompt_tokens_details",
                   "cached_tokens", (json_int_t)cached);
}

/* What every document and event begins with; takes over `list`. */
static json_t *envelope(const oai_writer *w, const char *object, json_t *list)
{
  const tern_model_info *i = &w->server->model->info;
  char fingerprint[128];
  snprintf(fingerprint, sizeof fingerprint, "tern-%s-%s-%s", tern_version(), i->numerics, i->backend);
  return json_pack("{ss ss sI ss ss so}", "id", w->id, "object", object, "created", (json_int_t)w->created, "model",
                   w->request->model, "system_fingerprint", fingerprint, "choices", list);
}

json_t *oai_whole(const oai_writer *w, json_t *list, json_t *usage)
{
  json_t *out = envelope(w, w->request->chat ? "chat.completion" : "text_completion", list);
  if (json_object_set_new(out, "usage", usage) == 0)
    return out;
  json_decref(out);
  return NULL;
}

/* ---- events ---- */

void oai_add_event(json_t *document, buf *out)
{
  char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
  json_decref(document);
  if (!text)
    out->failed = true;
  buf_adds(out, "data: ");
  buf_adds(out, text ? text : "");
  buf_adds(out, "\n\n");
  free(text);
}

void oai_add_done(buf *out)
{
  buf_adds(out, "data: [DONE]\n\n");
}

static const char *event_object(const oai_writer *w)
{
  return w->request->chat ? "chat.completion.chunk" : "text_completion";
}

/* `one` is taken over. Clients that asked for usage find the key in every event. */
static void add_choice(oai_writer *w, json_t *one, buf *out)
{
  json_t *event = envelope(w, event_object(w), json_pack("[o]", one));
  if (w->request->include_usage)
    json_object_set_new(event, "usage", json_null());
  oai_add_event(event, out);
}

void oai_add_first(oai_writer *w, int index, buf *out)
{
  if (w->request->chat)
    add_choice(w,
               json_pack("{si s{ss ss} sn sn}", "index", index, "delta", "role", "assistant", "content", "", "logprobs",
                         "finish_reason"),
               out);
}

void oai_add_delta(oai_writer *w, int index, const choice_part *news, const char *finish, buf *out)
{
  const char *key = w->request->chat ? "delta" : "text";
  if (news->text.length || news->n_tokens) {
    json_t *text = w->request->chat ? json_pack("{so}", "content", text_json(news)) : text_json(news);
    add_choice(
        w, json_pack("{si so so sn}", "index", index, key, text, "logprobs", logprobs(w, index, news), "finish_reason"),
        out);
  }
  if (finish) {
    json_t *nothing = w->request->chat ? json_object() : json_string("");
    add_choice(w, json_pack("{si so sn ss}", "index", index, key, nothing, "logprobs", "finish_reason", finish), out);
  }
}

void oai_add_usage(const oai_writer *w, json_t *usage, buf *out)
{
  json_t *event = envelope(w, event_object(w), json_array());
  json_object_set_new(event, "usage", usage);
  oai_add_event(event, out);
}
