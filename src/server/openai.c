/* openai.c - OpenAI's two routes that generate. */
#include "server/conversation.h"

static json_t *usage_of(const conversation *v)
{
  json_t *usage =
      oai_usage(conversation_prompt_tokens(v), conversation_answer_tokens(v), conversation_cached_tokens(v));
  size_t n;
  uint64_t drafted = 0, accepted = 0;
  json_t *details = json_object();
  for (int i = 0; i < v->set->n; i++) {
    drafted += v->set->at[i].end.drafted;
    accepted += v->set->at[i].end.accepted;
  }
  if (conversation_reasoning_tokens(v, &n))
    json_object_set_new(details, "reasoning_tokens", json_integer((json_int_t)n));
  if (draft_asked(&v->server->options.scheduling.draft)) {
    json_object_set_new(details, "accepted_prediction_tokens", json_integer((json_int_t)accepted));
    json_object_set_new(details, "rejected_prediction_tokens", json_integer((json_int_t)(drafted - accepted)));
  }
  if (json_object_size(details))
    json_object_set(usage, "completion_tokens_details", details);
  json_decref(details);
  return usage;
}

static void whole(conversation *v, buf *out)
{
  oai_begin_whole(&v->writer, out);
  for (int i = 0; i < v->set->n; i++)
    oai_add_whole(&v->writer, i, &v->set->at[i], &v->said[i], conversation_finish(v, i, &v->set->at[i].end), out);
  oai_end_whole(usage_of(v), out);
}

static void begin(conversation *v, buf *out)
{
  for (int i = 0; i < v->set->n; i++)
    oai_add_first(&v->writer, i, out);
}

static void delta(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out)
{
  const answer_parts *said = &v->said[index];
  size_t before = v->begun_calls[index];
  for (size_t i = 0; i < said->n; i++)
    before -= said->at[i].kind == PART_CALL_BEGIN;
  oai_add_delta(&v->writer, index, news, said, before, end ? conversation_finish(v, index, end) : NULL, out);
}

static void finish(conversation *v, buf *out)
{
  if (v->request.include_usage)
    oai_add_usage(&v->writer, usage_of(v), out);
  oai_add_done(out);
}

static void fail(conversation *v, int status, const char *message, buf *out)
{
  (void)v;
  oai_add_event(srv_error_json(status, NULL, NULL, message), out);
}

void oai_chat(server *s, const srv_request *q, srv_response *a)
{
  static const dialect is = {"chatcmpl", "call_", true, NULL, whole, begin, delta, finish, fail, false, NULL};
  conversation_run(s, q, &is, a);
}

void oai_completions(server *s, const srv_request *q, srv_response *a)
{
  static const dialect is = {"cmpl", "call_", false, NULL, whole, begin, delta, finish, fail, false, NULL};
  conversation_run(s, q, &is, a);
}
