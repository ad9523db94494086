/* probe.h - functions that the Python tests reach through ctypes; built into a shared library of their own. */
#ifndef TERN_TESTS_PROBE_H
#define TERN_TESTS_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "tern.h"

TERN_API bool probe_apply(const char *name, const float *x, float *y, size_t n);
TERN_API void probe_sigmoid(const float *x, const float *e, float *y, size_t n);
TERN_API void probe_pow(const float *x, const float *y, float *z, size_t n);

#endif
