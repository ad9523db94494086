/* nearest.h - which descriptor rows a checkpoint is nearest to, and what keeps each from running it.
 *
 * For model types that no row covers, and for checkpoints that do not fit the row of their type. Rows are ranked by the
 * edit distance of the type's name, by how many of a row's required keys the config has and how many of the config's
 * keys the row knows, and, where there are weights, by the names of tensors with their numbers left out. The first few
 * are then compared in earnest: keys through the row's reading of the config, tensors name by name through its binding.
 * Headers alone are read.
 */
#ifndef TERN_MODEL_NEAREST_H
#define TERN_MODEL_NEAREST_H

#include "base/mem.h"
#include "model/weights.h"

enum { NEAREST_ROWS = 3, NEAREST_KEYS = 256 };

/* Names of keys, in the result's arena; "text_config.KEY" for those of text_config. At most NEAREST_KEYS are kept. */
typedef struct nearest_keys {
  size_t count;
  const char **names;
} nearest_keys;

typedef struct nearest_row {
  const arch *arch;
  double score;         /* 0 to 1 */
  nearest_keys missing; /* required by the row, absent */
  nearest_keys unread;  /* in the config, of no meaning to the row; keys that only describe are left out */
  char complaint[300];  /* what the row's reading of the config stops at; "": it reads it */
  bool compared;        /* the checkpoint's weights were there to compare names */
  weights_gap gap;
} nearest_row;

typedef struct nearest {
  arena strings;
  nearest_row rows[NEAREST_ROWS];
  size_t n;
  bool known; /* the type has a row: rows[0] */
} nearest;

/* Of the checkpoint in a directory. A type's own row comes first. Errors are those of cfg_open and lack of memory;
 * without weights that open, names of tensors are left out of it. On failure nothing is held. */
tern_status nearest_find(const char *dir, nearest *out, tern_error *err);
void nearest_free(nearest *n);
/* Whether something of the nearest row is missing, left or unread that keeps it from running the checkpoint. */
bool nearest_differs(const nearest *n);

/* "llama, qwen2 and qwen3": the names alone. `dir` may be NULL: no tensors. Returns out. */
const char *nearest_names(const cfg *config, const char *dir, char *out, size_t size);

#endif
