/* tok_classes.c - spells out the Unicode classes of a regular expression.
 *
 * What \p{L} or \w matches depends on the Unicode version that a regular expression library was built with, and
 * tokenizers must cut texts as the reference's does. So \p{...} with a general category or Han, \w and \d are written
 * as lists of ranges from the reference's tables before the expression is compiled; all else is copied.
 */
#include <stdio.h>
#include <string.h>

#include "text/tok_impl.h"
#include "text/tok_unicode.h"

#define ONE(category) (1u << (category))
#define LETTERS (ONE(GC_LU) | ONE(GC_LL) | ONE(GC_LT) | ONE(GC_LM) | ONE(GC_LO))
#define MARKS (ONE(GC_MN) | ONE(GC_MC) | ONE(GC_ME))
#define NUMBERS (ONE(GC_ND) | ONE(GC_NL) | ONE(GC_NO))
#define PUNCTUATION (ONE(GC_PC) | ONE(GC_PD) | ONE(GC_PS) | ONE(GC_PE) | ONE(GC_PI) | ONE(GC_PF) | ONE(GC_PO))
#define SYMBOLS (ONE(GC_SM) | ONE(GC_SC) | ONE(GC_SK) | ONE(GC_SO))
#define SEPARATORS (ONE(GC_ZS) | ONE(GC_ZL) | ONE(GC_ZP))

#define ASSIGNED (LETTERS | MARKS | NUMBERS | PUNCTUATION | SYMBOLS | SEPARATORS)
#define CONTROLS (ONE(GC_CC) | ONE(GC_CF) | ONE(GC_CO))

typedef struct named { /* name in lower case, without spaces, '_' and '-' */
  const char *name;
  uint32_t categories;
  bool complement; /* what the table does not list is unassigned (Cn) */
} named;

static const named names[] = {
    {"l", LETTERS, false},
    {"letter", LETTERS, false},
    {"m", MARKS, false},
    {"mark", MARKS, false},
    {"n", NUMBERS, false},
    {"number", NUMBERS, false},
    {"p", PUNCTUATION, false},
    {"punctuation", PUNCTUATION, false},
    {"s", SYMBOLS, false},
    {"symbol", SYMBOLS, false},
    {"z", SEPARATORS, false},
    {"separator", SEPARATORS, false},
    {"lu", ONE(GC_LU), false},
    {"uppercaseletter", ONE(GC_LU), false},
    {"ll", ONE(GC_LL), false},
    {"lowercaseletter", ONE(GC_LL), false},
    {"lt", ONE(GC_LT), false},
    {"titlecaseletter", ONE(GC_LT), false},
    {"lm", ONE(GC_LM), false},
    {"modifierletter", ONE(GC_LM), false},
    {"lo", ONE(GC_LO), false},
    {"otherletter", ONE(GC_LO), false},
    {"mn", ONE(GC_MN), false},
    {"nonspacingmark", ONE(GC_MN), false},
    {"mc", ONE(GC_MC), false},
    {"spacingmark", ONE(GC_MC), false},
    {"me", ONE(GC_ME), false},
    {"enclosingmark", ONE(GC_ME), false},
    {"nd", ONE(GC_ND), false},
    {"decimalnumber", ONE(GC_ND), false},
    {"nl", ONE(GC_NL), false},
    {"letternumber", ONE(GC_NL), false},
    {"no", ONE(GC_NO), false},
    {"othernumber", ONE(GC_NO), false},
    {"pc", ONE(GC_PC), false},
    {"connectorpunctuation", ONE(GC_PC), false},
    {"pd", ONE(GC_PD), false},
    {"dashpunctuation", ONE(GC_PD), false},
    {"ps", ONE(GC_PS), false},
    {"openpunctuation", ONE(GC_PS), false},
    {"pe", ONE(GC_PE), false},
    {"closepunctuation", ONE(GC_PE), false},
    {"pi", ONE(GC_PI), false},
    {"initialpunctuation", ONE(GC_PI), false},
    {"pf", ONE(GC_PF), false},
    {"finalpunctuation", ONE(GC_PF), false},
    {"po", ONE(GC_PO), false},
    {"otherpunctuation", ONE(GC_PO), false},
    {"sm", ONE(GC_SM), false},
    {"mathsymbol", ONE(GC_SM), false},
    {"sc", ONE(GC_SC), false},
    {"currencysymbol", ONE(GC_SC), false},
    {"sk", ONE(GC_SK), false},
    {"modifiersymbol", ONE(GC_SK), false},
    {"so", ONE(GC_SO), false},
    {"othersymbol", ONE(GC_SO), false},
    {"zs", ONE(GC_ZS), false},
    {"spaceseparator", ONE(GC_ZS), false},
    {"zl", ONE(GC_ZL), false},
    {"lineseparator", ONE(GC_ZL), false},
    {"zp", ONE(GC_ZP), false},
    {"paragraphseparator", ONE(GC_ZP), false},
    {"cc", ONE(GC_CC), false},
    {"control", ONE(GC_CC), false},
    {"cf", ONE(GC_CF), false},
    {"format", ONE(GC_CF), false},
    {"co", ONE(GC_CO), false},
    {"privateuse", ONE(GC_CO), false},
    {"c", ASSIGNED, true},
    {"other", ASSIGNED, true},
    {"cn", ASSIGNED | CONTROLS, true},
    {"unassigned", ASSIGNED | CONTROLS, true},
};

