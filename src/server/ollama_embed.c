/* ollama_embed.c - Ollama's dialect: /api/embed, and /api/embeddings, which is older and takes one text. */
#include "server/embeddings.h"
#include "server/ollama.h"

#define LET_BE                                                                                                         \
  {"options", FIELD_IS_OBJECT, 0, 0, NULL, NULL, "let be: none changes a vector", false},                              \
      {"keep_alive", FIELD_IS_STRING | FIELD_IS_REAL, 0, 0, NULL, NULL, "let be: the model stays", false},             \
      {"truncate", FIELD_IS_BOOL, 0, 0, NULL, NULL, "let be: what is too long is an error", false},                    \
  {                                                                                                                    \
    "model", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, false                                                            \
  }

static const srv_field embed_rows[] = {
    LET_BE,
    {"input", FIELD_IS_STRING | FIELD_IS_LIST, 0, 0, NULL, NULL, "a text or texts", true},
    {"dimensions", FIELD_IS_INT, 1, 1 << 30, NULL, NULL, "the model's own, no others", false},
};
const srv_fields oll_embed_fields = SRV_FIELDS(embed_rows, "");

static const srv_field embeddings_rows[] = {
    LET_BE,
    {"prompt", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, true},
};
const srv_fields oll_embeddings_fields = SRV_FIELDS(embeddings_rows, "");

/* The older route gives vectors as they are. */
static void write_answer(const embeddings *e, const json_t *name, bool older, double began, srv_response *a)
{
  buf out = {0};
  buf_adds(&out, older ? "{\"embedding\":" : "{\"model\":");
  if (!older) {
    srv_add_json(&out, json_incref((json_t *)name));
    buf_adds(&out, ",\"embeddings\":[");
  }
  for (int i = 0; i < e->n; i++) {
    buf_adds(&out, i ? "," : "");
    emb_add_numbers(e->vectors + (size_t)i * (size_t)e->width, e->width, &out);
  }
  if (!older)
    buf_addf(&out, "],\"total_duration\":%lld,\"load_duration\":0,\"prompt_eval_count\":%zu",
             (long long)(1e9 * (srv_seconds() - began)), e->tokens);
  buf_adds(&out, "}");
  srv_text(a, 200, &out);
}

static void answer(server *s, const srv_request *q, bool older, srv_response *a)
{
  json_t *root;
  oai_fault fault = {0};
  embeddings e = {.normal = !older, .ask = srv_ask(&q->fd)};
  const char *called, *input = older ? "prompt" : "input";
  double began = srv_seconds();
  if (!srv_body(q, a, &root))
    return;
  json_t *name = json_incref(json_object_get(root, "model")), *own = json_string(s->options.names[0]);
  bool ok = fields_check(older ? &oll_embeddings_fields : &oll_embed_fields, root, &fault) &&
            oll_fix_model(s, root, &fault) && oai_check_model(s, json_object_get(root, "model"), &called, &fault) &&
            emb_read(s, input, json_object_get(root, input), &e, &fault);
  const json_t *dimensions = json_object_get(root, "dimensions");
  if (ok && dimensions && json_integer_value(dimensions) != e.width)
    ok = oai_wrong(&fault, "dimensions", "the model's vectors have %d, and are not cut", e.width);
  if (!ok)
    oai_answer_fault(a, &fault);
  else if (emb_run(s, q, &e, a))
    write_answer(&e, json_is_string(name) ? name : own, older, began, a);
  emb_clear(&e);
  json_decref(name);
  json_decref(own);
  json_decref(root);
}

void oll_embed(server *s, const srv_request *q, srv_response *a)
{
  answer(s, q, false, a);
}

void oll_embeddings(server *s, const srv_request *q, srv_response *a)
{
  answer(s, q, true, a);
}
