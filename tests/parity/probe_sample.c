/* probe_sample.c - the sampler behind plain arguments, for test_sampling.py. */
#include <stdio.h>

#include "engine/sample.h"
#include "probe.h"

TERN_API sampler *probe_sampler_open(const double *numbers, const int32_t *counts, const int32_t *xtc_special,
                                     size_t n_xtc_special, const int32_t *bias_ids, const float *bias_values,
                                     size_t n_bias, uint64_t seed, int vocab, int type, char *error, size_t error_size)
{
  tern_sampling o = {.temp = (float)numbers[0],
                     .top_p = (float)numbers[1],
                     .min_p = (float)numbers[2],
                     .xtc_probability = (float)numbers[3],
                     .xtc_threshold = (float)numbers[4],
                     .repetition_penalty = (float)numbers[5],
                     .presence_penalty = (float)numbers[6],
                     .frequency_penalty = (float)numbers[7],
                     .min_tokens_to_keep = counts[0],
                     .top_k = counts[1],
                     .repetition_context = counts[2],
                     .presence_context = counts[3],
                     .frequency_context = counts[4],
                     .xtc_special = xtc_special,
                     .n_xtc_special = n_xtc_special,
                     .bias_ids = bias_ids,
                     .bias_values = bias_values,
                     .n_bias = n_bias,
                     .seed = seed};
  tern_error err = {0};
  sampler *s = NULL;
  if (sampler_open(&o, vocab, (sample_type)type, &s, &err) != TERN_OK)
    snprintf(error, error_size, "%s", err.text);
  return s;
}

TERN_API void probe_sampler_baseline(sampler *s)
{
  sampler_limit_simd(s, SIMD_BASELINE);
}

/* The token, or -1 and a line in error. */
TERN_API int32_t probe_sampler_next(sampler *s, float *logits, const int32_t *history, size_t n_history, char *error,
                                    size_t error_size)
{
  tern_error err = {0};
  int32_t token = -1;
  if (sampler_next(s, logits, history, n_history, &token, &err) != TERN_OK) {
    snprintf(error, error_size, "%s", err.text);
    return -1;
  }
  return token;
}

TERN_API void probe_sampler_close(sampler *s)
{
  sampler_close(s);
}
