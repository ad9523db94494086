/* profile.c - see profile.h. Resolution is a walk through three tiers; what a profile may claim is checked by one pure
 * function that all tiers go through, the generic one too. */
#include "model/profile.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/fingerprint.h"
#include "model/nearest.h"

/* ---- words ---- */

#define NAMER(function, type, ...)                                                                                     \
  const char *function(type value)                                                                                     \
  {                                                                                                                    \
    static const char *const names[] = {__VA_ARGS__};                                                                  \
    return names[value];                                                                                               \
  }

NAMER(profile_tier_name,
      profile_tier, [TIER_GENERIC] = "generic", [TIER_FAMILY] = "family", [TIER_TARGETED] = "targeted")
NAMER(profile_loader_name, profile_loader, [LOADER_PLAIN] = "plain", [LOADER_WRAPPED] = "wrapped")
NAMER(profile_graph_name, profile_graph, [GRAPH_DENSE] = "dense", [GRAPH_DENSE_TEXT] = "dense-text")
NAMER(profile_loop_name, profile_loop, [LOOP_UNIFORM] = "uniform", [LOOP_SPLIT] = "split")
NAMER(profile_special_name, profile_special, [SPECIAL_NONE] = "none")
static NAMER(level_name, profile_level, [LEVEL_L1] = "L1", [LEVEL_L2] = "L2", [LEVEL_L3] = "L3")

    const char *profile_capability_name(int i)
{
  static const char *const names[CAPABILITIES] = {"dense",   "wrapped", "windows", "grown-rope",
                                                  "ternary", "exact",   "native",  "fast"};
  return names[i];
}

/* ---- what a descriptor row asks for ---- */

/* Whether some decoder that `a` may run (itself, or a wrapper's text models) has the property. */
static bool any_text(const arch *a, bool (*has)(const arch *))
{
  bool found = !a->wraps[0].text && has(a);
  for (int i = 0; i < ARCH_MAX_WRAPS && a->wraps[i].text; i++)
    found |= has(a->wraps[i].text);
  return found;
}

static bool has_windows(const arch *a)
{
  return a->layers != LAYERS_FULL;
}

static bool has_grown_rope(const arch *a)
{
  return a->rope == ROPE_NTK;
}

static bool has_ternary(const arch *a)
{
  return a->ternary;
}

/* Rings are summed in another order by steps, a grown base is used by steps alone. Windows that are masks are not. */
static bool may_split(const arch *a)
{
  bool rings = any_text(a, has_windows) && !a->windows_by_time;
  return rings || any_text(a, has_grown_rope);
}

static uint32_t needs_of(const arch *a)
{
  return CAP_DENSE | (a->wraps[0].text ? CAP_WRAPPED : 0) | (any_text(a, has_windows) ? CAP_WINDOWS : 0) |
         (any_text(a, has_grown_rope) ? CAP_GROWN : 0) | (any_text(a, has_ternary) ? CAP_TERNARY : 0);
}

static const char *corrected_of(const arch *a, bool ternary)
{
  const char *text = a->corrected;
  for (int i = 0; !text && i < ARCH_MAX_WRAPS && a->wraps[i].text; i++)
    text = a->wraps[i].text->corrected;
  return text ? text : ternary ? ARCH_CORRECTED_TERNARY : NULL;
}

profile_row profile_generic_row(const arch *a, bool ternary)
{
  bool wrapped = a->wraps[0].text != NULL;
  return (profile_row){
      .id = a->name,
      .tier = TIER_GENERIC,
      .types = {a->name},
      .level = corrected_of(a, ternary) ? LEVEL_L2 : LEVEL_L1,
      .oracle = PROFILE_ORACLE,
      .needs = ternary ? CAP_TERNARY : 0,
      .run = {.loader = wrapped ? LOADER_WRAPPED : LOADER_PLAIN,
              .graph = wrapped ? GRAPH_DENSE_TEXT : GRAPH_DENSE,
              .loop = may_split(a) ? LOOP_SPLIT : LOOP_UNIFORM},
  };
}

/* ---- what a profile may say ---- */

