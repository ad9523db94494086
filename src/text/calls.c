/* calls.c - the table of formats, how a template chooses one, and the list of calls. See calls.h.
 *
 * The rows down to json_tools are the reference's, in the order in which it looks for their marks
 * (tokenizer_utils._infer_tool_parser); those below it are tern's own, and are looked for only where none of the
 * reference's was found.
 */
#include "text/calls.h"

#include <string.h>

#include "base/mem.h"
#include "text/calls_impl.h"

static const calls_format formats[] = {
    {.name = "minimax_m2",
     .start = "<minimax:tool_call>",
     .end = "</minimax:tool_call>",
     .marks = {"<minimax:tool_call>"},
     .closed = true,
     .read = read_minimax,
     .inside = inside_tags,
     .pieces = PIECES_MEMBERS,
     .tell = tell_minimax},
    {.name = "gemma4",
     .start = "<|tool_call>",
     .end = "<tool_call|>",
     .marks = {"<|tool_call>", "<tool_call|>"},
     .closed = true,
     .read = read_gemma,
     .inside = inside_gemma,
     .pieces = PIECES_MEMBERS,
     .tell = tell_gemma},
    {.name = "function_gemma",
     .start = "<start_function_call>",
     .end = "<end_function_call>",
     .marks = {"<start_function_call>"},
     .closed = true,
     .read = read_function_gemma,
     .inside = inside_function_gemma,
     .pieces = PIECES_MEMBERS,
     .tell = tell_function_gemma},
    {.name = "longcat",
     .start = "<longcat_tool_call>",
     .end = "</longcat_tool_call>",
     .marks = {"<longcat_tool_call>"},
     .read = read_longcat,
     .inside = inside_tags,
     .pieces = PIECES_MEMBERS,
     .tell = tell_longcat},
    {.name = "glm47",
     .start = "<tool_call>",
     .end = "</tool_call>",
     .marks = {"<arg_key>"},
     .read = read_glm,
     .inside = inside_tags,
     .pieces = PIECES_MEMBERS,
     .tell = tell_glm},
    {.name = "pythonic",
     .start = "<|tool_call_start|>",
     .end = "<|tool_call_end|>",
     .marks = {"<|tool_list_start|>"},
     .closed = true,
     .read = read_pythonic,
     .inside = inside_python,
     .pieces = PIECES_MEMBERS,
     .tell = tell_pythonic},
    {.name = "qwen3_coder",
     .start = "<tool_call>",
     .end = "</tool_call>",
     .bare_start = "<function=",
     .bare_end = "</function>",
     .marks = {"<tool_call>\\n<function="},
     .closed = true,
     .read = read_qwen_coder,
     .inside = inside_tags,
     .pieces = PIECES_MEMBERS,
     .tell = tell_qwen_coder},
    {.name = "qwen3_coder",
     .start = "<tool_call>",
     .end = "</tool_call>",
     .bare_start = "<function=",
     .bare_end = "</function>",
     .marks = {"<tool_call>\n<function="},
     .closed = true,
     .read = read_qwen_coder,
     .inside = inside_tags,
     .pieces = PIECES_MEMBERS,
     .tell = tell_qwen_coder},
    {.name = "kimi_k2",
     .start = "<|tool_calls_section_begin|>",
     .end = "<|tool_calls_section_end|>",
     .marks = {"<|tool_calls_section_begin|>"},
     .closed = true,
     .read = read_kimi,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_kimi},
    {.name = "mistral",
     .start = "[TOOL_CALLS]",
     .end = "",
     .marks = {"[TOOL_CALLS]"},
     .closed = true,
     .short_ids = true,
     .read = read_mistral,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_mistral},
    {.name = "json_tools",
     .start = "<tool_call>",
     .end = "</tool_call>",
     .marks = {"<tool_call>", "tool_call.name"},
     .closed = true,
     .read = read_json,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_json},
    /* ---- beyond the reference ---- */
    {.name = "seed_oss",
     .start = "<seed:tool_call>",
     .end = "</seed:tool_call>",
     .bare_start = "<function=",
     .bare_end = "</function>",
     .marks = {"<seed:tool_call>"},
     .closed = true,
     .read = read_qwen_coder,
     .inside = inside_tags,
     .pieces = PIECES_MEMBERS,
     .tell = tell_qwen_coder},
    {.name = "deepseek_v32",
     .start = "<｜DSML｜function_calls>",
     .end = "</｜DSML｜function_calls>",
     .marks = {"｜DSML｜", "function_calls>"},
     .closed = true,
     .read = read_dsml,
     .inside = inside_tags,
     .pieces = PIECES_MEMBERS,
     .tell = tell_dsml},
    {.name = "deepseek_v31",
     .start = "<｜tool▁calls▁begin｜>",
     .end = "<｜tool▁calls▁end｜>",
     .marks = {"<｜tool▁calls▁begin｜>"},
     .closed = true,
     .read = read_deepseek,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_deepseek},
    {.name = "cohere",
     .start = "<|START_ACTION|>",
     .end = "<|END_ACTION|>",
     .marks = {"<|START_ACTION|>", "tool_name"},
     .closed = true,
     .read = read_json,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_json},
    {.name = "nemotron",
     .start = "<TOOLCALL>",
     .end = "</TOOLCALL>",
     .marks = {"<TOOLCALL>"},
     .closed = true,
     .read = read_json,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_json},
    {.name = "granite",
     .start = "<|tool_call|>",
     .end = "",
     .marks = {"<|tool_call|>", "JSON list"},
     .closed = true,
     .read = read_json,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_json},
    {.name = "harmony",
     .end = "",
     .marks = {"<|channel|>analysis<|message|>", "functions."},
     .closed = true,
     .channels = true,
     .read = read_harmony,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_harmony},
    {.name = "minicpm5",
     .end = "",
     .bare_start = "<function name=",
     .bare_end = "</function>",
     .marks = {"<function name=", "<param name="},
     .closed = true,
     .read = read_minicpm,
     .inside = inside_tags,
     .pieces = PIECES_MEMBERS,
     .tell = tell_minicpm},
    {.name = "pythonic",
     .start = "<|tool_call_start|>",
     .end = "<|tool_call_end|>",
     .marks = {"<|tool_call_start|>"},
     .closed = true,
     .read = read_pythonic,
     .inside = inside_python,
     .pieces = PIECES_MEMBERS,
     .tell = tell_pythonic},
    {.name = "hermes",
     .start = "<tool_call>",
     .end = "</tool_call>",
     .marks = {"<tool_call>", "arguments"},
     .closed = true,
     .read = read_json,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_json},
    {.name = "llama3_json",
     .start = "",
     .end = "",
     .marks = {"\"parameters\": dictionary of argument name"},
     .closed = true,
     .read = read_bare_json,
     .inside = inside_json,
     .pieces = PIECES_LETTERS,
     .tell = tell_bare_json},
};
enum { FORMATS = sizeof formats / sizeof *formats };

