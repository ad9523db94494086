/* ollama.c - Ollama's dialect: /api/chat and /api/generate.
 *
 * A body is checked by its table and rewritten into the shared fields: what stands in `options` moves up under the
 * shared names, a prompt with its system text becomes messages, a raw prompt stays a text. Answers are lines of JSON,
 * one a piece and a last one with counts and times, or that one alone. Sampling defaults are this server's, not
 * Ollama's: one conversation has one text in every dialect.
 */
#include "server/ollama.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "server/conversation.h"

enum { MOST_TOKENS = 1 << 30 };

/* ---- bodies ---- */

#define WHOLE FIELD_IS_INT
#define REAL FIELD_IS_REAL
static const char own_memory[] = "let be: memory is set aside by what a request needs";

/* Members of `options`. */
static const srv_field option_rows[] = {
    {"temperature", REAL, 0, 1e6, "temperature", NULL, NULL, false},
    {"top_p", REAL, 0, 1, "top_p", NULL, NULL, false},
    {"top_k", WHOLE, 0, INT_MAX, "top_k", NULL, NULL, false},
    {"min_p", REAL, 0, 1, "min_p", NULL, NULL, false},
    {"seed", WHOLE, 0, 0, "seed", NULL, "-1: drawn", false},
    {"stop", FIELD_IS_STRING | FIELD_IS_LIST, 0, 0, "stop", NULL, NULL, false},
    {"num_predict", WHOLE, -2, MOST_TOKENS, NULL, NULL, "below 0: until the context is full", false},
    {"repeat_penalty", REAL, 0, 1e6, "repetition_penalty", NULL, NULL, false},
    {"presence_penalty", REAL, -1e6, 1e6, "presence_penalty", NULL, NULL, false},
    {"frequency_penalty", REAL, -1e6, 1e6, "frequency_penalty", NULL, NULL, false},
    {"repeat_last_n", WHOLE, -1, INT_MAX, NULL, NULL, "of all three penalties; -1: the context", false},
    {"num_ctx", WHOLE, 1, INT_MAX, NULL, NULL, own_memory, false},
    {"num_keep", WHOLE, 0, 0, NULL, NULL, "let be: a context is never shifted", false},
    {"num_batch", WHOLE, 0, 0, NULL, NULL, "let be", false},
    {"num_gpu", WHOLE, 0, 0, NULL, NULL, "let be", false},
    {"main_gpu", WHOLE, 0, 0, NULL, NULL, "let be", false},
    {"num_thread", WHOLE, 0, 0, NULL, NULL, "let be", false},
    {"use_mmap", FIELD_IS_BOOL, 0, 0, NULL, NULL, "let be", false},
    {"use_mlock", FIELD_IS_BOOL, 0, 0, NULL, NULL, "let be", false},
    {"low_vram", FIELD_IS_BOOL, 0, 0, NULL, NULL, "let be", false},
    {"numa", FIELD_IS_BOOL, 0, 0, NULL, NULL, "let be", false},
    {"typical_p", REAL, 0, 0, NULL, "1", NULL, false},
    {"tfs_z", REAL, 0, 0, NULL, "1", NULL, false},
    {"mirostat", WHOLE, 0, 0, NULL, "0", NULL, false},
    {"penalize_newline", FIELD_IS_BOOL, 0, 0, NULL, "true", NULL, false},
};
static const srv_fields option_fields = SRV_FIELDS(option_rows, "options.");

/* What both routes have. A context that overflows is an error here: it is neither cut nor shifted. */
#define SHARED_ROWS                                                                                                    \
  {"model", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, false}, {"stream", FIELD_IS_BOOL, 0, 0, NULL, NULL, NULL, false}, \
      {"options", FIELD_IS_OBJECT, 0, 0, NULL, NULL, NULL, false},                                                     \
      {"think", FIELD_IS_BOOL | FIELD_IS_STRING, 0, 0, NULL, NULL, "or a level that the template has", false},         \
      {"format", FIELD_IS_STRING | FIELD_IS_OBJECT, 0, 0, NULL, NULL, "\"json\", or a JSON Schema", false},            \
      {"logprobs", FIELD_IS_BOOL, 0, 0, "logprobs", NULL, NULL, false},                                                \
      {"top_logprobs", FIELD_IS_INT, 0, REPLY_MOST_TOP, "top_logprobs", NULL, "with logprobs", false},                 \
      {"keep_alive", FIELD_IS_STRING | REAL, 0, 0, NULL, NULL, "let be: the model stays", false},                      \
      {"truncate", FIELD_IS_BOOL, 0, 0, NULL, NULL, "let be: what is too long is an error", false},                    \
  {                                                                                                                    \
    "shift", FIELD_IS_BOOL, 0, 0, NULL, NULL, "let be: what is too long is an error", false                            \
  }

