/* test_base.c - the base room: conversions against their definitions, containers, mapping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/status.h"
#include "base/utf8.h"

static void halves_round_trip(void **state)
{
  (void)state;
  for (uint32_t h = 0; h < 0x10000; h++) {
    float b = bf16_to_f32((uint16_t)h), f = f16_to_f32((uint16_t)h);
    assert_int_equal(bf16_from_f32(b), isnan(b) ? 0x7fc0 : h);
    assert_int_equal(f16_from_f32(f), isnan(f) ? ((h & 0x8000) | 0x7d00) : h);
  }
  assert_int_equal(bf16_from_f32(f32_from_bits(0x3f808000)), 0x3f80); /* tie to even */
  assert_int_equal(bf16_from_f32(f32_from_bits(0x3f818000)), 0x3f82);
  assert_int_equal(f16_from_f32(65519.996f), 0x7bff);
  assert_int_equal(f16_from_f32(65520.0f), 0x7c00);
  assert_int_equal(f16_from_f32(0x1p-25f), 0);
  assert_int_equal(f16_from_f32(0x1.8p-24f), 2);
}

#ifdef __FLT16_MAX__
static void f16_matches_the_compiler(void **state)
{
  (void)state;
  for (uint64_t u = 0; u < 0x7f800000; u += 997) {
    float x = f32_from_bits((uint32_t)u);
    _Float16 h = (_Float16)x;
    uint16_t want;
    memcpy(&want, &h, 2);
    assert_int_equal(f16_from_f32(x), want);
  }
}
#endif

static void utf8_accepts_what_is_valid(void **state)
{
  (void)state;
  for (uint32_t c = 0; c <= 0x10ffff; c++) {
    if (c >= 0xd800 && c < 0xe000)
      continue;
    char s[4];
    uint32_t back = 0;
    size_t n = utf8_encode(c, s);
    assert_int_equal(utf8_decode(s, n, &back), n);
    assert_int_equal(back, c);
    assert_int_equal(utf8_decode(s, n - 1, &back), 0);
  }
}

static void utf8_refuses_what_is_broken(void **state)
{
  (void)state;
  static const struct {
    const char *s;
    size_t n, part;
    bool incomplete;
  } cases[] = {
      {"\x80", 1, 1, false},
      {"\xc0\x80", 2, 1, false},
      {"\xe0\x80\x80", 3, 1, false},
      {"\xed\xa0\x80", 3, 1, false},
      {"\xf4\x90\x80\x80", 4, 1, false},
      {"\xe2\x82", 2, 2, true},
      {"\xf0\x9f\x98", 3, 3, true},
      {"\xf0\x9f"
       "A",
       3, 2, false},
      {"\xff", 1, 1, false},
      {"\xe2"
       "A",
       2, 1, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint32_t c;
    bool incomplete;
    assert_int_equal(utf8_decode(cases[i].s, cases[i].n, &c), 0);
    assert_int_equal(utf8_broken(cases[i].s, cases[i].n, &incomplete), cases[i].part);
    assert_int_equal(incomplete, cases[i].incomplete);
  }
}

static void errors_stay_on_one_line(void **state)
{
  (void)state;
  tern_error err;
  assert_int_equal(err_set(&err, TERN_E_FORMAT, "tensor %s", "a\nb\x1b[31m\xff"), TERN_E_FORMAT);
  assert_string_equal(err.text, "tensor a?b?[31m?");
  assert_int_equal(err_prefix(&err, TERN_E_IO, "file %d", 7), TERN_E_FORMAT);
  assert_string_equal(err.text, "file 7: tensor a?b?[31m?");
}

static void copies_for_terminals_are_clean_and_short(void **state)
{
  (void)state;
  static const struct {
    const char *text, *shown;
  } cases[] = {
      {"", ""},
      {"model.norm", "model.norm"},
      {"a\x1b[2Jb\nc\x7f", "a?[2Jb?c?"},
      {"a\u202eb\u2066c\u200fd", "a???b???c???d"},
      {"\u061cé日", "??é日"},
      {"0123456789abcde", "0123456789abcde"}, /* just fits */
      {"0123456789abcdef", "0123456789ab..."},
      {"0123456789日日", "0123456789..."}, /* no half of a character */
  };
  char out[16];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_ptr_equal(err_clean_copy(cases[i].text, out, sizeof out), out);
    assert_string_equal(out, cases[i].shown);
  }
  tern_error err;
  err_set(&err, TERN_E_FORMAT, "tensor %s", "a\u202eb");
  assert_string_equal(err.text, "tensor a???b");
}

static void long_errors_end_in_a_whole_character(void **state)
{
  (void)state;
  char text[2048];
  tern_error err;
  for (size_t shift = 0; shift < 4; shift++) {
    memset(text, 'x', shift);
    for (size_t i = shift; i + 4 < sizeof text; i += 4)
      memcpy(text + i, "\xf0\x9f\x99\x82", 4);
    text[shift + (sizeof text - 5 - shift) / 4 * 4] = '\0';
    err_set(&err, TERN_E_FORMAT, "%s", text);
    size_t n = strlen(err.text);
    assert_true(n > sizeof err.text - 5 && n < sizeof err.text);
    assert_memory_equal(err.text, text, n);
    assert_true(utf8_valid(err.text, n, NULL));
    err_prefix(&err, TERN_E_FORMAT, "abc");
    assert_true(utf8_valid(err.text, strlen(err.text), NULL));
    assert_null(strchr(err.text, '?'));
  }
}

