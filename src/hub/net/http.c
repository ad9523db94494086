/* http.c - see http.h. Transfers run on libcurl's multi interface, one at a time: its easy one looks whether it is to
 * stop once a second while nothing comes, and Ctrl-C should not have to wait for that. */
#include "hub/net/http.h"

#include <ctype.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/buf.h"
#include "base/mem.h"

enum { MOST_REDIRECTS = 10, CONNECT_SECONDS = 20, TEXT_SECONDS = 300, WAIT_MS = 100 };

struct http {
  CURL *curl;
  CURLM *multi; /* has the connections, which stay from request to request */
  const http_settings *settings;
  struct curl_slist *authorized; /* the header with the token; NULL: there is none */
  char problem[CURL_ERROR_SIZE];
};

/* One hop of a request. */
typedef struct hop {
  http *h;
  const http_request *request;
  http_reply *reply;
  tern_error *err;
  uint64_t got;
  bool enough, refused; /* by the sink */
} hop;

/* ---- addresses ---- */

/* A part of an address (curl_free), NULL: it has none, or is no address. Ports are always there. */
static char *part_of(const char *url, CURLUPart part)
{
  CURLU *u = curl_url();
  char *text = NULL;
  if (u && curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK)
    curl_url_get(u, part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0);
  curl_url_cleanup(u);
  return text;
}

static bool same_part(const char *a, const char *b, CURLUPart part)
{
  char *x = part_of(a, part), *y = part_of(b, part);
  bool same = x && y && !strcasecmp(x, y);
  curl_free(x);
  curl_free(y);
  return same;
}

bool http_same_origin(const char *a, const char *b)
{
  return same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) && same_part(a, b, CURLUPART_PORT);
}

static bool has_scheme(const char *url, const char *scheme)
{
  char *have = part_of(url, CURLUPART_SCHEME);
  bool same = have && !strcasecmp(have, scheme);
  curl_free(have);
  return same;
}

const char *http_shown(const char *url, char *out, size_t room)
{
  const char *scheme = strstr(url, "://"), *host = scheme ? scheme + 3 : url;
  int before = (int)(host - url);
  const char *end = host + strcspn(host, "/?#");
  for (const char *at = host; at < end; at++)
    if (*at == '@')
      host = at + 1;
  snprintf(out, room, "%.*s%s", before, url, host);
  return out;
}

char *http_escape(const char *text, bool keep_slashes)
{
  buf out = {0};
  buf_adds(&out, "");
  for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
    if (isalnum(*at) || strchr("-._~", *at) || (keep_slashes && *at == '/'))
      buf_addc(&out, (char)*at);
    else
      buf_addf(&out, "%%%02X", *at);
  }
  return buf_take(&out);
}

/* ---- opening ---- */

static tern_status check_settings(const http_settings *s, tern_error *err)
{
  char shown[256];
  if (!has_scheme(s->endpoint, "https") && !has_scheme(s->endpoint, "http"))
    return err_set(err, TERN_E_USAGE, "HF_ENDPOINT: \"%.200s\" is not an http or https address",
                   http_shown(s->endpoint, shown, sizeof shown));
  for (const char *at = s->token; at && *at; at++)
    if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f)
      return err_set(err, TERN_E_USAGE, "HF_TOKEN, or the token file: a character in it that no token has");
  return TERN_OK;
}

tern_status http_open(const http_settings *s, http **out, tern_error *err)
{
  if (curl_global_init(CURL_GLOBAL_DEFAULT) !=
      CURLE_OK) /* counts its calls; libcurl 7.84 on makes it safe in threads */
    return err_set(err, TERN_E_INTERNAL, "libcurl does not start");
  TRY(check_settings(s, err));
  http *h = mem_zalloc(sizeof *h);
  if (!h)
    return err_nomem(err, "connection");
  h->settings = s;
  h->curl = curl_easy_init();
  h->multi = curl_multi_init();
  buf header = {0};
  if (s->token)
    buf_addf(&header, "Authorization: Bearer %s", s->token);
  if (header.data)
    h->authorized = curl_slist_append(NULL, header.data);
  bool failed = !h->curl || !h->multi || header.failed || (s->token && !h->authorized);
  buf_free(&header);
  if (failed) {
    http_close(h);
    return err_nomem(err, "connection");
  }
  *out = h;
  return TERN_OK;
}

void http_close(http *h)
{
  if (!h)
    return;
  curl_easy_cleanup(h->curl);
  curl_multi_cleanup(h->multi);
  curl_slist_free_all(h->authorized);
  mem_free(h);
}

