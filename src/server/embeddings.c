/* embeddings.c - /v1/embeddings, and what /api/embed shares with it. See embeddings.h.
 *
 * Each input is a job of the scheduler that reads its prompt and gives hidden states; some of a request's run together,
 * and so do they with whatever else runs: no bit of a vector depends on that. Sums are doubles, in the order of
 * positions. Which state stands for a text is the model's training's business: the request says, and the last one is
 * what decoders that were trained for this use.
 */
#include "server/embeddings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/prompt.h"
#include "server/choices.h"

enum { TOGETHER = 16 /* inputs of a request that run at once */ };

/* ---- inputs ---- */

static bool add_text(const server *s, const char *name, const json_t *text, embeddings *e, oai_fault *fault)
{
  oai_prompt *p = &e->inputs[e->n];
  fault->param = name;
  if (srv_check_length(s, json_string_length(text), &fault->err) != TERN_OK)
    return false;
  return prompt_encode(s->model, &e->ask, json_string_value(text), json_string_length(text), true, &p->ids, &p->n,
                       &fault->err) == TERN_OK;
}

static bool add_ids(const server *s, const char *name, const json_t *list, embeddings *e, oai_fault *fault)
{
  oai_prompt *p = &e->inputs[e->n];
  p->n = json_array_size(list);
  p->ids = mem_array(p->n, sizeof *p->ids);
  if (!p->ids) {
    err_nomem(&fault->err, "input");
    return false;
  }
  for (size_t i = 0; i < p->n; i++) {
    const json_t *id = json_array_get(list, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= s->model->info.vocab)
      return oai_wrong(fault, name, "element %zu is not a token id from 0 to %d", i, s->model->info.vocab - 1);
    p->ids[i] = (int32_t)json_integer_value(id);
  }
  return true;
}

static bool add_input(const server *s, const char *name, const json_t *one, embeddings *e, oai_fault *fault)
{
  size_t context = (size_t)sched_context(s->scheduler);
  if (!json_is_string(one) && !json_is_array(one))
    return oai_wrong(fault, name, "input %d is neither a string nor a list of token ids", e->n);
  if (!(json_is_string(one) ? add_text : add_ids)(s, name, one, e, fault)) {
    mem_free(e->inputs[e->n].ids);
    return false;
  }
  size_t n = e->inputs[e->n++].n;
  e->tokens += n;
  if (!n)
    return oai_wrong(fault, name, "input %d has no tokens", e->n - 1);
  if (n <= context)
    return true;
  fault->code = "context_length_exceeded";
  return oai_wrong(fault, name, "input %d has %zu tokens, but there are %zu positions", e->n - 1, n, context);
}

bool emb_read(const server *s, const char *name, const json_t *input, embeddings *e, oai_fault *fault)
{
  bool one = json_is_string(input) || json_is_integer(json_array_get(input, 0));
  size_t n = one ? 1 : json_array_size(input), width = (size_t)s->model->info.width;
  e->width = (int)width;
  if (!n)
    return oai_wrong(fault, name, "must be a string, a list of token ids, or a list of these, and not empty");
  if (n > EMB_MOST_INPUTS || n * width > EMB_MOST_FLOATS)
    return oai_wrong(fault, name, "%zu inputs, at most %d and %zu of this width", n, EMB_MOST_INPUTS,
                     EMB_MOST_FLOATS / width);
  e->inputs = mem_array(n, sizeof *e->inputs);
  e->vectors = mem_array(n * width, sizeof *e->vectors);
  if (!e->inputs || !e->vectors) {
    err_nomem(&fault->err, "input");
    return false;
  }
  for (size_t i = 0; i < n; i++)
    if (!add_input(s, name, one ? input : json_array_get(input, i), e, fault))
      return false;
  return true;
}

void emb_clear(embeddings *e)
{
  for (int i = 0; i < e->n; i++)
    mem_free(e->inputs[i].ids);
  mem_free(e->inputs);
  mem_free(e->vectors);
  *e = (embeddings){0};
}

/* ---- vectors ---- */

/* On the worker. choices' user: sums [inputs at once, width]. */
static void add_state(void *user, int64_t position, const float *state, int width)
{
  choice *o = user;
  double *sum = (double *)o->set->user + (o - o->set->at) * width;
  (void)position;
  for (int i = 0; i < width; i++)
    sum[i] += (double)state[i];
}

static void finish_vector(const embeddings *e, const double *sum, size_t tokens, float *out)
{
  double squares = 0, divisor = e->mean ? (double)tokens : 1;
  for (int i = 0; i < e->width; i++)
    squares += sum[i] / divisor * (sum[i] / divisor);
  double length = e->normal && squares > 0 ? sqrt(squares) : 1;
  for (int i = 0; i < e->width; i++)
    out[i] = (float)(sum[i] / divisor / length);
}

/* False: not all ended well, and the response says so, or that nobody is there. */
static bool await_all(choices *c, int fd, srv_response *a)
{
  for (;;) {
    choices_lock(c);
    const choice *failure = choices_first_failure(c);
    bool over = choices_all_ended(c);
    if (failure)
      srv_fault(a, NULL, &failure->err);
    choices_unlock(c);
    if (failure || over)
      return !failure;
    choices_news news = choices_wait(c, fd, -1);
    a->gone = news == CHOICES_GONE;
    if (news == CHOICES_ENDING)
      srv_error(a, 503, NULL, "closing", "the server is closing");
    if (a->gone || a->status)
      return false;
  }
}

