/* ls.c - the models that are found, or with --types the model types that this build runs. Of models it looks at config
 * files and sizes alone: what cannot be run is listed with the reason. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/describe.h"
#include "cli/machine.h"
#include "cli/models.h"
#include "cli/out.h"
#include "cli/survey.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "model/profile.h"

typedef struct listing {
  survey v;
  double bytes;
  bool fits;
} listing;

/* Bytes of DIR/.safetensors files. */
static double weight_bytes(const char *path)
{
  double bytes = 0;
  DIR *dir = opendir(path);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    const char *end = strrchr(e->d_name, '.');
    struct stat st;
    if (end && !strcmp(end, ".safetensors") && fstatat(dirfd(dir), e->d_name, &st, 0) == 0)
      bytes += (double)st.st_size;
  }
  if (dir)
    closedir(dir);
  return bytes;
}

static void describe(const model_entry *e, double room, listing *l)
{
  survey_dir(e->path, &l->v);
  l->bytes = weight_bytes(e->path);
  l->fits = room == 0 || l->bytes < room;
}

static json_t *row(const model_entry *e, const listing *l)
{
  return json_pack("{ss ss ss ss ss ss sI sb ss*}", "id", e->id, "path", e->path, "type", l->v.type, "tier", l->v.tier,
                   "fidelity", l->v.fidelity, "quantisation", l->v.quantisation, "size", (json_int_t)l->bytes, "fits",
                   (int)l->fits, "error", l->v.runs ? NULL : l->v.why.text);
}

/* ---- types ---- */

static json_t *type_json(const arch *a, const model_profile *p)
{
  json_t *aliases = json_array();
  for (int i = 0; i < ARCH_MAX_ALIASES && a->aliases[i]; i++)
    out_append(&aliases, json_string(a->aliases[i]));
  return json_pack("{ss so ss ss ss? s[sss]}", "type", a->name, "aliases", aliases, "tier", profile_tier_name(p->tier),
                   "fidelity", p->fidelity, "corrected", p->corrected, "numerics", use_numerics_name(TERN_EXACT),
                   use_numerics_name(TERN_NATIVE), use_numerics_name(TERN_FAST));
}

static void list_types(bool json)
{
  json_t *rows = json ? json_array() : NULL;
  const arch *a;
  if (!json)
    out_printf("%-24s %-9s %-9s %s\n", "type", "tier", "fidelity", "also");
  for (size_t i = 0; (a = arch_at(i)); i++) {
    model_profile p;
    profile_generic(a, TERN_EXACT, &p);
    if (json) {
      out_append(&rows, type_json(a, &p));
      continue;
    }
    out_printf("%-24s %-9s %-9s", a->name, profile_tier_name(p.tier), p.fidelity);
    for (int n = 0; n < ARCH_MAX_ALIASES && a->aliases[n]; n++)
      out_printf("%s%s", n ? ", " : " ", a->aliases[n]);
    out_write("\n", 1);
  }
  if (json)
    out_json(rows);
}

/* ---- the verb ---- */

tern_status verb_ls(const cli_args *a, tern_error *err)
{
  if (a->bare_ids && (a->types || a->json))
    return err_set(err, TERN_E_USAGE, "ls: --ids goes without --types and --json");
  if (a->types) {
    list_types(a->json);
    return TERN_OK;
  }
  cli_env env;
  model_list list;
  tern_status status = env_read(&env, err);
  if (status == TERN_OK)
    status = models_find(&env, &list, err);
  env_clear(&env);
  if (status != TERN_OK)
    return status;
  if (a->bare_ids) {
    for (size_t i = 0; i < list.n; i++) {
      err_clean(list.items[i].id);
      out_printf("%s\n", list.items[i].id);
    }
    models_free(&list);
    return TERN_OK;
  }
  double room = (double)machine_memory_available();
  json_t *rows = a->json ? json_array() : NULL;
  if (!a->json && list.n)
    out_printf("%-48s %-14s %-9s %-9s %-18s %10s  %s\n", "id", "type", "tier", "fidelity", "quantisation", "size",
               "fits");
  for (size_t i = 0; i < list.n; i++) {
    listing l;
    char size[32];
    describe(&list.items[i], room, &l);
    if (a->json) {
      out_append(&rows, row(&list.items[i], &l));
      continue;
    }
    err_clean(list.items[i].id); /* names of directories and types may hold anything */
    err_clean(l.v.type);
    err_clean(l.v.quantisation);
    out_printf("%-48s %-14s %-9s %-9s %-18s %10s  %s\n", list.items[i].id, l.v.type, l.v.tier, l.v.fidelity,
               l.v.quantisation, describe_bytes(l.bytes, size), l.fits ? "yes" : "no");
    if (!l.v.runs)
      say_more("%s: %s", list.items[i].id, l.v.why.text);
  }
  if (a->json)
    out_json(rows);
  else if (!list.n)
    say("no models in the Hugging Face cache or under TERN_HOME");
  models_free(&list);
  return TERN_OK;
}
