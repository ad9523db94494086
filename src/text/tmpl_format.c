/* tmpl_format.c - "%s and %d" % (...) and "{} {x!r:>8}".format(...).
 *
 * Both end in the same place: a body of digits or text, a sign, a prefix, and padding to a width. What differs is how
 * the specification is spelled and which defaults it has. Formatting of strings marked safe is refused: it would
 * escape. */
#include "text/tmpl_format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tmpl_attr.h"
#include "text/tmpl_unicode.h"

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 5000, NUMBER_ROOM = MAX_PRECISION + 400 };

typedef struct spec {
  uint32_t fill;
  char align; /* '<', '>', '^', '=', 0: by type */
  char sign;  /* '+', '-', ' ', 0 */
  bool alternate, zero;
  char grouping;            /* ',', '_', 0 */
  int64_t width, precision; /* -1: not given */
  char type;                /* 0: by value */
} spec;

/* ---- writing ---- */

/* Pads to the width: sign and prefix stay in front of '=' padding. */
static void put_padded(tbuf *b, const spec *s, char default_align, const char *lead, const char *body, size_t n,
                       size_t chars)
{
  char align = s->align ? s->align : default_align;
  int64_t missing = s->width - (int64_t)(strlen(lead) + chars);
  size_t pad = missing > 0 ? (size_t)missing : 0;
  size_t before = align == '>' ? pad : align == '^' ? pad / 2 : 0;
  tb_fill(b, s->fill, before);
  tb_adds(b, lead);
  if (align == '=') {
    tb_fill(b, s->fill, pad);
    before = pad;
  }
  tb_add(b, body, n);
  tb_fill(b, s->fill, pad - before);
}

static void put_string(tbuf *b, const spec *s, const tstr *text)
{
  size_t n = text->n, chars = text->chars;
  if (s->precision >= 0 && (int64_t)chars > s->precision) {
    chars = (size_t)s->precision;
    n = ts_offset(b->r, text, chars);
  }
  put_padded(b, s, '<', "", text->s, n, chars);
}

/* Digits in groups; with zero padding the groups reach to the left edge. `whole` leading digits are grouped. */
static size_t group_digits(const char *in, size_t n, size_t whole, int every, char separator, int64_t width, char *out)
{
  char reversed[NUMBER_ROOM * 2];
  size_t m = 0, tail = n - whole;
  int64_t need = width - (int64_t)tail;
  for (size_t i = 0;; i++) {
    bool more = i < whole;
    if (!more && (int64_t)m >= need)
      break;
    if (i > 0 && i % (size_t)every == 0) {
      reversed[m++] = separator;
      if (!more && (int64_t)m >= need) { /* never a separator in front */
        reversed[m++] = '0';
        break;
      }
    }
    reversed[m++] = more ? in[whole - 1 - i] : '0';
    if (m + 4 >= sizeof reversed)
      break;
  }
  for (size_t i = 0; i < m; i++)
    out[i] = reversed[m - 1 - i];
  memcpy(out + m, in + whole, tail);
  return m + tail;
}

static void put_number(tbuf *b, const spec *s, bool negative, const char *prefix, const char *body, size_t n,
                       size_t whole, int every)
{
  char lead[8], grouped[NUMBER_ROOM * 2 + NUMBER_ROOM];
  snprintf(lead, sizeof lead, "%s%s", negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "", prefix);
  if (s->grouping) {
    bool to_edge = s->fill == '0' && (s->align == '=' || !s->align) && s->width < NUMBER_ROOM;
    int64_t width = to_edge ? s->width - (int64_t)strlen(lead) : 0;
    n = group_digits(body, n, whole, every, s->grouping, width, grouped);
    body = grouped;
  }
  put_padded(b, s, '>', lead, body, n, n);
}

