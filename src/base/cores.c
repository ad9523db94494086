/* cores.c - see cores.h.
 *
 * SMT: a processor counts if no lower allowed one is in its thread_siblings_list. Hybrid parts: where the kernel lists
 * Intel's performance cores (devices/cpu_core), those; else cores with at least three quarters of the largest
 * cpu_capacity, or of cpuinfo_max_freq: that keeps the middle cores of a phone's three kinds, and all of a server whose
 * best cores clock a little higher. Among the allowed ones, always: a mask of slow cores alone has no slow ones.
 *
 * cgroups: cpu.max (v2), cpu.cfs_quota_us over cpu.cfs_period_us (v1), of the process's own group and all above it.
 */
#include "base/cores.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"

enum { MOST_PROCESSORS = 8192, MOST_TEXT = 4096 };

/* The first bytes of a file into `text`; false and "" where it is not there. */
__attribute__((format(printf, 2, 3))) static bool read_text(char text[MOST_TEXT], const char *format, ...)
{
  char path[MOST_TEXT];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(path, sizeof path, format, arguments);
  va_end(arguments);
  *text = 0;
  FILE *f = length < (int)sizeof path ? fopen(path, "re") : NULL;
  if (!f)
    return false;
  text[fread(text, 1, MOST_TEXT - 1, f)] = 0;
  fclose(f);
  return true;
}

/* ---- processors ---- */

typedef struct machine {
  const char *root;
  const cpu_set_t *mask;
  size_t size;
} machine;

static bool is_allowed(const machine *m, size_t cpu)
{
  return CPU_ISSET_S(cpu, m->size, m->mask);
}

/* Whether a list as "0-3,8,10-11" names an allowed processor in [first, last]. */
static bool list_names(const machine *m, const char *list, size_t first, size_t last)
{
  for (char *end; *list >= '0' && *list <= '9'; list = *end == ',' ? end + 1 : end) {
    size_t from = strtoul(list, &end, 10), to = from;
    if (*end == '-')
      to = strtoul(end + 1, &end, 10);
    for (size_t cpu = from > first ? from : first; cpu <= to && cpu <= last; cpu++)
      if (is_allowed(m, cpu))
        return true;
  }
  return false;
}

static bool is_first_sibling(const machine *m, size_t cpu)
{
  char list[MOST_TEXT];
  return cpu == 0 || !read_text(list, "%s/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", m->root, cpu) ||
         !list_names(m, list, 0, cpu - 1);
}

/* In whatever unit; 0: not known. */
static uint64_t speed_of(const machine *m, size_t cpu)
{
  char text[MOST_TEXT];
  if (!read_text(text, "%s/sys/devices/system/cpu/cpu%zu/cpu_capacity", m->root, cpu))
    read_text(text, "%s/sys/devices/system/cpu/cpu%zu/cpufreq/cpuinfo_max_freq", m->root, cpu);
  return strtoull(text, NULL, 10);
}

static void count_processors(const machine *m, cores *out)
{
  static const char fastest[] = "%s/sys/devices/cpu_core/cpus";
  char list[MOST_TEXT];
  size_t end = m->size * 8;
  uint32_t speeds[MOST_PROCESSORS];
  uint32_t top = 0;
  bool listed = read_text(list, fastest, m->root) && list_names(m, list, 0, end - 1);
  for (size_t cpu = 0; cpu < end; cpu++) {
    if (!is_allowed(m, cpu))
      continue;
    out->allowed++;
    if (!is_first_sibling(m, cpu))
      continue;
    uint64_t speed = listed ? list_names(m, list, cpu, cpu) : speed_of(m, cpu);
    speeds[out->separate] = speed < UINT32_MAX ? (uint32_t)speed : UINT32_MAX;
    top = speeds[out->separate] > top ? speeds[out->separate] : top;
    out->separate++;
  }
  for (int i = 0; i < out->separate; i++)
    out->fast += (uint64_t)speeds[i] * 4 >= (uint64_t)top * 3;
}

/* ---- cgroups ---- */

static void apply(double quota, double period, cores *out)
{
  if (quota > 0 && period > 0 && (out->quota == 0 || quota / period < out->quota))
    out->quota = quota / period;
}

/* The limit of one group, of either version. */
static void read_group(void *user, const char *dir)
{
  cores *out = user;
  char quota[MOST_TEXT], period[MOST_TEXT], *rest;
  if (read_text(quota, "%s/cpu.max", dir)) {
    double value = strtod(quota, &rest); /* "max 100000": no number, no limit */
    apply(value, strtod(rest, NULL), out);
  }
  if (read_text(quota, "%s/cpu.cfs_quota_us", dir) && read_text(period, "%s/cpu.cfs_period_us", dir))
    apply(strtod(quota, NULL), strtod(period, NULL), out); /* -1: no limit */
}

/* ---- all of it ---- */

static int at_most_quota(int threads, double quota)
{
  int whole = quota < MOST_PROCESSORS ? (int)quota : MOST_PROCESSORS;
  whole += whole < quota;
  if (quota > 0 && threads > whole)
    threads = whole;
  return threads > 0 ? threads : 1;
}

void cores_find_in(const char *root, const cpu_set_t *mask, size_t size, cores *out)
{
  static const char *const mounts[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", NULL};
  *out = (cores){0};
  size = size < MOST_PROCESSORS / 8 ? size : MOST_PROCESSORS / 8;
  count_processors(&(machine){root, mask, size}, out);
  cgroup_walk(root, "cpu", mounts, read_group, out);
  out->most = at_most_quota(out->allowed, out->quota);
  out->threads = at_most_quota(out->fast, out->quota);
}

void cores_find(cores *out)
{
  /* As long as the kernel might want it: a mask that is too short is refused. */
  union {
    cpu_set_t set;
    unsigned char room[MOST_PROCESSORS / 8];
  } mask = {.room = {0}};
  if (sched_getaffinity(0, sizeof mask, &mask.set))
    CPU_SET(0, &mask.set);
  cores_find_in("", &mask.set, sizeof mask, out);
}
