/* tmpl_filters.c - finding and calling filters, and the filters on text and numbers. */
#include "text/tmpl_filters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tmpl_attr.h"
#include "text/tmpl_case.h"
#include "text/tmpl_format.h"
#include "text/tmpl_json.h"
#include "text/tmpl_unicode.h"

#define FILTER(name) static bool name(tmpl_rt *r, tv value, const tv *slots, const targs *a, tv *out)
#define UNUSED_ARGS ((void)slots, (void)a)

/* ---- finding and calling ---- */

const tfilter *tfilter_find(const tstr *name)
{
  static const tfilter *const tables[] = {tfilters_text, tfilters_sequence, tfilters_select};
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const tfilter *f = tables[t]; f->name; f++)
      if (ts_is(name, f->name))
        return f;
  return NULL;
}

bool tfilter_call(tmpl_rt *r, const tfilter *f, tv value, const targs *a, tv *out)
{
  tv slots[TMPL_MAX_PARAMS];
  if (!f->run)
    return rt_fail(r, "the filter '%s' is not supported", f->name);
  if (*f->names != '*')
    OK(targs_bind(r, f->name, f->names, a, slots));
  OK(rt_step(r, 1) && rt_enter(r));
  bool ok = f->run(r, value, slots, a, out);
  rt_leave(r);
  return ok;
}

/* ---- text ---- */

typedef bool (*mapping)(tmpl_rt *r, const tstr *s, tv *out);

static bool map_text(tmpl_rt *r, tv value, mapping map, tv *out)
{
  tv text;
  return tv_soft_str(r, value, &text) && map(r, text.s, out);
}

FILTER(f_upper)
{
  UNUSED_ARGS;
  return map_text(r, value, tc_upper, out);
}

FILTER(f_lower)
{
  UNUSED_ARGS;
  return map_text(r, value, tc_lower, out);
}

FILTER(f_capitalize)
{
  UNUSED_ARGS;
  return map_text(r, value, tc_capitalize, out);
}

/* Words start after blanks, hyphens and opening brackets; the first character goes up, the others down. */
FILTER(f_title)
{
  UNUSED_ARGS;
  tv text, part, plain;
  OK(tv_soft_str(r, value, &text) && rt_walk(r, text.s->n));
  const tstr *s = text.s;
  tbuf b = {.r = r};
  for (size_t i = 0; i < s->n;) {
    size_t end = i, first = 0;
    bool between = false;
    while (end < s->n) {
      uint32_t c;
      size_t used = utf8_decode(s->s + end, s->n - end, &c);
      bool breaks = tu_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
      if (end == i) {
        between = breaks;
        first = used;
      } else if (breaks != between) {
        break;
      }
      end += used;
    }
    OK(ts_slice(r, s, i, i + first, &part) && tc_upper(r, part.s, &part));
    tb_str(&b, part.s);
    OK(ts_slice(r, s, i + first, end, &part) && tc_lower(r, part.s, &part));
    tb_str(&b, part.s);
    i = end;
  }
  OK(tb_take(&b, &plain));
  *out = plain;
  return true;
}

FILTER(f_trim)
{
  (void)a;
  tv text;
  const tstr *chars = NULL;
  OK(tv_soft_str(r, value, &text));
  if (tv_given(slots[0]) && slots[0].type != TV_NONE) {
    if (slots[0].type != TV_STR)
      return rt_fail(r, "strip arg must be None or str");
    chars = slots[0].s;
  }
  return tc_strip(r, text.s, chars, true, true, out);
}

FILTER(f_string)
{
  UNUSED_ARGS;
  return tv_soft_str(r, value, out);
}

FILTER(f_safe)
{
  UNUSED_ARGS;
  tv text;
  return tv_soft_str(r, value, &text) && ts_markup(r, text.s, true, out);
}

FILTER(f_escape)
{
  UNUSED_ARGS;
  tv text;
  OK(tv_soft_str(r, value, &text));
  if (text.s->markup) {
    *out = text;
    return true;
  }
  return ts_escape(r, text.s, out);
}

FILTER(f_forceescape)
{
  UNUSED_ARGS;
  tv text;
  return tv_to_str(r, value, &text) && ts_escape(r, text.s, out);
}

FILTER(f_replace)
{
  (void)a;
  tv s, from, to;
  int64_t count = -1;
  OK(tv_to_str(r, value, &s) && tv_to_str(r, slots[0], &from) && tv_to_str(r, slots[1], &to));
  if (tv_given(slots[2]) && slots[2].type != TV_NONE)
    OK(tn_index(r, slots[2], "count", &count));
  return tc_replace(r, s.s, from.s, to.s, count, out);
}