static bool put_int(tbuf *b, const spec *s, tv v, char type)
{
  char body[80];
  const char *prefix = "";
  bool negative;
  if (v.type == TV_BIG) {
    if (type != 'd')
      return rt_fail(b->r, "formatting an integer beyond 64 bits as '%c' is not supported", type);
    if (v.g->n > NUMBER_ROOM)
      return rt_fail_status(b->r, TERN_E_LIMIT, "an integer of more than %d digits", NUMBER_ROOM);
    put_number(b, s, v.g->negative, "", v.g->digits, v.g->n, v.g->n, 3);
    return true;
  }
  int64_t i = v.type == TV_BOOL ? v.b : v.i;
  negative = i < 0;
  uint64_t u = negative ? 0 - (uint64_t)i : (uint64_t)i;
  size_t n = 0;
  if (type == 'b') {
    char bits[64];
    size_t m = 0;
    do
      bits[m++] = (char)('0' + (u & 1));
    while (u >>= 1);
    while (m)
      body[n++] = bits[--m];
    prefix = "0b";
  } else {
    const char *format = type == 'x' ? "%llx" : type == 'X' ? "%llX" : type == 'o' ? "%llo" : "%llu";
    n = (size_t)snprintf(body, sizeof body, format, (unsigned long long)u);
    prefix = type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : "";
  }
  put_number(b, s, negative, s->alternate ? prefix : "", body, n, n, type == 'd' ? 3 : 4);
  return true;
}

/* Python's 'g'-like rules where no type is given: repr, or %g that keeps one digit behind the point. */
static size_t float_text(double d, const spec *s, char type, char *body, size_t size)
{
  char format[8];
  if (type == 0 && s->precision < 0)
    return tn_float_repr(d, body);
  int precision = s->precision < 0 ? 6 : (int)s->precision;
  if (type == 0) {
    precision = precision ? precision : 1;
    snprintf(body, size, "%.*e", precision - 1, d);
    char *mark = strchr(body, 'e'), *end = mark;
    int exponent = atoi(mark + 1);
    if (exponent < -4 || exponent >= precision - 1) { /* one digit must fit behind the point */
      if (memchr(body, '.', (size_t)(mark - body))) {
        while (end[-1] == '0')
          end--;
        end -= end[-1] == '.';
      }
      memmove(end, mark, strlen(mark) + 1);
      return strlen(body);
    }
    snprintf(body, size, "%.*g", precision, d);
    if (!strchr(body, '.'))
      strcat(body, ".0");
    return strlen(body);
  }
  snprintf(format, sizeof format, s->alternate ? "%%#.*%c" : "%%.*%c", type);
  return (size_t)snprintf(body, size, format, precision, d);
}

static void put_float(tbuf *b, const spec *s, double d, char type)
{
  char body[NUMBER_ROOM];
  bool percent = type == '%', negative = signbit(d) && !isnan(d);
  if (percent) {
    d *= 100;
    type = 'f';
  }
  if (type == 'n')
    type = 'g';
  double size = fabs(d);
  size_t n;
  if (!isfinite(d))
    n = (size_t)snprintf(body, sizeof body, "%s",
                         type == 'F' || type == 'E' || type == 'G' ? (isnan(d) ? "NAN" : "INF")
                                                                   : (isnan(d) ? "nan" : "inf"));
  else
    n = float_text(size, s, type, body, sizeof body - 8);
  if (percent)
    body[n++] = '%';
  size_t whole = 0;
  while (whole < n && body[whole] >= '0' && body[whole] <= '9')
    whole++;
  put_number(b, s, negative, "", body, n, whole, 3);
}

/* ---- str.format: [[fill]align][sign][#][0][width][grouping][.precision][type] ---- */

static bool is_align(uint32_t c)
{
  return c == '<' || c == '>' || c == '^' || c == '=';
}

static bool read_count(tmpl_rt *r, const tstr *t, size_t *i, int64_t most, int64_t *out)
{
  int64_t n = 0;
  while (*i < t->n && t->s[*i] >= '0' && t->s[*i] <= '9') {
    n = n * 10 + (t->s[(*i)++] - '0');
    if (n > most)
      return rt_fail_status(r, TERN_E_LIMIT, "a format width or precision beyond %lld", (long long)most);
  }
  *out = n;
  return true;
}

