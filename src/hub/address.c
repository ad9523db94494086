/* address.c - see address.h. */
#include "hub/address.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { MOST_SEGMENTS = 64 };

static const char hub_host[] = "huggingface.co";

/* ---- hosts ---- */

/* "https://HOST:PORT/…" -> "HOST:PORT", with its length. */
static const char *host_of(const char *address, size_t *n)
{
  const char *scheme = strstr(address, "://");
  const char *host = scheme ? scheme + 3 : address;
  *n = strcspn(host, "/?#");
  for (const char *at = host; at < host + *n; at++)
    if (*at == '@') { /* a name and a password before it */
      *n -= (size_t)(at + 1 - host);
      host = at + 1;
    }
  return host;
}

static bool is_text(const char *a, size_t n, const char *b)
{
  return strlen(b) == n && !strncasecmp(a, b, n);
}

/* The hub's own short host, and the one with www. */
static bool is_hub(const char *host, size_t n)
{
  return is_text(host, n, hub_host) || is_text(host, n, "hf.co") || is_text(host, n, "www.huggingface.co");
}

static bool is_endpoint(const char *host, size_t n, const char *endpoint)
{
  size_t m;
  const char *own = host_of(endpoint, &m);
  return (n == m && !strncasecmp(host, own, n)) || (is_hub(host, n) && is_hub(own, m));
}

bool address_is_one(const char *text, const char *endpoint)
{
  size_t n = strcspn(text, "/");
  return strstr(text, "://") || (text[n] == '/' && (is_hub(text, n) || is_endpoint(text, n, endpoint)));
}

/* ---- the path ---- */

typedef struct segments {
  char *text; /* the path, cut up */
  char *items[MOST_SEGMENTS];
  size_t n;
} segments;

/* %2F and its like, in place; what is no such thing stays. */
static void unescape(char *s)
{
  char *to = s;
  for (; *s; s++) {
    bool escaped = s[0] == '%' && hex_digit(s[1]) >= 0 && hex_digit(s[2]) >= 0 && (s[1] != '0' || s[2] != '0');
    *to++ = escaped ? (char)(hex_digit(s[1]) << 4 | hex_digit(s[2])) : *s;
    s += escaped ? 2 : 0;
  }
  *to = 0;
}

static tern_status cut(const char *path, segments *out, tern_error *err)
{
  *out = (segments){.text = mem_strndup(path, strcspn(path, "?#"))};
  if (!out->text)
    return err_nomem(err, "address");
  char *rest = NULL;
  for (char *at = strtok_r(out->text, "/", &rest); at && out->n < MOST_SEGMENTS; at = strtok_r(NULL, "/", &rest)) {
    unescape(at);
    out->items[out->n++] = at;
  }
  return TERN_OK;
}

/* What messages show of it: no name and password, no query, which may hold signatures. */
static const char *shown(const char *text, char out[320])
{
  size_t n;
  const char *host = host_of(text, &n), *scheme = strstr(text, "://");
  int before = scheme ? (int)(scheme + 3 - text) : 0;
  snprintf(out, 320, "%.*s%.*s", before < 16 ? before : 16, text,
           (int)(strcspn(host, "?#") < 300 ? strcspn(host, "?#") : 300), host);
  return out;
}

/* ---- what it means ---- */

/* Pages of the hub that hold no models, by the first word of the path. */
static const struct {
  const char *word, *what;
} others[] = {{"datasets", "a dataset"}, {"spaces", "a space"}, {"collections", "a collection"}, {"papers", "a paper"}};

/* What follows ORG/NAME. */
typedef enum page_kind { PAGE_REVISION, PAGE_FILE, PAGE_REPO } page_kind;

static const struct {
  const char *word;
  page_kind kind;
} pages[] = {
    {"tree", PAGE_REVISION}, {"commit", PAGE_REVISION},  {"commits", PAGE_REVISION},
    {"blob", PAGE_FILE},     {"resolve", PAGE_FILE},     {"raw", PAGE_FILE},
    {"blame", PAGE_FILE},    {"discussions", PAGE_REPO}, {"edit", PAGE_FILE},
};

/* "a/b/c" of the segments from `first` on; `after` goes behind it. */
static void add_rest(const segments *s, size_t first, const char *after, buf *out)
{
  for (size_t i = first; i < s->n; i++)
    buf_addf(out, "%s%s", i > first ? "/" : "", s->items[i]);
  buf_adds(out, after);
}

