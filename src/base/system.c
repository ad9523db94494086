/* system.c - see system.h. Reads /proc/meminfo and the version 2 control group files; both are optional. */
#include "base/system.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number after `key` in a small file ("" for its beginning), or SIZE_MAX. */
static size_t number_in(const char *path, const char *key)
{
  char text[4096];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return SIZE_MAX;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = '\0';
  const char *at = strstr(text, key);
  if (!at)
    return SIZE_MAX;
  at += strlen(key);
  at += strspn(at, " \t");
  return *at >= '0' && *at <= '9' ? (size_t)strtoull(at, NULL, 10) : SIZE_MAX; /* "max": no limit */
}

size_t system_memory_available(void)
{
  size_t kib = number_in("/proc/meminfo", "MemAvailable:");
  size_t available = kib > SIZE_MAX / 1024 ? SIZE_MAX : kib * 1024;
  size_t limit = number_in("/sys/fs/cgroup/memory.max", ""), used = number_in("/sys/fs/cgroup/memory.current", "");
  if (limit != SIZE_MAX && used != SIZE_MAX) {
    /* What is cached of files gives way: a group that has just written a model is not full. */
    size_t active = number_in("/sys/fs/cgroup/memory.stat", "\nactive_file");
    size_t inactive = number_in("/sys/fs/cgroup/memory.stat", "\ninactive_file");
    size_t cached = active != SIZE_MAX && inactive != SIZE_MAX ? active + inactive : 0;
    used = used > cached ? used - cached : 0;
    size_t left = limit > used ? limit - used : 0;
    available = left < available ? left : available;
  }
  return available;
}
