/* schema_json.c - the rules that every JSON text is made of: see schema_impl.h.
 *
 * A lone half of a surrogate pair and U+0000 are left out of escapes, for many readers refuse them. What loops is
 * bounded where a model might not find its way out: white space, digits.
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/schema_impl.h"

enum { MOST_BLANKS = 40, MOST_TABS = 20, MOST_KEY = 512 /* bytes of a name that other keys must not have */ };

void schema_call(schema_compiler *c, schema_rule rule)
{
  gram_call(c->g, c->rules[rule]);
}

void schema_leave(schema_compiler *c, uint32_t rule)
{
  gram_call(c->g, rule);
  gram_return(c->g);
}

void schema_emit_nowhere(grammar *g)
{
  gram_jump_to(g, gram_here(g)); /* to itself, so that sealing finds it dead */
}

void schema_emit_never(schema_compiler *c)
{
  schema_emit_nowhere(c->g);
}

static void one(grammar *g, char byte)
{
  gram_bytes(g, (uint8_t)byte, (uint8_t)byte);
}

static void word(grammar *g, const char *text)
{
  gram_text(g, text, strlen(text));
}

/* `byte` up to `most` times, then the return at `out`. */
static void up_to(grammar *g, char byte, int most, uint32_t out)
{
  for (int i = 0; i < most; i++) {
    gram_split_to(g, out);
    one(g, byte);
  }
  gram_jump_to(g, out);
}

/* A return that others jump to, at the beginning of a rule. */
static uint32_t place_return(grammar *g)
{
  uint32_t over = gram_jump(g, GRAM_NONE), at = gram_here(g);
  gram_return(g);
  gram_land_jumps(g, over);
  return at;
}

/* ---- white space and characters ---- */

static void emit_gap(grammar *g)
{
  uint32_t out = place_return(g);
  gram_alternatives a = GRAM_ALTERNATIVES;
  gram_split_to(g, out);
  gram_branch(g, &a, true);
  one(g, ' ');
  gram_return(g);
  gram_branch(g, &a, true);
  one(g, '\n');
  up_to(g, ' ', MOST_BLANKS, out);
  gram_branch(g, &a, false);
  one(g, '\n');
  up_to(g, '\t', MOST_TABS, out);
  gram_join(g, &a);
  gram_return(g);
}

static void emit_wide(grammar *g)
{
  gram_chars(g, 0x80, 0x10ffff);
  gram_return(g);
}

/* Printable ASCII without the quote and the backslash, DEL, and all that is wide. */
static void emit_plain(schema_compiler *c)
{
  gram_alternatives a = GRAM_ALTERNATIVES;
  gram_branch(c->g, &a, true);
  gram_bytes(c->g, 0x20, '"' - 1);
  gram_branch(c->g, &a, true);
  gram_bytes(c->g, '"' + 1, c->no_angle ? '<' - 1 : '\\' - 1);
  if (c->no_angle) {
    gram_branch(c->g, &a, true);
    gram_bytes(c->g, '<' + 1, '\\' - 1);
  }
  gram_branch(c->g, &a, true);
  gram_bytes(c->g, '\\' + 1, 0x7f);
  gram_branch(c->g, &a, false);
  schema_call(c, RULE_WIDE);
  gram_join(c->g, &a);
  gram_return(c->g);
}

static void letters(grammar *g, const char *set)
{
  gram_alternatives a = GRAM_ALTERNATIVES;
  for (; *set; set++) {
    gram_branch(g, &a, set[1] != '\0');
    one(g, *set);
  }
  gram_join(g, &a);
}

static void digits(grammar *g, int n, const char *set)
{
  for (int i = 0; i < n; i++)
    letters(g, set);
}

/* What stands behind \u: four hexadecimal digits of a character, or two times four of a pair. */
static void emit_code(grammar *g)
{
  static const char hex[] = "0123456789abcdefABCDEF", some[] = "123456789abcdefABCDEF";
  gram_alternatives a = GRAM_ALTERNATIVES;
  gram_branch(g, &a, true); /* 1000 and up, without dxxx */
  letters(g, "123456789abcefABCEF");
  digits(g, 3, hex);
  gram_branch(g, &a, true); /* d000 to d7ff */
  letters(g, "dD");
  letters(g, "01234567");
  digits(g, 2, hex);
  gram_branch(g, &a, true); /* 0001 to 0fff */
  one(g, '0');
  letters(g, some);
  digits(g, 2, hex);
  gram_branch(g, &a, true);
  word(g, "00");
  letters(g, some);
  digits(g, 1, hex);
  gram_branch(g, &a, true);
  word(g, "000");
  letters(g, some);
  gram_branch(g, &a, false); /* d800 to dbff, then dc00 to dfff */
  letters(g, "dD");
  letters(g, "89abAB");
  digits(g, 2, hex);
  word(g, "\\u");
  letters(g, "dD");
  letters(g, "cdefCDEF");
  digits(g, 2, hex);
  gram_join(g, &a);
}

