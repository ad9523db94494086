/* ask.h - requests that are tried again, and what a refusal means in plain words. */
#ifndef TERN_HUB_NET_ASK_H
#define TERN_HUB_NET_ASK_H

#include "base/buf.h"
#include "hub/net/pull.h"

/* Tries in a row that bring nothing, before it is given up. */
enum { ASK_TRIES = 6 };

/* Whether an answer of this status may be another one later: 408, 429 and 5xx. */
bool ask_again(long status);
/* Waits before try number `tried` + 1 (0.5 s, doubled each time, 16 s at most; or what Retry-After says). False, with
 * the line: too many tries, too long a wait, or cancelled. `why` is the last failure's line, and `reply` the answer, or
 * NULL. */
bool ask_wait(const http_settings *s, const hub_watch *watch, int tried, const http_reply *reply, const char *what,
              const char *why, tern_error *err);
/* The line for an answer that is not 200 or 206. `path`: the file asked for, or NULL. Never TERN_OK. */
tern_status ask_refusal(const http_settings *s, const hub_repo *repo, const char *path, const http_reply *reply,
                        tern_error *err);
/* The whole body of an address, at most `most` bytes, tried again as above. `link` (may be NULL) gets those headers
 * (buf_free). */
tern_status ask_text(http *h, const http_settings *s, const hub_repo *repo, const char *path, const char *url,
                     size_t most, const hub_watch *watch, buf *text, buf *link, tern_error *err);
/* "ENDPOINT/ORG/NAME/resolve/COMMIT/PATH", mem_free; NULL: no memory. */
char *ask_file_url(const http_settings *s, const hub_plan *p, const char *path);

#endif
