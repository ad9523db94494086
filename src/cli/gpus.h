/* gpus.h - the GPUs of this machine, as the cuda backend sees them: for doctor, bench and version. */
#ifndef TERN_CLI_GPUS_H
#define TERN_CLI_GPUS_H

#include "ops/cuda/plugin.h"

enum { GPUS_MOST = 16 };

typedef struct gpus {
  int count; /* of the driver's; at most GPUS_MOST are described */
  cuda_device devices[GPUS_MOST];
  double gb_s[GPUS_MOST]; /* measured reads; 0: not asked for */
  tern_error fault;       /* TERN_OK, or why there is no backend for them */
} gpus;

/* Never fails: what is wrong stands in `fault`. `measure`: bandwidths too, some ten milliseconds each. */
void gpus_find(gpus *out, bool measure);
/* Whether the backend works and has a GPU to work on. */
bool gpus_usable(const gpus *g);
/* "backend cuda" or why not, in few words. */
const char *gpus_state(const gpus *g);

#endif
