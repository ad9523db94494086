/* test_gguf.c - the GGUF reader: every value type, every rule it enforces, every length a file can be cut to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gguf_build.h"

static char path[] = "/tmp/tern-gguf-XXXXXX";

static int setup(void **state)
{
  (void)state;
  int fd = mkstemp(path);
  if (fd < 0)
    return -1;
  close(fd);
  return 0;
}

static int teardown(void **state)
{
  (void)state;
  return unlink(path);
}

static tern_status open_bytes(const buf *b, size_t length, gguf *g, tern_error *err)
{
  gb_save(path, b, length);
  return gguf_open(path, g, err);
}

/* Opens what `g` builds, expects `status` and `text` in the line. */
static void expect_failure(gb *g, uint32_t version, tern_status status, const char *text)
{
  buf b = {0};
  gguf out = {0};
  tern_error err = {0};
  gb_finish(g, version, &b);
  assert_int_equal(open_bytes(&b, b.length, &out, &err), status);
  if (!strstr(err.text, text) || !strstr(err.text, path))
    fail_msg("\"%s\" does not name the file and \"%s\"", err.text, text);
  buf_free(&b);
}

static void build_sample(gb *g)
{
  static const char *const words[] = {"a", "bc", "", "\u00e9"};
  static const int32_t numbers[] = {-2, 7, 1 << 30};
  gb_put_string(g, "general.architecture", "llama");
  gb_put_u32(g, "n", 42);
  gb_put_f32(g, "f", 0.5f);
  gb_put_bool(g, "yes", 1);
  gb_put_strings(g, "words", words, 4);
  gb_put_i32s(g, "numbers", numbers, 3);
  gb_key(g, "u8", GGUF_U8);
  buf_addc(&g->bytes, (char)200);
  gb_key(g, "i64", GGUF_I64);
  gb_u64(&g->bytes, (uint64_t)-5);
  gb_key(g, "f64", GGUF_F64);
  double d = 0.1;
  buf_add(&g->bytes, (const char *)&d, 8);
  gb_key(g, "nested", GGUF_ARRAY); /* [[], [1]] of uint8 */
  gb_u32(&g->bytes, GGUF_ARRAY);
  gb_u64(&g->bytes, 2);
  gb_u32(&g->bytes, GGUF_U8);
  gb_u64(&g->bytes, 0);
  gb_u32(&g->bytes, GGUF_U8);
  gb_u64(&g->bytes, 1);
  buf_addc(&g->bytes, 1);
  gb_tensor(g, "t", 64, 2, GGML_Q4_0, 4 * 18, 3);
  gb_tensor(g, "v", 3, 0, GGML_F32, 12, 4);
}

static void reads_values_and_tensors(void **state)
{
  (void)state;
  for (uint32_t version = 2; version <= 3; version++) {
    gb b = {0};
    buf bytes = {0};
    build_sample(&b);
    gb_finish(&b, version, &bytes);
    gguf g = {0};
    tern_error err = {0};
    assert_int_equal(open_bytes(&bytes, bytes.length, &g, &err), TERN_OK);
    assert_int_equal(g.version, version);
    bool present;
    uint32_t u = 0;
    double d = 0;
    bool yes = false;
    gguf_string s = {0};
    assert_int_equal(gguf_get_uint(&g, "n", &u, &present, &err), TERN_OK);
    assert_true(present && u == 42);
    assert_int_equal(gguf_get_uint(&g, "u8", &u, &present, &err), TERN_OK);
    assert_int_equal(u, 200);
    assert_int_equal(gguf_get_uint(&g, "none", &u, &present, &err), TERN_OK);
    assert_false(present);
    assert_int_equal(gguf_get_uint(&g, "i64", &u, &present, &err), TERN_E_FORMAT);
    assert_int_equal(gguf_get_uint(&g, "f", &u, &present, &err), TERN_E_FORMAT);
    assert_non_null(strstr(err.text, "key f"));
    assert_int_equal(gguf_get_float(&g, "f", &d, &present, &err), TERN_OK);
    assert_true(d == 0.5);
    assert_int_equal(gguf_get_float(&g, "f64", &d, &present, &err), TERN_OK);
    assert_true(d == 0.1);
    assert_int_equal(gguf_get_bool(&g, "yes", &yes, &present, &err), TERN_OK);
    assert_true(yes);
    assert_int_equal(gguf_get_string(&g, "general.architecture", &s, &present, &err), TERN_OK);
    assert_true(s.size == 5 && memcmp(s.data, "llama", 5) == 0);
    gguf_string *words = NULL;
    int32_t *numbers = NULL;
    size_t n = 0;
    assert_int_equal(gguf_get_strings(&g, "words", &words, &n, &err), TERN_OK);
    assert_true(n == 4 && words[1].size == 2 && words[2].size == 0 && words[3].size == 2);
    assert_int_equal(gguf_get_ints(&g, "numbers", &numbers, &n, &err), TERN_OK);
    assert_true(n == 3 && numbers[0] == -2 && numbers[2] == 1 << 30);
    mem_free(words);
    mem_free(numbers);
    numbers = NULL;
    assert_int_equal(gguf_get_ints(&g, "words", &numbers, &n, &err), TERN_E_FORMAT);
    assert_null(numbers);
    const gguf_tensor *t = gguf_find_tensor(&g, "t"), *v = gguf_find_tensor(&g, "v");
    assert_true(t && v && t->type == GGML_Q4_0 && t->bytes == 72 && t->data[71] == 3);
    assert_true(t->size[0] == 64 && t->size[1] == 2 && v->dims == 1 && v->size[1] == 1 && v->data[0] == 4);
    assert_true((v->data - g.file.data) % 32 == 0);
    gguf_close(&g);
    gguf_close(&g);
    buf_free(&bytes);
  }
}