FILTER(f_center)
{
  (void)a;
  tv text;
  int64_t width = 80;
  OK(tv_soft_str(r, value, &text));
  if (tv_given(slots[0]))
    OK(tn_index(r, slots[0], "width", &width));
  return tc_pad(r, text.s, width, ' ', true, true, out);
}

static bool indent_unit(tmpl_rt *r, tv width, tv *out)
{
  if (width.type == TV_STR) {
    *out = width;
    return true;
  }
  int64_t n = 4;
  if (tv_given(width))
    OK(tn_index(r, width, "width", &n));
  if (n > 100000)
    return rt_fail_status(r, TERN_E_LIMIT, "an indent of more than 100000 blanks");
  tbuf b = {.r = r};
  tb_fill(&b, ' ', n > 0 ? (size_t)n : 0);
  return tb_take(&b, out);
}

FILTER(f_indent)
{
  (void)a;
  tv unit;
  tlist *lines;
  bool first = tv_given(slots[1]) && tv_truth(slots[1]), blank = tv_given(slots[2]) && tv_truth(slots[2]);
  if (value.type == TV_UNDEF)
    return tv_fail_undefined(r, value);
  if (value.type != TV_STR)
    return rt_fail(r, "indent: unsupported operand type(s) for +=: '%s' and 'str'", tv_type_name(value));
  OK(indent_unit(r, slots[0], &unit));
  tbuf b = {.r = r};
  tv newline, with_end;
  OK(ts_cstr(r, "\n", &newline) && ts_concat(r, value.s, newline.s, &with_end));
  OK(tc_splitlines(r, with_end.s, false, &lines));
  if (first)
    tb_str(&b, unit.s);
  for (size_t i = 0; i < lines->n; i++) {
    if (i)
      tb_addc(&b, '\n');
    if (i && (blank || lines->v[i].s->n > 0))
      tb_str(&b, unit.s);
    tb_str(&b, lines->v[i].s);
  }
  tv plain;
  OK(tb_take(&b, &plain));
  return ts_markup(r, plain.s, value.s->markup, out);
}

static bool int_or(tmpl_rt *r, tv v, const char *what, int64_t otherwise, int64_t *out)
{
  *out = otherwise;
  return !tv_given(v) || v.type == TV_NONE || tn_index(r, v, what, out);
}

FILTER(f_truncate)
{
  (void)a;
  int64_t length, leeway, count;
  tv end, cut;
  OK(int_or(r, slots[0], "length", 255, &length) && int_or(r, slots[3], "leeway", 5, &leeway));
  bool kill = tv_given(slots[1]) && tv_truth(slots[1]);
  if (tv_given(slots[2]) && slots[2].type != TV_STR)
    return rt_fail(r, "truncate: end must be a string");
  if (tv_given(slots[2]))
    end = slots[2];
  else
    OK(ts_cstr(r, "...", &end));
  if (length < (int64_t)end.s->chars)
    return rt_fail(r, "expected length >= %zu, got %lld", end.s->chars, (long long)length);
  if (leeway < 0)
    return rt_fail(r, "expected leeway >= 0, got %lld", (long long)leeway);
  OK(tv_length(r, value, &count));
  if (value.type != TV_STR) {
    if (value.type == TV_UNDEF) { /* its length is 0 */
      *out = value;
      return true;
    }
    return rt_fail(r, "truncate of '%s' is not supported", tv_type_name(value));
  }
  if (count <= length + leeway) {
    *out = value;
    return true;
  }
  size_t keep = ts_offset(r, value.s, (size_t)length - end.s->chars);
  OK(ts_slice(r, value.s, 0, keep, &cut));
  if (!kill) {
    tlist *parts;
    tv blank;
    OK(ts_cstr(r, " ", &blank) && tc_split(r, cut.s, blank.s, 1, true, &parts));
    cut = parts->v[0];
  }
  return tv_binary(r, OP_ADD, cut, end, out);
}

FILTER(f_wordcount)
{
  UNUSED_ARGS;
  tv text;
  int64_t count = 0;
  bool inside = false;
  OK(tv_soft_str(r, value, &text) && rt_walk(r, text.s->n));
  for (size_t i = 0; i < text.s->n;) {
    uint32_t c;
    i += utf8_decode(text.s->s + i, text.s->n - i, &c);
    bool is_word = tu_is_word(c);
    count += is_word && !inside;
    inside = is_word;
  }
  *out = tv_int(count);
  return true;
}

FILTER(f_format)
{
  (void)slots;
  tv text, values;
  OK(tv_soft_str(r, value, &text));
  if (a->n && a->n_kw)
    return rt_fail(r, "can't handle positional and keyword arguments at the same time");
  if (a->n_kw) {
    tdict *d;
    OK(td_new(r, &d));
    for (size_t i = 0; i < a->n_kw; i++)
      OK(td_set(r, d, tv_string(a->names[i]), a->kw[i]));
    values = tv_dict(d);
  } else {
    tlist *l;
    OK(tl_new(r, a->n, &l));
    for (size_t i = 0; i < a->n; i++)
      OK(tl_add(r, l, a->v[i]));
    values = tv_seq(TV_TUPLE, l);
  }
  return tf_percent(r, text.s, values, out);
}

