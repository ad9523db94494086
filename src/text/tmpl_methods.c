/* tmpl_methods.c - the methods of str. Arguments go by position (split and splitlines excepted), as in Python. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tmpl_attr.h"
#include "text/tmpl_case.h"
#include "text/tmpl_format.h"
#include "text/tmpl_unicode.h"

#define METHOD(name) static bool name(tmpl_rt *r, tv self, const tv *slots, const targs *a, tv *out)
#define UNUSED_ARGS ((void)slots, (void)a)

/* ---- arguments ---- */

static bool string_arg(tmpl_rt *r, tv v, const char *who, const tstr **out)
{
  *out = NULL;
  if (v.type != TV_STR)
    return rt_fail(r, "%s() argument must be str, not %s", who, tv_type_name(v));
  *out = v.s;
  return true;
}

/* None and a missing argument are both "by default". */
static bool optional_string(tmpl_rt *r, tv v, const char *who, const tstr **out)
{
  *out = NULL;
  return !tv_given(v) || v.type == TV_NONE || string_arg(r, v, who, out);
}

static bool optional_int(tmpl_rt *r, tv v, const char *who, int64_t otherwise, int64_t *out)
{
  *out = otherwise;
  return !tv_given(v) || tn_index(r, v, who, out);
}

/* start and end of find and its kin, as byte offsets; *beyond: start lies behind the end of the text. */
static bool window(tmpl_rt *r, const tstr *s, const tv *slots, size_t *from, size_t *to, bool *beyond)
{
  int64_t n = (int64_t)s->chars, start = 0, end = n;
  if (tv_given(slots[0]) && slots[0].type != TV_NONE)
    OK(tn_index(r, slots[0], "start", &start));
  if (tv_given(slots[1]) && slots[1].type != TV_NONE)
    OK(tn_index(r, slots[1], "end", &end));
  if (end > n)
    end = n;
  else if (end < 0)
    end = end + n < 0 ? 0 : end + n;
  if (start < 0)
    start = start + n < 0 ? 0 : start + n;
  *beyond = start > n || start > end;
  *from = ts_offset(r, s, (size_t)(start > n ? n : start));
  *to = ts_offset(r, s, (size_t)end);
  return true;
}

/* ---- case ---- */

METHOD(str_upper)
{
  UNUSED_ARGS;
  return tc_upper(r, self.s, out);
}

METHOD(str_lower)
{
  UNUSED_ARGS;
  return tc_lower(r, self.s, out);
}

METHOD(str_title)
{
  UNUSED_ARGS;
  return tc_title(r, self.s, out);
}

METHOD(str_capitalize)
{
  UNUSED_ARGS;
  return tc_capitalize(r, self.s, out);
}

METHOD(str_swapcase)
{
  UNUSED_ARGS;
  return tc_swapcase(r, self.s, out);
}

METHOD(str_casefold)
{
  UNUSED_ARGS;
  if (self.s->n != self.s->chars)
    return rt_fail(r, "the method 'casefold' is supported for ASCII text only");
  return tc_lower(r, self.s, out);
}

/* ---- strip, prefixes ---- */

METHOD(str_strip)
{
  (void)a;
  const tstr *chars;
  return optional_string(r, slots[0], "strip", &chars) && tc_strip(r, self.s, chars, true, true, out);
}

METHOD(str_lstrip)
{
  (void)a;
  const tstr *chars;
  return optional_string(r, slots[0], "lstrip", &chars) && tc_strip(r, self.s, chars, true, false, out);
}

METHOD(str_rstrip)
{
  (void)a;
  const tstr *chars;
  return optional_string(r, slots[0], "rstrip", &chars) && tc_strip(r, self.s, chars, false, true, out);
}

static bool matches(const tstr *s, size_t from, size_t to, const tstr *part, bool at_end)
{
  if (part->n > to - from)
    return false;
  return part->n == 0 || memcmp(s->s + (at_end ? to - part->n : from), part->s, part->n) == 0;
}

