/* hash.c - see hash.h. The table stays at most half full. Hashing reads eight bytes at a time and multiplies; keys come
 * from model files, so an attacker can at worst make opening his own file slow. */
#include "base/hash.h"

#include <string.h>

#include "base/mem.h"

static uint64_t mix(uint64_t x)
{
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  return x;
}

uint32_t hash_bytes(const char *s, size_t n)
{
  uint64_t h = 0x9e3779b97f4a7c15u ^ n, word;
  for (; n >= 8; n -= 8, s += 8) {
    memcpy(&word, s, 8);
    h = (h ^ word) * 0xd6e8feb86659fd93u;
    h ^= h >> 29;
  }
  word = 0;
  memcpy(&word, s, n);
  h = mix((h ^ word) * 0xd6e8feb86659fd93u);
  return (uint32_t)h;
}

uint64_t hash_bytes64(const void *p, size_t n)
{
  const uint8_t *s = p;
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < n; i++)
    h = (h ^ s[i]) * 0x100000001b3u;
  return mix(h);
}

/* Where the key is, or the free entry where it belongs. */
static strmap_entry *find(const strmap *m, const char *key, size_t length, uint32_t hash)
{
  size_t mask = m->capacity - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    strmap_entry *e = &m->entries[i];
    if (!e->key || (e->hash == hash && e->length == length && memcmp(e->key, key, length) == 0))
      return e;
  }
}

bool strmap_reserve(strmap *m, size_t count)
{
  size_t capacity = m->capacity ? m->capacity : 16;
  while (capacity / 2 < count) {
    if (capacity > SIZE_MAX / 4)
      return false;
    capacity *= 2;
  }
  if (capacity == m->capacity)
    return true;
  strmap grown = {mem_array(capacity, sizeof *grown.entries), capacity, m->count};
  if (!grown.entries)
    return false;
  for (size_t i = 0; i < m->capacity; i++)
    if (m->entries[i].key)
      *find(&grown, m->entries[i].key, m->entries[i].length, m->entries[i].hash) = m->entries[i];
  mem_free(m->entries);
  *m = grown;
  return true;
}

bool strmap_put(strmap *m, const char *key, size_t length, uint32_t value, bool *present, uint32_t *old)
{
  if (length > UINT32_MAX || !strmap_reserve(m, m->count + 1))
    return false;
  uint32_t hash = hash_bytes(key, length);
  strmap_entry *e = find(m, key, length, hash);
  if (present)
    *present = e->key != NULL;
  if (e->key) {
    if (old)
      *old = e->value;
    return true;
  }
  *e = (strmap_entry){key, (uint32_t)length, hash, value};
  m->count++;
  return true;
}

bool strmap_get(const strmap *m, const char *key, size_t length, uint32_t *value)
{
  if (!m->capacity || length > UINT32_MAX)
    return false;
  const strmap_entry *e = find(m, key, length, hash_bytes(key, length));
  if (!e->key)
    return false;
  *value = e->value;
  return true;
}

void strmap_free(strmap *m)
{
  mem_free(m->entries);
  *m = (strmap){0};
}