void http_reply_clear(http_reply *reply)
{
  mem_free(reply->url);
  buf_free(&reply->link);
  *reply = (http_reply){0};
}

/* ---- callbacks ---- */

/* Copies the value where the line is the header `name`. */
static bool take_header(const char *line, size_t n, const char *name, char *to, size_t room)
{
  size_t length = strlen(name);
  if (n <= length || line[length] != ':' || strncasecmp(line, name, length) != 0)
    return false;
  const char *from = line + length + 1, *end = line + n;
  while (from < end && isspace((unsigned char)*from))
    from++;
  while (end > from && isspace((unsigned char)end[-1]))
    end--;
  snprintf(to, room, "%.*s", (int)((size_t)(end - from) < room ? (size_t)(end - from) : room - 1), from);
  return true;
}

/* Seconds, or a date. */
static double read_retry_after(const char *text)
{
  if (*text >= '0' && *text <= '9')
    return strtod(text, NULL); /* of whatever length: too long is for the caller to say */
  time_t at = curl_getdate(text, NULL), now = time(NULL);
  return at < 0 ? -1 : at > now ? difftime(at, now) : 0;
}

/* The hub's own way to say it: "\"api\";r=0;t=55", requests and seconds that are left of a window. */
static double read_rate_limit(const char *text)
{
  const char *left = strstr(text, ";r=0;"), *seconds = left ? strstr(left, ";t=") : NULL;
  return seconds && seconds[3] >= '0' && seconds[3] <= '9' ? atof(seconds + 3) : -1;
}

static size_t on_header(char *line, size_t one, size_t n, void *user)
{
  hop *p = user;
  http_reply *r = p->reply;
  char value[64];
  n *= one;
  if (n > 5 && !strncasecmp(line, "HTTP/", 5)) { /* a head begins: of what came before (100 Continue) nothing stays */
    r->error_code[0] = r->error_message[0] = r->range[0] = 0;
    buf_clear(&r->link);
    r->length = -1;
    r->retry_after = r->limit_seconds = -1;
  }
  if (take_header(line, n, "X-Error-Code", r->error_code, sizeof r->error_code) ||
      take_header(line, n, "X-Error-Message", r->error_message, sizeof r->error_message) ||
      take_header(line, n, "Content-Range", r->range, sizeof r->range))
    return n;
  if (n > 5 && !strncasecmp(line, "Link:", 5)) {
    buf_adds(&r->link, ", ");
    buf_add(&r->link, line + 5, n - 5);
  }
  if (take_header(line, n, "Retry-After", value, sizeof value))
    r->retry_after = read_retry_after(value);
  else if (take_header(line, n, "RateLimit", value, sizeof value))
    r->limit_seconds = read_rate_limit(value);
  else if (take_header(line, n, "Content-Length", value, sizeof value) && *value &&
           strspn(value, "0123456789") == strlen(value) && strlen(value) < 19)
    r->length = atoll(value);
  return n;
}

static size_t on_body(char *data, size_t one, size_t n, void *user)
{
  hop *p = user;
  n *= one;
  if (!p->reply->status)
    curl_easy_getinfo(p->h->curl, CURLINFO_RESPONSE_CODE, &p->reply->status);
  if (p->reply->status != 200 && p->reply->status != 206)
    return n; /* a page about an error */
  if (!p->request->sink(p->request->user, p->reply, p->got, data, n, &p->enough, p->err)) {
    p->refused = !p->enough;
    return n + 1; /* anything but n ends the transfer */
  }
  p->got += n;
  return n;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
  const hop *p = user;
  (void)a, (void)b, (void)c, (void)d;
  return http_is_cancelled(p->h->settings);
}

/* ---- one request ---- */

static void set_options(http *h, hop *p, const char *url)
{
  CURL *c = h->curl;
  const http_settings *s = h->settings;
  char range[64];
  curl_easy_reset(c);
  curl_easy_setopt(c, CURLOPT_URL, url);
  curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
  curl_easy_setopt(c, CURLOPT_QUICK_EXIT, 1L); /* a name that is still looked up holds nobody up */
#endif
  curl_easy_setopt(c, CURLOPT_USERAGENT, "tern");
  curl_easy_setopt(c, CURLOPT_ERRORBUFFER, h->problem);
  curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
  curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)s->stall_seconds);
  curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(c, CURLOPT_HEADERDATA, p);
  curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(c, CURLOPT_WRITEDATA, p);
  curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(c, CURLOPT_XFERINFODATA, p);
  if (p->request->text) { /* a proxy may compress unasked */
    curl_easy_setopt(c, CURLOPT_ACCEPT_ENCODING, "");
    curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)TEXT_SECONDS);
  }
  if (h->authorized && http_same_origin(url, s->endpoint))
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, h->authorized);
  if (p->request->ranged) {
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)p->request->first,
             (unsigned long long)p->request->last);
    curl_easy_setopt(c, CURLOPT_RANGE, range); /* copied */
  }
}

