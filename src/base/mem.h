/* mem.h - the allocator's front door. Everything that tern allocates goes through here, so that a test build can make
 * the n-th allocation fail and can forbid allocation inside the token loop (mem_forbid).
 *
 * Nothing here sets an error: a NULL means the system refused, and the caller says what it wanted memory for.
 */
#ifndef TERN_BASE_MEM_H
#define TERN_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t size);                     /* uninitialised; size 0 gives a freeable pointer */
void *mem_zalloc(size_t size);                    /* zeroed */
void *mem_realloc(void *p, size_t size);          /* p stays valid on NULL */
void *mem_array(size_t count, size_t size);       /* zeroed; NULL if the product overflows */
void *mem_aligned(size_t alignment, size_t size); /* uninitialised, alignment a power of two; mem_free */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n); /* n bytes and a NUL */
void mem_free(void *p);
/* Asks the system to back what lies in [p, p + size) by huge pages, as it comes to be touched. May do nothing. */
void mem_advise_huge(void *p, size_t size);

/* Makes room for `need` elements in the array *p of *capacity elements. Grows by half at least. False: no memory, *p as
 * it was. */
bool mem_grow(void *p_to_pointer, size_t *capacity, size_t need, size_t element);

/* Test builds (TERN_TEST_ALLOC) only; elsewhere they do nothing. */
void mem_fail_after(int64_t n); /* the n-th allocation from now on, and all later ones, fail; n < 0: never */
bool mem_forbid(bool on);       /* on: allocating in this thread aborts. Returns what was on before */

/* ---- arena: many small things that die together ---- */

typedef struct arena_block arena_block;
typedef struct arena {
  arena_block *blocks;
  size_t used, size; /* of the newest block */
  size_t total;      /* bytes asked of the allocator */
} arena;

/* An arena starts zeroed: `arena a = {0}`. Memory is 16-byte aligned and uninitialised. */
void *arena_alloc(arena *a, size_t size);
void *arena_zalloc(arena *a, size_t size);
char *arena_strndup(arena *a, const char *s, size_t n); /* n bytes and a NUL */
void arena_free(arena *a);                              /* everything; the arena is then empty and usable */

#endif
