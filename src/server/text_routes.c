/* text_routes.c - the tokenizer and the chat template over HTTP, without the model. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/prompt.h"
#include "server/openai.h"

static void answer_wrong(srv_response *a, const oai_fault *f)
{
  oai_answer_fault(a, f);
}

/* The first of `names` (NULL ends them) that the body has; *name then says which. */
static const json_t *first_of(const json_t *root, const char *const *names, const char **name)
{
  for (; *names; names++) {
    const json_t *value = json_object_get(root, *names);
    if (value) {
      *name = *names;
      return value;
    }
  }
  return NULL;
}

/* False: there is an unknown key, one of `flags` is no bool, or another model is named. */
static bool check_keys(const server *s, const json_t *root, const char *const *known, const char *const *flags,
                       oai_fault *fault)
{
  const char *key, *called;
  json_t *value;
  if (!oai_check_model(s, json_object_get(root, "model"), &called, fault))
    return false;
  json_object_foreach((json_t *)root, key, value)
  {
    bool is_known = !strcmp(key, "model");
    for (size_t i = 0; known[i]; i++)
      is_known |= !strcmp(known[i], key);
    for (size_t i = 0; flags[i]; i++) {
      if (strcmp(flags[i], key) != 0)
        continue;
      is_known = true;
      if (!json_is_boolean(value))
        return oai_wrong(fault, key, "must be true or false");
    }
    if (!is_known)
      return oai_wrong(fault, key, "is not known here");
  }
  return true;
}

/* Of several names for one switch, whichever was given. */
static bool switch_of(const json_t *root, const char *const *names, bool fallback)
{
  const char *name;
  const json_t *value = first_of(root, names, &name);
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

void text_tokenize(server *s, const srv_request *q, srv_response *a)
{
  static const char *const texts[] = {"content", "text", "prompt", NULL};
  static const char *const flags[] = {"add_special", "add_special_tokens", NULL};
  json_t *root;
  oai_fault fault = {0};
  const char *name = "content";
  int32_t *ids = NULL;
  size_t n = 0;
  if (!srv_body(q, a, &root))
    return;
  const json_t *text = first_of(root, texts, &name);
  bool ok = check_keys(s, root, texts, flags, &fault);
  if (ok && !json_is_string(text))
    ok = oai_wrong(&fault, name, "must be a string");
  if (ok)
    ok = srv_check_length(s, json_string_length(text), &fault.err) == TERN_OK;
  if (ok)
    ok = tok_encode(s->model->tok, json_string_value(text), json_string_length(text), switch_of(root, flags, true),
                    &ids, &n, &fault.err) == TERN_OK;
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

void text_detokenize(server *s, const srv_request *q, srv_response *a)
{
  static const char *const lists[] = {"tokens", NULL};
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
    ok = check_keys(s, root, lists, flags, &fault);
  if (ok && !json_is_array(list))
    ok = oai_wrong(&fault, "tokens", "must be a list of token ids");
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

void text_template(server *s, const srv_request *q, srv_response *a)
{
  static const char *const known[] = {"messages", "tools", "chat_template_kwargs", NULL};
  static const char *const flags[] = {NULL};
  json_t *root;
  oai_fault fault = {0};
  char *text = NULL;
  size_t n = 0;
  if (!srv_body(q, a, &root))
    return;
  json_t *messages = json_object_get(root, "messages"), *given = json_object_get(root, "chat_template_kwargs");
  json_t *variables = s->options.variables ? json_deep_copy(s->options.variables) : json_object();
  const json_t *tools = json_object_get(root, "tools");
  bool ok = check_keys(s, root, known, flags, &fault);
  if (ok && tools && !json_is_array(tools))
    ok = oai_wrong(&fault, "tools", "must be a list");
  if (ok && given && !json_is_object(given))
    ok = oai_wrong(&fault, "chat_template_kwargs", "must be an object");
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
