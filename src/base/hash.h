/* hash.h - a map from byte strings to 32-bit values: open addressing, linear probing, keys not owned.
 *
 * Starts zeroed. Keys must outlive the map. Sized once with strmap_reserve where the count is known. */
#ifndef TERN_BASE_HASH_H
#define TERN_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct strmap_entry {
  const char *key; /* NULL: free */
  uint32_t length;
  uint32_t hash;
  uint32_t value;
} strmap_entry;

typedef struct strmap {
  strmap_entry *entries;
  size_t capacity; /* a power of two, or 0 */
  size_t count;
} strmap;

uint32_t hash_bytes(const char *s, size_t n);
/* 64-bit FNV-1a with a final mix; stable across versions: directories of imports are named after it. */
uint64_t hash_bytes64(const void *p, size_t n);

bool strmap_reserve(strmap *m, size_t count); /* false: no memory */
/* Inserts unless present. False: no memory. *old (may be NULL) gets the value that was there, *present whether it was.
 */
bool strmap_put(strmap *m, const char *key, size_t length, uint32_t value, bool *present, uint32_t *old);
bool strmap_get(const strmap *m, const char *key, size_t length, uint32_t *value);
void strmap_free(strmap *m);

#endif
