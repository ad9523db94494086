/* system.c - see system.h. Reads /proc/meminfo and the control groups' files, of either version; all are optional. */
#include "base/system.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"

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

static size_t number_of(const char *dir, const char *file, const char *key)
{
  char path[4096];
  return snprintf(path, sizeof path, "%s/%s", dir, file) < (int)sizeof path ? number_in(path, key) : SIZE_MAX;
}

/* The names of one version. */
typedef struct group_files {
  const char *limit, *used, *active, *inactive; /* the last two in memory.stat */
} group_files;

/* What one group leaves. What is cached of files gives way: a group that has just written a model is not full. */
static void look_at_group(void *user, const char *dir)
{
  static const group_files versions[] = {
      {"memory.max", "memory.current", "\nactive_file", "\ninactive_file"},
      {"memory.limit_in_bytes", "memory.usage_in_bytes", "\ntotal_active_file", "\ntotal_inactive_file"},
  };
  size_t *available = user;
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    const group_files *v = &versions[i];
    size_t limit = number_of(dir, v->limit, ""), used = number_of(dir, v->used, "");
    if (limit == SIZE_MAX || used == SIZE_MAX)
      continue;
    size_t active = number_of(dir, "memory.stat", v->active), inactive = number_of(dir, "memory.stat", v->inactive);
    size_t cached = active != SIZE_MAX && inactive != SIZE_MAX ? active + inactive : 0;
    used = used > cached ? used - cached : 0;
    size_t left = limit > used ? limit - used : 0;
    *available = left < *available ? left : *available;
  }
}

size_t system_memory_available_in(const char *root)
{
  static const char *const mounts[] = {"/sys/fs/cgroup/memory", NULL};
  size_t kib = number_of(root, "proc/meminfo", "MemAvailable:");
  size_t available = kib > SIZE_MAX / 1024 ? SIZE_MAX : kib * 1024;
  cgroup_walk(root, "memory", mounts, look_at_group, &available);
  return available;
}

size_t system_memory_available(void)
{
  return system_memory_available_in("");
}