static void emit_character(schema_compiler *c)
{
  gram_alternatives a = GRAM_ALTERNATIVES, escape = GRAM_ALTERNATIVES;
  gram_branch(c->g, &a, true);
  schema_leave(c, c->rules[RULE_PLAIN]);
  gram_branch(c->g, &a, false);
  one(c->g, '\\');
  gram_branch(c->g, &escape, true);
  letters(c->g, "\"\\/bfnrt");
  gram_branch(c->g, &escape, false);
  one(c->g, 'u');
  emit_code(c->g);
  gram_join(c->g, &escape);
  gram_join(c->g, &a);
  gram_return(c->g);
}

void schema_emit_string(schema_compiler *c, json_int_t least, json_int_t most)
{
  grammar *g = c->g;
  one(g, '"');
  uint32_t over = gram_jump(g, GRAM_NONE), end = gram_here(g);
  one(g, '"');
  gram_return(g);
  gram_land_jumps(g, over);
  for (json_int_t i = 0; i < least && !g->over; i++)
    schema_call(c, RULE_CHARACTER);
  if (most < 0) {
    uint32_t again = gram_here(g);
    gram_split_to(g, end);
    schema_call(c, RULE_CHARACTER);
    gram_jump_to(g, again);
    return;
  }
  for (json_int_t i = least; i < most && !g->over; i++) {
    gram_split_to(g, end);
    schema_call(c, RULE_CHARACTER);
  }
  if (least > most)
    schema_emit_never(c);
  else
    gram_jump_to(g, end);
}

/* ---- numbers ---- */

static void some_digits(grammar *g, int most)
{
  uint32_t ends = GRAM_NONE;
  gram_bytes(g, '0', '9');
  for (int i = 1; i < most; i++) {
    uint32_t split = gram_split(g); /* on: out; else: one more */
    ends = gram_jump(g, ends);
    gram_land(g, split);
    gram_bytes(g, '0', '9');
  }
  gram_land_jumps(g, ends);
}

static void emit_whole(grammar *g)
{
  uint32_t sign = gram_split(g);
  one(g, '-');
  gram_land(g, sign);
  gram_alternatives a = GRAM_ALTERNATIVES;
  gram_branch(g, &a, true);
  one(g, '0');
  gram_branch(g, &a, true);
  gram_bytes(g, '1', '9');
  gram_branch(g, &a, false);
  gram_bytes(g, '1', '9');
  some_digits(g, SCHEMA_MOST_DIGITS - 1);
  gram_join(g, &a);
}

static void emit_number(grammar *g)
{
  emit_whole(g);
  uint32_t fraction = gram_split(g);
  one(g, '.');
  some_digits(g, SCHEMA_MOST_DIGITS - 1);
  gram_land(g, fraction);
  uint32_t exponent = gram_split(g);
  letters(g, "eE");
  uint32_t sign = gram_split(g);
  letters(g, "+-");
  gram_land(g, sign);
  some_digits(g, 2);
  gram_land(g, exponent);
  gram_return(g);
}

static bool all_are(const char *s, size_t n, char digit)
{
  for (size_t i = 0; i < n; i++)
    if (s[i] != digit)
      return false;
  return true;
}

/* Numbers of n digits from lo to hi, leading zeros included. At most one of the two sides is open at each depth but the
 * first, so that the code grows with n. */
static void digit_range(grammar *g, const char *lo, const char *hi, size_t n)
{
  char low[SCHEMA_MOST_DIGITS + 1] = "", high[SCHEMA_MOST_DIGITS + 1] = "";
  if (!n)
    return;
  if (all_are(lo, n, '0') && all_are(hi, n, '9')) {
    for (size_t i = 0; i < n; i++)
      gram_bytes(g, '0', '9');
    return;
  }
  if (*lo == *hi) {
    one(g, *lo);
    digit_range(g, lo + 1, hi + 1, n - 1);
    return;
  }
  memset(low, '0', n - 1);
  memset(high, '9', n - 1);
  bool from = !all_are(lo + 1, n - 1, '0'), to = !all_are(hi + 1, n - 1, '9');
  char first = (char)(*lo + from), last = (char)(*hi - to);
  gram_alternatives a = GRAM_ALTERNATIVES;
  if (from) {
    gram_branch(g, &a, first <= last || to);
    one(g, *lo);
    digit_range(g, lo + 1, high, n - 1);
  }
  if (first <= last) {
    gram_branch(g, &a, to);
    gram_bytes(g, (uint8_t)first, (uint8_t)last);
    digit_range(g, low, high, n - 1);
  }
  if (to) {
    gram_branch(g, &a, false);
    one(g, *hi);
    digit_range(g, low, hi + 1, n - 1);
  }
  gram_join(g, &a);
}