/* Failures that no further try mends. */
static bool is_final(CURLcode code)
{
  switch (code) {
  case CURLE_UNSUPPORTED_PROTOCOL:
  case CURLE_URL_MALFORMAT:
  case CURLE_PEER_FAILED_VERIFICATION:
  case CURLE_SSL_CACERT_BADFILE:
  case CURLE_SSL_ISSUER_ERROR:
  case CURLE_COULDNT_RESOLVE_PROXY:
  case CURLE_OUT_OF_MEMORY:
    return true;
  default:
    return false;
  }
}

/* Host of an address, for messages: the rest may hold signatures. */
static const char *host_of(const char *url, char out[256])
{
  char *host = part_of(url, CURLUPART_HOST), *port = part_of(url, CURLUPART_PORT);
  snprintf(out, 256, "%.200s:%s", host ? host : "?", port ? port : "?");
  curl_free(host);
  curl_free(port);
  return out;
}

/* Whether a certificate was refused for its dates: by what libcurl's own library left, OpenSSL's number or GnuTLS's
 * bits, which have none of these values in common. */
static bool is_out_of_date(http *h)
{
  enum { NOT_YET = 9, NO_LONGER = 10, GNUTLS_NOT_YET = 1 << 9, GNUTLS_NO_LONGER = 1 << 10 };
  long result = 0;
  curl_easy_getinfo(h->curl, CURLINFO_SSL_VERIFYRESULT, &result);
  return result == NOT_YET || result == NO_LONGER || (result & (GNUTLS_NOT_YET | GNUTLS_NO_LONGER));
}

/* What to do about a failure, by libcurl's code. */
static const struct {
  CURLcode code;
  const char *advice;
} advice[] = {
    {CURLE_COULDNT_RESOLVE_HOST, "is there a network? (what tern ls shows runs without one)"},
    {CURLE_COULDNT_RESOLVE_PROXY, "is the proxy's name right? (http_proxy, https_proxy, all_proxy)"},
    {CURLE_PEER_FAILED_VERIFICATION,
     "a proxy that opens TLS, or no certificates on this system (the package ca-certificates)?"},
    {CURLE_SSL_CACERT_BADFILE, "the system's certificates are missing (the package ca-certificates)"},
};

/* ": what to do" behind the message of a failure. A clock that may be wrong is shown. */
static void advise(http *h, CURLcode code, char out[200])
{
  time_t now = time(NULL);
  struct tm utc;
  *out = 0;
  if (code == CURLE_PEER_FAILED_VERIFICATION && is_out_of_date(h) && gmtime_r(&now, &utc)) {
    strftime(out, 200, ": it is not valid today: is this machine's clock right? (it says %Y-%m-%d)", &utc);
    return;
  }
  for (size_t i = 0; i < sizeof advice / sizeof *advice; i++)
    if (advice[i].code == code) {
      snprintf(out, 200, ": %s", advice[i].advice);
      return;
    }
}

/* Whether a proxy refused to connect us, and what is then to be said. */
static bool is_refused_by_proxy(http *h, tern_error *err)
{
  long status = 0;
  curl_easy_getinfo(h->curl, CURLINFO_HTTP_CONNECTCODE, &status);
  if (status < 400 || status == 408 || status == 429 || status >= 500)
    return false;
  err_set(err, TERN_E_IO, "the proxy answers with status %ld: %s (https_proxy names it, no_proxy goes past it)", status,
          status == 407 ? "it wants a name and a password, as http://NAME:PASSWORD@HOST:PORT"
                        : "it does not let this through");
  return true;
}

