/* tern.c - the functions of tern.h that open, close and translate: a network and its text side become one model. */
#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "base/utf8.h"
#include "engine/draft.h"
#include "engine/prompt.h"

void tern_free(void *p)
{
  mem_free(p);
}

/* ---- stop ids ---- */

static void add_stop(tern_model *m, int32_t id)
{
  for (size_t i = 0; i < m->n_stop_ids; i++)
    if (m->stop_ids[i] == id)
      return;
  m->stop_ids[m->n_stop_ids++] = id;
}

/* The union of both configs' lists and the tokenizer's eos token. */
static tern_status collect_stops(tern_model *m, tern_error *err)
{
  int32_t *ids, eos = tok_role_id(m->tok, TOK_EOS);
  size_t n;
  TRY(cfg_eos_ids(m->net->cfg, &ids, &n, err));
  m->stop_ids = mem_array(n + 1, sizeof *m->stop_ids);
  for (size_t i = 0; m->stop_ids && i < n; i++)
    add_stop(m, ids[i]);
  if (m->stop_ids && eos >= 0)
    add_stop(m, eos);
  mem_free(ids);
  return m->stop_ids ? TERN_OK : err_nomem(err, "stop ids");
}

/* ---- model ---- */

static void describe(tern_model *m)
{
  static const char *const numerics[] = {[TERN_EXACT] = "exact", [TERN_NATIVE] = "native", [TERN_FAST] = "fast"};
  const model *net = m->net;
  m->info = (tern_model_info){
      .model_type = cfg_model_type(net->cfg),
      .profile = net->profile.id,
      .numerics = numerics[net->numerics],
      .backend = net->cx.backend->name,
      .vocab = net->config.vocab,
      .context = net->config.max_positions,
      .layers = net->config.layers,
      .width = net->config.width,
      .threads = pool_size(net->workers),
      .weight_bytes = ckpt_bytes(net->ckpt),
      .owned_bytes = net->weights.owned_bytes,
      .prepared = net->prepared ? prepared_path(net->prepared) : NULL,
      .prepared_bytes = net->prepared ? prepared_bytes(net->prepared) : 0,
      .prepared_fault = net->prepared_fault.text[0] ? net->prepared_fault.text : NULL,
      .backend_fault = net->backend_fault.text[0] ? net->backend_fault.text : NULL,
  };
}

/* Any text may become any piece of the tokenizer. Added tokens beyond are another matter: releases have them (a
 * picture's placeholder, a pad), no text that is meant to run has; a prompt that does is refused by its id. */
static tern_status check_vocabulary(const tern_model *m, tern_error *err)
{
  int pieces = tok_base_size(m->tok), words = m->net->config.vocab;
  if (pieces <= words)
    return TERN_OK;
  return err_set(
      err, TERN_E_FORMAT,
      "config.json: vocab_size: the model has ids 0 to %d, but the tokenizer's own pieces (added tokens left "
      "out) go up to %d",
      words - 1, pieces - 1);
}

static tern_status open_text(tern_model *m, const char *dir, tern_error *err)
{
  TRY(tok_open(dir, &m->tok, err));
  TRY(check_vocabulary(m, err));
  /* A broken template is no reason not to answer raw text. */
  tern_status status = chat_open(dir, &m->chat, &m->chat_error);
  return status == TERN_E_NOMEM ? err_nomem(err, "chat template") : TERN_OK;
}

tern_status tern_model_open(const char *dir, const tern_model_options *opt, tern_model **out, tern_error *err)
{
  tern_model *m = mem_zalloc(sizeof *m);
  if (!m)
    return err_nomem(err, "model");
  pthread_mutex_init(&m->bytes_lock, NULL);
  tern_status status = model_open(dir, opt, false, &m->net, err);
  if (status == TERN_OK)
    status = open_text(m, dir, err);
  if (status == TERN_OK)
    status = collect_stops(m, err);
  if (status != TERN_OK) {
    tern_model_close(m);
    return path_place(dir, status, err);
  }
  describe(m);
  *out = m;
  return TERN_OK;
}

void tern_model_close(tern_model *m)
{
  if (!m)
    return;
  chat_close(m->chat);
  tok_close(m->tok);
  model_close(m->net);
  mem_free(m->stop_ids);
  tok_bytes_close(m->bytes);
  tok_bytes_close(m->first_bytes);
  pthread_mutex_destroy(&m->bytes_lock);
  mem_free(m);
}

const tern_model_info *tern_model_get_info(const tern_model *m)
{
  return &m->info;
}

/* ---- text ---- */

tern_status tern_tokenize(const tern_model *m, const char *text, size_t length, bool add_special, int32_t **ids,
                          size_t *n, tern_error *err)
{
  return tok_encode(m->tok, text, length, add_special, ids, n, err);
}

tern_status tern_detokenize(const tern_model *m, const int32_t *ids, size_t n, bool skip_special, char **text,
                            tern_error *err)
{
  return tok_decode(m->tok, ids, n, skip_special, text, NULL, err);
}

static tern_status check_messages(const tern_message *messages, size_t n, tern_error *err)
{
  for (size_t i = 0; i < n; i++) {
    const char *role = messages[i].role, *content = messages[i].content;
    if (!role || !utf8_valid(role, strlen(role), NULL))
      return err_set(err, TERN_E_USAGE, "messages[%zu]: role: must be UTF-8 text", i);
    if (!content || !utf8_valid(content, strlen(content), NULL))
      return err_set(err, TERN_E_USAGE, "messages[%zu]: content: must be UTF-8 text", i);
  }
  return TERN_OK;
}

/* {"role", "content"} for each. NULL: no memory. */
static json_t *list_messages(const tern_message *messages, size_t n)
{
  json_t *list = json_array();
  for (size_t i = 0; list && i < n; i++) {
    json_t *message = json_pack("{s:s, s:s}", "role", messages[i].role, "content", messages[i].content);
    if (json_array_append_new(list, message) != 0) {
      json_decref(list);
      return NULL;
    }
  }
  return list;
}

tern_status tern_chat(const tern_model *m, const tern_message *messages, size_t n_messages, int32_t **ids, size_t *n,
                      tern_error *err)
{
  TRY(prompt_check_chat(m, err));
  TRY(check_messages(messages, n_messages, err));
  json_t *list = list_messages(messages, n_messages);
  if (!list)
    return err_nomem(err, "messages");
  tern_status status = prompt_chat_ids(m, list, NULL, ids, n, err);
  json_decref(list);
  return status;
}

/* ---- session ---- */

tern_status tern_session_open(tern_model *m, const tern_session_options *opt, tern_session **out, tern_error *err)
{
  if (opt)
    TRY(draft_check(&opt->draft, m, err));
  tern_session *s = mem_zalloc(sizeof *s);
  if (!s)
    return err_nomem(err, "session");
  s->model = m;
  tern_status status = session_open(m->net, opt ? opt->context : 0, &s->timeline, err);
  if (status == TERN_OK && opt && draft_asked(&opt->draft))
    status = drafter_open(&opt->draft, m, &s->drafter, err);
  if (status != TERN_OK)
    tern_session_close(s);
  else
    *out = s;
  return status;
}

void tern_session_close(tern_session *s)
{
  if (!s)
    return;
  session_close(s->timeline);
  drafter_close(s->drafter);
  mem_free(s);
}

void tern_session_cancel(tern_session *s)
{
  session_cancel(s->timeline);
}
