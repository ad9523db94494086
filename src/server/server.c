/* server.c - the server's beginning and end, and what all routes answer with: documents and errors. */
#include "server/srv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/about.h"
#include "engine/sample.h"
#include "format/json_util.h"
#include "server/keys.h"
#include "server/responses.h"

enum { LAST_WORDS_SECONDS = 10 }; /* at most: for a busy machine, and a reader that takes nothing */

/* ---- beginning and end ---- */

static void note_death(void *user, const tern_error *err)
{
  server *s = user;
  pthread_mutex_lock(&s->lock);
  s->death = *err;
  pthread_mutex_unlock(&s->lock);
  eventfd_write(s->death_fd, 1);
}

/* What requests inherit. They may sample though the server's default is not to: the filters have to be right too. */
static tern_status check_sampling(const tern_model *m, const tern_sampling *inherited, tern_error *err)
{
  tern_sampling o = *inherited;
  o.temp = o.temp == 0 ? 1 : o.temp;
  o.min_p = o.min_p == 0 ? 1 : o.min_p;
  return sampler_check(&o, m->info.vocab, err);
}

static tern_status check_names(const server_options *o, tern_error *err)
{
  for (size_t i = 0; i < o->n_names; i++)
    if (!*o->names[i] || !utf8_valid(o->names[i], strlen(o->names[i]), NULL))
      return err_set(err, TERN_E_USAGE, "--alias: a name that is %s: no request could say it",
                     *o->names[i] ? "not UTF-8" : "empty");
  return TERN_OK;
}

static bool is_first(const char *(*name_at)(size_t i), size_t i)
{
  for (size_t k = 0; k < i; k++)
    if (!strcmp(name_at(k), name_at(i)))
      return false;
  return true;
}

/* "a, b, c" of a table's names, some of which have two rows. */
static const char *list_names(const char *(*name_at)(size_t i), char *out, size_t size)
{
  size_t used = 0;
  const char *name;
  *out = '\0';
  for (size_t i = 0; (name = name_at(i)) && used < size; i++)
    if (is_first(name_at, i))
      used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", name);
  return out;
}

static const char *format_name(size_t i)
{
  const calls_format *f = calls_at(i);
  return f ? f->name : NULL;
}

static const char *reasoning_name(size_t i)
{
  const parts_reasoning *r = parts_reasoning_at(i);
  return r ? r->name : NULL;
}

/* How answers are taken apart: as was said, or as the model's files show. */
static tern_status choose_parsers(server *s, tern_error *err)
{
  const char *calls = s->options.tool_parser, *reasoning = s->options.reasoning_parser;
  char names[400];
  s->calls = calls ? calls_find(calls) : NULL;
  if (calls && !s->calls)
    return err_set(err, TERN_E_USAGE, "--tool-parser: \"%.60s\" is not known; what is: %s", calls,
                   list_names(format_name, names, sizeof names));
  if (!reasoning)
    s->reasoning = parts_reasoning_of(s->model->tok);
  else if (strcmp(reasoning, "none") != 0 && !(s->reasoning = parts_reasoning_find(reasoning)))
    return err_set(err, TERN_E_USAGE, "--reasoning-parser: \"%.60s\" is not known; what is: none, %s", reasoning,
                   list_names(reasoning_name, names, sizeof names));
  return TERN_OK;
}

