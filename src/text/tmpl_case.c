/* tmpl_case.c - the work behind str's case, strip, split, replace and padding methods. */
#include "text/tmpl_case.h"

#include <string.h>

#include "base/utf8.h"
#include "text/tmpl_unicode.h"

static bool finish(tbuf *b, const tstr *like, tv *out)
{
  tv plain;
  OK(tb_take(b, &plain));
  return ts_markup(b->r, plain.s, like->markup, out);
}

static void add_mapped(tbuf *b, const uint32_t *c, size_t n)
{
  for (size_t i = 0; i < n; i++)
    tb_char(b, c[i]);
}

/* Whether the capital sigma at `at` (used bytes) ends a word: a cased letter before it, none after. */
static bool is_final_sigma(const tstr *s, size_t at, size_t used)
{
  size_t i = at;
  bool cased_before = false;
  while (i > 0) {
    uint32_t c = tu_before(s->s, i, &i);
    if (tu_is_case_ignorable(c))
      continue;
    cased_before = tu_is_cased(c);
    break;
  }
  if (!cased_before)
    return false;
  for (i = at + used; i < s->n;) {
    uint32_t c;
    i += utf8_decode(s->s + i, s->n - i, &c);
    if (!tu_is_case_ignorable(c))
      return !tu_is_cased(c);
  }
  return true;
}

static void add_lower(tbuf *b, const tstr *s, size_t at, size_t used, uint32_t c)
{
  uint32_t out[3];
  if (c == 0x3a3)
    tb_char(b, is_final_sigma(s, at, used) ? 0x3c2 : 0x3c3);
  else
    add_mapped(b, out, tu_lower(c, out));
}

bool tc_upper(tmpl_rt *r, const tstr *s, tv *out)
{
  tbuf b = {.r = r};
  OK(rt_walk(r, s->n));
  for (size_t i = 0; i < s->n;) {
    uint32_t c, up[3];
    i += utf8_decode(s->s + i, s->n - i, &c);
    if (c < 0x80)
      tb_addc(&b, (char)(c >= 'a' && c <= 'z' ? c - 32 : c));
    else
      add_mapped(&b, up, tu_upper(c, up));
  }
  return finish(&b, s, out);
}

