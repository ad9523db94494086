/* tmpl_value.c - the context of one compilation or rendering, and the containers in its arena: strings, string builder,
 * lists, dicts. Nothing here knows the template language. */
#include "text/tmpl_value.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"

/* ---- context ---- */

void rt_init(tmpl_rt *r, tern_error *err)
{
  *r = (tmpl_rt){.err = err, .what = "template"};
}

void rt_free(tmpl_rt *r)
{
  arena_free(&r->mem);
}

void rt_set_error(tmpl_rt *r, tern_status status, const char *format, ...)
{
  if (r->status != TERN_OK) /* the first error is the cause */
    return;
  char text[sizeof r->err->text];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  r->status = status;
  if (r->line > 0)
    err_set(r->err, status, "%s: line %d: %s", r->what, r->line, text);
  else
    err_set(r->err, status, "%s: %s", r->what, text);
}

bool rt_nomem(tmpl_rt *r)
{
  return rt_fail_status(r, TERN_E_NOMEM, "out of memory");
}

void *rt_alloc(tmpl_rt *r, size_t size)
{
  if (size > TMPL_MAX_MEMORY || r->mem.total > TMPL_MAX_MEMORY - size) {
    rt_set_error(r, TERN_E_LIMIT, "needs more than %d MiB of memory", TMPL_MAX_MEMORY >> 20);
    return NULL;
  }
  void *p = arena_alloc(&r->mem, size ? size : 1);
  if (!p)
    rt_nomem(r);
  return p;
}

void *rt_zalloc(tmpl_rt *r, size_t size)
{
  void *p = rt_alloc(r, size);
  return p ? memset(p, 0, size ? size : 1) : NULL;
}

void *rt_array(tmpl_rt *r, size_t count, size_t size)
{
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes))
    bytes = SIZE_MAX;
  return rt_zalloc(r, bytes);
}

bool rt_step(tmpl_rt *r, uint64_t n)
{
  r->steps += n;
  if (r->steps > TMPL_MAX_STEPS)
    return rt_fail_status(r, TERN_E_LIMIT, "runs for more than %d steps", TMPL_MAX_STEPS);
  return true;
}

bool rt_enter(tmpl_rt *r)
{
  if (++r->depth > TMPL_MAX_DEPTH) {
    r->depth--;
    return rt_fail_status(r, TERN_E_LIMIT, "recursion more than %d levels deep", TMPL_MAX_DEPTH);
  }
  return true;
}

/* ---- undefined ---- */

static bool undefined(tmpl_rt *r, tundef u, tv *out)
{
  tundef *copy = rt_alloc(r, sizeof *copy);
  OK(copy);
  *copy = u;
  *out = (tv){.type = TV_UNDEF, .u = copy};
  return true;
}

bool tv_undef_name(tmpl_rt *r, const tstr *name, tv *out)
{
  return undefined(r, (tundef){.why = UNDEF_NAME, .name = tv_string(name)}, out);
}

bool tv_undef_attribute(tmpl_rt *r, tv object, tv name, tv *out)
{
  return undefined(r, (tundef){.why = UNDEF_ATTRIBUTE, .text = tv_type_name(object), .name = name}, out);
}

bool tv_undef_unsafe(tmpl_rt *r, tv object, const tstr *name, tv *out)
{
  return undefined(r, (tundef){.why = UNDEF_UNSAFE, .text = tv_type_name(object), .name = tv_string(name)}, out);
}

bool tv_undef_hint(tmpl_rt *r, const char *text, tv *out)
{
  return undefined(r, (tundef){.why = UNDEF_HINT, .text = text}, out);
}

bool tv_fail_undefined(tmpl_rt *r, tv v)
{
  const tundef *u = v.u;
  if (u->why == UNDEF_HINT)
    return rt_fail(r, "%s", u->text);
  tbuf name = {.r = r};
  tv_repr(&name, u->name);
  tv text;
  OK(tb_take(&name, &text));
  int n = (int)(text.s->n > 200 ? 200 : text.s->n);
  if (u->why == UNDEF_NAME)
    return rt_fail(r, "%.*s is undefined", n, text.s->s);
  if (u->why == UNDEF_UNSAFE)
    return rt_fail(r, "access to attribute %.*s of '%s' object is unsafe", n, text.s->s, u->text);
  return rt_fail(r, "'%s object' has no attribute %.*s", u->text, n, text.s->s);
}

/* ---- strings ---- */

static bool make_string(tmpl_rt *r, tstr s, tv *out)
{
  tstr *copy = rt_alloc(r, sizeof *copy);
  OK(copy);
  *copy = s;
  *out = tv_string(copy);
  return true;
}

