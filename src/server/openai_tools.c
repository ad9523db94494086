/* openai_tools.c - the fields of tools and reasoning, and what they mean for the model at hand. See openai.h.
 *
 * Tools reach the model through its chat template, and its calls are found in the text by the format that the template
 * shows (text/calls.h). A template that takes no tools and a format that is not known are errors: the answer would be
 * one to another question. That calls are forced, or strict, is for openai_grammar.c.
 */
#include <string.h>

#include "format/json_util.h"
#include "server/openai.h"

static bool unsupported(oai_fault *fault)
{
  fault->code = "unsupported_parameter";
  return false;
}

/* ---- one field each ---- */

static bool check_tool(const json_t *tool, size_t i, oai_fault *fault)
{
  const char *type = json_string_value(json_object_get(tool, "type"));
  const json_t *function = json_object_get(tool, "function"), *parameters = json_object_get(function, "parameters");
  const json_t *strict = json_object_get(function, "strict");
  if (!type || strcmp(type, "function") != 0 || !json_is_object(function))
    return oai_wrong(fault, "tools", "element %zu is not {\"type\": \"function\", \"function\": {…}}", i);
  if (!json_string_length(json_object_get(function, "name")))
    return oai_wrong(fault, "tools", "element %zu: the function has no name", i);
  if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
    return oai_wrong(fault, "tools", "element %zu: parameters must be an object", i);
  if (strict && !json_is_null(strict) && !json_is_boolean(strict))
    return oai_wrong(fault, "tools", "element %zu: strict must be true or false", i);
  return true;
}

bool oai_read_tools(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  (void)s;
  if (!json_is_array(value))
    return oai_wrong(fault, "tools", "must be a list of functions");
  for (size_t i = 0; i < json_array_size(value); i++)
    if (!check_tool(json_array_get(value, i), i, fault))
      return false;
  r->tools = json_array_size(value) ? value : NULL;
  return true;
}

static bool wrong_choice(oai_fault *fault)
{
  return oai_wrong(fault, "tool_choice",
                   "must be \"auto\", \"none\", \"required\", {\"type\": \"function\", \"function\": {\"name\": …}} or "
                   "{\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": …, \"tools\": […]}}");
}

/* Adds the name of {"type": "function", "function": {"name"}}, which has no other keys. */
static bool allow(const json_t *one, oai_request *r, oai_fault *fault)
{
  const char *type = json_string_value(json_object_get(one, "type"));
  const json_t *function = json_object_get(one, "function");
  const json_t *name = json_object_get(function, "name");
  if (!type || strcmp(type, "function") != 0 || json_object_size(one) != 2 || json_object_size(function) != 1 ||
      !json_string_length(name))
    return wrong_choice(fault);
  if (json_object_set_new_nocheck(r->allowed, json_string_value(name), json_true()) == 0)
    return true;
  err_nomem(&fault->err, "tool_choice");
  return false;
}

static bool allow_several(const json_t *value, oai_request *r, oai_fault *fault)
{
  const json_t *tools = json_object_get(value, "tools");
  const char *mode = json_string_value(json_object_get(value, "mode"));
  r->forced = mode && !strcmp(mode, "required");
  if (!mode || (!r->forced && strcmp(mode, "auto") != 0) || json_object_size(value) != 2 || !json_array_size(tools))
    return wrong_choice(fault);
  for (size_t i = 0; i < json_array_size(tools); i++)
    if (!allow(json_array_get(tools, i), r, fault))
      return false;
  return true;
}

bool oai_read_tool_choice(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  const char *word = json_string_value(value), *type = json_string_value(json_object_get(value, "type"));
  (void)s;
  r->no_tools = word && !strcmp(word, "none");
  r->forced = word && !strcmp(word, "required");
  if (r->no_tools || r->forced || (word && !strcmp(word, "auto")))
    return true;
  if (!type)
    return wrong_choice(fault);
  r->allowed = json_object();
  if (!strcmp(type, "allowed_tools") && json_object_size(value) == 2)
    return allow_several(json_object_get(value, "allowed_tools"), r, fault);
  r->forced = true;
  return allow(value, r, fault);
}

bool oai_read_parallel(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  (void)s;
  if (!json_is_boolean(value))
    return oai_wrong(fault, "parallel_tool_calls", "must be true or false");
  r->one_call = json_is_false(value);
  return true;
}

