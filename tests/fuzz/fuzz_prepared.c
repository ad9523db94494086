/* fuzz_prepared.c - any bytes as a file of prepared weights: opened or refused, all layouts within bounds. Where the
 * bytes begin with 'S', what follows is sealed first: given the identity that is asked for and a digest that fits, so
 * that the checks behind them are reached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/prepared.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void seal(uint8_t *bytes, size_t size, const char *identity)
{
  prepared_head *head = (prepared_head *)(void *)bytes;
  char digest[SHA256_HEX];
  if (size < sizeof *head)
    return;
  memcpy(head->magic, "TERNPREP", 8);
  memcpy(head->identity, identity, sizeof head->identity);
  head->format = PREPARED_FORMAT;
  head->layout = 1;
  head->bytes = size;
  head->entries %= 1 + (size - sizeof *head) / sizeof(prepared_entry);
  prepared_digest(head, (prepared_entry *)(void *)(bytes + sizeof *head), digest);
  memcpy(head->digest, digest, sizeof head->digest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static const ops_layout layout = {.version = 1};
  prepared_place place;
  char path[40];
  if (!size)
    return 0;
  uint8_t *bytes = malloc(size);
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (!bytes || fd < 0)
    abort();
  size--;
  memcpy(bytes, data + 1, size);
  memset(place.identity, 'a', sizeof place.identity - 1);
  place.identity[sizeof place.identity - 1] = 0;
  place.path = path;
  if (data[0] == 'S')
    seal(bytes, size, place.identity);
  if (write(fd, bytes, size) != (ssize_t)size)
    abort();
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  tern_error err = {0};
  prepared *p;
  tern_status status = prepared_open(&place, &layout, &p, &err);
  close(fd);
  free(bytes);
  if (status != TERN_OK) {
    if (!err.text[0] || err.status != status)
      abort();
    return 0;
  }
  prepared_verify(p, &err);
  prepared_close(p);
  return 0;
}
