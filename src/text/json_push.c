/* json_push.c - see json_push.h. A state for what may stand next, and a stack of the brackets that are open. */
#include "text/json_push.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/calls_impl.h"

bool json_push_is_blank(char c)
{
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void stick(json_push *p)
{
  p->state = PUSH_STUCK;
}

/* What was held back until something followed it. */
static void settle(json_push *p, buf *out)
{
  if (p->quote)
    buf_addc(out, '"');
  p->quote = false;
}

static void begin_item(json_push *p, buf *out)
{
  if (p->comma)
    buf_adds(out, ", ");
  p->comma = false;
}

/* ---- brackets ---- */

static void open_bracket(json_push *p, char c, buf *out)
{
  if (p->depth == JSON_PUSH_DEPTH) {
    stick(p);
    return;
  }
  p->object[p->depth++] = c == '{';
  p->state = PUSH_FIRST;
  buf_addc(out, c);
}

static void close_bracket(json_push *p, char c, buf *out)
{
  if (p->object[p->depth - 1] != (c == '}')) {
    stick(p);
    return;
  }
  p->depth--;
  p->state = p->depth ? PUSH_AFTER : PUSH_DONE;
  if (p->depth)
    buf_addc(out, c);
}

/* ---- strings ---- */

static void add_letter(uint32_t c, buf *out)
{
  static const char names[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
  const char *at = c && c < 0x80 ? strchr(names, (int)c) : NULL;
  if (at)
    buf_addf(out, "\\%c", letters[at - names]);
  else if (c < 0x20)
    buf_addf(out, "\\u%04x", (unsigned)c);
  else
    buf_add_utf8(out, c);
}

/* `/` may be escaped in JSON and not in Python, where the backslash then stays: not certain. */
static void push_escape(json_push *p, char c, buf *out)
{
  static const char names[] = "nrtbf\\\"", values[] = "\n\r\t\b\f\\\"";
  const char *at = c ? strchr(names, c) : NULL;
  p->state = PUSH_STRING;
  if (at && !p->high)
    add_letter((uint32_t)values[at - names], out);
  else if (c == 'u')
    p->state = PUSH_HEX, p->digits = 0, p->code = 0;
  else
    stick(p);
}

static void push_hex(json_push *p, char c, buf *out)
{
  int digit = hex_digit(c);
  if (digit < 0) {
    stick(p);
    return;
  }
  p->code = p->code * 16 + (uint32_t)digit;
  if (++p->digits < 4)
    return;
  bool low = p->code >= 0xdc00 && p->code < 0xe000, high = p->code >= 0xd800 && p->code < 0xdc00;
  p->state = PUSH_STRING;
  if (low != (p->high != 0) || (p->key && !p->code)) {
    stick(p);
  } else if (high) {
    p->high = p->code;
  } else {
    add_letter(low ? 0x10000 + ((p->high - 0xd800) << 10) + (p->code - 0xdc00) : p->code, out);
    p->high = 0;
  }
}

static void push_string(json_push *p, char c, buf *out)
{
  if (p->high && c != '\\') { /* half a pair */
    stick(p);
  } else if (c == '\\') {
    p->state = PUSH_ESCAPE;
  } else if (c == '"') {
    p->quote = true;
    p->state = p->key ? PUSH_COLON : PUSH_AFTER;
  } else if ((unsigned char)c < 0x20) {
    stick(p);
  } else {
    buf_addc(out, c);
  }
}

static void begin_string(json_push *p, bool key, buf *out)
{
  p->key = key;
  p->state = PUSH_STRING;
  buf_addc(out, '"');
}

/* ---- numbers and words ---- */

static bool is_scalar(char c)
{
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '+' || c == '-' || c == '.';
}

static void end_scalar(json_push *p, char c, buf *out)
{
  bool ends = json_push_is_blank(c) || c == ',' || c == '}' || c == ']';
  json_t *value = ends ? value_of(VALUE_JSON, (span){p->scalar, p->length}) : NULL;
  char *text = value ? value_text(value) : NULL;
  json_decref(value);
  p->state = PUSH_AFTER;
  if (text)
    buf_adds(out, text);
  else
    stick(p);
  mem_free(text);
}

static void add_scalar(json_push *p, char c)
{
  if (p->length == JSON_PUSH_SCALAR)
    stick(p);
  else
    p->scalar[p->length++] = c;
}

/* ---- what may stand next ---- */

static void push_value(json_push *p, char c, buf *out)
{
  bool bracket = c == '{' || c == '[';
  if (!bracket && c != '"' && !is_scalar(c)) {
    stick(p);
    return;
  }
  begin_item(p, out);
  if (bracket) {
    open_bracket(p, c, out);
  } else if (c == '"') {
    begin_string(p, false, out);
  } else {
    p->state = PUSH_SCALAR;
    p->length = 0;
    add_scalar(p, c);
  }
}

static void push_item(json_push *p, char c, buf *out)
{
  bool object = p->object[p->depth - 1], end = c == '}' || c == ']';
  if (end && p->state == PUSH_FIRST) {
    close_bracket(p, c, out);
  } else if (!object) {
    push_value(p, c, out);
  } else if (c == '"') {
    begin_item(p, out);
    begin_string(p, true, out);
  } else {
    stick(p);
  }
}

static void push_after(json_push *p, char c, buf *out)
{
  if (c == ',') {
    settle(p, out);
    p->comma = true;
    p->state = PUSH_ITEM;
  } else if (c == '}' || c == ']') {
    settle(p, out);
    close_bracket(p, c, out);
  } else {
    stick(p);
  }
}

static void push_colon(json_push *p, char c, buf *out)
{
  if (c != ':') {
    stick(p);
    return;
  }
  settle(p, out);
  buf_adds(out, ": ");
  p->state = PUSH_VALUE;
}

void json_push_byte(json_push *p, char c, buf *out)
{
  if (p->state == PUSH_SCALAR) {
    if (is_scalar(c)) {
      add_scalar(p, c);
      return;
    }
    end_scalar(p, c, out);
  }
  bool within = p->state == PUSH_STRING || p->state == PUSH_ESCAPE || p->state == PUSH_HEX;
  if (!within && json_push_is_blank(c))
    return;
  switch (p->state) {
  case PUSH_START:
    if (c == '{' || c == '[')
      open_bracket(p, c, out);
    else
      stick(p);
    break;
  case PUSH_FIRST:
  case PUSH_ITEM:
    push_item(p, c, out);
    break;
  case PUSH_COLON:
    push_colon(p, c, out);
    break;
  case PUSH_VALUE:
    push_value(p, c, out);
    break;
  case PUSH_AFTER:
    push_after(p, c, out);
    break;
  case PUSH_STRING:
    push_string(p, c, out);
    break;
  case PUSH_ESCAPE:
    push_escape(p, c, out);
    break;
  case PUSH_HEX:
    push_hex(p, c, out);
    break;
  case PUSH_DONE: /* nothing may follow */
    stick(p);
    break;
  case PUSH_SCALAR:
  case PUSH_STUCK:
    break;
  }
}

void json_push_skip_value(json_push *p)
{
  p->state = PUSH_AFTER;
  p->comma = false;
}
