/* sample_impl.h - what the sampler's files share: its state, the loops over the vocabulary, the orderings. */
#ifndef TERN_ENGINE_SAMPLE_IMPL_H
#define TERN_ENGINE_SAMPLE_IMPL_H

#include "base/half.h"
#include "engine/sample.h"

/* x rounded to T. */
static inline float sample_round(sample_type type, float x)
{
  switch (type) {
  case SAMPLE_BF16:
    return bf16_to_f32(bf16_from_f32(x));
  case SAMPLE_F16:
    return f16_to_f32(f16_from_f32(x));
  default:
    return x;
  }
}

/* Loops over arrays of V floats; the AVX2 ones give the same bits. */
typedef struct sample_kernels {
  /* The largest, -infinity if all are; NaN if any is NaN. */
  float (*max)(const float *x, size_t n);
  /* y = T(exp(T(x - shift))), for differences of at most zero. */
  void (*exp)(sample_type type, const float *x, float shift, float *y, size_t n);
  /* 0 + x[0] + x[1] ... one by one, in float32; x not negative. */
  float (*sum)(const float *x, size_t n);
  /* x = T(x - y) */
  void (*subtract)(sample_type type, float *x, float y, size_t n);
  /* The first index from `begin` on with x >= limit, or n. */
  size_t (*find)(const float *x, size_t begin, size_t n, float limit);
} sample_kernels;

extern const sample_kernels sample_kernels_baseline;
extern const sample_kernels sample_kernels_avx2; /* needs AVX2, FMA and F16C */

typedef struct sample_penalty {
  float value; /* in T; 0: off */
  size_t context;
} sample_penalty;

struct sampler {
  size_t vocab; /* V */
  sample_type type;
  const sample_kernels *kernels;
  rng_key key;

  size_t n_bias;
  int32_t *bias_ids;
  float *bias_values; /* in T */
  sample_penalty repetition, presence, frequency;

  bool greedy;
  const uint64_t *allowed; /* [V bits] of the next draw; NULL: all */
  bool choice_alone;       /* nobody reads the log-probabilities */
  /* Constants as the reference's compiled code holds them. */
  float inverse_temp;
  bool top_p, min_p, xtc;
  float top_p_cut; /* 1 - top_p */
  float log_min_p;
  size_t min_keep;
  float xtc_probability, xtc_threshold;
  size_t n_xtc_special;
  int32_t *xtc_special;
  size_t top_k; /* 0: off */

  float *work;          /* [V] log-probabilities that the filters thin out */
  float *exps;          /* [V] */
  uint64_t *entries[2]; /* [V] for sorting */
  uint64_t *seen;       /* [V bits], all zero between uses */
};

/* ---- orders (sample_order.c) ---- */

/* Larger floats have larger keys; -0 and +0 have the same. */
static inline uint32_t sample_order_key(float x)
{
  uint32_t u = f32_bits(x + 0.0f);
  return u >> 31 ? ~u : u | 0x80000000u;
}

static inline float sample_order_value(uint32_t key)
{
  return f32_from_bits(key >> 31 ? key & 0x7fffffffu : ~key);
}

/* Sorts n entries (key << 32 | id, ids ascending) by key, ascending and stable. Returns the array that holds the
 * result: `entries` or `spare`. */
uint64_t *sample_sort(uint64_t *entries, uint64_t *spare, size_t n);
/* The key of the k-th largest of x (1 <= k <= n), and how many elements with just that key belong to the k largest. */
uint32_t sample_select(const float *x, size_t n, size_t k, size_t *equal);

/* ---- filters (sample_filter.c): each puts -infinity over elements of s->work ---- */

void sample_top_p(sampler *s);
void sample_min_p(sampler *s);
void sample_xtc(sampler *s);
void sample_top_k(sampler *s);

#endif
