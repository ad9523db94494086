/* chat.c - one chat request: reading it, normalising its messages as transformers does, rendering it. Finding templates
 * and special tokens is chat_files.c. */
#include "text/chat.h"

#include <string.h>

#include "base/mem.h"
#include "text/chat_continue.h"
#include "text/chat_files.h"
#include "text/tmpl_json.h"
#include "text/tmpl_run.h"

/* Options of apply_chat_template that never reach a template; as kwargs they would silently mean something else. */
static const char *const not_variables[] = {
    "conversation",
    "chat_template",
    "tokenize",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "tokenizer_kwargs",
    "return_assistant_tokens_mask",
    "sanitize_control_tokens",
};

static const char *const given_elsewhere[] = {"messages", "tools", "add_generation_prompt"};

static bool is_among(const tstr *name, const char *const *names, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (ts_is(name, names[i]))
      return true;
  return false;
}

#define AMONG(name, table) is_among(name, table, sizeof table / sizeof *table)

static bool bad_request(tmpl_rt *r, const char *what)
{
  return rt_fail_status(r, TERN_E_FORMAT, "%s", what);
}

/* ---- messages ---- */

static bool drop_nulls(tmpl_rt *r, const tdict *message, tdict **out)
{
  OK(td_new(r, out));
  for (size_t i = 0; i < message->n; i++)
    if (message->e[i].value.type != TV_NONE)
      OK(td_set(r, *out, message->e[i].key, message->e[i].value));
  return true;
}

/* The order of keys is the reference's: thinking first, reasoning_content where it was or last. */
static bool alias_reasoning(tmpl_rt *r, tdict **message)
{
  const tv *reasoning = NULL;
  for (size_t i = 0; i < CHAT_REASONING_KEYS && !reasoning; i++)
    reasoning = td_find_cstr(*message, chat_reasoning_keys[i]);
  if (!reasoning)
    return true;
  tdict *d;
  tv value = *reasoning;
  OK(td_new(r, &d) && td_set_cstr(r, d, "thinking", value));
  for (size_t i = 0; i < (*message)->n; i++)
    OK(td_set(r, d, (*message)->e[i].key, (*message)->e[i].value));
  OK(td_set_cstr(r, d, "reasoning_content", value));
  *message = d;
  return true;
}

static bool normalise_messages(tmpl_rt *r, tv messages, tv *out)
{
  tlist *l;
  if (messages.type != TV_LIST)
    return bad_request(r, "messages: a list is expected");
  if (messages.l->n == 0)
    return bad_request(r, "messages: empty, at least one is expected");
  OK(tl_new(r, messages.l->n, &l));
  for (size_t i = 0; i < messages.l->n; i++) {
    tdict *message;
    if (messages.l->v[i].type != TV_DICT)
      return rt_fail_status(r, TERN_E_FORMAT, "messages[%zu]: an object is expected", i);
    OK(drop_nulls(r, messages.l->v[i].d, &message) && alias_reasoning(r, &message));
    OK(tl_add(r, l, tv_dict(message)));
  }
  *out = tv_seq(TV_LIST, l);
  return true;
}

/* ---- the request ---- */

typedef struct request {
  tv messages, tools, add_generation_prompt, kwargs, now;
  tv continue_final; /* taken out of kwargs */
} request;

static bool is_list_of_objects(tv v)
{
  if (v.type != TV_LIST)
    return false;
  for (size_t i = 0; i < v.l->n; i++)
    if (v.l->v[i].type != TV_DICT)
      return false;
  return true;
}

static bool check_request(tmpl_rt *r, const request *q)
{
  if (!tv_given(q->messages))
    return bad_request(r, "messages: missing");
  if (q->tools.type != TV_NONE && !is_list_of_objects(q->tools))
    return bad_request(r, "tools: a list of objects (JSON schemas) is expected");
  if (q->kwargs.type != TV_DICT)
    return bad_request(r, "kwargs: an object is expected");
  if (q->now.type != TV_NONE && q->now.type != TV_STR)
    return bad_request(r, "now: a string is expected");
  for (size_t i = 0; i < q->kwargs.d->n; i++) {
    const tstr *name = q->kwargs.d->e[i].key.s;
    if (AMONG(name, given_elsewhere))
      return rt_fail_status(r, TERN_E_FORMAT, "kwargs: '%.*s' has its own place in the request", (int)name->n, name->s);
    if (AMONG(name, not_variables))
      return rt_fail_status(r, TERN_E_FORMAT, "kwargs: '%.*s' is an option of transformers, not a template variable",
                            (int)name->n, name->s);
  }
  const tv *documents = td_find_cstr(q->kwargs.d, "documents");
  if (documents && documents->type != TV_NONE && !is_list_of_objects(*documents))
    return bad_request(r, "kwargs.documents: a list of objects is expected");
  return true;
}

