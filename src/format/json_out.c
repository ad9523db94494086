/* json_out.c - see json_out.h. */
#include "format/json_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void jout_str(buf *b, const char *s, size_t n)
{
  buf_addc(b, '"');
  size_t from = 0;
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c >= 0x20 && c != '"' && c != '\\')
      continue;
    buf_add(b, s + from, i - from);
    from = i + 1;
    if (c == '"' || c == '\\')
      buf_addf(b, "\\%c", c);
    else if (c == '\n')
      buf_adds(b, "\\n");
    else
      buf_addf(b, "\\u%04x", c);
  }
  buf_add(b, s + from, n - from);
  buf_addc(b, '"');
}

void jout_item(buf *b)
{
  if (b->length && b->data[b->length - 1] != '{' && b->data[b->length - 1] != '[')
    buf_adds(b, ",\n");
}

void jout_key(buf *b, const char *key)
{
  jout_item(b);
  jout_str(b, key, strlen(key));
  buf_adds(b, ": ");
}

void jout_float32(buf *b, double x)
{
  char text[40] = "0";
  if (x > -1e15 && x < 1e15 && x == (double)(int64_t)x) { /* 100000.0 rather than 1e+05 */
    buf_addf(b, "%" PRId64 ".0", (int64_t)x);
    return;
  }
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if ((float)strtod(text, NULL) == (float)x)
      break;
  }
  buf_adds(b, text);
  /* A float stays one for readers that tell 10000 from 10000.0. */
  if (!strpbrk(text, ".e"))
    buf_adds(b, ".0");
}

void jout_put_strn(buf *b, const char *key, const char *s, size_t n)
{
  jout_key(b, key);
  jout_str(b, s, n);
}

void jout_put_str(buf *b, const char *key, const char *s)
{
  jout_put_strn(b, key, s, strlen(s));
}

void jout_put_int(buf *b, const char *key, int64_t x)
{
  jout_key(b, key);
  buf_addf(b, "%" PRId64, x);
}

void jout_put_float32(buf *b, const char *key, double x)
{
  jout_key(b, key);
  jout_float32(b, x);
}

void jout_put_bool(buf *b, const char *key, bool x)
{
  jout_put_raw(b, key, x ? "true" : "false");
}

void jout_put_raw(buf *b, const char *key, const char *json)
{
  jout_key(b, key);
  buf_adds(b, json);
}
