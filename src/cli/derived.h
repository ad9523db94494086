/* derived.h - what tern itself made of models and keeps under TERN_HOME, and which of it is nobody's any more.
 *
 *   prepared/IDENTITY/   prepared weights (model/prepared.h). Of use while one of the directories in its `sources`, or
 *                        a model in one of the caches, is the checkpoint of that identity. A source that is there and
 *                        does not open counts as one, and so does one on a file system that is not mounted; and one
 *                        without `sources`, or with some that cannot be read, stays: from what was not seen nothing
 *                        follows.
 *   imports/.seen/HASH   which import a .gguf file gave (models_import.c). Of use while that import is there.
 *
 * Imports themselves are models: `ls` shows them, and they go with `rm` alone.
 */
#ifndef TERN_CLI_DERIVED_H
#define TERN_CLI_DERIVED_H

#include "cli/env.h"
#include "hub/registry.h"

typedef struct derived_lock {
  int fd;    /* of prepared/, which whoever makes files there holds; -1: none */
  bool busy; /* somebody else has it */
  bool told; /* what stays, and why: a second look says it no more. Starts false */
} derived_lock;

/* Adds to the plan what is of no use. `goes` (which may be the plan itself; NULL: nothing): models that are about to
 * go; what is then added is what these alone used. Files that a process has open stay, and all prepared weights where a
 * process is making some. The lock is taken for what is in the plan to be removed safely: derived_unlock after that. */
tern_status derived_plan(const cli_env *env, const registry_plan *goes, registry_plan *plan, derived_lock *lock,
                         tern_error *err);
void derived_unlock(derived_lock *lock);

#endif
