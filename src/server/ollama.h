/* ollama.h - what the two files of Ollama's dialect share. */
#ifndef TERN_SERVER_OLLAMA_H
#define TERN_SERVER_OLLAMA_H

#include "server/routes.h"

/* Makes the body's "model" a name that is served: the dialect's names may end in ":latest". */
bool oll_fix_model(const server *s, json_t *root, oai_fault *fault);
enum { OLL_TIME = 40 };
/* Now, or `at` where it is not 0, as the dialect writes times. */
const char *oll_time(time_t at, char out[OLL_TIME]);

#endif
