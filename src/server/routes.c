/* routes.c - which route a request belongs to: one table of methods, paths and functions. See srv.h.
 *
 * A path may have one {…}, which stands for any text that is not empty, slashes included: names of models have some. Of
 * several rows that match, the first counts.
 */
#include "server/routes.h"

#include <stdio.h>
#include <string.h>

const srv_row srv_rows[] = {
    {"POST", "/v1/chat/completions", oai_chat, NULL},
    {"POST", "/chat/completions", oai_chat, NULL},
    {"POST", "/v1/completions", oai_completions, NULL},
    {"POST", "/v1/responses", resp_create, &resp_fields},
    {"GET", "/v1/responses/{response_id}/input_items", resp_get_input, NULL},
    {"GET", "/v1/responses/{response_id}", resp_get, NULL},
    {"DELETE", "/v1/responses/{response_id}", resp_delete, NULL},
    {"POST", "/v1/embeddings", emb_create, &emb_fields},
    {"POST", "/v1/messages", ant_messages, NULL},
    {"POST", "/v1/messages/count_tokens", ant_count_tokens, NULL},
    {"POST", "/api/chat", oll_chat, &oll_chat_fields},
    {"POST", "/api/generate", oll_generate, &oll_generate_fields},
    {"POST", "/api/embed", oll_embed, &oll_embed_fields},
    {"POST", "/api/embeddings", oll_embeddings, &oll_embeddings_fields},
    {"GET", "/api/tags", oll_tags, NULL},
    {"POST", "/api/show", oll_show, &oll_show_fields},
    {"GET", "/api/ps", oll_ps, NULL},
    {"GET", "/api/version", oll_version, NULL},
    {"POST", "/tokenize", text_tokenize, NULL},
    {"POST", "/detokenize", text_detokenize, NULL},
    {"POST", "/apply-template", text_template, NULL},
    {"GET", "/v1/models", info_models, NULL},
    {"GET", "/v1/models/{model}", info_model, NULL},
    {"GET", "/health", info_health, NULL},
    {"GET", "/metrics", info_metrics, NULL},
    {"GET", "/", info_root, NULL},
};
const size_t srv_n_rows = sizeof srv_rows / sizeof *srv_rows;

/* Errors below these paths, where nothing else is known, have a dialect's shape. */
static const struct {
  const char *below;
  srv_shape *shape;
} shapes[] = {{"/v1/messages", ant_error}, {"/api", oll_error}};

static bool is_below(const char *path, const char *prefix)
{
  size_t n = strlen(prefix);
  return !strncmp(path, prefix, n) && (!path[n] || path[n] == '/');
}

/* Where the text that stands for {…} begins and how long it is; false: the path is not the row's. */
static bool match(const char *pattern, const char *path, const char **part, size_t *length)
{
  const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
  *part = NULL;
  *length = 0;
  if (!close)
    return !strcmp(pattern, path);
  size_t before = (size_t)(open - pattern), after = strlen(close + 1), all = strlen(path);
  if (all <= before + after || strncmp(path, pattern, before) != 0 || strcmp(path + all - after, close + 1) != 0)
    return false;
  *part = path + before;
  *length = all - before - after;
  return true;
}

static void add_method(char allow[SRV_ALLOW], const char *method)
{
  size_t used = strlen(allow);
  snprintf(allow + used, SRV_ALLOW - used, "%s%s", used ? ", " : "", method);
}

srv_found srv_find(const char *method, const char *path)
{
  srv_found out = {0};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (is_below(path, shapes[i].below))
      out.shape = shapes[i].shape;
  if (!strcmp(method, "HEAD"))
    method = "GET";
  for (size_t i = 0; i < srv_n_rows && !out.route; i++) {
    if (!match(srv_rows[i].path, path, &out.part, &out.part_length))
      continue;
    if (!strcmp(srv_rows[i].method, method))
      out.route = srv_rows[i].route;
    else
      add_method(out.allow, srv_rows[i].method);
  }
  return out;
}
