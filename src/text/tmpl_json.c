/* tmpl_json.c - reading JSON into values and writing values as JSON, to the letter of Python's json module.
 *
 * The reader takes what json.loads takes (NaN and Infinity included); where a key comes twice the last value counts.
 * Lone surrogates, which Python carries along, are an error here: no prompt can hold them. */
#include "text/tmpl_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* ---- reading ---- */

typedef struct reader {
  tmpl_rt *r;
  const char *s;
  size_t n, at;
  int depth;
} reader;

static bool bad(reader *j, const char *what)
{
  size_t line = 1, column = 1;
  for (size_t i = 0; i < j->at && i < j->n; i++) {
    column = j->s[i] == '\n' ? 1 : column + 1;
    line += j->s[i] == '\n';
  }
  return rt_fail_status(j->r, TERN_E_FORMAT, "JSON: line %zu column %zu: %s", line, column, what);
}

static void skip_blanks(reader *j)
{
  while (j->at < j->n && strchr(" \t\n\r", j->s[j->at]) && j->s[j->at])
    j->at++;
}

static bool take(reader *j, char c)
{
  if (j->at >= j->n || j->s[j->at] != c)
    return false;
  j->at++;
  return true;
}

static bool word(reader *j, const char *text)
{
  size_t n = strlen(text);
  if (j->n - j->at < n || memcmp(j->s + j->at, text, n) != 0)
    return false;
  j->at += n;
  return true;
}

static bool hex4(reader *j, uint32_t *out)
{
  *out = 0;
  for (int i = 0; i < 4; i++, j->at++) {
    int digit = j->at < j->n ? hex_digit(j->s[j->at]) : -1;
    if (digit < 0)
      return bad(j, "invalid \\u escape");
    *out = *out << 4 | (uint32_t)digit;
  }
  return true;
}

static bool escape(reader *j, tbuf *b)
{
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  char c = j->at < j->n ? j->s[j->at++] : 0;
  const char *simple = c ? strchr(from, c) : NULL;
  if (simple) {
    tb_addc(b, to[simple - from]);
    return true;
  }
  if (c != 'u')
    return bad(j, "invalid escape in a string");
  uint32_t unit, low;
  OK(hex4(j, &unit));
  if (unit >= 0xd800 && unit < 0xdc00 && word(j, "\\u")) {
    OK(hex4(j, &low));
    if (low < 0xdc00 || low > 0xdfff)
      return bad(j, "a lone surrogate in a string");
    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
  } else if (unit >= 0xd800 && unit < 0xe000) {
    return bad(j, "a lone surrogate in a string");
  }
  tb_char(b, unit);
  return true;
}

static bool read_string(reader *j, tv *out)
{
  size_t from = ++j->at;
  while (j->at < j->n && j->s[j->at] != '"' && j->s[j->at] != '\\' && (unsigned char)j->s[j->at] >= 0x20)
    j->at++;
  if (j->at < j->n && j->s[j->at] == '"') { /* no escapes: borrowed */
    j->at++;
    return ts_ref(j->r, j->s + from, j->at - 1 - from, out);
  }
  tbuf b = {.r = j->r};
  tb_add(&b, j->s + from, j->at - from);
  while (j->at < j->n) {
    char c = j->s[j->at++];
    if (c == '"')
      return tb_take(&b, out);
    if ((unsigned char)c < 0x20)
      return bad(j, "a control character in a string");
    if (c == '\\')
      OK(escape(j, &b));
    else
      tb_addc(&b, c);
  }
  return bad(j, "a string that does not end");
}

static size_t count_digits(const reader *j, size_t at)
{
  size_t n = 0;
  while (at + n < j->n && j->s[at + n] >= '0' && j->s[at + n] <= '9')
    n++;
  return n;
}

static bool read_number(reader *j, tv *out)
{
  size_t from = j->at;
  bool negative = take(j, '-');
  if (word(j, "Infinity")) {
    *out = tv_float(negative ? -INFINITY : INFINITY);
    return true;
  }
  size_t digits = j->at < j->n && j->s[j->at] == '0' ? 1 : count_digits(j, j->at);
  if (digits == 0)
    return bad(j, "a value was expected");
  size_t whole = j->at;
  j->at += digits;
  bool is_float = false;
  if (j->at < j->n && j->s[j->at] == '.' && count_digits(j, j->at + 1) > 0) {
    is_float = true;
    j->at += 1 + count_digits(j, j->at + 1);
  }
  if (j->at < j->n && (j->s[j->at] == 'e' || j->s[j->at] == 'E')) {
    size_t sign = j->at + 1 < j->n && (j->s[j->at + 1] == '+' || j->s[j->at + 1] == '-');
    size_t exponent = count_digits(j, j->at + 1 + sign);
    if (exponent > 0) {
      is_float = true;
      j->at += 1 + sign + exponent;
    }
  }
  if (!is_float) {
    if (digits > 4300)
      return bad(j, "an integer of more than 4300 digits");
    return tn_from_digits(j->r, j->s + whole, digits, negative, out);
  }
  double d;
  bool ok;
  OK(tn_parse_float(j->r, j->s + from, j->at - from, &d, &ok));
  *out = tv_float(d);
  return ok || bad(j, "a malformed number");
}