static bool affix(tmpl_rt *r, const tstr *s, const tv *slots, bool at_end, tv *out)
{
  const char *who = at_end ? "endswith" : "startswith";
  size_t from, to;
  bool beyond, found = false;
  OK(window(r, s, slots + 1, &from, &to, &beyond) && (slots[0].type != TV_STR || rt_scan(r, slots[0].s->n)));
  if (slots[0].type == TV_TUPLE) {
    for (size_t i = 0; i < slots[0].l->n && !found; i++) {
      const tstr *part;
      OK(rt_step(r, 1) && string_arg(r, slots[0].l->v[i], who, &part));
      found = !beyond && matches(s, from, to, part, at_end);
    }
  } else {
    if (slots[0].type != TV_STR)
      return rt_fail(r, "%s first arg must be str or a tuple of str, not %s", who, tv_type_name(slots[0]));
    found = !beyond && matches(s, from, to, slots[0].s, at_end);
  }
  *out = tv_bool(found);
  return true;
}

METHOD(str_startswith)
{
  (void)a;
  return affix(r, self.s, slots, false, out);
}

METHOD(str_endswith)
{
  (void)a;
  return affix(r, self.s, slots, true, out);
}

METHOD(str_removeprefix)
{
  (void)a;
  const tstr *part;
  OK(string_arg(r, slots[0], "removeprefix", &part));
  size_t from = matches(self.s, 0, self.s->n, part, false) ? part->n : 0;
  return ts_slice(r, self.s, from, self.s->n, out);
}

METHOD(str_removesuffix)
{
  (void)a;
  const tstr *part;
  OK(string_arg(r, slots[0], "removesuffix", &part));
  size_t cut = matches(self.s, 0, self.s->n, part, true) ? part->n : 0;
  return ts_slice(r, self.s, 0, self.s->n - cut, out);
}

/* ---- searching ---- */

static bool search(tmpl_rt *r, const tstr *s, const tv *slots, const char *who, bool backward, bool must, tv *out)
{
  const tstr *part;
  size_t from, to;
  bool beyond;
  OK(string_arg(r, slots[0], who, &part) && window(r, s, slots + 1, &from, &to, &beyond));
  size_t hit = SIZE_MAX;
  if (!beyond) {
    hit = backward ? ts_rfind(r, s, part, to) : ts_find(r, s, part, from);
    if (hit != SIZE_MAX && (hit < from || hit + part->n > to))
      hit = SIZE_MAX;
  }
  if (hit != SIZE_MAX)
    OK(rt_scan(r, hit));
  if (hit == SIZE_MAX && must)
    return rt_fail(r, "substring not found");
  *out = tv_int(hit == SIZE_MAX ? -1 : (int64_t)utf8_length(s->s, hit));
  return true;
}

METHOD(str_find)
{
  (void)a;
  return search(r, self.s, slots, "find", false, false, out);
}

METHOD(str_rfind)
{
  (void)a;
  return search(r, self.s, slots, "rfind", true, false, out);
}

METHOD(str_index)
{
  (void)a;
  return search(r, self.s, slots, "index", false, true, out);
}

METHOD(str_rindex)
{
  (void)a;
  return search(r, self.s, slots, "rindex", true, true, out);
}

METHOD(str_count)
{
  (void)a;
  const tstr *part;
  size_t from, to;
  bool beyond;
  OK(string_arg(r, slots[0], "count", &part) && window(r, self.s, slots + 1, &from, &to, &beyond));
  int64_t count = 0;
  if (beyond) {
    count = 0;
  } else if (part->n == 0) {
    OK(rt_scan(r, to - from));
    count = (int64_t)utf8_length(self.s->s + from, to - from) + 1;
  } else {
    for (;;) {
      size_t hit = ts_find(r, self.s, part, from);
      if (hit == SIZE_MAX || hit + part->n > to)
        break;
      OK(rt_step(r, 1));
      count++;
      from = hit + part->n;
    }
  }
  *out = tv_int(count);
  return true;
}