static const srv_field chat_rows[] = {
    SHARED_ROWS,
    {"messages", FIELD_IS_LIST, 0, 0, "messages", NULL, "none: says that the model is there", false},
    {"tools", FIELD_IS_LIST, 0, 0, "tools", NULL, NULL, false},
};
const srv_fields oll_chat_fields = SRV_FIELDS(chat_rows, "");

static const srv_field generate_rows[] = {
    SHARED_ROWS,
    {"prompt", FIELD_IS_STRING, 0, 0, NULL, NULL, "none: says that the model is there", false},
    {"system", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, false},
    {"raw", FIELD_IS_BOOL, 0, 0, NULL, NULL, "without the chat template", false},
    {"suffix", FIELD_IS_STRING, 0, 0, NULL, "\"\"", NULL, false},
    {"template", FIELD_IS_STRING, 0, 0, NULL, "\"\"", NULL, false},
    {"images", FIELD_IS_LIST, 0, 0, NULL, "[]", NULL, false},
    {"context", FIELD_IS_LIST, 0, 0, NULL, "[]", NULL, false},
};
const srv_fields oll_generate_fields = SRV_FIELDS(generate_rows, "");

json_t *oll_error(int status, const char *param, const char *code, const char *message)
{
  (void)status, (void)param, (void)code; /* the message has the field's name */
  return json_pack("{ss}", "error", message);
}

bool oll_fix_model(const server *s, json_t *root, oai_fault *fault)
{
  static const char latest[] = ":latest";
  json_t *given = json_object_get(root, "model");
  const char *name = json_string_value(given);
  size_t n = json_string_length(given), tag = sizeof latest - 1;
  if (!name || srv_serves(s, name) || n <= tag || strcmp(name + n - tag, latest) != 0)
    return true;
  if (json_object_set_new(root, "model", json_stringn(name, n - tag)) == 0)
    return true;
  err_nomem(&fault->err, "model");
  return false;
}

/* Below 0: the route says so to the conversation. */
static bool move_length(const json_t *options, json_t *to, oai_fault *fault)
{
  json_t *most = json_object_get(options, "num_predict");
  if (most && json_integer_value(most) == 0)
    return oai_wrong_in(fault, "options.", "num_predict", "0 tokens would be no answer");
  if (!most || json_integer_value(most) < 0 || json_object_set(to, "max_tokens", most) == 0)
    return true;
  err_nomem(&fault->err, "options");
  return false;
}

/* Penalties look back by so many tokens. */
static bool move_look_back(const server *s, const json_t *options, json_t *to, oai_fault *fault)
{
  static const char *const names[] = {"repetition_context_size", "presence_context_size", "frequency_context_size"};
  const json_t *last = json_object_get(options, "repeat_last_n");
  json_int_t n = json_integer_value(last);
  if (!last)
    return true;
  if (n == 0)
    return oai_wrong_in(fault, "options.", "repeat_last_n", "0 would be no penalty: leave the penalties out instead");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (json_object_set_new(to, names[i], json_integer(n < 0 ? sched_context(s->scheduler) : n))) {
      err_nomem(&fault->err, "options");
      return false;
    }
  return true;
}

/* A tool's name, and pictures that are none. */
static bool fix_message(json_t *message, size_t at, oai_fault *fault)
{
  json_t *images = json_object_get(message, "images"), *name = json_object_get(message, "tool_name");
  if (images && !json_is_null(images) && (!json_is_array(images) || json_array_size(images))) {
    fault->param = "messages";
    err_set(&fault->err, TERN_E_USAGE, "messages[%zu]: images: not supported here", at);
    return false;
  }
  json_object_del(message, "images");
  if (name && !json_object_get(message, "name"))
    json_object_set(message, "name", name);
  json_object_del(message, "tool_name");
  return true;
}

static bool fix_messages(json_t *messages, oai_fault *fault)
{
  size_t i;
  json_t *message;
  json_array_foreach(messages, i, message)
  {
    if (json_is_object(message) && !fix_message(message, i, fault))
      return false;
  }
  return true;
}

