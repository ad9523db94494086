/* buf.h - a growable string of bytes. Starts zeroed. The first failed growth sticks: later appends do nothing and
 * `failed` says so, so that a long run of appends needs one check at its end. */
#ifndef TERN_BASE_BUF_H
#define TERN_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct buf {
  char *data; /* NUL-terminated once anything was appended, else NULL */
  size_t length, capacity;
  bool failed;
} buf;

void buf_add(buf *b, const char *s, size_t n);
void buf_adds(buf *b, const char *s);
void buf_addc(buf *b, char c);
void buf_add_utf8(buf *b, uint32_t c);
void buf_addf(buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_clear(buf *b); /* length 0, memory and `failed` kept */
void buf_free(buf *b);
/* Hands the string over (mem_free), never NULL unless the buffer failed; the buffer is then empty. */
char *buf_take(buf *b);

#endif
