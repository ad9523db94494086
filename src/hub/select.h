/* select.h - which files of a repo are pulled. */
#ifndef TERN_HUB_SELECT_H
#define TERN_HUB_SELECT_H

#include <stdbool.h>
#include <stddef.h>

/* Shell patterns over the whole path, in which '*' goes over '/' too, as in huggingface_hub; one that ends in '/' means
 * all below it. Borrowed. */
typedef struct hub_patterns {
  const char *const *include; /* [n_include]; none: what the engine reads */
  size_t n_include;
  const char *const *exclude; /* [n_exclude]: never these */
  size_t n_exclude;
} hub_patterns;

bool select_wants(const hub_patterns *p, const char *path);

#endif
