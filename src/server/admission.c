/* admission.c - what a request's headers alone show: that it should not be answered, before its body is read. See
 * srv.h.
 *
 * Web pages are kept out. A browser sends a page's simple requests to any address, and to this machine's own under any
 * name that a resolver gives it: the first have the page's Origin, the second a Host that is no name of this machine.
 * Pages of origins that --cors names may ask. Where there are keys, all but /health wants one.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/keys.h"

/* ---- names ---- */

typedef struct host_name {
  char text[256]; /* without port and brackets */
  bool v6;
} host_name;

/* Of HOST, HOST:PORT or [ADDRESS]:PORT; empty, which is nobody's, for what is none of them or too long. */
static host_name name_of(const char *authority)
{
  host_name out = {.v6 = *authority == '['};
  size_t n = out.v6 ? strcspn(++authority, "]") : strcspn(authority, ":/");
  bool ends = !out.v6 || (authority[n] == ']' && (!authority[n + 1] || authority[n + 1] == ':'));
  snprintf(out.text, sizeof out.text, "%.*s", ends && n < sizeof out.text ? (int)n : 0, authority);
  return out;
}

static bool is_address(const host_name *h)
{
  struct in6_addr any;
  return inet_pton(h->v6 ? AF_INET6 : AF_INET, h->text, &any) == 1;
}

static bool is_localhost(const host_name *h)
{
  static const char name[] = "localhost", below[] = ".localhost";
  size_t n = strlen(h->text);
  return !strcasecmp(h->text, name) || (n >= sizeof below && !strcasecmp(h->text + n - (sizeof below - 1), below));
}

/* An address cannot be another's name for this machine. */
static bool is_own(const server *s, const char *host)
{
  host_name h = name_of(host);
  return is_address(&h) || is_localhost(&h) || !strcasecmp(h.text, s->options.host);
}

/* A page of this machine, or of the server's own host and port as the client calls them (a proxy's pages). */
static bool is_near(const char *origin, const char *host)
{
  const char *at = strstr(origin, "://");
  if (!at)
    return false; /* "null": a file, a sandbox */
  at += 3;
  host_name h = name_of(at);
  bool loopback = is_address(&h) && (h.v6 ? !strcmp(h.text, "::1") : !strncmp(h.text, "127.", 4));
  return loopback || is_localhost(&h) || (host && !strcasecmp(at, host));
}

/* ---- the whole ---- */

bool srv_refuse(const server *s, const srv_headers *h, srv_response *a)
{
  char message[200];
  if (h->lengths > 1 || (h->lengths && h->encoded))
    srv_error(a, 400, NULL, NULL, "headers: more than one length of the body");
  else if (h->packed && strcasecmp(h->packed, "identity") != 0)
    srv_error(a, 415, "Content-Encoding", NULL, "Content-Encoding: bodies are taken as they are");
  else if (!h->host && h->wants_host)
    srv_error(a, 400, NULL, NULL, "headers: no Host");
  else if (s->socket.loopback && h->host && !is_own(s, h->host)) {
    snprintf(message, sizeof message, "Host: \"%.100s\" is no name of this machine, where alone the server listens",
             h->host);
    srv_error(a, 403, NULL, "foreign_host", message);
  } else if (h->origin && !is_near(h->origin, h->host) && !keys_allow_origin(s, h->origin)) {
    snprintf(message, sizeof message, "Origin: \"%.100s\": pages from elsewhere are not answered", h->origin);
    srv_error(a, 403, NULL, "foreign_origin", message);
  } else if (strcmp(h->path, "/health") != 0 && !keys_allow(s, h->authorization, h->key)) {
    srv_error(a, 401, NULL, "invalid_api_key",
              "a key is wanted, as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
  } else if (h->announced > h->most_announced) {
    snprintf(message, sizeof message, "body: more than %zu bytes", s->options.most_body);
    srv_error(a, 413, NULL, "body_too_large", message);
  } else
    return false;
  return true;
}
