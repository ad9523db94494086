/* fuzz_prefix.c - any bytes as a kept prefix: parsed and restored, or refused, within bounds. Where the bytes begin
 * with 'S', what follows is sealed first: given the key, the sum and the digest that are asked for, so that the checks
 * behind them are reached; with 'Q', for a model whose keys are quantised from a position on. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/prefix_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static model *open_model(bool quantised)
{
  model *m = NULL;
  tern_error err = {0};
  tern_model_options options = {.threads = 1, .backend = TERN_BACKEND_REF};
  if (quantised)
    options.kv_bits = 4, options.kv_group_size = 32, options.quantized_kv_start = 70;
  const char *dir =
      quantised ? TERN_SOURCE_DIR "/tests/golden/llama-4bit/model" : TERN_SOURCE_DIR "/tests/golden/gemma3-bf16/model";
  if (model_open(dir, &options, false, &m, &err) != TERN_OK)
    abort();
  return m;
}

static void seal(uint8_t *bytes, size_t size, const model *m, const char *key)
{
  prefix_head *head = (prefix_head *)(void *)bytes;
  prepared_sum sum = {0};
  if (size < sizeof *head)
    return;
  memcpy(head->magic, "TERNPFIX", 8);
  memcpy(head->key, key, sizeof head->key);
  head->format = PREFIX_FORMAT;
  head->slots = (uint32_t)kv_store_slots(m->store);
  head->bytes = size;
  prepared_sum_add(&sum, bytes + sizeof *head, size - sizeof *head);
  head->sum = prepared_sum_end(&sum);
  prefix_file_seal(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static model *models[2];
  static char keys[2][SHA256_HEX];
  for (int i = 0; i < 2 && !models[i]; i++) {
    models[i] = open_model(i);
    if (prefix_file_key(models[i], keys[i], NULL) != TERN_OK)
      abort();
  }
  if (!size)
    return 0;
  int which = data[0] == 'Q';
  model *m = models[which];
  uint8_t *bytes = mem_aligned(64, size);
  if (!bytes)
    abort();
  size = (size - 1) / 64 * 64;
  memcpy(bytes, data + 1, size);
  if (data[0] == 'S' || which)
    seal(bytes, size, m, keys[which]);
  tern_error err = {0};
  prefix_image image;
  kv_seq *state = NULL, *snapshot = NULL;
  tern_status status = prefix_file_parse(m, keys[which], bytes, size, &image, &err);
  if (status == TERN_OK)
    status = prefix_file_restore(m, &image, &state, &snapshot, &err);
  if (status != TERN_OK && (!err.text[0] || err.status != status))
    abort();
  if (status == TERN_OK && !kv_seq_can_resume(state, image.head->length))
    abort();
  kv_seq_close(state);
  kv_seq_close(snapshot);
  mem_free(image.tables);
  mem_free(bytes);
  return 0;
}
