/* machine.c - see machine.h. */
#include "cli/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/threads.h"
#include "cli/use.h"

/* ---- /proc ---- */

/* The kilobytes behind `key` in /proc/meminfo, as bytes. */
static uint64_t meminfo(const char *key)
{
  char line[256];
  uint64_t kilobytes = 0;
  size_t n = strlen(key);
  FILE *f = fopen("/proc/meminfo", "re");
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, key, n)) {
      kilobytes = strtoull(line + n, NULL, 10);
      break;
    }
  if (f)
    fclose(f);
  return kilobytes * 1024;
}

uint64_t machine_memory(void)
{
  return meminfo("MemTotal:");
}

uint64_t machine_memory_available(void)
{
  return meminfo("MemAvailable:");
}

void machine_cpu_name(char *out, size_t size)
{
  char line[256];
  FILE *f = fopen("/proc/cpuinfo", "re");
  *out = 0;
  while (f && !*out && fgets(line, sizeof line, f)) {
    const char *value = strncmp(line, "model name", 10) ? NULL : strchr(line, ':');
    if (value)
      snprintf(out, size, "%.*s", (int)strcspn(value + 1, "\n") - 1, value + 2);
  }
  if (f)
    fclose(f);
}

/* ---- bandwidth ---- */

enum { BUFFER = 512 << 20, LEAST_BUFFER = 32 << 20, PASSES = 6, LINE = 64, LANES = LINE / 16 };

/* 16 bytes, which every machine has registers for. */
typedef uint64_t vec2 __attribute__((vector_size(16)));

typedef struct reading {
  vec2 *data; /* [lines * LANES] */
  size_t lines;
  uint64_t sums[1024]; /* by worker: keeps the reads from being optimised away */
} reading;

static void read_share(void *user, int worker, int count)
{
  reading *r = user;
  size_t begin, end;
  vec2 a = {0}, b = {0}, c = {0}, d = {0};
  pool_share(r->lines, 4, worker, count, &begin, &end);
  for (const vec2 *at = r->data + begin * LANES, *stop = r->data + end * LANES; at < stop; at += LANES) {
    a += at[0];
    b += at[1];
    c += at[2];
    d += at[3];
  }
  a += b + c + d;
  r->sums[worker] = a[0] + a[1];
}

/* Each worker touches its own share first, so that pages lie near it. */
static void write_share(void *user, int worker, int count)
{
  reading *r = user;
  size_t begin, end;
  pool_share(r->lines, 4, worker, count, &begin, &end);
  memset(r->data + begin * LANES, worker + 1, (end - begin) * LINE);
}

tern_status machine_bandwidth(int threads, double *gb_s, tern_error *err)
{
  pool *workers;
  size_t bytes = BUFFER;
  for (uint64_t room = machine_memory_available() / 4; bytes > LEAST_BUFFER && bytes > room;)
    bytes /= 2;
  reading *r = mem_zalloc(sizeof *r);
  tern_status status = r ? pool_open(threads, &workers, err) : err_nomem(err, "bandwidth");
  if (status != TERN_OK) {
    mem_free(r);
    return status;
  }
  double best = 0;
  r->lines = bytes / LINE;
  r->data = mem_aligned(4096, bytes);
  if (!r->data) {
    status = err_nomem(err, "bandwidth");
  } else {
    pool_run(workers, write_share, r);
    for (int i = 0; i < PASSES; i++) {
      double start = use_seconds();
      pool_run(workers, read_share, r);
      double rate = use_rate((double)bytes, use_seconds() - start);
      best = rate > best ? rate : best;
    }
  }
  pool_close(workers);
  mem_free(r->data);
  mem_free(r);
  *gb_s = best / 1e9;
  return status;
}
