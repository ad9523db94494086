/* tok_charsmap.c - SentencePiece's precompiled character map (the Precompiled normaliser).
 *
 * The map is a double-array trie from byte strings to offsets into a block of NUL-terminated replacements. Text is cut
 * into grapheme clusters; a cluster shorter than six bytes is looked up whole, and where that finds nothing, or the
 * cluster is longer, each of its characters is. A look-up takes the shortest key that begins the string and replaces
 * all of the string by it: odd, but that is what the reference does, and models were trained on it.
 *
 * Layout: uint32 byte size of the trie, the trie's units (little endian), the replacements. A unit holds a label in
 * bits 0-7 (and bit 31 for values), bit 8 "has a value", and the offset of its children in bits 10 and up, which bit 9
 * scales by 256 (the Darts-clone format).
 */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/tok_impl.h"

static size_t unit_offset(uint32_t unit)
{
  return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The replacement for s[0..n), or NULL. */
static const char *find(const norm_step *step, const char *s, size_t n, size_t *length)
{
  size_t node = unit_offset(step->trie[0]);
  for (size_t i = 0; i < n && s[i]; i++) {
    node ^= (uint8_t)s[i];
    if (node >= step->trie_size)
      return NULL;
    uint32_t unit = step->trie[node];
    if ((unit & (1u << 31 | 0xff)) != (uint8_t)s[i])
      return NULL;
    node ^= unit_offset(unit);
    if (!(unit >> 8 & 1))
      continue;
    if (node >= step->trie_size)
      return NULL;
    size_t at = step->trie[node] & 0x7fffffff;
    if (at > step->replacements.n)
      return NULL;
    *length = strnlen(step->replacements.s + at, step->replacements.n - at);
    return step->replacements.s + at;
  }
  return NULL;
}

static void map_characters(const norm_step *step, const char *s, size_t n, buf *out)
{
  for (size_t i = 0; i < n;) {
    uint32_t c;
    size_t length = utf8_decode(s + i, n - i, &c), replaced;
    const char *by = find(step, s + i, length, &replaced);
    buf_add(out, by ? by : s + i, by ? replaced : length);
    i += length;
  }
}

/* Bytes of the grapheme cluster at s. */
static size_t cluster(const char *s, size_t n)
{
  uint32_t c, next;
  size_t at = utf8_decode(s, n, &c), length;
  utf8proc_int32_t state = 0;
  while (at < n && (length = utf8_decode(s + at, n - at, &next)) != 0) {
    if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state))
      break;
    at += length;
    c = next;
  }
  return at;
}

bool charsmap_apply(const norm_step *step, const char *s, size_t n, buf *out)
{
  for (size_t i = 0; i < n;) {
    size_t length = cluster(s + i, n - i), replaced;
    const char *by = length < 6 ? find(step, s + i, length, &replaced) : NULL;
    if (by)
      buf_add(out, by, replaced);
    else
      map_characters(step, s + i, length, out);
    i += length;
  }
  return !out->failed;
}

tern_status charsmap_from_bytes(tok *t, const uint8_t *data, size_t n, norm_step *out, tern_error *err)
{
  uint32_t size = 0;
  for (int i = 3; n >= 4 && i >= 0; i--)
    size = size << 8 | data[i];
  if (n < 8 || size < 4 || size % 4 || size > n - 4)
    return err_set(err, TERN_E_FORMAT, "%s: normalizer: precompiled_charsmap: cut off or damaged", t->file);
  size_t units = size / 4, rest = n - 4 - size;
  uint32_t *trie = arena_alloc(&t->arena, size);
  char *text = arena_strndup(&t->arena, (const char *)data + 4 + size, rest);
  if (!trie || !text)
    return err_nomem(err, "the tokenizer's precompiled_charsmap");
  for (size_t i = 0; i < units; i++) {
    const uint8_t *u = data + 4 + 4 * i;
    trie[i] = (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
  }
  size_t bad;
  if (!utf8_valid(text, rest, &bad))
    return err_set(err, TERN_E_FORMAT, "%s: normalizer: precompiled_charsmap: replacements are not UTF-8", t->file);
  *out = (norm_step){.kind = NORM_PRECOMPILED, .trie = trie, .trie_size = units, .replacements = {text, rest}};
  return TERN_OK;
}

static int base64_value(char c)
{
  return c >= 'A' && c <= 'Z'   ? c - 'A'
         : c >= 'a' && c <= 'z' ? c - 'a' + 26
         : c >= '0' && c <= '9' ? c - '0' + 52
         : c == '+'             ? 62
         : c == '/'             ? 63
                                : -1;
}

tern_status charsmap_read(tok *t, tok_span base64, norm_step *out, tern_error *err)
{
  size_t n = base64.n;
  while (n && base64.s[n - 1] == '=')
    n--;
  uint8_t *data = mem_alloc(n / 4 * 3 + 3);
  if (!data)
    return err_nomem(err, "the tokenizer's precompiled_charsmap");
  size_t length = 0;
  uint32_t bits = 0;
  bool good = n % 4 != 1;
  for (size_t i = 0; i < n && good; i++) {
    int v = base64_value(base64.s[i]);
    good = v >= 0;
    bits = bits << 6 | (uint32_t)(v & 63);
    if (i % 4)
      data[length++] = (uint8_t)(bits >> (6 - i % 4 * 2));
  }
  tern_status status = good ? charsmap_from_bytes(t, data, length, out, err)
                            : err_set(err, TERN_E_FORMAT, "%s: normalizer: precompiled_charsmap: not base64", t->file);
  mem_free(data);
  return status;
}
