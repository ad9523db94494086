/* env.c - see env.h. */
#include "cli/env.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/args.h"

enum { DEFAULT_STALL = 10, MOST_TOKEN = 4096 };

static const char *get(const char *name)
{
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

/* A "~" that no shell has replaced (quotes, an env file) is HOME, as huggingface_hub has it. */
static const char *add_home(const char *path, buf *out)
{
  const char *home = get("HOME");
  if (!home || path[0] != '~' || (path[1] && path[1] != '/'))
    return path;
  buf_adds(out, home);
  return path + 1;
}

/* "A/B", NULL where A is NULL. *failed: no memory. */
static char *join(const char *a, const char *b, bool *failed)
{
  if (!a)
    return NULL;
  buf path = {0};
  a = add_home(a, &path);
  buf_addf(&path, "%s%s", a, b);
  char *text = buf_take(&path);
  *failed |= !text;
  return text;
}

/* HF_HOME, or where it is without that, and TAIL. */
static char *hub_home(const char *tail, bool *failed)
{
  buf path = {0};
  const char *own = get("HF_HOME"), *caches = get("XDG_CACHE_HOME"), *home = get("HOME");
  if (!own && !caches && !home)
    return NULL;
  const char *begin = add_home(own ? own : caches ? caches : home, &path);
  buf_addf(&path, "%s%s%s", begin, own ? "" : caches ? "/huggingface" : "/.cache/huggingface", tail);
  char *text = buf_take(&path);
  *failed |= !text;
  return text;
}

tern_status env_read(cli_env *out, tern_error *err)
{
  const char *home = get("HOME"), *threads = get("TERN_THREADS"), *value;
  bool failed = false;
  *out = (cli_env){0};
  if ((value = get("TERN_HOME")))
    out->tern_home = join(value, "", &failed);
  else
    out->tern_home = join(home, "/.cache/tern", &failed);
  if ((value = get("HF_HUB_CACHE")))
    out->hub_cache = join(value, "", &failed);
  else
    out->hub_cache = hub_home("/hub", &failed);
  int64_t count = 0;
  if (failed || (threads && !args_read_int(threads, 1, 1024, &count)))
    env_clear(out);
  if (failed)
    return err_nomem(err, "environment");
  if (threads && !count)
    return err_set(err, TERN_E_USAGE, "TERN_THREADS: \"%.60s\" is not a whole number from 1 to 1024", threads);
  out->threads = (int)count;
  return TERN_OK;
}

char *env_prepared(void)
{
  const char *own = get("TERN_HOME");
  bool failed = false;
  return own ? join(own, "/prepared", &failed) : join(get("HOME"), "/.cache/tern/prepared", &failed);
}

void env_clear(cli_env *e)
{
  mem_free(e->tern_home);
  mem_free(e->hub_cache);
  *e = (cli_env){0};
}

/* As huggingface_hub reads its switches. */
static bool is_true(const char *value)
{
  static const char *const words[] = {"1", "ON", "YES", "TRUE"};
  for (size_t i = 0; value && i < sizeof words / sizeof *words; i++)
    if (!strcasecmp(value, words[i]))
      return true;
  return false;
}

/* A text without the white space around it; NULL: nothing is left. */
static char *trimmed(const char *text, bool *failed)
{
  text += strspn(text, " \t\r\n");
  size_t n = strlen(text);
  while (n && strchr(" \t\r\n", text[n - 1]))
    n--;
  char *copy = n ? mem_strndup(text, n) : NULL;
  *failed |= n && !copy;
  return copy;
}

/* *out is NULL where there is none. A file that is there and cannot be read is an error: the repo would seem absent. */
static tern_status read_token(char **out, tern_error *err)
{
  const char *own = get("HF_TOKEN"), *place = get("HF_TOKEN_PATH");
  bool failed = false;
  size_t size;
  mode_t type = 0;
  char *text = NULL, *path = NULL;
  if (own || is_true(get("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) {
    *out = own ? trimmed(own, &failed) : NULL;
    return failed ? err_nomem(err, "token") : TERN_OK;
  }
  path = place ? join(place, "", &failed) : hub_home("/token", &failed);
  tern_status status = failed ? err_nomem(err, "environment") : path ? path_type(path, &type, err) : TERN_OK;
  if (status == TERN_OK && type)
    status = file_read(path, MOST_TOKEN, &text, &size, err);
  if (status == TERN_OK && text) {
    *out = trimmed(text, &failed);
    status = failed ? err_nomem(err, "token") : TERN_OK;
  }
  mem_free(text);
  mem_free(path);
  return status;
}

char *env_endpoint(void)
{
  const char *own = get("HF_ENDPOINT");
  char *endpoint = mem_strdup(own ? own : "https://huggingface.co");
  for (size_t n = endpoint ? strlen(endpoint) : 0; n && endpoint[n - 1] == '/';)
    endpoint[--n] = 0;
  return endpoint;
}

tern_status env_read_hub(cli_hub_env *out, tern_error *err)
{
  const char *stall = get("HF_HUB_DOWNLOAD_TIMEOUT");
  int64_t seconds = DEFAULT_STALL;
  *out = (cli_hub_env){.offline = is_true(get("HF_HUB_OFFLINE"))};
  if (stall && !args_read_int(stall, 1, 86400, &seconds))
    return err_set(err, TERN_E_USAGE, "HF_HUB_DOWNLOAD_TIMEOUT: \"%.60s\" is not a whole number of seconds from 1",
                   stall);
  out->stall_seconds = (int)seconds;
  out->endpoint = env_endpoint();
  if (!out->endpoint)
    return err_nomem(err, "environment");
  return read_token(&out->token, err);
}

void env_clear_hub(cli_hub_env *e)
{
  mem_free(e->endpoint);
  mem_free(e->token);
  *e = (cli_hub_env){0};
}

bool env_no_color(void)
{
  return get("NO_COLOR") != NULL;
}

bool env_plain_terminal(void)
{
  const char *kind = get("TERM");
  return !kind || !strcmp(kind, "dumb");
}

char *env_history(void)
{
  const char *own = get("TERN_HOME");
  bool failed = false;
  return own ? join(own, "/history", &failed) : join(get("HOME"), "/.cache/tern/history", &failed);
}