static void quote_url(tbuf *b, const tstr *s, bool query)
{
  static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~";
  for (size_t i = 0; i < s->n; i++) {
    char c = s->s[i], text[4];
    if (query && c == ' ') {
      tb_addc(b, '+');
    } else if (c && (strchr(safe, c) || (c == '/' && !query))) {
      tb_addc(b, c);
    } else {
      snprintf(text, sizeof text, "%%%02X", (unsigned char)c);
      tb_adds(b, text);
    }
  }
}

FILTER(f_urlencode)
{
  UNUSED_ARGS;
  tbuf b = {.r = r};
  tv text;
  if (value.type == TV_STR || !ti_iterable(value)) {
    OK(tv_to_str(r, value, &text));
    quote_url(&b, text.s, false);
    return tb_take(&b, out);
  }
  if (value.type == TV_DICT)
    value = (tv){.type = TV_VIEW, .kind = VIEW_ITEMS, .d = value.d};
  tlist *pairs;
  OK(ti_list(r, value, &pairs));
  for (size_t i = 0; i < pairs->n; i++) {
    tlist *pair;
    OK(ti_list(r, pairs->v[i], &pair));
    if (pair->n != 2)
      return rt_fail(r, "urlencode: pairs are expected");
    if (i)
      tb_addc(&b, '&');
    for (size_t k = 0; k < 2; k++) {
      OK(tv_to_str(r, pair->v[k], &text));
      quote_url(&b, text.s, true);
      if (k == 0)
        tb_addc(&b, '=');
    }
  }
  return tb_take(&b, out);
}

/* ---- numbers ---- */

FILTER(f_int)
{
  (void)a;
  int64_t base = 10;
  bool ok = false;
  if (tv_given(slots[1]))
    OK(tn_index(r, slots[1], "base", &base));
  double d = 0;
  if (value.type == TV_STR) {
    OK(rt_walk(r, value.s->n));
    if (base < 0 || base == 1 || base > 36)
      base = -1; /* a ValueError, which the filter swallows */
    if (base >= 0)
      OK(tn_parse_int(r, value.s->s, value.s->n, (int)base, out, &ok));
    if (ok)
      return true;
    OK(tn_parse_float(r, value.s->s, value.s->n, &d, &ok));
  } else if (tv_is_integer(value)) {
    return tv_positive(r, value, out);
  } else if (value.type == TV_FLOAT) {
    if (isinf(value.f))
      return rt_fail(r, "cannot convert float infinity to integer");
    d = value.f;
    ok = true;
  } else if (value.type == TV_UNDEF) {
    return tv_fail_undefined(r, value);
  }
  if (ok && isfinite(d))
    return tn_from_double(r, d, out);
  *out = tv_given(slots[0]) ? slots[0] : tv_int(0);
  return true;
}

FILTER(f_float)
{
  (void)a;
  double d;
  bool ok = false;
  if (value.type == TV_UNDEF)
    return tv_fail_undefined(r, value);
  if (value.type == TV_STR)
    OK(rt_walk(r, value.s->n) && tn_parse_float(r, value.s->s, value.s->n, &d, &ok));
  if (tv_is_number(value)) {
    d = tn_to_double(value);
    if (value.type == TV_BIG && isinf(d))
      return rt_fail(r, "int too large to convert to float");
    ok = true;
  }
  if (ok)
    *out = tv_float(d);
  else
    *out = tv_given(slots[0]) ? slots[0] : tv_float(0.0);
  return true;
}

FILTER(f_abs)
{
  UNUSED_ARGS;
  if (!tv_is_number(value))
    return value.type == TV_UNDEF ? tv_fail_undefined(r, value)
                                  : rt_fail(r, "bad operand type for abs(): '%s'", tv_type_name(value));
  if (value.type == TV_FLOAT) {
    *out = tv_float(fabs(value.f));
    return true;
  }
  return tn_compare(value, tv_int(0)) < 0 ? tv_negate(r, value, out) : tv_positive(r, value, out);
}

static bool round_away(tmpl_rt *r, tv value, int64_t digits, bool up, tv *out)
{
  tv unit, scaled, whole;
  OK(tv_binary(r, OP_POW, tv_int(10), tv_int(digits), &unit) && tv_binary(r, OP_MUL, value, unit, &scaled));
  if (scaled.type == TV_FLOAT) {
    if (!isfinite(scaled.f))
      return rt_fail(r, "cannot convert float %s to integer", isnan(scaled.f) ? "NaN" : "infinity");
    OK(tn_from_double(r, up ? ceil(scaled.f) : floor(scaled.f), &whole));
  } else {
    whole = scaled;
  }
  return tv_binary(r, OP_DIV, whole, unit, out);
}