static bool read_value(reader *j, tv *out);

static bool read_array(reader *j, tv *out)
{
  tlist *l;
  j->at++;
  OK(tl_new(j->r, 0, &l));
  *out = tv_seq(TV_LIST, l);
  skip_blanks(j);
  if (take(j, ']'))
    return true;
  for (;;) {
    tv item = {0};
    OK(read_value(j, &item) && tl_add(j->r, l, item));
    skip_blanks(j);
    if (take(j, ']'))
      return true;
    if (!take(j, ','))
      return bad(j, "',' or ']' was expected");
  }
}

static bool read_object(reader *j, tv *out)
{
  tdict *d;
  j->at++;
  OK(td_new(j->r, &d));
  *out = tv_dict(d);
  skip_blanks(j);
  if (take(j, '}'))
    return true;
  for (;;) {
    tv key = {0}, value = {0};
    skip_blanks(j);
    if (j->at >= j->n || j->s[j->at] != '"')
      return bad(j, "a key in double quotes was expected");
    OK(read_string(j, &key));
    skip_blanks(j);
    if (!take(j, ':'))
      return bad(j, "':' was expected");
    OK(read_value(j, &value) && td_set(j->r, d, key, value));
    skip_blanks(j);
    if (take(j, '}'))
      return true;
    if (!take(j, ','))
      return bad(j, "',' or '}' was expected");
  }
}

static bool read_value(reader *j, tv *out)
{
  skip_blanks(j);
  char c = j->at < j->n ? j->s[j->at] : 0;
  if (c == '"')
    return read_string(j, out);
  if (c == '{' || c == '[') {
    if (++j->depth > TMPL_MAX_JSON_DEPTH)
      return bad(j, "nested too deep");
    OK(c == '{' ? read_object(j, out) : read_array(j, out));
    j->depth--;
    return true;
  }
  if (word(j, "null"))
    *out = tv_none();
  else if (word(j, "true"))
    *out = tv_bool(true);
  else if (word(j, "false"))
    *out = tv_bool(false);
  else if (word(j, "NaN"))
    *out = tv_float(NAN);
  else
    return read_number(j, out);
  return true;
}

bool tj_read(tmpl_rt *r, const char *text, size_t n, tv *out)
{
  reader j = {.r = r, .s = text, .n = n};
  size_t fault;
  if (!utf8_valid(text, n, &fault)) {
    j.at = fault;
    return bad(&j, "not valid UTF-8");
  }
  OK(read_value(&j, out));
  skip_blanks(&j);
  return j.at == n || bad(&j, "text behind the end of the value");
}

/* ---- writing ---- */

typedef struct writer {
  tmpl_rt *r;
  tbuf b;
  bool ascii, sort, indented;
  const tstr *indent, *item, *key; /* one level of indent; the two separators */
  int level;
} writer;

static void write_escape(tbuf *b, uint32_t unit)
{
  char text[16];
  snprintf(text, sizeof text, "\\u%04x", unit);
  tb_adds(b, text);
}