static bool read_spec(tmpl_rt *r, const tstr *t, spec *s)
{
  *s = (spec){.fill = ' ', .width = -1, .precision = -1};
  size_t i = 0;
  uint32_t c = 0;
  size_t used = t->n ? utf8_decode(t->s, t->n, &c) : 0;
  bool filled = false;
  if (used && used < t->n && is_align((unsigned char)t->s[used])) {
    s->fill = c;
    s->align = t->s[used];
    i = used + 1;
    filled = true;
  } else if (used && is_align(c)) {
    s->align = (char)c;
    i = 1;
  }
  if (i < t->n && (t->s[i] == '+' || t->s[i] == '-' || t->s[i] == ' '))
    s->sign = t->s[i++];
  if (i < t->n && t->s[i] == '#') {
    s->alternate = true;
    i++;
  }
  if (i < t->n && t->s[i] == '0') {
    s->zero = true;
    if (!filled)
      s->fill = '0';
    if (!s->align)
      s->align = '=';
    i++;
  }
  if (i < t->n && t->s[i] >= '0' && t->s[i] <= '9')
    OK(read_count(r, t, &i, MAX_WIDTH, &s->width));
  if (i < t->n && (t->s[i] == ',' || t->s[i] == '_'))
    s->grouping = t->s[i++];
  if (i < t->n && t->s[i] == '.') {
    i++;
    if (i >= t->n || t->s[i] < '0' || t->s[i] > '9')
      return rt_fail(r, "Format specifier missing precision");
    OK(read_count(r, t, &i, MAX_PRECISION, &s->precision));
  }
  if (i < t->n)
    s->type = t->s[i++];
  if (i < t->n)
    return rt_fail(r, "Invalid format specifier");
  return true;
}

static bool unknown_code(tmpl_rt *r, const spec *s, tv v)
{
  return rt_fail(r, "Unknown or unsupported format code '%c' for object of type '%s'", s->type, tv_type_name(v));
}

static bool format_int(tbuf *b, const spec *s, tv v)
{
  if (s->type && strchr("eEfFgG%", s->type)) {
    put_float(b, s, tn_to_double(v), s->type);
    return true;
  }
  if (s->type && !strchr("dxXob", s->type))
    return unknown_code(b->r, s, v);
  if (s->precision >= 0)
    return rt_fail(b->r, "Precision not allowed in integer format specifier");
  if (s->grouping == ',' && s->type && s->type != 'd')
    return rt_fail(b->r, "Cannot specify ',' with '%c'", s->type);
  return put_int(b, s, v, s->type ? s->type : 'd');
}

static bool format_value(tbuf *b, tv v, const tstr *text)
{
  if (text->n == 0) {
    tv_print(b, v);
    return !b->failed;
  }
  spec s;
  OK(read_spec(b->r, text, &s));
  switch (v.type) {
  case TV_STR:
    if (s.type && s.type != 's')
      return unknown_code(b->r, &s, v);
    if (s.sign || s.alternate || s.grouping || (s.align == '=' && !s.zero))
      return rt_fail(b->r, "format specifier not allowed for strings");
    if (s.zero && s.align == '=')
      s.align = '<';
    put_string(b, &s, v.s);
    return !b->failed;
  case TV_BOOL:
  case TV_INT:
  case TV_BIG:
    return format_int(b, &s, v) && !b->failed;
  case TV_FLOAT:
    if (s.type && !strchr("eEfFgG%n", s.type))
      return unknown_code(b->r, &s, v);
    put_float(b, &s, v.f, s.type);
    return !b->failed;
  default:
    return rt_fail(b->r, "unsupported format string passed to %s.__format__", tv_type_name(v));
  }
}

typedef struct formatter {
  const targs *a;
  int64_t next; /* of automatic numbering; -1: numbers were given */
} formatter;

static bool first_field(tmpl_rt *r, formatter *f, const tstr *name, tv *out)
{
  bool number = name->n > 0;
  int64_t index = 0;
  for (size_t i = 0; i < name->n && number; i++) {
    number = name->s[i] >= '0' && name->s[i] <= '9' && index < 1000000;
    index = index * 10 + (name->s[i] - '0');
  }
  if (name->n == 0) {
    if (f->next < 0)
      return rt_fail(r, "cannot switch from manual field specification to automatic field numbering");
    index = f->next++;
    number = true;
  } else if (number) {
    if (f->next > 0)
      return rt_fail(r, "cannot switch from manual field specification to automatic field numbering");
    f->next = -1;
  }
  if (number) {
    if ((size_t)index >= f->a->n)
      return rt_fail(r, "Replacement index %lld out of range for positional args tuple", (long long)index);
    *out = f->a->v[index];
    return true;
  }
  OK(rt_step(r, f->a->n_kw / 8));
  for (size_t i = 0; i < f->a->n_kw; i++)
    if (ts_equal(f->a->names[i], name)) {
      *out = f->a->kw[i];
      return true;
    }
  return rt_fail(r, "format() has no argument '%.*s'", (int)name->n, name->s);
}