bool oai_read_effort(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  (void)s;
  if (!json_string_length(value))
    return oai_wrong(fault, "reasoning_effort", "must be a string, and not empty");
  r->effort = json_string_value(value);
  return true;
}

/* ---- together ---- */

bool oai_template_has(const server *s, bool with_tools, const char *word)
{
  size_t n;
  const char *source = s->model->chat ? chat_template_source(s->model->chat, with_tools, &n) : NULL;
  return source && memmem(source, n, word, strlen(word));
}

bool oai_set_variable(const server *s, oai_request *r, const char *name, json_t *value, oai_fault *fault)
{
  if (!r->variables)
    r->variables = s->options.variables ? json_deep_copy(s->options.variables) : json_object();
  if (json_object_set_new(r->variables, name, value) == 0)
    return true;
  err_nomem(&fault->err, name);
  return false;
}

/* Templates with levels call them so. "none" is also what enable_thinking false says. */
static bool settle_effort(const server *s, oai_request *r, oai_fault *fault)
{
  static const char level[] = "reasoning_effort", thinking[] = "enable_thinking";
  if (!r->effort)
    return true;
  if (oai_template_has(s, r->tools != NULL, level))
    return oai_set_variable(s, r, level, json_string(r->effort), fault);
  if (!strcmp(r->effort, "none") && oai_template_has(s, r->tools != NULL, thinking))
    return oai_set_variable(s, r, thinking, json_false(), fault);
  oai_wrong(fault, level, "the model's chat template has no such levels");
  return unsupported(fault);
}

const calls_format *oai_calls_format(const server *s)
{
  size_t n = 0;
  const char *source = chat_template_source(s->model->chat, true, &n), *said = chat_tool_parser(s->model->chat);
  return s->calls ? s->calls : said ? calls_find(said) : source ? calls_of_template(source, n) : NULL;
}

static bool choose_calls(const server *s, oai_request *r, oai_fault *fault)
{
  const char *said = chat_tool_parser(s->model->chat);
  r->parts.calls = oai_calls_format(s);
  if (r->parts.calls)
    return true;
  if (said)
    oai_wrong(fault, "tools",
              "tokenizer_config.json: tool_parser_type \"%.60s\" is not known here: start the server with "
              "--tool-parser",
              said);
  else
    oai_wrong(fault, "tools",
              "the model's chat template shows no format of calls that is known here: start the server "
              "with --tool-parser");
  return unsupported(fault);
}

/* The names of all tools, as keys. NULL: no memory. */
static json_t *names_of(const json_t *tools)
{
  json_t *names = json_object();
  for (size_t i = 0; i < json_array_size(tools) && names; i++) {
    const json_t *function = json_object_get(json_array_get(tools, i), "function");
    if (json_object_set_new_nocheck(names, json_string_value(json_object_get(function, "name")), json_true()) == 0)
      continue;
    json_decref(names);
    return NULL;
  }
  return names;
}

/* What is to be called must be there. */
static bool check_choice(const oai_request *r, oai_fault *fault)
{
  const char *name;
  json_t *value;
  bool well = true;
  if (!r->forced && !r->allowed)
    return true;
  if (!r->tools)
    return oai_wrong(fault, "tool_choice", "there are no tools to call");
  json_t *names = names_of(r->tools);
  if (!names) {
    err_nomem(&fault->err, "tools");
    return false;
  }
  json_object_foreach(r->allowed, name, value)
  {
    well = json_object_get(names, name) || oai_wrong(fault, "tool_choice", "there is no tool \"%.60s\"", name);
    if (!well)
      break;
  }
  json_decref(names);
  return well;
}

bool oai_settle_tools(const server *s, oai_request *r, oai_fault *fault)
{
  if (r->no_tools)
    r->tools = NULL;
  if (!check_choice(r, fault))
    return false;
  r->parts = (parts_options){.reasoning = s->reasoning, .tools = r->tools};
  if (!settle_effort(s, r, fault))
    return false;
  if (!r->tools)
    return true;
  if (!oai_template_has(s, true, "tools")) {
    oai_wrong(fault, "tools", "the model's chat template takes none");
    return unsupported(fault);
  }
  return choose_calls(s, r, fault);
}