static tern_status refuse(const profile_row *row, const char *what, const char *says, const char *other,
                          tern_error *err)
{
  return err_set(err, TERN_E_UNSUPPORTED, "profile %s:%s: %s: %s, but %s", profile_tier_name(row->tier), row->id, what,
                 says, other);
}

static tern_status check_fidelity(const profile_row *row, const char *corrected, tern_error *err)
{
  if (!row->oracle || strcmp(row->oracle, PROFILE_ORACLE) != 0)
    return refuse(row, "oracle", row->oracle ? row->oracle : "none", "the pinned one is " PROFILE_ORACLE, err);
  if (row->level == LEVEL_L1 && corrected)
    return refuse(row, "fidelity", "L1", "the reference had to be corrected, which is L2", err);
  if (row->level == LEVEL_L2 && !corrected)
    return refuse(row, "fidelity", "L2", "nothing was corrected in the reference, which is L1", err);
  return TERN_OK;
}

static tern_status check_execution(const profile_row *row, const arch *a, tern_error *err)
{
  /* ORDER profile_loader, profile_graph */
  static const profile_graph graph_of[] = {[LOADER_PLAIN] = GRAPH_DENSE, [LOADER_WRAPPED] = GRAPH_DENSE_TEXT};
  char other[128];
  const profile_execution *run = &row->run;
  profile_graph wanted = a->wraps[0].text ? GRAPH_DENSE_TEXT : GRAPH_DENSE;
  if (run->graph != graph_of[run->loader]) {
    snprintf(other, sizeof other, "loader %s loads for graph %s", profile_loader_name(run->loader),
             profile_graph_name(graph_of[run->loader]));
    return refuse(row, "graph", profile_graph_name(run->graph), other, err);
  }
  if (run->graph != wanted) {
    snprintf(other, sizeof other, "%.40s is run by graph %s", a->name, profile_graph_name(wanted));
    return refuse(row, "graph", profile_graph_name(run->graph), other, err);
  }
  if (run->loop == LOOP_UNIFORM && may_split(a)) {
    snprintf(other, sizeof other, "steps of %.40s may have other bits than reads, which takes loop split", a->name);
    return refuse(row, "loop", profile_loop_name(run->loop), other, err);
  }
  return TERN_OK;
}

static tern_status check_needs(const profile_row *row, const arch *a, uint32_t offers, tern_error *err)
{
  uint32_t missing = (row->needs | needs_of(a)) & ~offers;
  for (int i = 0; i < CAPABILITIES; i++)
    if (missing >> i & 1)
      return refuse(row, "needs", profile_capability_name(i), "this build does not have it", err);
  return TERN_OK;
}

tern_status profile_check(const profile_row *row, const arch *a, const char *corrected, uint32_t offers,
                          tern_error *err)
{
  TRY(check_fidelity(row, corrected, err));
  TRY(check_execution(row, a, err));
  return check_needs(row, a, offers, err);
}

/* ---- registries ---- */

const profile_registry *profile_builtin(void)
{
  static const profile_registry builtin = {.offers = CAP_DENSE | CAP_WRAPPED | CAP_WINDOWS | CAP_GROWN | CAP_TERNARY |
                                                     CAP_EXACT | CAP_NATIVE | CAP_FAST};
  return &builtin;
}

