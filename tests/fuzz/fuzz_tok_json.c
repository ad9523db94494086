/* fuzz_tok_json.c - any bytes as tokenizer.json; what opens must encode and decode. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/detok.h"
#include "text/tok_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const char text[] = "Hello, world! \u00e4\u4f60\u597d <s> 123 \n\n a\u0301\ufb01";
  tok *t;
  tern_error err = {0};
  if (tok_open_bytes(true, (const char *)data, size, &t, &err) != TERN_OK) {
    if (!err.text[0] || strchr(err.text, '\n'))
      abort();
    return 0;
  }
  int32_t *ids = NULL;
  size_t n = 0;
  if (tok_encode(t, text, sizeof text - 1, true, &ids, &n, &err) == TERN_OK) {
    char *back;
    if (tok_decode(t, ids, n, true, &back, NULL, &err) == TERN_OK)
      mem_free(back);
    detok *d;
    if (detok_open(t, false, &d, &err) == TERN_OK) {
      const char *s;
      size_t length;
      for (size_t i = 0; i < n; i++)
        detok_push(d, ids[i], &s, &length, &err);
      detok_finish(d, &s, &length, &err);
      detok_close(d);
    }
  }
  mem_free(ids);
  tok_close(t);
  return 0;
}
