/* rng.h - the random numbers of MLX 0.31 (mlx/random.cpp): Threefry-2x32, 20 rounds, counter based and splittable, as
 * in JAX; see Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
 *
 * A key is two words. Word i of n drawn with a key is a function of (key, i, n): words can be computed one by one, in
 * any order. An implicit draw, like mx.random.uniform without a key, replaces the state by one half of its split and
 * draws with the other (rng_next).
 *
 * Two ways from words to [0, 1) exist, because the reference's compiled functions print their constants with seven
 * digits: the divisor 2^32 becomes 4294967040 and the cap just below one moves down a place. mlx-lm's samplers are
 * compiled, so sampling uses rng_unit_compiled; what draws in eager code uses rng_unit.
 */
#ifndef TERN_ENGINE_RNG_H
#define TERN_ENGINE_RNG_H

#include <stddef.h>
#include <stdint.h>

#include "base/half.h"

typedef struct rng_key {
  uint32_t a, b;
} rng_key;

rng_key rng_seed(uint64_t seed);
/* The block cipher: two words from two counters. */
void rng_hash(rng_key key, uint32_t c0, uint32_t c1, uint32_t out[2]);
/* One implicit draw's key: *state moves on. */
rng_key rng_next(rng_key *state);
/* The key of row i when `key` is split into n. */
rng_key rng_split(rng_key key, size_t n, size_t i);
/* Word i of n. */
uint32_t rng_word(rng_key key, size_t n, size_t i);
/* All n words; two for the price of one. */
void rng_bits(rng_key key, uint32_t *out, size_t n);

static inline float rng_unit(uint32_t word)
{
  float u = (float)word / 4294967296.0f;
  return u < 0x1.fffffep-1f ? u : 0x1.fffffep-1f;
}

static inline float rng_unit_compiled(uint32_t word)
{
  float u = (float)word / 4294967040.0f;
  return u < 0x1.fffffcp-1f ? u : 0x1.fffffcp-1f;
}

/* -log(-log(u)); u = 0 gives -infinity. At most RNG_GUMBEL_MAX for any u of rng_unit_compiled or rng_unit. */
float rng_gumbel(float u);
#define RNG_GUMBEL_MAX 17.0f /* -log(-log(1 - 2^-24)) is 16.64 */

#endif
