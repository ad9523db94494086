/* parts_channels.c - harmony, as gpt-oss writes: an answer is messages, each a header and a text between markers. See
 * parts.h.
 *
 *   <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>commentary to=functions.f json<|message|>{…}
 *
 * The channel "analysis" is reasoning, a message to functions.NAME is a call, every other is content. A message to
 * somebody else comes as content with its header; so does a header that never becomes a message, and text without any
 * is content too. The prompt has the first <|start|>assistant.
 */
#include <string.h>

#include "text/parts_impl.h"

static const marker ends[] = {{"<|end|>", IN_CONTENT},
                              {"<|call|>", IN_CONTENT},
                              {"<|return|>", IN_CONTENT},
                              {"<|start|>", IN_HEADER},
                              {"<|channel|>", IN_HEADER}};
enum { ENDS = sizeof ends / sizeof *ends };

/* Whether the text behind a message begins with a header; *wait: it may, once there is more of it. */
static bool at_header(const parts_reader *r, bool *wait)
{
  static const char *const begins[] = {"<|start|>", "<|channel|>", " to=", "to="};
  size_t have = parts_left(r);
  *wait = false;
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
    size_t n = strlen(begins[i]);
    if (memcmp(parts_at(r), begins[i], have < n ? have : n) != 0)
      continue;
    if (have >= n)
      return true;
    *wait = true;
  }
  return false;
}

static void begin_header(parts_reader *r)
{
  r->state = IN_HEADER;
  r->scanned = 0;
}

/* The end of a message, or the beginning of the next one without it. */
static void end_message(parts_reader *r, const marker *end)
{
  if (end->to == IN_HEADER) {
    begin_header(r);
    return;
  }
  r->from += strlen(end->text);
  r->state = IN_CONTENT;
  r->behind = true;
}

/* Between messages there is nothing; what stands there nevertheless is content. */
static bool step_between(parts_reader *r, answer_parts *out)
{
  size_t where = 0, keep;
  bool wait = false;
  if (!parts_left(r))
    return false;
  if (r->behind && at_header(r, &wait)) {
    begin_header(r);
    return true;
  }
  if (wait)
    return false;
  const marker *m = parts_find(r, ends, ENDS, 0, &where, &keep);
  size_t n = m ? where : parts_left(r) - keep;
  parts_add(out, PART_CONTENT, parts_at(r), n);
  r->from += n;
  r->behind = r->behind && !n;
  if (m)
    end_message(r, m);
  return m != NULL;
}

static bool says(const char *text, size_t n, const char *what)
{
  return memmem(text, n, what, strlen(what)) != NULL;
}

static bool step_header(parts_reader *r, answer_parts *out)
{
  static const marker all[] = {
      {"<|message|>", IN_MESSAGE}, {"<|end|>", IN_CONTENT}, {"<|call|>", IN_CONTENT}, {"<|return|>", IN_CONTENT}};
  size_t where = 0, keep;
  const marker *m = parts_find(r, all, sizeof all / sizeof *all, r->scanned, &where, &keep);
  if (!m) {
    size_t safe = parts_left(r) - keep;
    r->scanned = safe > r->scanned ? safe : r->scanned;
    return false;
  }
  size_t size = where + strlen(m->text);
  const char *header = parts_at(r);
  if (m->to == IN_CONTENT) {
    parts_add(out, PART_CONTENT, header, size);
    r->from += size;
    r->state = IN_CONTENT;
    r->behind = true;
    return true;
  }
  if (says(header, where, "to=")) { /* the header stays: whose call it is */
    r->state = IN_CALL;
    r->scanned = size;
    return true;
  }
  r->state = says(header, where, "<|channel|>analysis") && r->options.reasoning ? IN_REASONING : IN_MESSAGE;
  r->from += size;
  r->reasoned += r->state == IN_REASONING ? size : 0;
  return true;
}

static bool step_message(parts_reader *r, answer_parts *out)
{
  bool reasons = r->state == IN_REASONING;
  size_t where = 0, keep;
  const marker *m = parts_find(r, ends, ENDS, 0, &where, &keep);
  size_t n = m ? where : parts_left(r) - keep;
  parts_add(out, reasons ? PART_REASONING : PART_CONTENT, parts_at(r), n);
  r->from += n;
  r->reasoned += reasons ? n : 0;
  if (m)
    end_message(r, m);
  return m != NULL;
}

static void tell_message(parts_reader *r, size_t size, answer_parts *out)
{
  if (r->options.calls && r->options.calls->channels)
    parts_tell_calls(r, 0, size, out);
}

/* The next `size` bytes are a header and its message, to somebody. */
static void take_message(parts_reader *r, size_t size, answer_parts *out)
{
  const calls_format *f = r->options.calls;
  tell_message(r, size, out);
  if (!f || !f->channels || !parts_take_calls(r, size, 0, size, out))
    parts_refuse_calls(r, 0, size, out);
}

static bool step_call(parts_reader *r, answer_parts *out)
{
  size_t where = 0, keep;
  const marker *m = parts_find(r, ends, ENDS, r->scanned, &where, &keep);
  if (!m) {
    size_t safe = parts_left(r) - keep;
    r->scanned = safe > r->scanned ? safe : r->scanned;
    tell_message(r, r->scanned, out);
    return false;
  }
  take_message(r, where, out);
  end_message(r, m);
  return true;
}

bool channels_step(parts_reader *r, answer_parts *out)
{
  switch (r->state) {
  case IN_HEADER:
    return step_header(r, out);
  case IN_REASONING:
  case IN_MESSAGE:
    return step_message(r, out);
  case IN_CALL:
    return step_call(r, out);
  default:
    return step_between(r, out);
  }
}

void channels_end(parts_reader *r, answer_parts *out)
{
  size_t n = parts_left(r);
  if (r->state == IN_CALL) {
    take_message(r, n, out);
    return;
  }
  parts_add(out, r->state == IN_REASONING ? PART_REASONING : PART_CONTENT, parts_at(r), n);
  r->reasoned += r->state == IN_REASONING ? n : 0;
  r->from += n;
}
