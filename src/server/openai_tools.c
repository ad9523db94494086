/* openai_tools.c - the fields of tools and reasoning, and what they mean for the model at hand. See openai.h.
 *
 * Tools reach the model through its chat template, and its calls are found in the text by the format that the template
 * shows (text/calls.h). A template that takes no tools, a format that is not known, and a call that is to be forced are
 * errors: the answer would be one to another question.
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
  if (!type || strcmp(type, "function") != 0 || !json_is_object(function))
    return oai_wrong(fault, "tools", "element %zu is not {\"type\": \"function\", \"function\": {…}}", i);
  if (!json_string_length(json_object_get(function, "name")))
    return oai_wrong(fault, "tools", "element %zu: the function has no name", i);
  if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
    return oai_wrong(fault, "tools", "element %zu: parameters must be an object", i);
  if (!json_is_true(json_object_get(function, "strict")))
    return true;
  oai_wrong(fault, "tools", "element %zu: \"strict\": true needs constrained decoding, which is not here yet", i);
  return unsupported(fault);
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

bool oai_read_tool_choice(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  const char *wanted = json_string_value(value);
  (void)s;
  r->no_tools = wanted && !strcmp(wanted, "none");
  if (r->no_tools || (wanted && !strcmp(wanted, "auto")))
    return true;
  oai_wrong(
      fault, "tool_choice",
      "only \"auto\" and \"none\" are supported: a forced call needs constrained decoding, which is not here yet");
  return unsupported(fault);
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

/* As the server was told, as the conversion said, as the template shows: the reference's order behind the flag. */
static bool choose_calls(const server *s, oai_request *r, oai_fault *fault)
{
  size_t n = 0;
  const char *source = chat_template_source(s->model->chat, true, &n), *said = chat_tool_parser(s->model->chat);
  r->parts.calls = s->calls ? s->calls : said ? calls_find(said) : calls_of_template(source, n);
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

bool oai_settle_tools(const server *s, oai_request *r, oai_fault *fault)
{
  if (r->no_tools)
    r->tools = NULL;
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
