/* distance.h - how far two names are apart, for suggesting what was meant. */
#ifndef TERN_BASE_DISTANCE_H
#define TERN_BASE_DISTANCE_H

#include <stdbool.h>
#include <stddef.h>

/* The optimal string alignment distance (Damerau-Levenshtein) over the first 64 bytes of each. */
size_t text_distance(const char *a, const char *b);
/* Whether `asked` may well be a slip of the pen for what stands that far from it: a third of its letters at most. */
bool text_is_slip(const char *asked, size_t distance);

#endif