/* A prompt and a system text as messages. */
static bool move_prompt(const json_t *root, json_t *to)
{
  json_t *system = json_object_get(root, "system"), *messages = json_array();
  bool bad = false;
  if (json_string_length(system))
    bad |= json_array_append_new(messages, json_pack("{ss sO}", "role", "system", "content", system));
  bad |=
      json_array_append_new(messages, json_pack("{ss sO}", "role", "user", "content", json_object_get(root, "prompt")));
  bad |= json_object_set_new(to, "messages", messages);
  return !bad;
}

static bool is_raw(const json_t *root)
{
  return json_is_true(json_object_get(root, "raw"));
}

/* Whether and how much to think. What the model cannot do is an error. */
static bool move_thinking(const server *s, const json_t *root, json_t *to, oai_fault *fault)
{
  json_t *think = json_object_get(root, "think");
  bool no_memory = false;
  if (!think)
    return true;
  if (!json_is_false(think) && (is_raw(root) || !s->reasoning))
    return oai_wrong(fault, "think", "%s",
                     is_raw(root) ? "a raw prompt is answered as it is"
                                  : "this model does not think: its chat template and tokens know of no reasoning");
  if (is_raw(root))
    return true;
  if (json_is_boolean(think)) {
    no_memory = json_object_set_new(to, "chat_template_kwargs", json_pack("{sO}", "enable_thinking", think));
  } else if (!oai_template_has(s, json_array_size(json_object_get(root, "tools")) > 0, "reasoning_effort")) {
    return oai_wrong(fault, "think", "the model's chat template has no levels");
  } else {
    no_memory = json_object_set(to, "reasoning_effort", think);
  }
  if (no_memory)
    err_nomem(&fault->err, "think");
  return !no_memory;
}

/* A text without messages has one field for both. */
static bool join_logprobs(json_t *to, oai_fault *fault)
{
  bool wanted = json_is_true(json_object_get(to, "logprobs"));
  json_int_t top = json_integer_value(json_object_get(to, "top_logprobs"));
  if (top && !wanted)
    return oai_wrong(fault, "top_logprobs", "needs logprobs to be true");
  json_object_del(to, "top_logprobs");
  json_object_del(to, "logprobs");
  if (!wanted || !json_object_set_new(to, "logprobs", json_integer(top)))
    return true;
  err_nomem(&fault->err, "request");
  return false;
}

static bool move_format(const json_t *root, json_t *to, oai_fault *fault)
{
  json_t *format = json_object_get(root, "format"), *moved;
  const char *word = json_string_value(format);
  if (!format || (word && !*word))
    return true;
  if (word && strcmp(word, "json") != 0)
    return oai_wrong(fault, "format", "\"%.60s\": \"json\" or a JSON Schema is supported", word);
  moved = word ? json_pack("{ss}", "type", "json_object")
               : json_pack("{ss s{sO}}", "type", "json_schema", "json_schema", "schema", format);
  if (moved && json_object_set_new(to, "response_format", moved) == 0)
    return true;
  err_nomem(&fault->err, "format");
  return false;
}

/* The shared request that says what the checked body says; NULL: no memory, or the fault. */
static json_t *shared_of(const server *s, const srv_fields *f, const json_t *root, oai_fault *fault)
{
  json_t *to = json_object(), *options = json_object_get(root, "options"), *name = json_object_get(root, "model");
  bool stream = !json_is_false(json_object_get(root, "stream"));
  bool ok = !json_object_set_new(to, "stream", json_boolean(stream)) && (!name || !json_object_set(to, "model", name));
  if (ok && f == &oll_generate_fields)
    ok = is_raw(root) ? !json_object_set(to, "prompt", json_object_get(root, "prompt")) : move_prompt(root, to);
  if (!ok)
    err_nomem(&fault->err, "request");
  ok = ok && move_thinking(s, root, to, fault) && fields_move(f, root, to, fault) &&
       fields_move(&option_fields, options, to, fault) && move_length(options, to, fault) &&
       move_look_back(s, options, to, fault) && move_format(root, to, fault) &&
       fix_messages(json_object_get(to, "messages"), fault);
  if (ok && (f != &oll_generate_fields || !is_raw(root) || join_logprobs(to, fault)))
    return to;
  json_decref(to);
  return NULL;
}

/* ---- answers ---- */

