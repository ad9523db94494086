/* reclaim.h - what rm and gc do alike: show a plan, ask, remove. */
#ifndef TERN_CLI_RECLAIM_H
#define TERN_CLI_RECLAIM_H

#include "cli/args.h"
#include "hub/registry.h"

/* Makes the plan anew, as things are now. */
typedef tern_status reclaim_plan(void *user, registry_plan *plan, tern_error *err);

/* Lists the plan on stdout (with --json one document, after the removal), asks at a terminal unless --yes, and removes.
 * Without --yes and without a terminal an error, and nothing is removed. An empty plan says so and is no error.
 * A question may stand for hours: after the answer the plan is made once more, and what came into use meanwhile stays.
 */
tern_status reclaim(const cli_args *a, registry_plan *plan, reclaim_plan *again, void *user, tern_error *err);
/* The repo for one who removes: its lock is taken (*lock, cache_unlock), its folders read. TERN_E_BUSY where a pull is
 * at it. */
tern_status reclaim_open(const cache_repo *r, int *lock, registry *g, tern_error *err);
/* The second half of it, where the lock is held already. */
tern_status reclaim_read(const cache_repo *r, registry *g, tern_error *err);

#endif
