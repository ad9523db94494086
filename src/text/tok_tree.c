/* tok_tree.c - see tok_tree.h. The parser is yajl; its own working memory does not pass through mem.h, because yajl
 * does not survive an allocation that fails. It is bounded by the longest string with an escape in it. */
#include "text/tok_tree.h"

#include <string.h>
#include <yajl/yajl_parse.h>

static jt *new_value(jt_builder *b, jt_kind kind)
{
  jt *v = arena_zalloc(b->memory, sizeof *v);
  if (!v)
    return NULL;
  v->kind = kind;
  if (b->depth == 0) {
    b->root = v;
    return v;
  }
  jt *parent = b->stack[b->depth - 1];
  v->key = b->key;
  v->key_n = b->key_n;
  if (parent->last)
    parent->last->next = v;
  else
    parent->first = v;
  parent->last = v;
  parent->n++;
  return v;
}

bool jt_key(jt_builder *b, const char *s, size_t n)
{
  b->key = arena_strndup(b->memory, s, n);
  b->key_n = n;
  return b->key != NULL;
}

bool jt_open(jt_builder *b, jt_kind kind)
{
  if (b->depth == JT_MAX_DEPTH) {
    b->too_deep = true;
    return false;
  }
  jt *v = new_value(b, kind);
  if (!v)
    return false;
  b->stack[b->depth++] = v;
  return true;
}

bool jt_close(jt_builder *b)
{
  b->depth--;
  return true;
}

bool jt_value(jt_builder *b, jt_kind kind, const char *s, size_t n)
{
  jt *v = new_value(b, kind);
  if (!v)
    return false;
  if (kind == JT_STRING || kind == JT_NUMBER) {
    v->s = arena_strndup(b->memory, s, n);
    v->n = n;
  }
  return kind < JT_NUMBER || v->s;
}

static int on_null(void *b)
{
  return jt_value(b, JT_NULL, NULL, 0);
}
static int on_boolean(void *b, int value)
{
  return jt_value(b, value ? JT_TRUE : JT_FALSE, NULL, 0);
}
static int on_number(void *b, const char *s, size_t n)
{
  return jt_value(b, JT_NUMBER, s, n);
}
static int on_string(void *b, const unsigned char *s, size_t n)
{
  return jt_value(b, JT_STRING, (const char *)s, n);
}
static int on_key(void *b, const unsigned char *s, size_t n)
{
  return jt_key(b, (const char *)s, n);
}
static int on_map(void *b)
{
  return jt_open(b, JT_OBJECT);
}
static int on_array(void *b)
{
  return jt_open(b, JT_ARRAY);
}
static int on_end(void *b)
{
  return jt_close(b);
}

static tern_status parse_error(const char *file, yajl_handle parser, const jt_builder *b, tern_error *err)
{
  if (b->too_deep)
    return err_set(err, TERN_E_FORMAT, "%s: nested deeper than 64 levels", file);
  unsigned char *text = yajl_get_error(parser, 0, NULL, 0);
  size_t n = text ? strcspn((char *)text, "\n") : 0;
  tern_status status = err_set(err, TERN_E_FORMAT, "%s: not valid JSON: %.*s near byte %zu", file, (int)n,
                               text ? (char *)text : "", yajl_get_bytes_consumed(parser));
  yajl_free_error(parser, text);
  return status;
}

tern_status jt_parse(const char *file, const char *data, size_t n, arena *memory, jt **out, tern_error *err)
{
  static const yajl_callbacks callbacks = {on_null, on_boolean, NULL,   NULL,     on_number, on_string,
                                           on_map,  on_key,     on_end, on_array, on_end};
  jt_builder b = {.memory = memory};
  yajl_handle parser = yajl_alloc(&callbacks, NULL, &b);
  if (!parser)
    return err_nomem(err, file);
  yajl_status s = yajl_parse(parser, (const unsigned char *)data, n);
  if (s == yajl_status_ok)
    s = yajl_complete_parse(parser);
  tern_status status = TERN_OK;
  if (s == yajl_status_client_canceled && !b.too_deep)
    status = err_nomem(err, file);
  else if (s != yajl_status_ok)
    status = parse_error(file, parser, &b, err);
  yajl_free(parser);
  if (status == TERN_OK)
    *out = b.root;
  return status;
}

const jt *jt_get(const jt *value, const char *key)
{
  const jt *found = NULL;
  if (!value || value->kind != JT_OBJECT)
    return NULL;
  size_t n = strlen(key);
  for (const jt *m = value->first; m; m = m->next)
    if (m->key_n == n && memcmp(m->key, key, n) == 0)
      found = m;
  return found;
}

const jt *jt_get_set(const jt *value, const char *key)
{
  const jt *found = jt_get(value, key);
  return found && found->kind != JT_NULL ? found : NULL;
}

bool jt_is(const jt *value, const char *text)
{
  return value && value->kind == JT_STRING && value->n == strlen(text) && memcmp(value->s, text, value->n) == 0;
}

bool jt_integer(const jt *value, uint64_t limit, uint64_t *out)
{
  if (!value || value->kind != JT_NUMBER || value->n == 0)
    return false;
  uint64_t x = 0;
  for (size_t i = 0; i < value->n; i++) {
    if (value->s[i] < '0' || value->s[i] > '9' || __builtin_mul_overflow(x, 10u, &x) ||
        __builtin_add_overflow(x, (uint64_t)(value->s[i] - '0'), &x))
      return false;
  }
  *out = x;
  return x <= limit;
}
