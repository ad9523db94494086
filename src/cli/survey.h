/* survey.h - what a checkpoint is, from its config.json alone, before there are weights to look at. */
#ifndef TERN_CLI_SURVEY_H
#define TERN_CLI_SURVEY_H

#include "format/config.h"
#include "model/profile.h"

typedef struct survey {
  char type[64], quantisation[64]; /* "-": not known */
  const char *tier, *fidelity;     /* "-": cannot be run */
  uint32_t needs;                  /* capabilities, by bit */
  bool runs;
  tern_error why; /* where it does not run */
} survey;

/* `dir` is where the config lies, for what it was made from; NULL: it came from memory. */
void survey_config(const cfg *c, const char *dir, survey *out);
/* The same of DIR/config.json. */
void survey_dir(const char *dir, survey *out);

#endif
