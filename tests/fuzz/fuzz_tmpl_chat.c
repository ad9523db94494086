/* fuzz_tmpl_chat.c - any bytes as a chat request: the JSON reader, the checks and the normalisation of messages. */
#include <stdlib.h>

#include "base/mem.h"
#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char source[] =
    "{% for m in messages %}{{ m }}{{ m|tojson(indent=1) }}{% endfor %}{{ tools }}{{ documents }}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static chat *c;
  if (!c && chat_from_template(source, sizeof source - 1, &c, NULL) != TERN_OK)
    abort();
  tern_error err = {0};
  char *out;
  if (chat_render(c, (const char *)data, size, &out, NULL, &err) == TERN_OK)
    mem_free(out);
  else if (!err.text[0])
    abort();
  return 0;
}