static void paths_of_any_length(void **state)
{
  (void)state;
  char name[6000];
  mode_t type;
  tern_error err;
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  char *path = path_join("/tmp", name);
  assert_non_null(path);
  assert_int_equal(strlen(path), 5 + sizeof name - 1);
  assert_int_equal(path_type(path, &type, &err), TERN_E_IO); /* too long is not "not there" */
  mem_free(path);
  assert_int_equal(path_type("/tmp", &type, NULL), TERN_OK);
  assert_int_equal(type, S_IFDIR);
  assert_int_equal(path_type("/nowhere/at/all", &type, NULL), TERN_OK);
  assert_int_equal(type, 0);
  mem_fail_after(0);
  assert_null(path_join("a", "b"));
  mem_fail_after(-1);
}

static void strmap_keeps_its_entries(void **state)
{
  (void)state;
  strmap m = {0};
  static char keys[1000][8];
  for (uint32_t i = 0; i < 1000; i++) {
    snprintf(keys[i], sizeof keys[i], "k%u", i);
    assert_true(strmap_put(&m, keys[i], strlen(keys[i]), i, NULL, NULL));
  }
  bool present;
  uint32_t value;
  assert_true(strmap_put(&m, "k7", 2, 99, &present, &value));
  assert_true(present);
  assert_int_equal(value, 7);
  for (uint32_t i = 0; i < 1000; i++) {
    assert_true(strmap_get(&m, keys[i], strlen(keys[i]), &value));
    assert_int_equal(value, i);
  }
  assert_false(strmap_get(&m, "nope", 4, &value));
  strmap_free(&m);
}

static void buffers_fail_once_and_for_all(void **state)
{
  (void)state;
  buf b = {0};
  buf_adds(&b, "ab");
  mem_fail_after(0);
  for (int i = 0; i < 100; i++)
    buf_adds(&b, "cdefgh");
  mem_fail_after(-1);
  assert_true(b.failed);
  assert_null(buf_take(&b));
  buf_addf(&b, "%d-%s", 5, "x");
  char *s = buf_take(&b);
  assert_string_equal(s, "5-x");
  mem_free(s);
}

static void a_shrinking_file_is_an_error(void **state)
{
  (void)state;
  map_guard_install();
  char path[] = "/tmp/tern_map_XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(ftruncate(fd, 3 * 65536), 0);
  map m;
  assert_int_equal(map_open(path, &m, NULL), TERN_OK);
  assert_false(map_broken(&m));
  uint8_t first = m.data[0];
  map_forget(&m, m.data, m.size); /* the same bytes come back */
  assert_int_equal(m.data[0], first);
  assert_int_equal(ftruncate(fd, 10), 0);
  unsigned sum = 0;
  for (size_t i = 0; i < m.size; i += 4096)
    sum += m.data[i];
  assert_int_equal(sum, 0);
  assert_true(map_broken(&m));
  map_close(&m);
  close(fd);
  unlink(path);
}

static void shrinking_within_a_page_is_seen_too(void **state)
{
  (void)state;
  char path[] = "/tmp/tern_map_XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(ftruncate(fd, 100), 0);
  map m;
  assert_int_equal(map_open(path, &m, NULL), TERN_OK);
  assert_int_equal(ftruncate(fd, 200), 0); /* growing does no harm */
  assert_false(map_broken(&m));
  assert_int_equal(ftruncate(fd, 99), 0);
  assert_true(map_broken(&m));
  map_close(&m);
  map_close(&m);
  close(fd);
  unlink(path);
}

static void bare_file_names_get_their_place(void **state)
{
  (void)state;
  static const char *const lines[][2] = {
      {"config.json: hidden_size: is missing", "a/b/config.json: hidden_size: is missing"},
      {"model-00001-of-00002.safetensors: tensor x", "a/b/model-00001-of-00002.safetensors: tensor x"},
      {"a/b/config.json: hidden_size", "a/b/config.json: hidden_size"},
      {"config.json is long", "config.json is long"},
      {".json: x", ".json: x"},
      {"context: too many", "context: too many"},
      {"", ""},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    tern_error err = {0};
    err_set(&err, TERN_E_FORMAT, "%s", lines[i][0]);
    assert_int_equal(path_place("a/b", TERN_E_FORMAT, &err), TERN_E_FORMAT);
    assert_string_equal(err.text, lines[i][1]);
    assert_int_equal(path_place("a/b", TERN_OK, &err), TERN_OK);
    assert_string_equal(err.text, lines[i][1]);
  }
  assert_int_equal(path_place("a/b", TERN_E_IO, NULL), TERN_E_IO);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(halves_round_trip),
#ifdef __FLT16_MAX__
      cmocka_unit_test(f16_matches_the_compiler),
#endif
      cmocka_unit_test(utf8_accepts_what_is_valid),
      cmocka_unit_test(utf8_refuses_what_is_broken),
      cmocka_unit_test(errors_stay_on_one_line),
      cmocka_unit_test(copies_for_terminals_are_clean_and_short),
      cmocka_unit_test(long_errors_end_in_a_whole_character),
      cmocka_unit_test(paths_of_any_length),
      cmocka_unit_test(strmap_keeps_its_entries),
      cmocka_unit_test(buffers_fail_once_and_for_all),
      cmocka_unit_test(a_shrinking_file_is_an_error),
      cmocka_unit_test(shrinking_within_a_page_is_seen_too),
      cmocka_unit_test(bare_file_names_get_their_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
