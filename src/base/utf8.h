/* utf8.h - UTF-8 as bytes in, code points out, and the digits of escapes for them. Strict: no overlong forms, no
 * surrogates, nothing above U+10FFFF. */
#ifndef TERN_BASE_UTF8_H
#define TERN_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at `s` (n bytes left). Returns its length 1..4, or 0 where no whole valid character stands. */
size_t utf8_decode(const char *s, size_t n, uint32_t *c);
/* Length in bytes of the maximal broken part at `s` (n > 0, utf8_decode gave 0): what Python's errors="replace" turns
 * into one U+FFFD. Sets *incomplete if the part could still become a character when more bytes follow. */
size_t utf8_broken(const char *s, size_t n, bool *incomplete);
/* Writes c (a valid scalar value) to out[4]; returns its length. */
size_t utf8_encode(uint32_t c, char out[4]);
/* Whether all n bytes are valid; *bad gets the offset of the first fault. `bad` may be NULL. */
bool utf8_valid(const char *s, size_t n, size_t *bad);
/* The value of a hexadecimal digit in ASCII, either case, or -1. */
static inline int hex_digit(char c)
{
  char lower = (char)(c | 0x20);
  return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}
/* Length in bytes of the character that begins at `s`, in text that is known to be valid. */
static inline size_t utf8_size(const char *s)
{
  uint8_t b = (uint8_t)*s;
  return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}
/* Number of code points in n valid bytes. */
size_t utf8_length(const char *s, size_t n);

#endif
