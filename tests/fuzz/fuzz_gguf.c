/* fuzz_gguf.c - any bytes as a GGUF file: read, and imported whole. The directory is there exactly if the import said
 * so. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "convert/import.h"
#include "format/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void remove_folder(const char *path)
{
  DIR *d = opendir(path);
  if (!d)
    abort();
  for (const struct dirent *e; (e = readdir(d));)
    unlinkat(dirfd(d), e->d_name, 0);
  closedir(d);
  if (rmdir(path))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char folder[] = "/dev/shm/tern-fuzz-XXXXXX";
  if (!mkdtemp(folder))
    abort();
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size)
    abort();
  char path[40], out[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  snprintf(out, sizeof out, "%s/out", folder);
  tern_error err = {0};
  import_report report;
  tern_status status = import_gguf(path, out, &report, &err);
  close(fd);
  if (status == TERN_OK)
    remove_folder(out);
  else if (!err.text[0] || err.status != status)
    abort();
  /* Nothing else may lie there: only then does this succeed. */
  if (rmdir(folder))
    abort();
  return 0;
}