static size_t digits_of(uint64_t x, char out[SCHEMA_MOST_DIGITS + 3])
{
  char back[SCHEMA_MOST_DIGITS + 3];
  size_t n = 0;
  do
    back[n++] = (char)('0' + x % 10);
  while (x /= 10);
  for (size_t i = 0; i < n; i++)
    out[i] = back[n - 1 - i];
  return n;
}

/* By number of digits. */
static void magnitudes(grammar *g, uint64_t lo, uint64_t hi)
{
  gram_alternatives a = GRAM_ALTERNATIVES;
  while (lo <= hi) {
    char from[SCHEMA_MOST_DIGITS + 3], to[SCHEMA_MOST_DIGITS + 3];
    size_t n = digits_of(lo, from);
    uint64_t last = 0;
    for (size_t i = 0; i < n; i++)
      last = last * 10 + 9;
    last = last < hi ? last : hi;
    digits_of(last, to);
    gram_branch(g, &a, last < hi);
    digit_range(g, from, to, n);
    lo = last + 1;
  }
  gram_join(g, &a);
}

void schema_emit_integer(schema_compiler *c, int64_t lo, int64_t hi)
{
  grammar *g = c->g;
  gram_alternatives a = GRAM_ALTERNATIVES;
  if (lo > hi) {
    schema_emit_never(c);
    return;
  }
  if (lo < 0) {
    gram_branch(g, &a, hi >= 0);
    one(g, '-');
    magnitudes(g, hi < 0 ? (uint64_t)-hi : 1, (uint64_t)-lo);
  }
  if (hi >= 0) {
    gram_branch(g, &a, false);
    magnitudes(g, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi);
  }
  gram_join(g, &a);
  gram_return(g);
}

/* ---- any value ---- */

/* A key and what stands between it and its value. */
static void emit_key(schema_compiler *c)
{
  schema_call(c, RULE_STRING);
  one(c->g, ':');
  uint32_t blank = gram_split(c->g);
  one(c->g, ' ');
  gram_land(c->g, blank);
}

/* An object or an array of any values: nothing between its brackets, or members with commas. */
static void emit_members(schema_compiler *c, char opening, char closing, bool keys)
{
  grammar *g = c->g;
  uint32_t members = gram_rule(g);
  one(g, opening);
  schema_call(c, RULE_GAP);
  uint32_t empty = gram_split(g);
  one(g, closing);
  gram_return(g);
  gram_land(g, empty);
  schema_leave(c, members);
  gram_begin(g, members);
  if (keys)
    emit_key(c);
  schema_call(c, RULE_VALUE);
  uint32_t more = gram_split(g);
  one(g, ',');
  schema_call(c, RULE_GAP);
  schema_leave(c, members);
  gram_land(g, more);
  schema_call(c, RULE_GAP);
  one(g, closing);
  gram_return(g);
}

static void emit_value(schema_compiler *c)
{
  static const schema_rule rules[] = {RULE_STRING, RULE_NUMBER, RULE_OBJECT, RULE_ARRAY};
  static const char *const words[] = {"true", "false", "null"};
  gram_alternatives a = GRAM_ALTERNATIVES;
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    gram_branch(c->g, &a, true);
    schema_leave(c, c->rules[rules[i]]);
  }
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    gram_branch(c->g, &a, i + 1 < sizeof words / sizeof *words);
    word(c->g, words[i]);
  }
  gram_join(c->g, &a);
  gram_return(c->g);
}

void schema_emit_rules(schema_compiler *c)
{
  grammar *g = c->g;
  gram_begin(g, c->rules[RULE_GAP]);
  emit_gap(g);
  gram_begin(g, c->rules[RULE_WIDE]);
  emit_wide(g);
  gram_begin(g, c->rules[RULE_PLAIN]);
  emit_plain(c);
  gram_begin(g, c->rules[RULE_CHARACTER]);
  emit_character(c);
  gram_begin(g, c->rules[RULE_STRING]);
  schema_emit_string(c, 0, -1);
  gram_begin(g, c->rules[RULE_NUMBER]);
  emit_number(g);
  gram_begin(g, c->rules[RULE_INTEGER]);
  emit_whole(g);
  gram_return(g);
  gram_begin(g, c->rules[RULE_VALUE]);
  emit_value(c);
  gram_begin(g, c->rules[RULE_OBJECT]);
  emit_members(c, '{', '}', true);
  gram_begin(g, c->rules[RULE_ARRAY]);
  emit_members(c, '[', ']', false);
}

/* ---- literals ---- */

