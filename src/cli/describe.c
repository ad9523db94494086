/* describe.c - see describe.h. */
#include "cli/describe.h"

#include <stdio.h>

const char *describe_quantisation(const cfg *c, const quant_config *q, char out[64])
{
  if (quant_present(q)) {
    quant_params p = quant_globals(q);
    snprintf(out, 64, "%s %d-bit g%d", quant_mode_name(p.mode), p.bits, p.group_size);
    return out;
  }
  const json_t *dtype = cfg_get(c, CFG_ROOT, "torch_dtype");
  if (!dtype)
    dtype = cfg_get(c, CFG_ROOT, "dtype");
  snprintf(out, 64, "%.60s", json_is_string(dtype) ? json_string_value(dtype) : "dense");
  return out;
}

const char *describe_bytes(double bytes, char out[32])
{
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t i = 0;
  for (; bytes >= 1000 && i + 1 < sizeof units / sizeof *units; i++)
    bytes /= 1000;
  snprintf(out, 32, i ? "%.1f %s" : "%.0f %s", bytes, units[i]);
  return out;
}