FILTER(f_round)
{
  (void)a;
  int64_t digits = 0;
  if (tv_given(slots[0]))
    OK(tn_index(r, slots[0], "precision", &digits));
  if (tv_given(slots[1]) && slots[1].type != TV_STR)
    return rt_fail(r, "method must be common, ceil or floor");
  bool up = tv_given(slots[1]) && ts_is(slots[1].s, "ceil"), down = tv_given(slots[1]) && ts_is(slots[1].s, "floor");
  if (tv_given(slots[1]) && !up && !down && !ts_is(slots[1].s, "common"))
    return rt_fail(r, "method must be common, ceil or floor");
  if (value.type == TV_UNDEF)
    return tv_fail_undefined(r, value);
  if (!tv_is_number(value))
    return rt_fail(r, "type %s doesn't define __round__ method", tv_type_name(value));
  return up || down ? round_away(r, value, digits, up, out) : tn_round(r, value, digits, out);
}

FILTER(f_filesizeformat)
{
  (void)a;
  static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  bool two = tv_given(slots[0]) && tv_truth(slots[0]), ok = tv_is_number(value);
  double bytes = 0;
  if (value.type == TV_UNDEF)
    return tv_fail_undefined(r, value);
  if (value.type == TV_STR)
    OK(rt_walk(r, value.s->n) && tn_parse_float(r, value.s->s, value.s->n, &bytes, &ok));
  else if (ok)
    bytes = tn_to_double(value);
  if (!ok || !isfinite(bytes))
    return rt_fail(r, "filesizeformat: a number is expected");
  char text[400];
  double base = two ? 1024 : 1000, unit = base;
  if (bytes == 1) {
    snprintf(text, sizeof text, "1 Byte");
  } else if (bytes < base) {
    snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes));
  } else {
    int i = 0;
    for (unit *= base; i < 7 && bytes >= unit; i++)
      unit *= base;
    snprintf(text, sizeof text, "%.1f %s", base * bytes / unit, two ? binary[i] : decimal[i]);
  }
  return ts_new(r, text, strlen(text), out);
}

/* ---- anything ---- */

FILTER(f_default)
{
  (void)a;
  bool empty = value.type == TV_UNDEF || (tv_given(slots[1]) && tv_truth(slots[1]) && !tv_truth(value));
  *out = value;
  if (!empty)
    return true;
  if (!tv_given(slots[0]))
    return ts_cstr(r, "", out);
  *out = slots[0];
  return true;
}

FILTER(f_length)
{
  UNUSED_ARGS;
  int64_t n;
  OK(tv_length(r, value, &n));
  *out = tv_int(n);
  return true;
}

/* Attributes only, never items. */
FILTER(f_attr)
{
  (void)a;
  bool found = false;
  if (slots[0].type != TV_STR)
    return rt_fail(r, "attribute name must be string, not '%s'", tv_type_name(slots[0]));
  OK(tattr_lookup(r, value, slots[0].s, out, &found));
  return found || tv_undef_attribute(r, value, slots[0], out);
}

const tfilter tfilters_text[] = {
    {"tojson", tj_filter, "ensure_ascii? indent? separators? sort_keys?"},
    {"length", f_length, ""},
    {"count", f_length, ""},
    {"trim", f_trim, "chars?"},
    {"string", f_string, ""},
    {"default", f_default, "default_value? boolean?"},
    {"d", f_default, "default_value? boolean?"},
    {"safe", f_safe, ""},
    {"lower", f_lower, ""},
    {"upper", f_upper, ""},
    {"replace", f_replace, "old new count?"},
    {"indent", f_indent, "width? first? blank?"},
    {"int", f_int, "default? base?"},
    {"float", f_float, "default?"},
    {"title", f_title, ""},
    {"capitalize", f_capitalize, ""},
    {"abs", f_abs, ""},
    {"round", f_round, "precision? method?"},
    {"escape", f_escape, ""},
    {"e", f_escape, ""},
    {"forceescape", f_forceescape, ""},
    {"center", f_center, "width?"},
    {"truncate", f_truncate, "length? killwords? end? leeway?"},
    {"wordcount", f_wordcount, ""},
    {"format", f_format, "*"},
    {"urlencode", f_urlencode, ""},
    {"filesizeformat", f_filesizeformat, "binary?"},
    {"attr", f_attr, "name"},
    {"pprint", NULL, "*"},
    {"random", NULL, "*"},
    {"striptags", NULL, "*"},
    {"urlize", NULL, "*"},
    {"wordwrap", NULL, "*"},
    {"xmlattr", NULL, "*"},
    {0},
};