static bool substring(tmpl_rt *r, const tstr *s, size_t from, size_t to, const tstr **out)
{
  tv part;
  OK(ts_slice(r, s, from, to, &part));
  *out = part.s;
  return true;
}

static bool item_key(tmpl_rt *r, const tstr *text, tv *out)
{
  bool number = text->n > 0 && text->n < 18;
  for (size_t i = 0; i < text->n; i++)
    number = number && text->s[i] >= '0' && text->s[i] <= '9';
  if (number)
    return tn_from_digits(r, text->s, text->n, false, out);
  *out = tv_string(text);
  return true;
}

/* name.attr[key]... */
static bool get_field(tmpl_rt *r, formatter *f, const tstr *field, tv *out)
{
  size_t i = 0;
  const tstr *part;
  while (i < field->n && field->s[i] != '.' && field->s[i] != '[')
    i++;
  if (i == 0 && field->n > 0)
    return rt_fail(r, "a field name of the format string begins with '%c'", field->s[0]);
  OK(substring(r, field, 0, i, &part) && first_field(r, f, part, out));
  while (i < field->n) {
    bool dot = field->s[i] == '.';
    size_t from = ++i;
    while (i < field->n && (dot ? field->s[i] != '.' && field->s[i] != '[' : field->s[i] != ']'))
      i++;
    if (i == from || (!dot && i >= field->n))
      return rt_fail(r, "Empty attribute or missing ']' in format string");
    OK(substring(r, field, from, i, &part));
    if (dot) {
      OK(tattr_get(r, *out, part, out));
      continue;
    }
    i++;
    if (i < field->n && field->s[i] != '.' && field->s[i] != '[')
      return rt_fail(r, "Only '.' or '[' may follow ']' in format field specifier");
    tv key;
    OK(item_key(r, part, &key) && tattr_item(r, *out, key, out));
  }
  return true;
}

static bool convert(tmpl_rt *r, char how, tv *v)
{
  tbuf b = {.r = r};
  switch (how) {
  case 's':
    tv_print(&b, *v);
    return tb_take(&b, v);
  case 'r':
    tv_repr(&b, *v);
    return tb_take(&b, v);
  default:
    return rt_fail(r, "Unknown or unsupported conversion specifier '%c'", how);
  }
}

static bool run_format(tbuf *b, formatter *f, const tstr *t, int depth);

/* One {field!conversion:spec}; `from`..`to` is what stands between the braces. */
static bool replacement(tbuf *b, formatter *f, const tstr *t, size_t from, size_t to, int depth)
{
  size_t end = from;
  int brackets = 0;
  while (end < to && (brackets > 0 || (t->s[end] != '!' && t->s[end] != ':'))) {
    brackets += t->s[end] == '[' ? 1 : t->s[end] == ']' ? -1 : 0;
    end++;
  }
  const tstr *field, *raw;
  tv value;
  OK(substring(b->r, t, from, end, &field) && get_field(b->r, f, field, &value));
  size_t i = end;
  if (i < to && t->s[i] == '!') {
    if (i + 1 >= to || (i + 2 < to && t->s[i + 2] != ':'))
      return rt_fail(b->r, "expected ':' after conversion specifier");
    OK(convert(b->r, t->s[i + 1], &value));
    i += 2;
  }
  if (i < to)
    i++; /* the colon */
  OK(substring(b->r, t, i, to, &raw));
  tbuf inner = {.r = b->r};
  tv text;
  OK(run_format(&inner, f, raw, depth - 1) && tb_take(&inner, &text));
  return format_value(b, value, text.s);
}

static bool run_format(tbuf *b, formatter *f, const tstr *t, int depth)
{
  if (depth < 0)
    return rt_fail(b->r, "Max string recursion exceeded");
  for (size_t i = 0; i < t->n;) {
    char c = t->s[i];
    if (c != '{' && c != '}') {
      tb_addc(b, c);
      i++;
      continue;
    }
    if (i + 1 < t->n && t->s[i + 1] == c) {
      tb_addc(b, c);
      i += 2;
      continue;
    }
    if (c == '}')
      return rt_fail(b->r, "Single '}' encountered in format string");
    size_t end = i + 1;
    for (int open = 1; end < t->n; end++) {
      open += t->s[end] == '{' ? 1 : t->s[end] == '}' ? -1 : 0;
      if (open == 0)
        break;
    }
    if (end >= t->n)
      return rt_fail(b->r,
                     i + 1 >= t->n ? "Single '{' encountered in format string" : "expected '}' before end of string");
    OK(replacement(b, f, t, i + 1, end, depth));
    i = end + 1;
  }
  return !b->failed;
}

