/* srv.h - what the files of src/server/ share: the server, a request as a route sees it, and what a route answers.
 *
 * A route is a function from a request to a response. It runs on the connection's thread and may wait. A response is a
 * whole text, or a source from which pieces of an event stream are drawn.
 */
#ifndef TERN_SERVER_SRV_H
#define TERN_SERVER_SRV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "server/server.h"
#include "text/parts.h"
#include "text/tok.h"

enum {
  SRV_CLASSES = 6, /* of HTTP status: 1xx to 5xx */
  SRV_TURNS = 2,
};

struct server {
  tern_model *model;
  server_options options;
  scheduler *scheduler;
  const calls_format *calls;        /* --tool-parser; NULL: the template tells */
  const parts_reasoning *reasoning; /* NULL: reasoning is content */
  struct MHD_Daemon *daemon;
  server_socket socket;
  int death_fd;
  atomic_bool ending; /* the time to end in is over: answers end now, with an error */
  int ending_fd;      /* readable from then on */
  time_t started;
  atomic_uint_least64_t requests; /* numbers them */
  atomic_int connections;         /* that are open, but for those that are turned away */
  atomic_uint_least64_t responses[SRV_CLASSES];
  pthread_mutex_t log_lock, library;
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t quiet; /* `active` fell to 0 */
  int active;           /* requests whose route has begun and whose answer is not out */
  size_t held;          /* bytes of large bodies that are in memory */
  size_t longest_piece; /* bytes of the tokenizer's longest token; fixed at open */
  double parameters;    /* values of the weights; likewise */
  pthread_t turns[SRV_TURNS];
  int n_turns; /* of `turns` that are taken: the first ones */
  bool draining;
  tern_error death;
  struct resp_store *responses_kept; /* has a lock of its own */
};

typedef struct srv_request {
  uint64_t number;
  const char *path;
  const char *part; /* of the path: what stands for its row's {…} (routes.h), not terminated */
  size_t part_length;
  const char *(*argument)(void *connection, const char *name); /* of the query; NULL: it has none of that name */
  void *connection;
  const char *body; /* [length], and a NUL */
  size_t length;
  int fd;                      /* of the connection: what tells that the client has gone */
  void (*release)(void *user); /* frees the body */
  void *user;
} srv_request;

/* What the headers of a request say about whether to answer it. */
typedef struct srv_headers {
  const char *host, *origin; /* NULL: none */
  const char *authorization, *key;
  const char *path;
  bool wants_host;         /* by the version of HTTP */
  bool encoded;            /* Transfer-Encoding */
  const char *packed;      /* Content-Encoding; NULL: none */
  int lengths;             /* fields with the body's length */
  uint64_t announced;      /* the last of them */
  uint64_t most_announced; /* what is more is not worth reading */
} srv_headers;

/* A stream's text, piece by piece. `next` waits for more and appends it to `out`; false: that was all. *gone: the
 * client has left. `close` cancels what still runs, waits for that, and frees. */
typedef struct srv_source {
  bool (*next)(void *self, buf *out, bool *gone);
  void (*close)(void *self);
  void *self;
} srv_source;

/* An error object in a dialect's shape, new reference. */
typedef json_t *srv_shape(int status, const char *param, const char *code, const char *message);

typedef struct srv_response {
  srv_shape *shape; /* of errors; NULL: OpenAI's */
  int status;
  const char *type;     /* of the content */
  char *body;           /* malloc'ed; NULL: empty, or a stream, or */
  const char *constant; /* this */
  size_t length;
  int retry_after; /* seconds; 0: none */
  srv_source source;
  bool gone; /* the client has left: nobody to answer */
  bool last; /* the connection ends with this answer */
} srv_response;

typedef void srv_route(server *s, const srv_request *q, srv_response *a);

/* The text of a document, of which the reference is taken over; NULL: `out` fails. */
void srv_add_json(buf *out, json_t *document);
/* The same of an object, without its end: members that were too much as a tree may follow as text. */
void srv_begin_object(buf *out, json_t *members);
/* A string; NULL: no memory. */
json_t *srv_string(const buf *text);
/* A document's text, taken over. It failed: a 503 in the response's shape, which takes no memory. */
void srv_text(srv_response *a, int status, buf *text);
/* A JSON document; takes over the reference. NULL, or no memory to print it: as srv_text. */
void srv_json(srv_response *a, int status, json_t *document);
/* An error object, in the response's shape. `param` and `code` may be NULL. */
void srv_error(srv_response *a, int status, const char *param, const char *code, const char *message);
/* The same from an error of tern's: its status chooses HTTP's. */
void srv_fault(srv_response *a, const char *param, const tern_error *err);
srv_shape srv_error_json; /* OpenAI's */
int srv_http_status(tern_status status);
/* The request's body as a JSON object without NaN and infinities; false: the response has the error. The body is freed:
 * only one may read it, once. */
bool srv_body(const srv_request *q, srv_response *a, json_t **out);
/* Whether a request may name the model so. */
bool srv_serves(const server *s, const char *name);
void srv_log(server *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* turns.c: what large requests cost before the scheduler counts them, bounded. */
/* Before the work on a body of so many bytes, or on what is as much (SIZE_MAX): waits until few others are at it, where
 * the body is large. False: the client has left meanwhile, or the server is closing. */
bool srv_turn_begin(server *s, size_t length, int fd);
/* Whether the client behind *fd still waits, for work that may take long. */
tok_ask srv_ask(const int *fd);
/* The thread's turn is over, if it has one: before it waits for the model, and after its route. */
void srv_turn_end(server *s);
/* Whether `bytes` more of a large body may be held. */
bool srv_hold(server *s, size_t bytes);
void srv_unhold(server *s, size_t bytes);
/* Whether so long a text could fit the context, as far as can be told without encoding it. */
tern_status srv_check_length(const server *s, size_t length, tern_error *err);
/* For server_open. */
size_t srv_longest_piece(const tern_model *m);

bool srv_draining(server *s);
/* admission.c: true: the response has the error. */
bool srv_refuse(const server *s, const srv_headers *h, srv_response *a);

/* The routes, by file. */
srv_route oai_chat, oai_completions;      /* openai.c */
srv_route ant_messages, ant_count_tokens; /* anthropic.c */
srv_shape ant_error;
srv_route text_tokenize, text_detokenize, text_template;                 /* text_routes.c */
srv_route info_library;                                                  /* library.c */
srv_route info_models, info_model, info_health, info_metrics, info_root; /* info_routes.c */
srv_route info_openapi;                                                  /* openapi.c */
srv_route oll_chat, oll_generate;                                        /* ollama.c */
srv_route oll_tags, oll_show, oll_ps, oll_version;                       /* ollama_info.c */
srv_route oll_embed, oll_embeddings;                                     /* ollama_embed.c */
srv_shape oll_error;
srv_route emb_create;                                         /* embeddings.c */
srv_route resp_create, resp_get, resp_get_input, resp_delete; /* responses.c */

/* Seconds of a clock that only goes on. */
double srv_seconds(void);

/* http.c: MHD around the routes. */
tern_status http_start(server *s, tern_error *err);
void http_quiesce(server *s);
void http_stop(server *s);

#endif
