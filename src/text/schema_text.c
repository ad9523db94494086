/* schema_text.c - free text up to a marker: see schema_impl.h.
 *
 * Aho and Corasick's automaton over characters: a rule for each beginning of a marker that has been seen, and one for
 * none. Markers are few and short, so what leads where is found by trying. No NUL comes.
 *
 * Where the text must be none of some words, it begins in other rules: one for each beginning of a word, blanks before
 * it aside. Behind a whole word only what makes another one of it may come.
 */
#include <string.h>

#include "base/utf8.h"
#include "text/schema_impl.h"

enum { MOST_MARKERS = 4, MOST_CHARS = 64, MOST_BARRED = 4, MOST_LETTERS = 8, LAST_CHAR = 0x10ffff };

typedef struct word {
  uint32_t chars[MOST_CHARS];
  uint32_t rules[MOST_CHARS]; /* by how much of it has been seen */
  size_t n;
  uint32_t to;
} word;

typedef struct text_plan {
  schema_compiler *c;
  word words[MOST_MARKERS];
  size_t n;
  uint32_t letters[MOST_MARKERS * MOST_CHARS]; /* of all markers, ascending, once each */
  size_t n_letters;
} text_plan;

static bool same(const uint32_t *a, const uint32_t *b, size_t n)
{
  return memcmp(a, b, n * sizeof *a) == 0;
}

/* The first marker that begins with these letters. */
static const word *begun_by(const text_plan *p, const uint32_t *letters, size_t n)
{
  for (size_t i = 0; i < p->n; i++)
    if (p->words[i].n >= n && same(p->words[i].chars, letters, n))
      return &p->words[i];
  return NULL;
}

/* Where a letter leads behind k letters of a marker: to a rule; GRAM_NONE: none of it is seen. */
static uint32_t after(const text_plan *p, const word *w, size_t k, uint32_t letter)
{
  uint32_t seen[MOST_CHARS];
  memcpy(seen, w->chars, k * sizeof *seen);
  seen[k] = letter;
  for (size_t n = k + 1; n; n--) {
    const word *next = begun_by(p, seen + k + 1 - n, n);
    if (next)
      return n == next->n ? next->to : next->rules[n];
  }
  return GRAM_NONE;
}

/* Characters from lo to hi lead to a rule. */
static void lead(const text_plan *p, gram_alternatives *a, uint32_t lo, uint32_t hi, uint32_t rule)
{
  if (lo > hi)
    return;
  if (lo < 0x80) {
    gram_branch(p->c->g, a, true);
    gram_bytes(p->c->g, (uint8_t)lo, (uint8_t)(hi < 0x7f ? hi : 0x7f));
    schema_leave(p->c, rule);
    lo = 0x80;
  }
  if (lo > hi)
    return;
  gram_branch(p->c->g, a, true);
  if (lo == 0x80 && hi == LAST_CHAR)
    schema_call(p->c, RULE_WIDE);
  else
    gram_chars(p->c->g, lo, hi);
  schema_leave(p->c, rule);
}

static void emit_node(const text_plan *p, const word *w, size_t k, bool ends)
{
  grammar *g = p->c->g;
  uint32_t from = 1, none = p->words[0].rules[0];
  gram_alternatives a = GRAM_ALTERNATIVES;
  gram_begin(g, w->rules[k]);
  for (size_t i = 0; i < p->n_letters && !g->over; i++) {
    uint32_t letter = p->letters[i], to = after(p, w, k, letter);
    if (to == GRAM_NONE)
      continue;
    lead(p, &a, from, letter - 1, none);
    lead(p, &a, letter, letter, to);
    from = letter + 1;
  }
  lead(p, &a, from, LAST_CHAR, none);
  gram_branch(g, &a, false);
  if (ends)
    gram_return(g);
  else
    schema_emit_never(p->c);
  gram_join(g, &a);
}

static void add_letter(text_plan *p, uint32_t letter)
{
  size_t at = 0;
  while (at < p->n_letters && p->letters[at] < letter)
    at++;
  if (at < p->n_letters && p->letters[at] == letter)
    return;
  memmove(p->letters + at + 1, p->letters + at, (p->n_letters - at) * sizeof *p->letters);
  p->letters[at] = letter;
  p->n_letters++;
}

static void read_marker(text_plan *p, const schema_marker *marker, uint32_t back)
{
  word *w = &p->words[p->n++];
  size_t length = strlen(marker->text), size;
  w->to = marker->rule == GRAM_NONE ? back : marker->rule;
  for (size_t at = 0; at < length && w->n < MOST_CHARS; at += size) {
    size = utf8_decode(marker->text + at, length - at, &w->chars[w->n]);
    size = size ? size : 1;
    add_letter(p, w->chars[w->n++]);
  }
}

