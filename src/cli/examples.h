/* examples.h - command lines to begin with, for `tern help VERB` and the man pages. A test parses each. */
#ifndef TERN_CLI_EXAMPLES_H
#define TERN_CLI_EXAMPLES_H

#include <stddef.h>

#include "cli/args.h"

typedef struct example {
  cli_verb_id verb;
  const char *line, *what;
} example;

extern const example examples[];
extern const size_t examples_n;
/* What a verb's operands mean beyond their names: pairs of verb and text, NULL at the end. */
extern const char *const examples_notes[];

#endif