static void every_cut_is_refused(void **state)
{
  (void)state;
  gb b = {0};
  buf bytes = {0};
  build_sample(&b);
  gb_finish(&b, 3, &bytes);
  for (size_t length = 0; length < bytes.length; length++) {
    gguf g = {0};
    tern_error err = {0};
    assert_int_equal(open_bytes(&bytes, length, &g, &err), TERN_E_FORMAT);
    assert_non_null(strstr(err.text, path));
  }
  buf_free(&bytes);
}

/* Any single wrong byte: refused or read, never a crash (the sanitizer builds watch). */
static void any_byte_may_be_wrong(void **state)
{
  (void)state;
  gb b = {0};
  buf bytes = {0};
  build_sample(&b);
  gb_finish(&b, 3, &bytes);
  static const char values[] = {0, 1, 9, 0x7f, (char)0x80, (char)0xff};
  for (size_t i = 0; i < bytes.length; i++)
    for (size_t k = 0; k < sizeof values; k++) {
      char was = bytes.data[i];
      bytes.data[i] = values[k];
      gguf g = {0};
      tern_error err = {0};
      if (open_bytes(&bytes, bytes.length, &g, &err) == TERN_OK)
        gguf_close(&g);
      else
        assert_non_null(strstr(err.text, path));
      bytes.data[i] = was;
    }
  buf_free(&bytes);
}

static void names_the_broken_rule(void **state)
{
  (void)state;
  gb g = {0};
  gb_put_u32(&g, "k", 1);
  expect_failure(&g, 1, TERN_E_UNSUPPORTED, "version 1");
  gb_put_u32(&g, "k", 1);
  expect_failure(&g, 3u << 24, TERN_E_UNSUPPORTED, "big-endian");
  gb_put_u32(&g, "twin", 1);
  gb_put_u32(&g, "twin", 2);
  expect_failure(&g, 3, TERN_E_FORMAT, "key twin is given twice");
  gb_key(&g, "odd", 13);
  gb_u64(&g.bytes, 0);
  expect_failure(&g, 3, TERN_E_FORMAT, "key odd: unknown value type 13");
  gb_put_bool(&g, "maybe", 2);
  expect_failure(&g, 3, TERN_E_FORMAT, "key maybe: 2 is not a boolean");
  gb_put_string(&g, "broken", "a\xff");
  expect_failure(&g, 3, TERN_E_FORMAT, "key broken: a string that is not valid UTF-8");
  gb_put_u32(&g, "general.alignment", 24);
  expect_failure(&g, 3, TERN_E_FORMAT, "general.alignment");
  gb_key(&g, "long", GGUF_STRING);
  gb_u64(&g.bytes, UINT64_MAX);
  gb_u64(&g.bytes, 0);
  expect_failure(&g, 3, TERN_E_FORMAT, "key long: a string of 18446744073709551615 bytes");
  gb_key(&g, "wide", GGUF_ARRAY);
  gb_u32(&g.bytes, GGUF_F64);
  gb_u64(&g.bytes, UINT64_MAX / 8 + 2);
  gb_u64(&g.bytes, 0);
  expect_failure(&g, 3, TERN_E_FORMAT, "truncated in key wide");
  g.keys = 1ull << 60;
  expect_failure(&g, 3, TERN_E_FORMAT, "1152921504606846976 metadata entries");
  g.tensors = 1ull << 60;
  expect_failure(&g, 3, TERN_E_FORMAT, "1152921504606846976 tensors");
  gb_key(&g, "deep", GGUF_ARRAY);
  for (int i = 0; i < 10; i++) {
    gb_u32(&g.bytes, GGUF_ARRAY);
    gb_u64(&g.bytes, 1);
  }
  expect_failure(&g, 3, TERN_E_FORMAT, "key deep: arrays nested deeper");
}

