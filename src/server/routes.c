/* routes.c - which route a request belongs to: one table of methods, paths and functions. See srv.h.
 *
 * A path may have one {…}, which stands for any text that is not empty, slashes included: names of models have some. Of
 * several paths that match, the first counts.
 */
#include "server/routes.h"

#include <stdio.h>
#include <string.h>

#define EVENTS "text/event-stream"
#define LINES "application/x-ndjson"
#define TEXT "text/plain"

const srv_row srv_rows[] = {
    {"POST", "/v1/chat/completions", oai_chat, NULL, "an answer to a conversation", "OpenAI", EVENTS},
    {"POST", "/chat/completions", oai_chat, NULL, "the same", "OpenAI", EVENTS},
    {"POST", "/v1/completions", oai_completions, NULL, "a text goes on", "OpenAI", EVENTS},
    {"POST", "/v1/responses", resp_create, &resp_fields, "an answer to items", "OpenAI", EVENTS},
    {"GET", "/v1/responses/{response_id}/input_items", resp_get_input, NULL, "what it was asked", "OpenAI", NULL},
    {"GET", "/v1/responses/{response_id}", resp_get, NULL, "a stored response", "OpenAI", NULL},
    {"DELETE", "/v1/responses/{response_id}", resp_delete, NULL, "forgets it", "OpenAI", NULL},
    {"POST", "/v1/embeddings", emb_create, &emb_fields, "texts as vectors", "OpenAI", NULL},
    {"GET", "/v1/models", info_models, NULL, "the model's names", "OpenAI", NULL},
    {"GET", "/v1/models/{model}", info_model, NULL, "one of them", "OpenAI", NULL},
    {"POST", "/v1/messages", ant_messages, NULL, "an answer to a conversation", "Anthropic", EVENTS},
    {"POST", "/v1/messages/count_tokens", ant_count_tokens, NULL, "how long a prompt is", "Anthropic", NULL},
    {"POST", "/api/chat", oll_chat, &oll_chat_fields, "an answer to a conversation", "Ollama", LINES},
    {"POST", "/api/generate", oll_generate, &oll_generate_fields, "an answer to a prompt", "Ollama", LINES},
    {"POST", "/api/embed", oll_embed, &oll_embed_fields, "texts as vectors", "Ollama", NULL},
    {"POST", "/api/embeddings", oll_embeddings, &oll_embeddings_fields, "a text as a vector", "Ollama", NULL},
    {"GET", "/api/tags", oll_tags, NULL, "the model's names", "Ollama", NULL},
    {"POST", "/api/show", oll_show, &oll_show_fields, "what the model is", "Ollama", NULL},
    {"GET", "/api/ps", oll_ps, NULL, "what runs", "Ollama", NULL},
    {"GET", "/api/version", oll_version, NULL, "which version this is", "Ollama", NULL},
    {"POST", "/tokenize", text_tokenize, &text_tokenize_fields, "a text's ids", "tern", NULL},
    {"POST", "/detokenize", text_detokenize, &text_detokenize_fields, "ids as text", "tern", NULL},
    {"POST", "/apply-template", text_template, &text_template_fields, "a conversation's prompt", "tern", NULL},
    {"GET", "/openapi.json", info_openapi, NULL, "these routes", "tern", NULL},
    {"GET", "/library", info_library, NULL, "the models on this machine", "tern", NULL},
    {"GET", "/health", info_health, NULL, "whether it can answer", "tern", NULL},
    {"GET", "/metrics", info_metrics, NULL, "counts, for Prometheus", "tern", TEXT},
    {"GET", "/", info_root, NULL, "that somebody is there", "tern", TEXT},
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
  const char *is = NULL; /* the path of the table */
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (is_below(path, shapes[i].below))
      out.shape = shapes[i].shape;
  if (!strcmp(method, "HEAD"))
    method = "GET";
  for (size_t i = 0; i < srv_n_rows && !out.route; i++) {
    if (is ? strcmp(is, srv_rows[i].path) != 0 : !match(srv_rows[i].path, path, &out.part, &out.part_length))
      continue;
    is = srv_rows[i].path;
    if (!strcmp(srv_rows[i].method, method))
      out.route = srv_rows[i].route;
    else
      add_method(out.allow, srv_rows[i].method);
  }
  return out;
}
