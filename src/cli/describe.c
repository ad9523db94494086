/* describe.c - see describe.h. */
#include "cli/describe.h"

#include <stdio.h>

const char *describe_bytes(double bytes, char out[32])
{
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t i = 0;
  for (; bytes >= 1000 && i + 1 < sizeof units / sizeof *units; i++)
    bytes /= 1000;
  snprintf(out, 32, i ? "%.1f %s" : "%.0f %s", bytes, units[i]);
  return out;
}
