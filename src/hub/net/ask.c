/* ask.c - see ask.h. */
#include "hub/net/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { LONGEST_WAIT = 300 }; /* seconds; a hub that wants more is asked another day */

bool ask_again(long status)
{
  return status == 408 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

bool ask_wait(const http_settings *s, const hub_watch *watch, int tried, const http_reply *reply, const char *what,
              const char *why, tern_error *err)
{
  char line[600];
  double seconds = 0.5 * (1 << (tried < 5 ? tried : 5));
  double asked = !reply                    ? -1
                 : reply->retry_after >= 0 ? reply->retry_after
                 : reply->status == 429    ? reply->limit_seconds
                                           : -1;
  if (asked >= 0)
    seconds = asked > 0.1 ? asked : 0.1;
  size_t n = strlen(what);
  if (!strncmp(why, what, n) && !strncmp(why + n, ": ", 2)) /* says so itself */
    why += n + 2;
  if (tried + 1 >= ASK_TRIES) {
    err_set(err, TERN_E_IO, "%s: %s (tried %d times)", what, why, ASK_TRIES);
    return false;
  }
  if (seconds > LONGEST_WAIT) {
    err_set(err, TERN_E_IO, "%s: %s: the host asks to wait %.0f s", what, why, seconds);
    return false;
  }
  if (watch->note) {
    snprintf(line, sizeof line, "%.200s: %.250s: again in %.1f s", what, why, seconds);
    watch->note(watch->user, line);
  }
  if (http_sleep(s, seconds))
    return true;
  err_set(err, TERN_E_CANCELLED, "cancelled");
  return false;
}

/* ---- refusals ---- */

typedef struct refusal {
  const char *code; /* X-Error-Code; NULL: whatever it is */
  long status;      /* 0: whatever it is */
  int token;        /* 1: with a token, 0: without, -1: either */
  tern_status kind;
  const char *words; /* %1: the repo, %2: its revision, %3: the file, %4: the endpoint */
} refusal;

/* The first row that fits counts. */
static const refusal refusals[] = {
    {"GatedRepo", 0, 0, TERN_E_IO,
     "%1 is gated: accept its terms at %4/%1, then give a token of that account in HF_TOKEN"},
    {"GatedRepo", 0, 1, TERN_E_IO,
     "%1 is gated, and the account of this token has no access: accept its terms at %4/%1"},
    {"RevisionNotFound", 0, -1, TERN_E_NOT_FOUND, "%1 has no revision \"%2\""},
    {"EntryNotFound", 0, -1, TERN_E_NOT_FOUND, "%1 has no file %3 at this revision"},
    {"DisabledRepo", 0, -1, TERN_E_IO, "%1 was disabled by the hub"},
    {"RepoNotFound", 0, 0, TERN_E_NOT_FOUND,
     "%1: there is no such repo at %4, or it is private (a token in HF_TOKEN shows private ones)"},
    {"RepoNotFound", 0, 1, TERN_E_NOT_FOUND, "%1: there is no such repo at %4, or this token may not see it"},
    {NULL, 401, 1, TERN_E_IO,
     "%1: %4 does not accept this token (HF_TOKEN, or the token file): is it whole and valid?"},
    {NULL, 401, 0, TERN_E_NOT_FOUND,
     "%1: there is no such repo at %4, or it is private or gated (a token in HF_TOKEN shows those)"},
    {NULL, 403, -1, TERN_E_IO, "%1: %4 forbids it"},
    {NULL, 404, -1, TERN_E_NOT_FOUND, "%1: there is no such thing at %4 (a repo, a revision or a file)"},
    {NULL, 407, -1, TERN_E_IO,
     "%1: the proxy wants a name and a password: http_proxy and https_proxy take http://NAME:PASSWORD@HOST:PORT"},
    {NULL, 429, -1, TERN_E_IO, "%1: %4 has had too many requests: try again later"},
};

static void fill(buf *out, const char *words, const char *const values[4])
{
  for (const char *at = words; *at; at++) {
    if (at[0] == '%' && at[1] >= '1' && at[1] <= '4')
      buf_adds(out, values[*++at - '1']);
    else
      buf_addc(out, *at);
  }
}

tern_status ask_refusal(const http_settings *s, const hub_repo *repo, const char *path, const http_reply *reply,
                        tern_error *err)
{
  char shown[256];
  const char *endpoint = http_shown(s->endpoint, shown, sizeof shown);
  const char *const values[4] = {repo->id, repo->revision, path ? path : "", endpoint};
  bool elsewhere = reply->url && !http_same_origin(reply->url, s->endpoint); /* where the hub sent us for the bytes */
  for (size_t i = 0; !elsewhere && i < sizeof refusals / sizeof *refusals; i++) {
    const refusal *r = &refusals[i];
    if ((r->code && strcmp(r->code, reply->error_code) != 0) || (r->status && r->status != reply->status) ||
        (r->token >= 0 && r->token != (s->token != NULL)))
      continue;
    buf line = {0};
    fill(&line, r->words, values);
    tern_status status = line.failed ? err_nomem(err, "message") : err_set(err, r->kind, "%s", line.data);
    buf_free(&line);
    return status;
  }
  return err_set(err, TERN_E_IO, "%s%s%s: %s answered with status %ld%s%s", repo->id, path ? "/" : "", path ? path : "",
                 elsewhere ? "the host of its files" : endpoint, reply->status, *reply->error_message ? ": " : "",
                 reply->error_message);
}

/* ---- whole texts ---- */

typedef struct gather {
  buf *text;
  size_t most;
  const char *what;
} gather;

static bool add(void *user, const http_reply *reply, uint64_t offset, const char *data, size_t size, bool *enough,
                tern_error *err)
{
  gather *g = user;
  (void)reply, (void)enough;
  if (offset == 0)
    buf_clear(g->text);
  if (size > g->most - g->text->length) {
    err_set(err, TERN_E_LIMIT, "%s: an answer of more than %zu bytes", g->what, g->most);
    return false;
  }
  buf_add(g->text, data, size);
  if (g->text->failed)
    err_nomem(err, g->what);
  return !g->text->failed;
}

tern_status ask_text(http *h, const http_settings *s, const hub_repo *repo, const char *path, const char *url,
                     size_t most, const hub_watch *watch, buf *text, buf *link, tern_error *err)
{
  const char *what = path ? path : repo->id;
  for (int tried = 0;; tried++) {
    gather g = {text, most, what};
    http_request request = {.url = url, .text = true, .sink = add, .user = &g};
    http_reply reply;
    tern_error why = {0};
    buf_clear(text);
    http_outcome outcome = http_get(h, &request, &reply, &why);
    if (outcome == HTTP_ANSWERED && reply.status == 200) {
      buf_adds(text, "");
      bool failed = text->failed || reply.link.failed;
      if (link) {
        *link = reply.link;
        reply.link = (buf){0};
      }
      http_reply_clear(&reply);
      return failed ? err_nomem(err, what) : TERN_OK;
    }
    if (outcome == HTTP_ANSWERED)
      ask_refusal(s, repo, path, &reply, &why);
    bool again = outcome == HTTP_BROKEN || (outcome == HTTP_ANSWERED && ask_again(reply.status));
    if (!again)
      err_set(err, why.status, "%s", why.text);
    else
      again = ask_wait(s, watch, tried, outcome == HTTP_ANSWERED ? &reply : NULL, what, why.text, err);
    http_reply_clear(&reply);
    if (!again)
      return err ? err->status : why.status;
  }
}

char *ask_file_url(const http_settings *s, const hub_plan *p, const char *path)
{
  char *escaped = http_escape(path, true);
  buf url = {0};
  if (!escaped)
    return NULL;
  buf_addf(&url, "%s/%s/resolve/%s/%s", s->endpoint, p->repo.id, p->commit, escaped);
  mem_free(escaped);
  return buf_take(&url);
}
