/* schema_pattern.c - strings that match a regular expression, and the formats that are told by one.
 *
 * What is taken is what languages agree on: characters, classes, groups, | and counts; ^ and $ at the ends of an
 * alternative of the whole. Where one of them is missing anything may stand there, for a pattern is searched for. What
 * looks around or back is refused. A counted part is emitted as often as it counts, so the work is bounded, not only
 * the code.
 *
 * Strings are written as JSON writes them: a quote, a backslash and the usual control characters by their escapes, all
 * else as it is; and "<" by its number where it may not stand (no_angle).
 */
#include <string.h>

#include "base/utf8.h"
#include "text/schema_impl.h"

enum { MOST_RANGES = 64, MOST_DEPTH = 24, MOST_COUNT = 2000, MOST_ATOMS = 1 << 17 };

typedef struct range {
  uint32_t lo, hi;
} range;

typedef struct set {
  range at[MOST_RANGES];
  int n;
} set;

typedef struct pattern {
  schema_compiler *c;
  const char *why; /* it is refused; NULL: it is not */
  int atoms;       /* emitted so far */
} pattern;

static const char *refuse(pattern *p, const char *why)
{
  if (!p->why)
    p->why = why;
  return NULL;
}

/* ---- sets of characters ---- */

static void add(pattern *p, set *s, uint32_t lo, uint32_t hi)
{
  if (s->n == MOST_RANGES)
    refuse(p, "a class of too many ranges");
  else
    s->at[s->n++] = (range){lo, hi};
}

/* What is in none of the ranges. */
static void negate(pattern *p, set *s)
{
  set out = {.n = 0};
  uint32_t at = 0;
  while (at <= 0x10ffff) {
    uint32_t next = 0x110000, behind = at;
    for (int i = 0; i < s->n; i++) {
      if (s->at[i].lo <= at && s->at[i].hi >= at && s->at[i].hi + 1 > behind)
        behind = s->at[i].hi + 1;
      if (s->at[i].lo > at && s->at[i].lo < next)
        next = s->at[i].lo;
    }
    if (behind > at) {
      at = behind;
      continue;
    }
    add(p, &out, at, next - 1);
    at = next;
  }
  *s = out;
}

/* The class of \d and the like; false: it is none. */
static bool add_named(pattern *p, set *s, char name)
{
  static const range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}, space[] = {{'\t', '\r'}, {' ', ' '}};
  set inner = {.n = 0};
  switch (name | 0x20) {
  case 'd':
    add(p, &inner, '0', '9');
    break;
  case 'w':
    for (int i = 0; i < 4; i++)
      add(p, &inner, word[i].lo, word[i].hi);
    break;
  case 's':
    for (int i = 0; i < 2; i++)
      add(p, &inner, space[i].lo, space[i].hi);
    break;
  default:
    return false;
  }
  if (name == 'S' || name == 'W' || name == 'D') /* what is beyond ASCII, dialects count differently */
    add(p, &inner, 0x80, 0x10ffff);
  if (!(name & 0x20))
    negate(p, &inner);
  for (int i = 0; i < inner.n; i++)
    add(p, s, inner.at[i].lo, inner.at[i].hi);
  return true;
}

static void emit_escaped(grammar *g, uint32_t c)
{
  static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
  const char *at = c < 0x80 && c ? strchr(plain, (int)c) : NULL;
  if (c == '<') {
    gram_text(g, SCHEMA_ANGLE, strlen(SCHEMA_ANGLE));
    return;
  }
  gram_bytes(g, '\\', '\\');
  if (at)
    gram_bytes(g, (uint8_t)letters[at - plain], (uint8_t)letters[at - plain]);
  else
    schema_emit_nowhere(g);
}

static bool has_escape(const schema_compiler *k, uint32_t c)
{
  return (c == '<' && k->no_angle) || c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' ||
         c == '\t';
}

/* One character of the set, as JSON writes it. */
static void emit_set(pattern *p, const set *s)
{
  enum { PLAIN = 4 };
  const uint32_t angle = p->c->no_angle ? '<' : '\\';
  const range plain[PLAIN] = {{0x20, '"' - 1}, {'"' + 1, angle - 1}, {angle + 1, '\\' - 1}, {'\\' + 1, 0x10ffff}};
  grammar *g = p->c->g;
  gram_alternatives a = GRAM_ALTERNATIVES;
  for (int i = 0; i < s->n && !g->over; i++) {
    for (int k = 0; k < PLAIN; k++) {
      uint32_t lo = s->at[i].lo > plain[k].lo ? s->at[i].lo : plain[k].lo;
      uint32_t hi = s->at[i].hi < plain[k].hi ? s->at[i].hi : plain[k].hi;
      if (lo > hi || (lo >= 0xd800 && hi <= 0xdfff))
        continue;
      gram_branch(g, &a, true);
      gram_chars(g, lo, hi);
    }
    for (uint32_t c = s->at[i].lo; c <= s->at[i].hi && c <= '\\'; c++)
      if (has_escape(p->c, c)) {
        gram_branch(g, &a, true);
        emit_escaped(g, c);
      }
  }
  gram_branch(g, &a, false);
  schema_emit_nowhere(g);
  gram_join(g, &a);
}

