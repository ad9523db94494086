/* keys.c - see keys.h.
 *
 * Keys are compared by their digests: all digits of all keys, so that time tells nothing about how much of a guess was
 * right.
 */
#include "server/keys.h"

#include <string.h>

#include "base/sha256.h"

/* ---- keys ---- */

static bool is_key(const char *key)
{
  for (const char *p = key; *p; p++)
    if (*p <= ' ' || *p > '~')
      return false;
  return *key;
}

/* "*", or "SCHEME://HOST" and perhaps ":PORT", as browsers write it. */
static bool is_origin(const char *origin)
{
  const char *at = strstr(origin, "://");
  if (!strcmp(origin, "*"))
    return true;
  return at && at > origin && at[3] && !strpbrk(at + 3, "/?#*@ \t\r\n");
}

tern_status keys_check(const server_options *o, tern_error *err)
{
  for (size_t i = 0; i < o->n_keys; i++)
    if (!is_key(o->keys[i]))
      return err_set(err, TERN_E_USAGE, "--api-key: key %zu: must be visible ASCII characters, and not empty", i + 1);
  for (size_t i = 0; i < o->n_origins; i++)
    if (!is_origin(o->origins[i]))
      return err_set(err, TERN_E_USAGE, "--cors: \"%.100s\" is no origin: http://HOST, https://HOST:PORT, or *",
                     o->origins[i]);
  return TERN_OK;
}

static bool is_same(const char a[SHA256_HEX], const char b[SHA256_HEX])
{
  unsigned differ = 0;
  for (int i = 0; i < SHA256_HEX; i++)
    differ |= (unsigned)((unsigned char)a[i] ^ (unsigned char)b[i]);
  return !differ;
}

static bool is_known(const server *s, const char *key)
{
  char given[SHA256_HEX], own[SHA256_HEX];
  unsigned found = 0;
  sha256_hex(key, strlen(key), given);
  for (size_t i = 0; i < s->options.n_keys; i++) {
    sha256_hex(s->options.keys[i], strlen(s->options.keys[i]), own);
    found |= is_same(given, own);
  }
  return found;
}

bool keys_allow(const server *s, const char *authorization, const char *key)
{
  static const char bearer[] = "Bearer ";
  size_t n = sizeof bearer - 1;
  if (!s->options.n_keys)
    return true;
  if (authorization && !strncasecmp(authorization, bearer, n) && is_known(s, authorization + n))
    return true;
  return key && is_known(s, key);
}

/* ---- origins ---- */

const char *keys_allow_origin(const server *s, const char *origin)
{
  const char *out = NULL;
  for (size_t i = 0; origin && i < s->options.n_origins; i++) {
    if (!strcmp(s->options.origins[i], "*"))
      return "*";
    if (!strcasecmp(s->options.origins[i], origin))
      out = s->options.origins[i];
  }
  return out;
}
