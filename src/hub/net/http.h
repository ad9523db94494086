/* http.h - GET over libcurl: one connection's worth of state, used by one thread.
 *
 * Redirects are followed here and not by libcurl, one by one, so that three rules can be read in one place: the token
 * goes to the hub's own origin (scheme, host, port) and to no other; https never becomes http; no scheme but these two
 * is followed. A body goes to the caller's sink as it comes, but only that of an answer 200 or 206.
 *
 * What came of a request is an http_outcome, since a caller does different things with each; the line in `err` says
 * what happened in every case but HTTP_ANSWERED.
 */
#ifndef TERN_HUB_NET_HTTP_H
#define TERN_HUB_NET_HTTP_H

#include "base/buf.h"
#include "base/status.h"

typedef struct http http;

typedef enum http_outcome {
  HTTP_ANSWERED, /* there is a reply, of whatever status, and its body came whole */
  HTTP_BROKEN,   /* no connection, reset, stalled, cut short: worth another try */
  HTTP_FAILED,   /* another try would end the same: a forbidden redirect, a certificate, a full disk */
  HTTP_CANCELLED,
} http_outcome;

typedef struct http_settings {
  const char *endpoint;          /* "https://huggingface.co", without a slash at its end */
  const char *token;             /* NULL: none */
  int stall_seconds;             /* without a byte for so long the connection counts as broken */
  bool (*cancelled)(void *user); /* asked ten times a second, by the thread that waits; NULL: nothing cancels */
  void *user;
} http_settings;

/* What is kept of an answer's head. Texts but `link` are cut to their room. */
typedef struct http_reply {
  long status;
  char error_code[64], error_message[256]; /* X-Error-Code, X-Error-Message */
  buf link;                                /* all Link headers, with commas between; `failed`: no memory */
  char range[96];                          /* Content-Range */
  int64_t length;                          /* Content-Length; -1: not said */
  double retry_after;                      /* seconds; -1: not said */
  double limit_seconds;                    /* until requests are left again, by RateLimit; -1: some are, or not said */
  char *url;                               /* where it was in the end (mem_free); NULL: nothing answered */
} http_reply;

/* Takes a part of the body. `offset`: bytes of this body that came before. False: enough, which is no fault if *enough
 * was set to true, else HTTP_FAILED with the caller's line in err. */
typedef bool http_sink(void *user, const http_reply *reply, uint64_t offset, const char *data, size_t size,
                       bool *enough, tern_error *err);

typedef struct http_request {
  const char *url;
  uint64_t first, last; /* bytes to ask for, ends included, where `ranged` */
  bool ranged;
  bool text; /* an answer to be had whole: may come compressed, and in five minutes at most */
  http_sink *sink;
  void *user;
} http_request;

/* Checks the endpoint and the token. `s` and its strings must outlive the handle. */
tern_status http_open(const http_settings *s, http **out, tern_error *err);
void http_close(http *h); /* NULL is fine */

http_outcome http_get(http *h, const http_request *request, http_reply *reply, tern_error *err);
void http_reply_clear(http_reply *reply);

/* `text` as one segment of a path: everything but letters, digits, '-', '.', '_' and '~' escaped; slashes stay where
 * keep_slashes. mem_free; NULL: no memory. */
char *http_escape(const char *text, bool keep_slashes);
/* An address for messages: without the user and the password that may stand before its host. Returns `out`. */
const char *http_shown(const char *url, char *out, size_t room);
/* Whether both are of one scheme, host and port. */
bool http_same_origin(const char *a, const char *b);
bool http_is_cancelled(const http_settings *s);
/* Sleeps; false: cancelled meanwhile. */
bool http_sleep(const http_settings *s, double seconds);

#endif
