/* pull.h - a download from within another verb. */
#ifndef TERN_CLI_PULL_H
#define TERN_CLI_PULL_H

#include "cli/args.h"

/* Brings ORG/NAME[@REV] as `tern pull` does, and prints nothing on stdout. *dir: its snapshot (mem_free). */
tern_status pull_model(const cli_args *a, const char *name, char **dir, tern_error *err);

#endif
