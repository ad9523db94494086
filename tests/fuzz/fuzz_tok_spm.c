/* fuzz_tok_spm.c - any bytes as a SentencePiece model; what opens must encode and decode. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tok_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const char text[] = "Hello, world!  \u00e4\u4f60\u597d <s> 123 \n\n a\u0301\ufb01 ";
  tok *t;
  tern_error err = {0};
  if (tok_open_bytes(false, (const char *)data, size, &t, &err) != TERN_OK) {
    if (!err.text[0] || strchr(err.text, '\n'))
      abort();
    return 0;
  }
  int32_t *ids = NULL;
  size_t n = 0;
  char *back;
  if (tok_encode(t, text, sizeof text - 1, true, &ids, &n, &err) == TERN_OK &&
      tok_decode(t, ids, n, true, &back, NULL, &err) == TERN_OK)
    mem_free(back);
  mem_free(ids);
  tok_close(t);
  return 0;
}
