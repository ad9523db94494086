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
#include "cli/use.h"
#include "cli/verbs.h"
#include "model/profile.h"

typedef struct listing {
  char type[64], quantisation[64];
  const char *tier, *fidelity; /* "-": cannot be run */
  double bytes;
  bool fits;
  bool runs;
  tern_error why; /* where it does not run */
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

static tern_status look(const model_entry *e, cfg **c, quant_config **q, listing *l)
{
  model_profile profile;
  model_config config;
  profile_artifact artifact;
  const arch *a;
  TRY(cfg_open(e->path, c, &l->why));
  snprintf(l->type, sizeof l->type, "%.63s", cfg_model_type(*c));
  TRY(quant_open(*c, q, &l->why));
  describe_quantisation(*c, *q, l->quantisation);
  TRY(profile_arch(*c, NULL, &a, &l->why));
  TRY(model_config_read(*c, a, &config, &l->why));
  profile_artifact_of(e->path, &artifact);
  const profile_subject subject = {
      .arch = a, .config = &config, .ternary = quant_is_ternary(*q), .numerics = TERN_EXACT, .artifact = &artifact};
  TRY(profile_resolve(profile_builtin(), &subject, &profile, &l->why));
  l->tier = profile_tier_name(profile.tier);
  l->fidelity = profile.fidelity;
  return TERN_OK;
}

static void describe(const model_entry *e, double room, listing *l)
{
  cfg *c = NULL;
  quant_config *q = NULL;
  *l = (listing){.type = "-", .quantisation = "-", .tier = "-", .fidelity = "-"};
  l->runs = path_place(e->path, look(e, &c, &q, l), &l->why) == TERN_OK;
  quant_close(q);
  cfg_close(c);
  l->bytes = weight_bytes(e->path);
  l->fits = room == 0 || l->bytes < room;
}

static json_t *row(const model_entry *e, const listing *l)
{
  return json_pack("{ss ss ss ss ss ss sI sb ss*}", "id", e->id, "path", e->path, "type", l->type, "tier", l->tier,
                   "fidelity", l->fidelity, "quantisation", l->quantisation, "size", (json_int_t)l->bytes, "fits",
                   (int)l->fits, "error", l->runs ? NULL : l->why.text);
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
    err_clean(l.type);
    err_clean(l.quantisation);
    out_printf("%-48s %-14s %-9s %-9s %-18s %10s  %s\n", list.items[i].id, l.type, l.tier, l.fidelity, l.quantisation,
               describe_bytes(l.bytes, size), l.fits ? "yes" : "no");
    if (!l.runs)
      say_more("%s: %s", list.items[i].id, l.why.text);
  }
  if (a->json)
    out_json(rows);
  else if (!list.n)
    say("no models in the Hugging Face cache or under TERN_HOME");
  models_free(&list);
  return TERN_OK;
}
