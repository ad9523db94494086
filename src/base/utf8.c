/* utf8.c - table 3-7 of the Unicode standard ("well-formed UTF-8 byte sequences") as code. */
#include "base/utf8.h"

/* Range of the second byte that may follow `lead`, and the whole length; 0 for bytes that cannot lead. */
static int lead_length(uint8_t lead, uint8_t *low, uint8_t *high)
{
  *low = 0x80;
  *high = 0xbf;
  if (lead < 0x80)
    return 1;
  if (lead < 0xc2)
    return 0;
  if (lead < 0xe0)
    return 2;
  if (lead < 0xf0) {
    if (lead == 0xe0)
      *low = 0xa0;
    if (lead == 0xed)
      *high = 0x9f;
    return 3;
  }
  if (lead < 0xf5) {
    if (lead == 0xf0)
      *low = 0x90;
    if (lead == 0xf4)
      *high = 0x8f;
    return 4;
  }
  return 0;
}

/* How many bytes at s form a valid beginning; *want gets the length the lead byte announces (0: no lead byte). */
static size_t valid_prefix(const char *s, size_t n, size_t *want)
{
  uint8_t low, high;
  int length = lead_length((uint8_t)s[0], &low, &high);
  *want = (size_t)length;
  if (length == 0)
    return 0;
  size_t i = 1;
  for (; i < (size_t)length && i < n; i++) {
    uint8_t b = (uint8_t)s[i];
    if (b < low || b > high)
      break;
    low = 0x80;
    high = 0xbf;
  }
  return i;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *c)
{
  if (n == 0)
    return 0;
  uint8_t b = (uint8_t)s[0];
  if (b < 0x80) {
    *c = b;
    return 1;
  }
  size_t want, have = valid_prefix(s, n, &want);
  if (want == 0 || have < want)
    return 0;
  uint32_t value = b & (0xffu >> (want + 1));
  for (size_t i = 1; i < want; i++)
    value = value << 6 | ((uint8_t)s[i] & 0x3f);
  *c = value;
  return want;
}

size_t utf8_broken(const char *s, size_t n, bool *incomplete)
{
  size_t want, have = valid_prefix(s, n, &want);
  *incomplete = want != 0 && have == n && have < want;
  return have ? have : 1;
}

size_t utf8_encode(uint32_t c, char out[4])
{
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = n - 1; i > 0; i--, c >>= 6)
    out[i] = (char)(0x80 | (c & 0x3f));
  out[0] = (char)((0xf00u >> n) | c);
  return n;
}

bool utf8_valid(const char *s, size_t n, size_t *bad)
{
  for (size_t i = 0; i < n;) {
    uint32_t c;
    size_t used = utf8_decode(s + i, n - i, &c);
    if (used == 0) {
      if (bad)
        *bad = i;
      return false;
    }
    i += used;
  }
  return true;
}

size_t utf8_length(const char *s, size_t n)
{
  size_t count = 0;
  for (size_t i = 0; i < n; i++)
    count += ((uint8_t)s[i] & 0xc0) != 0x80;
  return count;
}
