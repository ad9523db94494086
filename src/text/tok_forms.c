/* tok_forms.c - the Unicode normalisation forms NFC, NFD, NFKC and NFKD.
 *
 * Decompositions, combining classes and compositions of pairs are utf8proc's. Which characters have any comes from the
 * reference (unicode_is_composing): its database is older than utf8proc's, and a character that it does not know stays
 * as it is. Text is worked on in segments: one character and all following ones that could change, move or join. A
 * segment of one plain character, which is nearly all of most texts, is copied.
 */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/tok_impl.h"
#include "text/tok_unicode.h"

typedef struct segment {
  utf8proc_int32_t *points; /* decomposed */
  uint8_t *classes;
  size_t count, points_capacity, classes_capacity;
  utf8proc_int32_t *sorted; /* scratch of order_run */
  size_t sorted_capacity;
} segment;

static bool room(segment *g, size_t more)
{
  return mem_grow(&g->points, &g->points_capacity, g->count + more, sizeof *g->points) &&
         mem_grow(&g->classes, &g->classes_capacity, g->count + more, sizeof *g->classes);
}

static uint8_t combining_class(utf8proc_int32_t c)
{
  return unicode_is_composing((uint32_t)c) ? (uint8_t)utf8proc_get_property(c)->combining_class : 0;
}

static bool decompose(segment *g, uint32_t c, bool compatible)
{
  enum { LONGEST = 32 }; /* the longest decomposition has 18 characters */
  utf8proc_int32_t parts[LONGEST];
  utf8proc_ssize_t n = 1;
  parts[0] = (utf8proc_int32_t)c;
  if (unicode_is_composing(c)) {
    int boundary = 0;
    n = utf8proc_decompose_char((utf8proc_int32_t)c, parts, LONGEST,
                                compatible ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE, &boundary);
    if (n < 1 || n > LONGEST) {
      parts[0] = (utf8proc_int32_t)c;
      n = 1;
    }
  }
  if (!room(g, (size_t)n))
    return false;
  for (utf8proc_ssize_t i = 0; i < n; i++) {
    g->points[g->count] = parts[i];
    g->classes[g->count++] = combining_class(parts[i]);
  }
  return true;
}

/* Sorts points [begin, end), all of class > 0, by class and stably: by insertion, or by counting where that would take
 * long (texts of nothing but accents exist). */
static bool order_run(segment *g, size_t begin, size_t end)
{
  if (end - begin <= 32) {
    for (size_t i = begin + 1; i < end; i++) {
      utf8proc_int32_t point = g->points[i];
      uint8_t class = g->classes[i];
      size_t k = i;
      for (; k > begin && g->classes[k - 1] > class; k--) {
        g->points[k] = g->points[k - 1];
        g->classes[k] = g->classes[k - 1];
      }
      g->points[k] = point;
      g->classes[k] = class;
    }
    return true;
  }
  size_t starts[257] = {0}, n = end - begin;
  if (!mem_grow(&g->sorted, &g->sorted_capacity, n, sizeof *g->sorted))
    return false;
  for (size_t i = begin; i < end; i++)
    starts[g->classes[i] + 1]++;
  for (int k = 0; k < 256; k++)
    starts[k + 1] += starts[k];
  size_t at = begin;
  for (size_t i = begin; i < end; i++)
    g->sorted[starts[g->classes[i]]++] = g->points[i];
  memcpy(g->points + begin, g->sorted, n * sizeof *g->points);
  for (int k = 0; k < 256; k++) /* starts[k] is now the end of class k */
    for (; at < begin + starts[k]; at++)
      g->classes[at] = (uint8_t)k;
  return true;
}

static bool order(segment *g)
{
  for (size_t i = 0; i < g->count;) {
    size_t end = i;
    while (end < g->count && g->classes[end] > 0)
      end++;
    if (end - i > 1 && !order_run(g, i, end))
      return false;
    i = end + (end == i);
  }
  return true;
}

/* The character that a and b make together, or -1. */
static utf8proc_int32_t compose_pair(utf8proc_int32_t a, utf8proc_int32_t b)
{
  utf8proc_int32_t pair[3] = {a, b, 0};
  if (!unicode_is_composing((uint32_t)b))
    return -1;
  utf8proc_ssize_t n = utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  return n == 1 && unicode_is_composing((uint32_t)pair[0]) ? pair[0] : -1;
}

/* Composition as the standard has it (D117): a character joins the last starter before it unless something of its own
 * class or higher, or another starter, stands between. */
static void compose(segment *g)
{
  size_t kept = 0, starter = SIZE_MAX;
  uint8_t last_class = 0;
  for (size_t i = 0; i < g->count; i++) {
    uint8_t class = g->classes[i];
    bool adjacent = starter != SIZE_MAX && starter + 1 == kept;
    if (starter != SIZE_MAX && (adjacent || (last_class < class && last_class != 0))) {
      utf8proc_int32_t joined = compose_pair(g->points[starter], g->points[i]);
      if (joined >= 0) {
        g->points[starter] = joined;
        continue;
      }
    }
    if (class == 0)
      starter = kept;
    last_class = class;
    g->points[kept] = g->points[i];
    g->classes[kept++] = class;
  }
  g->count = kept;
}

static bool emit(segment *g, norm_kind form, buf *out)
{
  if (!order(g))
    return false;
  if (form == NORM_NFC || form == NORM_NFKC)
    compose(g);
  for (size_t i = 0; i < g->count; i++)
    buf_add_utf8(out, (uint32_t)g->points[i]);
  g->count = 0;
  return true;
}

bool norm_form(norm_kind form, const char *s, size_t n, buf *out)
{
  bool compatible = form == NORM_NFKC || form == NORM_NFKD, ok = true;
  segment g = {0};
  for (size_t i = 0; i < n && ok;) {
    uint32_t c, next = 0;
    size_t length = utf8_decode(s + i, n - i, &c), end = i + length, more = 0;
    bool plain = !unicode_is_composing(c);
    if (end < n)
      more = utf8_decode(s + end, n - end, &next);
    if (plain && (!more || !unicode_is_composing(next))) {
      buf_add(out, s + i, length);
      i = end;
      continue;
    }
    ok = decompose(&g, c, compatible);
    while (ok && more && unicode_is_composing(next)) {
      ok = decompose(&g, next, compatible);
      end += more;
      more = end < n ? utf8_decode(s + end, n - end, &next) : 0;
    }
    ok = ok && emit(&g, form, out);
    i = end;
  }
  mem_free(g.points);
  mem_free(g.classes);
  mem_free(g.sorted);
  return ok && !out->failed;
}

bool norm_form_stands(const char *s, size_t n)
{
  for (size_t i = 0; i < n;) {
    uint64_t word;
    if (i + 8 <= n && (memcpy(&word, s + i, 8), (word & 0x8080808080808080u) == 0)) {
      i += 8;
      continue;
    }
    uint32_t c;
    size_t length = utf8_decode(s + i, n - i, &c);
    if (length == 0 || unicode_is_composing(c))
      return false;
    i += length;
  }
  return true;
}