bool ts_ref(tmpl_rt *r, const char *s, size_t n, tv *out)
{
  return make_string(r, (tstr){.s = s, .n = n, .chars = utf8_length(s, n)}, out);
}

bool ts_new(tmpl_rt *r, const char *s, size_t n, tv *out)
{
  char *copy = rt_alloc(r, n);
  OK(copy);
  if (n)
    memcpy(copy, s, n);
  return ts_ref(r, copy, n, out);
}

bool ts_cstr(tmpl_rt *r, const char *s, tv *out)
{
  return ts_ref(r, s, strlen(s), out);
}

bool ts_slice(tmpl_rt *r, const tstr *s, size_t from, size_t to, tv *out)
{
  if (to < from)
    to = from;
  if (from == 0 && to == s->n) {
    *out = tv_string(s);
    return true;
  }
  size_t n = to - from;
  OK(s->chars == s->n || rt_scan(r, n));
  size_t chars = s->chars == s->n ? n : utf8_length(s->s + from, n);
  return make_string(r, (tstr){.s = s->s + from, .n = n, .chars = chars, .markup = s->markup}, out);
}

bool ts_markup(tmpl_rt *r, const tstr *s, bool markup, tv *out)
{
  if (s->markup == markup) {
    *out = tv_string(s);
    return true;
  }
  tstr copy = *s;
  copy.markup = markup;
  copy.room = NULL;
  return make_string(r, copy, out);
}

/* Appends in place where `a` ends exactly where its room's contents end: nobody else can see the bytes behind. */
bool ts_concat(tmpl_rt *r, const tstr *a, const tstr *b, tv *out)
{
  size_t n;
  if (__builtin_add_overflow(a->n, b->n, &n))
    return rt_nomem(r);
  OK(rt_scan(r, b->n));
  troom *room = a->room;
  if (room && a->s + a->n == room->base + room->used && room->size - room->used >= b->n) {
    if (b->n)
      memcpy(room->base + room->used, b->s, b->n);
    room->used += b->n;
    return make_string(r, (tstr){.s = a->s, .n = n, .chars = a->chars + b->chars, .room = room}, out);
  }
  room = NULL;
  size_t size = n;
  if (n > 512 && n < TMPL_MAX_MEMORY / 4) { /* long results are likely to grow on */
    room = rt_alloc(r, sizeof *room);
    OK(room);
    size = n * 2;
  }
  char *s = rt_alloc(r, size);
  OK(s);
  if (a->n)
    memcpy(s, a->s, a->n);
  if (b->n)
    memcpy(s + a->n, b->s, b->n);
  if (room)
    *room = (troom){.base = s, .used = n, .size = size};
  return make_string(r, (tstr){.s = s, .n = n, .chars = a->chars + b->chars, .room = room}, out);
}

bool ts_escape(tmpl_rt *r, const tstr *s, tv *out)
{
  tbuf b = {.r = r};
  OK(rt_walk(r, s->n));
  for (size_t i = 0; i < s->n; i++) {
    const char *entity = NULL;
    switch (s->s[i]) {
    case '&':
      entity = "&amp;";
      break;
    case '<':
      entity = "&lt;";
      break;
    case '>':
      entity = "&gt;";
      break;
    case '"':
      entity = "&#34;";
      break;
    case '\'':
      entity = "&#39;";
      break;
    }
    if (entity)
      tb_adds(&b, entity);
    else
      tb_addc(&b, s->s[i]);
  }
  tv plain;
  OK(tb_take(&b, &plain));
  return ts_markup(r, plain.s, true, out);
}

uint64_t ts_hash(const tstr *s)
{
  return s->hash ? s->hash : hash_bytes64(s->s, s->n) | 1;
}

bool ts_equal(const tstr *a, const tstr *b)
{
  return a == b || (a->n == b->n && (a->n == 0 || memcmp(a->s, b->s, a->n) == 0));
}

bool ts_is(const tstr *s, const char *literal)
{
  size_t n = strlen(literal);
  return s->n == n && memcmp(s->s, literal, n) == 0;
}

int ts_compare(const tstr *a, const tstr *b)
{
  size_t n = a->n < b->n ? a->n : b->n;
  int c = n ? memcmp(a->s, b->s, n) : 0;
  if (c == 0)
    c = (a->n > b->n) - (a->n < b->n);
  return c;
}

