/* parts_calls.c - a block of calls: told of while it comes, and taken or refused at its end. See parts.h.
 *
 * What has come out of the block is counted: calls that have begun, and bytes of the last one's arguments. A call is
 * whole once the next one began, so of a block that is refused in the end the calls before the last stay, and content
 * is what stands behind them.
 */
#include <string.h>

#include "base/mem.h"
#include "text/parts_impl.h"

static void begin(const char *name, const char *id, answer_parts *out)
{
  answer_part *one = parts_new(out, PART_CALL_BEGIN);
  if (!one)
    return;
  one->call.name = mem_strdup(name);
  one->call.id = id ? mem_strdup(id) : NULL;
  out->failed |= !one->call.name || (id && !one->call.id);
}

/* Takes over `arguments`. */
static void give_whole(const char *name, const char *id, char *arguments, answer_parts *out)
{
  answer_part *one = parts_new(out, PART_CALL);
  if (!one) {
    mem_free(arguments);
    return;
  }
  one->call = (tool_call){.name = mem_strdup(name), .id = id ? mem_strdup(id) : NULL, .arguments = arguments};
  out->failed |= !one->call.name || !arguments || (id && !one->call.id);
}

/* The i-th call as far as it is told, in pieces. */
static void give_piece(parts_reader *r, size_t i, answer_parts *out)
{
  const told_call *c = &r->told.at[i];
  if (i == r->begun_calls) {
    begin(c->name, c->id, out);
    r->begun_calls++;
    r->told_bytes = 0;
  }
  if (c->arguments.length > r->told_bytes)
    parts_add(out, PART_CALL_TEXT, c->arguments.data + r->told_bytes, c->arguments.length - r->told_bytes);
  r->told_bytes = c->arguments.length;
}

void parts_tell_calls(parts_reader *r, size_t skip, size_t size, answer_parts *out)
{
  calls_told *t = &r->told;
  size_t first = r->begun_calls && r->options.pieces ? r->begun_calls - 1 : r->begun_calls;
  if (size < skip)
    return;
  calls_tell(r->options.calls, parts_at(r) + skip, size - skip, r->options.tools, t);
  out->failed |= t->failed;
  if (t->failed)
    return;
  for (size_t i = first; i < t->n; i++) {
    bool whole = i + 1 < t->n;
    if (r->options.pieces) {
      give_piece(r, i, out);
      if (whole)
        parts_new(out, PART_CALL_END);
    } else if (whole) {
      give_whole(t->at[i].name, t->at[i].id, calls_told_text(&t->at[i]), out);
      r->begun_calls++;
    }
  }
}

/* What the block's calls have beyond what came out. */
static void give_rest(parts_reader *r, call_list *list, answer_parts *out)
{
  const calls_told *t = &r->told;
  for (size_t i = t->n ? t->n - 1 : 0; i < list->n; i++) {
    tool_call *c = &list->at[i];
    bool told = i < t->n;
    const char *id = told ? t->at[i].id : c->id;
    if (!r->options.pieces) {
      give_whole(c->name, id, c->arguments, out);
      c->arguments = NULL;
      continue;
    }
    if (!told)
      begin(c->name, id, out);
    const char *text = told ? calls_told_rest(t, c->arguments) : c->arguments;
    parts_add(out, PART_CALL_TEXT, text, strlen(text));
    parts_new(out, PART_CALL_END);
  }
}

static void end_block(parts_reader *r, size_t size)
{
  calls_told_clear(&r->told);
  r->begun_calls = r->told_bytes = 0;
  r->gap = 0;
  r->from += size;
  r->state = IN_CONTENT;
}

bool parts_take_calls(parts_reader *r, size_t size, size_t skip, size_t n, answer_parts *out)
{
  call_list list = {0};
  bool well = calls_read(r->options.calls, parts_at(r) + skip, n, r->options.tools, &list);
  out->failed |= list.failed;
  if (!well || (r->state == IN_BARE_CALL && !calls_all_known(&list, r->options.tools)) ||
      !calls_told_agree(&r->told, &list)) {
    calls_clear(&list);
    return false;
  }
  give_rest(r, &list, out);
  calls_clear(&list);
  end_block(r, size);
  r->behind = r->called = r->begun = true;
  return true;
}

void parts_refuse_calls(parts_reader *r, size_t skip, size_t size, answer_parts *out)
{
  const calls_told *t = &r->told;
  size_t whole = t->n > 1 ? skip + t->at[t->n - 2].end : 0, gap = whole ? 0 : r->gap;
  if (t->n && r->options.pieces) {
    if (!r->told_bytes) /* no text at all is how clients write a call without arguments */
      parts_add(out, PART_CALL_TEXT, "{", 1);
    parts_new(out, PART_CALL_LOST);
  }
  parts_add(out, PART_CONTENT, parts_at(r) + whole - gap, size - whole + gap);
  end_block(r, size);
  r->behind = r->called = false;
}
