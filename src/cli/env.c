/* env.c - see env.h. HF_TOKEN is for downloads, which this build does not make. */
#include "cli/env.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/args.h"

static const char *get(const char *name)
{
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

/* "A/B", NULL where A is NULL. *failed: no memory. */
static char *join(const char *a, const char *b, bool *failed)
{
  if (!a)
    return NULL;
  buf path = {0};
  buf_addf(&path, "%s%s", a, b);
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
  else if ((value = get("HF_HOME")))
    out->hub_cache = join(value, "/hub", &failed);
  else
    out->hub_cache = join(home, "/.cache/huggingface/hub", &failed);
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
