/* fuzz_tmpl_parse.c - any bytes as a template's source: lexer, parser and name resolution. */
#include <stdlib.h>

#include "text/tmpl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  tmpl *t;
  tern_error err = {0};
  if (tmpl_compile((const char *)data, size, &t, &err) == TERN_OK)
    tmpl_free(t);
  else if (!err.text[0])
    abort(); /* every failure says why */
  return 0;
}
