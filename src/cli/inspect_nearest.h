/* inspect_nearest.h - what inspect says of a checkpoint that no descriptor row runs as it is. */
#ifndef TERN_CLI_INSPECT_NEAREST_H
#define TERN_CLI_INSPECT_NEAREST_H

#include <stdbool.h>

/* Prints to stdout which rows are nearest and what keeps each from running the checkpoint in `dir`, where that is why
 * it failed; else nothing. `error` is the line that goes to stderr afterwards. */
void inspect_nearest(const char *dir, const char *error, bool json);

#endif