METHOD(str_replace)
{
  (void)a;
  const tstr *from, *to;
  int64_t count;
  OK(string_arg(r, slots[0], "replace", &from) && string_arg(r, slots[1], "replace", &to));
  OK(optional_int(r, slots[2], "replace", -1, &count));
  if (self.s->markup && !to->markup) {
    tv escaped;
    OK(ts_escape(r, to, &escaped));
    to = escaped.s;
  }
  return tc_replace(r, self.s, from, to, count, out);
}

/* ---- splitting and joining ---- */

static bool split(tmpl_rt *r, tv self, const tv *slots, bool from_right, tv *out)
{
  const tstr *separator;
  int64_t most;
  tlist *l;
  OK(optional_string(r, slots[0], "split", &separator) && optional_int(r, slots[1], "maxsplit", -1, &most));
  OK(tc_split(r, self.s, separator, most, from_right, &l));
  *out = tv_seq(TV_LIST, l);
  return true;
}

METHOD(str_split)
{
  (void)a;
  return split(r, self, slots, false, out);
}

METHOD(str_rsplit)
{
  (void)a;
  return split(r, self, slots, true, out);
}

METHOD(str_splitlines)
{
  (void)a;
  tlist *l;
  OK(tc_splitlines(r, self.s, tv_given(slots[0]) && tv_truth(slots[0]), &l));
  *out = tv_seq(TV_LIST, l);
  return true;
}

static bool partition(tmpl_rt *r, tv self, const tv *slots, bool from_right, tv *out)
{
  const tstr *separator;
  OK(string_arg(r, slots[0], "partition", &separator));
  if (separator->n == 0)
    return rt_fail(r, "empty separator");
  size_t hit = from_right ? ts_rfind(r, self.s, separator, self.s->n) : ts_find(r, self.s, separator, 0);
  tlist *l;
  OK(tl_new(r, 3, &l));
  tv parts[3];
  if (hit == SIZE_MAX) {
    size_t edge = from_right ? 0 : self.s->n;
    OK(ts_slice(r, self.s, 0, edge, &parts[0]) && ts_slice(r, self.s, 0, 0, &parts[1]));
    OK(ts_slice(r, self.s, edge, self.s->n, &parts[2]));
  } else {
    size_t after = hit + separator->n;
    OK(ts_slice(r, self.s, 0, hit, &parts[0]) && ts_slice(r, self.s, hit, after, &parts[1]));
    OK(ts_slice(r, self.s, after, self.s->n, &parts[2]));
  }
  for (int i = 0; i < 3; i++)
    OK(tl_add(r, l, parts[i]));
  *out = tv_seq(TV_TUPLE, l);
  return true;
}

METHOD(str_partition)
{
  (void)a;
  return partition(r, self, slots, false, out);
}

METHOD(str_rpartition)
{
  (void)a;
  return partition(r, self, slots, true, out);
}

METHOD(str_join)
{
  (void)a;
  tlist *l;
  if (!ti_iterable(slots[0]))
    return rt_fail(r, "can only join an iterable");
  OK(ti_list(r, slots[0], &l));
  for (size_t i = 0; i < l->n; i++) {
    if (l->v[i].type != TV_STR && !self.s->markup)
      return rt_fail(r, "sequence item %zu: expected str instance, %s found", i, tv_type_name(l->v[i]));
    OK(tv_soft_str(r, l->v[i], &l->v[i]));
    if (self.s->markup && !l->v[i].s->markup)
      OK(ts_escape(r, l->v[i].s, &l->v[i]));
  }
  tv joined;
  OK(tc_join(r, self.s, l, &joined));
  return ts_markup(r, joined.s, self.s->markup, out);
}

/* ---- padding ---- */

static bool pad(tmpl_rt *r, tv self, const tv *slots, bool left, bool right, tv *out)
{
  int64_t width;
  uint32_t fill = ' ';
  OK(tn_index(r, slots[0], "width", &width));
  if (tv_given(slots[1])) {
    if (slots[1].type != TV_STR || slots[1].s->chars != 1)
      return rt_fail(r, "The fill character must be exactly one character long");
    utf8_decode(slots[1].s->s, slots[1].s->n, &fill);
  }
  return tc_pad(r, self.s, width, fill, left, right, out);
}

