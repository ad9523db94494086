/* test_dialects.c - what dialects are shown of an answer when memory runs out: nothing that lacks a part.
 *
 * A stream's pieces are made by hand, without a model and a socket, so the file that hands them on is included here,
 * before cmocka.h, of which "fail" is a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "server/conversation.c" /* NOLINT(bugprone-suspicious-include) */

#include <cmocka.h>

static int shown; /* parts */

static void look(const answer_parts *said)
{
  for (size_t i = 0; i < said->n; i++, shown++) {
    const answer_part *p = &said->at[i];
    bool call = p->kind == PART_CALL || p->kind == PART_CALL_BEGIN;
    assert_true(!call || (p->call.name && p->call.id));
    assert_true(p->kind != PART_CALL || p->call.arguments);
    assert_true(call || p->kind == PART_CALL_END || p->text.data);
  }
}

static void delta(conversation *v, int index, const choice_part *news, const sched_end *end, buf *out)
{
  (void)news, (void)end, (void)out;
  look(&v->said[index]);
}

/* Tells a text with two calls, of which the nth allocation fails. Returns whether it was told. */
static bool tell(bool pieces, int64_t nth)
{
  static const char text[] = "So.<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}</tool_call>"
                             "<tool_call>{\"name\": \"f\"}</tool_call>";
  static const dialect is = {.call_prefix = "call_", .delta = delta};
  server s = {.started = 1};
  choice one = {0};
  choices set = {.server = &s, .n = 1, .at = &one};
  conversation v = {.server = &s, .dialect = &is, .set = &set};
  json_t *tools = json_pack("[{s{ss}}]", "function", "name", "f");
  buf out = {0};
  v.request.parts = (parts_options){.calls = calls_find("json_tools"), .tools = tools, .pieces = pieces};
  v.readers[0] = parts_open(&v.request.parts);
  assert_true(v.readers[0] && tools);
  buf_adds(&one.taken.text, text);
  v.ended[0] = true;
  one.end.finish = "stop";
  mem_fail_after(nth);
  tell_piece(&v, 0, &out);
  mem_fail_after(-1);
  bool well = !v.said[0].failed;
  assert_true(!well || v.calls[0] == 2);
  parts_close(v.readers[0]);
  parts_free(&v.said[0]);
  json_decref(v.call_ids[0]);
  buf_free(&one.taken.text);
  buf_free(&out);
  json_decref(tools);
  return well;
}

static void dialects_see_whole_parts_alone(void **state)
{
  (void)state;
  for (int pieces = 0; pieces < 2; pieces++) {
    int64_t nth = 0;
    shown = 0;
    while (!tell(pieces, nth))
      nth++;
    assert_true(nth > 5 && shown > 2);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dialects_see_whole_parts_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