static tern_status one_file(const char *text, const char *repo, const segments *s, bool folder, tern_error *err)
{
  buf file = {0};
  add_rest(s, 4, folder ? "/" : "", &file);
  tern_status status = file.failed ? err_nomem(err, "address") : TERN_E_USAGE;
  if (!file.failed)
    err_set(err, TERN_E_USAGE, "%s: is %s of a repo: tern pull %s --include '%.300s' brings it, tern pull %s the model",
            text, folder ? "a folder" : "one file", repo, file.data, repo);
  buf_free(&file);
  return status;
}

/* ORG/NAME and what follows it. */
static tern_status read_page(const char *text, segments *s, hub_repo *out, tern_error *err)
{
  buf repo = {0};
  const char *revision = NULL;
  page_kind kind = PAGE_REPO;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (s->n > 1 && !strcmp(s->items[0], others[i].word))
      return err_set(err, TERN_E_USAGE, "%s: is %s, and tern pulls models: tern pull ORG/NAME", text, others[i].what);
  if (s->n < 2)
    return err_set(err, TERN_E_USAGE, "%s: no ORG/NAME in it, as a repo of the hub is named", text);
  bool known = s->n == 2;
  for (size_t i = 0; s->n > 2 && i < sizeof pages / sizeof *pages; i++)
    if (!strcmp(s->items[2], pages[i].word)) {
      known = true;
      kind = pages[i].kind;
    }
  if (!known)
    return err_set(err, TERN_E_USAGE,
                   "%s: \"%.80s\" after ORG/NAME is no page that names a model: tern pull %.96s/%.96s", text,
                   s->items[2], s->items[0], s->items[1]);
  char *tag = strchr(s->items[1], ':');
  if (tag) {
    *tag++ = 0;
    if (!strcasecmp(tag, "latest"))
      return err_set(err, TERN_E_USAGE, "%s: a repo of the hub has no \":latest\": tern pull %.96s/%.96s", text,
                     s->items[0], s->items[1]);
    return err_set(
        err, TERN_E_USAGE,
        "%s: \":%.80s\" names a GGUF file: tern pull %.96s/%.96s --include '*%.80s*.gguf' brings it, and tern run "
        "%.96s/%.96s:%.80s answers with it",
        text, tag, s->items[0], s->items[1], tag, s->items[0], s->items[1], tag);
  }
  if (kind != PAGE_REPO && s->n > 3)
    revision = s->items[3];
  buf_addf(&repo, "%s/%s%s%s", s->items[0], s->items[1], revision ? "@" : "", revision ? revision : "");
  tern_status status = repo.failed ? err_nomem(err, "address") : repo_parse(repo.data, out, err);
  if (status == TERN_OK && kind != PAGE_REPO && s->n > 4)
    status = one_file(text, !strcmp(out->revision, "main") ? out->id : repo.data, s, kind == PAGE_REVISION, err);
  buf_free(&repo);
  return status;
}

tern_status address_parse(const char *text, const char *endpoint, hub_repo *out, tern_error *err)
{
  segments s;
  size_t n, m;
  char name[320];
  if (!address_is_one(text, endpoint))
    return repo_parse(text, out, err);
  bool short_form = !strncasecmp(text, "hf://", 5); /* ORG/NAME@REV follows, and no host */
  const char *host = host_of(text, &n), *own = host_of(endpoint, &m);
  if (short_form) {
    host = text + 5;
    n = 0;
  } else if (strstr(text, "://") && strncasecmp(text, "https://", 8) != 0 && strncasecmp(text, "http://", 7) != 0) {
    return err_set(err, TERN_E_USAGE, "%s: neither http, https nor hf: tern pull ORG/NAME", shown(text, name));
  } else if (!is_endpoint(host, n, endpoint)) {
    return err_set(
        err, TERN_E_USAGE,
        "%s: %.*s is not the hub that is asked, which is %.*s (HF_ENDPOINT): tern pull ORG/NAME asks that one",
        shown(text, name), (int)(n < 200 ? n : 200), host, (int)(m < 200 ? m : 200), own);
  }
  TRY(cut(host + n, &s, err));
  tern_status status = s.n == MOST_SEGMENTS ? err_set(err, TERN_E_USAGE, "%s: no address of a repo", shown(text, name))
                                            : read_page(shown(text, name), &s, out, err);
  mem_free(s.text);
  return status;
}
