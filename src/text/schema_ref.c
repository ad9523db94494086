/* schema_ref.c - what "#/…" names in a document: a JSON Pointer (RFC 6901) as the fragment of a URI. */
#include <stdlib.h>
#include <string.h>

#include "text/schema_impl.h"

/* In place: %41 as in URIs, ~0 and ~1 as in pointers. */
static void unescape(char *part)
{
  char *to = part;
  for (const char *s = part; *s; s++) {
    char hex[3] = {s[0] == '%' ? s[1] : 0, s[0] == '%' && s[1] ? s[2] : 0, 0}, *end;
    unsigned long code = strtoul(hex, &end, 16);
    if (hex[0] && hex[1] && !*end && code) {
      *to++ = (char)code;
      s += 2;
    } else if (*s == '~' && (s[1] == '0' || s[1] == '1')) {
      *to++ = *++s == '0' ? '~' : '/';
    } else {
      *to++ = *s;
    }
  }
  *to = '\0';
}

static const json_t *step_into(const json_t *value, const char *part)
{
  char *end;
  if (json_is_object(value))
    return json_object_get(value, part);
  unsigned long index = strtoul(part, &end, 10);
  return json_is_array(value) && *part && !*end ? json_array_get(value, index) : NULL;
}

tern_status schema_find(const json_t *root, const char *ref, const json_t **out, tern_error *err)
{
  const json_t *found = root;
  char *copy = mem_strdup(ref + 1), *rest = copy;
  if (!copy)
    return err_nomem(err, "schema");
  while (found && rest && *rest) {
    char *part = rest + 1; /* behind the slash */
    rest = strchr(part, '/');
    if (rest)
      *rest = '\0';
    unescape(part);
    found = step_into(found, part);
    if (rest)
      *rest = '/';
  }
  mem_free(copy);
  *out = found;
  return TERN_OK;
}
