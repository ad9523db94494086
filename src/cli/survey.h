/* survey.h - what a checkpoint is, before any weight is read: from config.json alone, or from the headers too; and what
 * a GGUF file is, from its headers or from what it was imported into. */
#ifndef TERN_CLI_SURVEY_H
#define TERN_CLI_SURVEY_H

#include "cli/models.h"
#include "engine/fit.h"

enum { SURVEY_TEXT = 1 << 0, SURVEY_CHAT = 1 << 1, SURVEY_TOOLS = 1 << 2 };

typedef struct survey {
  char type[64], quantisation[64]; /* "-": not known */
  const char *tier, *fidelity;     /* "-": cannot be run */
  bool runs;
  tern_error why; /* where it does not run */
  /* survey_dir alone */
  double bytes;      /* of .safetensors files, or of the GGUF file */
  double parameters; /* of the weights that run; 0: not known */
  bool measured;     /* its headers were read: `fit` holds */
  fit fit;           /* for the model's own context, numerics exact, on the CPU */
  unsigned can;      /* SURVEY_TEXT: a tokenizer; _CHAT: a template; _TOOLS: one that reads tools */
} survey;

void survey_config(const cfg *c, survey *out);
/* DIR/config.json, and where that can run the shards' headers. */
void survey_dir(const char *dir, survey *out);
/* Of an entry of the list: its directory, or its GGUF file. That is no more than looked at where it was not imported
 * yet: then what it needs is not measured. */
void survey_entry(const cli_env *env, const model_entry *e, survey *out);
/* "yes", "no", or "to 12345" where not the whole context fits; "-" where it cannot be run. */
const char *survey_fits(const survey *s, char out[32]);
/* "text chat tools", "-" for none. */
const char *survey_can(const survey *s, char out[32]);
/* 134515008 as "135M", "1.24B"; "-" where not known. */
const char *survey_count(double parameters, char out[16]);
/* What ls and the server's /library have of a model, with `id` and `path`. New reference; NULL: no memory. */
json_t *survey_json(const char *id, const char *path, const survey *s);

#endif
