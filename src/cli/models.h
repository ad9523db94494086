/* models.h - where models are found, and which one MODEL means. */
#ifndef TERN_CLI_MODELS_H
#define TERN_CLI_MODELS_H

#include "cli/env.h"

/* What to do where there is no model. */
#ifdef TERN_HUB
#define MODELS_HOW_TO_GET                                                                                              \
  ": `tern pull ORG/NAME` gets one (mlx-community/Qwen2.5-0.5B-Instruct-4bit is small), and a directory or a .gguf "   \
  "file will do as MODEL"
#else
#define MODELS_HOW_TO_GET ": a directory or a .gguf file will do as MODEL"
#endif

/* What a verb needs of a model's directory. */
typedef enum models_need {
  NEED_WEIGHTS, /* config.json */
  NEED_TEXT,    /* tokenizer.json or tokenizer.model */
} models_need;

typedef struct model_entry {
  char *id;   /* "org/name", as MODEL can name it */
  char *path; /* the directory with config.json; of a repo of GGUF files one of those: each has an entry */
  bool other; /* its repo has no model at main, and `path` is one of the other revisions: the id alone means none */
  const char *gguf; /* the end of `path` that is the .gguf file's place in its repo; NULL: it is a directory */
} model_entry;

typedef struct model_list {
  model_entry *items; /* by id */
  size_t n, capacity;
  tern_error closed; /* the first folder that could not be looked through, where there is one: more may be in it */
} model_list;

/* Every model in the Hugging Face cache and under TERN_HOME. A cache that is not there is an empty one, and one that
 * cannot be read (`closed`) is no error by itself. */
tern_status models_find(const cli_env *env, model_list *out, tern_error *err);
void models_free(model_list *l);
/* The places that are looked through, by order; *plain: org/name with config.json counts there, beside the hub's
 * layout. False: there are no more. *root: mem_free; NULL: this one is not set, or memory ran out (*failed). */
bool models_root(const cli_env *env, size_t i, char **root, bool *plain, bool *failed);
/* Whether a folder of TERN_HOME is a root of its own: "hub", "models", "imports". */
bool models_is_root(const char *name);

/* The directory that `model` means (mem_free). NULL: the one model that is there. Order: a .gguf file, a directory, a
 * repo id with an optional @revision, a unique part of an id, whatever its case. Behind an id, ":FILE" names one of
 * several GGUF files, or a part of its name. Errors list the candidates. */
tern_status models_resolve(const cli_env *env, const char *model, models_need need, char **dir, tern_error *err);
/* Whether `model` names something: a file or directory, an id or part of one that is found, unique or not. */
bool models_names(const cli_env *env, const char *model);

/* A .gguf file's place in the cache, made on first use (mem_free). */
tern_status models_import(const cli_env *env, const char *gguf, char **dir, tern_error *err);
/* That place where it was made before and the file has not changed (mem_free); NULL: it was not. Reads no weights. */
char *models_imported(const cli_env *env, const char *gguf);

#endif
