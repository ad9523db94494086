/* test_detok.c - the streaming detokenizer: what is sent when, what is held, that nothing is taken back, and that the
 * whole equals what tok_decode says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "text/detok.h"
#include "text/tok_impl.h"

/* A tokenizer whose pieces are given with their ids, special tokens "<s>" = 0. */
static tok *open_pieces(const char *vocab, const char *decoder)
{
  buf json = {0};
  buf_addf(&json,
           "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
           "\"normalized\":false,\"special\":true}],\"decoder\":%s,\"model\":{\"type\":\"WordLevel\","
           "\"unk_token\":\"<s>\",\"vocab\":{\"<s>\":0,%s}}}",
           decoder, vocab);
  tok *t = NULL;
  tern_error err = {0};
  if (tok_open_bytes(true, json.data, json.length, &t, &err) != TERN_OK)
    fail_msg("%s", err.text);
  buf_free(&json);
  return t;
}

static detok *open_stream(const tok *t, bool skip)
{
  detok *d = NULL;
  tern_error err = {0};
  if (detok_open(t, skip, &d, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return d;
}

static void gives(detok *d, int32_t id, const char *want)
{
  const char *text = NULL;
  size_t n = 0;
  mem_forbid(true);
  tern_status status = id == -1 ? detok_finish(d, &text, &n, NULL) : detok_push(d, id, &text, &n, NULL);
  mem_forbid(false);
  assert_int_equal(status, TERN_OK);
  assert_int_equal(n, strlen(want));
  assert_memory_equal(text, want, n);
}
enum { END = -1 };

static const char llama_decoder[] =
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";
static const char llama_vocab[] =
    "\"\u2581a\":1,\"\u2581\":2,\"<0xE2>\":3,\"<0x82>\":4,\"<0xAC>\":5,\"b\":6,\"<0x41>\":7,\"<0xFF>\":8";

static void test_byte_tokens(void **state)
{
  (void)state;
  tok *t = open_pieces(llama_vocab, llama_decoder);
  detok *d = open_stream(t, false);
  gives(d, 1, "a"); /* only the first text loses its space */
  gives(d, 1, " a");
  gives(d, 3, "");
  gives(d, 4, "");
  gives(d, 5, "\u20ac");
  gives(d, 7, "A");
  gives(d, 3, "");
  gives(d, 6, "\ufffdb");
  gives(d, 8, "\ufffd");
  gives(d, 3, "");
  gives(d, 3, "\ufffd"); /* E2 E2: the first is broken for sure */
  gives(d, 4, "");
  gives(d, END, "\ufffd");
  gives(d, 2, ""); /* the stream is as new */
  gives(d, 2, " ");
  gives(d, 0, "<s>");
  gives(d, 1 << 20, "");
  gives(d, END, "");
  detok_close(d);
  d = open_stream(t, true);
  gives(d, 0, "");
  gives(d, 1, "a");
  gives(d, END, "");
  const char *text;
  size_t n;
  tern_error err = {0};
  assert_int_equal(detok_push(d, -7, &text, &n, &err), TERN_E_USAGE);
  assert_string_equal(err.text, "ids: -7 is no token id");
  detok_close(d);
  tok_close(t);
}

static void test_byte_level(void **state)
{
  (void)state;
  tok *t = open_pieces("\"\u0120a\":1,\"\u00e2\":2,\"\u0124\u00ac\":3,\"\u00f0\u0141\":4,\"\u4f60\":5",
                       "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}");
  detok *d = open_stream(t, false);
  gives(d, 1, " a");
  gives(d, 2, "");
  gives(d, 3, "\u20ac");
  gives(d, 4, "");
  gives(d, 1, "\ufffd a");
  gives(d, 2, "");
  gives(d, 5, "\ufffd\u4f60"); /* not in the byte alphabet: as it is */
  gives(d, 4, "");
  gives(d, END, "\ufffd");
  detok_close(d);
  tok_close(t);
}

static void test_look_ahead(void **state)
{
  (void)state;
  tok *t = open_pieces("\"ab</w>\":1,\"c\":2", "{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}");
  detok *d = open_stream(t, false);
  gives(d, 1, "");
  gives(d, 2, "ab ");
  gives(d, 1, "c");
  gives(d, END, "ab"); /* the last one's suffix is no space */
  detok_close(d);
  tok_close(t);
  t = open_pieces("\"a!!\":1,\"!\":2,\"b\":3", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},"
                                               "{\"type\":\"Strip\",\"content\":\"!\",\"start\":1,\"stop\":2}]}");
  d = open_stream(t, false);
  gives(d, 2, "");
  gives(d, 2, ""); /* one is stripped from the start; this one may go at the end */
  gives(d, 1, "!a");
  gives(d, 2, "!");
  gives(d, 3, "!!b");
  gives(d, 1, "a");
  gives(d, END, "");
  detok_close(d);
  tok_close(t);
}

static void test_words(void **state)
{
  (void)state;
  tok *t = open_pieces("\"a\":1,\"##b\":2,\".\":3", "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}");
  detok *d = open_stream(t, true);
  gives(d, 2, "##b");
  gives(d, 1, " a");
  gives(d, 2, "b");
  gives(d, 3, ".");
  gives(d, END, "");
  detok_close(d);
  tok_close(t);
  t = open_pieces("\"a\":1,\"b\":2", "null");
  d = open_stream(t, false);
  gives(d, 1, "a");
  gives(d, 2, " b");
  gives(d, END, "");
  detok_close(d);
  tok_close(t);
}

static void test_refused(void **state)
{
  (void)state;
  static const char *const decoders[] = {
      "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},"
      "\"content\":\"c\"}]}",
      "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"WordPiece\",\"prefix\":\"#\","
      "\"cleanup\":true}]}",
  };
  for (size_t i = 0; i < 2; i++) {
    tok *t = open_pieces("\"a\":1", decoders[i]);
    detok *d = NULL;
    tern_error err = {0};
    assert_int_equal(detok_open(t, false, &d, &err), TERN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cannot be streamed"));
    tok_close(t);
  }
}

/* Random ids: the pieces joined are the whole text, and each is whole characters. */
static void test_equals_decode(void **state)
{
  (void)state;
  tok *t =
      open_pieces("\"\u0120a\":1,\"\u00e2\":2,\"\u0124\u00ac\":3,\"\u00f0\u0141\":4,\"\u4f60\":5,\"\u0122\":6,\"x\":7",
                  "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}");
  detok *d = open_stream(t, false);
  srand(7);
  for (int round = 0; round < 2000; round++) {
    int32_t ids[30];
    size_t n = (size_t)rand() % 30, length, whole_length;
    buf all = {0};
    char *whole;
    const char *text;
    for (size_t i = 0; i <= n; i++) {
      if (i < n)
        ids[i] = rand() % 8;
      if (i < n)
        assert_int_equal(detok_push(d, ids[i], &text, &length, NULL), TERN_OK);
      else
        assert_int_equal(detok_finish(d, &text, &length, NULL), TERN_OK);
      assert_true(utf8_valid(text, length, NULL));
      buf_add(&all, text, length);
    }
    assert_int_equal(tok_decode(t, ids, n, false, &whole, &whole_length, NULL), TERN_OK);
    assert_int_equal(all.length, whole_length);
    assert_memory_equal(all.data, whole, whole_length);
    mem_free(whole);
    buf_free(&all);
  }
  detok_close(d);
  tok_close(t);
}

static void test_no_memory(void **state)
{
  (void)state;
  tok *t = open_pieces(llama_vocab, llama_decoder);
  bool done = false;
  for (int64_t i = 1; !done; i++) {
    detok *d = NULL;
    mem_fail_after(i);
    tern_status status = detok_open(t, false, &d, NULL);
    mem_fail_after(-1);
    done = status == TERN_OK;
    assert_true(done || status == TERN_E_NOMEM);
    detok_close(d);
  }
  tok_close(t);
}

/* A decoder that blows a token up is not out of memory. */
static void test_too_much_text(void **state)
{
  (void)state;
  char decoder[20000], *at = decoder;
  at += sprintf(at, "{\"type\":\"Sequence\",\"decoders\":[");
  for (int i = 0; i < 3; i++) {
    at += sprintf(at, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"", i ? "," : "");
    memset(at, 'a', 4096);
    at += 4096;
    at += sprintf(at, "\"}");
  }
  sprintf(at, "]}");
  tok *t = open_pieces("\"a\":1,\"b\":2", decoder);
  detok *d = open_stream(t, false);
  const char *text;
  size_t length;
  tern_error err = {0};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(detok_push(d, 1, &text, &length, &err), TERN_E_LIMIT);
    assert_non_null(strstr(err.text, "16 MiB"));
    gives(d, 2, "b");
  }
  detok_close(d);
  tok_close(t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_byte_tokens), cmocka_unit_test(test_byte_level),    cmocka_unit_test(test_look_ahead),
      cmocka_unit_test(test_words),       cmocka_unit_test(test_refused),       cmocka_unit_test(test_equals_decode),
      cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_too_much_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