static void names_the_broken_tensor(void **state)
{
  (void)state;
  gb g = {0};
  const uint64_t row[4] = {32, 1, 1, 1}, empty[2] = {32, 0}, huge[4] = {1ull << 40, 1ull << 40, 1, 1}, odd[1] = {33};
  gb_tensor(&g, "twin", 32, 0, GGML_F32, 128, 0);
  gb_tensor(&g, "twin", 32, 0, GGML_F32, 128, 0);
  expect_failure(&g, 3, TERN_E_FORMAT, "tensor twin is given twice");
  gb_info(&g, "scalar", 0, row, GGML_F32, 0);
  gb_u64(&g.infos, 0);
  gb_u64(&g.infos, 0);
  expect_failure(&g, 3, TERN_E_FORMAT, "tensor scalar: 0 dimensions");
  gb_info(&g, "old", 1, row, 4, 0);
  expect_failure(&g, 3, TERN_E_UNSUPPORTED, "tensor old: unknown tensor type 4");
  gb_info(&g, "new", 1, row, 1000, 0);
  expect_failure(&g, 3, TERN_E_UNSUPPORTED, "tensor new: unknown tensor type 1000");
  gb_info(&g, "hollow", 2, empty, GGML_F32, 0);
  expect_failure(&g, 3, TERN_E_FORMAT, "tensor hollow: dimension 1 is empty");
  gb_info(&g, "vast", 4, huge, GGML_F32, 0);
  expect_failure(&g, 3, TERN_E_FORMAT, "tensor vast: the shape overflows");
  gb_info(&g, "torn", 1, odd, GGML_Q8_0, 0);
  expect_failure(&g, 3, TERN_E_FORMAT, "tensor torn: rows of 33 values are not whole Q8_0 blocks");
  gb_info(&g, "askew", 1, row, GGML_F32, 4);
  expect_failure(&g, 3, TERN_E_FORMAT, "tensor askew: offset 4");
  gb_info(&g, "beyond", 1, row, GGML_F32, 1ull << 63);
  expect_failure(&g, 3, TERN_E_FORMAT, "tensor beyond: 128 bytes at 9223372036854775808");
  gb_tensor(&g, "first", 32, 0, GGML_F32, 128, 0);
  gb_info(&g, "second", 1, row, GGML_F32, 96);
  for (int i = 0; i < 96; i++)
    buf_addc(&g.data, 0);
  expect_failure(&g, 3, TERN_E_FORMAT, "tensors first and second overlap");
}

static void survives_every_failed_allocation(void **state)
{
  (void)state;
  gb b = {0};
  buf bytes = {0};
  build_sample(&b);
  gb_finish(&b, 3, &bytes);
  gb_save(path, &bytes, bytes.length);
  tern_status status = TERN_E_NOMEM;
  for (int n = 0; status != TERN_OK; n++) {
    gguf g = {0};
    tern_error err = {0};
    mem_fail_after(n);
    status = gguf_open(path, &g, &err);
    mem_fail_after(-1);
    assert_true(status == TERN_OK || status == TERN_E_NOMEM);
    gguf_close(&g);
    assert_true(n < 1000);
  }
  buf_free(&bytes);
}

static void other_files(void **state)
{
  (void)state;
  gguf g = {0};
  tern_error err = {0};
  assert_int_equal(gguf_open("/nowhere/x.gguf", &g, &err), TERN_E_NOT_FOUND);
  assert_int_equal(gguf_open("/tmp", &g, &err), TERN_E_IO);
  buf b = {0};
  buf_adds(&b, "GGML and something else");
  assert_int_equal(open_bytes(&b, b.length, &g, &err), TERN_E_FORMAT);
  assert_non_null(strstr(err.text, "not a GGUF file"));
  buf_free(&b);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_values_and_tensors),
      cmocka_unit_test(every_cut_is_refused),
      cmocka_unit_test(any_byte_may_be_wrong),
      cmocka_unit_test(names_the_broken_rule),
      cmocka_unit_test(names_the_broken_tensor),
      cmocka_unit_test(survives_every_failed_allocation),
      cmocka_unit_test(other_files),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
