/* distance.h - how far two names are apart, for suggesting what was meant. */
#ifndef TERN_BASE_DISTANCE_H
#define TERN_BASE_DISTANCE_H

#include <stddef.h>

/* The optimal string alignment distance (Damerau-Levenshtein) over the first 64 bytes of each. */
size_t text_distance(const char *a, const char *b);

#endif
