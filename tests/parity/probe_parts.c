/* probe_parts.c - an answer's text taken apart, for test_calls.py: a request as JSON in, the parts as JSON out. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "probe.h"
#include "text/parts.h"

static json_t *part_json(const answer_part *p)
{
  static const char *const kinds[] = {"reasoning", "content", "call", "begin", "text", "end", "lost"};
  if (p->kind == PART_CALL)
    return json_pack("{ss ss ss? ss}", "kind", kinds[p->kind], "name", p->call.name, "id", p->call.id, "arguments",
                     p->call.arguments);
  if (p->kind == PART_CALL_BEGIN)
    return json_pack("{ss ss ss?}", "kind", kinds[p->kind], "name", p->call.name, "id", p->call.id);
  return json_pack("{ss ss%}", "kind", kinds[p->kind], "text", p->text.data ? p->text.data : "", p->text.length);
}

/* {"format", "reasoning", "opened", "tools", "cut", "stream", "pieces": [text, …]}; what is missing is not there. NULL:
 * no memory. */
char *probe_parts(const char *request)
{
  json_t *q = json_loads(request, 0, NULL), *all = json_array(), *piece;
  const char *format = json_string_value(json_object_get(q, "format"));
  const char *reasoning = json_string_value(json_object_get(q, "reasoning"));
  parts_options options = {.reasoning = reasoning ? parts_reasoning_find(reasoning) : NULL,
                           .opened = json_is_true(json_object_get(q, "opened")),
                           .calls = format ? calls_find(format) : NULL,
                           .tools = json_object_get(q, "tools"),
                           .pieces = json_is_true(json_object_get(q, "stream"))};
  parts_reader *r = parts_open(&options);
  answer_parts out = {0};
  size_t i;
  json_array_foreach(json_object_get(q, "pieces"), i, piece)
  {
    parts_feed(r, json_string_value(piece), json_string_length(piece), &out);
  }
  parts_end(r, json_is_true(json_object_get(q, "cut")), &out);
  for (i = 0; i < out.n; i++)
    json_array_append_new(all, part_json(&out.at[i]));
  char *dumped = out.failed ? NULL : json_dumps(all, JSON_COMPACT), *text = dumped ? mem_strdup(dumped) : NULL;
  free(dumped);
  parts_free(&out);
  parts_close(r);
  json_decref(all);
  json_decref(q);
  return text;
}

const char *probe_format_of(const char *source, int n)
{
  const calls_format *f = calls_of_template(source, (size_t)n);
  return f ? f->name : NULL;
}

const char *probe_format_start(const char *name)
{
  return calls_find(name)->start;
}

const char *probe_format_at(int i)
{
  const calls_format *f = calls_at((size_t)i);
  return f ? f->name : NULL;
}

/* Whether arguments are told of letter by letter. */
int probe_format_letters(const char *name)
{
  return calls_find(name)->pieces == PIECES_LETTERS;
}
