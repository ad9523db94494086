/* test_tok_limits.c - tokenizer files that ask for too much: pieces longer than any room that was set aside for them,
 * and pieces whose merges take forever to find. What usual files mean is shown by tests/text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/detok.h"

static char dir[64];

static int make_dir(void **state)
{
  (void)state;
  snprintf(dir, sizeof dir, "/tmp/tern-tok-XXXXXX");
  return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  return system(command);
}

static void put(const char *name, const buf *text)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_false(text->failed);
  assert_int_equal(fwrite(text->data, 1, text->length, f), text->length);
  assert_int_equal(fclose(f), 0);
}

static void repeat(buf *b, const char *s, size_t times)
{
  for (size_t i = 0; i < times; i++)
    buf_adds(b, s);
}

/* A tokenizer of 0, "b", and of the added token 1, `length` times 'a'. */
static tok *with_long_token(size_t length, const char *decoder)
{
  buf text = {0};
  buf_adds(&text, "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 1, \"content\": \"");
  repeat(&text, "a", length);
  buf_adds(&text, "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                  "\"special\": false}], \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null, "
                  "\"decoder\": ");
  buf_adds(&text, decoder);
  buf_adds(&text, ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"b\": 0}, \"merges\": []}}");
  put("tokenizer.json", &text);
  buf_free(&text);
  tok *t;
  tern_error err;
  if (tok_open(dir, &t, &err) != TERN_OK)
    fail_msg("%s", err.text);
  return t;
}

/* The stream of `ids` gives what the whole-text decoder gives; the length of both. */
static size_t stream_is_whole(const tok *t, const int32_t *ids, size_t n)
{
  detok *d;
  buf streamed = {0};
  char *whole;
  const char *text;
  size_t length;
  assert_int_equal(detok_open(t, false, &d, NULL), TERN_OK);
  for (size_t i = 0; i <= n; i++) {
    tern_status status = i < n ? detok_push(d, ids[i], &text, &length, NULL) : detok_finish(d, &text, &length, NULL);
    assert_int_equal(status, TERN_OK);
    buf_add(&streamed, text, length);
  }
  detok_close(d);
  assert_int_equal(tok_decode(t, ids, n, false, &whole, &length, NULL), TERN_OK);
  assert_int_equal(streamed.length, length);
  assert_memory_equal(streamed.data, whole, length);
  mem_free(whole);
  buf_free(&streamed);
  return length;
}

static const char bpe[] = "{\"type\": \"BPEDecoder\", \"suffix\": \"</w>\"}";
static const char ctc[] =
    "{\"type\": \"CTC\", \"pad_token\": \"<pad>\", \"word_delimiter_token\": \"|\", \"cleanup\": true}";

static void held_pieces_may_be_of_any_length(void **state)
{
  (void)state;
  static const int32_t ids[] = {1, 0, 1, 1, 0};
  const char *const decoders[] = {bpe, ctc};
  for (int i = 0; i < 2; i++) {
    tok *t = with_long_token(3 << 20, decoders[i]);
    assert_true(stream_is_whole(t, ids, 5) > (size_t)2 * (3 << 20));
    tok_close(t);
  }
}

/* A step before makes the piece longer than any in the vocabulary. */
static tok *with_growing_token(const char *then)
{
  buf decoder = {0};
  buf_adds(&decoder,
           "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, "
           "\"content\": \"");
  repeat(&decoder, "x", 1100);
  buf_addf(&decoder, "\"}, %s]}", then);
  assert_false(decoder.failed);
  tok *t = with_long_token(1000, decoder.data);
  buf_free(&decoder);
  return t;
}

static void held_pieces_may_have_grown(void **state)
{
  (void)state;
  static const int32_t ids[] = {1, 0};
  const char *const decoders[] = {bpe, ctc};
  for (int i = 0; i < 2; i++) {
    tok *t = with_growing_token(decoders[i]);
    assert_true(stream_is_whole(t, ids, 2) > 1100000);
    tok_close(t);
  }
}

static void every_growth_may_fail(void **state)
{
  (void)state;
  const char *const decoders[] = {bpe, ctc};
  for (int i = 0; i < 2; i++) {
    tok *t = with_growing_token(decoders[i]);
    tern_status status = TERN_E_NOMEM;
    for (int64_t n = 0; status != TERN_OK; n++) {
      detok *d;
      const char *text;
      size_t length;
      assert_true(n < 100);
      assert_int_equal(detok_open(t, false, &d, NULL), TERN_OK);
      mem_fail_after(n);
      status = detok_push(d, 1, &text, &length, NULL);
      mem_fail_after(-1);
      detok_close(d);
      assert_true(n || status == TERN_E_NOMEM);
      assert_true(status == TERN_OK || status == TERN_E_NOMEM);
    }
    tok_close(t);
  }
}

/* ---- SentencePiece ---- */

static void add_varint(buf *b, size_t n)
{
  for (; n >= 0x80; n >>= 7)
    buf_addc(b, (char)(n | 0x80));
  buf_addc(b, (char)n);
}

/* ModelProto.pieces: 'a' times `length` and a letter of its own. */
static void add_piece(buf *b, size_t length, char own, int type)
{
  buf piece = {0};
  buf_addc(&piece, 0x0a);
  add_varint(&piece, length + 1);
  repeat(&piece, "a", length);
  buf_addc(&piece, own);
  buf_add(&piece, "\x15\0\0\0\0\x18", 6);
  buf_addc(&piece, (char)type);
  buf_addc(b, 0x0a);
  add_varint(b, piece.length);
  buf_add(b, piece.data, piece.length);
  buf_free(&piece);
}

static tern_status open_spm(size_t length, tok **t, tern_error *err)
{
  buf model = {0};
  add_piece(&model, 0, '?', 2); /* unknown, control, control */
  add_piece(&model, 0, '<', 3);
  add_piece(&model, 0, '>', 3);
  for (char own = 'A'; own <= 'Z'; own++)
    add_piece(&model, length, own, 1);
  buf_add(&model, "\x12\x02\x18\x02", 4); /* TrainerSpec.model_type: BPE */
  put("tokenizer.model", &model);
  buf_free(&model);
  return tok_open(dir, t, err);
}

static void merges_are_found_in_bounded_time(void **state)
{
  (void)state;
  tok *t;
  tern_error err;
  assert_int_equal(open_spm(65534, &t, &err), TERN_E_LIMIT);
  assert_non_null(strstr(err.text, "too long"));
  if (open_spm(100, &t, &err) != TERN_OK)
    fail_msg("%s", err.text);
  tok_close(t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(held_pieces_may_be_of_any_length, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(held_pieces_may_have_grown, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(every_growth_may_fail, make_dir, remove_dir),
      cmocka_unit_test_setup_teardown(merges_are_found_in_bounded_time, make_dir, remove_dir),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