bool tc_lower(tmpl_rt *r, const tstr *s, tv *out)
{
  tbuf b = {.r = r};
  OK(rt_walk(r, s->n));
  for (size_t i = 0; i < s->n;) {
    uint32_t c;
    size_t used = utf8_decode(s->s + i, s->n - i, &c);
    if (c < 0x80)
      tb_addc(&b, (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
    else
      add_lower(&b, s, i, used, c);
    i += used;
  }
  return finish(&b, s, out);
}

bool tc_title(tmpl_rt *r, const tstr *s, tv *out)
{
  tbuf b = {.r = r};
  OK(rt_walk(r, s->n));
  bool cased = false;
  for (size_t i = 0; i < s->n;) {
    uint32_t c, mapped[3];
    size_t used = utf8_decode(s->s + i, s->n - i, &c);
    if (cased)
      add_lower(&b, s, i, used, c);
    else
      add_mapped(&b, mapped, tu_title(c, mapped));
    cased = tu_is_cased(c);
    i += used;
  }
  return finish(&b, s, out);
}

bool tc_capitalize(tmpl_rt *r, const tstr *s, tv *out)
{
  tbuf b = {.r = r};
  OK(rt_walk(r, s->n));
  for (size_t i = 0; i < s->n;) {
    uint32_t c, mapped[3];
    size_t used = utf8_decode(s->s + i, s->n - i, &c);
    if (i == 0)
      add_mapped(&b, mapped, tu_title(c, mapped));
    else
      add_lower(&b, s, i, used, c);
    i += used;
  }
  return finish(&b, s, out);
}

bool tc_swapcase(tmpl_rt *r, const tstr *s, tv *out)
{
  tbuf b = {.r = r};
  OK(rt_walk(r, s->n));
  for (size_t i = 0; i < s->n;) {
    uint32_t c, mapped[3];
    size_t used = utf8_decode(s->s + i, s->n - i, &c);
    if (tu_is_upper(c))
      add_lower(&b, s, i, used, c);
    else if (tu_is_lower(c))
      add_mapped(&b, mapped, tu_upper(c, mapped));
    else
      tb_char(&b, c);
    i += used;
  }
  return finish(&b, s, out);
}

/* ---- strip, replace ---- */

static bool in_set(const tstr *chars, uint32_t c)
{
  if (!chars)
    return tu_is_space(c);
  for (size_t i = 0; i < chars->n;) {
    uint32_t each;
    i += utf8_decode(chars->s + i, chars->n - i, &each);
    if (each == c)
      return true;
  }
  return false;
}

bool tc_strip(tmpl_rt *r, const tstr *s, const tstr *chars, bool left, bool right, tv *out)
{
  size_t from = 0, to = s->n;
  while (left && from < to) {
    uint32_t c;
    size_t used = utf8_decode(s->s + from, to - from, &c);
    if (!in_set(chars, c))
      break;
    from += used;
  }
  while (right && to > from) {
    size_t start;
    if (!in_set(chars, tu_before(s->s, to, &start)))
      break;
    to = start;
  }
  size_t cost = chars ? chars->n : 1, stripped = s->n - (to - from);
  return rt_walk(r, (stripped + 1) * cost) && ts_slice(r, s, from, to, out);
}

/* An empty `from` matches before every character and at the end. */
static void replace_empty(tbuf *b, const tstr *s, const tstr *to, int64_t count)
{
  size_t i = 0;
  while (count != 0) {
    tb_str(b, to);
    count--;
    if (i == s->n)
      return;
    uint32_t c;
    size_t used = utf8_decode(s->s + i, s->n - i, &c);
    tb_add(b, s->s + i, used);
    i += used;
  }
  tb_add(b, s->s + i, s->n - i);
}

bool tc_replace(tmpl_rt *r, const tstr *s, const tstr *from, const tstr *to, int64_t count, tv *out)
{
  tbuf b = {.r = r};
  if (from->n == 0) {
    OK(rt_walk(r, s->n));
    replace_empty(&b, s, to, count);
    return finish(&b, s, out);
  }
  size_t at = 0;
  for (; count != 0; count--) {
    size_t hit = ts_find(r, s, from, at);
    if (hit == SIZE_MAX)
      break;
    tb_add(&b, s->s + at, hit - at);
    tb_str(&b, to);
    at = hit + from->n;
  }
  if (at == 0 && b.n == 0) {
    *out = tv_string(s);
    return true;
  }
  tb_add(&b, s->s + at, s->n - at);
  return finish(&b, s, out);
}

/* ---- splitting ---- */

static bool add_part(tmpl_rt *r, tlist *l, const tstr *s, size_t from, size_t to)
{
  tv part;
  return rt_step(r, 1) && ts_slice(r, s, from, to, &part) && tl_add(r, l, part);
}

bool tc_splitlines(tmpl_rt *r, const tstr *s, bool keep_ends, tlist **out)
{
  OK(rt_walk(r, s->n) && tl_new(r, 0, out));
  size_t start = 0;
  for (size_t i = 0; i < s->n;) {
    uint32_t c;
    size_t used = utf8_decode(s->s + i, s->n - i, &c);
    if (!tu_is_line_end(c)) {
      i += used;
      continue;
    }
    size_t end = i;
    i += used;
    if (c == '\r' && i < s->n && s->s[i] == '\n')
      i++;
    OK(add_part(r, *out, s, start, keep_ends ? i : end));
    start = i;
  }
  return start >= s->n || add_part(r, *out, s, start, s->n);
}

static bool split_space(tmpl_rt *r, const tstr *s, int64_t most, tlist *l)
{
  size_t i = tu_skip_space(s->s, s->n);
  while (i < s->n) {
    size_t end = i;
    if (most == 0) /* the rest as it is, blanks at its end too */
      return add_part(r, l, s, i, s->n);
    while (end < s->n) {
      uint32_t c;
      size_t used = utf8_decode(s->s + end, s->n - end, &c);
      if (tu_is_space(c))
        break;
      end += used;
    }
    OK(add_part(r, l, s, i, end));
    most -= most > 0;
    i = end + tu_skip_space(s->s + end, s->n - end);
  }
  return true;
}

static bool rsplit_space(tmpl_rt *r, const tstr *s, int64_t most, tlist *l)
{
  size_t end = tu_rstrip_space(s->s, s->n);
  while (end > 0) {
    if (most == 0)
      return add_part(r, l, s, 0, end);
    size_t start = end;
    while (start > 0) {
      size_t before;
      if (tu_is_space(tu_before(s->s, start, &before)))
        break;
      start = before;
    }
    OK(add_part(r, l, s, start, end));
    most -= most > 0;
    end = tu_rstrip_space(s->s, start);
  }
  return true;
}

static void reverse(tlist *l)
{
  for (size_t i = 0; i + 1 < l->n - i; i++) {
    tv swap = l->v[i];
    l->v[i] = l->v[l->n - 1 - i];
    l->v[l->n - 1 - i] = swap;
  }
}

bool tc_split(tmpl_rt *r, const tstr *s, const tstr *separator, int64_t most, bool from_right, tlist **out)
{
  OK(tl_new(r, 0, out));
  if (separator && separator->n == 0)
    return rt_fail(r, "empty separator");
  OK(separator || rt_walk(r, s->n));
  if (!from_right) {
    if (!separator)
      return split_space(r, s, most, *out);
    size_t at = 0;
    for (; most != 0; most -= most > 0) {
      size_t hit = ts_find(r, s, separator, at);
      if (hit == SIZE_MAX)
        break;
      OK(add_part(r, *out, s, at, hit));
      at = hit + separator->n;
    }
    return add_part(r, *out, s, at, s->n);
  }
  if (!separator) {
    OK(rsplit_space(r, s, most, *out));
  } else {
    size_t end = s->n;
    for (; most != 0; most -= most > 0) {
      size_t hit = ts_rfind(r, s, separator, end);
      if (hit == SIZE_MAX)
        break;
      OK(add_part(r, *out, s, hit + separator->n, end));
      end = hit;
    }
    OK(add_part(r, *out, s, 0, end));
  }
  reverse(*out);
  return true;
}

bool tc_join(tmpl_rt *r, const tstr *separator, const tlist *strings, tv *out)
{
  tbuf b = {.r = r};
  for (size_t i = 0; i < strings->n; i++) {
    if (i)
      tb_str(&b, separator);
    tb_str(&b, strings->v[i].s);
  }
  return tb_take(&b, out);
}

bool tc_pad(tmpl_rt *r, const tstr *s, int64_t width, uint32_t fill, bool left, bool right, tv *out)
{
  int64_t missing = width - (int64_t)s->chars;
  if (missing <= 0) {
    *out = tv_string(s);
    return true;
  }
  if (width > TMPL_MAX_MEMORY)
    return rt_fail_status(r, TERN_E_LIMIT, "padding beyond %d MiB", TMPL_MAX_MEMORY >> 20);
  int64_t before = left ? missing : 0;
  if (left && right) /* centred: the odd one goes as Python puts it */
    before = missing / 2 + (missing & width & 1);
  tbuf b = {.r = r};
  tb_fill(&b, fill, (size_t)before);
  tb_str(&b, s);
  tb_fill(&b, fill, (size_t)(missing - before));
  return finish(&b, s, out);
}

/* ---- str.isupper and str.islower: at least one cased character, and none of the other kind ---- */

bool tc_is_upper(const tstr *s)
{
  bool cased = false;
  for (size_t i = 0; i < s->n;) {
    uint32_t c;
    i += utf8_decode(s->s + i, s->n - i, &c);
    if (tu_is_lower(c) || tu_is_title(c))
      return false;
    cased = cased || tu_is_upper(c);
  }
  return cased;
}

bool tc_is_lower(const tstr *s)
{
  bool cased = false;
  for (size_t i = 0; i < s->n;) {
    uint32_t c;
    i += utf8_decode(s->s + i, s->n - i, &c);
    if (tu_is_upper(c) || tu_is_title(c))
      return false;
    cased = cased || tu_is_lower(c);
  }
  return cased;
}