size_t ts_offset(tmpl_rt *r, const tstr *s, size_t index)
{
  if (s->chars == s->n || index == 0)
    return index;
  if (index >= s->chars)
    return s->n;
  if (index > s->chars / 2) { /* from the end: as [-1] and [:-1] want it */
    size_t at = s->n;
    for (size_t left = s->chars - index; left > 0; left--) {
      do
        at--;
      while (((unsigned char)s->s[at] & 0xc0) == 0x80);
    }
    (void)rt_walk(r, s->n - at);
    return at;
  }
  size_t at = 0;
  for (; index > 0; index--) {
    do
      at++;
    while (((unsigned char)s->s[at] & 0xc0) == 0x80);
  }
  (void)rt_walk(r, at);
  return at;
}

size_t ts_find(tmpl_rt *r, const tstr *a, const tstr *b, size_t from)
{
  if (from > a->n || b->n > a->n - from)
    return SIZE_MAX;
  if (b->n == 0)
    return from;
  const char *hit = memmem(a->s + from, a->n - from, b->s, b->n);
  size_t at = hit ? (size_t)(hit - a->s) : SIZE_MAX;
  (void)rt_walk(r, (hit ? at : a->n) - from);
  return at;
}

/* Texts that match nearly everywhere cost their product: every comparison that gets far is counted. */
size_t ts_rfind(tmpl_rt *r, const tstr *a, const tstr *b, size_t before)
{
  if (b->n > before)
    return SIZE_MAX;
  if (b->n == 0)
    return before;
  size_t last = before - b->n, at = last + 1;
  while (at-- > 0) {
    if (a->s[at] != b->s[0])
      continue;
    if (memcmp(a->s + at, b->s, b->n) == 0)
      break;
    if (!rt_scan(r, b->n))
      return SIZE_MAX;
  }
  (void)rt_walk(r, last - (at == SIZE_MAX ? 0 : at));
  return at;
}

/* ---- string builder ---- */

static bool room_for(tbuf *b, size_t n)
{
  if (b->failed)
    return false;
  if (n <= b->size - b->n)
    return true;
  size_t need;
  if (__builtin_add_overflow(b->n, n, &need)) {
    b->failed = true;
    return rt_nomem(b->r);
  }
  size_t size = b->size < 64 ? 64 : b->size * 2;
  if (size < need)
    size = need;
  char *s = rt_alloc(b->r, size);
  if (!s) {
    b->failed = true;
    return false;
  }
  if (b->n)
    memcpy(s, b->s, b->n);
  b->s = s;
  b->size = size;
  return true;
}

void tb_add(tbuf *b, const char *s, size_t n)
{
  if (n == 0 || !room_for(b, n))
    return;
  memcpy(b->s + b->n, s, n);
  b->n += n;
}

void tb_adds(tbuf *b, const char *s)
{
  tb_add(b, s, strlen(s));
}

void tb_addc(tbuf *b, char c)
{
  if (room_for(b, 1))
    b->s[b->n++] = c;
}

void tb_char(tbuf *b, uint32_t c)
{
  char bytes[4];
  tb_add(b, bytes, utf8_encode(c, bytes));
}

void tb_fill(tbuf *b, uint32_t c, size_t count)
{
  char bytes[4];
  size_t n = utf8_encode(c, bytes), total;
  if (__builtin_mul_overflow(n, count, &total))
    total = SIZE_MAX;
  if (!room_for(b, total))
    return;
  for (; count > 0; count--) {
    memcpy(b->s + b->n, bytes, n);
    b->n += n;
  }
}

void tb_str(tbuf *b, const tstr *s)
{
  tb_add(b, s->s, s->n);
}

bool tb_take(tbuf *b, tv *out)
{
  if (b->failed || b->r->status != TERN_OK)
    return false;
  return ts_ref(b->r, b->n ? b->s : "", b->n, out);
}

/* ---- lists ---- */

bool tl_new(tmpl_rt *r, size_t capacity, tlist **out)
{
  tlist *l = rt_zalloc(r, sizeof *l);
  OK(l);
  if (capacity > 0) {
    l->v = rt_array(r, capacity, sizeof *l->v);
    OK(l->v);
    l->capacity = capacity;
  }
  *out = l;
  return true;
}

bool tl_add(tmpl_rt *r, tlist *l, tv v)
{
  if (l->n == l->capacity) {
    size_t capacity = l->capacity < 4 ? 4 : l->capacity * 2;
    tv *grown = rt_array(r, capacity, sizeof *grown);
    OK(grown);
    if (l->n)
      memcpy(grown, l->v, l->n * sizeof *grown);
    l->v = grown;
    l->capacity = capacity;
  }
  l->v[l->n++] = v;
  return true;
}

