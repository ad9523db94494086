/* server.h - HTTP around a scheduler: one model, served in the OpenAI dialect.
 *
 * A connection has a thread of its own, which parses, renders, encodes and writes; forwards are the scheduler's alone
 * (engine/scheduler.h). Nothing here prints or exits: lines for a log go to a callback.
 *
 * Threads. server_open, server_close and the rest below belong to one thread. `log` is called from any of the server's
 * threads, one at a time. All of them block the program's signals.
 */
#ifndef TERN_SERVER_SERVER_H
#define TERN_SERVER_SERVER_H

#include <jansson.h>

#include "engine/scheduler.h"
#include "server/listen.h"

typedef struct server server;

typedef struct server_options {
  const char *host;           /* as was listened on: a name that requests may call this machine */
  const char *const *names;   /* [n_names], n_names >= 1: names[0] is the model's, the others are accepted too */
  size_t n_names, n_unlisted; /* unlisted: so many at the end are not told of where models are listed */
  const char *const *keys;    /* [n_keys]: who has one of them may ask; none: everybody */
  size_t n_keys;
  const char *const *origins; /* [n_origins]: of pages elsewhere that may ask; "*": of all */
  size_t n_origins;
  const char *certificate, *private_key;     /* texts in PEM: HTTPS; NULL: HTTP */
  tern_sampling sampling;                    /* where a request says nothing */
  bool seeded;                               /* requests without a seed take sampling's; else one is drawn */
  int max_tokens;                            /* likewise; cut to what the context has left */
  const json_t *variables;                   /* of the chat template, for all requests; may be NULL */
  const char *tool_parser;                   /* how the model writes calls; NULL: as its chat template shows */
  const char *reasoning_parser;              /* and reasoning; "none": as content; NULL: as its vocabulary shows */
  sched_options scheduling;                  /* on_death is the server's own */
  size_t most_body;                          /* bytes of a request's body; 0: SERVER_MOST_BODY */
  void (*log)(void *user, const char *line); /* one line a request, without its text; may be NULL */
  json_t *(*library)(void *user); /* the models on this machine, for GET /library, one call at a time; may be NULL */
  void *user;
} server_options;

enum {
  SERVER_MOST_BODY = 16 << 20,
  SERVER_WANTED_FILES =
      2048 /* descriptors of the process with which no connection has to be refused for want of them */
};

/* Starts the worker, and answers on the socket from then on, which is taken over where that succeeds. Options and model
 * must outlive the server. */
tern_status server_open(tern_model *m, const server_options *options, server_socket *socket, server **out,
                        tern_error *err);
/* Readable once the worker has died: the server then answers /health with 503 and is of no use. */
int server_death_fd(const server *s);
/* Why it died. */
tern_status server_death(server *s, tern_error *err);
/* Takes no more connections, lets requests end for so many seconds, cancels what is left, and frees. NULL is fine. */
void server_close(server *s, double drain_seconds);

#endif
