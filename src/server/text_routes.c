/* text_routes.c - the tokenizer and the chat template over HTTP, without the model. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/prompt.h"
#include "server/routes.h"

static void answer_wrong(srv_response *a, const oai_fault *f)
{
  oai_answer_fault(a, f);
}

/* A body's fields and its model. */
static bool check(const server *s, const srv_fields *f, json_t *root, oai_fault *fault)
{
  const char *called;
  return oai_check_model(s, json_object_get(root, "model"), &called, fault) && fields_check(f, root, fault);
}

/* Of several names for one thing, the first that was given; NULL: none was. */
static const json_t *first_of(const json_t *root, const char *const *names)
{
  const json_t *value = NULL;
  for (; *names && !value; names++)
    value = json_object_get(root, *names);
  return value;
}

static bool switch_of(const json_t *root, const char *const *names, bool fallback)
{
  const json_t *value = first_of(root, names);
  return value ? json_is_true(value) : fallback;
}

static json_t *ids_json(const int32_t *ids, size_t n)
{
  json_t *list = json_array();
  for (size_t i = 0; i < n; i++)
    json_array_append_new(list, json_integer(ids[i]));
  return list;
}

/* ---- /tokenize ---- */

static const srv_field tokenize_rows[] = {
    {"model", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, false},
    {"content", FIELD_IS_STRING, 0, 0, NULL, NULL, "the text", false},
    {"text", FIELD_IS_STRING, 0, 0, NULL, NULL, "the same", false},
    {"prompt", FIELD_IS_STRING, 0, 0, NULL, NULL, "the same", false},
    {"add_special", FIELD_IS_BOOL, 0, 0, NULL, NULL, "absent: true", false},
    {"add_special_tokens", FIELD_IS_BOOL, 0, 0, NULL, NULL, "the same", false},
};
const srv_fields text_tokenize_fields = SRV_FIELDS(tokenize_rows, "");

void text_tokenize(server *s, const srv_request *q, srv_response *a)
{
  static const char *const texts[] = {"content", "text", "prompt", NULL};
  static const char *const flags[] = {"add_special", "add_special_tokens", NULL};
  json_t *root;
  oai_fault fault = {0};
  int32_t *ids = NULL;
  size_t n = 0;
  tok_ask ask = srv_ask(&q->fd);
  if (!srv_body(q, a, &root))
    return;
  bool ok = check(s, &text_tokenize_fields, root, &fault);
  const json_t *text = first_of(root, texts);
  if (ok && !text)
    ok = oai_wrong(&fault, "content", "must be a string");
  if (ok)
    ok = srv_check_length(s, json_string_length(text), &fault.err) == TERN_OK;
  if (ok)
    ok = tok_encode_while(s->model->tok, &ask, json_string_value(text), json_string_length(text),
                          switch_of(root, flags, true), &ids, &n, &fault.err) == TERN_OK;
  if (ok)
    srv_json(a, 200, json_pack("{so sI}", "tokens", ids_json(ids, n), "count", (json_int_t)n));
  else
    answer_wrong(a, &fault);
  mem_free(ids);
  json_decref(root);
}

/* ---- /detokenize ---- */

static bool read_ids(const json_t *list, int32_t *ids, oai_fault *fault)
{
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *id = json_array_get(list, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
      return oai_wrong(fault, "tokens", "element %zu is not a token id", i);
    ids[i] = (int32_t)json_integer_value(id);
  }
  return true;
}

static const srv_field detokenize_rows[] = {
    {"model", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, false},
    {"tokens", FIELD_IS_LIST, 0, 0, NULL, NULL, "ids", true},
    {"skip_special", FIELD_IS_BOOL, 0, 0, NULL, NULL, "absent: false", false},
    {"skip_special_tokens", FIELD_IS_BOOL, 0, 0, NULL, NULL, "the same", false},
};
const srv_fields text_detokenize_fields = SRV_FIELDS(detokenize_rows, "");

void text_detokenize(server *s, const srv_request *q, srv_response *a)
{
  static const char *const flags[] = {"skip_special", "skip_special_tokens", NULL};
  json_t *root;
  oai_fault fault = {0};
  char *text = NULL;
  size_t n = 0;
  if (!srv_body(q, a, &root))
    return;
  const json_t *list = json_object_get(root, "tokens");
  int32_t *ids = mem_array(json_array_size(list), sizeof *ids);
  bool ok = ids || (err_nomem(&fault.err, "tokens"), false);
  if (ok)
    ok = check(s, &text_detokenize_fields, root, &fault);
  if (ok)
    ok = read_ids(list, ids, &fault);
  if (ok)
    ok = tok_decode(s->model->tok, ids, json_array_size(list), switch_of(root, flags, false), &text, &n, &fault.err) ==
         TERN_OK;
  if (ok)
    srv_json(a, 200, json_pack("{so}", "content", json_stringn(text, n)));
  else
    answer_wrong(a, &fault);
  mem_free(text);
  mem_free(ids);
  json_decref(root);
}

/* ---- /apply-template ---- */

static const srv_field template_rows[] = {
    {"model", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, false},
    {"messages", FIELD_IS_LIST, 0, 0, NULL, NULL, NULL, true},
    {"tools", FIELD_IS_LIST, 0, 0, NULL, NULL, NULL, false},
    {"chat_template_kwargs", FIELD_IS_OBJECT, 0, 0, NULL, NULL, "variables of the template", false},
};
const srv_fields text_template_fields = SRV_FIELDS(template_rows, "");

void text_template(server *s, const srv_request *q, srv_response *a)
{
  json_t *root;
  oai_fault fault = {0};
  char *text = NULL;
  size_t n = 0;
  if (!srv_body(q, a, &root))
    return;
  bool ok = check(s, &text_template_fields, root, &fault);
  json_t *messages = json_object_get(root, "messages"), *given = json_object_get(root, "chat_template_kwargs");
  json_t *variables = s->options.variables ? json_deep_copy(s->options.variables) : json_object();
  const json_t *tools = json_object_get(root, "tools");
  if (ok && given)
    json_object_update(variables, given);
  if (ok)
    ok = oai_fix_messages(s, messages, &fault);
  if (ok) {
    fault.param = "messages";
    ok = prompt_chat_text(s->model, messages, tools, variables, &text, &n, &fault.err) == TERN_OK;
  }
  if (ok)
    srv_json(a, 200, json_pack("{so}", "prompt", json_stringn(text, n)));
  else
    answer_wrong(a, &fault);
  mem_free(text);
  json_decref(variables);
  json_decref(root);
}