/* ---- reading ---- */

/* A character after a backslash, or NULL with the reason. */
static const char *read_escape(pattern *p, const char *s, const char *end, uint32_t *c)
{
  static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v";
  if (s == end)
    return refuse(p, "a backslash at the end");
  const char *at = strchr(from, *s);
  if (at && *s != '0' && *s)
    *c = (uint8_t)to[at - from];
  else if (strchr(".*+?^$|()[]{}\\/-\"' :,=@#%&~<>!;_", *s) && *s)
    *c = (uint8_t)*s;
  else
    return refuse(p, "an escape that is not known here");
  return s + 1;
}

static const char *read_character(pattern *p, const char *s, const char *end, uint32_t *c)
{
  if (*s == '\\')
    return read_escape(p, s + 1, end, c);
  size_t n = utf8_decode(s, (size_t)(end - s), c);
  return n ? s + n : refuse(p, "broken UTF-8");
}

/* s: behind the bracket. */
static const char *read_class(pattern *p, const char *s, const char *end, set *out)
{
  bool not = s < end && *s == '^';
  s += not ;
  while (s && s < end && *s != ']') {
    uint32_t lo = 0, hi = 0;
    if (*s == '[' || (*s == '&' && s + 1 < end && s[1] == '&'))
      return refuse(p, "a class within a class");
    if (*s == '\\' && s + 1 < end && add_named(p, out, s[1])) {
      s += 2;
      continue;
    }
    s = read_character(p, s, end, &lo);
    hi = lo;
    if (s && s + 1 < end && *s == '-' && s[1] != ']')
      s = read_character(p, s + 1, end, &hi);
    if (s && lo > hi)
      return refuse(p, "a range that goes backwards");
    if (s)
      add(p, out, lo, hi);
  }
  if (!s || s == end)
    return refuse(p, "a class without an end");
  if (not )
    negate(p, out);
  return s + 1;
}

/* The end of the group that begins at s, behind its bracket. */
static const char *group_end(pattern *p, const char *s, const char *end)
{
  int depth = 1;
  bool class = false;
  for (; s < end; s++) {
    if (*s == '\\')
      s++;
    else if (*s == '[')
      class = true;
    else if (*s == ']')
      class = false;
    else if (!class && *s == '(')
      depth++;
    else if (!class && *s == ')' && !--depth)
      return s;
  }
  return refuse(p, "a group without an end");
}

/* How often what stands before comes; most < 0: without end. */
static const char *read_count(pattern *p, const char *s, const char *end, long *least, long *most)
{
  *least = *most = 1;
  if (s == end || !strchr("?*+{", *s))
    return s;
  char kind = *s++;
  *least = kind == '+';
  *most = kind == '?' ? 1 : -1;
  if (kind == '{') {
    long numbers[2] = {0, 0};
    int n = 0;
    bool digits = false;
    for (; s < end && *s != '}'; s++) {
      if (*s == ',' && !n && digits)
        n = 1, digits = false;
      else if (*s >= '0' && *s <= '9' && numbers[n] <= MOST_COUNT)
        numbers[n] = numbers[n] * 10 + (*s - '0'), digits = true;
      else
        return refuse(p, "a count that is none, or too large");
    }
    if (s == end || (!n && !digits) || numbers[0] > MOST_COUNT || numbers[1] > MOST_COUNT)
      return refuse(p, "a count that is none, or too large");
    *least = numbers[0];
    *most = !n ? numbers[0] : digits ? numbers[1] : -1;
    if (*most >= 0 && *least > *most)
      return refuse(p, "a count that goes backwards");
    s++;
  }
  if (s < end && *s == '?') /* as few as possible: the same texts */
    s++;
  if (s < end && strchr("*+{?", *s))
    return refuse(p, "a count of a count");
  return s;
}

static void emit_alternatives(pattern *p, const char *s, const char *end, int depth);

