/* ls.c - the models that are found, or with --types the model types that this build runs. Of models it reads config
 * files and headers, no weights: what cannot be run is listed with the reason. A repo of the hub has one row, the
 * revision that its id means; --json and -v tell of the others. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/describe.h"
#include "cli/models.h"
#include "cli/out.h"
#include "cli/survey.h"
#include "cli/use.h"
#include "cli/verbs.h"
#include "hub/registry.h"

enum { LONGEST_ID = 60 };

/* The revision that an entry is, where it lies in the hub's layout. */
typedef struct place {
  char commit[REPO_COMMIT_ROOM]; /* "": not of the hub */
  registry revisions;            /* of its repo */
  char name[REPO_REVISION_ROOM]; /* "main", another ref, or the commit; "-" */
} place;

/* ROOT/models--org--name/snapshots/COMMIT, cut apart; a GGUF file's place in it goes before. */
static void find_place(const model_entry *e, place *out)
{
  *out = (place){.name = "-"};
  size_t file = e->gguf ? strlen(e->gguf) + 1 : 0;
  char *root = mem_strndup(e->path, strlen(e->path) - file), *commit = root ? strrchr(root, '/') : NULL,
       id[REPO_ID_ROOM];
  cache_repo r = {0};
  if (commit) {
    *commit++ = 0;
    char *snapshots = strrchr(root, '/');
    char *repo = snapshots && !strcmp(snapshots, "/snapshots") ? (*snapshots = 0, strrchr(root, '/')) : NULL;
    if (repo && repo_of_folder(repo + 1, id) && strlen(commit) < sizeof out->commit) {
      *repo = 0;
      snprintf(out->commit, sizeof out->commit, "%s", commit);
      memcpy(out->name, out->commit, sizeof out->commit);
      if (cache_repo_open(root, id, &r, NULL) == TERN_OK && registry_read(&r, &out->revisions, NULL) == TERN_OK) {
        const registry_revision *v = registry_find(&out->revisions, out->commit),
                                *main = registry_find(&out->revisions, "main");
        if (v && *v->refs)
          snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(v->refs, "\n"), v->refs);
        if (v && v == main)
          snprintf(out->name, sizeof out->name, "main");
      }
    }
  }
  cache_repo_clear(&r);
  mem_free(root);
}

static json_t *refs_json(const char *refs)
{
  json_t *all = json_array();
  for (const char *at = refs; *at; at += *at == '\n') {
    size_t n = strcspn(at, "\n");
    out_append(&all, out_textn(at, n));
    at += n;
  }
  return all;
}

static json_t *revisions_json(const registry *g)
{
  json_t *all = json_array();
  for (size_t i = 0; i < g->n_revisions; i++)
    out_append(&all, json_pack("{so so sI}", "commit", out_text(g->revisions[i].name), "refs",
                               refs_json(g->revisions[i].refs), "bytes", (json_int_t)g->revisions[i].bytes));
  return all;
}

static json_t *row(const model_entry *e, const survey *s, const place *at)
{
  json_t *row = survey_json(e->id, e->path, s);
  if (row && *at->commit &&
      (json_object_set_new(row, "revision", out_text(at->name)) ||
       json_object_set_new(row, "commit", out_text(at->commit)) ||
       json_object_set_new(row, "revisions", revisions_json(&at->revisions)))) {
    json_decref(row);
    return NULL;
  }
  return row;
}

/* ---- the table ---- */

static int id_width(const model_list *list)
{
  size_t most = strlen("id");
  for (size_t i = 0; i < list->n; i++)
    most = strlen(list->items[i].id) > most ? strlen(list->items[i].id) : most;
  return most < LONGEST_ID ? (int)most : LONGEST_ID;
}

static void print_row(model_entry *e, survey *s, const place *at, int width)
{
  char size[32], fits[32], can[32], count[16], revision[64];
  snprintf(revision, sizeof revision, "%.12s", at->name);
  err_clean(e->id); /* names of directories, refs and types may hold anything */
  err_clean(revision);
  err_clean(s->type);
  err_clean(s->quantisation);
  out_printf("%-*s  %-12s  %-14s %-8s %-8s  %-18s %7s %10s  %-15s %s\n", width, e->id, revision, s->type, s->tier,
             s->fidelity, s->quantisation, survey_count(s->parameters, count), describe_bytes(s->bytes, size),
             survey_can(s, can), survey_fits(s, fits));
  if (!s->runs)
    say_more("%s: %s", e->id, s->why.text);
  for (size_t i = 0; i < at->revisions.n_revisions; i++) {
    const registry_revision *v = &at->revisions.revisions[i];
    for (char *end; (end = strchr(v->refs, '\n'));)
      *end = ' ';
    if (strcmp(v->name, at->commit) != 0)
      say_more("%s: another revision: %s%s%s, %s", e->id, v->name, *v->refs ? ", " : "", v->refs,
               describe_bytes((double)v->bytes, size));
  }
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
  if (status != TERN_OK) {
    env_clear(&env);
    return status;
  }
  if (list.closed.status != TERN_OK && !list.n) {
    status = err_set(err, TERN_E_IO, "%s", list.closed.text);
    env_clear(&env);
    models_free(&list);
    return status;
  }
  if (list.closed.status != TERN_OK)
    say_warning("%s: what is in it is not listed", list.closed.text);
  if (a->bare_ids) {
    for (size_t i = 0; i < list.n; i++) {
      err_clean(list.items[i].id);
      out_printf("%s\n", list.items[i].id);
    }
    models_free(&list);
    env_clear(&env);
    return TERN_OK;
  }
  json_t *rows = a->json ? json_array() : NULL;
  int width = id_width(&list);
  size_t broken = 0;
  if (!a->json && list.n)
    out_printf("%-*s  %-12s  %-14s %-8s %-8s  %-18s %7s %10s  %-15s %s\n", width, "id", "revision", "type", "tier",
               "fidelity", "quantisation", "params", "size", "capabilities", "fits");
  for (size_t i = 0; i < list.n && out_ok(); i++) {
    survey s;
    place at;
    survey_entry(&env, &list.items[i], &s);
    broken += !s.runs;
    find_place(&list.items[i], &at);
    if (a->json)
      out_append(&rows, row(&list.items[i], &s, &at));
    else
      print_row(&list.items[i], &s, &at, width);
    registry_free(&at.revisions);
  }
  if (a->json)
    out_json(rows);
  else if (broken && !a->verbose)
    say("%zu of these cannot be run: tern ls -v says why", broken);
  else if (!list.n)
    say("no models in the Hugging Face cache or under TERN_HOME%s", MODELS_HOW_TO_GET);
  models_free(&list);
  env_clear(&env);
  return TERN_OK;
}
