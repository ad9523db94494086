/* openai_grammar.c - what a request asks of its answers' form, as one grammar. See openai.h.
 *
 * A response_format, calls that are forced, a choice among the tools and functions that are strict each ask for one;
 * together they are alternatives: a call, or an answer of the form. Schemas are compiled when the request is read, so
 * that what is wrong with one, or is not enforced, is a 400 that names the place. Those of functions bind where a call
 * is forced or the function is strict; else its arguments are any object.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/constraint.h"
#include "engine/prompt.h"
#include "server/openai.h"

enum { MOST_PLACE = 64 };

typedef struct tool_row {
  char place[MOST_PLACE];
} tool_row;

static const json_t *function_at(const oai_request *r, size_t i)
{
  return json_object_get(json_array_get(r->tools, i), "function");
}

static bool is_allowed(const oai_request *r, const char *name)
{
  return !r->allowed || json_object_get(r->allowed, name);
}

static bool is_strict(const json_t *function)
{
  return json_is_true(json_object_get(function, "strict"));
}

static bool asks(const oai_request *r)
{
  bool any = r->formed || (r->tools && (r->forced || r->allowed));
  for (size_t i = 0; i < json_array_size(r->tools) && !any; i++)
    any = is_strict(function_at(r, i));
  return any;
}

/* The tools that may be called, with the schemas that bind. `names`: an empty object, which gets theirs. */
static bool choose_tools(const oai_request *r, const json_t *nothing, json_t *names, answer_tool *out, tool_row *rows,
                         size_t *n, oai_fault *fault)
{
  const char *within = r->tool_schema ? r->tool_schema : "function.parameters";
  for (size_t i = 0; i < json_array_size(r->tools); i++) {
    const json_t *function = function_at(r, i), *schema = json_object_get(function, "parameters");
    const char *name = json_string_value(json_object_get(function, "name"));
    bool binds = r->forced || is_strict(function);
    if (!is_allowed(r, name))
      continue;
    if (json_object_get(names, name))
      return oai_wrong(fault, "tools", "element %zu: a second function \"%.60s\"", i, name);
    if (json_object_set_new_nocheck(names, name, json_true())) {
      err_nomem(&fault->err, "tools");
      return false;
    }
    snprintf(rows[*n].place, sizeof rows[*n].place, "tools[%zu].%s", i, within);
    if (!schema || json_is_null(schema))
      schema = nothing;
    out[*n] = (answer_tool){.name = name, .schema = binds ? schema : NULL, .place = rows[*n].place};
    ++*n;
  }
  return true;
}

/* The field that a message begins with. */
static const char *field_of(const oai_request *r, const char *text)
{
  static const char *const fields[] = {"tools", "tool_choice"};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    size_t n = strlen(fields[i]);
    if (r->tools && !strncmp(text, fields[i], n) && (text[n] == '[' || text[n] == ':'))
      return fields[i];
  }
  return "response_format";
}

static const char *place_of(const oai_request *r)
{
  if (r->forced || r->allowed)
    return "tool_choice";
  if (!r->formed)
    return "tools";
  return !r->schema ? "response_format" : r->schema_place ? r->schema_place : "response_format.json_schema.schema";
}

static bool open_grammar(const server *s, oai_request *r, const answer_tool *tools, size_t n, oai_fault *fault)
{
  bool calls = r->tools != NULL, value = r->formed && !r->forced;
  const grammar_wish wish = {.form = {.value = value,
                                      .schema = r->schema,
                                      .place = place_of(r),
                                      .text = calls && !r->formed && !r->forced,
                                      .calls = calls ? r->parts.calls : NULL,
                                      .tools = tools,
                                      .n_tools = n,
                                      .one_call = r->one_call},
                             .reasoning = r->parts.reasoning,
                             .opened = r->parts.opened};
  r->parts.once = !wish.form.text;
  r->parts.calls_alone = value && calls;
  if (grammar_open(s->model, &wish, &r->grammar, &fault->err) == TERN_OK)
    return true;
  fault->param = field_of(r, fault->err.text);
  return false;
}

bool oai_settle_grammar(const server *s, oai_request *r, oai_fault *fault)
{
  const json_t *variables = r->variables ? r->variables : s->options.variables;
  size_t n = 0, most = json_array_size(r->tools);
  if (!asks(r))
    return true;
  if (r->chat && prompt_continues(variables)) {
    const char *field = r->forced || r->allowed ? "tool_choice" : r->formed ? "response_format" : "tools";
    fault->code = "unsupported_parameter";
    return oai_wrong(fault, field, "with continue_final_message: an answer that has begun cannot be constrained");
  }
  answer_tool *tools = mem_array(most + 1, sizeof *tools);
  tool_row *rows = mem_array(most + 1, sizeof *rows);
  json_t *nothing = json_pack("{ss s{}}", "type", "object", "properties"), *names = json_object();
  bool well = tools && rows && nothing && names;
  if (!well)
    err_nomem(&fault->err, "tools");
  well = well && choose_tools(r, nothing, names, tools, rows, &n, fault) && open_grammar(s, r, tools, n, fault);
  json_decref(nothing);
  json_decref(names);
  mem_free(tools);
  mem_free(rows);
  return well;
}