tern_status server_open(tern_model *m, const server_options *options, server_socket *socket, server **out,
                        tern_error *err)
{
  TRY(check_names(options, err));
  TRY(keys_check(options, err));
  pthread_condattr_t clock;
  TRY(check_sampling(m, &options->sampling, err));
  server *s = mem_zalloc(sizeof *s);
  if (!s)
    return err_nomem(err, "server");
  s->model = m;
  s->options = *options;
  s->socket = *socket;
  if (!s->options.most_body)
    s->options.most_body = SERVER_MOST_BODY;
  s->started = time(NULL);
  pthread_mutex_init(&s->log_lock, NULL);
  pthread_mutex_init(&s->library, NULL);
  pthread_mutex_init(&s->lock, NULL);
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&s->quiet, &clock);
  pthread_condattr_destroy(&clock);
  s->longest_piece = srv_longest_piece(m);
  s->parameters = about_parameters(m->net);
  s->death_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  s->ending_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  s->options.scheduling.on_death = note_death;
  s->options.scheduling.user = s;
  s->responses_kept = resp_store_open();
  tern_status status = s->death_fd >= 0 && s->ending_fd >= 0 ? TERN_OK : err_errno(err, "server", "eventfd");
  if (status == TERN_OK && !s->responses_kept)
    status = err_nomem(err, "server");
  if (status == TERN_OK)
    status = choose_parsers(s, err);
  if (status == TERN_OK)
    status = sched_open(m, &s->options.scheduling, &s->scheduler, err);
  if (status == TERN_OK)
    status = http_start(s, err);
  if (status != TERN_OK) {
    s->socket.path = NULL; /* the caller's still */
    server_close(s, 0);
    return status;
  }
  socket->fd = -1;
  socket->path = NULL;
  *out = s;
  return TERN_OK;
}

int server_death_fd(const server *s)
{
  return s->death_fd;
}

tern_status server_death(server *s, tern_error *err)
{
  pthread_mutex_lock(&s->lock);
  tern_error death = s->death;
  pthread_mutex_unlock(&s->lock);
  return death.status == TERN_OK ? TERN_OK : err_set(err, death.status, "%s", death.text);
}

/* Until no request is being answered, or the time is over. */
static void drain(server *s, double seconds)
{
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += (time_t)seconds;
  pthread_mutex_lock(&s->lock);
  s->draining = true;
  while (s->active && pthread_cond_timedwait(&s->quiet, &s->lock, &until) == 0)
    ;
  pthread_mutex_unlock(&s->lock);
}

void server_close(server *s, double drain_seconds)
{
  if (!s)
    return;
  if (s->daemon) {
    http_quiesce(s);
    drain(s, drain_seconds);
    atomic_store(&s->ending, true);
    eventfd_write(s->ending_fd, 1);
    drain(s, LAST_WORDS_SECONDS); /* what still runs says that it ends here */
    http_stop(s);                 /* cuts connections */
    server_unlisten(&s->socket);
  }
  sched_close(s->scheduler);
  resp_store_close(s->responses_kept);
  if (s->death_fd >= 0)
    close(s->death_fd);
  if (s->ending_fd >= 0)
    close(s->ending_fd);
  pthread_cond_destroy(&s->quiet);
  pthread_mutex_destroy(&s->lock);
  pthread_mutex_destroy(&s->library);
  pthread_mutex_destroy(&s->log_lock);
  mem_free(s);
}

bool srv_serves(const server *s, const char *name)
{
  for (size_t i = 0; i < s->options.n_names; i++)
    if (!strcmp(s->options.names[i], name))
      return true;
  return false;
}

void srv_log(server *s, const char *format, ...)
{
  char line[512];
  va_list args;
  if (!s->options.log)
    return;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  pthread_mutex_lock(&s->log_lock);
  s->options.log(s->options.user, line);
  pthread_mutex_unlock(&s->log_lock);
}

/* ---- documents ---- */

static int dump(const char *text, size_t n, void *user)
{
  buf *out = user;
  buf_add(out, text, n);
  return out->failed ? -1 : 0;
}

void srv_add_json(buf *out, json_t *document)
{
  if (!document || json_dump_callback(document, dump, out, JSON_COMPACT | JSON_ENCODE_ANY))
    out->failed = true;
  json_decref(document);
}

void srv_begin_object(buf *out, json_t *members)
{
  srv_add_json(out, members);
  if (!out->failed)
    out->data[--out->length] = '\0';
}

json_t *srv_string(const buf *text)
{
  return json_stringn(text->data ? text->data : "", text->length);
}

