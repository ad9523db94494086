/* sample_order.c - sorting and selecting log-probabilities by radix: the reference's argsort is stable and its
 * argpartition breaks ties by index, so both answers are unique and any algorithm will do. */
#include <string.h>

#include "engine/sample_impl.h"

#define DIGITS 3
#define BUCKETS 2048
static const int digit_shift[DIGITS] = {0, 11, 22};

static inline uint32_t digit(uint32_t key, int d)
{
  return key >> digit_shift[d] & (BUCKETS - 1);
}

uint64_t *sample_sort(uint64_t *entries, uint64_t *spare, size_t n)
{
  uint32_t counts[DIGITS][BUCKETS];
  memset(counts, 0, sizeof counts);
  for (size_t i = 0; i < n; i++)
    for (int d = 0; d < DIGITS; d++)
      counts[d][digit((uint32_t)(entries[i] >> 32), d)]++;
  for (int d = 0; d < DIGITS; d++) {
    uint32_t *count = counts[d], at = 0;
    if (n == 0 || count[digit((uint32_t)(entries[0] >> 32), d)] == n)
      continue; /* all alike in this digit */
    for (int b = 0; b < BUCKETS; b++) {
      uint32_t c = count[b];
      count[b] = at;
      at += c;
    }
    for (size_t i = 0; i < n; i++)
      spare[count[digit((uint32_t)(entries[i] >> 32), d)]++] = entries[i];
    uint64_t *sorted = spare;
    spare = entries;
    entries = sorted;
  }
  return entries;
}

uint32_t sample_select(const float *x, size_t n, size_t k, size_t *equal)
{
  uint32_t prefix = 0, mask = 0; /* of the key, as far as it is known */
  for (int d = DIGITS - 1; d >= 0; d--) {
    uint32_t count[BUCKETS] = {0};
    for (size_t i = 0; i < n; i++) {
      uint32_t key = sample_order_key(x[i]);
      count[digit(key, d)] += (key & mask) == prefix;
    }
    uint32_t b = BUCKETS - 1;
    for (; count[b] < k; b--)
      k -= count[b];
    prefix |= b << digit_shift[d];
    mask |= (uint32_t)(BUCKETS - 1) << digit_shift[d];
  }
  *equal = k;
  return prefix;
}
