/* sample_filter.c - the four filters of mlx-lm's make_sampler, on log-probabilities in s->work. None renormalises; each
 * sees what the one before has left. */
#include <math.h>

#include "engine/sample_impl.h"

/* Ascending probabilities are added up in T; what stands at or before 1 - top_p goes. The sums never fall, so what
 * stays is the end of the sorted order; it may be empty where T's sums stall below the cut. */
void sample_top_p(sampler *s)
{
  size_t n = s->vocab;
  for (size_t i = 0; i < n; i++)
    s->entries[0][i] = (uint64_t)sample_order_key(s->work[i]) << 32 | i;
  const uint64_t *sorted = sample_sort(s->entries[0], s->entries[1], n);
  for (size_t i = 0; i < n; i++)
    s->work[i] = sample_order_value((uint32_t)(sorted[i] >> 32));
  s->kernels->exp(s->type, s->work, 0, s->exps, n);
  float total = 0;
  size_t first = 0;
  for (; first < n; first++) {
    total = sample_round(s->type, total + s->exps[first]);
    if (total > s->top_p_cut)
      break;
  }
  for (size_t i = 0; i < n; i++)
    s->work[i] = -INFINITY;
  for (size_t i = first; i < n; i++)
    s->work[(uint32_t)sorted[i]] = sample_order_value((uint32_t)(sorted[i] >> 32));
}

/* Of the elements to protect, equals count from the highest id down (argpartition's last m). */
void sample_min_p(sampler *s)
{
  float limit = sample_round(s->type, s->kernels->max(s->work, s->vocab) + s->log_min_p);
  uint32_t protect_above = UINT32_MAX;
  size_t equal = 0;
  if (s->min_keep > 1)
    protect_above = sample_select(s->work, s->vocab, s->min_keep, &equal);
  for (size_t i = s->vocab; i-- > 0;) {
    uint32_t key = sample_order_key(s->work[i]);
    bool protected = key > protect_above;
    if (key == protect_above && equal) {
      protected = true;
      equal--;
    }
    if (s->work[i] < limit && !protected)
      s->work[i] = -INFINITY;
  }
}

/* The smallest of p above the threshold, or +infinity. */
static float least_above(const float *p, size_t n, float threshold)
{
  float least = INFINITY;
  for (size_t i = 0; i < n; i++)
    if (p[i] > threshold && p[i] < least)
      least = p[i];
  return least;
}

/* With some probability, all choices above the threshold but the least likely of them go. One number is drawn in any
 * case. The softmax is the reference's in T: terms, sum and quotient rounded, the sum's reciprocal multiplied. */
void sample_xtc(sampler *s)
{
  float u = rng_unit_compiled(rng_word(rng_next(&s->key), 1, 0));
  if (u > s->xtc_probability)
    return;
  size_t n = s->vocab;
  float m = s->kernels->max(s->work, n), total = 0;
  if (m == -INFINITY)
    return; /* nothing is left, and its softmax is NaN, above no threshold */
  s->kernels->exp(s->type, s->work, m, s->exps, n);
  if (s->type == SAMPLE_F32)
    total = s->kernels->sum(s->exps, n);
  else
    for (size_t i = 0; i < n; i++)
      total = sample_round(s->type, total + s->exps[i]);
  float scale = sample_round(s->type, 1.0f / total);
  for (size_t i = 0; i < n; i++)
    s->exps[i] = sample_round(s->type, s->exps[i] * scale);
  float least = least_above(s->exps, n, s->xtc_threshold);
  for (size_t i = 0; i < s->n_xtc_special; i++)
    s->exps[s->xtc_special[i]] = 0;
  for (size_t i = 0; i < n; i++)
    if (s->exps[i] > least)
      s->work[i] = -INFINITY;
}

/* Equals count from the lowest id up. */
void sample_top_k(sampler *s)
{
  size_t equal;
  uint32_t cut = sample_select(s->work, s->vocab, s->top_k, &equal);
  for (size_t i = 0; i < s->vocab; i++) {
    uint32_t key = sample_order_key(s->work[i]);
    if (key > cut)
      continue;
    if (key == cut && equal) {
      equal--;
      continue;
    }
    s->work[i] = -INFINITY;
  }
}
