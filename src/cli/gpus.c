/* gpus.c - see gpus.h. A machine that shows no driver's devices is not asked further: loading a driver takes time. */
#include "cli/gpus.h"

void gpus_find(gpus *out, bool measure)
{
  const cuda_plugin *plugin;
  *out = (gpus){0};
  if (cuda_load(&plugin, &out->fault) != TERN_OK)
    return;
  if (!cuda_driver_there()) {
    err_set(&out->fault, TERN_E_NOT_FOUND, "backend cuda: this machine shows no NVIDIA driver");
    return;
  }
  if (plugin->count(&out->count, &out->fault) != TERN_OK)
    return;
  for (int i = 0; i < out->count && i < GPUS_MOST; i++) {
    if (plugin->describe(i, &out->devices[i], &out->fault) != TERN_OK)
      return;
    if (measure && out->devices[i].built_for && plugin->bandwidth(i, &out->gb_s[i], &out->fault) != TERN_OK)
      return;
  }
}

bool gpus_usable(const gpus *g)
{
  for (int i = 0; i < g->count && i < GPUS_MOST; i++)
    if (g->devices[i].built_for)
      return g->fault.status == TERN_OK;
  return false;
}

const char *gpus_state(const gpus *g)
{
  if (g->fault.status != TERN_OK)
    return g->fault.text;
  return g->count ? "backend cuda" : "backend cuda: the driver shows no GPU";
}
