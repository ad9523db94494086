/* prompt_cache.h - --prompt-cache-file: the state of one conversation, taken from a file and put there again.
 *
 * The file is one of --prompt-cache-dir's (engine/prefix_file.h). Who names a file wants that file: one that does not
 * hold, or is another model's, is an error here and not a warning.
 */
#ifndef TERN_CLI_PROMPT_CACHE_H
#define TERN_CLI_PROMPT_CACHE_H

#include "cli/args.h"
#include "engine/engine.h"

/* Both do nothing without the flag. */
/* Gives a session that is new what the file has; a file that is not there yet must be possible. */
tern_status prompt_cache_load(const cli_args *a, tern_session *s, tern_error *err);
/* Writes what the session has, whole or not at all. A signal that comes meanwhile waits. */
tern_status prompt_cache_save(const cli_args *a, tern_session *s, tern_error *err);

#endif
