/* http.c - sockets, connections and bodies, by libmicrohttpd.
 *
 * Each connection has a thread (MHD_USE_THREAD_PER_CONNECTION): a route may wait for the model there, and watches its
 * client's socket meanwhile. A body is collected up to a limit; what comes beyond is read and thrown away, so that the
 * client gets to see its 413, up to a second limit where the connection is cut. A body that is announced as larger
 * than that, or that the client would ask for before it sends it, is refused at once.
 */
#include <microhttpd.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/threads.h"
#include "server/keys.h"
#include "server/routes.h"

#define ASKED_METHOD "Access-Control-Request-Method"

enum {
  MOST_CONNECTIONS = 512,
  TURNED_AWAY = 64, /* connections beyond these, which hear that there are too many */
  AWAY_SECONDS = 5, /* that one of them has to ask in */
  MOST_HOST = 300,
  IDLE_SECONDS = 60, /* between requests, within a body, and for a reader that takes nothing */
  HEADER_BYTES = 32 << 10,
  STACK_BYTES = 1 << 20,
  STREAM_BLOCK = 16 << 10,
  METHOD = 16,
  LOGGED_PATH = 100,
  THROW_AWAY = 16, /* times most_body: what is read of a body that is too large */
};

/* ---- a request ---- */

typedef struct exchange {
  server *server;
  buf body;
  size_t received;
  size_t held; /* of it that the server counts */
  bool too_large, too_many;
  bool counted; /* in the server's `active` */
  uint64_t number;
  double began;
  const char *origin;                     /* for Access-Control-Allow-Origin; NULL: none */
  char method[METHOD], path[LOGGED_PATH]; /* for the log */
  bool streams;                           /* its line is written at its end */
  double replied;                         /* when its answer began */
} exchange;

double srv_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static exchange *begin_exchange(server *s)
{
  exchange *x = mem_zalloc(sizeof *x);
  if (!x)
    return NULL;
  x->server = s;
  x->number = atomic_fetch_add(&s->requests, 1) + 1;
  x->began = srv_seconds();
  return x;
}

static void free_body(void *user)
{
  exchange *x = user;
  buf_free(&x->body);
  srv_unhold(x->server, x->held);
  x->held = 0;
}

/* From here on closing waits for the answer; until here, for a client that sends, it does not. False: the server is
 * closing already. */
static bool enter(exchange *x)
{
  server *s = x->server;
  pthread_mutex_lock(&s->lock);
  x->counted = !s->draining;
  s->active += x->counted;
  pthread_mutex_unlock(&s->lock);
  return x->counted;
}

static void leave(exchange *x)
{
  server *s = x->server;
  if (!x->counted)
    return;
  pthread_mutex_lock(&s->lock);
  if (--s->active == 0)
    pthread_cond_broadcast(&s->quiet);
  pthread_mutex_unlock(&s->lock);
}

static void end_exchange(exchange *x)
{
  free_body(x);
  leave(x); /* behind this the server may be gone */
  mem_free(x);
}

/* Counts what the body will have by buf's doubling, before it does. */
static bool hold_more(exchange *x, size_t n)
{
  size_t want = x->held ? x->held : n;
  while (want < x->body.length + n)
    want *= 2;
  if (want == x->held)
    return true;
  srv_unhold(x->server, x->held);
  x->held = srv_hold(x->server, want) ? want : 0;
  return x->held != 0;
}

/* False: enough was thrown away. */
static bool take_body(exchange *x, const char *data, size_t n)
{
  size_t most = x->server->options.most_body;
  x->received += n;
  x->too_large |= x->received > most;
  x->too_many = x->too_many || (!x->too_large && !hold_more(x, n));
  if (x->too_large || x->too_many) {
    free_body(x);
    return x->received <= most * THROW_AWAY;
  }
  buf_add(&x->body, data, n);
  return true;
}