/* ---- dicts: entries in order of insertion; an index of open addressing once there are more than a few ---- */

enum { SMALL_DICT = 8 };

bool td_new(tmpl_rt *r, tdict **out)
{
  *out = rt_zalloc(r, sizeof **out);
  return *out != NULL;
}

static void index_put(tdict *d, size_t position)
{
  size_t mask = d->index_size - 1, at = d->e[position].hash & mask;
  while (d->index[at])
    at = (at + 1) & mask;
  d->index[at] = (uint32_t)position + 1;
}

static bool grow_dict(tmpl_rt *r, tdict *d)
{
  size_t capacity = d->capacity < 4 ? 4 : d->capacity * 2;
  if (capacity > UINT32_MAX / 2)
    return rt_nomem(r);
  tentry *e = rt_array(r, capacity, sizeof *e);
  OK(e);
  if (d->n)
    memcpy(e, d->e, d->n * sizeof *e);
  d->e = e;
  d->capacity = capacity;
  if (capacity <= SMALL_DICT)
    return true;
  d->index_size = capacity * 2;
  d->index = rt_array(r, d->index_size, sizeof *d->index);
  OK(d->index);
  for (size_t i = 0; i < d->n; i++)
    index_put(d, i);
  return true;
}

static bool same_key(tmpl_rt *r, const tentry *e, tv key, uint64_t hash, bool *same)
{
  *same = false;
  if (e->hash != hash)
    return true;
  if (e->key.type == TV_STR && key.type == TV_STR) {
    *same = ts_equal(e->key.s, key.s);
    return rt_scan(r, key.s->n);
  }
  return tv_equal(r, e->key, key, same);
}

static bool locate(tmpl_rt *r, const tdict *d, tv key, uint64_t hash, tentry **out)
{
  bool same;
  *out = NULL;
  if (!d->index) {
    for (size_t i = 0; i < d->n; i++) {
      OK(same_key(r, &d->e[i], key, hash, &same));
      if (same) {
        *out = &d->e[i];
        return true;
      }
    }
    return true;
  }
  size_t mask = d->index_size - 1, probes = 0;
  for (size_t at = hash & mask; d->index[at]; at = (at + 1) & mask) {
    tentry *e = &d->e[d->index[at] - 1];
    OK(same_key(r, e, key, hash, &same) && (++probes < 8 || rt_step(r, 1)));
    if (same) {
      *out = e;
      return true;
    }
  }
  return true;
}

bool td_set(tmpl_rt *r, tdict *d, tv key, tv value)
{
  uint64_t hash;
  OK(tv_hash(r, key, &hash));
  tentry *e;
  OK(locate(r, d, key, hash, &e));
  if (e) {
    e->value = value;
    return true;
  }
  if (d->n == d->capacity)
    OK(grow_dict(r, d));
  d->e[d->n] = (tentry){.key = key, .value = value, .hash = hash};
  if (d->index)
    index_put(d, d->n);
  d->n++;
  return true;
}

bool td_set_cstr(tmpl_rt *r, tdict *d, const char *key, tv value)
{
  tv k;
  return ts_cstr(r, key, &k) && td_set(r, d, k, value);
}

bool td_get(tmpl_rt *r, const tdict *d, tv key, tv *out)
{
  uint64_t hash;
  OK(tv_hash(r, key, &hash));
  tentry *e;
  OK(locate(r, d, key, hash, &e));
  *out = e ? e->value : (tv){.type = TV_MISSING};
  return true;
}

const tv *td_find(const tdict *d, const tstr *key)
{
  if (!d->index) {
    for (size_t i = 0; i < d->n; i++)
      if (d->e[i].key.type == TV_STR && ts_equal(d->e[i].key.s, key))
        return &d->e[i].value;
    return NULL;
  }
  uint64_t hash = ts_hash(key);
  size_t mask = d->index_size - 1;
  for (size_t at = hash & mask; d->index[at]; at = (at + 1) & mask) {
    const tentry *e = &d->e[d->index[at] - 1];
    if (e->hash == hash && e->key.type == TV_STR && ts_equal(e->key.s, key))
      return &e->value;
  }
  return NULL;
}

const tv *td_find_cstr(const tdict *d, const char *key)
{
  tstr s = {.s = key, .n = strlen(key)};
  return td_find(d, &s);
}

bool td_copy(tmpl_rt *r, const tdict *d, tdict **out)
{
  OK(td_new(r, out));
  for (size_t i = 0; i < d->n; i++)
    OK(td_set(r, *out, d->e[i].key, d->e[i].value));
  return true;
}
