/* fuzz_config.c - any bytes as config.json (up to a NUL) and generation_config.json (behind it), read through a table,
 * the id lists and the quantisation options. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/quant_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct values {
  int i;
  double d;
  bool b;
  const char *s;
} values;

static void use(const cfg *c)
{
  static const cfg_field fields[] = {
      CFG_INT_OR(values, i, "hidden_size|n_embd", 1, 1, 1 << 20),
      CFG_FLOAT_OR(values, d, "rope_theta", 1, 0, 0),
      CFG_BOOL_OR(values, b, "tie_word_embeddings", false),
      CFG_STRING_OR(values, s, "hidden_act", "silu"),
  };
  values v;
  tern_error err = {0};
  for (int scope = CFG_ROOT; scope <= CFG_GENERATION; scope++)
    if (cfg_read(c, (cfg_scope)scope, fields, sizeof fields / sizeof *fields, &v, &err) != TERN_OK && !err.text[0])
      abort();
  int32_t *ids, bos;
  size_t n, cursor = 0;
  if (cfg_eos_ids(c, &ids, &n, &err) == TERN_OK)
    mem_free(ids);
  cfg_bos_id(c, &bos, &err);
  while (cfg_unread(c, CFG_ROOT, &cursor))
    ;
  quant_config *q;
  if (quant_open(c, &q, &err) != TERN_OK)
    return;
  bool quantised;
  quant_params p;
  quant_find(q, "lm_head", "head", true, &quantised, &p, &err);
  quant_close(q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const char *text = (const char *)data;
  size_t n = size ? strnlen(text, size) : 0;
  cfg *c;
  tern_error err = {0};
  tern_status status = cfg_parse(text, n, n < size ? text + n + 1 : NULL, n < size ? size - n - 1 : 0, &c, &err);
  if (status == TERN_OK) {
    use(c);
    cfg_close(c);
  } else if (!err.text[0]) {
    abort();
  }
  return 0;
}