const calls_format *calls_at(size_t i)
{
  return i < FORMATS ? &formats[i] : NULL;
}

const calls_format *calls_find(const char *name)
{
  for (size_t i = 0; i < FORMATS; i++)
    if (!strcmp(formats[i].name, name))
      return &formats[i];
  return NULL;
}

const calls_format *calls_of_template(const char *source, size_t n)
{
  for (size_t i = 0; i < FORMATS; i++) {
    bool all = formats[i].marks[0] != NULL;
    for (size_t k = 0; k < 2 && formats[i].marks[k]; k++)
      all = all && span_find((span){source, n}, formats[i].marks[k]);
    if (all)
      return &formats[i];
  }
  return NULL;
}

/* ---- the list ---- */

static void free_call(tool_call *c)
{
  mem_free(c->name);
  mem_free(c->id);
  mem_free(c->arguments);
}

static void cut_list(call_list *list, size_t n)
{
  while (list->n > n)
    free_call(&list->at[--list->n]);
}

void calls_clear(call_list *list)
{
  cut_list(list, 0);
  mem_free(list->at);
  *list = (call_list){0};
}

bool calls_add(call_list *out, span name, span id, json_t *arguments)
{
  bool well = json_is_object(arguments) && name.n && !memchr(name.s, '\0', name.n);
  if (well && !mem_grow(&out->at, &out->capacity, out->n + 1, sizeof *out->at)) {
    out->failed = true;
    well = false;
  }
  if (well) {
    tool_call *c = &out->at[out->n++];
    *c = (tool_call){.name = mem_strndup(name.s, name.n),
                     .id = id.n && !memchr(id.s, '\0', id.n) ? mem_strndup(id.s, id.n) : NULL,
                     .arguments = value_text(arguments)};
    if (!c->name || !c->arguments) /* an id is made where one lacks */
      out->failed = true;
    well = !out->failed;
  }
  json_decref(arguments);
  return well;
}

bool calls_read(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out)
{
  size_t before = out->n;
  if (!out->failed && f->read(f, text, n, tools, out) && !out->failed)
    return true;
  cut_list(out, before);
  return false;
}

bool calls_all_known(const call_list *list, const json_t *tools)
{
  for (size_t i = 0; i < list->n; i++)
    if (!calls_known(tools, (span){list->at[i].name, strlen(list->at[i].name)}))
      return false;
  return true;
}

/* ---- schemas ---- */

static const json_t *function_named(const json_t *tools, span name)
{
  for (size_t i = 0; i < json_array_size(tools); i++) {
    const json_t *function = json_object_get(json_array_get(tools, i), "function");
    const char *is = json_string_value(json_object_get(function, "name"));
    if (is && span_is(name, is))
      return function;
  }
  return NULL;
}

bool calls_known(const json_t *tools, span name)
{
  return name.n && function_named(tools, name);
}

const json_t *calls_schema(const json_t *tools, span function, span argument)
{
  const json_t *parameters = json_object_get(function_named(tools, function), "parameters");
  return argument.n ? json_object_getn(json_object_get(parameters, "properties"), argument.s, argument.n) : NULL;
}
