/* library.h - the models that are found, for the server's /library. */
#ifndef TERN_CLI_LIBRARY_H
#define TERN_CLI_LIBRARY_H

#include <jansson.h>

/* A list of {"id", "type", "tier", "fidelity", "quantisation", "size", "parameters", "capabilities", "runs", "fits",
 * "largest_context"}; no paths, which are nobody's business over a network. New reference; NULL: no memory.
 * For one thread at a time, whichever. */
json_t *library_list(void *user);

#endif
