/* spacing.c - see spacing.h. */
#include "engine/spacing.h"

#include <string.h>

spacing spacing_open(const tok *t)
{
  return (spacing){.byte_level = tok_is_byte_level(t), .cleans = tok_cleans_up_spaces(t)};
}

void spacing_close(spacing *s)
{
  buf_free(&s->text);
}

/* Whether the space before `rest` is one that cleaning drops. */
static bool superfluous(const char *rest, size_t n)
{
  static const char *const before[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
  for (size_t i = 0; i < sizeof before / sizeof *before; i++)
    if (n >= strlen(before[i]) && memcmp(rest, before[i], strlen(before[i])) == 0)
      return true;
  return false;
}

static void let_through(spacing *s, const char *text, size_t n, const char **out, size_t *length)
{
  if (s->waiting) {
    buf_clear(&s->text);
    buf_addc(&s->text, ' ');
    buf_add(&s->text, text, n);
    s->waiting = false;
    text = s->text.failed ? text : s->text.data;
    n += !s->text.failed;
  }
  if (n && *text == ' ' && (!s->begun || (s->cleans && superfluous(text + 1, n - 1)))) {
    text++;
    n--;
  }
  s->begun |= n > 0;
  *out = text;
  *length = n;
}

void spacing_push(spacing *s, const char *text, size_t n, const char **out, size_t *length)
{
  *out = text;
  *length = n;
  if (!s->byte_level || n == 0)
    return;
  if (n == 1 && *text == ' ' && !s->waiting) {
    s->waiting = true;
    *length = 0;
    return;
  }
  let_through(s, text, n, out, length);
}

void spacing_finish(spacing *s, const char *text, size_t n, const char **out, size_t *length)
{
  *out = text;
  *length = n;
  if (s->byte_level)
    let_through(s, text, n, out, length);
}