/* JSON has a "<" in strings alone. */
static void emit_no_angle(grammar *g, const char *text)
{
  for (const char *angle; (angle = strchr(text, '<')); text = angle + 1) {
    gram_text(g, text, (size_t)(angle - text));
    word(g, SCHEMA_ANGLE);
  }
  word(g, text);
}

/* With as few digits as read back the same. */
bool schema_emit_literal(schema_compiler *c, const json_t *value)
{
  char *text = NULL;
  for (size_t precision = 15; precision <= 17; precision++) {
    text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(precision));
    json_t *back = text ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    bool same = back && json_equal(back, (json_t *)(uintptr_t)value);
    json_decref(back);
    if (same || precision == 17 || !text)
      break;
    free(text);
  }
  if (text && c->no_angle)
    emit_no_angle(c->g, text);
  else if (text)
    word(c->g, text);
  free(text);
  return text != NULL;
}

/* ---- other keys ---- */

/* Characters from lo to hi that a string may have without an escape. */
static void plain_range(const schema_compiler *c, uint32_t lo, uint32_t hi)
{
  enum { RANGES = 4 };
  const uint32_t plain[RANGES][2] = {
      {0x20, '"' - 1}, {'"' + 1, '<' - 1}, {c->no_angle ? '<' + 1 : '<', '\\' - 1}, {'\\' + 1, 0x10ffff}};
  grammar *g = c->g;
  gram_alternatives a = GRAM_ALTERNATIVES;
  uint32_t from[RANGES], to[RANGES];
  int n = 0;
  for (int i = 0; i < RANGES; i++) {
    from[n] = lo > plain[i][0] ? lo : plain[i][0];
    to[n] = hi < plain[i][1] ? hi : plain[i][1];
    n += from[n] <= to[n];
  }
  for (int i = 0; i < n; i++) {
    gram_branch(g, &a, i + 1 < n);
    gram_chars(g, from[i], to[i]);
  }
  gram_join(g, &a);
  if (!n)
    gram_jump_to(g, gram_here(g));
}

/* Names from `first` to before `end` agree in their first `depth` bytes. What is next: the key's end, where no name
 * ends; a character that some of them have; any other, behind which all is free: that is at `rest`. */
static void other_node(const schema_compiler *c, const char **names, size_t first, size_t end, size_t depth,
                       uint32_t rest)
{
  grammar *g = c->g;
  uint32_t at = 0x20;
  gram_alternatives a = GRAM_ALTERNATIVES;
  if (first == end || names[first][depth]) {
    gram_branch(g, &a, true);
    one(g, '"');
    gram_return(g);
  }
  while (first < end && !names[first][depth])
    first++;
  while (first < end && !g->over) {
    uint32_t letter = 0;
    size_t n = utf8_decode(names[first] + depth, strlen(names[first] + depth), &letter), last = first;
    while (last < end && !strncmp(names[first] + depth, names[last] + depth, n))
      last++;
    if (at < letter) {
      gram_branch(g, &a, true);
      plain_range(c, at, letter - 1);
      gram_jump_to(g, rest);
    }
    gram_branch(g, &a, true);
    gram_text(g, names[first] + depth, n);
    other_node(c, names, first, last, depth + n, rest);
    first = last;
    at = letter + 1;
  }
  gram_branch(g, &a, false);
  plain_range(c, at, 0x10ffff);
  gram_jump_to(g, rest);
  gram_join(g, &a);
}

static int by_name(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_plain(const schema_compiler *c, const char *name)
{
  for (; *name; name++)
    if ((unsigned char)*name < 0x20 || *name == '"' || *name == '\\' || (*name == '<' && c->no_angle))
      return false;
  return true;
}

/* Other keys have no escapes, so that there is one way to write each: names that need some are none of them. */
tern_status schema_emit_other_key(schema_compiler *c, const char **names, size_t n, const char *path, tern_error *err)
{
  grammar *g = c->g;
  size_t plain = 0;
  for (size_t i = 0; i < n; i++) {
    if (strlen(names[i]) > MOST_KEY)
      return err_set(err, TERN_E_LIMIT, "%s: additionalProperties beside a name of more than %d bytes", path, MOST_KEY);
    if (is_plain(c, names[i]))
      names[plain++] = names[i];
  }
  if (plain)
    qsort(names, plain, sizeof *names, by_name);
  one(g, '"');
  uint32_t over = gram_jump(g, GRAM_NONE), rest = gram_here(g), end = gram_split(g);
  schema_call(c, RULE_PLAIN);
  gram_jump_to(g, rest);
  gram_land(g, end);
  one(g, '"');
  gram_return(g);
  gram_land_jumps(g, over);
  other_node(c, names, 0, plain, 0, rest);
  return TERN_OK;
}
