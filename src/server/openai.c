/* openai.c - OpenAI's two routes that generate. */
#include "server/conversation.h"

static json_t *usage_of(const conversation *v)
{
  return oai_usage(conversation_prompt_tokens(v), conversation_answer_tokens(v), conversation_cached_tokens(v));
}

static json_t *whole(conversation *v)
{
  json_t *list = json_array();
  for (int i = 0; i < v->set->n; i++)
    json_array_append_new(list, oai_whole_choice(&v->writer, i, &v->set->at[i]));
  return oai_whole(&v->writer, list, usage_of(v));
}

static void begin(conversation *v, buf *out)
{
  for (int i = 0; i < v->set->n; i++)
    oai_add_first(&v->writer, i, out);
}

static void delta(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out)
{
  oai_add_delta(&v->writer, index, news, end ? end->finish : NULL, out);
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
  static const dialect is = {"chatcmpl", true, NULL, whole, begin, delta, finish, fail};
  conversation_run(s, q, &is, a);
}

void oai_completions(server *s, const srv_request *q, srv_response *a)
{
  static const dialect is = {"cmpl", false, NULL, whole, begin, delta, finish, fail};
  conversation_run(s, q, &is, a);
}
