/* buf.c - see buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* Room for n more bytes and the NUL. */
static bool reserve(buf *b, size_t n)
{
  if (b->failed || n > SIZE_MAX / 2 - b->length || !mem_grow(&b->data, &b->capacity, b->length + n + 1, 1)) {
    b->failed = true;
    return false;
  }
  return true;
}

void buf_add(buf *b, const char *s, size_t n)
{
  if (!reserve(b, n))
    return;
  if (n)
    memcpy(b->data + b->length, s, n);
  b->length += n;
  b->data[b->length] = '\0';
}

void buf_adds(buf *b, const char *s)
{
  buf_add(b, s, strlen(s));
}

void buf_addc(buf *b, char c)
{
  buf_add(b, &c, 1);
}

void buf_add_utf8(buf *b, uint32_t c)
{
  char bytes[4];
  buf_add(b, bytes, utf8_encode(c, bytes));
}

void buf_addf(buf *b, const char *format, ...)
{
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (n < 0)
    b->failed = true;
  else if (reserve(b, (size_t)n)) {
    vsnprintf(b->data + b->length, (size_t)n + 1, format, again);
    b->length += (size_t)n;
  }
  va_end(again);
}

void buf_clear(buf *b)
{
  b->length = 0;
  if (b->data)
    b->data[0] = '\0';
}

void buf_free(buf *b)
{
  mem_free(b->data);
  *b = (buf){0};
}

char *buf_take(buf *b)
{
  if (!b->data)
    reserve(b, 0);
  if (b->failed) {
    buf_free(b);
    return NULL;
  }
  b->data[b->length] = '\0';
  char *s = b->data;
  *b = (buf){0};
  return s;
}
