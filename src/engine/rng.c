/* rng.c - see rng.h. */
#include "engine/rng.h"

#include "ops/math.h"

rng_key rng_seed(uint64_t seed)
{
  return (rng_key){(uint32_t)(seed >> 32), (uint32_t)seed};
}

static inline uint32_t rotated(uint32_t x, int n)
{
  return x << n | x >> (32 - n);
}

void rng_hash(rng_key key, uint32_t c0, uint32_t c1, uint32_t out[2])
{
  static const uint8_t rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {key.a, key.b, key.a ^ key.b ^ UINT32_C(0x1bd11bda)};
  uint32_t x = c0 + keys[0], y = c1 + keys[1];
  for (int group = 0; group < 5; group++) {
    for (int i = 0; i < 4; i++) {
      x += y;
      y = rotated(y, rotations[group & 1][i]) ^ x;
    }
    x += keys[(group + 1) % 3];
    y += keys[(group + 2) % 3] + (uint32_t)group + 1;
  }
  out[0] = x;
  out[1] = y;
}

/* The n words are pairs (i, i + h) of the first 2h, hashed together; of an odd number the middle word h stands alone
 * and moves the second half up by one. */
uint32_t rng_word(rng_key key, size_t n, size_t i)
{
  size_t h = n / 2, odd = n & 1;
  uint32_t out[2];
  if (odd && i == h) {
    rng_hash(key, (uint32_t)h, 0, out);
    return out[0];
  }
  size_t first = i < h ? i : i - h - odd;
  rng_hash(key, (uint32_t)first, (uint32_t)(first + h + odd), out);
  return out[i >= h];
}

void rng_bits(rng_key key, uint32_t *out, size_t n)
{
  size_t h = n / 2, odd = n & 1;
  uint32_t pair[2];
  for (size_t i = 0; i < h; i++) {
    rng_hash(key, (uint32_t)i, (uint32_t)(i + h + odd), pair);
    out[i] = pair[0];
    out[i + h + odd] = pair[1];
  }
  if (odd)
    out[h] = rng_word(key, n, h);
}

rng_key rng_split(rng_key key, size_t n, size_t i)
{
  return (rng_key){rng_word(key, 2 * n, 2 * i), rng_word(key, 2 * n, 2 * i + 1)};
}

rng_key rng_next(rng_key *state)
{
  rng_key drawn = rng_split(*state, 2, 1);
  *state = rng_split(*state, 2, 0);
  return drawn;
}

float rng_gumbel(float u)
{
  return -math_log(-math_log(u));
}
