/* http.c - sockets, connections and bodies, by libmicrohttpd, and which route a request belongs to.
 *
 * Each connection has a thread (MHD_USE_THREAD_PER_CONNECTION): a route may wait for the model there, and watches its
 * client's socket meanwhile. A body is collected up to a limit; what comes beyond is read and thrown away, so that the
 * client gets to see its 413, up to a second limit where the connection is cut. A body that is announced as larger
 * than that, or that the client would ask for before it sends it, is refused at once.
 */
#include <microhttpd.h>

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/threads.h"
#include "server/srv.h"

enum {
  BACKLOG = 128,
  MOST_CONNECTIONS = 512,
  IDLE_SECONDS = 60, /* between requests, within a body, and for a reader that takes nothing */
  HEADER_BYTES = 32 << 10,
  STACK_BYTES = 1 << 20,
  STREAM_BLOCK = 16 << 10,
  THROW_AWAY = 16, /* times most_body: what is read of a body that is too large */
};

/* ---- routes ---- */

static const struct {
  const char *method, *path;
  srv_route *route;
} routes[] = {
    {"POST", "/v1/chat/completions", oai_chat},
    {"POST", "/chat/completions", oai_chat},
    {"POST", "/v1/completions", oai_completions},
    {"POST", "/v1/messages", ant_messages},
    {"POST", "/v1/messages/count_tokens", ant_count_tokens},
    {"POST", "/tokenize", text_tokenize},
    {"POST", "/detokenize", text_detokenize},
    {"POST", "/apply-template", text_template},
    {"GET", "/v1/models", info_models},
    {"GET", "/library", info_library},
    {"GET", "/health", info_health},
    {"GET", "/metrics", info_metrics},
};
static const char models_prefix[] = "/v1/models/";

static bool is_below(const char *path, const char *prefix)
{
  size_t n = strlen(prefix);
  return !strncmp(path, prefix, n) && (!path[n] || path[n] == '/');
}

/* NULL: none; *has: the method that the path has, NULL where there is no such path. */
static srv_route *find_route(const char *method, const char *path, const char **has, srv_shape **shape)
{
  *has = NULL;
  *shape = is_below(path, "/v1/messages") ? ant_error : NULL;
  if (!strcmp(method, "HEAD"))
    method = "GET";
  for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
    if (strcmp(routes[i].path, path) != 0)
      continue;
    *has = routes[i].method;
    return strcmp(routes[i].method, method) ? NULL : routes[i].route;
  }
  if (!strncmp(path, models_prefix, sizeof models_prefix - 1)) {
    *has = "GET";
    return strcmp(method, "GET") ? NULL : info_model;
  }
  return NULL;
}

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
} exchange;

static double seconds(void)
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
  x->began = seconds();
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

static void answer(exchange *x, struct MHD_Connection *c, const char *method, const char *path, srv_response *a,
                   const char **allow)
{
  server *s = x->server;
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
  srv_route *route = find_route(method, path, allow, &a->shape);
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
  } else if (!route && *allow) {
    snprintf(message, sizeof message, "%.60s takes %s", path, *allow);
    srv_error(a, 405, NULL, "method_not_allowed", message);
  } else if (!route) {
    snprintf(message, sizeof message, "there is no %.100s here", path);
    srv_error(a, 404, NULL, "unknown_url", message);
  } else {
    srv_request q = {.number = x->number,
                     .path = path,
                     .body = x->body.data ? x->body.data : "",
                     .length = x->body.length,
                     .fd = info->connect_fd,
                     .release = free_body,
                     .user = x};
    if (srv_turn_begin(s, q.length, q.fd))
      route(s, &q, a);
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
  struct MHD_Response *r = MHD_create_response_from_buffer(a->length, a->body ? a->body : "",
                                                           a->body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
  if (!r)
    free(a->body);
  return r;
}

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
  if (allow && a->status == 405)
    MHD_add_response_header(r, "Allow", allow);
  snprintf(text, sizeof text, "tern-%llu", (unsigned long long)x->number);
  MHD_add_response_header(r, "X-Request-Id", text);
  enum MHD_Result done = MHD_queue_response(c, (unsigned)a->status, r);
  MHD_destroy_response(r); /* MHD has its own reference */
  return done;
}

