/* fuzz_bodies.c - bodies of requests: the tables of fields, and items of /v1/responses as messages. The first byte says
 * which; the rest is the body. */
#include <stdlib.h>

#include "format/json_util.h"
#include "server/responses.h"

static const srv_fields *const tables[] = {&resp_fields,         &emb_fields,      &oll_chat_fields,
                                           &oll_generate_fields, &oll_show_fields, &text_tokenize_fields};
enum { N_TABLES = sizeof tables / sizeof *tables };

static void read_items(json_t *body)
{
  oai_fault fault = {0};
  json_t *items = resp_items(json_object_get(body, "input"), "fuzz", &fault);
  json_t *messages = items ? resp_messages(items, 0, json_object_get(body, "instructions"), &fault) : NULL;
  if (!messages && fault.err.status == TERN_OK)
    abort(); /* no reason given */
  for (size_t i = 0; i < json_array_size(messages); i++)
    if (!json_is_string(json_object_get(json_array_get(messages, i), "content")))
      abort();
  json_decref(messages);
  json_decref(items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  json_t *body;
  oai_fault fault = {0};
  if (!size || jsonu_parse("body", (const char *)data + 1, size - 1, &body, NULL) != TERN_OK)
    return 0;
  const srv_fields *table = tables[data[0] % N_TABLES];
  bool well = fields_check(table, body, &fault);
  if (!well && fault.err.status == TERN_OK)
    abort();
  json_t *shared = json_object();
  if (well && !fields_move(table, body, shared, &fault))
    abort();
  json_decref(shared);
  if (well && table == &resp_fields)
    read_items(body);
  json_decref(body);
  return 0;
}
