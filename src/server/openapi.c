/* openapi.c - /openapi.json: all routes, with what their bodies may have, from the tables by which they are found and
 * checked. What a table cannot say (of messages, of tools) is left open here and strict there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/routes.h"

static json_t *chat_schema(void)
{
  return oai_schema(true);
}

static json_t *text_schema(void)
{
  return oai_schema(false);
}

/* Bodies whose schema is made and not a table. */
static const struct {
  srv_route *route;
  json_t *(*make)(void);
} made[] = {{oai_chat, chat_schema},
            {oai_completions, text_schema},
            {ant_messages, ant_messages_schema},
            {ant_count_tokens, ant_schema}};

static json_t *body_schema(const srv_row *row)
{
  for (size_t i = 0; i < sizeof made / sizeof *made; i++)
    if (made[i].route == row->route)
      return made[i].make();
  return row->fields ? fields_schema(row->fields) : NULL;
}

static json_t *content_of(const char *type, json_t *schema)
{
  return json_pack("{s{so}}", type, "schema", schema);
}

/* What comes back: the answer, in one type or two, or an error of the dialect's shape. */
static json_t *responses_of(const srv_row *row)
{
  const char *type = row->streams && !strcmp(row->streams, "text/plain") ? row->streams : "application/json";
  json_t *content = content_of(type, json_object());
  if (row->streams)
    json_object_set_new(content, row->streams, json_object());
  return json_pack("{s{ss so} s{ss so}}", "200", "description", row->summary, "content", content, "default",
                   "description", "an error, in the dialect's shape", "content",
                   content_of("application/json", json_pack("{ss}", "type", "object")));
}

/* {name} of a path. NULL: it has none. */
static json_t *parameters_of(const char *path)
{
  const char *open = strchr(path, '{'), *close = open ? strchr(open, '}') : NULL;
  if (!close)
    return NULL;
  return json_pack("[{so ss sb s{ss si}}]", "name", json_stringn(open + 1, (size_t)(close - open - 1)), "in", "path",
                   "required", 1, "schema", "type", "string", "minLength", 1);
}

static json_t *operation_of(const srv_row *row)
{
  json_t *out =
      json_pack("{ss s[s] so}", "summary", row->summary, "tags", row->dialect, "responses", responses_of(row));
  json_t *body = body_schema(row), *parameters = parameters_of(row->path);
  if (parameters)
    json_object_set_new(out, "parameters", parameters);
  if (body)
    json_object_set_new(out, "requestBody",
                        json_pack("{sb so}", "required", 1, "content", content_of("application/json", body)));
  return out;
}

static json_t *paths(void)
{
  json_t *out = json_object();
  for (size_t i = 0; i < srv_n_rows; i++) {
    const srv_row *row = &srv_rows[i];
    json_t *path = json_object_get(out, row->path);
    char method[8] = "";
    for (size_t k = 0; row->method[k] && k < sizeof method - 1; k++)
      method[k] = (char)(row->method[k] | 0x20);
    if (!path) {
      path = json_object();
      json_object_set_new(out, row->path, path);
    }
    json_object_set_new(path, method, operation_of(row));
  }
  return out;
}

void info_openapi(server *s, const srv_request *q, srv_response *a)
{
  (void)q;
  json_t *out = json_pack("{ss s{ss ss ss} so}", "openapi", "3.1.0", "info", "title", "tern", "version", tern_version(),
                          "description", "Models that run here, in the dialects of OpenAI, Anthropic and Ollama",
                          "paths", paths());
  if (s->options.n_keys) {
    json_object_set_new(out, "components",
                        json_pack("{s{s{ss ss}}}", "securitySchemes", "key", "type", "http", "scheme", "bearer"));
    json_object_set_new(out, "security", json_pack("[{s[]}]", "key"));
  }
  srv_json(a, 200, out);
}