/* Counts it, logs it, sends it. */
static enum MHD_Result reply_with(exchange *x, struct MHD_Connection *c, const char *method, const char *path,
                                  srv_response *a, const char *allow)
{
  if (a->status >= 100)
    atomic_fetch_add(&x->server->responses[a->status / 100], 1);
  srv_log(x->server, "%llu %s %.100s %d %s%.1f ms", (unsigned long long)x->number, method, path, a->status,
          a->gone          ? "client gone, "
          : a->source.next ? "stream began after "
                           : "",
          1e3 * (seconds() - x->began));
  return send_response(x, c, a, allow);
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

static srv_headers read_headers(const server *s, struct MHD_Connection *c, const char *version)
{
  srv_headers h = {.host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST),
                   .origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN),
                   .wants_host = !strcmp(version, MHD_HTTP_VERSION_1_1),
                   .encoded = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING)};
  bool asks = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT);
  h.most_announced = s->options.most_body * (asks ? 1 : THROW_AWAY);
  MHD_get_connection_values(c, MHD_HEADER_KIND, note_length, &h);
  return h;
}

/* The headers are there, the body is not. */
static enum MHD_Result meet(server *s, struct MHD_Connection *c, const char *path, const char *method,
                            const char *version, void **state)
{
  exchange *x = begin_exchange(s);
  srv_response a = {0};
  const char *allow;
  *state = x;
  if (!x)
    return MHD_NO;
  srv_headers h = read_headers(s, c, version);
  find_route(method, path, &allow, &a.shape);
  return srv_refuse(s, &h, &a) ? reply_with(x, c, method, path, &a, NULL) : MHD_YES;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *c, const char *path, const char *method,
                              const char *version, const char *data, size_t *size, void **state)
{
  exchange *x = *state;
  srv_response a = {0};
  const char *allow = NULL;
  if (!x)
    return meet(user, c, path, method, version, state);
  if (*size) {
    bool go_on = take_body(x, data, *size);
    *size = 0;
    return go_on ? MHD_YES : MHD_NO;
  }
  set_timeout(c, 0);
  answer(x, c, method, path, &a, &allow);
  set_timeout(c, IDLE_SECONDS);
  return reply_with(x, c, method, path, &a, allow);
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
  (void)user, (void)c, (void)how;
  if (*state)
    end_exchange(*state);
  *state = NULL;
}

/* ---- the listening socket ---- */

/* MHD would only say that it failed. */
static tern_status listen_at(const struct addrinfo *to, const char *host, int port, int *out, tern_error *err)
{
  int one = 1, fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return err_set(err, TERN_E_IO, "%s: port %d: %s", host, port, strerror(errno));
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, to->ai_addr, to->ai_addrlen) || listen(fd, BACKLOG)) {
    tern_status status = err_set(err, TERN_E_IO, "%s: port %d: %s%s", host, port, strerror(errno),
                                 errno == EADDRINUSE ? " (--port chooses another one; 0: any that is free)" : "");
    close(fd);
    return status;
  }
  *out = fd;
  return TERN_OK;
}

static tern_status open_socket(const char *host, int port, int *out, tern_error *err)
{
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list;
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  int failed = getaddrinfo(host, service, &hints, &list);
  if (failed)
    return err_set(err, TERN_E_IO, "--host: \"%.100s\": %s", host, gai_strerror(failed));
  tern_status status = TERN_E_IO;
  for (const struct addrinfo *a = list; a && status != TERN_OK; a = a->ai_next)
    status = listen_at(a, host, port, out, err);
  freeaddrinfo(list);
  return status;
}

static void note_address(server *s, int fd)
{
  union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
  } at;
  socklen_t size = sizeof at;
  memset(&at, 0, sizeof at);
  if (getsockname(fd, &at.any, &size))
    return;
  bool v6 = at.any.sa_family == AF_INET6;
  s->port = ntohs(v6 ? at.v6.sin6_port : at.v4.sin_port);
  s->loopback = v6 ? IN6_IS_ADDR_LOOPBACK(&at.v6.sin6_addr) : ntohl(at.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

tern_status http_start(server *s, tern_error *err)
{
  int fd = -1;
  sigset_t before;
  TRY(open_socket(s->options.host, s->options.port, &fd, err));
  note_address(s, fd);
  threads_block_signals(&before); /* its threads inherit it */
  s->daemon = MHD_start_daemon(
      MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL,
      handle, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_CONNECTIONS,
      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
      MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES, MHD_OPTION_NOTIFY_COMPLETED, completed, s,
      MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_END);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (s->daemon)
    return TERN_OK;
  close(fd);
  return err_set(err, TERN_E_IO, "%s: port %d: the HTTP library does not start", s->options.host, s->port);
}

void http_quiesce(server *s)
{
  int fd = MHD_quiesce_daemon(s->daemon);
  if (fd >= 0)
    close(fd);
}

void http_stop(server *s)
{
  MHD_stop_daemon(s->daemon);
  s->daemon = NULL;
}
