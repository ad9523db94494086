/* test_stop.c - stop strings: nothing of a stop string is ever sent, nothing else is ever lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "engine/stop.h"

/* Feeds `text` in pieces of `piece` bytes; gives what was sent and whether it stopped. */
static bool run(const char *const *stops, size_t n_stops, const char *text, size_t piece, char *sent)
{
  stop_scan s;
  const char *ready;
  size_t length;
  bool stopped = false;
  sent[0] = '\0';
  assert_int_equal(stop_open(&s, stops, n_stops, NULL), TERN_OK);
  for (size_t i = 0; i < strlen(text) && !stopped; i += piece) {
    size_t n = strlen(text) - i < piece ? strlen(text) - i : piece;
    stopped = stop_add(&s, text + i, n, &ready, &length);
    strncat(sent, ready, length);
  }
  if (!stopped) {
    stop_finish(&s, &ready, &length);
    strncat(sent, ready, length);
  }
  assert_string_equal(sent, s.text.data ? s.text.data : "");
  stop_close(&s);
  return stopped;
}

static void answers_end_before_the_first_stop(void **state)
{
  (void)state;
  static const char *const stops[] = {"END", "\n\n", "aab"};
  static const struct {
    const char *text, *want;
    bool stopped;
  } cases[] = {
      {"hello END more", "hello ", true},
      {"hello EN", "hello EN", false},
      {"EEND", "E", true},
      {"a\nb\n\nc", "a\nb", true},
      {"aaaab", "aa", true},
      {"aaaa", "aaaa", false},
      {"x\n\nEND", "x", true},
      {"ENENDEND", "EN", true},
      {"", "", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (size_t piece = 1; piece < 6; piece++) {
      char sent[64];
      assert_int_equal(run(stops, 3, cases[i].text, piece, sent), cases[i].stopped);
      assert_string_equal(sent, cases[i].want);
    }
  }
}

static void nothing_is_held_without_reason(void **state)
{
  (void)state;
  static const char *const stops[] = {"END"};
  stop_scan s;
  const char *ready;
  size_t length;
  assert_int_equal(stop_open(&s, stops, 1, NULL), TERN_OK);
  assert_false(stop_add(&s, "abE", 3, &ready, &length));
  assert_int_equal(length, 2);
  assert_false(stop_add(&s, "x", 1, &ready, &length));
  assert_int_equal(length, 2);
  stop_close(&s);
  static const char *const empty[] = {""};
  assert_int_equal(stop_open(&s, empty, 1, NULL), TERN_E_USAGE);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_end_before_the_first_stop),
      cmocka_unit_test(nothing_is_held_without_reason),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