bool srv_draining(server *s)
{
  pthread_mutex_lock(&s->lock);
  bool is = s->draining;
  pthread_mutex_unlock(&s->lock);
  return is;
}

static const char *find_argument(void *connection, const char *name)
{
  return MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

static void answer(exchange *x, struct MHD_Connection *c, const char *path, const srv_found *to, srv_response *a)
{
  server *s = x->server;
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
  char message[160];
  if (x->too_large) {
    snprintf(message, sizeof message, "body: more than %zu bytes", s->options.most_body);
    srv_error(a, 413, NULL, "body_too_large", message);
  } else if (x->too_many) {
    srv_error(a, 503, NULL, "overloaded", "too many large bodies at once: try again later");
    a->retry_after = 1;
  } else if (x->body.failed) {
    srv_error(a, 503, NULL, NULL, "out of memory (body)");
  } else if (!enter(x)) {
    srv_error(a, 503, NULL, "closing", "the server is closing");
  } else if (!to->route && *to->allow) {
    snprintf(message, sizeof message, "%.60s takes %s", path, to->allow);
    srv_error(a, 405, NULL, "method_not_allowed", message);
  } else if (!to->route) {
    snprintf(message, sizeof message, "there is no %.100s here", path);
    srv_error(a, 404, NULL, "unknown_url", message);
  } else {
    srv_request q = {.number = x->number,
                     .path = path,
                     .part = to->part,
                     .part_length = to->part_length,
                     .argument = find_argument,
                     .connection = c,
                     .body = x->body.data ? x->body.data : "",
                     .length = x->body.length,
                     .fd = info->connect_fd,
                     .release = free_body,
                     .user = x};
    if (srv_turn_begin(s, q.length, q.fd))
      to->route(s, &q, a);
    else if (srv_draining(s))
      srv_error(a, 503, NULL, "closing", "the server is closing");
    else
      a->gone = true;
    srv_turn_end(s);
  }
}

/* ---- a stream ---- */

typedef struct stream {
  srv_source source;
  struct MHD_Connection *connection;
  buf text;
  size_t sent;
  bool over;
} stream;

static void set_timeout(struct MHD_Connection *c, unsigned timeout)
{
  MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT, timeout);
}

static ssize_t read_stream(void *user, uint64_t position, char *out, size_t most)
{
  (void)position;
  stream *t = user;
  bool gone = false;
  while (t->sent == t->text.length && !t->over) {
    buf_clear(&t->text);
    t->sent = 0;
    set_timeout(t->connection, 0); /* the model may take its time, the reader may not */
    t->over = !t->source.next(t->source.self, &t->text, &gone);
    set_timeout(t->connection, IDLE_SECONDS);
    if (gone || t->text.failed)
      return MHD_CONTENT_READER_END_WITH_ERROR;
  }
  size_t left = t->text.length - t->sent, n = left < most ? left : most;
  if (!n)
    return MHD_CONTENT_READER_END_OF_STREAM;
  memcpy(out, t->text.data + t->sent, n);
  t->sent += n;
  return (ssize_t)n;
}

static void free_stream(void *user)
{
  stream *t = user;
  t->source.close(t->source.self);
  buf_free(&t->text);
  mem_free(t);
}

/* NULL: no memory; the source is closed in any case. */
static struct MHD_Response *stream_response(struct MHD_Connection *c, const srv_source *source)
{
  stream *t = mem_zalloc(sizeof *t);
  struct MHD_Response *r = NULL;
  if (!t) {
    source->close(source->self);
    return NULL;
  }
  t->source = *source;
  t->connection = c;
  r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, t, free_stream);
  if (!r)
    free_stream(t);
  return r;
}

/* ---- a response ---- */

