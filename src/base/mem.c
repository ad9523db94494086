/* mem.c - malloc with a hook for tests, and the arena on top of it. The counters exist in test builds only: they are
 * the one mutable state of this room, and per thread. */
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef TERN_TEST_ALLOC
static _Thread_local int64_t fail_countdown = -1;
static _Thread_local bool forbidden;

void mem_fail_after(int64_t n)
{
  fail_countdown = n;
}

bool mem_forbid(bool on)
{
  bool before = forbidden;
  forbidden = on;
  return before;
}

static bool refused(void)
{
  if (forbidden) {
    fputs("mem: allocation inside the token loop\n", stderr);
    abort();
  }
  if (fail_countdown < 0)
    return false;
  if (fail_countdown == 0)
    return true;
  fail_countdown--;
  return false;
}
#else
void mem_fail_after(int64_t n)
{
  (void)n;
}

bool mem_forbid(bool on)
{
  (void)on;
  return false;
}

static inline bool refused(void)
{
  return false;
}
#endif

void *mem_alloc(size_t size)
{
  return refused() ? NULL : malloc(size ? size : 1);
}

void *mem_zalloc(size_t size)
{
  return refused() ? NULL : calloc(1, size ? size : 1);
}

void *mem_realloc(void *p, size_t size)
{
  return refused() ? NULL : realloc(p, size ? size : 1);
}

void *mem_array(size_t count, size_t size)
{
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes))
    return NULL;
  return mem_zalloc(bytes);
}

void *mem_aligned(size_t alignment, size_t size)
{
  void *p;
  if (refused() || posix_memalign(&p, alignment < sizeof(void *) ? sizeof(void *) : alignment, size ? size : 1))
    return NULL;
  return p;
}

void mem_advise_huge(void *p, size_t size)
{
#ifdef MADV_HUGEPAGE
  const uintptr_t page = (uintptr_t)2 << 20;
  uintptr_t begin = ((uintptr_t)p + page - 1) / page * page, end = ((uintptr_t)p + size) / page * page;
  if (begin < end)
    madvise((void *)begin, end - begin, MADV_HUGEPAGE); /* advice: a refusal changes nothing */
#else
  (void)p;
  (void)size;
#endif
}

char *mem_strndup(const char *s, size_t n)
{
  char *copy = mem_alloc(n + 1);
  if (copy) {
    memcpy(copy, s, n);
    copy[n] = '\0';
  }
  return copy;
}

char *mem_strdup(const char *s)
{
  return mem_strndup(s, strlen(s));
}

void mem_free(void *p)
{
  free(p);
}

bool mem_grow(void *p_to_pointer, size_t *capacity, size_t need, size_t element)
{
  if (need <= *capacity)
    return true;
  size_t want = *capacity + *capacity / 2 + 8, bytes;
  if (want < need)
    want = need;
  if (__builtin_mul_overflow(want, element, &bytes))
    return false;
  void *old;
  memcpy(&old, p_to_pointer, sizeof old);
  void *grown = mem_realloc(old, bytes);
  if (!grown)
    return false;
  memcpy(p_to_pointer, &grown, sizeof grown);
  *capacity = want;
  return true;
}

/* ---- arena ---- */

enum { ARENA_ALIGN = 16, ARENA_FIRST = 4096, ARENA_MOST = 1 << 20 };

struct arena_block {
  arena_block *next;
  size_t pad; /* keeps the data behind it aligned */
};

void *arena_alloc(arena *a, size_t size)
{
  if (size > SIZE_MAX / 2)
    return NULL;
  size = (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
  if (!a->blocks || a->size - a->used < size) {
    size_t want = a->size * 2;
    if (want < ARENA_FIRST)
      want = ARENA_FIRST;
    if (want > ARENA_MOST)
      want = ARENA_MOST;
    if (want < size)
      want = size;
    arena_block *block = mem_alloc(sizeof *block + want);
    if (!block)
      return NULL;
    block->next = a->blocks;
    a->blocks = block;
    a->used = 0;
    a->size = want;
    a->total += want;
  }
  char *p = (char *)(a->blocks + 1) + a->used;
  a->used += size;
  return p;
}

void *arena_zalloc(arena *a, size_t size)
{
  void *p = arena_alloc(a, size);
  return p ? memset(p, 0, size) : NULL;
}

char *arena_strndup(arena *a, const char *s, size_t n)
{
  char *copy = arena_alloc(a, n + 1);
  if (copy) {
    memcpy(copy, s, n);
    copy[n] = '\0';
  }
  return copy;
}

void arena_free(arena *a)
{
  for (arena_block *block = a->blocks, *next; block; block = next) {
    next = block->next;
    mem_free(block);
  }
  *a = (arena){0};
}
