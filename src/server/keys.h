/* keys.h - who may ask: keys of programs, and pages of which origins. */
#ifndef TERN_SERVER_KEYS_H
#define TERN_SERVER_KEYS_H

#include "server/srv.h"

/* Whether the options' keys and origins are some, for server_open. */
tern_status keys_check(const server_options *o, tern_error *err);
/* Whether one of the options' keys is in these headers' values, either of which may be NULL: "Bearer KEY", KEY. Takes
 * as long whichever key is tried. Without keys everybody may. */
bool keys_allow(const server *s, const char *authorization, const char *key);
/* What Access-Control-Allow-Origin is to say to a page of this origin; NULL: nothing. */
const char *keys_allow_origin(const server *s, const char *origin);

#endif