/* The transfer that set_options described, to its end or to a cancellation. */
static CURLcode transfer(http *h)
{
  CURLcode result = CURLE_OUT_OF_MEMORY;
  CURLMcode code = curl_multi_add_handle(h->multi, h->curl);
  for (int running = 1; code == CURLM_OK && running;) {
    code = curl_multi_perform(h->multi, &running);
    if (http_is_cancelled(h->settings)) {
      result = CURLE_ABORTED_BY_CALLBACK;
      break;
    }
    if (code == CURLM_OK && running)
      code = curl_multi_poll(h->multi, NULL, 0, WAIT_MS, NULL);
  }
  int left;
  for (const CURLMsg *m; (m = curl_multi_info_read(h->multi, &left));)
    if (m->msg == CURLMSG_DONE)
      result = m->data.result;
  curl_multi_remove_handle(h->multi, h->curl);
  return result;
}

static http_outcome perform(http *h, const char *url, hop *p)
{
  char host[256], next[200];
  set_options(h, p, url);
  h->problem[0] = 0;
  CURLcode code = transfer(h);
  curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &p->reply->status);
  if (code == CURLE_OK || p->enough)
    return HTTP_ANSWERED;
  if (p->refused)
    return HTTP_FAILED;
  if (http_is_cancelled(h->settings))
    return err_set(p->err, TERN_E_CANCELLED, "cancelled"), HTTP_CANCELLED;
  if (code == CURLE_OPERATION_TIMEDOUT && p->reply->status)
    snprintf(h->problem, sizeof h->problem, "nothing came for %d s", h->settings->stall_seconds);
  if (is_refused_by_proxy(h, p->err))
    return HTTP_FAILED;
  const char *problem = *h->problem ? h->problem : curl_easy_strerror(code);
  advise(h, code, next);
  err_set(p->err, TERN_E_IO, "%s: %.300s%s", host_of(url, host), problem, next);
  return is_final(code) ? HTTP_FAILED : HTTP_BROKEN;
}

/* Where the answer sends us; *to (mem_free) is NULL where it is no redirect. */
static http_outcome read_redirect(http *h, const char *from, long status, char **to, tern_error *err)
{
  char *target = NULL, host[256];
  *to = NULL;
  if (status < 300 || status >= 400 || status == 304)
    return HTTP_ANSWERED;
  curl_easy_getinfo(h->curl, CURLINFO_REDIRECT_URL, &target);
  if (!target)
    return err_set(err, TERN_E_FORMAT, "%s: a redirect (%ld) to nowhere", host_of(from, host), status), HTTP_FAILED;
  bool secure = has_scheme(target, "https");
  if (!secure && !has_scheme(target, "http"))
    return err_set(err, TERN_E_UNSUPPORTED, "%s: redirects to \"%.60s\": only http and https are followed",
                   host_of(from, host), target),
           HTTP_FAILED;
  if (!secure && has_scheme(from, "https"))
    return err_set(err, TERN_E_UNSUPPORTED, "%s: redirects from https to http, which is not followed",
                   host_of(from, host)),
           HTTP_FAILED;
  *to = mem_strdup(target);
  return *to ? HTTP_ANSWERED : (err_nomem(err, "redirect"), HTTP_FAILED);
}

http_outcome http_get(http *h, const http_request *request, http_reply *reply, tern_error *err)
{
  char host[256];
  *reply = (http_reply){.length = -1, .retry_after = -1, .limit_seconds = -1};
  reply->url = mem_strdup(request->url);
  for (int hops = 0; reply->url; hops++) {
    hop p = {.h = h, .request = request, .reply = reply, .err = err};
    char *next;
    reply->status = 0;
    http_outcome outcome = perform(h, reply->url, &p);
    if (outcome == HTTP_ANSWERED)
      outcome = read_redirect(h, reply->url, reply->status, &next, err);
    if (outcome != HTTP_ANSWERED || !next)
      return outcome;
    if (hops == MOST_REDIRECTS) {
      mem_free(next);
      err_set(err, TERN_E_LIMIT, "%s: more than %d redirects", host_of(request->url, host), MOST_REDIRECTS);
      return HTTP_FAILED;
    }
    mem_free(reply->url);
    reply->url = next;
  }
  err_nomem(err, "address");
  return HTTP_FAILED;
}

bool http_is_cancelled(const http_settings *s)
{
  return s->cancelled && s->cancelled(s->user);
}

bool http_sleep(const http_settings *s, double seconds)
{
  enum { STEPS_A_SECOND = 20 };
  int64_t steps = (int64_t)(seconds * STEPS_A_SECOND + 0.5);
  for (; steps > 0 && !http_is_cancelled(s); steps--)
    nanosleep(&(struct timespec){.tv_nsec = 1000000000 / STEPS_A_SECOND}, NULL);
  return !http_is_cancelled(s);
}
