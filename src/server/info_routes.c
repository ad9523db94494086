/* info_routes.c - what the server is and how it does: models, health, metrics. */
#include <stdlib.h>
#include <string.h>

#include "server/srv.h"

static json_t *model_json(const server *s, const char *name)
{
  const tern_model_info *i = &s->model->info;
  return json_pack("{ss ss sI ss si ss ss}", "id", name, "object", "model", "created", (json_int_t)s->started,
                   "owned_by", "tern", "context_length", sched_context(s->scheduler), "numerics", i->numerics,
                   "backend", i->backend);
}

void info_models(server *s, const srv_request *q, srv_response *a)
{
  (void)q;
  json_t *data = json_array();
  for (size_t i = 0; i < s->options.n_names - s->options.n_unlisted; i++)
    json_array_append_new(data, model_json(s, s->options.names[i]));
  srv_json(a, 200, json_pack("{ss so}", "object", "list", "data", data));
}

void info_model(server *s, const srv_request *q, srv_response *a)
{
  const char *name = q->path + strlen("/v1/models/");
  if (srv_serves(s, name))
    srv_json(a, 200, model_json(s, name));
  else
    srv_error(a, 404, "model", "model_not_found", "there is no such model here: GET /v1/models lists what is");
}

void info_health(server *s, const srv_request *q, srv_response *a)
{
  (void)q;
  tern_error death = {0};
  if (server_death(s, &death) == TERN_OK)
    srv_json(a, 200, json_pack("{ss}", "status", "ok"));
  else
    srv_error(a, 503, NULL, "dead", death.text);
}

static void metric(buf *b, const char *name, const char *kind, const char *help)
{
  buf_addf(b, "# HELP tern_%s %s\n# TYPE tern_%s %s\n", name, help, name, kind);
}

static void add_metrics(server *s, const sched_stats *t, buf *b)
{
  metric(b, "requests_running", "gauge", "Answers being generated.");
  buf_addf(b, "tern_requests_running %d\n", t->running);
  metric(b, "requests_waiting", "gauge", "Answers that wait for room.");
  buf_addf(b, "tern_requests_waiting %d\n", t->waiting);
  metric(b, "requests_total", "counter", "Answers by their end.");
  buf_addf(b, "tern_requests_total{end=\"finished\"} %llu\n", (unsigned long long)t->finished);
  buf_addf(b, "tern_requests_total{end=\"cancelled\"} %llu\n", (unsigned long long)t->cancelled);
  buf_addf(b, "tern_requests_total{end=\"failed\"} %llu\n", (unsigned long long)t->failed);
  buf_addf(b, "tern_requests_total{end=\"turned_away\"} %llu\n", (unsigned long long)t->turned_away);
  metric(b, "prompt_tokens_total", "counter", "Prompt tokens read.");
  buf_addf(b, "tern_prompt_tokens_total %llu\n", (unsigned long long)t->prompt_tokens);
  metric(b, "generated_tokens_total", "counter", "Tokens generated.");
  buf_addf(b, "tern_generated_tokens_total %llu\n", (unsigned long long)t->generated_tokens);
  metric(b, "cached_tokens_total", "counter", "Prompt tokens found in prefixes of earlier requests.");
  buf_addf(b, "tern_cached_tokens_total %llu\n", (unsigned long long)t->cached_tokens);
  metric(b, "drafted_tokens_total", "counter", "Tokens guessed ahead.");
  buf_addf(b, "tern_drafted_tokens_total %llu\n", (unsigned long long)t->drafted_tokens);
  metric(b, "accepted_tokens_total", "counter", "Guesses that became tokens of an answer.");
  buf_addf(b, "tern_accepted_tokens_total %llu\n", (unsigned long long)t->accepted_tokens);
  metric(b, "prefixes", "gauge", "Prefixes kept for later requests.");
  buf_addf(b, "tern_prefixes %d\n", t->prefixes);
  metric(b, "prefix_bytes", "gauge", "Keys and values of kept prefixes.");
  buf_addf(b, "tern_prefix_bytes %zu\n", t->prefix_bytes);
  metric(b, "steps_total", "counter", "Forwards of the model.");
  buf_addf(b, "tern_steps_total %llu\n", (unsigned long long)t->steps);
  metric(b, "state_bytes", "gauge", "Keys and values set aside for running answers.");
  buf_addf(b, "tern_state_bytes %zu\n", t->state_bytes);
  metric(b, "http_responses_total", "counter", "HTTP responses by class of status.");
  for (int i = 2; i < SRV_CLASSES; i++)
    buf_addf(b, "tern_http_responses_total{status=\"%dxx\"} %llu\n", i,
             (unsigned long long)atomic_load(&s->responses[i]));
}

void info_metrics(server *s, const srv_request *q, srv_response *a)
{
  (void)q;
  sched_stats stats;
  buf text = {0};
  sched_get_stats(s->scheduler, &stats);
  add_metrics(s, &stats, &text);
  a->body = text.failed ? NULL : strdup(text.data);
  a->status = a->body ? 200 : 503;
  a->type = "text/plain; version=0.0.4; charset=utf-8";
  a->length = a->body ? strlen(a->body) : 0;
  buf_free(&text);
}

/* What a browser or a client that looks whether somebody is there finds. */
void info_root(server *s, const srv_request *q, srv_response *a)
{
  (void)s, (void)q;
  a->body = strdup("tern is running\n");
  a->status = a->body ? 200 : 503;
  a->type = "text/plain; charset=utf-8";
  a->length = a->body ? strlen(a->body) : 0;
}
