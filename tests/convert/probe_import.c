/* probe_import.c - the import for the Python tests, through ctypes. */
#include <stdio.h>

#include "convert/import.h"

TERN_API int probe_import(const char *gguf, const char *out, char *text, size_t size);

/* The status; `text` gets the error line, or a line "type bits tensors dtype how" per kind. */
int probe_import(const char *gguf, const char *out, char *text, size_t size)
{
  tern_error err = {0};
  import_report r = {0};
  tern_status status = import_gguf(gguf, out, &r, &err);
  if (status != TERN_OK) {
    snprintf(text, size, "%s", err.text);
    return status;
  }
  size_t at = 0;
  for (size_t i = 0; i < r.n_kinds && at < size; i++)
    at += (size_t)snprintf(text + at, size - at, "%s %u %zu %s %s\n", r.kinds[i].type, r.kinds[i].bits,
                           r.kinds[i].tensors, r.kinds[i].dtype, r.kinds[i].how);
  return status;
}
