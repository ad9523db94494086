/* fuzz_schema.c - any text as a JSON Schema: it becomes a grammar or an error, and a way through the grammar never gets
 * stuck. The text behind the schema, if there is one (a NUL between), chooses the way. */
#include <stdlib.h>
#include <string.h>

#include "text/grammar_machine.h"
#include "text/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One step, of those that lead somewhere the one at `choice`. */
static uint32_t step(gram_machine *m, uint32_t at, uint8_t choice)
{
  uint32_t to[256], n = 0;
  for (int byte = 0; byte < 256; byte++) {
    uint32_t next = gram_step(m, at, (uint8_t)byte);
    if (next != GRAM_DEAD)
      to[n++] = next;
  }
  if (!n && !gram_accepts(m, at) && gram_fault(m, NULL) == TERN_OK)
    abort();
  return n ? to[choice % n] : GRAM_DEAD;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  enum { MOST_STEPS = 64 };
  static const schema_frame frames[] = {{NULL, NULL}, {"<think>", "</think>"}, {NULL, "</think>"}};
  const uint8_t *end = memchr(data, 0, size);
  size_t n = end ? (size_t)(end - data) : size, left = end ? size - n - 1 : 0;
  json_t *schema = json_loadb((const char *)data, n, JSON_DECODE_ANY, NULL);
  grammar g = {0};
  gram_machine *m = NULL;
  tern_error err = {0};
  if (schema && schema_compile(schema, "schema", &frames[size % 3], &g, &err) == TERN_OK &&
      gram_machine_open(&g, &m, &err) == TERN_OK) {
    uint32_t at = gram_start(m);
    for (size_t i = 0; i < left && i < MOST_STEPS && at != GRAM_DEAD; i++)
      at = step(m, at, end[1 + i]);
  } else if (schema && !err.text[0]) {
    abort();
  }
  gram_machine_close(m);
  gram_free(&g);
  json_decref(schema);
  return 0;
}
