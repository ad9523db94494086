/* calls_told_json.c - machines for formats whose arguments are JSON: in an object with the name, or behind a head. See
 * calls_told.h.
 *
 * The arguments' letters go through json_push and come out as they are certain.
 */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "text/calls_impl.h"

/* ---- {"name": …, "arguments": {…}}, or a list of such ---- */

enum { KEY_OTHER, KEY_NAME, KEY_ARGUMENTS, KEY_ID, KEY_WRAPS };

/* A key as json_push writes it, its last quote withheld. */
static int key_of(const buf *word)
{
  static const struct {
    const char *text;
    int key;
  } keys[] = {{"\"name", KEY_NAME}, {"\"tool_name", KEY_NAME},       {"\"arguments", KEY_ARGUMENTS},
              {"\"id", KEY_ID},     {"\"parameters", KEY_ARGUMENTS}, {"\"function", KEY_WRAPS},
              {"\"tool", KEY_WRAPS}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (span_is((span){word->data, word->length}, keys[i].text))
      return keys[i].key;
  return KEY_OTHER;
}

/* Whether the object that is open is a call: the outermost one, or one of the outermost list. */
static bool in_call(const json_push *p)
{
  return p->depth == (p->object[0] ? 1 : 2) && p->object[p->depth - 1];
}

/* The readers take the first of several keys by rank, and names and arguments out of objects: where it is not plain
 * which is meant, that is for them. */
static void take_key(calls_told *t)
{
  t->key = key_of(&t->word);
  bool odd =
      t->key == KEY_WRAPS || (t->key == KEY_NAME && t->named) || (t->key == KEY_ARGUMENTS && (t->args || !t->named));
  t->stopped |= odd;
  t->args |= t->key == KEY_ARGUMENTS;
}

/* A string is whole once something follows it. */
static void take_string(calls_told *t, const json_t *tools)
{
  if ((t->key != KEY_NAME && t->key != KEY_ID) || !t->word.length)
    return;
  span text = span_skip((span){t->word.data, t->word.length}, 1);
  if (memchr(text.s, '\\', text.n)) {
    t->stopped |= t->key == KEY_NAME;
  } else if (t->key == KEY_NAME) {
    t->named = true;
    told_begin(t, tools, text, (span){t->id, t->id ? strlen(t->id) : 0});
  } else if (t->key == KEY_ID && !t->id && text.n) {
    t->id = mem_strndup(text.s, text.n);
  }
}

/* An object that is a call has ended. */
static void end_object(calls_told *t, size_t end)
{
  if (!t->named)
    t->stopped = true;
  else
    told_close(t, end);
  t->named = t->args = false;
  t->key = KEY_OTHER;
  mem_free(t->id);
  t->id = NULL;
}

/* What the next letter is to the object around it. False: it is dealt with. */
static bool before_byte(calls_told *t, char c, const json_t *tools)
{
  json_push *p = &t->outer;
  bool call = p->depth && in_call(p), blank = json_push_is_blank(c), value = p->state == PUSH_VALUE;
  if (p->depth == 1 && !p->object[0] && (p->state == PUSH_FIRST || p->state == PUSH_ITEM) && !blank && c != '{') {
    t->stopped = true; /* the list's end, too: there was nothing in it */
  } else if (call && value && !blank && t->key == KEY_ARGUMENTS) {
    t->stopped |= c != '{';
    t->inner = (json_push){0};
    if (!t->stopped)
      json_push_byte(&t->inner, c, told_arguments(t));
    return false;
  } else if (call && value && !blank) {
    t->stopped |= t->key == KEY_NAME && c != '"';
    buf_clear(&t->word);
  } else if (call && p->state == PUSH_AFTER && p->quote && (c == ',' || c == '}')) {
    take_string(t, tools);
  } else if (call && (p->state == PUSH_FIRST || p->state == PUSH_ITEM) && c == '"') {
    p->comma = false;
    buf_clear(&t->word);
  }
  return !t->stopped && !t->failed;
}

static void outer_byte(calls_told *t, char c, size_t end, const json_t *tools)
{
  json_push *p = &t->outer;
  if (!before_byte(t, c, tools))
    return;
  bool call = p->depth && in_call(p), key = p->state == PUSH_STRING && p->key;
  int depth = p->depth;
  json_push_byte(p, c, &t->word);
  if (call && key && p->state == PUSH_COLON)
    take_key(t);
  else if (call && p->depth < depth)
    end_object(t, end);
  t->stopped |= p->state == PUSH_STUCK;
}

static void inner_byte(calls_told *t, char c)
{
  json_push_byte(&t->inner, c, told_arguments(t));
  if (t->inner.state == PUSH_DONE)
    json_push_skip_value(&t->outer);
  t->stopped |= t->inner.state == PUSH_STUCK;
}

/* Between calls that stand one after another; true: that is all of this letter. */
static bool between(calls_told *t, char c, bool many)
{
  if (t->outer.state != PUSH_DONE || json_push_is_blank(c))
    return t->outer.state == PUSH_DONE;
  t->stopped |= !many || (c != ';' && c != '{');
  if (c == '{')
    t->outer = (json_push){0};
  return c != '{';
}

static void tell_objects(const char *text, size_t n, const json_t *tools, bool many, calls_told *t)
{
  for (; t->from < n && !t->stopped && !t->failed; t->from++) {
    char c = text[t->from];
    bool within = t->inner.state != PUSH_START && t->inner.state != PUSH_DONE;
    if (within)
      inner_byte(t, c);
    else if (!between(t, c, many))
      outer_byte(t, c, t->from + 1, tools);
  }
}

void tell_json(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  (void)f;
  tell_objects(text, n, tools, false, t);
}

void tell_bare_json(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  static const char tag[] = "<|python_tag|>";
  (void)f;
  if (t->phase == TOLD_HEAD) {
    while (t->from < n && json_push_is_blank(text[t->from]))
      t->from++;
    if (n - t->from < sizeof tag - 1 && memcmp(text + t->from, tag, n - t->from) == 0)
      return;
    if (span_starts((span){text + t->from, n - t->from}, tag))
      t->from += sizeof tag - 1;
    t->phase = TOLD_ARGUMENTS;
  }
  tell_objects(text, n, tools, true, t);
}

/* ---- a head, an object, a tail ---- */

static void tell_head(calls_heading *heading, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  calls_head head = {0};
  head_state state = heading(span_skip((span){text, n}, t->from), &head);
  size_t size = state == HEAD_KNOWN ? head.size : n - t->from;
  t->stopped |= state == HEAD_NONE || size > CALLS_LONGEST_HEAD;
  if (state != HEAD_KNOWN || t->stopped)
    return;
  if (!told_begin(t, tools, head.name, head.id))
    return;
  t->from += head.size;
  t->phase = TOLD_ARGUMENTS;
  t->fenced = head.fenced;
  t->inner = (json_push){0};
}

static void tell_object(const char *text, size_t n, calls_told *t)
{
  for (; t->from < n && t->phase == TOLD_ARGUMENTS && !t->stopped; t->from++) {
    char c = text[t->from];
    t->stopped |= t->inner.state == PUSH_START && c != '{' && !json_push_is_blank(c);
    if (t->stopped)
      break;
    json_push_byte(&t->inner, c, told_arguments(t));
    t->stopped |= t->inner.state == PUSH_STUCK;
    if (t->inner.state != PUSH_DONE)
      continue;
    told_close(t, t->from + 1); /* or where its tail ends */
    t->phase = TOLD_TAIL;
  }
}

/* What stands next, white space aside: 1, and behind it; 0: it may yet; -1: something else does. */
static int pass_word(const char *text, size_t n, const char *word, size_t *from)
{
  while (*from < n && json_push_is_blank(text[*from]))
    ++*from;
  size_t size = strlen(word), have = n - *from < size ? n - *from : size;
  if (memcmp(text + *from, word, have) != 0)
    return -1;
  if (have < size)
    return 0;
  *from += size;
  return 1;
}

static void tell_tail(const char *tail, const char *text, size_t n, calls_told *t)
{
  if (t->fenced) {
    int fence = pass_word(text, n, "```", &t->from);
    t->stopped |= fence < 0;
    if (fence <= 0)
      return;
    t->fenced = false;
  }
  int found = pass_word(text, n, tail, &t->from);
  t->stopped |= found < 0;
  if (found <= 0)
    return;
  told_close(t, t->from);
  t->phase = TOLD_HEAD;
}

/* tail NULL: a block has one call. */
static void tell_headed(calls_heading *heading, const char *tail, const char *text, size_t n, const json_t *tools,
                        calls_told *t)
{
  for (size_t before = SIZE_MAX; before != t->from && !t->stopped && !t->failed;) {
    before = t->from;
    if (t->phase == TOLD_HEAD)
      tell_head(heading, text, n, tools, t);
    else if (t->phase == TOLD_ARGUMENTS)
      tell_object(text, n, t);
    else if (tail)
      tell_tail(tail, text, n, t);
    else
      t->stopped = true;
  }
}

void tell_mistral(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  (void)f;
  tell_headed(head_mistral, NULL, text, n, tools, t);
}

void tell_kimi(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  (void)f;
  tell_headed(head_kimi, "<|tool_call_end|>", text, n, tools, t);
}

void tell_deepseek(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  (void)f;
  tell_headed(head_deepseek, "<｜tool▁call▁end｜>", text, n, tools, t);
}

void tell_harmony(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  (void)f;
  tell_headed(head_harmony, NULL, text, n, tools, t);
}
