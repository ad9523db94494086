/* plugin.h - how tern and its cuda backend find each other.
 *
 * The backend is a library of its own, libtern-cuda.so, so that one package serves machines with and without a GPU, and
 * building tern needs no CUDA toolkit. It exports one function, CUDA_PLUGIN_ENTRY, which gives this table. The two are
 * built from the same headers and share their structs, and the same definitions of the arithmetic; `version` and
 * `build` refuse a library that was not.
 *
 * ops/cuda_load.c, in tern, finds and checks the library; nothing else opens it.
 */
#ifndef TERN_OPS_CUDA_PLUGIN_H
#define TERN_OPS_CUDA_PLUGIN_H

#include "ops/ops.h"

#define CUDA_PLUGIN_FILE "libtern-cuda.so"
#define CUDA_PLUGIN_ENTRY "tern_cuda_plugin"

typedef struct cuda_device {
  char name[128];
  int capability;           /* 90: compute capability 9.0 */
  int processors;           /* multiprocessors */
  size_t memory, available; /* bytes */
  int driver, runtime;      /* 13000: CUDA 13.0 */
  bool built_for;           /* the library has code for this device */
} cuda_device;

typedef struct cuda_options {
  int device;   /* index */
  bool fast;    /* numerics fast, else exact */
  double share; /* of the device's memory that may be in use, others' part counted: in (0, 1] */
} cuda_options;

typedef struct cuda_plugin {
  const char *version; /* TERN_VERSION */
  const char *build;   /* TERN_CUDA_BUILD: a hash of the headers and definitions that both sides were built from */
  /* Devices there are, none included. TERN_E_UNSUPPORTED: no driver, or one that is too old, in words. */
  tern_status (*count)(int *count, tern_error *err);
  tern_status (*describe)(int device, cuda_device *out, tern_error *err);
  /* Reads some gigabytes of its memory: GB/s. */
  tern_status (*bandwidth)(int device, double *gb_s, tern_error *err);
  /* Fills cx->backend and cx->device; backend->close ends it. */
  tern_status (*open)(const cuda_options *options, ops_context *cx, tern_error *err);
} cuda_plugin;

typedef const cuda_plugin *cuda_plugin_fn(void);

/* The library that lies beside this program (or in ../lib/tern, or where the loader looks), opened once and kept.
 * TERN_E_NOT_FOUND: there is none; TERN_E_UNSUPPORTED: one of another version. */
tern_status cuda_load(const cuda_plugin **out, tern_error *err);
/* Whether this machine shows a driver's devices: quick, opens nothing. */
bool cuda_driver_there(void);

#endif
