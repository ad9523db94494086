/* test_cores.c - the default number of threads, and the memory that is left, on trees that look like the /proc and /sys
 * of machines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/system.h"

static char root[] = "/tmp/tern_cores_XXXXXX";

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
  (void)st, (void)kind, (void)where;
  return remove(path);
}

static int begin(void **state)
{
  (void)state;
  memcpy(root + strlen(root) - 6, "XXXXXX", 6);
  return mkdtemp(root) ? 0 : -1;
}

static int end(void **state)
{
  (void)state;
  return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file below the root, with the directories above it. */
static void put(const char *path, const char *text)
{
  char full[512];
  snprintf(full, sizeof full, "%s/%s", root, path);
  for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
    *slash = 0;
    mkdir(full, 0777);
  }
  FILE *f = fopen(full, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void put_cpu(int cpu, const char *file, const char *text)
{
  char path[128];
  snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/%s", cpu, file);
  put(path, text);
}

/* What is found with the processors [first, last] allowed. */
static cores find(int first, int last)
{
  cpu_set_t mask;
  cores found;
  CPU_ZERO(&mask);
  for (int cpu = first; cpu <= last; cpu++)
    CPU_SET((size_t)cpu, &mask);
  cores_find_in(root, &mask, sizeof mask, &found);
  return found;
}

static void expect(cores found, int allowed, int separate, int fast, double quota, int most, int threads)
{
  assert_int_equal(found.allowed, allowed);
  assert_int_equal(found.separate, separate);
  assert_int_equal(found.fast, fast);
  assert_true(found.quota == quota);
  assert_int_equal(found.most, most);
  assert_int_equal(found.threads, threads);
}

static void an_empty_tree_has_the_mask(void **state)
{
  (void)state;
  expect(find(0, 4), 5, 5, 5, 0, 5, 5);
  expect(find(7, 7), 1, 1, 1, 0, 1, 1);
  expect(find(1, 0), 0, 0, 0, 0, 1, 1);
}

static void siblings_count_once(void **state)
{
  (void)state;
  char text[32];
  for (int cpu = 0; cpu < 8; cpu++) { /* as Intel numbers them: the second of each core after all firsts */
    snprintf(text, sizeof text, "%d,%d\n", cpu % 4, cpu % 4 + 4);
    put_cpu(cpu, "topology/thread_siblings_list", text);
  }
  expect(find(0, 7), 8, 4, 4, 0, 8, 4);
  expect(find(0, 3), 4, 4, 4, 0, 4, 4);
  expect(find(4, 7), 4, 4, 4, 0, 4, 4); /* the lower siblings are not ours */
  expect(find(3, 5), 3, 3, 3, 0, 3, 3);
  expect(find(0, 4), 5, 4, 4, 0, 5, 4);
  for (int cpu = 0; cpu < 8; cpu++) { /* neighbours, as a range */
    snprintf(text, sizeof text, "%d-%d\n", cpu / 2 * 2, cpu / 2 * 2 + 1);
    put_cpu(cpu, "topology/thread_siblings_list", text);
  }
  expect(find(0, 7), 8, 4, 4, 0, 8, 4);
  expect(find(1, 2), 2, 2, 2, 0, 2, 2);
}

static void slow_cores_are_left_out(void **state)
{
  (void)state;
  for (int cpu = 0; cpu < 8; cpu++) /* a phone: 4 small, 3 middle, 1 big */
    put_cpu(cpu, "cpu_capacity", cpu < 4 ? "250\n" : cpu < 7 ? "830\n" : "1024\n");
  expect(find(0, 7), 8, 8, 4, 0, 8, 4);
  expect(find(0, 3), 4, 4, 4, 0, 4, 4); /* nothing else is allowed */
}

static void clocks_tell_where_capacities_do_not(void **state)
{
  (void)state;
  for (int cpu = 0; cpu < 8; cpu++) /* two favoured cores, two that are a little slower, four of another kind */
    put_cpu(cpu, "cpufreq/cpuinfo_max_freq", cpu < 2 ? "5300000\n" : cpu < 4 ? "5100000\n" : "3300000\n");
  expect(find(0, 7), 8, 8, 4, 0, 8, 4);
}

static void performance_cores_are_listed(void **state)
{
  (void)state;
  for (int cpu = 0; cpu < 4; cpu++)
    put_cpu(cpu, "topology/thread_siblings_list", cpu < 2 ? "0-1\n" : "2-3\n");
  put("sys/devices/cpu_core/cpus", "0-3\n");
  put("sys/devices/cpu_atom/cpus", "4-7\n");
  expect(find(0, 7), 8, 6, 2, 0, 8, 2);
  expect(find(4, 7), 4, 4, 4, 0, 4, 4);
  expect(find(3, 6), 4, 4, 1, 0, 4, 1);
}

static void version_2_groups_limit(void **state)
{
  (void)state;
  put("proc/self/cgroup", "0::/a/b\n");
  expect(find(0, 7), 8, 8, 8, 0, 8, 8);
  put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  expect(find(0, 7), 8, 8, 8, 0, 8, 8);
  put("sys/fs/cgroup/a/cpu.max", "250000 100000\n"); /* a group above */
  expect(find(0, 7), 8, 8, 8, 2.5, 3, 3);
  expect(find(0, 1), 2, 2, 2, 2.5, 2, 2);
  put("sys/fs/cgroup/a/b/cpu.max", "20000 100000\n");
  expect(find(0, 7), 8, 8, 8, 0.2, 1, 1);
}

static void a_container_without_a_namespace_has_its_mount(void **state)
{
  (void)state;
  put("proc/self/cgroup", "0::/docker/0123\n");
  put("sys/fs/cgroup/cpu.max", "200000 100000\n");
  expect(find(0, 7), 8, 8, 8, 2, 2, 2);
}

static void version_1_groups_limit(void **state)
{
  (void)state;
  put("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/x\n2:cpuacct:/y\n0::/\n");
  put("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  expect(find(0, 7), 8, 8, 8, 0, 8, 8);
  put("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "400000\n");
  expect(find(0, 7), 8, 8, 8, 4, 4, 4);
  put("sys/fs/cgroup/cpu/y/cpu.cfs_quota_us", "1000\n"); /* not our group */
  put("sys/fs/cgroup/cpu/y/cpu.cfs_period_us", "1000\n");
  expect(find(0, 7), 8, 8, 8, 4, 4, 4);
  put("proc/self/cgroup", "1:cpu:/\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  expect(find(0, 7), 8, 8, 8, 1.5, 2, 2);
}

static void memory_is_the_least_that_a_group_leaves(void **state)
{
  (void)state;
  assert_int_equal(system_memory_available_in(root), SIZE_MAX);
  put("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    4000 kB\n");
  assert_int_equal(system_memory_available_in(root), 4000 << 10);
  put("proc/self/cgroup", "4:memory:/x/y\n0::/a/b\n");
  put("sys/fs/cgroup/a/memory.max", "3000000\n"); /* a group above */
  put("sys/fs/cgroup/a/memory.current", "1000000\n");
  put("sys/fs/cgroup/a/b/memory.max", "max\n");
  put("sys/fs/cgroup/a/b/memory.current", "900000\n");
  assert_int_equal(system_memory_available_in(root), 2000000);
  put("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 300000\nactive_file 200000\n"); /* gives way */
  assert_int_equal(system_memory_available_in(root), 2500000);
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2000000\n"); /* version 1 */
  put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1500000\n");
  put("sys/fs/cgroup/memory/x/memory.stat",
      "cache 9\nactive_file 7\ntotal_inactive_file 100000\ntotal_active_file 1\n");
  assert_int_equal(system_memory_available_in(root), 600001);
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  put("sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "1000\n");
  put("sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "2000\n");
  assert_int_equal(system_memory_available_in(root), 0);
  put("proc/self/cgroup", "0::/docker/0123\n"); /* the mount is the container's own */
  put("sys/fs/cgroup/memory.max", "5000\n");
  put("sys/fs/cgroup/memory.current", "1000\n");
  assert_int_equal(system_memory_available_in(root), 4000);
}

static void nonsense_is_ignored(void **state)
{
  (void)state;
  put("proc/self/cgroup", "nonsense\n\n:\n0:\n0::\n3:cpux,xcpu:/x");
  put("sys/fs/cgroup/cpu.max", "-5 x\n");
  put("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "1\n");
  put("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "1\n");
  put("sys/devices/cpu_core/cpus", "x");
  put_cpu(1, "topology/thread_siblings_list", "99999999999999999999-1,\n");
  put_cpu(2, "topology/thread_siblings_list", "-,3");
  put_cpu(3, "cpu_capacity", "-\n");
  expect(find(0, 3), 4, 4, 4, 0, 4, 4);
}

static void this_machine_has_at_least_one(void **state)
{
  (void)state;
  cores found;
  cores_find(&found);
  assert_in_range(found.threads, 1, found.most);
  assert_in_range(found.fast, 1, found.separate);
  assert_in_range(found.separate, 1, found.allowed);
}

#define ON_TREE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
  const struct CMUnitTest tests[] = {
      ON_TREE(an_empty_tree_has_the_mask),
      ON_TREE(siblings_count_once),
      ON_TREE(memory_is_the_least_that_a_group_leaves),
      ON_TREE(slow_cores_are_left_out),
      ON_TREE(clocks_tell_where_capacities_do_not),
      ON_TREE(performance_cores_are_listed),
      ON_TREE(version_2_groups_limit),
      ON_TREE(a_container_without_a_namespace_has_its_mount),
      ON_TREE(version_1_groups_limit),
      ON_TREE(nonsense_is_ignored),
      cmocka_unit_test(this_machine_has_at_least_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