static struct MHD_Response *make_response(struct MHD_Connection *c, srv_response *a)
{
  if (a->source.next)
    return stream_response(c, &a->source);
  const char *constant = a->constant ? a->constant : "";
  struct MHD_Response *r = MHD_create_response_from_buffer(a->length, a->body ? a->body : (void *)(uintptr_t)constant,
                                                           a->body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
  if (!r)
    free(a->body);
  return r;
}

static const char *header(struct MHD_Connection *c, const char *name)
{
  return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* Lets pages of an allowed origin read the answer. */
static void add_origin(const exchange *x, struct MHD_Response *r)
{
  if (!x->origin)
    return;
  MHD_add_response_header(r, "Access-Control-Allow-Origin", x->origin);
  MHD_add_response_header(r, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  MHD_add_response_header(r, "Vary", "Origin");
}

/* `allow`: of a 405. */
static enum MHD_Result send_response(exchange *x, struct MHD_Connection *c, srv_response *a, const char *allow)
{
  char text[32];
  if (a->gone)
    return MHD_NO;
  struct MHD_Response *r = make_response(c, a);
  if (!r)
    return MHD_NO;
  MHD_add_response_header(r, "Content-Type", a->type);
  if (a->source.next)
    MHD_add_response_header(r, "Cache-Control", "no-cache");
  if (a->retry_after) {
    snprintf(text, sizeof text, "%d", a->retry_after);
    MHD_add_response_header(r, "Retry-After", text);
  }
  if (a->last)
    MHD_add_response_header(r, "Connection", "close");
  if (a->status == 405)
    MHD_add_response_header(r, "Allow", allow);
  if (a->status == 401)
    MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
  add_origin(x, r);
  snprintf(text, sizeof text, "tern-%llu", (unsigned long long)x->number);
  MHD_add_response_header(r, "X-Request-Id", text);
  enum MHD_Result done = MHD_queue_response(c, (unsigned)a->status, r);
  MHD_destroy_response(r); /* MHD has its own reference */
  return done;
}

/* A line a request: its number, which the client has as X-Request-Id, what it asked for, and how that went; never a
 * text. */
static void log_exchange(const exchange *x, int status, const char *how, double first)
{
  double now = srv_seconds();
  char more[48] = "";
  if (first > 0)
    snprintf(more, sizeof more, " first_ms=%.1f", 1e3 * (first - x->began));
  srv_log(x->server, "id=tern-%llu method=%s path=%s status=%d end=%s%s ms=%.1f", (unsigned long long)x->number,
          x->method, x->path, status, how, more, 1e3 * (now - x->began));
}

/* Counts it, logs it, sends it. */
static enum MHD_Result reply_with(exchange *x, struct MHD_Connection *c, srv_response *a, const char *allow)
{
  if (a->status >= 100)
    atomic_fetch_add(&x->server->responses[a->status / 100], 1);
  x->streams = a->source.next != NULL;
  x->replied = srv_seconds();
  if (!x->streams)
    log_exchange(x, a->status, a->gone ? "left" : "sent", 0);
  return send_response(x, c, a, allow);
}

/* As a log may have it: one word of visible ASCII characters. */
static void note(char *out, size_t room, const char *word)
{
  snprintf(out, room, "%s", word);
  for (char *p = out; *p; p++)
    if (*p <= ' ' || *p > '~' || *p == '"')
      *p = '?';
}

static void note_line(exchange *x, const char *method, const char *path)
{
  note(x->method, sizeof x->method, method);
  note(x->path, sizeof x->path, path);
}

/* What a browser asks before it lets a page of an allowed origin ask. */
static enum MHD_Result allow_page(exchange *x, struct MHD_Connection *c)
{
  struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
  const char *wanted = header(c, "Access-Control-Request-Headers");
  if (!r)
    return MHD_NO;
  add_origin(x, r);
  MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE");
  if (wanted)
    MHD_add_response_header(r, "Access-Control-Allow-Headers", wanted);
  if (header(c, "Access-Control-Request-Private-Network"))
    MHD_add_response_header(r, "Access-Control-Allow-Private-Network", "true");
  MHD_add_response_header(r, "Access-Control-Max-Age", "600");
  atomic_fetch_add(&x->server->responses[2], 1);
  log_exchange(x, MHD_HTTP_NO_CONTENT, "sent", 0);
  enum MHD_Result done = MHD_queue_response(c, MHD_HTTP_NO_CONTENT, r);
  MHD_destroy_response(r);
  return done;
}

static enum MHD_Result note_length(void *user, enum MHD_ValueKind kind, const char *key, const char *value)
{
  srv_headers *h = user;
  (void)kind;
  if (value && !strcasecmp(key, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
    h->lengths++;
    h->announced = strtoull(value, NULL, 10);
  }
  return MHD_YES;
}

static srv_headers read_headers(const server *s, struct MHD_Connection *c, const char *path, const char *version)
{
  srv_headers h = {.host = header(c, MHD_HTTP_HEADER_HOST),
                   .origin = header(c, MHD_HTTP_HEADER_ORIGIN),
                   .authorization = header(c, MHD_HTTP_HEADER_AUTHORIZATION),
                   .key = header(c, "x-api-key"),
                   .path = path,
                   .wants_host = !strcmp(version, MHD_HTTP_VERSION_1_1),
                   .encoded = header(c, MHD_HTTP_HEADER_TRANSFER_ENCODING),
                   .packed = header(c, MHD_HTTP_HEADER_CONTENT_ENCODING)};
  bool asks = header(c, MHD_HTTP_HEADER_EXPECT);
  h.most_announced = s->options.most_body * (asks ? 1 : THROW_AWAY);
  MHD_get_connection_values(c, MHD_HEADER_KIND, note_length, &h);
  return h;
}

/* ---- too many connections ---- */

/* Its address is the socket context of a connection beyond MOST_CONNECTIONS; others have none. */
static const char away_mark = 0;

/* Connections that are turned away take no place of others. They are few all the same: they come only while all places
 * are taken, and the library has no more than TURNED_AWAY beside those. */
static void count_connection(void *user, struct MHD_Connection *c, void **context,
                             enum MHD_ConnectionNotificationCode what)
{
  server *s = user;
  bool away = *context == &away_mark;
  if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
    atomic_fetch_sub(&s->connections, !away);
    return;
  }
  if (atomic_fetch_add(&s->connections, 1) < MOST_CONNECTIONS)
    return;
  atomic_fetch_sub(&s->connections, 1);
  *context = (void *)(uintptr_t)&away_mark;
  set_timeout(c, AWAY_SECONDS);
}

static bool is_turned_away(struct MHD_Connection *c)
{
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return info && info->socket_context == &away_mark;
}

/* The connection ends with its answer: room for it may come with another one's end. */
static void turn_away(srv_response *a)
{
  srv_error(a, 503, NULL, "too_many_connections", "too many connections: try again");
  a->retry_after = 1;
  a->last = true;
}

/* ---- what is asked for ---- */

/* The path of a request's target. A proxy's client sends all of it, http://HOST/PATH: then HOST counts, which comes
 * into `host`, and the header of that name does not. */
static const char *path_of(const char *target, char host[MOST_HOST])
{
  static const char *const schemes[] = {"http://", "https://"};
  *host = '\0';
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
    size_t n = strlen(schemes[i]);
    if (strncasecmp(target, schemes[i], n) != 0)
      continue;
    const char *authority = target + n, *path = strchr(authority, '/');
    size_t length = path ? (size_t)(path - authority) : strlen(authority);
    snprintf(host, MOST_HOST, "%.*s", length < MOST_HOST ? (int)length : MOST_HOST - 1, authority);
    return path ? path : "/";
  }
  return target;
}

/* The headers are there, the body is not. */
static enum MHD_Result meet(server *s, struct MHD_Connection *c, const char *target, const char *method,
                            const char *version, void **state)
{
  char host[MOST_HOST];
  const char *path = path_of(target, host);
  exchange *x = begin_exchange(s);
  srv_response a = {0};
  *state = x;
  if (!x)
    return MHD_NO;
  note_line(x, method, path);
  srv_headers h = read_headers(s, c, path, version);
  if (*host && h.host)
    h.host = host;
  x->origin = keys_allow_origin(s, h.origin);
  if (x->origin && !strcmp(method, MHD_HTTP_METHOD_OPTIONS) && header(c, ASKED_METHOD))
    return allow_page(x, c);
  a.shape = srv_find(method, path).shape;
  if (is_turned_away(c))
    turn_away(&a);
  return a.status || srv_refuse(s, &h, &a) ? reply_with(x, c, &a, "") : MHD_YES;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *c, const char *target, const char *method,
                              const char *version, const char *data, size_t *size, void **state)
{
  char host[MOST_HOST];
  const char *path = path_of(target, host);
  exchange *x = *state;
  if (!x)
    return meet(user, c, target, method, version, state);
  if (*size) {
    bool go_on = take_body(x, data, *size);
    *size = 0;
    return go_on ? MHD_YES : MHD_NO;
  }
  srv_found to = srv_find(method, path);
  srv_response a = {.shape = to.shape};
  set_timeout(c, 0);
  answer(x, c, path, &to, &a);
  set_timeout(c, IDLE_SECONDS);
  return reply_with(x, c, &a, to.allow);
}

/* "%00" would end a path early: it becomes a character that none has. */
static size_t unescape(void *user, struct MHD_Connection *c, char *text)
{
  (void)user, (void)c;
  size_t n = MHD_http_unescape(text);
  for (size_t i = 0; i < n; i++)
    if (!text[i])
      text[i] = '\x01';
  return n;
}

static void completed(void *user, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode how)
{
  (void)user, (void)c;
  exchange *x = *state;
  if (x && x->streams)
    log_exchange(x, MHD_HTTP_OK, how == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "sent" : "left", x->replied);
  if (x)
    end_exchange(x);
  *state = NULL;
}

/* ---- beginning and end ---- */

static tern_status check_tls(const server_options *o, tern_error *err)
{
  if (o->certificate && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
    return err_set(err, TERN_E_UNSUPPORTED, "--tls-cert: this system's HTTP library was built without TLS");
  return TERN_OK;
}

/* The library says nothing of why it does not start. */
static tern_status not_started(const server *s, tern_error *err)
{
  if (s->options.certificate)
    return err_set(err, TERN_E_FORMAT,
                   "--tls-cert, --tls-key: no certificate (chain) and its private key in PEM, or HTTP does not start");
  return err_set(err, TERN_E_IO, "%s: the HTTP library does not start", s->options.host);
}

tern_status http_start(server *s, tern_error *err)
{
  const server_options *o = &s->options;
  sigset_t before;
  TRY(check_tls(o, err));
  struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)o->certificate},
                                 {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)o->private_key},
                                 {MHD_OPTION_END, 0, NULL}};
  unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC;
  threads_block_signals(&before); /* its threads inherit it */
  s->daemon = MHD_start_daemon(
      flags | (o->certificate ? MHD_USE_TLS : 0), 0, NULL, NULL, handle, s, MHD_OPTION_LISTEN_SOCKET, s->socket.fd,
      MHD_OPTION_CONNECTION_LIMIT, (unsigned)(MOST_CONNECTIONS + TURNED_AWAY), MHD_OPTION_NOTIFY_CONNECTION,
      count_connection, s, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      (size_t)HEADER_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_NOTIFY_COMPLETED, completed,
      s, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_ARRAY, o->certificate ? tls : tls + 2,
      MHD_OPTION_END);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return s->daemon ? TERN_OK : not_started(s, err);
}

void http_quiesce(server *s)
{
  int fd = MHD_quiesce_daemon(s->daemon);
  if (fd >= 0)
    close(fd);
  s->socket.fd = -1;
}

void http_stop(server *s)
{
  MHD_stop_daemon(s->daemon);
  s->daemon = NULL;
}
