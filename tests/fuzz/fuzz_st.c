/* fuzz_st.c - any bytes as a safetensors file, through a file in memory: opened or refused, all data within bounds. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/st.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size)
    abort();
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  st_file f;
  tern_error err = {0};
  tern_status status = st_open(path, &f, &err);
  close(fd);
  if (status != TERN_OK) {
    if (!err.text[0] || err.status != status)
      abort();
    return 0;
  }
  volatile unsigned sum = 0;
  for (size_t i = 0; i < f.n_tensors; i++)
    for (size_t k = 0; k < f.tensors[i].bytes; k++)
      sum += f.tensors[i].data[k];
  (void)sum;
  st_close(&f);
  return 0;
}