/* What is said where there is no memory to say it. */
static const char *no_memory(srv_shape *shape)
{
  static const struct {
    srv_shape *shape;
    const char *text;
  } texts[] = {
      {ant_error, "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"out of memory\"}}"},
      {oll_error, "{\"error\":\"out of memory\"}"}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (texts[i].shape == shape)
      return texts[i].text;
  return "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";
}

void srv_text(srv_response *a, int status, buf *text)
{
  size_t length = text->length;
  a->body = text->failed ? NULL : buf_take(text);
  a->constant = a->body ? NULL : no_memory(a->shape);
  a->type = "application/json";
  a->status = a->body ? status : 503;
  a->length = a->body ? length : strlen(a->constant);
  buf_free(text);
}

void srv_json(srv_response *a, int status, json_t *document)
{
  buf text = {0};
  srv_add_json(&text, document);
  srv_text(a, status, &text);
}

static const char *error_type(int status)
{
  return status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
}

json_t *srv_error_json(int status, const char *param, const char *code, const char *message)
{
  return json_pack("{s{ss ss ss? ss?}}", "error", "message", message, "type", error_type(status), "param", param,
                   "code", code);
}

void srv_error(srv_response *a, int status, const char *param, const char *code, const char *message)
{
  /* Messages quote what came in: only valid UTF-8 may go out again, and a long name not whole. */
  char clean[sizeof((tern_error *)0)->text], name[128];
  if (param)
    param = err_clean_copy(param, name, sizeof name);
  srv_shape *shape = a->shape ? a->shape : srv_error_json;
  srv_json(a, status, shape(status, param, code, err_clean_copy(message, clean, sizeof clean)));
  if (status == 429)
    a->retry_after = 1;
}

int srv_http_status(tern_status status)
{
  switch (status) {
  case TERN_E_USAGE:
  case TERN_E_FORMAT:
  case TERN_E_UNSUPPORTED:
  case TERN_E_LIMIT:
  case TERN_E_TEMPLATE:
  case TERN_E_NOT_FOUND:
    return 400;
  case TERN_E_BUSY:
    return 429;
  case TERN_E_NOMEM:
  case TERN_E_CANCELLED:
    return 503;
  default:
    return 500;
  }
}

void srv_fault(srv_response *a, const char *param, const tern_error *err)
{
  static const struct {
    tern_status status;
    const char *code;
  } codes[] = {{TERN_E_BUSY, "overloaded"},
               {TERN_E_LIMIT, "limit_exceeded"},
               {TERN_E_UNSUPPORTED, "unsupported"},
               {TERN_E_TEMPLATE, "template_error"}};
  const char *code = NULL;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (codes[i].status == err->status)
      code = codes[i].code;
  srv_error(a, srv_http_status(err->status), param, code, err->text);
}

/* What tools were called with keeps the digits of its numbers: templates write them out. */
static bool drop_digits(json_t *root)
{
  static const char *const called_with[] = {"arguments", "input", NULL}, *const nothing[] = {NULL};
  const char *key;
  json_t *value;
  json_object_foreach(root, key, value)
  {
    bool messages = !strcmp(key, "messages");
    json_t *plain = jsonu_drop_digits(json_incref(value), messages ? called_with : nothing);
    if (!plain || json_object_set_new_nocheck(root, key, plain))
      return false;
  }
  return true;
}

static tern_status parse_body(const srv_request *q, json_t **out, tern_error *err)
{
  size_t bad;
  if (!utf8_valid(q->body, q->length, &bad))
    return err_set(err, TERN_E_FORMAT, "body: byte %zu is not UTF-8", bad);
  bool digits;
  TRY(jsonu_parse_digits("body", q->body, q->length, &digits, out, err));
  bool well = !digits || drop_digits(*out);
  if (well && jsonu_finite(*out))
    return TERN_OK;
  json_decref(*out);
  if (!well)
    return err_nomem(err, "body");
  return err_set(err, TERN_E_FORMAT, "body: NaN and infinities are not JSON");
}

bool srv_body(const srv_request *q, srv_response *a, json_t **out)
{
  tern_error err = {0};
  tern_status status = parse_body(q, out, &err);
  q->release(q->user);
  if (status != TERN_OK)
    srv_fault(a, NULL, &err);
  return status == TERN_OK;
}