static void write_string(writer *w, const tstr *s)
{
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  tb_addc(&w->b, '"');
  for (size_t i = 0; i < s->n;) {
    size_t plain = i;
    while (plain < s->n && (unsigned char)s->s[plain] >= 0x20 && s->s[plain] != '"' && s->s[plain] != '\\' &&
           !(w->ascii && (unsigned char)s->s[plain] >= 0x7f))
      plain++;
    tb_add(&w->b, s->s + i, plain - i);
    i = plain;
    if (i >= s->n)
      break;
    uint32_t c;
    i += utf8_decode(s->s + i, s->n - i, &c);
    const char *simple = c && c < 0x80 ? strchr(from, (char)c) : NULL;
    if (simple) {
      tb_addc(&w->b, '\\');
      tb_addc(&w->b, to[simple - from]);
    } else if (c >= 0x10000) {
      write_escape(&w->b, 0xd800 + ((c - 0x10000) >> 10));
      write_escape(&w->b, 0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      write_escape(&w->b, c);
    }
  }
  tb_addc(&w->b, '"');
}

static void write_float(tbuf *b, double d)
{
  char text[40];
  if (isnan(d))
    tb_adds(b, "NaN");
  else if (isinf(d))
    tb_adds(b, d < 0 ? "-Infinity" : "Infinity");
  else
    tb_add(b, text, tn_float_repr(d, text));
}

static void new_line(writer *w)
{
  tb_addc(&w->b, '\n');
  for (int i = 0; i < w->level && !w->b.failed; i++)
    tb_str(&w->b, w->indent);
}

static bool write_value(writer *w, tv v);

static bool write_list(writer *w, const tlist *l)
{
  if (l->n == 0) {
    tb_adds(&w->b, "[]");
    return true;
  }
  tb_addc(&w->b, '[');
  w->level++;
  for (size_t i = 0; i < l->n; i++) {
    if (i)
      tb_str(&w->b, w->item);
    if (w->indented)
      new_line(w);
    OK(write_value(w, l->v[i]));
  }
  w->level--;
  if (w->indented)
    new_line(w);
  tb_addc(&w->b, ']');
  return true;
}

static bool write_key(writer *w, tv key)
{
  if (key.type == TV_STR) {
    write_string(w, key.s);
    return true;
  }
  if (key.type != TV_NONE && !tv_is_number(key))
    return rt_fail(w->r, "keys must be str, int, float, bool or None, not %s", tv_type_name(key));
  tb_addc(&w->b, '"');
  OK(write_value(w, key));
  tb_addc(&w->b, '"');
  return true;
}

static bool sorted_entries(writer *w, const tdict *d, tv *positions)
{
  tv *keys = rt_array(w->r, d->n, sizeof *keys);
  OK(keys);
  for (size_t i = 0; i < d->n; i++) {
    positions[i] = tv_int((int64_t)i);
    keys[i] = d->e[i].key;
  }
  return !w->sort || tv_sort(w->r, positions, keys, d->n, false);
}

static bool write_dict(writer *w, const tdict *d)
{
  if (d->n == 0) {
    tb_adds(&w->b, "{}");
    return true;
  }
  tv *positions = NULL;
  if (w->sort) {
    positions = rt_array(w->r, d->n, sizeof *positions);
    OK(positions && sorted_entries(w, d, positions));
  }
  tb_addc(&w->b, '{');
  w->level++;
  for (size_t i = 0; i < d->n; i++) {
    const tentry *e = &d->e[positions ? (size_t)positions[i].i : i];
    if (i)
      tb_str(&w->b, w->item);
    if (w->indented)
      new_line(w);
    OK(write_key(w, e->key));
    tb_str(&w->b, w->key);
    OK(write_value(w, e->value));
  }
  w->level--;
  if (w->indented)
    new_line(w);
  tb_addc(&w->b, '}');
  return true;
}

static bool write_plain(writer *w, tv v)
{
  switch (v.type) {
  case TV_NONE:
    tb_adds(&w->b, "null");
    return true;
  case TV_BOOL:
    tb_adds(&w->b, v.b ? "true" : "false");
    return true;
  case TV_INT:
  case TV_BIG:
    tv_repr(&w->b, v);
    return true;
  case TV_FLOAT:
    write_float(&w->b, v.f);
    return true;
  case TV_STR:
    write_string(w, v.s);
    return true;
  case TV_LIST:
  case TV_TUPLE:
    return write_list(w, v.l);
  case TV_DICT:
    return write_dict(w, v.d);
  default:
    return rt_fail(w->r, "Object of type %s is not JSON serializable", tv_type_name(v));
  }
}

static bool write_value(writer *w, tv v)
{
  OK(rt_step(w->r, 1) && rt_enter(w->r));
  bool ok = write_plain(w, v) && !w->b.failed;
  rt_leave(w->r);
  return ok;
}

static bool set_indent(writer *w, tv indent)
{
  tv text;
  if (!tv_given(indent) || indent.type == TV_NONE)
    return true;
  w->indented = true;
  if (indent.type == TV_STR) {
    w->indent = indent.s;
    return true;
  }
  int64_t width;
  OK(tn_index(w->r, indent, "indent", &width));
  if (width > 1000)
    return rt_fail_status(w->r, TERN_E_LIMIT, "an indent of more than 1000 blanks");
  tbuf b = {.r = w->r};
  tb_fill(&b, ' ', width > 0 ? (size_t)width : 0);
  OK(tb_take(&b, &text));
  w->indent = text.s;
  return true;
}

static bool set_separators(writer *w, tv separators)
{
  tv item, key;
  tlist *l;
  if (!tv_given(separators) || separators.type == TV_NONE) {
    OK(ts_cstr(w->r, w->indented ? "," : ", ", &item) && ts_cstr(w->r, ": ", &key));
  } else {
    OK(ti_list(w->r, separators, &l));
    if (l->n != 2 || l->v[0].type != TV_STR || l->v[1].type != TV_STR)
      return rt_fail(w->r, "separators must be two strings");
    item = l->v[0];
    key = l->v[1];
  }
  w->item = item.s;
  w->key = key.s;
  return true;
}

bool tj_filter(tmpl_rt *r, tv value, const tv *slots, const targs *a, tv *out)
{
  (void)a;
  writer w = {.r = r, .b = {.r = r}};
  w.ascii = tv_given(slots[0]) && tv_truth(slots[0]);
  w.sort = tv_given(slots[3]) && tv_truth(slots[3]);
  OK(set_indent(&w, slots[1]) && set_separators(&w, slots[2]));
  return write_value(&w, value) && tb_take(&w.b, out);
}