METHOD(str_ljust)
{
  (void)a;
  return pad(r, self, slots, false, true, out);
}

METHOD(str_rjust)
{
  (void)a;
  return pad(r, self, slots, true, false, out);
}

METHOD(str_center)
{
  (void)a;
  return pad(r, self, slots, true, true, out);
}

METHOD(str_zfill)
{
  (void)a;
  int64_t width;
  OK(tn_index(r, slots[0], "width", &width));
  const tstr *s = self.s;
  bool sign = s->n > 0 && (s->s[0] == '+' || s->s[0] == '-');
  if (!sign || width <= (int64_t)s->chars)
    return tc_pad(r, s, width, '0', true, false, out);
  tv digits, padded, lead, joined;
  OK(ts_slice(r, s, 1, s->n, &digits) && tc_pad(r, digits.s, width - 1, '0', true, false, &padded));
  OK(ts_slice(r, s, 0, 1, &lead) && ts_concat(r, lead.s, padded.s, &joined));
  return ts_markup(r, joined.s, s->markup, out);
}

METHOD(str_expandtabs)
{
  (void)a;
  int64_t size;
  OK(optional_int(r, slots[0], "tabsize", 8, &size));
  if (size > 4096)
    return rt_fail_status(r, TERN_E_LIMIT, "tabs of more than 4096 columns");
  tbuf b = {.r = r};
  OK(rt_walk(r, self.s->n));
  int64_t column = 0;
  for (size_t i = 0; i < self.s->n;) {
    uint32_t c;
    size_t used = utf8_decode(self.s->s + i, self.s->n - i, &c);
    if (c == '\t') {
      int64_t blanks = size > 0 ? size - column % size : 0;
      tb_fill(&b, ' ', (size_t)blanks);
      column += blanks;
    } else {
      tb_add(&b, self.s->s + i, used);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    i += used;
  }
  tv plain;
  OK(tb_take(&b, &plain));
  return ts_markup(r, plain.s, self.s->markup, out);
}

/* ---- classes of characters ---- */

static bool all(const tstr *s, bool (*is)(uint32_t))
{
  for (size_t i = 0; i < s->n;) {
    uint32_t c;
    i += utf8_decode(s->s + i, s->n - i, &c);
    if (!is(c))
      return false;
  }
  return true;
}

#define CLASS_METHOD(name, is)                                                                                         \
  METHOD(name)                                                                                                         \
  {                                                                                                                    \
    UNUSED_ARGS;                                                                                                       \
    OK(rt_walk(r, self.s->n));                                                                                         \
    *out = tv_bool(self.s->n > 0 && all(self.s, is));                                                                  \
    return true;                                                                                                       \
  }

CLASS_METHOD(str_isalpha, tu_is_alpha)
CLASS_METHOD(str_isalnum, tu_is_alnum)
CLASS_METHOD(str_isdigit, tu_is_digit)
CLASS_METHOD(str_isdecimal, tu_is_decimal)
CLASS_METHOD(str_isnumeric, tu_is_numeric)
CLASS_METHOD(str_isspace, tu_is_space)

METHOD(str_isprintable)
{
  UNUSED_ARGS;
  OK(rt_walk(r, self.s->n));
  *out = tv_bool(all(self.s, tu_is_printable));
  return true;
}

METHOD(str_isascii)
{
  (void)r;
  UNUSED_ARGS;
  *out = tv_bool(self.s->n == self.s->chars);
  return true;
}

METHOD(str_isupper)
{
  UNUSED_ARGS;
  OK(rt_walk(r, self.s->n));
  *out = tv_bool(tc_is_upper(self.s));
  return true;
}

METHOD(str_islower)
{
  UNUSED_ARGS;
  OK(rt_walk(r, self.s->n));
  *out = tv_bool(tc_is_lower(self.s));
  return true;
}

METHOD(str_istitle)
{
  UNUSED_ARGS;
  OK(rt_walk(r, self.s->n));
  bool cased = false, before = false, ok = true;
  for (size_t i = 0; i < self.s->n && ok;) {
    uint32_t c;
    i += utf8_decode(self.s->s + i, self.s->n - i, &c);
    bool up = tu_is_upper(c) || tu_is_title(c), low = tu_is_lower(c);
    ok = !(up && before) && !(low && !before);
    before = up || low;
    cased = cased || before;
  }
  *out = tv_bool(ok && cased);
  return true;
}

METHOD(str_isidentifier)
{
  UNUSED_ARGS;
  OK(rt_walk(r, self.s->n));
  bool ok = self.s->n > 0;
  for (size_t i = 0; i < self.s->n && ok;) {
    uint32_t c;
    size_t used = utf8_decode(self.s->s + i, self.s->n - i, &c);
    ok = i == 0 ? tu_is_name_start(c) : tu_is_name_part(c);
    i += used;
  }
  *out = tv_bool(ok);
  return true;
}

/* ---- formatting ---- */

METHOD(str_format)
{
  (void)slots;
  return rt_walk(r, self.s->n) && tf_format(r, self.s, a, out);
}

METHOD(str_format_map)
{
  (void)a;
  if (slots[0].type != TV_DICT)
    return rt_fail(r, "format_map() of '%s' is not supported", tv_type_name(slots[0]));
  targs named = {0};
  const tdict *d = slots[0].d;
  named.names = rt_array(r, d->n + 1, sizeof *named.names);
  named.kw = rt_array(r, d->n + 1, sizeof *named.kw);
  OK(named.names && named.kw);
  for (size_t i = 0; i < d->n; i++) {
    if (d->e[i].key.type != TV_STR)
      continue;
    named.names[named.n_kw] = d->e[i].key.s;
    named.kw[named.n_kw++] = d->e[i].value;
  }
  return tf_format(r, self.s, &named, out);
}

const tmethod_entry tmethods_str[] = {
    {"split", str_split, "sep? maxsplit?"},
    {"strip", str_strip, "!chars?"},
    {"lstrip", str_lstrip, "!chars?"},
    {"rstrip", str_rstrip, "!chars?"},
    {"startswith", str_startswith, "!prefix start? end?"},
    {"endswith", str_endswith, "!suffix start? end?"},
    {"replace", str_replace, "!old new count?"},
    {"upper", str_upper, ""},
    {"lower", str_lower, ""},
    {"title", str_title, ""},
    {"capitalize", str_capitalize, ""},
    {"swapcase", str_swapcase, ""},
    {"casefold", str_casefold, ""},
    {"removeprefix", str_removeprefix, "!prefix"},
    {"removesuffix", str_removesuffix, "!suffix"},
    {"find", str_find, "!sub start? end?"},
    {"rfind", str_rfind, "!sub start? end?"},
    {"index", str_index, "!sub start? end?"},
    {"rindex", str_rindex, "!sub start? end?"},
    {"count", str_count, "!sub start? end?"},
    {"rsplit", str_rsplit, "sep? maxsplit?"},
    {"splitlines", str_splitlines, "keepends?"},
    {"partition", str_partition, "!sep"},
    {"rpartition", str_rpartition, "!sep"},
    {"join", str_join, "!iterable"},
    {"ljust", str_ljust, "!width fillchar?"},
    {"rjust", str_rjust, "!width fillchar?"},
    {"center", str_center, "!width fillchar?"},
    {"zfill", str_zfill, "!width"},
    {"expandtabs", str_expandtabs, "tabsize?"},
    {"format", str_format, "*"},
    {"format_map", str_format_map, "!mapping"},
    {"isalpha", str_isalpha, ""},
    {"isalnum", str_isalnum, ""},
    {"isdigit", str_isdigit, ""},
    {"isdecimal", str_isdecimal, ""},
    {"isnumeric", str_isnumeric, ""},
    {"isspace", str_isspace, ""},
    {"isprintable", str_isprintable, ""},
    {"isascii", str_isascii, ""},
    {"isupper", str_isupper, ""},
    {"islower", str_islower, ""},
    {"istitle", str_istitle, ""},
    {"isidentifier", str_isidentifier, ""},
    {"encode", NULL, "*"},
    {"translate", NULL, "*"},
    {"maketrans", NULL, "*"},
    {0},
};
