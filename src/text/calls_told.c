/* calls_told.c - the list of what was told, for all machines. See calls_told.h. */
#include "text/calls_told.h"

#include <string.h>

#include "base/mem.h"
#include "text/calls_impl.h"

void calls_tell(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  if (!t->stopped && !t->failed && f->tell)
    f->tell(f, text, n, tools, t);
  if (t->n)
    t->failed |= t->at[t->n - 1].arguments.failed;
  t->failed |= t->word.failed;
}

void calls_told_clear(calls_told *t)
{
  for (size_t i = 0; i < t->n; i++) {
    mem_free(t->at[i].name);
    mem_free(t->at[i].id);
    buf_free(&t->at[i].arguments);
  }
  mem_free(t->at);
  mem_free(t->id);
  buf_free(&t->word);
  *t = (calls_told){0};
}

/* ---- for the machines ---- */

static told_call *last(const calls_told *t)
{
  return t->n ? &t->at[t->n - 1] : NULL;
}

bool told_begin(calls_told *t, const json_t *tools, span name, span id)
{
  told_call *before = last(t);
  bool well = calls_known(tools, name) && !memchr(name.s, '\0', name.n) && (!before || before->closed);
  if (!well || !mem_grow(&t->at, &t->capacity, t->n + 1, sizeof *t->at) || !t->at) {
    t->stopped = true;
    t->failed |= well;
    return false;
  }
  if ((before = last(t)))
    buf_adds(&before->arguments, before->arguments.length ? "}" : "{}");
  told_call *c = &t->at[t->n++];
  *c = (told_call){.name = mem_strndup(name.s, name.n),
                   .id = id.n && !memchr(id.s, '\0', id.n) ? mem_strndup(id.s, id.n) : NULL};
  t->failed |= !c->name || (before && before->arguments.failed);
  return !t->failed;
}

buf *told_arguments(calls_told *t)
{
  return &last(t)->arguments;
}

void told_close(calls_told *t, size_t end)
{
  last(t)->closed = true;
  last(t)->end = end;
}

/* ---- at a block's end ---- */

static json_t *tree(const char *text)
{
  return json_loads(text, JSON_ALLOW_NUL, NULL);
}

/* Keys that stand twice make the one text longer than the other; they say the same. */
static bool same_json(const told_call *c, bool whole, const char *arguments)
{
  buf text = {0};
  buf_add(&text, c->arguments.data, c->arguments.length);
  if (!whole)
    buf_adds(&text, c->arguments.length ? "}" : "{}");
  json_t *a = text.failed ? NULL : tree(text.data), *b = tree(arguments);
  bool same = a && b && json_equal(a, b);
  json_decref(a);
  json_decref(b);
  buf_free(&text);
  return same;
}

static bool begins_so(const told_call *c, const char *arguments)
{
  return !c->arguments.length || strncmp(c->arguments.data, arguments, c->arguments.length) == 0;
}

bool calls_told_agree(const calls_told *t, const call_list *whole)
{
  if (t->failed || whole->n < t->n)
    return false;
  for (size_t i = 0; i < t->n; i++) {
    const told_call *c = &t->at[i];
    const char *arguments = whole->at[i].arguments;
    bool open = i + 1 == t->n, beginning = open && begins_so(c, arguments);
    if (strcmp(c->name, whole->at[i].name) != 0 ||
        (!beginning && !((c->closed || !open) && same_json(c, !open, arguments))))
      return false;
  }
  return true;
}

const char *calls_told_rest(const calls_told *t, const char *arguments)
{
  const told_call *c = last(t);
  return begins_so(c, arguments) ? arguments + c->arguments.length : "}";
}

char *calls_told_text(const told_call *c)
{
  json_t *value = tree(c->arguments.data);
  char *text = value ? value_text(value) : NULL;
  json_decref(value);
  return text;
}
