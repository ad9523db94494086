/* fuzz_tok_text.c - any bytes as a text for two small tokenizers, and as ids for the decoder and the stream, which must
 * agree. The first byte chooses the tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/detok.h"
#include "text/tok_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKENS                                                                                                         \
  "\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":true,\"rstrip\":true,"             \
  "\"normalized\":false,\"special\":true},{\"id\":0,\"content\":\"the\",\"single_word\":true,\"lstrip\":false,"        \
  "\"rstrip\":false,\"normalized\":true,\"special\":false}],"

static const char *const files[] = {
    "{" TOKENS "\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
    "\"trim_offsets\":true,\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
    "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"a\":1,\"b\":2,\"ab\":"
    "3,"
    "\"\u0120\":4,\"\u0120a\":5,\"\u00e2\":6,\"\u0124\":7,\"\u00ac\":8,\"\u00e2\u0124\":9,\"aa\":10},"
    "\"merges\":[\"a b\",\"\u0120 a\",\"\u00e2 \u0124\",\"a a\"]}}",
    "{" TOKENS "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"Lowercase\"},"
    "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
    "\"content\":\"\u2581\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
    "{\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
    "\"stop\":2}]},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<s>\",0],[\"a\",-1],[\"b\",-2],[\"ab\",-"
    "2.5],"
    "[\"\u2581\",-3],[\"\u2581a\",-3.5],[\"\u20ac\",-4]]}}",
};

static void check_ids(const tok *t, const uint8_t *data, size_t size)
{
  int32_t ids[256];
  size_t n = size < 256 ? size : 256, length, whole_length;
  for (size_t i = 0; i < n; i++)
    ids[i] = data[i] % 14;
  char *whole;
  detok *d;
  if (tok_decode(t, ids, n, false, &whole, &whole_length, NULL) != TERN_OK || detok_open(t, false, &d, NULL) != TERN_OK)
    abort();
  buf all = {0};
  const char *text;
  for (size_t i = 0; i <= n; i++) {
    if ((i < n ? detok_push(d, ids[i], &text, &length, NULL) : detok_finish(d, &text, &length, NULL)) != TERN_OK ||
        !utf8_valid(text, length, NULL))
      abort();
    buf_add(&all, text, length);
  }
  if (all.length != whole_length || (whole_length && memcmp(all.data, whole, whole_length) != 0))
    abort();
  buf_free(&all);
  mem_free(whole);
  detok_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static tok *tokenizers[2];
  for (int i = 0; i < 2; i++)
    if (!tokenizers[i] && tok_open_bytes(true, files[i], strlen(files[i]), &tokenizers[i], NULL) != TERN_OK)
      abort();
  if (size == 0)
    return 0;
  const tok *t = tokenizers[data[0] & 1];
  int32_t *ids = NULL;
  size_t n = 0;
  tern_error err = {0};
  tern_status status = tok_encode(t, (const char *)data + 1, size - 1, true, &ids, &n, &err);
  if ((status == TERN_OK) != utf8_valid((const char *)data + 1, size - 1, NULL))
    abort();
  mem_free(ids);
  check_ids(t, data + 1, size - 1);
  return 0;
}
