/* probe.h - functions that the Python tests reach through ctypes; built into a shared library of their own. */
#ifndef TERN_TESTS_PROBE_H
#define TERN_TESTS_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/sample.h"
#include "tern.h"

TERN_API bool probe_apply(const char *name, const float *x, float *y, size_t n);
TERN_API void probe_sigmoid(const float *x, const float *e, float *y, size_t n);
TERN_API void probe_pow(const float *x, const float *y, float *z, size_t n);

/* numbers: temp, top_p, min_p, xtc_probability, xtc_threshold, repetition, presence, frequency. counts:
 * min_tokens_to_keep, top_k and the three contexts. NULL and a line in `error` where the options are refused. */
TERN_API sampler *probe_sampler_open(const double *numbers, const int32_t *counts, const int32_t *xtc_special,
                                     size_t n_xtc_special, const int32_t *bias_ids, const float *bias_values,
                                     size_t n_bias, uint64_t seed, int vocab, int type, char *error, size_t error_size);
TERN_API void probe_sampler_baseline(sampler *s);
TERN_API int32_t probe_sampler_next(sampler *s, float *logits, const int32_t *history, size_t n_history, char *error,
                                    size_t error_size);
TERN_API void probe_sampler_close(sampler *s);

/* The format room; see probe_format.c for the texts. NULL and *err where the input is refused. */
TERN_API void probe_free(void *p);
TERN_API char *probe_json(const char *text, size_t n, size_t *length, tern_error *err);
TERN_API char *probe_st(const char *path, size_t *length, tern_error *err);
TERN_API tern_status probe_st_copy(const char *from, const char *to, tern_error *err);
/* out: quantised, group size, bits */
TERN_API tern_status probe_quant(const char *config, const char *path, bool has_scales, int32_t out[3], char mode[16],
                                 tern_error *err);

/* x [64, dim] into a quantised block, as keys or as values, and back: codes and values [64, dim], scales and biases
 * [64, dim / group]. type: ops_dtype. */
TERN_API bool probe_kv(const float *x, int dim, int bits, int group, int type, bool keys, uint32_t *codes,
                       float *scales, float *biases, float *values);

/* Answers taken apart; see probe_parts.c. */
TERN_API char *probe_parts(const char *request);
TERN_API const char *probe_format_of(const char *source, int n);
TERN_API const char *probe_format_start(const char *name);
TERN_API const char *probe_format_at(int i);
TERN_API int probe_format_letters(const char *name);

#endif
