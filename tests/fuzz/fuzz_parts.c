/* fuzz_parts.c - any text as an answer, in every format: whole and in pieces it must give the same parts, and a text of
 * which no call was made must come back as long as it was, markers of reasoning and white space aside. With calls told
 * of as they are written it must say the same.
 *
 * The first byte chooses the format, the second the reasoning and how the text is cut. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
  if (!holds)
    abort();
}

static void run(const parts_options *o, const char *text, size_t n, size_t piece, bool cut, answer_parts *out)
{
  parts_reader *r = parts_open(o);
  check(r);
  for (size_t i = 0; i < n; i += piece)
    parts_feed(r, text + i, n - i < piece ? n - i : piece, out);
  parts_end(r, cut, out);
  parts_close(r);
}

static bool same(const answer_part *a, const answer_part *b)
{
  if (a->kind != b->kind)
    return false;
  if (a->kind != PART_CALL)
    return a->text.length == b->text.length && !memcmp(a->text.data, b->text.data, a->text.length);
  return !strcmp(a->call.name, b->call.name) && !strcmp(a->call.arguments, b->call.arguments);
}

/* The same calls, and the same text beside them. */
static void check_stream(const answer_parts *whole, const answer_parts *stream)
{
  size_t i = 0, left = 0;
  buf arguments = {0}, text = {0};
  for (size_t k = 0; k < whole->n; k++)
    if (whole->at[k].kind != PART_CALL)
      left += whole->at[k].text.length;
  for (size_t k = 0; k < stream->n; k++) {
    const answer_part *p = &stream->at[k];
    if (p->kind == PART_CALL_TEXT)
      buf_add(&arguments, p->text.data, p->text.length);
    else if (p->kind == PART_REASONING || p->kind == PART_CONTENT)
      buf_add(&text, p->text.data, p->text.length);
    if (p->kind == PART_CALL_BEGIN)
      buf_clear(&arguments);
    if (p->kind != PART_CALL_END)
      continue;
    while (i < whole->n && whole->at[i].kind != PART_CALL)
      i++;
    check(i < whole->n);
    json_t *a = json_loads(arguments.data, JSON_ALLOW_NUL, NULL);
    json_t *b = json_loads(whole->at[i++].call.arguments, JSON_ALLOW_NUL, NULL);
    check(a && b && json_equal(a, b));
    json_decref(a);
    json_decref(b);
  }
  for (; i < whole->n; i++)
    check(whole->at[i].kind != PART_CALL);
  check(text.length == left);
  buf_free(&arguments);
  buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static json_t *tools;
  size_t formats = 0, reasonings = 0, given = 0;
  if (!tools)
    tools = json_loads("[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"n\": {\"type\": "
                       "\"integer\"}, \"o\": {\"anyOf\": [{\"type\": \"null\"}, {\"enum\": [1, true]}]}}}}}]",
                       0, NULL);
  check(tools);
  if (size < 2)
    return 0;
  while (calls_at(formats))
    formats++;
  while (parts_reasoning_at(reasonings))
    reasonings++;
  parts_options o = {.calls = calls_at(data[0] % (formats + 1)),
                     .reasoning = parts_reasoning_at(data[1] % (reasonings + 1)),
                     .opened = data[1] & 0x80,
                     .tools = tools};
  const char *text = (const char *)data + 2;
  size_t n = size - 2, piece = 1 + (data[1] >> 4 & 7), blank = 0;
  bool cut = data[0] & 0x80, called = false, reasoned = false;
  answer_parts whole = {0}, pieces = {0};
  run(&o, text, n, n ? n : 1, cut, &whole);
  run(&o, text, n, piece, cut, &pieces);
  check(whole.n == pieces.n);
  for (size_t i = 0; i < whole.n; i++) {
    check(same(&whole.at[i], &pieces.at[i]));
    called |= whole.at[i].kind == PART_CALL;
    reasoned |= whole.at[i].kind == PART_REASONING;
    given += whole.at[i].text.length;
    if (whole.at[i].kind == PART_CALL) { /* what clients parse */
      json_t *arguments = json_loads(whole.at[i].call.arguments, JSON_ALLOW_NUL, NULL);
      check(json_is_object(arguments));
      json_decref(arguments);
    }
  }
  for (size_t i = 0; i < n; i++)
    blank += strchr(" \t\n\v\f\r", data[2 + i]) && data[2 + i];
  if (!called && !reasoned && !o.reasoning && !(o.calls && o.calls->channels)) /* whose markers are left out */
    check(given <= n && given + blank >= n);
  answer_parts stream = {0};
  o.pieces = true;
  run(&o, text, n, piece, cut, &stream);
  check_stream(&whole, &stream);
  parts_free(&stream);
  parts_free(&whole);
  parts_free(&pieces);
  return 0;
}