bool tf_format(tmpl_rt *r, const tstr *format, const targs *a, tv *out)
{
  if (format->markup)
    return rt_fail(r, "format() of a string marked safe is not supported");
  tbuf b = {.r = r};
  formatter f = {.a = a};
  return run_format(&b, &f, format, 2) && tb_take(&b, out);
}

/* ---- the % operator: %[(name)][flags][width][.precision]type ---- */

typedef struct percent {
  tv value;
  size_t next;
  bool named;
} percent;

static bool next_argument(tmpl_rt *r, percent *p, tv *out)
{
  if (p->value.type != TV_TUPLE) {
    *out = p->value;
    if (p->next++ > 0)
      return rt_fail(r, "not enough arguments for format string");
    return true;
  }
  if (p->next >= p->value.l->n)
    return rt_fail(r, "not enough arguments for format string");
  *out = p->value.l->v[p->next++];
  return true;
}

static bool star_or_count(tmpl_rt *r, const tstr *t, size_t *i, percent *p, int64_t most, int64_t *out)
{
  if (*i >= t->n || t->s[*i] != '*')
    return read_count(r, t, i, most, out);
  tv v;
  (*i)++;
  OK(next_argument(r, p, &v));
  if (v.type != TV_INT)
    return rt_fail(r, "* wants int");
  if (v.i > most || v.i < -most)
    return rt_fail_status(r, TERN_E_LIMIT, "a format width or precision beyond %lld", (long long)most);
  *out = v.i;
  return true;
}

static void read_flags(const tstr *t, size_t *i, spec *s)
{
  for (; *i < t->n; (*i)++) {
    switch (t->s[*i]) {
    case '-':
      s->align = '<';
      break;
    case '+':
      s->sign = '+';
      break;
    case ' ':
      if (s->sign != '+')
        s->sign = ' ';
      break;
    case '#':
      s->alternate = true;
      break;
    case '0':
      s->zero = true;
      break;
    default:
      return;
    }
  }
}

static bool percent_number(tbuf *b, spec *s, tv v)
{
  if (s->zero && s->align != '<') {
    s->fill = '0';
    s->align = '=';
  }
  if (strchr("diuxXo", s->type)) {
    if (v.type == TV_FLOAT && strchr("diu", s->type)) {
      if (!isfinite(v.f))
        return rt_fail(b->r, "cannot convert float %s to integer", isnan(v.f) ? "NaN" : "infinity");
      OK(tn_from_double(b->r, v.f, &v));
    }
    if (!tv_is_integer(v))
      return rt_fail(b->r, "%%%c format: a real number is required, not %s", s->type, tv_type_name(v));
    char type = strchr("iu", s->type) ? 'd' : s->type;
    if (s->precision < 0)
      return put_int(b, s, v, type);
    spec digits = {.fill = '0', .align = '=', .width = s->precision, .precision = -1};
    tbuf body = {.r = b->r};
    tv text, positive = v;
    bool negative = v.type == TV_BIG ? v.g->negative : v.type == TV_INT && v.i < 0;
    if (negative)
      OK(tv_negate(b->r, v, &positive));
    OK(put_int(&body, &digits, positive, type) && tb_take(&body, &text));
    if (text.s->n >= NUMBER_ROOM)
      return rt_fail_status(b->r, TERN_E_LIMIT, "a number of more than %d digits", NUMBER_ROOM);
    const char *prefix = !s->alternate ? "" : type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : "";
    put_number(b, s, negative, prefix, text.s->s, text.s->n, text.s->n, 3);
    return true;
  }
  if (!tv_is_number(v)) {
    if (v.type == TV_UNDEF)
      return tv_fail_undefined(b->r, v);
    return rt_fail(b->r, "must be real number, not %s", tv_type_name(v));
  }
  if (s->precision < 0)
    s->precision = 6;
  put_float(b, s, tn_to_double(v), s->type);
  return true;
}

