/* library.c - GET /library: the models on this machine, not only the one that is served. What they are is the
 * program's to say (server_options.library): the server knows no caches. */
#include "server/srv.h"

void info_library(server *s, const srv_request *q, srv_response *a)
{
  (void)q;
  if (!s->options.library) {
    srv_error(a, 404, NULL, NULL, "this server knows of no models but the one that it serves: GET /v1/models");
    return;
  }
  pthread_mutex_lock(&s->library);
  json_t *models = s->options.library(s->options.user);
  pthread_mutex_unlock(&s->library);
  srv_json(a, 200, json_pack("{ss so}", "object", "list", "data", models)); /* NULL: no memory, as srv_json says */
}