const char *oll_time(time_t at, char out[OLL_TIME])
{
  struct timespec now = {.tv_sec = at};
  struct tm utc;
  if (!at)
    clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  size_t n = strftime(out, OLL_TIME, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(out + n, OLL_TIME - n, ".%09ldZ", now.tv_nsec);
  return out;
}

static json_int_t nanoseconds(double from, double to)
{
  return from > 0 && to > from ? (json_int_t)(1e9 * (to - from)) : 0;
}

/* What came of an answer, one text of each kind. */
typedef struct pieces {
  json_t *content, *thinking, *calls; /* NULL: none */
} pieces;

static void join(json_t **to, const answer_part *p)
{
  const char *text = p->text.data ? p->text.data : "";
  if (!*to) {
    *to = json_stringn(text, p->text.length);
    return;
  }
  buf both = {0};
  buf_add(&both, json_string_value(*to), json_string_length(*to));
  buf_add(&both, text, p->text.length);
  json_decref(*to);
  *to = both.failed ? NULL : json_stringn(both.data ? both.data : "", both.length);
  buf_free(&both);
}

static void add_call(pieces *to, const tool_call *c)
{
  json_t *arguments = json_loads(c->arguments, JSON_ALLOW_NUL, NULL);
  if (!to->calls)
    to->calls = json_array();
  json_array_append_new(to->calls,
                        json_pack("{ss s{ss so}}", "id", c->id, "function", "name", c->name, "arguments", arguments));
}

static pieces pieces_of(const conversation *v)
{
  const answer_parts *said = &v->said[0];
  pieces out = {0};
  for (size_t i = 0; i < said->n; i++) {
    const answer_part *p = &said->at[i];
    if (p->kind == PART_CALL)
      add_call(&out, &p->call);
    else if (p->kind != PART_DROPPED)
      join(p->kind == PART_REASONING ? &out.thinking : &out.content, p);
  }
  return out;
}

/* A line without its end and its tokens. `name`: as the request had it. Takes over the pieces. */
static json_t *piece(const char *name, bool chats, pieces of, bool done)
{
  char now[OLL_TIME];
  json_t *out = json_pack("{ss ss}", "model", name, "created_at", oll_time(0, now));
  json_t *within = chats ? json_pack("{ss}", "role", "assistant") : out;
  json_object_set_new(within, chats ? "content" : "response", of.content ? of.content : json_string(""));
  if (of.thinking)
    json_object_set_new(within, "thinking", of.thinking);
  if (of.calls)
    json_object_set_new(within, "tool_calls", of.calls);
  if (chats)
    json_object_set_new(out, "message", within);
  json_object_set_new(out, "done", json_boolean(done));
  return out;
}

static void free_name(void *data)
{
  json_decref(data);
}

static const char *name_of(const conversation *v)
{
  const char *name = json_string_value(v->own.data);
  return name ? name : v->request.model;
}

/* The route says which: a raw prompt's dialect has no messages, and is not /api/chat. */
static bool is_chat(const conversation *v);

/* What the last line says beyond its text. */
static json_t *last_piece(const conversation *v, pieces of)
{
  const choice *c = &v->set->at[0];
  double first = c->first > 0 ? c->first : c->last;
  json_t *out = piece(name_of(v), is_chat(v), of, true);
  json_t *more =
      json_pack("{ss sI sI sI sI sI sI}", "done_reason", c->end.finish, "total_duration",
                nanoseconds(v->set->opened, c->last), "load_duration", (json_int_t)0, "prompt_eval_count",
                (json_int_t)conversation_prompt_tokens(v), "prompt_eval_duration", nanoseconds(c->began, first),
                "eval_count", (json_int_t)c->end.n_ids, "eval_duration", nanoseconds(first, c->last));
  json_object_update(out, more);
  json_decref(more);
  return out;
}

/* A line without its end, with the tokens of its text where they are wanted. Takes over the document. */
static void add_document(const conversation *v, json_t *document, const choice_part *tokens, buf *out)
{
  if (!tokens || !tokens->n_tokens) {
    srv_add_json(out, document);
    return;
  }
  srv_begin_object(out, document);
  buf_adds(out, ",\"logprobs\":");
  oai_add_tokens(v->server, tokens->tokens, tokens->n_tokens, OAI_LEAVES_OUT, out);
  buf_adds(out, "}");
}

static void whole(conversation *v, buf *out)
{
  const choice_part *taken = &v->set->at[0].taken;
  add_document(v, last_piece(v, pieces_of(v)), taken, out);
}

static void begin(conversation *v, buf *out)
{
  (void)v, (void)out;
}

static void delta(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out)
{
  (void)index, (void)end; /* of the one choice: finish tells it */
  pieces of = pieces_of(v);
  if (!of.content && !of.thinking && !of.calls && !news->n_tokens)
    return;
  add_document(v, piece(name_of(v), is_chat(v), of, false), news, out);
  buf_adds(out, "\n");
}

static void finish(conversation *v, buf *out)
{
  srv_add_json(out, last_piece(v, (pieces){0}));
  buf_adds(out, "\n");
}

static void fail(conversation *v, int status, const char *message, buf *out)
{
  (void)v;
  srv_add_json(out, oll_error(status, NULL, NULL, message));
  buf_adds(out, "\n");
}

static const dialect chat_dialect = {"oll", "call_", true, NULL, whole, begin, delta, finish, fail, true, NULL};
static const dialect generate_dialect = {"oll", "call_", true, NULL, whole, begin, delta, finish, fail, true, NULL};
static const dialect raw_dialect = {"oll", "call_", false, NULL, whole, begin, delta, finish, fail, true, NULL};

static bool is_chat(const conversation *v)
{
  return v->dialect == &chat_dialect;
}

/* ---- the routes ---- */

#define NAMES                                                                                                          \
  {"max_tokens", "options.num_predict"}, {"reasoning_effort", "think"}, {"response_format", "format"},                 \
      {"chat_template_kwargs", "think"},                                                                               \
  {                                                                                                                    \
    NULL, NULL                                                                                                         \
  }
static const conversation_name chat_names[] = {NAMES}, generate_names[] = {{"messages", "prompt"}, NAMES};
static const srv_fields *const tables[] = {&option_fields, NULL};

/* A request without anything to answer asks whether the model is there, which it always is. */
static void answer_load(const server *s, const json_t *root, const json_t *name, bool chats, srv_response *a)
{
  const char *served = json_string_value(json_object_get(root, "model"));
  const json_t *alive = json_object_get(root, "keep_alive");
  if (served && !srv_serves(s, served)) {
    char message[200];
    snprintf(message, sizeof message, "model: \"%.100s\" is not served here", served);
    srv_error(a, 404, "model", "model_not_found", message);
  } else if (json_is_number(alive) && json_number_value(alive) == 0) {
    srv_error(a, 400, "keep_alive", NULL, "keep_alive: 0 without a prompt asks to unload the model, which stays here");
  } else {
    json_t *out = piece(name ? json_string_value(name) : s->options.names[0], chats, (pieces){0}, true);
    json_object_set_new(out, "done_reason", json_string("load"));
    srv_json(a, 200, out);
  }
}

static bool is_empty(const json_t *root, bool chats)
{
  return chats ? !json_array_size(json_object_get(root, "messages"))
               : !json_string_length(json_object_get(root, "prompt"));
}

static void answer_body(server *s, const srv_request *q, json_t *root, const srv_fields *f, srv_response *a)
{
  oai_fault fault = {0};
  bool chats = f == &oll_chat_fields;
  bool ok = fields_check(f, root, &fault); /* without members that are null, from here on */
  json_t *options = json_object_get(root, "options"), *name = json_incref(json_object_get(root, "model")), *to = NULL;
  ok = ok && fields_check(&option_fields, options, &fault) && oll_fix_model(s, root, &fault);
  if (ok && is_empty(root, chats)) {
    answer_load(s, root, name, chats, a);
    json_decref(name);
    return;
  }
  to = ok ? shared_of(s, f, root, &fault) : NULL;
  if (!to) {
    oai_answer_fault(a, &fault);
    json_decref(name);
    return;
  }
  a->type = "application/x-ndjson";
  conversation_own own = {.data = name,
                          .free = free_name,
                          .fills = json_integer_value(json_object_get(options, "num_predict")) < 0,
                          .names = chats ? chat_names : generate_names,
                          .fields = tables,
                          .schema_place = "format"};
  const dialect *d = chats ? &chat_dialect : is_raw(root) ? &raw_dialect : &generate_dialect;
  conversation_answer(s, q, to, own, d, a);
}

static void answer(server *s, const srv_request *q, const srv_fields *f, srv_response *a)
{
  json_t *root;
  if (!srv_body(q, a, &root))
    return;
  answer_body(s, q, root, f, a);
  json_decref(root);
}

void oll_chat(server *s, const srv_request *q, srv_response *a)
{
  answer(s, q, &oll_chat_fields, a);
}

void oll_generate(server *s, const srv_request *q, srv_response *a)
{
  answer(s, q, &oll_generate_fields, a);
}
