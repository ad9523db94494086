/* library.c - GET /library: the models on this machine, not only the one that is served. What they are is the
 * program's to say (server_options.library): the server knows no caches. Looking at every model is work as that of a
 * large body is, so it takes a turn: who has left meanwhile, or finds the server closing, costs nothing. */
#include "server/srv.h"

void info_library(server *s, const srv_request *q, srv_response *a)
{
  if (!s->options.library) {
    srv_error(a, 404, NULL, NULL, "this server knows of no models but the one that it serves: GET /v1/models");
    return;
  }
  if (!srv_turn_begin(s, SIZE_MAX, q->fd)) {
    a->gone = !srv_draining(s);
    if (!a->gone)
      srv_error(a, 503, NULL, "closing", "the server is closing");
    return;
  }
  pthread_mutex_lock(&s->library);
  json_t *models = s->options.library(s->options.user);
  pthread_mutex_unlock(&s->library);
  srv_json(a, 200, json_pack("{ss so}", "object", "list", "data", models)); /* NULL: no memory, as srv_json says */
}