/* The atom at s, once; returns its end. emit false: it is only passed over. */
static const char *atom(pattern *p, const char *s, const char *end, int depth, bool emit)
{
  set one = {.n = 0};
  uint32_t c = 0;
  if (++p->atoms > MOST_ATOMS || depth > MOST_DEPTH) {
    p->c->g->over = true;
    return refuse(p, "too large");
  }
  if (*s == '(') {
    s++;
    if (s + 1 < end && s[0] == '?' && s[1] == ':')
      s += 2;
    else if (s < end && *s == '?')
      return refuse(p, "a group that is more than a group");
    const char *close = group_end(p, s, end);
    if (close && emit)
      emit_alternatives(p, s, close, depth + 1);
    return close ? close + 1 : NULL;
  }
  if (strchr("*+?{", *s))
    return refuse(p, "a count with nothing before it");
  if (strchr("^$)", *s))
    return refuse(p, "^ or $ elsewhere than at the ends");
  if (*s == '[') {
    s = read_class(p, s + 1, end, &one);
  } else if (*s == '.') {
    add(p, &one, '\n', '\n');
    add(p, &one, '\r', '\r');
    add(p, &one, 0x2028, 0x2029);
    negate(p, &one);
    s++;
  } else if (*s == '\\' && s + 1 < end && add_named(p, &one, s[1])) {
    s += 2;
  } else {
    s = read_character(p, s, end, &c);
    if (s)
      add(p, &one, c, c);
  }
  if (s && emit)
    emit_set(p, &one);
  return s;
}

static void emit_sequence(pattern *p, const char *s, const char *end, int depth)
{
  grammar *g = p->c->g;
  while (s && s < end && !g->over && !p->why) {
    long least, most;
    const char *next = atom(p, s, end, depth, false);
    next = next ? read_count(p, next, end, &least, &most) : NULL;
    if (!next)
      return;
    for (long i = 0; i < least && !g->over; i++)
      atom(p, s, end, depth, true);
    if (most < 0) {
      uint32_t again = gram_here(g), out = gram_split(g);
      atom(p, s, end, depth, true);
      gram_jump_to(g, again);
      gram_land(g, out);
    }
    uint32_t ends = GRAM_NONE;
    for (long i = least; i < most && !g->over; i++) {
      uint32_t more = gram_split(g);
      ends = gram_jump(g, ends);
      gram_land(g, more);
      atom(p, s, end, depth, true);
    }
    gram_land_jumps(g, ends);
    s = next;
  }
}

/* The end of the alternative at s: a bar outside of groups and classes, or the end. */
static const char *alternative_end(pattern *p, const char *s, const char *end)
{
  bool class = false;
  for (; s && s < end; s++) {
    if (*s == '\\') {
      if (++s == end)
        break;
    } else if (*s == '[') {
      class = true;
    } else if (*s == ']') {
      class = false;
    } else if (!class && *s == '(') {
      s = group_end(p, s + 1, end);
      if (!s)
        return NULL;
    } else if (!class && *s == '|') {
      return s;
    }
  }
  return end;
}

static void emit_alternatives(pattern *p, const char *s, const char *end, int depth)
{
  gram_alternatives a = GRAM_ALTERNATIVES;
  for (bool more = true; more && !p->why;) {
    const char *stop = alternative_end(p, s, end);
    if (!stop)
      return;
    more = stop < end;
    gram_branch(p->c->g, &a, more);
    emit_sequence(p, s, stop, depth);
    s = stop + 1;
  }
  gram_join(p->c->g, &a);
}

static void emit_anything(schema_compiler *c)
{
  uint32_t again = gram_here(c->g), out = gram_split(c->g);
  schema_call(c, RULE_CHARACTER);
  gram_jump_to(c->g, again);
  gram_land(c->g, out);
}

static bool ends_in_dollar(const char *s, const char *end)
{
  size_t back = 0;
  if (s == end || end[-1] != '$')
    return false;
  while (end - 1 - back > s && end[-2 - (ptrdiff_t)back] == '\\')
    back++;
  return back % 2 == 0;
}

const char *schema_emit_pattern(schema_compiler *c, const char *s, size_t n)
{
  pattern p = {.c = c};
  const char *end = s + n;
  gram_alternatives a = GRAM_ALTERNATIVES;
  gram_bytes(c->g, '"', '"');
  for (bool more = true; more && !p.why;) {
    const char *stop = alternative_end(&p, s, end);
    if (!stop)
      break;
    more = stop < end;
    bool begins = s < stop && *s == '^', closes = ends_in_dollar(s + begins, stop);
    gram_branch(c->g, &a, more);
    if (!begins)
      emit_anything(c);
    emit_sequence(&p, s + begins, stop - closes, 0);
    if (!closes)
      emit_anything(c);
    s = stop + 1;
  }
  gram_join(c->g, &a);
  gram_bytes(c->g, '"', '"');
  gram_return(c->g);
  return c->g->over ? NULL : p.why; /* too large: sealing says so */
}

/* ---- formats ---- */

#define DAY                                                                                                            \
  "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-"  \
  "8]"                                                                                                                 \
  "))"
#define TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

const char *schema_format_pattern(const char *name)
{
  static const struct {
    const char *name, *pattern;
  } formats[] = {
      {"date", "^" DAY "$"},
      {"time", "^" TIME "$"},
      {"date-time", "^" DAY "T" TIME "$"},
      {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
      {"ipv4", "^" BYTE "\\." BYTE "\\." BYTE "\\." BYTE "$"},
  };
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(formats[i].name, name))
      return formats[i].pattern;
  return NULL;
}
