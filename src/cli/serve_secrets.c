/* serve_secrets.c - see serve_secrets.h. */
#include "cli/serve_secrets.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"

enum { MOST_BYTES = 1 << 20 };

static tern_status add_key(serve_secrets *s, const char *key, size_t n, tern_error *err)
{
  if (!mem_grow(&s->keys, &s->capacity, s->n_keys + 1, sizeof *s->keys))
    return err_nomem(err, "keys");
  s->keys[s->n_keys] = mem_strndup(key, n);
  return s->keys[s->n_keys++] ? TERN_OK : err_nomem(err, "keys");
}

/* A key a line; empty lines are none. */
static tern_status add_lines(serve_secrets *s, const char *path, const char *text, tern_error *err)
{
  size_t before = s->n_keys;
  while (*text) {
    size_t n = strcspn(text, "\r\n");
    if (n)
      TRY(add_key(s, text, n, err));
    text += n + (text[n] != '\0');
  }
  return s->n_keys > before ? TERN_OK : err_set(err, TERN_E_FORMAT, "--api-key-file: %s: it has no key", path);
}

static tern_status read_text(const char *flag, const char *path, char **text, tern_error *err)
{
  size_t n;
  tern_status status = file_read(path, MOST_BYTES, text, &n, err);
  if (status != TERN_OK)
    return err_prefix(err, status, "%s", flag);
  if (strlen(*text) == n)
    return TERN_OK;
  mem_free(*text);
  *text = NULL;
  return err_set(err, TERN_E_FORMAT, "%s: %s: it has a NUL and is no text", flag, path);
}

static tern_status read_keys(const cli_args *a, serve_secrets *s, tern_error *err)
{
  char *text = NULL;
  for (size_t i = 0; i < a->api_keys.n; i++)
    TRY(add_key(s, a->api_keys.items[i], strlen(a->api_keys.items[i]), err));
  if (!a->api_key_file)
    return TERN_OK;
  TRY(read_text("--api-key-file", a->api_key_file, &text, err));
  tern_status status = add_lines(s, a->api_key_file, text, err);
  explicit_bzero(text, strlen(text));
  mem_free(text);
  return status;
}

tern_status serve_read_secrets(const cli_args *a, serve_secrets *out, tern_error *err)
{
  *out = (serve_secrets){0};
  if (!a->tls_cert != !a->tls_key)
    return err_set(err, TERN_E_USAGE, "%s: is nothing without %s", a->tls_cert ? "--tls-cert" : "--tls-key",
                   a->tls_cert ? "--tls-key" : "--tls-cert");
  TRY(read_keys(a, out, err));
  if (!a->tls_cert)
    return TERN_OK;
  TRY(read_text("--tls-cert", a->tls_cert, &out->certificate, err));
  return read_text("--tls-key", a->tls_key, &out->private_key, err);
}

static void wipe(char *text)
{
  if (text)
    explicit_bzero(text, strlen(text));
  mem_free(text);
}

void serve_free_secrets(serve_secrets *s)
{
  for (size_t i = 0; i < s->n_keys; i++)
    wipe(s->keys[i]);
  mem_free(s->keys);
  wipe(s->private_key);
  mem_free(s->certificate);
  *s = (serve_secrets){0};
}