static bool percent_character(tbuf *b, const spec *s, tv v)
{
  tv text = v;
  if (v.type == TV_INT && v.i >= 0 && v.i < 0x110000 && !(v.i >= 0xd800 && v.i < 0xe000)) {
    tbuf one = {.r = b->r};
    tb_char(&one, (uint32_t)v.i);
    OK(tb_take(&one, &text));
  } else if (v.type != TV_STR || v.s->chars != 1) {
    return rt_fail(b->r, "%%c requires int or char");
  }
  spec padded = *s;
  padded.align = s->align ? s->align : '>';
  padded.precision = -1;
  put_string(b, &padded, text.s);
  return true;
}

static bool percent_value(tbuf *b, spec *s, tv v)
{
  switch (s->type) {
  case 's':
  case 'r': {
    tbuf text = {.r = b->r};
    tv value;
    if (s->type == 's')
      tv_print(&text, v);
    else
      tv_repr(&text, v);
    OK(tb_take(&text, &value));
    s->align = s->align ? s->align : '>';
    put_string(b, s, value.s);
    return true;
  }
  case 'c':
    return percent_character(b, s, v);
  case 'd':
  case 'i':
  case 'u':
  case 'x':
  case 'X':
  case 'o':
  case 'e':
  case 'E':
  case 'f':
  case 'F':
  case 'g':
  case 'G':
    return percent_number(b, s, v);
  default:
    return rt_fail(b->r, "unsupported format character '%c'", s->type);
  }
}

static bool percent_one(tbuf *b, const tstr *t, size_t *i, percent *p)
{
  spec s = {.fill = ' ', .width = -1, .precision = -1};
  tv v = {.type = TV_MISSING};
  if (*i < t->n && t->s[*i] == '(') {
    size_t from = ++*i;
    int open = 1;
    for (; *i < t->n; (*i)++) {
      open += t->s[*i] == '(' ? 1 : t->s[*i] == ')' ? -1 : 0;
      if (open == 0)
        break;
    }
    if (*i >= t->n)
      return rt_fail(b->r, "incomplete format key");
    if (p->value.type != TV_DICT)
      return rt_fail(b->r, "format requires a mapping");
    tv key;
    OK(ts_slice(b->r, t, from, (*i)++, &key) && td_get(b->r, p->value.d, key, &v));
    if (!tv_given(v))
      return rt_fail(b->r, "the format key '%.*s' is missing", (int)key.s->n, key.s->s);
    p->named = true;
  }
  read_flags(t, i, &s);
  if (*i < t->n && (t->s[*i] == '*' || (t->s[*i] >= '0' && t->s[*i] <= '9')))
    OK(star_or_count(b->r, t, i, p, MAX_WIDTH, &s.width));
  if (s.width < -1) {
    s.align = '<';
    s.width = -s.width;
  }
  if (*i < t->n && t->s[*i] == '.') {
    (*i)++;
    OK(star_or_count(b->r, t, i, p, MAX_PRECISION, &s.precision));
    if (s.precision < 0)
      s.precision = 0;
  }
  while (*i < t->n && strchr("hlL", t->s[*i]) && t->s[*i])
    (*i)++;
  if (*i >= t->n)
    return rt_fail(b->r, "incomplete format");
  s.type = t->s[(*i)++];
  if (s.type == '%') {
    tb_addc(b, '%');
    return true;
  }
  if (!tv_given(v))
    OK(next_argument(b->r, p, &v));
  return percent_value(b, &s, v);
}

bool tf_percent(tmpl_rt *r, const tstr *format, tv value, tv *out)
{
  if (format->markup)
    return rt_fail(r, "the %% operator on a string marked safe is not supported");
  tbuf b = {.r = r};
  percent p = {.value = value};
  OK(rt_walk(r, format->n));
  for (size_t i = 0; i < format->n && !b.failed;) {
    if (format->s[i] != '%') {
      tb_addc(&b, format->s[i++]);
      continue;
    }
    i++;
    OK(percent_one(&b, format, &i, &p));
  }
  bool all = value.type == TV_TUPLE ? p.next >= value.l->n : p.next > 0;
  bool spare_allowed = p.named || value.type == TV_DICT || value.type == TV_LIST;
  if (!all && (value.type == TV_TUPLE || !spare_allowed))
    return rt_fail(r, "not all arguments converted during string formatting");
  return tb_take(&b, out);
}