static bool read_request(tmpl_rt *r, const char *text, size_t n, request *q)
{
  tv root;
  tdict *none;
  OK(tj_read(r, text, n, &root) && td_new(r, &none));
  if (root.type != TV_DICT)
    return bad_request(r, "an object with \"messages\" is expected");
  *q =
      (request){.tools = tv_none(), .add_generation_prompt = tv_bool(false), .kwargs = tv_dict(none), .now = tv_none()};
  for (size_t i = 0; i < root.d->n; i++) {
    const tstr *key = root.d->e[i].key.s;
    tv value = root.d->e[i].value;
    if (ts_is(key, "messages"))
      q->messages = value;
    else if (ts_is(key, "tools"))
      q->tools = value;
    else if (ts_is(key, "now"))
      q->now = value;
    else if (ts_is(key, "add_generation_prompt"))
      q->add_generation_prompt = value.type == TV_NONE ? tv_bool(false) : value;
    else if (ts_is(key, "kwargs"))
      q->kwargs = value.type == TV_NONE ? q->kwargs : value;
    else
      return rt_fail_status(r, TERN_E_FORMAT,
                            "unknown key '%.*s' (messages, tools, add_generation_prompt, kwargs, now are known)",
                            (int)key->n, key->s);
  }
  return check_request(r, q);
}

/* Special tokens first: kwargs of the same name win. */
static bool make_variables(tmpl_rt *r, const chat *c, request *q, tdict **out)
{
  OK(normalise_messages(r, q->messages, &q->messages) && td_new(r, out));
  for (size_t i = 0; i < CHAT_SPECIALS; i++) {
    tv token;
    if (!c->special[i])
      continue;
    OK(ts_cstr(r, c->special[i], &token) && td_set_cstr(r, *out, chat_special_names[i], token));
  }
  OK(td_set_cstr(r, *out, "documents", tv_none()));
  for (size_t i = 0; i < q->kwargs.d->n; i++) {
    if (ts_is(q->kwargs.d->e[i].key.s, "continue_final_message"))
      q->continue_final = q->kwargs.d->e[i].value;
    else
      OK(td_set(r, *out, q->kwargs.d->e[i].key, q->kwargs.d->e[i].value));
  }
  if (tv_truth(q->continue_final) && tv_truth(q->add_generation_prompt))
    return bad_request(r, "continue_final_message and add_generation_prompt exclude each other");
  return td_set_cstr(r, *out, "messages", q->messages) && td_set_cstr(r, *out, "tools", q->tools) &&
         td_set_cstr(r, *out, "add_generation_prompt", q->add_generation_prompt);
}

static bool render(tmpl_rt *r, const chat *c, const char *text, size_t n, char **out, size_t *length)
{
  request q;
  tdict *vars;
  r->what = "request";
  OK(read_request(r, text, n, &q) && make_variables(r, c, &q, &vars));
  if (q.now.type == TV_STR) {
    r->status = tmpl_clock_parse(q.now.s->s, q.now.s->n, &r->clock, r->err);
    OK(r->status == TERN_OK);
  }
  const chat_template *t = chat_pick(c, q.tools.type != TV_NONE);
  if (!t) {
    r->what = c->where;
    return rt_fail_status(r, TERN_E_NOT_FOUND,
                          c->n ? "several chat templates and none named \"default\""
                               : "no chat template: --chat-template gives one");
  }
  chat_continue going_on;
  char *prompt;
  size_t prompt_length;
  OK(chat_continue_mark(r, q.messages.l, q.continue_final, t->source, t->length, &going_on));
  r->what = "template";
  r->status = tmpl_render_values(r, t->compiled, vars, &prompt, &prompt_length);
  OK(r->status == TERN_OK);
  r->line = 0;
  if (!chat_continue_cut(r, &going_on, prompt, &prompt_length)) {
    mem_free(prompt);
    return false;
  }
  *out = prompt;
  if (length)
    *length = prompt_length;
  return true;
}

tern_status chat_render(const chat *c, const char *text, size_t n, char **out, size_t *length, tern_error *err)
{
  tmpl_locale locale;
  if (!tmpl_locale_enter(&locale))
    return err_nomem(err, "the C locale");
  tmpl_rt r;
  rt_init(&r, err);
  tern_status status = render(&r, c, text, n, out, length) ? TERN_OK : r.status;
  rt_free(&r);
  tmpl_locale_leave(&locale);
  return status;
}