/* What an automaton needs of its markers. */
static text_plan *plan(schema_compiler *c, const schema_marker *markers, size_t n, uint32_t back)
{
  text_plan *p = arena_zalloc(&c->memory, sizeof *p);
  if (!p || n > MOST_MARKERS || !n) {
    c->g->failed = true;
    return NULL;
  }
  p->c = c;
  for (size_t i = 0; i < n; i++)
    read_marker(p, &markers[i], back);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < p->words[i].n; k++) {
      const word *first = begun_by(p, p->words[i].chars, k);
      p->words[i].rules[k] = first == &p->words[i] ? gram_rule(c->g) : first->rules[k];
    }
  return p;
}

static void emit_nodes(const text_plan *p, bool ends, uint32_t back)
{
  grammar *g = p->c->g;
  for (size_t i = 0; i < p->n && !g->over && !g->failed; i++)
    for (size_t k = 0; k < p->words[i].n; k++)
      if (begun_by(p, p->words[i].chars, k) == &p->words[i])
        emit_node(p, &p->words[i], k, ends);
  gram_begin(g, back);
  gram_return(g);
}

void schema_emit_text(schema_compiler *c, const schema_marker *markers, size_t n, bool ends)
{
  uint32_t back = gram_rule(c->g);
  const text_plan *p = plan(c, markers, n, back);
  if (!p)
    return;
  schema_leave(c, p->words[0].rules[0]);
  emit_nodes(p, ends, back);
}

/* ---- text that is none of some words ---- */

/* The i-th word's k letters are those of an earlier one, which has the rule. */
static size_t owner(const char *const *words, size_t i, size_t k)
{
  for (size_t j = 0; j < i; j++)
    if (strlen(words[j]) >= k && !strncmp(words[j], words[i], k))
      return j;
  return i;
}

static bool is_blank(uint32_t c)
{
  return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Behind k letters of a word: where a letter leads; GRAM_NONE: nowhere. */
static uint32_t barred_after(const text_plan *p, const char *const *words, size_t n,
                             uint32_t rules[MOST_BARRED][MOST_LETTERS + 1], size_t i, size_t k, uint32_t c)
{
  uint32_t marker = after(p, &p->words[0], 0, c), free = marker == GRAM_NONE ? p->words[0].rules[0] : marker;
  if (!words[i][k]) /* a whole one: what would leave it one is barred */
    return c > ' ' && c < 0x7f && marker == GRAM_NONE ? free : GRAM_NONE;
  if (!k && is_blank(c))
    return rules[0][0];
  uint32_t lower = c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c;
  for (size_t j = 0; j < n; j++)
    if (owner(words, j, k) == i && (uint8_t)words[j][k] == lower)
      return rules[owner(words, j, k + 1)][k + 1];
  return free;
}

/* Bytes that lead to one rule are one range. */
static void emit_barred(const text_plan *p, const char *const *words, size_t n,
                        uint32_t rules[MOST_BARRED][MOST_LETTERS + 1], size_t i, size_t k)
{
  gram_alternatives a = GRAM_ALTERNATIVES;
  uint32_t from = 1, to = barred_after(p, words, n, rules, i, k, 1);
  gram_begin(p->c->g, rules[i][k]);
  for (uint32_t c = 2; c <= 0x80; c++) {
    uint32_t next = c < 0x80 ? barred_after(p, words, n, rules, i, k, c) : GRAM_NONE;
    if (next == to && c < 0x80)
      continue;
    if (to != GRAM_NONE)
      lead(p, &a, from, c - 1, to);
    from = c;
    to = next;
  }
  if (words[i][k])
    lead(p, &a, 0x80, LAST_CHAR, p->words[0].rules[0]);
  gram_branch(p->c->g, &a, false);
  schema_emit_never(p->c);
  gram_join(p->c->g, &a);
}

void schema_emit_text_but(schema_compiler *c, const char *marker, const char *const *words, size_t n)
{
  uint32_t rules[MOST_BARRED][MOST_LETTERS + 1] = {{0}}, back = gram_rule(c->g);
  const text_plan *p = plan(c, &(schema_marker){marker, GRAM_NONE}, 1, back);
  if (!p)
    return;
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k <= strlen(words[i]); k++)
      if (owner(words, i, k) == i)
        rules[i][k] = gram_rule(c->g);
  schema_leave(c, n ? rules[0][0] : p->words[0].rules[0]);
  for (size_t i = 0; i < n && !c->g->over && !c->g->failed; i++)
    for (size_t k = 0; k <= strlen(words[i]); k++)
      if (owner(words, i, k) == i)
        emit_barred(p, words, n, rules, i, k);
  emit_nodes(p, false, back);
}
