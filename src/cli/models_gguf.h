/* models_gguf.h - repos and directories that hold GGUF files alone: which files those are, and which one is meant.
 *
 * A directory counts as one where it has .gguf files and no .safetensors file: GGUF repos often have a config.json too,
 * which says nothing about the weights. Of a model in parts the first is named; projectors of images ("mmproj...") are
 * no models. Links to folders are not followed. What a file becomes is models_import's business.
 */
#ifndef TERN_CLI_MODELS_GGUF_H
#define TERN_CLI_MODELS_GGUF_H

#include "base/status.h"

/* How deep files may lie below the directory: in a repo in folders of their own, elsewhere in the directory alone. */
enum { GGUF_IN_REPO = 3, GGUF_IN_DIRECTORY = 0 };

typedef struct gguf_files {
  char **items; /* paths inside the directory, sorted */
  size_t n, capacity;
} gguf_files;

/* None where the directory is not one of GGUF files, or not there. gguf_files_free in any case. */
tern_status gguf_files_find(const char *dir, int depth, gguf_files *out, tern_error *err);
void gguf_files_free(gguf_files *l);
/* Whether it finds any. */
bool gguf_files_there(const char *dir, int depth);

/* The file that is meant (mem_free): the only one; with `wanted` the one of that path, else the only one of
 * that name, else the only one that has it in its path, whatever its case. `id` begins the messages, and `before` the
 * names of the files in them. */
tern_status gguf_files_pick(const gguf_files *l, const char *dir, const char *id, const char *before,
                            const char *wanted, char **path, tern_error *err);

#endif