static bool is_hex(const char *s, size_t n)
{
  return s && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static bool is_for_type(const profile_row *row, const char *type)
{
  for (int i = 0; i < PROFILE_MAX_TYPES && row->types[i]; i++)
    if (strcmp(row->types[i], type) == 0)
      return true;
  return false;
}

static bool is_for_artifact(const profile_row *row, const profile_artifact *a)
{
  return row->tier == TIER_TARGETED && strcmp(row->repo, a->repo) == 0 && strcmp(row->revision, a->revision) == 0;
}

static tern_status check_row(const profile_registry *g, size_t i, tern_error *err)
{
  const profile_row *row = &g->rows[i];
  if (row->tier == TIER_GENERIC)
    return refuse(row, "tier", "generic", "descriptor rows alone are generic", err);
  if (row->tier == TIER_TARGETED && !(row->repo && strchr(row->repo, '/') && is_hex(row->revision, 40)))
    return refuse(row, "artifact", row->revision ? row->revision : "none",
                  "it must be org/name and 40 lower-case hexadecimal digits", err);
  if (row->tier == TIER_TARGETED && !is_hex(row->fingerprint, 64))
    return refuse(row, "fingerprint", row->fingerprint ? row->fingerprint : "none",
                  "it must be 64 lower-case hexadecimal digits", err);
  if (!row->types[0])
    return refuse(row, "types", "none", "a profile is for one at least", err);
  for (int k = 0; k < PROFILE_MAX_TYPES && row->types[k]; k++) {
    const arch *a = arch_find(row->types[k]);
    if (!a || strcmp(a->name, row->types[k]) != 0)
      return refuse(row, "types", row->types[k], "no descriptor row has this name", err);
    TRY(profile_check(row, a, corrected_of(a, false), g->offers, err));
  }
  return TERN_OK;
}

static bool collide(const profile_row *a, const profile_row *b)
{
  if (a->tier != b->tier)
    return false;
  if (a->tier == TIER_TARGETED)
    return strcmp(a->repo, b->repo) == 0 && strcmp(a->revision, b->revision) == 0;
  for (int i = 0; i < PROFILE_MAX_TYPES && a->types[i]; i++)
    if (is_for_type(b, a->types[i]))
      return true;
  return false;
}

tern_status profile_registry_check(const profile_registry *g, tern_error *err)
{
  for (size_t i = 0; i < g->n; i++) {
    TRY(check_row(g, i, err));
    for (size_t k = 0; k < i; k++)
      if (collide(&g->rows[i], &g->rows[k]))
        return refuse(&g->rows[i], "subject", "the same", g->rows[k].id, err);
  }
  return TERN_OK;
}

/* ---- artifacts ---- */

/* models--org--name -> org/name, as the hub's own code cuts it; false: another folder, or a name that does not fit. */
static bool read_repo(const char *folder, size_t length, char out[256])
{
  static const char prefix[] = "models--";
  size_t n = 0, skip = sizeof prefix - 1;
  if (length <= skip || strncmp(folder, prefix, skip) != 0)
    return false;
  for (size_t i = skip; i < length; i++) {
    if (n + 1 >= 256)
      return false;
    bool cut = folder[i] == '-' && i + 1 < length && folder[i + 1] == '-';
    out[n++] = cut ? '/' : folder[i];
    i += cut;
  }
  out[n] = '\0';
  return n > 0;
}

void profile_artifact_of(const char *dir, profile_artifact *out)
{
  static const char middle[] = "snapshots";
  char path[PATH_MAX];
  *out = (profile_artifact){0};
  if (!dir || !realpath(dir, path))
    return;
  char *commit = strrchr(path, '/');
  if (!commit || !is_hex(commit + 1, 40))
    return;
  *commit++ = '\0';
  char *snapshots = strrchr(path, '/');
  if (!snapshots || strcmp(snapshots + 1, middle) != 0)
    return;
  *snapshots = '\0';
  char *folder = strrchr(path, '/');
  if (!folder || !read_repo(folder + 1, strlen(folder + 1), out->repo)) {
    out->repo[0] = '\0';
    return;
  }
  memcpy(out->revision, commit, ARTIFACT_REVISION);
}

/* ---- resolution ---- */

static void describe(const profile_row *row, const arch *a, const char *corrected, tern_numerics numerics,
                     model_profile *out)
{
  static const char *const claims[] = {
      [TERN_EXACT] = "logits bit-identical to the reference after set_dtype(float32)",
      [TERN_NATIVE] = "logits bit-identical to the reference as loaded",
      [TERN_FAST] = "logits close to those of exact (docs/fast.md has the measure), the same at every level and size",
  };
  const char *claim = claims[numerics];
  out->arch = a;
  out->tier = row->tier;
  out->fidelity = level_name(numerics == TERN_FAST ? LEVEL_L3 : row->level);
  out->oracle = row->oracle;
  out->corrected = corrected;
  out->needs = row->needs | needs_of(a);
  out->run = row->run;
  snprintf(out->id, sizeof out->id, "%s:%s", profile_tier_name(row->tier), row->id);
  if (corrected)
    snprintf(out->claim, sizeof out->claim, "%s, corrected: %s", claim, corrected);
  else
    snprintf(out->claim, sizeof out->claim, "%s", claim);
}

void profile_generic(const arch *a, tern_numerics numerics, model_profile *out)
{
  profile_row row = profile_generic_row(a, false);
  *out = (model_profile){0};
  describe(&row, a, corrected_of(a, false), numerics, out);
}

/* The targeted row of the artifact, else the family row of the type; NULL: neither. */
static const profile_row *find_row(const profile_registry *g, const profile_subject *s)
{
  const profile_row *family = NULL;
  for (size_t i = 0; i < g->n; i++) {
    const profile_row *row = &g->rows[i];
    if (s->artifact && s->artifact->repo[0] && is_for_artifact(row, s->artifact))
      return row;
    if (!family && row->tier == TIER_FAMILY && is_for_type(row, s->arch->name))
      family = row;
  }
  return family;
}

/* An artifact is immutable: another type or another configuration under its name is another model. */
static tern_status check_target(const profile_row *row, const model_profile *p, const profile_subject *s,
                                tern_error *err)
{
  if (!is_for_type(row, s->arch->name))
    return err_set(err, TERN_E_UNSUPPORTED, "profile targeted:%s: config.json of %s@%s has model_type %s, not %s",
                   row->id, row->repo, row->revision, s->arch->name, row->types[0]);
  if (strcmp(row->fingerprint, p->fingerprint) != 0)
    return err_set(err, TERN_E_UNSUPPORTED,
                   "profile targeted:%s: config.json of %s@%s has fingerprint %s, but the profile is for %s", row->id,
                   row->repo, row->revision, p->fingerprint, row->fingerprint);
  return TERN_OK;
}

/* The name of one capability's bit. */
static const char *name_of(unsigned cap)
{
  int i = 0;
  while (cap >> i > 1)
    i++;
  return profile_capability_name(i);
}

static tern_status check_numerics(const profile_registry *g, const profile_subject *s, tern_error *err)
{
  static const unsigned caps[] = {[TERN_EXACT] = CAP_EXACT, [TERN_NATIVE] = CAP_NATIVE, [TERN_FAST] = CAP_FAST};
  char others[64] = "";
  if (g->offers & caps[s->numerics])
    return TERN_OK;
  for (size_t i = 0, n = 0; i < sizeof caps / sizeof *caps; i++)
    if (g->offers & caps[i])
      n += (size_t)snprintf(others + n, sizeof others - n, "%s%s", n ? " and " : "", name_of(caps[i]));
  return err_set(err, TERN_E_UNSUPPORTED, "numerics: %s is not available for %s; there is %s",
                 name_of(caps[s->numerics]), s->arch->name, others[0] ? others : "none");
}

tern_status profile_arch(const cfg *c, const char *dir, const arch **out, tern_error *err)
{
  const char *type = cfg_model_type(c);
  char near[200];
  *out = arch_find(type);
  if (*out)
    return TERN_OK;
  return err_set(
      err, TERN_E_UNSUPPORTED,
      "config.json: model_type %.200s is not supported; nearest are %s (tern inspect says what keeps them from "
      "it, tern ls --types lists all)",
      type, nearest_names(c, dir, near, sizeof near));
}

tern_status profile_resolve(const profile_registry *g, const profile_subject *s, model_profile *out, tern_error *err)
{
  profile_row generic = profile_generic_row(s->arch, s->ternary);
  const profile_row *found = find_row(g, s), *row = found ? found : &generic;
  const char *corrected = corrected_of(s->arch, s->ternary);
  TRY(check_numerics(g, s, err));
  *out = (model_profile){0};
  if (s->artifact)
    out->artifact = *s->artifact;
  TRY(model_config_fingerprint(s->config, out->fingerprint, err));
  if (row->tier == TIER_TARGETED)
    TRY(check_target(row, out, s, err));
  TRY(profile_check(row, s->arch, corrected, g->offers, err));
  describe(row, s->arch, corrected, s->numerics, out);
  return TERN_OK;
}
