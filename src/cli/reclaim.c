/* reclaim.c - see reclaim.h. */
#include "cli/reclaim.h"

#include <string.h>

#include "cli/ask.h"
#include "cli/describe.h"
#include "cli/out.h"

static json_t *plan_json(const registry_plan *plan)
{
  json_t *items = json_array();
  for (size_t i = 0; i < plan->n; i++)
    out_append(&items, json_pack("{so sI ss}", "path", out_text(plan->items[i].path), "bytes",
                                 (json_int_t)plan->items[i].bytes, "why", plan->items[i].why));
  return json_pack("{sI so}", "bytes", (json_int_t)plan->bytes, "removed", items);
}

static void show(const registry_plan *plan)
{
  char size[32], path[ERR_CLEAN_PATH];
  for (size_t i = 0; i < plan->n; i++)
    out_printf("%10s  %-20s  %s\n", describe_bytes((double)plan->items[i].bytes, size), plan->items[i].why,
               err_clean_copy(plan->items[i].path, path, sizeof path));
  out_printf("%10s  in all\n", describe_bytes((double)plan->bytes, size));
  out_flush();
}

tern_status reclaim(const cli_args *a, registry_plan *plan, reclaim_plan *again, void *user, tern_error *err)
{
  const char *verb = cli_verbs[a->verb].name;
  if (!plan->n) {
    if (a->json)
      out_json(plan_json(plan));
    else
      say("nothing to remove");
    return TERN_OK;
  }
  if (!a->json)
    show(plan);
  if (!a->yes && !ask_can())
    return err_set(err, TERN_E_IO, "%s: nothing was removed: there is no terminal to ask at, and --yes was not given",
                   verb);
  if (!a->yes && !ask_yes("Remove this?"))
    return err_set(err, TERN_E_IO, "%s: nothing was removed", verb);
  registry_plan now = {0};
  tern_status status = again(user, &now, err);
  if (status == TERN_OK) {
    registry_plan_keep(plan, &now);
    status = registry_remove(plan, err);
  }
  registry_plan_free(&now);
  TRY(status);
  if (a->json)
    out_json(plan_json(plan));
  return TERN_OK;
}

tern_status reclaim_read(const cache_repo *r, registry *g, tern_error *err)
{
  TRY(registry_read(r, g, err));
  return registry_look_elsewhere(r, g, err);
}

static void tell_nowhere(const cache_repo *r, const char *name)
{
  char path[ERR_CLEAN_PATH], last[ERR_CLEAN_PATH];
  say("%s/snapshots/%s: is no folder, and leads to none: left as it is", err_clean_copy(r->dir, path, sizeof path),
      err_clean_copy(name, last, sizeof last));
}

tern_status reclaim_open(const cache_repo *r, int *lock, registry *g, tern_error *err)
{
  *g = (registry){0};
  TRY(cache_lock_repo(r, true, lock, err));
  if (*lock < 0)
    return err_set(err, TERN_E_BUSY, "%s: another process is downloading to it: try again when it is done", r->dir);
  TRY(reclaim_read(r, g, err));
  for (size_t i = 0; i < g->n_revisions; i++)
    if (g->revisions[i].nowhere)
      tell_nowhere(r, g->revisions[i].name);
  return TERN_OK;
}