/* ---- sets of characters ---------------------------------------------------------------------------------------- */

typedef struct writer { /* writes ascending ranges, or the gaps between them */
  buf *out;
  bool negated;
  uint32_t next; /* negated: first character not yet spoken of */
  uint32_t low, high;
  bool open;
} writer;

static void write_range(writer *w, uint32_t low, uint32_t high)
{
  if (low <= 0xdfff && high >= 0xd800) { /* no pattern can name the surrogates, no text holds them */
    if (low < 0xd800)
      write_range(w, low, 0xd7ff);
    if (high > 0xdfff)
      write_range(w, 0xe000, high);
    return;
  }
  buf_addf(w->out, low == high ? "\\x{%x}" : "\\x{%x}-\\x{%x}", low, high);
}

static void close_range(writer *w)
{
  if (!w->open)
    return;
  if (!w->negated)
    write_range(w, w->low, w->high);
  else if (w->low > w->next)
    write_range(w, w->next, w->low - 1);
  w->next = w->high + 1;
}

static void add_range(writer *w, uint32_t low, uint32_t high)
{
  if (w->open && low == w->high + 1) {
    w->high = high;
    return;
  }
  close_range(w);
  w->open = true;
  w->low = low;
  w->high = high;
}

static void finish(writer *w)
{
  close_range(w);
  if (w->negated && w->next <= 0x10ffff)
    write_range(w, w->next, 0x10ffff);
}

static void write_categories(uint32_t categories, bool negated, buf *out)
{
  writer w = {.out = out, .negated = negated};
  for (size_t i = 0; i < unicode_categories_count; i++)
    if (categories >> unicode_categories[i].number & 1)
      add_range(&w, unicode_categories[i].low, unicode_categories[i].high);
  finish(&w);
}

static void write_table(const unicode_range *ranges, size_t n, bool negated, buf *out)
{
  writer w = {.out = out, .negated = negated};
  for (size_t i = 0; i < n; i++)
    add_range(&w, ranges[i].low, ranges[i].high);
  finish(&w);
}

/* The set by its name in \p{...}. False: not one that is spelt out. */
static bool write_named(const char *name, size_t n, bool negated, buf *out)
{
  char plain[32];
  size_t length = 0;
  for (size_t i = 0; i < n; i++) {
    char c = name[i];
    if (c == ' ' || c == '_' || c == '-')
      continue;
    if (length + 1 == sizeof plain)
      return false;
    plain[length++] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
  }
  plain[length] = '\0';
  if (strcmp(plain, "han") == 0) {
    write_table(unicode_han, unicode_han_count, negated, out);
    return true;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(plain, names[i].name) == 0) {
      write_categories(names[i].categories, negated != names[i].complement, out);
      return true;
    }
  return false;
}

/* ---- the expression -------------------------------------------------------------------------------------------- */

/* The escape at s: what it stands for goes to *out, its length is returned; 0: to be copied. */
static size_t write_escape(const char *s, size_t n, bool in_class, buf *out)
{
  switch (n < 2 ? 0 : s[1]) {
  case 'w':
  case 'W':
    if (in_class) /* six characters of Latin-1 are word characters only outside */
      write_table(unicode_class_word, unicode_class_word_count, s[1] == 'W', out);
    else
      write_table(unicode_regex_word, unicode_regex_word_count, s[1] == 'W', out);
    return 2;
  case 'd':
  case 'D':
    write_categories(ONE(GC_ND), s[1] == 'D', out);
    return 2;
  case 'p':
  case 'P': {
    const char *close = n > 2 && s[2] == '{' ? memchr(s, '}', n) : NULL;
    if (!close)
      return 0;
    bool caret = s[3] == '^';
    const char *name = s + 3 + caret;
    return write_named(name, (size_t)(close - name), (s[1] == 'P') != caret, out) ? (size_t)(close - s) + 1 : 0;
  }
  default:
    return 0;
  }
}

bool pattern_spell_out(const char *s, size_t n, buf *out)
{
  size_t depth = 0;
  for (size_t i = 0; i < n;) {
    if (s[i] == '\\') {
      size_t before = out->length;
      if (depth == 0) /* a class of its own, untouched by (?i), as the escape is */
        buf_adds(out, "(?-i:[");
      size_t used = write_escape(s + i, n - i, depth > 0, out);
      if (used && depth == 0)
        buf_adds(out, "])");
      if (!used) {
        out->length = before; /* nothing was written but the opening */
        used = n - i < 2 ? n - i : 2;
        buf_add(out, s + i, used);
      }
      i += used;
      continue;
    }
    size_t used = 1;
    if (depth && n - i > 2 && s[i] == '[' && s[i + 1] == ':') { /* [:alpha:] */
      const char *close = memmem(s + i + 2, n - i - 2, ":]", 2);
      if (close) {
        used = (size_t)(close + 2 - (s + i));
        buf_add(out, s + i, used);
        i += used;
        continue;
      }
    }
    if (s[i] == '[') {
      depth++;
      used += i + 1 < n && s[i + 1] == '^';
      used += i + used < n && s[i + used] == ']'; /* a bracket that comes first stands for itself */
    } else if (s[i] == ']' && depth)
      depth--;
    buf_add(out, s + i, used);
    i += used;
  }
  return !out->failed;
}
