/* thorough.h - how much a test with very many cases takes of them, by how it is run: the plain build takes all; a build
 * with sanitizers, and one under an emulator, where each case costs ten or fifty times as much, takes what proves the
 * same there (docs/testing.md says what is left out and why nothing is lost). TERN_THOROUGH=1 in the environment takes
 * all of it everywhere. */
#ifndef TERN_TEST_THOROUGH_H
#define TERN_TEST_THOROUGH_H

#include <stdbool.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BUILT_FOR_ADDRESSES 1
#endif
#if __has_feature(thread_sanitizer)
#define BUILT_FOR_THREADS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define BUILT_FOR_ADDRESSES 1
#endif
#if defined(__SANITIZE_THREAD__)
#define BUILT_FOR_THREADS 1
#endif
#ifndef BUILT_FOR_ADDRESSES
#define BUILT_FOR_ADDRESSES 0
#endif
#ifndef BUILT_FOR_THREADS
#define BUILT_FOR_THREADS 0
#endif

typedef enum thoroughness { EVERY_CASE, FOR_ADDRESSES, FOR_THREADS, EMULATED } thoroughness;

static inline thoroughness how_thorough(void)
{
  if (getenv("TERN_THOROUGH") || getenv("TERN_EXHAUSTIVE"))
    return EVERY_CASE;
  if (getenv("TERN_EMULATED"))
    return EMULATED;
  return BUILT_FOR_ADDRESSES ? FOR_ADDRESSES : BUILT_FOR_THREADS ? FOR_THREADS : EVERY_CASE;
}

/* One case in `sanitized` or in `emulated`, counted by `*n`; all of them in the plain build. Where the cases come from
 * loops in each other, the number shares no factor with the loops' lengths: then every value of every loop is met. */
static inline bool take_case(int *n, int sanitized, int emulated)
{
  const thoroughness how = how_thorough();
  const int each = how == EVERY_CASE ? 1 : how == EMULATED ? emulated : sanitized;
  return (*n)++ % each == 0;
}

/* Whether a case that is the same for every number of threads takes the `i`th of `n` numbers, the first of which is
 * one, at its `turn`: all of them in the plain build, else one after the other. One thread has no races to find. */
static inline bool take_threads(int i, int n, unsigned turn)
{
  switch (how_thorough()) {
  case EVERY_CASE:
    return true;
  case FOR_THREADS:
    return i == 1 + (int)(turn % (unsigned)(n - 1));
  default:
    return i == (int)(turn % (unsigned)n);
  }
}

#endif