static bool run_some(server *s, const srv_request *q, embeddings *e, int first, int n, double *sums, srv_response *a)
{
  choices *c;
  tern_error err = {0};
  tern_status status = choices_open(s, n, &c, &err);
  if (status != TERN_OK) {
    srv_fault(a, NULL, &err);
    return false;
  }
  memset(sums, 0, (size_t)n * (size_t)e->width * sizeof *sums);
  c->user = sums;
  for (int i = 0; i < n; i++) {
    sched_job *j = &c->at[i].job;
    j->ids = e->inputs[first + i].ids;
    j->n = e->inputs[first + i].n;
    j->options.max_tokens = 1;
    j->on_hidden = add_state;
    j->all = e->mean;
  }
  status = choices_submit(c, &err);
  if (status != TERN_OK)
    srv_fault(a, NULL, &err);
  bool well = status == TERN_OK && await_all(c, q->fd, a);
  choices_close(c);
  for (int i = 0; i < n && well; i++)
    finish_vector(e, sums + (size_t)i * (size_t)e->width, e->inputs[first + i].n,
                  e->vectors + (size_t)(first + i) * (size_t)e->width);
  return well;
}

bool emb_run(server *s, const srv_request *q, embeddings *e, srv_response *a)
{
  double *sums = mem_array(TOGETHER * (size_t)e->width, sizeof *sums);
  bool well = sums;
  if (!sums)
    srv_error(a, 503, NULL, NULL, "out of memory (vectors)");
  for (int first = 0; first < e->n && well; first += TOGETHER)
    well = run_some(s, q, e, first, e->n - first < TOGETHER ? e->n - first : TOGETHER, sums, a);
  mem_free(sums);
  return well;
}

void emb_add_numbers(const float *v, int n, buf *out)
{
  for (int i = 0; i < n; i++)
    buf_addf(out, "%s%.9g", i ? "," : "[", (double)v[i]);
  buf_adds(out, "]");
}

/* ---- /v1/embeddings ---- */

static const srv_field rows[] = {
    {"model", FIELD_IS_STRING, 0, 0, NULL, NULL, NULL, false},
    {"input", FIELD_IS_STRING | FIELD_IS_LIST, 0, 0, NULL, NULL, "texts or lists of token ids, one or many", true},
    {"encoding_format", FIELD_IS_STRING, 0, 0, NULL, "\"float\" \"base64\"", NULL, false},
    {"dimensions", FIELD_IS_INT, 1, 1 << 30, NULL, NULL, "the model's own, no others", false},
    {"pooling", FIELD_IS_STRING, 0, 0, NULL, "\"last\" \"mean\"", "absent: last", false},
    {"normalize", FIELD_IS_BOOL, 0, 0, NULL, NULL, "absent: true", false},
    {"user", FIELD_IS_STRING, 0, 0, NULL, NULL, "let be", false},
};
const srv_fields emb_fields = SRV_FIELDS(rows, "");

/* The bytes of the floats, as every client of this dialect takes them: little-endian. */
static void add_base64(const uint8_t *bytes, size_t n, buf *out)
{
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    uint32_t x = 0;
    for (size_t k = 0; k < 3; k++)
      x = x << 8 | (i + k < n ? bytes[i + k] : 0);
    for (size_t k = 0; k < 4; k++)
      buf_addc(out, i + k <= n ? digits[x >> (18 - 6 * k) & 63] : '=');
  }
}

static void write_answer(const embeddings *e, const char *called, bool base64, srv_response *a)
{
  buf out = {0};
  buf_adds(&out, "{\"object\":\"list\",\"data\":[");
  for (int i = 0; i < e->n; i++) {
    const float *v = e->vectors + (size_t)i * (size_t)e->width;
    buf_addf(&out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
    if (base64) {
      buf_adds(&out, "\"");
      add_base64((const uint8_t *)v, (size_t)e->width * sizeof *v, &out);
      buf_adds(&out, "\"}");
    } else {
      emb_add_numbers(v, e->width, &out);
      buf_adds(&out, "}");
    }
  }
  buf_adds(&out, "],\"model\":");
  srv_add_json(&out, json_string(called));
  buf_addf(&out, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", e->tokens, e->tokens);
  srv_text(a, 200, &out);
}

static bool is_word(const json_t *root, const char *name, const char *word)
{
  const char *value = json_string_value(json_object_get(root, name));
  return value && !strcmp(value, word);
}

void emb_create(server *s, const srv_request *q, srv_response *a)
{
  json_t *root;
  oai_fault fault = {0};
  embeddings e = {.ask = srv_ask(&q->fd)};
  const char *called;
  if (!srv_body(q, a, &root))
    return;
  bool ok = fields_check(&emb_fields, root, &fault) &&
            oai_check_model(s, json_object_get(root, "model"), &called, &fault) &&
            emb_read(s, "input", json_object_get(root, "input"), &e, &fault);
  const json_t *dimensions = json_object_get(root, "dimensions");
  if (ok && dimensions && json_integer_value(dimensions) != e.width)
    ok = oai_wrong(&fault, "dimensions", "the model's vectors have %d, and are not cut", e.width);
  e.mean = is_word(root, "pooling", "mean");
  e.normal = !json_is_false(json_object_get(root, "normalize"));
  if (!ok)
    oai_answer_fault(a, &fault);
  else if (emb_run(s, q, &e, a))
    write_answer(&e, called, is_word(root, "encoding_format", "base64"), a);
  emb_clear(&e);
  json_decref(root);
}
